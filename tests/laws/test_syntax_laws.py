"""Laws of text and tree: formatting loses nothing, settles at once, and no text breaks the parser."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace
from time import thread_time
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, event, find, given
from hypothesis import strategies as st
from tests.laws.programs_text import CHARACTERS, Words, damaged, expressions, programs, soups, spaced, words
from tests.profiles import examples

from indexical.diagnostics import Diagnostic, Sink, render
from indexical.source import Source
from indexical.syntax import tree
from indexical.syntax.format import format_expression, format_source, format_statement
from indexical.syntax.layout import WIDTH
from indexical.syntax.parse import parse
from indexical.syntax.tokens import tokenize


def read(text: str) -> tuple[tree.File, list[Diagnostic]]:
    sink = Sink()
    return parse(Source("test", text), sink), list(sink)


def read_well(text: str) -> tree.File:
    file, found = read(text)
    assert [str(finding) for finding in found] == [], text
    return file


@given(programs())
def test_formatting_keeps_the_tree_and_the_comments_and_settles_at_once(text: str) -> None:
    file = read_well(text)
    formatted = format_source(file)
    again = read_well(formatted)
    assert again == file
    assert Counter(comment.text for comment in again.comments) == Counter(comment.text for comment in file.comments)
    assert format_source(again) == formatted
    check_no_loose_ends(formatted)


def check_no_loose_ends(formatted: str) -> None:
    lines = formatted.split("\n")
    assert lines.pop() == ""
    assert all(line == line.rstrip() and "\t" not in line and "\r" not in line for line in lines)
    assert not re.search(r"^\n|\n\n\n|\n\n$", formatted)
    assert not re.search(r"\{\n\n|\n\n *\}", formatted)


@given(words(largest=2))
def test_the_layout_depends_on_the_words_alone(chosen: Words) -> None:
    """But for the empty lines between statements, of which there are none here."""
    formatted = format_source(read_well(spaced(chosen, [""])))
    assert format_source(read_well(spaced(chosen, ["\n", "\n\t"]))) == formatted
    for line in formatted.splitlines():
        if len(line) > WIDTH:
            event("a line is too long")
            assert not re.search(r"[(\[{].*[,+].*[)\]}]", line), f"this could be broken: {line}"


@given(programs(largest=1, comments=False))
def test_a_statement_alone_is_laid_out_as_in_a_file(text: str) -> None:
    for statement in read_well(text).statements:
        alone = format_statement(statement)
        assert read_well(alone).statements == (statement,)
        assert format_source(read_well(alone)) == alone + "\n"


@pytest.mark.sampled(0)
def test_the_programs_have_every_kind_of_node() -> None:
    """Otherwise the laws above would say less than they seem to."""
    missing = set(get_args(tree.Node))

    def completes(text: str) -> bool:
        missing.difference_update(type(node) for part in read_well(text).statements for node in tree.walk(part))
        return not missing

    patient = examples(100, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
    find(programs(), completes, settings=patient)


def without_parentheses(node: Any) -> Any:
    """The tree without `Paren`, but where a slot would become a coordinate."""
    if isinstance(node, tuple):
        return tuple(map(without_parentheses, node))
    if isinstance(node, tree.Paren):
        return without_parentheses(node.inner)
    if not hasattr(node, "__dataclass_fields__"):
        return node
    changed = {part.name: without_parentheses(getattr(node, part.name)) for part in fields(node) if part.compare}
    if changed.get("slots"):
        changed["slots"] = tuple(map(as_slot, changed["slots"]))
    return replace(node, **changed)


def as_slot(slot: tree.Slot) -> tree.Slot:
    return tree.Binder(slot.name, None, False, slot.span) if isinstance(slot, tree.Name) else slot


@given(expressions())
def test_parentheses_that_a_tree_lacks_are_put_in(text: str) -> None:
    (let,) = read_well(f"let it = {text};").statements
    assert isinstance(let, tree.Let)
    bare = without_parentheses(let.body)
    event("parentheses were needed" if format_expression(let.body) != format_expression(bare) else "none were needed")
    written = format_expression(bare)
    assert "\n" not in written
    (again,) = read_well(f"let it = {written};").statements
    assert isinstance(again, tree.Let)
    assert without_parentheses(again.body) == bare


@given(st.one_of(soups(), damaged(), st.text(CHARACTERS, max_size=80)))
def test_no_text_breaks_the_parser(text: str) -> None:
    start = thread_time()  # Not the time on the wall: other work on the machine is none of the parser's.
    file, found = read(text)
    assert thread_time() - start < 0.5
    for finding in found:
        assert render(finding)
        assert not re.search(r"\b(token|symbol|keyword|identifier|eof)\b", finding.message.lower())
        for label in finding.labels:
            assert 0 <= label.span.start <= label.span.end <= len(text)
    if found:
        event("mistakes were found")
    else:
        assert read_well(format_source(file)) == file


@given(st.one_of(soups(), damaged()))
def test_what_is_not_in_the_tree_was_reported(text: str) -> None:
    """A text without findings is all there: its tree, written out, has the same words."""
    file, found = read(text)
    if not found:
        assert significant(format_source(file)) == significant(text)


def significant(text: str) -> list[str]:
    """The words that a tree keeps: neither last commas, nor the braces of `else { if … }`."""
    tokens, _ = tokenize(Source("test", text), Sink())
    return [token.text for token in tokens if token.text not in (",", "{", "}")]
