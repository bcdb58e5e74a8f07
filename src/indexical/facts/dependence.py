"""Dependence: which points of which input each point of a definition scans, without running anything.

A product with a factor that a guard removed reads nothing else, as in the reference evaluator: what nobody
listens to is not scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..ir import build
from ..ir import nodes as ir
from ..ir.conditions import fails
from ..ir.context import Trail, inside
from ..ir.domain import Domain
from ..ir.needs import endless
from ..ir.types import Coordinate
from ..ir.walk import at, fresh, substitute
from ..records import dataclass, field, replace
from .orders import CAUSAL, OWN, both, compare


@dataclass(frozen=True, slots=True)
class Scan:
    """For every point of `ranges` at which all `conditions` hold, `tensor` is read at `indices`.

    Free coordinates are those of the definition that scans. `exact` is False where more is claimed than is
    read: through a recurrence.
    """

    tensor: str
    indices: tuple[ir.Expr, ...]
    ranges: tuple[ir.Range, ...]
    conditions: tuple[ir.Expr, ...]
    exact: bool = True


@dataclass
class Dependence:
    """The scans of one program's definitions, each worked out once."""

    program: ir.Program
    # What can change a value, rather than what is read on the way to it: a side of `&&` says nothing where
    # the other is false, whichever is read first.
    influence: bool = False
    _known: dict[str, tuple[Scan, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lets, self.tensors = self.program.definitions, self.program.tensors
        self.steps = {name: (order, axis) for order in _stepwise(self.program.order) for name, axis in order.axes}
        self.endless = endless(self.program)
        self._turns: dict[str, tuple[Scan, ...]] = {}

    def of(self, name: str) -> tuple[Scan, ...]:
        """The scans of the inputs by a definition, through all other definitions."""
        if name not in self._known:
            found = self._recurrence(name) if name in self.endless else self._plain(name)
            self._known[name] = self._distinct(found)
        return self._known[name]

    def _distinct(self, scans: Iterable[Scan]) -> tuple[Scan, ...]:
        """Every scan once, and none that another one reaches further than: layer upon layer, what is said twice would
        double with each."""
        found = list(dict.fromkeys(_tidy(scan, self.tensors.get(scan.tensor)) for scan in scans))
        alike: dict[tuple[str, tuple[ir.Expr, ...], bool], list[tuple[int, frozenset[object]]]] = {}
        for number, scan in enumerate(found):
            held = frozenset((*scan.ranges, *scan.conditions))
            alike.setdefault((scan.tensor, scan.indices, scan.exact), []).append((number, held))
        kept = {n for group in alike.values() for n, held in group if not any(other < held for _, other in group)}
        return tuple(scan for number, scan in enumerate(found) if number in kept)

    def group(self, name: str) -> tuple[str, ...]:
        """The definitions that this one is computed together with, step by step."""
        for order in self.program.order:
            if isinstance(order, ir.Stepwise) and any(name == member for member, _ in order.axes):
                return tuple(member for member, _ in order.axes)
        return ()

    def _plain(self, name: str) -> Iterator[Scan]:
        let = self.lets[name]
        for scan in self._direct(name):
            yield from self._through(scan, let)

    def _direct(self, name: str) -> Iterator[Scan]:
        """The reads of a definition, in the coordinates of its home."""
        let = self.lets[name]
        for clause in let.clauses:
            for scan in direct(clause, self.lets, self.influence):
                scan = _within_box(scan, clause) if len(let.clauses) > 1 or name in self.endless else scan
                yield _canonical(scan, clause, let)

    def _through(self, scan: Scan, home: ir.Let) -> Iterator[Scan]:
        """A scan of a definition, as scans of the inputs. What is scanned on the way is never called as a coordinate
        of the definition that scans: that is another one."""
        if scan.tensor not in self.lets:
            yield scan
            return
        for inner in self.of(scan.tensor):
            yield self._composed(scan, inner, home)

    def _composed(self, scan: Scan, inner: Scan, home: ir.Let) -> Scan:
        return _compose(scan, inner, self.lets[scan.tensor], {axis.coordinate.name for axis in home.axes})

    def _recurrence(self, name: str) -> Iterator[Scan]:
        """The scans of a recurrence: everything that its steps so far have scanned."""
        let = self.lets[name]
        order, axis = self.steps[name]
        group = [member for member in self.group(name) if member in self.endless]
        ways = self._ways(group)
        for member in group:
            other = self.lets[member]
            later = dict(order.later)
            ahead = later.get(name, 0) - later.get(member, 0)
            step = _Step(self.steps[member][1], let.axes[axis].coordinate, order.forward, ahead)
            for scan in self._turn(member):
                if scan.tensor not in group:
                    for inner in self._through(scan, other):
                        yield _over_steps(inner, other, let, step, ways)

    def _turn(self, name: str) -> tuple[Scan, ...]:
        """The scans of one step: of what is not made of itself, and of what only is through an earlier one."""
        if name not in self._turns:
            group, let = self.group(name), self.lets[name]
            found: list[Scan] = []
            for scan in self._direct(name):
                if scan.tensor in group and scan.tensor not in self.endless:
                    found += (self._composed(scan, inner, let) for inner in self._turn(scan.tensor))
                else:
                    found.append(scan)
            self._turns[name] = self._distinct(found)
        return self._turns[name]

    def _ways(self, group: Sequence[str]) -> dict[str, str | None]:
        """How the steps of a recurrence pass on each coordinate, by its name: as it is, or from those up to it alone;
        or from all of them."""
        result: dict[str, str | None] = {}
        for member in group:
            homes = self.lets[member].axes
            for scan in self._turn(member):
                if scan.tensor not in group:
                    continue
                reached = scanned(self.lets[member], scan, self.lets)
                for axis, index in zip(self.lets[scan.tensor].axes, scan.indices, strict=True):
                    name = axis.coordinate.name
                    own = next((home.coordinate for home in homes if home.coordinate.name == name), None)
                    verdict = None if own is None else compare(reached, build.coord(own, index.span), index)
                    result[name] = both(result.get(name, OWN), verdict)
        return result

    def mixed(self, group: tuple[str, ...]) -> set[str]:
        """The coordinates, by name, that definitions which read each other do not pass on as they are."""
        result: set[str] = set()
        for member in group:
            for clause in self.lets[member].clauses:
                names = {
                    slot.coordinate: axis.coordinate.name
                    for slot, axis in zip(clause.slots, self.lets[member].axes, strict=True)
                    if isinstance(slot, ir.Coord)
                }
                for scan in direct(clause, self.lets):
                    if scan.tensor in group:
                        homes = self.lets[scan.tensor].axes
                        for axis, index in zip(homes, scan.indices, strict=True):
                            kept = isinstance(index, ir.Coord) and names.get(index.coordinate) == axis.coordinate.name
                            result |= set() if kept else {axis.coordinate.name}
        return result


def scanned(let: ir.Let, scan: Scan, lets: Mapping[str, ir.Let]) -> Domain:
    """The points that a scan reaches, in the coordinates of the definition's home."""
    zero = build.whole(0, let.span)
    home = tuple(ir.Range(axis.coordinate, zero, axis.extent, False, let.span) for axis in let.axes)
    return Domain.of((*home, *scan.ranges), scan.conditions, lets)


def _tidy(scan: Scan, tensor: ir.Input | ir.Let | None) -> Scan:
    """A scan with each condition once, and without what it only leads through, wherever it stands."""
    conditions = tuple(dict.fromkeys(scan.conditions))
    if conditions and scan.ranges:
        known = {range.coordinate: range for range in scan.ranges}
        conditions = tuple(condition for condition in conditions if not _is_bound(condition, known))
    if not scan.exact and tensor is not None and _is_plain(scan, tensor):
        conditions = _connected(scan, conditions)
    depends = [range.depends_on for range in scan.ranges]
    mentioned = build.varying((*scan.indices, *conditions)).union(*depends)
    ranges = tuple(r for r, own in zip(scan.ranges, depends, strict=True) if own or r.coordinate in mentioned)
    return Scan(scan.tensor, scan.indices, ranges, conditions, scan.exact)


def _is_plain(scan: Scan, tensor: ir.Input | ir.Let) -> bool:
    """Whether every index is scanned, or a coordinate of the home, or one of a fixed number of places. Otherwise it
    matters for which points of the home anything is scanned: `x[9]` may be heard from some position on."""
    scanned = {range.coordinate for range in scan.ranges}
    return all(
        isinstance(index, ir.Coord) or index.type.coordinates & scanned or isinstance(axis.extent, ir.Const)
        for index, axis in zip(scan.indices, tensor.axes, strict=True)
    )


def _connected(scan: Scan, conditions: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
    """The conditions that bear upon the indices of a scan, directly or through another one, or upon its home alone. The
    others only ask whether anything is scanned at all: where more is claimed than is read, it is."""
    bound = {range.coordinate for range in scan.ranges}
    waiting = {condition: condition.type.coordinates & bound for condition in conditions}
    reached = build.varying(scan.indices) & bound
    for range in scan.ranges:
        waiting[range.upper] = (build.varying((range.lower, range.upper)) & bound) | {range.coordinate}
    kept: set[ir.Expr] = set()
    while found := {expr for expr, own in waiting.items() if not own or own & reached}:
        kept |= found
        reached = reached.union(*(waiting.pop(expr) for expr in found))
    return tuple(condition for condition in conditions if condition in kept)


def _stepwise(orders: tuple[ir.Order, ...]) -> list[ir.Stepwise]:
    return [order for order in orders if isinstance(order, ir.Stepwise)]


# --------------------------------------------------------------------- one clause


def direct(clause: ir.Clause, lets: Mapping[str, ir.Let], influence: bool = False) -> Iterator[Scan]:
    """The reads of one clause, in its own coordinates."""
    for expr, trail in evaluated(clause, lets, influence):
        if isinstance(expr, ir.Read):
            inner = trail[len(clause.ranges) :] if trail else ()
            ranges = tuple(step for step in inner if isinstance(step, ir.Range))
            yield Scan(expr.tensor, expr.indices, ranges, tuple(_conditions(inner)))


def evaluated(
    clause: ir.Clause, lets: Mapping[str, ir.Let], influence: bool = False
) -> Iterator[tuple[ir.Expr, Trail]]:
    """Every expression of a clause, with the points at which it is evaluated at all."""
    start: Trail = clause.ranges
    waiting: list[tuple[ir.Expr, Trail]] = []
    if clause.guard is not None:
        waiting.append((clause.guard, start))
        start = (*start, (clause.guard, True))
    waiting.append((clause.body, start))
    for range in clause.ranges:
        waiting += [(range.lower, ()), (range.upper, ())]
    while waiting:
        expr, trail = waiting.pop()
        yield expr, trail
        if influence and isinstance(expr, ir.Map) and expr.op == "&&":
            left, right = expr.arguments
            waiting += [(left, (*trail, (right, True))), (right, (*trail, (left, True)))]
        else:
            waiting += _parts(expr, trail, lets, influence)


def _conditions(trail: Trail) -> Iterator[ir.Expr]:
    for step in trail:
        if not isinstance(step, ir.Range):
            condition, holds = step
            yield condition if holds else fails(condition)


def _parts(expr: ir.Expr, trail: Trail, lets: Mapping[str, ir.Let], influence: bool) -> list[tuple[ir.Expr, Trail]]:
    """The parts that are evaluated inside an expression, each with its conditions. A factor is only read where
    no other is removed."""
    match expr:
        case ir.Map("*" | "/", arguments):
            factors = len(arguments) if expr.op == "*" else 1
            found = [support(factor, lets, influence) for factor in arguments[:factors]]
            result = []
            for number, argument in enumerate(arguments):
                held = [(s, True) for n, s in enumerate(found) if s is not None and n != number]
                result.append((argument, (*trail, *held)))
            # Whether a factor is removed is asked of one after the other, until one is.
            for number, asked in enumerate(found):
                if asked is not None:
                    earlier = [(s, True) for s in found[:number] if s is not None]
                    result.append((asked, (*trail, *earlier)))
            return result
        case ir.Normalize(op, guard=guard) if guard is not None and op != "rank":
            inner = inside(expr, trail)
            here = (guard, True)
            return [(guard, trail), *((part, (*path, here)) for part, path in inner)]
        case _:
            return inside(expr, trail)


def support(
    expr: ir.Expr, lets: Mapping[str, ir.Let], influence: bool = False, within: frozenset[str] = frozenset()
) -> ir.Expr | None:
    """The condition under which no guard removes a value; None where none can remove it. A definition that reads
    itself is not looked through again: what an earlier step lost is not said here. A sum of what is removed is a 0 like
    any other, and what it multiplies is read; but it has no `influence`. This is asked `within` these definitions."""
    match expr:
        case ir.Read(tensor, indices) if tensor in lets and tensor not in within and len(lets[tensor].clauses) == 1:
            clause = lets[tensor].clauses[0]
            inner = build.conjunction((clause.guard, support(clause.body, lets, influence, within | {tensor})))
            return None if inner is None else at(clause, inner, indices)
        case ir.Normalize(op="softmax" | "cumsum", guard=guard):
            return guard
        case ir.Map("*", arguments):
            return build.conjunction(support(argument, lets, influence, within) for argument in arguments)
        case ir.Map("/" | "neg", arguments):
            return support(arguments[0], lets, influence, within)
        case ir.Map("+" | "-", arguments) if influence:
            terms = list(dict.fromkeys(support(argument, lets, influence, within) for argument in arguments))
            some = [term for term in terms if term is not None]
            if len(some) < len(terms):
                return None
            return some[0] if len(some) == 1 else build.apply("||", tuple(some), "bool", expr.span)
        case ir.Select(condition, then, otherwise):
            sides = [support(side, lets, influence, within) for side in (then, otherwise)]
            if sides == [None, None]:
                return None
            cases = [build.conjunction((c, s)) for c, s in zip((condition, fails(condition)), sides, strict=True)]
            return build.apply("||", tuple(case for case in cases if case is not None), "bool", expr.span)
        case _:
            return None


def _within_box(scan: Scan, clause: ir.Clause) -> Scan:
    """A clause among several only has its own points."""
    held = (bound for range in clause.ranges for bound in _bounds(range))
    return replace(scan, conditions=(*scan.conditions, *held))


def _is_bound(condition: ir.Expr, ranges: Mapping[Coordinate, ir.Range]) -> bool:
    """Whether a condition is one of those that a range stands for."""
    match condition:
        case ir.Map("<=", (lower, ir.Coord(coordinate))) if coordinate in ranges:
            return lower == ranges[coordinate].lower
        case ir.Map("<", (ir.Coord(coordinate), upper)) if coordinate in ranges:
            return upper == ranges[coordinate].upper
    return False


def _bounds(range: ir.Range) -> tuple[ir.Expr, ir.Expr]:
    """The conditions that a range stands for."""
    point = build.coord(range.coordinate, range.span)
    first = build.apply("<=", (range.lower, point), "bool", range.span)
    return first, build.apply("<", (point, range.upper), "bool", range.span)


def _canonical(scan: Scan, clause: ir.Clause, let: ir.Let) -> Scan:
    """A scan in the coordinates of the definition's home, whichever clause it comes from."""
    values: dict[Coordinate, ir.Expr] = {}
    held: list[ir.Expr] = []
    for slot, axis in zip(clause.slots, let.axes, strict=True):
        home = build.coord(axis.coordinate, slot.span)
        if isinstance(slot, ir.Coord):
            values[slot.coordinate] = home
        else:
            held.append(build.apply("==", (home, slot), "bool", slot.span))
    values = {c: v for c, v in values.items() if isinstance(v, ir.Coord) and v.coordinate != c}
    renamed = _rename(scan, {axis.coordinate.name for axis in let.axes}, values)
    return replace(renamed, conditions=(*renamed.conditions, *held)) if held else renamed


def _rename(scan: Scan, taken: set[str], values: Mapping[Coordinate, ir.Expr]) -> Scan:
    """Put values for free coordinates; what is scanned gets names that clash with nothing."""
    if not values and not scan.ranges:
        return scan
    values = dict(values)
    used = set(taken) | {c.name for value in values.values() for c in value.type.coordinates}
    ranges = []
    for range in scan.ranges:
        lower, upper = substitute(range.lower, values), substitute(range.upper, values)
        plain = Coordinate(range.coordinate.name.rstrip("'"), range.coordinate.rest, range.coordinate.space)
        coordinate = fresh(plain, used)
        used.add(coordinate.name)
        if coordinate != range.coordinate:
            values[range.coordinate] = build.coord(coordinate, range.span)
        ranges.append(ir.Range(coordinate, lower, upper, range.stated, range.span))
    return Scan(
        scan.tensor,
        tuple(substitute(index, values) for index in scan.indices),
        tuple(ranges),
        tuple(substitute(condition, values) for condition in scan.conditions),
        scan.exact,
    )


def _compose(outer: Scan, inner: Scan, let: ir.Let, names: set[str]) -> Scan:
    """The scans through a definition that is itself scanned."""
    values = {axis.coordinate: index for axis, index in zip(let.axes, outer.indices, strict=True)}
    taken = names | {range.coordinate.name for range in outer.ranges}
    taken |= {c.name for index in outer.indices for c in index.type.coordinates}
    taken |= {c.name for condition in outer.conditions for c in condition.type.coordinates}
    moved = _rename(inner, taken, values)
    return Scan(
        moved.tensor,
        moved.indices,
        (*outer.ranges, *moved.ranges),
        (*outer.conditions, *moved.conditions),
        outer.exact and moved.exact,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """The axis of a definition that is stepped, the step of the one that scans, whether steps go forward, and by how
    many the definition is `ahead` of the one that scans."""

    axis: int
    now: Coordinate
    forward: bool
    ahead: int


def _over_steps(scan: Scan, member: ir.Let, let: ir.Let, step: _Step, ways: Mapping[str, str | None]) -> Scan:
    """A scan of one step, over all steps up to now. A coordinate that every turn passes on stays what it is."""
    homes = {axis.coordinate.name for axis in let.axes}
    taken = homes | {range.coordinate.name for range in scan.ranges}
    values: dict[Coordinate, ir.Expr] = {}
    ranges: list[ir.Range] = []
    held: list[ir.Expr] = []
    for number, axis in enumerate(member.axes):
        name = axis.coordinate.name
        way = ways.get(name, OWN) if name in homes else None
        if number != step.axis and way == OWN:
            continue
        coordinate = fresh(axis.coordinate, taken)
        taken.add(coordinate.name)
        point = build.coord(coordinate, let.span)
        values[axis.coordinate] = point
        ranges.append(ir.Range(coordinate, build.whole(0, let.span), axis.extent, False, let.span))
        if number == step.axis:
            here: ir.Expr = build.coord(step.now, let.span)
            if step.ahead:
                here = build.apply("+", (here, build.whole(step.ahead, let.span)), "whole", let.span)
            held.append(build.apply("<=" if step.forward else ">=", (point, here), "bool", let.span))
        elif way is not None:
            own = next(home.coordinate for home in let.axes if home.coordinate.name == name)
            sides = (point, build.coord(own, let.span))
            held.append(build.apply("<=" if way == CAUSAL else ">=", sides, "bool", let.span))
    moved = _rename(scan, taken, values)
    return Scan(moved.tensor, moved.indices, (*ranges, *moved.ranges), (*held, *moved.conditions), False)
