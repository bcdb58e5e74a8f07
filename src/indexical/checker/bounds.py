"""Bounds: every read inside its axis, wherever its guards hold. What cannot be decided here is checked
in the run."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product

from ..diagnostics import Label, Sink
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, polynomial
from ..ir.context import Trail, places_of, visit
from ..ir.domain import Domain
from ..ir.prove import always_possible
from ..ir.types import Coordinate
from ..records import dataclass
from .reporting import report_all
from .sizes import show, simplify


def check(program: ir.Program, sink: Sink) -> None:
    """Report the reads that are out of bounds whatever the sizes, and reductions that are over no points."""
    tensors = program.tensors
    lets = program.definitions
    # A read of a point that no clause defines is out of bounds for that reason.
    told = {finding.labels[0].span for finding in sink if finding.code == "IX306"}
    for let in program.lets:
        found = Sink()
        places = [place for clause in let.clauses for place in places_of(clause) if place[0].span not in told]
        _check_places(places, tensors, lets, found, _origins(let))
        report_all(found, let, program, sink)
    claims = [place for claim in program.asserts for place in visit(claim.condition, ())]
    claims += [place for claim in program.expects for e in claim.expressions for place in visit(e, claim.ranges)]
    _check_places(claims, tensors, lets, sink)


def _check_places(
    places: list[tuple[ir.Expr, Trail]],
    tensors: Mapping[str, ir.Input | ir.Let],
    lets: Mapping[str, ir.Let],
    sink: Sink,
    origins: Mapping[Coordinate, Polynomial] | None = None,
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
                    if not _is_measured(index, axis.extent, trail):
                        bounds = Bounds(f"`{tensor}`'s axis {number}", axis.extent, axis.origin)
                        _check_index(expr, index, bounds, around(trail), origins or {}, sink)
            case ir.Array(shape, _, indices):
                for length, index in zip(shape, indices, strict=True):
                    bounds = Bounds("this array", build.whole(length, expr.span))
                    if not _is_measured(index, bounds.extent, trail):
                        _check_index(expr, index, bounds, around(trail), origins or {}, sink)
            case ir.Reduce() if expr.op in ("mean", "argmax", "argmin") or expr.type.kind == "whole":
                _check_points(expr, trail, lets, sink)


@dataclass(frozen=True, slots=True)
class Bounds:
    """An axis, in words, how many points it has, and where the text has it begin, if not at 0."""

    axis: str
    extent: ir.Expr
    origin: ir.Expr | None = None

    @property
    def end(self) -> str:
        """The first point after the last, as the text counts."""
        if self.origin is None:
            return show(self.extent)
        return show(simplify(build.apply("+", (self.origin, self.extent), "whole", self.origin.span)))


def _origins(let: ir.Let) -> dict[Coordinate, Polynomial]:
    """How much more the text says of a coordinate than the Program, where an axis does not begin at 0."""
    return {
        slot.coordinate: polynomial(axis.origin)
        for clause in let.clauses
        for axis, slot in zip(let.axes, clause.slots, strict=True)
        if axis.origin is not None and isinstance(slot, ir.Coord)
    }


def _check_index(
    read: ir.Expr,
    index: ir.Expr,
    bounds: Bounds,
    domain: Domain,
    origins: Mapping[Coordinate, Polynomial],
    sink: Sink,
) -> None:
    place, length = polynomial(index, domain.known.constants), polynomial(bounds.extent, domain.known.constants)
    for known, (inside, below) in product(domain.contexts, ((place, True), (length - place - 1, False))):
        wrong = (*known.known, -inside - 1)
        # Of most that is hard to prove, nothing is ever said: that is asked first.
        if not known.opaque and always_possible(wrong) and not known.entails(inside):
            _report(read, index, bounds, below, wrong, origins, sink)
            return


def _is_measured(index: ir.Expr, extent: ir.Expr, trail: Trail) -> bool:
    """Whether a bare coordinate took its size from axes like this one: then sizes agree or are reported."""
    if not isinstance(index, ir.Coord):
        return False
    for step in reversed(trail):
        if isinstance(step, ir.Range) and step.coordinate == index.coordinate:
            return not step.stated or (step.upper == extent and _starts_inside(step))
    return False


def _starts_inside(range: ir.Range) -> bool:
    return isinstance(range.lower, ir.Const) and range.lower.value >= 0


def _report(
    read: ir.Expr,
    index: ir.Expr,
    bounds: Bounds,
    below: bool,
    wrong: tuple[Polynomial, ...],
    origins: Mapping[Coordinate, Polynomial],
    sink: Sink,
) -> None:
    point = _witness(wrong, index.type.coordinates, origins)
    shown, length = index.span.text, bounds.end
    if below and bounds.origin is not None:
        start = show(bounds.origin)
        message = f"`{shown}` goes below {start}, where {bounds.axis} begins"
        help = f"define what is below as well, guard the read (`where {shown} >= {start}`), or start the range later"
    elif below:
        message = f"`{shown}` goes below 0"
        help = f"indices never wrap: guard the read (`where {shown} >= 0`), or start the range later"
    else:
        message = f"`{shown}` goes past the end of {bounds.axis}"
        held = f"it has {length} points" if bounds.origin is None else f"it ends before {length}"
        help = f"{held}: guard the read (`where {shown} < {length}`), or end the range earlier"
    if not index.type.coordinates and bounds.origin is None:
        help = "indices never wrap: the last of `n` points is `n - 1`, as in `x[size(i) - 1]`"
    if point:
        message += " at " + ", ".join(f"`{c} = {v}`" for c, v in point.items())
    if point and not below and any(isinstance(atom, ir.Size) for fact in wrong for atom in fact.atoms):
        message += f" when every size is {_SAMPLE}"
    sink.report("IX305", message, Label(index.span), Label(read.span, "in this read"), help=help)


_SAMPLE = 5


def _witness(
    wrong: tuple[Polynomial, ...], wanted: frozenset[Coordinate], origins: Mapping[Coordinate, Polynomial]
) -> dict[str, int]:
    """A point at which the index is wrong, looked for among small ones; empty if none is found."""
    coordinates = sorted({a for p in wrong for a in p.atoms if isinstance(a, Coordinate)}, key=str)
    for point in islice(product(range(-2, _SAMPLE + 3), repeat=len(coordinates)), 20_000):
        values = dict(zip(coordinates, point, strict=True))
        if all(_at(p, values) >= 0 for p in wrong):
            shift = {c: _at(origin, {}) for c, origin in origins.items()}
            return {c.name.rstrip("'"): v + shift.get(c, 0) for c, v in values.items() if c in wanted}
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
