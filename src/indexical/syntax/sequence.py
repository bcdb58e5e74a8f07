"""The parts of a file or a block one under another, with their comments, and `=` under `=`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .layout import BREAK, WIDTH, Document, concat, flat_width, join, remark
from .remarks import Remark, Remarks


class Part(NamedTuple):
    """A statement or the value of a block. A `let` is divided before its `=`; of all others `rest` is None."""

    head: Document
    rest: Document | None
    remarks: Remarks

    def document(self, padding: int = 0) -> Document:
        return self.head if self.rest is None else concat(self.head, " " * (padding + 1), self.rest)


def on_one_line(parts: list[Part], last: tuple[Remark, ...]) -> Document:
    """The parts of a block between spaces. A comment ends its line, so with one there is no such line."""
    if last or any(part.remarks.before or part.remarks.trailing is not None for part in parts):
        return BREAK
    return concat(" ", join((part.document() for part in parts), " "), " ")


def one_under_another(parts: list[Part], last: tuple[Remark, ...], indentation: int) -> Document:
    """Each part on lines of its own at this indentation, then the comments after the last."""
    lines: list[tuple[bool, Document]] = []
    for part, padding in zip(parts, _padding(parts, indentation), strict=True):
        lines += _comments(part.remarks.before)
        trailing = part.remarks.trailing
        behind = () if trailing is None else (remark(f"  {trailing}"),)
        lines.append((part.remarks.after_empty, concat(part.document(padding), *behind)))
    lines += _comments(last)
    written: list[Document] = []
    for after_empty, line in lines:
        if written:
            written += [BREAK, BREAK] if after_empty else [BREAK]
        written.append(line)
    return concat(*written)


def _comments(remarks: tuple[Remark, ...]) -> Iterator[tuple[bool, Document]]:
    return ((comment.after_empty, remark(comment.text)) for comment in remarks)


def _padding(parts: list[Part], indentation: int) -> list[int]:
    """The number of additional spaces of each part before its `=`."""
    padding = [0 for _ in parts]
    for run in _runs(parts, indentation):
        widest = max(head for _, head, _ in run)
        if all(indentation + widest + rest <= WIDTH for _, _, rest in run):
            for index, head, _ in run:
                padding[index] = widest - head
    return padding


def _runs(parts: list[Part], indentation: int) -> Iterator[list[tuple[int, int, int]]]:
    """`let`s on consecutive lines: the place of each among the parts, and how wide it is before `=` and after."""
    run: list[tuple[int, int, int]] = []
    for index, part in enumerate(parts):
        widths = _widths(part, indentation)
        if run and (widths is None or part.remarks.before or part.remarks.after_empty):
            yield run
            run = []
        if widths is not None:
            run.append((index, *widths))
    if run:
        yield run


def _widths(part: Part, indentation: int) -> tuple[int, int] | None:
    """The widths of a `let` before its `=` and from the space before it on; None if it is not on one line."""
    if part.rest is None:
        return None
    head, rest = flat_width(part.head), flat_width(part.rest)
    if head is None or rest is None or indentation + head + 1 + rest > WIDTH:
        return None
    return head, 1 + rest
