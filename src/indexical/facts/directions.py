"""Directions: whether a definition hears positions up to its own, or only those from its own on. Proved, or not said.

What a causal program is made of flows forward along the positions; what flows back through it flows the other way.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..checker.spaces import tied
from ..ir import build
from ..ir import nodes as ir
from ..ir.context import Trail, assume
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..records import dataclass
from ..source import Span
from .dependence import Scan, evaluated, support
from .orders import ANTI_CAUSAL, CAUSAL, OWN, Order, both, compare, order, place_on
from .positions import Positions, counted_from, is_declared
from .view import View


@dataclass(frozen=True, slots=True)
class Direction:
    """Along a coordinate that survives, alone of its positions, a definition goes one way.

    `over` are the coordinates of its own sums that go this way, where all of them do; `inputs` those that it hears so
    through all definitions. Of `otherwise` it hears positions on both sides, or that it does not is not proved.
    """

    along: str
    verdict: str
    over: tuple[str, ...]
    within: str | None
    inputs: tuple[str, ...]
    otherwise: tuple[str, ...]


def directions(view: View, positions: Positions, let: ir.Let) -> tuple[Direction, ...]:
    """The direction that is proved of a definition. It says nothing of one with two coordinates of the same
    positions: such are weights, and hear at neither."""
    found: list[Direction] = []
    groups = [positions.group(view.space_of(let.name, number)) for number, _ in enumerate(let.axes)]
    for number, group in enumerate(groups):
        if groups.count(group) == 1:
            found += _along(view, positions, let, number)
    return tuple(found)


def _along(view: View, positions: Positions, let: ir.Let, number: int) -> Iterator[Direction]:
    heard = _heard(view, positions, let, number)
    otherwise = tuple(name for name, verdict in heard.items() if verdict is None)
    if not any(verdict in (CAUSAL, ANTI_CAUSAL) for verdict in heard.values()):
        return
    own = [entry for clause in let.clauses for entry in _own(view, positions, let, clause, number)]
    verdicts = {way.verdict for _, way in own}
    for verdict in (CAUSAL, ANTI_CAUSAL):
        inputs = tuple(name for name, held in heard.items() if held == verdict)
        if inputs:
            over = {view.shown(c): way.within for c, way in own} if verdicts == {verdict} else {}
            within = next(iter(over.values())) if len(set(over.values())) == 1 else None
            yield Direction(let.axes[number].coordinate.name, verdict, tuple(over), within, inputs, otherwise)


# --------------------------------------------------------------- through all definitions


def _heard(view: View, positions: Positions, let: ir.Let, number: int) -> dict[str, str | None]:
    """Every input that is heard along these positions, and from where."""
    here = let.axes[number].coordinate
    place = place_on(let.axes[number], here, let.span)
    group = positions.group(view.space_of(let.name, number))
    found: dict[str, str | None] = {}
    scans = view.influence.of(let.name)
    bound = _bound(view, positions, scans, group)
    for scan in scans:
        counted = {here} | {r.coordinate for r in scan.ranges if r.span in bound}
        indices = [index for n, index in enumerate(scan.indices) if _runs(view, positions, scan, n, counted, group)]
        if not indices or found.get(scan.tensor, OWN) is None:
            continue
        reached = view.scanning(let, scan)
        if reached.is_empty():
            continue
        for index in indices:
            verdict = compare(reached, place, index)
            found[scan.tensor] = both(found.get(scan.tensor, OWN), verdict)
    return {tensor.name: found[tensor.name] for tensor in view.program.inputs if tensor.name in found}


def _bound(view: View, positions: Positions, scans: tuple[Scan, ...], group: object) -> set[Span]:
    """The ranges of the coordinates that run over these positions: those that some scan ties to such an axis."""
    return {
        range.span
        for scan in scans
        for number, index in enumerate(scan.indices)
        if (coordinate := tied(index)) is not None and positions.group(view.space_of(scan.tensor, number)) == group
        for range in scan.ranges
        if range.coordinate == coordinate
    }


def _runs(view: View, positions: Positions, scan: Scan, number: int, counted: set[Coordinate], group: object) -> bool:
    """Whether an index runs over these positions: by its axis, or, where nothing says what that is, because it is
    counted from one of them. What is counted from two is a distance: that is read from a table."""
    space = view.space_of(scan.tensor, number)
    if positions.group(space) == group or (is_declared(space) and is_declared(group)):
        return positions.group(space) == group
    index = scan.indices[number]
    return not isinstance(index, ir.Coord) and len(counted & counted_from(index)) == 1


# ----------------------------------------------------------------------------- own sums


def _own(
    view: View, positions: Positions, let: ir.Let, clause: ir.Clause, number: int
) -> Iterator[tuple[Coordinate, Order]]:
    """The reductions of a clause over these positions, each with where its points stand to the one that survives."""
    slot = clause.slots[number]
    group = positions.group(view.space_of(let.name, number))
    if not isinstance(slot, ir.Coord):
        return
    for expr, trail in evaluated(clause, view.lets, influence=True):
        if not isinstance(expr, ir.Reduce):
            continue
        for range in expr.ranges:
            if group in _groups(view, positions, expr, range.coordinate):
                known = assume((*trail, *expr.ranges, *_held(view, expr)), view.lets)
                here = place_on(let.axes[number], slot.coordinate, expr.span)
                yield range.coordinate, order(known, here, build.coord(range.coordinate, expr.span))


def _groups(view: View, positions: Positions, expr: ir.Reduce, coordinate: Coordinate) -> set[object]:
    """The positions that a summed coordinate runs over, by what is read at it."""
    reads = [part for part in walk(expr.body) if isinstance(part, ir.Read)]
    return {
        positions.group(view.space_of(read.tensor, number))
        for read in reads
        for number, index in enumerate(read.indices)
        if tied(index) == coordinate
    }


def _held(view: View, expr: ir.Reduce) -> Trail:
    """The condition under which the points of a reduction count: its guard, and where what it sums is not removed."""
    removed = support(expr.body, view.lets, influence=True) if expr.op == "sum" else None
    return tuple((held, True) for held in (expr.guard, removed) if held is not None)
