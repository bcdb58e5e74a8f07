"""A lesson: prose with programs in it and questions about them, read from Markdown.

The Markdown is a small one: headings, paragraphs, lists, quotations, tables, lines of code that are indented, `code`,
*emphasis*, **strength**. It becomes a tree of texts, and never markup; comments are left out. A block that is called
`ix` is a program, one that is called `question` a question, and one that is called `words` a field for words of the
reader's own.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from ..records import dataclass

Node: TypeAlias = Any  # A text, or a list of its kind and what is inside.


@dataclass(frozen=True, slots=True)
class Prose:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A program, or where it stands; `line` is that of its first line in the lesson, `opening` what it opens on."""

    name: str
    text: str
    line: int
    opening: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question; `answer` names the element or tensor that answers it, `reveal` says it in words."""

    prompt: str
    answer: str | None
    reveal: tuple[Node, ...]
    line: int
    places: int = 0


@dataclass(frozen=True, slots=True)
class Words:
    """A field for words of the reader's own, which become the labels of a coordinate or a space."""

    name: str
    prompt: str
    line: int


Block: TypeAlias = Prose | ProgramText | Question | Words


class Unclosed(Exception):
    """A block that is not closed, and the line at which it starts."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(f"the block at line {line} is not closed")


def read_lesson(text: str) -> list[Block]:
    """The blocks of a lesson, in order."""
    blocks: list[Block] = []
    waiting: list[str] = []
    lines = re.split(r"\r\n?|\n", text)
    number = 0
    while number < len(lines):
        opening = re.fullmatch(r"(`{3,})\s*(\w*)(?:\s+(.*))?", lines[number].rstrip())
        if opening is None:
            waiting.append(lines[number])
            number += 1
            continue
        start = number + 1
        end = next((n for n in range(start, len(lines)) if lines[n].strip() == opening[1]), None)
        if end is None:
            raise Unclosed(number + 1)
        inside = lines[start:end]
        blocks += _prose(waiting)
        waiting = []
        if opening[2] in ("ix", "question", "words"):
            blocks.append(_fenced(opening[2], (opening[3] or "").strip(), inside, start + 1))
        else:
            blocks.append(Prose((["pre", "\n".join(inside)],)))
        number = end + 1
    return [*blocks, *_prose(waiting)]


def _fenced(kind: str, name: str, inside: list[str], line: int) -> Block:
    if kind == "ix":
        opening = re.search(r"(?:^|\s)#((?:step|cell|set|labels)=.*)", name)
        file = name if opening is None else name[: opening.start()].rstrip()
        return ProgramText(file, "\n".join(inside) + "\n", line, "" if opening is None else opening[1])
    if kind == "words":
        return Words(name, _one_line(inside), line)
    prompt: list[str] = []
    answer = None
    places = 0
    reveal: list[str] = []
    for text in inside:
        if text.startswith("answer:"):
            answer = text.removeprefix("answer:").strip()
        elif re.fullmatch(r"places:\s*[1-9]", text.rstrip()):
            places = int(text.rstrip()[-1])
        elif text.startswith("reveal:"):
            reveal.append(text.removeprefix("reveal:").strip())
        elif reveal:
            reveal.append(text)
        else:
            prompt.append(text)
    return Question(_one_line(prompt), answer, tuple(_nodes(reveal)), line, places)


def _one_line(lines: list[str]) -> str:
    return " ".join(part.strip() for part in lines if part.strip())


def title_of(blocks: list[Block]) -> str | None:
    """The first heading."""
    for block in blocks:
        for node in block.nodes if isinstance(block, Prose) else ():
            if isinstance(node, list) and node[0] in ("h1", "h2"):
                return "".join(_texts(node[1:]))
    return None


def _texts(nodes: list[Node]) -> list[str]:
    """The texts inside; of a link, not its address."""
    inside = (node if isinstance(node, str) else _texts(node[2 if node[0] == "a" else 1 :]) for node in nodes)
    return [text for found in inside for text in ([found] if isinstance(found, str) else found)]


# ------------------------------------------------------------------- markdown


def _prose(lines: list[str]) -> list[Block]:
    comments = r"(?ms)^[ \t]*<!--.*?-->[ \t]*\n|(?<=\S)[ \t]*\n?[ \t]*<!--.*?-->|<!--.*?-->"
    text = re.sub(comments, "", "\n".join([*lines, ""]))
    nodes = _nodes(text.split("\n"))
    return [Prose(tuple(nodes))] if nodes else []


def _nodes(lines: list[str]) -> list[Node]:
    """Headings, lists, quotations, and paragraphs between empty lines; a list goes on after an empty line."""
    nodes: list[Node] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        heading = re.match(r"(#{1,6})\s+(.*)", line)
        if not line.strip():
            number += 1
        elif heading:
            nodes.append([f"h{min(3, len(heading[1]))}", *inline(heading[2])])
            number += 1
        else:
            kind, marker = _kind(line)
            end = _end(lines, number, kind)
            nodes.append(_block(kind, marker, [text for text in lines[number:end] if text.strip()]))
            number = end
    return nodes


def _end(lines: list[str], start: int, kind: str) -> int:
    """Return the line after the end of a paragraph, a list or a quotation."""
    at = start + 1
    while at < len(lines):
        if re.match(r"#{1,6}\s", lines[at]):
            break
        if not lines[at].strip():
            following = next((text for text in lines[at:] if text.strip()), "")
            if kind not in ("ul", "ol") or _kind(following)[0] != kind:
                break
        elif kind in ("p", "table", "pre") and _kind(lines[at])[0] != kind:
            break
        at += 1
    return at


def _kind(line: str) -> tuple[str, str]:
    if re.match(r"[-*]\s+", line):
        return "ul", r"[-*]\s+"
    if re.match(r"\d+[.)]\s+", line):
        return "ol", r"\d+[.)]\s+"
    if line.startswith("|"):
        return "table", ""
    if line.startswith("    "):
        return "pre", ""
    return ("quote", r">\s?") if line.startswith(">") else ("p", "")


def _block(kind: str, marker: str, lines: list[str]) -> Node:
    if kind == "p":
        return ["p", *inline(" ".join(line.strip() for line in lines))]
    if kind == "pre":
        return ["pre", "\n".join(line[4:] for line in lines)]
    if kind == "table":
        rows = [line for line in lines if not re.fullmatch(r"[\s|:-]+", line)]
        return ["table", *(_row(line, "td" if n else "th") for n, line in enumerate(rows))]
    if kind == "quote":
        return ["quote", ["p", *inline(" ".join(re.sub(rf"^{marker}", "", line).strip() for line in lines))]]
    items: list[str] = []
    for line in lines:
        if re.match(marker, line):
            items.append(re.sub(rf"^{marker}", "", line).strip())
        else:
            items[-1] += f" {line.strip()}"
    return [kind, *(["li", *inline(item)] for item in items)]


def _row(line: str, kind: str) -> Node:
    """A row of a table; a bar inside of code, or behind a backslash, is none between cells."""
    inside = re.sub(r"^\s*\||\|\s*$", "", line)
    cells = [found[1].strip() for found in re.finditer(r"((?:\\\||`[^`]*`|[^|])*)(?:\||$)", inside)]
    cells = cells[:-1] if not inside.endswith("|") and len(cells) > 1 and not cells[-1] else cells
    return ["tr", *([kind, *inline(cell.replace("\\|", "|"))] for cell in cells)]


# An asterisk marks emphasis only where no blank stands inside of it.
_MARKS = re.compile(
    r"`([^`]+)`|\*\*(?!\s)((?:[^*]|\*(?!\*)[^*]*\*)+?)(?<!\s)\*\*|\*(?!\s)([^*]+?)(?<!\s)\*|\[([^\]]+)\]\(([^)]*)\)"
)


def inline(text: str) -> list[Node]:
    """Code, strength, emphasis, links to places of the page; of a link that leads elsewhere, its words."""
    nodes: list[Node] = []
    at = 0
    for match in _MARKS.finditer(text):
        if match.start() > at:
            nodes.append(text[at : match.start()])
        code, strong, emphasis, link, address = match.groups()
        if code is not None:
            nodes.append(["code", code])
        elif strong is not None:
            nodes.append(["strong", *inline(strong)])
        elif emphasis is not None:
            nodes.append(["em", *inline(emphasis)])
        elif address.startswith("#"):
            nodes.append(["a", address[1:], *inline(link)])
        else:
            nodes += inline(link)
        at = match.end()
    return [*nodes, text[at:]] if at < len(text) else nodes
