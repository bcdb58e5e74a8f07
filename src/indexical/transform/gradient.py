"""Gradients as definitions: for every tensor between `of` and `by`, one of its cotangent.

The cotangent of `weights` is called `d_weights` and has its home. A point of it adds up what every read of that
point is owed: found by reading the index backwards, not by scattering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.quotients import Quotient
from ..ir.asked import asked_where
from ..ir.context import constants_of
from ..ir.functions import operation
from ..ir.graph import components
from ..ir.needs import reached
from ..ir.removal import removal_through
from ..ir.types import Coordinate
from ..ir.walk import fresh, renamed_clause, walk
from ..records import dataclass, field, replace
from ..source import Span
from .clauses import collected, definition
from .naming import name_parts, scans
from .polish import with_plain_names, without_copies, without_number
from .presence import looked_after
from .reverse import Share, shares_of
from .terms import Term, reads_data, settle, where_present


@dataclass(frozen=True, slots=True)
class Seeds:
    """The cotangents to begin with, by the name of the definition that is differentiated.

    Either the read of a cotangent that is given (1 for a scalar); or, where `lead` has coordinates, 1 at the one
    point that they say: every cotangent then has them in front, and is a Jacobian. Along axes that are `shared` with
    what it is differentiated by, which do not lead, every point has a derivative of its own.
    """

    of: Mapping[str, str | None]
    lead: tuple[ir.Range, ...] = ()
    shared: frozenset[int] = frozenset()

    def led(self, slots: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        """The slots of the axes that lead."""
        return tuple(slot for number, slot in enumerate(slots) if number not in self.shared)

    def at(self, name: str, slots: tuple[ir.Expr, ...], span: Span) -> Quotient:
        given = self.of[name]
        return Quotient() if given is None else Quotient(factors=(build.read(given, slots, "real", span),))


@dataclass(frozen=True, slots=True)
class Derived:
    """The definitions of a program, with names for parts that a derivative repeats; and the cotangents in the order of
    their computation, by the tensor they belong to."""

    forward: tuple[ir.Let, ...]
    cotangents: dict[str, ir.Let]


def derive(
    program: ir.Program,
    seeds: Seeds,
    by: Sequence[str],
    called: Mapping[str, str],
    span: Span,
    taken: Iterable[str] = (),
    split: bool = True,
) -> Derived:
    """The cotangents of `by` and of all between. What nothing reaches is not there.

    `called` names some of them, the others are `d_` and a name, and none is called like one of `taken`. Definitions
    in `by` are held independent: nothing flows on through them. With `split`, what counts on parts of an axis becomes
    clauses.
    """
    program = name_parts(program, counting(_Flow(program, seeds, by).live), taken)
    flow = _Flow(program, seeds, by)
    names = _names(program, flow, seeds, called, taken)
    constants = constants_of(flow.every)
    filled = _filled(program.lets) if split else None
    book = _Book(flow, seeds, names, span, asked_where(program, seeds.of))
    for name in flow.live:
        if name not in flow.owed:
            book.pay(name)
    made: dict[str, str] = {}
    removed = removal_through(flow.every)
    found = []
    for group in _in_order(flow, program):
        if group[0] in flow.targets.get(group[0], ()) or len(group) > 1:
            for name in group:
                book.pay(name)
        for name in group:
            home = home_of(program.tensors[name], seeds.lead, span)
            terms = _seed_terms(name, seeds, home, span) if name in seeds.of else []
            terms += [settle(share, seeds.lead, home, constants) for share in book.shares.get(name, ())]
            places = tuple(build.coord(range.coordinate, span) for range in home)
            itself = None if name in by else build.read(name, places, "real", span)  # What is held has all its points.
            terms = [where_present(term, itself, removed) for term in terms]
            let = definition(names[name], (*seeds.lead, *home), terms, span, filled, constants)
            found.append(with_plain_names(looked_after(let, flow.every)))
            made[let.name] = name
            book.pay(name, collected(terms))
    kept = without_copies(found, (names[name] for name in by if name in names))
    return Derived(program.lets, {made[let.name]: let for let in kept})


def _filled(lets: Iterable[ir.Let]) -> list[ir.Expr]:
    """The least lengths of the axes that have a base case."""
    return [
        axis.extent
        for let in lets
        for number, axis in enumerate(let.axes)
        if any(not isinstance(clause.slots[number], ir.Coord) for clause in let.clauses)
    ]


class _Flow:
    """The tensors between `of` and `by`, and those of them that have a cotangent."""

    def __init__(self, program: ir.Program, seeds: Seeds, by: Sequence[str]) -> None:
        self.every = program.definitions
        self.lets = {name: let for name, let in self.every.items() if name not in by}
        self.targets = {name: _targets(let) for name, let in self.lets.items()}
        self.live = _between(self.targets, seeds.of, by)
        self.owed = {t for name in self.live for t in self.targets.get(name, ()) if t in self.live}
        self.owed |= {name for name in by if name in seeds.of}
        if seeds.lead:
            # The seed is at one point, and a normaliser reads all of them: then its cotangent is a definition.
            self.owed |= {name for name in seeds.of if name in self.live and _normalises(self.every[name])}


def _normalises(let: ir.Let) -> bool:
    return any(isinstance(part, ir.Normalize) for clause in let.clauses for part in walk(clause.body))


def _names(
    program: ir.Program, flow: _Flow, seeds: Seeds, called: Mapping[str, str], reserved: Iterable[str]
) -> dict[str, str]:
    taken = {*program.tensors, *called.values(), *reserved}
    names: dict[str, str] = {}
    place = {name: number for number, name in enumerate(program.tensors)}
    for name in sorted(flow.owed, key=place.__getitem__):
        ending = "_total" if name in seeds.of else ""
        names[name] = called.get(name) or fresh_name(f"d_{name}{ending}", taken)
    return names


@dataclass(slots=True)
class _Book:
    """The cotangents of all tensors; every definition passes its own on once."""

    flow: _Flow
    seeds: Seeds
    names: Mapping[str, str]
    span: Span
    asked: Mapping[str, Sequence[ir.Expr]]
    shares: dict[str, list[Share]] = field(default_factory=dict)
    paid: set[str] = field(default_factory=set)

    def pay(self, name: str, terms: Sequence[Term] = ()) -> None:
        """Record the shares of a definition's cotangent that go to the tensors on the way. A cotangent whose `terms`
        are one number everywhere is written as that number."""
        if name in self.paid or name not in self.flow.lets:
            return
        self.paid.add(name)
        for share in self.owed_by(name, _number(terms)):
            self.shares.setdefault(share.tensor, []).append(share)

    def owed_by(self, name: str, number: Quotient | None) -> Iterable[Share]:
        """The shares that the clauses of a definition owe to what they read."""
        flow, lead, span = self.flow, self.seeds.lead, self.span
        counts = counting(flow.live)
        leading = tuple(build.coord(range.coordinate, span) for range in lead)
        for clause in flow.lets[name].clauses:
            apart = renamed_clause(self.guarded(name, clause), {range.coordinate.name for range in lead})
            if number is not None:
                yield from shares_of(flow.lets[name], apart, number, counts, flow.every)
            elif name in flow.owed:
                owed = Quotient(factors=(build.read(self.names[name], (*leading, *apart.slots), "real", span),))
                yield from shares_of(flow.lets[name], apart, owed, counts, flow.every)
            elif lead:
                for share in shares_of(flow.lets[name], apart, Quotient(), counts, flow.every):
                    yield replace(share, indices=(*self.seeds.led(apart.slots), *share.indices))
            else:
                yield from shares_of(flow.lets[name], apart, self.seeds.at(name, apart.slots, span), counts, flow.every)

    def guarded(self, name: str, clause: ir.Clause) -> ir.Clause:
        """A clause under what all of its readers ask, if it may be undefined elsewhere: its cotangent is 0 there, and 0
        times a slope that is infinite or NaN is not."""
        if not any(map(_may_be_steep, walk(clause.body))):
            return clause
        return replace(clause, guard=build.conjunction((clause.guard, *self.asked.get(name, ()))))


def _may_be_steep(part: ir.Expr) -> bool:
    """Whether a value of finite numbers, or a slope there, may be infinite or NaN by a pole. An overflow is none."""
    match part:
        case ir.Map("**", (_, ir.Const(exponent))) if exponent >= 1:
            return False
        case ir.Map(op, arguments):
            steep = [arguments[number] for number in operation(op).steep]
            return any(argument.type.coordinates or reads_data(argument) for argument in steep)
        case _:
            return False


def _number(terms: Sequence[Term]) -> Quotient | None:
    """The sum of terms, where it is one number, the same at every point."""
    if len(terms) != 1 or terms[0].ranges or terms[0].guards or terms[0].cases or terms[0].product.coordinates:
        return None
    product = terms[0].product
    return None if any(map(scans, (*product.factors, *product.divisors))) else product


def fresh_name(name: str, taken: set[str]) -> str:
    """The name, or with the next number that is free; it is taken from then on."""
    found = fresh(Coordinate(name), taken).name
    taken.add(found)
    return found


# ------------------------------------------------------------------------- flow


def _targets(let: ir.Let) -> frozenset[str]:
    """The tensors whose values a definition depends on differentiably, and not only through their order or an index."""
    if let.kind != "real":
        return frozenset()
    if let.slopes is None:
        every = (shares_of(let, clause, Quotient(), lambda expr: True) for clause in let.clauses)
        found = frozenset(share.tensor for shares in every for share in shares)
        object.__setattr__(let, "slopes", found)
        return found
    return let.slopes


def _between(flows: Mapping[str, AbstractSet[str]], of: Iterable[str], by: Sequence[str]) -> list[str]:
    """The tensors on a way from `of` to `by`, both included."""
    found = reached(of, lambda name: sorted(flows.get(name, ())))
    backward: dict[str, set[str]] = {}
    for name, targets in flows.items():
        for target in targets:
            backward.setdefault(target, set()).add(name)
    leading = set(reached(by, lambda name: backward.get(name, ())))
    return [name for name in found if name in leading]


def counting(live: Iterable[str]) -> Callable[[ir.Expr], bool]:
    """Whether an expression reads anything that is on the way."""
    wanted = frozenset(live)
    known: dict[int, tuple[ir.Expr, bool]] = {}

    def counts(expr: ir.Expr) -> bool:
        found = known.get(id(expr))
        if found is None:
            match expr:
                case ir.Read(tensor):
                    answer = tensor in wanted
                case ir.Map(_, inner):
                    answer = any(map(counts, inner))
                case ir.Select(_, then, otherwise):
                    answer = counts(then) or counts(otherwise)
                case ir.Normalize("rank"):
                    answer = False
                case ir.Reduce(body=body) | ir.Normalize(body=body):
                    answer = counts(body)
                case _:
                    answer = False
            found = known[id(expr)] = (expr, answer)
        return found[1]

    return counts


def _in_order(flow: _Flow, program: ir.Program) -> list[list[str]]:
    """Every tensor after all that pay it, those that pay each other together: what is complete first, inputs before
    definitions, the last ones first."""
    place = {name: number for number, name in enumerate(program.tensors)}
    owed = sorted(flow.owed, key=place.__getitem__)
    payers: dict[str, list[str]] = {name: [] for name in owed}
    for other in owed:
        for name in flow.targets.get(other, ()):
            if name in payers:
                payers[name].append(other)
    groups = components(payers)
    group_of = {name: number for number, group in enumerate(groups) for name in group}
    waiting = [{group_of[payer] for name in group for payer in payers[name]} for group in groups]
    paid: dict[int, list[int]] = {}
    for number, payer_groups in enumerate(waiting):
        payer_groups.discard(number)
        for other_number in payer_groups:
            paid.setdefault(other_number, []).append(number)
    inputs = {tensor.name for tensor in program.inputs}
    turns = [_turn(group, inputs, place) for group in groups]
    ready = [(turns[number], number) for number in range(len(groups)) if not waiting[number]]
    heapify(ready)
    result: list[list[str]] = []
    while ready:
        _, number = heappop(ready)
        result.append(sorted(groups[number], key=lambda name: -place[name]))
        for later in paid.get(number, ()):
            waiting[later].discard(number)
            if not waiting[later]:
                heappush(ready, (turns[later], later))
    return result


def _turn(group: list[str], inputs: set[str], place: Mapping[str, int]) -> tuple[bool, int]:
    return (False, place[group[0]]) if group[0] in inputs else (True, -max(place[name] for name in group))


# ------------------------------------------------------------------------- homes


def home_of(tensor: ir.Input | ir.Let, lead: tuple[ir.Range, ...], span: Span) -> tuple[ir.Range, ...]:
    """The coordinates of a tensor as those of its cotangent; beside others, a clash becomes `i_1`."""
    taken = {range.coordinate.name for range in lead}
    ranges = []
    for axis in tensor.axes:
        coordinate = fresh(plain(axis.coordinate, tensor), taken)
        taken.add(coordinate.name)
        ranges.append(ir.Range(coordinate, build.whole(0, span), axis.extent, False, span))
    return tuple(ranges)


def plain(coordinate: Coordinate, tensor: ir.Input | ir.Let) -> Coordinate:
    """A coordinate of a tensor under its plain name: one from inside a function has a number appended."""
    if isinstance(tensor, ir.Let) and tensor.hidden:
        return Coordinate(without_number(coordinate.name), coordinate.rest, coordinate.space)
    return coordinate


def _seed_terms(name: str, seeds: Seeds, home: tuple[ir.Range, ...], span: Span) -> list[Term]:
    places = tuple(build.coord(range.coordinate, span) for range in home)
    if not seeds.lead:
        return [Term(seeds.at(name, places, span), (), ())]
    wanted = (build.coord(range.coordinate, span) for range in seeds.lead)
    same = tuple(build.apply("==", pair, "bool", span) for pair in zip(wanted, seeds.led(places), strict=True))
    return [Term(Quotient(), (), same)]


def reached_from(program: ir.Program, of: Iterable[str]) -> frozenset[str]:
    """The tensors a change of which changes anything of what is differentiated."""
    flows = {let.name: _targets(let) for let in program.lets}
    return frozenset(reached(of, lambda name: flows.get(name, ())))


def live_between(program: ir.Program, seeds: Seeds, by: Sequence[str]) -> list[str]:
    """The tensors on a way from what is differentiated to `by`, both included."""
    return _Flow(program, seeds, by).live
