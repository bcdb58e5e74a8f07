"""Definitions → statements: whole arrays, or arrays filled clause by clause."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Dtype
from ..ir.walk import renamed_apart
from .base import Value, is_step, plain
from .code import ALL, ELLIPSIS, ZERO, Name, Node, Slice, Tuple, call
from .removal import Remover, is_written, mask_name
from .scope import Place, Scope
from .state import Stored
from .values import aligned
from .wholes import LARGEST

NO_STEPS: Mapping[int, Node] = {}


@dataclass
class Clauses(Remover):
    """Every definition of a program, as assignments. An alias is copied where it is `handed_out`; None says that all
    are. `borrowed` are definitions that are an alias of something else."""

    dtypes: dict[str, Dtype] = field(default_factory=dict)
    handed_out: frozenset[str] | None = None
    borrowed: set[str] = field(default_factory=set)

    # -------------------------------------------------------------- plain ones

    def define(self, let: ir.Let) -> None:
        """A definition whose points can all be computed at once."""
        self.begin(let)
        variable = self.text.fresh(let.name)
        if not self.is_one(let):
            self.define_by_clauses(let, variable)
            return
        clause = let.clauses[0]
        value = self.clause_value(let, clause, {})
        if not let.axes and value.python:
            self.text.assign(variable, value.code)
            self.stored[let.name] = Stored(variable, None, True)
            return
        own = self.handed_out is None or let.name in self.handed_out
        self.text.assign(variable, self.finished(let, value, clause, {}, own))
        starts = tuple(range.lower for range in clause.ranges)
        self.stored[let.name] = Stored(variable, self.dtypes[let.name], starts=starts)
        self.define_mask(let)

    def define_by_clauses(self, let: ir.Let, variable: str) -> None:
        """An array of zeros first, then each clause in its place."""
        shape = self.home(let, ())
        self.text.assign(variable, self.text.dialect.full(shape, zero_of(let), self.dtypes[let.name]))
        for clause in let.clauses:
            code = self.placed(let, self.clause_value(let, clause, {}), clause, {})
            self.text.store(variable, self.slots(let, clause, ()), code)
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])
        self.define_mask(let)

    def is_one(self, let: ir.Let) -> bool:
        """Whether one clause has all points, with its coordinates in the order of the axes; `y[0]` has one point, and
        no coordinate for it."""
        clause = let.clauses[0]
        slots = tuple(slot.coordinate if isinstance(slot, ir.Coord) else None for slot in clause.slots)
        return len(let.clauses) == 1 and slots == tuple(range.coordinate for range in clause.ranges)

    def begin(self, let: ir.Let, covered: Sequence[ir.Let] = ()) -> None:
        self.speak_of(let)
        self.text.blank()
        for text in dict.fromkeys(clause.span.text for other in (*covered, let) for clause in other.clauses):
            self.text.comment(text)

    def speak_of(self, let: ir.Let) -> None:
        """Weak numbers take the dtype of this definition from here on, and steps its name. What has 16 bits is
        computed with 32."""
        self.text.subject = let.name
        dtype = self.dtypes[let.name] if let.kind == "real" else "f64"
        self.compute = "f32" if dtype in ("f16", "bf16") else dtype
        self.label = self.step_name(let)

    def step_name(self, let: ir.Let) -> str:
        """The name of the steps of a definition: of a local one without the name of its owner. A number is no name."""
        ends = [end for end, letter in enumerate(let.name) if letter == "_"] if let.hidden else []
        owned = [end for end in ends if let.name[:end] in self.lets and not self.lets[let.name[:end]].hidden]
        name = let.name[owned[-1] + 1 :] if owned else let.name
        return name if len(name) <= 10 and name.isidentifier() and not keyword.iskeyword(name) else "part"

    def home(self, let: ir.Let, without: tuple[int, ...]) -> Tuple:
        return Tuple(tuple(self.extent(axis.extent) for n, axis in enumerate(let.axes) if n not in without))

    # ------------------------------------------------------------------ clauses

    def scope_of(self, clause: ir.Clause, steps: Mapping[int, Node]) -> Scope:
        """The coordinates of a clause in the order of its slots; those of stepped axes have their step."""
        ranges = {range.coordinate: range for range in clause.ranges}
        scope = Scope({})
        for axis, slot in enumerate(clause.slots):
            if isinstance(slot, ir.Coord) and slot.coordinate in ranges:
                range = ranges[slot.coordinate]
                place = Place(range.lower, range.upper, not range.stated, None, steps.get(axis))
                scope = scope.binding(range, place)
        return scope

    def clause_value(self, let: ir.Let, clause: ir.Clause, steps: Mapping[int, Node]) -> Value:
        """The body, with 0 where the guard removes a point."""
        scope = self.scope_of(clause, steps)
        taken = {coordinate.name for coordinate in scope.places}
        body = renamed_apart(clause.body, taken)
        if clause.guard is None:
            return self._typed(let, self.value(body, scope))
        zero = plain(zero_of(let), let.kind)
        guard = renamed_apart(clause.guard, taken)
        return self.choose(
            guard,
            self.value(guard, scope),
            lambda inner: self._typed(let, self.value(body, inner)),
            lambda inner: zero,
            let.kind == "real",
            scope,
        )

    def _typed(self, let: ir.Let, value: Value) -> Value:
        return self.real(value) if let.kind == "real" else value

    def finished(
        self, let: ir.Let, value: Value, clause: ir.Clause, steps: Mapping[int, Node], own: bool = True
    ) -> Value:
        """All points of the clause's slots, in the definition's dtype, in memory of its `own`."""
        scope = self.scope_of(clause, steps)
        axes = scope.sort(scope.places)
        dtype = self.dtypes[let.name]
        if value.python:
            return Value(self.text.dialect.full(self.shape(axes, scope), value.code, dtype), axes, let.kind, dtype)
        shared = value.axes != axes or self.is_shared(clause.body, value)
        if shared and not own and not steps:
            self.borrowed.add(let.name)
        value = self.spread(self.turned(value, axes), axes, scope)
        if value.dtype != dtype:
            value = self.narrowed(value, dtype, clause, scope)
        elif shared and own:
            value = value.but(self.text.dialect.copy(value.code))
        return value

    def placed(self, let: ir.Let, value: Value, clause: ir.Clause, steps: Mapping[int, Node]) -> Node:
        """The value that is stored at the clause's slots of an array, which broadcasts and rounds it by itself."""
        if value.python:
            return value.code
        scope = self.scope_of(clause, steps)
        axes = scope.sort(scope.places)
        value = self.turned(value, axes)
        rounds = self.text.dialect.updates_in_place and self.dtypes[let.name] not in ("i32", "bf16")
        if value.dtype != self.dtypes[let.name] and not rounds:
            value = self.narrowed(value, self.dtypes[let.name], clause, scope)
        return aligned(value, axes).code

    def narrowed(self, value: Value, dtype: Dtype, clause: ir.Clause, scope: Scope) -> Value:
        """Rounded to the definition's dtype; whole numbers of 32 bits have to fit."""
        if dtype == "i32" and self.largest(clause.body, scope) > LARGEST["i32"]:
            return value.but(call(self.text.helper("fitting_32"), value.code), dtype=dtype)
        return replace(self.cast_to(value, dtype), kind=value.kind)

    def is_shared(self, body: ir.Expr, value: Value) -> bool:
        """Whether a value is another one's memory, which the caller holds too or may come to hold."""
        if is_step(value.code):
            return False
        match body:
            case ir.Select(_, then, otherwise):
                return self.is_shared(then, value) or self.is_shared(otherwise, value)
            case ir.Map(op, (operand,)) if op.startswith("as "):
                return self.is_shared(operand, value)
        if not isinstance(body, ir.Read) or body.tensor in self.borrowed:
            return isinstance(body, ir.Read)
        return body.tensor not in self.lets or not self.lets[body.tensor].hidden

    def slots(
        self, let: ir.Let, clause: ir.Clause, without: tuple[int, ...], steps: Mapping[int, Node] = NO_STEPS
    ) -> tuple[Node, ...]:
        """The indices at which the points of a clause are stored."""
        ranges = {range.coordinate: range for range in clause.ranges}
        slots: list[Node] = []
        for n, (slot, axis) in enumerate(zip(clause.slots, let.axes, strict=True)):
            if n in without:
                continue
            if n in steps:
                slots.append(steps[n])
            elif isinstance(slot, ir.Coord):
                range = ranges[slot.coordinate]
                start, stop = self.number(range.lower), self.number(range.upper)
                length = self.prover.polynomial(axis.extent)
                if not self.prover.entails((), self.prover.polynomial(range.upper), also=(length - 1,)):
                    stop = call("max", 0, stop)
                whole = self.is_same(range.upper, axis.extent)
                slots.append(Slice(None if start == ZERO else start, None if whole else stop))
            else:
                slots.append(self.number(slot))
        while slots and slots[-1] == ALL:
            slots.pop()
        return tuple(slots) or (ELLIPSIS,)

    # -------------------------------------------------------------------- masks

    def define_mask(self, let: ir.Let) -> None:
        """Define a mask of the removed points beside a definition: where NaN must be isolated, and no condition can be
        written for them."""
        if not self.isolate or not self.may_remove(let.name):
            return
        conditions = [self.removal_of(clause) for clause in let.clauses]
        if is_written(let, conditions[0]):
            return
        mask = self.mask_of(let)
        variable = self.text.fresh(f"{let.name}_removed")
        self.text.assign(variable, self.text.dialect.full(self.home(let, ()), zero_of(mask), "bool"))
        for clause in mask.clauses:
            code = self.placed(mask, self.clause_value(mask, clause, {}), clause, {})
            self.text.store(variable, self.slots(mask, clause, ()), code)
        self.stored[mask.name] = Stored(variable, "bool")

    def mask_of(self, let: ir.Let) -> ir.Let:
        """The mask beside a definition, as a definition."""
        clauses = []
        for clause in let.clauses:
            condition = self.removal_of(clause) or build.truth(False, clause.span)
            clauses.append(replace(clause, body=condition, guard=None))
        mask = replace(let, name=mask_name(let.name), kind="bool", clauses=tuple(clauses), hidden=True)
        self.tensors = {**self.tensors, mask.name: mask}
        self.dtypes[mask.name] = "bool"
        return mask


def zero_of(tensor: ir.Let | ir.Input) -> Node:
    return Name("False") if tensor.kind == "bool" else ZERO
