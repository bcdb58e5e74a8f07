"""Whole arrays within radii: what intervals enclose lies in them, and large calls are measured by them."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.laws.programs import random_case

import indexical as ix
from indexical.numbers import accuracy, balls
from indexical.numbers.arrays import by_arrays
from indexical.numbers.balls import Ball, Unfit
from indexical.numbers.inputs import read_inputs
from indexical.numbers.interval import Interval, Unsettled
from indexical.numbers.suppositions import rounded
from indexical.run.bind import bind


def contains(ball: Any, at: int, true: Any) -> bool:
    middle = float(np.broadcast_to(ball.middle, ball.shape).reshape(-1)[at])
    radius = float(np.broadcast_to(ball.radius, ball.shape).reshape(-1)[at])
    if not (np.isfinite(middle) and np.isfinite(radius)):
        return True
    low, high = (true.lower, true.upper) if isinstance(true, Interval) else (Fraction(true or 0), Fraction(true or 0))
    return Fraction(middle) - Fraction(radius) <= high and Fraction(middle) + Fraction(radius) >= low


def test_generated_programs_lie_within_their_radii() -> None:
    compared = 0
    for seed in range(40):
        case = random_case(seed)
        with suppress(ix.Error, Unsettled, OverflowError, Unfit), np.errstate(all="ignore"):
            program = ix.compile(case.text)
            arrays = {name: np.asarray(value) for name, value in case.arrays.items()}
            found = by_arrays(program.ir, bind(program.ir, arrays), program.outputs)
            exact = accuracy._enclosed(program.ir, read_inputs(program.ir, arrays, {}), program.outputs, 128)
            for name, value in found.items():
                cells = exact.tensors[name].cells
                if isinstance(value, Ball):
                    real = [at for at, cell in enumerate(cells) if isinstance(cell, Interval | int | None)]
                    assert all(contains(value, at, cells[at]) for at in real), (seed, name)
                else:
                    assert [cell or 0 for cell in cells] == value.reshape(-1).tolist(), (seed, name)
                compared += len(cells)
    assert compared > 60


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "softplus"])
def test_functions_lie_within_their_radii(name: str) -> None:
    x = np.concatenate([np.linspace(0.01, 30, 40), [1e-9, 0.34657359, 0.69314718, 700.0]])
    found = balls.function(name)(balls.exactly(x, True))
    own = {"rsqrt": lambda v: 1 / mpmath.sqrt(v), "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
           "softplus": lambda v: mpmath.log(1 + mpmath.exp(v))}  # fmt: skip
    with mpmath.workdps(40):
        for at, value in enumerate(x.tolist()):
            true = own.get(name, getattr(mpmath, name, None))(mpmath.mpf(value))
            radius = np.broadcast_to(found.radius, x.shape)[at]
            assert not np.isfinite(radius) or abs(mpmath.mpf(found.middle[at]) - true) <= radius
            assert not np.isfinite(radius) or radius <= max(1e-13, 1e-13 * abs(true))


def test_rounding_is_that_of_the_dtypes() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal(500) * 10.0 ** np.random.default_rng(1).integers(-6, 6, 500)
    x = np.concatenate([x, [0.0, np.inf, 65519.0, 65520.0, 3.39e38, 1 + 2.0**-8, 1 + 3 * 2.0**-8]]).astype(np.float32)
    for ours, theirs in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        with np.errstate(all="ignore"):
            assert (rounded(x.astype(float), ours) == torch.tensor(x).to(theirs).double().numpy()).all()


def test_a_large_call_is_measured_by_arrays_and_agrees_with_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """input Q[i, d], K[j, d], V[j, e], B[i, j];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) + B[i, j]) where j <= i;
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);"""
    Q, K, V = np.random.default_rng(5).standard_normal((3, 9, 4)).astype(np.float32)
    B = np.where(np.eye(9) > 0, 0, -30.0).astype(np.float32) * (np.arange(9) % 2)
    slowly = ix.accuracy(text, Q, K, V, B)["out"]
    monkeypatch.setattr(accuracy, "FEW_STEPS", 0)
    quickly = ix.accuracy(text, Q, K, V, B)["out"]
    assert quickly.worst == slowly.worst
    assert float(quickly.mean) == pytest.approx(float(slowly.mean), rel=1e-3)
    monkeypatch.setattr(accuracy, "SPOT_STEPS", 4000)
    sampled = ix.accuracy(text, Q.astype(float), K, V, B)["out"]
    assert 0 < sampled.measured < sampled.points
    assert "points were measured" in str(ix.accuracy(text, Q.astype(float), K, V, B))


@pytest.mark.parametrize("mask", [-np.inf, -1e9])
def test_masks_that_are_added(mask: float, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """input s[i, j], M[i, j], V[j];
let w[i, j] = softmax[j](s[i, j] + M[i, j]);
let y[i]    = sum[j](w[i, j] * V[j]);"""
    s, V = np.random.default_rng(6).standard_normal((5, 5)).astype(np.float32), np.arange(5, dtype=np.float32)
    kept = np.tri(5, dtype=bool)
    raised = np.exp(s.astype(float)) * kept
    computed = (raised / raised.sum(1, keepdims=True) @ V).astype(np.float32)
    monkeypatch.setattr(accuracy, "FEW_STEPS", 0)
    found = ix.accuracy(text, s, np.where(kept, 0, mask).astype(np.float32), V, computed=computed)["y"]
    assert found.measured == found.points == 5
    assert found.worst is not None
    assert found.worst.error is not None
    assert found.worst.error <= 0.501
