"""Definitions → statements: whole arrays, arrays filled clause by clause, recurrences step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate, Dtype
from ..ir.walk import renamed_apart
from .base import Value
from .expressions import Stored
from .reductions import Reducer
from .scope import Place, Scope


@dataclass
class Definer(Reducer):
    """Every definition of a program, as assignments."""

    dtypes: dict[str, Dtype] = field(default_factory=dict)

    def run(self, order: ir.Order, needed: set[str]) -> None:
        match order:
            case ir.Once(name) if name in needed:
                self.define(self.lets[name])
            case ir.Stepwise(axes) if needed & {name for name, _ in axes}:
                self.recur(order)
            case _:
                pass

    # -------------------------------------------------------------- plain ones

    def define(self, let: ir.Let) -> None:
        """A definition whose points can all be computed at once."""
        self.begin(let)
        variable = self.text.fresh(let.name)
        if len(let.clauses) == 1 and all(isinstance(slot, ir.Coord) for slot in let.clauses[0].slots):
            value = self.clause_value(let, let.clauses[0], {})
            if not let.axes and value.python and let.kind != "real":
                self.text.line(f"{variable} = {value.text}")
                self.stored[let.name] = Stored(variable, None, True)
                return
            self.text.line(f"{variable} = {self.finished(let, value, let.clauses[0], {}).text}")
        else:
            shape = self.home(let, ())
            self.text.line(f"{variable} = {self.text.dialect.full(shape, _zero(let), self.dtypes[let.name])}")
            for clause in let.clauses:
                value = self.finished(let, self.clause_value(let, clause, {}), clause, {})
                self.text.line(f"{variable}[{self.slots(let, clause, ())}] = {value.text}")
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])

    def begin(self, let: ir.Let, covered: Sequence[ir.Let] = ()) -> None:
        self.compute = self.dtypes[let.name] if let.kind == "real" else "f64"
        self.label = let.name
        self.text.line("")
        for clause in [clause for other in (*covered, let) for clause in other.clauses]:
            self.text.comment(clause.span.text)

    def home(self, let: ir.Let, without: tuple[int, ...]) -> str:
        lengths = [self.extent(axis.extent) for n, axis in enumerate(let.axes) if n not in without]
        return f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"

    def extent(self, expr: ir.Expr) -> str:
        shown = self.number(expr)
        return shown if isinstance(expr, ir.Size | ir.Const) else f"max(0, {shown})"

    def scope_of(self, clause: ir.Clause, steps: dict[int, str]) -> Scope:
        """The coordinates of a clause in the order of its slots; those of stepped axes have their step."""
        ranges = {range.coordinate: range for range in clause.ranges}
        scope = Scope({})
        for axis, slot in enumerate(clause.slots):
            if isinstance(slot, ir.Coord) and slot.coordinate in ranges:
                range = ranges[slot.coordinate]
                place = Place(range.lower, range.upper, not range.stated, None, steps.get(axis))
                scope = scope.binding(range, place)
        return scope

    def clause_value(self, let: ir.Let, clause: ir.Clause, steps: dict[int, str]) -> Value:
        """The body, with 0 where the guard removes a point."""
        scope = self.scope_of(clause, steps)
        taken = {coordinate.name for coordinate in scope.places}
        body = renamed_apart(clause.body, taken)
        if clause.guard is None:
            return self._typed(let, self.value(body, scope))
        mask = self.text.short(self.value(renamed_apart(clause.guard, taken), scope), "kept")
        value = self._typed(let, self.value(body, scope.where(clause.guard)))
        zero = Value(_zero(let), (), let.kind, None, python=True)
        if value.python:
            value = self.strong(value, self.dtypes[let.name])
        return self.where(mask, value, zero, scope, value.dtype)

    def _typed(self, let: ir.Let, value: Value) -> Value:
        return self.real(value) if let.kind == "real" else value

    def finished(self, let: ir.Let, value: Value, clause: ir.Clause, steps: dict[int, str]) -> Value:
        """All points of the clause's slots, in the definition's dtype."""
        scope = self.scope_of(clause, steps)
        axes = scope.sort(scope.places)
        dtype = self.dtypes[let.name]
        if value.python:
            return Value(
                self.text.dialect.full(self.shape(axes, scope) if axes else "()", value.text, dtype),
                axes,
                let.kind,
                dtype,
            )
        value = self.spread(self.turned(value, axes), axes, scope)
        if value.dtype != dtype:
            value = replace(self.cast_to(value, dtype), kind=let.kind)
        if isinstance(clause.body, ir.Read | ir.Array) or ".broadcast_to(" in value.text:
            value = value.but(text=self.text.dialect.copy(value.atom))
        return value

    def cast_to(self, value: Value, dtype: Dtype) -> Value:
        if dtype == "bf16" and self.text.dialect.name == "numpy":
            value = self.text.dialect.cast(value, "f32")
            return value.but(text=f"{self.text.helper('round_bf16')}({value.text})", dtype="bf16")
        return self.text.dialect.cast(value, dtype)

    def slots(self, let: ir.Let, clause: ir.Clause, without: tuple[int, ...]) -> str:
        """Where the points of a clause go."""
        scope = self.scope_of(clause, {})
        shown = []
        for n, slot in enumerate(clause.slots):
            if n in without:
                continue
            if isinstance(slot, ir.Coord) and slot.coordinate in scope.places:
                place = scope.places[slot.coordinate]
                start, stop = self.number(place.start), self.extent(place.stop)
                shown.append(f"{start}:{stop}")
            else:
                shown.append(self.number(slot))
        return ", ".join(shown) or "..."

    # ------------------------------------------------------------- recurrences

    def recur(self, order: ir.Stepwise) -> None:
        """A loop over what a recurrence steps; everything else stays an array."""
        axes = _stepped(order)
        for name in axes:
            let = self.lets[name]
            self.begin(let)
            variable = self.text.fresh(name)
            self.text.line(f"{variable} = {{}}")
            self.stored[name] = Stored(variable, self.dtypes[name], rows=axes[name])
        self.loop(order, {})
        for name, stepped in axes.items():
            self.assemble(self.lets[name], stepped)

    def loop(self, order: ir.Stepwise, steps: dict[str, dict[int, str]]) -> None:
        names = {self.extent(self.lets[name].axes[axis].extent) for name, axis in order.axes}
        count = names.pop() if len(names) == 1 else f"max({', '.join(sorted(names))})"
        first, axis = order.axes[0]
        step = self.text.fresh(self.lets[first].axes[axis].coordinate.name)
        loop = f"range({count})" if order.forward else f"reversed(range({count}))"
        self.text.line(f"for {step} in {loop}:")
        inner = {name: {**steps.get(name, {}), axis: step} for name, axis in order.axes}
        with self.block():
            for item in order.body:
                if isinstance(item, ir.Stepwise):
                    self.loop(item, {**steps, **inner})
                else:
                    self.step(self.lets[item.name], inner.get(item.name, steps.get(item.name, {})))

    def step(self, let: ir.Let, steps: dict[int, str]) -> None:
        """The points of a definition at one step."""
        stored = self.stored[let.name]
        self.compute = self.dtypes[let.name] if let.kind == "real" else "f64"
        self.label = let.name
        key = ", ".join(steps[axis] for axis in stored.rows)
        place = f"{stored.variable}[{key}]"
        partial = any(self.is_partial(let, clause, steps) for clause in let.clauses)
        inside = [f"{steps[n]} < {self.extent(let.axes[n].extent)}" for n in stored.rows]
        if partial:
            empty = self.text.dialect.full(self.home(let, stored.rows), _zero(let), self.dtypes[let.name])
            self.text.line(f"if {' and '.join(inside)}:")
            with self.block():
                self.text.line(f"{place} = {empty}")
        for clause in let.clauses:
            tests = self.tests(let, clause, steps)
            self.text.line(f"if {' and '.join(tests) or 'True'}:")
            with self.block():
                value = self.finished(let, self.clause_value(let, clause, steps), clause, steps)
                if partial:
                    self.text.line(f"{place}[{self.slots(let, clause, stored.rows)}] = {value.text}")
                else:
                    self.text.line(f"{place} = {value.text}")

    def is_partial(self, let: ir.Let, clause: ir.Clause, steps: dict[int, str]) -> bool:
        """Whether a clause fills only a part of its row."""
        ranges = {range.coordinate: range for range in clause.ranges}
        for n, (slot, axis) in enumerate(zip(clause.slots, let.axes, strict=True)):
            if n in steps:
                continue
            if not isinstance(slot, ir.Coord):
                return True
            range = ranges[slot.coordinate]
            if range.upper != axis.extent or range.lower != build.whole(0, range.span):
                return True
        return False

    def tests(self, let: ir.Let, clause: ir.Clause, steps: dict[int, str]) -> list[str]:
        """When a clause speaks of this step."""
        ranges = {range.coordinate: range for range in clause.ranges}
        result = []
        for axis, step in steps.items():
            slot = clause.slots[axis]
            if isinstance(slot, ir.Coord):
                range = ranges[slot.coordinate]
                result.append(f"{self.number(range.lower)} <= {step} < {self.number(range.upper)}")
            else:
                result.append(f"{step} == {self.number(slot)}")
        return result

    def assemble(self, let: ir.Let, stepped: tuple[int, ...]) -> None:
        """The steps of a recurrence as one array."""
        variable = self.stored[let.name].variable
        counts = [self.extent(let.axes[n].extent) for n in stepped]
        row = [self.extent(axis.extent) for n, axis in enumerate(let.axes) if n not in stepped]
        names = ["s", "t", "u", "v"][: len(counts)]
        key = ", ".join(names)
        loops = " ".join(f"for {name} in range({count})" for name, count in zip(names, counts, strict=True))
        listed = f"[{variable}[{key}] {loops}]"
        shape = f"({', '.join([*counts, *row])},)"
        empty = self.text.dialect.full(shape, _zero(let), self.dtypes[let.name])
        order = [*stepped, *(n for n in range(len(let.axes)) if n not in stepped)]
        whole = f"{self.text.dialect.stack(listed, 0)}.reshape{shape}"
        if order != sorted(order):
            back = tuple(order.index(n) for n in range(len(order)))
            whole = self.text.dialect.permute(whole, back)
            empty = self.text.dialect.permute(empty, back)
        self.text.line(f"{variable} = {whole} if {variable} else {empty}")
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])


def _stepped(order: ir.Stepwise) -> dict[str, tuple[int, ...]]:
    """Every definition of a recurrence with the axes that are stepped, outermost first."""
    result: dict[str, tuple[int, ...]] = {}
    for name, axis in order.axes:
        result[name] = (axis,)
    for item in order.body:
        if isinstance(item, ir.Stepwise):
            for name, axes in _stepped(item).items():
                result[name] = (*result.get(name, ()), *axes)
    return result


def _zero(let: ir.Let) -> str:
    return "False" if let.kind == "bool" else "0"


assert Coordinate
