"""Derivatives inside blocks, functions and steps of a recurrence, against loops over PyTorch's own derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402
from indexical.diagnostics import Sink  # noqa: E402
from indexical.source import Source  # noqa: E402
from indexical.syntax.format import format_source  # noqa: E402
from indexical.syntax.parse import parse  # noqa: E402

SIZES = {"n": 5, "d": 3, "e": 2, "h": 2, "k": 4}


@dataclass(frozen=True)
class Steps:
    """A program, the shapes of its inputs, and the same by hand."""

    text: str
    shapes: dict[str, str]
    by_hand: Callable[..., Any]


def laid_out(text: str) -> str:
    return format_source(parse(Source("program.ix", text), Sink()))


def slope(of: Any, *by: Any) -> Any:
    found = torch.autograd.grad(of, by, create_graph=True)
    return found[0] if len(by) == 1 else found


def trained(K: Any, V: Any, Q: Any, W: Any, eta: Any) -> Any:
    """A linear layer that learns at each step to answer its key with its value, and is then asked."""
    found = []
    for k, v, q in zip(K, V, Q, strict=True):
        W = W - eta * slope(((k @ W - v) ** 2).sum(), W)
        found.append(q @ W)
    return torch.stack(found)


def trained_heads(K: Any, V: Any, Q: Any, W: Any, eta: Any) -> Any:
    heads = [trained(K[h], V[h], Q[h], W[h], eta[h]) for h in range(len(K))]
    return torch.stack(heads)


def trained_from_the_end(K: Any, V: Any, Q: Any, W: Any, eta: Any) -> Any:
    return trained(K.flip(0), V.flip(0), Q.flip(0), W, eta).flip(0)


def trained_deep(K: Any, V: Any, A: Any, B: Any) -> Any:
    """Two layers, both of which learn."""
    found = []
    for k, v in zip(K, V, strict=True):
        loss = ((torch.tanh(k @ A) @ B - v) ** 2).sum()
        a, b = slope(loss, A, B)
        A, B = A - 0.1 * a, B - 0.1 * b
        found.append(torch.tanh(k @ A) @ B)
    return torch.stack(found)


def descended(A: Any, y: Any, x: Any) -> Any:
    """Least squares by gradient descent with momentum: every place it passes."""
    velocity, found = torch.zeros_like(x), [x]
    for _ in range(6):
        velocity = 0.5 * velocity - 0.05 * slope(((A @ x - y) ** 2).sum() / 2, x)
        x = x + velocity
        found.append(x)
    return torch.stack(found)


def classified(X: Any, y: Any, W: Any) -> Any:
    """Softmax regression on one more example at each step, with weights that decay towards those before it."""
    for n in range(1, len(X) + 1):
        w = W.clone()
        loss = -torch.log_softmax(X[:n] @ w, 1).mul(y[:n]).sum() + 0.5 * ((w - W) ** 2).sum()
        W = w - 0.1 * slope(loss, w)
    return W


def newton(s: Any) -> Any:
    """The root of the slope, by second derivatives."""
    x = s
    for _ in range(4):
        f = torch.exp(x) - 2 * x + x**4
        g = slope(f.sum(), x)
        x = x - g / slope(g.sum(), x)
    return x


def peaked(X: Any) -> Any:
    """A row of the Jacobian of softmax, for each row."""
    rows = [torch.autograd.functional.jacobian(lambda x: torch.softmax(x, 0), x, create_graph=True)[1] for x in X]
    return torch.stack(rows)


def steepest(X: Any) -> Any:
    return torch.stack([slope((x**3).sum() * torch.tanh(x[0]), x) for x in X])


LAYER = "input K[t, d], V[t, e], Q[t, d], W0[d, e], eta;"
SHAPES = {"K": "nd", "V": "ne", "Q": "nd", "W0": "de", "eta": ""}
LAYER_HEADS = {"K": "hnd", "V": "hne", "Q": "hnd", "W0": "hde", "eta": "h"}

PROGRAMS = {
    "trained": Steps(
        f"{LAYER} let W[0, d, e] = W0[d, e];"
        "let W[t in 1..=size(t), d, e] = {"
        "  let w[c, f] = W[t - 1, c, f];"
        "  let loss = sum[f]((sum[c](K[t - 1, c] * w[c, f]) - V[t - 1, f]) ** 2);"
        "  w[d, e] - eta * (@loss / @w)[d, e] };"
        "let out[t, e] = sum[d](Q[t, d] * W[t + 1, d, e]);",
        SHAPES,
        trained,
    ),
    "with other names, in another order": Steps(
        "input key[s, a], value[s, b], asked[s, a], first[a, b], rate;"
        "let answer[s, b] = sum[a](fast[b, s + 1, a] * asked[s, a]);"
        "let fast[b, s in 1..=size(s), a] = {"
        "  let miss[q] = value[s - 1, q] - sum[p](here[q, p] * key[s - 1, p]);"
        "  let wrong = sum[r](miss[r] * miss[r]);"
        "  let here[q, p] = fast[q, s - 1, p];"
        "  here[b, a] - (@wrong / @here)[b, a] * rate };"
        "let fast[b, 0, a] = first[a, b]; output answer;",
        {"key": "nd", "value": "ne", "asked": "nd", "first": "de", "rate": ""},
        trained,
    ),
    "by a function": Steps(
        "fn learned(w[c, f], k[c], v[f], rate) -> [c, f] {"
        "  let loss = sum[f]((sum[c](k[c] * w[c, f]) - v[f]) ** 2); w[c, f] - rate * (@loss / @w)[c, f] }"
        f"{LAYER} let W[0, d, e] = W0[d, e];"
        "let W[t in 1..=size(t), d, e] = {"
        "  let w[c, f] = W[t - 1, c, f]; let k[c] = K[t - 1, c]; let v[f] = V[t - 1, f];"
        "  learned(w, k, v, eta)[d, e] };"
        "let out[t, e] = sum[d](Q[t, d] * W[t + 1, d, e]);",
        SHAPES,
        trained,
    ),
    "a recurrence in a function": Steps(
        "fn trained(K[t, d], V[t, e], W0[d, e], rate) -> [t, d, e] {"
        "  let W[0, d, e] = W0[d, e];"
        "  let W[t in 1..=size(t), d, e] = {"
        "    let w[c, f] = W[t - 1, c, f];"
        "    let loss = sum[f]((sum[c](K[t - 1, c] * w[c, f]) - V[t - 1, f]) ** 2);"
        "    w[d, e] - rate * (@loss / @w)[d, e] };"
        "  W[t + 1, d, e] }"
        f"{LAYER} let after = trained(K, V, W0, eta); let out[t, e] = sum[d](Q[t, d] * after[t, d, e]);",
        SHAPES,
        trained,
    ),
    "for each head": Steps(
        "input K[h, t, d], V[h, t, e], Q[h, t, d], W0[h, d, e], eta[h]; let W[h, 0, d, e] = W0[h, d, e];"
        "let W[h, t in 1..=size(t), d, e] = {"
        "  let w[c, f] = W[h, t - 1, c, f];"
        "  let loss = sum[f]((sum[c](K[h, t - 1, c] * w[c, f]) - V[h, t - 1, f]) ** 2);"
        "  w[d, e] - eta[h] * (@loss / @w)[d, e] };"
        "let out[h, t, e] = sum[d](Q[h, t, d] * W[h, t + 1, d, e]);",
        LAYER_HEADS,
        trained_heads,
    ),
    "from the end": Steps(
        f"{LAYER} let W[size(t), d, e] = W0[d, e];"
        "let W[t in 0..size(t), d, e] = {"
        "  let w[c, f] = W[t + 1, c, f];"
        "  let loss = sum[f]((sum[c](K[t, c] * w[c, f]) - V[t, f]) ** 2);"
        "  w[d, e] - eta * (@loss / @w)[d, e] };"
        "let out[t in 0..size(t), e] = sum[d](Q[t, d] * W[t, d, e]);",
        SHAPES,
        trained_from_the_end,
    ),
    "two layers": Steps(
        "input K[t, d], V[t, e], A0[d, k], B0[k, e];"
        "fn wrong(x[d], y[e], a[d, k], b[k, e]) {"
        "  let inner[k] = tanh(sum[d](x[d] * a[d, k])); sum[e]((sum[k](inner[k] * b[k, e]) - y[e]) ** 2) }"
        "let A[0, d, k] = A0[d, k]; let B[0, k, e] = B0[k, e];"
        "let A[t in 1..=size(t), d, k] = {"
        "  let a[p, q] = A[t - 1, p, q]; let b[q, r] = B[t - 1, q, r];"
        "  let x[p] = K[t - 1, p]; let y[r] = V[t - 1, r]; let loss = wrong(x, y, a, b);"
        "  a[d, k] - 0.1 * (@loss / @a)[d, k] };"
        "let B[t in 1..=size(t), k, e] = {"
        "  let a[p, q] = A[t - 1, p, q]; let b[q, r] = B[t - 1, q, r];"
        "  let x[p] = K[t - 1, p]; let y[r] = V[t - 1, r]; let loss = wrong(x, y, a, b);"
        "  b[k, e] - 0.1 * (@loss / @b)[k, e] };"
        "let out[t, e] = sum[k](tanh(sum[d](K[t, d] * A[t + 1, d, k])) * B[t + 1, k, e]);",
        {"K": "nd", "V": "ne", "A0": "dk", "B0": "ke"},
        trained_deep,
    ),
    "momentum": Steps(
        "input A[i, d], y[i], x0[d];"
        "let v[0, d in 0..size(d)] = 0.0; let x[0, d] = x0[d];"
        "let v[s in 1..=6, d in 0..size(d)] = {"
        "  let at[c in 0..size(d)] = x[s - 1, c];"
        "  let loss = sum[i]((sum[c](A[i, c] * at[c]) - y[i]) ** 2) / 2;"
        "  0.5 * v[s - 1, d] - 0.05 * (@loss / @at)[d] };"
        "let x[s in 1..=6, d] = x[s - 1, d] + v[s, d]; output x;",
        {"A": "nd", "y": "n", "x0": "d"},
        descended,
    ),
    "one more example at each step": Steps(
        "input X[i, d], y[i, k], W0[d, k]; let W[0, d, k] = W0[d, k];"
        "let W[n in 1..=size(i), d, k] = {"
        "  let w[c, l] = W[n - 1, c, l];"
        "  let logits[i, l] = sum[c](X[i, c] * w[c, l]) where i < n;"
        "  let said[i, l] = log_softmax[l](logits[i, l] where i < n) where i < n;"
        "  let loss = -sum[i, l](y[i, l] * said[i, l] where i < n) + 0.5 * sum[c, l]((w[c, l] - W[n - 1, c, l]) ** 2);"
        "  w[d, k] - 0.1 * (@loss / @w)[d, k] };"
        "let out[d, k] = W[size(i), d, k];",
        {"X": "nd", "y": "nk", "W0": "dk"},
        classified,
    ),
    "second derivatives": Steps(
        "input s[i]; let x[0, i] = s[i];"
        "let x[t in 1..=4, i] = {"
        "  let at = x[t - 1, i]; let f = exp(at) - 2 * at + at ** 4;"
        "  let g = @f / @at; at - g / (@g / @at) };"
        "let out[i] = x[4, i];",
        {"s": "n"},
        newton,
    ),
    "a number of a block": Steps(
        "input X[i, j]; let out[i, j] = { let x = X[i, j]; let y = log(x) * x; @y / @x } where X[i, j] > 0.3;",
        {"X": "nd"},
        lambda X: torch.where(X > 0.3, X.log() + 1, 0.0),
    ),
    "a block without steps": Steps(
        "input X[i, j]; let out[i, j] = { let x[k] = X[i, k]; let p[k] = softmax[k](x[k]); (@p / @x)[1, j] };",
        {"X": "nd"},
        peaked,
    ),
    "a function without steps": Steps(
        "fn steepest(x[j]) -> [j] { let y = sum[j](x[j] ** 3) * tanh(x[0]); (@y / @x)[j] }"
        "input X[i, j]; let out[i, j] = { let x[k] = X[i, k]; steepest(x)[j] };",
        {"X": "nd"},
        steepest,
    ),
}


@cache
def compiled(name: str) -> ix.Program:
    return ix.compile(PROGRAMS[name].text)


def drawn(name: str) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    shapes = [tuple(SIZES[letter] for letter in letters) for letters in PROGRAMS[name].shapes.values()]
    return [torch.rand(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_a_loop(name: str) -> None:
    program, arrays = compiled(name), drawn(name)
    wanted = PROGRAMS[name].by_hand(*arrays)
    found = program(*arrays)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    cotangent = torch.linspace(-1, 1, wanted.numel(), dtype=torch.float64).reshape(wanted.shape)
    slopes = torch.autograd.grad(wanted, arrays, cotangent, allow_unused=True)
    by = [number for number, array in enumerate(slopes) if array is not None]
    taken = torch.autograd.grad(found, [arrays[number] for number in by], cotangent)
    (of,) = program.outputs
    names = [list(PROGRAMS[name].shapes)[number] for number in by]
    plain = [array.detach() for array in arrays]
    derived = ix.grad(PROGRAMS[name].text, of=of, by=tuple(names))(*plain, cotangent)
    derived = derived if len(names) > 1 else (derived,)
    for number, mine, written in zip(by, taken, derived, strict=True):
        torch.testing.assert_close(mine, slopes[number], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(written, slopes[number], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_are_the_reference(name: str) -> None:
    arrays = [array.detach().numpy() for array in drawn(name)]
    wanted = compiled(name)(*arrays, backend="reference")
    np.testing.assert_allclose(compiled(name)(*arrays), wanted, rtol=1e-12)


def test_jax_is_the_reference() -> None:
    jax = pytest.importorskip("jax")
    name = "second derivatives"
    arrays = [array.detach().numpy() for array in drawn(name)]
    wanted = compiled(name)(*arrays, backend="reference")
    with jax.enable_x64(True):
        found = compiled(name)(*map(jax.numpy.asarray, arrays))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-12)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_layout_keeps_the_meaning(name: str) -> None:
    text = laid_out(PROGRAMS[name].text)
    assert laid_out(text) == text
    arrays = [array.detach().numpy() for array in drawn(name)]
    assert np.array_equal(ix.compile(text)(*arrays), compiled(name)(*arrays))


def test_exact_values_and_traces() -> None:
    """Gradient descent of (x - 3)² / 2 by halves: 3 · (1 - 2⁻ᵗ)."""
    text = (
        "let x[0] = 0.0; let x[t in 1..=3] = { let at = x[t - 1]; let loss = (at - 3) ** 2 / 2; at - @loss / @at / 2 };"
    )
    assert str(ix.exact(text)["x"]).split("\n")[1].split() == ["0", "3/2", "9/4", "21/8"]
    assert "2.25 - (-0.75)/2 = 2.625" in str(ix.trace(text, at="x[3]"))


def test_nothing_is_read_before_the_first_step() -> None:
    """No step, and so nothing to differentiate: what is read at a step is not read without one."""
    arrays = [np.zeros((0, 2)), np.zeros((0, 1)), np.zeros((0, 2)), np.ones((2, 1)), np.asarray(0.1)]
    assert compiled("trained")(*arrays).shape == (0, 1)


REFUSED = {
    "the recurrence": (
        "let loss = sum[c](K[t - 1, c] * W[t - 1, c]); W[t - 1, d] - (@loss / @W)[t - 1, d]",
        "`W` is not there yet",
        "let here[…] = W[…];",
    ),
    "another path": (
        "let w[c] = W[t - 1, c]; let loss = sum[c](K[t - 1, c] * W[t - 1, c]); w[d] - (@loss / @w)[d]",
        "`loss` does not depend on `w`",
        "read `w` there instead",
    ),
    "of another step": (
        "let w[c] = W[t - 1, c]; let loss = sum[c](K[t - 1, c] * w[c]); w[d] - (@loss / @W0)[d]",
        "`W0` is no definition of this step",
        "let here[…] = W0[…];",
    ),
    "flat": (
        "let w[c] = W[t - 1, c]; let loss = floor(sum[c](w[c])); w[d] - (@loss / @w)[d]",
        "nothing flows from `w` to `loss`",
        None,
    ),
    "whole": (
        "let w[c] = W[t - 1, c]; let loss = sum[c in 0..3](c); w[d] - (@loss / @w)[d]",
        "`loss` is whole",
        "1.0",
    ),
    "an abbreviation": (
        "let w[c] = W[t - 1, c]; w[d] - (@loss / @w)[d] where loss = sum[c](w[c])",
        "`loss` stands for an expression",
        "let here = loss;",
    ),
    "too few indices": (
        "let w[c] = W[t - 1, c]; let loss = sum[c](w[c] ** 2); w[d] - @loss / @w",
        "a whole tensor",
        "(@loss / @w)[c]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_to_write(name: str) -> None:
    step, message, help = REFUSED[name]
    text = f"input K[t, d], W0[d]; let W[0, d] = W0[d]; let W[t in 1..=size(t), d] = {{ {step} }};"
    findings = [finding for finding in ix.check(text) if finding.severity == "error"]
    assert len(findings) == 1, findings
    assert message in findings[0].message
    assert help is None or help in (findings[0].help or "")


def test_spaces_and_sizes_are_checked() -> None:
    text = PROGRAMS["trained"].text
    swapped = text.replace("(@loss / @w)[d, e]", "(@loss / @w)[e, d]")
    spaces = "space position(t), key(c, d), value(e, f);"
    assert not [finding for finding in ix.check(spaces + text) if finding.severity == "error"]
    assert [finding.code for finding in ix.check(spaces + swapped) if finding.severity == "error"] == ["IX303"]
