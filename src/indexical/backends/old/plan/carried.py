"""States that are only asked: `sum[d](Q[t, d] * S[t, d, e])`, where the state is a recurrence
`S[t, d, e] = decay * S[t - 1, d, e] + K[t, d] * V[t, e]`. The sum is a causal product, and the state is not built. So
too where a step asks the state before it, and writes what it was answered with the value (the delta rule)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import polynomial
from ....ir.algebra.factors import factors_of, product_of, varying
from ....ir.algebra.normal import Form, TooLarge, form, product
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.writing import named, written
from ....ir.context import Trail, assume, visit_clause
from ....ir.deciding import decide
from ....ir.types import Coordinate
from ....ir.walk import fresh, fresh_name, is_bare, reads_of, rebuild, substitute, walk
from ....plan.scans import Scan
from ....plan.steps import Chunks, Refusal
from ....plan.target import CHUNKS
from ....records import dataclass, field, replace
from .delta import Asked, scan_that_asks
from .ordering import definition, preceded
from .recurrences import alone, scan_of


class _Built(Exception):
    """A state has to be built: why, in words."""


def carry(
    program: ir.Program, needed: Collection[str], wanted: Collection[str], taken: Collection[str]
) -> tuple[ir.Program, dict[str, Chunks], dict[str, Refusal]]:
    """The program with a definition for every sum that asks a state, what each of them is, and why others are not. A
    state that is `wanted`, or that anything else reads, is built in any case: so for definitions that other kernels
    have `taken`, and for those that are made of themselves."""
    if not program.recurrent:
        return program, {}, {}
    search = _Search(program, frozenset(taken) | program.recurrent)
    refusals: dict[str, Refusal] = {}
    for item in program.order:
        if not isinstance(item, ir.Stepwise) or not item.forward or any(isinstance(i, ir.Stepwise) for i in item.body):
            continue
        for name, axis in item.axes:
            found = None
            if name in needed and len(program.definitions[name].axes) > 1:
                found = _linear(name, axis, {other for other, _ in item.axes}, program.definitions)
            if found is None:
                continue
            try:
                search.ask(found, {other for other, _ in item.axes}, needed, wanted)
            except _Built as reason:
                refusals[name] = Refusal(name, CHUNKS, str(reason))
    if search.before:
        program = preceded(program, search.before, search.changed)
    return program, search.chunks, refusals


@dataclass(frozen=True, slots=True)
class _State:
    """A recurrence that is linear in the step before, and what its steps ask of it."""

    let: ir.Let
    scan: Scan
    asked: tuple[Asked, ...] = ()


def _linear(name: str, axis: int, members: Collection[str], lets: Mapping[str, ir.Let]) -> _State | None:
    """A recurrence as a state, those that it reads at the same step written out; None where it is none."""
    let = alone(lets[name], {other: lets[other] for other in members if other != name}, lets)
    if let is None:
        return None
    if len(members) > 1:
        let = replace(let, clauses=tuple(_decided(clause, lets) for clause in let.clauses))
    scan = scan_of(let, axis, lets)
    if not isinstance(scan, str):
        return _State(let, scan)
    found = scan_that_asks(let, axis, lets)
    return None if found is None else _State(let, *found)


def _decided(clause: ir.Clause, lets: Mapping[str, ir.Let]) -> ir.Clause:
    """The clause without conditions that hold at every step."""
    bound = frozenset(range.coordinate for range in clause.ranges)
    return replace(clause, body=decide(clause.body, assume(clause.ranges, lets), bound))


@dataclass
class _Search:
    program: ir.Program
    left: frozenset[str]
    chunks: dict[str, Chunks] = field(default_factory=dict)
    before: dict[str, tuple[ir.Let, ...]] = field(default_factory=dict)
    changed: dict[str, ir.Let] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.algebra = Algebra(self.program)
        self.taken = set(self.program.tensors)

    def ask(self, state: _State, members: Collection[str], needed: Collection[str], wanted: Collection[str]) -> None:
        """Put a definition before every one that asks a state, for the sum that does."""
        readers = [
            let
            for let in self.program.lets
            if let.name in needed and let.name not in members and any(r.tensor in members for r in reads_of(let))
        ]
        sums = [(let, *found) for let in readers for clause in let.clauses for found in _sums(clause, state.let)]
        if not sums:
            return
        count = sum(read.tensor in members for let in readers for read in reads_of(let))
        if any(name in wanted for name in members) or len(sums) != count:
            raise _Built("all steps of the state are read, not only what a query asks of each")
        if any(let.name in self.left for let in readers):
            raise _Built("another kernel or another recurrence reads its steps")
        made = [(let, total, self._described(state, total, trail)) for let, total, trail in sums]
        for let, total, (new, chunks) in made:
            if let.name not in self.changed and _is_one(let, total):
                self.chunks[let.name] = chunks
                continue
            self.chunks[new.name] = chunks
            self.before[let.name] = (*self.before.get(let.name, ()), new)
            read = build.read(
                new.name, tuple(build.coord(a.coordinate, total.span) for a in new.axes), "real", total.span
            )
            self.changed[let.name] = _replaced(self.changed.get(let.name, let), total, read)

    def _described(self, found: _State, total: ir.Reduce, trail: Trail) -> tuple[ir.Let, Chunks]:
        """The definition and the chunks for what a total asks of a carried state; `_Built` with the reason where there
        are none."""
        state, scan = found.let, found.scan
        ranges = {step.coordinate: step for step in trail if isinstance(step, ir.Range)}
        if any(not isinstance(step, ir.Range) for step in trail) and not is_bare(total.body):
            raise _Built("what it is asked for may be out of bounds where a guard around it fails")
        read = next(p for p in walk(total.body) if isinstance(p, ir.Read) and p.tensor == state.name)
        row, shift = _place(read, scan.axis)
        own = [ranges[c] for c in ranges if c in total.type.coordinates]
        if row not in total.type.coordinates or any(r.depends_on or not r.from_zero for r in own):
            raise _Built("a range around it does not start at 0, or depends on another coordinate")
        query = [factor for factor in factors_of(total.body) if factor.expr is not read]
        if any(
            part.tensor == state.name for factor in query for part in walk(factor.expr) if isinstance(part, ir.Read)
        ):
            raise _Built("it is multiplied with itself")
        features = total.ranges
        key = fresh(row, {c.name for c in (*ranges, *total.coordinates)})
        bound = frozenset(total.coordinates)
        try:
            answer, value, times = self._step(scan, read, key, row, shift, bound, varying(query))
            asks = self._asks(found, read, _shifted(key, shift, read), bound, key)
        except TooLarge:
            raise _Built("what it adds at each step grows too large when it is written out") from None
        if asks is not None:
            if times is not None and times.type.coordinates & bound:
                raise _Built("a step asks the state before it, and each feature of it has a decay of its own")
            carried = value.type.coordinates - answer.type.coordinates - varying(query) - {key}
            if asks.type.coordinates & carried:
                raise _Built("what a step was answered has another factor at each point that is carried")
        name = fresh_name(f"{state.name}_asked", self.taken)
        self.taken.add(name)
        asked = product_of(query, total) if query else build.whole(1, total.span)
        extent = state.axes[scan.axis].extent
        if shift:
            extent = build.apply("-", (extent, build.whole(shift, total.span)), "whole", total.span)
        run = ir.Range(key, build.whole(0, total.span), extent, True, total.span)
        rate, factor = _logarithm(self._looked_through(times))
        chunks = Chunks(row, run, features, asked, answer, value, rate, None, factor, asks=asks)
        return definition(name, own, total), chunks

    def _looked_through(self, times: ir.Expr | None) -> ir.Expr | None:
        """A factor, or what a name that it is stands for."""
        while isinstance(times, ir.Read) and (found := self.algebra.canonical.opened(times)) is not None:
            if found[1] is not None:
                break
            times = found[0]
        return times

    def _step(
        self,
        scan: Scan,
        read: ir.Read,
        key: Coordinate,
        row: Coordinate,
        shift: int,
        features: frozenset[Coordinate],
        asked: frozenset[Coordinate],
    ) -> tuple[ir.Expr, ir.Expr, ir.Expr | None]:
        """The product a step adds, as a side that is compared and a side that is carried, at the key; and the factor
        that it multiplies the state with, at the row."""
        if scan.offset != 1 or len(scan.parts) != 2:
            raise _Built("it reads back more than one step")
        rule = 0 if scan.parts[1].times is None else 1
        base, rest = scan.parts[1 - rule], scan.parts[rule]
        if base.times is not None or rest.times is None or rest.read_where is not None:
            raise _Built("not every step but the first goes on from the one before")
        others = {n: index for n, index in enumerate(read.indices) if n != scan.axis}
        clauses = scan.clauses[1 - rule], scan.clauses[rule]
        zero = build.whole(0, read.span)
        first = self._at(base.plus, clauses[0], others, zero)
        added = self._at(rest.plus, clauses[1], others, zero)
        starts = first is None or not first.terms
        if not starts and (first is None or added is None or first.key != added.key):
            raise _Built("its first step is neither 0 nor what each step adds")
        if shift and not starts:
            raise _Built("it is asked at a later step than its own")
        place = _shifted(key, shift, read)
        found = self._at(rest.plus, clauses[1], others, place)
        if found is None or len(found.terms) != 1:
            raise _Built("what it adds at each step is no product of two sides")
        answer, value = self._sides(found, features, read)
        if starts and not shift:
            later = build.apply("<=", (build.whole(1, read.span), build.coord(key, read.span)), "bool", read.span)
            zero = build.whole(0, read.span)
            answer = build.select(later, answer, zero, read.span)
            value = value if is_bare(value) else build.select(later, value, zero, read.span)
        times = self._at(rest.times, clauses[1], others, _shifted(row, shift, read))
        assert times is not None
        factor = self._written(times, read)
        if factor.type.coordinates - answer.type.coordinates - asked - {row}:
            raise _Built("each point of its state has a decay of its own")
        if build.is_number(factor, 1):
            return answer, value, None
        if not is_bare(factor):
            later = build.apply("<=", (build.whole(1, read.span), build.coord(row, read.span)), "bool", read.span)
            factor = build.select(later, factor, build.whole(1, read.span), read.span)
        return answer, value, factor

    def _asks(
        self, state: _State, read: ir.Read, place: ir.Expr, features: frozenset[Coordinate], key: Coordinate
    ) -> ir.Expr | None:
        """The weights by which a step asks the state before it, along what it adds to it; None where it does not."""
        if not state.asked:
            return None
        clause = next(c for c, part in zip(state.scan.clauses, state.scan.parts, strict=True) if part.times is not None)
        rule = next(part for part in state.scan.parts if part.times is not None)
        others = {n: index for n, index in enumerate(read.indices) if n != state.scan.axis}
        added = self._at(rule.plus, clause, others, place)
        result: ir.Expr | None = None
        for asked in state.asked:
            at = {c: read.indices[n] for n, c in asked.places.items()}
            if {c for index in at.values() for c in index.type.coordinates} != features:
                raise _Built("a step asks the state before it for other features than its queries do")
            factor = self._at(asked.factor, clause, others, place)
            if added is None or factor is None or len(factor.terms) != 1 or len(added.terms) != 1:
                raise _Built("what a step was answered is written in more than one direction")
            if _compared(factor, features) != _compared(added, features):
                raise _Built("what a step was answered is not written along what it adds")
            number, term = factor.terms[0]
            rest = [f for f in term.factors if not f[0].coordinates & features]
            scale = self._written(form(((number, product(rest, term.exponent, term.conditions)),)), read)
            slots = {s.coordinate: others.get(n, place) for n, s in enumerate(clause.slots) if isinstance(s, ir.Coord)}
            weights = build.apply("*", (scale, substitute(asked.weights, {**slots, **at})), "real", read.span)
            result = weights if result is None else build.apply("+", (result, weights), "real", read.span)
        if result is None or is_bare(result):
            return result
        later = build.apply("<=", (build.whole(1, read.span), build.coord(key, read.span)), "bool", read.span)
        return build.select(later, result, build.whole(0, read.span), read.span)

    def _at(self, expr: ir.Expr | None, clause: ir.Clause, others: Mapping[int, ir.Expr], step: ir.Expr) -> Form | None:
        """A part of a clause of the state at a step, and at the indices of a read; definitions that have all of them
        are written out."""
        if expr is None:
            return None
        indices = [others.get(n, step) for n in range(len(clause.slots))]
        values = {
            slot.coordinate: index
            for slot, index in zip(clause.slots, indices, strict=True)
            if isinstance(slot, ir.Coord)
        }
        self.algebra.work = self.algebra.depth = 0
        plain = frozenset().union(*(index.type.coordinates for index in others.values()))
        found = self.algebra.plain(substitute(expr, values))
        return self.algebra.opened(found, lambda read: plain <= read.type.coordinates)

    def _sides(self, found: Form, features: frozenset[Coordinate], read: ir.Read) -> tuple[ir.Expr, ir.Expr]:
        """A product as the side that is compared and the side that is carried."""
        number, term = found.terms[0]
        if term.conditions:
            raise _Built("what it adds at each step is under a condition")
        compared = [f for f in term.factors if f[0].coordinates & features]
        rest = [f for f in term.factors if f not in compared]
        answer, value = form(((1, product(compared)),)), form(((number, product(rest)),))
        return self._written(answer, read), self._written(value, read)

    def _written(self, value: Form, read: ir.Read) -> ir.Expr:
        return named(written(value, read.span), [c.name for c in value.coordinates])


def _compared(found: Form, features: frozenset[Coordinate]) -> set[tuple[str, object]]:
    """The factors of a product that vary with the features, each with its exponent."""
    (_, term), *_ = found.terms
    if term.exponent is not None and term.exponent.coordinates & features:
        return {(term.key, 0)}
    return {(atom.key, power) for atom, power in term.factors if atom.coordinates & features}


def _sums(clause: ir.Clause, state: ir.Let) -> Iterator[tuple[ir.Reduce, Trail]]:
    """The sums of a clause that multiply a state with something and sum over some of its axes."""
    for expr, trail in visit_clause(clause):
        if isinstance(expr, ir.Reduce) and expr.op == "sum" and expr.type.kind == "real" and expr.guard is None:
            read = [
                f.expr for f in factors_of(expr.body) if isinstance(f.expr, ir.Read) and f.expr.tensor == state.name
            ]
            if len(read) == 1 and expr.coordinates <= read[0].type.coordinates:
                yield expr, trail


def _place(read: ir.Read, axis: int) -> tuple[Coordinate, int]:
    """The coordinate and the distance at which a state is asked, at its own point of all other axes."""
    step = polynomial(read.indices[axis])
    rows = [atom for atom in step.atoms if isinstance(atom, Coordinate)]
    others = [index.coordinate for n, index in enumerate(read.indices) if n != axis and isinstance(index, ir.Coord)]
    shift = (step - polynomial(build.coord(rows[0], read.span))).constant if len(rows) == 1 else None
    if shift not in (0, 1) or len(set(others)) != len(read.indices) - 1 or rows[0] in others:
        raise _Built("it is asked at another step than the last, or at another point than its own")
    return rows[0], shift


def _shifted(coordinate: Coordinate, shift: int, read: ir.Read) -> ir.Expr:
    place: ir.Expr = build.coord(coordinate, read.span)
    return place if not shift else build.apply("+", (place, build.whole(shift, read.span)), "whole", read.span)


def _logarithm(times: ir.Expr | None) -> tuple[ir.Expr | None, ir.Expr | None]:
    """A factor as e to a rate, where it is written so, or as it is."""
    match times:
        case ir.Map("exp", (rate,)):
            return rate, None
        case ir.Map("sigmoid", (inner,)):
            return build.apply("log_sigmoid", (inner,), "real", inner.span), None
    return None, times


def _is_one(let: ir.Let, total: ir.Reduce) -> bool:
    """Whether a definition is just this sum."""
    clause = let.clauses[0]
    whole = len(let.clauses) == 1 and clause.guard is None and clause.body is total
    return whole and all(isinstance(slot, ir.Coord) for slot in clause.slots)


def _replaced(let: ir.Let, total: ir.Expr, read: ir.Read) -> ir.Let:
    def changed(expr: ir.Expr) -> ir.Expr:
        return read if expr is total else rebuild(expr, changed)

    return replace(let, clauses=tuple(replace(clause, body=changed(clause.body)) for clause in let.clauses))
