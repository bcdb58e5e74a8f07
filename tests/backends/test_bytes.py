"""Inputs of 8 bits: stored so, and read as whole numbers of 32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix

CACHE = """
input q[i, d], K8[j, d] : i8, V8[j, e] : u8, scale[j], step[j], zero[j] : u8;
let K[j, d]   = K8[j, d] * scale[j];
let V[j, e]   = (V8[j, e] - zero[j]) * step[j];
let w[i, j]   = softmax[j](sum[d](q[i, d] * K[j, d]) / sqrt(size(d))) where j <= i;
let out[i, e] = sum[j](w[i, j] * V[j, e]);
let raw[j, d] = K8[j, d];
let big[j, e] = V8[j, e] * V8[j, e] * V8[j, e] - 1;
let all_of    = sum[j, d](K8[j, d]);
output out, raw, big, all_of;
"""


@pytest.fixture
def cache() -> dict[str, Any]:
    noise = np.random.default_rng(3)
    return {
        "q": noise.standard_normal((6, 4)).astype(np.float32),
        "K8": noise.integers(-128, 128, (6, 4)).astype(np.int8),
        "V8": noise.integers(0, 256, (6, 3)).astype(np.uint8),
        "scale": noise.random(6).astype(np.float32) / 64,
        "step": noise.random(6).astype(np.float32),
        "zero": noise.integers(0, 256, 6).astype(np.uint8),
    }


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_quantised_cache_is_what_the_reference_says(cache: dict[str, Any], backend: str, isolate: bool) -> None:
    program = ix.compile(CACHE)
    wanted = program(**cache, backend="reference")
    given = cache if backend == "numpy" else {name: torch.tensor(array) for name, array in cache.items()}
    found = program(**given, isolate=isolate)
    assert [str(array.dtype).removeprefix("torch.") for array in found] == ["float32", "int32", "int32", "int32"]
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(np.asarray(other), one, rtol=1e-5, atol=1e-5)


def test_gradients_flow_to_the_scales_past_the_stored_numbers(cache: dict[str, Any]) -> None:
    program = ix.compile(CACHE)
    names = ("q", "scale", "step")
    given = {name: torch.tensor(array, requires_grad=name in names) for name, array in cache.items()}
    seed = torch.linspace(-1, 1, 18).reshape(6, 3)
    (program(**given, outputs="out") * seed).sum().backward()
    derived = ix.grad(program, of="out", by=names)
    wanted = derived(**cache, d_out=seed.numpy(), backend="reference")
    for name, one in zip(names, wanted, strict=True):
        np.testing.assert_allclose(given[name].grad, one, rtol=2e-4, atol=2e-4)


def test_the_cache_is_made_real_at_once(cache: dict[str, Any]) -> None:
    tensors = {name: torch.tensor(array) for name, array in cache.items()}
    assert "K = K8 * scale[:, None]" in ix.compile(CACHE).source(**tensors)


def test_they_are_indices_and_guards_like_other_whole_numbers() -> None:
    program = ix.compile("input x[k], p[i] : u8, m[i] : i8; let y[i] = x[p[i]] where m[i] > 0;")
    x, p, m = np.arange(300.0), np.array([255, 3, 7], np.uint8), np.array([1, -1, 127], np.int8)
    for backend in ("reference", "numpy", "torch"):
        np.testing.assert_array_equal(program(x, p, m, backend=backend), [255, 0, 7])


SCALED = "input x[i] : i8, s : u8; let y[i] = x[i] * s;"


@pytest.mark.parametrize(
    ("x", "s"),
    [
        (np.array([1, 2]), 3),
        (np.array([1, 2], np.uint8), 3),
        (np.array([1.0, 2.0]), 3),
        (np.array([True, False]), 3),
        ([1, 128], 3),
        ([1, -129], 3),
        ([1, 2], -1),
        ([1, 2], 256),
    ],
)
def test_what_does_not_fit_is_refused_also_after_a_call_that_did(x: Any, s: Any) -> None:
    program = ix.compile(SCALED)
    for _ in range(2):
        assert program([1, -128], 255).tolist() == [255, -32640]
        assert program(np.array([1, -128], np.int8), 255).tolist() == [255, -32640]
    with pytest.raises(ix.Error, match="IX503"):
        program(x, s)
    with pytest.raises(ix.Error, match="IX503"):
        program(np.array([1, -128], np.int8), 256)


def test_exact_values_of_them() -> None:
    assert "200  -25600" in str(ix.exact(ix.compile(SCALED), x=[1, -128], s=200))
    with pytest.raises(ix.Error, match="does not fit"):
        ix.exact(ix.compile(SCALED), x=[1, -129], s=200)


def test_nothing_is_computed_in_8_bits() -> None:
    with pytest.raises(ix.Error, match=r"only an input is stored in `i8`"):
        ix.compile("input x[i] : i8; let y[i] = x[i] as i8;")
    with pytest.raises(ix.Error, match="did you mean `u8`"):
        ix.compile("input x[i] : uint8; let y[i] = x[i];")
    formatted = "input x[i] : i8;\nlet y[i] = x[i] + 1;\n"
    assert ix.compile(formatted).ir.inputs[0].dtype == "i8"
