"""Definitions, in order; recurrences → loops in which only what is recurrent is stepped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from ..ir import nodes as ir
from ..ir.affine import Polynomial
from ..ir.walk import reads_of
from ..plan.recurrences import stepped_axes
from ..records import dataclass
from . import clauses, recurrent_rows, removal, scans, sizes
from .code import ONE, ZERO, Between, Infix, Name, Node, call, chain, infix, node
from .layout import Kind
from .lowering import Lowering, Stored
from .removal import mask_name

# The comparisons that must all hold for a clause in a turn of a loop; none where it always applies.
Test: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """The part of one definition in a turn of a loop: under each test, some of its clauses. Where these are
    `exclusive`, exactly one of the tests holds in every turn."""

    let: ir.Let
    steps: dict[int, Node]
    tests: tuple[Test, ...]
    groups: tuple[tuple[ir.Clause, ...], ...]
    exclusive: bool


def run(low: Lowering, order: ir.Order, needed: set[str]) -> None:
    """A definition or a recurrence, where something needs it."""
    match order:
        case ir.Once(name) if name in needed:
            low.define(low.lets[name])
        case ir.Stepwise(axes) if needed & {name for name, _ in axes}:
            scan = low.recurrences[axes[0][0]].scan
            if scan is None:
                recur(low, order)
            else:
                scans.scan(low, low.lets[axes[0][0]], scan)
        case _:
            pass


def recur(low: Lowering, order: ir.Stepwise) -> None:
    """A loop over what a recurrence steps."""
    stepped = stepped_axes(order)
    lets = {name: low.lets[name] for name in stepped}
    *others, last = lets.values()
    clauses.begin(low, last, others)
    if low.isolate:
        removable = [name for name in stepped if removal.may_remove(low, name)]
        for name in removable:
            low.stored[mask_name(name)] = Stored(mask_name(name), "bool")
            stepped[mask_name(name)] = stepped[name]
        lets |= {mask_name(name): clauses.mask_of(low, low.lets[name]) for name in removable}
    for name, let in lets.items():
        recurrent_rows.prepare(low, let, stepped[name], before(low, let) if name in low.recurrences else 0)
    loop(low, order, {}, True)
    low.known, low.hoisted = low.hoisted, {}
    for name, let in lets.items():
        recurrent_rows.assemble(low, let, stepped[name])


def before(low: Lowering, let: ir.Let) -> int:
    """The number of diagonals before the first that are read: they have no points, and are 0."""
    recurrence = low.recurrences[let.name]
    if not recurrence.diagonals:
        return 0
    ways = [0]
    for name, other in low.recurrences.items():
        reads = [read for read in reads_of(low.lets[name]) if read.tensor == let.name]
        here = low.prover.polynomial(low.lets[name].clauses[0].slots[other.axes[0]])
        ways += [(here - low.prover.polynomial(read.indices[recurrence.axes[0]])).constant or 0 for read in reads]
    return max(ways)


# --------------------------------------------------------------------- loops


def loop(low: Lowering, order: ir.Stepwise, steps: dict[str, dict[int, Node]], alike: bool) -> None:
    """One loop, with those inside it. Base cases that all definitions share stand before it."""
    extents = [low.lets[name].axes[axis].extent for name, axis in order.axes]
    alike = alike and all(sizes.is_same(low, extents[0], extent) for extent in extents)
    count, most = longest(low, extents)
    first, axis = order.axes[0]
    variable = low.text.fresh(low.lets[first].axes[axis].coordinate.name)
    step = Name(variable)
    inner = {**steps, **{name: {**steps.get(name, {}), axis: step} for name, axis in order.axes}}
    low.most[step] = most
    body = [item if isinstance(item, ir.Stepwise) else parts(low, item, inner, alike) for item in order.body]
    start = peeled(low, body, step) if order.forward and not steps else 0
    numbers = call("range", start, count) if start else call("range", count)
    known = dict(low.known)
    if not low.turning:
        low.hoisted = known
    low.turning.append((step, order.forward))
    low.done = set()
    with low.text.loop(variable, numbers if order.forward else call("reversed", numbers)):
        for item in _merged(body):
            if isinstance(item, ir.Stepwise):
                loop(low, item, inner, alike)
            else:
                turn(low, item, start)
        for name, _ in order.axes if not steps else ():
            recurrent_rows.forget(low, low.lets[name], step, order.forward)
    low.turning.pop()
    low.done = set()
    low.text.release(variable)
    low.known = {**known, **low.hoisted}


def longest(low: Lowering, extents: list[ir.Expr]) -> tuple[Node, Polynomial | None]:
    """The largest of some extents, and what is known of it."""
    known = [low.prover.polynomial(extent) for extent in extents]
    for extent, here in zip(extents, known, strict=True):
        if all(low.prover.entails((), here - other) for other in known):
            return sizes.number(low, extent), here
    return call("max", *dict.fromkeys(sizes.number(low, extent) for extent in extents)), None


def parts(low: Lowering, order: ir.Once, steps: dict[str, dict[int, Node]], alike: bool) -> list[Part]:
    """A definition in a turn of the loop, and the mask beside it."""
    beside = low.tensors.get(mask_name(order.name))
    lets = [low.lets[order.name], *([beside] if isinstance(beside, ir.Let) else [])]
    return [part(low, let, steps[order.name], alike) for let in lets]


def part(low: Lowering, let: ir.Let, steps: dict[int, Node], alike: bool) -> Part:
    """The part of a definition in a turn of the loop: neighbouring clauses under the same test are grouped."""
    tests: list[Test] = []
    groups: list[tuple[ir.Clause, ...]] = []
    for clause in let.clauses:
        test = test_of(low, clause, steps)
        if tests and tests[-1] == test:
            groups[-1] = (*groups[-1], clause)
        else:
            tests.append(test)
            groups.append((clause,))
    whole = alike and not any(clauses.is_partial(low, let, clause, steps) for clause in let.clauses)
    last = list(steps.values())[-1]
    exclusive = tests == [()] or (len(tests) > 1 and (whole or _is_chain(tuple(tests), last)))
    return Part(let, steps, tuple(tests), tuple(groups), exclusive)


def test_of(low: Lowering, clause: ir.Clause, steps: dict[int, Node]) -> Test:
    """The test that a clause applies to this step; conditions that every step fulfils are left out."""
    ranges = {range.coordinate: range for range in clause.ranges}
    result: list[Node] = []
    for axis, step in steps.items():
        slot = clause.slots[axis]
        if not isinstance(slot, ir.Coord):
            result.append(Infix("==", step, sizes.number(low, slot)))
            continue
        range = ranges[slot.coordinate]
        lower, upper = narrowest(low, range, low.most[step])
        if lower is not None and upper is not None:
            result.append(Between(sizes.number(low, lower), step, sizes.number(low, upper)))
        elif lower is not None:
            result.append(Infix(">=", step, sizes.number(low, lower)))
        elif upper is not None:
            result.append(Infix("<", step, sizes.number(low, upper)))
    return tuple(result)


def narrowest(low: Lowering, range: ir.Range, most: Polynomial | None) -> tuple[ir.Expr | None, ir.Expr | None]:
    """The bounds of a range that not every step of a loop keeps; of the largest or least of some, the one that
    does not."""
    prover = low.prover
    lowers = [bound for bound in _each(range.lower, "max") if not prover.entails((), -prover.polynomial(bound))]
    uppers = [
        bound
        for bound in _each(range.upper, "min")
        if most is None or not prover.entails((), prover.polynomial(bound) - most)
    ]
    lower = None if not lowers else lowers[0] if len(lowers) == 1 else range.lower
    return lower, None if not uppers else uppers[0] if len(uppers) == 1 else range.upper


def peeled(low: Lowering, body: list[list[Part] | ir.Stepwise], step: Node) -> int:
    """Write the base cases before the loop, where every definition has the same; how many there are."""
    parts = [part for item in body if isinstance(item, list) for part in item]
    if not parts or any(isinstance(item, ir.Stepwise) for item in body):
        return 0
    tests = parts[0].tests
    if not _is_chain(tests, step) or any(part.tests != tests for part in parts):
        return 0
    for number in range(len(tests) - 1):
        for part in parts:
            fill(low, part, number, dict.fromkeys(part.steps, node(number)))
    return len(tests) - 1


def turn(low: Lowering, parts: list[Part], start: int) -> None:
    """Emit definitions that are under the same tests, in one turn of the loop."""
    tests, exclusive = parts[0].tests, parts[0].exclusive
    if exclusive:
        tests = _without_failed(tests)
        if tests and not tests[0]:
            tests = tests[:1]  # It holds in every step: the others are never reached.
    if not exclusive:
        for part in parts:
            start_row(low, part.let, part.steps, part.let.clauses)
    for number, test in enumerate(tests):
        if number < start:
            continue
        last = exclusive and number == len(tests) - 1
        kind: Kind = "else" if last else "elif" if exclusive and number else "if"
        known, done = dict(low.known), set(low.done)
        with under(low, kind, () if start and last else test):
            for part in parts:
                fill(low, part, number, part.steps)
                low.known.pop(("so far", part.let.name), None)
                low.done.add(part.let.name)
        low.known, low.done = {**known, **low.hoisted}, done
        for part in parts:
            low.known.pop(("so far", part.let.name), None)
    if exclusive:
        low.done |= {part.let.name for part in parts}


@contextmanager
def under(low: Lowering, kind: Kind, test: Test) -> Iterator[None]:
    """Emit under a test; without one, unconditionally."""
    if not test:
        yield
        return
    low.text.add(kind, None if kind == "else" else chain("and", list(test)))
    with low.text.indented():
        yield


# --------------------------------------------------------------------- steps


def fill(low: Lowering, part: Part, number: int, steps: dict[int, Node]) -> None:
    """The points of some clauses at one step."""
    let, group = part.let, part.groups[number]
    clauses.turn_to(low, let)
    stored = low.stored[let.name]
    if part.exclusive:
        start_row(low, let, steps, group)
    key = tuple(steps[axis] for axis in stored.rows)
    for clause in group:
        value = clauses.clause_value(low, let, clause, steps)
        if stored.rows and not clauses.is_partial(low, let, clause, steps):
            # Rows are stacked in the end, or copied where they are read; not so what a function read of its own.
            own = let.hidden and recurrent_rows.steps_kept(low, let) is not None
            low.text.store_row(stored.variable, key, clauses.finished(low, let, value, clause, steps, own).code)
            continue
        slots = clauses.slots(low, let, clause, stored.rows, steps)
        low.text.store(stored.variable, slots, clauses.placed(low, let, value, clause, steps), key)


def start_row(low: Lowering, let: ir.Let, steps: dict[int, Node], group: tuple[ir.Clause, ...]) -> None:
    """A row of zeros, where clauses that have only a part of it follow."""
    stored = low.stored[let.name]
    if stored.rows and any(clauses.is_partial(low, let, clause, steps) for clause in group):
        key = tuple(steps[axis] for axis in stored.rows)
        low.text.store_row(stored.variable, key, recurrent_rows.empty_row(low, let, stored))


def _each(bound: ir.Expr, op: str) -> tuple[ir.Expr, ...]:
    return bound.arguments if isinstance(bound, ir.Map) and bound.op == op else (bound,)


def _merged(body: list[list[Part] | ir.Stepwise]) -> Iterator[list[Part] | ir.Stepwise]:
    """Group neighbouring definitions that are under the same tests."""
    found: list[Part] = []
    for item in body:
        for part in item if isinstance(item, list) else ():
            if found and (found[0].tests, found[0].exclusive) != (part.tests, part.exclusive):
                yield found
                found = []
            found.append(part)
        if isinstance(item, ir.Stepwise):
            if found:
                yield found
            found = []
            yield item
    if found:
        yield found


def _without_failed(tests: tuple[Test, ...]) -> tuple[Test, ...]:
    """Tests that are asked one after the other: where `t == 0` failed, `t >= 1` is known."""
    known: set[Node] = set()
    result: list[Test] = []
    for test in tests:
        result.append(tuple(part for part in test if part not in known) or test)
        match test:
            case (Infix("==", step, zero),) if zero == ZERO:
                known.add(Infix(">=", step, ONE))
    return tuple(result)


def _is_chain(tests: tuple[Test, ...], step: Node) -> bool:
    """Whether tests are for the first steps one by one, and for all others last."""
    count = len(tests) - 1
    first = [(infix("==", step, n),) for n in range(count)]
    return count > 0 and tests == (*first, (infix(">=", step, count),))
