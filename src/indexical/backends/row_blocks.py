"""Definitions for some rows after the other → a loop over blocks of rows."""

from __future__ import annotations

from dataclasses import replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial
from ..ir.context import Trail
from ..ir.types import Coordinate, Dtype
from ..ir.walk import rebuild, walk
from ..plan.blocks import POINTS
from ..plan.steps import Block
from ..source import Span
from . import clauses, operands, sizes
from .clauses import zero_of
from .code import ALL, NONE, ONE, List, Name, Node, Slice, Tuple, call, chain, fill, node
from .layout import Block as Statements
from .layout import Statement, flattened
from .lowering import Lowering, Stored
from .proofs import Prover, WindowProver
from .scope import Place, Scope


class RowProver(WindowProver):
    """Proofs about the rows of a block, or about all rows. `facts` are at least 0."""

    facts: tuple[Polynomial, ...] = ()

    def entails(self, trail: Trail, goal: Polynomial, also: tuple[Polynomial, ...] = ()) -> bool:
        return super().entails(trail, goal, (*also, *self.facts))

    def is_inside(self, index: ir.Expr, extent: ir.Expr, scope: Scope, guarded: bool) -> bool:
        here = Prover.is_inside(self, index, extent, scope, guarded)
        return here or super().is_inside(index, extent, scope, guarded)


def cut(low: Lowering, block: Block) -> None:
    """All definitions of a block, in a loop; or in a function that is called for each turn of one, and once more on the
    way back."""
    inner = dict(block.inner)
    names = [item.name for item in low.program.order if isinstance(item, ir.Once)]
    ordered = [low.lets[name] for name in names if name in inner or name in block.totals]
    shown = [let for let in ordered if not let.hidden or let.name in block.totals]
    clauses.begin(low, shown[-1], shown[:-1])
    results = _Results(low, block, inner)
    if low.text.dialect.recomputes_blocks:
        _recomputed(low, block, ordered, inner, results)
    else:
        _looped(low, block, ordered, inner, results)
    for name, variable in results.wholes.items():
        if name in results.wide and results.wide[name] != low.dtypes[name]:
            low.text.assign(variable, low.text.dialect.narrow(Name(variable), low.dtypes[name]))
        low.stored[name] = Stored(variable, low.dtypes[name])


class _Results:
    """The arrays that a block fills: the variable of each, those that are sums over all rows with the dtype in which
    they are accumulated, and the axis of the rows of the others. `parts` are what a turn gives."""

    def __init__(self, low: Lowering, block: Block, inner: dict[str, int]) -> None:
        self.wide = {name: _wide(low, name) for name in block.totals}
        self.wholes = {name: low.text.fresh(name) for name in (*block.kept, *block.totals)}
        self.axes = {name: inner.get(name) if name in block.kept else None for name in self.wholes}
        self.parts: dict[str, str] | None = None

    def zeros(self, low: Lowering, name: str) -> Node:
        let = low.lets[name]
        dtype = self.wide.get(name) or low.dtypes[name]
        return low.text.dialect.full(clauses.storage_shape(low, let), zero_of(let), dtype)


def _looped(
    low: Lowering, block: Block, ordered: list[ir.Let], inner: dict[str, int], results: _Results
) -> None:
    for name, variable in results.wholes.items():
        low.text.assign(variable, results.zeros(low, name))
    first, last, count = (low.text.fresh(name) for name in ("r0", "r1", "rows"))
    rows = sizes.number(low, block.rows)
    low.text.assign(count, call(operands.add_helper(low, "block_rows", BLOCK_ROWS), _points(low, block)))
    # Once where there are no rows, too: what has none may want a gradient.
    low.text.add("for", call("range", 0, call("max", 1, rows), count), first)
    before = _enter(low, (first, last), block.rows.span)
    with low.block():
        low.text.assign(last, fill("min({first} + {count}, {rows})", first=first, count=count, rows=rows))
        _turns(low, block, ordered, inner, (first, last), results)
    _leave(low, before)


def _recomputed(
    low: Lowering, block: Block, ordered: list[ir.Let], inner: dict[str, int], results: _Results
) -> None:
    low.kernels.setdefault("torch_rows", set()).add("in_blocks")
    function, first, last = (low.text.fresh(name) for name in (f"{block.weights}_block", "r0", "r1"))
    zeros = [results.zeros(low, name) for name in results.wholes]
    points, rows = _points(low, block), sizes.number(low, block.rows)
    results.parts = {}
    statements: Statements = []
    low.text.blocks += 1
    before = _enter(low, (first, last), block.rows.span)
    known, low.known = low.known, {}
    with low.text.inside(statements, low.text.blocks):
        _turns(low, block, ordered, inner, (first, last), results)
        low.text.give(Tuple(tuple(Name(results.parts[name]) for name in results.wholes)))
    low.known = known
    _leave(low, before)
    read = {word for statement in flattened(statements) for word in statement.words}
    given = [one.variable for one in low.stored.values() if one.variable in read and not one.python]
    arrays = list(dict.fromkeys(given))
    low.text.add("def", node((first, last, *arrays)), function)
    starts = isinstance(statements[0], Statement) and statements[0].kind == "blank"
    low.text.statements.append(statements[starts:])
    low.text.blank()
    axes = List(tuple(NONE if axis is None else node(axis) for axis in results.axes.values()))
    room = {"room": low.room} if low.room else {}
    code = call("in_blocks", function, List(tuple(map(Name, arrays))), rows, points, List(tuple(zeros)), axes, **room)
    low.text.unpack(list(results.wholes.values()), code)


def _turns(
    low: Lowering, block: Block, ordered: list[ir.Let], inner: dict[str, int], ends: tuple[str, str], results: _Results
) -> None:
    """All definitions, for the rows of a turn."""
    last: str | None = None
    if block.early is not None:
        last = low.text.fresh("k1")
        low.text.assign(last, call("min", ends[1], sizes.number(low, block.keys)))
        _enter(low, (last,), block.rows.span)
    for let in ordered:
        _turn(low, let, block, inner.get(let.name), ends, results, last)


def _wide(low: Lowering, name: str) -> Dtype:
    """The dtype in which sums over all rows are accumulated."""
    dtype = low.dtypes[name]
    return "f32" if dtype in ("f16", "bf16") else dtype


def _points(low: Lowering, block: Block) -> Node:
    """The number of points of a row of the largest definitions."""
    axes = [axis for n, axis in enumerate(low.lets[block.weights].axes) if n != dict(block.inner)[block.weights]]
    return chain("*", [sizes.extent(low, axis.extent) for axis in axes] or [ONE])


def _enter(low: Lowering, names: tuple[str, ...], span: Span) -> tuple[object, ...]:
    before = low.lets, low.tensors, low.prover, dict(low.stored), dict(low.dtypes)
    for name in names:
        low.windows.add(name)
        low.stored[name] = Stored(name, None, True)
        low.tensors = {**low.tensors, name: ir.Input(name, (), "whole", None, span)}
    return before


def _leave(low: Lowering, before: tuple[object, ...]) -> None:
    low.lets, low.tensors, low.prover, low.stored, low.dtypes = before  # type: ignore[assignment]


def _turn(
    low: Lowering,
    let: ir.Let,
    block: Block,
    axis: int | None,
    ends: tuple[str, str],
    results: _Results,
    last: str | None,
) -> None:
    """One definition, for the rows of a block, and the keys up to the `last`, where they are not all needed."""
    start, stop = (build.read(name, (), "whole", let.span) for name in ends)
    clause = let.clauses[0]
    if axis is None:
        row, cut = _total(let, block, start, stop)
    else:
        slot = clause.slots[axis]
        assert isinstance(slot, ir.Coord)
        row = slot.coordinate
        ranges = tuple(_within(r, start, stop) if r.coordinate == row else r for r in clause.ranges)
        axes = tuple(replace(a, extent=stop) if n == axis else a for n, a in enumerate(let.axes))
        cut = replace(let, axes=axes, clauses=(replace(clause, ranges=ranges),))
    zero = build.whole(0, let.span)
    wholes = {row: Place(zero, block.rows, True)}
    if last is not None and block.early is not None:
        keys = block.early.get(let.name, frozenset())
        cut = _early(cut, keys, build.read(last, (), "whole", let.span))
        wholes |= {key: Place(zero, block.keys, True) for key in keys}
    low.lets = {**low.lets, let.name: cut}
    low.tensors = {**low.tensors, let.name: cut}
    prover = RowProver(low.lets, wholes)
    prover.agreed = low.prover.agreed
    prover.counted |= {*low.prover.counted, *ends}
    prover.facts = (prover.polynomial(stop) - prover.polynomial(start),)
    if last is not None:
        prover.counted.add(last)
        end = prover.polynomial(build.read(last, (), "whole", let.span))
        prover.facts += (prover.polynomial(block.keys) - end, prover.polynomial(stop) - end)
    low.prover = prover
    _fill(low, let, cut, axis, ends, results)


def _early(let: ir.Let, keys: frozenset[Coordinate], last: ir.Expr) -> ir.Let:
    """A definition of which the keys end before the `last`."""

    def cut(range: ir.Range) -> ir.Range:
        return replace(range, upper=last, stated=True) if range.coordinate in keys else range

    def changed(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, changed)
        if isinstance(expr, ir.Reduce) and expr.coordinates & keys:
            ranges = tuple(map(cut, expr.ranges))
            return build.reduce(expr.op, ranges, expr.body, expr.guard, expr.type.kind, expr.span)
        return expr

    clause = let.clauses[0]
    slots = [slot.coordinate if isinstance(slot, ir.Coord) else None for slot in clause.slots]
    axes = tuple(replace(a, extent=last) if slot in keys else a for a, slot in zip(let.axes, slots, strict=True))
    guard = None if clause.guard is None else changed(clause.guard)
    ranges = tuple(map(cut, clause.ranges))
    return replace(let, axes=axes, clauses=(replace(clause, ranges=ranges, body=changed(clause.body), guard=guard),))


def _fill(
    low: Lowering, let: ir.Let, cut: ir.Let, axis: int | None, ends: tuple[str, str], results: _Results
) -> None:
    clause = cut.clauses[0]
    clauses.turn_to(low, let)
    low.text.blank()
    wholes, parts = results.wholes, results.parts
    if axis is None:
        low.dtypes[let.name] = _wide(low, let.name)
        value = clauses.finished(low, cut, clauses.clause_value(low, cut, clause, {}), clause, {})
        if parts is None:
            low.text.increase(wholes[let.name], value.code)
        else:
            parts[let.name] = low.text.fresh(f"{let.name}_rows")
            low.text.assign(parts[let.name], value)
        return
    variable = low.text.fresh(f"{let.name}_rows" if let.name in wholes else let.name)
    value = clauses.clause_value(low, cut, clause, {})
    low.text.assign(variable, clauses.finished(low, cut, value, clause, {}))
    starts = tuple(r.lower for r in clause.ranges)
    low.stored[let.name] = Stored(variable, low.dtypes[let.name], starts=starts)
    if let.name in wholes and parts is not None:
        parts[let.name] = variable
    elif let.name in wholes:
        slots = (*[ALL] * axis, Slice(Name(ends[0]), Name(ends[1])))
        low.text.store(wholes[let.name], slots, variable)


def _total(let: ir.Let, block: Block, start: ir.Expr, stop: ir.Expr) -> tuple[Coordinate, ir.Let]:
    """A sum over the rows of a block."""
    clause = let.clauses[0]
    body = clause.body
    assert isinstance(body, ir.Reduce)
    inner = dict(block.inner)
    bound = {r.coordinate for r in body.ranges}
    reads = [part for part in walk(body) if isinstance(part, ir.Read) and part.tensor in inner]
    indices = [read.indices[inner[read.tensor]] for read in reads]
    row = next(i.coordinate for i in indices if isinstance(i, ir.Coord) and i.coordinate in bound)
    ranges = tuple(_within(r, start, stop) if r.coordinate == row else r for r in body.ranges)
    cut = build.reduce("sum", ranges, body.body, body.guard, body.type.kind, body.span)
    return row, replace(let, clauses=(replace(clause, body=cut),))


def _within(r: ir.Range, start: ir.Expr, stop: ir.Expr) -> ir.Range:
    return replace(r, lower=start, upper=stop, stated=True)


BLOCK_ROWS = f'''
def block_rows(points):
    """The number of rows of so many points that fit into a block of about a million."""
    return max(1, {POINTS} // max(1, points))
'''
