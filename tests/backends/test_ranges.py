"""Ranges that no axis says: stated beside longer or shorter axes, and counted by named scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix
from indexical.run.kernel import Engine

pytestmark = pytest.mark.sampled(6)

Array = np.ndarray[Any, Any]
NUMBERS = np.random.default_rng(11)


def random(*shape: int) -> Array:
    return np.asarray(NUMBERS.uniform(-1.0, 1.0, shape))


@pytest.fixture(autouse=True)
def emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emitted code may refuse nothing here: where it does, the plain lowering would stand in for it."""

    def refuse(engine: Engine, call: Any, wanted: Any, problem: Exception) -> dict[str, Any]:
        raise AssertionError(problem.args)

    monkeypatch.setattr(Engine, "_run_plainly", refuse)


def check(text: str, arrays: dict[str, Any], by: tuple[str, ...] = ()) -> None:
    """Values and gradients are the reference's, of both libraries, isolated and not, and of the derived program."""
    program = ix.compile(text)
    given = {name: arrays[name] for name in program.inputs}
    right = program(**given, backend="reference")
    name = program.outputs[0]
    seed = np.cos(np.arange(right.size)).reshape(right.shape)
    back = ix.grad(program, of=name, by=by) if by else None
    grown = {**given, **({f"d_{name}": seed} if seed.ndim else {})}
    flown = () if back is None else back(**grown, backend="reference")
    flown = flown if isinstance(flown, tuple) else (flown,)
    for isolate in (False, True):
        for library in (np.asarray, torch.tensor):
            taken = {key: library(array) for key, array in given.items()}
            agree((program(**taken, isolate=isolate),), (right,), text)
            if back is not None:
                derived = back(**{key: library(array) for key, array in grown.items()}, isolate=isolate)
                agree(derived if isinstance(derived, tuple) else (derived,), flown, text)
        if by:
            leaves = {key: torch.tensor(given[key], requires_grad=key in by) for key in given}
            out = program(**leaves, isolate=isolate)
            seeded = torch.tensor(seed) if seed.ndim else torch.ones(())
            agree(torch.autograd.grad(out, [leaves[key] for key in by], seeded.to(out)), flown, text)


def agree(found: Any, right: Any, text: str) -> None:
    for one, other in zip(found, right, strict=True):
        assert tuple(one.shape) == tuple(other.shape), text
        np.testing.assert_allclose(one.detach() if hasattr(one, "detach") else one, other, 1e-9, 1e-12, err_msg=text)


# ------------------------------------------------------------------------------- stated beside a longer axis


SHORTER = {
    "literals": "let Y[q in 0..3] = 2.0 where g[q]; let y[q] = Y[q] * x[q + 1];",
    "literals, no own point": "let Y[q in 0..3] = 2.0 where u > 0.0; let y[q] = Y[q] * x[q + 1];",
    "a copy": "let Y[q in 0..3] = w[q] where g[q]; let y[q] = Y[q] * x[q + 1];",
    "counted": "let Y[q in 0..3] = q where w[q] > 0.0; let y[q] = Y[q] * x[q + 1];",
    "a sum": "let Y[q in 0..3] = 2.0 where g[q]; let y = sum[q](Y[q] * x[q + 1]);",
    "windows": "let Y[q in 0..3] = 2.0 where g[q]; let y[r in 0..3] = sum[q](Y[q] * x[q + r] where q <= r);",
    "through another": "let Y[q in 0..3] = 2.0 where g[q]; let Z[q] = 3.0 * Y[q]; let y[q] = Z[q] * x[q + 1];",
    "through a shorter one": "let Y[q in 0..3] = 2.0 where g[q]; let Z[k in 0..2] = Y[k]; let y[k] = Z[k] * x[k + 1];",
    "turned": "let Y[r in 0..2, q in 0..3] = 2.0 where g[q]; let y[q, r] = Y[r, q] * x[q + r];",
    "divided": "let Y[q in 0..3] = 2.0 where g[q]; let y[q] = Y[q] * 2.0 / (x[q + 1] + 3.0);",
    "accumulated": "let Y[q in 0..3] = 2.0 where g[q]; let y[q] = cumsum[q](Y[q] * x[q + 1]);",
    "chosen": "let Y[q in 0..3] = 2.0 where g[q]; let y[q] = if q > 0 { Y[q] } else { 1.0 } * x[q + 1];",
    "inlined": "fn f(a[q], s[r]) -> [q] { a[q] * s[q + 1] } let Y[q in 0..3] = 2.0 where g[q]; let y = f(Y, x);",
    "beyond the axis": "let Y[q in 0..9] = w[q] where q < 7; let y[q] = Y[q] * x[q];",
}


@pytest.mark.parametrize("name", SHORTER)
def test_a_guard_that_is_inherited_reads_its_own_axis(name: str) -> None:
    text = f"input g[q] : bool, w[q], u, x[p]; {SHORTER[name]}"
    heard = np.array([True, False, True, True, False, True, True])
    check(text, {"g": heard, "w": random(7), "u": np.array(0.5), "x": random(9)}, ("x",))


HEARD = {
    "in the values": "let Y[j in 0..6] = 2.0 where g[j]; let w[i, j] = softmax[j](s[i, j]) where j <= i;"
    "let out[i, e] = sum[j](w[i, j] * V[j, e] * Y[j]);",
    "of the query": "let Y[i in 0..5] = 2.0 where g[i]; let w[i, j] = softmax[j](s[i, j]) where j <= i;"
    "let out[i, e] = Y[i] * sum[j](w[i, j] * V[j, e]);",
    "a guard": "let Y[j in 0..6] = g[j]; let w[i, j] = softmax[j](s[i, j]) where Y[j], j <= i;"
    "let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "a length": "let Y[i in 0..5] = len[i]; let w[i, j] = softmax[j](s[i, j]) where j < Y[i];"
    "let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "a bias": "let Y[j in 0..6] = u[j]; let w[i, j] = softmax[j](s[i, j] + Y[j]) where j <= i;"
    "let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "masked values": "let W[j in 0..6, e] = 2.0 * V[j, e] where g[j]; let w[i, j] = softmax[j](s[i, j]) where j <= i;"
    "let out[i, e] = sum[j](w[i, j] * W[j, e]);",
    "no softmax": "let Y[j in 0..6] = 2.0 where g[j]; let out[i, e] = sum[j](s[i, j] * Y[j] * V[j, e]);",
}


@pytest.mark.parametrize("name", HEARD)
def test_an_attention_reads_what_is_longer_than_its_keys(name: str) -> None:
    text = "input Q[i, d], K[j, d], V[j, e], g[q] : bool, len[q] : i64, u[q];"
    text += f"let s[i, j] = sum[d](Q[i, d] * K[j, d]); {HEARD[name]}"
    arrays = {"Q": random(5, 4), "K": random(6, 4), "V": random(6, 3), "u": random(9)}
    masks = {"g": np.array([True, True, False, True, True, False, True, True, True]), "len": np.arange(1, 10) % 6}
    check(text, {**arrays, **masks}, ("Q", "K", "V"))


def test_axes_that_a_coordinate_indexes_bare_must_still_agree() -> None:
    program = ix.compile("input A[i], B[k]; let y[i] = A[i] * B[i];")
    source = program.source(np.zeros(3), np.zeros(3))
    assert "if B.shape != (n_i,):" in source
    with pytest.raises(ix.Error, match="4 points here and 3 there"):
        program(np.zeros(3), np.zeros(4))


# --------------------------------------------------------------------------------- counted by named scalars


HEADS = (
    "let H = size(m) / 4; let Q[h in 0..H, i, d in 0..4] = X[i, h * 4 + d];"
    "let K[h in 0..H, j, d in 0..4] = 0.5 * X[j, h * 4 + d]; let V[h in 0..H, j, e in 0..4] = X[j, h * 4 + e] + 1.0;"
)
BIASES = {
    "a slope": ("slope[h] * (j - i)", "j <= i"),
    "a slope that is counted": ("2.0 ** (-8.0 * (h + 1) / H) * (j - i)", "j <= i"),
    "a window": ("exp(-1.0 * (h + 1) / H) * (j - i)", "j <= i && i - j < H + 1"),
    "a table": ("table[h, i - j]", "j <= i"),
    "a length": ("table[h, i - j]", "j <= i, j < n"),
    "an offset": ("table[h, i - j + size(i)]", "j < n"),
    "an offset that is named": ("table[h, i - j + c]", "j < c, abs(i - j) <= n"),
    "a length that is named": ("0.1 * c * (j - i) * (h + 1)", "j < c"),
    "a stream": ("tanh(k * (j - i) * (h + 1))", "j <= i"),
}


@pytest.mark.parametrize(("name", "plain"), [*((name, False) for name in BIASES), ("a length that is named", True)])
def test_a_kernel_is_handed_what_counts_its_heads(name: str, plain: bool) -> None:
    bias, guard = BIASES[name]
    text = f"input X[i, m], slope[g], table[g, r], u, n : i64; let c = n + 1; let k = 2.0 * u; {HEADS}"
    text += f"let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / 2.0 + {bias}) where {guard};"
    text += "let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]); output out;"
    arrays = {"X": random(6, 8), "slope": random(2), "table": random(2, 13), "u": np.array(0.3)}
    learned = tuple(one for one in ("slope", "table") if one in bias)
    check(text, {**arrays, "n": 4 if plain else np.array(4)}, ("X", *learned))


LENGTHS = {
    "of every example": "j < len[b]",
    "beside the past": "j <= i, j < len[b]",
    "of a window": "j <= i, i - j < len[b]",
    "of documents": "j <= i, doc[b, i] == doc[b, j]",
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_kernel_is_handed_what_keeps_a_table_in_bounds(name: str) -> None:
    text = "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], T[h, r], len[b] : i64, doc[b, i] : i64;"
    text += "let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) + T[h, i - j + size(i)])"
    text += f"where {LENGTHS[name]}; let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);"
    arrays = {"Q": random(2, 2, 6, 4), "K": random(2, 2, 6, 4), "V": random(2, 2, 6, 3), "T": random(2, 13)}
    masks = {"len": np.array([3, 6]), "doc": np.array([[0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 2]])}
    check(text, {**arrays, **masks}, ("Q", "K", "V", "T"))


# -------------------------------------------------------------- lengths that are sums

SUMS = {
    "a mean of a product": (
        "input A[i, d], B[j, d], c[k]; let n[i, j] = mean[d in 0..2 * size(k) + 1](A[i, d] * B[j, d]) + c[0];",
        {"A": random(2, 7), "B": random(3, 7), "c": random(3)},
    ),
    "a mean over two": (
        "input A[i, d], c[k]; let n = mean[i in 0..size(k) - 1, d in 0..2 * size(k) + 1](A[i, d]) + c[0];",
        {"A": random(2, 7), "c": random(3)},
    ),
    "places counted from a sum": (
        "input x[i], p[i] : i64, c[k];\n"
        "let y = sum[n in size(k) + 1..2 * size(k) + 1](n * sum[i](x[i] where p[i] == n)) + c[0];",
        {"x": random(6), "p": np.array([4, 5, 4, 6, 0, 5]), "c": random(3)},
    ),
    "the largest, counted from a sum": (
        "input x[i], c[k]; let y = x[argmax[i in size(k) + 1..2 * size(k) + 1](x[i])] * c[0];",
        {"x": random(8), "c": random(3)},
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_length_that_is_a_sum_stays_one_number(name: str) -> None:
    text, arrays = SUMS[name]
    check(text, arrays, tuple(key for key in arrays if key != "p"))


@pytest.mark.parametrize(
    "range", ["0..i / 2 + 1", "max(0, i - 2)..i + 1", "0..min(i + 1, 3)", "0..size(i) / 2 - i / 3 + 1"]
)
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_a_range_that_grows_or_falls_with_a_coordinate_is_as_wide_as_at_its_ends(range: str, length: int) -> None:
    text = f"input x[i]; let y[i] = sum[j in {range}](x[j] * x[i] * j where j < size(i));"
    check(text, {"x": random(length)}, ("x",))
    assert "max()" not in ix.compile(text).source(random(length), backend="numpy")
