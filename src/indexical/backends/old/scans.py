"""Scans → one call: what a recurrence starts with, what it multiplies by, what it adds."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate, Dtype, Kind
from ...plan.linear import Linear
from ...plan.scans import Scan
from ...records import replace
from . import arrays, clauses, sizes
from .base import Value
from .code import ALL, NONE, ZERO, Dict, Index, Name, Node, Slice, Tuple, call, method, node
from .lowering import Lowering, Stored
from .values import sliced


def scan(low: Lowering, let: ir.Let, scan: Scan, last: bool) -> None:
    """One definition, all its steps at once; or the last of them by its number."""
    clauses.begin(low, let)
    variable = low.text.fresh(let.name)
    shares = scan_order(low, let, scan)
    found = filled_operands(low, let, scan) if shares is None else parted(low, let, scan, shares)
    start, times, plus, kept = found
    if scan.is_sum and shares is not None:
        code = running_sum(low, start, plus, scan, last)
    else:
        name = "last_of_scan" if last else "scan"
        low.text.dialect.scan(name, low.kernels, low.text)
        axis = [scan.axis] if scan.axis else []
        more = {} if kept is None else {"kept": kept}
        way = {} if scan.forward else {"backward": True}
        code = call(name, start, times, plus, *axis, **more, **way)
    dtype = low.dtypes[let.name]
    axes = tuple(axis.coordinate for axis in let.axes)
    value = arrays.cast_to(low, Value(code, axes, "real", low.compute), dtype)
    if not last:
        low.text.assign(variable, value)
        low.stored[let.name] = Stored(variable, dtype)
        return
    rows = low.text.fresh(f"{let.name}_rows")
    extent = let.axes[scan.axis].extent
    end = sizes.number(low, build.apply("-", (extent, build.whole(1, let.span)), "whole", let.span))
    low.text.update(rows, Dict(((end if scan.forward else ZERO, value.code),)))
    low.stored[let.name] = Stored(rows, dtype)


def running_sum(low: Lowering, start: Node, plus: Node, scan: Scan, last: bool) -> Node:
    """Steps that are only added up, all of them or the last."""
    axis = scan.axis
    parts = (start, plus) if scan.forward else (plus, start)
    code: Node = low.text.dialect.concatenate(parts, axis)
    if last:
        return method(code, "sum", axis)
    if scan.forward:
        return method(code, "cumsum", axis)
    flip = low.text.dialect.flip
    return flip(method(flip(code, axis), "cumsum", axis), axis)


# ----------------------------------------------------------------- operands


def parted(low: Lowering, let: ir.Let, scan: Scan, shares: tuple[int, ...]) -> tuple[Node, Node, Node, Node | None]:
    """The steps it starts with; then, for all others, the factor, what is added, and where it listens at all."""
    *first, rest = shares
    clause, part = scan.clauses[rest], scan.parts[rest]
    start = beginning(low, let, scan, first)
    times = factor_of(low, let, clause, part.times or build.whole(0, clause.span), "real")
    kept = None if part.read_where is None else factor_of(low, let, clause, part.read_where, "bool")
    return start, times, computed_part(low, let, clause, part.plus).code, kept


def scan_order(low: Lowering, let: ir.Let, scan: Scan) -> tuple[int, ...] | None:
    """Base cases that are one point each, in order, then one rule for all other steps: their numbers. None where
    the clauses lie in another way."""
    if any(clauses.is_partial(low, let, clause, (scan.axis,)) for clause in scan.clauses):
        return None
    if scan.divided:
        return (0, 1)
    first: dict[int, int] = {}
    rest: list[int] = []
    for number, clause in enumerate(scan.clauses):
        begins, ends = reach_of(low, let, clause, scan)
        # A clause for one point has no axis for its step, one for a range has.
        ranges = isinstance(clause.slots[scan.axis], ir.Coord)
        if begins == scan.offset and ends is None and ranges:
            rest.append(number)
        elif begins is not None and ends == begins + 1 and not ranges and scan.parts[number].times is None:
            first[begins] = number
        else:
            return None
    if sorted(first) != list(range(scan.offset)) or len(rest) != 1:
        return None
    order = [first[step] for step in range(scan.offset)]
    return (*(order if scan.forward else reversed(order)), rest[0])


def reach_of(low: Lowering, let: ir.Let, clause: ir.Clause, scan: Scan) -> tuple[int | None, int | None]:
    """The first step of a clause and the one behind its last, counted from where the scan starts; None for the end,
    and for what is not known."""
    extent = low.prover.polynomial(let.axes[scan.axis].extent)
    slot = clause.slots[scan.axis]
    if isinstance(slot, ir.Coord):
        own = next(r for r in clause.ranges if r.coordinate == slot.coordinate)
        lower, upper = low.prover.polynomial(own.lower), low.prover.polynomial(own.upper)
    else:
        lower = low.prover.polynomial(slot)
        upper = lower + 1
    begins, ends = (lower, upper) if scan.forward else (extent - upper, extent - lower)
    return begins.constant, None if (extent - ends).constant == 0 else -1 if ends.constant is None else ends.constant


def beginning(low: Lowering, let: ir.Let, scan: Scan, first: Sequence[int]) -> Node:
    """The steps that base cases say."""
    if scan.divided:
        return computed_part(low, let, scan.clauses[first[0]], scan.parts[first[0]].plus).code
    rows = tuple(computed_part(low, let, scan.clauses[n], scan.parts[n].plus).code for n in first)
    if len(rows) == 1:
        return Index(rows[0], (*[ALL] * scan.axis, NONE))
    return low.text.dialect.stack(Tuple(rows), scan.axis)


def computed_part(low: Lowering, let: ir.Let, clause: ir.Clause, expr: ir.Expr | None) -> Value:
    """A part of a clause at all its points, in the dtype that is computed in."""
    scope = clauses.scope_of(clause)
    axes = scope.sort(scope.places)
    value = None if expr is None else part_value(low, let, clause, expr, "real")
    if value is None or value.python:
        number = ZERO if value is None else value.code
        return Value(
            low.text.dialect.full(sizes.shape(low, axes, scope), number, low.compute), axes, "real", low.compute
        )
    return low.text.short(arrays.broadcast(low, arrays.in_order(low, value, axes), axes, scope), let.name)


def factor_of(low: Lowering, let: ir.Let, clause: ir.Clause, expr: ir.Expr, kind: Kind) -> Node:
    """A factor or a condition, 1 long along axes that it does not vary with; a number where it varies with none."""
    value = part_value(low, let, clause, expr, kind)
    if value.python and kind == "real":
        return value.code
    return among(low, low.text.short(arrays.as_array(low, value), let.name), clause)


def part_value(low: Lowering, let: ir.Let, clause: ir.Clause, expr: ir.Expr, kind: Kind) -> Value:
    part = replace(clause, body=expr, guard=None)
    home = let if kind == "real" else replace(let, kind="bool")
    value = clauses.clause_value(low, home, part)
    if kind == "bool" or value.python or value.dtype == low.compute:
        return value
    return arrays.cast_to(low, value, low.compute)


# ------------------------------------------------------------------- filled in


def filled_operands(low: Lowering, let: ir.Let, scan: Scan) -> tuple[Node, Node, Node, Node | None]:
    """The same for clauses of any shape: each put in its place in arrays of zeros."""
    plus = put_together(low, let, scan, "plus", [part.plus for part in scan.parts])
    times = put_together(low, let, scan, "times", [part.times for part in scan.parts])
    asks = [_asked(part, let) for part in scan.parts] if any(part.read_where for part in scan.parts) else None
    kept = None if asks is None else put_together(low, let, scan, "kept", asks)
    edge = node(scan.offset if scan.forward else -scan.offset)
    front, back = Slice(None, edge), Slice(edge, None)
    first, rest = ((*[ALL] * scan.axis, end) for end in ((front, back) if scan.forward else (back, front)))
    return Index(plus, first), Index(times, rest), Index(plus, rest), None if kept is None else Index(kept, rest)


def put_together(low: Lowering, let: ir.Let, scan: Scan, label: str, parts: Sequence[ir.Expr | None]) -> Name:
    """One part of every clause, in an array of its own; 0 where a clause has none."""
    kind: Kind = "bool" if label == "kept" else "real"
    variable = low.text.fresh(f"{let.name}_{label}")
    dtype: Dtype = "bool" if kind == "bool" else low.compute
    low.text.assign(variable, low.text.dialect.full(clauses.storage_shape(low, let), ZERO, dtype))
    for clause, part in zip(scan.clauses, parts, strict=True):
        if part is None:
            continue
        value = part_value(low, let, clause, part, kind)
        code = value.code if value.python else among(low, value, clause)
        low.text.store(variable, clauses.slots(low, let, clause), code)
    return Name(variable)


def among(low: Lowering, value: Value, clause: ir.Clause) -> Node:
    """A value as it is put into the slots of a clause."""
    scope = clauses.scope_of(clause)
    axes = scope.sort(scope.places)
    return placed_among(arrays.in_order(low, value, axes), axes)


def _asked(part: Linear, let: ir.Let) -> ir.Expr | None:
    if part.times is None:
        return None
    return part.read_where or build.truth(True, let.span)


def placed_among(value: Value, axes: tuple[Coordinate, ...]) -> Node:
    """The value with a place for every one of these axes."""
    return sliced(value.code, [ALL if axis in value.axes else NONE for axis in axes])
