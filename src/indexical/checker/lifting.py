"""Lifting: a definition of the program, made of clauses that stand inside a statement.

The coordinates of the statement around it that it mentions become leading axes of it, and it is
hidden. A statement's definitions are finished when the ranges of all its coordinates are settled.
"""

from __future__ import annotations

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate, join
from ..records import dataclass, replace
from ..source import Span
from ..syntax import tree
from . import derivatives, sizes
from .scope import Binding, Frame, Pending, Scope, Tensor, Unit


@dataclass(slots=True)
class Draft:
    """A clause that has been read: where each slot is, what runs, what is there."""

    slots: tuple[ir.Expr, ...]
    own: list[Binding]
    ranges: tuple[ir.Range, ...]
    body: ir.Expr
    guard: ir.Expr | None
    span: Span

    @property
    def free(self) -> frozenset[Coordinate]:
        return build.varying((self.body, self.guard)) - {binding.coordinate for binding in self.own}

    def first(self, number: int) -> ir.Expr:
        """The first point along an axis."""
        slot = self.slots[number]
        if not isinstance(slot, ir.Coord):
            return slot
        return self.range(slot.coordinate).lower

    def range(self, coordinate: Coordinate) -> ir.Range:
        """The range of a coordinate of the clause."""
        for range in self.ranges:
            if range.coordinate == coordinate:
                return range
        raise LookupError(coordinate)


def lift(
    unit: Unit, scope: Scope, name: str, drafts: list[Draft], let: tree.Let | tree.Fn, hidden: bool = True
) -> Tensor | None:
    """Make a definition of the program out of clauses that stand inside a statement."""
    frame = scope.frame
    captured, conditions = _captured(scope, drafts)
    for binding in captured:
        if is_dependent(binding):
            unit.report(
                "IX215",
                f"`{let.name}` depends on `{binding.coordinate}`, whose range is not a plain one from 0 or later",
                Label(let.name_span),
                Label(binding.span, "its range is stated here"),
                help=f"give `{binding.coordinate}` a full range and a guard",
            )
            return None
    kind = join(found.body.type.kind for found in drafts)
    if "bool" in {found.body.type.kind for found in drafts} and kind != "bool":
        unit.report("IX351", f"the clauses of `{let.name}` are of different kinds", let.name_span)
        return None
    drafts, origins = _counted_from_0(unit, frame, drafts)
    if len(drafts) > 1 and any(found.guard is not None for found in drafts):
        from .cases import merged  # Few programs have one.

        filled = [replace(d, ranges=tuple(sizes.fill_range(unit, frame, range) for range in d.ranges)) for d in drafts]
        found_cases = merged(unit, let.name, filled, origins)
        if found_cases is None:
            return None
        drafts = found_cases
    axes = tuple(_axis(unit, drafts, number, name, origin) for number, origin in enumerate(origins))
    clauses = tuple(
        ir.Clause(found.slots, found.ranges, found.body, build.conjunction((*conditions, found.guard)), found.span)
        for found in drafts
    )
    call = unit.calls[0][1] if unit.calls else None
    frame.pending.append(Pending(name, captured, axes, kind, clauses, hidden, let.name_span, call))
    unit.bodies[name] = [found.body for found in drafts]
    return Tensor(name, axes, kind, let.name_span, captured)


def _counted_from_0(unit: Unit, frame: Frame, drafts: list[Draft]) -> tuple[list[Draft], list[ir.Expr | None]]:
    origins: list[ir.Expr | None] = [None] * len(drafts[0].slots)
    if all(range.from_zero for range in drafts[0].ranges) and all(isinstance(s, ir.Coord) for s in drafts[0].slots):
        return drafts, origins
    if all(any(build.is_number(found.first(n), 0) for found in drafts) for n in range(len(origins))):
        return drafts, origins
    from .origins import counted_from_0  # Few programs have one.

    return counted_from_0(unit, frame, drafts)


def is_dependent(binding: Binding) -> bool:
    """Whether the range of a coordinate depends on another coordinate, or may start below 0."""
    stated = binding.stated
    if stated is None:
        return False
    below = not isinstance(stated.lower, ir.Const) or stated.lower.value < 0
    return below or bool(stated.upper.type.coordinates)


def _captured(scope: Scope, drafts: list[Draft]) -> tuple[tuple[Binding, ...], list[ir.Expr]]:
    """The coordinates around that are mentioned, and the conditions around that speak of them."""
    wanted = set(frozenset().union(*(found.free for found in drafts)))
    conditions: list[ir.Expr] = []
    if not scope.frame.live:
        return (), conditions
    waiting = list(scope.conditions)
    progress = True
    while progress:
        progress = False
        for condition in list(waiting):
            if condition.type.coordinates & wanted:
                wanted |= condition.type.coordinates
                waiting.remove(condition)
                conditions.append(condition)
                progress = True
    return tuple(b for b in scope.frame.live.values() if b.coordinate in wanted), conditions


def _axis(unit: Unit, drafts: list[Draft], number: int, name: str, origin: ir.Expr | None) -> ir.Axis:
    """An axis of a definition: named by the first clause with a coordinate there, as long as all reach."""
    coordinate: Coordinate | None = None
    intervals: list[tuple[ir.Expr, ir.Expr]] = []
    for found in drafts:
        slot = found.slots[number]
        if isinstance(slot, ir.Coord):
            coordinate = coordinate or slot.coordinate
            range = found.range(slot.coordinate)
            intervals.append((range.lower, range.upper))
        else:
            after = build.apply("+", (slot, build.whole(1, slot.span)), "whole", slot.span)
            intervals.append((slot, sizes.simplify(after)))
    return ir.Axis(coordinate or Coordinate(f"{name}_{number}"), sizes.reach(unit, intervals), origin)


def finish(unit: Unit, frame: Frame) -> None:
    """The statement has been read and its ranges are settled: its definitions join the program."""
    for pending in frame.pending:
        if pending.derives:
            continue
        leading = [binding.range for binding in pending.captured]
        if None in leading:
            continue
        ranges = tuple(sizes.fill_range(unit, frame, range) for range in leading if range is not None)
        axes = tuple(ir.Axis(range.coordinate, range.upper) for range in ranges)
        axes += tuple(sizes.fill_axis(unit, frame, axis) for axis in pending.axes)
        clauses = tuple(_finish_clause(unit, frame, clause, ranges) for clause in pending.clauses)
        unit.lets[pending.name] = ir.Let(
            pending.name, axes, pending.kind, clauses, pending.hidden, pending.span, pending.call, len(ranges)
        )
    for pending in frame.pending:
        if pending.derives:
            derivatives.finish(unit, frame, pending)
    unit.asserts += [
        ir.Assert(sizes.finished(unit, frame, claim.condition), claim.message, claim.span) for claim in frame.asserts
    ]
    frame.pending.clear()
    frame.asserts.clear()


def _finish_clause(unit: Unit, frame: Frame, clause: ir.Clause, leading: tuple[ir.Range, ...]) -> ir.Clause:
    slots = tuple(build.coord(range.coordinate, range.span) for range in leading)
    own = tuple(sizes.fill_range(unit, frame, range) for range in clause.ranges)
    ranges = (*leading, *own)
    guard = None if clause.guard is None else sizes.finished(unit, frame, clause.guard, ranges)
    body = sizes.finished(unit, frame, clause.body, ranges)
    return ir.Clause((*slots, *clause.slots), ranges, body, guard, clause.span)


def keep(
    unit: Unit,
    scope: Scope,
    name: str,
    value: ir.Expr,
    guard: ir.Expr | None,
    node: tree.Block | tree.Reduction,
) -> ir.Expr | None:
    """A value as a hidden definition, read where it stands."""
    found = Draft((), [], (), value, guard, node.span)
    let = tree.Let(name, node.span, None, node.body, (), node.span)
    tensor = lift(unit, scope, unit.fresh_name(f"{scope.frame.owner}_{name}"), [found], let)
    if tensor is None or tensor.kind is None:
        return None
    indices = tuple(build.coord(binding.coordinate, node.span) for binding in tensor.captured)
    return build.read(tensor.name, indices, tensor.kind, node.span)
