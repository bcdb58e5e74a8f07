"""Attention in plain NumPy: blocks of rows against blocks of keys."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..plan.steps import Attend
from .base import UNARY, Value
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
        self.text.line(f"def {scores}({r0}, {r1}, {k0}, {k1}):")
        inner, scope = tile.emitter(windows, self.text)
        with self.text.indented():
            score = inner.real(inner.value(attend.attention.score, tile.heard(scope)))
            masks = inner.masks((), build.conjunction(attend.attention.guard), scope)
            mask = inner.conjunction(masks, scope)
            if mask is not None:
                nothing = Value("-math.inf", (), "real", None, UNARY, True)
                score = inner.where(mask, self.strong(score), nothing, scope, score.dtype)
            axes = (*frame.batch, *rows, key.coordinate)
            present = tuple(a for a in axes if a in score.axes or a in rows or a == key.coordinate)
            score = inner.spread(inner.turned(score, present), present, scope)
            self.text.line(f"return {_spaced(score, axes, frame.row)}")
        self.text.line(f"def {values}({k0}, {k1}):")
        inner, scope = tile.emitter(windows, self.text)
        with self.text.indented():
            value = inner.real(inner.heard_value(attend.attention.value, tile.heard(scope)))
            axes = (*frame.batch, key.coordinate, *attend.layout.carry)
            value = inner.turned(value, tuple(a for a in axes if a in value.axes))
            shown = _spaced(value, axes, key.coordinate)
            if len(attend.layout.carry) != 1:
                shown = (
                    f"{shown}[..., None]"
                    if not attend.layout.carry
                    else f"{_atom(shown)}.reshape(*{_atom(shown)}.shape[:{-len(attend.layout.carry)}], -1)"
                )
            self.text.line(f"return {shown}")
        bounds = [self.hull(op, attend, frame) for op in ("min", "max")]
        count = "1" if frame.row is None else self.length(frame.row, frame.scope)
        width = " * ".join(self.length(c, frame.scope) for c in attend.layout.carry) or "1"
        lengths = [self.length(axis, frame.scope) for axis in frame.batch]
        shape = f"({', '.join([*lengths, count, width])})"
        ends = f"({self.number(key.lower)}, {self.number(key.upper)})"
        dtype = self.text.dialect.dtype(self.dtypes[let.name])
        call = f"attend_blocks({scores}, {values}, {bounds[0]}, {bounds[1]}, {count}, {ends}, {shape}, {dtype})"
        result = Value(call, (*frame.batch, *rows, *attend.layout.carry), "real", self.dtypes[let.name])
        if frame.row is None or len(attend.layout.carry) != 1:
            result = result.but(text=f"{call}.reshape({self.shape(result.axes, frame.scope) if result.axes else '()'})")
        return result


def _spaced(value: Value, axes: tuple[Coordinate, ...], row: Coordinate | None) -> str:
    """The value with a place for every axis from its first, so that it broadcasts as a batch of matrices."""
    text = aligned(value, axes).text if row is not None else value.text
    return text if row is not None else f"{_atom(text)}[..., None, :]"


def _atom(text: str) -> str:
    return text if text.isidentifier() else f"({text})"
