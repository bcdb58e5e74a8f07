"""Kernels of a library as Python source: each argument as the kernel takes it, and its result with its own axes."""

from __future__ import annotations

from typing import Any

from ...ir import nodes as ir
from ..ops import Layout, Library, Value
from .code import ATOM, Code, call, chain, closed, tupled
from .numbers import extent, number


def library(p: Any, one: Value) -> Code:
    """A call of a kernel, which the dialect has a function for."""
    op = one.op
    assert isinstance(op, Library)
    function = p.helper(p.d.kernels[op.kernel])
    given = []
    for arg, (name, layout) in zip(op.args, op.layouts, strict=True):
        code = laid_out(p, arg, layout, one)
        given.append(f"{name}={code}" if name else str(code))
    given += [f"{name}={_word(p, word)}" for name, word in op.words]
    code = call(function, *given)
    axes = {axis.name: axis for axis in op.axes}
    order = tuple(name for group in op.result for name in group)
    if any(len(group) != 1 for group in op.result):
        code = Code(f"{code}.reshape({_shape([str(extent(p, axes[name])) for name in order])})")
    own = p.order[one]
    return code if order == own else p.d.permute(code, tuple(order.index(name) for name in own))


def laid_out(p: Any, arg: Value, layout: Layout, one: Value) -> Code:
    """An array with an axis for each group of axes."""
    order = tuple(name for group in layout for name in group)
    axes = {axis.name: axis for each in (*one.parts, one, arg) for axis in each.axes}
    code: Code = p.whole(arg, tuple(axes[name] for name in order))
    if all(len(group) == 1 for group in layout):
        return code
    sizes = []
    for group in layout:
        sizes.append(str(chain("*", [extent(p, axes[name]) for name in group])) if group else "1")
    return Code(f"{closed(code, ATOM)}.reshape({_shape(sizes)})")


def _shape(sizes: list[str]) -> str:
    return ", ".join(sizes) if sizes else "()"


def _word(p: Any, word: object) -> str:
    if isinstance(word, tuple):
        return tupled(_word(p, part) for part in word)
    if isinstance(word, str):
        return f'"{word}"'
    return str(number(p, word)) if isinstance(word, ir.Expr) else repr(word)
