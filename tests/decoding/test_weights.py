"""Weights of a decoder: numbers, matrices that are laid out once, and steps that are known however long it grows."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import torch

import indexical as ix

MODEL = """
use std::attention::{{causal_attention}};
use std::norms::{{rms_norm}};
use std::positions::{{rotary_halves}};
input x[i, m], gain[m], W_Q[{q}], W_K[{k}], W_V[{v}], W_O[{o}], base, small;
let a = rms_norm(x, gain, small);
let Q[h, i, d] = sum[m](a[i, m] * W_Q[{q}]);
let K[h, i, d] = sum[m](a[i, m] * W_K[{k}]);
let V[h, i, e] = sum[m](a[i, m] * W_V[{v}]);
let A = causal_attention(rotary_halves(Q, base), rotary_halves(K, base), V);
let out[i, m] = x[i, m] + sum[h, e](A[h, i, e] * W_O[{o}]);
output out;
"""
SIZES = {"i": 7, "m": 6, "h": 2, "d": 4, "e": 3}
NUMBERS = {"base": 10000.0, "small": 1e-5}
LAYOUTS = [
    {"q": ", ".join(one), "k": ", ".join(two), "v": "h, m, e", "o": ", ".join(three)}
    for one, two, three in list(zip(permutations("hmd"), permutations("mdh"), permutations("hem"), strict=True))[::2]
]


def drawn(program: ix.Program) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    tensors = [tensor for tensor in program.ir.inputs if tensor.axes]
    return {t.name: torch.randn([SIZES[axis.coordinate] for axis in t.axes], dtype=torch.float64) for t in tensors}


def decoded(decode: Any, x: torch.Tensor, first: int) -> torch.Tensor:
    state, start = decode.prefill(x[:first])
    rows = [start]
    for n in range(first, len(x)):
        state, row = decode.step(x[n : n + 1], state)
        rows.append(row)
    return torch.cat(rows)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout["q"].replace(", ", ""))
def test_weights_in_any_order_of_axes_give_the_full_pass(layout: dict[str, str]) -> None:
    program = ix.compile(MODEL.format(**layout))
    given = drawn(program)
    expected = program(**given, **NUMBERS, backend="reference")
    x = given.pop("x")
    decode = ix.incremental(program, "i", **given, **NUMBERS)
    torch.testing.assert_close(decoded(decode, x, 3), torch.as_tensor(expected))
    assert all(axes[0] == "m" or axes[-1] == "m" for axes in _axes_of(decode, "W_O"))
    assert all(axes[-1] == "m" for name in ("W_Q", "W_K", "W_V") for axes in _axes_of(decode, name))
    # The step that is shown takes the weights as they were given.
    shown = {tensor.name: tensor for tensor in decode.step_program.ir.inputs}
    assert ", ".join(axis.coordinate for axis in shown["W_Q"].axes) == layout["q"]


def _axes_of(decode: Any, name: str) -> list[list[str]]:
    return [[axis.coordinate.name for axis in t.axes] for t in decode._step._program.inputs if t.name == name]


def test_weights_that_change_are_laid_out_again() -> None:
    program = ix.compile(MODEL.format(**LAYOUTS[0]))
    given = drawn(program)
    x = given.pop("x")
    decode = ix.incremental(program, "i", **given, **NUMBERS)
    decoded(decode, x, 3)
    with torch.no_grad():
        given["W_Q"].mul_(-2)
    torch.testing.assert_close(decoded(decode, x, 3), program(x=x, **given, **NUMBERS))


def test_a_weight_that_is_read_in_two_ways_stays_as_it_is() -> None:
    tied = "input x[i, m], W[m, n]; let y[i, n] = sum[m](x[i, m] * W[m, n]); let out[i, m] = sum[n](y[i, n] * W[m, n]);"
    decode = ix.incremental(ix.compile(tied), "i", W=torch.ones(3, 2), outputs="out")
    assert not decode._layouts.orders


def test_a_weight_of_another_rank_is_refused_with_a_finding() -> None:
    program = ix.compile("input x[i, m], W[m, n]; let y[i, n] = sum[m](x[i, m] * W[m, n]);")
    decode = ix.incremental(program, "i", W=torch.ones(3))
    with pytest.raises(ix.Error, match="W"):
        decode.prefill(torch.ones(2, 3))


@pytest.mark.parametrize("value", [1e-5, -0.25, 0.0, torch.tensor(1e-5)])
def test_a_number_may_be_any(value: Any) -> None:
    program = ix.compile("input x[i, m], c; let y[i, m] = x[i, m] * c + mean[m](x[i, m] ** 2);")
    x = torch.randn(4, 3)
    torch.testing.assert_close(decoded(ix.incremental(program, "i", c=value), x, 2), program(x, c=value))


def test_a_step_at_a_length_that_is_new_is_known() -> None:
    program = ix.compile(MODEL.format(**LAYOUTS[0]))
    given = drawn(program)
    x = given.pop("x")
    decode = ix.incremental(program, "i", **given, **NUMBERS)
    state, _ = decode.prefill(x[:2])
    state, _ = decode.step(x[2:3], state)
    bound = []
    decode._caller.bind = lambda *call: bound.append(call)
    for n in range(3, 7):
        state, _ = decode.step(x[n : n + 1], state)
    assert not bound


def test_equal_tables_are_computed_once() -> None:
    program = ix.compile(MODEL.format(**LAYOUTS[0]))
    source = program.source(**drawn(program), **NUMBERS)
    assert source.count("torch.cos(") == source.count("torch.sin(") == 1
