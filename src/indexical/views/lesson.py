"""A lesson: prose with programs in it and questions about them, read from Markdown.

The Markdown is a small one: headings, paragraphs, lists, quotations, `code`, *emphasis*, **strength**. It becomes a
tree of texts, and never markup. A block that is called `ix` is a program, one that is called `question` a question.
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
    """A program, or where it stands; `line` is that of its first line in the lesson."""

    name: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question; `answer` names the element or tensor that answers it, `reveal` says it in words."""

    prompt: str
    answer: str | None
    reveal: tuple[Node, ...]
    line: int


Block: TypeAlias = Prose | ProgramText | Question


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
        if opening[2] in ("ix", "question"):
            blocks.append(_fenced(opening[2], (opening[3] or "").strip(), inside, start + 1))
        else:
            blocks.append(Prose((["pre", "\n".join(inside)],)))
        number = end + 1
    return [*blocks, *_prose(waiting)]


def _fenced(kind: str, name: str, inside: list[str], line: int) -> Block:
    if kind == "ix":
        return ProgramText(name, "\n".join(inside) + "\n", line)
    prompt: list[str] = []
    answer = None
    reveal: list[str] = []
    for text in inside:
        if text.startswith("answer:"):
            answer = text.removeprefix("answer:").strip()
        elif text.startswith("reveal:"):
            reveal.append(text.removeprefix("reveal:").strip())
        elif reveal:
            reveal.append(text)
        else:
            prompt.append(text)
    return Question(" ".join(part.strip() for part in prompt if part.strip()), answer, tuple(_nodes(reveal)), line)


def title_of(blocks: list[Block]) -> str | None:
    """The first heading."""
    for block in blocks:
        for node in block.nodes if isinstance(block, Prose) else ():
            if isinstance(node, list) and node[0] in ("h1", "h2"):
                return "".join(_texts(node[1:]))
    return None


def _texts(nodes: list[Node]) -> list[str]:
    return [text for node in nodes for text in ([node] if isinstance(node, str) else _texts(node[1:]))]


# ------------------------------------------------------------------- markdown


def _prose(lines: list[str]) -> list[Block]:
    nodes = _nodes(lines)
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
            nodes.append([f"h{min(3, len(heading[1]))}", *_inline(heading[2])])
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
        elif kind == "p" and _kind(lines[at])[0] != "p":
            break
        at += 1
    return at


def _kind(line: str) -> tuple[str, str]:
    if re.match(r"[-*]\s+", line):
        return "ul", r"[-*]\s+"
    if re.match(r"\d+[.)]\s+", line):
        return "ol", r"\d+[.)]\s+"
    return ("quote", r">\s?") if line.startswith(">") else ("p", "")


def _block(kind: str, marker: str, lines: list[str]) -> Node:
    if kind == "p":
        return ["p", *_inline(" ".join(line.strip() for line in lines))]
    if kind == "quote":
        return ["quote", ["p", *_inline(" ".join(re.sub(rf"^{marker}", "", line).strip() for line in lines))]]
    items: list[str] = []
    for line in lines:
        if re.match(marker, line):
            items.append(re.sub(rf"^{marker}", "", line).strip())
        else:
            items[-1] += f" {line.strip()}"
    return [kind, *(["li", *_inline(item)] for item in items)]


# An asterisk marks emphasis only where no blank stands inside of it.
_MARKS = re.compile(
    r"`([^`]+)`|\*\*(?!\s)((?:[^*]|\*(?!\*)[^*]*\*)+?)(?<!\s)\*\*|\*(?!\s)([^*]+?)(?<!\s)\*|\[([^\]]+)\]\(([^)]*)\)"
)


def _inline(text: str) -> list[Node]:
    """Code, strength, emphasis; of a link, its words."""
    nodes: list[Node] = []
    at = 0
    for match in _MARKS.finditer(text):
        if match.start() > at:
            nodes.append(text[at : match.start()])
        code, strong, emphasis, link, _ = match.groups()
        if code is not None:
            nodes.append(["code", code])
        elif strong is not None:
            nodes.append(["strong", *_inline(strong)])
        elif emphasis is not None:
            nodes.append(["em", *_inline(emphasis)])
        else:
            nodes += _inline(link)
        at = match.end()
    return [*nodes, text[at:]] if at < len(text) else nodes
