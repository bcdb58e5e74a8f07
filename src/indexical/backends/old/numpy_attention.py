"""Attention in plain NumPy: blocks of rows against blocks of keys."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...plan.steps import Attend, Free, Softpick
from . import arrays, binding, operands, sizes
from .base import Value, plain
from .code import ALL, ELLIPSIS, NONE, ONE, Index, Name, Node, String, call, chain, fill, method, negative, node
from .lowering import Lowering
from .operands import Frame
from .tiles import Tile
from .values import aligned


def blocks(low: Lowering, let: ir.Let, attend: Attend, frame: Frame) -> Value:
    """Blocks of rows against blocks of keys, with an online softmax, in plain NumPy."""
    low.kernels.setdefault("numpy_stream", set()).add("attend_blocks")
    key = attend.attention.key
    normaliser = attend.attention.normaliser
    free = isinstance(normaliser, Free)
    picked = normaliser.origin if isinstance(normaliser, Softpick) else None
    scores, values = low.text.fresh(f"{let.name}_scores"), low.text.fresh(f"{let.name}_values")
    rows = () if frame.row is None else (frame.row,)
    tile = Tile(low, let, attend, frame.batch, frame.row, None, ())
    windows = dict.fromkeys(rows, ("r0", "r1")) | {key.coordinate: ("k0", "k1")}
    low.text.add("def", node(("r0", "r1", "k0", "k1")), scores)
    inner, scope = tile.lowering(windows, low.text)
    with low.text.indented():
        score = arrays.as_real(inner, inner.value(attend.attention.score, tile.kept(scope)))
        if picked is not None:  # As low as that e to it is 0, and no mark of a key that is masked.
            score = score.but(call("np.maximum", score.code, negative(60000)))
        masks = binding.masks(inner, (), build.conjunction(attend.attention.guard), scope)
        mask = arrays.conjunction(inner, masks, scope)
        if mask is not None:
            nothing = plain(0 if free else negative("math.inf"), "real")
            score = arrays.where(inner, mask, arrays.as_array(low, score), nothing, scope, score.dtype)
        axes = (*frame.batch, *rows, key.coordinate)
        present = tuple(a for a in axes if a in score.axes or a in rows or a == key.coordinate)
        score = arrays.broadcast(inner, arrays.in_order(inner, score, present), present, scope)
        low.text.give(_spaced(score, axes, frame.row))
    low.text.add("def", node(("k0", "k1")), values)
    inner, scope = tile.lowering(windows, low.text)
    with low.text.indented():
        value = arrays.as_real(inner, operands.operand_value(inner, attend.attention.value, tile.kept(scope)))
        axes = (*frame.batch, key.coordinate, *attend.layout.carry)
        present = tuple(a for a in axes if a in value.axes or a == key.coordinate)
        value = arrays.in_order(inner, arrays.as_array(inner, value), tuple(a for a in present if a in value.axes))
        value = arrays.broadcast(inner, value, present, scope)
        code = _spaced(value, axes, key.coordinate)
        if not attend.layout.carry:
            code = Index(code, (ELLIPSIS, NONE))
        elif len(attend.layout.carry) > 1:
            code = fill("{x}.reshape(*{x}.shape[:{end}], -1)", x=code, end=-len(attend.layout.carry))
        low.text.give(code)
    bounds = [operands.hull(low, op, attend, frame) for op in ("min", "max")]
    count = ONE if frame.row is None else sizes.length(low, frame.row, frame.scope)
    width = chain("*", [sizes.length(low, c, frame.scope) for c in attend.layout.carry] or [ONE])
    shape = (*(sizes.length(low, axis, frame.scope) for axis in frame.batch), count, width)
    ends = (sizes.number(low, key.lower), sizes.number(low, key.upper))
    dtype = low.text.dialect.dtype(low.dtypes[let.name])
    sink = operands.sink_operand(low, attend, frame, False)
    more: dict[str, Node] = {"free": Name("True")} if free else {} if sink is None else {"sink": sink}
    if picked is not None:
        more["picked"] = String(picked)
    code = call("attend_blocks", scores, values, *bounds, count, ends, shape, dtype, **more)
    result = Value(code, (*frame.batch, *rows, *attend.layout.carry), "real", low.dtypes[let.name])
    if frame.row is None or len(attend.layout.carry) != 1:
        result = result.but(method(code, "reshape", sizes.shape(low, result.axes, frame.scope)))
    return result


def _spaced(value: Value, axes: tuple[Coordinate, ...], row: Coordinate | None) -> Node:
    """The value with a place for every axis from its first, so that it broadcasts as a batch of matrices."""
    return Index(value.code, (ELLIPSIS, NONE, ALL)) if row is None else aligned(value, axes).code
