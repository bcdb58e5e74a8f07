"""Going on after a mistake: one finding for each, in the right place, and nothing that only follows from it."""

from __future__ import annotations

import re

import pytest

from indexical.diagnostics import Diagnostic, Sink
from indexical.source import Source
from indexical.syntax import tree
from indexical.syntax.parse import parse


def read(text: str) -> tuple[tree.File, list[Diagnostic]]:
    sink = Sink()
    return parse(Source("test", text), sink), list(sink)


# A statement with one mistake; the code and, of the part that is marked, the line and the text.
MISTAKES = [
    ("let a = 1 + ;", "IX101", 1, ";"),
    ("let b = (1 + 2;", "IX102", 1, ";"),
    ("let c = { let u = ; let v = 2; v };", "IX101", 1, ";"),
    ("let d = {\n    let u = 1 + * 2;\n    let v = 2;\n    u + v\n};", "IX101", 2, "*"),
    ("let e = (1 ≤ 2);", "IX103", 1, "≤"),
    ("let f = sum[#](x);", "IX103", 1, "#"),
    ("let g = [[1, 2], [3]];", "IX107", 1, "[3]"),
    ("fn h(x) {\n    let u = x\n    let v = 2;\n    u + v\n}", "IX101", 2, ""),
    ("fn k(x { let u = 1; u }", "IX102", 1, "{"),
    ("fn k(x) = x;", "IX101", 1, "="),
    ("let l = 1\n", "IX101", 1, ""),
    ("lett m = 1;", "IX101", 1, "lett"),
    ("m[i] = 1;", "IX101", 1, "m"),
    ("let n = sum(x);", "IX101", 1, "("),
    ("let o = x as f63;", "IX101", 1, "f63"),
    ("let p = x as f64 ** 2;", "IX101", 1, "**"),
    ("use std::{a;", "IX102", 1, ";"),
    ("attention good(qerry i);", "IX101", 1, "qerry"),
    ("assert x, y;", "IX101", 1, "y"),
    ('assert x, "open;', "IX105", 1, '"open;'),
    ("expect x == ];", "IX101", 1, "]"),
    ("let q = @y / x;", "IX101", 1, "/"),
    ("input s[i] : real;", "IX101", 1, "real"),
    ("let t = x };", "IX101", 1, "}"),
    ("let u = { x + y;", "IX102", 1, ";"),
    ("let v = [];", "IX107", 1, "[]"),
    ("let w = [1 2];", "IX102", 1, "2"),
    ("let y = if x { 1 };", "IX101", 1, ";"),
    ("let z = [1, * 2];", "IX101", 1, "*"),
]


@pytest.mark.parametrize(("text", "code", "line", "marked"), MISTAKES)
@pytest.mark.parametrize("after", ["let after = 1;", "fn after() { 1 }", "attention after(query i);"])
def test_one_mistake_is_one_finding_and_costs_one_statement(
    text: str, code: str, line: int, marked: str, after: str
) -> None:
    file, found = read(f"output before;\n{text}\n{after}\n")
    places = [(finding.code, finding.labels[0].span.line - 1, finding.labels[0].span.text) for finding in found]
    assert places == [(code, line, marked)]
    assert file.statements == read(f"output before; {after}")[0].statements
    assert "after" not in file.broken


def test_a_file_of_mistakes_gives_each_its_finding() -> None:
    file, found = read("\noutput between;\n".join(text for text, *_ in MISTAKES))
    expected = []
    start = 0
    for text, code, line, marked in MISTAKES:
        expected.append((start + line, code, marked))
        start += text.count("\n") + 2
    places = [(finding.labels[0].span.line, finding.code, finding.labels[0].span.text) for finding in found]
    assert sorted(places) == sorted(expected)
    assert len(file.statements) == len(MISTAKES) - 1
    assert {"h", "k", "lett", "qerry"} <= file.broken


def test_mistakes_on_neighbouring_lines_are_told_apart() -> None:
    _, found = read('assert x, "open;\nexpect x == ];\nlet a = ≤ 1;\nlet b = * 1;\n')
    places = [(finding.code, finding.labels[0].span.text) for finding in found]
    assert sorted(places) == [("IX101", "*"), ("IX101", "]"), ("IX103", "≤"), ("IX105", '"open;')]


def test_a_statement_around_something_unreadable_is_kept_if_it_makes_sense() -> None:
    file, found = read("let r = 2x;\nlet s = $ 1;\n")
    assert [finding.code for finding in found] == ["IX104", "IX103"]
    assert len(file.statements) == 2


def test_an_unclosed_brace_does_not_hide_the_next_definition() -> None:
    file, found = read("fn f(x) {\n    let a = x;\n    a;\n\nlet y = 1;\nlet z = ;\n")
    assert [(finding.code, finding.labels[0].span.line) for finding in found] == [("IX102", 3), ("IX101", 6)]
    assert [getattr(node, "name", None) for node in file.statements] == ["y"]


def test_findings_of_other_files_in_the_same_sink_do_not_matter() -> None:
    sink = Sink()
    sink.report("IX501", "a finding about a call has no place")
    parse(Source("one", "let x = ≤;"), sink)
    parse(Source("two", "let x = * 1;"), sink)
    assert [finding.code for finding in sink] == ["IX501", "IX103", "IX101"]


def test_a_missing_semicolon_can_be_mended() -> None:
    text = "let a = 1\nlet b = 2;\n"
    _, (finding,) = read(text)
    assert finding.fix is not None
    mended = text[: finding.fix.span.start] + finding.fix.replacement + text[finding.fix.span.end :]
    assert mended == "let a = 1;\nlet b = 2;\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("let x = ;", "expected an expression, found `;`"),
        ("let = 1;", "expected a name after `let`, found `=`"),
        ("let x = let;", "expected an expression, found the word `let`"),
        ("let x = 1", "expected `;` or an operator, found the end of the file"),
        ("let x", "expected `=` and what `x` is, found the end of the file"),
        ("let x = (a", "expected `)` after this expression, found the end of the file"),
        ("let x = softmax(a);", "expected `[` and the coordinate that `softmax` normalises over, found `(`"),
        ("let x = sum[j in 3](a);", "expected `..` and the end of the range, found `]`"),
        ("let x = { let a = 1; };", "expected the block's value, found `}`"),
        ('let x = "a";', 'expected an expression, found `"a"`'),
        ("1;", "expected a statement, found `1`"),
        (f"let {'x' * 99} y;", f"expected `=` and what `{'x' * 99}` is, found `y`"),
        (f"let y = a {'x' * 99};", f"expected `;` or an operator, found `{'x' * 24}…`"),
    ],
)
def test_messages_speak_of_the_program(text: str, message: str) -> None:
    _, (finding,) = read(text)
    assert finding.message == message


def test_no_message_speaks_of_the_parser() -> None:
    _, found = read("\n".join(text for text, *_ in MISTAKES))
    for finding in found:
        said = f"{finding.message} {finding.help}".lower()
        assert not re.search(r"\b(token|symbol|keyword|identifier|eof|parse\w*|unexpected)\b", said)
