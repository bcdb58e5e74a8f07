"""The documentation as a site: the pages as they stand in the repository, with search that needs no network.

    python -m pip install -c constraints.txt -e '.[docs]' && python docs/site/build.py

The folder of the sources is the repository itself, so that a link leads to the same file here and there. A comment
`<!-- live: examples/lessons/named_softmax.md -->` becomes the page that `ix show` makes of that file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pygments.lexers import TextLexer

import indexical
from indexical.lexer import IndexicalLexer
from indexical.pages import show_lesson

ROOT = Path(__file__).resolve().parents[2]

project = "Indexical"
author = "The authors of Indexical"
release = indexical.__version__
extensions = ["myst_parser", "sphinx_copybutton"]
include_patterns = ["docs/*.md", "docs/codes/*.md", "tests/book/*.md", "examples/lessons/*.md", "CHANGELOG.md"]
include_patterns += ["CONTRIBUTING.md"]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
myst_heading_anchors = 5
myst_enable_extensions: list[str] = []
# Pages about characters that mean nothing have programs that no lexer reads.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]

html_theme = "furo"
html_title = "Indexical"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["extra"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# The pages, as the side lists them.
PARTS = {
    "Start": ("getting-started", "tour", "language", "catalogue"),
    "Use": ("python", "engine", "derivatives", "training", "scale", "language-models", "editors", "builds"),
    "See and prove": ("page", "lessons", "exact", "patterns", "models"),
    "Code of others": ("audit", "read", "broken-attention"),
    "More": ("benchmarks", "adding-a-lint"),
}
_LIVE = re.compile(r"^<!-- live: (?P<file>\S+) -->$", re.MULTILINE)
_NAMED = re.compile(r"^```(?P<kind>ix|python) (?P<file>[^\s#]+)$", re.MULTILINE)


def toctrees() -> str:
    """The contents of the site: every page of the folder once."""
    known = [page for pages in PARTS.values() for page in pages]
    others = sorted(p.stem for p in (ROOT / "docs").glob("*.md") if p.stem not in {*known, "index"})
    parts = {**PARTS, "More": (*PARTS["More"], *others, "/CHANGELOG", "/CONTRIBUTING")}
    parts["Book"] = tuple(f"/tests/book/{page.stem}" for page in sorted((ROOT / "tests/book").glob("*.md")))
    parts["Lessons"] = tuple(f"/examples/lessons/{p.stem}" for p in sorted((ROOT / "examples/lessons").glob("*.md")))
    parts["Codes"] = tuple(f"codes/{page.stem}" for page in sorted((ROOT / "docs/codes").glob("*.md")))
    return "\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n:titlesonly:\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in parts.items()
    )


def read(app: Any, name: str, source: list[str]) -> None:
    """Add the contents to the first page, live pages where a page asks for them (a lesson is one), and above a text
    that is a file the name of that file, by which the texts after it call it."""
    if name == root_doc:
        source[0] += "\n" + toctrees()
    if name.startswith("examples/lessons/"):
        source[0] = source[0].partition("\n")[0] + f"\n\n<!-- live: {name}.md -->\n"
    up = "../" * name.count("/")
    source[0] = _LIVE.sub(lambda found: _frame(app, found["file"], up), source[0])
    source[0] = _NAMED.sub(r"```{code-block} \g<kind>\n:caption: \g<file>\n", source[0])


def _frame(app: Any, file: str, up: str) -> str:
    page = f"live/{Path(file).stem}.html"
    made = Path(app.outdir) / page
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        show = show_lesson if file.endswith(".md") else indexical.show
        show(ROOT / file).save(made)
    link = f'<p><a href="{up}{page}">Open it alone</a></p>'
    return f'<iframe class="live" src="{up}{page}" title="A live page" loading="lazy"></iframe>\n{link}\n'


def setup(app: Any) -> None:
    app.add_lexer("ix", IndexicalLexer)
    for name in ("output", "ebnf"):
        app.add_lexer(name, TextLexer)
    app.connect("source-read", read)
