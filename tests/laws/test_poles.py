"""A pole where a guard removes the point: values are those of the reference, and all gradients are finite and right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from tests.laws.poles import Pole, pole_cases

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

LEARNED = tuple("xyzpqrsg")


def compiled(case: Pole) -> ix.Program:
    try:
        return ix.compile(case.text)
    except ix.CompileError:  # A sum without a body that varies, say.
        assume(False)
        raise


@given(pole_cases())
def test_values_are_those_of_the_reference(case: Pole) -> None:
    program = compiled(case)
    expected = np.asarray(program(**case.arrays, backend="reference"))
    tensors = {name: torch.tensor(array) for name, array in case.arrays.items()}
    for isolate in (False, True):
        for arrays in (case.arrays, tensors):
            np.testing.assert_allclose(program(**arrays, isolate=isolate), expected, rtol=1e-9, atol=1e-12)


@given(pole_cases())
def test_no_gradient_hears_of_a_removed_pole(case: Pole) -> None:
    program = compiled(case)
    noise = np.random.default_rng(len(case.text))
    value = np.asarray(program(**case.arrays, backend="reference"))
    flowing = noise.standard_normal(value.shape)
    # What is 0 stays there: nobody reads it, and on one side of it there is no value.
    ways = {n: noise.standard_normal(np.shape(case.arrays[n])) * (case.arrays[n] != 0) for n in LEARNED}

    def total(step: float) -> float:
        moved = {name: case.arrays[name] + step * way for name, way in ways.items()}
        return float((flowing * np.asarray(program(**{**case.arrays, **moved}, backend="reference"))).sum())

    slope = (total(1e-5) - total(-1e-5)) / 2e-5

    def check(flows: list[object]) -> None:
        found = [
            np.zeros_like(ways[n]) if flow is None else np.asarray(flow) for n, flow in zip(ways, flows, strict=True)
        ]
        for name, flow in zip(ways, found, strict=True):
            assert np.isfinite(flow).all(), name
        along = sum((flow * way).sum() for flow, way in zip(found, ways.values(), strict=True))
        assert along == pytest.approx(slope, rel=1e-4, abs=1e-4)

    for isolate in (False, True):
        leaves = {name: torch.tensor(array, requires_grad=name in LEARNED) for name, array in case.arrays.items()}
        result = program(**leaves, isolate=isolate)
        if result.requires_grad:
            inputs = [leaves[name] for name in LEARNED]
            check(list(torch.autograd.grad(result, inputs, torch.tensor(flowing), allow_unused=True)))
    gradient = ix.grad(program, "out", list(LEARNED))
    seed = {"d_out": flowing} if "d_out" in gradient.inputs else {}
    for backend in (None, "reference"):
        parts = gradient(**case.arrays, **seed, backend=backend)
        check([np.asarray(part) * (1 if seed else flowing) for part in parts])
