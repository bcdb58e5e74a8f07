"""Small things that the parts of a run share: names, and arithmetic on pieces of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .units import Rows

_INFINITY = float("inf")


def part(name: str) -> str:
    return f"{name} part"


def passed(name: str) -> str:
    """The tensor that travels under a name."""
    return name.rsplit("_passed", 1)[0]


def renamed(name: str) -> str:
    return f"{passed(name)}_passed" if "_passed" in name else name


def together(pieces: list[Any], like: Any, axis: int) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(pieces, axis) if pieces else like.narrow(axis, 0, 0)


def cut(array: Any, rows: Rows, own: Rows, place: int, axis: int) -> Any:
    """The points of an array that a block holds, 0 where it has none for them."""
    (first, last), (start, end) = rows[place], own[place]
    lower, upper = max(first, start), min(last, end)
    shape = list(array.shape)
    shape[axis] = end - start
    result = array.new_zeros(shape)
    if lower < upper:
        result.narrow(axis, lower - start, upper - lower).copy_(array.narrow(axis, lower - first, upper - lower))
    return result


def weight(share: Any, total: Any) -> Any:
    """e to the difference of two logarithms, 0 where both are of nothing."""
    return torch.where(share == -_INFINITY, torch.zeros_like(share), torch.exp(share - total))


def heard(out: Any, total: Any, shape: tuple[int, ...]) -> Any:
    """The result of an attention, 0 where it has no keys at all."""
    return torch.where((total == -_INFINITY).reshape(shape), torch.zeros_like(out), out)


def quotient(share: Any, total: Any) -> Any:
    return torch.where(total == 0, torch.zeros_like(share), share / total)


def summed(array: Any, shape: tuple[int, ...], target: Any) -> Any:
    """The sum over all axes that a shape has once."""
    gone = [n for n, (length, kept) in enumerate(zip(array.shape, shape, strict=True)) if kept == 1 and length != 1]
    return (array.sum(gone, keepdim=True) if gone else array).reshape(target)


def pulled(leaves: Mapping[str, Any], outs: list[Any], cotangents: list[Any]) -> dict[str, Any]:
    """The cotangents of what a program was given, from those of what it gave."""
    pairs = [(out, c) for out, c in zip(outs, cotangents, strict=True) if c is not None and out.requires_grad]
    if not pairs or not leaves:
        return {}
    outs, given = [out for out, _ in pairs], [c for _, c in pairs]
    # The graph stays where the call's own does: for another way back.
    kept = bool(torch._C._autograd._get_current_graph_task_keep_graph())
    found = torch.autograd.grad(outs, [*leaves.values()], given, allow_unused=True, retain_graph=kept)
    return dict(zip(leaves, found, strict=True))
