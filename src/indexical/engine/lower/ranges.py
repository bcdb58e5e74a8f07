"""Ranges as axes. One whose bounds vary becomes the widest axis, and conditions."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import Ends, expression, extreme, polynomial
from ...ir.types import Coordinate
from ...ir.walk import fresh
from ...records import replace
from ..ops import Axis, Iota, Number, Value, apply, host, value
from .lowering import Lowering, Unsupported
from .scope import Scope


def bind(low: Lowering, range: ir.Range, scope: Scope, name: Coordinate | None = None) -> Scope:
    """The scope with a coordinate in its range, on an axis of its own or of this name."""
    coordinate = range.coordinate
    varies = [not isinstance(low.value(bound, scope).op, Number) for bound in (range.lower, range.upper)]
    if any(varies):
        return _bind_widest(low, range, varies, scope, name)
    first, end = low.number(range.lower, scope), low.number(range.upper, scope)
    extent = end if is_zero(first) else minus(end, first)
    place = value(Iota(Axis(fresh(name or coordinate, scope.taken), extent)))
    if not is_zero(first):
        place = apply("+", place, host(first))
    return replace(scope, places={**scope.places, coordinate: place}, box=(*scope.box, range))


def _bind_widest(
    low: Lowering, range: ir.Range, varies: list[bool], scope: Scope, name: Coordinate | None
) -> Scope:
    """The axis of all points that a range has anywhere; conditions say which of them it has here."""
    here = build.coord(range.coordinate, range.span)
    least, most = _widest(range, scope)
    facts = []
    if varies[1]:
        facts.append(build.apply("<", (here, range.upper), "bool", range.span))
    if varies[0]:
        facts.append(build.apply(">=", (here, range.lower), "bool", range.span))
    inner = bind(low, ir.Range(range.coordinate, least, most, True, range.span), scope, name)
    bounds = (*scope.bounds, *((range.coordinate, fact) for fact in facts))
    return replace(inner, facts=(*scope.facts, *facts), bounds=bounds)


def _widest(range: ir.Range, scope: Scope) -> tuple[ir.Expr, ir.Expr]:
    one = build.whole(1, range.span)
    ends: dict[Coordinate, tuple[ir.Expr, ir.Expr]] = {}
    for outer in scope.box:
        if outer.coordinate not in scope.stepped:
            ends[outer.coordinate] = outer.lower, build.apply("-", (outer.upper, one), "whole", range.span)
    found = []
    for bound, least in ((range.lower, True), (range.upper, False)):
        exact = extreme(bound, ends, least)
        found.append(exact if exact is not None else _reach(bound, ends)[0 if least else 1])
    return found[0], found[1]


def _reach(expr: ir.Expr, ends: Ends) -> tuple[ir.Expr, ir.Expr]:
    """Bounds of a whole expression where coordinates run from end to end: not the tightest, and free of them."""

    def whole(op: str, *arguments: ir.Expr) -> ir.Expr:
        return build.apply(op, arguments, "whole", expr.span)

    if not expr.type.coordinates & ends.keys():
        return expr, expr
    zero = build.whole(0, expr.span)
    match expr:
        case ir.Coord(coordinate):
            return ends[coordinate]
        case ir.Map(op, arguments):
            sides = [_reach(argument, ends) for argument in arguments]
        case ir.Select(_, then, otherwise):
            (a, b), (c, d) = _reach(then, ends), _reach(otherwise, ends)
            return whole("min", a, c), whole("max", b, d)
        case _:
            raise Unsupported(f"nothing says how far `{expr.span.text}` goes")
    match op, sides:
        case "+", [(a, b), (c, d)]:
            return whole("+", a, c), whole("+", b, d)
        case "-", [(a, b), (c, d)]:
            return whole("-", a, d), whole("-", b, c)
        case "neg", [(a, b)]:
            return whole("neg", b), whole("neg", a)
        case "max" | "min", _:
            return whole(op, *(side[0] for side in sides)), whole(op, *(side[1] for side in sides))
        case "*" | "//", [left, right]:
            corners = [whole(op, a, b) for a in left for b in right]
            return whole("min", *corners, zero), whole("max", *corners, zero)
        case "abs", [(a, b)]:
            return zero, whole("max", whole("abs", a), whole("abs", b))
        case "%", [_, (a, b)]:
            most = whole("max", whole("abs", a), whole("abs", b))
            return whole("neg", most), most
    raise Unsupported(f"nothing says how far `{expr.span.text}` goes")


def is_zero(expr: ir.Expr) -> bool:
    return polynomial(expr).constant == 0


def minus(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """A difference of numbers of the host, its terms collected."""
    return expression(polynomial(a) - polynomial(b), a.span)


def axis_of(place: Value) -> Axis:
    """The axis that a coordinate runs along."""
    return place.axes[0]

