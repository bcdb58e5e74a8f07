"""Definitions for some rows after the other → a loop over blocks of rows."""

from __future__ import annotations

from dataclasses import replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial
from ..ir.context import Trail
from ..ir.types import Coordinate, Dtype
from ..ir.walk import walk
from ..plan.blocks import POINTS
from ..plan.steps import Block
from ..source import Span
from . import clauses, operands, sizes
from .clauses import zero_of
from .code import ALL, ONE, Name, Node, Slice, call, chain, fill
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
    """All definitions of a block, in a loop."""
    inner = dict(block.inner)
    names = [item.name for item in low.program.order if isinstance(item, ir.Once)]
    ordered = [low.lets[name] for name in names if name in inner or name in block.totals]
    shown = [let for let in ordered if not let.hidden or let.name in block.totals]
    clauses.begin(low, shown[-1], shown[:-1])
    wide = {name: _wide(low, name) for name in block.totals}
    wholes = {name: low.text.fresh(name) for name in (*block.kept, *block.totals)}
    for name, variable in wholes.items():
        let = low.lets[name]
        dtype = wide.get(name) or low.dtypes[name]
        low.text.assign(variable, low.text.dialect.full(clauses.storage_shape(low, let), zero_of(let), dtype))
    first, last, count = (low.text.fresh(name) for name in ("r0", "r1", "rows"))
    rows = sizes.number(low, block.rows)
    low.text.assign(count, call(operands.add_helper(low, "block_rows", BLOCK_ROWS), _points(low, block)))
    # Once where there are no rows, too: what has none may want a gradient.
    low.text.add("for", call("range", 0, call("max", 1, rows), count), first)
    before = _enter(low, first, last, block.rows.span)
    with low.block():
        low.text.assign(last, fill("min({first} + {count}, {rows})", first=first, count=count, rows=rows))
        for let in ordered:
            _turn(low, let, block, inner.get(let.name), (first, last), wholes)
    _leave(low, before)
    for name, variable in wholes.items():
        if name in wide and wide[name] != low.dtypes[name]:
            low.text.assign(variable, low.text.dialect.narrow(Name(variable), low.dtypes[name]))
        low.stored[name] = Stored(variable, low.dtypes[name])


def _wide(low: Lowering, name: str) -> Dtype:
    """The dtype in which sums over all rows are accumulated."""
    dtype = low.dtypes[name]
    return "f32" if dtype in ("f16", "bf16") else dtype


def _points(low: Lowering, block: Block) -> Node:
    """The number of points of a row of the largest definitions."""
    axes = [axis for n, axis in enumerate(low.lets[block.weights].axes) if n != dict(block.inner)[block.weights]]
    return chain("*", [sizes.extent(low, axis.extent) for axis in axes] or [ONE])


def _enter(low: Lowering, first: str, last: str, span: Span) -> tuple[object, ...]:
    before = low.lets, low.tensors, low.prover, dict(low.stored), dict(low.dtypes)
    for name in (first, last):
        low.windows.add(name)
        low.stored[name] = Stored(name, None, True)
        low.tensors = {**low.tensors, name: ir.Input(name, (), "whole", None, span)}
    return before


def _leave(low: Lowering, before: tuple[object, ...]) -> None:
    low.lets, low.tensors, low.prover, low.stored, low.dtypes = before  # type: ignore[assignment]


def _turn(
    low: Lowering, let: ir.Let, block: Block, axis: int | None, ends: tuple[str, str], wholes: dict[str, str]
) -> None:
    """One definition, for the rows of a block."""
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
    low.lets = {**low.lets, let.name: cut}
    low.tensors = {**low.tensors, let.name: cut}
    whole = Place(build.whole(0, let.span), block.rows, True)
    prover = RowProver(low.lets, {row: whole})
    prover.agreed = low.prover.agreed
    prover.counted |= {*low.prover.counted, *ends}
    prover.facts = (prover.polynomial(stop) - prover.polynomial(start),)
    low.prover = prover
    _fill(low, let, cut, axis, ends, wholes)


def _fill(
    low: Lowering, let: ir.Let, cut: ir.Let, axis: int | None, ends: tuple[str, str], wholes: dict[str, str]
) -> None:
    clause = cut.clauses[0]
    clauses.turn_to(low, let)
    low.text.blank()
    if axis is None:
        low.dtypes[let.name] = _wide(low, let.name)
        value = clauses.clause_value(low, cut, clause, {})
        low.text.increase(wholes[let.name], clauses.finished(low, cut, value, clause, {}).code)
        return
    variable = low.text.fresh(f"{let.name}_rows" if let.name in wholes else let.name)
    value = clauses.clause_value(low, cut, clause, {})
    low.text.assign(variable, clauses.finished(low, cut, value, clause, {}))
    starts = tuple(r.lower for r in clause.ranges)
    low.stored[let.name] = Stored(variable, low.dtypes[let.name], starts=starts)
    if let.name in wholes:
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
