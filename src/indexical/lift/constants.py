"""Constant tensors as what they are: one number, a count, a pattern of indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.affine import number
from .recording import Site
from .values import Condition, Count, Full, Indices, Kind, Map, Node, Scale, Shape


def constant(tensors: Sequence[Any], shape: Shape, kind: Kind, site: Site | None) -> Node | None:
    """A tensor of each run as a node, where one number or one relation fits them all; None where none does."""
    first = tensors[0]
    if first.numel() == 0:
        return None
    flat = first.flatten()
    value = flat[0].item()
    if all(t.numel() and bool((t == value).all()) for t in tensors):
        return Full(shape, kind, Scale(value), site=site)
    if len(shape) == 1 and kind == "whole":
        count = first.new_tensor(range(len(flat)))
        if all(bool((t == count.new_tensor(range(len(t)))).all()) for t in tensors):
            return Count(shape, "whole", lambda at: at[0], site=site)
    return _triangle(tensors, shape, kind, site)


def _triangle(tensors: Sequence[Any], shape: Shape, kind: Kind, site: Site | None) -> Node | None:
    """A pattern of two values over the last two axes: at and below a diagonal, or above it."""
    first = tensors[0]
    if first.ndim < 2 or any(size != 1 for size in first.shape[:-2]) or 1 in first.shape[-2:]:
        return None
    values = first.unique().tolist()
    if len(values) != 2:
        return None
    for low, high in (values, values[::-1]):
        offset = _diagonal([(t == high).reshape(t.shape[-2:]) for t in tensors])
        if offset is not None:
            return _choice(shape, kind, offset, high, low, site)
    return None


def _diagonal(patterns: Sequence[Any]) -> int | None:
    """The offset of a diagonal up to which everything holds, and nothing beyond it."""
    first = patterns[0]
    columns = first.shape[-1]
    ends = first.sum(1).tolist()
    found = {end - 1 - row for row, end in enumerate(ends) if 0 < end < columns}
    if len(found) != 1:
        return None
    [offset] = found
    for pattern in patterns:
        made = pattern.new_ones(pattern.shape).tril(offset)
        if not bool((made == pattern).all()):
            return None
    return int(offset)


def _choice(shape: Shape, kind: Kind, offset: int, inside: Any, outside: Any, site: Site | None) -> Node:
    def at(i: Indices) -> Any:
        return i[-2] + number(offset) - i[-1]

    kept = Condition(shape, "bool", at, site=site)
    if kind == "bool":
        return kept if inside else Map(shape, "bool", "!", (kept,), site=site)
    one, other = (Full(shape, kind, Scale(value), site=site) for value in (inside, outside))
    return Map(shape, kind, "if", (kept, one, other), site=site)
