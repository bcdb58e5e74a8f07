"""Why outputs are off: each way of being off is made with NumPy alone, and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import indexical as ix

CAUSAL = """input Q[h, i, d], K[h, j, d], V[h, j, e];
let scores[h, i, j]  = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
let weights[h, i, j] = softmax[j](scores[h, i, j]) where j <= i;
let out[h, i, e]     = sum[j](weights[h, i, j] * V[h, j, e]);"""

N, D = 24, 8
Q, K, V = np.random.default_rng(3).standard_normal((3, 2, N, D)).astype(np.float16)
LOWER = np.tril(np.ones((N, N), bool))

Step = Callable[[Any], Any]


def half(x: Any) -> Any:
    return x.astype(np.float16).astype(np.float64)


def attend(
    scores: Step = lambda s: s,
    weights: Step = lambda w: w,
    dot: Step = lambda s: s,
    mask: Any = LOWER,
    added: float = -np.inf,
    raised: Step = lambda p: p,
    inputs: Step = lambda x: x,
    scale: float = 1 / np.sqrt(D),
) -> Any:
    """Attention in f64, with steps of one's own."""
    q, k, v = (inputs(x.astype(np.float64)) for x in (Q, K, V))
    s = scores(dot(q @ k.swapaxes(-1, -2)) * scale)
    s = np.where(mask, s, s + added if np.isfinite(added) else -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    return raised(p) @ v / p.sum(-1, keepdims=True) if raised(p) is not p else weights(p / p.sum(-1, keepdims=True)) @ v


def named(computed: Any, text: str = CAUSAL, **inputs: Any) -> tuple[str, ...]:
    (output,) = ix.accuracy(text, computed=computed, **(inputs or {"Q": Q, "K": K, "V": V})).outputs
    return tuple(reason.kind for reason in output.reasons)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "output rounding"),
        ({"weights": half}, "weights"),
        ({"raised": half}, "weights"),
        ({"scores": half}, "scores"),
        ({"dot": half}, "scores"),
        ({"dot": half, "scores": half, "weights": half}, "scores and weights"),
        ({"mask": np.ones((N, N), bool)}, "mask"),
        ({"mask": ~LOWER | np.eye(N, dtype=bool)}, "mask"),
        ({"mask": np.tril(np.ones((N, N), bool), 1)}, "mask"),
        ({"added": -7.3}, "mask"),
        ({"scale": 1.0}, "scale"),
        ({"scale": 1 / D}, "scale"),
        ({"scale": 0.3}, "scale"),
    ],
)
def test_the_step_is_named(options: dict[str, Any], kind: str) -> None:
    turned = options.get("mask") is not None and not options["mask"][1, 0]
    text = CAUSAL.replace("j <= i", "j < i") if turned else CAUSAL
    if turned:
        options = {"mask": ~np.tril(np.ones((N, N), bool), -1)}
    assert named(attend(**options).astype(np.float16), text)[0] == kind


def test_what_is_added_or_multiplied_is_found() -> None:
    leak = ix.accuracy(CAUSAL, Q, K, V, computed=attend(added=-7.3).astype(np.float16))
    assert "about -7.3 is added" in str(leak)
    scale = ix.accuracy(CAUSAL, Q, K, V, computed=attend(scale=0.3).astype(np.float16))
    assert f"about {0.3 * np.sqrt(D):.3g} times" in str(scale)


def test_a_row_that_hears_nobody_and_an_added_mask() -> None:
    strict = CAUSAL.replace("j <= i", "j < i")
    computed = attend(mask=np.tril(LOWER, -1), added=-65504.0).astype(np.float16)
    sheet = ix.accuracy(strict, Q, K, V, computed=computed)
    assert sheet["out"].reasons[0].kind == "mask"
    assert sheet["out"].reasons[0].share == pytest.approx(1, abs=1e-3)


def test_a_row_that_hears_nobody_and_is_nan() -> None:
    with np.errstate(invalid="ignore"):
        computed = attend(mask=np.tril(LOWER, -1)).astype(np.float16)
    sheet = ix.accuracy(CAUSAL.replace("j <= i", "j < i"), Q, K, V, computed=computed)
    assert sheet["out"].wrong == 2 * D
    assert "hears nobody is NaN" in str(sheet)


def test_scores_that_overflow() -> None:
    with np.errstate(all="ignore"):
        large = (np.float16(200) * Q, np.float16(200) * K)
        products = half(large[0].astype(float) @ large[1].astype(float).swapaxes(-1, -2))
        s = np.where(LOWER, products / np.sqrt(D), -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        computed = (p / p.sum(-1, keepdims=True) @ V.astype(float)).astype(np.float16)
        assert np.isnan(computed).any()
        sheet = ix.accuracy(CAUSAL, *large, V, computed=computed)
    assert sheet["out"].wrong
    assert sheet["out"].reasons[0].kind.startswith("scores")


def test_32_bits() -> None:
    q, k, v = np.random.default_rng(4).standard_normal((3, 2, N, D)).astype(np.float32)
    inputs = {"Q": q, "K": k, "V": v}
    (run,) = ix.accuracy(CAUSAL, **inputs).outputs
    assert run.reasons[0].kind == "arithmetic"

    def tensor_float(x: Any) -> Any:
        bits = x.astype(np.float32).view(np.uint32)
        return ((bits + np.uint32(0xFFF) + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32).astype(float)

    program = ix.compile(CAUSAL)
    rounded = {name: tensor_float(x) for name, x in inputs.items()}
    assert named(program(**rounded).astype(np.float32), **inputs)[0] == "inputs"
    assert named(program(**inputs).astype(np.float16).astype(np.float32), **inputs) == ("stored wider",)


def test_cancellation_is_said_with_its_terms() -> None:
    text = "input x[i], y[i]; let d[i] = x[i] - y[i]; let z = sum[i](d[i] * d[i]); let out = x[0] - x[1];"
    x = np.array([1.0, np.nextafter(np.float16(1), np.float16(2)), *range(2, 12)], np.float16)
    sheet = ix.accuracy(text, x, x, computed=np.float16(-0.0005), outputs="out")
    assert [reason.kind for reason in sheet["out"].reasons][-1] == "cancellation"
    assert "terms of 2 in all cancel to 0.000977" in str(sheet)


def test_a_recurrence_is_measured_and_its_reason_not_looked_for() -> None:
    text = "input x[t]; let y[0] = x[0]; let y[t in 1..size(t)] = 0.9 * y[t - 1] + x[t];"
    assert named(np.zeros(4, np.float32), text, x=np.ones(4, np.float32)) == ("not tried",)


@pytest.mark.parametrize(
    ("computed", "options", "code", "words"),
    [
        (np.zeros((N, 2, D)), {}, "IX304", "axes are in another order"),
        (np.zeros((1, 2, N, D)), {}, "IX304", "reshape it to"),
        (np.zeros((2, N)), {}, "IX304", "h = 2, i = 24, e = 8"),
        (np.zeros((2, N, D), int), {}, "IX503", "real numbers"),
        ({"oout": np.zeros(3)}, {}, "IX508", "did you mean `out`?"),
        (np.full((2, N, D), 0.1), {"dtype": "bf16"}, "IX503", "0.1 for one"),
        (np.zeros((2, N, D)), {"dtype": "i32"}, "IX515", "cannot be"),
        ("three", {}, "IX504", "no array"),
        (np.zeros((2, N, D)), {"outputs": ["out", "weights"]}, "IX515", '"weights": …'),
        (np.zeros((2, N, D)), {"backend": "numpy"}, "IX515", "nothing is run"),
    ],
)
def test_what_does_not_fit_is_explained(computed: Any, options: Any, code: str, words: str) -> None:
    with pytest.raises(ix.CallError) as caught:
        ix.accuracy(CAUSAL, Q, K, V, computed=computed, **options)
    assert caught.value.diagnostics[0].code == code
    assert words in str(caught.value)


def test_several_outputs_lists_and_tensors() -> None:
    text = "input x[i]; let y[i] = x[i] / 3; let z = sum[i](x[i]);"
    sheet = ix.accuracy(text, np.array([1.0, 2.0]), computed={"y": [1 / 3, 2 / 3], "z": 3})
    assert [output.name for output in sheet.outputs] == ["y", "z"]
    assert sheet.within(0.5)
    assert not ix.accuracy(text, np.array([1.0, 2.0]), computed={"z": 3.1}).within(1e6)
    torch = pytest.importorskip("torch")
    computed = torch.tensor([1 / 3, 2 / 3]).bfloat16()
    (output,) = ix.accuracy(text, np.array([1.0, 2.0]), computed={"y": computed}).outputs
    assert (output.dtype, output.wrong, output.measured) == ("bf16", 0, 2)
