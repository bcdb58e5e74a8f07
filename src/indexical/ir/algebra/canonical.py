"""Whole arithmetic and conditions, each written in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from typing import Any

from ...records import dataclass, field
from ...source import Span
from .. import build
from .. import nodes as ir
from ..affine import ONE, Monomial, Polynomial, polynomial, sum_of
from ..conditions import OPPOSITE, fails
from ..context import constants_of
from ..prove import inequalities
from ..types import Coordinate
from ..walk import LEAVES, at, rebuild, substitute
from .normal import height
from .safety import arranged

_MIRRORED = {">": "<", ">=": "<="}

# Indices that stay as they are.
_PLACES = (ir.Coord, ir.Const)

# Two different ones of these, compared, are in order as they stand.
_NAMED = (ir.Coord, ir.Size)


def text(expr: ir.Expr) -> str:
    """An expression as text: the same only for the same expression."""
    return _TEXTS[type(expr)](expr)


def _texts(exprs: Iterable[ir.Expr]) -> list[str]:
    return [_TEXTS[type(expr)](expr) for expr in exprs]


def _of_reduce(expr: ir.Reduce) -> str:
    shown = " ".join(f"{r.coordinate}:{text(r.lower)}..{text(r.upper)}" for r in expr.ranges)
    return f"({expr.op} {shown} | {'' if expr.guard is None else text(expr.guard)} | {text(expr.body)})"


def _of_normalize(expr: ir.Normalize) -> str:
    guard = "" if expr.guard is None else text(expr.guard)
    return f"({expr.op} {expr.coordinate} | {guard} | {text(expr.body)})"


# The text of each kind of expression: a table, as it is asked for at every step.
_TEXTS: dict[type, Callable[[Any], str]] = {
    ir.Coord: lambda expr: str(expr.coordinate),
    ir.Const: lambda expr: str(expr.value),
    ir.Size: lambda expr: f"#{expr.coordinate}",
    ir.Read: lambda expr: f"{expr.tensor}[{','.join(_texts(expr.indices))}]",
    ir.Map: lambda expr: f"({expr.op} {' '.join(_texts(expr.arguments))})",
    ir.Select: lambda expr: f"(if {text(expr.condition)} {text(expr.then)} {text(expr.otherwise)})",
    ir.Reduce: _of_reduce,
    ir.Normalize: _of_normalize,
    ir.Array: lambda expr: f"(array {expr.shape} {','.join(_texts(expr.cells))} {' '.join(_texts(expr.indices))})",
}


@dataclass(frozen=True)
class Canonical:
    """Expressions of one program, each written in one way. `real` does so for real ones. What conditions say, and what
    `clauses` can be written out, is known until a definition has another form: most is asked for several times."""

    lets: Mapping[str, ir.Let]
    recurrent: frozenset[str]
    real: Callable[[ir.Expr], ir.Expr]
    known: dict[tuple[ir.Expr, Span, bool], Mapping[str, ir.Expr]] = field(default_factory=dict)
    clauses: dict[str, ir.Clause | None] = field(default_factory=dict)

    def forget(self, name: str) -> None:
        """A definition of this name has another form from now on."""
        self.known.clear()
        self.clauses.pop(name, None)

    def any(self, expr: ir.Expr) -> ir.Expr:
        """An expression of any kind."""
        match expr.type.kind:
            case "whole":
                return self.whole(expr)
            case "bool":
                return self.condition(expr)
            case "real":
                return self.real(expr)

    # ------------------------------------------------------------------ whole numbers

    def whole(self, expr: ir.Expr) -> ir.Expr:
        """Whole arithmetic as a sum of products in order; what cannot be taken apart has canonical parts."""
        if type(expr) in LEAVES:
            return expr
        if isinstance(expr, ir.Read) and expr.indices:
            return self.atom(expr)
        return written(self.polynomial(expr), expr.span)

    def polynomial(self, expr: ir.Expr) -> Polynomial:
        inner = self.atom(expr)
        return polynomial(inner, constants_of(self.lets))

    def atom(self, expr: ir.Expr) -> ir.Expr:
        """An expression over canonical parts."""
        match expr:
            case ir.Const() | ir.Coord() | ir.Size():
                return expr
            case ir.Read(tensor, indices):
                through = None if expr.type.kind == "real" else self._read_on(expr)
                if through is not None:
                    return self.atom(through)
                if all(isinstance(index, _PLACES) for index in indices):
                    return expr
                return build.read(tensor, tuple(map(self.whole, indices)), expr.type.kind, expr.span)
            case ir.Reduce():
                return self.reduction(expr)
            case ir.Map("+" | "-" | "*" | "neg", arguments, kind, span) if expr.type.kind == "whole":
                return build.apply(expr.op, tuple(map(self.atom, arguments)), kind.kind, span)
            case ir.Map("max" | "min" as op, arguments, kind, span):
                parts = sorted((self.any(argument) for argument in arguments), key=text)
                return build.apply(op, tuple(parts), kind.kind, span)
            case ir.Map("abs", (argument,), kind, span) if kind.kind == "whole":
                inner, share = signed(self.polynomial(argument))
                distance = build.apply("abs", (written(inner, span),), "whole", span)
                if abs(share) == 1:
                    return distance
                return build.apply("*", (build.whole(abs(share), span), distance), "whole", span)
            case _:
                return rebuild(expr, self.any)

    def _read_on(self, read: ir.Read) -> ir.Expr | None:
        """The read that a definition only passes on, of the same kind."""
        clause = self.clause(read.tensor)
        if clause is None or clause.guard is not None or not isinstance(clause.body, ir.Read):
            return None
        return at(clause, clause.body, read.indices) if clause.body.type.kind == read.type.kind else None

    def opened(self, read: ir.Read) -> tuple[ir.Expr, ir.Expr | None] | None:
        """The body of a definition at these indices, and its guard there; None where it cannot be written out."""
        clause = self.clause(read.tensor)
        if clause is None:
            return None
        body = at(clause, clause.body, read.indices)
        guard = None if clause.guard is None else at(clause, clause.guard, read.indices)
        return None if body is None or (guard is None and clause.guard is not None) else (body, guard)

    def clause(self, name: str) -> ir.Clause | None:
        """The only clause of a definition that can be written out."""
        if name not in self.clauses:
            self.clauses[name] = self._clause(name)
        return self.clauses[name]

    def _clause(self, name: str) -> ir.Clause | None:
        let = self.lets.get(name)
        if let is None or len(let.clauses) != 1 or name in self.recurrent:
            return None
        clause = let.clauses[0]
        plain = all(isinstance(slot, ir.Coord) for slot in clause.slots)
        return clause if plain and not isinstance(clause.body, ir.Array) else None

    def reduction(self, expr: ir.Reduce) -> ir.Expr:
        """A reduction that is not taken apart: its bound coordinates are named by their height."""
        body, guard = self.any(expr.body), None if expr.guard is None else self.condition(expr.guard)
        bounds = [self.whole(bound) for r in expr.ranges for bound in (r.lower, r.upper)]
        base = max(height(part) for part in (body, *bounds, *(() if guard is None else (guard,))))
        values: dict[Coordinate, ir.Expr] = {}
        ranges = []
        for number, r in enumerate(expr.ranges):
            lower, upper = (substitute(bound, values) for bound in bounds[2 * number : 2 * number + 2])
            name = Coordinate(f"'{base + number}")
            values[r.coordinate] = build.coord(name, r.span)
            ranges.append(ir.Range(name, lower, upper, r.stated, r.span))
        body = self.any(substitute(body, values))
        guard = None if guard is None else self.condition(substitute(guard, values))
        return build.reduce(expr.op, tuple(ranges), body, guard, expr.type.kind, expr.span)

    # --------------------------------------------------------------------- conditions

    def condition(self, expr: ir.Expr) -> ir.Expr:
        """A condition as a conjunction in order."""
        found = self.conditions(expr)
        return build.conjunction(found.values()) or build.truth(True, expr.span)

    def conditions(self, expr: ir.Expr, holds: bool = True) -> Mapping[str, ir.Expr]:
        """The conditions that must all hold for one to hold (or to fail), by text and in order."""
        place = expr, expr.span, holds
        if place not in self.known:
            self.known[place] = arranged({text(fact): fact for fact in self._facts(expr, holds)})
        return self.known[place]

    def _facts(self, expr: ir.Expr, holds: bool) -> list[ir.Expr]:
        match expr:
            case ir.Const(value):
                return [] if bool(value) == holds else [build.truth(False, expr.span)]
            case ir.Map("!", (operand,)):
                return self._facts(operand, not holds)
            case ir.Map("&&" | "||" as op, arguments):
                if (op == "&&") == holds:
                    return [fact for argument in arguments for fact in self._facts(argument, holds)]
                return self._one_of([self.conditions(argument, holds) for argument in arguments], expr.span)
            case ir.Read():
                inner = self.opened_condition(expr)
                if inner is not None:
                    return self._facts(inner, holds)
            case ir.Map(op, (left, right), _, span) if op in OPPOSITE:
                return self._comparison(op, left, right, holds, span)
        fact = self.atom(expr)
        return [fact if holds else fails(fact)]

    def opened_condition(self, read: ir.Read) -> ir.Expr | None:
        """The condition that a Boolean definition is at these indices. Where it is absent it is false."""
        found = self.opened(read) if read.type.kind == "bool" else None
        return None if found is None else build.conjunction((found[1], found[0]))

    def _one_of(self, cases: list[Mapping[str, ir.Expr]], span: Span) -> list[ir.Expr]:
        """One of several conjunctions: what all of them share stands beside, what is said twice stands once."""
        if any(not case for case in cases):
            return []
        flat: list[Mapping[str, ir.Expr]] = []
        for case in cases:
            only = next(iter(case.values())) if len(case) == 1 else None
            if isinstance(only, ir.Map) and only.op == "||":
                flat += [self.conditions(side) for side in disjuncts(only)]
            elif not (isinstance(only, ir.Const) and not only.value):
                flat.append(case)
        if not flat:
            return [build.truth(False, span)]
        shared = {key: fact for key, fact in flat[0].items() if all(key in case for case in flat)}
        rest = [{key: fact for key, fact in case.items() if key not in shared} for case in flat]
        result = list(shared.values())
        if all(rest):
            unique = {" ".join(case): build.conjunction(case.values()) for case in rest}
            sides = list(arranged({key: side for key, side in unique.items() if side is not None}).values())
            choice = sides[0]
            for side in sides[1:]:
                choice = build.apply("||", (choice, side), "bool", span)
            result.append(choice)
        return result

    def _comparison(self, op: str, left: ir.Expr, right: ir.Expr, holds: bool, span: Span) -> list[ir.Expr]:
        kinds = {left.type.kind, right.type.kind}
        if kinds == {"whole"}:
            return self._whole_comparison(op if holds else OPPOSITE[op], left, right, span)
        sides = (self.any(left), self.any(right))
        if op in _MIRRORED:
            op, sides = _MIRRORED[op], sides[::-1]
        elif op in ("==", "!="):
            if not holds:
                op, holds = OPPOSITE[op], True
            sides = (sides[0], sides[1]) if text(sides[0]) <= text(sides[1]) else sides[::-1]
        fact = build.apply(op, sides, "bool", span)
        return [fact if holds else fails(fact)]

    def _whole_comparison(self, op: str, left: ir.Expr, right: ir.Expr, span: Span) -> list[ir.Expr]:
        if op in ("==", "!="):
            difference, _ = signed(self.polynomial(left) - self.polynomial(right))
            return _equation(op, difference, span)
        if isinstance(left, _NAMED) and isinstance(right, _NAMED) and left != right:
            op, left, right = (_MIRRORED[op], right, left) if op in _MIRRORED else (op, left, right)
            return [build.apply(op, (_here(left, span), _here(right, span)), "bool", span)]
        comparison = build.apply(op, (self.atom(left), self.atom(right)), "bool", span)
        rows = inequalities(comparison, constants_of(self.lets)) or []
        return [fact for row in rows for part in self._rows(row) for fact in at_least_zero(part, span)]

    def _rows(self, row: Polynomial) -> list[Polynomial]:
        """A row that is at least 0 as several that all are: a `max` is at most what each of its arguments is."""
        for monomial, factor in row.terms.items():
            match list(monomial):
                case [(ir.Map("max" | "min" | "abs" as op, arguments), 1)] if (op == "min") == (factor > 0):
                    rest = Polynomial({m: f for m, f in row.terms.items() if m != monomial})
                    sides = [self.polynomial(argument) for argument in arguments]
                    sides += [-side for side in sides if op == "abs"]
                    return [found for side in sides for found in self._rows(rest.plus(side, factor))]
        return [row]


def _here(expr: ir.Coord | ir.Size, span: Span) -> ir.Expr:
    return build.coord(expr.coordinate, span) if isinstance(expr, ir.Coord) else expr


def disjuncts(expr: ir.Expr) -> list[ir.Expr]:
    """The sides of an `||`, however deep; an expression that is none is its only one."""
    if isinstance(expr, ir.Map) and expr.op == "||":
        return [side for argument in expr.arguments for side in disjuncts(argument)]
    return [expr]


# -------------------------------------------------------------- polynomials as text and back


def written(value: Polynomial, span: Span) -> ir.Expr:
    """A polynomial as an expression: products in order, those that are added first, the constant last; but first
    where nothing else is added."""
    terms = [(_monomial_text(monomial), monomial, factor) for monomial, factor in value.terms.items()]
    late = any(monomial and factor > 0 for monomial, factor in value.terms.items())
    terms.sort(key=lambda t: (late and not t[1], t[2] < 0, t[0]))
    return sum_of([(_term(monomial, abs(factor), span), factor) for _, monomial, factor in terms], span)


def _monomial_text(monomial: Monomial) -> str:
    return "*".join(sorted(f"{atom if isinstance(atom, Coordinate) else text(atom)}^{n}" for atom, n in monomial))


def _term(monomial: Monomial, factor: int, span: Span) -> ir.Expr:
    result: ir.Expr | None = None if factor == 1 and monomial else build.whole(factor, span)
    leaves = [(atom if isinstance(atom, Coordinate) else text(atom), atom, power) for atom, power in monomial]
    for _, atom, power in sorted(leaves, key=lambda item: str(item[0])):
        leaf = build.coord(atom, span) if isinstance(atom, Coordinate) else atom
        for _ in range(power):
            result = leaf if result is None else build.apply("*", (result, leaf), "whole", span)
    assert result is not None
    return result


def signed(value: Polynomial) -> tuple[Polynomial, int]:
    """A polynomial less what its factors share, the first of its products positive; and that number."""
    if not value.terms:
        return value, 1
    share = gcd(*value.terms.values())
    leading = min((m for m in value.terms if m), key=_monomial_text, default=ONE)
    share = share if value.terms[leading] > 0 else -share
    return Polynomial({monomial: factor // share for monomial, factor in value.terms.items()}), share


def _equation(op: str, difference: Polynomial, span: Span) -> list[ir.Expr]:
    """`a == b` with what is added on the left and what is taken away on the right."""
    known = difference.constant
    if known is not None:
        return [] if (known == 0) == (op == "==") else [build.truth(False, span)]
    left = Polynomial({m: f for m, f in difference.terms.items() if m and f > 0})
    right = Polynomial({m: -f for m, f in difference.terms.items() if not m or f < 0})
    return [build.apply(op, (written(left, span), written(right, span)), "bool", span)]


def at_least_zero(row: Polynomial, span: Span) -> list[ir.Expr]:
    """`a <= b`, or `a < b`, for a polynomial that is at least 0."""
    known = row.constant
    if known is not None:
        return [] if known >= 0 else [build.truth(False, span)]
    share = gcd(*(factor for monomial, factor in row.terms.items() if monomial))
    constant = row.terms.get(ONE, 0) // share
    right = {m: f // share for m, f in row.terms.items() if m and f > 0}
    left = {m: -f // share for m, f in row.terms.items() if m and f < 0}
    op = "<=" if constant != -1 or not left else "<"
    if op == "<=" and constant:
        (right if left else left)[ONE] = constant if left else -constant
    sides = (written(Polynomial(left), span), written(Polynomial(right), span))
    return [build.apply(op, sides, "bool", span)]
