"""PyTorch callables as programs: what is printed, that it is the same, and what it runs on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import indexical as ix

torch = pytest.importorskip("torch")

from tests.lift import callables as written  # noqa: E402


def drawn(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def heads(count: int = 3, points: int = 6) -> tuple[Any, Any, Any]:
    return drawn(2, count, points, 8), drawn(2, count, points, 8), drawn(2, count, points, 8)


def body(program: ix.Program) -> list[str]:
    """The definitions of a program, without the spaces of its layout."""
    text = " ".join(str(program).split())
    return [" ".join(part.replace("let ", "").split()) for part in text.split(";") if part.strip().startswith("let ")]


ATTENTION = [
    "scores[b, h, i, j] = sum[d](q[b, h, i, d] * k[b, h, j, d]) / sqrt(size(d))",
    "weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i",
    "out[b, h, i, e] = sum[j](weights[b, h, i, j] * v[b, h, j, e])",
]
PROJECTED = [
    "scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))",
    "weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i",
    "heard[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e])",
]

# The callable, an example, and lines that its relation has.
STYLES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "plain": (written.plain, heads(), ATTENTION),
    "fused and cut": (
        written.Fused(),
        (drawn(2, 5, 12),),
        [
            "Q[b, h, i, d] = sum[c](x[b, i, c] * project_weight_Q[h, d, c]) + project_bias_Q[h, d]",
            *PROJECTED,
            "out[b, i, c] = sum[h, e](heard[b, h, i, e] * mix_weight[c, h, e]) + mix_bias[c]",
        ],
    ),
    "separate, with view and transpose": (
        written.Separate(),
        (drawn(2, 5, 12), drawn(2, 7, 12), drawn(2, 7, 12), torch.ones(2, 5, 7).tril().int()),
        [
            "K[b, h, j, d] = sum[c](k[b, j, c] * key_weight[h, d, c])",
            "weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where mask[b, i, j] != 0",
        ],
    ),
    "einsum": (
        written.einsums,
        (drawn(2, 5, 3, 8), drawn(2, 7, 3, 8), drawn(2, 7, 3, 8), torch.arange(7) < torch.tensor([[5], [7]])),
        [
            "scores[b, h, i, j] = sum[d](q[b, i, h, d] * k[b, j, h, d]) / sqrt(size(d))",
            "weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where keep[b, j]",
            "out[b, i, h, e] = sum[j](weights[b, h, i, j] * v[b, j, h, e])",
        ],
    ),
    "batch second": (
        torch.nn.MultiheadAttention(12, 3).eval(),
        (drawn(5, 2, 12), drawn(7, 2, 12), drawn(7, 2, 12)),
        [
            "K[b, h, j, d] = sum[c](key[j, b, c] * in_proj_weight_K[h, d, c]) + in_proj_bias_K[h, d]",
            PROJECTED[0],
            "out[i, b, c] = sum[h, e](heard[b, h, i, e] * out_proj_weight[c, h, e]) + out_proj_bias[c]",
            "out_2[b, i, j] = mean[h](weights[b, h, i, j])",
        ],
    ),
    "grouped": (
        written.grouped,
        (drawn(2, 4, 6, 8), drawn(2, 2, 6, 8), drawn(2, 2, 6, 8)),
        ["scores[b, h, i, j] = sum[d](q[b, h, i, d] * k[b, h / 2, j, d]) / sqrt(size(d))", ATTENTION[1]],
    ),
}

OTHERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "rotary halves": (written.rotary_halves, (*heads(), drawn(6, 8), drawn(6, 8)), ["if d < size(d) / 2"]),
    "rotary pairs": (written.rotary_pairs, heads(), ["Q[b, h, i, d in 0..size(c) / 2, f in 0..2]"]),
    "cache": (
        written.cached,
        (drawn(2, 3, 4, 8), drawn(2, 3, 4, 8), drawn(2, 3, 4, 8), drawn(2, 3, 6, 8), drawn(2, 3, 6, 8)),
        ["where j <= i + size("],
    ),
    "window": (written.window, heads(points=9), ["where j <= i, i - j < 4"]),
    "documents": (
        written.documents,
        (*heads(points=6), torch.arange(6).expand(2, 6) // 3),
        ["where ids[b, i] == ids[b, j]"],
    ),
    "soft cap and distance": (written.biased, (*heads(), drawn(3)), ["slopes[h] * (j - i)", "where j <= i"]),
    "softmax by hand": (written.by_hand, heads(), ["softmax[j](scores[b, h, i, j])"]),
    "packed arguments": (
        written.packed,
        (drawn(2, 5, 12), drawn(36, 12), drawn(12, 12)),
        ["w_K[h in 0..4, d in 0..size(c) / 4, c] = w[h * (size(c) / 4) + d + size(c), c]"],
    ),
    "block": (written.Block(), (drawn(2, 5, 12),), ["mean[", "gelu("]),
}


@pytest.mark.parametrize("style", STYLES)
def test_six_styles_print_what_a_person_would_write(style: str) -> None:
    function, example, lines = STYLES[style]
    program = ix.read(function, *example)
    found = body(program)
    assert [line for line in lines if line not in found] == []
    assert [finding for finding in program.diagnostics if finding.severity != "note"] == []
    assert "scaled_dot_product_attention" in str(program.plan(*example))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("style", OTHERS)
def test_other_habits_are_read(style: str) -> None:
    function, example, parts = OTHERS[style]
    program = ix.read(function, *example)
    text = " ".join(str(program).split())
    assert [part for part in parts if part not in text] == []
    assert [finding for finding in program.diagnostics if finding.severity != "note"] == []


def test_a_program_that_was_read_runs_on_other_sizes_and_trains() -> None:
    module = written.Fused()
    program = ix.read(module, drawn(2, 5, 12))
    for example in (drawn(3, 11, 12), drawn(1, 1, 12)):
        torch.testing.assert_close(program(example), module(example), atol=1e-5, rtol=1e-4)
    one, two = (drawn(2, 7, 12).requires_grad_() for _ in range(2))
    program(one).square().sum().backward()
    module(two).square().sum().backward()
    torch.testing.assert_close(one.grad, two.grad, atol=1e-4, rtol=1e-3)
    with torch.no_grad():
        module.mix.weight.mul_(2.0)
    torch.testing.assert_close(program(drawn(2, 7, 12)), module(drawn(2, 7, 12)), atol=1e-5, rtol=1e-4)


def test_arrays_and_keywords_are_taken_as_the_callable_takes_them() -> None:
    def halved(x: Any, times: int, *, y: Any) -> Any:
        return (x * times + y).sum(-1)

    program = ix.read(halved, drawn(3, 4).numpy(), 3, y=drawn(3, 4))
    assert program.inputs == ("x", "y")
    torch.testing.assert_close(program(drawn(5, 2), drawn(5, 2)), halved(drawn(5, 2), 3, y=drawn(5, 2)))


def test_parts_that_are_written_in_place_are_followed() -> None:
    def cached(q: Any, k: Any, cache: Any) -> Any:
        keys = cache.clone()
        keys[:, 2 : 2 + k.shape[1]] = k
        scores = q @ keys.mT
        scores /= q.shape[-1] ** 0.5
        scores.masked_fill_(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
        return scores.softmax(-1) @ keys

    text = str(ix.read(cached, drawn(2, 5, 8), drawn(2, 4, 8), drawn(2, 7, 8)))
    assert "where j <= i" in text
    assert "k[b, j - 2, e]" in text


def valued(q: Any) -> Any:
    return q if q.sum() > 0 else -q


def masked_in_place(q: Any) -> Any:
    rows = q.clone()
    first = rows[0]
    rows.mul_(2.0)
    return rows + first


def random(q: Any) -> Any:
    return torch.nn.functional.dropout(q, 0.5)


def sized(q: Any) -> Any:
    return q[q > 0]


def raising(q: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        (valued, "IX602", "depends on a value of the arrays"),
        (masked_in_place, "IX602", "changed in place"),
        (random, "IX602", "random"),
        (sized, "IX602", "no simple function of the sizes"),
        (raising, "IX601", "ValueError: no"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_line(function: Any, code: str, words: str) -> None:
    with pytest.raises(ix.Error) as caught:
        ix.read(function, drawn(3, 4))
    [finding] = caught.value.diagnostics
    assert finding.code == code
    assert words in finding.message
    if code == "IX602":
        assert finding.labels[0].span.source.name.endswith("test_reading.py")


def test_a_callable_that_changes_its_mind_is_not_believed() -> None:
    calls: list[int] = []

    def fickle(x: Any) -> Any:
        calls.append(0)
        return x if len(calls) < 9 else 2 * x

    with pytest.raises(ix.Error) as caught:
        ix.read(fickle, drawn(3, 4))
    assert caught.value.diagnostics[0].code == "IX603"


def test_einops_is_read_at_the_line_that_calls_it() -> None:
    einops = pytest.importorskip("einops")

    def attention(x: Any, w: Any) -> Any:
        q, k, v = einops.rearrange(x @ w, "b t (n h d) -> n b h t d", n=3, h=4)
        weights = (einops.einsum(q, k, "b h i d, b h j d -> b h i j") * q.shape[-1] ** -0.5).softmax(-1)
        return einops.rearrange(einops.einsum(weights, v, "b h i j, b h j d -> b h i d"), "b h i d -> b i (h d)")

    program = ix.read(attention, drawn(2, 5, 12), drawn(12, 36))
    assert PROJECTED[0] in body(program)
