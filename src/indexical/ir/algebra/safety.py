"""Expressions that may be evaluated anywhere: no read is out of bounds, no quotient divides by zero."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import TypeAlias

from ...records import dataclass
from .. import nodes as ir
from ..functions import operation
from ..types import NOWHERE, Coordinate
from ..walk import LEAVES, walk
from .contents import Contents


def doubtful(lets: Collection[ir.Let], contents: Contents) -> frozenset[Coordinate]:
    """Coordinates that run over a stated range: an axis that they index need not have all of their points."""
    clauses = [clause for let in lets for clause in let.clauses]
    ranges = [r for clause in clauses for r in clause.ranges]
    guards = (part for clause in clauses if clause.guard is not None for part in walk(clause.guard))
    parts = chain(guards, *map(contents.operations, lets))
    ranges += [r for part in parts if isinstance(part, ir.Reduce) for r in part.ranges]
    captured = [axis.coordinate for let in lets for axis in let.axes[: let.captured]]
    return frozenset(r.coordinate for r in ranges if r.stated).union(captured)


@dataclass(frozen=True, slots=True)
class Caution:
    """The doubts about a place: `doubts` are coordinates at which a read may be out of bounds, `guarded` those
    that the conditions around are about; None where nothing is known of these."""

    doubts: frozenset[Coordinate] = frozenset()
    guarded: frozenset[Coordinate] | None = None

    def under(self, conditions: Iterable[ir.Expr]) -> Caution:
        """The same under these conditions."""
        return Caution(self.doubts, NOWHERE.union(*(condition.type.coordinates for condition in conditions)))

    def beside(self, let: ir.Let, contents: Contents) -> Caution:
        """The same in a program with a further definition."""
        return Caution(self.doubts | doubtful((let,), contents), self.guarded)

    def trusts(self, index: ir.Expr) -> bool:
        """Whether an index is in bounds wherever it stands, or at least no condition around keeps it so."""
        if isinstance(index, ir.Coord) and index.coordinate not in self.doubts:
            return True
        coordinates = index.type.coordinates
        return self.guarded is not None and bool(coordinates) and coordinates.isdisjoint(self.guarded)


def is_safe(expr: ir.Expr, caution: Caution) -> bool:
    """Whether an expression has a value wherever it stands."""
    for part in walk(expr):
        if type(part) in LEAVES:
            continue
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


def is_open(part: ir.Expr) -> bool:
    """Whether an operation may be NaN or infinite of finite arguments that vary: a quotient, a root, an exponential."""
    match part:
        case ir.Map("/", (_, divisor)):
            return bool(divisor.type.coordinates)
        case ir.Map("**", (_, ir.Const(exponent))) if exponent >= 0 and exponent == int(exponent):
            return False
        case ir.Map(op):
            return bool(part.type.coordinates) and not operation(op).finite
        case _:
            return False


Sides: TypeAlias = frozenset[float]

_BELOW, _ABOVE = frozenset((-math.inf,)), frozenset((math.inf,))


def infinities(expr: ir.Expr, lets: Mapping[str, ir.Let], known: dict[str, Sides]) -> Sides:
    """The infinities that an expression may be at points that a guard removed: `log_softmax` there, `max` and `min` of
    no points, and functions of these. What is found of definitions is `known` from then on."""
    match expr:
        case ir.Read(tensor) if tensor in lets:
            if tensor not in known:
                known[tensor] = frozenset()
                known[tensor] = _of_all([clause.body for clause in lets[tensor].clauses], lets, known)
            return known[tensor]
        case ir.Normalize("log_softmax", guard=guard) if guard is not None:
            return _BELOW
        case ir.Reduce("max" | "min", ranges, body, guard) if expr.type.kind == "real":
            found = infinities(body, lets, known)
            if guard is not None or any(r.depends_on for r in ranges):
                found |= _BELOW if expr.op == "max" else _ABOVE
            return found
        case ir.Normalize("cumsum", body=body) | ir.Reduce("sum" | "mean", body=body):
            return infinities(body, lets, known)
        case ir.Reduce("prod", body=body):
            return _BELOW | _ABOVE if infinities(body, lets, known) else frozenset()
        case ir.Map(op, arguments):
            row = operation(op)
            signs = {"rising": (1,), "falling": (-1,), "unknown": (1, -1)}[row.trend]
            found = _of_all(arguments, lets, known).intersection(row.nonfinite_at)
            return frozenset(side * sign for side in found for sign in signs)
        case ir.Select(_, then, otherwise):
            return _of_all((then, otherwise), lets, known)
        case _:
            return frozenset()


def _of_all(several: Iterable[ir.Expr], lets: Mapping[str, ir.Let], known: dict[str, Sides]) -> Sides:
    return frozenset().union(*(infinities(expr, lets, known) for expr in several))


def _is_counted(divisor: ir.Expr) -> bool:
    """Made of sizes and numbers alone, and no 0 as it is written."""
    if isinstance(divisor, ir.Const):
        return bool(divisor.value)
    return all(isinstance(part, ir.Size | ir.Const | ir.Map) for part in walk(divisor))


_STRICT = Caution()
_READS = (ir.Read, ir.Array)


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
            reads = any(isinstance(part, _READS) for part in walk(condition))
            (reading if reads else safe).append((key, condition))
    return dict((*sorted(safe, key=_first), *sorted(reading, key=_first), *other))


def _first(pair: tuple[str, ir.Expr]) -> str:
    return pair[0]
