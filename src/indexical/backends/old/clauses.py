"""Definitions that kernels compute: their lines, their scope, and what is made of a result."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Sequence

from ...ir import nodes as ir
from ...ir.types import SHORT
from ...ir.walk import renamed_apart
from ...records import replace
from . import arrays, sizes
from .base import Value
from .code import ALL, ELLIPSIS, ZERO, Node, Slice, Tuple, call
from .lowering import Lowering
from .scope import Place, Scope


def begin(low: Lowering, let: ir.Let, covered: Sequence[ir.Let] = ()) -> None:
    """Start the statements of a definition with its lines, as a comment."""
    turn_to(low, let)
    low.text.blank()
    for text in dict.fromkeys(clause.span.text for other in (*covered, let) for clause in other.clauses):
        low.text.comment(text)


def turn_to(low: Lowering, let: ir.Let) -> None:
    """Weak numbers take the dtype of this definition from here on, and steps its name. What has 16 bits is
    computed with 32."""
    low.text.subject = let.name
    dtype = low.dtypes[let.name] if let.kind == "real" else "f64"
    low.compute = "f32" if dtype in SHORT else dtype
    low.label = step_name(low, let)


def step_name(low: Lowering, let: ir.Let) -> str:
    """The name of the steps of a definition: of a local one without the name of its owner. A number is no name."""
    ends = [end for end, letter in enumerate(let.name) if letter == "_"] if let.hidden else []
    owned = [end for end in ends if let.name[:end] in low.lets and not low.lets[let.name[:end]].hidden]
    name = let.name[owned[-1] + 1 :] if owned else let.name
    return name if len(name) <= 10 and name.isidentifier() and not keyword.iskeyword(name) else "part"


def storage_shape(low: Lowering, let: ir.Let) -> Tuple:
    return Tuple(tuple(sizes.extent(low, axis.extent) for axis in let.axes))


# ------------------------------------------------------------------ clauses


def scope_of(clause: ir.Clause) -> Scope:
    """The coordinates of a clause in the order of its slots."""
    ranges = {range.coordinate: range for range in clause.ranges}
    scope = Scope({})
    for slot in clause.slots:
        if isinstance(slot, ir.Coord) and slot.coordinate in ranges:
            range = ranges[slot.coordinate]
            scope = scope.binding(range, Place(range.lower, range.upper, not range.stated))
    return scope


def clause_value(low: Lowering, let: ir.Let, clause: ir.Clause) -> Value:
    """The body at all points of a clause."""
    scope = replace(scope_of(clause), asked=tuple(low.asked.get(let.name, ())))
    value = low.value(renamed_apart(clause.body, {coordinate.name for coordinate in scope.places}), scope)
    return arrays.as_real(low, value) if let.kind == "real" else value


def finished(low: Lowering, let: ir.Let, value: Value, clause: ir.Clause) -> Value:
    """All points of the clause's slots, in the definition's dtype, in memory of its own."""
    scope = scope_of(clause)
    axes = scope.sort(scope.places)
    dtype = low.dtypes[let.name]
    if value.python:
        return Value(low.text.dialect.full(sizes.shape(low, axes, scope), value.code, dtype), axes, let.kind, dtype)
    repeats = value.axes != axes
    value = arrays.broadcast(low, arrays.in_order(low, value, axes), axes, scope)
    if value.dtype != dtype:
        return replace(arrays.cast_to(low, value, dtype), kind=value.kind)
    return value.but(low.text.dialect.copy(value.code)) if repeats else value


def slots(low: Lowering, let: ir.Let, clause: ir.Clause) -> tuple[Node, ...]:
    """The indices at which the points of a clause are stored."""
    ranges = {range.coordinate: range for range in clause.ranges}
    slots: list[Node] = []
    for slot, axis in zip(clause.slots, let.axes, strict=True):
        if isinstance(slot, ir.Coord):
            range = ranges[slot.coordinate]
            start, stop = sizes.number(low, range.lower), sizes.number(low, range.upper)
            length = low.prover.polynomial(axis.extent)
            if not low.prover.entails((), low.prover.polynomial(range.upper), also=(length - 1,)):
                stop = call("max", 0, stop)
            whole = sizes.is_same(low, range.upper, axis.extent)
            slots.append(Slice(None if start == ZERO else start, None if whole else stop))
        else:
            slots.append(sizes.number(low, slot))
    while slots and slots[-1] == ALL:
        slots.pop()
    return tuple(slots) or (ELLIPSIS,)


def is_partial(low: Lowering, let: ir.Let, clause: ir.Clause, stepped: Collection[int]) -> bool:
    """Whether a clause fills only a part of its row."""
    ranges = {range.coordinate: range for range in clause.ranges}
    for n, (slot, axis) in enumerate(zip(clause.slots, let.axes, strict=True)):
        if n in stepped:
            continue
        if not isinstance(slot, ir.Coord):
            return True
        range = ranges[slot.coordinate]
        if not range.from_zero or not sizes.is_same(low, range.upper, axis.extent):
            return True
    return False
