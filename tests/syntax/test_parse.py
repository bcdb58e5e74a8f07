"""Tokens to trees: what holds tighter than what, what each form means, how deep things may nest."""

from __future__ import annotations

import pytest

from indexical.diagnostics import Diagnostic, Sink
from indexical.source import Source, Span
from indexical.syntax import tree
from indexical.syntax.parse import parse
from indexical.syntax.vocabulary import MAXIMUM_DEPTH, MAXIMUM_RANK

HERE = Span(Source("nowhere", ""), 0, 0)


def read(text: str) -> tuple[tree.File, list[Diagnostic]]:
    sink = Sink()
    return parse(Source("test", text), sink), list(sink)


def statement(text: str) -> tree.Statement:
    file, found = read(text)
    assert [str(finding) for finding in found] == []
    (only,) = file.statements
    return only


def expression(text: str) -> tree.Expr:
    let = statement(f"let it = {text};")
    assert isinstance(let, tree.Let)
    return let.body


def name(word: str) -> tree.Name:
    return tree.Name(word, HERE)


def number(text: str) -> tree.Number:
    return tree.Number(text, HERE)


def unary(operator: str, operand: tree.Expr) -> tree.Expr:
    return tree.Unary(operator, operand, HERE)


def binary(left: tree.Expr, operator: str, right: tree.Expr) -> tree.Expr:
    return tree.Binary(operator, left, right, HERE)


def compare(*parts: tree.Expr | str) -> tree.Expr:
    operators = tuple(part for part in parts if isinstance(part, str))
    return tree.Comparison(tuple(part for part in parts if not isinstance(part, str)), operators, HERE)


def cast(operand: tree.Expr, dtype: str) -> tree.Expr:
    return tree.Cast(operand, dtype, HERE)


def paren(inner: tree.Expr) -> tree.Expr:
    return tree.Paren(inner, HERE)


def index(base: tree.Expr, *indices: tree.Expr | tree.Rest) -> tree.Expr:
    return tree.Index(base, indices, HERE)


def call(function: str, *arguments: tree.Expr) -> tree.Expr:
    return tree.Call(function, HERE, arguments, HERE)


def binder(coordinate: str, limits: tree.Range | None = None, rest: bool = False) -> tree.Binder:
    return tree.Binder(coordinate, limits, rest, HERE)


def limits(lower: tree.Expr, upper: tree.Expr, inclusive: bool = False) -> tree.Range:
    return tree.Range(lower, upper, inclusive, HERE)


def reduction(operator: str, binders: list[tree.Binder], body: tree.Expr, *where: tree.Clause) -> tree.Expr:
    return tree.Reduction(operator, HERE, tuple(binders), body, where, HERE)


def guard(condition: tree.Expr) -> tree.Guard:
    return tree.Guard(condition, HERE)


def block(body: tree.Expr, *where: tree.Clause, lets: tuple[tree.Let, ...] = ()) -> tree.Block:
    return tree.Block(lets, body, where, HERE)


def array(*items: tree.Expr) -> tree.Expr:
    return tree.ArrayLiteral(items, HERE)


def printed(literal: tree.Expr) -> tree.Expr:
    return tree.Printed(literal, HERE)


def choose(condition: tree.Expr, then: tree.Expr, otherwise: tree.Expr) -> tree.If:
    return tree.If(condition, block(then), block(otherwise), HERE)


def let(word: str, body: tree.Expr, slots: tuple[tree.Slot, ...] | None = None) -> tree.Let:
    return tree.Let(word, HERE, slots, body, (), HERE)


a, b, c, d, i, j, n, x = map(name, "abcdijnx")
zero, one, two = map(number, "012")
derivative = tree.Derivative(name("y"), x, HERE)

PRECEDENCE: dict[str, tree.Expr] = {
    "-x ** 2": unary("-", binary(x, "**", two)),
    "2 ** -1": binary(two, "**", unary("-", one)),
    "a ** b ** c": binary(a, "**", binary(b, "**", c)),
    "a ** -b ** c": binary(a, "**", unary("-", binary(b, "**", c))),
    "a ** -b * c": binary(binary(a, "**", unary("-", b)), "*", c),
    "(-a) ** 2": binary(paren(unary("-", a)), "**", two),
    "a[i] ** b[j]": binary(index(a, i), "**", index(b, j)),
    "- -x": unary("-", unary("-", x)),
    "!!a": unary("!", unary("!", a)),
    "-a as f64": cast(unary("-", a), "f64"),
    "a as f64 / b": binary(cast(a, "f64"), "/", b),
    "a * b as i64": binary(a, "*", cast(b, "i64")),
    "a ** b as i64": cast(binary(a, "**", b), "i64"),
    "a as i64 as f32": cast(cast(a, "i64"), "f32"),
    "a / b * c % d": binary(binary(binary(a, "/", b), "*", c), "%", d),
    "a - b + c": binary(binary(a, "-", b), "+", c),
    "a + b * c": binary(a, "+", binary(b, "*", c)),
    "a * b + c": binary(binary(a, "*", b), "+", c),
    "-a * b": binary(unary("-", a), "*", b),
    "a - -b": binary(a, "-", unary("-", b)),
    "0 <= a < n": compare(zero, "<=", a, "<", n),
    "a == b != c": compare(a, "==", b, "!=", c),
    "a + 1 < b * 2": compare(binary(a, "+", one), "<", binary(b, "*", two)),
    "(a < b) == c": compare(paren(compare(a, "<", b)), "==", c),
    "!a == b": compare(unary("!", a), "==", b),
    "a < b && c": binary(compare(a, "<", b), "&&", c),
    "a || b && c": binary(a, "||", binary(b, "&&", c)),
    "a && b || c": binary(binary(a, "&&", b), "||", c),
    "a || b || c": binary(binary(a, "||", b), "||", c),
    "a && b < c || d": binary(binary(a, "&&", compare(b, "<", c)), "||", d),
    "@y / @x * 2": binary(derivative, "*", two),
    "2 / @y / @x": binary(two, "/", derivative),
    "@y / @x ** 2": binary(derivative, "**", two),
    "(@y / @x)[i]": index(paren(derivative), i),
    "if a { b } else { c } + 1": binary(choose(a, b, c), "+", one),
    "-{ a } ** 2": unary("-", binary(block(a), "**", two)),
}


@pytest.mark.parametrize("text", PRECEDENCE)
def test_precedence(text: str) -> None:
    assert expression(text) == PRECEDENCE[text]


FORMS: dict[str, tree.Expr] = {
    "true": tree.Bool(True, HERE),
    "masked": tree.Masked(HERE),
    "2.2000": number("2.2000"),
    "a[]": index(a),
    "a[..r, i + 1][j,]": index(index(a, tree.Rest("r", HERE), binary(i, "+", one)), j),
    "max(a, b)": call("max", a, b),
    "f()": call("f"),
    "f(a)[i]": index(call("f", a), i),
    "max[j](a)": reduction("max", [binder("j")], a),
    "sum[..r](a)": reduction("sum", [binder("r", rest=True)], a),
    "sum[j, i in 0..n - 1](a where i < j, b)": reduction(
        "sum",
        [binder("j"), binder("i", limits(zero, binary(n, "-", one)))],
        a,
        guard(compare(i, "<", j)),
        guard(b),
    ),
    "softmax[j in 0..=n](a where x = b)[i]": index(
        reduction("softmax", [binder("j", limits(zero, n, True))], a, tree.Abbreviation("x", b, HERE)), i
    ),
    "[[1, -2], [0, masked]]": array(array(one, unary("-", two)), array(zero, tree.Masked(HERE))),
    "[1, 2][i]": index(array(one, two), i),
    "~0": printed(zero),
    "~-1 ** 2": binary(printed(unary("-", one)), "**", two),
    "~[1, ~2][i]": index(printed(array(one, printed(two))), i),
    "{ let x = 1; x where a }": block(x, guard(a), lets=(let("x", one),)),
    "{ let x[i, 0, j in 1..n] = 1; x }": block(
        x, lets=(let("x", one, (binder("i"), zero, binder("j", limits(one, n)))),)
    ),
    "if a { b } else if c { d } else { x }": choose(a, b, choose(c, d, x)),
    "if a { b } else { if c { d } else { x } }": choose(a, b, choose(c, d, x)),
}


@pytest.mark.parametrize("text", FORMS)
def test_forms(text: str) -> None:
    assert expression(text) == FORMS[text]


STATEMENTS: dict[str, tree.Statement] = {
    "space p(i, j), q();": tree.Space((tree.SpaceItem("p", (i, j), HERE), tree.SpaceItem("q", (), HERE)), HERE),
    "input a[i, j in 0..2] : f32, n : i64, b[], c;": tree.Input(
        (
            tree.InputItem("a", HERE, (binder("i"), binder("j", limits(zero, two))), "f32", HERE),
            tree.InputItem("n", HERE, None, "i64", HERE),
            tree.InputItem("b", HERE, (), None, HERE),
            tree.InputItem("c", HERE, None, None, HERE),
        ),
        HERE,
    ),
    "let a[(i)] = b where c, x = d;": tree.Let(
        "a", HERE, (paren(i),), b, (guard(c), tree.Abbreviation("x", d, HERE)), HERE
    ),
    "output a, b;": tree.Output((a, b), HERE),
    "fn f(a[..r, i], b) -> [i] { a }": tree.Fn(
        "f",
        HERE,
        (tree.Parameter("a", (binder("r", rest=True), binder("i")), HERE), tree.Parameter("b", None, HERE)),
        (tree.Home((binder("i"),), HERE),),
        block(a),
        HERE,
    ),
    "fn f(a) -> ([i], []) { (a, b) }": tree.Fn(
        "f",
        HERE,
        (tree.Parameter("a", None, HERE),),
        (tree.Home((binder("i"),), HERE), tree.Home((), HERE)),
        block(tree.Tuple((a, b), HERE)),
        HERE,
    ),
    "let (a, b) = c;": tree.Let("a", HERE, None, c, (), HERE, (a, b)),
    "fn f() { a where b }": tree.Fn("f", HERE, (), (), block(a, guard(b)), HERE),
    "use std::norms::{a, b};": tree.Use(("std", "norms"), HERE, (a, b), HERE),
    "attention a(query i, causal, groups contiguous n / 2);": tree.Contract(
        a,
        (
            tree.RoleItem("query", i, HERE),
            tree.FlagItem("causal", None, HERE),
            tree.FlagItem("groups contiguous", binary(n, "/", two), HERE),
        ),
        HERE,
    ),
    r'assert a < b, "say \"c\" \\";': tree.Assert(compare(a, "<", b), 'say "c" \\', HERE),
    "expect a + b == [1, masked];": tree.Expect(binary(a, "+", b), array(one, tree.Masked(HERE)), HERE),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements(text: str) -> None:
    assert statement(text) == STATEMENTS[text]


def test_words_of_contracts_are_names_elsewhere() -> None:
    assert expression("attention[query] + causal") == binary(
        index(name("attention"), name("query")), "+", name("causal")
    )


def test_spans_take_no_part_in_equality_but_are_exact() -> None:
    assert expression("a  +  b") == expression("a + b")
    file, _ = read("let it = f(a) + b[ i ] where c;")
    (only,) = file.statements
    spans = [node.span.text for node in tree.walk(only)]
    assert spans == ["let it = f(a) + b[ i ] where c;", "f(a) + b[ i ]", "f(a)", "a", "b[ i ]", "b", "i", "c", "c"]


# --------------------------------------------------------------------- limits

DEEP = {
    "brackets": ("(", "1", ")"),
    "indices": ("x[", "1", "]"),
    "signs": ("-", "1", ""),
    "powers": ("x ** ", "1", ""),
    "arrays": ("[", "1", "]"),
    "blocks": ("{ ", "1", " }"),
    "lets": ("{ let x = ", "1", "; x }"),
    "ranges": ("sum[j in 0..", "1", "](x)"),
    "guards": ("sum[j](x where ", "1", ")"),
    "sums": ("x + ", "1", ""),
    "reads": ("", "x", "[i]"),
    "else if": ("if x { y } else ", "{ z }", ""),
    "slots in branches": ("if x { let y[j in ", "1", "..1] = 1; y } else { z }"),
}


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("depth", [MAXIMUM_DEPTH, 20 * MAXIMUM_DEPTH])
def test_what_is_nested_too_deeply_is_one_finding(kind: str, depth: int) -> None:
    opening, middle, closing = DEEP[kind]
    text = f"let deep = {opening * depth}{middle}{closing * depth};\nlet after = 1;"
    file, found = read(text)
    assert [finding.code for finding in found] == ["IX106"]
    assert found[0].labels[0].span.line == 1
    assert [getattr(node, "name", None) for node in file.statements] == ["after"]


@pytest.mark.parametrize("kind", sorted(DEEP.keys() - {"arrays"}))
def test_the_depth_that_is_allowed_is_the_height_of_the_tree(kind: str) -> None:
    opening, middle, closing = DEEP[kind]
    heights = []
    for depth in range(1, MAXIMUM_DEPTH):
        file, found = read(f"let deep = {opening * depth}{middle}{closing * depth};")
        heights += [tree.height(node) for node in file.statements]
        if found:
            break
    step = heights[1] - heights[0]
    assert MAXIMUM_DEPTH - step < heights[-1] <= MAXIMUM_DEPTH


def test_an_array_has_as_many_axes_as_a_tensor() -> None:
    assert not read(f"let x = {'[' * MAXIMUM_RANK}1{']' * MAXIMUM_RANK};")[1]
    _, (finding,) = read(f"let x = {'[' * (MAXIMUM_RANK + 1)}1{']' * (MAXIMUM_RANK + 1)};")
    assert finding.code == "IX106"


def test_a_tensor_has_a_bounded_number_of_axes() -> None:
    axes = ", ".join(f"i{axis}" for axis in range(MAXIMUM_RANK))
    assert not read(f"input x[{axes}];")[1]
    _, (finding,) = read(f"input x[{axes}, j];")
    assert finding.code == "IX106"
