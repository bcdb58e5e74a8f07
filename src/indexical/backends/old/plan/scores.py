"""The score of an attention taken apart: what is asked times what answers, and what is added to it."""

from __future__ import annotations

from collections.abc import Iterable

from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.factors import multiplied
from ....ir.types import Coordinate
from ....ir.walk import walk
from ....plan.steps import Attention, Dot, Layout, Scores


def lay_out(attention: Attention, axes: tuple[Coordinate, ...]) -> Layout:
    """Assign the axes: those that values lack are rows, those of scores and values batch, the others carried."""
    asked = attention.asked
    carried = _of_keys(attention) if attention.total else attention.value.type.coordinates
    rows = tuple(axis for axis in axes if axis not in carried)
    batch = tuple(axis for axis in axes if axis in carried and axis in asked)
    carry = tuple(axis for axis in axes if axis in carried and axis not in asked)
    return Layout(batch, rows, carry)


def _of_keys(attention: Attention) -> frozenset[Coordinate]:
    """The coordinates that the keys of a total vary with in all that is compared; none where no query is left."""
    key, found = attention.coordinate, attention.asked
    for part in walk(attention.score):
        if isinstance(part, ir.Reduce) and part.op == "sum" and key in part.type.coordinates:
            factors = (factor.type.coordinates for factor, _ in factors_of_product(part.body))
            answers = frozenset().union(*(own for own in factors if key in own))
            found &= answers
    found -= {key}
    return frozenset() if found == attention.asked - {key} else found


def take_apart(attention: Attention, layout: Layout) -> Scores:
    """The one term of the score that compares, and the rest."""
    rows, key = frozenset(layout.rows), attention.coordinate
    dots: list[Dot] = []
    rest: list[tuple[ir.Expr, bool]] = []
    reason = ""
    for term, positive in terms_of_sum(attention.score, True):
        found = _dot(term, positive, rows, key) if not dots else None
        if isinstance(found, Dot):
            dots.append(found)
            continue
        reason = reason or found or ""
        rest.append((term, positive))
    if not dots:
        return Scores(None, attention.score, reason or "no dot product stands alone in the score")
    return Scores(dots[0], _sum(rest))


def terms_of_sum(expr: ir.Expr, positive: bool) -> Iterable[tuple[ir.Expr, bool]]:
    """The terms of a sum; False marks one that is taken away."""
    match expr:
        case ir.Map("+", (left, right)):
            yield from terms_of_sum(left, positive)
            yield from terms_of_sum(right, positive)
        case ir.Map("-", (left, right)):
            yield from terms_of_sum(left, positive)
            yield from terms_of_sum(right, not positive)
        case ir.Map("neg", (operand,)):
            yield from terms_of_sum(operand, not positive)
        case _:
            yield expr, positive


def _sum(terms: list[tuple[ir.Expr, bool]]) -> ir.Expr | None:
    result: ir.Expr | None = None
    for term, positive in terms:
        if result is None:
            result = term if positive else _negative(term)
        else:
            result = build.apply("+" if positive else "-", (result, term), "real", term.span)
    return result


def _negative(term: ir.Expr) -> ir.Expr:
    """A term with its sign changed where that costs least: in a difference, else in the smallest factor."""
    match term:
        case ir.Map("-", (left, right)):
            return build.apply("-", (right, left), term.type.kind, term.span)
        case ir.Map("*", (left, right)):
            small = len(left.type.coordinates) <= len(right.type.coordinates)
            if (isinstance(right, ir.Map) and right.op == "-") or not small:
                return build.apply("*", (left, _negative(right)), "real", term.span)
            return build.apply("*", (_negative(left), right), "real", term.span)
        case _:
            return build.apply("neg", (term,), term.type.kind, term.span)


def factors_of_product(expr: ir.Expr) -> Iterable[tuple[ir.Expr, bool]]:
    """The factors of a product; False marks a divisor."""
    match expr:
        case ir.Map("*", (left, right)):
            yield from factors_of_product(left)
            yield from factors_of_product(right)
        case ir.Map("/", (left, right)) if expr.type.kind == "real":
            yield from factors_of_product(left)
            yield from ((factor, not positive) for factor, positive in factors_of_product(right))
        case ir.Map("neg", (operand,)):
            yield build.whole(-1, expr.span), True
            yield from factors_of_product(operand)
        case _:
            yield expr, True


def _dot(term: ir.Expr, positive: bool, rows: frozenset[Coordinate], key: Coordinate) -> Dot | str | None:
    """The term as a scaled dot product; a reason where it is nearly one, None where it is none."""
    factors = list(factors_of_product(term))
    sums = [f for f, upper in factors if upper and isinstance(f, ir.Reduce) and f.op == "sum" and _compares(f, key)]
    if len(sums) != 1:
        return None
    dot = sums[0]
    if dot.guard is not None:
        return "what is compared has a guard of its own"
    asked: list[tuple[ir.Expr, bool]] = []
    answered: list[tuple[ir.Expr, bool]] = []
    scale: list[tuple[ir.Expr, bool]] = [] if positive else [(build.whole(-1, term.span), True)]
    outside = [(factor, upper) for factor, upper in factors if factor is not dot]
    for factor, upper in [*factors_of_product(dot.body), *outside]:
        coordinates = factor.type.coordinates
        if key in coordinates and coordinates & rows:
            return "a factor of the score varies with query and key at once"
        if key in coordinates:
            answered.append((factor, upper))
        elif coordinates or any(factor is inner for inner, _ in factors_of_product(dot.body)):
            asked.append((factor, upper))
        else:
            scale.append((factor, upper))
    query, answer = multiplied(asked, term.span), multiplied(answered, term.span)
    if query is None or answer is None:
        return "one side of the score is not compared with the other"
    return Dot(dot.ranges, query, answer, multiplied(scale, term.span))


def dot_of(expr: ir.Reduce, rows: frozenset[Coordinate], key: Coordinate) -> Dot | str | None:
    """A sum as a dot product; a reason where it is nearly one, None where it is none."""
    return _dot(expr, True, rows, key)


def _compares(expr: ir.Reduce, key: Coordinate) -> bool:
    return key in expr.type.coordinates and all(not range.stated or not range.depends_on for range in expr.ranges)
