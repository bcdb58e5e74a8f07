"""Lines that are too long, on several: the largest bracket is opened, and what is in it stands further in."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 110
WIDEST = 120  # Of the relation's own lines, which stand as they are where they can.

_STRING = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_STEP = "    "

# Where an expression is broken that has no commas: the loosest operators first.
_OPERATORS = (" if ", " else "), (" or ",), (" and ",), (" | ",), (" & ",), (" + ", " - "), (" * ", " / ", " @ ")


def wrapped(line: str) -> list[str]:
    """A line of a function, on several where it is too long."""
    text = line.lstrip(" ")
    margin = line[: len(line) - len(text)]
    if text.startswith("#"):
        return _comment(text, margin)
    return _opened(text, margin)


def filled(names: list[str]) -> Iterator[str]:
    """Names with commas between them, as many on a line as there is room for."""
    line = ""
    for name in names:
        if line and len(line) + len(name) > LONGEST - 20:
            yield line
            line = ""
        line = f"{line}, {name}" if line else name
    if line:
        yield line


def _comment(text: str, margin: str) -> list[str]:
    """A comment, broken between words; what follows stands a little further in."""
    lines = [margin + text]
    while len(lines[-1]) > WIDEST:
        line = lines.pop()
        place = line.rfind(" ", len(margin) + 8, WIDEST)
        if place < 0:
            return [*lines, line]
        lines += [line[:place], f"{margin}#     {line[place + 1 :]}"]
    return lines


def _opened(text: str, margin: str) -> list[str]:
    """A statement with its largest bracket opened; one without gets a pair around what it gives."""
    if len(margin) + len(text) <= LONGEST:
        return [margin + text]
    brackets = list(brackets_of(text))
    if not brackets:
        head, sign, value = text.partition(" = ") if " = " in text else text.partition("return ")
        return [f"{margin}{head}{sign}(", *_inside(value, margin + _STEP), f"{margin})"] if sign else [margin + text]
    start, end = max(brackets, key=lambda pair: pair[1] - pair[0])
    return [margin + text[: start + 1], *_inside(text[start + 1 : end], margin + _STEP), *_opened(text[end:], margin)]


def _inside(text: str, margin: str) -> list[str]:
    """What stands in a bracket: on one line, or an argument each, or an operand."""
    if len(margin) + len(text) <= LONGEST:
        return [margin + text]
    parts = _split(text, (", ",))
    if len(parts) > 1 and " for " not in plain(text):
        lines = [f"{part.removeprefix(', ').removesuffix(',')}," for part in parts]
        return [line for part in lines for line in _opened(part, margin)]
    for operators in _OPERATORS:
        parts = _split(text, operators)
        if len(parts) > 1:
            return [line for part in parts for line in _opened(part.lstrip(), margin)]
    return _opened(text, margin)


def plain(text: str) -> str:
    """A text with underscores for its strings: no line is broken in one."""
    return _STRING.sub(lambda string: "_" * len(string[0]), text)


def brackets_of(text: str) -> Iterator[tuple[int, int]]:
    """The outermost brackets with something in them, but for those of an index."""
    depth = start = 0
    for place, sign in enumerate(plain(text)):
        if sign in "([{":
            start = place if depth == 0 else start
            depth += 1
        elif sign in ")]}" and depth:
            depth -= 1
            is_index = text[start] == "[" and start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_)]")
            if depth == 0 and place > start + 1 and not is_index:
                yield start, place


def _split(text: str, signs: tuple[str, ...]) -> list[str]:
    """A text cut before each of these signs that stands in no bracket."""
    whole, depth, cuts = plain(text), 0, [0]
    for place, letter in enumerate(whole):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and place and whole.startswith(signs, place):
            cuts.append(place)
    return [text[start:end] for start, end in zip(cuts, [*cuts[1:], None], strict=True)]
