"""Rows are written into an array that is given away; it is copied where something still reads it as it was.

The two rules are read here on small programs, each with a reason where it is not applied, and in steps of decoders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.engine import door

import indexical as ix
from indexical.engine.ops import Put
from indexical.engine.order import reachable, roots_of
from indexical.engine.spec import check
from indexical.ir import nodes as ir
from indexical.ir.types import Dtype
from indexical.run.samples import random_arrays

HEAD = "input past[j, d], new[i, d];"
ROWS = "let rows[j, d] = if j >= size(j) - size(i) { new[j - size(j) + size(i), d] } else { past[j, d] };"
ALONE = f"{HEAD} {ROWS}"
BEFORE = f"{HEAD} let first[d] = past[0, d] * 2; {ROWS} let both[d] = first[d] + rows[0, d]; output rows, both;"
AFTER = f"{HEAD} {ROWS} let last[d] = rows[0, d] + past[size(j) - 1, d]; output rows, last;"


def built(text: str, owned: bool) -> tuple[ir.Program, door.Built]:
    program = ix.compile(text).ir
    given = tuple(replace(one, owned=owned and one.name == "past") for one in program.inputs)
    program = replace(program, inputs=given)
    return program, door.build(program, {"past": "f64", "new": "f64"}, "numpy", program.outputs)


@pytest.mark.parametrize("owned", [True, False])
@pytest.mark.parametrize("text", [ALONE, BEFORE, AFTER])
def test_values_are_those_of_the_relation(text: str, owned: bool) -> None:
    past, new = np.arange(10.0).reshape(5, 2), -np.ones((2, 2))
    right = ix.compile(text)(past, new, backend="reference")
    right = right if isinstance(right, tuple) else (right,)
    given = past.copy()
    _, program = built(text, owned)
    found = program(given, new)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found[0] is given) == (owned and text != AFTER)
    assert owned or np.array_equal(given, past)


# ------------------------------------------------------------------- each rule and its reasons


BEHIND = "input given_away[n, j, d], new[n, i, d], before[n]: i64; let out[n, j, d] ="
PLACED = "if any[b, i](p[b, i] == j && q[b, i] == k) { sum[b, i](new[b, i, d] where p[b, i] == j && q[b, i] == k) }"
PAGED = f"p[b, i]: i64, q[b, i]: i64; let out[j, k, d] = {PLACED} else {{ given_away[j, k, d] }};"
PUT = {
    "behind": f"{BEHIND} if j >= size(j) - size(i) {{ new[n, j - size(j) + size(i), d] }}"
    " else { given_away[n, j, d] };",
    "behind what is data": f"{BEHIND} if j >= before[n] && j < before[n] + size(i) {{ new[n, j - before[n], d] }}"
    " else { given_away[n, j, d] };",
    "with other names": "input given_away[h, j], new[i, d]; let out[d, j] ="
    " if j >= size(j) - size(i) { new[j - size(j) + size(i), d] } else { given_away[d, j] };",
    "turned round": "input given_away[h, j], new[i, d]; let out[j, d] ="
    " if j >= size(j) - size(i) { new[j - size(j) + size(i), d] } else { given_away[d, j] };",
    "a row that is called alike": "input given_away[j, d], new[i in 0..2, d]; let out[j, i in 0..size(d)] ="
    " if j >= 3 && j < 5 { new[j - 3, i] } else { given_away[j, i] };",
    "at places": f"input given_away[j, k, d], new[b, i, d], {PAGED}",
    "whole numbers": f"input given_away[j, k, d]: i64, new[b, i, d]: i64, {PAGED}",
    "small whole numbers": f"input given_away[j, k, d]: i32, new[b, i, d]: i32, {PAGED}",
    "truths": f"input given_away[j, k, d]: bool, new[b, i, d]: bool, {PAGED.replace('sum[', 'any[')}",
}
SIZES = {"n": 2, "j": 5, "i": 2, "d": 3, "h": 3, "b": 2, "k": 2}
GIVEN = {"before": np.array([3, 0]), "p": np.array([[0, 3], [3, 1]]), "q": np.array([[1, 1], [0, 1]])}
REAL = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def of(text: str, real: Dtype, library: str, owned: bool = True) -> tuple[door.Built, list[Any], Any]:
    """A program for a library, its arrays, and what the reference says of these."""
    program = ix.compile(text if owned else text.replace("given_away", "kept"))
    given = {name: array for name, array in GIVEN.items() if name in program.inputs}
    arrays = given | random_arrays(program.ir, given, SIZES, 1)[0].arrays
    reals = [one.name for one in program.ir.inputs if one.kind == "real" and one.dtype is None]
    arrays |= {name: arrays[name].astype(REAL[real]) for name in reals}
    right = program(**{name: array.copy() for name, array in arrays.items()}, backend="reference")
    dtypes: dict[str, Dtype] = {one.name: one.dtype or real for one in program.ir.inputs}
    inputs = tuple(replace(one, counts=one.name == "before") for one in program.ir.inputs)
    built = door.build(replace(program.ir, inputs=inputs), dtypes, library, program.ir.outputs)
    held = [arrays[name].copy() for name in program.inputs]
    return built, [door.torch.from_numpy(one) for one in held] if library == "torch" else held, right


def puts_of(built: door.Built) -> list[Put]:
    check(built.plan, legal=True)
    return [one.op for one in reachable(roots_of(built.plan)) if isinstance(one.op, Put)]


@pytest.mark.parametrize("real", REAL)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", PUT)
def test_rows_are_stored_in_what_was_given_away(name: str, library: str, real: Dtype) -> None:
    built, arrays, right = of(PUT[name], real, library)
    assert len(puts_of(built)) == 1
    (found,) = built(*arrays)
    np.testing.assert_array_equal(door.as_numpy(found), right)
    assert np.shares_memory(door.as_numpy(found), door.as_numpy(arrays[0]))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", PUT)
def test_nothing_else_is_ever_written_to(name: str, library: str) -> None:
    built, arrays, right = of(PUT[name], "f64", library, owned=False)
    before = [door.as_numpy(one).copy() for one in arrays]
    assert not puts_of(built)
    assert "the caller keeps the array" in {one.reason for one in built.plan.refused}
    (found,) = built(*arrays)
    np.testing.assert_array_equal(door.as_numpy(found), right)
    for one, other in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(door.as_numpy(one), other)
    assert not np.shares_memory(door.as_numpy(found), door.as_numpy(arrays[0]))


# What matches and is not applied, with the reason; None where it is another matter.
REFUSED = {
    "more places than rows": (
        "input given_away[j, d], new[i in 0..4, d];"
        " let out[j, d] = if j >= 1 && j < 3 { new[j - 1, d] } else { given_away[j, d] };",
        "nothing says that there are as many new rows as places for them",
    ),
    "more bits": (
        "input given_away[j, d]: f32, new[i, d]: f64; let out[j, d] ="
        " if j >= size(j) - size(i) { new[j - size(j) + size(i), d] } else { given_away[j, d] };",
        "the array has numbers of another dtype",
    ),
    "more bits at places": (f"input given_away[j, k, d]: f32, new[b, i, d]: f64, {PAGED}", None),
    "one place for several": (
        f"input given_away[j, k, d], new[b, i, d], {PAGED}".replace("q[b, i]", "q[b]"),
        "several rows have one place",
    ),
    "in a loop": (
        "input given_away[j], new[n, i in 0..2]; let out[n, j] = (if n > 0 { out[n - 1, j] } else { 0 })"
        " + (if j >= n && j < n + 2 { new[n, j - n] } else { given_away[j] });",
        "each turn of a loop would write to it",
    ),
    "other rows": (
        "input given_away[j, d], new[i, d]; let out[j, d] ="
        " if j >= size(j) - size(i) { new[size(j) - 1 - j, d] } else { given_away[j, d] };",
        None,
    ),
    "what is computed": (
        "input given_away[j, d], new[i, d]; let out[j, d] ="
        " if j >= size(j) - size(i) { new[j - size(j) + size(i), d] } else { 2 * given_away[j, d] };",
        None,
    ),
    "a part of an array": (
        "input given_away[h in 0..5, d], new[i in 0..2, d]; let out[j in 0..4, d] ="
        " if j >= 2 && j < 4 { new[j - 2, d] } else { given_away[j, d] };",
        None,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_reason_is_given(name: str) -> None:
    text, reason = REFUSED[name]
    program = ix.compile(text)
    if name != "one place for several":
        built, arrays, right = of(text, "f64", "numpy")
        np.testing.assert_allclose(built(*arrays)[0], right)
    else:
        dtypes: dict[str, Dtype] = {one.name: one.dtype or "f64" for one in program.ir.inputs}
        built = door.build(program.ir, dtypes, "numpy", program.outputs)
    assert not puts_of(built)
    assert {one.reason for one in built.plan.refused if "put rows" in one.rule} == ({reason} - {None})


def test_a_number_that_is_not_there_any_more_is_not_heard() -> None:
    """What new rows replace may be infinite or NaN, and so may rows at other places."""
    built, arrays, _ = of(PUT["at places"], "f64", "numpy")
    arrays[0][0, 1], arrays[1][0, 1] = np.nan, np.inf
    (found,) = built(*arrays)
    assert np.isinf(found[3, 1]).all()
    assert np.isfinite(np.delete(found.reshape(10, 3), 7, 0)).all()


# ---------------------------------------------------------------------------- in decoders


TEXT = """space position(i, j);
input x[i, m], w[m, n];
let k[j, n] = sum[m](x[j, m] * w[m, n]);
let y[i, n] = sum[j](softmax[j](k[i, 0] * k[j, 0] where j <= i) * k[j, n]) * {number};
output y;
"""
STEPS: dict[str, tuple[int, dict[str, Any], str]] = {
    "growing": (2, {}, "put rows behind"),
    "with room": (3, {"capacity": 8}, "put rows behind"),
    "in pages": (4, {"pages": 4}, "put rows at places"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_says_what_it_writes(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number, more, rule = STEPS[name]
    decoder = ix.incremental(TEXT.replace("{number}", str(number)), "i", **more)
    x, w = np.random.default_rng(0).normal(size=(6, 3)), np.eye(3)
    state, _ = decoder.prefill(x[:4], w)
    monkeypatch.setenv("IX_DUMP", "1")
    decoder.step(x[4:], state)
    said = capsys.readouterr().err
    assert f". {rule}: " in said
    assert "given away" in said
