"""The body of an emitted function in paragraphs; some of them apart, as functions that run again on the way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..plan.budget import Segment
from ..records import dataclass
from .code import Attribute, Call, Name, Tuple, call, names
from .layout import Statement, broken, written
from .liveness import assigned_in, groups_of, released


@dataclass(frozen=True, slots=True)
class Paragraph:
    """The statements of one definition, or of some that are computed together: the names that it reads, those that it
    gives a value or writes to, and those of them that certainly have a value after it."""

    statements: tuple[Statement, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    changes: frozenset[str]
    makes: frozenset[str]

    @property
    def definitions(self) -> tuple[str, ...]:
        """The definitions that it is there for."""
        return tuple(dict.fromkeys(statement.subject for statement in self.statements if statement.subject))


def paragraphs_of(body: Iterable[Statement]) -> list[Paragraph]:
    """The paragraphs of a body. The first takes the inputs."""
    found: list[list[Statement]] = [[]]
    for statement in body:
        if statement.kind == "blank" and statement.indent == 1:
            found.append([])
        found[-1].append(statement)
    return [_paragraph(statements) for statements in found]


def _paragraph(statements: list[Statement]) -> Paragraph:
    changes = {name for statement in statements for name in _changed(statement)}
    writes = {name for statement in statements for name in _named(statement)} | changes
    reads = {word for statement in statements for word in statement.words} | changes
    makes = {name for group in groups_of(statements) for name in _made(group)}
    return Paragraph(tuple(statements), *map(frozenset, (reads, writes, changes, makes)))


def _named(statement: Statement) -> tuple[str, ...]:
    """The names that a statement gives a value."""
    if statement.kind == "unpack" and isinstance(statement.place, Tuple):
        return tuple(part.text for part in statement.place.items if isinstance(part, Name))
    return (statement.target,) if statement.kind in ("temporary", "assign", "store", "augment", "for", "def") else ()


def _changed(statement: Statement) -> tuple[str, ...]:
    """The names of arrays that a statement writes into, or gives another value."""
    if statement.kind in ("store", "augment"):
        return (statement.target,)
    match statement.code:
        case Call(Attribute(of, method)) if statement.kind == "do" and method.endswith("_"):
            return tuple(names(of))
        case Call(Name(function), arguments) if statement.kind == "do" and function != "check":
            return tuple(word for argument in arguments for word in names(argument))
    return ()


def _made(group: list[Statement]) -> set[str]:
    head = group[0]
    return {head.target} if head.kind in ("store", "def") else assigned_in(group)


def in_small_blocks(body: Iterable[Statement], room: int) -> list[Statement]:
    """The body with blocks of rows that have so many points, of which nothing is kept for the way back."""

    def smaller(statement: Statement) -> Statement:
        match statement.code:
            case Call(Name("in_blocks"), arguments):
                return replace(statement, code=call("in_blocks", *arguments, room=room))
            case _:
                return statement

    return list(map(smaller, body))


def crossing(paragraphs: Sequence[Paragraph], inputs: Iterable[str], place: int) -> frozenset[str] | None:
    """The names that have a value before a paragraph and are read from it on; None where the function cannot be cut
    there: something may or may not have a value, or is written to on both sides."""
    before, after = paragraphs[:place], paragraphs[place:]
    known = frozenset(inputs).union(*(one.writes for one in before))
    certain = frozenset(inputs).union(*(one.makes for one in before))
    across = known & frozenset().union(*(one.reads for one in after))
    changed = frozenset().union(*(one.changes for one in after))
    return None if across - certain or across & changed else across


@dataclass(frozen=True, slots=True)
class Apart:
    """A segment as a function: what it takes, what it gives, and its statements."""

    name: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    body: tuple[Statement, ...]
    definitions: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The function as text."""
        return [*broken(f"def {self.name}({', '.join(self.takes)}):", ""), *written(self.body)]

    @property
    def calling(self) -> list[Statement]:
        """The statements that call it."""
        first, last = self.definitions[0], self.definitions[-1]
        told = f"{first}: not kept, computed again" if first == last else f"{first} … {last}: not kept, computed again"
        code = call("again", Name(self.name), *map(Name, self.takes))
        made = Statement(1, 0, "unpack", code=code, place=_names(self.gives), subject=last)
        if not self.gives:
            made = Statement(1, 0, "do", code=code, subject=last)
        return [Statement(1, 0, "blank"), Statement(1, 0, "comment", target=f"{told} on the way back"), made]


def cut(
    paragraphs: Sequence[Paragraph], inputs: Sequence[str], segments: Iterable[Segment], taken: Iterable[str]
) -> tuple[list[Statement], list[Apart]]:
    """The body that calls the functions of the segments, and these."""
    body: list[Statement] = []
    apart: list[Apart] = []
    used, at = set(taken), 0
    for segment in segments:
        body += [statement for one in paragraphs[at : segment[0]] for statement in one.statements]
        apart.append(_apart(paragraphs, inputs, segment, used))
        used.add(apart[-1].name)
        body += apart[-1].calling
        at = segment[1]
    body += [statement for one in paragraphs[at:] for statement in one.statements]
    return released(body, few=0), apart


def _apart(paragraphs: Sequence[Paragraph], inputs: Sequence[str], segment: Segment, taken: set[str]) -> Apart:
    own = paragraphs[slice(*segment)]
    given, left = (crossing(paragraphs, inputs, place) for place in segment)
    assert given is not None, "a segment starts where the function can be cut"
    assert left is not None, "a segment stops where the function can be cut"
    read, written_to = (frozenset[str]().union(*sets) for sets in zip(*((p.reads, p.writes) for p in own), strict=True))
    order = {name: n for n, name in enumerate(dict.fromkeys((*inputs, *_all_named(paragraphs))))}
    takes, gives = (tuple(sorted(some, key=order.__getitem__)) for some in (given & read, left & written_to))
    statements = [statement for one in own for statement in one.statements]
    statements = statements[statements[0].kind == "blank" :]
    body = released([*statements, Statement(1, 0, "return", code=_names(gives))], few=0)
    definitions = tuple(dict.fromkeys(name for one in own for name in one.definitions))
    name, number = f"{gives[-1] if gives else definitions[-1]}_again", 1
    while name in taken:
        number += 1
        name = f"{gives[-1] if gives else definitions[-1]}_again_{number}"
    return Apart(name, takes, gives, tuple(body), definitions)


def _all_named(paragraphs: Iterable[Paragraph]) -> Iterator[str]:
    return (name for one in paragraphs for statement in one.statements for name in _named(statement))


def _names(parts: Iterable[str]) -> Tuple:
    return Tuple(tuple(map(Name, parts)))


def marked(paragraphs: Iterable[Paragraph], mark: str) -> list[Statement]:
    """The body of the function in which every paragraph first calls `mark`, with its number."""
    body: list[Statement] = []
    for number, one in enumerate(paragraphs):
        first, *others = one.statements
        calling = Statement(1, 0, "do", code=call(mark, number))
        body += [first, calling, *others] if first.kind == "blank" else [calling, first, *others]
    return released(body, few=0)
