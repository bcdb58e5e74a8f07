"""Affine indices → views: slices, splits, windows, and zeros where an index leaves its axis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, expression, number, polynomial
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import substitute
from ..source import Span
from .base import Value, plain
from .code import ALL, ONE, ZERO, Between, Dict, Node, Prefix, Slice, Tuple, call, chain, infix, node
from .expressions import Emitter
from .scope import Scope


@dataclass(frozen=True, slots=True)
class Access:
    """The places of an index: `first`, and all up to `beyond`, every `step`-th of them.

    A `fixed` one is a single place, a `run` has one coordinate, a `split` two of which the inner one fills the step of
    the outer, `windows` two that overlap, of which the inner one goes on by its `dilation`. A `backward` one has its
    places from the last to the first; of a split and of windows only the `flipped` coordinates run that way. `padded`
    ones leave the axis where a guard removes points, and find 0 there.
    """

    how: Literal["fixed", "run", "split", "windows"]
    coordinates: tuple[Coordinate, ...]
    first: Polynomial
    beyond: Polynomial
    step: Polynomial
    backward: bool = False
    padded: bool = False
    dilation: int = 1
    flipped: tuple[Coordinate, ...] = ()


class Views(Emitter):
    """The choice of indices that are views, and their code."""

    # ---------------------------------------------------------------- which view

    def access(self, index: ir.Expr, scope: Scope) -> Access | None:
        """An index as a view; None where it has to be gathered."""
        if isinstance(index, ir.Coord) and scope.places[index.coordinate].step is None:
            place = scope.places[index.coordinate]
            return Access("run", (index.coordinate,), polynomial(place.start), polynomial(place.stop), number(1))
        found = self.affine(index, scope)
        if found is None:
            return None
        factors, offset = found
        if not factors:
            return Access("fixed", (), offset, offset + 1, number(1))
        if len(factors) == 1:
            return self.straight(factors[0], offset, index.span, scope)
        return self.pair(factors, offset, index.span, scope) if len(factors) == 2 else None

    def affine(self, index: ir.Expr, scope: Scope) -> tuple[list[tuple[Coordinate, Polynomial]], Polynomial] | None:
        """The index as `offset + Σ factor · coordinate`, the coordinates in force and not stepped, all else plain
        numbers; None where it is nothing of the kind."""
        factors: dict[Coordinate, Polynomial] = {}
        offset = number(0)
        for monomial, factor in polynomial(index).terms.items():
            moving = [a for a, _ in monomial if isinstance(a, Coordinate) and scope.places[a].step is None]
            if any(not isinstance(a, Coordinate) and not self.is_plain(a, scope) for a, _ in monomial):
                return None
            if not moving:
                offset = offset.plus(Polynomial({monomial: factor}), 1)
                continue
            if len(moving) > 1 or dict(monomial)[moving[0]] != 1:
                return None
            rest = frozenset((a, p) for a, p in monomial if a != moving[0])
            factors[moving[0]] = factors.get(moving[0], number(0)).plus(Polynomial({rest: factor}), 1)
        return list(factors.items()), offset

    def is_plain(self, expr: ir.Expr, scope: Scope) -> bool:
        """Whether an expression is a plain number in the emitted code, without reading an array."""
        match expr:
            case ir.Const() | ir.Size():
                return True
            case ir.Coord(coordinate):
                return scope.places[coordinate].step is not None
            case ir.Read(tensor, ()):
                return self.stored[tensor].python
            case ir.Map("+" | "-" | "*" | "//" | "%" | "neg" | "max" | "min" | "abs", arguments):
                return all(self.is_plain(argument, scope) for argument in arguments)
            case _:
                return False

    def straight(
        self, factor: tuple[Coordinate, Polynomial], offset: Polynomial, span: Span, scope: Scope
    ) -> Access | None:
        """One coordinate, forward or backward in steps; None for a step that may be 0."""
        coordinate, step = factor
        first, beyond = self.reach([factor], offset, span, scope)
        through = self.through(step, span)
        if through.constant is not None and through.constant < 0:
            return Access("run", (coordinate,), first, beyond, number(-through.constant), backward=True)
        if not self.prover.entails((), through - 1):
            return None
        return Access("run", (coordinate,), first, beyond, step)

    def pair(
        self, factors: list[tuple[Coordinate, Polynomial]], offset: Polynomial, span: Span, scope: Scope
    ) -> Access | None:
        """`outer · n + inner` with n points of `inner`: a split. `outer · s + inner · d` else: windows. Either of the
        two may count down: then its axis is turned around, or that of the whole array if both do."""
        falling = tuple(coordinate for coordinate, factor in factors if self.is_falling(factor, span))
        whole = len(falling) == 2
        steps = {c: -factor if c in falling else factor for c, factor in factors}
        through = {c: self.through(step, span) for c, step in steps.items()}
        first, beyond = self.reach(factors, offset, span, scope)
        (one, _), (other, _) = factors
        turned = Access("split", (), first, beyond, number(1), whole, flipped=() if whole else falling)
        for outer, inner in ((one, other), (other, one)):
            filled = self.through(self.extent_of(inner, scope), span) == through[outer]
            if through[inner].constant == 1 and filled and self.prover.entails((), through[outer]):
                return replace(turned, coordinates=(outer, inner), step=steps[outer])
        for wide in (False, True):
            for outer, inner in ((one, other), (other, one)):
                stride, dilation = through[outer].constant or 0, through[inner].constant or 0
                if stride >= 1 and (dilation == 1 or (wide and dilation >= 1)):
                    found = replace(turned, how="windows", coordinates=(outer, inner), step=steps[outer])
                    return replace(found, dilation=dilation)
        return None

    def is_falling(self, factor: Polynomial, span: Span) -> bool:
        """Whether an index goes down as a coordinate with this factor goes up."""
        through = self.through(factor, span)
        return bool(through.terms) and self.prover.is_count(-through)

    def reach(
        self, factors: list[tuple[Coordinate, Polynomial]], offset: Polynomial, span: Span, scope: Scope
    ) -> tuple[Polynomial, Polynomial]:
        """The first place an affine index reaches, and the one beyond its last."""
        first, last = offset, offset
        for coordinate, factor in factors:
            place = scope.places[coordinate]
            start, end = polynomial(place.start), polynomial(place.stop) - 1
            if self.is_falling(factor, span):
                start, end = end, start
            first, last = first + factor * start, last + factor * end
        return first, last + 1

    # -------------------------------------------------------------------- bounds

    def bounded(self, access: Access, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope) -> Access | None:
        """The access, in bounds wherever it is evaluated: by proof, or by a check. None for a single place that may be
        out of bounds where a guard removes it. A single place is read even where there are no points."""
        inside = self.prover.is_inside(index, extent, scope, guarded=False)
        if inside and access.how != "fixed":
            return access
        if inside or not (scope.conditions() or self.asking):
            self.check_reach(access, index, extent, message, scope)
            return access
        if not self.prover.is_inside(index, extent, scope, guarded=True):
            self.check_index(index, extent, message, scope)
        self.leans += 1
        if access.how == "fixed":
            return None
        if not self.text.loops:
            self.tell_padding(access, index, extent)
        return replace(access, padded=True)

    def tell_padding(self, access: Access, index: ir.Expr, extent: ir.Expr) -> None:
        """Say in the plan how many zeros are put before and after an axis."""
        ends = {"before": -access.first, "after": access.beyond - polynomial(extent)}
        some = {side: end for side, end in ends.items() if end.constant is None or end.constant > 0}
        counts = [f"`{shown(expression(end, index.span))}` {side} it" for side, end in some.items()]
        self.tell(f"`{shown(index)}` leaves its axis; zeros: {' and '.join(counts) or 'none'}")

    def check_reach(self, access: Access, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope) -> None:
        """Refuse where the first or the last place is out of bounds; with no points there is none."""
        around = scope.standing
        length, span = polynomial(extent), index.span
        ends = [access.first, length - access.beyond]
        open_ends = [end for end in ends if not self.prover.entails(around, self.through(end, span))]
        if not open_ends:
            return
        tests = [self.is_below(end, span, scope) for end in open_ends]
        empty = [c for c in access.coordinates if not self.is_filled(c, scope)]
        some = [infix(">", self.plain(self.extent_of(c, scope), span, scope).code, 0) for c in empty]
        self.refuse_once(chain("and", [*some, chain("or", tests)]), "IX305", message)

    def check_index(self, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope) -> None:
        """Refuse where an index is out of bounds at a point that is evaluated."""
        with self.labelled("place"):
            place = self.text.keep(self.value(index, scope), "place")
        self.check_place(place, index, extent, message, scope)

    def check_place(self, place: Value, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope) -> None:
        """Refuse where a place is out of bounds, on that side where no proof says that it is not."""
        where, length = self.prover.polynomial(index), self.prover.polynomial(extent)
        below = not self.prover.entails(scope.trail, where)
        above = not self.prover.entails(scope.trail, length - where - 1)
        if place.python or (not scope.conditions() and self.is_rising(index, scope)):
            self.check_last(index, extent, below, above, message, scope)
            return
        end = self.plain(polynomial(extent), extent.span, scope).code
        before, behind = infix("<", place.code, 0), infix(">=", place.code, end)
        test: Node = before if below else behind
        if not place.axes and self.text.dialect.branches_on_scalars:
            test = Prefix("not ", Between(ZERO, place.code, end)) if below and above else test
            self.fail_where(plain(test, "bool"), "IX305", message, scope)
            return
        test = infix("|", before, behind) if below and above else test
        self.fail_where(Value(test, place.axes, "bool", "bool"), "IX305", message, scope)

    def is_rising(self, index: ir.Expr, scope: Scope) -> bool:
        """Whether an index is a quotient that grows with its one coordinate: then checking its ends is enough."""
        match index:
            case ir.Map("//", (ir.Coord(coordinate), by)):
                counted = self.prover.entails(scope.box, self.prover.polynomial(by))
                return scope.places[coordinate].step is None and self.is_plain(by, scope) and counted
        return False

    def check_last(self, index: ir.Expr, extent: ir.Expr, below: bool, above: bool, message: str, scope: Scope) -> None:
        """Refuse where the first or the last place of an index is out of bounds, by plain numbers."""
        first, last = index, index
        some: list[Node] = []
        for coordinate in scope.sort(index.type.coordinates):
            place = scope.places[coordinate]
            end = build.apply("-", (place.stop, build.whole(1, index.span)), "whole", index.span)
            first, last = substitute(first, {coordinate: place.start}), substitute(last, {coordinate: end})
            if not self.is_filled(coordinate, scope):
                some = [infix(">", self.plain(self.extent_of(coordinate, scope), index.span, scope).code, 0)]
        tests = [self.is_below(polynomial(first), index.span, scope)] if below else []
        if above:
            tests.append(self.is_below(polynomial(extent) - polynomial(last) - 1, index.span, scope))
        test = plain(chain("and", [*some, chain("or", tests)]), "bool")
        self.fail_where(test, "IX305", message, scope)

    # ----------------------------------------------------------------- the slice

    def slice(self, access: Access, index: ir.Expr, extent: ir.Expr, scope: Scope) -> Node:
        """The slice of one axis for a view."""
        span = index.span
        if access.how == "fixed":
            return self.plain(access.first, span, scope).code
        step = self.plain(access.step, span, scope).code if access.how == "run" else ONE
        every = ALL if step == ONE else Slice(step=step)
        if access.padded or self.is_whole(access, index, extent, scope):
            return every
        around = scope.standing
        first, beyond = self.through(access.first, span), self.through(access.beyond, span)
        length = self.prover.polynomial(extent)
        start = None if not first.terms else self.plain(access.first, span, scope).code
        if not self.prover.entails(around, first, also=(length - 1,)):
            start = call("max", 0, start)
        if beyond == length:
            return replace(every, start=start)
        stop = self.plain(access.beyond, span, scope).code
        if not self.is_safe_stop(first, beyond, length, around):
            stop = call("max", 0, stop)
        return replace(every, start=start, stop=stop)

    def is_whole(self, access: Access, index: ir.Expr, extent: ir.Expr, scope: Scope) -> bool:
        """Whether a view has every place of its axis."""
        place = scope.places[access.coordinates[0]]
        if isinstance(index, ir.Coord) and self.prover.is_measured(place, extent):
            return True
        span = index.span
        if access.how == "run" and self.through(access.step, span).constant != 1:
            return False
        first, beyond = self.through(access.first, span), self.through(access.beyond, span)
        return not first.terms and beyond == self.prover.polynomial(extent)

    def is_safe_stop(
        self,
        first: Polynomial,
        beyond: Polynomial,
        length: Polynomial,
        around: tuple[ir.Range | tuple[ir.Expr, bool], ...],
    ) -> bool:
        """Whether a slice that ends before it starts is empty as it stands: a negative end counts from behind."""
        if self.prover.entails(around, beyond, also=(length - 1,)):
            return True
        return self.prover.entails(around, first - beyond - length, also=(length - 1, -beyond - 1))

    def padded(self, code: Node, accesses: dict[int, Access], spans: list[Span], scope: Scope) -> Node:
        """Zeros where these axes are left."""
        if not accesses:
            return code
        places: list[tuple[Node, Node]] = []
        for axis, access in accesses.items():
            ends = (self.plain(end, spans[axis], scope).code for end in (access.first, access.beyond))
            places.append((node(axis), Tuple(tuple(ends))))
        return call(self.text.helper("padded"), code, Dict(tuple(places)))
