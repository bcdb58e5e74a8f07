"""Recurrences, drawn at random: forward and backward, over one coordinate and over two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.laws.inputs import Inputs
from tests.laws.scopes import Scope, number, plus, size_of
from tests.laws.terms import (
    Binder,
    Clause,
    Coordinate,
    Dim,
    Function,
    If,
    Kind,
    Let,
    Number,
    Op,
    Place,
    Read,
    Tensor,
    Term,
)


class Recurrences(Inputs):
    """Draws definitions that read themselves, or each other."""

    def entered_all(self, scope: Scope, coordinates: Sequence[Coordinate], *nodes: Any) -> tuple[Binder, ...]:
        raise NotImplementedError

    def points(self) -> list[Let]:
        raise NotImplementedError

    def recurrence(self) -> list[Let]:
        """One or two base cases and a rule, forward or backward; or one clause that asks where it stands."""
        made = self.stepped()
        if made is None:
            return self.points()
        t, dim, scope, others, kind = made
        tensor = Tensor(self.fresh("h"), (dim, *(c.dim for c in others)), kind)  # type: ignore[misc]
        deep = 2 if size_of(dim) > 2 and self.chance(25) else 1
        forward = self.chance(65)
        steps = [plus(Place(t), -k if forward else k) for k in range(1, deep + 1)]
        t.count = Dim(size_of(dim) - deep)
        rule_scope = replace(scope, previous=tuple((tensor, (step,)) for step in steps), fixed=(t,))
        if forward and deep == 1 and self.chance(25):
            return [self.questioned(tensor, t, dim, rule_scope, others, kind)]
        rule = self.rule(rule_scope, kind)
        upper, *ends = self.words((t, dim), *((c, c.dim) for c in others))  # type: ignore[arg-type]
        bases = []
        around = replace(scope, coordinates=tuple(others), places=scope.places[1:], previous=())
        for step in range(deep):
            base = self.term(around.strict(), kind, 1)
            at = number(step) if forward else plus(upper, -1 - step)
            bases.append(Clause((at, *self.beside(others, ends)), base))
        lower = number(deep if forward else 0)
        binder = Binder(t, lower, upper if forward else plus(upper, -deep))
        clauses = self.shuffled([*bases, Clause((binder, *self.beside(others, ends)), rule)])
        return [Let(tensor, tuple(clauses))]

    def stepped(self) -> tuple[Coordinate, Dim, Scope, list[Coordinate], Kind] | None:
        """A coordinate to go along, and others beside it."""
        dims = [dim for name, dim in self.sizes.items() if size_of(dim) > 1]
        if not dims:
            return None
        dim = self.pick(dims)
        scope = self.scope.strict()
        t = self.coordinate(scope, dim, full=False)
        scope = scope.binding(t, (Place(t), dim), size=size_of(dim))
        others: list[Coordinate] = []
        if self.chance(50):
            other = self.coordinate(scope, self.pick(list(self.sizes.values())), beside=[t])
            others.append(other)
            scope = scope.binding(other, (Place(other), other.dim), size=size_of(other.dim))  # type: ignore[arg-type]
        return t, dim, scope, others, self.weighted((4, "real"), (1, "whole"))

    def rule(self, scope: Scope, kind: Kind) -> Term:
        """What a step is: made of earlier ones, and kept small."""
        tensor, first = self.pick(scope.previous)
        before = Read(tensor, (*first, *(self.index(scope, dim) for dim in tensor.axes[len(first) :])))
        other = self.term(scope, kind, 2)
        if kind == "whole":
            return Op(("%",), (Op(("+",), (before, other), "whole"), number(7)), "whole")
        together = Op((self.pick(("+", "*", "-")),), (before, other), "real")
        if self.chance(70):
            return Function("tanh", (together,), "real")
        return Op(("*",), (together, Number("0.5")), "real")

    def questioned(
        self, tensor: Tensor, t: Coordinate, dim: Dim, scope: Scope, others: list[Coordinate], kind: Kind
    ) -> Let:
        """`let h[t] = if t > 0 { … h[t - 1] … } else { … };`"""
        t.dim, t.count = dim, None
        base = self.term(replace(scope, previous=()), kind, 1)
        body = If(Op((">",), (Place(t), number(0)), "bool"), self.rule(scope, kind), base, kind)
        return Let(tensor, (Clause(self.entered_all(scope, [t, *others], body), body),))

    def words(self, *axes: tuple[Coordinate, Dim]) -> list[Term]:
        """How far each axis of a recurrence goes: one term for all clauses, which no coordinate beside it changes."""
        found = []
        for own, dim in axes:
            beside = tuple(Coordinate(other.name) for other, _ in axes if other is not own)
            found.append(self.extent(replace(self.scope, coordinates=beside), dim))
        return found

    def beside(self, coordinates: Sequence[Coordinate], ends: Sequence[Term]) -> list[Binder]:
        """The coordinates beside the one that a recurrence goes along."""
        return [Binder(c, number(0), end) for c, end in zip(coordinates, ends, strict=True)]

    def recurrence_over_two(self) -> list[Let]:
        """A table filled from a corner: `g[i - 1, j]`, `g[i, j - 1]`, `g[i - 1, j - 1]`."""
        dims = [dim for dim in self.sizes.values() if size_of(dim) > 1]
        if not dims:
            return self.points()
        scope = self.scope.strict()
        dim = self.pick(dims)
        i = self.coordinate(scope, dim, full=False)
        scope = scope.binding(i, (Place(i), dim), size=size_of(dim))
        other = self.pick(dims)
        j = self.coordinate(scope, other, full=False, beside=[i])
        scope = scope.binding(j, (Place(j), other), size=size_of(other))
        kind: Kind = self.pick(("real", "whole"))
        tensor = Tensor(self.fresh("h"), (dim, other), kind)
        i.count, j.count = Dim(size_of(dim) - 1), Dim(size_of(other) - 1)
        up, back = plus(Place(i), -1), plus(Place(j), -1)
        firsts = self.shuffled([(up, Place(j)), (Place(i), back), (up, back)])[: 1 + self.choose(3)]
        inner = replace(scope, previous=tuple((tensor, first) for first in firsts), fixed=(i, j))
        rule = self.rule(inner, kind)
        corner = self.simple(replace(scope, coordinates=()), kind)
        down = replace(scope.without([j]), previous=((tensor, (up, number(0))),), fixed=(i,))
        along = replace(scope.without([i]), previous=((tensor, (number(0), back)),), fixed=(j,))
        ends = self.words((i, dim), (j, other))
        clauses = [
            Clause((number(0), number(0)), corner),
            Clause((Binder(i, number(1), ends[0]), number(0)), self.rule(down, kind)),
            Clause((number(0), Binder(j, number(1), ends[1])), self.rule(along, kind)),
            Clause((Binder(i, number(1), ends[0]), Binder(j, number(1), ends[1])), rule),
        ]
        return [Let(tensor, tuple(self.shuffled(clauses)))]

    def two_recurrences(self) -> list[Let]:
        """A state and a cell that read each other, as in an LSTM."""
        made = self.stepped()
        if made is None:
            return self.points()
        t, dim, scope, others, kind = made
        axes = (dim, *(c.dim for c in others))
        t.count = Dim(size_of(dim) - 1)
        state, cell = (Tensor(self.fresh("h"), axes, kind) for _ in range(2))  # type: ignore[arg-type]
        back = plus(Place(t), -1)
        around = replace(scope, coordinates=tuple(others), places=scope.places[1:])
        upper, *ends = self.words((t, dim), *((c, c.dim) for c in others))  # type: ignore[arg-type]
        lets = []
        for tensor, reads in (
            (state, ((cell, (Place(t),)), (state, (back,)))),
            (cell, ((state, (back,)), (cell, (back,)))),
        ):
            # The first of them is read for certain: each needs the other.
            inner = replace(scope, previous=reads[: 1 + self.choose(2)], fixed=(t,))
            rule = Op(("+",), (self.rule(replace(inner, previous=reads[:1]), kind), self.rule(inner, kind)), kind)
            if kind == "whole":
                rule = Op(("%",), (rule, number(5)), kind)
            base = self.term(around, kind, 1)
            first = Clause((number(0), *self.beside(others, ends)), base)
            step = Clause((Binder(t, number(1), upper), *self.beside(others, ends)), rule)
            lets.append(Let(tensor, (first, step)))
        return lets
