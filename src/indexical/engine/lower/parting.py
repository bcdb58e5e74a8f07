"""The first step of a recurrence apart from all others: a turn then computes no more than it asks for."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir import build
from ...ir import nodes as ir
from ...ir.conditions import conjuncts_of
from ...ir.deciding import decide, is_never
from ...ir.walk import walk
from ...records import replace
from .lowering import Lowering


def parted(low: Lowering, let: ir.Let, clause: ir.Clause, axis: int, forward: bool) -> list[ir.Clause]:
    """A clause whose conditions ask for its step alone, along the one axis that is stepped, as one for the first step
    and one for all others, each without what is decided there. What is normalised along it is so over all steps."""
    slot = clause.slots[axis]
    if not isinstance(slot, ir.Coord) or all(one.type.coordinates != {slot.coordinate} for one in _asked(clause)):
        return [clause]
    if any(isinstance(part, ir.Normalize) and part.coordinate == slot.coordinate for part in _parts(clause)):
        return [clause]
    found = [_decided(low, let, part) for part in _divided(clause, slot, let.axes[axis].extent, forward)]
    less = len(found) == 2 and len(list(_asked(found[1]))) < len(list(_asked(clause)))
    return found if less else [clause]


def _parts(clause: ir.Clause) -> Iterator[ir.Expr]:
    for whole in (clause.body, *conjuncts_of(clause.guard)):
        yield from walk(whole)


def _asked(clause: ir.Clause) -> Iterator[ir.Expr]:
    """The conditions of a clause, and of choices and reductions in it."""
    yield from conjuncts_of(clause.guard)
    for part in _parts(clause):
        match part:
            case ir.Select(condition) | ir.Reduce(guard=ir.Map() as condition):
                yield from conjuncts_of(condition)


def _divided(clause: ir.Clause, slot: ir.Coord, extent: ir.Expr, forward: bool) -> Iterator[ir.Clause]:
    """A clause at the first step of its loop, and at all others; nothing where it does not begin there."""
    own = next(range for range in clause.ranges if range.coordinate == slot.coordinate)
    one = build.whole(1, own.span)
    ends: tuple[tuple[ir.Expr, ir.Expr], ...] = ()
    if forward and own.from_zero:
        end = build.apply("min", (one, own.upper), "whole", own.span)
        ends = (own.lower, end), (one, own.upper)
    elif not forward and own.upper == extent:
        last = build.apply("-", (own.upper, one), "whole", own.span)
        begin = build.apply("max", (own.lower, last), "whole", own.span)
        ends = (begin, own.upper), (own.lower, last)
    for lower, upper in ends:
        range = replace(own, lower=lower, upper=upper, stated=True)
        yield replace(clause, ranges=tuple(range if each is own else each for each in clause.ranges))


def _decided(low: Lowering, let: ir.Let, clause: ir.Clause) -> ir.Clause:
    """A clause without the conditions that its ranges decide."""
    known, bound = low.assumed(clause.ranges), frozenset(range.coordinate for range in clause.ranges)
    guards = conjuncts_of(clause.guard)
    if any(is_never(guard, known) for guard in guards):
        nothing = build.truth(False, clause.span) if let.kind == "bool" else build.whole(0, clause.span)
        return replace(clause, body=nothing, guard=None)
    guard = build.conjunction(guard for guard in guards if not known.proves(guard))
    return replace(clause, body=decide(clause.body, known, bound), guard=guard)
