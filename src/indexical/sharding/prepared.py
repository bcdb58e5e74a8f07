"""A program in the form in which it is cut: every attention a definition of its own, and so is every sum, largest value
and running sum over a coordinate that is split."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction

from ..backends.opaque import recognize
from ..checker.program import finish
from ..diagnostics import Sink
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import no_constants
from ..ir.conditions import conjuncts_of
from ..ir.needs import needed
from ..ir.prefixes import Prefix, find
from ..ir.scans import as_reductions
from ..ir.types import Coordinate, Kind
from ..ir.walk import changed, fresh_name, reads_of, rebuild, substitute
from ..plan.steps import Attention, Softmax
from ..records import dataclass, field, replace
from ..syntax.vocabulary import SCANS
from .spaces import Kinds

# The dimension of the mesh that an axis, or a coordinate of a definition, is split along.
Split = Callable[[object], str | None]

# How a running sum or product goes on, and what it is of nothing.
_RUNNING = {"sum": ("+", 0), "prod": ("*", 1)}
# How the results of several blocks make one.
TOTALS = {"sum": "sum", "max": "max", "min": "min", "any": "max", "all": "min"}


@dataclass(frozen=True)
class Prepared:
    """A program to cut: its attentions by name, and the groups of its axes."""

    program: ir.Program
    attentions: Mapping[str, Attention]
    kinds: Kinds = field(compare=False)


def prepare(program: ir.Program, wanted: tuple[str, ...], split_by: Callable[[ir.Program, Kinds], Split]) -> Prepared:
    """The program as it is cut. `split_by` says which groups of axes are split along which dimension."""
    program, attentions = _with_attentions(program, wanted)
    kinds = Kinds(program)
    apart = _Apart(program, kinds, split_by(program, kinds))
    for let in program.lets:
        apart.definition(let)
    kept = replace(program, lets=tuple(apart.lets.values()), contracts=(), expects=())
    names = needed(kept, wanted)
    kept = replace(kept, lets=tuple(let for let in kept.lets if let.name in names), outputs=wanted)
    sink = Sink()
    ordered = finish(kept, sink)
    assert ordered is not None, [str(finding) for finding in sink]
    return Prepared(ordered, {name: a for name, a in attentions.items() if name in names}, Kinds(ordered))


def _with_attentions(program: ir.Program, wanted: tuple[str, ...]) -> tuple[ir.Program, dict[str, Attention]]:
    """The program with each softmax attention spelled in one way, its guard also around what is summed."""
    found = recognize(program, wanted)
    good = {name: a for name, a in found.attentions.items() if _is_plain(a)}
    before = program.definitions
    made = found.attentions.keys() - before.keys()
    lets: list[ir.Let] = []
    for let in found.program.lets:
        reads = {read.tensor for read in reads_of(let)} & made
        if let.name in good:
            lets.append(replace(let, clauses=(_spelled(let.clauses[0], good[let.name]),)))
        elif let.name not in made:
            lets.append(let if reads and reads <= good.keys() else before[let.name])
    return replace(program, lets=tuple(lets)), good


def _is_plain(attention: Attention) -> bool:
    normaliser = attention.normaliser
    return (
        isinstance(normaliser, Softmax) and normaliser.sink is None and not attention.total and attention.empty != "nan"
    )


def _spelled(clause: ir.Clause, attention: Attention) -> ir.Clause:
    span = clause.span
    guard = build.conjunction(attention.guard)
    weights = build.normalize("softmax", attention.coordinate, attention.score, guard, "real", span)
    body = build.apply("*", (weights, attention.value), "real", span)
    return replace(clause, body=build.reduce("sum", (attention.key,), body, guard, "real", span))


def total_of(let: ir.Let, attention: Attention, name: str) -> ir.Let:
    """The logarithm of what the weights of an attention are divided by, as a definition."""
    clause, span = let.clauses[0], let.span
    share = build.apply("exp", (attention.score,), "real", span)
    total = build.reduce("sum", (attention.key,), share, build.conjunction(attention.guard), "real", span)
    kept = [(s, a) for s, a in zip(clause.slots, let.axes, strict=True) if s.type.coordinates & total.type.coordinates]
    ranges = tuple(range for range in clause.ranges if range.coordinate in total.type.coordinates)
    body = build.apply("log", (total,), "real", span)
    made = ir.Clause(tuple(slot for slot, _ in kept), ranges, body, clause.guard, span)
    return ir.Let(name, tuple(axis for _, axis in kept), "real", (made,), False, span)


class _Apart:
    """The definitions of a program as they are gone through, with those that are made for parts of them."""

    def __init__(self, program: ir.Program, kinds: Kinds, split: Split) -> None:
        self.kinds, self.split = kinds, split
        self.recurrent = {name for item in program.order if isinstance(item, ir.Stepwise) for name, _ in item.axes}
        self.lets: dict[str, ir.Let] = {}
        self.taken = set(program.tensors)

    def definition(self, let: ir.Let) -> None:
        clause = let.clauses[0]
        plain = len(let.clauses) == 1 and clause.guard is None and all(isinstance(s, ir.Coord) for s in clause.slots)
        if plain and let.name not in self.recurrent:
            body = self.expression(let, clause.body, outermost=True)
            let = replace(let, clauses=(replace(clause, body=body),))
        self.lets[let.name] = let

    def own(self, let: ir.Let) -> dict[str, int]:
        """The axis of a definition that each dimension splits: the first of its kind."""
        return own_axes(let, self.kinds, self.split)

    def expression(self, let: ir.Let, expr: ir.Expr, outermost: bool = False) -> ir.Expr:
        """The expression with reads of what is made for it; only what every point of the definition needs is made."""
        match expr:
            case ir.Reduce(op) if self._is_apart(let, expr):
                if op == "mean":
                    return self._mean(let, expr)
                return expr if outermost else self._made(let, f"{let.name}_{op}", expr)
            case ir.Reduce("prod") if (found := self._prefix(let, expr)) is not None:
                return self._running(let, expr, found)
            case ir.Normalize() if self._runs_along_own(let, expr.coordinate):
                return self._normaliser(let, expr)
            case ir.Map(op) if op not in ("&&", "||"):
                return rebuild(expr, lambda part: self.expression(let, part))
        return expr

    def _is_apart(self, let: ir.Let, expr: ir.Reduce) -> bool:
        own = self.own(let)
        split = {self.split(self.kinds.of_letter(let.name, c)) for c in expr.coordinates} - {None}
        counted = expr.op == "mean" and expr.guard is None and not any(range.depends_on for range in expr.ranges)
        return bool(split - own.keys()) and (expr.op in TOTALS or counted)

    def _runs_along_own(self, let: ir.Let, coordinate: Coordinate) -> bool:
        slots = let.clauses[0].slots
        return any(slots[a] == build.coord(coordinate, let.span) for a in self.own(let).values())

    def _mean(self, let: ir.Let, expr: ir.Reduce) -> ir.Expr:
        total = self._made(let, f"{let.name}_sum", replace(expr, op="sum"))
        for range in expr.ranges:
            count = build.apply("-", (range.upper, range.lower), "whole", expr.span)
            total = build.apply("/", (total, count), "real", expr.span)
        return total

    def _normaliser(self, let: ir.Let, expr: ir.Normalize) -> ir.Expr:
        """The softmax written out, with its maximum and its sum as definitions, which can be cut."""
        op, span = expr.op, expr.span
        if op == "cumsum":
            ranges = {range.coordinate: range for range in let.clauses[0].ranges}
            total = as_reductions(expr, ranges, SCANS)
            assert isinstance(total, ir.Reduce)
            found = self._prefix(let, total)
            return expr if found is None else self._running(let, total, found)
        expr = replace(expr, body=self.expression(let, expr.body))
        if op not in ("softmax", "log_softmax") or (op == "log_softmax" and expr.guard is not None):
            return expr
        range = next(r for r in let.clauses[0].ranges if r.coordinate == expr.coordinate)
        top = self._made(let, f"{let.name}_max", build.reduce("max", (range,), expr.body, expr.guard, "real", span))
        if expr.guard is not None:
            top = _finite(top)
        below = build.apply("-", (expr.body, top), "real", span)
        share = build.apply("exp", (below,), "real", span)
        total = self._made(let, f"{let.name}_sum", build.reduce("sum", (range,), share, expr.guard, "real", span))
        if op == "log_softmax":
            return build.apply("-", (below, build.apply("log", (total,), "real", span)), "real", span)
        if expr.guard is None:
            return build.apply("/", (share, total), "real", span)
        zero, one = (build.real(Fraction(number), span) for number in (0, 1))
        nobody = build.apply("==", (total, zero), "bool", span)
        weights = build.apply("/", (share, build.select(nobody, one, total, span)), "real", span)
        return build.select(expr.guard, weights, zero, span)

    def _prefix(self, let: ir.Let, expr: ir.Reduce) -> Prefix | None:
        """The reduction over all points up to one along an axis that is split; None where it is none."""
        ranges = {r.coordinate: r for r in let.clauses[0].ranges if self._runs_along_own(let, r.coordinate)}
        found = find(expr, conjuncts_of(expr.guard), ranges, no_constants) if len(expr.ranges) == 1 else None
        if found is None or found.decay is not None or found.fixed:
            return None
        if not found.order.forward or found.order.shift.terms:
            return None
        same = replace(expr.ranges[0], coordinate=found.order.query) == ranges[found.order.query]
        return found if same and expr.ranges[0].from_zero else None

    def _running(self, let: ir.Let, expr: ir.Reduce, found: Prefix) -> ir.Expr:
        """A running sum or product as a recurrence, whose state can be handed on."""
        op, identity = _RUNNING[expr.op]
        kind, span, own = expr.type.kind, expr.span, found.order.query
        nothing = build.real(Fraction(identity), span) if kind == "real" else build.whole(identity, span)
        here: dict[Coordinate, ir.Expr] = {found.order.key: build.coord(own, span)}
        body = self.expression(let, substitute(found.body, here))
        kept = build.conjunction(substitute(condition, here) for condition in found.others)
        body = body if kept is None else build.select(kept, body, nothing, span)
        name = fresh_name(f"{let.name}_{expr.op}", self.taken)
        coordinates = body.type.coordinates | {own}
        first = substitute(body, {own: build.whole(0, span)})
        before = build.apply("-", (build.coord(own, span), build.whole(1, span)), "whole", span)
        pairs = [(s.coordinate, r) for s, r in _slots(let) if s.coordinate in coordinates]
        at = tuple(before if c == own else build.coord(c, span) for c, _ in pairs)
        step = build.apply(op, (build.read(name, at, kind, span), body), kind, span)
        one = build.whole(1, span)
        base = ir.Clause(
            tuple(build.whole(0, span) if c == own else build.coord(c, span) for c, _ in pairs),
            tuple(range for c, range in pairs if c != own),
            first,
            None,
            span,
        )
        rule = ir.Clause(
            tuple(build.coord(c, span) for c, _ in pairs),
            tuple(replace(range, lower=one, stated=True) if c == own else range for c, range in pairs),
            step,
            None,
            span,
        )
        total = self._put(let, name, (base, rule), [c for c, _ in pairs], kind)
        asked = build.conjunction(found.asked)
        return total if asked is None else build.select(asked, total, nothing, span)

    def _made(self, let: ir.Let, name: str, expr: ir.Expr) -> ir.Expr:
        """A read of a definition that is made for an expression."""
        name = fresh_name(name, self.taken)
        pairs = [(s.coordinate, r) for s, r in _slots(let) if s.coordinate in expr.type.coordinates]
        slots = tuple(build.coord(c, expr.span) for c, _ in pairs)
        clause = ir.Clause(slots, tuple(range for _, range in pairs), expr, None, expr.span)
        return self._put(let, name, (clause,), [c for c, _ in pairs], expr.type.kind)

    def _put(
        self, let: ir.Let, name: str, clauses: tuple[ir.Clause, ...], own: Collection[Coordinate], kind: Kind
    ) -> ir.Expr:
        self.taken.add(name)
        slots = let.clauses[0].slots
        axes = tuple(a for s, a in zip(slots, let.axes, strict=True) if isinstance(s, ir.Coord) and s.coordinate in own)
        self.lets[name] = ir.Let(name, axes, kind, clauses, True, let.span)
        return build.read(name, tuple(build.coord(c, let.span) for c in own), kind, let.span)


def _finite(top: ir.Expr) -> ir.Expr:
    """The largest of some values, 0 where there are none: so that gradients stay numbers there."""
    span = top.span
    less = build.apply("-", (top, build.whole(1, span)), "real", span)
    same = build.apply("==", (top, less), "bool", span)
    below = build.apply("<", (top, build.whole(0, span)), "bool", span)
    endless = build.apply("&&", (same, below), "bool", span)
    return build.select(endless, build.real(Fraction(0), span), top, span)


def _slots(let: ir.Let) -> list[tuple[ir.Coord, ir.Range]]:
    ranges = {range.coordinate: range for range in let.clauses[0].ranges}
    return [(slot, ranges[slot.coordinate]) for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)]


def with_copies(prepared: Prepared, names: Collection[str]) -> Prepared:
    """The program with outputs that cannot be cut under other names, and copies of them, which can."""
    program = prepared.program
    wholes = {name: fresh_name(f"{name}_whole", program.tensors) for name in names}

    def renamed(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, renamed)
        return replace(expr, tensor=wholes.get(expr.tensor, expr.tensor)) if isinstance(expr, ir.Read) else expr

    lets = []
    for let in program.lets:
        clauses = tuple(changed(clause, renamed) for clause in let.clauses)
        lets.append(replace(let, name=wholes.get(let.name, let.name), clauses=clauses))
    lets += [_copy(program.definitions[name], whole) for name, whole in wholes.items()]
    ordered = finish(replace(program, lets=tuple(lets)), Sink())
    assert ordered is not None
    attentions = {wholes.get(name, name): attention for name, attention in prepared.attentions.items()}
    return Prepared(ordered, attentions, Kinds(ordered))


def _copy(let: ir.Let, name: str) -> ir.Let:
    span, zero = let.span, build.whole(0, let.span)
    slots = tuple(build.coord(axis.coordinate, span) for axis in let.axes)
    ranges = tuple(ir.Range(axis.coordinate, zero, axis.extent, True, span) for axis in let.axes)
    return replace(let, clauses=(ir.Clause(slots, ranges, build.read(name, slots, let.kind, span), None, span),))


def own_axes(tensor: ir.Input | ir.Let, kinds: Kinds, split: Split) -> dict[str, int]:
    """The axis of a tensor that each dimension splits: the first of its kind."""
    found: dict[str, int] = {}
    for number, axis in enumerate(tensor.axes):
        along = None if axis.coordinate.rest else split(kinds.of_axis(tensor.name, number))
        if along is not None:
            found.setdefault(along, number)
    return found


def input_axes(tensor: ir.Input, kinds: Kinds, split: Split, parameters: str | None) -> dict[str, int]:
    """The axis of an input that each dimension splits: where `parameters` would leave it whole, the last that no other
    splits. That does not depend on sizes, so that the ranks know it of their parts."""
    found = own_axes(tensor, kinds, split)
    if parameters is not None and parameters not in found and tensor.kind == "real":
        whole = [n for n, axis in enumerate(tensor.axes) if not axis.coordinate.rest and n not in found.values()]
        if whole:
            found[parameters] = whole[-1]
    return found
