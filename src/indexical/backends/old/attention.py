"""Attention → a call of the kernel that the plan chose."""

from __future__ import annotations

from functools import partial

from ...engine.show.opaque import FOLDED
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...plan.steps import Attend, Chunks, Step
from ...plan.target import FUSED, INTERVALS, TILES, TRITON
from ...records import replace
from . import (
    arrays,
    backward,
    chunks,
    clauses,
    interval_attention,
    library_attention,
    operands,
    scans,
    sizes,
)
from .base import Value, plain
from .code import NAN, Infix, Name, Prefix, Ternary, call, infix
from .lowering import Lowering, Stored
from .operands import Frame, has_a_key
from .plan.few import SHORT_ROWS, last_hears_all
from .plan.weights import has_keys
from .triton_ import attend_by_triton
from .triton_decode import decoded


def define(low: Lowering, step: Step, last: bool) -> None:
    """The definitions of a step by the kernel that the plan chose; of a scan, its last step alone where that is said.
    """
    let = low.lets[step.definition]
    if step.gradient is not None:
        backward.flow_back(low, step, step.gradient)
    elif step.attend is not None:
        _attend(low, let, step, step.attend)
    elif step.chunks is not None:
        chunks.carried(low, let, step.chunks, step.covers)
    else:
        assert step.recurrence is not None
        assert step.recurrence.scan is not None
        scans.scan(low, let, step.recurrence.scan, last)


def _attend(low: Lowering, let: ir.Let, step: Step, attend: Attend) -> None:
    clauses.begin(low, let, [low.lets[name] for name in step.covers])
    frame = operands.frame_of(let, attend)
    if attend.totals:
        frame = replace(frame, total=low.text.fresh(f"{attend.totals[0][0]}_rows"))
    variable = low.text.fresh(let.name)
    if attend.decodes:
        plainly = partial(attended, low, let, step, attend, frame)
        value = decoded(low, let, attend, frame, attend.decodes, plainly)
    else:
        value = attended(low, let, step, attend, frame)
    for name, axes in attend.totals:
        store_total(low, low.lets[name], axes, frame, value)
    if attend.attention.total:
        return
    clauses.turn_to(low, let)
    # Masks lie in the order of the scope.
    value = arrays.in_order(low, value, frame.scope.order)
    if attend.attention.empty == "nan" and attend.shape is None:
        some = low.value(has_a_key(attend), frame.scope)
        value = arrays.where(low, some, low.text.short(value, let.name), plain(NAN, "real"), frame.scope, value.dtype)
    if attend.attention.empty == "keyless":
        value = unless_keyless(low, let, attend, frame, value)
    clause = let.clauses[0]
    guard = clause.guard
    if guard is not None:
        kept = low.value(guard, frame.scope)
        value = arrays.where(low, kept, low.text.short(value, let.name), plain(0, "real"), frame.scope, value.dtype)
    low.text.assign(variable, clauses.finished(low, let, value, clause))
    low.stored[let.name] = Stored(variable, low.dtypes[let.name])


def store_total(low: Lowering, let: ir.Let, axes: tuple[Coordinate, ...], frame: Frame, beside: Value) -> None:
    """A definition that is the logarithm of what the weights are divided by, from what the kernel gave `beside` its
    result: `axes` are its own in coordinates of that."""
    assert frame.total is not None
    clauses.turn_to(low, let)
    clause = let.clauses[0]
    names = {there: axis.coordinate for there, axis in zip(axes, let.axes, strict=True)}
    rows = () if frame.row is None else (frame.row,)
    wide = "f32" if beside.dtype in ("f16", "bf16") else beside.dtype
    value = Value(Name(frame.total), tuple(names[c] for c in (*frame.batch, *rows)), "real", wide)
    scope = clauses.scope_of(clause)
    value = arrays.in_order(low, value, scope.order)
    if clause.guard is not None:
        kept = low.value(clause.guard, scope)
        value = arrays.where(low, kept, low.text.short(value, let.name), plain(0, "real"), scope, value.dtype)
    variable = low.text.fresh(let.name)
    low.text.assign(variable, clauses.finished(low, let, value, clause))
    low.stored[let.name] = Stored(variable, low.dtypes[let.name])


def attended(low: Lowering, let: ir.Let, step: Step, attend: Attend, frame: Frame) -> Value:
    """The kernel that the plan chose."""
    if step.chunks is not None and step.kernel != TRITON:
        return chunks.chunked(low, let, step.chunks, frame.kept)
    if step.kernel == FUSED:
        return library_attention.fused(low, let, attend, frame)
    if step.kernel == TRITON:
        return by_triton(low, let, attend, frame, step.chunks)
    if step.kernel == INTERVALS and last_hears_all(attend):
        return one_or_tiled(low, let, attend, frame)
    return tiled(low, let, attend, frame, step.kernel)


def one_or_tiled(low: Lowering, let: ir.Let, attend: Attend, frame: Frame) -> Value:
    """One query, which is the last and hears all keys, by the library's own kernel; several by tiles."""
    assert frame.row is not None
    variable = low.text.fresh(f"{let.name}_of_one")
    low.text.add("if", infix("==", sizes.length(low, frame.row, frame.scope), 1))
    with low.block():
        result = library_attention.fused(low, let, replace(attend, shape="full"), frame)
        low.text.assign(variable, result)
    low.text.add("else")
    with low.block():
        other = tiled(low, let, attend, frame, INTERVALS)
        low.text.assign(variable, arrays.in_order(low, other, result.axes))
    low.tell("one query alone: by the library's own kernel")
    return result.but(Name(variable))


def tiled(low: Lowering, let: ir.Let, attend: Attend, frame: Frame, kernel: str) -> Value:
    """Tiles of queries and keys by the array library, or its own kernel."""
    if kernel == FUSED:
        return library_attention.fused(low, let, attend, frame)
    if kernel in (INTERVALS, TILES):
        return intervals(low, let, attend, frame, kernel == TILES)
    return stream(low, let, attend, frame)


def by_triton(low: Lowering, let: ir.Let, attend: Attend, frame: Frame, long: Chunks | None) -> Value:
    """Kernels of its own, for heads that are not too wide; the array library's for all else. Where long rows have
    chunks, kernels are for short ones."""
    assert attend.otherwise is not None
    variable = low.text.fresh(f"{let.name}_rows")
    attended, unlearned, test = attend_by_triton(low, let, attend, frame)
    if unlearned:
        test = Infix("and", test, Prefix("not ", call(low.text.helper("learns"), *unlearned)))
    if long is not None:
        test = Infix("and", infix("<=", sizes.length(low, long.row, frame.scope), SHORT_ROWS[long.kernels]), test)
    low.text.add("if", test)
    with low.block():
        result = operands.restored(low, operands.with_total(low, attended(), let, frame), let, attend, frame)
        low.text.assign(variable, result)
    low.text.add("else")
    with low.block():
        if long is not None:
            other = chunks.chunked(low, let, long, frame.kept)
        else:
            other = tiled(low, let, attend, frame, attend.otherwise)
        other = arrays.in_order(low, other, result.axes)
        low.text.assign(variable, other if result.dtype is None else arrays.cast_to(low, other, result.dtype))
    return result.but(Name(variable))


def unless_keyless(low: Lowering, let: ir.Let, attend: Attend, frame: Frame, value: Value) -> Value:
    """The rows of an attention that is a quotient: NaN where there are no keys at all."""
    some = low.value(has_keys(attend.attention.key), frame.scope)
    value = low.text.named(value, f"{let.name}_rows")
    return value.but(Ternary(value.code, some.code, infix("+", value.code, NAN)))


def intervals(low: Lowering, let: ir.Let, attend: Attend, frame: Frame, tiles: bool) -> Value:
    """Each query with its intervals of keys, computed from the guard by arithmetic."""
    learned = interval_attention.learned(low, let, attend, frame) if tiles else []
    if not learned:
        return unlearned(low, let, attend, frame, tiles)
    variable = low.text.fresh(f"{let.name}_rows")
    ways: list[Value] = []

    def give(value: Value) -> None:
        ways.append(value)
        low.text.assign(variable, arrays.in_order(low, value, ways[0].axes).code)

    low.branch(
        call(low.text.helper("learns"), *learned),
        lambda: give(stream(low, let, attend, frame)),
        lambda: give(unlearned(low, let, attend, frame, tiles)),
    )
    return ways[0].but(Name(variable))


def unlearned(low: Lowering, let: ir.Let, attend: Attend, frame: Frame, tiles: bool) -> Value:
    """The same where the bias of the scores needs no gradient."""
    taken = interval_attention.kernel_operands(low, let, attend, frame)
    code = interval_attention.interval_call(low, let, attend, frame, tiles, taken).code()
    return operands.restored(low, operands.with_total(low, code, let, frame), let, attend, frame)


def stream(low: Lowering, let: ir.Let, attend: Attend, frame: Frame) -> Value:
    """By operations, tile by tile: the printer of these puts their lines in the place of this one."""
    read = [low.stored[name].variable for name in low.folded[let.name] if name in low.stored]
    variable = low.text.fresh(f"{let.name}_tiles")
    code = call(f"{FOLDED}{let.name}", *map(Name, dict.fromkeys(read)))
    if frame.total is None:
        low.text.assign(variable, code)
    else:
        low.text.unpack([variable, frame.total], code)
    return Value(Name(variable), tuple(axis.coordinate for axis in let.axes), "real", low.dtypes[let.name])
