"""The names in a program: every word that has a meaning is found, once, and can be renamed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from indexical.api import Program, examine
from indexical.diagnostics import Diagnostic, Sink
from indexical.server import analysis, edits
from indexical.server.analysis import Document
from indexical.server.edits import Refused, applied, renamed
from indexical.server.symbols import Symbols
from indexical.source import Source
from indexical.syntax.parse import parse
from indexical.syntax.tokens import tokenize
from indexical.syntax.vocabulary import DTYPES, FLAGS, GROUPINGS, ROLES, STORED_DTYPES

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "examples").rglob("*.ix"), *(ROOT / "src/indexical/std").glob("*.ix")])
# Words that stand where no program gives them a meaning.
PLAIN = {*DTYPES, *STORED_DTYPES, *ROLES, *FLAGS, *GROUPINGS, "attention", "groups", "rows", "at", "most", "masked"}

ATTENTION = """space position(i, j);
input Q[i, d], K[j, d], V[j, e], limit;
let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) / root where root = sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e]     = sum[j](weights[i, j] * V[j, e]) * limit;
"""


# A mask of padding is known by its name, too: these findings may go with it.
BY_NAME = {"IX431": 0, "IX432": 0}


def named(files: list[Path]) -> list[object]:
    return [pytest.param(file, id=file.stem) for file in files]


@pytest.mark.parametrize("file", named(FILES))
def test_every_name_has_one_meaning(file: Path) -> None:
    source = Source(file.name, file.read_text())
    tokens, _ = tokenize(source, Sink())
    symbols = Symbols(parse(source, Sink()))
    counted = Counter(found.span.start for found in symbols.occurrences)
    assert all(count == 1 for count in counted.values())
    assert all(found.span.text == found.symbol.name for found in symbols.occurrences)
    in_uses = {s for u in parse(source, Sink()).statements if type(u).__name__ == "Use" for s in u.path}  # type: ignore[union-attr]
    words = {token.text for token in tokens if token.kind == "name" and token.start not in counted}
    assert words <= PLAIN | in_uses


@pytest.mark.parametrize("file", named(FILES))
@pytest.mark.sampled(80)
def test_renaming_keeps_what_is_said_of_a_program(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One name of each kind: the findings are of the same kinds, and the way back is there."""
    known: dict[str, tuple[Program | None, list[Diagnostic]]] = {}

    def examined(source: Source) -> tuple[Program | None, list[Diagnostic]]:
        """An editor examines a text before and after a change: here each is examined once."""
        if source.text not in known:
            known[source.text] = examine(source)
        return known[source.text]

    for module in (analysis, edits):
        monkeypatch.setattr(module, "examine", examined)
    document = Document(str(file), file.read_text())
    (program,) = document.analyses
    before = Counter(finding.code for finding in program.findings)
    for symbol in {found.symbol.kind: found.symbol for found in program.symbols.occurrences}.values():
        try:
            changes = renamed(document, symbol.places[0].start, "quite_new")
        except Refused:
            assert symbol.kind in ("word", "function")
            continue
        text = applied(document.text, changes)
        back = Document(str(file), text)
        after = Counter(finding.code for finding in back.analyses[0].findings)
        assert {**before, **BY_NAME} == {**after, **BY_NAME}
        first = min(edit.start for edit in changes)  # Those behind it have moved.
        assert applied(text, renamed(back, first, symbol.name)) == document.text


def test_a_name_that_would_be_caught_is_refused() -> None:
    document = Document("a.ix", ATTENTION)
    for at, new, why in [
        ("j <= i", "i", "something else"),
        ("j <= i", "out", "something else"),
        ("j <= i", "softmax", "word of the language"),
        ("j <= i", "let", "not a name"),
        ("j <= i", "2 j", "not a name"),
        ("softmax", "x", "word of the language"),
        (" = sum", "x", "no name"),
    ]:
        with pytest.raises(Refused, match=why):
            renamed(document, ATTENTION.index(at), new)


def test_a_coordinate_is_one_in_all_of_a_file_and_another_in_a_function() -> None:
    text = "fn twice(x[j]) -> [j] { 2 * x[j] }\ninput a[j]; let b = twice(a); let c[j] = a[j] + b[j];"
    document = Document("a.ix", text)
    edits = renamed(document, text.index("a[j]") + 2, "key")
    assert applied(text, edits) == text.replace("a[j]", "a[key]").replace("c[j]", "c[key]").replace("b[j]", "b[key]")
    edits = renamed(document, text.index("x[j]") + 2, "key")
    assert applied(text, edits).startswith("fn twice(x[key]) -> [key] { 2 * x[key] }\ninput a[j];")


@pytest.mark.parametrize("text", ["let y[i] = ", "input Q[i", "let w[i, j] = softmax[j](s[i, j]", "fn f(x[", "}}", ""])
def test_half_a_text_has_names(text: str) -> None:
    Document("a.ix", ATTENTION + text).analyses[0].symbols.at(3)
