"""Reductions and normalisers, staged: what runs over the points of a coordinate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any, TypeAlias

from ..ir import nodes as ir
from ..ir.needs import depends_on_data
from .tables import Stage
from .wholes import Point, checked, failure

if TYPE_CHECKING:
    from .reference import Evaluation

# The points of some ranges around a point. They are one dict, changed from step to step: it is not to be kept.
Visit: TypeAlias = Callable[[Point], Iterator[Point]]


def visit(evaluation: Evaluation, ranges: tuple[ir.Range, ...], guard: Stage | None) -> Visit:
    """The points at which the guard holds, the last range running fastest; a range may depend on those before it."""
    coordinate = ranges[0].coordinate
    lower, upper = evaluation.compiled(ranges[0].lower), evaluation.compiled(ranges[0].upper)
    rest = visit(evaluation, ranges[1:], guard) if len(ranges) > 1 else None

    def visited(point: Point) -> Iterator[Point]:
        first, end = lower(point), upper(point)
        evaluation.ranges[coordinate] = (first, end)
        # A dict of its own: a name that is bound outside too keeps its value there.
        inner = dict(point)
        for step in range(first, end):
            inner[coordinate] = step
            if rest is not None:
                yield from rest(inner)
            elif guard is None or guard(inner):
                yield inner

    return visited


# ---------------------------------------------------------------------- reductions


def reduction(evaluation: Evaluation, expr: ir.Reduce) -> Stage:
    """`op` over the points at which the guard holds."""
    guard = None if expr.guard is None else evaluation.compiled(expr.guard)
    body, visited = evaluation.compiled(expr.body), visit(evaluation, expr.ranges, guard)
    if expr.op == "any":
        return lambda point: any(body(inner) for inner in visited(point))
    if expr.op == "all":
        return lambda point: all(body(inner) for inner in visited(point))
    if expr.op in ("argmax", "argmin"):
        return lambda point: _argument(evaluation, expr, body, visited(point), point)
    combine = _extreme if expr.op in ("max", "min") else {"sum": _sum, "mean": _mean, "prod": _product}[expr.op]
    return lambda point: combine(evaluation, expr, [body(inner) for inner in visited(point)], point)


def _sum(evaluation: Evaluation, expr: ir.Reduce, values: list[Any], point: Point) -> Any:
    if expr.body.type.kind == "whole":
        return checked(sum(values), expr, point)
    return evaluation.numbers.total(values)


def _mean(evaluation: Evaluation, expr: ir.Reduce, values: list[Any], point: Point) -> Any:
    numbers = evaluation.numbers
    if not values:
        return _nothing(evaluation, expr, point, numbers.nan)
    whole = expr.body.type.kind == "whole"
    total = numbers.total([numbers.number(value) for value in values] if whole else values)
    return numbers.divide(total, numbers.number(len(values)))


def _product(evaluation: Evaluation, expr: ir.Reduce, values: list[Any], point: Point) -> Any:
    """The product of values; of whole numbers, every step has to fit in 64 bits."""
    whole = expr.body.type.kind == "whole"
    result = 1 if whole else evaluation.numbers.number(1)
    for value in values:
        result = checked(result * value, expr, point) if whole else result * value
    return result


def _extreme(evaluation: Evaluation, expr: ir.Reduce, values: list[Any], point: Point) -> Any:
    numbers = evaluation.numbers
    if values:
        return numbers.functions[expr.op](*values) if len(values) > 1 else values[0]
    if expr.type.kind == "whole":
        raise failure("IX310", f"`{expr.op}` of whole numbers over no points has no value", expr.span, point)
    return -numbers.infinity if expr.op == "max" else numbers.infinity


def _argument(evaluation: Evaluation, expr: ir.Reduce, body: Stage, points: Iterator[Point], point: Point) -> int:
    """The first place of the largest (smallest) value; of the first NaN where there is one."""
    coordinate = expr.ranges[0].coordinate
    best: Any = None
    place = -1
    for inner in points:
        value = body(inner)
        pair = (value, best) if expr.op == "argmax" else (best, value)
        settled = place >= 0 and evaluation.is_undefined(best)
        if place < 0 or (not settled and (evaluation.is_undefined(value) or evaluation.exceeds(*pair))):
            best, place = value, inner[coordinate]
    return place if place >= 0 else int(_nothing(evaluation, expr, point, -1))


def _nothing(evaluation: Evaluation, expr: ir.Reduce, point: Point, otherwise: Any) -> Any:
    """A mean or an argmax over no points: an error, unless data made it so."""
    if expr.guard is not None and depends_on_data(expr.guard, evaluation.lets):
        return otherwise
    raise failure("IX310", f"`{expr.op}` over no points has no value", expr.span, point)


# --------------------------------------------------------------------- normalisers


def normalizer(evaluation: Evaluation, expr: ir.Normalize) -> Stage:
    """The value at this point, among all points of the coordinate that the guard keeps; one that it
    removes gets nothing. Where it removes all, so does everyone. In a ranking, what is removed comes last."""
    coordinate, key = expr.coordinate, id(expr)
    guard = None if expr.guard is None else evaluation.compiled(expr.guard)
    body = evaluation.compiled(expr.body)
    others = [other for other in expr.type.coordinates if other != coordinate]

    def value(point: Point) -> Any:
        here = point[coordinate]
        if expr.op != "rank" and guard is not None and not guard(point):
            return _left_out(evaluation, expr)
        if expr.op == "cumsum":
            return _running_total(evaluation, expr, body, point)
        where = (evaluation.ranges[coordinate], tuple(map(point.__getitem__, others)))
        found = evaluation.rows.get(key)
        if found is None or found[0] != where:
            found = evaluation.rows[key] = (where, _row(evaluation, expr, body, point))
        return found[1].get(here, len(found[1]))

    return value


def _left_out(evaluation: Evaluation, expr: ir.Normalize) -> Any:
    if expr.op == "log_softmax":
        return -evaluation.numbers.infinity
    return 0 if expr.type.kind == "whole" else evaluation.zero


def kept(evaluation: Evaluation, expr: ir.Normalize, point: Point) -> list[int]:
    """The steps of the normalised coordinate that the guard keeps."""
    steps = range(*evaluation.ranges[expr.coordinate])
    if expr.guard is None:
        return list(steps)
    guard = evaluation.compiled(expr.guard)
    return [step for step, inner in _along(expr, point, steps) if guard(inner)]


def _along(expr: ir.Normalize, point: Point, steps: range | list[int]) -> Iterator[tuple[int, Point]]:
    """The point, moved along the normalised coordinate; one dict, not to be kept."""
    inner = dict(point)
    for step in steps:
        inner[expr.coordinate] = step
        yield step, inner


def _row(evaluation: Evaluation, expr: ir.Normalize, body: Stage, point: Point) -> dict[int, Any]:
    """Softmax along the whole coordinate, or the place of each value."""
    numbers, steps = evaluation.numbers, kept(evaluation, expr, point)
    values = [body(inner) for _, inner in _along(expr, point, steps)]
    if expr.op == "rank":
        return {steps[at]: place for place, at in enumerate(_descending(evaluation, values))}
    reals = [numbers.number(value) if isinstance(value, int) else value for value in values]
    scan = numbers.softmax if expr.op == "softmax" else numbers.log_softmax
    return dict(zip(steps, scan(reals), strict=True))


def _descending(evaluation: Evaluation, values: list[Any]) -> list[int]:
    """The places of values in decreasing order, the first of equal ones first, each NaN after all numbers."""

    def order(one: int, other: int) -> int:
        return -1 if evaluation.exceeds(values[one], values[other]) else evaluation.exceeds(values[other], values[one])

    undefined = [at for at, value in enumerate(values) if evaluation.is_undefined(value)]
    numbers = sorted(set(range(len(values))).difference(undefined))
    return [*sorted(numbers, key=cmp_to_key(order)), *undefined]


def _running_total(evaluation: Evaluation, expr: ir.Normalize, body: Stage, point: Point) -> Any:
    """`cumsum`: the sum up to and with this point."""
    whole, here = expr.type.kind == "whole", point[expr.coordinate]
    result = 0 if whole else evaluation.zero
    for step, inner in _along(expr, point, kept(evaluation, expr, point)):
        if step <= here:
            result = result + body(inner)
    return checked(result, expr, point) if whole else result
