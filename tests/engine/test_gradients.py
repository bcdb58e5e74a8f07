"""Autograd through emitted code, the derivative as a program, and finite differences of the reference are one gradient.

No gradient hears of a pole that a guard removes.
"""

from __future__ import annotations

import pytest
from tests.engine import door, drawing
from tests.engine.slopes import Differentiated, moved_off_kinks

import indexical as ix

pytestmark = pytest.mark.sampled(12)

EACH = 5


def check(generator: str, seeds: range, jax: bool = False) -> int:
    """How many programs were differentiated: their gradients by all ways are the same."""
    count = 0
    for seed in seeds:
        case = drawing.draw(generator, seed)
        if case is None:
            continue
        try:
            differentiated = Differentiated(case if generator == "poles" else moved_off_kinks(case))
        except ix.Error:
            continue
        fault = differentiated.slope_fault(jax)
        assert fault is None, f"{differentiated.case!r}\n{fault}"
        count += differentiated.value is not None and differentiated.slope is not None
    return count


@pytest.mark.parametrize("start", range(0, 20, EACH))
@pytest.mark.parametrize("generator", ["derivable", "guarded", "mixing", "poles", "decays", "normalised", "scalars"])
def test_all_ways_to_a_gradient_agree(generator: str, start: int) -> None:
    assert check(generator, range(start, start + EACH)) > 0


@pytest.mark.skipif("jax" not in door.LIBRARIES, reason="JAX is not there")
@pytest.mark.parametrize("generator", ["derivable", "guarded", "mixing", "poles", "decays"])
def test_jax_differentiates_through_everything(generator: str) -> None:
    assert check(generator, range(100, 103), jax=True) > 0
