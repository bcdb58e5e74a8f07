"""Recurrences: which of them are scans, and what is kept of those that are stepped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ....checker.recurrence import is_plain
from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import polynomial
from ....ir.context import Trail, assume, bound_by, constants_of, visit_clause
from ....ir.deciding import decide
from ....ir.graph import components
from ....ir.text import shown
from ....ir.walk import at, reads_of, rebuild, renamed_apart, walk
from ....plan.linear import Linear, Nonlinear, take_linear, under_guard
from ....plan.scans import Recurrence, Scan
from ....plan.steps import Refusal, Step
from ....records import dataclass, field, replace
from .liveness import keep_last

LOOP = "loop"
SCAN = "scan"

ISOLATED = "it multiplies in another order, and `isolate=True` was asked for"

# An expression that grew past this is not written out any further.
LARGEST = 2000


@dataclass(frozen=True, slots=True)
class Arranged:
    """A program in which every recurrence that can be a scan is one definition; how each of them goes, and why not in a
    better way."""

    program: ir.Program
    recurrences: Mapping[str, Recurrence]
    refusals: Mapping[str, tuple[Refusal, ...]]

    def with_all_steps(self, names: Collection[str]) -> Arranged:
        """The same, with all steps kept of some recurrences: they are read as arrays."""
        whole = {name: replace(self.recurrences[name], kept=None) for name in names if name in self.recurrences}
        return replace(self, recurrences={**self.recurrences, **whole}) if whole else self


def arrange(program: ir.Program, wanted: tuple[str, ...], isolate: bool) -> Arranged:
    """Scans, where there are any; with non-finite values isolated everything is stepped as it is written."""
    if all(isinstance(item, ir.Once) for item in program.order):
        return Arranged(program, {}, {})
    arranging = _Arranging(program, isolate)
    for item in program.order:
        if isinstance(item, ir.Once):
            arranging.order.append(item)
        else:
            arranging.add(item)
    program = replace(arranging.program, order=tuple(arranging.order))
    recurrences = arranging.recurrences if isolate else keep_last(program, wanted, arranging.recurrences)
    return Arranged(program, recurrences, arranging.refusals)


def step_of(name: str, arranged: Arranged, refused: tuple[Refusal, ...]) -> Step:
    """Choose how to compute a definition that is no attention: with arrays, in a loop, or as a scan."""
    recurrence = arranged.recurrences.get(name)
    refused = (*refused, *arranged.refusals.get(name, ()))
    if recurrence is None:
        return Step(name, "arrays", refusals=refused)
    return Step(name, LOOP if recurrence.scan is None else SCAN, refusals=refused, recurrence=recurrence)


@dataclass
class _Arranging:
    """One recurrence after the other."""

    program: ir.Program
    isolate: bool
    order: list[ir.Order] = field(default_factory=list)
    recurrences: dict[str, Recurrence] = field(default_factory=dict)
    refusals: dict[str, tuple[Refusal, ...]] = field(default_factory=dict)

    def add(self, item: ir.Stepwise) -> None:
        """As a scan, where it is one; else it is stepped."""
        found = ISOLATED if self.isolate else _scanned(self.program, item)
        if not isinstance(found, str):
            self.program, scan, inner = found
            self.recurrences[_name(inner[0])] = Recurrence((scan.axis,), scan)
            self.order += inner
            return
        nested = any(isinstance(inner, ir.Stepwise) for inner in item.body)
        for name, axes in stepped_axes(item).items():
            self.recurrences[name] = Recurrence(axes)
            self.refusals[name] = (Refusal(name, SCAN, found),) if self.isolate or not nested else ()
        self.order.append(item)


def stepped_axes(order: ir.Stepwise) -> dict[str, tuple[int, ...]]:
    """Every definition of a recurrence with the axes that are stepped, outermost first."""
    result: dict[str, tuple[int, ...]] = {name: (axis,) for name, axis in order.axes}
    for item in order.body:
        if isinstance(item, ir.Stepwise):
            for name, axes in stepped_axes(item).items():
                result[name] = (*result.get(name, ()), *axes)
    return result


def _name(order: ir.Order) -> str:
    return order.name if isinstance(order, ir.Once) else order.axes[0][0]


def _scanned(program: ir.Program, order: ir.Stepwise) -> tuple[ir.Program, Scan, list[ir.Order]] | str:
    """A recurrence as a scan, and what else of it is computed after that; or why it is none."""
    if any(isinstance(item, ir.Stepwise) for item in order.body):
        return "it steps along several coordinates"
    lets = program.definitions
    if len(order.axes) == 1:
        ((name, axis),) = order.axes
        scan = scan_of(lets[name], axis, lets)
        return scan if isinstance(scan, str) else (program, scan, [order])
    names = [name for name, _ in order.axes]
    reason = f"{' and '.join(f'`{name}`' for name in names)} read each other"
    for name, axis in order.axes:
        others = [other for other in names if other != name]
        found = alone(lets[name], {other: lets[other] for other in others}, lets)
        if found is None:
            continue
        scan = scan_of(found, axis, lets)
        if isinstance(scan, str):
            reason = scan
            continue
        program = replace(program, lets=tuple(found if let.name == name else let for let in program.lets))
        edges = {other: [r.tensor for r in reads_of(lets[other]) if r.tensor in others] for other in others}
        rest = [ir.Once(other) for group in components(edges) for other in group]
        return program, scan, [ir.Stepwise(((name, axis),), order.forward, (ir.Once(name),)), *rest]
    return reason


# ------------------------------------------------------------------ several as one


def alone(let: ir.Let, others: Mapping[str, ir.Let], lets: Mapping[str, ir.Let]) -> ir.Let | None:
    """A definition with others written out in it until it reads none of them; None where that does not end, or is not
    possible."""
    if not all(is_plain(other) and other.kind == "real" for other in others.values()):
        return None
    for _ in range(len(others) + 1):
        if not any(read.tensor in others for read in reads_of(let)):
            return let
        clauses = []
        for clause in let.clauses:
            if not all(_is_there(read, trail, others, lets) for read, trail in _reads(clause, others)):
                return None
            taken = {range.coordinate.name for range in clause.ranges}
            body = _written_out(clause.body, others, taken)
            guard = None if clause.guard is None else _written_out(clause.guard, others, taken)
            if body is None or (guard is None and clause.guard is not None):
                return None
            if sum(1 for _ in walk(body)) > LARGEST:
                return None
            clauses.append(replace(clause, body=body, guard=guard))
        let = replace(let, clauses=tuple(clauses))
    return None


def _reads(clause: ir.Clause, names: Mapping[str, ir.Let]) -> Iterator[tuple[ir.Read, Trail]]:
    for expr, trail in visit_clause(clause):
        if isinstance(expr, ir.Read) and expr.tensor in names:
            yield expr, trail


def _is_there(read: ir.Read, trail: Trail, others: Mapping[str, ir.Let], lets: Mapping[str, ir.Let]) -> bool:
    """Whether a read is in bounds, for certain."""
    places = [
        (index, axis.extent)
        for index, axis in zip(read.indices, others[read.tensor].axes, strict=True)
        if not _runs_over(index, axis.extent, trail)
    ]
    if not places:
        return True
    known = assume(trail, lets)
    constants = constants_of(lets)
    for index, length in places:
        place, extent = polynomial(index, constants), polynomial(length, constants)
        if not known.entails(place) or not known.entails(extent - place - 1):
            return False
    return True


def _runs_over(index: ir.Expr, extent: ir.Expr, trail: Trail) -> bool:
    """Whether an index is a coordinate that runs over just the points of an axis."""
    if not isinstance(index, ir.Coord):
        return False
    bound = bound_by(index.coordinate, trail)
    return bound.from_zero and bound.upper == extent


def _written_out(expr: ir.Expr, others: Mapping[str, ir.Let], taken: set[str]) -> ir.Expr | None:
    """An expression with definitions written out where it reads them; None where that cannot be said."""
    failed = False

    def change(part: ir.Expr) -> ir.Expr:
        nonlocal failed
        if isinstance(part, ir.Read) and part.tensor in others:
            clause = others[part.tensor].clauses[0]
            body = at(clause, clause.body, part.indices)
            guard = None if clause.guard is None else at(clause, clause.guard, part.indices)
            if body is None or (guard is None and clause.guard is not None):
                failed = True
                return part
            if guard is not None:
                body = build.select(guard, body, build.whole(0, part.span), part.span)
            return renamed_apart(body, taken | {c.name for index in part.indices for c in index.type.coordinates})
        return rebuild(part, change)

    result = change(expr)
    return None if failed else result


# ----------------------------------------------------------------------- one scan


def scan_of(let: ir.Let, axis: int, lets: Mapping[str, ir.Let]) -> Scan | str:
    """A definition as a scan along an axis; or why it is none."""
    if let.kind != "real":
        return "whole numbers are checked at every step"
    offsets: set[int] = set()
    parts: list[Linear] = []
    try:
        for clause in let.clauses:
            found = take_linear(clause.body, lambda read: read.tensor == let.name)
            if clause.guard is not None and any(
                isinstance(part, ir.Read) and part.tensor == let.name for part in walk(clause.guard)
            ):
                raise Nonlinear("a condition asks for it")
            parts.append(under_guard(clause.guard, found))
            for read, trail in _reads(clause, {let.name: let}):
                offsets.add(offset := _offset(read, clause, axis, lets))
                if not _is_reached(read.indices[axis], let.axes[axis].extent, offset > 0, trail, lets):
                    raise Nonlinear(f"whether `{shown(read)}` is there is known only in the run")
    except Nonlinear as reason:
        return str(reason)
    if len(offsets) != 1:
        steps = " and ".join(str(abs(offset)) for offset in sorted(offsets, key=abs))
        return f"it reads back {steps} steps: several offsets"
    (offset,) = offsets
    if len(let.clauses) == 1:
        if not _may_divide(let, axis):
            return f"a normaliser runs over all of `{shown(let.clauses[0].slots[axis])}`"
        clauses = _divided(let, axis, offset)
        return Scan(axis, abs(offset), offset > 0, clauses, tuple(_decided(parts[0], c, lets) for c in clauses), True)
    return Scan(axis, abs(offset), offset > 0, let.clauses, tuple(parts))


def _may_divide(let: ir.Let, axis: int) -> bool:
    """Whether a clause means the same in parts along an axis: no normaliser in it runs over all points of that axis."""
    clause = let.clauses[0]
    parts = [part for expr in (clause.body, clause.guard) if expr is not None for part in walk(expr)]
    slot = clause.slots[axis]
    return not any(isinstance(part, ir.Normalize) and build.coord(part.coordinate, slot.span) == slot for part in parts)


def _divided(let: ir.Let, axis: int, offset: int) -> tuple[ir.Clause, ir.Clause]:
    """One clause as two: where it starts, and where it goes on."""
    clause, slot = let.clauses[0], let.clauses[0].slots[axis]
    assert isinstance(slot, ir.Coord)
    own = next(range for range in clause.ranges if range.coordinate == slot.coordinate)
    count, extent = build.whole(abs(offset), own.span), let.axes[axis].extent
    if offset > 0:
        few = build.apply("min", (count, extent), "whole", own.span)
        first, rest = replace(own, upper=few, stated=True), replace(own, lower=count, stated=True)
    else:
        edge = build.apply("-", (extent, count), "whole", own.span)
        few = build.apply("max", (build.whole(0, own.span), edge), "whole", own.span)
        first, rest = replace(own, lower=few, stated=True), replace(own, upper=edge, stated=True)
    ranges = [tuple(new if range is own else range for range in clause.ranges) for new in (first, rest)]
    return replace(clause, ranges=ranges[0]), replace(clause, ranges=ranges[1])


def _decided(part: Linear, clause: ir.Clause, lets: Mapping[str, ir.Let]) -> Linear:
    known = assume(clause.ranges, lets)
    bound = frozenset(range.coordinate for range in clause.ranges)
    parts = (part.times, part.plus, part.read_where)
    times, plus, read_where = (None if expr is None else decide(expr, known, bound) for expr in parts)
    if times is None or (isinstance(times, ir.Const) and times.value == 0):
        return Linear(None, plus)
    return Linear(times, plus, None if read_where is None or known.proves(read_where) else read_where)


def _is_reached(place: ir.Expr, extent: ir.Expr, forward: bool, trail: Trail, lets: Mapping[str, ir.Let]) -> bool:
    """Whether an earlier step is certainly in bounds: since the present one is, only one end has to be checked."""
    constants = constants_of(lets)
    distance = polynomial(place, constants)
    return assume(trail, lets).entails(distance if forward else polynomial(extent, constants) - distance - 1)


def _offset(read: ir.Read, clause: ir.Clause, axis: int, lets: Mapping[str, ir.Let]) -> int:
    """The number of steps back of a read, at the same point of all other axes."""
    constants = constants_of(lets)
    for n, (index, slot) in enumerate(zip(read.indices, clause.slots, strict=True)):
        distance = (polynomial(slot, constants) - polynomial(index, constants)).constant
        if n == axis:
            if distance is None:
                raise Nonlinear(f"`{shown(read)}` is at no fixed distance")
            result = distance
        elif distance != 0:
            raise Nonlinear(f"dense: `{shown(read)}` is not its own point of `{shown(slot)}`")
    return result
