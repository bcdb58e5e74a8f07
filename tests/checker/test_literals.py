"""Array literals with constant expressions: what they are, exactly and in every engine."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix
from indexical.diagnostics import Sink
from indexical.ir import nodes as ir
from indexical.source import Source
from indexical.syntax.format import format_source
from indexical.syntax.parse import parse
from indexical.views.source import written

pytestmark = pytest.mark.sampled(8)


def cells(text: str) -> list[Any]:
    """The cells of a literal, where all are numbers of the Program."""
    let = next(let for let in ix.compile(text).ir.lets if isinstance(let.clauses[0].body, ir.Array))
    assert isinstance(let.clauses[0].body, ir.Array)
    return [cell.value for cell in let.clauses[0].body.cells]


def test_rational_cells_are_numbers() -> None:
    assert cells("let q[k] = [1 / 2.0, -1 / 6.0, (2 + 3) * 0.1, 2.0 ** -3, 7 as f64];") == [
        Fraction(1, 2),
        Fraction(-1, 6),
        Fraction(1, 2),
        Fraction(1, 8),
        7,
    ]
    assert cells("let q[i, j] = [[2 ** 3, -7 % 4], [7 - 2 * 3, -(7 / 2)]];") == [8, -3, 1, -3]
    assert cells("let q[k] = [1, 1 / 4.0];") == [1, Fraction(1, 4)]


def test_other_cells_stay_exact() -> None:
    exact = ix.exact("let q[k] = [sqrt(2), -1 / 3.0, 2 ** 0.5, 3]; let one = q[0] * q[2] / 2; output q, one;")
    assert [str(value) for value in exact["q"]] == ["√2", "-1/3", "√2", "3"]
    assert exact["one"] == 1
    assert ix.exact("let q[k] = [pi, 1.0]; let y[k] = sin(q[k] / 6);").ended == ("q",)


def test_a_claim_of_an_expression_is_exact_and_a_decimal_claims_its_digits() -> None:
    claims = "expect q == [1 / 3.0, 0.33]; expect q == [0.33, 0.3334]; expect q[0] == 33 / 99;"
    found = ix.verify(f"let q[k] = [1 / 3.0, 1 / 3.0]; {claims}")
    verdicts = [[cell.verdict for cell in claim.cells] for claim in found.claims]
    assert verdicts == [["holds", "holds"], ["holds", "fails"], ["holds"]]


@pytest.mark.parametrize(
    "text",
    [
        "let y = [1 / 2.0, sqrt(2)][1];",
        "fn f(x[k]) -> [k] { 2 * x[k] } let y = f([1 / 2.0, exp(1.0)]);",
        "let y[k] = [[1 / 2.0, 2], [sqrt(3), 4]][1, k];",
        "let q = [sqrt(2), 1.0]; let y[k] = q[k] * size(k);",
        "let y[i] = [sqrt(2), 1.0, 5][i] where i > 0;",
    ],
)
def test_wherever_a_literal_may_stand(text: str) -> None:
    program = ix.compile(text)
    expected = np.asarray(program(backend="reference"))
    for backend in ("numpy", "torch", "jax"):
        np.testing.assert_allclose(program(backend=backend), expected, rtol=1e-6)
        np.testing.assert_allclose(program(backend=backend, isolate=True), expected, rtol=1e-6)
    emitted: dict[str, Any] = {}
    exec(program.source(backend="numpy"), emitted)
    np.testing.assert_allclose(emitted["program"](), expected, rtol=1e-12)
    source = Source("<text>", text)
    assert ix.compile(format_source(parse(source, Sink()))).ir.lets == program.ir.lets
    np.testing.assert_allclose(ix.compile(written(program.ir))(backend="reference"), expected, rtol=1e-12)


def test_derivatives_pass_a_literal_by() -> None:
    program = ix.compile("input x[k]; let y = sum[k](x[k] * [sqrt(2), 1 / 4.0][k]);")
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(program(x), x)
    np.testing.assert_allclose(found, [np.sqrt(2), 0.25])
    np.testing.assert_allclose(ix.grad(program)(x.detach().numpy()), [np.sqrt(2), 0.25])


def expression(drawn: random.Random, depth: int = 0) -> str:
    """A constant expression of small numbers, that has a value."""
    if depth == 3 or drawn.random() < 0.25:
        return drawn.choice(["0.5", "2.0", "1e-1", "3", "7", "pi", "-2.5", "-4"])
    inner, other = expression(drawn, depth + 1), expression(drawn, depth + 1)
    shape = drawn.randrange(7)
    if shape < 3:
        return f"({inner}) {'+-*'[shape]} ({other})"
    if shape == 3:
        return f"({inner}) / (1.0 + abs({other}))"
    if shape == 4:
        return f"({inner} as f64) ** {drawn.randint(0, 3)}"
    return f"{drawn.choice(['exp(-abs', 'sqrt(abs', 'tanh(', 'cos(', 'log(1.0 + abs', 'max(1, ', 'relu('])}({inner}))"


@pytest.mark.parametrize("seed", range(60))
def test_drawn_cells_are_what_they_are_alone(seed: int) -> None:
    drawn = random.Random(seed)
    written = [expression(drawn) for _ in range(drawn.randint(1, 4))]
    literal = f"let q[k] = [{', '.join(written)}, 0.25];"
    alone = "".join(f"let x{n} = ({text}) as f64;" for n, text in enumerate(written))
    program = ix.compile(literal)
    expected = [float(one) for one in ix.compile(alone + "let x9 = 0;")(backend="reference")[:-1]]
    for backend in ("reference", "numpy", "torch"):
        np.testing.assert_allclose(np.asarray(program(backend=backend))[:-1], expected, rtol=1e-12, atol=1e-15)
    exact, each = ix.exact(literal)["q"], ix.exact(alone)
    for n in range(len(written)):
        assert exact[n].decimal(20) == each[f"x{n}"].decimal(20)
