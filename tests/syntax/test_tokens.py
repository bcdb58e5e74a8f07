"""Text to tokens: where words end, what is passed over, and what is said about it."""

from __future__ import annotations

import pytest

from indexical.diagnostics import Diagnostic, Sink
from indexical.source import Source
from indexical.syntax.tokens import KEYWORDS, STATEMENTS, tokenize


def words(text: str) -> list[tuple[str, str]]:
    """The kind and the text of every token but the last; there must be no findings."""
    sink = Sink()
    tokens, _ = tokenize(Source("test", text), sink)
    assert [str(found) for found in sink] == []
    assert tokens[-1] == ("end", "", len(text), len(text))
    return [(token.kind, token.text) for token in tokens[:-1]]


def findings(text: str) -> list[Diagnostic]:
    sink = Sink()
    tokenize(Source("test", text), sink)
    return list(sink)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0..n", "0 .. n"),
        ("0..=n", "0 ..= n"),
        ("1.5..2", "1.5 .. 2"),
        ("a**b*c", "a ** b * c"),
        ("a<=b<c", "a <= b < c"),
        ("a==b!=c", "a == b != c"),
        ("!a&&b||c", "! a && b || c"),
        ("->x--1", "-> x - - 1"),
        ("std::norms::{a}", "std :: norms :: { a }"),
        ("~-0.5", "~ - 0.5"),
        ("~-.5", "~ - .5"),
        ("0...5e-3", "0 .. .5e-3"),
        ("a[..r]*.25", "a [ .. r ] * .25"),
        ("@y/@x", "@ y / @ x"),
        ("x:f32", "x : f32"),
        ("1e-3+2E5", "1e-3 + 2E5"),
        ("a\u00a0+\tb\r\n;", "a + b ;"),
    ],
)
def test_words_end_where_they_should(text: str, expected: str) -> None:
    assert [word for _, word in words(text)] == expected.split()


def test_kinds() -> None:
    assert words('let x1 = 2.50, "a" λ_') == [
        ("keyword", "let"),
        ("name", "x1"),
        ("symbol", "="),
        ("number", "2.50"),
        ("symbol", ","),
        ("text", '"a"'),
        ("name", "λ_"),
    ]


def test_every_keyword_is_one_and_longer_words_are_names() -> None:
    assert [kind for kind, _ in words(" ".join(sorted(KEYWORDS)))] == ["keyword"] * len(KEYWORDS)
    assert [kind for kind, _ in words(" ".join(f"{word}s" for word in sorted(KEYWORDS)))] == ["name"] * len(KEYWORDS)
    assert STATEMENTS < KEYWORDS
    assert words("attention masked sum") == [("name", "attention"), ("name", "masked"), ("name", "sum")]


def test_offsets_are_those_of_the_text() -> None:
    text = "let  x=\n  10;"
    tokens, _ = tokenize(Source("test", text), Sink())
    assert [text[token.start : token.end] for token in tokens[:-1]] == ["let", "x", "=", "10", ";"]


def test_a_byte_order_mark_is_no_part_of_the_text_and_moves_no_place() -> None:
    source = Source("test", "\ufefflet x=\n.5;")
    tokens, _ = tokenize(source, Sink())
    assert [source.position(token.start) for token in tokens] == [(1, 1), (1, 5), (1, 6), (2, 1), (2, 3), (2, 4)]
    assert source.line(1) == "let x="
    (found,) = findings("let \ufeffx")
    assert found.message == "`U+FEFF` means nothing here"


def test_comments_are_kept_aside_without_their_line_end() -> None:
    text = 'a // one  \r\nb//two\n// "three" // four\n""//'
    sink = Sink()
    tokens, comments = tokenize(Source("test", text), sink)
    assert [token.text for token in tokens] == ["a", "b", '""', ""]
    assert [comment.text for comment in comments] == ["// one", "//two", '// "three" // four', "//"]
    assert [text[comment.start : comment.end] for comment in comments] == [comment.text for comment in comments]
    assert len(sink) == 0


def test_escapes_in_a_text() -> None:
    assert words(r'"a\"b" "c\\" "d"') == [("text", r'"a\"b"'), ("text", r'"c\\"'), ("text", '"d"')]
    (found,) = findings(r'"a\nb" x')
    assert found.code == "IX103"
    assert found.labels[0].span.text == r"\n"


@pytest.mark.parametrize(
    ("text", "code", "marked", "help"),
    [
        ("a ≤ b", "IX103", "≤", "`<=`"),
        ("a ^ b", "IX103", "^", "`**`"),
        ("a & b", "IX103", "&", "`&&`"),
        ("# note", "IX103", "#", "`//`"),
        ("$$$ a", "IX103", "$$$", None),
        ("\x00\x01", "IX103", "\x00\x01", None),
        ("x = 1. + y", "IX103", ".", "after its point"),
        ("1.5.5", "IX104", "1.5.5", "`1.5 * .5`"),
        ("１２", "IX103", "１２", None),
        ("ﬁn", "IX103", "ﬁn", "letters"),
        ("2x", "IX104", "2x", "`2 * x`"),
        ("1e", "IX104", "1e", "`1 * e`"),
        ("1e10001", "IX104", "1e10001", None),
        ("1e-10001", "IX104", "1e-10001", None),
        ("1" * 401, "IX104", "1" * 401, None),
        ("1e99999999", "IX104", "1e99999999", None),
        ('say "this; x', "IX105", '"this; x', "same line"),
    ],
)
def test_what_cannot_be_read_is_reported_once_with_its_place(
    text: str, code: str, marked: str, help: str | None
) -> None:
    (found,) = findings(text)
    assert found.code == code
    assert found.labels[0].span.text == marked
    assert help in found.help if help is not None and found.help is not None else help is None


def test_a_control_character_is_named_not_printed() -> None:
    (found,) = findings("\x07")
    assert found.message == "`U+0007` means nothing here"


def test_an_open_text_ends_with_its_line() -> None:
    sink = Sink()
    tokens, _ = tokenize(Source("test", 'a "b\nc'), sink)
    assert [token.text for token in tokens[:-1]] == ["a", "c"]
    assert [found.code for found in sink] == ["IX105"]


def test_a_number_that_is_too_long_still_counts_as_a_number() -> None:
    tokens, _ = tokenize(Source("test", "9" * 500), Sink())
    assert [(token.kind, token.text) for token in tokens] == [("number", "0"), ("end", "")]
