"""Which rows a loop makes in its turns, and in which turns they are read."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.affine import Polynomial, is_counted, number, of_atom, polynomial
from ..ops import Carried, Loop, Number, Read, Store, Value
from ..order import reachable, stored
from .numbers import settled
from .rows import count_of, expr_at


def made_by(loop: Loop) -> tuple[Value, ...]:
    return tuple(root for item in loop.body for root in made_in(item))


def made_in(item: Loop | Store) -> tuple[Value, ...]:
    """What an item of a loop computes."""
    if isinstance(item, Loop):
        return item.count, *made_by(item)
    return *item.tests, *item.steps, *(at for _, at in item.slots), item.value


def kept_for(op: Carried, loop: Loop, reads: list[Read]) -> int | None:
    """For how many turns a row is read after its own; None where that is not known."""
    if len(op.steps) != 1:
        return None
    back = [0]
    for one in reads:
        if one.source.op != op:
            continue
        place = dict(one.index).get(op.steps[0])
        if place is None or not isinstance(place.op, Number):
            return None
        apart = (of_atom(loop.symbol) - polynomial(place.op.expr)).constant
        if apart is None:
            return None
        back.append(apart if loop.forward else -apart)
    return max(back) if min(back) >= 0 else None


def last_rows(loop: Loop, steps: tuple[Value, ...] | None) -> int | None:
    """How many of the rows that a loop makes last are read after it, at these steps; None where that is not known."""
    if steps is None:
        return None
    places = [polynomial(settled(expr_at(step))) for step in steps]
    found = [(count_of(loop) - place if loop.forward else place + 1).constant for place in places]
    back = [one for one in found if one is not None and one >= 1]
    return max(back) if len(back) == len(found) else None


def is_local(loop: Loop, name: str, always: bool) -> bool:
    """Whether the rows of a definition are each read in their own turn alone, after they are made whole: `always`, or
    under the tests under which they are."""
    own = [item for item in loop.body if isinstance(item, Store) and item.name == name]
    if len(own) < len(stored(loop)[name]) or any(item.slots for item in own):
        return False
    (step, *others), tests = {item.steps for item in own}, {needed_tests(item, loop) for item in own}
    if others or len(step) != 1 or (len(tests) > 1 and not always):
        return False
    made = False
    for item in loop.body:
        ops = [one.op for one in reachable(made_in(item))]
        reads = [op for op in ops if isinstance(op, Read) and getattr(op.source.op, "name", "") == name]
        reads = [op for op in reads if isinstance(op.source.op, Carried)]
        if any(step[0] not in (at for _, at in op.index) for op in reads):
            return False
        if reads and not (made and (always or (isinstance(item, Store) and {needed_tests(item, loop)} == tests))):
            return False
        made = made or item in own
    return True


def made_until(loop: Loop, name: str) -> Polynomial | None:
    """The row before which a definition has all: it is stored whole in every turn up to there, or first at 0 and then
    from 1 on. The row of a turn may lag behind."""
    found: dict[tuple[object, ...], Polynomial] = {}
    for item in loop.body:
        if isinstance(item, Store) and item.name == name and not item.slots:
            lag = (of_atom(loop.symbol) - polynomial(expr_at(item.steps[0]))).constant or 0
            tests: list[object] = []
            end = count_of(loop)
            for test in needed_tests(item, loop):
                match test:
                    case Value(op=Number(ir.Map("<", (ir.Coord(step), stop)))) if step == loop.symbol:
                        end = polynomial(stop)
                    case ("<", step, int(stop)) if step == loop.symbol:
                        end = number(stop)
                    case (str(sign), step, int(place)):
                        tests += [] if (sign, place) == (">=", lag) else [(sign, step, place - lag)]
                    case _:
                        tests.append(test)
            found[tuple(tests)] = end - lag
    return found.get(()) or (found.get(later_turns(loop)) if first_turn(loop) in found else None)


def first_turn(loop: Loop) -> tuple[object, ...]:
    """The test of the first turn."""
    return (("==", loop.symbol, 0),)


def later_turns(loop: Loop) -> tuple[object, ...]:
    """The test of all turns but the first."""
    return ((">=", loop.symbol, 1),)


def needed_tests(item: Store, loop: Loop) -> tuple[object, ...]:
    """The tests of a clause that some turn fails: comparisons of the step with a number are known by these."""
    found: list[object] = []
    count = count_of(loop)
    for test in item.tests:
        match expr_at(test):
            case ir.Map("<", (ir.Coord(step), end)) if step == loop.symbol and is_counted(polynomial(end) - count):
                continue
            case ir.Map("<", (ir.Coord(step), end)) if polynomial(settled(end)).constant == 1:
                found.append(("==", step, 0))
            case ir.Map(sign, (ir.Coord(step), ir.Const(value))):
                found.append((sign, step, value))
            case _:
                found.append(test)
    return tuple(found)
