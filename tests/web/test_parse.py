"""A text read in the page is the tree that the compiler reads, place by place; what one refuses, so does the other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.laws.programs import random_case

from indexical.diagnostics import Sink
from indexical.source import Source, Span
from indexical.syntax.parse import parse
from indexical.views.webpage import script

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "examples").rglob("*.ix"), *(ROOT / "src" / "indexical" / "std").glob("*.ix")])
LESSONS = sorted((ROOT / "examples" / "lessons").glob("*.md"))

READ = """(texts) => JSON.stringify(texts.map((text) => {
  try {
    return parse(text).statements;
  } catch (problem) {
    if (!(problem instanceof Mistake)) throw problem;
    return { message: problem.message, span: problem.span };
  }
}), (key, value) => (/Span$/.test(key) ? undefined : value))"""


@pytest.fixture(scope="module")
def reader(browser: Any) -> Iterator[Any]:
    tab = browser.new_page()
    tab.set_content("<!doctype html><meta charset=utf-8>")
    scripts = ("tokens.js", "parse.js", "expressions.js", "claims.js", "lower.js")
    tab.add_script_tag(content="".join(map(script, scripts)))
    yield tab
    tab.close()


def as_json(node: Any) -> Any:
    """A node of the tree as the page has it."""
    if isinstance(node, tuple):
        return [as_json(part) for part in node]
    if node is None or isinstance(node, str | bool):
        return node
    if isinstance(node, Span):
        return [node.start, node.end]
    parts = {part.name: as_json(getattr(node, part.name)) for part in fields(node) if part.compare}
    return {"kind": type(node).__name__, **parts, "span": as_json(node.span)}


def read(tab: Any, texts: list[str]) -> Any:
    return json.loads(tab.evaluate(READ, texts))


def same(tab: Any, texts: list[str]) -> None:
    for text, found in zip(texts, read(tab, texts), strict=True):
        sink = Sink()
        tree = parse(Source("", text), sink)
        assert not len(sink), text
        assert found == as_json(tree.statements), text


def test_examples_the_catalogue_and_the_standard_library(reader: Any) -> None:
    blocks = [
        block for file in LESSONS for block in re.findall(r"```ix[^\n]*\n(.*?)```", file.read_text("utf-8"), re.S)
    ]
    texts = [file.read_text("utf-8") for file in FILES]
    assert len(texts) > 120
    assert len(blocks) > 2
    same(reader, [*texts, *filter(str.strip, blocks)])


def test_programs_at_random(reader: Any) -> None:
    same(reader, [random_case(seed).text for seed in range(60)])


CLAIMS = """
expect y == tensor([[0.5000, 1.], [-inf, 2.]], dtype=torch.float64, grad_fn=<Add>);
expect y == array([[0.5 1. ] [ 2. -3.]]);
expect y == [1. 2. -3.5];
expect y[0] == 0.5 ± 0.01;
expect y[0] == a +- 0.01;
expect y == [1/3, -exp(2), masked, -inf] as printed;
let y[i] = x[i] as f32 as printed;
""".strip().splitlines()


def test_claims_as_they_are_pasted(reader: Any) -> None:
    same(reader, CLAIMS)


LITERALS = """
let y[k] = [1 / 2.0, -1 / 6.0, -(2), 2 ** -3, ~0.5, true];
let y[i, j] = [[sqrt(2), pi / 4], [x, f(1)[0]]];
let y = [[1, 2][0], 1e400, 2.5e-9999, 3 as f32];
""".strip().splitlines()


def test_literals_of_expressions(reader: Any) -> None:
    same(reader, LITERALS)


MISTAKES = """
let y = ;
let y = 1 +;
let y 1;
let y[i = 2;
input x[i] : float;
input x[i: 3];
let y = sum(x[i]);
let y = sum[](x);
let y = sum[j] x;
let y[i] = x[i] where;
y = 2;
let y = if a { 1 };
let y = if a { 1 } else { };
let y = { let z = 1; };
let y = [1, [2]];
let y = [];
let y = x as f32 ** 2;
let y = (1;
let y = 1);
let y = 3x;
let y = 1e99999;
let y = 1e-10001;
let y = [1, * 2];
let y = [1 2];
let y = [~[1, 2][0], -];
let y = x ≤ 2;
let y = "open
let y = @a;
let (a) = f(x);
assert x > 1;
assert x > 1, 2;
expect y = 2;
use std::{f}; fn f(x) 2
attention out(query);
attention out(fast);
attention out(rows never);
let y[i in 0] = 1;
let y = π;
let y = 1, 2;
let y[i] = sofmax[i](x[i]);
expect y == [1, ...];
expect y == nan;
expect y == 1 ± x;
let y = { let z = 1 as printed; z };
output y
""".strip().splitlines()


def test_mistakes(reader: Any) -> None:
    """The page stops at the first mistake, in the compiler's words and at its place."""
    for text, found in zip(MISTAKES, read(reader, MISTAKES), strict=True):
        sink = Sink()
        parse(Source("", text), sink)
        first = next(iter(sink), None)
        if first is None:
            assert isinstance(found, list), text
            continue
        span = first.labels[0].span
        assert found["message"].replace("the end of the text", "the end of the file") == first.message, text
        assert found["span"] == [span.start, span.end], text


def test_nothing_is_too_deep_for_it(reader: Any) -> None:
    texts = [
        "let y = " + "(" * 5000 + "1" + ")" * 5000 + ";",
        "let y = " + "-" * 5000 + "1;",
        "let y = " + "1 + " * 5000 + "1;",
    ]
    texts += ["let y = " + "[" * 200 + "1" + "]" * 200 + ";", "let y = " + "if a { 1 } else " * 500 + "{ 2 };"]
    for found in read(reader, texts):
        assert "deep" in found["message"] or "axes" in found["message"]
