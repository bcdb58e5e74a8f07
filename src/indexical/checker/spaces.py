"""Spaces: coordinates of different kinds may not index the same axis, even where the sizes agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, permutations
from typing import TypeAlias

from ..diagnostics import Label, Sink
from ..ir import nodes as ir
from ..ir.context import Trail, bound_by, places_of, visit
from ..ir.types import Coordinate
from ..ir.walk import of_kinds, parts_in
from ..records import dataclass
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
        above = self.parent.get(place)
        if above is None:
            return place
        root = above
        while (above := self.parent.get(root)) is not None:
            root = above
        while (above := self.parent[place]) != root:
            self.parent[place], place = root, above
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
    object.__setattr__(program, "classes", classes)
    return classes


def classes_of(program: ir.Program) -> Classes:
    """The axes and coordinates of a program by space: its check found them, where spaces are declared."""
    known: Classes | None = program.classes
    return check(program, Sink()) if known is None else known


def are_declared(program: ir.Program) -> bool:
    """Whether some coordinate is of a space that is declared: where none is, no index joins two."""
    if any(axis.coordinate.space is not None for tensor in program.inputs for axis in tensor.axes):
        return True
    ranges = [range for let in program.lets for clause in let.clauses for range in clause.ranges]
    ranges += [range for expect in program.expects for range in expect.ranges]
    claimed = of_kinds((expr for expect in program.expects for expr in expect.expressions), ir.Reduce)
    parts = chain(claimed, *(parts_in(let) for let in program.lets))
    ranges += [range for part in parts if isinstance(part, ir.Reduce) for range in part.ranges]
    return any(range.coordinate.space is not None for range in ranges)


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
                    tie = Tie(slot.coordinate, _binder(slot.coordinate, clause.ranges), number, slot.span)
                    _join(tie, let.name, classes, found)
            _check_reads(places_of(clause), classes, found)
        report_all(found, let, program, sink)
    for expect in program.expects:
        for range in expect.ranges:
            _declare(range, classes)
        for expr in expect.expressions:
            _check_reads(visit(expr, expect.ranges), classes, sink)
    return classes


@dataclass(frozen=True, slots=True)
class Tie:
    """A coordinate, bound by a range that goes by its identity, indexes the axis of this number."""

    coordinate: Coordinate
    binder: int
    number: int
    span: Span


def _check_reads(places: Iterable[tuple[ir.Expr, Trail]], classes: Classes, sink: Sink) -> None:
    for expr, trail in places:
        if isinstance(expr, ir.Reduce):
            for range in expr.ranges:
                _declare(range, classes)
        elif isinstance(expr, ir.Read):
            ties = [
                Tie(coordinate, _binder(coordinate, trail), number, index.span)
                for number, index in enumerate(expr.indices)
                if (coordinate := tied(index)) is not None
            ]
            order = _better_order(expr, ties, classes) if len(ties) > 1 and classes.space else None
            found = sink if order is None else Sink()
            for tie in ties:
                if not (classes.joined and _goes_through(tie, (expr.tensor, tie.number), classes)):
                    _join(tie, expr.tensor, classes, found, order)
            for diagnostic in list(found)[:1] if order else ():
                sink.add(diagnostic)


def _goes_through(tie: Tie, axis: Place, classes: Classes) -> bool:
    """Whether a coordinate runs through several spaces, of which that of this axis is one."""
    together = classes.joined.get(tie.binder)
    return together is not None and classes.known(axis) in together.split(TOGETHER)


# Between the names of spaces that one coordinate runs through.
TOGETHER = " and "


def _better_order(read: ir.Read, ties: list[Tie], classes: Classes) -> str | None:
    """The same indices in an order that would fit the spaces, where as written two or more do not."""
    known = [(classes.known(tie.binder), classes.known((read.tensor, tie.number))) for tie in ties]
    wrong = sum(1 for mine, there in known if mine and there and mine != there)
    count = len(read.indices)
    if wrong < 2 or count > 6:
        return None
    spaces = {tie.number: mine for tie, (mine, _) in zip(ties, known, strict=True)}
    theirs = [classes.known((read.tensor, number)) for number in range(count)]
    for order in permutations(range(count)):
        if all(not spaces.get(k) or not there or spaces[k] == there for k, there in zip(order, theirs, strict=True)):
            return f"{read.tensor}[{', '.join(read.indices[k].span.text for k in order)}]"
    return None


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


def _join(tie: Tie, tensor: str, classes: Classes, sink: Sink, better: str | None = None) -> None:
    """A coordinate is of the space of the axis that it indexes."""
    clash = classes.join(tie.binder, (tensor, tie.number))
    if clash is None:
        return
    (mine, my_place, my_words), (other, other_place, other_words) = clash
    shown = tie.coordinate.name.rstrip("'")
    sink.report(
        "IX303",
        f"`{shown}` is of the space `{mine}`, and this axis of `{tensor}` is of the space `{other}`",
        Label(tie.span, f"`{mine}` on an axis of `{other}`"),
        Label(other_place, f"{other_words} is of `{other}`"),
        Label(my_place, f"{my_words} is of `{mine}`"),
        help=f"did you mean `{better}`?" if better else _JOIN if tie.coordinate.space is None else _HELP,
    )
