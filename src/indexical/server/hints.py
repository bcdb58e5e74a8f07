"""Hints between the words: the axes of a definition that has no bracket, its size in numbers, who asks whom."""

from __future__ import annotations

from collections.abc import Iterator

from ..facts.roles import Roles
from ..ir import nodes as ir
from ..records import dataclass
from ..source import Span
from ..syntax import tree
from .analysis import Analysis


@dataclass(frozen=True, slots=True)
class Hint:
    """Words to show at an offset that are not in the text."""

    at: int
    words: str


def hints(analysis: Analysis) -> list[Hint]:
    """The hints of a program without errors, in the order of the text."""
    if analysis.program is None:
        return []
    found = [hint for let in _lets(analysis) for hint in _of_let(analysis, let)]
    outside = analysis.region.outside
    return sorted((Hint(outside(h.at - 1) + 1, h.words) for h in found), key=lambda hint: hint.at)


def _lets(analysis: Analysis) -> Iterator[tree.Let]:
    """The first clause of every definition."""
    seen: set[str] = set()
    for statement in analysis.file.statements:
        if isinstance(statement, tree.Let) and not statement.names and statement.name not in seen:
            seen.add(statement.name)
            yield statement


def _of_let(analysis: Analysis, let: tree.Let) -> Iterator[Hint]:
    assert analysis.program is not None
    definition = analysis.program.ir.definitions.get(let.name)
    if definition is None:
        return
    axes = [str(axis.coordinate) for axis in definition.axes]
    if let.slots is None and axes and not isinstance(let.body, tree.ArrayLiteral | tree.Printed):
        yield Hint(let.name_span.end, f"[{', '.join(axes)}]")
    sizes = [axis.extent.value for axis in definition.axes if isinstance(axis.extent, ir.Const)]
    if sizes and len(sizes) == len(axes):
        yield Hint(_left(let).end, f" : {' × '.join(map(str, sizes))}")
    for roles in analysis.program.facts.roles:
        if roles.definition == let.name and roles.query and roles.key:
            yield Hint(let.span.end, _sentence(roles))


def _left(let: tree.Let) -> Span:
    """The left-hand side: the name and its bracket."""
    if not let.slots:
        return let.name_span
    text, last = let.span.source.text, let.slots[-1].span.end
    return Span(let.span.source, let.name_span.start, text.index("]", last) + 1)


def _sentence(roles: Roles) -> str:
    """`i asks j, compares d, carries e`, and what is kept apart."""
    back = roles.kind.startswith("transpose")
    who, whom = (roles.key, roles.query) if back else (roles.query, roles.key)
    parts = [f"{_list(who)} {'gave to' if back else 'asks'} {_list(whom)}"]
    parts += [f"compares {_list(roles.compare)}"] if roles.compare else []
    parts += [f"carries {_list(roles.carry)}"] if roles.carry else []
    parts += [f"heads {_list(roles.head)}"] if roles.head else []
    parts += [f"batch {_list(roles.batch)}"] if roles.batch else []
    return "  " + " · ".join(parts)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)
