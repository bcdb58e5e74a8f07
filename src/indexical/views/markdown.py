"""Markdown pages with programs in them: what stands where, and which figures speak of which element.

A comment ties figures to a program. `<!-- ix: weights[2, 0] -->` stands beside one in the text, `<!-- ix: weights[2]
-->` behind a list of them, and on a line of its own above a table, a formula or a block of code it names the tensor in
it. Other blocks of code, the matter in front of a page and comments inside of code are left alone.

Readers of other kinds of pages give the same blocks and marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..records import dataclass
from .plain import QUOTED, Cell, Plain, code, prose


@dataclass(frozen=True, slots=True)
class Block:
    """A program of a page: its name, its text, the offset of each character on the page, and that of the block."""

    name: str
    text: str
    places: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page: its headings, which it may lack, and its rows."""

    headings: tuple[Plain, ...]
    rows: tuple[tuple[Plain, ...], ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A comment that names elements: the file of the program, if it says so, the names, and where each stands.

    Figures that it speaks of are in the `table` under it, or in a formula or block of code `under` it, or else in the
    text `before` and `after` it. `since` is where a comment in front of it ends.
    """

    file: str
    names: tuple[Cell, ...]
    start: int
    end: int
    before: Plain
    after: Plain
    since: int
    table: Table | None = None
    under: Plain | None = None


class Unreadable(Exception):
    """A page that cannot be read: what is wrong, and from where to where."""

    def __init__(self, start: int, end: int, message: str) -> None:
        self.start, self.end = start, end
        super().__init__(message)


Lines = list[tuple[int, str]]

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})\s*\{?\.?(\w*)\}?[ \t]*([^\n]*)")
_QUOTED = re.compile(r"^[ \t]*(?:>[ \t]?)+")
# Of a longer paragraph, so many characters before a comment are read.
_FARTHEST = 20_000
MARK = re.compile(r"<!--\s*ix:\s*(.*?)\s*-->")
# A comment that is nearly one: without the colon, in capitals, or that does not end on its line.
NEARLY = re.compile(r"<!--\s*[iI][xX]\b(?:(?!-->)[^\n])*")
ATTRIBUTES = r"(?:[^<>\"']|\"[^\"]*\"|'[^']*')*"
_ROW = re.compile(rf"(?is)<tr\b{ATTRIBUTES}>(.*?)(?=</tr\s*>|<tr\b|</t(?:head|body|foot|able)\b|\Z)")
_CELL = re.compile(
    rf"(?is)<(?P<tag>t[hd])\b(?P<attributes>{ATTRIBUTES})>(?P<text>.*?)(?=</t[hd]\s*>|<t[hd]\b|\Z)"
)
_FORMULA = re.compile(r"[ \t>]*(?:\$\$|\\\[|\\begin\{)")


def read_markdown(text: str, base: int = 0) -> tuple[list[Block], list[Mark]]:
    """The programs of a page and the comments that speak of them, in their order; the page begins at `base`."""
    blocks: list[Block] = []
    marks: list[Mark] = []
    lines = [(base + match.start(), match[0]) for match in re.finditer(r"[^\n]*(?:\n|$)", text) if match[0]]
    at = 0 if base else _front_matter([line for _, line in lines])
    while at < len(lines):
        fence = _FENCE.match(lines[at][1])
        if fence is None:
            marks += _marks(lines, at)
            at += 1
            continue
        end = _closing(lines, at, fence)
        if fence[2] == "ix":
            name = re.split(r"(?:^|\s)#", fence[3])[0].strip()
            inside = Plain()
            for start, line in lines[at + 1 : end]:
                quoted = _QUOTED.match(line) if ">" in lines[at][1].partition(fence[1])[0] else None
                skipped = quoted.end() if quoted is not None else 0
                inside.as_it_is(line[skipped:], start + skipped)
            blocks.append(Block(name, inside.text, tuple(inside.starts), lines[at][0]))
        at = end + 1
    return blocks, marks


def _closing(lines: Lines, at: int, fence: re.Match[str]) -> int:
    """The line that closes a block of code."""
    closing = re.compile(rf"[ \t>]*{re.escape(fence[1])}[`~]*\s*$")
    end = next((n for n in range(at + 1, len(lines)) if closing.match(lines[n][1])), None)
    if end is None:
        start, line = lines[at]
        raise Unreadable(start, start + len(line.rstrip("\n")), "this block is not closed")
    return end


def _front_matter(lines: list[str]) -> int:
    """Return the line after the matter in front of a page."""
    if not lines or lines[0].strip() != "---":
        return 0
    return next((n + 1 for n in range(1, len(lines)) if lines[n].strip() in ("---", "...")), 0)


def _marks(lines: Lines, at: int) -> Iterator[Mark]:
    """The comments of one line."""
    start, line = lines[at]
    inside = [(match.start(), match.end()) for match in re.finditer(r"(`+)(?:[^`]|(?!\1)`)+?\1(?!`)", line)]
    comments = [found for found in MARK.finditer(line) if not any(a < found.start() < b for a, b in inside)]
    for nearly in NEARLY.finditer(line):
        if not any(low < nearly.start() < high for low, high in inside) and not MARK.match(line, nearly.start()):
            raise misspelt(start + nearly.start(), start + nearly.end())
    for number, found in enumerate(comments):
        file, names = named(found, start)
        table, under = _under(lines, at + 1) if line.strip().lstrip("> \t") == found[0] else (None, None)
        yield Mark(
            file,
            names,
            start + found.start(),
            start + found.end(),
            prose(_before(lines, at, found.start())),
            prose(Cell(line[found.end() :], start + found.end())),
            start + comments[number - 1].end() if number else _since(lines, at),
            table,
            under,
        )


def _since(lines: Lines, at: int) -> int:
    """Where the last comment in the lines above ends, in the same paragraph."""
    while at > 0 and lines[at - 1][1].strip(" \t\n\r>"):
        at -= 1
        found = list(MARK.finditer(lines[at][1]))
        if found:
            return lines[at][0] + found[-1].end()
    return lines[at][0]


def misspelt(start: int, end: int) -> Unreadable:
    return Unreadable(start, end, "a comment is written `<!-- ix: out[0, 1] -->`, on one line")


def named(found: re.Match[str], start: int) -> tuple[str, tuple[Cell, ...]]:
    """The file of a program that a comment names, and the elements, with commas between them that stand in no
    bracket."""
    file = re.match(r"([^\s:]+\.ix)[:\s]\s*|([^\W\d]\w*):\s*", found[1])
    skipped = file.end() if file else 0
    offset = start + found.start(1) + skipped
    names = []
    for part in re.finditer(r"(?:[^,\[\]]|\[[^\]]*\])+", found[1][skipped:]):
        name = part[0].strip()
        if name:
            names.append(Cell(name, offset + part.start() + len(part[0]) - len(part[0].lstrip())))
    return (file[1] or file[2]) if file else "", tuple(names)


def _before(lines: Lines, at: int, column: int) -> Cell:
    """The paragraph up to a comment; other comments in it, and the signs of a quotation, are blanks."""
    first = at
    while first > 0 and lines[first - 1][1].strip(" \t\n\r>") and not _FENCE.match(lines[first - 1][1]):
        first -= 1
    parts = [line for _, line in lines[first:at]] + [lines[at][1][:column]]
    # A quotation of one line that begins with a number may be no quotation.
    around = [line for _, line in (*lines[max(0, at - 1) : at], *lines[at + 1 : at + 2])]
    alone = not any(_QUOTED.match(line) for line in around)
    plain = "".join(_unnumbered(_unquoted(part, alone)) for part in parts)
    cut = max(0, len(plain) - _FARTHEST)
    return Cell(re.sub(r"<!--.*?-->", lambda found: " " * len(found[0]), plain[cut:]), lines[first][0] + cut)


def _unquoted(line: str, alone: bool = False) -> str:
    """A line without the signs of a quotation; the last of one that stands `alone` is kept as what it is."""
    found = _QUOTED.match(line)
    if found is None:
        return line
    last = found[0].rindex(">")
    return " " * last + (QUOTED if alone else " ") + " " * (found.end() - last - 1) + line[found.end() :]


def _unnumbered(line: str) -> str:
    """A line of a list without its number."""
    found = re.match(r"[ \t]*[0-9]{1,9}[.)](?=[ \t]+[^\s<])", line)
    return line if found is None else " " * found.end() + line[found.end() :]


def _under(lines: Lines, at: int) -> tuple[Table | None, Plain | None]:
    """What begins at a line, or after an empty one: a table, or a formula, a block of code or a paragraph."""
    is_apart = at < len(lines) and not lines[at][1].strip(" \t\n\r>")
    at += is_apart
    if at >= len(lines):
        return None, None
    start, line = lines[at]
    rows = tuple(_table(lines, at))
    if rows:
        return Table(rows[0], rows[1:]), None
    fence = _FENCE.match(line)
    if fence is not None:
        end = _closing(lines, at, fence)
        inside = "".join(line for _, line in lines[at + 1 : end])
        return None, code(Cell(inside, lines[at + 1][0])) if fence[2] != "ix" and inside else None
    end = at
    if line.startswith(("    ", "\t")):
        while end < len(lines) and lines[end][1].startswith(("    ", "\t")):
            end += 1
        return None, code(Cell("".join(line for _, line in lines[at:end]), start))
    if line.lstrip(" \t>").lower().startswith("<table"):
        rest = "".join(line for _, line in lines[at:])
        return read_table(Cell(rest, start), is_html=False), None
    formula = _FORMULA.match(line)
    if is_apart and formula is None:
        return None, None
    while end < len(lines) and (lines[end][1].strip(" \t\n\r>") if formula is None else not _is_closed(lines[at:end])):
        end += 1
    text = "".join(_unnumbered(_unquoted(line)) for _, line in lines[at:end])
    return None, prose(Cell(text, start))


def _is_closed(lines: Lines) -> bool:
    """Whether a formula that begins in these lines ends in them."""
    text = "".join(line for _, line in lines)
    opened, closed = text.count("\\begin{"), text.count("\\end{")
    return text.count("$$") == 2 or "\\]" in text or ("$$" not in text and opened == closed > 0)


def _table(lines: Lines, at: int) -> Iterator[tuple[Plain, ...]]:
    """The rows of a table that begins at a line, the headings first; the line under these is left out."""
    first = lines[at][1].lstrip(" \t>")
    if not first.startswith("|") and not (
        "|" in first and at + 1 < len(lines) and _is_rule(lines[at + 1][1])
    ):
        return
    is_quoted = _QUOTED.match(lines[at][1]) is not None
    while at < len(lines) and "|" in lines[at][1] and lines[at][1].strip():
        start, line = lines[at]
        if not _is_rule(line):
            yield tuple(prose(cell) for cell in _cells(line, start, is_quoted))
        at += 1


def _is_rule(line: str) -> bool:
    return "|" in line and "-" in line and re.fullmatch(r"[\s>|:-]+", line) is not None


def _cells(line: str, start: int, is_quoted: bool) -> Iterator[Cell]:
    quoted = _QUOTED.match(line) if is_quoted else None
    first = quoted.end() if quoted is not None else 0
    first += len(line[first:]) - len(line[first:].lstrip())
    first += line.startswith("|", first)
    for found in re.finditer(r"((?:\\\||`[^`]*`|\$[^$|\n]*\$|[^|\n])*)(?:\||$)", line[first:].rstrip()):
        if found[0].endswith("|") or found[1].strip():
            text = found[1].strip()
            yield Cell(text, start + first + found.start() + len(found[1]) - len(found[1].lstrip()))


def read_table(cell: Cell, is_html: bool = True) -> Table:
    """The table that begins here, on a page in HTML or in Markdown. Headings are the first row, where that is one of
    headings."""
    closing = re.search(r"</table\s*>", cell.text, re.IGNORECASE)
    if closing is None:
        raise Unreadable(cell.start, cell.start + len("<table"), "this <table> is not closed")
    inside = cell.text[: closing.start()]
    if re.search(r"<table\b", inside[1:], re.IGNORECASE):
        raise Unreadable(cell.start, cell.start + len("<table"), "a table in a table is not read")
    rows: list[tuple[tuple[Plain, ...], bool]] = []
    for row in _ROW.finditer(inside):
        cells = list(_CELL.finditer(row[1]))
        for each in cells:
            if re.search(r"(?:col|row)span\s*=\s*[\"']?(?!1\b)\d", each["attributes"], re.IGNORECASE):
                start = cell.start + row.start(1) + each.start()
                raise Unreadable(start, start + len(each[0]), "a cell over several rows or columns is not read")
        start = cell.start + row.start(1)
        read = tuple(prose(Cell(each["text"], start + each.start("text")), is_html) for each in cells)
        is_heading = bool(cells) and all(each["tag"].lower() == "th" for each in cells)
        if cells:
            rows.append((read, is_heading or (not rows and "<thead" in inside[: row.start()].lower())))
    headings = rows[0][0] if rows and rows[0][1] and len(rows) > 1 else ()
    return Table(headings, tuple(row for row, _ in rows[1 if headings else 0 :]))
