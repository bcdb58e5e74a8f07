"""`size(c)` of a coordinate that only definitions have."""

from __future__ import annotations

import numpy as np
import pytest

import indexical as ix

X = np.arange(6.0)
PAIRS = "input x[i]; let y[k in 0..size(i) / 2] = x[2 * k];"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"{PAIRS} let z = sum[k](y[k]) / size(k);", 2.0),
        ("input x[i]; let z = sum[q](y[q]) / size(k); let y[k in 0..size(i) / 2] = x[2 * k];", 2.0),
        ("input x[i]; let z = x[0] + size(k); let y[k in 0..size(i) / 2] = x[2 * k]; output z;", 3.0),
        (f"{PAIRS} let w[k] = y[k] * size(k); let v[m in 0..size(k) - 1] = w[m + 1];", [6.0, 12.0]),
        (f"{PAIRS} let w = {{ let v[m in 0..size(k) - 1] = y[m]; sum[q](v[q]) / size(m) }};", 1.0),
        ("let g[t in 0..4] = t; let h[0] = 1.0; let h[t in 1..size(t)] = 2 * h[t - 1]; output h;", [1, 2, 4, 8]),
        ("input x[i]; let y = x; let z = x[0] + size(m); let w[m in 0..size(i) - 4] = y[m]; output z;", 2.0),
        ("fn f(x[i]) -> [i] { x[i] / size(i) } input x[j]; let y[k in 0..3] = x[k]; let z = f(y);", [0, 1 / 3, 2 / 3]),
    ],
)
def test_it_is_known_wherever_the_definition_stands(text: str, wanted: object) -> None:
    program = ix.compile(text)
    assert {found.code for found in program.diagnostics} <= {"IX413"}
    arrays = (X,) if program.inputs else ()
    for backend in ("reference", "numpy", "torch"):
        np.testing.assert_allclose(program(*arrays, backend=backend), wanted)


def test_it_may_be_claimed() -> None:
    program = ix.compile(f'{PAIRS} assert size(k) > 0, "some"; expect size(k) + sum[k](y[k]) == 9;')
    assert "holds" in str(ix.verify(program, x=[0, 1, 2, 3, 4, 5]))


@pytest.mark.parametrize("order", ["{use} {other}", "{other} {use}"])
def test_definitions_that_differ_are_both_named(order: str) -> None:
    text = order.format(use="let z = sum[q](y[q]) / size(k);", other="let w[k in 0..2] = 1.0;")
    with pytest.raises(ix.Error) as caught:
        ix.compile(f"{PAIRS} {text} output z, w;")
    (found,) = caught.value.diagnostics
    assert found.code == "IX304"
    assert found.message == "`size(k)` is size(i) / 2 in `y` and 2 in `w`"
    assert [label.span.text for label in found.labels] == ["size(k)", "y", "w"]


def test_figures_that_differ_are_named_too() -> None:
    with pytest.raises(ix.Error, match=r"`size\(i\)` is 2 in `a` and 3 in `b`"):
        ix.compile("let a[i] = [1, 2]; let b[i] = [1, 2, 3]; let c = size(i);")


def test_inputs_come_first_and_may_differ() -> None:
    program = ix.compile("input x[i]; let y[i in 0..2] = x[i]; let z = y[0] + size(i);")
    assert program(X) == 6


@pytest.mark.parametrize(
    "text",
    [
        "input x[i]; let z = x[0] + size(q);",
        "input x[i]; let z = x[0] + sum[q in 0..3](q) + size(q);",
        "input x[b]; fn f(x[i]) -> [i] { x[i] / size(b) } let y = f(x);",
        "input x[i]; let y[k in 0..3] = x[k]; fn f(x[i]) -> [i] { x[i] / size(k) } let z = f(y);",
        "input x[i]; let a[d in 0..3] = b * x[d]; let b = size(d);",
    ],
)
def test_what_nothing_has_has_no_size(text: str) -> None:
    with pytest.raises(ix.Error, match="IX201"):
        ix.compile(text)


@pytest.mark.parametrize(
    "text",
    [
        "input x[..r, t, d]; let y[..r, t] = { let a = sum[d](x[..r, t, d]); a * a };",
        "fn f(x[..r, t, d]) -> [..r, t] { let y[..r, t] = { let a = sum[d](x[..r, t, d]); a * a }; y[..r, t] }\n"
        "input x[b, t, d]; let y = f(x);",
    ],
)
def test_leading_coordinates_that_a_block_reads_first(text: str) -> None:
    """What `..r` stands for is known from the inside of the block, and holds outside of it too."""
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(ix.compile(text)(x), x.sum(-1) ** 2)
