"""Forward mode: how every definition changes when the inputs change along a tangent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import assert_never

from ..checker.scope import Refusal
from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.quotients import Quotient, quotient_of, total
from ..ir.types import Coordinate
from ..ir.walk import fresh, substitute, walk
from ..records import dataclass, replace
from .clauses import collected
from .derive import pruned
from .gradient import Seeds, counting, fresh_name, live_between
from .naming import name_parts
from .polish import with_plain_names
from .presence import looked_after, needed_presence, presence
from .reverse import count, is_first, names_in, others
from .slopes import is_flat, slope
from .stable import stable_lets
from .terms import Term, counted


def pushed_forward(program: ir.Program, of: Sequence[str], by: Sequence[str]) -> ir.Program:
    """The program that pushes tangents of `by` forward to `of`.

    It takes the inputs of the program and a tangent `dot_…` for each of `by`; it gives the tangents of `of`.
    """
    for name in of:
        if name in by:
            raise Refusal(f"`{name}` is held independent, and its tangent is given")
    seeds = Seeds(dict.fromkeys(of))
    program = replace(program, lets=stable_lets(program.lets, program.recurrent, frozenset(by)))
    program = name_parts(program, counting(live_between(program, seeds, by)))
    live = live_between(program, seeds, by)
    taken = set(program.tensors)
    names = {name: fresh_name(f"dot_{name}", taken) for name in (*by, *of)}
    names |= {name: fresh_name(f"dot_{name}", taken) for name in live if name not in names}
    inputs = list(program.inputs)
    for name in by:
        tensor = program.tensors[name]
        inputs.append(ir.Input(names[name], tensor.axes, "real", None, tensor.span))
    lets = program.definitions
    given = {name: lets[name] for name in by if name in lets}
    tangents = []
    for let in program.lets:
        if let.name not in by and (let.name in live or let.name in of):
            found = _tangent(let, {name: names[name] for name in live}, given, names[let.name], lets)
            tangents.append(with_plain_names(looked_after(found, lets)))
    outputs = tuple(names[name] for name in of)
    every = (*program.lets, *tangents)
    return pruned(replace(program, inputs=tuple(inputs), lets=every, outputs=outputs, order=()))


def _tangent(
    let: ir.Let, names: dict[str, str], given: dict[str, ir.Let], name: str, lets: Mapping[str, ir.Let]
) -> ir.Let:
    """The tangent of a definition. What is absent in a definition that is `given` a tangent does not change."""
    clauses = []
    for clause in let.clauses:
        itself = build.read(let.name, clause.slots, "real", clause.span)
        pushing = _Pushing(names, given, counting(names), names_in(clause), clause.ranges, lets)
        body = _sum(pushing.tangent(clause.body, itself), clause.body)
        clauses.append(replace(clause, body=body))
    return ir.Let(name, let.axes, "real", tuple(clauses), False, let.span, let.call, let.captured)


def _sum(terms: list[Quotient], expr: ir.Expr) -> ir.Expr:
    alike = collected([Term(term, (), ()) for term in terms]) if terms else []
    found = [term.product.expression(expr.span) for term in alike]
    ordered = sorted(found, key=lambda term: isinstance(term, ir.Map) and term.op == "neg")
    return total(ordered, expr.span) or build.real(Fraction(0), expr.span)


@dataclass(frozen=True, slots=True)
class _Pushing:
    names: dict[str, str]
    given: dict[str, ir.Let]
    counts: Callable[[ir.Expr], bool]
    taken: set[str]
    ranges: tuple[ir.Range, ...]
    lets: Mapping[str, ir.Let]

    def fresh(self, coordinate: Coordinate) -> Coordinate:
        found = fresh(coordinate, self.taken)
        self.taken.add(found.name)
        return found

    def tangent(self, expr: ir.Expr, itself: ir.Expr | None = None) -> list[Quotient]:
        """The tangent of an expression, as terms to add up; none where it does not change."""
        if not self.counts(expr):
            return []
        match expr:
            case ir.Const() | ir.Coord() | ir.Size() | ir.Array():
                return []
            case ir.Read(tensor, indices, span=span):
                change = Quotient(factors=(build.read(self.names[tensor], indices, "real", span),))
                there = presence(expr, self.given)
                return [change if there is None else _where(change, (there,), expr)]
            case ir.Map():
                return self._map(expr, itself)
            case ir.Select(condition, then, otherwise):
                sides = [self._side(self.tangent(branch), branch) for branch in (then, otherwise)]
                if all(isinstance(side, ir.Const) for side in sides):
                    return []
                return [Quotient(factors=(build.select(condition, sides[0], sides[1], expr.span),))]
            case ir.Reduce():
                return self._reduction(expr)
            case ir.Normalize():
                return [] if expr.op == "rank" else self._normalizer(expr, itself)
            case _:
                assert_never(expr)

    def _side(self, terms: list[Quotient], branch: ir.Expr) -> ir.Expr:
        return _sum(terms, branch) if terms else build.whole(0, branch.span)

    def _map(self, expr: ir.Map, itself: ir.Expr | None) -> list[Quotient]:
        """The tangent of an elementwise function: the slope by each argument times the tangent of that argument."""
        if is_flat(expr):
            return []
        result = []
        for number, argument in enumerate(expr.arguments):
            changes = self.tangent(argument) if argument.type.kind == "real" else []
            if not changes:
                continue
            for factor, conditions in slope(expr, number, itself or expr):
                if expr.op in ("*", "/"):
                    there = needed_presence(argument, (*factor.factors, *factor.divisors), self.ranges, self.lets)
                    conditions = conditions if there is None else (*conditions, there)
                grouped = changes if expr.op in ("+", "-", "neg") else [_together(changes, argument)]
                for change in grouped:
                    product = factor.times(change) if expr.op == "*" and number == 1 else change.times(factor)
                    result.append(_where(product, conditions, expr))
        return result

    def _reduction(self, expr: ir.Reduce) -> list[Quotient]:
        """The tangent of a reduction: of a sum, the sum of tangents; of a maximum, the tangent at the first point that
        has it."""
        inner = replace(self, ranges=(*self.ranges, *expr.ranges))
        change = _together(inner.tangent(expr.body), expr.body)
        guard = expr.guard
        match expr.op:
            case "sum" | "mean":
                pass
            case "prod":
                change = change.times(others(expr, self.fresh))
            case "max" | "min":
                guard = build.conjunction((guard, *is_first(expr, self.fresh)))
            case _:
                return []
        term = counted(Term(change, expr.ranges, () if guard is None else (guard,)))
        number, body = Quotient(term.product.number), replace(term.product, number=Fraction(1))
        if term.ranges:
            inner_sum = build.reduce("sum", term.ranges, body.expression(expr.span), guard, "real", expr.span)
            body = Quotient(factors=(inner_sum,))
        elif guard is not None:
            body = _where(body, (guard,), expr)
        summed = number.times(body)
        return [summed.over(quotient_of(count(expr))) if expr.op == "mean" else summed]

    def _normalizer(self, expr: ir.Normalize, itself: ir.Expr | None) -> list[Quotient]:
        """The tangent of a softmax, its logarithm or a running sum, made of the value itself where it has a name."""
        coordinate, span = expr.coordinate, expr.span
        value = itself or expr
        change = _together(self.tangent(expr.body), expr.body)
        if expr.op == "cumsum":
            return [
                Quotient(
                    factors=(build.normalize("cumsum", coordinate, change.expression(span), expr.guard, "real", span),)
                )
            ]
        weight = value if expr.op == "softmax" else build.apply("exp", (value,), "real", span)
        other = self.fresh(coordinate)
        elsewhere: dict[Coordinate, ir.Expr] = {coordinate: build.coord(other, span)}
        range = next(range for range in reversed(self.ranges) if range.coordinate == coordinate)
        needless = isinstance(weight, ir.Read) and _is_plain(change)
        guard = None if expr.guard is None or needless else substitute(expr.guard, elsewhere)
        mean = Quotient(factors=(weight,)).times(change).substituted(elsewhere).expression(span)
        gathered = build.reduce("sum", (replace(range, coordinate=other),), mean, guard, "real", span)
        centred = build.apply("-", (change.expression(span), gathered), "real", span)
        if expr.op == "softmax":
            kept = () if expr.guard is None or _is_plain(change) else (expr.guard,)
            return [_where(Quotient(factors=(value, centred)), kept, expr)]
        return [_where(Quotient(factors=(centred,)), () if expr.guard is None else (expr.guard,), expr)]


def _is_plain(product: Quotient) -> bool:
    """Whether it only reads tensors at coordinates: that can be done anywhere."""
    reads = [part for factor in product.factors for part in walk(factor) if isinstance(part, ir.Read)]
    return not product.divisors and all(isinstance(index, ir.Coord) for read in reads for index in read.indices)


def _together(terms: list[Quotient], expr: ir.Expr) -> Quotient:
    """Terms as one factor."""
    if len(terms) == 1:
        return terms[0]
    return Quotient(factors=(_sum(terms, expr),)) if terms else Quotient(Fraction(0))


def _where(product: Quotient, conditions: tuple[ir.Expr, ...], expr: ir.Expr) -> Quotient:
    condition = build.conjunction(conditions)
    if condition is None:
        return product
    body = replace(product, number=Fraction(1)).expression(expr.span)
    chosen = build.select(condition, body, build.whole(0, expr.span), expr.span)
    return Quotient(product.number, (chosen,))
