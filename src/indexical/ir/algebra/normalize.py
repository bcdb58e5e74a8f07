"""Expressions of a program in normal form, definitions written out where they are part of an attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property

from ...records import dataclass, field
from .. import build
from .. import nodes as ir
from ..needs import endless
from ..types import Coordinate
from ..walk import Inexpressible, substitute, walk
from .canonical import Canonical, signed, text
from .canonical import written as whole_written
from .contents import Contents
from .normal import (
    ONE,
    Atom,
    Binder,
    Form,
    Function,
    Group,
    Leaf,
    Number,
    Product,
    Sum,
    TooLarge,
    constant,
    form,
    function,
    has_total,
    leaf,
    magnitude,
    plus,
    product,
    single,
    times,
    under,
)
from .powers import exponential, exponential_power, power
from .predicates import (
    BASES,
    adds_apart,
    has_logarithm,
    is_copy,
    is_exponential,
    is_logarithm,
    is_mask,
    is_normalized,
    reads_in,
)
from .safety import Caution, Sides, doubtful, infinities
from .sums import logarithm, opened, replaced, summed
from .writing import written

Scope = Mapping[Coordinate, ir.Range]

_NUMBERED = (ir.Coord, ir.Size)
_SUMMED = (ir.Reduce, ir.Normalize)

# How many terms may be made for one definition, and how deep definitions may be written out in one another,
# before it is given up.
MOST_WORK = 4000
DEEPEST = 40


@dataclass
class Algebra:
    """The normal forms of one program's expressions. `kept` are definitions that are never written out."""

    program: ir.Program
    kept: set[str] = field(default_factory=set)
    contents: Contents = field(default_factory=Contents)
    known: dict[str, Form | None] = field(default_factory=dict)
    exponential: dict[str, bool] = field(default_factory=dict)
    simple: dict[str, bool] = field(default_factory=dict)
    logarithmic: dict[str, bool] = field(default_factory=dict)
    infinite: dict[str, Sides] = field(default_factory=dict)
    work: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        self.lets = dict(self.program.definitions)
        self.canonical = Canonical(self.lets, endless(self.program), self.real)

    # ---------------------------------------------------------------- as a `Reader`

    @cached_property
    def caution(self) -> Caution:
        return Caution(doubtful(self.program.lets, self.contents))

    def again(self, expr: ir.Expr) -> Form:
        if isinstance(expr, ir.Read) and expr.type.kind == "real":
            self.work += 1
            return self._leaf(self.canonical.atom(expr))
        return self.plain(expr)

    def conditions(self, expr: ir.Expr) -> Mapping[str, ir.Expr]:
        return self.canonical.conditions(expr)

    def conditions_at(self, term: Product, values: Mapping[Coordinate, ir.Expr]) -> dict[str, ir.Expr]:
        """The conditions of a term, with coordinates replaced."""
        found = [self.conditions(substitute(condition, values)) for condition in term.conditions.values()]
        return {key: condition for each in found for key, condition in each.items()}

    def whole(self, expr: ir.Expr) -> ir.Expr:
        return self.canonical.whole(expr)

    def real(self, expr: ir.Expr) -> ir.Expr:
        """A real expression, written in one way."""
        return written(self.plain(expr), expr.span)

    # ------------------------------------------------------------------ expressions

    def plain(self, expr: ir.Expr) -> Form:
        """An expression in which weights stay as they are written."""
        return self.form(expr, None)

    def form(self, expr: ir.Expr, scope: Scope | None) -> Form:
        """An expression in normal form. With a scope, which says the ranges around, weights are taken apart."""
        self.work += 1
        if self.work > MOST_WORK:
            raise TooLarge
        if expr.type.kind == "whole":
            return self._of_whole(expr)
        match expr:
            case ir.Const(value):
                return constant(value if isinstance(value, Fraction) else Fraction(value))
            case ir.Read():
                return self._read(expr, scope)
            case ir.Map(_, ()):
                return self._leaf(expr)
            case ir.Map(op, arguments):
                return self._map(expr, op, arguments, scope)
            case ir.Select():
                return self._select(expr, scope)
            case ir.Reduce("sum"):
                return self._sum(expr, scope)
            case ir.Reduce("mean", guard=None) if scope is not None:
                return times(self._sum(expr, scope), power(self._points(expr.ranges), -1))
            case ir.Normalize("softmax" | "log_softmax") if scope is not None:
                return self._normalize(expr, scope)
            case _:
                return self._leaf(self.canonical.atom(expr))

    def _leaf(self, expr: ir.Expr) -> Form:
        return leaf(expr, f"{1 if expr.type.coordinates else 0}{text(expr)}")

    def _of_whole(self, expr: ir.Expr) -> Form:
        """Whole arithmetic: a product of atoms is a product, a sum of several stays one atom, so that no digits
        are lost to its parts."""
        if isinstance(expr, _NUMBERED):
            return self._leaf(expr)
        value, share = signed(self.canonical.polynomial(expr))
        if len(value.terms) > 1:
            found = self._leaf(whole_written(value, expr.span))
            return form((share * number, term) for number, term in found.terms)
        result = constant(share if value.terms else 0)
        for monomial, number in value.terms.items():
            result = times(result, constant(number))
            for atom, count in monomial:
                inner = build.coord(atom, expr.span) if isinstance(atom, Coordinate) else atom
                result = times(result, power(self._leaf(inner), count))
        return result

    def _map(self, expr: ir.Map, op: str, arguments: tuple[ir.Expr, ...], scope: Scope | None) -> Form:
        match op:
            case "+" | "-":
                left, right = (self.form(argument, scope) for argument in arguments)
                return plus(left, right, 1 if op == "+" else -1)
            case "neg":
                return times(constant(-1), self.form(arguments[0], scope))
            case "*":
                left, right = (self.form(argument, scope) for argument in arguments)
                return times(left, right)
            case "/":
                left, right = (self.form(argument, scope) for argument in arguments)
                return times(left, power(right, -1))
            case "sqrt":
                return power(self.form(arguments[0], scope), Fraction(1, 2))
            case "rsqrt":
                return power(self.form(arguments[0], scope), Fraction(-1, 2))
            case "exp":
                return self._exponential(arguments[0], scope)
            case _ if op in BASES and scope is not None:
                return exponential_power(constant(BASES[op]), self.plain(arguments[0])) or ONE
            case "**":
                return self._power(expr, scope)
            case "log" if scope is not None:
                weights = self.form(arguments[0], scope)
                if weights.weights or has_total(weights):
                    return logarithm(self.canonical.atom(expr), weights)
            case "sigmoid" if scope is not None:
                inside = self._logarithms(self.plain(arguments[0]), arguments[0], scope)
                if has_logarithm(inside):
                    return power(plus(ONE, exponential(times(constant(-1), inside))), -1)
        if op.startswith("as ") and arguments[0].type.kind == "bool":
            return under(ONE, self.conditions(arguments[0]), False)
        inner = tuple(map(self.plain, arguments))
        return function(op, tuple(sorted(inner, key=lambda f: f.key)) if op in ("max", "min") else inner)

    def _power(self, expr: ir.Map, scope: Scope | None) -> Form:
        base, exponent = expr.arguments
        fixed = self.plain(exponent)
        if len(fixed.terms) <= 1 and not fixed.coordinates and all(not t.factors for _, t in fixed.terms):
            number = fixed.terms[0][0] if fixed.terms else Fraction(0)
            if magnitude(number) <= 8 and fixed.level == 0 and not any(t.exponent for _, t in fixed.terms):
                return power(self.form(base, scope), number)
        if scope is not None:
            found = exponential_power(self.form(base, scope), fixed)
            if found is not None:
                return found
        return function("**", (self.plain(base), fixed))

    def _exponential(self, expr: ir.Expr, scope: Scope | None) -> Form:
        inside = self.plain(expr)
        if scope is None:
            return function("exp", (inside,))
        inside = self._logarithms(inside, expr, scope)
        return exponential(inside)

    def _logarithms(self, value: Form, expr: ir.Expr, scope: Scope) -> Form:
        """An exponent, with `log_softmax` and named logarithms in it taken apart."""
        if any(map(is_logarithm, walk(expr))):
            value = self._additive(expr, scope)
        return self.opened(value, self.is_logarithm)

    def _additive(self, expr: ir.Expr, scope: Scope) -> Form:
        match expr:
            case ir.Map("+" | "-" as op, (left, right)):
                return plus(self._additive(left, scope), self._additive(right, scope), 1 if op == "+" else -1)
            case ir.Map("neg", (inner,)):
                return times(constant(-1), self._additive(inner, scope))
            case ir.Map("*" | "/" as op, (left, right)) if not right.type.coordinates:
                return times(self._additive(left, scope), power(self.plain(right), 1 if op == "*" else -1))
            case ir.Map("*", (left, right)) if not left.type.coordinates:
                return times(self.plain(left), self._additive(right, scope))
            case ir.Normalize("log_softmax") | ir.Map("log"):
                return self.form(expr, scope)
            case _:
                return self.plain(expr)

    def _select(self, expr: ir.Select, scope: Scope | None) -> Form:
        then, otherwise = self.form(expr.then, scope), self.form(expr.otherwise, scope)
        if not otherwise.terms:
            return under(then, self.canonical.conditions(expr.condition), False)
        if not then.terms:
            return under(otherwise, self.canonical.conditions(expr.condition, False), False)
        for value, other, holds in ((otherwise, then, True), (then, otherwise, False)):
            if is_mask(value):
                kept = under(other, self.canonical.conditions(expr.condition, holds), False)
                return plus(kept, under(value, self.canonical.conditions(expr.condition, not holds), False))
        return self._leaf(self._choice(expr))

    def _choice(self, expr: ir.Select) -> ir.Expr:
        """A choice between two values, its condition the one of the two that comes first."""
        branches = self.real(expr.then), self.real(expr.otherwise)
        condition = self.canonical.condition(expr.condition)
        opposite = build.conjunction(self.canonical.conditions(expr.condition, False).values())
        if opposite is not None and text(opposite) < text(condition):
            condition, branches = opposite, branches[::-1]
        return build.select(condition, *branches, expr.span)

    def _sum(self, expr: ir.Reduce, scope: Scope | None) -> Form:
        around = None if scope is None else {**scope, **{r.coordinate: r for r in expr.ranges}}
        body = self.form(expr.body, around)
        if expr.guard is not None:
            body = under(body, self.conditions(expr.guard), False)
        return summed(body, [self.binder(r) for r in expr.ranges], self)

    def _points(self, ranges: tuple[ir.Range, ...]) -> Form:
        """The number of points."""
        return summed(ONE, [self.binder(r) for r in ranges], self)

    def binder(self, r: ir.Range) -> Binder:
        return Binder(r.coordinate, self.whole(r.lower), self.whole(r.upper), r.stated)

    def _normalize(self, expr: ir.Normalize, scope: Scope) -> Form:
        """`softmax`: e to the score over its sum, for the points that the guard keeps."""
        inside = self._logarithms(self.plain(expr.body), expr.body, scope)
        share = exponential(inside)
        held = {} if expr.guard is None else self.conditions(expr.guard)
        binder = self.binder(scope[expr.coordinate])
        total = closed_total(under(share, held, False), binder, self)
        weights = under(times(share, power(total, -1)), held, False)
        if expr.op == "softmax":
            return weights
        return logarithm(self.canonical.atom(expr), weights)

    # ------------------------------------------------------------------ definitions

    def may_open(self, name: str) -> bool:
        """Whether a definition could be a copy, weights or a logarithm: known without its normal form."""
        clause = self.canonical.clause(name)
        if clause is None or name in self.kept:
            return False
        if name not in self.simple:
            parts = self.contents.operations(self.lets[name])
            summed = any(isinstance(part, _SUMMED) for part in parts)
            self.simple[name] = not summed and not adds_apart(clause.body)
        return self.simple[name] or self._is_exponential(name)

    def _is_exponential(self, name: str) -> bool:
        """Whether something is exponentiated in a definition, or in one that it reads."""
        clause = self.canonical.clause(name)
        if clause is None or name in self.kept:
            return False
        if name not in self.exponential:
            self.exponential[name] = False
            let = self.lets[name]
            raised = any(map(is_exponential, self.contents.operations(let)))
            self.exponential[name] = raised or any(map(self._is_exponential, self.contents.reads(let)))
        return self.exponential[name]

    def _read(self, read: ir.Read, scope: Scope | None) -> Form:
        if self.may_open(read.tensor):
            inner = self.definition(read.tensor)
            apart = inner is not None and scope is not None and is_apart(inner)
            if inner is not None and (apart or is_copy(inner)):
                found = self.at(read, inner)
                if found is not None:
                    return found
        return self._leaf(self.canonical.atom(read))

    def definition(self, name: str) -> Form | None:
        """The form of a definition, in its own coordinates, under its guard; None where it stays as it is."""
        if name not in self.known:
            self.known[name] = None
            clause = self.canonical.clause(name)
            if clause is not None and clause.body.type.kind != "bool" and name not in self.kept:
                scope = {r.coordinate: r for r in clause.ranges}
                try:
                    found = self.form(clause.body, scope)
                except TooLarge:
                    return None
                if clause.guard is not None:
                    found = under(found, self.conditions(clause.guard), True)
                self.known[name] = None if is_normalized(found) else found
        return None if name in self.kept else self.known[name]

    def is_opened(self, name: str) -> bool:
        """Whether a definition is written out where it is read and weights are taken apart: it is weights, a logarithm
        of them, or a copy. Asked after all that it reads, none waits for another."""
        inner = self.definition(name) if self.may_open(name) else None
        return inner is not None and (is_apart(inner) or is_copy(inner))

    def is_copied(self, name: str) -> bool:
        """Whether what a definition says is read in its place: it only reads on, or nearly."""
        self.work = self.depth = 0
        inner = self.definition(name) if self.may_open(name) else None
        return inner is not None and is_copy(inner)

    def add(self, let: ir.Let) -> None:
        """A further definition, or one in another form."""
        if self.lets.get(let.name, let) is not let:
            self.infinite.clear()
        self.put(let)
        self.caution = self.caution.beside(let, self.contents)

    def put(self, let: ir.Let) -> None:
        """A definition in the form that it has for all that reads it: nothing that does was asked about before."""
        self.lets[let.name] = let
        self.known.pop(let.name, None)
        self.exponential.pop(let.name, None)
        self.simple.pop(let.name, None)
        self.logarithmic.pop(let.name, None)
        self.infinite.pop(let.name, None)
        self.canonical.forget(let.name)

    def may_be_infinite(self, expr: ir.Expr) -> bool:
        """Whether this may be infinite at points that a guard removed."""
        return bool(infinities(expr, self.lets, self.infinite))

    def has_sum(self, name: str) -> bool:
        """Whether a definition has a sum as a factor, or is too large to say."""
        inner = self.definition(name)
        terms = () if inner is None else inner.terms
        return any(power > 0 and isinstance(atom, Sum) for _, term in terms for atom, power in term.factors)

    def at(self, read: ir.Read, inner: Form) -> Form | None:
        """The form of a definition at the indices of a read; None where a normaliser stands in the way."""
        clause = self.lets[read.tensor].clauses[0]
        values = {
            slot.coordinate: self.whole(index)
            for slot, index in zip(clause.slots, read.indices, strict=True)
            if isinstance(slot, ir.Coord) and slot != index
        }
        try:
            return replaced(inner, values, self)
        except Inexpressible:
            return None

    def may_be_logarithm(self, name: str) -> bool:
        """Whether a logarithm is taken in a definition, or in one that it reads: known without its normal form."""
        if name not in self.logarithmic:
            self.logarithmic[name] = False
            let = self.lets.get(name)
            if let is not None:
                taken = any(is_logarithm(part) for part in self.contents.operations(let))
                self.logarithmic[name] = taken or any(map(self.may_be_logarithm, self.contents.reads(let)))
        return self.logarithmic[name]

    def is_logarithm(self, read: ir.Read) -> bool:
        inner = self.definition(read.tensor) if self.may_be_logarithm(read.tensor) else None
        return inner is not None and has_logarithm(inner)

    def opened(self, value: Form, opens: Callable[[ir.Read], bool]) -> Form:
        """A form with some definitions written out, wherever in it they are read."""
        if not any(opens(read) for read in reads_in(value) if read.tensor in self.lets):
            return value
        result: list[tuple[Number, Product]] = []
        for number, term in value.terms:
            result += [(number * own, found) for own, found in self._opened_term(term, opens).terms]
        return form(result)

    def _opened_term(self, term: Product, opens: Callable[[ir.Read], bool]) -> Form:
        exponent = None if term.exponent is None else self.opened(term.exponent, opens)
        result = form(((1, product((), exponent, term.conditions, term.absent, term.skipped)),))
        for atom, exponent_ in term.factors:
            result = times(result, power(self._opened_atom(atom, opens), exponent_))
        return result

    def _opened_read(self, atom: Leaf, read: ir.Read, opens: Callable[[ir.Read], bool]) -> Form:
        inner = self.definition(read.tensor)
        found = None if inner is None else self.at(read, inner)
        if found is None:
            return single(atom)
        self.depth += 1
        if self.depth > DEEPEST:
            raise TooLarge
        result = self.opened(found, opens)
        self.depth -= 1
        return result

    def _opened_atom(self, atom: Atom, opens: Callable[[ir.Read], bool]) -> Form:
        match atom:
            case Leaf(ir.Read() as read) if read.tensor in self.lets and opens(read):
                return self._opened_read(atom, read, opens)
            case Function(op, arguments):
                return function(op, tuple(self.opened(argument, opens) for argument in arguments))
            case Group(inner_form):
                return self.opened(inner_form, opens)
            case Sum(softmax=False):
                binders, body = opened(atom, self)
                return summed(self.opened(body, opens), binders, self)
            case _:
                return single(atom)


def is_apart(value: Form) -> bool:
    """Whether a definition of this form is weights, what they are divided by, or a logarithm of either: where weights
    are taken apart it is written out."""
    return value.weights or has_total(value) or has_logarithm(value)


def closed_total(share: Form, binder: Binder, algebra: Algebra) -> Form:
    """The total that a softmax divides by."""
    coordinate = Coordinate(f"{binder.coordinate}")
    total = summed(share, [Binder(coordinate, binder.lower, binder.upper, binder.stated)], algebra)
    terms = []
    for number, term in total.terms:
        factors = [
            (Sum(a.binders, a.body, True, a.key, a.coordinates, a.level) if isinstance(a, Sum) else a, n)
            for a, n in term.factors
        ]
        terms.append((number, product(factors, term.exponent, term.conditions, term.absent, term.skipped)))
    return form(terms)
