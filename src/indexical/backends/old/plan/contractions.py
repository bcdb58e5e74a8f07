"""Scores at distances: `sum[d](Q[i, d] * R[i - j, d])` is `G[i, i - j]`, where `G[i, p] = sum[d](Q[i, d] * R[p, d])`.

As written, every pair of query and key has a product of its own. Contracted first it is one product of matrices, of
which each pair reads a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import expression, of_atom, polynomial
from ....ir.algebra.canonical import text
from ....ir.algebra.factors import Factor, added, product_of
from ....ir.conditions import conjuncts_of
from ....ir.types import Coordinate
from ....ir.walk import fresh, fresh_name, is_bare, walk
from ....plan.steps import Attention, Recognized, Refusal
from ....records import dataclass, field, replace
from .ordering import definition, preceded
from .placement import restated
from .reach import reach

CONTRACTED = "a product of matrices"


# A product, and whether it is added.
Term = tuple[list[Factor], bool]


def contract(found: Recognized) -> tuple[Recognized, dict[str, list[Refusal]]]:
    """The attentions with every sum of their scores that reads an array at a place of query and key contracted before
    that place is taken, as a definition of its own; and why others are not."""
    search = _Contraction(found.program)
    attentions = dict(found.attentions)
    changed: dict[str, ir.Let] = {}
    before: dict[str, list[ir.Let]] = {}
    for let in found.program.lets:
        if let.name in attentions:
            made = len(search.made)
            attention = search.contracted(let, attentions[let.name])
            if len(search.made) > made:
                attentions[let.name] = attention
                changed[let.name] = restated(let, attention)
                before[let.name] = search.made[made:]
    if not changed:
        return found, search.refusals
    return replace(found, program=preceded(found.program, before, changed), attentions=attentions), search.refusals


@dataclass
class _Contraction:
    program: ir.Program
    made: list[ir.Let] = field(default_factory=list)
    refusals: dict[str, list[Refusal]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lets = self.program.definitions
        self.tensors = dict(self.program.tensors)

    def contracted(self, let: ir.Let, attention: Attention) -> Attention:
        ranges = {range.coordinate: range for range in (*let.clauses[0].ranges, attention.key)}
        held = {text(condition): condition for condition in attention.guard}
        asks = let.clauses[0].body.type.coordinates - attention.value.type.coordinates
        sums = [part.type.coordinates for part in walk(attention.score) if isinstance(part, ir.Reduce)]
        compares = any(attention.coordinate in varies and varies & asks for varies in sums)
        site = _Site(self, let, ranges, held, attention.coordinate, asks, compares)
        return replace(attention, score=site.rewritten(attention.score))


@dataclass
class _Site:
    """A score: the ranges of its coordinates, and the conditions under which it is evaluated, by their text. One that
    `compares` has a sum with a point for every pair."""

    owner: _Contraction
    let: ir.Let
    ranges: Mapping[Coordinate, ir.Range]
    held: Mapping[str, ir.Expr]
    key: Coordinate
    asks: frozenset[Coordinate]
    compares: bool

    def rewritten(self, expr: ir.Expr) -> ir.Expr:
        """The score with what is contracted read by name; what is not is left as it is."""
        match expr:
            case ir.Map("*" | "/" as op, (ir.Reduce("sum") as total, scale)) if not scale.type.coordinates:
                return self.total(total, (Factor(scale, op == "/"),))
            case ir.Map("*", (scale, ir.Reduce("sum") as total)) if not scale.type.coordinates:
                return self.total(total, (Factor(scale),))
            case ir.Map(op, arguments) if expr.type.kind == "real":
                changed = tuple(self.rewritten(argument) for argument in arguments)
                return expr if changed == arguments else build.apply(op, changed, "real", expr.span)
            case ir.Select(condition, then, otherwise):
                then, otherwise = self.rewritten(then), self.rewritten(otherwise)
                if then is expr.then and otherwise is expr.otherwise:
                    return expr
                return build.select(condition, then, otherwise, expr.span)
            case ir.Reduce("sum") if expr.type.kind == "real":
                return self.total(expr)
            case _:
                return expr

    def total(self, expr: ir.Reduce, scale: tuple[Factor, ...] = ()) -> ir.Expr:
        """A sum, scaled, as the sum of its products, each contracted where it may be."""
        whole = product_of((Factor(expr), *scale), expr)
        if any(range.depends_on for range in expr.ranges):
            return whole
        if not self.holds_distant(expr.body):
            return self.apart(expr, whole)
        outside: list[ir.Expr] = []
        for condition in conjuncts_of(expr.guard):
            if condition.type.coordinates & expr.coordinates:
                self.refuse(expr, "what is compared has a guard of its own")
                return whole
            if text(condition) not in self.held:
                outside.append(condition)
        made, parts = len(self.owner.made), []
        for factors, positive in multiplied_out(expr.body, self.is_distant, self.is_held):
            part = self.part(expr, [*scale, *factors])
            if part is None:
                plain = build.reduce("sum", expr.ranges, product_of(factors, expr), None, "real", expr.span)
                part = product_of((Factor(plain), *scale), expr)
            parts.append((part, positive))
        result = added(parts, expr.span)
        if result is None or len(self.owner.made) == made:
            return whole
        guard = build.conjunction(outside)
        return result if guard is None else build.select(guard, result, build.whole(0, expr.span), expr.span)

    def apart(self, expr: ir.Reduce, whole: ir.Expr) -> ir.Expr:
        """A sum that varies with the query or with the key alone, scaled: computed once for all pairs."""
        varies = expr.type.coordinates
        if not self.compares or not varies or not varies <= self.ranges.keys():
            return whole
        if self.key in varies and varies & self.asks:
            return whole
        if not is_bare(whole) or not all(self.ranges[c].is_counted for c in varies):
            return whole
        return self.defined(whole, [c for c in self.ranges if c in varies], None, "score")

    def is_distant(self, expr: ir.Expr) -> bool:
        """Whether an expression is read at a place of query and key."""
        return isinstance(expr, ir.Read) and any(self.is_pair(index) for index in expr.indices)

    def is_pair(self, index: ir.Expr) -> bool:
        varies = index.type.coordinates
        return self.key in varies and bool(varies & self.asks)

    def refuse(self, expr: ir.Expr, reason: str) -> None:
        refusal = Refusal(self.let.name, CONTRACTED, reason, expr.span)
        known = self.owner.refusals.setdefault(self.let.name, [])
        if refusal not in known:
            known.append(refusal)

    # ------------------------------------------------------------------------ products

    def holds_distant(self, expr: ir.Expr) -> bool:
        return any(self.is_distant(part) for part in walk(expr))

    def is_held(self, condition: ir.Expr) -> bool:
        return all(text(part) in self.held for part in conjuncts_of(condition))

    def part(self, expr: ir.Reduce, factors: list[Factor]) -> ir.Expr | None:
        """A product under a sum as a read of what is contracted; None, and why, where that is not done."""
        distant = [factor for factor in factors if self.holds_distant(factor.expr)]
        if not distant:
            return None
        read, reason = distant[0].expr, self.reason(expr, factors, distant)
        if reason is not None:
            self.refuse(expr, reason)
            return None
        assert isinstance(read, ir.Read)
        place = next(n for n, index in enumerate(read.indices) if self.is_pair(index))
        index, axis = read.indices[place], self.owner.tensors[read.tensor].axes[place]
        highest = reach(index, self.ranges, self.owner.lets, self.held.values()).highest
        assert highest is not None
        new = self.coordinate(expr, axis.coordinate)
        others = [factor for factor in factors if factor is not distant[0]]
        indices = (*read.indices[:place], build.coord(new, index.span), *read.indices[place + 1 :])
        table = build.read(read.tensor, indices, "real", read.span)
        body = product_of([*others, Factor(table)], expr)
        total = build.reduce("sum", expr.ranges, body, None, "real", expr.span)
        own = [c for c in self.ranges if c in total.type.coordinates]
        place_of = ir.Range(new, build.whole(0, index.span), extent_read(axis.extent, highest), True, index.span)
        return self.defined(total, own, (place_of, index), read.tensor)

    def reason(self, expr: ir.Reduce, factors: Sequence[Factor], distant: Sequence[Factor]) -> str | None:
        """Why a product is not contracted before its place is taken."""
        read = distant[0].expr
        if len(distant) > 1 or distant[0].inverse or not isinstance(read, ir.Read):
            return "more than one factor is read at a place of query and key"
        pairs = [index for index in read.indices if self.is_pair(index)]
        rest = [index for index in read.indices if not self.is_pair(index)]
        beside = [factor.expr for factor in factors if factor is not distant[0]]
        if len(pairs) > 1 or pairs[0].type.coordinates & expr.coordinates:
            return f"`{read.tensor}` is read at two places of query and key"
        varies = build.varying((*beside, *rest)) - expr.coordinates
        if not varies <= self.ranges.keys() or pairs[0].type.coordinates <= varies:
            return "what is compared varies with query and key already"
        if not all(map(is_bare, beside)) or not all(isinstance(index, ir.Coord | ir.Const) for index in rest):
            return "what is compared may be out of bounds where a guard removes it"
        if not all(self.ranges[c].is_counted for c in varies) or not starts_at_zero(self.owner.lets, read):
            return "a range around it does not start at 0, or depends on another coordinate"
        if reach(pairs[0], self.ranges, self.owner.lets, self.held.values()).highest is None:
            return f"how far `{read.tensor}` is read is known only from data"
        return None

    def coordinate(self, expr: ir.Reduce, like: Coordinate) -> Coordinate:
        """A name for the places."""
        taken = {c.name for c in (*self.ranges, *expr.coordinates)}
        return fresh(Coordinate(like.name, False, like.space), taken)

    def defined(
        self, total: ir.Expr, own: list[Coordinate], place: tuple[ir.Range, ir.Expr] | None, like: str
    ) -> ir.Expr:
        """A definition for a sum, unless there is one that is the same; and the read of it, last at a place."""
        span = total.span
        ranges = [replace(self.ranges[c], span=span) for c in own]
        indices: list[ir.Expr] = [build.coord(c, span) for c in own]
        if place is not None:
            ranges.append(place[0])
            indices.append(place[1])
        new = definition(fresh_name(f"{self.let.name}_{like}", self.owner.tensors), ranges, total, self.let.call)
        same = (let for let in self.owner.made if (let.axes, let.clauses) == (new.axes, new.clauses))
        made = next(same, new)
        if made is new:
            self.owner.made.append(new)
            self.owner.tensors[new.name] = new
        return build.read(made.name, tuple(indices), "real", span)


def multiplied_out(
    expr: ir.Expr, is_distant: Callable[[ir.Expr], bool], is_held: Callable[[ir.Expr], bool]
) -> Iterator[Term]:
    """The body of a sum as products that are added: multiplied out where a part is read at a distance. What is 0
    unless a condition holds is taken as it is there, where that is held."""

    def holds(part: ir.Expr) -> bool:
        return any(map(is_distant, walk(part)))

    def products(part: ir.Expr) -> Iterator[Term]:
        match part:
            case ir.Map("+" | "-" as op, (left, right)) if holds(part):
                yield from products(left)
                yield from ((factors, positive == (op == "+")) for factors, positive in products(right))
            case ir.Map("neg", (operand,)) if holds(part):
                yield from ((factors, not positive) for factors, positive in products(operand))
            case ir.Map("*", (left, right)):
                for (one, first), (other, second) in product(products(left), products(right)):
                    yield [*one, *other], first == second
            case ir.Map("/", (left, right)) if not holds(right):
                for factors, positive in products(left):
                    yield [*factors, Factor(right, inverse=True)], positive
            case ir.Select(condition, then, ir.Const(0)) if is_held(condition):
                yield from products(then)
            case _:
                yield [Factor(part)], True

    return products(expr)


def starts_at_zero(lets: Mapping[str, ir.Let], read: ir.Read) -> bool:
    """Whether all places of a tensor are there."""
    let = lets.get(read.tensor)
    if let is None:
        return True
    ranges = [range for clause in let.clauses for range in clause.ranges]
    return len(let.clauses) == 1 and all(r.from_zero for r in ranges)


def extent_read(length: ir.Expr, highest: ir.Expr) -> ir.Expr:
    """The number of places that are read, and no more than there are."""
    beyond = _plus(highest, 1)
    if beyond == length:
        return length
    if not _is_count(beyond):
        beyond = build.apply("max", (build.whole(0, length.span), beyond), "whole", length.span)
    return build.apply("min", (length, beyond), "whole", length.span)


def _plus(expr: ir.Expr, number: int) -> ir.Expr:
    """A sum, within a `min` or a `max` where that is all there is to it."""
    value = polynomial(expr) + number
    match [atom for monomial in value.terms for atom, _ in monomial]:
        case [ir.Map("min" | "max" as op, arguments) as atom] if value.terms[frozenset(((atom, 1),))] == 1:
            rest = (value - of_atom(atom)).constant
            if rest is not None:
                return build.apply(op, tuple(_plus(argument, rest) for argument in arguments), "whole", expr.span)
    return expression(value, expr.span)


def _is_count(expr: ir.Expr) -> bool:
    """Whether an expression of sizes is never negative."""
    match expr:
        case ir.Map("min", arguments):
            return all(map(_is_count, arguments))
        case ir.Map("max", arguments):
            return any(map(_is_count, arguments))
    value = polynomial(expr)
    return all(isinstance(atom, ir.Size) for atom in value.atoms) and all(f > 0 for f in value.terms.values())
