"""Single expressions and statements, trees that no parser made, and trees as deep as they may be."""

from __future__ import annotations

import sys
from bisect import bisect_left

import pytest
from tests.syntax.layouts import laid_out, read

from indexical.diagnostics import Sink
from indexical.source import Source, Span
from indexical.syntax import tree
from indexical.syntax.format import format_expression, format_source, format_statement
from indexical.syntax.parse import parse

HERE = Span(Source("nowhere", ""), 0, 0)


def body(text: str) -> tree.Expr:
    (let,) = read(f"let it = {text};").statements
    assert isinstance(let, tree.Let)
    return let.body


def name(word: str) -> tree.Name:
    return tree.Name(word, HERE)


def binary(left: tree.Expr, operator: str, right: tree.Expr) -> tree.Binary:
    return tree.Binary(operator, left, right, HERE)


a, b, c = name("a"), name("b"), name("c")
less = tree.Comparison((a, b), ("<",), HERE)
minus = tree.Unary("-", a, HERE)
cast = tree.Cast(binary(a, "+", b), "f64", HERE)
power = binary(a, "**", b)

LACKING: dict[str, tree.Expr] = {
    "a - (b - c)": binary(a, "-", binary(b, "-", c)),
    "a - b - c": binary(binary(a, "-", b), "-", c),
    "(a + b) * c": binary(binary(a, "+", b), "*", c),
    "a / (b * c)": binary(a, "/", binary(b, "*", c)),
    "(a ** b) ** c": binary(power, "**", c),
    "c ** a ** b": binary(c, "**", power),
    "(-a) ** b": binary(minus, "**", b),
    "b ** -a": binary(b, "**", minus),
    "-a ** b": tree.Unary("-", power, HERE),
    "-(a < b)": tree.Unary("-", less, HERE),
    "--a": tree.Unary("-", minus, HERE),
    "(a < b) < c": tree.Comparison((less, c), ("<",), HERE),
    "c == (a < b)": tree.Comparison((c, less), ("==",), HERE),
    "a < b && c": binary(less, "&&", c),
    "(a || b) && c": binary(binary(a, "||", b), "&&", c),
    "a && (b && c)": binary(a, "&&", binary(b, "&&", c)),
    "(a + b) as f64": cast,
    "-a as f64": tree.Cast(minus, "f64", HERE),
    "-(a as f64)": tree.Unary("-", tree.Cast(a, "f64", HERE), HERE),
    "((a + b) as f64) ** c": binary(cast, "**", c),
    "(a + b)[c]": tree.Index(binary(a, "+", b), (c,), HERE),
    "(-a)[c]": tree.Index(minus, (c,), HERE),
    "(sum)[c]": tree.Index(name("sum"), (c,), HERE),
    "a[b][c]": tree.Index(tree.Index(a, (b,), HERE), (c,), HERE),
    "(@a / @b)[c]": tree.Index(tree.Derivative(a, b, HERE), (c,), HERE),
    "({ a })[c]": tree.Index(tree.Block((), a, (), HERE), (c,), HERE),
    "sum[i in (a < b)..a + b](c)": tree.Reduction(
        "sum", HERE, (tree.Binder("i", tree.Range(less, binary(a, "+", b), False, HERE), False, HERE),), c, (), HERE
    ),
}


@pytest.mark.parametrize("text", LACKING)
def test_parentheses_are_put_in_where_they_are_needed(text: str) -> None:
    assert format_expression(LACKING[text]) == text


def test_parentheses_are_kept_as_written() -> None:
    assert format_expression(body("((a)) + (b * c)")) == "((a)) + (b * c)"


def test_the_left_side_of_an_expectation_is_arithmetic() -> None:
    expectation = tree.Expect(less, tree.Bool(True, HERE), HERE)
    assert format_statement(expectation) == "expect (a < b) == true;"


def test_an_expression_stays_on_one_line() -> None:
    text = " + ".join(["f(x, { let y = 1; if y < 2 { y } else { [1, 2][i] } })"] * 9)
    assert format_expression(body(text)) == text


def test_a_statement_has_neither_comments_nor_a_last_line_end() -> None:
    (function,) = read("fn f() { // comment\n let a = 1; let bc = 2; a }").statements
    assert format_statement(function) == "fn f() {\n    let a  = 1;\n    let bc = 2;\n    a\n}"


NESTED = [
    ("(", "1", ")"),
    ("-", "1", ""),
    ("x[", "1", "]"),
    ("a ** ", "1", ""),
    ("a + ", "1", ""),
    ("a + b * (c < d && ", "1", ")"),
    ("sum[j in 0..", "1", "](x)"),
    ("sum[j](x where z = ", "1", ")"),
    ("{ let a = 1; let b[", "1", "] = 2; a where c }"),
    ("if c { let a[j in ", "1", "..2] = 1; a } else { d }"),
    ("if c { d } else ", "{ e }", ""),
    ("{ // comment\n", "1", " }"),
]


@pytest.mark.parametrize(("opening", "middle", "closing"), NESTED)
def test_the_deepest_trees_do_not_exhaust_the_stack(opening: str, middle: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return f"let deep = {opening * depth}{middle}{closing * depth};"

    def refused(depth: int) -> bool:
        sink = Sink()
        parse(Source("test", nested(depth)), sink)
        return sink.failed

    depth = bisect_left(range(1, 101), True, key=refused)  # As many depths from 1 on as are accepted.
    assert depth > 10
    file = read(nested(depth))
    # Notebooks and servers stand on the stack as well; leave them a few hundred frames.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(frames() + 600)
    try:
        formatted = format_source(file)
        assert read(formatted) == file
    finally:
        sys.setrecursionlimit(limit)
    assert laid_out(formatted) == formatted


def frames() -> int:
    """How many frames stand on the stack."""
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count
