"""Rotations, slopes and waves against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import LEADS, Array, agree, draw, pairs

import indexical as ix


def rotate(x: Array, positions: Array, base: float, first: Array, second: Array) -> Array:
    """Complex numbers made of features `first` and `second`, each turned by its own angle."""
    width = x.shape[-1]
    angle = positions[:, None] * base ** (-2 * np.arange(width // 2) / width)
    turned = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angle)
    result = np.empty_like(x)
    result[..., first], result[..., second] = turned.real, turned.imag
    return result


def rotate_pairs(x: Array, positions: Array, base: float) -> Array:
    return rotate(x, positions, base, np.arange(0, x.shape[-1], 2), np.arange(1, x.shape[-1], 2))


def rotate_halves(x: Array, positions: Array, base: float) -> Array:
    half = x.shape[-1] // 2
    return rotate(x, positions, base, np.arange(half), np.arange(half, 2 * half))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("width", [2, 6])
def test_rotary(lead: tuple[int, ...], width: int) -> None:
    (x,) = draw(1, (*lead, 3, width))
    agree(ix.std.rotary_pairs(x), rotate_pairs(x, np.arange(3), 10000.0))
    agree(ix.std.rotary_halves(x), rotate_halves(x, np.arange(3), 10000.0))
    agree(ix.std.rotary_pairs(x, base=100.0), rotate_pairs(x, np.arange(3), 100.0))
    agree(ix.std.rotary_halves(x, base=100), rotate_halves(x, np.arange(3), 100.0))


def test_rotary_at_positions() -> None:
    (x,) = draw(2, (2, 3, 4))
    for positions in (np.array([7, 0, 7]), np.array([0.5, -1.0, 100.0])):
        agree(ix.std.rotary_pairs_at(x, positions), rotate_pairs(x, positions, 10000.0))
        agree(ix.std.rotary_halves_at(x, positions, 50.0), rotate_halves(x, positions, 50.0))


@pytest.mark.parametrize("offset", [0, 5])
def test_rotary_behind_a_cache(offset: int) -> None:
    (x,) = draw(2, (2, 3, 4))
    agree(ix.std.rotary_pairs_from(x, offset), rotate_pairs(x, np.arange(3) + offset, 10000.0))
    agree(ix.std.rotary_halves_from(x, offset, 50.0), rotate_halves(x, np.arange(3) + offset, 50.0))


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    q, k = draw(3, (1, 8), (1, 8))
    for turn in (ix.std.rotary_pairs_at, ix.std.rotary_halves_at):
        near = turn(q, np.array([5]))[0] @ turn(k, np.array([2]))[0]
        far = turn(q, np.array([905]))[0] @ turn(k, np.array([902]))[0]
        assert np.isclose(near, far)


@pytest.mark.parametrize("turn", ["rotary_pairs", "rotary_halves"])
def test_rotary_needs_an_even_number_of_features(turn: str) -> None:
    with pytest.raises(ix.Error, match="out of bounds"):
        getattr(ix.std, turn)(np.ones((2, 5)))


def test_rotary_keeps_float32() -> None:
    (x,) = draw(4, (3, 4), dtype="float32")
    assert ix.std.rotary_pairs(x).dtype == np.float32
    assert ix.std.rotary_halves(x, base=500.0).dtype == np.float32


def slopes(count: int) -> list[float]:
    """The slopes as published, by recursion for a count that is no power of two."""
    whole = 2 ** int(np.log2(count) + 1e-9)
    first = [2 ** (-8 * (h + 1) / whole) for h in range(whole)]
    return first if whole == count else first + slopes(2 * whole)[::2][: count - whole]


@pytest.mark.parametrize("count", [1, 2, 3, 6, 8, 12, 16])
def test_alibi_slopes(count: int) -> None:
    agree(ix.std.alibi_slope(np.arange(count), count), slopes(count))


def test_alibi_costs_distance() -> None:
    i, j = pairs(4, 5)
    agree(ix.std.alibi(i, j, 0.5), -0.5 * np.abs(i - j))
    slope = np.array([0.5, 0.25])[:, None, None]
    agree(ix.std.alibi(i, j, slope), -slope * np.abs(i - j))


@pytest.mark.parametrize("width", [1, 4, 5])
def test_sinusoid(width: int) -> None:
    i, m = pairs(4, width)
    angle = i / 10000.0 ** (2 * (m // 2) / width)
    agree(ix.std.sinusoid(i, m, width), np.where(m % 2 == 0, np.sin(angle), np.cos(angle)))


def bucket(distance: int, count: int, limit: float) -> int:
    """The bucket of one distance, as published."""
    near = count // 2
    if distance < near:
        return max(distance, 0)
    far = near + int(np.log(distance / near) / np.log(limit / near) * (count - near))
    return min(far, count - 1)


@pytest.mark.parametrize(("count", "limit"), [(2, 5), (7, 20), (32, 128)])
def test_buckets_of_distances(count: int, limit: int) -> None:
    i, j = pairs(150, 7)
    wanted = [[bucket(int(a - b), count, limit) for b in j[0]] for a in i[:, 0]]
    agree(ix.std.distance_bucket(i, j, count, limit), wanted)
    agree(ix.std.distance_bucket(i, j, 32), ix.std.distance_bucket(i, j, 32, 128))


def test_buckets_of_both_directions() -> None:
    i, j = pairs(40, 40)
    after = [[int(b > a) * 8 + bucket(abs(int(a - b)), 8, 20) for b in j[0]] for a in i[:, 0]]
    agree(ix.std.offset_bucket(i, j, 16, 20), after)
