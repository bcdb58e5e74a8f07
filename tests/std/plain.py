"""Plain NumPy versions of the library, written apart from it: what each function should be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Leading axes that `..r` stands for: none, one, two, and one without a point.
LEADS = [(), (2,), (2, 3), (0,)]


def draw(seed: int, *shapes: tuple[int, ...], dtype: str = "float64") -> list[Array]:
    """Normal numbers, the same for the same seed."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def agree(found: Any, wanted: Any, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    """The same shape and the same numbers, NaN and infinities included."""
    assert isinstance(found, np.ndarray)
    assert found.shape == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def softmax(x: Array, allowed: Array | None = None, sink: Array | None = None) -> Array:
    """Softmax over the last axis; where nothing is allowed the row is 0. A sink takes its share and is left out."""
    allowed = np.ones(x.shape, bool) if allowed is None else np.broadcast_to(allowed, x.shape)
    result = np.zeros(x.shape)
    for row in np.ndindex(*x.shape[:-1]):
        kept = x[row][allowed[row]]
        extra = [] if sink is None else [np.broadcast_to(sink, x.shape[:-1])[row]]
        every = np.array([*kept, *extra], dtype=float)
        if every.size:
            share = np.exp(every - every.max())
            result[row][allowed[row]] = (share / share.sum())[: kept.size]
    return result


def attend(
    q: Array, k: Array, v: Array, allowed: Any = None, bias: Any = 0.0, cap: float = 0.0, sink: Any = None
) -> Array:
    """Scaled dot-product attention, everything that may be done to its scores included."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if cap:
        scores = cap * np.tanh(scores / cap)
    return softmax(scores + bias, allowed, sink) @ v


def pairs(queries: int, keys: int) -> tuple[Array, Array]:
    """The position of each query as a column, of each key as a row."""
    return np.arange(queries)[:, None], np.arange(keys)[None, :]


def lower(queries: int, keys: int, offset: int = 0) -> Array:
    i, j = pairs(queries, keys)
    return np.asarray(j <= i + offset)


def windows(length: int, width: int, stride: int) -> Iterator[tuple[int, slice]]:
    """Where a window of some width stands, `stride` apart, as long as it fits."""
    for place, start in enumerate(range(0, length - width + 1, stride)):
        yield place, slice(start, start + width)


def convolve(x: Array, w: Array, stride: int = 1) -> Array:
    """Valid convolution over all axes behind the channels: one, or two."""
    rank = w.ndim - 2
    lengths = [len(list(windows(n, k, stride))) for n, k in zip(x.shape[-rank:], w.shape[-rank:], strict=True)]
    result = np.zeros((*x.shape[: x.ndim - rank - 1], w.shape[0], *lengths))
    for place in np.ndindex(*lengths):
        part = x[(..., *(slice(p * stride, p * stride + k) for p, k in zip(place, w.shape[2:], strict=True)))]
        for o in range(w.shape[0]):
            result[(..., o, *place)] = (part * w[o]).sum(axis=tuple(range(-rank - 1, 0)))
    return result


def pad(x: Array, widths: list[tuple[int, int]]) -> Array:
    """Zeros around the last axes."""
    return np.pad(x, [(0, 0)] * (x.ndim - len(widths)) + widths)


def same(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """How much is padded on both sides of each axis, so that the size stays."""
    return [((k - 1) // 2, k - 1 - (k - 1) // 2) for k in sizes]


def norm(x: Array, gain: Array, bias: Array, eps: float) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * gain + bias


def heads(x: Array, w: Array) -> Array:
    """Positions by features to heads by positions by features."""
    return np.einsum("...im,hmd->...hid", x, w)


def merge(o: Array, w: Array) -> Array:
    return np.einsum("...hie,hen->...in", o, w)


def gelu(x: Array) -> Array:
    from math import erf, sqrt

    return np.asarray(x * 0.5 * (1 + np.vectorize(lambda y: erf(y / sqrt(2)), otypes=[float])(x)))


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))
