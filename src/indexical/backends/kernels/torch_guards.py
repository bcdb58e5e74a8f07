"""Tests whether tensors are like those of an earlier call, by PyTorch's own guards: they take a fifth of the time that
it takes to ask each tensor. This text needs PyTorch and nothing else."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# Sizes or strides of each tensor, None along an axis where any will do.
Lengths = list[list[Any]]


def guard_for(tensors: Sequence[Tensor], sizes: Lengths, strides: Lengths) -> Callable[..., bool] | None:
    """A test whether others have the dtypes, devices, sizes and strides of these, require gradients as they do, and are
    called under the same transforms and modes; None where this version of PyTorch has no guards.

    A guard says no where it is given a tensor twice: those that are the same here have to be the same there.
    """
    guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if not hasattr(guards, "TensorGuards"):
        return None
    first = [next(n for n, other in enumerate(tensors) if other is x) for x in tensors]
    for n, m in enumerate(first):
        for about in (sizes, strides):
            about[m] = [mine if other is None else other for mine, other in zip(about[m], about[n], strict=True)]
    own = sorted(set(first))
    given, lengths, steps = ([part[n] for n in own] for part in (tensors, sizes, strides))
    check: Callable[..., bool] = guards.TensorGuards(
        *given, dynamic_dims_sizes=lengths, dynamic_dims_strides=steps
    ).check
    if len(own) == len(tensors):
        return check
    same = [f"t{n} is t{m} and " for n, m in enumerate(first) if n != m]
    names = [", ".join(f"t{n}" for n in places) for places in (range(len(tensors)), own)]
    both: Callable[..., bool] = eval(f"lambda {names[0]}: {''.join(same)}check({names[1]})", {"check": check})
    return both
