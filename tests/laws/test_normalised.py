"""Weights that are normalised by hand are what the reference says they are, and so are their gradients: for rows that
hear nobody, and where there are no keys at all, too."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.laws.guarded import Guarded
from tests.laws.normalised import normalised_case, normalised_cases
from tests.profiles import examples

pytest.importorskip("torch")

from tests.laws.guarded_laws import Checked
from tests.laws.ways import check


@examples(0.5)
@given(normalised_cases())
def test_every_way_says_what_the_reference_says(case: Guarded) -> None:
    check(case)


@examples(0.3)
@given(normalised_cases())
def test_a_gradient_as_a_program_is_that_of_autograd(case: Guarded) -> None:
    Checked(case).gradients(("autograd", "ix.grad by numpy", "ix.grad by torch"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_jax_says_what_the_reference_says(seed: int) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        check(normalised_case(seed), ("jax",))
