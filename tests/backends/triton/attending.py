"""Attention by Triton kernels in Triton's interpreter, beside the plain lowering in double precision.

Run in a process of its own, since Triton reads the environment when it is imported:
`TRITON_INTERPRET=1 python -m tests.backends.triton.attending f32 "soft cap" window`. One line a variant: its name,
and the largest errors of its result and of each gradient, of their largest entry where that is more than 1.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import Any

import torch
from tests.backends.variants import SIZES, VARIANTS

import indexical as ix
from indexical.plan.target import TRITON
from indexical.run.kernel import load

# All sizes differ from each other and from those of the tiles, and no tile is filled.
LARGER = {"i": 45, "j": 45, "d": 20, "e": 12, "r": 89}
DTYPES = {"f32": torch.float32, "f16": torch.float16}


def drawn(name: str, dtype: torch.dtype, larger: dict[str, int] | None = None) -> dict[str, Any]:
    """The arrays of a variant."""
    torch.manual_seed(1)
    variant = VARIANTS[name]
    sizes = {**SIZES, **(larger or LARGER), **variant.sizes}
    if dtype == torch.float16:  # The widths that matrix units take.
        sizes |= {"d": 64, "e": 128}
    found: dict[str, Any] = {}
    for tensor in ix.compile(variant.text).ir.inputs:
        if tensor.name in variant.given:
            found[tensor.name] = variant.given[tensor.name](sizes)
        else:
            found[tensor.name] = torch.randn([sizes[axis.coordinate.name] for axis in tensor.axes]).to(dtype)
    return found


def is_learned(array: Any) -> bool:
    return torch.is_tensor(array) and array.is_floating_point()


def errors(name: str, dtype: torch.dtype) -> list[float]:
    """The errors of the result and of every gradient; the emitted module is the one for a GPU."""
    program = ix.compile(VARIANTS[name].text)
    call = replace(program._engine.prepare(drawn(name, dtype), "torch"), device="cuda")
    wanted = program.wanted(None)
    plan, module = program._engine.emitted(call, wanted, False)
    assert any(step.kernel == TRITON for step in plan.steps), name
    given = {key: array.clone().requires_grad_() if is_learned(array) else array for key, array in call.values.items()}
    exact = {
        key: array.detach().double().requires_grad_() if is_learned(array) else array for key, array in given.items()
    }
    out = load(module.linked(), wanted, ()).function(*(given[tensor.name] for tensor in program.ir.inputs))
    right = program(**exact, isolate=True)
    weight = torch.randn(right.shape, dtype=torch.float64)
    found = torch.autograd.grad((out * weight.to(out.dtype)).sum(), list(filter(is_learned, given.values())))
    expected = torch.autograd.grad((right * weight).sum(), list(filter(is_learned, exact.values())))
    pairs = [(out, right), *zip(found, expected, strict=True)]
    return [float((a.double() - b).abs().max() / max(1.0, float(b.detach().abs().max()))) for a, b in pairs]


def main(dtype: str, *names: str) -> None:
    warnings.simplefilter("ignore")
    for name in names:
        print(f"{name}: {' '.join(f'{error:.2e}' for error in errors(name, DTYPES[dtype]))}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
