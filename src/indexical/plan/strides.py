"""Sums over every second point, or third: `sum[k](y[(n - k) / 2] * w[k] where (n - k) % 2 == 0)`, for every `n`."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import ONE, Polynomial, expression, number, of_atom, polynomial, tidied
from ..ir.conditions import conjuncts_of
from ..ir.slices import congruence
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh, rebuild, substitute, walk
from ..records import dataclass
from .scatters import Bounds, falls_within


@dataclass(frozen=True, slots=True)
class Strided:
    """A sum, for every point of `target`, as one for every point of `high` and `low`: the target is
    `step · high + low - shift`, and what is summed runs over the points that leave the remainder `low` alone."""

    target: Coordinate
    high: ir.Range
    low: ir.Range
    shift: Polynomial
    value: ir.Expr
    sum: ir.Reduce


def find(expr: ir.Reduce, bounds: Bounds) -> Strided | None:
    """The sum by remainders, where a condition says that two coordinates leave the same; None where none does."""
    for condition in conjuncts_of(expr.guard) if expr.op == "sum" else ():
        match congruence(condition):
            case (multiple, ir.Const(int() as step)) if step >= 2:
                found = _found(expr, condition, multiple, step, bounds)
            case _:
                continue
        if found is not None:
            return found
    return _split(expr, bounds) if expr.op == "sum" else None


def _split(expr: ir.Reduce, bounds: Bounds) -> Strided | None:
    """The sum by quotients and remainders, where its factors have both: `y[u / 8] * w[u % 8]`."""
    found: dict[tuple[Coordinate, int], set[str]] = {}
    for part in walk(expr.body):
        match part:
            case ir.Map("//" | "%" as op, (ir.Coord(target), ir.Const(int() as step))) if step >= 2:
                found.setdefault((target, step), set()).add(op)
    edges = {c for r in expr.ranges for c in r.depends_on}
    for (target, step), ops in found.items():
        if len(ops) < 2 or target not in bounds or target in edges or not build.is_number(bounds[target][0], 0):
            continue
        taken = {c.name for part in walk(expr) for c in part.type.coordinates} | {c.name for c in expr.coordinates}
        high = fresh(target, taken)
        low = fresh(target, taken | {high.name})
        try:
            return _by_digits(expr, target, bounds[target][1], step, high, low)
        except Inexpressible:
            return None
    return None


def _by_digits(
    expr: ir.Reduce, target: Coordinate, stop: ir.Expr, step: int, high: Coordinate, low: Coordinate
) -> Strided:
    """The sum with a coordinate in two: how often the step goes into it, and what is left."""
    span = expr.span
    many, zero = build.whole(step, span), build.whole(0, span)
    place = expression(of_atom(high) * number(step) + of_atom(low), span)
    digits = {
        build.apply(op, (build.coord(target, span), many), "whole", span): build.coord(digit, span)
        for op, digit in (("//", high), ("%", low))
    }

    def apart(part: ir.Expr) -> ir.Expr:
        return digits[part] if part in digits else rebuild(part, apart)

    body = substitute(apart(expr.body), {target: place})
    guard = None if expr.guard is None else substitute(apart(expr.guard), {target: place})
    count = build.apply("//", (expression(polynomial(stop) + (step - 1), span), many), "whole", span)
    return Strided(
        target,
        ir.Range(high, zero, tidied(count), True, span),
        ir.Range(low, zero, many, True, span),
        number(0),
        place,
        build.reduce("sum", expr.ranges, body, guard, expr.type.kind, span),
    )


def _found(expr: ir.Reduce, condition: ir.Expr, whole: Polynomial, step: int, bounds: Bounds) -> Strided | None:
    edges = {c for r in expr.ranges for c in r.depends_on}
    for range in expr.ranges:
        summed = range.coordinate
        for target, (start, _) in bounds.items():
            sign = whole.terms.get(frozenset(((target, 1),)), 0)
            if abs(sign) != 1 or whole.terms.get(frozenset(((summed, 1),)), 0) != -sign:
                continue
            rest = whole.plus(of_atom(target), -sign).plus(of_atom(summed), sign)
            shift = _shift(rest if sign > 0 else -rest, step)
            plain = build.is_number(start, 0) and build.is_number(range.lower, 0) and not {summed, target} & edges
            if shift is not None and plain and not range.upper.type.coordinates:
                return _by_remainders(expr, condition, range, target, bounds[target][1], step, shift)
    return None


def _shift(rest: Polynomial, step: int) -> Polynomial | None:
    """The offset modulo the step; None where it might be negative."""
    if rest.constant is not None:
        return number(rest.constant % step)
    counted = all(isinstance(atom, ir.Size) for atom in rest.atoms)
    positive = all(factor > 0 for monomial, factor in rest.terms.items() if monomial)
    if not counted or not positive:
        return None
    return Polynomial({m: f for m, f in rest.terms.items() if m}) + rest.terms.get(ONE, 0) % step


def _by_remainders(
    expr: ir.Reduce,
    condition: ir.Expr,
    range: ir.Range,
    target: Coordinate,
    stop: ir.Expr,
    step: int,
    shift: Polynomial,
) -> Strided | None:
    """The sum with its target split into quotient and remainder by a step, so that each remainder has its own terms."""
    span, summed = condition.span, range.coordinate
    taken = {c.name for part in walk(expr) for c in part.type.coordinates} | {c.name for c in expr.coordinates}
    names: list[Coordinate] = []
    for coordinate in (target, target, summed):
        names.append(fresh(coordinate, taken))
        taken.add(names[-1].name)
    high, low, turn = names

    def rounded(count: Polynomial) -> ir.Expr:
        up = expression(count + (step - 1), span)
        return tidied(build.apply("//", (up, build.whole(step, span)), "whole", span))

    zero = build.whole(0, span)
    place = expression(of_atom(high) * number(step) + of_atom(low) - shift, span)
    member = expression(of_atom(turn) * number(step) + of_atom(low), span)
    values = {target: place, summed: member}
    try:
        conditions = [tidied(substitute(c, values)) for c in conjuncts_of(expr.guard) if c is not condition]
        body = tidied(substitute(expr.body, values))
    except Inexpressible:
        return None
    turns = ir.Range(turn, zero, rounded(polynomial(range.upper)), True, range.span)
    ranges = tuple(turns if r is range else r for r in expr.ranges)
    guard = build.conjunction((falls_within(member, range.lower, range.upper), *conditions))
    return Strided(
        target,
        ir.Range(high, zero, rounded(polynomial(stop) + shift), True, span),
        ir.Range(low, zero, build.whole(step, span), True, span),
        shift,
        place,
        build.reduce("sum", ranges, body, guard, expr.type.kind, expr.span),
    )
