"""Clauses of one definition at the same points, told apart by their guards.

Where the guards are proved disjoint they become one clause: the first value where the first guard holds, the second
where the second does, and absent where none does.
"""

from __future__ import annotations

from itertools import combinations, islice, product
from typing import TYPE_CHECKING

from ..diagnostics import Label
from ..ir import build, whole
from ..ir import nodes as ir
from ..ir.affine import is_counted, polynomial
from ..ir.conditions import MIRRORED, negated
from ..ir.context import assume, look_through
from ..ir.domain import Domain
from ..ir.prove import conjuncts
from ..ir.sampled import may_hold, value_at
from ..ir.types import Coordinate
from ..ir.walk import substitute, walk
from ..records import replace
from .scope import Unit

if TYPE_CHECKING:
    from .lifting import Draft


def merged(unit: Unit, name: str, drafts: list[Draft], origins: list[ir.Expr | None]) -> list[Draft] | None:
    """The clauses, those at the same points made one; None, and reported, where two may define a point."""
    groups: list[list[Draft]] = []
    for found in drafts:
        wider = (other for other in drafts if other.guard is not None and _is_within(unit, found, other))
        target = next(wider, found)
        group = next((group for group in groups if _same_points(unit, group[0], target)), None)
        if group is None:
            groups.append([found if target is found else _widened(unit, found, target)])
        else:
            group.append(_widened(unit, found, group[0]))
    result = []
    for group in groups:
        for one, other in combinations(group, 2):
            if not _are_disjoint(unit, one, other):
                _report(unit, name, one, other, origins)
                return None
        result.append(_one_of(unit, group) if len(group) > 1 else group[0])
    return result


def _same_points(unit: Unit, one: Draft, other: Draft) -> bool:
    """Whether two clauses run over the same box. Sizes that were taken from axes may have to agree for it, which is
    seen when the arrays arrive."""
    for number, slots in enumerate(zip(one.slots, other.slots, strict=True)):
        if len({isinstance(slot, ir.Coord) for slot in slots}) > 1:
            return False
        measured = not _is_stated(one, number) and not _is_stated(other, number)
        for a, b in zip(_ends(one, number), _ends(other, number), strict=True):
            difference = (polynomial(a, unit.constant) - polynomial(b, unit.constant)).constant
            if difference != 0 and not (measured and difference is None):
                return False
    return True


def _is_stated(found: Draft, number: int) -> bool:
    slot = found.slots[number]
    return not isinstance(slot, ir.Coord) or next(r.stated for r in found.ranges if r.coordinate == slot.coordinate)


def _ends(found: Draft, number: int) -> tuple[ir.Expr, ...]:
    slot = found.slots[number]
    if not isinstance(slot, ir.Coord):
        return (slot,)
    return next((range.lower, range.upper) for range in found.ranges if range.coordinate == slot.coordinate)


def _is_within(unit: Unit, found: Draft, wider: Draft) -> bool:
    """Whether the box of a clause is inside that of another, and smaller."""
    if _same_points(unit, found, wider):
        return False
    for number, slot in enumerate(wider.slots):
        ends = [polynomial(end, unit.constant) for end in _ends(found, number)]
        bounds = [polynomial(end, unit.constant) for end in _ends(wider, number)]
        if not isinstance(slot, ir.Coord):
            if isinstance(found.slots[number], ir.Coord) or ends != bounds:
                return False
            continue
        last = ends[1] if len(ends) > 1 else ends[0] + 1
        # The first point of all is inside wherever there is one.
        inside = is_counted(bounds[1] - last) or (len(ends) == 1 and ends[0] == bounds[0])
        if not is_counted(ends[0] - bounds[0]) or not inside:
            return False
    return True


def _widened(unit: Unit, found: Draft, target: Draft) -> Draft:
    """A clause over the box of another one that holds its own, its own points told by a guard."""
    values: dict[Coordinate, ir.Expr] = {}
    guards = [] if found.guard is None else [found.guard]
    for number, (slot, wider) in enumerate(zip(found.slots, target.slots, strict=True)):
        if not isinstance(wider, ir.Coord):
            continue
        here, bounds = build.coord(wider.coordinate, slot.span), _ends(target, number)
        if not isinstance(slot, ir.Coord):
            guards.append(build.apply("==", (here, slot), "bool", slot.span))
            continue
        values[slot.coordinate] = here
        for op, own, bound in zip((">=", "<"), _ends(found, number), bounds, strict=True):
            measured = not _is_stated(found, number) and not _is_stated(target, number)
            if not measured and polynomial(own, unit.constant) != polynomial(bound, unit.constant):
                guards.append(build.apply(op, (here, own), "bool", slot.span))
    values = {old: new for old, new in values.items() if build.coord(old, new.span) != new}
    guard = build.conjunction(substitute(guard, values) for guard in guards)
    return replace(found, slots=target.slots, ranges=target.ranges, body=substitute(found.body, values), guard=guard)


# -------------------------------------------------------------------- disjoint

# Comparisons of the same two sides that never both hold, of whatever kind they are.
_NEVER_BOTH = {
    frozenset(pair) for pair in (("<", ">"), ("<", ">="), ("<", "=="), (">", "<="), (">", "=="), ("==", "!="))
}


def _are_disjoint(unit: Unit, one: Draft, other: Draft) -> bool:
    if one.guard is None or other.guard is None:
        return False
    return _never_holds(unit, one.ranges, one.guard, other.guard)


def _never_holds(unit: Unit, box: tuple[ir.Range, ...], *conditions: ir.Expr) -> bool:
    """Whether conditions hold together at no point: by arithmetic, or because some contradict each other outright."""
    domain = Domain.of(box, conditions, unit.lets)
    return all(
        not known.consistent or any(_contradict(a, b) for a, b in combinations(piece.facts, 2))
        for piece, known in zip(domain.pieces, domain.contexts, strict=True)
    )


def _contradict(one: ir.Expr, other: ir.Expr) -> bool:
    if negated(one) == other or negated(other) == one:
        return True
    match one, other:
        case ir.Map(op, sides), ir.Map(other_op, other_sides) if op in MIRRORED and other_op in MIRRORED:
            if sides == other_sides:
                return frozenset((op, other_op)) in _NEVER_BOTH
            if sides == other_sides[::-1]:
                return frozenset((op, MIRRORED[other_op])) in _NEVER_BOTH
    return False


def _report(unit: Unit, name: str, one: Draft, other: Draft, origins: list[ir.Expr | None]) -> None:
    point = _overlap(unit, one, other, origins)
    places = [Label(draft.span if draft.guard is None else draft.guard.span, "here") for draft in (other, one)]
    if one.guard is None or other.guard is None:
        help = "a clause without a guard has all points: give it one that excludes the others'"
    else:
        help = "let the guards exclude each other, as `j < i` and `j >= i` do"
    if point is None:
        message = f"that no point of `{name}` is defined by two clauses is not proved"
    else:
        shown = f"{name}[{', '.join(map(str, point[0]))}]"
        message = f"`{shown}` {'may be' if point[1] else 'is'} defined by two clauses"
    unit.report("IX307", message, *places, help=help)


def _overlap(
    unit: Unit, one: Draft, other: Draft, origins: list[ir.Expr | None]
) -> tuple[tuple[int, ...], bool] | None:
    """A small point at which both guards may hold, as the text counts it, and whether data decides."""
    guards = [guard for guard in (one.guard, other.guard) if guard is not None]
    facts = [fact for guard in guards for fact in conjuncts(guard, True, look_through(unit.lets))]
    by_data = any(isinstance(part, ir.Read) and part.indices for fact in facts for part in walk(fact))
    try:
        ends = [[value_at(end, {}) for end in (range.lower, range.upper)] for range in one.ranges]
        for values in islice(product(*(range(low, high) for low, high in ends)), 20_000):
            point = {range.coordinate: at for range, at in zip(one.ranges, values, strict=True)}
            if all(may_hold(fact, point) for fact in facts):
                first = [0 if origin is None else value_at(origin, {}) for origin in origins]
                slots = (value_at(slot, point) for slot in one.slots)
                return tuple(at + start for at, start in zip(slots, first, strict=True)), by_data
    except whole.Unknown:
        pass
    return None


# ------------------------------------------------------------------------- one


def _one_of(unit: Unit, group: list[Draft]) -> Draft:
    """One clause for several whose guards are disjoint."""
    guards = [found.guard for found in group if found.guard is not None]
    guard = _union(unit, group[0].ranges, guards)
    *others, last = group
    body = last.body
    if not _follows(unit, group[0].ranges, guard, guards):
        zero = build.truth(False, last.span) if body.type.kind == "bool" else build.whole(0, last.span)
        body = build.select(guards[-1], body, zero, last.span)
    for found, condition in zip(reversed(others), reversed(guards[:-1]), strict=True):
        body = build.select(condition, found.body, body, found.span)
    return replace(group[0], body=body, guard=guard)


def _follows(unit: Unit, box: tuple[ir.Range, ...], guard: ir.Expr | None, guards: list[ir.Expr]) -> bool:
    """Whether the last guard is seen to hold where the union of all does and the others do not."""
    known = assume(box, unit.lets)
    if guard is not None:
        known = known.assuming(guard)
    for other in guards[:-1]:
        known = known.assuming(other, False)
    return known.proves(guards[-1])


def _union(unit: Unit, box: tuple[ir.Range, ...], guards: list[ir.Expr]) -> ir.Expr | None:
    """The condition that one of the guards holds; None where one always does. Where a plain one says the same, that:
    `j == i` or `j < i` is `j <= i`."""
    opposites = [negated(guard) for guard in guards]
    if _never_holds(unit, box, *opposites):
        return None
    meaning = look_through(unit.lets)
    weaker: dict[ir.Expr, None] = {}
    for fact in (fact for guard in guards for fact in conjuncts(guard, True, meaning)):
        weaker[fact] = None
        if isinstance(fact, ir.Map) and fact.op in _WEAKER and fact.arguments[0].type.kind == "whole":
            weaker[build.apply(_WEAKER[fact.op], fact.arguments, "bool", fact.span)] = None
    cases = [Domain.of(box, (guard,), unit.lets) for guard in guards]
    common = build.conjunction([fact for fact in weaker if all(case.proves(fact) for case in cases)])
    if common is not None and _never_holds(unit, box, common, *opposites):
        return common
    result = guards[0]
    for guard in guards[1:]:
        result = build.apply("||", (result, guard), "bool", guard.span)
    return result


_WEAKER = {"<": "<=", ">": ">="}
