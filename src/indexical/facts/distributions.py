"""Distributions: what sums to exactly 1, and whether a guard always keeps a point."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import of_atom
from ..ir.conditions import conjuncts_of, fails
from ..ir.context import Trail, assume, bound_by
from ..ir.elimination import without
from ..ir.prove import Assumptions, conjuncts
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, at, substitute, walk
from ..records import replace


def keeps_a_point(
    normalizer: ir.Normalize,
    trail: Trail,
    lets: Mapping[str, ir.Let],
    same: tuple[tuple[ir.Expr, ir.Expr], ...] = (),
) -> bool:
    """Whether, wherever the trail leads, some point of the coordinate passes the guard. No size is 0 here:
    over no keys at all there is nothing to keep. `same` are extents that are equal, or no call fits."""
    if normalizer.guard is None:
        return True
    around = bound_by(normalizer.coordinate, trail)
    outside = tuple(step for step in trail if not _mentions(step, normalizer.coordinate))
    equal = tuple((build.apply("==", pair, "bool", pair[0].span), True) for pair in same)
    known = assume((*outside, *equal), lets)
    others: list[ir.Expr] = [build.coord(step.coordinate, step.span) for step in outside if isinstance(step, ir.Range)]
    fixed = _fixed(normalizer.guard, around)
    for guard in _alternatives(_but_the_first(normalizer.guard, normalizer.coordinate, known, lets), known):
        if always_some(around, guard, known):
            return True
        if any(_works(guard, around, other, known) for other in (*others, *fixed)):
            return True
    return False


def _but_the_first(guard: ir.Expr, key: Coordinate, known: Assumptions, lets: Mapping[str, ir.Let]) -> ir.Expr:
    """The guard without a condition that the first of a ranking over the key always meets: that one is then kept, where
    the ranking leaves out no more than the rest of the guard."""
    facts = conjuncts(guard, True, known.definitions)
    for fact in facts:
        order = _keeps_the_first(fact, key, known, lets)
        rest = [other for other in facts if other is not fact]
        if order is not None and set(rest) == set(conjuncts_of(order.guard)):
            return build.conjunction(rest) or build.truth(True, guard.span)
    return guard


def _keeps_the_first(
    fact: ir.Expr, key: Coordinate, known: Assumptions, lets: Mapping[str, ir.Let]
) -> ir.Normalize | None:
    """The ranking over the key whose first point meets a condition: `rank[j](…) < k`, where `k` is not 0."""
    match fact:
        case ir.Map("<" | "<=" | "==" as op, (place, limit)) | ir.Map(">" | ">=" as op, (limit, place)):
            order = ranking(place, lets)
            if order is None or order.coordinate != key or key in limit.type.coordinates:
                return None
            met = build.apply(op.replace(">", "<"), (build.whole(0, fact.span), limit), "bool", fact.span)
            return order if _truth(met, known) else None
        case _:
            return None


def ranking(expr: ir.Expr, lets: Mapping[str, ir.Let]) -> ir.Normalize | None:
    """The ranking that an expression is, or that it reads by a name."""
    if isinstance(expr, ir.Read) and expr.tensor in lets and len(lets[expr.tensor].clauses) == 1:
        clause = lets[expr.tensor].clauses[0]
        inner = at(clause, clause.body, expr.indices) if clause.guard is None else None
        return None if inner is None else ranking(inner, lets)
    return expr if isinstance(expr, ir.Normalize) and expr.op == "rank" else None


def _fixed(guard: ir.Expr, around: ir.Range) -> list[ir.Expr]:
    """The points that may be kept whoever asks: the first, and those that a guard names."""
    compared = [part.arguments for part in walk(guard) if isinstance(part, ir.Map) and part.op == "=="]
    sides = [side for pair in compared for side in pair if not side.type.coordinates and side.type.kind == "whole"]
    return [around.lower, *sides] if not around.lower.type.coordinates else sides


def _alternatives(guard: ir.Expr, known: Assumptions) -> list[ir.Expr]:
    """The guard, and each side of an `||` that it is: one of them is enough."""
    match conjuncts(guard, True, known.definitions):
        case [ir.Map("||", sides)]:
            return [guard, *(inner for side in sides for inner in _alternatives(side, known))]
        case _:
            return [guard]


def _mentions(step: ir.Range | tuple[ir.Expr, bool], coordinate: Coordinate) -> bool:
    if isinstance(step, ir.Range):
        return step.coordinate == coordinate
    return coordinate in step[0].type.coordinates


def always_some(around: ir.Range, guard: ir.Expr, known: Assumptions) -> bool:
    """Whether, wherever these hold, some point of a range passes a guard: what the guard says without the coordinate
    must hold of all others."""
    facts = tuple(conjuncts(guard, True, known.definitions))
    cases, exact = without(around, facts, known.within(around))
    if not exact:
        return False
    sizes = {part for expr in (*facts, around.lower, around.upper) for part in walk(expr) if isinstance(part, ir.Size)}
    sizes |= {atom for row in known.known for atom in row.atoms if isinstance(atom, ir.Size)}
    generous = replace(known, known=(*known.known, *(of_atom(size) - 1 for size in sizes)))
    return any(all(generous.proves(fact) for fact in case) for case in cases)


def _works(guard: ir.Expr, around: ir.Range, point: ir.Expr, known: Assumptions) -> bool:
    """Whether one point is always kept, such as the one that asks: it is in the range, and the guard holds there. The
    first point of a range is in it, where there is any."""
    try:
        guard = substitute(guard, {around.coordinate: point})
    except Inexpressible:
        return False
    low = build.apply(">=", (point, around.lower), "bool", point.span)
    high = build.apply("<", (point, around.upper), "bool", point.span)
    ends = () if point == around.lower else (low, high)
    return all(_truth(fact, known) for whole in (guard, *ends) for fact in conjuncts(whole, True, known.definitions))


def _truth(fact: ir.Expr, known: Assumptions) -> bool | None:
    """Whether something holds wherever these do; None where that is not known."""
    match fact:
        case ir.Const(value):
            return bool(value)
        case ir.Map("!", (inner,)):
            found = _truth(inner, known)
            return None if found is None else not found
        case ir.Map("&&" | "||" as op, sides):
            truths = [_truth(side, known) for side in sides]
            decisive = op == "||"
            return decisive if decisive in truths else None if None in truths else not decisive
        case ir.Select(condition, then, otherwise):
            held = _truth(condition, known)
            return None if held is None else _truth(then if held else otherwise, known)
        case ir.Map("==" | "<=" | ">=", (left, right)) if left == right:
            return True
        case ir.Map("!=" | "<" | ">", (left, right)) if left == right:
            return False
        case _:
            return True if known.proves(fact) else False if known.proves(fails(fact)) else None
