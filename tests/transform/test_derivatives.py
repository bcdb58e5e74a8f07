"""Derivatives of elementwise functions, beside finite differences and PyTorch's own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.ir import build
from indexical.ir import nodes as ir
from indexical.ir.functions import FUNCTIONS
from indexical.run import pointwise
from indexical.transform.slopes import partials

X = np.array([-2.3, -1.1, -0.4, 0.3, 0.9, 1.7, 2.6])
Y = np.array([0.7, 1.9, -0.8, 2.2, -1.4, 0.6, 1.3])
Z = np.array([-0.2, 2.4, 1.1, 0.5, -2.1, 3.0, -1.6])
POSITIVE = np.abs(X)

# The body, where it is looked at, and PyTorch's way to say it.
SINGLE: dict[str, tuple[str, Any, str]] = {
    "neg": ("-x[i]", X, "-x"),
    "exp": ("exp(x[i])", X, "torch.exp(x)"),
    "log": ("log(x[i])", POSITIVE, "torch.log(x)"),
    "sqrt": ("sqrt(x[i])", POSITIVE, "torch.sqrt(x)"),
    "rsqrt": ("rsqrt(x[i])", POSITIVE, "torch.rsqrt(x)"),
    "tanh": ("tanh(x[i])", X, "torch.tanh(x)"),
    "sigmoid": ("sigmoid(x[i])", X, "torch.sigmoid(x)"),
    "relu": ("relu(x[i])", X, "torch.relu(x)"),
    "gelu": ("gelu(x[i])", X, "torch.nn.functional.gelu(x)"),
    "silu": ("silu(x[i])", X, "torch.nn.functional.silu(x)"),
    "abs": ("abs(x[i])", X, "torch.abs(x)"),
    "sin": ("sin(x[i])", X, "torch.sin(x)"),
    "cos": ("cos(x[i])", X, "torch.cos(x)"),
    "erf": ("erf(x[i])", X, "torch.erf(x)"),
    "square": ("x[i] ** 2", X, "x ** 2"),
    "cube": ("x[i] ** 3", X, "x ** 3"),
    "inverse": ("x[i] ** -1", X, "x ** -1"),
    "root": ("x[i] ** 0.5", POSITIVE, "x ** 0.5"),
    "cast": ("x[i] as f64", X, "x.double()"),
    "clamp": ("clamp(x[i], -1, 1)", X, "torch.clamp(x, -1, 1)"),
}
SEVERAL: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "+": ("x[i] + y[i]", (X, Y), "x + y"),
    "-": ("x[i] - y[i]", (X, Y), "x - y"),
    "*": ("x[i] * y[i]", (X, Y), "x * y"),
    "/": ("x[i] / y[i]", (X, Y), "x / y"),
    "**": ("x[i] ** y[i]", (POSITIVE, Y), "x ** y"),
    "max": ("max(x[i], y[i])", (X, Y), "torch.maximum(x, y)"),
    "min": ("min(x[i], y[i])", (X, Y), "torch.minimum(x, y)"),
    "max of three": ("max(x[i], y[i], z[i])", (X, Y, Z), "torch.maximum(torch.maximum(x, y), z)"),
    "min of three": ("min(x[i], y[i], z[i])", (X, Y, Z), "torch.minimum(torch.minimum(x, y), z)"),
    "clamp": ("clamp(x[i], y[i], z[i])", (X, Y - 2.5, Z + 1), "torch.minimum(torch.maximum(x, y), z)"),
}
ALL = {**{name: (body, (at,), there) for name, (body, at, there) in SINGLE.items()}}
ALL |= {f"{name} of several": case for name, case in SEVERAL.items()}


def program_of(body: str, count: int) -> ir.Program:
    inputs = ", ".join(f"{name}[i]" for name in "xyz"[:count])
    return ix.compile(f"input {inputs}; let out[i] = {body};").ir


def body_of(program: ir.Program) -> ir.Map:
    body = program.lets[0].clauses[0].body
    assert isinstance(body, ir.Map)
    return body


def with_body(program: ir.Program, body: ir.Expr) -> ir.Program:
    (let,) = program.lets
    return replace(program, lets=(replace(let, clauses=(replace(let.clauses[0], body=body),)),))


def value(program: ir.Program, arrays: tuple[Any, ...]) -> Any:
    return pointwise.run(program, dict(zip("xyz", arrays, strict=False)), ("out",))["out"]


def derivative(program: ir.Program, arrays: tuple[Any, ...], number: int) -> Any:
    """By one of the arguments, as the reference evaluates it."""
    partial = partials(body_of(program))[number]
    return np.zeros_like(arrays[0]) if partial is None else value(with_body(program, partial), arrays)


@pytest.mark.parametrize("name", ALL)
def test_it_is_the_slope(name: str) -> None:
    body, arrays, _ = ALL[name]
    program = program_of(body, len(arrays))
    step = 1e-5
    for number in range(len(arrays)):
        ahead, behind = (
            value(program, tuple(array + sign * step * (n == number) for n, array in enumerate(arrays)))
            for sign in (1, -1)
        )
        found = derivative(program, arrays, number)
        np.testing.assert_allclose(found, (ahead - behind) / (2 * step), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", ALL)
def test_it_is_what_pytorch_has(name: str) -> None:
    torch = pytest.importorskip("torch")
    body, arrays, there = ALL[name]
    program = program_of(body, len(arrays))
    tensors = {letter: torch.tensor(array, requires_grad=True) for letter, array in zip("xyz", arrays, strict=False)}
    out = eval(there, {"torch": torch}, tensors)
    for number, expected in enumerate(torch.autograd.grad(out.sum(), list(tensors.values()))):
        np.testing.assert_allclose(derivative(program, arrays, number), expected.numpy(), rtol=1e-12, atol=1e-14)


def test_no_function_is_forgotten() -> None:
    known = {body_of(program_of(body, len(arrays))).op for body, arrays, _ in ALL.values()}
    assert set(FUNCTIONS) <= known | {name for name, row in FUNCTIONS.items() if row.flat or row.definition}


@pytest.mark.parametrize("function", [name for name, row in FUNCTIONS.items() if row.flat])
def test_steps_are_flat(function: str) -> None:
    assert partials(body_of(program_of(f"{function}(x[i])", 1))) == (None,)


def test_wholes_and_truths_have_none() -> None:
    program = ix.compile("input p[i] : i64, x[i]; let out[i] = p[i] * 2 + 1;").ir
    assert partials(body_of(program)) == (None, None)
    mixed = body_of(ix.compile("input p[i] : i64, x[i]; let out[i] = x[i] * p[i];").ir)
    assert [partial is None for partial in partials(mixed)] == [False, True]
    compared = build.apply("<", mixed.arguments, "bool", mixed.span)
    assert partials(compared) == (None, None)


def test_a_remainder_follows_the_dividend() -> None:
    program = program_of("x[i] % 2.0", 1)
    np.testing.assert_array_equal(derivative(program, (X,), 0), np.ones_like(X))


@pytest.mark.parametrize(("function", "expected"), [("relu", 0.0), ("abs", 0.0)])
def test_at_a_kink(function: str, expected: float) -> None:
    assert derivative(program_of(f"{function}(x[i])", 1), (np.zeros(1),), 0).tolist() == [expected]


@pytest.mark.parametrize("function", ["max", "min"])
@pytest.mark.parametrize("count", [2, 3])
def test_of_equal_arguments_the_first_wins(function: str, count: int) -> None:
    body = f"{function}({', '.join(f'{name}[i]' for name in 'xyz'[:count])})"
    same = (np.ones(1),) * count
    found = [derivative(program_of(body, count), same, number).item() for number in range(count)]
    assert found == [1.0] + [0.0] * (count - 1)


def test_at_the_ends_of_a_clamp() -> None:
    program = program_of("clamp(x[i], y[i], z[i])", 3)
    below, at, above = np.array([-2.0]), np.array([-1.0]), np.array([2.0])
    low, high = np.array([-1.0]), np.array([1.0])
    for x, expected in ((below, [0.0, 1.0, 0.0]), (at, [1.0, 0.0, 0.0]), (above, [0.0, 0.0, 1.0])):
        assert [derivative(program, (x, low, high), number).item() for number in range(3)] == expected


def test_a_clamp_whose_ends_are_crossed() -> None:
    program = program_of("clamp(x[i], y[i], z[i])", 3)
    arrays = (np.zeros(1), np.full(1, 2.0), np.ones(1))
    assert value(program, arrays).tolist() == [1.0]
    assert [derivative(program, arrays, number).item() for number in range(3)] == [0.0, 0.0, 1.0]


def test_a_power_of_zero() -> None:
    assert derivative(program_of("x[i] ** y[i]", 2), (np.zeros(1), np.full(1, 2.0)), 1).item() == 0


def test_where_functions_are_steep_or_flat_nothing_is_nan() -> None:
    far = np.array([-800.0, -40.0, 40.0, 800.0])
    for function in ("tanh", "sigmoid", "silu", "gelu", "erf", "relu"):
        found = derivative(program_of(f"{function}(x[i])", 1), (far,), 0)
        assert np.isfinite(found).all(), function
    assert derivative(program_of("sqrt(x[i])", 1), (np.zeros(1),), 0).item() == math.inf
    assert derivative(program_of("x[i] ** 2", 1), (np.zeros(1),), 0).item() == 0
