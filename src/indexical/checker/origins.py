"""Definitions that begin above 0: in the Program every axis is counted from its first point.

`let x[t in 1..n] = f(t)` becomes `x[t in 0..n - 1] = f(t + 1)`, and `x[e]` is read at `e - 1`; the axis keeps its
origin, so that a coordinate that indexes it bare runs from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import is_counted, polynomial, tidied
from ..ir.types import Coordinate
from ..ir.walk import rebuild
from ..records import replace
from . import sizes
from .scope import Binding, Frame, Unit

if TYPE_CHECKING:
    from .lifting import Draft


def counted_from_0(unit: Unit, frame: Frame, drafts: list[Draft]) -> tuple[list[Draft], list[ir.Expr | None]]:
    """The clauses with every axis counted from its first point, and where the text has each begin, if not at 0.

    What a clause brought along for its own coordinates is counted in the same way.
    """
    origins = [_origin(unit, drafts, number) for number in range(len(drafts[0].slots))]
    if not any(origins):
        return drafts, origins
    return [_moved_clause(frame, found, origins) for found in drafts], origins


def _origin(unit: Unit, drafts: list[Draft], number: int) -> ir.Expr | None:
    """The first point of an axis, if that is surely above 0; None where it is 0, or is not known to be the first."""
    firsts = [found.first(number) for found in drafts]
    places = [polynomial(first, unit.constant) for first in firsts]
    for first, place in zip(firsts, places, strict=True):
        if place.constant != 0 and is_counted(place) and all(is_counted(other - place) for other in places):
            return first
    return None


def _moved_clause(frame: Frame, found: Draft, origins: list[ir.Expr | None]) -> Draft:
    by: dict[Coordinate, ir.Expr] = {}
    slots: list[ir.Expr] = []
    for slot, origin in zip(found.slots, origins, strict=True):
        if isinstance(slot, ir.Coord) and origin is not None:
            by[slot.coordinate] = origin
        slots.append(slot if isinstance(slot, ir.Coord) or origin is None else sizes.counted_from(slot, origin))
    own = {binding.coordinate: binding for binding in found.own if binding.coordinate in by}
    inner = _captured_places(frame, list(own.values()))
    for pending in frame.pending:
        if pending.name in inner:
            pending.clauses = tuple(_moved_pending(clause, by, inner) for clause in pending.clauses)
    for coordinate, binding in own.items():
        if binding.range is not None:
            binding.range = _moved_range(binding.range, by[coordinate])
    ranges = tuple(_moved_range(r, by[r.coordinate]) if r.coordinate in by else r for r in found.ranges)
    guard = None if found.guard is None else _moved(found.guard, by, inner)
    return replace(found, slots=tuple(slots), ranges=ranges, body=_moved(found.body, by, inner), guard=guard)


Places = Mapping[str, Mapping[int, Coordinate]]


def _captured_places(frame: Frame, own: list[Binding]) -> Places:
    """The definitions that clauses brought along for these coordinates, and at which leading axis each has which."""
    return {
        pending.name: {
            place: binding.coordinate for place, binding in enumerate(pending.captured) if binding in own
        }
        for pending in frame.pending
        if any(binding in own for binding in pending.captured)
    }


def _moved_pending(clause: ir.Clause, by: Mapping[Coordinate, ir.Expr], inner: Places) -> ir.Clause:
    ranges = tuple(
        ir.Range(r.coordinate, _moved(r.lower, by, inner), _moved(r.upper, by, inner), r.stated, r.span)
        for r in clause.ranges
    )
    guard = None if clause.guard is None else _moved(clause.guard, by, inner)
    return replace(clause, ranges=ranges, body=_moved(clause.body, by, inner), guard=guard)


def _moved_range(range: ir.Range, origin: ir.Expr) -> ir.Range:
    lower, upper = (sizes.counted_from(end, origin) for end in (range.lower, range.upper))
    return replace(range, lower=lower, upper=upper)


def _moved(expr: ir.Expr, by: Mapping[Coordinate, ir.Expr], inner: Places) -> ir.Expr:
    """The expression in coordinates that are counted from 0. What is brought along for a coordinate is read at it."""

    def changed(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Coord(coordinate, span=span) if coordinate in by:
                return build.apply("+", (expr, by[coordinate]), "whole", span)
            case ir.Read(tensor, indices) if tensor in inner:
                kept = inner[tensor]
                places = tuple(i if n in kept else changed(i) for n, i in enumerate(indices))
                return build.read(tensor, places, expr.type.kind, expr.span)
            case _:
                return rebuild(expr, changed)

    return tidied(changed(expr)) if any(c in by for c in expr.type.coordinates) else expr
