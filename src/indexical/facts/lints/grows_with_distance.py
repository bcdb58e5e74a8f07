"""A bias with its sign turned round: the further back a key is, the more it is heard."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.algebra.factors import Forms
from ...ir.context import constants_of
from ...ir.functions import FUNCTIONS
from ...ir.operations import Function
from ...ir.prove import Assumptions, inequalities
from ...ir.types import Coordinate
from ...records import dataclass
from ..attention import Gather, Ungathered
from ..orders import CAUSAL, compare
from ..roles import query_of
from ..view import View

CODE = "IX418"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.scored:
        asks, score = query_of(view, gather), gather.weights.score
        if len(asks) != 1 or score is None:
            continue
        (query,) = asks
        ranges = [step.range for step in gather.site.product.summed]
        known = view.assume(gather.site.clause, *ranges, *gather.weights.kept)
        span = gather.weights.span
        if compare(known, build.coord(query, span), build.coord(gather.coordinate, span)) != CAUSAL:
            continue
        found = list(_Bias(view, known, query, gather.coordinate).changes(score))
        if found and all(way > 0 for _, way in found):
            yield gather.site.let, _report(view, gather, query, found[0][0])


def _report(view: View, gather: Gather | Ungathered, query: Coordinate, bias: ir.Expr) -> Diagnostic:
    asks, answers = view.shown(query), view.shown(gather.coordinate)
    return Diagnostic(
        CODE,
        f"this bias grows with the distance from `{asks}` back to `{answers}`",
        (Label(bias.span, "the bias is here"), Label(gather.weights.span, "normalised here")),
        (f"the further back `{answers}` is, the more it is heard",),
        "turn its sign round, so that distance costs score",
    )


def _is_strict(function: Function) -> bool:
    """Whether a function rises or falls everywhere: one whose slope has cases may be flat."""
    return function.trend != "unknown" and isinstance(function.slope, str) and not function.flat


@dataclass(frozen=True)
class _Bias:
    """The terms of a score that change with the distance from the query back to the key."""

    view: View
    known: Assumptions
    query: Coordinate
    key: Coordinate

    @property
    def forms(self) -> Forms:
        return self.view.forms

    def changes(self, score: ir.Expr) -> Iterator[tuple[ir.Expr, int]]:
        """The terms that are known to rise (1) or fall (-1) as the key falls behind, each where it stands."""
        terms = list(self._terms(score, 1, score))
        gates = {sign for term, sign, _ in terms if self._gate(term, self.query) is not None}
        for term, sign, seen in terms:
            gate = self._gate(term, self.key) if -sign in gates else None
            way = self.way(term) if gate is None else -gate
            if way is not None:
                yield seen, sign * way

    def _terms(self, expr: ir.Expr, sign: int, seen: ir.Expr) -> Iterator[tuple[ir.Expr, int, ir.Expr]]:
        """The terms that a score adds up, each with its sign, and with what a reader of the program sees of it."""
        visible = expr.span.source is self.view.program.source and not isinstance(expr, ir.Normalize)
        seen = expr if visible else seen
        match expr:
            case ir.Map("+" | "-" as op, (left, right)) if expr.type.kind == "real":
                yield from self._terms(left, sign, seen)
                yield from self._terms(right, sign if op == "+" else -sign, seen)
            case ir.Read() if (body := self._opened(expr)) is not None:
                yield from self._terms(body, sign, seen)
            case _ if (inner := self._scaled(expr)) is not None and self.way(expr) is None:
                yield from self._terms(inner[0], sign * inner[1], seen)
            case _:
                yield expr, sign, seen

    def _gate(self, expr: ir.Expr, along: Coordinate) -> int | None:
        """The sign of what adds up along a coordinate; None where an expression is no such total."""
        match expr:
            case ir.Normalize("cumsum", coordinate, body, None) if coordinate == along:
                return self.sign(body)
            case _:
                return None

    def _opened(self, read: ir.Read) -> ir.Expr | None:
        """The expression that a name stands for, where no guard of its own takes points away."""
        found = self.forms.opened(read)
        if found is None or (found[1] is not None and not self.known.proves(found[1])):
            return None
        return found[0]

    def way(self, expr: ir.Expr) -> int | None:
        """Whether an expression rises (1) or falls (-1) as the key falls behind the query; None where it does neither,
        or that is not known."""
        match expr:
            case ir.Read() if (body := self._opened(expr)) is not None:
                return self.way(body)
            case ir.Map("abs", (inner,)):
                way, sign = self.way(inner), self.sign(inner)
                return None if way is None or sign is None else way * sign
            case _ if expr.type.kind == "whole":
                return self._of_distance(expr)
            case ir.Map("neg", (inner,)):
                way = self.way(inner)
                return None if way is None else -way
            case ir.Map("+" | "-", (left, right)) if self.key not in right.type.coordinates:
                return self.way(left)
            case ir.Map("+" | "-" as op, (left, right)) if self.key not in left.type.coordinates:
                way = self.way(right)
                return None if way is None else way if op == "+" else -way
            case ir.Map(op, (inner,)) if op.startswith("as "):
                return self.way(inner)
            case ir.Map(op, (inner,)) if op in FUNCTIONS and _is_strict(FUNCTIONS[op]):
                way = self.way(inner)
                return None if way is None else way if FUNCTIONS[op].trend == "rising" else -way
            case ir.Map("*" | "/"):
                scaled = self._scaled(expr)
                way = None if scaled is None else self.way(scaled[0])
                return None if way is None or scaled is None else way * scaled[1]
            case ir.Reduce("sum"):
                return self._of_sum(expr)
            case _:
                return None

    def _of_distance(self, expr: ir.Expr) -> int | None:
        """Of `i - j`, and of its multiples."""
        value = polynomial(expr, constants_of(self.view.lets))
        ahead, behind = (value.terms.get(frozenset(((c, 1),)), 0) for c in (self.query, self.key))
        rest = [m for m in value.terms if m not in (frozenset(((self.query, 1),)), frozenset(((self.key, 1),)))]
        if any(isinstance(atom, Coordinate) or atom.type.coordinates for monomial in rest for atom, _ in monomial):
            return None
        return None if not ahead or ahead != -behind else 1 if ahead > 0 else -1

    def _of_sum(self, expr: ir.Reduce) -> int | None:
        """Of what adds up between the key and the query: `sum[k](g[k] where j < k && k <= i)`."""
        sign = self.sign(expr.body)
        if expr.guard is None or sign is None or len(expr.ranges) != 1 or self.key in expr.body.type.coordinates:
            return None
        counted = expr.ranges[0].coordinate
        ways = set()
        ends = set()
        for fact in self.forms.algebra.conditions(expr.guard).values():
            rows = inequalities(fact, constants_of(self.view.lets))
            if rows is None:
                return None
            for row in rows:
                signs = {c: row.terms.get(frozenset(((c, 1),)), 0) for c in (counted, self.key, self.query)}
                if signs[self.key]:
                    ways.add(signs[self.key])
                elif signs[self.query]:
                    ends.add(signs[self.query])
        return sign if ways == {-1} and ends == {1} else None

    def _scaled(self, expr: ir.Expr) -> tuple[ir.Expr, int] | None:
        """The one factor of a product whose sign is not known, or that varies with the key, and the sign of all
        others."""
        product = self.forms.expand(expr, opens=lambda read: False)
        if product.summed or product.conditions:
            return None
        varying = [factor for factor in product.factors if self.key in factor.coordinates]
        signs = [self.sign(factor.expr) for factor in product.factors if factor not in varying]
        if len(varying) != 1 or varying[0].inverse or varying[0].expr == expr or None in signs:
            return None
        return varying[0].expr, -1 if signs.count(-1) % 2 else 1

    def sign(self, expr: ir.Expr) -> int | None:
        """1 where an expression is never negative, -1 where it is never positive, None where that is not known."""
        if expr.type.kind == "whole":
            zero = build.whole(0, expr.span)
            for op, proved in ((">=", 1), ("<=", -1)):
                if self.known.proves(build.apply(op, (expr, zero), "bool", expr.span)):
                    return proved
        match expr:
            case ir.Const(value):
                return 1 if value > 0 else -1 if value < 0 else None
            case ir.Size():
                return 1
            case ir.Read() if (body := self._opened(expr)) is not None:
                return self.sign(body)
            case ir.Map("neg", (inner,)):
                sign = self.sign(inner)
                return None if sign is None else -sign
            case ir.Map("*" | "/", (left, right)):
                one, other = self.sign(left), self.sign(right)
                return None if one is None or other is None else one * other
            case ir.Map("+", (left, right)):
                one, other = self.sign(left), self.sign(right)
                return one if one == other else None
            case ir.Map("**", (base, _)):
                return 1 if self.sign(base) == 1 else None
            case ir.Map(op, (inner,)) if op.startswith("as "):
                return self.sign(inner)
            case ir.Map(op) if op in FUNCTIONS:
                low, high = FUNCTIONS[op].values
                return 1 if low >= 0 else -1 if high <= 0 else None
            case ir.Select(_, then, otherwise):
                one, other = self.sign(then), self.sign(otherwise)
                return one if one == other else None
            case _:
                return None
