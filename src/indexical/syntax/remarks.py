"""The placement of the comments and the empty lines of a text.

The statements of a file follow one another, and so do the `let`s and the value of a block: these are
its *parts*. A comment on the line where a part ends trails it. A comment inside a part, but not in a
block within it, is lifted out and put before the part. Every other comment has a line of its own
before the part that follows it, or after the last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..records import dataclass, field
from ..source import Source
from . import tree
from .tokens import Comment


class Remark(NamedTuple):
    """A comment on a line of its own, and whether an empty line stands above it."""

    text: str
    after_empty: bool


@dataclass(frozen=True, slots=True)
class Remarks:
    """The remarks around a part: lines before it, an empty line right above it, a comment behind it."""

    before: tuple[Remark, ...] = ()
    after_empty: bool = False
    trailing: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The remarks of each part, and those after the last part of each sequence, by the node's identity.

    Equal nodes may stand in several places, so equality would not do.
    """

    around: dict[int, Remarks] = field(default_factory=dict)
    last: dict[int, tuple[Remark, ...]] = field(default_factory=dict)

    def of(self, part: tree.Node) -> Remarks:
        return self.around.get(id(part), Remarks())

    def at_end(self, sequence: tree.File | tree.Block) -> tuple[Remark, ...]:
        return self.last.get(id(sequence), ())


class _Part(NamedTuple):
    """One part of a sequence. The value of a block has its `where` with it."""

    node: tree.Node
    nodes: tuple[tree.Node, ...]
    start: int
    end: int


def else_if(block: tree.Block) -> tree.If | None:
    """The `if` of `else if`: the parser's form of it is a block that holds nothing else."""
    if isinstance(block.body, tree.If) and not block.lets and not block.where:
        return block.body
    return None


def place(file: tree.File) -> Placement:
    """Every comment of the file has exactly one place."""
    placement = Placement()
    parts = [_Part(statement, (statement,), statement.span.start, statement.span.end) for statement in file.statements]
    blocks = _place(placement, file, parts, file.comments, file.source)
    while blocks:
        block, comments = blocks.pop()
        blocks += _place(placement, block, _parts(block), comments, file.source)
    return placement


def _parts(block: tree.Block) -> list[_Part]:
    parts = [_Part(let, (let,), let.span.start, let.span.end) for let in block.lets]
    value = (block.body, *block.where)
    return [*parts, _Part(block.body, value, value[0].span.start, value[-1].span.end)]


def _place(
    placement: Placement,
    sequence: tree.File | tree.Block,
    parts: list[_Part],
    comments: Sequence[Comment],
    source: Source,
) -> list[tuple[tree.Block, Sequence[Comment]]]:
    """Place the comments of one sequence; the blocks inside its parts and the comments in them are left."""
    before, inside, trailing = _sort(parts, comments, source)
    left: list[tuple[tree.Block, Sequence[Comment]]] = []
    line: int | None = None  # The last line of what was placed before.
    for part, own, within, behind in zip(parts, before, inside, trailing, strict=False):
        remarks, line = _remarks(own, line, source)
        start = source.position(part.start)[0]
        after_empty = line is not None and start > line + 1
        lifted, blocks = _lift(part, within)
        for comment in lifted:
            remarks.append(Remark(comment.text, after_empty))
            after_empty = False
        placement.around[id(part.node)] = Remarks(tuple(remarks), after_empty, behind)
        line = source.position(part.end)[0]
        left += blocks
    placement.last[id(sequence)] = tuple(_remarks(before[-1], line, source)[0])
    return left


def _remarks(comments: list[Comment], line: int | None, source: Source) -> tuple[list[Remark], int | None]:
    """Comments on lines of their own, the first of them after `line`; and the line of the last."""
    remarks = []
    for comment in comments:
        start = source.position(comment.start)[0]
        remarks.append(Remark(comment.text, line is not None and start > line + 1))
        line = start
    return remarks, line


def _sort(
    parts: list[_Part], comments: Sequence[Comment], source: Source
) -> tuple[list[list[Comment]], list[list[Comment]], list[str | None]]:
    """For each part the comments before it, inside it and behind it; last of all those after every part."""
    starts = [part.start for part in parts]
    before: list[list[Comment]] = [[] for _ in range(len(parts) + 1)]
    inside: list[list[Comment]] = [[] for _ in parts]
    trailing: list[str | None] = [None for _ in parts]
    for comment in comments:
        index = bisect_right(starts, comment.start) - 1
        if index < 0:
            before[0].append(comment)
        elif comment.start < parts[index].end:
            inside[index].append(comment)
        elif source.position(comment.start)[0] == source.position(parts[index].end)[0]:
            trailing[index] = comment.text
        else:
            before[index + 1].append(comment)
    return before, inside, trailing


def _lift(part: _Part, comments: list[Comment]) -> tuple[list[Comment], list[tuple[tree.Block, Sequence[Comment]]]]:
    """The comments inside a part that stand in no block of it, and its blocks with those that do."""
    starts = [comment.start for comment in comments]
    lifted: list[Comment] = []
    blocks: list[tuple[tree.Block, Sequence[Comment]]] = []
    done = 0
    for block in sorted(_outermost_blocks(part.nodes), key=lambda block: block.span.start):
        first, last = bisect_left(starts, block.span.start), bisect_left(starts, block.span.end)
        lifted += comments[done:first]
        blocks.append((block, comments[first:last]))
        done = last
    return lifted + comments[done:], blocks


def _outermost_blocks(nodes: tuple[tree.Node, ...]) -> Iterator[tree.Block]:
    """The blocks in these nodes that stand in no other; `else if` has no braces, and is none."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, tree.Block):
            yield node
        elif isinstance(node, tree.If):
            chained = else_if(node.otherwise)
            waiting += [node.condition, node.then, node.otherwise if chained is None else chained]
        else:
            waiting += tree.children(node)
