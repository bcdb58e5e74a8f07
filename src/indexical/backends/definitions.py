"""Definitions, in order; recurrences → loops in which only what is recurrent is stepped."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from ..ir import nodes as ir
from ..ir.affine import Polynomial
from ..ir.walk import reads_of
from ..plan.recurrences import stepped_axes
from .code import ONE, ZERO, Between, Infix, Name, Node, call, chain, infix, node
from .layout import Kind
from .removal import mask_name
from .scans import Scanner
from .state import Stored

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


@dataclass
class Definer(Scanner):
    """Every definition of a program, as statements. `most` are the turns of each loop, by its variable."""

    most: dict[Node, Polynomial | None] = field(default_factory=dict)

    def run(self, order: ir.Order, needed: set[str]) -> None:
        """A definition or a recurrence, where something needs it."""
        match order:
            case ir.Once(name) if name in needed:
                self.define(self.lets[name])
            case ir.Stepwise(axes) if needed & {name for name, _ in axes}:
                scan = self.recurrences[axes[0][0]].scan
                if scan is None:
                    self.recur(order)
                else:
                    self.scan(self.lets[axes[0][0]], scan)
            case _:
                pass

    def recur(self, order: ir.Stepwise) -> None:
        """A loop over what a recurrence steps."""
        stepped = stepped_axes(order)
        lets = {name: self.lets[name] for name in stepped}
        *others, last = lets.values()
        self.begin(last, others)
        if self.isolate:
            removable = [name for name in stepped if self.may_remove(name)]
            for name in removable:
                self.stored[mask_name(name)] = Stored(mask_name(name), "bool")
                stepped[mask_name(name)] = stepped[name]
            lets |= {mask_name(name): self.mask_of(self.lets[name]) for name in removable}
        for name, let in lets.items():
            self.prepare(let, stepped[name], self.before(let) if name in self.recurrences else 0)
        self.loop(order, {}, True)
        self.known, self.hoisted = self.hoisted, {}
        for name, let in lets.items():
            self.assemble(let, stepped[name])

    def before(self, let: ir.Let) -> int:
        """The number of diagonals before the first that are read: they have no points, and are 0."""
        recurrence = self.recurrences[let.name]
        if not recurrence.diagonals:
            return 0
        ways = [0]
        for name, other in self.recurrences.items():
            reads = [read for read in reads_of(self.lets[name]) if read.tensor == let.name]
            here = self.prover.polynomial(self.lets[name].clauses[0].slots[other.axes[0]])
            ways += [(here - self.prover.polynomial(read.indices[recurrence.axes[0]])).constant or 0 for read in reads]
        return max(ways)

    # --------------------------------------------------------------------- loops

    def loop(self, order: ir.Stepwise, steps: dict[str, dict[int, Node]], alike: bool) -> None:
        """One loop, with those inside it. Base cases that all definitions share stand before it."""
        extents = [self.lets[name].axes[axis].extent for name, axis in order.axes]
        alike = alike and all(self.is_same(extents[0], extent) for extent in extents)
        count, most = self.longest(extents)
        first, axis = order.axes[0]
        variable = self.text.fresh(self.lets[first].axes[axis].coordinate.name)
        step = Name(variable)
        inner = {**steps, **{name: {**steps.get(name, {}), axis: step} for name, axis in order.axes}}
        self.most[step] = most
        body = [item if isinstance(item, ir.Stepwise) else self.parts(item, inner, alike) for item in order.body]
        start = self.peeled(body, step) if order.forward and not steps else 0
        numbers = call("range", start, count) if start else call("range", count)
        known = dict(self.known)
        if not self.turning:
            self.hoisted = known
        self.turning.append((step, order.forward))
        self.done = set()
        with self.text.loop(variable, numbers if order.forward else call("reversed", numbers)):
            for item in _merged(body):
                if isinstance(item, ir.Stepwise):
                    self.loop(item, inner, alike)
                else:
                    self.turn(item, start)
            for name, _ in order.axes if not steps else ():
                self.forget(self.lets[name], step, order.forward)
        self.turning.pop()
        self.done = set()
        self.text.taken.discard(variable)
        self.known = {**known, **self.hoisted}

    def longest(self, extents: list[ir.Expr]) -> tuple[Node, Polynomial | None]:
        """The largest of some extents, and what is known of it."""
        known = [self.prover.polynomial(extent) for extent in extents]
        for extent, here in zip(extents, known, strict=True):
            if all(self.prover.entails((), here - other) for other in known):
                return self.number(extent), here
        return call("max", *dict.fromkeys(self.number(extent) for extent in extents)), None

    def parts(self, order: ir.Once, steps: dict[str, dict[int, Node]], alike: bool) -> list[Part]:
        """A definition in a turn of the loop, and the mask beside it."""
        beside = self.tensors.get(mask_name(order.name))
        lets = [self.lets[order.name], *([beside] if isinstance(beside, ir.Let) else [])]
        return [self.part(let, steps[order.name], alike) for let in lets]

    def part(self, let: ir.Let, steps: dict[int, Node], alike: bool) -> Part:
        """The part of a definition in a turn of the loop: neighbouring clauses under the same test are grouped."""
        tests: list[Test] = []
        groups: list[tuple[ir.Clause, ...]] = []
        for clause in let.clauses:
            test = self.test(clause, steps)
            if tests and tests[-1] == test:
                groups[-1] = (*groups[-1], clause)
            else:
                tests.append(test)
                groups.append((clause,))
        whole = alike and not any(self.is_partial(let, clause, steps) for clause in let.clauses)
        last = list(steps.values())[-1]
        exclusive = tests == [()] or (len(tests) > 1 and (whole or _is_chain(tuple(tests), last)))
        return Part(let, steps, tuple(tests), tuple(groups), exclusive)

    def test(self, clause: ir.Clause, steps: dict[int, Node]) -> Test:
        """The test that a clause applies to this step; conditions that every step fulfils are left out."""
        ranges = {range.coordinate: range for range in clause.ranges}
        result: list[Node] = []
        for axis, step in steps.items():
            slot = clause.slots[axis]
            if not isinstance(slot, ir.Coord):
                result.append(Infix("==", step, self.number(slot)))
                continue
            range = ranges[slot.coordinate]
            lower, upper = self.narrowest(range, self.most[step])
            if lower is not None and upper is not None:
                result.append(Between(self.number(lower), step, self.number(upper)))
            elif lower is not None:
                result.append(Infix(">=", step, self.number(lower)))
            elif upper is not None:
                result.append(Infix("<", step, self.number(upper)))
        return tuple(result)

    def narrowest(self, range: ir.Range, most: Polynomial | None) -> tuple[ir.Expr | None, ir.Expr | None]:
        """The bounds of a range that not every step of a loop keeps; of the largest or least of some, the one that
        does not."""
        prover = self.prover
        lowers = [bound for bound in _each(range.lower, "max") if not prover.entails((), -prover.polynomial(bound))]
        uppers = [
            bound
            for bound in _each(range.upper, "min")
            if most is None or not prover.entails((), prover.polynomial(bound) - most)
        ]
        lower = None if not lowers else lowers[0] if len(lowers) == 1 else range.lower
        return lower, None if not uppers else uppers[0] if len(uppers) == 1 else range.upper

    def peeled(self, body: list[list[Part] | ir.Stepwise], step: Node) -> int:
        """Write the base cases before the loop, where every definition has the same; how many there are."""
        parts = [part for item in body if isinstance(item, list) for part in item]
        if not parts or any(isinstance(item, ir.Stepwise) for item in body):
            return 0
        tests = parts[0].tests
        if not _is_chain(tests, step) or any(part.tests != tests for part in parts):
            return 0
        for number in range(len(tests) - 1):
            for part in parts:
                self.fill(part, number, dict.fromkeys(part.steps, node(number)))
        return len(tests) - 1

    def turn(self, parts: list[Part], start: int) -> None:
        """Emit definitions that are under the same tests, in one turn of the loop."""
        tests, exclusive = parts[0].tests, parts[0].exclusive
        if exclusive:
            tests = _without_failed(tests)
        if not exclusive:
            for part in parts:
                self.start_row(part.let, part.steps, part.let.clauses)
        for number, test in enumerate(tests):
            if number < start:
                continue
            last = exclusive and number == len(tests) - 1
            kind: Kind = "else" if last else "elif" if exclusive and number else "if"
            known, done = dict(self.known), set(self.done)
            with self.under(kind, () if start and last else test):
                for part in parts:
                    self.fill(part, number, part.steps)
                    self.known.pop(("so far", part.let.name), None)
                    self.done.add(part.let.name)
            self.known, self.done = {**known, **self.hoisted}, done
            for part in parts:
                self.known.pop(("so far", part.let.name), None)
        if exclusive:
            self.done |= {part.let.name for part in parts}

    @contextmanager
    def under(self, kind: Kind, test: Test) -> Iterator[None]:
        """Emit under a test; without one, unconditionally."""
        if not test:
            yield
            return
        self.text.add(kind, None if kind == "else" else chain("and", list(test)))
        with self.text.indented():
            yield

    # --------------------------------------------------------------------- steps

    def fill(self, part: Part, number: int, steps: dict[int, Node]) -> None:
        """The points of some clauses at one step."""
        let, clauses = part.let, part.groups[number]
        self.speak_of(let)
        stored = self.stored[let.name]
        if part.exclusive:
            self.start_row(let, steps, clauses)
        key = tuple(steps[axis] for axis in stored.rows)
        for clause in clauses:
            value = self.clause_value(let, clause, steps)
            if stored.rows and not self.is_partial(let, clause, steps):
                # Rows are stacked in the end, or copied where they are read; not so what a function read of its own.
                own = let.hidden and self.kept(let) is not None
                self.text.store_row(stored.variable, key, self.finished(let, value, clause, steps, own).code)
                continue
            slots = self.slots(let, clause, stored.rows, steps)
            self.text.store(stored.variable, slots, self.placed(let, value, clause, steps), key)

    def start_row(self, let: ir.Let, steps: dict[int, Node], clauses: tuple[ir.Clause, ...]) -> None:
        """A row of zeros, where clauses that have only a part of it follow."""
        stored = self.stored[let.name]
        if stored.rows and any(self.is_partial(let, clause, steps) for clause in clauses):
            key = tuple(steps[axis] for axis in stored.rows)
            self.text.store_row(stored.variable, key, self.empty_row(let, stored))

    def is_partial(self, let: ir.Let, clause: ir.Clause, stepped: Collection[int]) -> bool:
        """Whether a clause fills only a part of its row."""
        ranges = {range.coordinate: range for range in clause.ranges}
        for n, (slot, axis) in enumerate(zip(clause.slots, let.axes, strict=True)):
            if n in stepped:
                continue
            if not isinstance(slot, ir.Coord):
                return True
            range = ranges[slot.coordinate]
            from_zero = isinstance(range.lower, ir.Const) and range.lower.value == 0
            if not from_zero or not self.is_same(range.upper, axis.extent):
                return True
        return False


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
