"""What a reader asks for does not change what a normaliser, a scan, a sum or a recurrence mixes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from tests.laws.mixing import Mixing, mixing_cases

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

LEARNED = ("x", "y", "a")


def same(found: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12)


@given(mixing_cases())
def test_every_backend_says_what_the_reference_says(case: Mixing) -> None:
    program = ix.compile(case.text)
    expected = np.asarray(program(**case.arrays, backend="reference"))
    tensors = {name: torch.tensor(array) for name, array in case.arrays.items()}
    for isolate in (False, True):
        same(program(**case.arrays, isolate=isolate), expected)
        same(program(**tensors, isolate=isolate), expected)


@given(mixing_cases())
def test_gradients_are_slopes_of_the_reference(case: Mixing) -> None:
    program = ix.compile(case.text)
    noise = np.random.default_rng(len(case.text))
    ways = {name: noise.standard_normal(case.arrays[name].shape) for name in LEARNED}
    names = list(program.definitions)
    values = dict(zip(names, program(**case.arrays, outputs=names, backend="reference"), strict=True))
    assume(all(np.isfinite(value).all() for value in values.values()))  # Slopes of infinities may be any number.
    value = np.asarray(values["out"])
    flowing = noise.standard_normal(value.shape)

    def total(step: float) -> float:
        moved = {name: case.arrays[name] + step * way for name, way in ways.items()}
        return float((flowing * np.asarray(program(**{**case.arrays, **moved}, backend="reference"))).sum())

    slope, wide = ((total(step) - total(-step)) / (2 * step) for step in (1e-5, 2e-5))
    assume(abs(slope - wide) < 1e-6 * (1 + abs(slope)))  # Else a comparison turns over near here.
    for isolate in (False, True):
        leaves = {name: torch.tensor(array, requires_grad=name in LEARNED) for name, array in case.arrays.items()}
        result = program(**leaves, isolate=isolate)
        if not result.requires_grad:
            assert abs(slope) < 1e-6
            continue
        flows = torch.autograd.grad(
            result, [leaves[name] for name in LEARNED], torch.tensor(flowing), allow_unused=True
        )
        along = [(flow.numpy() * ways[n]).sum() for n, flow in zip(LEARNED, flows, strict=True) if flow is not None]
        assert sum(along) == pytest.approx(slope, rel=1e-4, abs=1e-4)
    gradient = ix.grad(program, "out", list(LEARNED))
    given_flow = {"d_out": flowing} if "d_out" in gradient.inputs else {}
    parts = gradient(**case.arrays, **given_flow)
    along = [(part * ways[name]).sum() for name, part in zip(LEARNED, parts, strict=True)]
    assert sum(along) * (1 if given_flow else flowing) == pytest.approx(slope, rel=1e-4, abs=1e-4)
