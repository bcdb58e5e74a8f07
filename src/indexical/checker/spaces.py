"""Spaces: coordinates of different kinds may not index the same axis, even where the sizes agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import TypeAlias

from ..diagnostics import Label, Sink
from ..ir import nodes as ir
from ..ir.context import Trail, bound_by, visit, visit_clause
from ..ir.types import Coordinate
from ..source import Span
from .reporting import report_all

# An axis of a tensor, or (by identity) the range that binds a coordinate.
Place: TypeAlias = tuple[str, int] | int


class Classes:
    """Axes and coordinates by space. Each class knows its space, if one is declared, and the place that says so."""

    def __init__(self, joined: Joined | None = None) -> None:
        self.joined = joined or {}
        self.parent: dict[Place, Place] = {}
        self.space: dict[Place, tuple[str, Span, str]] = {}
        self.kept: list[ir.Range] = []

    def find(self, place: Place) -> Place:
        root = place
        while (above := self.parent.get(root, root)) != root:
            root = above
        while place != root:
            self.parent[place], place = root, self.parent.get(place, place)
        return root

    def known(self, place: Place) -> str | None:
        space = self.space.get(self.find(place))
        return None if space is None else space[0]

    def declare(self, place: Place, space: str, span: Span, what: str) -> tuple[str, Span, str] | None:
        """Say which space a place is of; the earlier word where it differs."""
        root = self.find(place)
        known = self.space.setdefault(root, (space, span, what))
        return known if known[0] != space else None

    def join(self, left: Place, right: Place) -> tuple[tuple[str, Span, str], tuple[str, Span, str]] | None:
        """Make two places one; the words of both where they differ."""
        a, b = self.find(left), self.find(right)
        if a == b:
            return None
        first, second = self.space.get(a), self.space.get(b)
        if first is not None and second is not None and first[0] != second[0]:
            return first, second
        self.parent[b] = a
        if second is not None:
            self.space.setdefault(a, second)
        return None


def check(program: ir.Program, sink: Sink) -> Classes:
    """Report every index that joins two spaces. What is of one space, declared or not, is the answer.

    A coordinate may run through sequences of several spaces one after the other, each on a part of its points: then it
    is of none of them, but of the space that it is declared in, or of one of its own.
    """
    found = Sink()
    classes = _classes(program, {}, found)
    if len(found):
        from .sequences import joined_sequences  # Few programs have one.

        joined = joined_sequences(program, classes)
        if joined:
            found = Sink()
            classes = _classes(program, joined, found)
    for diagnostic in found:
        sink.add(diagnostic)
    return classes


# The coordinates that run through several spaces, by the identity of their ranges, and the name of these together.
Joined: TypeAlias = Mapping[int, str]


def _classes(program: ir.Program, joined: Joined, sink: Sink) -> Classes:
    classes = Classes(joined)
    for tensor in program.inputs:
        for number, axis in enumerate(tensor.axes):
            if axis.coordinate.space is not None:
                what = f"`{tensor.name}[…]`'s `{axis.coordinate}`"
                classes.declare((tensor.name, number), axis.coordinate.space, tensor.span, what)
    for let in program.lets:
        found = Sink()
        for clause in let.clauses:
            for range in clause.ranges:
                _declare(range, classes)
            for number, slot in enumerate(clause.slots):
                if isinstance(slot, ir.Coord):
                    _tie(slot.coordinate, clause.ranges, (let.name, number), slot.span, let.name, classes, found)
            _check_reads(visit_clause(clause), classes, found)
        report_all(found, let, program, sink)
    for expect in program.expects:
        for range in expect.ranges:
            _declare(range, classes)
        for expr in expect.expressions:
            _check_reads(visit(expr, expect.ranges), classes, sink)
    return classes


def _check_reads(places: Iterator[tuple[ir.Expr, Trail]], classes: Classes, sink: Sink) -> None:
    for expr, trail in places:
        if isinstance(expr, ir.Reduce):
            for range in expr.ranges:
                _declare(range, classes)
        if isinstance(expr, ir.Read):
            order = _better_order(expr, trail, classes)
            found = Sink()
            for number, index in enumerate(expr.indices):
                coordinate = tied(index)
                if coordinate is not None and not _goes_through(coordinate, trail, (expr.tensor, number), classes):
                    _tie(coordinate, trail, (expr.tensor, number), index.span, expr.tensor, classes, found, order)
            for diagnostic in list(found)[: 1 if order else None]:
                sink.add(diagnostic)


def _goes_through(coordinate: Coordinate, trail: Trail, axis: Place, classes: Classes) -> bool:
    """Whether a coordinate runs through several spaces, of which that of this axis is one."""
    together = classes.joined.get(_binder(coordinate, trail)) if classes.joined else None
    return together is not None and classes.known(axis) in together.split(TOGETHER)


# Between the names of spaces that one coordinate runs through.
TOGETHER = " and "


def _better_order(read: ir.Read, trail: Trail, classes: Classes) -> str | None:
    """The same indices in an order that would fit the spaces, where as written two or more do not."""
    if len(read.indices) < 2 or not classes.space:
        return None
    mine = [_space_of_index(index, trail, classes) for index in read.indices]
    theirs = [classes.known((read.tensor, number)) for number, _ in enumerate(read.indices)]
    wrong = sum(1 for a, b in zip(mine, theirs, strict=True) if a and b and a != b)
    if wrong < 2 or len(mine) > 6:
        return None
    for order in permutations(range(len(mine))):
        if all(not mine[k] or not there or mine[k] == there for k, there in zip(order, theirs, strict=True)):
            return f"{read.tensor}[{', '.join(read.indices[k].span.text for k in order)}]"
    return None


def _space_of_index(index: ir.Expr, trail: Trail, classes: Classes) -> str | None:
    coordinate = tied(index)
    return None if coordinate is None else classes.known(_binder(coordinate, trail))


def _binder(coordinate: Coordinate, trail: Trail) -> int:
    """The ranges that bind a coordinate. One that runs inside a normaliser is bound where it survives."""
    if coordinate.name.endswith("'"):
        coordinate = Coordinate(coordinate.name.rstrip("'"), coordinate.rest, coordinate.space)
    return id(bound_by(coordinate, trail))


def _declare(range: ir.Range, classes: Classes) -> None:
    # A range goes by its identity, so it must outlive this search.
    classes.kept.append(range)
    space = range.coordinate.space or classes.joined.get(id(range))
    if space is not None:
        classes.declare(id(range), space, range.span, f"`{range.coordinate}`")


def tied(index: ir.Expr) -> Coordinate | None:
    """The coordinate that an index ties to its axis: only `c` and `c ± k` do, with `k` free of coordinates."""
    match index:
        case ir.Coord(coordinate):
            return coordinate
        case ir.Map("+" | "-", (left, right)) if not right.type.coordinates:
            return tied(left)
        case ir.Map("+", (left, right)) if not left.type.coordinates:
            return tied(right)
        case _:
            return None


_HELP = "give each axis a coordinate of its own space"
# For a coordinate that is of a space only because it indexes an axis of it.
_JOIN = f"{_HELP}, or join the two by cases: `if p < size(m) {{ M[p] }} else {{ … }}`"


def _tie(
    coordinate: Coordinate,
    trail: Trail,
    axis: Place,
    span: Span,
    tensor: str,
    classes: Classes,
    sink: Sink,
    better: str | None = None,
) -> None:
    """A coordinate, as it is bound on this trail, indexes an axis."""
    clash = classes.join(_binder(coordinate, trail), axis)
    if clash is None:
        return
    (mine, my_place, my_words), (other, other_place, other_words) = clash
    shown = coordinate.name.rstrip("'")
    sink.report(
        "IX303",
        f"`{shown}` is of the space `{mine}`, and this axis of `{tensor}` is of the space `{other}`",
        Label(span, f"`{mine}` on an axis of `{other}`"),
        Label(other_place, f"{other_words} is of `{other}`"),
        Label(my_place, f"{my_words} is of `{mine}`"),
        help=f"did you mean `{better}`?" if better else _JOIN if coordinate.space is None else _HELP,
    )
