"""Code as nodes: what is printed is what was meant, templates fill their holes, steps move to where they are used."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexical.backends.old import code as nodes
from indexical.backends.old.code import (
    ALL,
    Infix,
    Name,
    Node,
    Number,
    Prefix,
    Slice,
    call,
    fill,
    index,
    infix,
    method,
    show,
)
from indexical.backends.old.evaluated import CONSTANTS, evaluated
from indexical.backends.old.layout import Block, Statement, arranged, written

NAMES = st.sampled_from(("x", "y", "n_i", "scores")).map(Name)
NUMBERS = st.sampled_from(("0", "1", "2.5", "1e-05")).map(Number)
SIGNS = st.sampled_from(("+", "-", "*", "/", "//", "%", "@", "**", "&", "|", "<", "==", "and", "or"))


def _larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    # Python reads one slot that is a tuple as several slots.
    single = inner.filter(lambda code: not isinstance(code, nodes.Tuple))
    slots = st.one_of(single, st.just(ALL), st.builds(Slice, inner, inner), st.just(nodes.NONE))
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(Infix, SIGNS, inner, inner),
        st.builds(Prefix, st.sampled_from(("-", "~", "not ")), inner),
        st.builds(nodes.Ternary, inner, inner, inner),
        st.builds(nodes.Between, inner, inner, inner),
        some.map(lambda items: nodes.Tuple(tuple(items))),
        some.map(lambda items: nodes.List(tuple(items))),
        st.builds(lambda of, few: index(of, *few), inner, st.lists(slots, min_size=1, max_size=3)),
        st.builds(lambda of, few: method(of, "sum", *few, dim=few[0]), inner, some),
        some.map(lambda items: call("torch.where", *items)),
    )


CODE: st.SearchStrategy[Node] = st.recursive(st.one_of(NAMES, NUMBERS), _larger, max_leaves=12)


@given(CODE)
def test_what_is_printed_is_read_back_as_the_same_code(code: Node) -> None:
    text = show(code)
    assert fill(text) == code, ast.unparse(ast.parse(text))


@given(CODE, CODE)
def test_a_template_is_filled_with_code_and_not_with_text(left: Node, right: Node) -> None:
    assert fill("{a} * {b}", a=left, b=right) == Infix("*", left, right)
    assert fill("f({*both}, 1)", both=[left, right]) == call("f", left, right, 1)
    assert fill(show(fill("{a}[{b}:].T", a=left, b=right))) == nodes.Attribute(index(left, Slice(right)), "T")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (infix("*", infix("+", "a", "b"), "c"), "(a + b) * c"),
        (infix("-", "a", infix("-", "b", "c")), "a - (b - c)"),
        (infix("**", nodes.negative("a"), 2), "(-a) ** 2"),
        (nodes.negative(infix("**", "a", 2)), "-a ** 2"),
        (method(Number("2"), "sum"), "(2).sum()"),
        (infix("|", infix("&", "a", "b"), "c"), "(a & b) | c"),
        (infix("&", infix("<", "a", "b"), "c"), "(a < b) & c"),
        (call("f", (), ("a",), ["a", 1]), "f((), (a,), [a, 1])"),
        (nodes.String('a "quoted" word'), "'a \"quoted\" word'"),
    ],
)
def test_brackets_stand_where_they_are_needed(code: Node, text: str) -> None:
    assert show(code) == text


# ------------------------------------------------------------------------ layout


def _step(target: str, code: Node) -> Statement:
    return Statement(1, 0, "temporary", target, code)


def render(statements: Block, taken: set[str]) -> list[str]:
    return written(arranged(statements, taken))


SUMS = (
    "2 * n - 1 < 4 or missing",
    "not n - 3 and n // 2 % 2 ** 1 != 0.5",
    "-n < 0 and (1 <= n < 3) == False",
    "max(n, 8) / 4 if n == 3 else missing",
    "word.count(letter) != (n, True)[1]",
)


@pytest.mark.parametrize("text", SUMS)
def test_numbers_are_worked_out_as_python_does(text: str) -> None:
    known = {"max": max, "word": "indexed", "letter": "d"}
    for n in (1, 2, 3):
        given = {**CONSTANTS, **known, "n": n}
        try:
            expected = eval(text, {**known, "n": n})
        except NameError:
            with pytest.raises(LookupError):
                evaluated(fill(text), given)
        else:
            assert evaluated(fill(text), given) == expected


def test_a_step_that_is_used_once_moves_to_its_use() -> None:
    lines = render([_step("a__1", infix("+", "x", "y")), Statement(1, 0, "return", code=infix("*", "a__1", 2))], set())
    assert lines == ["    return (x + y) * 2"]


def test_a_step_that_is_used_twice_gets_a_short_name() -> None:
    lines = render(
        [_step("a__1", infix("+", "x", 1)), Statement(1, 0, "return", code=infix("*", "a__1", "a__1"))], set()
    )
    assert lines == ["    a = x + 1", "    return a * a"]


def test_what_nobody_reads_is_left_out_and_blocks_with_it() -> None:
    empty = [Statement(1, 0, "if", code=Name("x")), Statement(2, 1, "assign", "a", Name("y"))]
    assert render([*empty, Statement(1, 0, "return", code=Name("x"))], set()) == ["    return x"]


def test_a_step_stays_before_a_change_of_what_it_reads() -> None:
    store = Statement(1, 0, "store", "x", Number("1"), index("x", 0))
    lines = render([_step("a__1", infix("+", "x", 1)), store, Statement(1, 0, "return", code=Name("a__1"))], set())
    assert lines == ["    a = x + 1", "    x[0] = 1", "    return a"]


def test_a_fresh_array_that_is_used_once_is_written_over() -> None:
    fresh = call("torch.addmm", "b", "x", "w")
    lines = render([_step("a__1", fresh), Statement(1, 0, "return", code=call("torch.tanh", "a__1"))], set())
    assert lines == ["    return torch.tanh_(torch.addmm(b, x, w))"]


def _branches(*after: Statement) -> list[str]:
    """`y` in two branches, then what follows."""
    made = [Statement(2, number, "assign", "y", call(name, "x")) for number, name in ((1, "f"), (2, "g"))]
    test, otherwise = Statement(1, 0, "if", code=Name("x")), Statement(1, 0, "else")
    return [line.strip() for line in render([test, made[0], otherwise, made[1], *after], set())]


COPY = Statement(1, 0, "assign", "out", Name("y"))


def test_what_is_made_for_a_copy_has_its_name_at_once() -> None:
    lines = _branches(COPY, Statement(1, 0, "return", code=Name("out")))
    assert lines == ["if x:", "out = f(x)", "else:", "out = g(x)", "return out"]


@pytest.mark.parametrize(
    "after",
    [
        (COPY, Statement(1, 0, "return", code=infix("+", "out", "y"))),
        (Statement(1, 0, "assign", "a", call("f", "y")), COPY, Statement(1, 0, "return", code=infix("+", "a", "out"))),
        (
            Statement(1, 0, "assign", "out", Name("x")),
            Statement(1, 0, "do", code=call("f", "out")),
            COPY,
            Statement(1, 0, "return", code=Name("out")),
        ),
        (
            Statement(1, 0, "def", "f", call("", "x")),
            replace(COPY, indent=2),
            Statement(2, 0, "return", code=Name("out")),
        ),
    ],
    ids=["read after", "read before", "its name is in use", "of a function around it"],
)
def test_a_copy_of_what_is_read_elsewhere_stays(after: tuple[Statement, ...]) -> None:
    assert "out = y" in _branches(*after)
