"""Cost: multiply-adds and elements moved, as polynomials in the sizes and as figures where these are known.

One multiply-add is one product of real numbers together with the addition it goes into, or one sum,
difference or quotient by itself. Exponentials and the like are not counted. A point that a guard removes
costs nothing. Reductions over all points up to one, or from one on, are a running total: one addition for each point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from ..ir import build, whole
from ..ir import nodes as ir
from ..ir.affine import Polynomial, number, polynomial
from ..ir.conditions import conjuncts_of
from ..ir.context import Trail, constants_of, look_through
from ..ir.elimination import in_range
from ..ir.prefixes import find
from ..ir.prove import conjuncts, inequalities
from ..ir.types import Coordinate
from ..records import dataclass
from .dependence import evaluated, support
from .roles import query_of
from .view import View

Grid: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Work:
    """The cost of a definition. `dense` counts every point, guarded or not."""

    name: str
    stage: str
    dense: Polynomial
    trails: tuple[Trail, ...]
    elements: Polynomial


def work(view: View, let: ir.Let) -> Work:
    """The cost of one definition, given what it reads."""
    constants = constants_of(view.lets)
    trails = tuple(trail for clause in let.clauses for trail in _operations(clause, view.lets))
    dense = number(0)
    for trail in trails:
        points = number(1)
        for step in trail:
            if isinstance(step, ir.Range):
                points = points * _length(step, view)
        dense = dense + points
    elements = number(1)
    for axis in let.axes:
        elements = elements * polynomial(axis.extent, constants)
    for tensor in dict.fromkeys(read.tensor for read in view.reads(let.name)):
        size = number(1)
        for axis in view.program.tensors[tensor].axes:
            size = size * polynomial(axis.extent, constants)
        elements = elements + size
    return Work(let.name, stage(view, let), dense, trails, elements)


def _length(range: ir.Range, view: View) -> Polynomial:
    """The number of points of a range; one that depends on a coordinate counts as its largest."""
    constants = constants_of(view.lets)
    length = polynomial(range.upper, constants) - polynomial(range.lower, constants)
    closed = {m: f for m, f in length.terms.items() if not any(isinstance(atom, Coordinate) for atom, _ in m)}
    if len(closed) == len(length.terms):
        return length
    return Polynomial(closed) if closed else number(1)


def stage(view: View, let: ir.Let) -> str:
    """The stage of an attention that a definition is."""
    gathering = any(gather.name == let.name for gather in view.gathers)
    if gathering or any(gather.name == let.name and query_of(view, gather) for gather in view.transposes):
        return "gather"
    if any(isinstance(part, ir.Normalize) and part.op == "softmax" for c in let.clauses for part in view.parts(c)):
        return "softmax"
    spans = {comparison.expr.span for scored in view.scored for comparison in view.comparisons(scored)}
    if spans and any(part.span in spans for clause in let.clauses for part in view.parts(clause)):
        return "scores"
    if any(isinstance(part, ir.Reduce) and part.op == "sum" for c in let.clauses for part in view.parts(c)):
        after = any(_takes_home(view, let.name, gather.name) for gather in view.gathers)
        return "output projection" if after else "projection"
    return "pointwise"


def _takes_home(view: View, name: str, gathered: str) -> bool:
    """Whether a definition sums what a gather brought, as it is or repacked."""
    for read in view.reads(name):
        let = view.lets.get(read.tensor)
        if read.tensor == gathered:
            return True
        if let is not None and not any(
            isinstance(p, ir.Reduce | ir.Normalize) for c in let.clauses for p in view.parts(c)
        ):
            same = all(isinstance(clause.body, ir.Read) for clause in let.clauses)
            if same and _takes_home(view, read.tensor, gathered):
                return True
    return False


# ------------------------------------------------------------------- operations


def _operations(clause: ir.Clause, lets: Mapping[str, ir.Let]) -> Iterator[Trail]:
    """One trail for every multiply-add that a clause performs at each point of that trail."""
    running: list[tuple[ir.Range, Coordinate]] = []
    for expr, path in evaluated(clause, lets):
        trail = _along(_computed_once(path), running)
        match expr:
            case ir.Reduce(op, ranges, body, guard) if op in ("sum", "mean", "prod") and expr.type.kind == "real":
                query = _running_to(expr, path, lets)
                running += [] if query is None else [(ranges[0], query)]
                inner: Trail = (*trail, *ranges)
                if guard is not None:
                    inner = (*inner, (guard, True))
                inner = _along(inner, running)
                # A product goes into its sum at no further cost: it is counted where it is computed.
                if op != "sum" or not (isinstance(body, ir.Map) and body.op in ("*", "/")):
                    yield inner
            case ir.Map("*" | "/" | "+" | "-" as op) if expr.type.kind == "real":
                removed = support(expr, lets) if op in ("*", "/") else None
                yield trail if removed is None else (*trail, (removed, True))
            case ir.Normalize(op, _, body, guard):
                held: Trail = trail if guard is None else (*trail, (guard, True))
                yield held
                if op == "softmax":
                    yield held


def _computed_once(trail: Trail) -> Trail:
    """The points at which a part is computed. The body of a normaliser is the same for every point outside of it, and
    is computed once for each point `j'` inside."""
    running = [step.coordinate for step in trail if isinstance(step, ir.Range) and step.coordinate.name.endswith("'")]
    outside = {Coordinate(c.name.removesuffix("'"), c.rest, c.space) for c in running}
    return tuple(
        step
        for step in trail
        if (step.coordinate not in outside if isinstance(step, ir.Range) else not step[0].type.coordinates & outside)
    )


def _running_to(expr: ir.Reduce, trail: Trail, lets: Mapping[str, ir.Let]) -> Coordinate | None:
    """The coordinate up to which, or from which on, a reduction runs over another; None where it is no prefix."""
    if len(expr.ranges) > 1:
        return None
    stated = [*conjuncts_of(expr.guard), *(in_range(expr.ranges[0]) if expr.ranges[0].depends_on else ())]
    facts = [fact for one in stated for fact in conjuncts(one, True, look_through(lets))]
    queries = [step.coordinate for step in trail if isinstance(step, ir.Range)]
    found = find(expr, facts, queries, constants_of(lets))
    return None if found is None else found.order.query


def _along(trail: Trail, running: list[tuple[ir.Range, Coordinate]]) -> Trail:
    """The points at which a part of running totals is computed: once for all points that they run to."""
    gone = {query for range, query in running if any(step is range for step in trail)}
    if not gone:
        return trail
    parts: list[ir.Range | tuple[ir.Expr, bool]] = []
    for step in trail:
        if isinstance(step, ir.Range) or not step[1]:
            parts.append(step)
        else:
            parts += [(fact, True) for fact in conjuncts_of(step[0])]
    return tuple(
        part
        for part in parts
        if (part.coordinate not in gone if isinstance(part, ir.Range) else not part[0].type.coordinates & gone)
    )


# ---------------------------------------------------------------------- figures


def count(trail: Trail, sizes: whole.Lookup, lets: Mapping[str, ir.Let]) -> int:
    """The number of points of a trail, for known sizes. Conditions on data are taken to hold."""
    ranges = [step for step in trail if isinstance(step, ir.Range)]
    rows: list[Polynomial] = []
    for step in trail:
        if not isinstance(step, ir.Range):
            for fact in conjuncts(*step, lambda read: None):
                rows += inequalities(fact, constants_of(lets)) or []
    limits = {r.coordinate: (r.lower, r.upper) for r in ranges}
    for coordinate, bounds in limits.items():
        for bound, sign in zip(bounds, (1, -1), strict=True):
            if bound.type.coordinates:
                point = polynomial(_coord(coordinate, bound), constants_of(lets))
                limit = polynomial(bound, constants_of(lets))
                rows.append(point - limit if sign > 0 else limit - point - 1)
    total = 1
    for group in _groups(list(limits), rows):
        mine = [row for row in rows if row.atoms & set(group)]
        total *= _count_group(group, mine, limits, sizes)
    return total


def _coord(coordinate: Coordinate, near: ir.Expr) -> ir.Expr:
    return build.coord(coordinate, near.span)


def _groups(coordinates: list[Coordinate], rows: list[Polynomial]) -> list[list[Coordinate]]:
    """The coordinates that conditions tie together."""
    groups: list[set[Coordinate]] = [{c} for c in coordinates]
    for row in rows:
        tied = {atom for atom in row.atoms if isinstance(atom, Coordinate)}
        touched = [group for group in groups if group & tied]
        if len(touched) > 1:
            groups = [g for g in groups if g not in touched] + [set().union(*touched)]
    return [[c for c in coordinates if c in group] for group in groups]


def _count_group(
    group: list[Coordinate],
    rows: list[Polynomial],
    limits: Mapping[Coordinate, tuple[ir.Expr, ir.Expr]],
    sizes: whole.Lookup,
) -> int:
    spans = [_span(limits[c], sizes) for c in group]
    if not rows:
        return prod(max(0, high - low) for low, high in spans)
    if prod(max(0, high - low) for low, high in spans[:-1]) > 4_000_000:
        raise whole.Unknown
    outer = np.meshgrid(*(np.arange(low, high) for low, high in spans[:-1]), indexing="ij")
    shape = outer[0].shape if outer else ()
    low = np.full(shape, spans[-1][0], dtype=np.int64)
    high = np.full(shape, spans[-1][1] - 1, dtype=np.int64)
    for row in rows:
        factor, rest = _at(row, group, outer, sizes)
        if factor > 0:
            low = np.maximum(low, -(rest // factor))
        elif factor < 0:
            high = np.minimum(high, rest // -factor)
        else:
            high = np.where(rest >= 0, high, low - 1)
    return int(np.maximum(0, high - low + 1).sum())


def _span(limit: tuple[ir.Expr, ir.Expr], sizes: whole.Lookup) -> tuple[int, int]:
    """A range that depends on another coordinate is cut down by its condition; here it is as wide as can be."""
    lower = 0 if limit[0].type.coordinates else whole.value(limit[0], sizes)
    if not limit[1].type.coordinates:
        return lower, whole.value(limit[1], sizes)
    return lower, _WIDE


_WIDE = 1 << 20


def _at(row: Polynomial, group: list[Coordinate], outer: Sequence[Grid], sizes: whole.Lookup) -> tuple[int, Grid]:
    """A row as a multiple of the last coordinate and the rest of it, for all points of the others."""
    factor = 0
    rest = np.zeros(outer[0].shape if outer else (), dtype=np.int64)
    for monomial, times in row.terms.items():
        value: Any = times
        last = False
        for atom, power in monomial:
            if atom == group[-1]:
                last = True
            elif isinstance(atom, Coordinate):
                value = value * outer[group.index(atom)] ** power
            elif isinstance(atom, ir.Size | ir.Read):
                value = value * sizes(atom) ** power
            else:
                raise whole.Unknown
        if last and len(monomial) > 1:
            raise whole.Unknown
        if last:
            factor += int(value)
        else:
            rest = rest + value
    return factor, rest
