"""The logarithm of a sum of exponentials of scores, in any spelling: an attention has it for each of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from fractions import Fraction
from itertools import permutations
from typing import TypeAlias

from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.canonical import text
from ....ir.algebra.contents import Contents
from ....ir.algebra.normal import (
    ZERO,
    Form,
    Leaf,
    Logarithm,
    Number,
    Product,
    TooLarge,
    form,
    plus,
    product,
    single,
    times,
)
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.predicates import holds_exponential
from ....ir.algebra.writing import named, written
from ....ir.context import Trail
from ....ir.needs import reached, read_in
from ....ir.types import Coordinate
from ....ir.walk import fresh_name, reads_of, rebuild, substitute, walk
from ....plan.steps import Attention, Gathering, Recognized, Refusal, Softmax
from ....records import dataclass, field, replace
from .ordering import following, preceded
from .placement import Placement, place_attention
from .recognize import Place, inside, is_one
from .scores import lay_out
from .weights import gather_total, holds_extreme

# A definition that is a total, with its axes in coordinates of the attention that computes it; and all by attention.
Beside: TypeAlias = tuple[str, tuple[Coordinate, ...]]
Totals: TypeAlias = Mapping[str, Sequence[Beside]]

# The definitions that are needed in a program, of whose attentions kernels compute the totals.
Needed = Callable[[ir.Program, Mapping[str, Attention]], AbstractSet[str]]


def find_totals(
    found: Recognized, wanted: Collection[str], spared: AbstractSet[str], needed: Needed, contents: Contents
) -> Recognized:
    """The program with the logarithm of each sum of exponentials of scores as a definition of its own, which a kernel
    computes; but for what is `spared`, and where scores are built for others in any case."""
    names = needed(found.program, found.attentions) - found.attentions.keys() - spared - found.program.recurrent
    lets = [let for let in found.program.lets if let.name in names and has_logarithms(let, contents)]
    if not lets:
        return found
    search = _Search(found.program, Algebra(found.program, set(found.attentions), contents))
    for let in lets:
        search.define(let)
    gatherings = list(found.gatherings)
    for name, (let, placements) in [*search.changed.items()]:
        program, attentions = search.program_with(found)
        built = needed(program, attentions) & search.scores[name]
        if built:
            reason = f"`{min(built)}` is built in any case"
            search.refusals += [Refusal(name, "stream", reason, let.span)] if is_one(let, placements) else []
            gatherings += search.gatherings(name, placements) if built.isdisjoint(wanted) else ()
            del search.changed[name]
    refusals = (*found.refusals, *search.refusals)
    program, attentions = search.program_with(found)
    return replace(found, program=program, attentions=attentions, refusals=refusals, gatherings=tuple(gatherings))


def has_logarithms(let: ir.Let, contents: Contents) -> bool:
    """Whether there may be totals in a definition: known without looking into it."""
    return any(map(_is_logarithm, contents.operations(let)))


def _is_logarithm(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Map) and (expr.op == "log" or expr.op == "log1p")


def _plainly(expr: ir.Expr) -> ir.Expr:
    """The expression with its logarithms as the algebra takes them apart: `log1p(x)` is `log(1 + x)`."""
    match rebuild(expr, _plainly):
        case ir.Map("log1p", (inner,)):
            one = build.real(Fraction(1), expr.span)
            return build.apply("log", (build.apply("+", (one, inner), "real", expr.span),), "real", expr.span)
        case ir.Map("expm1", (inner,)):
            one = build.real(Fraction(1), expr.span)
            raised = build.apply("exp", (inner,), "real", expr.span)
            return build.apply("-", (raised, one), "real", expr.span)
        case changed:
            return changed


@dataclass
class _Search:
    """The totals of a program: `changed` are the definitions that have some, each with those that go before it, and
    `scores` what is as large as the scores of each and was read for it; `shifts` are the keys of what all scores of a
    total shared, and is added to it."""

    program: ir.Program
    algebra: Algebra
    changed: dict[str, tuple[ir.Let, list[Placement]]] = field(default_factory=dict)
    scores: dict[str, set[str]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    made: list[Placement] = field(default_factory=list)
    shifts: set[str] = field(default_factory=set)

    def program_with(self, found: Recognized) -> tuple[ir.Program, dict[str, Attention]]:
        """The program with what was found so far, and all its attentions."""
        attentions = dict(found.attentions)
        changed: dict[str, ir.Let] = {}
        before: dict[str, list[ir.Let]] = {}
        for name, (let, placements) in self.changed.items():
            if is_one(let, placements):
                placed = placements[0]
                let = replace(let, clauses=(replace(let.clauses[0], body=placed.let.clauses[0].body),))
                attentions[name] = placed.attention
            else:
                before[name] = [placed.let for placed in placements]
                attentions |= {placed.let.name: placed.attention for placed in placements}
            changed[name] = let
        return preceded(found.program, before, changed), attentions

    def define(self, let: ir.Let) -> None:
        """Look for totals in a definition."""
        self.algebra.work = self.algebra.depth = 0
        self.made = []
        clauses = []
        for clause in let.clauses:
            trail: Trail = clause.ranges if clause.guard is None else (*clause.ranges, (clause.guard, True))
            clauses.append(replace(clause, body=self.rewrite(clause.body, Place(let, clause, trail))))
        if self.made:
            self.changed[let.name] = replace(let, clauses=tuple(clauses)), self.made
            self.scores[let.name] = {name for placed in self.made for name in self._large(let, placed)}

    def _behind(self, let: ir.Let) -> list[str]:
        """The definitions that one is made of, it first."""
        lets = self.algebra.lets
        return reached([let.name], lambda name: [r.tensor for r in reads_of(lets[name]) if r.tensor in lets])

    def _large(self, let: ir.Let, placed: Placement) -> set[str]:
        """The definitions that it is made of and that have a point for each pair of a query and a key."""
        lets = self.algebra.lets
        pair = Counter([*(text(axis.extent) for axis in placed.let.axes), text(placed.attention.key.upper)])
        found = {name: Counter(text(axis.extent) for axis in lets[name].axes) for name in self._behind(let)}
        return {name for name, extents in found.items() if pair <= extents and lets[name].kind == "real"}

    def gatherings(self, name: str, placements: list[Placement]) -> Iterator[Gathering]:
        """The sums that totals are of, where their scores are built."""
        lets = self.algebra.lets
        for placed in placements:
            key, axes = text(placed.attention.key.upper), {a.coordinate: text(a.extent) for a in placed.let.axes}
            rows = {axes[c] for c in lay_out(placed.attention, tuple(axes)).rows}
            for behind in self._behind(lets[name]):
                asks = frozenset(a.coordinate for a in lets[behind].axes if text(a.extent) in rows)
                for part in self.algebra.contents.operations(lets[behind]):
                    if not isinstance(part, ir.Reduce) or part.op != "sum" or text(part.ranges[0].upper) != key:
                        continue
                    if asks and self.scores[name] & set(read_in(part)):
                        yield Gathering(behind, part.ranges[0], asks)

    def rewrite(self, expr: ir.Expr, place: Place) -> ir.Expr:
        """The expression with a read in place of every total in it; itself where there is none."""
        if not any(map(_is_logarithm, walk(expr))):
            return expr
        if _is_logarithm(expr) or (isinstance(expr, ir.Map) and expr.op in ("+", "-")):
            count = len(self.made)
            found = self._site(expr, place)
            if found is not None:
                return found
            del self.made[count:]
        count = len(self.made)
        changed = [self.rewrite(part, replace(place, trail=inner)) for part, inner in inside(expr, place.trail)]
        if len(self.made) == count:
            return expr
        remaining = iter(changed)
        return rebuild(expr, lambda _: next(remaining))

    def _site(self, expr: ir.Expr, place: Place) -> ir.Expr | None:
        """A sum with its totals as reads; None where there is none in it, or another sum of exponentials."""
        scope = {step.coordinate: step for step in place.trail if isinstance(step, ir.Range)}
        try:
            terms = self.algebra.form(_plainly(expr), scope).terms
            values = [self._value(number, term, place, expr) for number, term in terms]
        except TooLarge:
            return None
        result = ZERO
        for value in values:
            if value is None or any(holds_exponential(atom) for _, term in value.terms for atom, _ in term.factors):
                return None
            result = plus(result, value)
        # The largest of no scores is -inf, as the logarithm of no weights is, and one less the other is NaN.
        left = [one for one in result.terms if one[1].key in self.shifts]
        if any(holds_extreme(self.algebra, form((one,)), expr.span) for one in left):
            return None
        return named(written(result, expr.span), (c.name for c in scope)) if self.made else None

    def _value(self, number: Number, term: Product, place: Place, expr: ir.Expr) -> Form | None:
        """A term as it stands, or with a read in place of its total; None where a logarithm in it is none."""
        logarithms = [(atom, power) for atom, power in term.factors if isinstance(atom, Logarithm)]
        if not logarithms:
            return form(((number, term),))
        atom, power = logarithms[0]
        if len(term.factors) > 1 or power != 1 or term.exponent is not None:
            return None
        found = gather_total(self.algebra, atom, place.trail, expr, place.let.name)
        if found is None or not found.coordinates:
            return None
        name = self._fresh(f"{place.let.name}_total")
        placed = place_attention(self.algebra, found, name, place.let, place.clause, place.trail, expr.span)
        if isinstance(placed, str) or not _compares(placed.attention):
            return None
        self.made.append(placed)
        self.refusals += [Refusal(place.let.name, "guard", doubt, expr.span) for doubt in found.doubts]
        read = single(Leaf(placed.read, f"1{text(placed.read)}", placed.read.type.coordinates, 0))
        left = ZERO if found.inside.exponent is None else found.inside.exponent
        self.shifts |= {one.key for _, one in left.terms}
        around = product((), None, term.conditions, term.absent, term.skipped)
        return times(form(((number, around),)), plus(read, left))

    def _fresh(self, name: str) -> str:
        taken = {*self.program.tensors, *(placed.let.name for placed in self.made)}
        for _, placements in self.changed.values():
            taken |= {placed.let.name for placed in placements}
        return fresh_name(name, taken)


def _compares(attention: Attention) -> bool:
    """Whether scores are sums of products, one for each pair of a query and a key: what is built takes more memory than
    all that it is made of."""
    key, axes = attention.coordinate, attention.asked - {attention.coordinate}
    sums = [part for part in walk(attention.score) if isinstance(part, ir.Reduce) and part.op == "sum"]
    return any(key in part.type.coordinates and axes & part.type.coordinates for part in sums)


# ------------------------------------------------------------------------ beside an attention


def beside_attentions(
    found: Recognized, needed: AbstractSet[str], contents: Contents
) -> tuple[Recognized, Totals]:
    """The attentions without the totals that another one has: these by that one, each with its axes in coordinates of
    the other; in an order in which both are computed at once."""
    totals = [name for name, attention in found.attentions.items() if attention.total and name in needed]
    if not totals:
        return found, {}
    algebra = Algebra(found.program, set(found.attentions), contents)
    lets = found.program.definitions
    pairs: dict[str, list[Beside]] = {}
    for name in totals:
        for other, attention in found.attentions.items():
            if attention.total or other not in needed or not isinstance(attention.normaliser, Softmax):
                continue
            axes = _shared_axes(algebra, lets[name], found.attentions[name], lets[other], attention)
            program = None if axes is None else following(found.program, name, other)
            if axes is not None and program is not None:
                rest = {n: a for n, a in found.attentions.items() if n != name}
                found = replace(found, program=program, attentions=rest)
                pairs.setdefault(other, []).append((name, axes))
                break
    return found, pairs


def _shared_axes(
    algebra: Algebra, let: ir.Let, total: Attention, other: ir.Let, attention: Attention
) -> tuple[Coordinate, ...] | None:
    """The coordinates of an attention that the axes of a total are, where both have the same weights."""
    asked = [axis for axis in other.axes if axis.coordinate in attention.asked]
    guards = [one.clauses[0].guard for one in (let, other)]
    if len(asked) != len(let.axes) or guards != [None, None]:
        return None
    key = build.coord(attention.coordinate, total.key.span)
    wanted = _weights(algebra, attention, {})
    for order in permutations(asked):
        if any(text(a.extent) != text(b.extent) for a, b in zip(let.axes, order, strict=True)):
            continue
        names = {a.coordinate: build.coord(b.coordinate, key.span) for a, b in zip(let.axes, order, strict=True)}
        if _weights(algebra, total, {**names, total.coordinate: key}) == wanted:
            return tuple(axis.coordinate for axis in order)
    return None


def _weights(algebra: Algebra, attention: Attention, names: Mapping[Coordinate, ir.Expr]) -> tuple[object, ...]:
    """All that the weights of an attention are made of, in normal form and other coordinates."""
    algebra.work = algebra.depth = 0
    score, *sink = (
        algebra.plain(substitute(part, names)).key
        for part in (attention.score, *(() if attention.sink is None else (attention.sink,)))
    )
    guard = build.conjunction(substitute(condition, names) for condition in attention.guard)
    conditions = frozenset() if guard is None else frozenset(algebra.conditions(guard))
    return score, *sink, conditions, text(attention.key.lower), text(attention.key.upper)
