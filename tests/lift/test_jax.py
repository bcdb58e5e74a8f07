"""Callables of JAX as programs, by the same graph and rules: what is printed, that it is the same, what is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.lift.test_reading import ATTENTION, PROJECTED, body

import indexical as ix
from indexical.cli import main
from indexical.lift import findings

pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")


def drawn(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape).astype("float32"))


def plain(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-2, -1) / jnp.sqrt(q.shape[-1])
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-1) @ v


def by_iota(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-2, -1) * q.shape[-1] ** -0.5
    i = jnp.arange(q.shape[-2])
    scores = scores + jnp.where(i[:, None] < i, -1e9, 0.0)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def fused(x: Any, w: Any, mix: Any) -> Any:
    b, t, c = x.shape
    q, k, v = (y.reshape(b, t, 3, c // 3).transpose(0, 2, 1, 3) for y in jnp.split(x @ w, 3, axis=-1))
    return plain(q, k, v).transpose(0, 2, 1, 3).reshape(b, t, c) @ mix


def separate(params: dict[str, Any], x: Any) -> Any:
    b, t, c = x.shape
    q, k, v = ((x @ params[name]).reshape(b, t, 3, c // 3).swapaxes(1, 2) for name in ("query", "key", "value"))
    return plain(q, k, v).swapaxes(1, 2).reshape(b, t, c) @ params["mix"] + params["bias"]


def einsums(q: Any, k: Any, v: Any, keep: Any) -> Any:
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    weights = jax.nn.softmax(scores, where=keep[:, None, None], axis=-1)
    return jnp.einsum("bhij,bjhe->bihe", weights, v)


def batch_second(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("ibhd,jbhd->bhij", q, k) / q.shape[-1] ** 0.5)
    return jnp.einsum("bhij,jbhe->ibhe", weights, v)


@jax.jit
def grouped(q: Any, k: Any, v: Any) -> Any:
    k, v = (jnp.repeat(x, q.shape[1] // 2, axis=1) for x in (k, v))
    return plain(q, k, v)


def library(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


# Drawn by a function, since JAX is slow to load: the callable, shapes of an example, and lines that its relation has.
STYLES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], list[str]]] = {
    "causal by tril": (plain, [(2, 3, 6, 8)] * 3, ATTENTION),
    "causal by iota": (by_iota, [(2, 3, 6, 8)] * 3, ATTENTION),
    "fused and cut": (fused, [(2, 5, 12), (12, 36), (12, 12)], PROJECTED),
    "batch second": (
        batch_second,
        [(5, 2, 3, 8), (7, 2, 3, 8), (7, 2, 3, 8)],
        ["scores[b, h, i, j] = sum[d](q[i, b, h, d] * k[j, b, h, d]) / sqrt(size(d))"],
    ),
    "grouped heads": (
        grouped,
        [(2, 6, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)],
        ["out[b, h, i, e] = sum[j](weights[b, h, i, j] * v[b, h / (size(h) / 2), j, e])"],
    ),
    "the library's": (
        library,
        [(2, 6, 3, 8)] * 3,
        ["weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i"],
    ),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("style", STYLES)
def test_styles_print_what_a_person_would_write(style: str) -> None:
    function, shapes, lines = STYLES[style]
    arrays = [drawn(*shape) for shape in shapes]
    program = ix.read(function, *arrays)
    assert [line for line in lines if line not in body(program)] == []
    result = program(*arrays)
    assert isinstance(result, jax.Array)
    np.testing.assert_allclose(result, function(*arrays), atol=2e-5)


@pytest.mark.sampled(0)
def test_parameters_in_a_tree_are_bound_and_masks_are_guards() -> None:
    params = {name: drawn(12, 12) for name in ("query", "key", "value", "mix")}
    params["bias"] = jnp.ones(12)
    x = drawn(2, 5, 12)
    program = ix.read(separate, params, x)
    assert PROJECTED[0] in body(program)
    assert "params_bias[c]" in str(program)
    np.testing.assert_allclose(program(drawn(1, 7, 12)), separate(params, drawn(1, 7, 12)), atol=2e-4)
    keep = jnp.arange(7) < jnp.array([[5], [7]])
    read = ix.read(einsums, drawn(2, 5, 3, 8), drawn(2, 7, 3, 8), drawn(2, 7, 3, 8), keep)
    assert "weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where keep[b, j]" in body(read)


def turned(x: Any, halves: bool) -> Any:
    n, d = x.shape[-2:]
    angles = jnp.arange(n)[:, None] * 1e4 ** (-jnp.arange(0, d, 2) / d)
    one, two = jnp.split(x, 2, -1) if halves else (x[..., ::2], x[..., 1::2])
    both = [one * jnp.cos(angles) - two * jnp.sin(angles), one * jnp.sin(angles) + two * jnp.cos(angles)]
    return jnp.concatenate(both, -1) if halves else jnp.stack(both, -1).reshape(x.shape)


@pytest.mark.sampled(0)
@pytest.mark.parametrize("halves", [True, False])
def test_rotary_positions_are_read_by_either_pairing(halves: bool) -> None:
    q, k, v = drawn(2, 3, 6, 8), drawn(2, 3, 6, 8), drawn(2, 3, 6, 8)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return plain(turned(q, halves), turned(k, halves), v)

    text = str(ix.read(attention, q, k, v))
    assert ("size(d) / 2" in text) == halves
    assert "cos(j * " in text


def over_queries(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-2, -1) / jnp.sqrt(q.shape[-1])
    return jax.nn.softmax(scores, axis=-2) @ v  # IX402


def masked_late(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.swapaxes(-2, -1) / jnp.sqrt(q.shape[-1]))
    return jnp.tril(weights) @ v  # IX405


def late_by_one(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-2, -1) / jnp.sqrt(q.shape[-1])
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool), 1)
    return jax.nn.softmax(jnp.where(past, scores, -1e9)) @ v  # IX423


def wrong_scale(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-2, -1) / jnp.sqrt(q.shape[-2])  # IX408
    return jax.nn.softmax(scores) @ v


AXES = {"q": "b h i d", "k": "b h j d", "v": "b h j e"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("function", [over_queries, masked_late, late_by_one, wrong_scale])
def test_a_broken_callable_is_found_at_its_line(function: Any) -> None:
    example = {name: drawn(2, 3, 6, 8) for name in "qkv"}
    found = findings(function, example, AXES, {"causal": function is late_by_one})
    told = [finding for finding in found if finding.severity != "note"]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert len(told) == 1
    assert lines[told[0].labels[0].span.line - 1].endswith(f"# {told[0].code}")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("function", "shapes", "line"),
    [
        (lambda x: jnp.cumsum(x, 1), [(2, 5, 4)], "cumsum[i](x[b, i, d])"),
        (lambda x: jnp.cumprod(x, 1), [(2, 5, 4)], "cumprod[i](x[b, i, d])"),
        (lambda x: jax.lax.cummax(x, 1), [(2, 5, 4)], "cummax[i](x[b, i, d])"),
        (lambda x: jax.lax.cummin(x, 1, reverse=True), [(2, 5, 4)], "cummax["),
        (lambda x: jax.nn.log_softmax(x, -1), [(2, 5, 4)], "log_softmax[j](x[b, i, j])"),
        (lambda x: x.at[:, 0].set(0.0), [(2, 5, 4)], "if i != 0 { x[b, i, d] } else { 0.0 }"),
        (lambda x: jnp.flip(x, 1), [(2, 5, 4)], "x[b, -c + size(c) - 1, d]"),
        (lambda x: jax.lax.dynamic_slice_in_dim(x, 1, 2, 1), [(2, 5, 4)], "x[b, c + 1, d]"),
        (lambda x: x[:, jnp.array([2, 0])], [(2, 5, 4)], "constant[c]"),
        (lambda x: jnp.take(x, jnp.arange(x.shape[1]) // 2, axis=1), [(2, 5, 4)], "x[b, c / 2, d]"),
    ],
)
def test_operations_are_read(function: Any, shapes: list[tuple[int, ...]], line: str) -> None:
    arrays = [drawn(*shape) for shape in shapes]
    program = ix.read(function, *arrays)
    assert line in str(program)
    np.testing.assert_allclose(program(*arrays), function(*arrays), atol=1e-6)


def branching(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def stepping(x: Any) -> Any:
    return jax.lax.scan(lambda total, y: (total + y, total + y), x[0], x)[1]


def by_chance(x: Any) -> Any:
    return x + jax.random.normal(jax.random.PRNGKey(0), x.shape)


@pytest.mark.parametrize(
    ("function", "words"), [(branching, "depends on a value"), (stepping, "`scan of JAX`"), (by_chance, "random")]
)
def test_what_cannot_be_read_is_refused_at_its_line(function: Any, words: str) -> None:
    with pytest.raises(ix.Error) as caught:
        ix.read(function, drawn(3, 4))
    [finding] = caught.value.diagnostics
    assert finding.code == "IX602"
    assert words in finding.message
    assert finding.labels[0].span.line == function.__code__.co_firstlineno + 1


def layer(width: bool, over: int) -> Any:
    weights = {name: drawn(12, 12) * 0.3 for name in "qkvo"}

    def attention(x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = ((x @ weights[name]).reshape(b, t, 3, c // 3).swapaxes(1, 2) for name in "qkv")
        scores = q @ k.swapaxes(-2, -1) / (c if width else c // 3) ** 0.5
        return (jax.nn.softmax(scores, axis=over) @ v).swapaxes(1, 2).reshape(b, t, c) @ weights["o"]

    return attention


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("width", "over", "laws"), [(False, -1, []), (True, -1, ["scale"]), (False, -2, ["normalisation"])]
)
def test_what_is_inside_a_layer_is_asked_of_its_relation(width: bool, over: int, laws: list[str]) -> None:
    contract = ix.Contract(heads=3, scale="1/sqrt(d)")
    report = ix.audit(layer(width, over), {"x": drawn(2, 5, 12)}, "x=b i c, out=b i c", contract)
    assert [finding.law for finding in report.findings] == laws
    assert all(finding.confidence == "proved" and finding.span is not None for finding in report.findings)


def test_commands_know_what_is_written_with_jax(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "layer.py"
    file.write_text(
        "import jax\n\n\ndef attention(q, k, v):\n"
        "    return jax.nn.softmax(q @ k.swapaxes(-2, -1) / q.shape[-1] ** 0.5, axis=-2) @ v\n"
    )
    arrays = tmp_path / "inputs.npz"
    np.savez(arrays, **{name: np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32") for name in "qkv"})
    axes = "q=b i d, k=b j d, v=b j e, out=b i e"
    assert main(["audit", f"{file}:attention", "--example", str(arrays), "--axes", axes]) == 1
    printed = capsys.readouterr()
    assert "the softmax is over the queries" in printed.out
    assert "layer.py:5" in printed.out
    assert "confidence: proved" in printed.out
