"""Attention by tiles on the CPU: any score, beside the same written out, and at its limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.backends import hearing as cases  # noqa: E402
from tests.backends.hearing import (  # noqa: E402
    SIZES,
    Hearing,
    asking,
    drawn,
    error,
    gradients,
    hearing,
    hearings,
    spoiled,
    tensors,
)

import indexical as ix  # noqa: E402
from indexical.backends.kernels import torch_fold  # noqa: E402

pytestmark = pytest.mark.sampled(4)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work is no faster with more, and much slower where others want the processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("name", ["full", "causal", "window", "few", "three of any"])
@pytest.mark.parametrize("size", SIZES)
def test_tiles_as_written_out(size: str, name: str, masked: bool) -> None:
    given = hearing(size, name)
    lower, upper = given.lower[0], given.upper[0]
    allowed = Hearing(lower[None], upper[None], given.size).allowed()
    (bias,) = asking(drawn(tuple(allowed.shape[-2:]), seed=4))
    inputs = [*asking(tensors(size)), bias]
    arrays = [inputs[0], inputs[1], bias]
    mask = drawn(tuple(allowed.shape), seed=5)[0] < -0.8
    scores = cases.capped(inputs[0], inputs[1], bias)
    wanted = cases.weighed(scores, allowed & mask if masked else allowed, inputs[2])
    found = cases.capped_by_tiles([*arrays, mask] if masked else arrays, inputs[2], lower, upper)
    assert error(found, wanted) < 1e-12
    for got, want in zip(gradients(found, inputs), gradients(wanted, inputs), strict=True):
        assert error(got, want) < 1e-11


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_tiles_in_a_graph_look_at_no_bounds(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is captured goes over all keys, and hears those that the bounds say; one that nobody hears may be NaN."""
    query, key, value, bias = drawn((2, 2, 3, 4), (2, 2, 9, 4), (2, 2, 9, 5), (3, 9))
    lower, upper = torch.tensor([0, 2, 4]), torch.tensor([5, 7, 4])
    mask = drawn((3, 9), seed=5)[0] < 0.5
    arrays = [query, key, bias, mask] if masked else [query, key, bias]
    wanted = cases.capped_by_tiles(arrays, value, lower, upper)
    for array in (key, value):
        array[:, :, 7:] = math.nan
    monkeypatch.setattr(torch_fold, "is_captured", lambda tensor: True)
    assert error(cases.capped_by_tiles(arrays, value, lower, upper), wanted) < 1e-12
    assert torch_fold.number_of(upper.max(), 9) == 9


@pytest.mark.parametrize("level", [1e10, -1e30, -3.4e38])
def test_tiles_of_large_scores(level: float) -> None:
    """What all scores of a row share cancels to the last digit."""
    program = ix.compile("""
        input a[j], V[j, e], Q[i], K[j];
        let w[i, j] = softmax[j](tanh(Q[i] * K[j]) + a[j]);
        let out[i, e] = sum[j](w[i, j] * V[j, e]);
    """)
    a, V, Q, K = torch.full((1200,), level), torch.randn(1200, 3), torch.randn(1200), torch.randn(1200)
    a[7] = level * (0.5 if level < 0 else 2)
    given = (a, V, Q, K)
    assert "stream" in str(program.plan(*given))
    torch.testing.assert_close(program(*given), V[7].expand(1200, 3))


def test_tiles_gradients_by_differences() -> None:
    query, key, value, bias = asking(drawn((2, 2, 5, 3), (2, 2, 6, 3), (2, 2, 6, 2), (5, 6)))
    bounds = torch.zeros(5, dtype=torch.int64), torch.arange(5) + 1

    def attend(q: Any, k: Any, b: Any, v: Any) -> Any:
        return cases.capped_by_tiles([q, k, b], v, *bounds)

    assert torch.autograd.gradcheck(attend, (query, key, bias, value))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_tiles_error_is_that_of_the_library(dtype: torch.dtype) -> None:
    size, width = 700, 32
    inputs = asking(drawn(*[(1, 2, size, width)] * 3, dtype=dtype))
    bias = torch.zeros(size, size, dtype=dtype)
    exact = asking(inputs, dtype=torch.float64)
    allowed = hearings(1, 1, size, size)["causal"].allowed()
    truth = cases.weighed(cases.capped(exact[0], exact[1], bias.double()), allowed, exact[2])
    eager = cases.weighed(cases.capped(inputs[0], inputs[1], bias), allowed, inputs[2])
    bounds = torch.zeros(size).long(), torch.arange(size) + 1
    found = cases.capped_by_tiles([inputs[0], inputs[1], bias], inputs[2], *bounds)
    assert found.dtype == dtype
    assert error(found, truth) <= 1.5 * error(eager, truth)
    for got, peer, want in zip(
        *(gradients(out, by) for out, by in ((found, inputs), (eager, inputs), (truth, exact))), strict=True
    ):
        assert error(got, want) <= 4 * error(peer, want)


def test_tiles_does_not_read_what_nobody_hears() -> None:
    query, key, value = tensors("more keys")
    bias = torch.zeros(60, 800, dtype=torch.float64)
    mask = drawn((60, 800))[0] < 0
    mask[:, 100:130] = mask[:, 500:] = False
    mask[7] = False
    bad = asking(spoiled((query, key, value), mask.expand(2, 2, -1, -1)))
    bounds = torch.full((60,), 20), torch.full((60,), 1000)
    bad[1].data[:, :, :20] = math.nan
    found = cases.capped_by_tiles([bad[0], bad[1], bias, mask], bad[2], *bounds)
    assert torch.equal(found, cases.capped_by_tiles([query, key, bias, mask], value, *bounds))
    assert not found[:, :, 7].any()
    parts = gradients(found, bad)
    assert all(bool(part.isfinite().all()) for part in parts)
    assert not parts[0][:, :, 7].any()


def test_tiles_ignores_scores_that_are_not_allowed() -> None:
    """A score may be anything, NaN too, where its guard does not hold."""
    (value,) = asking(drawn((1, 300, 2)))
    program = ix.compile("""
        input V[h, j, e], s[i];
        let w[i, j] = softmax[j](s[i] * log(i - j + 1)) where j <= i;
        let out[h, i, e] = sum[j](w[i, j] * V[h, j, e]);
    """)
    found = program(value, torch.ones(300, dtype=torch.float64))
    steps = (torch.arange(300)[:, None] - torch.arange(300) + 1.0).double().clamp(min=0)
    wanted = (steps / steps.sum(-1, keepdim=True)) @ value
    assert error(found, wanted) < 1e-12
    assert error(gradients(found, [value])[0], gradients(wanted, [value])[0]) < 1e-12


@pytest.mark.parametrize(("rows", "keys", "heads"), [(0, 5, 2), (5, 0, 2), (5, 5, 0)])
def test_tiles_of_empty_axes(rows: int, keys: int, heads: int) -> None:
    inputs = asking(drawn((1, heads, rows, 4), (1, heads, keys, 4), (1, heads, keys, 3)))
    bias = torch.zeros(rows, keys, dtype=torch.float64)
    found = cases.capped_by_tiles([*inputs[:2], bias], inputs[2], torch.zeros(rows).long(), torch.full((rows,), keys))
    assert found.shape == (1, heads, rows, 3)
    assert not found.any()
    assert not any(part.any() for part in gradients(found, inputs))
