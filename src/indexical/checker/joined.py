"""Several coordinates as one: a normaliser over all their points at once, and the place of the largest among them.

`softmax[y, x](s[y, x])` is `softmax[p](s[p / size(x), p % size(x)])`, read at `y * size(x) + x`: in row-major order the
points are those of one coordinate. So a normaliser of the Program has one coordinate always.
"""

from __future__ import annotations

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.joins import digits, row_major
from ..ir.types import Coordinate, Kind
from ..ir.walk import Inexpressible, fresh, substitute
from ..syntax import tree
from . import lifting, sizes
from .scope import Binding, Scope, Unit


def normaliser(
    unit: Unit, scope: Scope, node: tree.Reduction, bindings: list[Binding], body: ir.Expr, guard: ir.Expr | None
) -> ir.Expr | None:
    """A normaliser over all points of several coordinates that survive it."""
    ranges = _ranges(unit, scope, node, bindings)
    flat = None if ranges is None else _flat(unit, scope, node, ranges, body, guard)
    if ranges is None or flat is None:
        return None
    span, (place, body, guard) = node.span, flat
    kind: Kind = "whole" if node.operator == "rank" else "real"
    found = build.normalize(node.operator, place.coordinate, body, guard, kind, span)
    own = Binding(place.coordinate, place.coordinate.name, span, range=place)
    draft = lifting.Draft((build.coord(place.coordinate, span),), [own], (place,), found, None, span)
    let = tree.Let(node.operator, node.operator_span, None, node.body, (), span)
    name = unit.fresh_name(f"{scope.frame.owner}_{node.operator}")
    weights = lifting.lift(unit, scope, name, [draft], let)
    if weights is None:
        return None
    captured = tuple(build.coord(binding.coordinate, span) for binding in weights.captured)
    return build.read(weights.name, (*captured, row_major(ranges, span)), kind, span)


def extreme(
    unit: Unit, scope: Scope, node: tree.Reduction, bindings: list[Binding], body: ir.Expr, guard: ir.Expr | None
) -> ir.Expr | None:
    """`argmax` or `argmin` over all points of several coordinates: a place in row-major order."""
    ranges = _ranges(unit, scope, node, bindings)
    flat = None if ranges is None else _flat(unit, scope, node, ranges, body, guard)
    if flat is None:
        return None
    place, body, guard = flat
    return build.reduce(node.operator, (place,), body, guard, "whole", node.span)


def _ranges(unit: Unit, scope: Scope, node: tree.Reduction, bindings: list[Binding]) -> list[ir.Range] | None:
    """The ranges of coordinates, each from 0 and as long everywhere. One may not be settled yet."""
    result = []
    for binding in bindings:
        stated = binding.stated
        elsewhere = any(evidence.origin is not None for evidence in binding.evidence)
        if elsewhere or (stated is not None and not (stated.from_zero and stated.is_counted)):
            unit.report(
                "IX210",
                f"`{node.operator}` runs over several coordinates, and `{binding.name}` has no plain range from 0",
                Label(node.operator_span),
                Label(binding.span, "it begins elsewhere" if stated is None else "its range is stated here"),
                help=f"give `{binding.name}` a full range and a guard",
            )
            return None
        length = sizes.size_of(unit, scope, binding.name, binding, node.span)
        assert length is not None
        result.append(ir.Range(binding.coordinate, build.whole(0, node.span), length, False, node.span))
    return result


def _flat(
    unit: Unit, scope: Scope, node: tree.Reduction, ranges: list[ir.Range], body: ir.Expr, guard: ir.Expr | None
) -> tuple[ir.Range, ir.Expr, ir.Expr | None] | None:
    """One range for several, and the body and the guard at a place in it. The body is a definition of its own, in which
    the coordinates index what they indexed, so that sizes have to agree as ever."""
    span = node.span
    plain = isinstance(body, ir.Read) and all(isinstance(index, ir.Coord) for index in body.indices)
    scores = body if plain else lifting.keep(unit, scope, "scores", body, guard, node)
    if scores is None:
        return None
    count = ranges[0].upper
    for range in ranges[1:]:
        count = build.apply("*", (count, range.upper), "whole", span)
    name = "".join(range.coordinate.name for range in ranges)
    coordinate = fresh(Coordinate(name), {*scope.frame.live, *scope.names})
    at = digits(build.coord(coordinate, span), ranges)
    try:
        moved = None if guard is None else substitute(guard, at)
        place = ir.Range(coordinate, build.whole(0, span), count, True, span)
        return place, substitute(scores, at), moved
    except Inexpressible:
        help = "name what is normalised inside with `let`"
        unit.report("IX210", f"a guard of `{node.operator}` normalises over one of its coordinates", span, help=help)
        return None
