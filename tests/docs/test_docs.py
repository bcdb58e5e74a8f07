"""Every page does what it says, every code has a page, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs import running

from indexical.checker import elaborate, inline
from indexical.codes import CODES
from indexical.run import pointwise
from indexical.syntax import tokens, vocabulary

PAGES = running.pages()
DOCS = running.ROOT / "docs"
CODE_PAGES = sorted((DOCS / "codes").glob("*.md"))

# Pages that are all prose. Any other page in which nothing is run is a mistake.
PROSE = {"docs/audited.md", "docs/benchmarks.md", "docs/index.md"}


def titles(pages: list[Path]) -> list[str]:
    return [running.title(page) for page in pages]


# Pages that take many seconds: the rest part runs them.
LONG = {"docs/audit.md", "docs/broken-attention.md", "docs/catalogue.md", "docs/engine.md", "docs/read.md"}


def marks(page: Path) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.sampled(0),) if running.title(page) in LONG else ()


@pytest.mark.parametrize("page", [pytest.param(page, id=running.title(page), marks=marks(page)) for page in PAGES])
def test_page_does_what_it_says(page: Path) -> None:
    faults = running.run(page)
    if faults:
        pytest.fail(running.describe(page, faults), pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=titles(PAGES))
def test_page_has_something_to_run(page: Path) -> None:
    runs = any(block.language in running.RUN for block in running.blocks(page))
    assert runs != (running.title(page) in PROSE)


def test_every_code_has_one_page() -> None:
    assert {page.stem for page in CODE_PAGES} == set(CODES)


@pytest.mark.parametrize("page", CODE_PAGES, ids=[page.stem for page in CODE_PAGES])
def test_code_page_fails_as_its_code_and_ends_clean(page: Path) -> None:
    """What the page prints is compared elsewhere; here, that it is this code, and that the mend prints nothing."""
    code = page.stem
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {code}: {CODES[code].title}\n")
    before, why, rest = text.partition("\n## Why\n")
    reason, mend, after = rest.partition("\n## The mend\n")
    assert why, "the page says why"
    assert mend, "the page gives a mend"
    assert f"{CODES[code].severity}[{code}]" in before
    assert "```" in after
    assert f"[{code}]" not in after
    assert 2 <= len(re.findall(r"[.!?](?:\s|$)", re.sub(r"`[^`]*`", "x", reason))) <= 6


def test_index_lists_every_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = {(DOCS / target).resolve() for target in links(index)}
    assert [running.title(page) for page in DOCS.rglob("*.md") if page not in linked and page.stem != "index"] == []


def test_index_gives_every_code_its_title() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8").splitlines()
    weights = {"error": "", "warning": " (warning)", "note": " (note)"}
    for name, code in CODES.items():
        assert f"- [{name}](codes/{name}.md): {code.title}{weights[code.severity]}" in index


def links(text: str) -> list[str]:
    """The targets of the links of a page, without those that leave the repository and without code."""
    prose = re.sub(r"^(`{3,}).*?^\1$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [target for target in targets if not target.startswith("http")]


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in a link."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=titles(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_grammar_has_every_word_of_the_language() -> None:
    (grammar,) = [block.text for block in running.blocks(DOCS / "language.md") if block.language == "ebnf"]
    words = set(re.findall(r'"([a-z][a-z_0-9]*)"', grammar))
    known = {*tokens.KEYWORDS, *vocabulary.WORDS, *vocabulary.DTYPES, *vocabulary.ROLES, *vocabulary.FLAGS}
    known |= {word for rows in vocabulary.ROW_SUMS for word in rows.split() if word.isalpha()}
    known |= {*vocabulary.GROUPINGS, *vocabulary.STORED_DTYPES, "groups", "attention", "rows", "offset"}
    known |= {*vocabulary.PRINTED_AS, "printed"}
    assert words == known


def test_limits_are_those_of_the_code() -> None:
    text = (DOCS / "language.md").read_text(encoding="utf-8").partition("\n## Limits\n")[2]
    stated = [int(number.replace(",", "")) for number in re.findall(r"^\|.*\| ([\d,]+) \|$", text, flags=re.MULTILINE)]
    assert stated == [
        vocabulary.MAXIMUM_DEPTH,
        elaborate.MAXIMUM_NESTING,
        vocabulary.MAXIMUM_RANK,
        elaborate.MAXIMUM_NODES,
        inline.MAXIMUM_CALLS,
        tokens.MAXIMUM_DIGITS,
        tokens.MAXIMUM_EXPONENT,
        pointwise.MAXIMUM_POINTS,
        pointwise.MAXIMUM_WORK,
    ]


# --------------------------------------------------------------- the runner itself


def page_with(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


@pytest.mark.parametrize(
    "text",
    [
        "```ix\nlet y = x;\n```\n",
        "```ix\nlet y = 1;\n```\n\n```output\nsomething\n```\n",
        "```output\nstray\n```\n",
        "```ix\nlet y = 1;\n```\n\nSome words.\n\n```output\n```\n",
        "```console\n$ ix run none.ix\n```\n",
        "```console\n$ rm -r x\n```\n",
        "```console\nix run none.ix\n```\n",
        "```python\n>>> 1 + 1\n3\n```\n",
        "```python\n1 / 0\n```\n",
        "```python\nprint(1)\n```\n",
        "```sh\nmake everything\n```\n",
        "```fortran\nX = 1\n```\n",
        "```\nwhat is this\n```\n",
    ],
)
def test_runner_finds_what_is_wrong(tmp_path: Path, text: str) -> None:
    assert running.run(page_with(tmp_path, text))


def test_runner_accepts_what_is_right(tmp_path: Path) -> None:
    page = page_with(
        tmp_path,
        "```ix one.ix\nlet y = 1;\n```\n\n```console\n$ ix run one.ix\ny  int64\n1\n$ ix check one.ix\n```\n\n"
        "```python\nimport indexical as ix\n```\n\n```python\n>>> int(ix.compile('one.ix')())\n1\n```\n\n"
        "```python\nprint(2)\n1 / 0\n```\n\n```output\n2\nZeroDivisionError: division by zero\n```\n",
    )
    assert running.run(page) == []


def test_update_writes_what_is_printed(tmp_path: Path) -> None:
    page = page_with(
        tmp_path,
        "# One\n\n```ix\nlet y = x;\n```\n\n```output\nold\nold\n```\n\n"
        "```console\n$ ix check no.ix\n$ ix check no.ix\n```\n\n"
        "```python\n>>> 1 + 1\n3\n>>> x = 1\nold\n>>> print('a', '', 'b', '', sep='\\n')\n>>> 1 / 0\n```\n\nThe end.\n",
    )
    running.update(page, running.run(page))
    assert running.run(page) == []
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# One\n\n```ix\n")
    assert text.endswith("\nZeroDivisionError: division by zero\n```\n\nThe end.\n")
    assert "nothing defines `x`" in text


@pytest.mark.parametrize("text", ["```ix\nlet y = 1;\n", "- a list\n\n  ```ix\n  let y = 1;\n  ```\n"])
def test_fences_are_closed_and_start_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(running, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"page\.md:"):
        running.blocks(page_with(tmp_path, text))
