"""The oracle itself: dual numbers over floats against finite differences and against `torch.autograd`, over exact
numbers against those over floats, and what they say at kinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.derivable import Derivable, directed
from tests.laws.derivable_texts import FAMILIES
from tests.laws.duals import hessian, jacobian

import indexical as ix
from indexical.numbers.results import Value
from indexical.run.floats import Floats

pytestmark = pytest.mark.sampled(4)

Array = np.ndarray[Any, Any]

# Where floats that are drawn at random would leave what the family is about, or the engine's own derivative.
POSITIVE = {"roots", "outside_the_field", "powers", "open_power", "remainder"}


def smooth(name: str, seed: int) -> Derivable:
    """A program of a family, at a point where no two numbers are equal and none is 0."""
    case = directed(list(FAMILIES).index(name) + seed * len(FAMILIES))
    noise = np.random.default_rng(seed)

    def moved(array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        found = np.asarray(noise.normal(size=array.shape))
        return np.asarray(np.abs(found) + 0.3) if name in POSITIVE else found

    return replace(case, arrays={name: moved(array) for name, array in case.arrays.items()})


def dense(case: Derivable, program: ix.Program) -> dict[str, Array]:
    """The Jacobian by each input, as matrices of floats."""
    found = jacobian(program, case.arrays, case.of, case.by, Floats())
    return {
        name: np.array(
            [[found.entry(n, (name, at)) for at in range(case.arrays[name].size)] for n in range(len(found.cells))]
        ).reshape(len(found.cells), case.arrays[name].size)
        for name in case.by
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_they_agree_with_finite_differences(name: str) -> None:
    case = smooth(name, 1)
    program = ix.compile(case.text)
    found = dense(case, program)

    def value(arrays: Mapping[str, Array]) -> Array:
        return np.asarray(program(**arrays, outputs=case.of, backend="reference")).reshape(-1)

    for moving in case.by:
        for at in range(case.arrays[moving].size):
            sides = []
            for step in (1e-5, -1e-5):
                array = case.arrays[moving].copy()
                array.reshape(-1)[at] += step
                sides.append(value({**case.arrays, moving: array}))
            expected = (sides[0] - sides[1]) / 2e-5
            assert found[moving][:, at] == pytest.approx(expected, rel=1e-4, abs=1e-6), (moving, at, case)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", FAMILIES)
def test_they_agree_with_autograd(name: str, seed: int) -> None:
    case = smooth(name, seed)
    program = ix.compile(case.text)
    arrays = {key: torch.tensor(array) for key, array in case.arrays.items()}
    moving = [arrays[key].requires_grad_() for key in case.by]
    result = program(**arrays, outputs=case.of)
    found = dense(case, program)
    for n, cell in enumerate(result.reshape(-1)):
        if not cell.requires_grad:
            continue
        gradients = torch.autograd.grad(cell, moving, retain_graph=True, allow_unused=True)
        for key, gradient in zip(case.by, gradients, strict=True):
            expected = np.zeros(found[key].shape[1]) if gradient is None else gradient.numpy().reshape(-1)
            assert found[key][n] == pytest.approx(expected, rel=1e-10, abs=1e-10), (key, n, case)


@pytest.mark.parametrize("name", FAMILIES)
def test_exact_duals_are_those_that_float_duals_come_near_to(name: str) -> None:
    case = directed(list(FAMILIES).index(name))
    program = ix.compile(case.text)
    exact = jacobian(program, case.arrays, case.of, case.by)
    floats = jacobian(program, case.arrays, case.of, case.by, Floats())
    assert exact.bounded
    for cell, near in zip(exact.cells, floats.cells, strict=True):
        assert cell.parts.keys() == near.parts.keys()
        for key, part in cell.parts.items():
            assert float(Value(part)) == pytest.approx(near.parts[key], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["attention", "scalars", "steps", "roots", "product", "elementwise", "functions"])
def test_duals_of_duals_are_the_second_derivative(name: str) -> None:
    """By differences of first derivatives."""
    case = smooth(name, 2)
    program = ix.compile(case.text)
    found, _ = hessian(program, case.arrays, case.of, Floats())
    for moving in case.by:
        for at in range(case.arrays[moving].size):
            sides = []
            for step in (1e-5, -1e-5):
                array = case.arrays[moving].copy()
                array.reshape(-1)[at] += step
                sides.append(dense(replace(case, arrays={**case.arrays, moving: array}), program))
            for other in case.by:
                expected = (sides[0][other] - sides[1][other]) / 2e-5
                for n, cell in enumerate(found):
                    row = [cell.get(((other, m), (moving, at)), 0.0) for m in range(case.arrays[other].size)]
                    assert row == pytest.approx(expected[n], rel=1e-4, abs=1e-6)


# ----------------------------------------------------------------------------------------------------- kinks


@pytest.mark.parametrize(
    ("body", "inputs", "expected"),
    [
        ("relu(x)", {"x": 0}, {"x": 0}),
        ("abs(x)", {"x": 0}, {"x": 0}),
        ("max(x, y)", {"x": 1, "y": 1}, {"x": 1, "y": 0}),
        ("min(y, x)", {"x": 1, "y": 1}, {"x": 0, "y": 1}),
        ("clamp(x, y, z)", {"x": 1, "y": 1, "z": 2}, {"x": 1, "y": 0, "z": 0}),
        ("clamp(x, y, z)", {"x": 2, "y": 1, "z": 2}, {"x": 1, "y": 0, "z": 0}),
        ("clamp(x, y, z)", {"x": 0, "y": 1, "z": 2}, {"x": 0, "y": 1, "z": 0}),
        ("clamp(x, y, z)", {"x": 3, "y": 1, "z": 2}, {"x": 0, "y": 0, "z": 1}),
        ("clamp(x, y, z)", {"x": 0, "y": 3, "z": 2}, {"x": 0, "y": 0, "z": 1}),
        ("floor(x) + ceil(x) + round(x)", {"x": Fraction(1, 2)}, {"x": 0}),
        ("x % y", {"x": 7, "y": 2}, {"x": 1, "y": -3}),
        ("x % y", {"x": -7, "y": 2}, {"x": 1, "y": 3}),
        ("x ** 0", {"x": 0}, {"x": 0}),
        ("x ** 2", {"x": 0}, {"x": 0}),
        ("x ** y", {"x": 0, "y": 2}, {"x": 0, "y": 0}),
        ("if x > 0 { x } else { 2 * x }", {"x": 0}, {"x": 2}),
        ("max[k in 0..2, n in 0..2](if k < n { x } else { y })", {"x": 1, "y": 1}, {"x": 0, "y": 1}),
        ("max[k in 0..2, n in 0..2](if k <= n { x } else { y })", {"x": 1, "y": 1}, {"x": 1, "y": 0}),
    ],
)
def test_at_a_kink_one_side_is_taken(body: str, inputs: dict[str, Any], expected: dict[str, int]) -> None:
    program = ix.compile(f"input {', '.join(inputs)};\nlet out = {body};\n")
    found = jacobian(program, inputs, "out", tuple(inputs))
    assert {name: found.entry(0, (name, 0)) for name in inputs} == expected


def test_a_definition_is_held_independent() -> None:
    program = ix.compile("input x[i];\nlet y[i] = x[i] ** 2;\nlet z = sum[i](y[i] * x[i]);\n")
    found = jacobian(program, {"x": [2, 3]}, "z", ("y", "x"))
    assert found.cells[0].parts == {("y", 0): 2, ("y", 1): 3, ("x", 0): 4, ("x", 1): 9}
