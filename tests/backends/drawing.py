"""Programs and arrays of the variants, their gradients, and how far two results are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tests.backends.variants import SIZES, VARIANTS

import indexical as ix


def compiled(name: str) -> ix.Program:
    """The program of a variant, once."""
    if name not in _compiled:
        _compiled[name] = ix.compile(VARIANTS[name].text)
    return _compiled[name]


_compiled: dict[str, ix.Program] = {}


def draw(name: str, dtype: torch.dtype = torch.float64, **sizes: int) -> dict[str, Any]:
    """Arrays for a variant, in the order of its inputs."""
    variant = VARIANTS[name]
    generator = torch.Generator().manual_seed(1)
    lengths_of = {**SIZES, **variant.sizes, **sizes}
    found: dict[str, Any] = {}
    for tensor in compiled(name).ir.inputs:
        if tensor.name in variant.given:
            found[tensor.name] = variant.given[tensor.name](lengths_of)
        else:
            shape = [lengths_of[axis.coordinate.name] for axis in tensor.axes]
            found[tensor.name] = torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)
    return found


def grown(name: str, size: int) -> dict[str, int]:
    """Sizes with more positions, in the proportions of a variant."""
    usual, own = SIZES["i"], VARIANTS[name].sizes
    found = {letter: max(1, own.get(letter, usual) * size // usual) for letter in "ij"}
    return found if "r" in own else {**found, "r": 2 * size - 1}


def learning(arrays: Mapping[str, Any]) -> list[torch.Tensor]:
    """The arrays of reals, from now on with gradients."""
    return [array.requires_grad_() for array in arrays.values() if is_real(array)]


def is_real(array: Any) -> bool:
    return isinstance(array, torch.Tensor) and array.is_floating_point()


def as_numpy(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {key: array.detach().numpy() if isinstance(array, torch.Tensor) else array for key, array in arrays.items()}


def gradients(out: torch.Tensor, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Those of a weighted sum of the output; 0 where nothing flows."""
    weight = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).to(out.dtype)
    found = torch.autograd.grad((out * weight).sum(), arrays, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(a) if g is None else g for g, a in zip(found, arrays, strict=True)]


def distance(found: Any, expected: Any) -> float:
    """The largest difference, by the size of what is expected where that is more than 1; NaN agrees with NaN."""
    first, second = (np.asarray(a.detach() if isinstance(a, torch.Tensor) else a, float) for a in (found, expected))
    assert first.shape == second.shape
    if not first.size:
        return 0.0
    assert np.array_equal(np.isnan(first), np.isnan(second)), "NaN at other places"
    first, second = np.nan_to_num(first), np.nan_to_num(second)
    return float(np.abs(first - second).max() / max(1.0, np.abs(second).max()))
