"""Calls over few pairs of a query and a key: they say the same as tiles do, and switch where the plan says.

The tests of kernels that follow here by name are run once more, with all pairs called few.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.backends import drawing, test_gradients  # noqa: E402
from tests.backends.drawing import as_numpy, compiled, distance, draw, gradients, learning  # noqa: E402
from tests.backends.test_attention import NAMES, test_sizes_of_nothing  # noqa: E402
from tests.backends.test_gradients import test_narrow_numbers  # noqa: E402
from tests.backends.test_silence import (  # noqa: E402
    UNHEARD_KEYS,
    test_rows_that_hear_nobody_are_zero_with_zero_gradient,
)
from tests.backends.test_silence import test_what_nobody_hears_changes_nothing as nothing_changes  # noqa: E402
from tests.pairs import ALL, called_few  # noqa: E402

import indexical as ix  # noqa: E402
from indexical.backends.kernels import torch_masked  # noqa: E402

pytestmark = pytest.mark.sampled(6)

__all__ = (
    "test_narrow_numbers",
    "test_rows_that_hear_nobody_are_zero_with_zero_gradient",
    "test_sizes_of_nothing",
)

HEAD = "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]"
DOT = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
GATHER = "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);"


def attention(score: str = DOT, guard: str = "", more: str = "") -> str:
    where = f" where {guard}" if guard else ""
    return f"{HEAD}{more}; let weights[b, h, i, j] = softmax[j]({score}){where}; {GATHER}"


CAPPED = f"5 * tanh({DOT} / 5)"
GIVEN = ", allowed[i, j] : bool"
# Texts, and the further arrays that they take.
TEXTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "window": (attention(guard="i - 5 < j <= i"), ()),
    "prefix": (attention(guard="j < 4 || j <= i"), ()),
    "documents": (attention(guard="part[b, i] == part[b, j]", more=", part[b, p] : i64"), ("part",)),
    "mask": (attention(guard="allowed[i, j]", more=GIVEN), ("allowed",)),
    "bias": (attention(f"{DOT} + slope[h] * (j - i)", "j <= i", ", slope[h]"), ("slope",)),
    "strictly causal": (attention(guard="j < i"), ()),
    "cap": (attention(CAPPED, "j <= i"), ()),
    "cap under a mask": (attention(CAPPED, "allowed[i, j]", GIVEN), ("allowed",)),
    "learned bias": (attention(f"{DOT} + bias[h, i, j]", more=", bias[h, i, j]"), ("bias",)),
}
MASKS = ("window", "prefix", "documents", "mask", "bias", "strictly causal")
SCORED = ("cap", "cap under a mask", "learned bias")


@pytest.fixture(autouse=True)
def many_pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In place of the one for all other tests: all pairs are few, for programs that nobody has called before."""
    monkeypatch.setattr(drawing, "_compiled", {})
    monkeypatch.setattr(test_gradients, "_derived", {})
    with called_few(ALL):
        yield


@pytest.mark.parametrize("name", NAMES[::3])
def test_every_third_variant_is_the_relation_written_out(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    learned = learning(arrays)
    found, written = program(**arrays), program(**arrays, isolate=True)
    assert distance(found, program(**as_numpy(arrays), backend="reference")) <= 1e-12
    if name != "hand-made, strictly causal":  # its first row is NaN
        for ours, theirs in zip(gradients(found, learned), gradients(written, learned), strict=True):
            assert distance(ours, theirs) <= 1e-10


@pytest.mark.parametrize("name", UNHEARD_KEYS)
def test_a_key_that_nobody_hears_changes_nothing(name: str) -> None:
    nothing_changes(name, "KV", 9)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls over few pairs, as they are made: by a mask, by products, or back."""
    calls: list[str] = []

    def listening(module: Any, name: str) -> Any:
        function = getattr(module, name)

        def listen(*given: Any, **words: Any) -> Any:
            calls.append(name)
            return function(*given, **words)

        return listen

    monkeypatch.setattr(torch_masked, "attend_masked_backward", listening(torch_masked, "attend_masked_backward"))
    monkeypatch.setattr(torch, "softmax", listening(torch, "softmax"))
    library = listening(torch.nn.functional, "scaled_dot_product_attention")
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", library)
    return calls


def drawn(size: int, more: tuple[str, ...]) -> list[Any]:
    generator = torch.Generator().manual_seed(size)
    arrays = [torch.randn(2, 3, size, 4, generator=generator, dtype=torch.float64) for _ in range(3)]
    allowed = torch.rand(size, size, generator=generator) < 0.4
    further = {
        "part": (torch.arange(size) * 3 // size).expand(2, size),
        "allowed": allowed | torch.eye(size, dtype=torch.bool),
        "slope": torch.rand(3, generator=generator, dtype=torch.float64),
        "bias": torch.randn(3, size, size, generator=generator, dtype=torch.float64),
    }
    return [*arrays, *(further[name] for name in more)]


def there_and_back(text: str, arrays: list[Any], learned: int = 3, **flags: Any) -> list[torch.Tensor]:
    given = [array.clone() for array in arrays]
    leaves = [array.requires_grad_() for array in given[:learned]]
    out = ix.compile(text)(*given, **flags)
    return [out.detach(), *gradients(out, leaves)]


@pytest.mark.parametrize("size", [7, 16])
@pytest.mark.parametrize("name", [*MASKS, *SCORED])
def test_there_are_as_many_scores_as_the_plan_says(name: str, size: int, small: list[str]) -> None:
    text, more = TEXTS[name]
    arrays, points, learned = drawn(size, more), 6 * size**2, 4 if name == "learned bias" else 3
    way = ["softmax" if name in SCORED else "scaled_dot_product_attention"]
    with called_few(points):
        assert f"at most {points:,} scores" in str(ix.compile(text).plan(*arrays))
        kept = there_and_back(text, arrays, learned)
    assert small == way
    with called_few(points - 1):
        streamed = there_and_back(text, arrays, learned)
    assert small == way
    for ours, blocks, apart in zip(kept, streamed, there_and_back(text, arrays, learned, isolate=True), strict=True):
        torch.testing.assert_close(ours, apart, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(blocks, apart, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in MASKS if name != "bias"])
def test_derivatives_switch_with_it(name: str, small: list[str]) -> None:
    text, more = TEXTS[name]
    arrays, points = drawn(9, more), 6 * 81
    cotangent = torch.randn(2, 3, 9, 4, dtype=torch.float64)

    def derived(**flags: Any) -> Any:
        program = ix.grad(ix.compile(text), of="out", by=["Q", "K", "V"])
        names = ("Q", "K", "V", *more, "d_out")
        given = dict(zip(names, (*arrays, cotangent), strict=True))
        return program(**{name: given[name] for name in program.inputs}, **flags)

    found = []
    for pairs in (points, points - 1):
        with called_few(pairs):
            found.append(derived())
    assert small == ["attend_masked_backward"]
    for ours, tiles, apart in zip(*found, derived(isolate=True), strict=True):
        torch.testing.assert_close(ours, apart, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(tiles, apart, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [256, 257])
def test_where_a_window_becomes_intervals(size: int, small: list[str]) -> None:
    text, _ = TEXTS["window"]
    q, k, v = drawn(size, ())
    program = ix.compile(text)
    with called_few(6 * 256**2), torch.no_grad():
        found = program(q, k, v)
    assert small == (["scaled_dot_product_attention"] if size == 256 else [])
    torch.testing.assert_close(found, program(q, k, v, isolate=True), rtol=1e-9, atol=1e-9)


def test_a_score_of_a_key_that_nobody_hears_is_not_differentiated(small: list[str]) -> None:
    text, more = TEXTS["cap under a mask"]
    arrays = drawn(9, more)
    arrays[3][:, 4] = False
    expected = there_and_back(text, arrays)
    arrays[1][:, :, 4] = float("inf")
    for ours, clean in zip(there_and_back(text, arrays), expected, strict=True):
        assert torch.equal(ours, clean)
    assert small == ["softmax"] * 2


def test_a_query_that_hears_nobody_is_not_read(small: list[str]) -> None:
    text, more = TEXTS["mask"]
    arrays = drawn(9, more)
    arrays[3][2] = False
    expected = there_and_back(text, arrays)
    arrays[0][:, :, 2] = float("nan")
    for ours, clean in zip(there_and_back(text, arrays), expected, strict=True):
        assert torch.equal(ours, clean)
    assert small == ["scaled_dot_product_attention"] * 2
    assert not expected[0][:, :, 2].any()


def test_few_pairs_have_a_second_derivative_under_functions() -> None:
    text, _ = TEXTS["window"]
    program = ix.compile(text)
    q, k, v = drawn(6, ())

    def total(x: Any, isolate: bool) -> Any:
        return program(x, k, v, isolate=isolate).pow(2).sum()

    second = [torch.func.grad(lambda x: torch.func.grad(total)(x, isolate).sum())(q) for isolate in (False, True)]  # noqa: B023
    torch.testing.assert_close(*second, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["window", "mask", "cap"])
def test_few_pairs_are_mapped_over(name: str) -> None:
    text, more = TEXTS[name]
    program = ix.compile(text)
    q, k, v, *further = drawn(6, more)
    several = torch.stack([q, 2 * q, -q])
    mapped = torch.func.vmap(lambda x: program(x, k, v, *further))(several)
    torch.testing.assert_close(mapped, torch.stack([program(x, k, v, *further) for x in several]), rtol=1e-9, atol=1e-9)


def test_one_graph_with_a_mask() -> None:
    torch._dynamo.reset()
    program = ix.compile(TEXTS["mask"][0])
    compiled = torch.compile(lambda *arrays: program(*arrays), backend="eager", fullgraph=True)
    for size in (9, 12):
        arrays = drawn(size, ("allowed",))
        arrays[3][1] = False
        torch.testing.assert_close(compiled(*arrays), program(*arrays, isolate=True), rtol=1e-9, atol=1e-9)


def test_learned_arrays_get_their_gradient_over_few_pairs() -> None:
    text, more = TEXTS["bias"]
    arrays = drawn(8, more)
    for ours, apart in zip(there_and_back(text, arrays, 4), there_and_back(text, arrays, 4, isolate=True), strict=True):
        torch.testing.assert_close(ours, apart, rtol=1e-9, atol=1e-9)
