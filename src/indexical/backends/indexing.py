"""Reads → views where the index is affine, gathers where it is not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..checker.context import assume, constants_of
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, expression, number, polynomial
from ..ir.types import Coordinate
from ..source import Span
from .base import ATOM, Value
from .expressions import Emitter, Stored, float_text
from .scope import Scope
from .values import aligned, joined, permuted


@dataclass(frozen=True, slots=True)
class Affine:
    """An index that is `offset + Σ factor · coordinate`, the coordinates in force and not stepped."""

    factors: tuple[tuple[Coordinate, Polynomial], ...]
    offset: Polynomial


class Reader(Emitter):
    """Reads of inputs, definitions and figures."""

    def read(self, expr: ir.Read, scope: Scope) -> Value:
        stored = self.stored[expr.tensor]
        kind = expr.type.kind
        if not expr.indices:
            return Value(stored.variable, (), kind, stored.dtype, ATOM, stored.python)
        extents = [axis.extent for axis in self.tensors[expr.tensor].axes]
        indices = list(expr.indices)
        base = Value(stored.variable, (), kind, stored.dtype)
        if stored.rows:
            base, indices, extents = self.rows_so_far(stored, base, indices, extents, scope)
        if not indices:
            return base
        return self.at(base, indices, extents, f"an index of `{expr.tensor}` is out of bounds", scope)

    def rows_so_far(
        self, stored: Stored, base: Value, indices: list[ir.Expr], extents: list[ir.Expr], scope: Scope
    ) -> tuple[Value, list[ir.Expr], list[ir.Expr]]:
        """A definition that is still being computed: one row of it, or all rows there are."""
        steps = [indices[axis] for axis in stored.rows]
        others = [n for n in range(len(indices)) if n not in stored.rows]
        row = [self.number(extents[n]) for n in others]
        shape = f"({', '.join(row)}{',' if len(row) == 1 else ''})"
        dtype = stored.dtype or self.compute
        empty = self.text.dialect.full(shape, "0", dtype)
        if not any(scope.sort(step.type.coordinates) for step in steps):
            place = ", ".join(self.number(step, scope) for step in steps)
            key = place if len(steps) == 1 else f"({place})"
            shown = f"{base.text}.get({key}, {empty})" if scope.conditions() else f"{base.text}[{key}]"
            return base.but(text=shown), [indices[n] for n in others], [extents[n] for n in others]
        counts = [self.number(extents[axis]) for axis in stored.rows]
        key, loops = ("s", f"for s in range({counts[0]})")
        if len(counts) == 2:
            key, loops = "(s, t)", f"for s in range({counts[0]}) for t in range({counts[1]})"
        listed = f"[{base.text}.get({key}, {empty}) {loops}]"
        whole = self.text.dialect.stack(listed, 0)
        order = [*stored.rows, *others]
        flat = ", ".join([*counts, *row])
        table = Value(f"{whole}.reshape({flat})", (), base.kind, base.dtype)
        table = self.text.keep(table, "so_far")
        return table, [indices[n] for n in order], [extents[n] for n in order]

    def figures(self, expr: ir.Array, scope: Scope) -> Value:
        """An array literal."""
        dtype = {"bool": "bool", "whole": "i64"}.get(expr.type.kind, self.compute)
        cells = [_cell(cell) for cell in expr.cells]
        for length in reversed(expr.shape[1:]):
            cells = [f"[{', '.join(cells[n : n + length])}]" for n in range(0, len(cells), max(1, length))]
        literal = f"[{', '.join(cells)}]"
        key = ("figures", literal, dtype)
        if key not in self.known:
            shown = self.text.dialect.constant(literal, dtype)  # type: ignore[arg-type]
            if self.text.dialect.name == "numpy":
                shown = f"np.array({literal}, {self.text.dialect.dtype(dtype)})"  # type: ignore[arg-type]
            self.known[key] = self.text.keep(Value(shown, (), expr.type.kind, dtype), "figures")  # type: ignore[arg-type]
        base = self.known[key]
        extents: list[ir.Expr] = [build.whole(length, expr.span) for length in expr.shape]
        return self.at(base, list(expr.indices), extents, "an index of an array literal is out of bounds", scope)

    # ---------------------------------------------------------------- the index

    def at(self, base: Value, indices: list[ir.Expr], extents: list[ir.Expr], message: str, scope: Scope) -> Value:
        """A tensor at indices, its axes named and in order."""
        forms = [self.affine(index, scope) for index in indices]
        seen: set[Coordinate] = set()
        plan: list[Affine | None] = []
        for form, index, extent in zip(forms, indices, extents, strict=True):
            mine = {c for c, _ in form.factors} if form is not None else set()
            clear = form is not None and not mine & seen and self.is_view(form, index, extent, scope)
            plan.append(form if clear else None)
            seen |= mine if clear else set()
        self.mix_with_gathers(plan, indices, scope)
        text, axes = self.views(base.atom, plan, indices, extents, message, scope)
        gathered = [n for n, form in enumerate(plan) if form is None]
        if gathered:
            return self.gather(base.but(text=text), axes, gathered, indices, extents, message, scope)
        value = base.but(text=text, axes=tuple(axes), binds=ATOM)
        return permuted(value, scope.sort(value.axes), self.text)

    def affine(self, index: ir.Expr, scope: Scope) -> Affine | None:
        """The index as an affine form of the coordinates in force."""
        factors: dict[Coordinate, Polynomial] = {}
        offset = number(0)
        for monomial, factor in polynomial(index, constants_of(self.lets)).terms.items():
            moving = [a for a, _ in monomial if isinstance(a, Coordinate) and scope.places[a].step is None]
            if any(not isinstance(a, Coordinate) and scope.sort(a.type.coordinates) for a, _ in monomial):
                return None
            if not moving:
                offset = offset.plus(Polynomial({monomial: factor}), 1)
                continue
            if len(moving) > 1 or dict(monomial)[moving[0]] != 1:
                return None
            rest = frozenset((a, p) for a, p in monomial if a != moving[0])
            factors[moving[0]] = factors.get(moving[0], number(0)).plus(Polynomial({rest: factor}), 1)
        return Affine(tuple(factors.items()), offset)

    def is_view(self, form: Affine, index: ir.Expr, extent: ir.Expr, scope: Scope) -> bool:
        """Whether slices, splits and windows reach the places of an affine index."""
        if not form.factors:
            return self.is_inside(index, extent, scope, guarded=False)
        if len(form.factors) > 2 or any(self.stride(factor) is None for _, factor in form.factors):
            return False
        if len(form.factors) == 2:
            return self.pair(form, scope) is not None
        return form.factors[0][1].constant is None or form.factors[0][1].constant >= -1

    def stride(self, factor: Polynomial) -> Polynomial | None:
        """A stride that is surely not negative, but for a plain -1."""
        if factor.constant is not None:
            return factor if factor.constant >= -1 and factor.constant != 0 else None
        positive = all(f > 0 and all(isinstance(a, ir.Size) for a, _ in m) for m, f in factor.terms.items())
        return factor if positive else None

    def pair(self, form: Affine, scope: Scope) -> tuple[Coordinate, Coordinate, str] | None:
        """`outer · n + inner` with n points of `inner`: a split. `outer · s + inner` else: windows."""
        for outer, inner in (form.factors, form.factors[::-1]):
            if inner[1].constant != 1 or outer[1].constant is not None and outer[1].constant < 1:
                continue
            place = scope.places[inner[0]]
            if polynomial(place.stop) - polynomial(place.start) == outer[1]:
                return outer[0], inner[0], "split"
        for outer, inner in (form.factors, form.factors[::-1]):
            if inner[1].constant == 1 and outer[1].constant is not None and outer[1].constant >= 1:
                return outer[0], inner[0], "windows"
        return None

    def mix_with_gathers(self, plan: list[Affine | None], indices: list[ir.Expr], scope: Scope) -> None:
        """Axes that share a coordinate with a gather are gathered with it."""
        changed = True
        while changed:
            changed = False
            shared = {c for n, form in enumerate(plan) if form is None for c in scope.sort(indices[n].type.coordinates)}
            for n, form in enumerate(plan):
                if form is not None and shared & {c for c, _ in form.factors}:
                    plan[n] = None
                    changed = True

    def is_inside(self, index: ir.Expr, extent: ir.Expr, scope: Scope, guarded: bool) -> bool:
        """Whether an index is in bounds at every point of its ranges, or only of those where all guards hold."""
        if isinstance(index, ir.Coord) and scope.places[index.coordinate].step is None:
            place = scope.places[index.coordinate]
            if place.measured or (
                place.stop == extent and isinstance(place.start, ir.Const) and place.start.value >= 0
            ):
                return True
        trail = scope.trail if guarded else tuple(step for step in scope.trail if isinstance(step, ir.Range))
        if not guarded:
            trail = tuple(
                ir.Range(c, p.start, p.stop, True, index.span) for c, p in scope.places.items() if p.step is None
            )
            trail += tuple(
                s for s in scope.trail if isinstance(s, ir.Range) and scope.places[s.coordinate].step is not None
            )
        known = assume(trail, self.lets)
        place_, length = polynomial(index, known.constants), polynomial(extent, known.constants)
        return known.entails(place_) and known.entails(length - place_ - 1)

    # -------------------------------------------------------------------- views

    def views(
        self,
        text: str,
        plan: list[Affine | None],
        indices: list[ir.Expr],
        extents: list[ir.Expr],
        message: str,
        scope: Scope,
    ) -> tuple[str, list[Coordinate]]:
        """Slices first, then splits and windows, from the last axis to the first. Axes that are gathered stay,
        named by a coordinate of nothing."""
        slices: list[str] = []
        later: list[tuple[int, str | None]] = []
        flips: list[int] = []
        axes: list[list[Coordinate]] = []
        for n, form in enumerate(plan):
            if form is None:
                slices.append(":")
                axes.append([Coordinate(f"?{n}")])
            elif not form.factors:
                slices.append(self.number(expression(form.offset, indices[n].span), scope))
            else:
                padded = self.padding(n, form, indices[n], extents[n], message, scope)
                if padded is not None:
                    before, after = padded
                    text = f"{self.text.helper('pad')}({text}, {n}, {before}, {after})"
                shown, names = self.slice(len(axes), form, indices[n], extents[n], padded, later, flips, scope)
                slices.append(shown)
                axes.append(names)
        while slices and slices[-1] == ":":
            slices.pop()
        if slices:
            text = f"{text}[{', '.join(slices)}]"
        for axis in flips:
            text = f"{self.text.dialect.module}.flip({text}, ({axis},))"
        for axis, step in reversed(later):
            outer, inner = axes[axis]
            lengths = f"{self.length(outer, scope)}, {self.length(inner, scope)}"
            if step is None:
                text = f"{self.text.helper('split')}({text}, {axis}, {lengths})"
            else:
                text = f"{self.text.helper('windows')}({text}, {axis}, {lengths}, {step})"
                axes = [*axes[:axis], [outer], *axes[axis + 1 :], [inner]]
        return text, [name for names in axes for name in names]

    def padding(
        self, n: int, form: Affine, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope
    ) -> tuple[str, str] | None:
        """How much to pad before and after, where an index leaves its axis at points that a guard removes; where
        no proof shows that it does, that is checked."""
        if self.is_inside(index, extent, scope, guarded=False):
            return None
        if not self.is_inside(index, extent, scope, guarded=True):
            self.check_index(index, extent, message, scope)
        least, beyond = self.reach(form, scope)
        before = self.number(expression(-least, index.span), scope)
        after = self.number(expression(beyond - polynomial(extent, constants_of(self.lets)), index.span), scope)
        names = self.text.fresh("before"), self.text.fresh("after")
        self.text.line(f"{names[0]}, {names[1]} = max(0, {before}), max(0, {after})")
        return names

    def slice(
        self,
        axis: int,
        form: Affine,
        index: ir.Expr,
        extent: ir.Expr,
        padded: tuple[str, str] | None,
        later: list[tuple[int, str | None]],
        flips: list[int],
        scope: Scope,
    ) -> tuple[str, list[Coordinate]]:
        """The slice of one axis, and the coordinates it then holds."""
        first, beyond = self.reach(form, scope)
        covered = padded is None and not first.terms and beyond == polynomial(extent, constants_of(self.lets))
        shift = "" if padded is None else padded[0]
        if len(form.factors) == 2:
            outer, inner, how = self.pair(form, scope) or _no_pair()
            step = None if how == "split" else self.number(expression(dict(form.factors)[outer], index.span), scope)
            later.append((axis, step))
            return ":" if covered else self.bounds(first, beyond, "1", shift, index.span, scope), [outer, inner]
        coordinate, factor = form.factors[0]
        if factor.constant == -1:
            flips.append(axis)
            return self.bounds(first, beyond, "1", shift, index.span, scope), [coordinate]
        measured = scope.places[coordinate].measured and not form.offset.terms and padded is None
        if factor.constant == 1 and (covered or measured):
            return ":", [coordinate]
        step = self.number(expression(factor, index.span), scope)
        return self.bounds(first, beyond, step, shift, index.span, scope), [coordinate]

    def reach(self, form: Affine, scope: Scope) -> tuple[Polynomial, Polynomial]:
        """The first place an affine index reaches, and the one beyond its last."""
        first, last = form.offset, form.offset
        for coordinate, factor in form.factors:
            place = scope.places[coordinate]
            start, end = polynomial(place.start), polynomial(place.stop) - 1
            if factor.constant is not None and factor.constant < 0:
                start, end = end, start
            first, last = first + factor * start, last + factor * end
        return first, last + 1

    def bounds(self, first: Polynomial, beyond: Polynomial, step: str, shift: str, span: Span, scope: Scope) -> str:
        """`first:beyond:step`. An empty range must not wrap around, so nothing here is below 0."""
        texts = []
        for bound in (first, beyond):
            shown = self.number(expression(bound, span), scope)
            if shift:
                shown = shift if shown == "0" else f"{shift} + {shown}"
            if any(factor < 0 for factor in bound.terms.values()):
                shown = f"max(0, {shown})"
            texts.append(shown)
        start = "" if texts[0] == "0" else texts[0]
        return f"{start}:{texts[1]}" + ("" if step == "1" else f":{step}")

    # ------------------------------------------------------------------ gathers

    def check_index(self, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope) -> None:
        value = self.text.keep(self.strong(self.value(index, scope)), "place")
        end = self.number(extent, scope)
        test = f"({value.text} < 0) | ({value.text} >= {end})"
        self.fail_where(test, value.axes, "IX305", message, scope)

    def gather(
        self,
        base: Value,
        axes: list[Coordinate],
        gathered: list[int],
        indices: list[ir.Expr],
        extents: list[ir.Expr],
        message: str,
        scope: Scope,
    ) -> Value:
        """Axes that no view reaches: all at once, by arrays of places."""
        marks = [Coordinate(f"?{n}") for n in gathered]
        rest = [axis for axis in axes if axis not in marks]
        current = replace(base, axes=tuple(axes))
        moved = permuted(current, (*marks, *rest), self.text)
        places = []
        safe = True
        for n in gathered:
            inside = self.is_inside(indices[n], extents[n], scope, guarded=False)
            if not inside and not self.is_inside(indices[n], extents[n], scope, guarded=True):
                self.check_index(indices[n], extents[n], message, scope)
            safe = safe and inside
            places.append(self.value(indices[n], scope))
        union = joined(places, scope.order)
        shown = [aligned(place, union).text for place in places]
        if safe:
            text = f"{moved.atom}[{', '.join(shown)}]"
        else:
            text = f"{self.text.helper('pick')}({', '.join([moved.text, *shown])})"
        value = base.but(text=text, axes=(*union, *rest), binds=ATOM)
        return permuted(value, scope.sort(value.axes), self.text)


def _cell(cell: ir.Const) -> str:
    if cell.type.kind == "bool":
        return str(bool(cell.value))
    return str(cell.value) if cell.type.kind == "whole" else float_text(cell.value)


def _no_pair() -> tuple[Coordinate, Coordinate, str]:
    raise AssertionError("a view of two coordinates was planned for an index that is none")
