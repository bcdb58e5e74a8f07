"""What an editor asks of a program: facts under the pointer, words that may follow, hints, colours, layout."""

from __future__ import annotations

import pytest
from tests.server.test_names import ATTENTION

from indexical.server import colours, completion, edits, hints
from indexical.server.analysis import Document
from indexical.server.hover import hover

PAGE = f"# A page\n\n```ix\n{ATTENTION}```\n\nWords.\n\n~~~python\nx = 1\n~~~\n\n```ix\nlet y = 1 +;\n```\n"


def hovered(text: str, at: str) -> str:
    found = hover(Document("a.ix", text), text.index(at))
    return "" if found is None else found[0]


def test_hover_tells_who_asks_what_is_scanned_and_what_it_costs() -> None:
    words = hovered(ATTENTION, "out[")
    assert "who asks?          i" in words
    assert "scans" in words
    assert "shape i × e" in words
    assert "multiply-adds" in words
    assert "computed by" in words


def test_hover_of_a_coordinate_is_its_story() -> None:
    words = hovered(ATTENTION, "j <= i")
    assert "coordinate `j` of space `position`" in words
    assert "in `out`: answers" in words
    assert "`weights`: normalised by softmax" in words


def test_hover_of_words_and_functions() -> None:
    assert "sum to 1" in hovered(ATTENTION, "softmax")
    assert "number of points" in hovered(ATTENTION, "size")
    text = "use std::norms::{rms_norm};\ninput x[i, m], g[m];\nlet y = rms_norm(x, g, 1e-5);"
    assert "Mean square 1 over `m`" in hovered(text, "rms_norm(")


def test_in_the_middle_of_an_edit_the_last_version_without_errors_answers() -> None:
    document = Document("a.ix", ATTENTION)
    broken = ATTENTION + "let more[i] = out["
    document.change(broken)
    found = hover(document, broken.index("out["))
    assert found is not None
    assert "who asks?" in found[0]
    assert "last version without errors" in found[0]


def words(text: str, document: str = "a.ix") -> list[str]:
    """What is proposed at the mark."""
    at = text.index("¦")
    text = text.replace("¦", "")
    return [proposal.word for proposal in completion.proposals(Document(document, text), at)]


@pytest.mark.parametrize(
    ("text", "among", "not_among"),
    [
        ("¦", "let", "softmax"),
        (f"{ATTENTION}let z[¦", "j", "softmax"),
        (f"{ATTENTION}let z[i] = so¦", "softmax", "let"),
        (f"{ATTENTION}let z[i] = sum[j](weights[i, ¦", "j", "softmax"),
        (f"{ATTENTION}let z[i] = size(¦", "d", "softmax"),
        ("use std::¦", "norms", "let"),
        ("use std::norms::{¦", "rms_norm", "let"),
        ("input x[i] : ¦", "bf16", "x"),
        ("input x[i];\nlet y[i] = x[i] as ¦", "f32", "x"),
        (f"{ATTENTION}attention out(¦", "query", "softmax"),
        (f"{ATTENTION}output ¦", "out", "softmax"),
    ],
)
def test_what_may_follow(text: str, among: str, not_among: str) -> None:
    found = words(text)
    assert among in found
    assert not_among not in found
    assert len(found) == len(set(found))


@pytest.mark.parametrize("text", ["// a comment ¦", "let x = 1¦", 'input x[i]; assert size(i) > 1, "of¦";'])
def test_nothing_is_proposed_in_comments_numbers_and_texts(text: str) -> None:
    assert words(text) == []


def test_hints_say_who_asks_whom_and_what_has_no_bracket() -> None:
    found = {hint.words for hint in hints.hints(Document("a.ix", ATTENTION).analyses[0])}
    assert found == {"  i asks j · compares d · carries e"}
    text = "use std::norms::{rms_norm};\ninput x[i, m], g[m];\nlet y = rms_norm(x, g, 1e-5);\nlet z[k in 0..3] = 1.0;"
    assert [hint.words for hint in hints.hints(Document("a.ix", text).analyses[0])] == ["[i, m]", " : 3"]
    assert hints.hints(Document("a.ix", ATTENTION + "let y = ;").analyses[0]) == []


def test_each_coordinate_has_one_colour() -> None:
    document = Document("a.ix", ATTENTION)
    found: dict[str, set[str]] = {}
    for part in colours.colours(document.analyses[0]):
        found.setdefault(ATTENTION[part.start : part.end], set()).add(colours.TYPES[part.type])
    kinds = {name: found[name] for name in "ijde"}
    assert kinds == {name: {f"coordinate{number}"} for number, name in enumerate("ijde", 1)}
    assert found["Q"] == {"parameter"}
    assert found["softmax"] == {"function"}
    assert found["where"] == {"keyword"}


def test_programs_in_a_page() -> None:
    document = Document("page.md", PAGE)
    assert [analysis.region.source.text.strip() for analysis in document.analyses] == [
        ATTENTION.strip(),
        "let y = 1 +;",
    ]
    (error,) = document.findings
    assert error.labels[0].span.shown.line == PAGE[: PAGE.index("1 +;")].count("\n") + 1
    assert hover(document, PAGE.index("weights[i, j] *")) is not None
    assert hover(document, PAGE.index("Words")) is None


def test_layout_keeps_the_place_of_a_program() -> None:
    untidy = PAGE.replace("let out[i, e]     =", "let out[i,e]=").replace("let y = 1 +;", "let  y = 1 ;")
    new = edits.applied(untidy, edits.formatted(Document("page.md", untidy)))
    assert new == PAGE.replace("let y = 1 +;", "let y = 1;")
    assert edits.formatted(Document("page.md", PAGE)) == []
    indented = "  ```ix\n  let  y = 1;\n  let zz =  2;\n  ```\n"
    assert edits.applied(indented, edits.formatted(Document("p.md", indented))).splitlines()[1:3] == [
        "  let y  = 1;",
        "  let zz = 2;",
    ]


def test_a_warning_is_allowed_behind_its_statement() -> None:
    text = ATTENTION.replace("* V[j, e])", "*\n    V[i, e])")
    document = Document("a.ix", text)
    finding = next(finding for finding in document.findings if finding.code == "IX403")
    edit = edits.allowance(document.analyses[0], finding)
    assert edit is not None
    document.change(edits.applied(text, [edit]))
    assert "IX403" not in {finding.code for finding in document.findings}


PYTHON = '''import indexical as ix

twice = ix.compile("""
input x[i];
let y[i] = 2 * x[i];
""")


@ix.program
def attention(Q: "i d", K: "j d", V: "j e", *, window: int = 256):
    """
    let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where i - window < j <= i;
    let out[i, e]     = sum[j](weights[i, j] * V[i, e]);
    """


def plain(x):
    """Words of no program: let x = 1;"""
'''


def test_programs_in_python() -> None:
    document = Document("code.py", PYTHON)
    assert len(document.analyses) == 2
    finding = next(finding for finding in document.findings if finding.severity == "warning")
    assert finding.code == "IX403"
    assert finding.labels[0].span.shown.start == PYTHON.index("V[i, e]")
    found = hover(document, PYTHON.index("weights[i, j] *"))
    assert found is not None
    assert "normalised    j by softmax" in found[0]
    assert hover(document, PYTHON.index("Words")) is None
    renaming = edits.applied(PYTHON, edits.renamed(document, PYTHON.index('"j d"') + 1, "key"))
    assert 'K: "key d", V: "key e"' in renaming
    assert "i - window < key <= i;" in renaming
    assert "let y[i] = 2 * x[i];" in renaming
    assert 'V: "j e"' in edits.applied(PYTHON, edits.renamed(document, PYTHON.index("window <"), "reach"))
    at = PYTHON.index("    let out")
    assert "softmax" in [p.word for p in completion.proposals(document, PYTHON.index("sum[j]("))]
    assert "let" in [p.word for p in completion.proposals(document, at)]
    for part in colours.colours(document.analyses[1]):
        assert PYTHON[part.start : part.end].strip()
    assert [hint.at for hint in hints.hints(document.analyses[1])] in (
        [],
        [PYTHON.index("V[i, e]);") + len("V[i, e]);")],
    )


def test_a_python_file_in_the_middle_of_an_edit_keeps_what_was_known() -> None:
    document = Document("code.py", PYTHON)
    document.change(PYTHON + "def half(")
    assert not document.is_readable
    document.change(PYTHON)
    assert document.is_readable
    assert "IX403" in {finding.code for finding in document.findings}
