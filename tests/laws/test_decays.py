"""Sums of what came before with a decay are what the reference says they are: the axes too, in whatever order."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.decoding import law
from tests.laws.decays import decay_cases
from tests.laws.guarded import Guarded

torch = pytest.importorskip("torch")

from tests.laws.guarded_laws import Checked  # noqa: E402
from tests.laws.ways import check, finite_slope, reference  # noqa: E402

import indexical as ix  # noqa: E402


@given(decay_cases())
def test_every_way_says_what_the_reference_says(case: Guarded) -> None:
    check(case)


@given(decay_cases())
def test_a_gradient_as_a_program_is_that_of_autograd(case: Guarded) -> None:
    Checked(case).gradients(("autograd", "ix.grad by numpy", "ix.grad by torch"))


@given(decay_cases())
def test_a_tangent_as_a_program_is_a_slope(case: Guarded) -> None:
    program = ix.compile(case.text)
    tangent, noise = ix.jvp(program), np.random.default_rng(0)
    direction = {name: noise.normal(size=case.arrays[name].shape) for name in case.reals}
    cotangent = noise.normal(size=reference(program, case.arrays)[0].shape)
    slope = finite_slope(program, case, direction, [cotangent])
    arrays: dict[str, Any] = {**case.arrays, **{f"dot_{name}": array for name, array in direction.items()}}
    if slope is not None:
        found = tangent(**{name: arrays[name] for name in tangent.inputs})
        assert abs(float((found * cotangent).sum()) - slope) <= 1e-5 * max(1.0, abs(slope)), f"{case!r}"


@given(decay_cases())
def test_a_batch_is_its_members(case: Guarded) -> None:
    program = ix.compile(case.text)
    batched = ix.batch(program, z="x")
    several = np.stack((case.arrays["x"], case.arrays["x"][::-1], 2 * case.arrays["x"]))
    found = batched(**{**case.arrays, "x": several})
    right = [reference(program, {**case.arrays, "x": one})[0] for one in several]
    np.testing.assert_allclose(found, np.stack(right), rtol=1e-9, atol=1e-9, err_msg=f"{case!r}")


@given(decay_cases())
def test_positions_one_after_another_are_all_at_once(case: Guarded) -> None:
    try:
        decoder = ix.incremental(case.text, "t")
    except ix.Error:
        return  # What comes later is heard, too.
    axes = re.findall(r"x\[(.*?)\]", case.text)[0].split(", ")
    length = case.arrays["x"].shape[axes.index("t")]
    for seed in (0, 1):
        law.check(decoder, case.arrays, law.pieces(length, seed), "numpy")
