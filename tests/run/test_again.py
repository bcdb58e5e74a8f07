"""Definitions that are computed again: wherever an emitted function is cut, values and gradients are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.laws.test_backends import drawn

torch = pytest.importorskip("torch")

from indexical.backends.opaque import Former  # noqa: E402
from indexical.engine.budget import Group  # noqa: E402
from indexical.engine.dialects import dialect  # noqa: E402
from indexical.engine.show import emit  # noqa: E402
from indexical.run.budget import Study, asked_of  # noqa: E402
from indexical.run.kernel import load  # noqa: E402


def results(study: Study, groups: list[Group], arrays: list[Any]) -> list[Any]:
    """What the text with these groups gives, and the gradient of each input."""
    plan, _, choices = study.ways[0]
    assert plan.arrays is not None
    again = choices.names(groups)
    text = emit(plan.arrays, dialect("torch"), study.call.arguments, Former(plan), True, again=again)
    assert text.text.count("again(") >= len(groups)
    function = load(text.linked(), plan.wanted, ()).function
    given = [array.clone().requires_grad_(array.is_floating_point()) for array in arrays]
    found = function(*given)
    found = list(found) if isinstance(found, tuple) else [found]
    asked, learned = ([one for one in some if one.requires_grad] for some in (found, given))
    arriving = [torch.ones_like(one) for one in asked]
    gradients = torch.autograd.grad(asked, learned, arriving, allow_unused=True) if asked else ()
    return [*found, *gradients]


@pytest.mark.sampled(50)
@pytest.mark.parametrize("seed", range(120))
def test_groups_anywhere_change_nothing(seed: int) -> None:
    call = drawn(seed)
    if call is None or call.wanted is None:
        return
    arrays = [torch.from_numpy(np.array(call.arrays[name])) for name in call.program.inputs]
    if not any(array.is_floating_point() for array in arrays):
        return
    given = [array.clone().requires_grad_(array.is_floating_point()) for array in arrays]
    prepared = call.engine.prepare(dict(zip(call.program.inputs, given, strict=True)), "torch")
    study = Study(prepared, call.names, False, True, asked_of(given, 1))
    plain = results(study, [], arrays)
    count = len(study.ways[0][2].paragraphs)
    for stride in {1, 2, max(1, count)}:
        groups = [(start, min(start + stride, count)) for start in range(0, count, stride)]
        for one, other in zip(plain, results(study, groups, arrays), strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(other, one, equal_nan=True)
