"""JAX computes what the reference says, values and gradients, and can be traced."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws import test_backends as laws
from tests.laws.agreement import is_within
from tests.laws.guarded import guarded_case
from tests.laws.programs import random_case

import indexical as ix
from indexical.run.pointwise import evaluate_bound

jax = pytest.importorskip("jax")
jnp = jax.numpy

ATTENTION = """
space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e];
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
"""
WINDOW = ATTENTION.replace("j <= i", "j <= i && i - j < 3")
STATE = "input a[t], x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = a[t] * h[t - 1] + x[t];"
STEPS = "input x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = tanh(h[t - 1]) + x[t];"
TABLE = "input E[v, d], t[i]: i64; let out[i, d] = E[t[i], d];"


def drawn(*shapes: tuple[int, ...], dtype: str = "f8") -> list[Any]:
    noise = np.random.default_rng(0)
    return [noise.normal(size=shape).astype(dtype) for shape in shapes]


def jitted(call: laws.Call, isolate: bool) -> dict[str, Any]:
    """Every definition of a call, traced and compiled at once: far faster than step by step."""
    prepared = call.engine.prepare(dict(call.arrays), "jax")
    kernel = call.engine.kernel(prepared, call.names, isolate)
    values = [prepared.values[name] for name in call.program.inputs]
    arrays = {n: value for n, value in enumerate(values) if hasattr(value, "shape")}
    with jax.enable_x64(True):
        found = jax.jit(lambda given: kernel.function(*[given.get(n, v) for n, v in enumerate(values)]))(arrays)
    found = (found,) if len(call.names) == 1 else found
    return {name: np.asarray(value) for name, value in zip(call.names, found, strict=True)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("start", [0, 20])
def test_generated_programs_agree_with_the_reference(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws.Call, "compute", lambda call, backend, isolate: jitted(call, isolate))
    looked, checked = 0, 0
    for seed in range(start, start + 4):
        case = random_case(seed)
        call = laws.Call(case.text, case.arrays) if is_within(case) else None
        if call is None or call.wanted is None:
            continue
        try:
            laws.check(call, "jax", isolate=call.is_loud)
            checked += 1
        except ix.Error as refusal:
            if refusal.diagnostics[0].code != "IX515":  # A trace has no values to look at.
                raise
            looked += 1
    assert checked > looked


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_gradients_of_guarded_reads_are_those_of_autograd(seed: int) -> None:
    torch = pytest.importorskip("torch")
    case = guarded_case(seed)
    program = ix.compile(case.text)
    wanted = np.asarray(program(**case.arrays, outputs=case.of, backend="reference"))
    factor = np.random.default_rng(seed).normal(size=wanted.shape)
    tensors = {name: torch.tensor(array, requires_grad=name in case.reals) for name, array in case.arrays.items()}
    found = (program(**tensors, outputs=case.of) * torch.tensor(factor)).sum()
    slopes = torch.autograd.grad(found, [tensors[name] for name in case.reals], allow_unused=True)
    whole = {name: array for name, array in case.arrays.items() if name not in case.reals}

    def total(reals: dict[str, Any]) -> Any:
        value = program(**reals, **whole, outputs=case.of)
        return (value * factor).sum(), value

    with jax.enable_x64(True):
        derived = jax.jit(jax.value_and_grad(total, has_aux=True))
        (_, value), gradient = derived({name: jnp.asarray(case.arrays[name]) for name in case.reals})
    np.testing.assert_allclose(value, wanted, atol=1e-9)
    for name, slope in zip(case.reals, slopes, strict=True):
        np.testing.assert_allclose(gradient[name], 0 if slope is None else slope.numpy(), atol=1e-8)


def test_maps_over_a_batch() -> None:
    program = ix.compile(ATTENTION)
    batch = [jnp.asarray(array) for array in drawn((2, 5, 3), (2, 5, 3), (2, 5, 4), dtype="f4")]
    found = jax.jit(jax.vmap(program))(*batch)
    np.testing.assert_allclose(found[1], program(*(np.asarray(array[1]) for array in batch)), atol=1e-6)


def test_no_rule_asks_for_a_dialect_by_name() -> None:
    folder = Path(ix.__file__).parent
    for path in [*(folder / "backends").glob("*.py"), *(folder / "plan").glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert "dialect.name" not in text, path.name
        assert not re.search(r"[!=]= \"(numpy|torch|jax)\"", text), path.name


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (ATTENTION, [(5, 3), (5, 3), (5, 4)]),
        (WINDOW, [(5, 3), (5, 3), (5, 4)]),
        (STATE, [(6,), (6,)]),
        (STEPS, [(4,)]),
    ],
)
def test_values_and_gradients(text: str, shapes: list[tuple[int, ...]]) -> None:
    program = ix.compile(text)
    arrays = drawn(*shapes)
    name = program.outputs[-1]
    wanted = evaluate_bound(
        program._engine.prepare(dict(zip(program.inputs, arrays, strict=True)), "numpy").bound, (name,)
    )
    with jax.enable_x64(True):
        given = [jnp.asarray(array) for array in arrays]

        def total(*values: Any) -> Any:
            return jnp.sin(program(*values, outputs=name)).sum()

        found = jax.jit(lambda *values: program(*values, outputs=name))(*given)
        np.testing.assert_allclose(found, wanted[name], atol=1e-12)
        slopes = jax.jit(jax.grad(total, range(len(given))))(*given)
        for number, (array, slope) in enumerate(zip(arrays, slopes, strict=True)):
            expected = differences(lambda *v: np.sin(np.asarray(program(*v, outputs=name))).sum(), arrays, number)
            np.testing.assert_allclose(slope, expected, atol=1e-7, err_msg=str(array.shape))


def differences(function: Callable[..., Any], arrays: list[Any], number: int) -> Any:
    """The gradient by one of the arrays, from differences."""
    result = np.zeros(arrays[number].shape)
    for place in np.ndindex(result.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = [array.copy() for array in arrays]
            moved[number][place] += step
            ends.append(function(*moved))
        result[place] = (ends[0] - ends[1]) / 2e-6
    return result


def test_arrays_in_and_out() -> None:
    program = ix.compile(ATTENTION)
    given = [jnp.asarray(array) for array in drawn((5, 3), (5, 3), (5, 4), dtype="f4")]
    found = program(*given)
    assert isinstance(found, jax.Array)
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, program(*map(np.asarray, given)), atol=1e-6)
    np.testing.assert_allclose(jax.jit(program)(*given), found, atol=1e-6)
    assert isinstance(program(*map(np.asarray, given), backend="jax"), jax.Array)


def test_accuracy_is_measured() -> None:
    sheet = ix.accuracy("input x[i]; let y[i] = exp(x[i]);", jnp.asarray([0.5, 1.0]))
    assert "jax" in str(sheet)


def test_halves_stay_halves() -> None:
    program = ix.compile(ATTENTION)
    for dtype in ("float16", "bfloat16"):
        given = [jnp.asarray(array, dtype) for array in drawn((5, 3), (5, 3), (5, 4), dtype="f4")]
        found = jax.jit(program)(*given)
        assert found.dtype == dtype
        wanted = program(*(np.asarray(array.astype("float32")) for array in given))
        np.testing.assert_allclose(np.asarray(found.astype("float32")), wanted, atol=3e-2)


def test_the_plan_says_what_runs() -> None:
    given = [jnp.asarray(array) for array in drawn((5, 3), (5, 3), (5, 4), dtype="f4")]
    shown = str(ix.compile(ATTENTION).plan(*given))
    assert "by scaled_dot_product_attention\n  all scores are built" in shown
    assert "never built" not in shown
    shown = str(ix.compile(WINDOW).plan(*given))
    assert "by arrays" in shown
    assert "it knows no guard but `j <= i`" in shown
    assert ".at[" in ix.compile(STATE.replace("a[t] * h[t - 1]", "a[t]")).source(*drawn((4,), (4,)), backend="jax")


def test_a_place_out_of_bounds_is_refused_where_there_are_values() -> None:
    program = ix.compile(TABLE)
    table, places = jnp.asarray(drawn((3, 2), dtype="f4")[0]), jnp.asarray([0, 7])
    with pytest.raises(ix.Error, match="IX305"):
        program(table, places)
    with jax.enable_x64(True):
        assert jax.jit(program)(table, places).shape == (2, 2)


def test_64_bits_are_not_cut_down() -> None:
    program = ix.compile(WINDOW)
    given = drawn((5, 3), (5, 3), (5, 4))
    found = program(*given, backend="jax")
    assert found.dtype == "float64"
    np.testing.assert_allclose(found, program(*given), atol=1e-12)
    with pytest.raises(ix.Error, match="jax_enable_x64"):
        jax.jit(program)(*(jnp.asarray(array, "float32") for array in given))


def test_a_size_has_to_be_known_to_trace_a_call() -> None:
    program = ix.compile("input n: i64; let y[k in 0..n] = 1.0 * k;")
    assert program(jnp.asarray(3)).shape == (3,)
    with pytest.raises(ix.Error, match="static"), jax.enable_x64(True):
        jax.jit(program)(3)
