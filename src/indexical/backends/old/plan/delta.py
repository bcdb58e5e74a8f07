"""States that each step asks before it writes to them: `S[t, d, e] = decay * S[t - 1, d, e] + K[t, d] * (V[t, e] + u)`,
where `u` is `sum[c](A[t, c] * S[t - 1, c, e])`. A step is linear in the state, and of rank one besides its decay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ....checker.recurrence import is_plain
from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import polynomial
from ....ir.algebra.factors import Factor, factors_of, product_of
from ....ir.context import constants_of
from ....ir.types import Coordinate
from ....ir.walk import fresh_name, meaning, rebuild, renamed_apart, substitute, walk
from ....plan.linear import Nonlinear, take_linear
from ....plan.scans import Scan
from ....records import dataclass, replace
from .recurrences import scan_of


@dataclass(frozen=True, slots=True)
class Asked:
    """The sum over the state before it that a step reads, `sum[c](weights * S[t - 1, c, e])`, and the `factor` by which
    it adds it. `places` are the axes of the state that it sums over, with the coordinate of each."""

    weights: ir.Expr
    places: Mapping[int, Coordinate]
    factor: ir.Expr


def scan_that_asks(let: ir.Let, axis: int, lets: Mapping[str, ir.Let]) -> tuple[Scan, tuple[Asked, ...]] | None:
    """A definition as a scan, but for what its steps ask of the state before them; None where it is none."""
    sums: list[tuple[str, ir.Expr, Mapping[int, Coordinate]]] = []
    taken = {*lets}
    clauses = []
    for clause in let.clauses:

        def apart(expr: ir.Expr, clause: ir.Clause = clause) -> ir.Expr:
            expr = _spread(expr, let.name, clause, lets)
            found = _sum_of_state(expr, let, clause, axis, lets)
            if found is None:
                return rebuild(expr, apart)
            inside, outside, places = found
            name = fresh_name(f"{let.name}_stood", taken)
            taken.add(name)
            sums.append((name, inside, places))
            coordinates = sorted(build.varying((*clause.slots, inside)) - set(places.values()))
            own = [build.coord(c, expr.span) for c in coordinates]
            asked = build.read(name, tuple(own), "real", expr.span)
            return asked if outside is None else build.apply("*", (outside, asked), "real", expr.span)

        clauses.append(replace(clause, body=apart(clause.body)))
    scan = scan_of(replace(let, clauses=tuple(clauses)), axis, lets) if sums else ""
    return None if isinstance(scan, str) else _taken_apart(scan, sums)


def _taken_apart(
    scan: Scan, sums: list[tuple[str, ir.Expr, Mapping[int, Coordinate]]]
) -> tuple[Scan, tuple[Asked, ...]] | None:
    """The scan without what its steps ask, and that; None where a step does more with it than to multiply it."""
    asked: list[Asked] = []
    parts = list(scan.parts)
    for name, weights, places in sums:
        for number, part in enumerate(parts):
            if part.times is not None and _mentions(part.times, name):
                return None
            if part.plus is None or not _mentions(part.plus, name):
                continue
            try:
                found = take_linear(part.plus, partial(_reads, name))
            except Nonlinear:
                return None
            if found.times is None or found.read_where is not None or part.times is None:
                return None
            asked.append(Asked(weights, places, found.times))
            parts[number] = replace(part, plus=found.plus)
    return replace(scan, parts=tuple(parts)), tuple(asked)


def _reads(name: str, read: ir.Read) -> bool:
    return read.tensor == name


def _mentions(expr: ir.Expr, name: str) -> bool:
    return any(isinstance(part, ir.Read) and part.tensor == name for part in walk(expr))


def _spread(expr: ir.Expr, name: str, clause: ir.Clause, lets: Mapping[str, ir.Let]) -> ir.Expr:
    """A sum of the state times a matrix as what that is made of: the sums of the terms of the matrix, and for the
    identity among them the state itself. A matrix that has a name is written out."""
    if not isinstance(expr, ir.Reduce) or expr.op != "sum" or expr.guard is not None:
        return expr
    factors = factors_of(expr.body)
    for factor in factors:
        if factor.inverse or not _is_matrix(factor, factors, expr, name, clause):
            continue
        rest = [other for other in factors if other is not factor]
        match factor.expr:
            case ir.Map("+" | "-" as op, (left, right)):
                sums = [_summed(expr.ranges, [Factor(part), *rest], expr) for part in (left, right)]
                return build.apply(op, tuple(sums), "real", expr.span)
            case ir.Read(tensor) if tensor in lets and is_plain(lets[tensor]):
                body = meaning(factor.expr, lets)
                if isinstance(body, ir.Map | ir.Select):
                    taken = {c.name for c in (*expr.coordinates, *expr.body.type.coordinates)}
                    again = _summed(expr.ranges, [Factor(renamed_apart(body, taken)), *rest], expr)
                    return _spread(again, name, clause, lets)
            case ir.Select(ir.Map("==", (ir.Coord(one), ir.Coord(other))), then, otherwise):
                bound, place = (one, other) if one in expr.coordinates else (other, one)
                runs = {range.coordinate: range for range in (*expr.ranges, *clause.ranges)}
                same = place in runs and (runs[bound].lower, runs[bound].upper) == (
                    runs[place].lower,
                    runs[place].upper,
                )
                if same and place not in expr.coordinates and build.is_number(otherwise, 0):
                    more = tuple(range for range in expr.ranges if range.coordinate != bound)
                    found = _summed(more, [Factor(then), *rest], expr)
                    return substitute(found, {bound: build.coord(place, expr.span)})
    return expr


def _is_matrix(factor: Factor, factors: list[Factor], total: ir.Reduce, name: str, clause: ir.Clause) -> bool:
    """Whether a factor of a sum of the state varies with what is summed, and with what takes its place."""
    reads = [other.expr for other in factors if isinstance(other.expr, ir.Read) and other.expr.tensor == name]
    pairs = zip(reads[0].indices, clause.slots, strict=True) if len(reads) == 1 else ()
    across = {
        slot.coordinate
        for index, slot in pairs
        if isinstance(slot, ir.Coord) and index.type.coordinates & total.coordinates
    }
    return bool(factor.coordinates & across and factor.coordinates & total.coordinates)


def _summed(ranges: tuple[ir.Range, ...], factors: list[Factor], like: ir.Expr) -> ir.Expr:
    body = product_of(factors, like)
    return build.reduce("sum", ranges, body, None, "real", like.span) if ranges else body


def _sum_of_state(
    expr: ir.Expr, let: ir.Let, clause: ir.Clause, axis: int, lets: Mapping[str, ir.Let]
) -> tuple[ir.Expr, ir.Expr | None, Mapping[int, Coordinate]] | None:
    """The weights of a sum over all points of some axes of the state at the step before, inside of the sum and outside;
    None for anything else."""
    if not isinstance(expr, ir.Reduce) or expr.op != "sum" or expr.guard is not None or expr.type.kind != "real":
        return None
    factors = factors_of(expr.body)
    states = [factor for factor in factors if isinstance(factor.expr, ir.Read) and factor.expr.tensor == let.name]
    others = [factor for factor in factors if factor not in states]
    if len(states) != 1 or states[0].inverse or any(_mentions(factor.expr, let.name) for factor in others):
        return None
    read = states[0].expr
    assert isinstance(read, ir.Read)
    constants = constants_of(lets)
    ranges = {range.coordinate: range for range in expr.ranges}
    places: dict[int, Coordinate] = {}
    for number, (index, slot) in enumerate(zip(read.indices, clause.slots, strict=True)):
        if isinstance(index, ir.Coord) and index.coordinate in ranges:
            run = ranges[index.coordinate]
            length = polynomial(let.axes[number].extent, constants) - polynomial(run.upper, constants)
            if number == axis or not run.from_zero or length.terms:
                return None
            places[number] = index.coordinate
        elif (polynomial(slot, constants) - polynomial(index, constants)).constant != (1 if number == axis else 0):
            return None
    if len(places) != len(ranges) or set(places.values()) != set(ranges):
        return None
    inside = [factor for factor in others if factor.coordinates & ranges.keys()]
    outside = [factor for factor in others if factor not in inside]
    one = build.whole(1, expr.span)
    weights = product_of(inside, expr) if inside else one
    return weights, product_of(outside, expr) if outside else None, places
