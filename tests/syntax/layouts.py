"""What the tests of the layout share: reading a text that is right, and comparing its layout."""

from __future__ import annotations

from textwrap import dedent

from indexical.diagnostics import Sink
from indexical.source import Source
from indexical.syntax import tree
from indexical.syntax.format import format_source
from indexical.syntax.parse import parse


def read(text: str) -> tree.File:
    sink = Sink()
    file = parse(Source("test", text), sink)
    assert [str(found) for found in sink] == []
    return file


def laid_out(text: str) -> str:
    return format_source(read(text))


def check(text: str, expected: str) -> None:
    """The text has this layout, and the layout has itself."""
    expected = dedent(expected).lstrip("\n")
    assert laid_out(text) == expected
    assert laid_out(expected) == expected


def check_fixed(text: str) -> None:
    check(dedent(text), text)
