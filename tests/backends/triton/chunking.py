"""Causal products by Triton kernels in Triton's interpreter, beside the same chunks by PyTorch in double precision.

Run in a process of its own, since Triton reads the environment when it is imported:
`TRITON_INTERPRET=1 python -m tests.backends.triton.chunking rate levels`. One line a case, as JSON: its name, and how
far the result and the gradients are from those in double precision, as ‖error‖ ÷ ‖exact‖.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import torch
from tests.backends.triton.interpreter import patch_once
from torch import Tensor

from indexical.backends.kernels.torch_chunks import chunk_products
from indexical.backends.kernels.triton_chunks import chunk_kernels


class Case(NamedTuple):
    """Rows, keys, widths of what is compared and carried, decays, and the order. No size fills a tile."""

    rows: int
    keys: int
    width: int
    carried: int
    decays: tuple[str, ...] = ()
    strict: bool = False
    backward: bool = False
    dtype: torch.dtype = torch.float32


CASES = {
    "none": Case(70, 70, 16, 16, backward=True),
    "rate": Case(150, 150, 20, 36, ("rate",)),
    "levels": Case(130, 130, 130, 16, ("levels",), strict=True),
    "rate and levels": Case(129, 140, 18, 140, ("rate", "levels"), backward=True),
    "times": Case(129, 100, 17, 30, ("times",)),
    "one chunk": Case(5, 5, 3, 2, ("rate",)),
    "f16": Case(140, 140, 32, 30, ("rate",), dtype=torch.float16),
}


def draw(case: Case, device: str = "cpu") -> dict[str, Tensor]:
    """Arrays in double precision, of values that the dtype of the case has."""
    generator = torch.Generator().manual_seed(0)
    batch, heads = 1, 2

    def drawn(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    sides = {"query": (case.rows, case.width), "key": (case.keys, case.width), "value": (case.keys, case.carried)}
    found = {name: drawn(batch, heads, *shape).sub(0.5).to(case.dtype).double() for name, shape in sides.items()}
    count = max(case.rows, case.keys)
    decays = {
        "rate": drawn(1, heads, 1, 1) * -0.1,
        "levels": (drawn(batch, heads, count, 1) * -0.05).cumsum(-2).flip(-2 if case.backward else -1),
        "times": 1.0 - 0.1 * drawn(batch, heads, case.rows, 1),
    }
    found |= {name: decays[name].float().double() for name in case.decays}
    return {name: array.to(device) for name, array in found.items()}


def computed(case: Case, arrays: dict[str, Tensor], gradient: Tensor, **how: Any) -> list[Tensor]:
    """The result, and the gradients to all arrays."""
    leaves = {name: array.detach().requires_grad_() for name, array in arrays.items()}
    out = chunk_products(**leaves, strict=case.strict, backward=case.backward, **how)  # type: ignore[arg-type]
    return [out.detach(), *torch.autograd.grad(out, list(leaves.values()), gradient.to(out))]


def short(case: Case, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """The sides in the dtype of the case, and decays in 32 bits."""
    return {name: x.to(torch.float32 if name in case.decays else case.dtype) for name, x in arrays.items()}


def errors(case: Case, device: str = "cpu") -> list[float]:
    arrays = draw(case, device)
    generator = torch.Generator().manual_seed(1)
    gradient = torch.rand(1, 2, case.rows, case.carried, generator=generator, dtype=torch.float64).to(device) - 0.5
    exact = computed(case, arrays, gradient.to(case.dtype).double())
    found = computed(case, short(case, arrays), gradient, kernels=chunk_kernels)
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]


def reached(device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[int]:
    """The rows that a NaN in a value reaches, in one of several chunks."""
    case = CASES["rate"]._replace(dtype=dtype)
    arrays = draw(case, device)
    arrays["value"][..., 70, :] = torch.nan
    out = chunk_products(**short(case, arrays), kernels=chunk_kernels)  # type: ignore[arg-type]
    return sorted({int(row) for row in out.isnan().nonzero()[:, 2]})


def main(*names: str) -> None:
    patch_once()
    for name in names:
        print(json.dumps([name, errors(CASES[name])]), flush=True)
    print(json.dumps(["reached", reached()]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
