"""What JAX is promised: a call can be traced, mapped over a batch and differentiated; checks are made where there are
values; nothing is cut down to 32 bits, and what is narrow stays so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.engine import door

import indexical as ix

jax = pytest.importorskip("jax")
jnp = jax.numpy

pytestmark = pytest.mark.sampled(3)

WINDOW = """input x[t, c], window : i64, gain;
let out[t, c] = if window > 2 { gain * sum[s in 0..size(t)](x[s, c] where t - window < s <= t) } else { x[t, c] };"""
TABLE = "input E[v, d], t[i] : i64; let out[i, d] = E[t[i], d];"
CLAUSES = "input x[t]; let y[0] = 2 * x[0]; let y[t in 1..size(t)] = x[t] - x[t - 1];"
STEPS = "input x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = tanh(h[t - 1]) + x[t];"
COUNTS = "input p[i] : i64, x[i]; let out[k in 0..4] = sum[i](x[i] where p[i] == k);"


def built(text: str, dtypes: Mapping[str, Any]) -> door.Built:
    program = ix.compile(text)
    return door.build(program.ir, dtypes, "jax", program.outputs)


def drawn(*shape: int, dtype: str = "f8") -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def test_a_scalar_may_be_traced_where_no_size_hangs_on_it() -> None:
    function = built(WINDOW, {"x": "f64", "window": "i64", "gain": "f64"})
    x = drawn(6, 2)
    with jax.enable_x64(True):
        traced = jax.jit(lambda *given: function(*given)[0])
        for window in (1, 3, 4):
            [expected] = function(jnp.asarray(x), window, 0.5)
            np.testing.assert_allclose(traced(jnp.asarray(x), window, 0.5), expected, atol=1e-12)
            right = ix.compile(WINDOW)(x, window, 0.5, backend="reference")
            np.testing.assert_allclose(expected, right, atol=1e-12)


@pytest.mark.parametrize("text", [CLAUSES, STEPS])
def test_a_batch_is_its_members(text: str) -> None:
    function = built(text, {"x": "f32"})
    batch = jnp.asarray(drawn(3, 5, dtype="f4"))
    found = jax.jit(jax.vmap(lambda x: function(x)[0]))(batch)
    for one, x in zip(found, batch, strict=True):
        np.testing.assert_allclose(one, function(x)[0], atol=1e-6)


@pytest.mark.parametrize("text", [CLAUSES, STEPS, COUNTS.replace("p[i] : i64, ", "").replace("p[i]", "i")])
def test_gradients_flow_through_stores_and_rows(text: str) -> None:
    [name] = ix.compile(text).inputs
    function = built(text, {name: "f64"})
    with jax.enable_x64(True):
        x, way = jnp.asarray(drawn(5)), np.random.default_rng(1).normal(size=5)
        slope = np.asarray(jax.grad(lambda x: jnp.sin(function(x)[0]).sum())(x))
        high, low = (float(jnp.sin(function(x + step * way)[0]).sum()) for step in (1e-6, -1e-6))
    assert float((slope * way).sum()) == pytest.approx((high - low) / 2e-6, rel=1e-6)


def test_a_place_out_of_bounds_is_refused_where_there_are_values() -> None:
    function = built(TABLE, {"E": "f32", "t": "i64"})
    with jax.enable_x64(True):
        table, places = jnp.asarray(drawn(3, 2, dtype="f4")), jnp.asarray([0, 7])
        with pytest.raises(function.refused):
            function(table, places)
        assert jax.jit(lambda *given: function(*given)[0])(table, places).shape == (2, 2)


def test_64_bits_are_not_cut_down() -> None:
    function = built(COUNTS, {"x": "f64", "p": "i64"})
    x, p = drawn(7), np.array([0, 1, 1, 3, 2, 5, -1])
    [found] = function(p, x)
    assert door.dtype_name(found) == "float64"
    np.testing.assert_allclose(found, [x[p == k].sum() for k in range(4)], rtol=1e-14)


@pytest.mark.parametrize(("dtype", "name"), [("f16", "float16"), ("bf16", "bfloat16"), ("f32", "float32")])
def test_narrow_numbers_stay_narrow(dtype: Any, name: str) -> None:
    function = built(STEPS, {"x": dtype})
    x = jnp.asarray(drawn(6, dtype="f4"), name)
    [found] = function(x)
    assert door.dtype_name(found) == name
    right = ix.compile(STEPS)(np.asarray(x.astype("float32")), backend="reference")
    np.testing.assert_allclose(door.as_numpy(found).astype("f4"), right, atol=5e-2)
