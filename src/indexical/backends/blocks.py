"""Attention in plain NumPy: blocks of rows against blocks of keys."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..plan.steps import Attend
from .base import Value, plain
from .code import ALL, ELLIPSIS, NONE, ONE, Index, Node, call, chain, fill, method, negative, node
from .frames import Frame, Framed
from .tiles import Tile
from .values import aligned


class Blocks(Framed):
    """An online softmax over blocks, as functions inside the emitted one."""

    def blocks(self, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """Blocks of rows against blocks of keys, with an online softmax, in plain NumPy."""
        self.kernels.setdefault("numpy_stream", set()).add("attend_blocks")
        key = attend.attention.key
        scores, values = self.text.fresh(f"{let.name}_scores"), self.text.fresh(f"{let.name}_values")
        rows = () if frame.row is None else (frame.row,)
        tile = Tile(self, let, attend, frame.batch, frame.row, None, ())
        # An input may be called like a bound.
        r0, r1, k0, k1 = (name + "_" * (name in self.text.taken) for name in ("r0", "r1", "k0", "k1"))
        windows = dict.fromkeys(rows, (r0, r1)) | {key.coordinate: (k0, k1)}
        self.text.add("def", node((r0, r1, k0, k1)), scores)
        inner, scope = tile.emitter(windows, self.text)
        with self.text.indented():
            score = inner.real(inner.value(attend.attention.score, tile.heard(scope)))
            masks = inner.masks((), build.conjunction(attend.attention.guard), scope)
            mask = inner.conjunction(masks, scope)
            if mask is not None:
                nothing = plain(negative("math.inf"), "real")
                score = inner.where(mask, self.strong(score), nothing, scope, score.dtype)
            axes = (*frame.batch, *rows, key.coordinate)
            present = tuple(a for a in axes if a in score.axes or a in rows or a == key.coordinate)
            score = inner.spread(inner.turned(score, present), present, scope)
            self.text.give(_spaced(score, axes, frame.row))
        self.text.add("def", node((k0, k1)), values)
        inner, scope = tile.emitter(windows, self.text)
        with self.text.indented():
            value = inner.real(inner.heard_value(attend.attention.value, tile.heard(scope)))
            axes = (*frame.batch, key.coordinate, *attend.layout.carry)
            value = inner.turned(value, tuple(a for a in axes if a in value.axes))
            code = _spaced(value, axes, key.coordinate)
            if not attend.layout.carry:
                code = Index(code, (ELLIPSIS, NONE))
            elif len(attend.layout.carry) > 1:
                code = fill("{x}.reshape(*{x}.shape[:{end}], -1)", x=code, end=-len(attend.layout.carry))
            self.text.give(code)
        bounds = [self.hull(op, attend, frame) for op in ("min", "max")]
        count = ONE if frame.row is None else self.length(frame.row, frame.scope)
        width = chain("*", [self.length(c, frame.scope) for c in attend.layout.carry] or [ONE])
        shape = (*(self.length(axis, frame.scope) for axis in frame.batch), count, width)
        ends = (self.number(key.lower), self.number(key.upper))
        dtype = self.text.dialect.dtype(self.dtypes[let.name])
        code = call("attend_blocks", scores, values, *bounds, count, ends, shape, dtype)
        result = Value(code, (*frame.batch, *rows, *attend.layout.carry), "real", self.dtypes[let.name])
        if frame.row is None or len(attend.layout.carry) != 1:
            result = result.but(method(code, "reshape", self.shape(result.axes, frame.scope)))
        return result


def _spaced(value: Value, axes: tuple[Coordinate, ...], row: Coordinate | None) -> Node:
    """The value with a place for every axis from its first, so that it broadcasts as a batch of matrices."""
    return Index(value.code, (ELLIPSIS, NONE, ALL)) if row is None else aligned(value, axes).code
