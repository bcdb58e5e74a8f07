"""What may be evaluated anywhere: reads that are never out of bounds, quotients that never divide by zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .. import nodes as ir
from ..types import NOWHERE, Coordinate
from ..walk import walk


def doubtful(program: ir.Program) -> frozenset[Coordinate]:
    """Coordinates that run over a stated range: an axis that they index need not have all of their points."""
    ranges = [r for let in program.lets for clause in let.clauses for r in clause.ranges]
    for let in program.lets:
        for clause in let.clauses:
            for part in (clause.body, clause.guard):
                if part is not None:
                    ranges += [r for inner in walk(part) if isinstance(inner, ir.Reduce) for r in inner.ranges]
    captured = [axis.coordinate for let in program.lets for axis in let.axes[: let.captured]]
    return frozenset(r.coordinate for r in ranges if r.stated).union(captured)


@dataclass(frozen=True, slots=True)
class Caution:
    """What may go wrong at some point: `doubts` are coordinates at which a read may be out of bounds, `guarded` those
    that the conditions around are about; None where nothing is known of these."""

    doubts: frozenset[Coordinate] = frozenset()
    guarded: frozenset[Coordinate] | None = None

    def under(self, conditions: Iterable[ir.Expr]) -> Caution:
        """The same under these conditions."""
        return Caution(self.doubts, NOWHERE.union(*(condition.type.coordinates for condition in conditions)))

    def trusts(self, index: ir.Expr) -> bool:
        """Whether an index is in bounds wherever it stands, or at least no condition around keeps it so."""
        if isinstance(index, ir.Coord) and index.coordinate not in self.doubts:
            return True
        coordinates = index.type.coordinates
        return self.guarded is not None and bool(coordinates) and coordinates.isdisjoint(self.guarded)


def is_safe(expr: ir.Expr, caution: Caution) -> bool:
    """Whether an expression has a value wherever it stands."""
    for part in walk(expr):
        match part:
            case ir.Read(indices=indices) | ir.Array(indices=indices):
                if not all(map(caution.trusts, indices)):
                    return False
            case ir.Map("//" | "%", (_, divisor)) if part.type.kind == "whole" and not _is_counted(divisor):
                return False
            case ir.Map("**") | ir.Reduce("max" | "min") if part.type.kind == "whole":
                return False
            case ir.Reduce("mean" | "argmax" | "argmin"):
                return False
    return True


def is_endless(expr: ir.Expr, lets: Mapping[str, ir.Let], known: dict[str, bool]) -> bool:
    """Whether an expression may be infinite at points that a guard removed: `log_softmax` there, `max` and `min` of no
    points. What is found of definitions is `known` from then on."""
    match expr:
        case ir.Read(tensor) if tensor in lets:
            if tensor not in known:
                known[tensor] = False
                known[tensor] = any(is_endless(clause.body, lets, known) for clause in lets[tensor].clauses)
            return known[tensor]
        case ir.Normalize("log_softmax", guard=guard) if guard is not None:
            return True
        case ir.Reduce("max" | "min", ranges, _, guard) if expr.type.kind == "real":
            return (
                guard is not None
                or any(r.lower.type.coordinates or r.upper.type.coordinates for r in ranges)
                or is_endless(expr.body, lets, known)
            )
        case ir.Normalize("cumsum") | ir.Reduce("sum" | "mean" | "prod"):
            return is_endless(expr.body, lets, known)
        case ir.Map("+" | "-" | "*" | "/" | "neg" | "abs" | "max" | "min" | "relu", arguments):
            return any(is_endless(argument, lets, known) for argument in arguments)
        case ir.Select(_, then, otherwise):
            return is_endless(then, lets, known) or is_endless(otherwise, lets, known)
        case _:
            return False


def _is_counted(divisor: ir.Expr) -> bool:
    """Made of sizes and numbers alone, and no 0 as it is written."""
    if isinstance(divisor, ir.Const):
        return bool(divisor.value)
    return all(isinstance(part, ir.Size | ir.Const | ir.Map) for part in walk(divisor))


_STRICT = Caution()


def arranged(conditions: Mapping[str, ir.Expr]) -> dict[str, ir.Expr]:
    """Conditions in the order in which they are asked: what is always safe first, in the order of its text; the
    rest in the order in which it stood, since one may guard another."""
    if len(conditions) < 2:
        return dict(conditions)
    safe: list[tuple[str, ir.Expr]] = []
    reading: list[tuple[str, ir.Expr]] = []
    other: list[tuple[str, ir.Expr]] = []
    for key, condition in conditions.items():
        if not is_safe(condition, _STRICT):
            other.append((key, condition))
        else:
            reads = any(isinstance(part, ir.Read | ir.Array) for part in walk(condition))
            (reading if reads else safe).append((key, condition))
    return dict((*sorted(safe, key=_first), *sorted(reading, key=_first), *other))


def _first(pair: tuple[str, ir.Expr]) -> str:
    return pair[0]
