"""Recurrences: whether clauses cover their box, and in which order points can be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import TypeAlias

from ..diagnostics import Label, Sink
from ..ir import nodes as ir
from ..ir import whole
from ..ir.affine import expression, polynomial, replaced
from ..ir.boxes import Box, Fault, cover
from ..ir.context import Trail, assume, constants_of, visit_clause
from ..ir.graph import components
from ..ir.prove import Assumptions
from ..ir.walk import parts_of, reads_of, walk
from ..records import dataclass
from . import sizes


def arrange(lets: dict[str, ir.Let], sink: Sink) -> tuple[ir.Order, ...]:
    """Every definition after all that it reads. What cannot be ordered is reported and left out."""
    for let in lets.values():
        _check_cover(let, lets, sink)
    edges = {name: sorted({read.tensor for read in reads_of(let)}) for name, let in lets.items()}
    known = {name: [target for target in targets if target in lets] for name, targets in edges.items()}
    result: list[ir.Order] = []
    for group in components(known):
        if len(group) == 1 and group[0] not in known[group[0]]:
            result.append(ir.Once(group[0]))
            continue
        members = set(group)
        inner = [edge for name in group for edge in _edges(lets[name]) if edge.target in members]
        if any(_reads_before_it_begins(edge, lets, sink) for edge in inner):
            continue
        steps = _order(group, inner, lets)
        if steps is None:
            _report(inner, lets, sink)
        else:
            result += steps
    return tuple(result)


# ----------------------------------------------------------------------- order


@dataclass(slots=True, eq=False)
class Edge:
    """A clause of `source` reads `target`."""

    source: str
    clause: ir.Clause
    target: str
    read: ir.Read
    trail: Trail
    assumptions: Assumptions | None = None
    answers: dict[tuple[int, int, bool], int] = field(default_factory=dict)

    def moves(self, axis: int, target_axis: int, forward: bool, lets: Mapping[str, ir.Let]) -> int:
        """2 if the read is strictly earlier along these axes, 1 if never later, 0 if neither is certain."""
        key = (axis, target_axis, forward)
        if key not in self.answers:
            self.answers[key] = self._moves(axis, target_axis, forward, lets)
        return self.answers[key]

    def _moves(self, axis: int, target_axis: int, forward: bool, lets: Mapping[str, ir.Let]) -> int:
        if self.assumptions is None:
            self.assumptions = assume(self.trail, lets)
        constants = constants_of(lets)
        here = polynomial(self.clause.slots[axis], constants)
        there = polynomial(self.read.indices[target_axis], constants)
        distance = here - there if forward else there - here
        if self.assumptions.entails(distance - 1):
            return 2
        return 1 if self.assumptions.entails(distance) else 0


def _reads_before_it_begins(edge: Edge, lets: Mapping[str, ir.Let], sink: Sink) -> bool:
    """Report a rule that goes back, wherever it holds, to a point before the first: its base case is missing."""
    target = lets[edge.target]
    if not all(isinstance(step, ir.Range) for step in edge.trail) or not any(a.origin for a in target.axes):
        return False
    constants = constants_of(lets)
    for axis, index in zip(target.axes, edge.read.indices, strict=True):
        first = polynomial(index, constants)
        for range in edge.clause.ranges:
            first = replaced(first, range.coordinate, polynomial(range.lower, constants))
        if axis.origin is not None and first.constant is not None and first.constant < 0:
            place = sizes.show(expression(polynomial(axis.origin, constants) + first, index.span))
            shown = ", ".join(place if other is index else other.span.text for other in edge.read.indices)
            message = f"no clause defines `{edge.target}[{shown}]`, which this rule goes back to"
            help = f"add a base case, as in `let {edge.target}[{shown}] = …;`"
            sink.report("IX306", message, Label(edge.read.span), Label(target.span, "defined here"), help=help)
            return True
    return False


def _edges(let: ir.Let) -> Iterator[Edge]:
    for clause in let.clauses:
        for expr, trail in visit_clause(clause):
            if isinstance(expr, ir.Read):
                yield Edge(let.name, clause, expr.tensor, expr, trail)


# An axis of a definition, by the name and the number.
Place: TypeAlias = tuple[str, int]


def _order(
    group: list[str], edges: list[Edge], lets: Mapping[str, ir.Let], stepped: frozenset[Place] = frozenset()
) -> list[ir.Order] | None:
    """Steps along one axis of each definition, all reads going one way and some strictly; what is left
    within a step is ordered in turn, along other axes than those that are `stepped` along already."""
    for forward in (True, False):
        for axes in _assignments(group, edges, forward, lets, stepped):
            rest = [e for e in edges if e.moves(axes[e.source], axes[e.target], forward, lets) < 2]
            if len(rest) == len(edges):
                continue
            body = _within_step(group, rest, lets, stepped | axes.items())
            if body is not None:
                return [ir.Stepwise(tuple(axes.items()), forward, tuple(body))]
    return None


def _within_step(
    group: list[str], edges: list[Edge], lets: Mapping[str, ir.Let], stepped: frozenset[Place]
) -> list[ir.Order] | None:
    graph = {name: [edge.target for edge in edges if edge.source == name] for name in group}
    body: list[ir.Order] = []
    for inner in components(graph):
        if len(inner) == 1 and inner[0] not in graph[inner[0]]:
            body.append(ir.Once(inner[0]))
            continue
        members = set(inner)
        steps = _order(inner, [e for e in edges if e.source in members and e.target in members], lets, stepped)
        if steps is None:
            return None
        body += steps
    return body


def _assignments(
    group: list[str], edges: list[Edge], forward: bool, lets: Mapping[str, ir.Let], stepped: frozenset[Place]
) -> Iterator[dict[str, int]]:
    """One axis for each definition that is not `stepped` along yet, such that no read goes the wrong way."""

    def extend(chosen: dict[str, int]) -> Iterator[dict[str, int]]:
        if len(chosen) == len(group):
            yield dict(chosen)
            return
        name = group[len(chosen)]
        for axis in range(len(lets[name].axes)):
            if (name, axis) in stepped:
                continue
            chosen[name] = axis
            touched = [e for e in edges if name in (e.source, e.target) and e.source in chosen and e.target in chosen]
            if all(e.moves(chosen[e.source], chosen[e.target], forward, lets) for e in touched):
                yield from extend(chosen)
            del chosen[name]

    return extend({})


def _report(edges: list[Edge], lets: Mapping[str, ir.Let], sink: Sink) -> None:
    """Name a read that goes the wrong way, or stands still."""
    culprit = edges[0]
    for edge in edges:
        axes = list(zip(range(len(edge.clause.slots)), range(len(edge.read.indices)), strict=False))
        if not any(edge.moves(a, b, forward, lets) == 2 for a, b in axes for forward in (True, False)):
            culprit = edge
            break
    slots = ", ".join(slot.span.text for slot in culprit.clause.slots)
    group = sorted({edge.source for edge in edges})
    others = f" (through {', '.join(f'`{name}`' for name in group)})" if len(group) > 1 else ""
    sink.report(
        "IX308",
        f"`{culprit.source}[{slots}]` reads `{culprit.read.span.text}`, which is not there yet{others}",
        Label(culprit.read.span, "not there yet"),
        Label(lets[culprit.source].span, "defined by itself"),
        help="each turn of a recurrence moves one coordinate strictly one way, as in `h[t - 1]`",
    )


# ----------------------------------------------------------------------- cover


def _check_cover(let: ir.Let, lets: Mapping[str, ir.Let], sink: Sink) -> None:
    """A gap or an overlap that is there whatever the sizes are; others are found when the arrays arrive."""
    if is_plain(let):
        return
    first: Fault | None = None
    for sample in _samples(let):
        lookup = partial(_sampled, sample, lets)
        try:
            extents = tuple(max(0, whole.value(axis.extent, lookup)) for axis in let.axes)
            fault = check_boxes(let, lookup, extents)
        except whole.Unknown:
            return
        if fault is None:
            return
        first = first or fault
    assert first is not None
    report_cover(let, first, sink)


Sample: TypeAlias = Callable[[ir.Size | ir.Read], int]


def _samples(let: ir.Let) -> Iterator[Sample]:
    """Sizes to try where they are not known: all different, all alike, and each number that is written."""
    different: dict[ir.Expr, int] = {}
    yield lambda leaf: different.setdefault(leaf, 5 + 2 * len(different))
    written = {
        part.value
        for expr in parts_of(let)
        if expr.type.kind == "whole"
        for part in walk(expr)
        if isinstance(part, ir.Const) and isinstance(part.value, int) and 0 < part.value < 100
    }
    for size in sorted({1, 2, 3, 5, *list(written)[:8]}):
        yield partial(_constant, size)


def _constant(size: int, leaf: ir.Size | ir.Read) -> int:
    return size


def _sampled(sample: Sample, lets: Mapping[str, ir.Let], leaf: ir.Size | ir.Read) -> int:
    """The value of a constant of the program, or a sample for a size that is not known yet."""
    known = constants_of(lets)(leaf.tensor) if isinstance(leaf, ir.Read) else None
    return sample(leaf) if known is None else whole.value(known, partial(_sampled, sample, lets))


def is_plain(let: ir.Let) -> bool:
    """Whether one clause has every point from 0: then there is nothing to cover. Of the coordinates that a
    local definition captured, only those points are ever read that the statement around it has."""
    if len(let.clauses) != 1:
        return False
    clause = let.clauses[0]
    own = clause.ranges[let.captured :]
    return all(r.from_zero for r in own) and all(isinstance(slot, ir.Coord) for slot in clause.slots)


def check_boxes(let: ir.Let, lookup: whole.Lookup, extents: tuple[int, ...]) -> Fault | None:
    """The point at which the clauses of a definition fail to cover it, for known sizes."""
    boxes = [clause_box(clause, lookup)[let.captured :] for clause in let.clauses]
    return cover(boxes, extents[let.captured :])


def clause_box(clause: ir.Clause, lookup: whole.Lookup) -> Box:
    """The box of a clause: its bounds along each axis, for known sizes."""
    ranges = {range.coordinate: range for range in clause.ranges}
    box = []
    for slot in clause.slots:
        if isinstance(slot, ir.Coord):
            range = ranges[slot.coordinate]
            box.append((whole.value(range.lower, lookup), whole.value(range.upper, lookup)))
        else:
            place = whole.value(slot, lookup)
            box.append((place, place + 1))
    return tuple(box)


def report_cover(let: ir.Let, fault: Fault, sink: Sink) -> None:
    axes = let.axes[let.captured :]
    origins = [0 if axis.origin is None else polynomial(axis.origin).constant or 0 for axis in axes]
    told = [place + origin for place, origin in zip(fault.point, origins, strict=True)]
    point = f"{let.name}[{', '.join(map(str, told))}]"
    places = [Label(let.clauses[number].span, "here") for number in fault.boxes]
    if fault.kind == "overlap":
        help = "let the ranges meet without overlapping"
        if any(let.clauses[number].guard is not None for number in fault.boxes):
            help += "; guards tell two clauses apart where the range of one surely holds that of the other"
        sink.report("IX307", f"`{point}` is in the ranges of two clauses", *places, help=help)
    elif fault.kind == "outside":
        message = f"`{point}` lies outside `{let.name}`, which reaches from 0 as far as its ranges do"
        sink.report("IX306", message, *places, help="let the clauses cover a box from 0, for these sizes too")
    else:
        sink.report(
            "IX306",
            f"no clause defines `{point}`",
            Label(let.span),
            help=f"the clauses of `{let.name}` must cover every point from the first to the last",
        )
