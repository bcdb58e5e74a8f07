"""Attention in any spelling: every one a definition of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import chain
from typing import TypeGuard

from ....facts.free_weights import free_gathers
from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.contents import Contents
from ....ir.algebra.factors import Forms
from ....ir.algebra.normal import ZERO, Form, Number, Product, Sum, TooLarge, form, plus
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.predicates import holds_exponential, is_exponential
from ....ir.algebra.writing import named, written
from ....ir.context import Trail, places_of
from ....ir.needs import members, needed
from ....ir.walk import fresh_name, reads_of, rebuild, walk
from ....plan.steps import Attention, Gathering, Recognized, Refusal
from ....records import dataclass, field, replace
from ....source import Span
from .empty_sums import Written
from .free_weights import Freed, causal_product, compares_own, free_attention, has_conditions
from .ordering import preceded
from .placement import Placement, place_attention
from .softpick import picked_attention
from .weights import Gathered, gather, placed

_STEPWISE = "it is made of itself, and computed step by step"


def recognize(
    program: ir.Program,
    wanted: tuple[str, ...],
    left: Collection[str] = (),
    kept: Collection[str] = (),
    contents: Contents | None = None,
) -> Recognized:
    """A program that says the same, in which every attention that the wanted definitions need is a definition
    of its own. A definition that is made of itself is `left` as it is, and so are these; what is `kept` is not written
    out where it is read."""
    wanted_here = needed(program, wanted) - set(left)
    contents = contents or Contents()
    search = _Search(program, Algebra(program, set(kept), contents))
    raised = any(is_exponential(part) for let in program.lets for part in contents.operations(let))
    for item in program.order if raised else ():
        if isinstance(item, ir.Stepwise):
            search.pass_by(name for name, _ in item.axes if name in wanted_here)
        elif item.name in wanted_here:
            search.define(item.name)
    search.free(wanted, wanted_here - set(kept))
    changed = preceded(program, search.before, search.lets) if search.attentions else program
    known = {name for name, made in search.before.items() if made} | search.attentions.keys()
    others = _other_weights(program, wanted_here - search.exponential - known, contents)
    gatherings = tuple(one for one in search.gatherings if search.lets[one.definition] in program.lets)
    return Recognized(changed, search.attentions, tuple(dict.fromkeys((*search.refusals, *others))), gatherings)


def _other_weights(program: ir.Program, names: Collection[str], contents: Contents) -> Iterator[Refusal]:
    """The attentions whose weights are no exponentials, of these definitions: no kernel computes them."""
    if not _divides_by_sums(program, names, contents):
        return
    from ....facts.view import View

    for found in View(program).gathers:
        if found.name in names and found.weights.score is None:
            reason = "its weights are no exponentials of scores, and a kernel wants these"
            yield Refusal(found.name, "fused attention", reason, found.span)


def _divides_by_sums(program: ir.Program, names: Collection[str], contents: Contents) -> bool:
    """Whether one of these definitions divides by a sum: to look for weights takes longer than to ask."""
    forms = Forms(program)
    lets = [let for let in program.lets if let.name in names]
    quotients = (part for let in lets for part in contents.operations(let) if _is_quotient(part))
    return any(isinstance(forms.written_out(part.arguments[1]), ir.Reduce) for part in quotients)


def _is_quotient(expr: ir.Expr) -> TypeGuard[ir.Map]:
    return isinstance(expr, ir.Map) and expr.op == "/" and bool(expr.arguments[1].type.coordinates)


class Recognizer:
    """Further definitions of a program as attentions: all that they are made of is gone through once for all."""

    def __init__(self, program: ir.Program, contents: Contents) -> None:
        self.search = _Search(program, Algebra(program, set(), contents))
        self.order = program.order
        self.place = {name: n for n, item in enumerate(program.order) for name in members(item)}
        self.seen: set[int] = set()

    @property
    def lets(self) -> Mapping[str, ir.Let]:
        """The definitions, as they are after what was found."""
        return self.search.lets

    def add(self, let: ir.Let) -> None:
        """A definition that the program has from now on, or has in another form."""
        self.search.algebra.add(let)

    def find(self, let: ir.Let) -> tuple[ir.Let, Attention] | str:
        """The definition as an attention; or why it is none."""
        self.add(let)
        for item in self._behind(let):
            if isinstance(item, ir.Stepwise):
                self.search.pass_by(members(item))
            else:
                self.search.define(item.name)
        known = len(self.search.refusals)
        self.search.define(let.name)
        if let.name in self.search.attentions:
            return self.search.lets[let.name], self.search.attentions[let.name]
        refused = (refusal.reason for refusal in self.search.refusals[known:])
        return next(refused, "no attention is recognised")

    def _behind(self, let: ir.Let) -> list[ir.Order]:
        """Return the definitions that this one needs and that were not visited yet, in their order."""
        found: set[int] = set()
        waiting = [let]
        while waiting:
            for read in reads_of(waiting.pop()):
                place = self.place.get(read.tensor)
                if place is not None and place not in self.seen:
                    self.seen.add(place)
                    found.add(place)
                    waiting += [self.search.lets[name] for name in members(self.order[place])]
        return [self.order[place] for place in sorted(found)]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an expression: its definition, its clause, and the ranges and conditions around it."""

    let: ir.Let
    clause: ir.Clause
    trail: Trail


@dataclass
class _Search:
    """The definitions of a program as they are gone through, those made on the way, and what was found. `exponential`
    are definitions with an exponential in them, or in what they are made of; those that are `opened` may bring weights
    into what reads them."""

    program: ir.Program
    algebra: Algebra
    attentions: dict[str, Attention] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    before: dict[str, tuple[ir.Let, ...]] = field(default_factory=dict)
    made: list[Placement] = field(default_factory=list)
    exponential: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    plausible: dict[int, bool] = field(default_factory=dict)
    gatherings: list[Gathering] = field(default_factory=list)

    @property
    def lets(self) -> dict[str, ir.Let]:
        return self.algebra.lets

    @property
    def contents(self) -> Contents:
        return self.algebra.contents

    def define(self, name: str) -> None:
        """Look for attentions in a definition, and put it in place with them as definitions before it."""
        let = self.lets[name]
        self.algebra.work = self.algebra.depth = 0
        self.plausible.clear()
        self.made = []
        clauses: Sequence[ir.Clause] = let.clauses
        may_gather = self._may_gather_in(let)
        if may_gather:
            clauses = [self._rewritten(clause, let) for clause in clauses]
        if self.made:
            self._put(replace(let, clauses=tuple(clauses)))
        opens = self.algebra.is_opened(name)
        if name in self.algebra.kept:
            return
        if may_gather and any(self.may_gather(clause.body) for clause in clauses):
            self.exponential.add(name)
            self.opened |= {name} if opens else set()
        elif self._is_exponential(let):
            self.exponential.add(name)

    def _rewritten(self, clause: ir.Clause, let: ir.Let) -> ir.Clause:
        trail: Trail = clause.ranges if clause.guard is None else (*clause.ranges, (clause.guard, True))
        body = self.rewrite(clause.body, Place(let, clause, trail))
        return clause if body is clause.body else replace(clause, body=body)

    def pass_by(self, names: Iterable[str]) -> None:
        """Leave definitions that are made of themselves, and say so where weights are in them, or are gathered with."""
        lets = [self.lets[name] for name in names]
        weights = {let.name for let in lets if self._is_exponential(let)}
        for let in lets:
            sums = [part for c in let.clauses for part in walk(c.body) if isinstance(part, ir.Reduce)]
            gathers = any(isinstance(part, ir.Read) and part.tensor in weights for s in sums for part in walk(s))
            if let.name in weights or gathers:
                self.refusals.append(Refusal(let.name, "fused attention", _STEPWISE, let.span))

    def _put(self, let: ir.Let) -> None:
        """A definition that only reads the one attention that was made for it, at its own coordinates, is it."""
        if is_one(let, self.made):
            made = self.made[0]
            let = replace(let, clauses=(replace(let.clauses[0], body=made.let.clauses[0].body),))
            self.made = []
            self.attentions[let.name] = made.attention
            self.algebra.kept.add(let.name)
        for placement in self.made:
            self.attentions[placement.let.name] = placement.attention
            self.algebra.kept.add(placement.let.name)
            self.algebra.put(placement.let)
        self.algebra.put(let)
        self.before[let.name] = tuple(placement.let for placement in self.made)

    # ---------------------------------------------------------------- free weights

    def free(self, wanted: tuple[str, ...], names: AbstractSet[str]) -> None:
        """Put every attention whose weights nothing normalises in place, unless its weights are there anyway: because
        they are wanted, or because something else needs them."""
        found = self._freed(names)
        for name in found.keys() & self.program.recurrent:
            del found[name]
            self.refusals.append(Refusal(name, "stream", _STEPWISE, self.lets[name].span))
        while found:
            after = {name: _without(self.lets[name], parts) for name, parts in found.items()}
            after |= {placed.let.name: placed.let for parts in found.values() for p in parts for placed in p.placements}
            there = needed(replace(self.program, lets=tuple({**self.lets, **after}.values())), wanted)
            built = {name for name, parts in found.items() if any(part.inlined & there for part in parts)}
            if not built:
                break
            for name in built:
                reason = "its weights are needed by others too, and built"
                self.refusals.append(Refusal(name, "stream", reason, self.lets[name].span))
            found = {name: parts for name, parts in found.items() if name not in built}
        for name, parts in found.items():
            self.made = [placement for part in parts for placement in part.placements]
            self._put(_without(self.lets[name], parts))

    def _freed(self, names: AbstractSet[str]) -> dict[str, list[Freed]]:
        """The attentions of that kind, by the definitions that they stand in."""
        result: dict[str, list[Freed]] = {}
        lets = [let for let in self.program.lets if let.name in names and let.name not in self.attentions]
        lets = [let for let in lets if self.lets[let.name] is let and self._sums(let)]
        if not lets:
            return result
        comparing = {name for name, let in self.lets.items() if compares_own(let, self.contents)}
        for item in self.program.order:
            if isinstance(item, ir.Once) and item.name in names and item.name not in self.attentions:
                self._causal(self.lets[item.name], comparing, result)
        taken = {id(part) for parts in result.values() for found in parts for part in walk(found.total)}
        may_pick = any(map(_is_size, chain.from_iterable(map(self.contents.operations, self.program.lets))))
        from ....facts.view import View

        view, own = View(self.program), {let.name for let in lets}
        written = names - self.exponential - self.attentions.keys()
        every = view.gathers if _divides_by_sums(self.program, written, self.contents) else ()
        divided = (found for found in every if found.weights.score is None and found.name in own)
        divided = (found for found in divided if isinstance(found.site.expr, ir.Reduce))
        for found in sorted((*free_gathers(view, lets), *divided), key=lambda gather: not gather.values):
            let = found.site.let
            if id(found.site.expr) in taken:
                continue
            new = self._names(f"{let.name}_attention", result)
            picked = picked_attention(self.algebra, found, new) if may_pick and found.values else None
            made = picked or free_attention(self.algebra, found, new)
            if made is not None and found.values:
                self.gatherings.append(Gathering(let.name, found.key.range, found.asks))
            if isinstance(made, str):
                self.refusals.append(Refusal(let.name, "stream", made, found.span))
            elif made is not None and (found.values or result):
                result.setdefault(let.name, []).append(made)
                taken |= {id(part) for part in walk(made.total)}
        return result

    def _causal(self, let: ir.Let, comparing: AbstractSet[str], result: dict[str, list[Freed]]) -> None:
        """Add the causal products of a definition: a kernel takes these in chunks. It is not written out where it is
        read."""
        guarded = any(clause.guard is not None for clause in let.clauses)
        if not (guarded or (self._sums(let) and (comparing or has_conditions(self.contents.operations(let))))):
            return

        def name() -> str:
            return next(self._names(f"{let.name}_attention", result))

        for clause in let.clauses:
            for expr, trail in places_of(clause):
                if _sums_reals(expr):
                    found = causal_product(self.apart, let, clause, expr, trail, name, comparing)
                    if found is not None:
                        self.apart.kept.add(let.name)
                        result.setdefault(let.name, []).append(found)

    @cached_property
    def apart(self) -> Algebra:
        """The normal forms of what was found, in which causal products are kept as well."""
        return Algebra(replace(self.program, lets=tuple(self.lets.values())), set(self.algebra.kept), self.contents)

    def _sums(self, let: ir.Let) -> bool:
        """Whether a definition sums products: known without looking into them."""
        return any(map(_sums_reals, self.contents.operations(let)))

    def _names(self, name: str, found: Mapping[str, list[Freed]]) -> Iterator[str]:
        """Names like this one that nothing has."""
        taken = {tensor.name for tensor in self.program.inputs} | self.lets.keys()
        taken |= {placed.let.name for parts in found.values() for part in parts for placed in part.placements}
        while True:
            name = fresh_name(name, taken)
            taken.add(name)
            yield name

    # --------------------------------------------------------------------- expressions

    def may_gather(self, expr: ir.Expr) -> bool:
        """Whether weights could be in an expression at all."""
        if id(expr) not in self.plausible:
            self.plausible[id(expr)] = any(
                is_exponential(part) or (isinstance(part, ir.Read) and part.tensor in self.opened)
                for part in walk(expr)
            )
        return self.plausible[id(expr)]

    def _is_exponential(self, let: ir.Let) -> bool:
        """Whether an exponential is in a definition, or in what it is made of."""
        return any(read.tensor in self.exponential for read in reads_of(let)) or self._may_gather_in(let)

    def _may_gather_in(self, let: ir.Let) -> bool:
        """Whether weights could be in a definition at all."""
        if not self.opened.isdisjoint(self.contents.reads(let)):
            return True
        return any(map(is_exponential, self.contents.operations(let)))

    def rewrite(self, expr: ir.Expr, place: Place) -> ir.Expr:
        """The expression with a read in place of every attention in it; itself where there is none."""
        if not self.may_gather(expr):
            return expr
        reasons: list[str] = []
        made = len(self.made)
        if expr.type.kind == "real" and _is_product(expr) and self._has_sum(expr):
            found = self._site(expr, place, reasons)
            if found is not None:
                return found
            del self.made[made:]
        parts = list(inside(expr, place.trail))
        changed = [self.rewrite(part, replace(place, trail=inner)) for part, inner in parts]
        if len(self.made) == made:
            self.refusals += [Refusal(place.let.name, "fused attention", reason, expr.span) for reason in reasons]
            return expr
        remaining = iter(changed)
        return rebuild(expr, lambda _: next(remaining))

    def _has_sum(self, expr: ir.Expr) -> bool:
        """Whether there is a sum above the line of a product, in place or by a name."""
        match expr:
            case ir.Reduce(op):
                return op in ("sum", "mean")
            case ir.Map("*", arguments):
                return any(map(self._has_sum, arguments))
            case ir.Map("/" | "neg", arguments):
                return self._has_sum(arguments[0])
            case ir.Select(_, then, otherwise):
                return self._has_sum(then) or self._has_sum(otherwise)
            case ir.Read(tensor) if tensor in self.opened:
                return self.algebra.has_sum(tensor)
            case _:
                return False

    def _site(self, expr: ir.Expr, place: Place, reasons: list[str]) -> ir.Expr | None:
        """A product with its attentions as reads; None, and why, where there is none in it."""
        scope = {step.coordinate: step for step in place.trail if isinstance(step, ir.Range)}
        try:
            whole = self.algebra.form(expr, scope)
            source = Written(expr, place.let.name)
            terms = [(gather(self.algebra, n, term, place.trail, source), n, term) for n, term in whole.terms]
        except TooLarge:
            reasons.append("what it is made of grows too large when it is written out")
            return None
        for found, _, _ in terms:
            if not isinstance(found, Gathered):
                reasons += found
        if not any(isinstance(atom, Sum) for _, term in whole.terms for atom, _ in term.factors):
            reasons.append("its weights sum to 1 and cancel: nothing in it varies with the key")
        if not any(isinstance(found, Gathered) for found, _, _ in terms):
            return None
        values: list[Form] = []
        for found, number, term in terms:
            value = self._value(found, number, term, place, expr.span, reasons)
            if value is None:
                return None
            values.append(value)
        return named(_added(values, expr.span), (coordinate.name for coordinate in scope))

    def _value(
        self,
        found: Gathered | list[str],
        number: Number,
        term: Product,
        place: Place,
        span: Span,
        reasons: list[str],
    ) -> Form | None:
        """A term as it stands, or with a read in place of its attention."""
        value = form(((number, term),))
        if isinstance(found, Gathered):
            name = self._fresh(f"{place.let.name}_attention")
            placement = place_attention(self.algebra, found, name, place.let, place.clause, place.trail, span)
            if isinstance(placement, str):
                reasons.append(placement)
                return None
            self.made.append(placement)
            doubts = [Refusal(place.let.name, "guard", doubt, span) for doubt in found.doubts]
            self.refusals += doubts
            value = placed(self.algebra, found, placement.read)
        if any(holds_exponential(atom) for _, term in value.terms for atom, _ in term.factors):
            reasons.append("other sums of exponentials stand beside it")
            return None
        return value

    def _fresh(self, name: str) -> str:
        inputs = (tensor.name for tensor in self.program.inputs)
        return fresh_name(name, {*inputs, *self.lets, *(placement.let.name for placement in self.made)})


def _added(values: list[Form], span: Span) -> ir.Expr:
    """Forms as one sum, those that are taken away behind the others."""
    result: ir.Expr | None = None
    for value in sorted(values, key=_is_negative):
        if result is not None and _is_negative(value):
            result = build.apply("-", (result, written(plus(ZERO, value, -1), span)), "real", span)
        else:
            part = written(value, span)
            result = part if result is None else build.apply("+", (result, part), "real", span)
    assert result is not None
    return result


def _is_negative(value: Form) -> bool:
    return bool(value.terms) and all(number < 0 for number, _ in value.terms)


def _without(let: ir.Let, parts: list[Freed]) -> ir.Let:
    """A definition that reads attentions in place of the sums that they are."""
    instead = {id(part.total): part.instead for part in parts}

    def changed(expr: ir.Expr) -> ir.Expr:
        return instead[id(expr)] if id(expr) in instead else rebuild(expr, changed)

    return replace(let, clauses=tuple(replace(clause, body=changed(clause.body)) for clause in let.clauses))


def _sums_reals(expr: ir.Expr) -> TypeGuard[ir.Reduce]:
    return isinstance(expr, ir.Reduce) and expr.op == "sum" and expr.type.kind == "real"


def _is_size(expr: ir.Expr) -> bool:
    """Whether an expression is how large something is: weights that are picked are divided by the sum of that."""
    return isinstance(expr, ir.Map) and expr.op == "abs"


def _is_product(expr: ir.Expr) -> bool:
    if isinstance(expr, ir.Reduce):
        return expr.op in ("sum", "mean")
    return isinstance(expr, ir.Map) and expr.op in ("*", "/")


def is_one(let: ir.Let, made: list[Placement]) -> bool:
    """Whether a definition is the one attention that was made for it."""
    if len(made) != 1 or len(let.clauses) != 1:
        return False
    clause, placement = let.clauses[0], made[0].let
    body = clause.body
    if not all(isinstance(slot, ir.Coord) for slot in clause.slots):
        return False
    if not isinstance(body, ir.Read) or body.tensor != placement.name or placement.clauses[0].guard != clause.guard:
        return False
    return {axis.coordinate for axis in placement.axes} == {r.coordinate for r in clause.ranges}


def inside(expr: ir.Expr, trail: Trail) -> Iterator[tuple[ir.Expr, Trail]]:
    """Yield the direct parts of an expression, in the order of `rebuild`, with the trail around each."""
    match expr:
        case ir.Const() | ir.Coord() | ir.Size():
            return
        case ir.Array(indices=inner) | ir.Read(indices=inner) | ir.Map(arguments=inner):
            yield from ((part, trail) for part in inner)
        case ir.Select(condition, then, otherwise):
            yield condition, trail
            yield then, (*trail, (condition, True))
            yield otherwise, (*trail, (condition, False))
        case ir.Reduce(_, ranges, body, guard):
            bounds = [(bound, trail) for r in ranges for bound in (r.lower, r.upper)]
            yield from bounds
            trail = (*trail, *ranges)
            yield body, trail if guard is None else (*trail, (guard, True))
            if guard is not None:
                yield guard, trail
        case ir.Normalize(_, coordinate, body, guard):
            trail = tuple(s for s in trail if isinstance(s, ir.Range) or coordinate not in s[0].type.coordinates)
            yield body, trail if guard is None else (*trail, (guard, True))
            if guard is not None:
                yield guard, trail
