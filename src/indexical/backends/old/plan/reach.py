"""The bounds of an index: the least and the largest place, as whole expressions free of coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import expression, no_constants, polynomial
from ....ir.prove import conjuncts, inequalities, no_definitions
from ....ir.types import Coordinate
from ....ir.walk import at
from ....records import dataclass


@dataclass(frozen=True, slots=True)
class Reach:
    """The ends of an index, both included; None where an end is not known."""

    lowest: ir.Expr | None
    highest: ir.Expr | None


UNKNOWN = Reach(None, None)


def reach(
    expr: ir.Expr,
    ranges: Mapping[Coordinate, ir.Range],
    lets: Mapping[str, ir.Let],
    held: Iterable[ir.Expr] = (),
) -> Reach:
    """The places an index takes where coordinates run over these ranges, and conditions are held. Where there are no
    such points they mean nothing."""
    found = _reach(expr, ranges, lets, tuple(held))
    return Reach(*(None if end is None else expression(polynomial(end), expr.span) for end in _ends(found)))


def _held(expr: ir.Expr, held: Iterable[ir.Expr]) -> tuple[list[ir.Expr], list[ir.Expr]]:
    """Bounds that conditions set to an index, free of coordinates: `i - j` is at most 7 where `i - j < 8`."""
    where = polynomial(expr)
    lower: list[ir.Expr] = []
    upper: list[ir.Expr] = []
    for condition in held:
        for row in inequalities(condition, no_constants) or ():
            # A row is at least 0: so is what is left of the index when it is taken off, or put on.
            for ends, rest in ((lower, where - row), (upper, where + row)):
                bound = expression(rest, expr.span)
                if not bound.type.coordinates:
                    ends.append(bound)
    return lower, upper


def _ends(found: Reach) -> tuple[ir.Expr | None, ir.Expr | None]:
    return found.lowest, found.highest


Ranges: TypeAlias = Mapping[Coordinate, ir.Range]
Lets: TypeAlias = Mapping[str, ir.Let]


def _reach(expr: ir.Expr, ranges: Ranges, lets: Lets, held: tuple[ir.Expr, ...]) -> Reach:
    found = _plain_reach(expr, ranges, lets, held)
    lower, upper = _held(expr, held if expr.type.coordinates else ())
    return Reach(_some("max", [found.lowest, *lower]), _some("min", [found.highest, *upper]))


def _plain_reach(expr: ir.Expr, ranges: Ranges, lets: Lets, held: tuple[ir.Expr, ...]) -> Reach:
    """The reach of an expression by those of its parts, before a condition on the whole of it narrows it."""
    match expr:
        case ir.Const() | ir.Size() | ir.Read(_, ()):
            return Reach(expr, expr)
        case ir.Coord(coordinate) if coordinate in ranges:
            return _range(ranges[coordinate])
        case ir.Map("neg", (operand,)):
            return _turned(_reach(operand, ranges, lets, held))
        case ir.Map("*", (ir.Const(int() as factor), inner)) | ir.Map("*", (inner, ir.Const(int() as factor))):
            found = _reach(inner, ranges, lets, held)
            found = found if factor >= 0 else _turned(found)
            by = build.whole(abs(factor), expr.span)
            return Reach(*(_both("*", end, by) for end in _ends(found)))
        case ir.Map("//", (inner, ir.Const(int() as divisor) as by)) if divisor > 0:
            return Reach(*(_both("//", end, by) for end in _ends(_reach(inner, ranges, lets, held))))
        case ir.Map("%", (inner, ir.Const(int() as divisor))) if divisor > 0:
            lowest = 0 if is_counted(_reach(inner, ranges, lets, held).lowest) else 1 - divisor
            return Reach(build.whole(lowest, expr.span), build.whole(divisor - 1, expr.span))
        case ir.Select(condition, then, otherwise):
            facts = [conjuncts(condition, holds, no_definitions) for holds in (True, False)]
            sides = [_reach(e, ranges, lets, (*held, *f)) for e, f in zip((then, otherwise), facts, strict=True)]
            return Reach(_all("min", [side.lowest for side in sides]), _all("max", [side.highest for side in sides]))
        case ir.Map(op, arguments):
            return _mapped(op, [_reach(argument, ranges, lets, held) for argument in arguments])
        case ir.Read(tensor, indices) if tensor in lets:
            clause, *others = lets[tensor].clauses
            meant = None if others or clause.guard is not None else at(clause, clause.body, indices)
            return UNKNOWN if meant is None else _reach(meant, ranges, lets, held)
        case _:
            return UNKNOWN


def _range(range: ir.Range) -> Reach:
    if range.depends_on:
        return UNKNOWN
    return Reach(range.lower, build.apply("-", (range.upper, build.whole(1, range.span)), "whole", range.span))


def is_counted(expr: ir.Expr | None) -> bool:
    """Whether a whole number is plainly at least 0."""
    match expr:
        case ir.Map("max", arguments):
            return any(map(is_counted, arguments))
        case ir.Map("min", arguments):
            return all(map(is_counted, arguments))
    constant = None if expr is None else polynomial(expr).constant
    return isinstance(expr, ir.Size) or (constant is not None and constant >= 0)


def _mapped(op: str, parts: list[Reach]) -> Reach:
    match op, parts:
        case "*", [one, other] if is_counted(one.lowest) and is_counted(other.lowest):
            return Reach(_both("*", one.lowest, other.lowest), _both("*", one.highest, other.highest))
        case "abs", [inner]:
            zero = [build.whole(0, end.span) for end in _ends(inner) if end is not None][:1]
            return Reach(_some("max", [inner.lowest, *zero]), _all("max", [inner.highest, _turned(inner).highest]))
        case "+", [one, other]:
            return Reach(_both("+", one.lowest, other.lowest), _both("+", one.highest, other.highest))
        case "-", [one, other]:
            return Reach(_both("-", one.lowest, other.highest), _both("-", one.highest, other.lowest))
        case "clamp", [inner, lower, upper]:
            return _mapped("min", [_mapped("max", [inner, lower]), upper])
        case "min", _:
            return Reach(_all("min", [p.lowest for p in parts]), _some("min", [p.highest for p in parts]))
        case "max", _:
            return Reach(_some("max", [p.lowest for p in parts]), _all("max", [p.highest for p in parts]))
        case _:
            return UNKNOWN


def _turned(found: Reach) -> Reach:
    """The ends of the negative."""
    ends = [None if e is None else build.apply("neg", (e,), "whole", e.span) for e in (found.highest, found.lowest)]
    return Reach(*ends)


def _both(op: str, left: ir.Expr | None, right: ir.Expr | None) -> ir.Expr | None:
    return None if left is None or right is None else build.apply(op, (left, right), "whole", left.span)


def _all(op: str, ends: list[ir.Expr | None]) -> ir.Expr | None:
    """The largest, or least, of ends that are all known."""
    known = [end for end in ends if end is not None]
    return _some(op, ends) if len(known) == len(ends) else None


def _some(op: str, ends: list[ir.Expr | None]) -> ir.Expr | None:
    """The largest, or least, of the ends that are known: a bound, where not all of them are."""
    known = list(dict.fromkeys(end for end in ends if end is not None))
    if not known:
        return None
    numbers = [end.value for end in known if isinstance(end, ir.Const)]
    if len(numbers) == len(known):
        return build.whole(int(min(numbers) if op == "min" else max(numbers)), known[0].span)
    return known[0] if len(known) == 1 else build.apply(op, tuple(known), "whole", known[0].span)
