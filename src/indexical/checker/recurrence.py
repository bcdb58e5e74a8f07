"""Recurrences: whether clauses cover their box, and in which order points can be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from ..diagnostics import Label, Sink
from ..ir import nodes as ir
from ..ir import whole
from ..ir.affine import expression, polynomial, replaced
from ..ir.boxes import Box, Fault, cover
from ..ir.context import Trail, assume, constants_of, places_of, visit_clause
from ..ir.graph import components
from ..ir.prove import Assumptions
from ..ir.walk import parts_of, reads_of, walk
from ..records import dataclass, field
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

# How far a read at no fixed distance may go ahead, for definitions to be moved against each other so that it does not.
MOST_STEPS_LATER = 8


@dataclass(frozen=True, slots=True)
class Way:
    """Forward or backward, and by how many steps at `most` a read may be later before definitions are moved."""

    forward: bool
    most: int


WAYS = [Way(forward, most) for most in (0, MOST_STEPS_LATER) for forward in (True, False)]


@dataclass(slots=True, eq=False)
class Edge:
    """A clause of `source` reads `target`."""

    source: str
    clause: ir.Clause
    target: str
    read: ir.Read
    trail: Trail
    assumptions: Assumptions | None = None
    answers: dict[tuple[int, int, bool, int], int | None] = field(default_factory=dict)

    def back(self, axis: int, target_axis: int, way: Way, lets: Mapping[str, ir.Let]) -> int | None:
        """The number of steps along these axes by which the read is surely earlier; negative where it may be later by
        so many, and None where it may be later by more than is allowed."""
        key = (axis, target_axis, way.forward, way.most)
        if key not in self.answers:
            self.answers[key] = self._back(axis, target_axis, way, lets)
        return self.answers[key]

    def _back(self, axis: int, target_axis: int, way: Way, lets: Mapping[str, ir.Let]) -> int | None:
        constants = constants_of(lets)
        here = polynomial(self.clause.slots[axis], constants)
        there = polynomial(self.read.indices[target_axis], constants)
        distance = here - there if way.forward else there - here
        if distance.constant is not None and distance.constant > 0:
            return distance.constant
        if self.assumptions is None:
            self.assumptions = assume(self.trail, lets)
        known = self.assumptions
        return next((steps for steps in range(1, -way.most - 1, -1) if known.entails(distance - steps)), None)


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
        for expr, trail in places_of(clause):
            if isinstance(expr, ir.Read):
                yield Edge(let.name, clause, expr.tensor, expr, trail)


# An axis of a definition, by the name and the number.
Place: TypeAlias = tuple[str, int]


def _order(
    group: list[str], edges: list[Edge], lets: Mapping[str, ir.Let], stepped: frozenset[Place] = frozenset()
) -> list[ir.Order] | None:
    """Steps along one axis of each definition, all reads going one way and some strictly; what is left
    within a step is ordered in turn, along other axes than those that are `stepped` along already. Definitions are
    moved against each other only where they are in no order as they stand."""
    for way in WAYS:
        for axes, later in _assignments(group, edges, way, lets, stepped):
            rest = [edge for edge in edges if _moved_back(edge, axes, way, lets, later) == 0]
            if len(rest) == len(edges) or any(later[name] and _normalises(lets[name], axes[name]) for name in group):
                continue
            body = _within_step(group, rest, lets, stepped | axes.items())
            if body is not None:
                moved = tuple((name, steps) for name, steps in later.items() if steps)
                return [ir.Stepwise(tuple(axes.items()), way.forward, tuple(body), moved)]
    return None


def _normalises(let: ir.Let, axis: int) -> bool:
    """Whether a normaliser runs over an axis: such a definition is not moved along it."""
    return any(
        isinstance(part, ir.Normalize) and isinstance(slot, ir.Coord) and part.coordinate == slot.coordinate
        for clause in let.clauses
        for slot in (clause.slots[axis],)
        for part, _ in visit_clause(clause)
    )


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
    group: list[str], edges: list[Edge], way: Way, lets: Mapping[str, ir.Let], stepped: frozenset[Place]
) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """One axis for each definition that is not `stepped` along yet, and by how many steps each is later, such that no
    read goes the wrong way."""

    def extend(chosen: dict[str, int]) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
        name = group[len(chosen)]
        for axis in range(len(lets[name].axes)):
            if (name, axis) in stepped:
                continue
            chosen[name] = axis
            touched = [e for e in edges if e.source in chosen and e.target in chosen]
            later = _later(touched, chosen, way, lets)
            if later is not None and len(chosen) == len(group):
                yield dict(chosen), later
            elif later is not None:
                yield from extend(chosen)
            del chosen[name]

    return extend({})


def _later(
    edges: list[Edge], axes: Mapping[str, int], way: Way, lets: Mapping[str, ir.Let]
) -> dict[str, int] | None:
    """By how many steps each definition is later, such that no read goes to a later step; None where there is no such
    way, as where a circle of reads comes back to a later step than it left.

    These are the longest paths, from read to reader, over what each read goes ahead: found by Bellman and Ford."""
    later = dict.fromkeys(axes, 0)
    for _ in range(len(axes) + 1):
        settled = True
        for edge in edges:
            back = _moved_back(edge, axes, way, lets, later)
            if back is None:
                return None
            if back < 0:
                later[edge.source if way.forward else edge.target] -= back
                settled = False
        if settled:
            least = min(later.values())
            return {name: steps - least for name, steps in later.items()}
    return None


def _moved_back(
    edge: Edge, axes: Mapping[str, int], way: Way, lets: Mapping[str, ir.Let], later: Mapping[str, int]
) -> int | None:
    """The number of steps by which a read is earlier, where definitions are later than they stand."""
    back = edge.back(axes[edge.source], axes[edge.target], way, lets)
    moved = later[edge.source] - later[edge.target]
    return None if back is None else back + (moved if way.forward else -moved)


def _report(edges: list[Edge], lets: Mapping[str, ir.Let], sink: Sink) -> None:
    """Name the read that goes the wrong way, or stands still, in the shortest circle of reads that is in no order."""
    circles = sorted((circle for edge in edges if (circle := _circle(edge, edges))), key=len)
    circle = next((found for found in circles if _order(_members(found), found, lets) is None), edges)
    meant = max(WAYS[2:], key=lambda way: sum(_most_back(edge, way, lets) > 0 for edge in circle))
    culprit = min(circle, key=lambda edge: _most_back(edge, meant, lets))
    slots = ", ".join(slot.span.text for slot in culprit.clause.slots)
    group = sorted(_members(circle))
    others = f" (through {', '.join(f'`{name}`' for name in group)})" if len(group) > 1 else ""
    further = [edge for edge in circle if edge is not culprit] if circle is not edges else []
    sink.report(
        "IX308",
        f"`{culprit.source}[{slots}]` reads `{culprit.read.span.text}`, which is not there yet{others}",
        Label(culprit.read.span, "not there yet"),
        Label(lets[culprit.source].span, "defined by itself"),
        *(Label(edge.read.span, f"`{edge.source}` reads `{edge.target}` here") for edge in further),
        help="each turn of a recurrence moves one coordinate strictly one way, as in `h[t - 1]`",
    )


def _members(edges: list[Edge]) -> list[str]:
    return list(dict.fromkeys(edge.source for edge in edges))


def _circle(edge: Edge, edges: list[Edge]) -> list[Edge] | None:
    """The fewest reads that lead from a read back to its reader, that read first."""
    paths = {edge.target: [edge]}
    waiting = [edge.target]
    for name in waiting:
        if name == edge.source:
            return paths[name]
        for other in edges:
            if other.source == name and other.target not in paths:
                paths[other.target] = [*paths[name], other]
                waiting.append(other.target)
    return None


def _most_back(edge: Edge, way: Way, lets: Mapping[str, ir.Let]) -> int:
    """The number of steps by which a read is earlier along the axis where it is most, as the text counts them; very few
    where it is so along none."""
    constants = constants_of(lets)
    found = [-MOST_STEPS_LATER - 1]
    for axis in range(min(len(edge.clause.slots), len(edge.read.indices))):
        back = edge.back(axis, axis, way, lets)
        origins = (lets[name].axes[axis].origin for name in (edge.source, edge.target))
        here, there = (0 if origin is None else polynomial(origin, constants).constant or 0 for origin in origins)
        found += [] if back is None else [back + (here - there if way.forward else there - here)]
    return max(found)


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
