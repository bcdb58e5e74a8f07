"""Web pages with programs in them, saved as HTML: the same blocks and marks as those of a page in Markdown.

A program is `<pre><code class="language-ix">` (or a `<pre>` of such a class, as highlighters write it) or `<script
type="text/ix">`. Comments are those of HTML, so they are what they are in Markdown.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right

from .markdown import ATTRIBUTES, MARK, NEARLY, Block, Mark, Table, Unreadable, misspelt, named, read_table
from .plain import Cell, Plain, code, prose

_OPENS = re.compile(
    rf"<(?P<tag>script|style|textarea|template|pre|title)\b(?P<attributes>{ATTRIBUTES})>", re.IGNORECASE
)
_IS_OURS = re.compile(
    r"""\b(?:class|lang)\s*=\s*["']?[^"'<>]*?(?<![\w-])(?:(?:highlight-)?(?:language|lang|source|highlight)-)?ix(?![\w-])"""
)
_NAME = re.compile(r"""\b(?:data-name|data-file|title)\s*=\s*["']([^"']*)["']""")
# Where a text ends in a browser: at tags that are not within a line.
_BLOCKS = (
    "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 header hr html legend li main nav ol p pre script section style table tbody td tfoot th thead "
    "tr ul"
)
_EDGE = re.compile(rf"</?(?:{'|'.join(_BLOCKS.split())})\b{ATTRIBUTES}>", re.IGNORECASE)
_TEX = re.compile(r"(<script\b[^<>]*\bmath/tex\b[^<>]*>)(.*?)(</script\s*>)", re.IGNORECASE | re.DOTALL)
_AROUND = re.compile(rf"<div\b({ATTRIBUTES})>(?:\s|<button\b.*?</button>|<span\b{ATTRIBUTES}></span>)*$")
_OPENED = re.compile(rf"(?i)(?:\s|</?(?!table|pre|script|style)[a-z]+[0-9]?\b{ATTRIBUTES}>)*")


def read_html(text: str) -> tuple[list[Block], list[Mark]]:
    """The programs of a page and the comments that speak of them, in their order."""
    text = _without_drawings(text)
    blocks: list[Block] = []
    hidden: list[tuple[int, int]] = []
    at = 0
    while (opening := _next(text, at)) is not None:
        tag = opening["tag"].lower()
        closing = re.compile(rf"</{tag}\s*>", re.IGNORECASE).search(text, opening.end())
        if closing is None:
            raise Unreadable(opening.start(), opening.end(), f"this <{tag}> is not closed")
        inside = Cell(text[opening.end() : closing.start()], opening.end())
        block = _block(text, opening, inside)
        if block is not None:
            blocks.append(block)
        hidden.append((opening.start(), closing.end()))
        at = closing.end()
    comments = [found for found in MARK.finditer(text) if not _within(found.start(), hidden)]
    for nearly in NEARLY.finditer(text):
        if not _within(nearly.start(), hidden) and not MARK.match(text, nearly.start()):
            raise misspelt(nearly.start(), nearly.end())
    edges = [0, *(edge.end() for edge in _EDGE.finditer(text))]
    since = [0, *(found.end() for found in comments)]
    marks = [_mark(text, found, edges, before) for found, before in zip(comments, since, strict=False)]
    return blocks, marks


def _without_drawings(text: str) -> str:
    """The page with blanks for formulas as KaTeX and MathJax draw them: beside each, it is written in TeX, which
    MathJax has in a <script>."""
    text = _TEX.sub(lambda found: rf"{' ' * (len(found[1]) - 2)}\({found[2]}\){' ' * (len(found[3]) - 2)}", text)
    for drawn in list(re.finditer(r"<span\b[^<>]*\b(?:katex-html|MathJax(?:_\w+)?)(?![\w-])[^<>]*>", text)):
        depth, end = 0, len(text)
        for tag in re.compile(r"<(/?)span\b").finditer(text, drawn.start()):
            depth += -1 if tag[1] else 1
            if not depth:
                end = tag.start()
                break
        text = text[: drawn.start()] + re.sub(r"[^\n]", " ", text[drawn.start() : end]) + text[end:]
    return text


def _next(text: str, at: int) -> re.Match[str] | None:
    """The next element whose text is no text of the page, and that stands in no comment."""
    for found in _OPENS.finditer(text, at):
        if text.rfind("<!--", at, found.start()) <= text.rfind("-->", at, found.start()):
            return found
    return None


def _within(at: int, ranges: list[tuple[int, int]]) -> bool:
    return any(low <= at < high for low, high in ranges)


def _block(text: str, opening: re.Match[str], inside: Cell) -> Block | None:
    """The program that a <pre> or a <script> holds."""
    tag = opening["tag"].lower()
    if tag == "script" and re.search(r"""type\s*=\s*["']?text/(?:x-)?ix\b""", opening["attributes"], re.IGNORECASE):
        places = tuple(range(inside.start, inside.end))
        return Block(_name(opening["attributes"]), inside.text, places, opening.start())
    if tag != "pre":
        return None
    inner = re.match(rf"\s*<code\b({ATTRIBUTES})>", inside.text)
    around = _AROUND.search(text[max(0, opening.start() - 2000) : opening.start()])
    attributes = [opening["attributes"], inner[1] if inner else "", around[1] if around else ""]
    if not any(_IS_OURS.search(each) for each in attributes):
        return None
    found = _text(inside)
    name = next(filter(None, map(_name, attributes)), "")
    return Block(name, found.text, tuple(found.starts), opening.start())


def _name(attributes: str) -> str:
    found = _NAME.search(attributes)
    return found[1] if found else ""


def _text(inside: Cell) -> Plain:
    """The text of an element, without tags, with its entities read."""
    found, at = Plain(), 0
    for part in re.finditer(r"<[^<>]*>|&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);", inside.text):
        found.as_it_is(inside.text[at : part.start()], inside.start + at)
        at = part.end()
        if part[0].startswith("&"):
            found.add(html.unescape(part[0]), inside.start + part.start(), inside.start + part.end())
        elif re.match(r"<br\b", part[0]):
            found.add("\n", inside.start + part.start(), inside.start + part.end())
    found.as_it_is(inside.text[at:], inside.start + at)
    return found


def _mark(text: str, found: re.Match[str], edges: list[int], since: int) -> Mark:
    """A comment; the texts before and after it go to the nearest `edges`."""
    file, names = named(found, 0)
    first = edges[bisect_right(edges, found.start()) - 1]
    edge = _EDGE.search(text, found.end())
    last = edge.start() if edge is not None else len(text)
    before = prose(Cell(text[first : found.start()], first), is_html=True)
    after = prose(Cell(text[found.end() : last], found.end()), is_html=True)
    table, under = None, None
    if not before.text.strip() and not after.text.strip():
        table, under = _under(text, found.end())
    return Mark(file, names, found.start(), found.end(), before, after, max(since, first), table, under)


def _under(text: str, at: int) -> tuple[Table | None, Plain | None]:
    """What comes next: a table, a block of code, or the text of an element, whatever else is around it."""
    opening = _OPENED.match(text, at)
    assert opening is not None
    start = opening.end()
    if re.match(r"<table\b", text[start:], re.IGNORECASE):
        return read_table(Cell(text[start:], start)), None
    pre = re.match(rf"<pre\b{ATTRIBUTES}>(.*?)</pre\s*>", text[start:], re.IGNORECASE | re.DOTALL)
    if pre is not None:
        inside = _text(Cell(pre[1], start + pre.start(1)))
        found = code(Cell("", start))
        middle = Plain(found.text[:1] + inside.text + found.text[1:], [start, *inside.starts, start + pre.end()],
                       [start, *inside.ends, start + pre.end()])  # fmt: skip
        return None, middle
    listed = re.search(r"(?i)<([uod]l)\b", opening[0])
    edge = (_EDGE if listed is None else re.compile(rf"(?i)</{listed[1]}\s*>")).search(text, start)
    last = edge.start() if edge is not None else len(text)
    return None, prose(Cell(text[start:last], start), True) if text[start:last].strip() else None
