"""Definitions of a plan that are a program of their own: those of a block, for the rows of one turn, and those that a
kernel computes, as they are written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

from ....ir import build
from ....ir import nodes as ir
from ....ir.context import agreeing
from ....ir.needs import read_in
from ....ir.types import SHORT, Coordinate, Dtype
from ....ir.walk import changed, fresh_name, reads_of, rebuild, substitute, walk
from ....plan.steps import Attend, Block, Gradient, Plan, Step
from ....records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Turn:
    """A block for the rows from `first` on, so many as `count` says: these are sizes of its program, in which every
    definition has the rows of the turn alone. `facts` hold of these numbers. `counts` has the number of all rows, and
    of the points of a row of what is largest. `axes` are those of the rows in what is put together, None for a sum over
    all rows, which has the dtype in `wide`."""

    program: ir.Program
    counts: ir.Program
    first: Coordinate
    count: Coordinate
    facts: tuple[ir.Expr, ...]
    axes: Mapping[str, int | None]
    wide: Mapping[str, Dtype]


def as_written(plan: Plan, step: Step, gradient: Gradient) -> ir.Program:
    """The gradients of an attention, and all that lies on the way to them, as they are written."""
    lets = plan.program.definitions
    names = [item.name for item in plan.program.order if isinstance(item, ir.Once)]
    inside = {*step.covers, *gradient.definitions}
    return _program(plan, [lets[name] for name in names if name in inside], gradient.definitions)


def as_fold(plan: Plan, step: Step, attend: Attend, rows: tuple[Coordinate, ...]) -> tuple[ir.Program, str]:
    """The definition of an attention, and one for the logarithm of what the weights of its `rows` are divided by; both
    read what it reads, and say nothing else."""
    let, attention = plan.program.definitions[step.definition], attend.attention
    clause, span = let.clauses[0], let.span
    guard = build.conjunction(attention.guard)
    more = () if attention.sink is None else (attention.sink,)
    parts = build.apply("*", (attention.score, attention.value), "real", span)
    for one in more:
        parts = build.apply("+", (parts, one), "real", span)
    body = build.reduce("sum", (attention.key,), parts, guard, "real", span)
    whole = replace(let, clauses=(replace(clause, body=body),))
    name = fresh_name(f"{let.name}_total", plan.program.tensors)
    kept = [n for n, axis in enumerate(let.axes) if axis.coordinate in rows]
    kept.sort(key=lambda n: rows.index(let.axes[n].coordinate))
    slots = tuple(clause.slots[n] for n in kept)
    named = {slot.coordinate for slot in slots if isinstance(slot, ir.Coord)}
    ranges = tuple(range for range in clause.ranges if range.coordinate in named)
    total = ir.Clause(slots, ranges, build.real(Fraction(0), span), None, span)
    beside = ir.Let(name, tuple(let.axes[n] for n in kept), "real", (total,), True, span)
    lets = (whole, beside) if attend.totals else (whole,)
    return _program(plan, lets, tuple(one.name for one in lets)), name


def turn_of(plan: Plan, block: Block, wanted: Collection[str]) -> Turn:
    """The definitions of a block, for some of its rows; these are wanted of it."""
    lets, inner = plan.program.definitions, dict(block.inner)
    names = [item.name for item in plan.program.order if isinstance(item, ir.Once)]
    ordered = [lets[name] for name in names if name in inner or name in block.totals]
    span = block.rows.span
    first, count = Coordinate("first row'"), Coordinate("row'")  # No coordinate of a program is called so.
    start, rows = build.size(first, span), build.size(count, span)
    stop = build.apply("+", (start, rows), "whole", span)
    window = _Window(inner, block.totals, start, rows)
    cut = [window.cut(let) for let in ordered]
    facts = [_at_least(block.rows, stop)]
    if block.early is not None:
        end = fresh_name("k1", plan.program.tensors)
        keys = build.read(end, (), "whole", span)
        cut = [_early(let, block.early.get(let.name, frozenset()), keys) for let in cut]
        few = build.apply("min", (stop, block.keys), "whole", span)
        cut.insert(0, _number(end, few))
        facts += [_at_least(block.keys, keys), _at_least(stop, keys)]
    wide = {name: _wide(plan.dtypes[name]) for name in block.totals}
    cut = [_widened(let, wide[let.name]) if let.name in wide else let for let in cut]
    results = {name: inner[name] if name in block.kept else None for name in block.definitions if name in wanted}
    points = build.whole(1, span)
    for axis in [a for n, a in enumerate(lets[block.weights].axes) if n != inner[block.weights]]:
        points = build.apply("*", (points, axis.extent), "whole", span)  # type: ignore[assignment]
    counts = _program(plan, [_number("rows", block.rows), _number("points", points)], ("rows", "points"))
    return Turn(_program(plan, cut, tuple(results)), counts, first, count, tuple(facts), results, wide)


def _number(name: str, expr: ir.Expr) -> ir.Let:
    return ir.Let(name, (), "whole", (ir.Clause((), (), expr, None, expr.span),), True, expr.span)


def _program(plan: Plan, lets: Iterable[ir.Let], outputs: tuple[str, ...]) -> ir.Program:
    """Definitions as a program whose inputs are all tensors that they read, but for numbers, which are made again."""
    lets, tensors = tuple(lets), plan.program.tensors
    own = {let.name for let in lets}
    read = _read(lets, tensors, own)
    while more := [one for name in read if isinstance(one := tensors[name], ir.Let) and is_number(one)]:
        lets, own = (*more, *lets), own | {let.name for let in more}
        read = _read(lets, tensors, own)
    given = [tensors[name] for name in read]
    numbers = {let.name: let.clauses[0].body for let in lets if is_number(let)}

    def counted(expr: ir.Expr) -> ir.Expr:
        """An extent of an input, which is there before any definition is."""
        while isinstance(expr, ir.Read) and expr.tensor in numbers:
            expr = numbers[expr.tensor]
        return rebuild(expr, counted)

    homes = {one.name: tuple(replace(axis, extent=counted(axis.extent)) for axis in one.axes) for one in given}
    inputs = tuple(ir.Input(one.name, homes[one.name], one.kind, None, one.span) for one in given)
    order = tuple(ir.Once(let.name) for let in lets)
    program = replace(
        plan.program, inputs=inputs, lets=lets, outputs=outputs, order=order, contracts=(), asserts=(), expects=()
    )
    return agreeing(program, plan.agreed)


def _read(lets: Iterable[ir.Let], tensors: Mapping[str, ir.Input | ir.Let], own: set[str]) -> list[str]:
    """The tensors that definitions read, and those that count the points of their axes."""
    read = [read.tensor for let in lets for read in reads_of(let) if read.tensor not in own]
    counts = read_in(*(axis.extent for name in read for axis in tensors[name].axes))
    return [name for name in dict.fromkeys((*counts, *read)) if name not in own]


def is_number(let: ir.Let) -> bool:
    """Whether a definition is a whole number, which a program of its own makes again of what it reads."""
    return not let.axes and let.kind == "whole" and len(let.clauses) == 1 and let.clauses[0].guard is None


@dataclass(frozen=True, slots=True)
class _Window:
    """The rows of a turn, which start at one and are so many. `inner` definitions have them along an axis, `totals` sum
    over them."""

    inner: Mapping[str, int]
    totals: tuple[str, ...]
    start: ir.Expr
    count: ir.Expr

    def cut(self, let: ir.Let) -> ir.Let:
        """A definition for these rows alone."""
        clause = let.clauses[0]
        if let.name in self.totals:
            body = clause.body
            assert isinstance(body, ir.Reduce)
            row = self._summed(body)
            ranges = tuple(self._within(r) if r.coordinate == row else r for r in body.ranges)
            guard = None if body.guard is None else self._moved(body.guard, row)
            total = build.reduce("sum", ranges, self._moved(body.body, row), guard, body.type.kind, body.span)
            return replace(let, clauses=(replace(clause, body=total),))
        axis = self.inner[let.name]
        slot = clause.slots[axis]
        assert isinstance(slot, ir.Coord)
        row = slot.coordinate
        ranges = tuple(self._within(r) if r.coordinate == row else r for r in clause.ranges)
        axes = tuple(replace(a, extent=self.count) if n == axis else a for n, a in enumerate(let.axes))
        guard = None if clause.guard is None else self._moved(clause.guard, row)
        return replace(
            let, axes=axes, clauses=(replace(clause, ranges=ranges, body=self._moved(clause.body, row), guard=guard),)
        )

    def _summed(self, body: ir.Reduce) -> Coordinate:
        """The coordinate of the rows in a sum over them."""
        reads = [part for part in walk(body) if isinstance(part, ir.Read) and part.tensor in self.inner]
        indices = [read.indices[self.inner[read.tensor]] for read in reads]
        return next(i.coordinate for i in indices if isinstance(i, ir.Coord) and i.coordinate in body.coordinates)

    def _within(self, r: ir.Range) -> ir.Range:
        return replace(r, lower=build.whole(0, r.span), upper=self.count, stated=True)

    def _moved(self, expr: ir.Expr, row: Coordinate) -> ir.Expr:
        """An expression in which rows count from the first of the turn."""
        here = build.coord(row, expr.span)
        moved = substitute(expr, {row: build.apply("+", (here, self.start), "whole", expr.span)})
        return self._inside(moved)

    def _inside(self, expr: ir.Expr) -> ir.Expr:
        """The expression with the inner definitions read at rows of the turn."""
        expr = rebuild(expr, self._inside)
        if not isinstance(expr, ir.Read) or expr.tensor not in self.inner:
            return expr
        axis = self.inner[expr.tensor]
        match expr.indices[axis]:
            case ir.Map("+", (here, start)) if start == self.start:
                return replace(expr, indices=(*expr.indices[:axis], here, *expr.indices[axis + 1 :]))
        return expr


def _early(let: ir.Let, keys: frozenset[Coordinate], last: ir.Expr) -> ir.Let:
    """A definition of which the keys end before the `last`."""

    def ended(range: ir.Range) -> ir.Range:
        return replace(range, upper=last, stated=True) if range.coordinate in keys else range

    def change(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, change)
        if isinstance(expr, ir.Reduce) and expr.coordinates & keys:
            ranges = tuple(map(ended, expr.ranges))
            return build.reduce(expr.op, ranges, expr.body, expr.guard, expr.type.kind, expr.span)
        return expr

    clause = let.clauses[0]
    slots = [slot.coordinate if isinstance(slot, ir.Coord) else None for slot in clause.slots]
    axes = tuple(replace(a, extent=last) if slot in keys else a for a, slot in zip(let.axes, slots, strict=True))
    clause = changed(clause, change)
    return replace(let, axes=axes, clauses=(replace(clause, ranges=tuple(map(ended, clause.ranges))),))


def _wide(dtype: Dtype) -> Dtype:
    """The dtype in which sums over all rows are accumulated."""
    return "f32" if dtype in SHORT else dtype


def _widened(let: ir.Let, dtype: Dtype) -> ir.Let:
    """A sum with as many digits as its terms are added in."""
    clause = let.clauses[0]
    return replace(let, clauses=(replace(clause, body=build.apply(f"as {dtype}", (clause.body,), let.kind, let.span)),))


def _at_least(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    return build.apply(">=", (one, other), "bool", one.span)
