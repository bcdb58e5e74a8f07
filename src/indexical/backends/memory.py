"""Reuse of values: those computed before by name, and those that can be hoisted before a loop."""

from __future__ import annotations

from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import walk
from .base import Value, plain
from .code import ALL, ZERO, Infix, Name, Node, call, index
from .layout import Statement
from .scope import Place, Scope
from .values import permuted
from .wholes import Wholes


class Memory(Wholes):
    """Every value is computed once, and as early as it can be."""

    def node(self, expr: ir.Expr, scope: Scope) -> Value:
        """An expression, computed here."""
        raise NotImplementedError

    def held(self, value: Value) -> Value:
        """The value under a name, so that it is computed once however often it is read."""
        if value.python:
            return value
        if value.turned is not None:
            return permuted(self.held(value.turned), value.axes, self.text)
        return self.text.keep(value, "kept" if value.kind == "bool" else self.label)

    def recall(self, expr: ir.Expr, scope: Scope) -> Value | None:
        """The value of an expression that was computed before: anywhere, or under conditions that hold here too."""
        key = (expr, self.compute, self.seen(expr, scope))
        found = self.known.get(key)
        if found is None and ("leans", *key) in self.known:
            conditions = tuple(scope.conditions())
            for count in range(len(conditions) + 1):
                found = found or self.known.get((*key, conditions[:count]))
            # A value computed from it is valid under the same conditions only.
            self.leans += found is not None
        return found

    def computed(self, expr: ir.Expr, scope: Scope) -> Value:
        """The value, remembered: for anywhere, or for where the conditions hold that it is valid under."""
        leans = self.leans
        found = self.node(expr, scope)
        key = (expr, self.compute, self.seen(expr, scope))
        if self.leans == leans:
            self.known[key] = found
        elif not self.asking:  # What was not checked is not used again where it has to be.
            self.known[("leans", *key)] = found
            self.known[(*key, tuple(scope.conditions()))] = found
        return found

    def seen(self, expr: ir.Expr, scope: Scope) -> tuple[tuple[Coordinate, Place], ...]:
        """The part of a scope that an expression depends on."""
        free = expr.type.coordinates
        return tuple((c, place) for c, place in scope.places.items() if c in free)

    def stays(self, expr: ir.Expr, scope: Scope) -> bool:
        """Whether an expression is the same in all turns of the loops around it."""
        places = [scope.places[c] for c in expr.type.coordinates]
        if any(place.step is not None or place.within is not None for place in places):
            return False
        bounds = [bound for place in places for bound in (place.start, place.stop)]
        if any(bound.type.coordinates for bound in bounds):
            return False
        return not any(isinstance(part, ir.Read) and self.stored[part.tensor].growing for part in walk(expr))

    def all_steps(self, expr: ir.Expr, scope: Scope) -> Value | None:
        """Hoist an expression without recurrent values: computed for all steps before the loop, read at this one."""
        stepped = [c for c in expr.type.coordinates if scope.places[c].step is not None]
        if len(stepped) != 1 or not _is_spared(expr, stepped[0]):
            return None
        row = scope.moving(stepped[0])
        conditions = [condition for condition, _ in row.conditions()]
        if not all(self.is_bound(part, row) and self.stays(part, row) for part in (expr, *conditions)):
            return None
        found = self.computed_ahead(expr, row, leaning=True)
        if found is None or stepped[0] not in found.axes:
            return None
        return self.at_step(found, stepped[0], scope)

    def at_step(self, value: Value, coordinate: Coordinate, scope: Scope) -> Value:
        """One point of a row."""
        place, at = scope.places[coordinate], value.axes.index(coordinate)
        start = self.number(place.start, scope)
        assert place.step is not None
        step = place.step if start == ZERO else Infix("-", place.step, start)
        if self.is_unbound() and isinstance(value.code, Name):
            code = index(self.unbound(value.code, at), step)
        else:
            code = index(value.code, *[ALL] * at, step)
        return value.but(code, axes=tuple(axis for axis in value.axes if axis != coordinate))

    def is_unbound(self) -> bool:
        """Whether the steps of an array are taken apart before a loop: a library that differentiates would build a
        gradient as large as the array for every step that is sliced out of it."""
        return bool(self.text.loops) and self.text.checks and self.text.dialect.takes_rows_apart

    def unbound(self, variable: Name, axis: int) -> Node:
        """The steps of an array, taken apart before the loops."""
        steps = Value(self.text.dialect.unbind(variable, axis), (), "real", None)
        return self.named_ahead(steps, f"{variable.text.split('__')[0]}_steps").code

    def steady(self, value: Value) -> Value:
        """A value whose axes are in another order, turned once before the loops, where it stays the same in them."""
        before = None if value.turned is None else value.turned.code
        if not isinstance(before, Name) or not self.is_steady(before):
            return value
        return value.but(self.named_ahead(value, f"{before.text}_turned").code)

    def is_steady(self, code: Node) -> bool:
        """Whether this is an array that stays the same in the loops around."""
        if not isinstance(code, Name) or not self.text.loops or not self.text.checks:
            return False
        return any(stored.variable == code.text and not stored.growing for stored in self.stored.values())

    def named_ahead(self, value: Value, name: str) -> Value:
        """The value under a name of its own, before the loops."""
        key = ("ahead", value.code)
        if key not in self.known:
            with self.outside_loops():
                self.known[key] = self.text.named(value, name)
        return self.known[key]

    def is_bound(self, expr: ir.Expr, scope: Scope) -> bool:
        """Whether every coordinate that an expression varies with is in force."""
        return all(coordinate in scope.places for coordinate in expr.type.coordinates)

    def computed_ahead(self, expr: ir.Expr, scope: Scope, leaning: bool = False) -> Value | None:
        """The value, hoisted before the loops; None where it has to be checked in its place, or where it is valid only
        under a guard and may not be."""
        hoisted, leans, helpers = dict(self.hoisted), self.leans, dict(self.text.helpers)
        known = self.known
        with self.outside_loops() as ahead:
            start = len(ahead)
            found = self.computed(expr, scope)
            good = all(isinstance(s, Statement) and s.kind in ("temporary", "assign") for s in ahead[start:])
            if not good or (self.leans > leans and not leaning):
                del ahead[start:]
                good = False
        if good:
            return found
        self.known, self.hoisted, self.leans, self.text.helpers = known, hoisted, leans, helpers
        return None

    def coordinate(self, coordinate: Coordinate, scope: Scope) -> Value:
        """A coordinate: its step in a loop, else all its points."""
        place = scope.places[coordinate]
        if place.step is not None:
            return plain(place.step)
        start, stop = self.number(place.start, scope), self.number(place.stop, scope)
        if self.text.dialect.refuses_falling_ranges and self.may_be_reversed(coordinate, scope):
            stop = call("max", start, stop)
        key = ("arange", coordinate, start, stop)
        if key not in self.known:
            points = Value(self.text.dialect.arange(start, stop), (coordinate,), "whole", "i64")
            if self.text.loops and not (place.start.type.coordinates or place.stop.type.coordinates):
                with self.outside_loops():
                    self.known[key] = self.text.named(points, coordinate.name)
            else:
                self.known[key] = self.text.named(points, coordinate.name)
        return self.known[key]


def _is_spared(expr: ir.Expr, step: Coordinate) -> bool:
    """Whether it takes no more memory for all steps than its parts have: a sum of products, or whatever has no more
    coordinates than some part of it. Conditions take little; a gather is made once."""
    match expr:
        case ir.Reduce("sum", _, ir.Map("*")):
            return True
        case ir.Map() if expr.type.kind == "bool":
            return len(expr.type.coordinates) == 2
        case ir.Read(_, indices):
            return any({step} < index.type.coordinates for index in indices)
        case ir.Map() | ir.Select() | ir.Reduce() | ir.Normalize() if expr.type.kind == "real":
            parts = (part for part in walk(expr) if isinstance(part, ir.Read | ir.Reduce) and part is not expr)
            return any(part.type.coordinates >= expr.type.coordinates for part in parts)
        case _:
            return False
