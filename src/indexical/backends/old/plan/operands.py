"""Parts of what kernels compute that are definitions of their own: reductions that do not vary with both a query and a
key, and normalisers. They are operations; a kernel is handed the array."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import polynomial
from ....ir.context import assume, visit
from ....ir.dtypes import definition_dtypes
from ....ir.needs import members
from ....ir.text import shown
from ....ir.types import SHORT, Coordinate, Dtype
from ....ir.walk import children, fresh_name, rebuild, walk
from ....plan.steps import Attend, Plan, Refusal, Step
from ....plan.target import ARRAYS

Ranges = Mapping[Coordinate, ir.Range]

# Reductions that are no kernel's own, even at pairs of a query and a key.
_APART = ("mean", "argmax", "argmin")


def with_operands(plan: Plan, given: Mapping[str, Dtype]) -> Plan:
    """The plan for inputs of these dtypes, with a definition for every such part. A kernel that has one which cannot be
    a definition is none."""
    search = _Search(plan)
    steps = tuple(map(search.step, plan.steps))
    if not search.made and steps == plan.steps:
        return plan
    lets = (*plan.program.lets, *(let for made in search.made.values() for let in made))
    order: list[ir.Order] = []
    for item in plan.program.order:
        for name in members(item):
            order += [ir.Once(let.name) for let in search.made.pop(name, ())]
        order.append(item)
    program = replace(plan.program, lets=lets, order=tuple(order))
    object.__setattr__(program, "same", plan.program.same)
    dtypes, weak = definition_dtypes(program, given)
    return replace(plan, program=program, steps=steps, dtypes={**dtypes, **plan.dtypes}, weak=plan.weak | weak)


class _Search:
    """The definitions that are made, by the first definition of the kernel that reads them."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.lets = plan, plan.program.definitions
        self.taken = {*plan.program.tensors}
        self.made: dict[str, list[ir.Let]] = {}
        self.known: dict[ir.Expr, ir.Expr] = {}
        self.left: ir.Expr | None = None
        self.sides = Counter(one for step in plan.steps if step.chunks is not None for one in step.chunks.parts)

    def step(self, step: Step) -> Step:
        """A step whose kernel reads parts of its own."""
        attend = step.attend or (None if step.gradient is None else step.gradient.attend)
        if attend is None and step.chunks is None and (step.recurrence is None or step.recurrence.scan is None):
            return step
        first, self.left = self._first(step), None
        scanned = self._scanned(step, first)
        self.known = {}
        for expr, ranges in self._parts(step, attend):
            if step.chunks is None or not self._is_shared(expr) or not self._make(expr, ranges, first):
                self._find(expr, ranges, _pairs(attend), first)
        if self.left is not None:
            reason = f"`{shown(self.left)}` is no array of its own, and none of its kernels computes it"
            self.made.pop(first, None)
            refusals = (*step.refusals, Refusal(step.definition, step.kernel, reason))
            return Step(step.definition, ARRAYS, refusals=refusals, beside=step.beside)
        changed: Step = _replaced(scanned, self.known) if self.known else scanned
        return changed

    def _scanned(self, step: Step, first: str) -> Step:
        """A step whose scan reads definitions. The same expression in two clauses is two of them: a clause
        has points of its own."""
        if step.recurrence is None or step.recurrence.scan is None:
            return step
        scan, parts = step.recurrence.scan, []
        for clause, part in zip(scan.clauses, scan.parts, strict=True):
            self.known = {}
            for expr in (part.times, part.plus, part.read_where):
                if expr is not None:
                    self._find(expr, _by_coordinate(clause.ranges), _pairs(None), first)
            parts.append(_replaced(part, self.known))
        return replace(step, recurrence=replace(step.recurrence, scan=replace(scan, parts=tuple(parts))))

    def _first(self, step: Step) -> str:
        """The first definition of a step in the order of the program."""
        own = {step.definition, *step.beside, *(step.gradient.definitions if step.gradient else ())}
        return next(name for item in self.plan.program.order for name in members(item) if name in own)

    def _parts(self, step: Step, attend: Attend | None) -> Iterator[tuple[ir.Expr, Ranges]]:
        """The expressions of a kernel that is no scan, each with the ranges of what it varies with."""
        home = self.lets[step.definition if step.gradient is None else step.gradient.forward]
        ranges = _by_coordinate(home.clauses[0].ranges)
        if step.chunks is not None:
            chunks = step.chunks
            ranges |= _by_coordinate((chunks.key, *chunks.features))
            yield from ((expr, ranges) for expr in chunks.parts)
        if attend is not None:
            attention, dot = attend.attention, attend.scores.dot
            ranges |= {attention.coordinate: attention.key}
            more = [] if step.gradient is None else [step.gradient.arriving]
            yield from ((expr, ranges) for expr in (*attention.parts, attention.value, *more))
            if dot is not None:
                ranges = ranges | _by_coordinate(dot.compared)
                yield from ((expr, ranges) for expr in (dot.query, dot.key))

    def _find(self, expr: ir.Expr, ranges: Ranges, pairs: Callable[[ir.Expr], bool], first: str) -> None:
        """Make definitions of the largest parts of an expression that can be."""
        if expr in self.known:
            return
        if _is_operation(expr, pairs):
            if self._make(expr, ranges, first):
                return
            if not isinstance(expr, ir.Reduce) or expr.op in _APART:
                self.left = expr
        if isinstance(expr, ir.Reduce):
            ranges = {**ranges, **_by_coordinate(expr.ranges)}
        for part in children(expr):
            self._find(part, ranges, pairs, first)

    def _is_shared(self, expr: ir.Expr) -> bool:
        """Whether several kernels are made of an array that is computed. One of 16 bits would be rounded."""
        if not isinstance(expr, ir.Map | ir.Select) or self.sides[expr] < 2:
            return False
        return SHORT.isdisjoint(self.plan.dtypes.get(part.tensor) for part in walk(expr) if isinstance(part, ir.Read))

    def _make(self, expr: ir.Expr, ranges: Ranges, first: str) -> bool:
        """A definition for an expression; not where it would be evaluated out of bounds, or its extent varies."""
        own = [range for c, range in ranges.items() if c in expr.type.coordinates]
        if len(own) < len(expr.type.coordinates) or any(range.depends_on for range in own):
            return False
        if not self._is_safe(expr, tuple(own)):
            return False
        name = fresh_name(f"{first}_part", self.taken)
        self.taken.add(name)
        slots = tuple(build.coord(range.coordinate, expr.span) for range in own)
        clause = ir.Clause(slots, tuple(own), expr, None, expr.span)
        axes = tuple(ir.Axis(range.coordinate, range.upper) for range in own)
        let = ir.Let(name, axes, expr.type.kind, (clause,), True, expr.span)
        self.made.setdefault(first, []).append(let)
        self.known[expr] = build.read(name, slots, expr.type.kind, expr.span)
        return True

    def _is_safe(self, expr: ir.Expr, ranges: tuple[ir.Range, ...]) -> bool:
        """Whether all that an expression reads is there at every point of its ranges."""
        for part, trail in visit(expr, ranges):
            if isinstance(part, ir.Read):
                extents = [axis.extent for axis in self.plan.program.tensors[part.tensor].axes]
                known = assume(trail, self.lets)
                for index, extent in zip(part.indices, extents, strict=True):
                    place, length = (polynomial(one, known.constants) for one in (index, extent))
                    bare = isinstance(index, ir.Coord)
                    if not bare and not (known.entails(place) and known.entails(length - place - 1)):
                        return False
        return True


def _by_coordinate(ranges: Iterable[ir.Range]) -> dict[Coordinate, ir.Range]:
    return {range.coordinate: range for range in ranges}


def _is_operation(expr: ir.Expr, pairs: Callable[[ir.Expr], bool]) -> bool:
    """Whether an expression is no part of a kernel."""
    match expr:
        case ir.Normalize():
            return True
        case ir.Reduce(op):
            return op in _APART or not pairs(expr)
    return False


def _pairs(attend: Attend | None) -> Callable[[ir.Expr], bool]:
    """Whether an expression varies with both a query and a key, or compares the one query that there is with keys;
    without an attention, none does."""
    if attend is None:
        return lambda expr: False
    key, rows, dot = attend.attention.coordinate, frozenset(attend.layout.rows), attend.scores.dot

    def pairs(expr: ir.Expr) -> bool:
        compares = dot is not None and isinstance(expr, ir.Reduce) and expr.ranges == dot.compared
        return key in expr.type.coordinates and (compares or not rows.isdisjoint(expr.type.coordinates))

    return pairs


def _replaced(part: Any, known: Mapping[ir.Expr, ir.Expr]) -> Any:
    """A part of a plan in which definitions stand for expressions."""
    if isinstance(part, _EXPRESSIONS):
        return _rewritten(part, known)
    if isinstance(part, tuple):
        return tuple(_replaced(one, known) for one in part)
    if is_dataclass(part) and not isinstance(part, type):
        own = [one for one in fields(part) if one.init]
        new = {one.name: _replaced(getattr(part, one.name), known) for one in own}
        return replace(part, **{name: one for name, one in new.items() if one is not getattr(part, name)})
    return part


def _rewritten(expr: ir.Expr, known: Mapping[ir.Expr, ir.Expr]) -> ir.Expr:
    if expr in known:
        return known[expr]
    return rebuild(expr, lambda child: _rewritten(child, known))


_EXPRESSIONS = (ir.Const, ir.Array, ir.Coord, ir.Size, ir.Read, ir.Map, ir.Select, ir.Reduce, ir.Normalize)
