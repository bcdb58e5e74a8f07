"""Reductions and normalisers as Python source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops import Normalize, Reduce, Value
from .code import Code, infix
from .numbers import extent, is_filled

if TYPE_CHECKING:
    from .printer import Printer

_CHECKED = {"sum": "checked_sum", "prod": "checked_prod", "cumsum": "checked_cumsum", "cumprod": "checked_cumprod"}


def reduce(p: Printer, one: Value) -> Code:
    """A reduction over axes. One that the source does not have counts all the same."""
    op = one.op
    assert isinstance(op, Reduce)
    if op.where is not None:
        raise TypeError(f"a guard in `{op.fn}` has not been made a `where`")
    gone = {axis.name for axis in op.over}
    source, missing = op.source, [axis for axis in op.over if axis.name not in op.source.names]
    code, inner = p.code(source), () if source.is_host else p.order_of(source)
    if missing and op.fn in ("sum", "prod"):
        for axis in missing:
            code = infix("*" if op.fn == "sum" else "**", code, extent(p, axis))
    elif missing:
        inner = (*(name for name in inner if name not in gone), *(axis.name for axis in op.over))
        axes = {axis.name: axis for axis in (*source.axes, *op.over)}
        code = p.whole(source, tuple(axes[name] for name in inner))
    dims = tuple(n for n, name in enumerate(inner) if name in gone)
    if dims:
        if op.checked and one.kind == "whole" and op.fn in _CHECKED:
            code = p.call(_CHECKED[op.fn], code, dims)
        else:
            some = all(is_filled(axis) or axis.extent in p.filled for axis in op.over)
            code = p.d.reduce(p, op.fn, code, _last(dims, len(inner)), source, some)
    left = tuple(name for name in inner if name not in gone)
    return p.permuted(code, left, p.order_of(one))


def _last(dims: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """An axis that is the last, by -1."""
    return (-1,) if dims == (rank - 1,) else dims


def normalize(p: Printer, one: Value) -> Code:
    """A normaliser along an axis that stays."""
    op = one.op
    assert isinstance(op, Normalize)
    if op.where is not None:
        raise TypeError(f"a guard in `{op.fn}` has not been made a `where`")
    own = p.order_of(one)
    axes = tuple(one.axis(name) for name in own)
    axis = own.index(op.along.name)
    code = p.whole(op.source, axes)
    if op.checked and op.fn in _CHECKED:
        return p.call(_CHECKED[op.fn], code, axis)
    return p.d.normalize(p, op.fn, code, -1 if axis == len(own) - 1 else axis)
