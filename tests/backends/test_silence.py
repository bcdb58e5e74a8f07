"""Who hears nobody gets nothing, and what nobody may hear changes nothing, on every path, there and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.backends.drawing import as_numpy, compiled, draw, gradients, grown, is_real, learning  # noqa: E402

import indexical as ix  # noqa: E402

pytestmark = pytest.mark.sampled(4)

NAMES = """causal|strictly causal|the future|two-sided window|window for each query|prefix|sinks and window|dilated
|blocks|documents, unsorted, causal|documents in a window|documents of two sides|lengths, causal|key padding mask
|mask for each head|nobody|ALiBi|bias|relative bias|bias in documents|soft cap|soft cap under a mask|additive|cosine
|temperature of a query|cap from a tensor|cross, aligned, fewer keys|weighted by name""".replace("\n", "").split("|")
# Under these guards some rows hear nobody, or some keys are heard by nobody.
EMPTY_ROWS = """causal, three behind|strictly causal|earlier blocks|documents of two sides|lengths|lengths, causal
|padding on the left|key padding mask, causal|mask|mask for each batch|mask for each head|nobody|window for each query
|bias under a mask|soft cap under a mask|cross, aligned, fewer keys""".replace("\n", "").split("|")
UNHEARD_KEYS = """causal, three behind|strictly causal|documents of two sides|lengths|lengths, causal
|padding on the left|key padding mask|key padding mask, causal|mask|mask for each batch|mask for each head|nobody
|bias under a mask|soft cap under a mask|cross, causal, more keys""".replace("\n", "").split("|")

FLOWS_BACK = pytest.mark.xfail(strict=True, reason="no gradient times a key that is NaN")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def hears(name: str, arrays: dict[str, Any]) -> Any:
    """Who hears whom: [b, h, i, j], by the weights."""
    return compiled(name)(**arrays, outputs="weights", isolate=True) != 0


def spoilt(arrays: dict[str, Any], letters: str, where: Any, bad: float) -> dict[str, Any]:
    """Copies with gradients, in which some places of some arrays hold what is no finite number."""
    found = {}
    for key, array in arrays.items():
        found[key] = array.detach().clone() if is_real(array) else array
        if key in letters:
            found[key][where] = bad
    learning(found)
    return found


@pytest.mark.parametrize("name", EMPTY_ROWS)
@pytest.mark.parametrize("size", [9, 200])
def test_rows_that_hear_nobody_are_zero_with_zero_gradient(name: str, size: int) -> None:
    program, arrays = compiled(name), draw(name, **grown(name, size))
    silent = ~hears(name, arrays).any(-1)
    assert bool(silent.any())
    learned = learning(arrays)
    for isolate in (False, True) if size == 9 else (False,):
        out = program(**arrays, isolate=isolate)
        assert not bool(out[silent].any())
        for gradient in torch.autograd.grad(out[silent].sum(), learned, allow_unused=True, retain_graph=True):
            assert gradient is None or not bool(gradient.any())
        for gradient in gradients(out, learned):
            assert bool(gradient.isfinite().all())
        assert not bool(gradients(out, [arrays["Q"]])[0][silent].any())
    with torch.no_grad():
        assert not bool(program(**arrays)[silent].any())
    assert not program(**as_numpy(arrays))[silent.numpy()].any()


def test_rows_of_a_hand_made_softmax_that_hear_nobody_are_nan() -> None:
    name = "hand-made, strictly causal"
    program, arrays = compiled(name), draw(name)
    learned = learning(arrays)
    for out in (program(**arrays), program(**arrays, isolate=True)):
        assert bool(out[:, :, 0].isnan().all())
        assert not bool(out[:, :, 1:].isnan().any())
    assert np.isnan(program(**as_numpy(arrays))[:, :, 0]).all()
    for gradient in gradients(program(**arrays)[:, :, 1:], learned):
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("letters", ["K", "V", "KV"])
@pytest.mark.parametrize("name", UNHEARD_KEYS)
@pytest.mark.parametrize("size", [9, 200])
def test_what_nobody_hears_changes_nothing(name: str, letters: str, size: int) -> None:
    program, arrays = compiled(name), draw(name, **grown(name, size))
    unheard = ~hears(name, arrays).any(-2)
    assert bool(unheard.any())
    before = spoilt(arrays, "", None, 0.0)
    out = program(**before)
    flowed = gradients(out, [array for array in before.values() if is_real(array)])
    with torch.no_grad():
        plain = program(**before)
    for bad in (math.nan, math.inf) if size == 9 else (math.nan,):
        after = spoilt(arrays, letters, unheard, bad)
        again = program(**after)
        assert torch.equal(again, out)
        for one, other in zip(gradients(again, [a for a in after.values() if is_real(a)]), flowed, strict=True):
            assert torch.equal(one, other)
        with torch.no_grad():
            assert torch.equal(program(**after), plain)
        assert np.array_equal(program(**as_numpy(after)), program(**as_numpy(before)))


@pytest.mark.parametrize("name", NAMES)
def test_isolated_it_reaches_nobody_who_may_not_hear_it(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    heard = hears(name, arrays)
    before = program(**arrays, isolate=True)
    there = program(**as_numpy(arrays), isolate=True)
    for key in (0, 2, heard.shape[-1] - 1):
        deaf = ~heard[..., key]
        for letter, bad in (("K", math.nan), ("V", math.nan), ("K", math.inf), ("V", -math.inf)):
            after = spoilt(arrays, letter, (slice(None), slice(None), key), bad)
            assert torch.equal(program(**after, isolate=True)[deaf], before[deaf])
            assert np.array_equal(program(**as_numpy(after), isolate=True)[deaf.numpy()], there[deaf.numpy()])


@pytest.mark.parametrize("name", ["full", "causal", "window", "mask", "ALiBi", "soft cap"])
def test_isolated_a_query_spoils_itself_alone(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    before = program(**arrays, isolate=True)
    after = program(**spoilt(arrays, "Q", (slice(None), slice(None), 4), math.nan), isolate=True)
    rest = [row for row in range(before.shape[2]) if row != 4]
    assert torch.equal(after[:, :, rest], before[:, :, rest])


@pytest.mark.parametrize("name", ["causal", "window", "mask", "ALiBi", "soft cap", "lengths"])
def test_isolated_it_is_what_the_reference_says(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    for letter in "KV":
        after = spoilt(arrays, letter, (slice(None), slice(None), 2), math.nan)
        meaning = program(**as_numpy(after), backend="reference")
        for out in (program(**after, isolate=True).detach().numpy(), program(**as_numpy(after), isolate=True)):
            np.testing.assert_allclose(out, meaning, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("letter", [pytest.param("K", marks=FLOWS_BACK), "V"])
@pytest.mark.parametrize("name", ["causal", "window", "mask", "ALiBi", "soft cap"])
def test_isolated_no_gradient_of_who_may_not_hear_it_is_spoilt(name: str, letter: str) -> None:
    program, arrays = compiled(name), draw(name)
    deaf = ~hears(name, arrays)[..., 2]
    before, after = spoilt(arrays, "", None, 0.0), spoilt(arrays, letter, (slice(None), slice(None), 2), math.nan)
    wanted, found = (gradients(program(**given, isolate=True)[deaf], [given["Q"]])[0] for given in (before, after))
    assert torch.equal(found[deaf], wanted[deaf])


@pytest.mark.parametrize(
    "taken", ["t[i]", "exp(t[i])", "floor(t[i])", "t[i] ** 2", "sqrt(t[i])", "t[i] as f64", "clamp(t[i], 0, 1 / m[j])"]
)
def test_the_least_of_nothing_flows_back_into_nothing(taken: str) -> None:
    """For the first `i` it is infinite, under any function: no gradient is multiplied with that."""
    definitions = "let t[i in 0..size(j)] = min[j](x[j] * x[j] where j < i);"
    program = ix.compile(
        f"input x[j], m[j]; {definitions} let out[i in 0..size(j), j] = ({taken}) * m[j] where j < i;"
    )
    leaves = [torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True) for _ in range(2)]
    program(*leaves).sum().backward()
    assert all(torch.isfinite(leaf.grad).all() for leaf in leaves)


def test_the_plan_warns_of_values_that_are_not_finite() -> None:
    shown = str(compiled("window").plan(**draw("window")))
    assert "`isolate=True` keeps them apart" in shown
    assert "isolated" in str(compiled("window").plan(**draw("window"), isolate=True))
