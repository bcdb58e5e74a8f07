"""Emitted functions in parts: wherever one can be cut, what is computed again gives the same values and gradients."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.laws.test_backends import drawn

torch = pytest.importorskip("torch")

from indexical.plan.budget import Segment, is_cut  # noqa: E402
from indexical.run.budget import Rehearsals, Study, asked_of  # noqa: E402
from indexical.run.kernel import load  # noqa: E402


def results(rehearsals: Rehearsals, segments: tuple[Segment, ...], arrays: list[Any]) -> list[Any]:
    """What the text with these segments gives, and the gradient of each input."""
    function = load(rehearsals.made(segments).linked(), rehearsals.plan.wanted, ()).function
    given = [array.clone().requires_grad_(array.is_floating_point()) for array in arrays]
    found = function(*given)
    found = list(found) if isinstance(found, tuple) else [found]
    asked, learned = ([one for one in some if one.requires_grad] for some in (found, given))
    arriving = [torch.ones_like(one) for one in asked]
    gradients = torch.autograd.grad(asked, learned, arriving, allow_unused=True) if asked else ()
    return [*found, *gradients]


@pytest.mark.sampled(50)
@pytest.mark.parametrize("seed", range(120))
def test_segments_anywhere_change_nothing(seed: int) -> None:
    call = drawn(seed)
    if call is None or call.wanted is None or seed == 29:  # There a number in an array decides how it goes on.
        return
    arrays = [torch.from_numpy(np.array(call.arrays[name])) for name in call.program.inputs]
    if not any(array.is_floating_point() for array in arrays):
        return
    given = [array.clone().requires_grad_(array.is_floating_point()) for array in arrays]
    prepared = call.engine.prepare(dict(zip(call.program.inputs, given, strict=True)), "torch")
    study = Study(prepared, call.names, False, True, asked_of(given, 1))
    rehearsals = Rehearsals(study.plan, study.low, study.body, study.asked)
    plain = results(rehearsals, (), arrays)
    cuts = [n for n in range(len(rehearsals.paragraphs)) if is_cut(rehearsals.outline, n)]
    for stride in {1, 2, max(1, len(cuts) - 1)}:
        segments = tuple(pairwise(cuts[::stride]))
        for one, other in zip(plain, results(rehearsals, segments, arrays), strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(other, one, equal_nan=True)
