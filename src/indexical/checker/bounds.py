"""Bounds: every read inside its axis, wherever its guards hold. What cannot be decided here is checked
in the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice, product

from ..diagnostics import Label, Sink
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, polynomial
from ..ir.context import Trail, visit, visit_clause
from ..ir.domain import Domain
from ..ir.prove import always_possible
from ..ir.types import Coordinate
from .reporting import report_all
from .sizes import show


def check(program: ir.Program, sink: Sink) -> None:
    """Report the reads that are out of bounds whatever the sizes, and reductions that are over no points."""
    tensors = program.tensors
    lets = program.definitions
    for let in program.lets:
        found = Sink()
        _check_places([place for clause in let.clauses for place in visit_clause(clause)], tensors, lets, found)
        report_all(found, let, program, sink)
    claims = [place for claim in program.asserts for place in visit(claim.condition, ())]
    claims += [place for claim in program.expects for place in visit(claim.body, claim.ranges)]
    _check_places(claims, tensors, lets, sink)


def _check_places(
    places: list[tuple[ir.Expr, Trail]],
    tensors: Mapping[str, ir.Input | ir.Let],
    lets: Mapping[str, ir.Let],
    sink: Sink,
) -> None:
    known: dict[int, Domain] = {}

    def around(trail: Trail) -> Domain:
        """The points at which a place is evaluated: most places share their trail with others."""
        if id(trail) not in known:
            known[id(trail)] = Domain.along(trail, lets)
        return known[id(trail)]

    for expr, trail in places:
        match expr:
            case ir.Read(tensor, indices) if tensor in tensors:
                axes = tensors[tensor].axes
                for number, (axis, index) in enumerate(zip(axes, indices, strict=True)):
                    _check_index(expr, index, axis.extent, f"`{tensor}`'s axis {number}", trail, around, sink)
            case ir.Array(shape, _, indices):
                for length, index in zip(shape, indices, strict=True):
                    _check_index(expr, index, build.whole(length, expr.span), "this array", trail, around, sink)
            case ir.Reduce() if expr.op in ("mean", "argmax", "argmin") or expr.type.kind == "whole":
                _check_points(expr, trail, lets, sink)


def _check_index(
    read: ir.Expr,
    index: ir.Expr,
    extent: ir.Expr,
    axis: str,
    trail: Trail,
    around: Callable[[Trail], Domain],
    sink: Sink,
) -> None:
    if _is_measured(index, extent, trail):
        return
    domain = around(trail)
    place, length = polynomial(index, domain.known.constants), polynomial(extent, domain.known.constants)
    for known, (inside, below) in product(domain.contexts, ((place, True), (length - place - 1, False))):
        wrong = (*known.known, -inside - 1)
        if not known.opaque and not known.entails(inside) and always_possible(wrong):
            _report(read, index, axis, show(extent), below, wrong, sink)
            return


def _is_measured(index: ir.Expr, extent: ir.Expr, trail: Trail) -> bool:
    """Whether a bare coordinate took its size from axes like this one: then sizes agree or are reported."""
    if not isinstance(index, ir.Coord):
        return False
    ranges = [step for step in trail if isinstance(step, ir.Range) and step.coordinate == index.coordinate]
    return bool(ranges) and (not ranges[-1].stated or (ranges[-1].upper == extent and _starts_inside(ranges[-1])))


def _starts_inside(range: ir.Range) -> bool:
    return isinstance(range.lower, ir.Const) and range.lower.value >= 0


def _report(
    read: ir.Expr,
    index: ir.Expr,
    axis: str,
    length: str,
    below: bool,
    wrong: tuple[Polynomial, ...],
    sink: Sink,
) -> None:
    point = _witness(wrong, index.type.coordinates)
    shown = index.span.text
    if below:
        message = f"`{shown}` goes below 0"
        help = f"indices never wrap: guard the read (`where {shown} >= 0`), or start the range later"
    else:
        message = f"`{shown}` goes past the end of {axis}"
        help = f"it has {length} points: guard the read (`where {shown} < {length}`), or end the range earlier"
    if not index.type.coordinates:
        help = "indices never wrap: the last of `n` points is `n - 1`, as in `x[size(i) - 1]`"
    if point:
        message += " at " + ", ".join(f"`{c} = {v}`" for c, v in point.items())
    if point and not below and any(isinstance(atom, ir.Size) for fact in wrong for atom in fact.atoms):
        message += f" when every size is {_SAMPLE}"
    sink.report("IX305", message, Label(index.span), Label(read.span, "in this read"), help=help)


_SAMPLE = 5


def _witness(wrong: tuple[Polynomial, ...], wanted: frozenset[Coordinate]) -> dict[str, int]:
    """A point at which the index is wrong, looked for among small ones; empty if none is found."""
    coordinates = sorted({a for p in wrong for a in p.atoms if isinstance(a, Coordinate)}, key=str)
    for point in islice(product(range(-2, _SAMPLE + 3), repeat=len(coordinates)), 20_000):
        values = dict(zip(coordinates, point, strict=True))
        if all(_at(p, values) >= 0 for p in wrong):
            return {c.name.rstrip("'"): v for c, v in values.items() if c in wanted}
    return {}


def _at(value: Polynomial, point: dict[Coordinate, int]) -> int:
    total = 0
    for monomial, factor in value.terms.items():
        for atom, power in monomial:
            factor *= (point[atom] if isinstance(atom, Coordinate) else _SAMPLE) ** power
        total += factor
    return total


def _check_points(expr: ir.Reduce, trail: Trail, lets: Mapping[str, ir.Let], sink: Sink) -> None:
    """A mean, an argmax or a whole maximum over nothing has no value."""
    if expr.op in ("sum", "prod") or (all(not range.stated for range in expr.ranges) and expr.guard is None):
        return
    inner: Trail = (*trail, *expr.ranges)
    if expr.guard is not None:
        inner = (*inner, (expr.guard, True))
    if not Domain.along(trail, lets).is_empty() and Domain.along(inner, lets).is_empty():
        sink.report("IX310", f"`{expr.op}` over no points has no value", expr.span, help="widen the range or the guard")
