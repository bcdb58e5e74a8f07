"""Values that differ in the names of their axes alone: one is computed, and the others are views of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ..ir.types import Coordinate
from ..records import dataclass, replace
from .ops import (
    Axis,
    Contract,
    Iota,
    Map,
    Normalize,
    Number,
    Plan,
    Read,
    Reduce,
    Table,
    Value,
    operands,
    value,
    with_operands,
)
from .order import reachable, replaced, roots_of

Names: TypeAlias = tuple[Coordinate, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """A value but for its names: the number of what it is equal to, and the names of its axes in the order that all
    that are equal have. One that is no `array` follows from positions and numbers: it is a place or a guard."""

    number: int
    names: Names
    array: bool


def share_alike(plan: Plan) -> Plan:
    """The plan in which of values that are equal but for the names of their axes the first is computed alone."""
    forms: dict[Value, Form] = {}
    numbers: dict[object, int] = {}
    first: dict[int, Value] = {}
    memo: dict[Value, Value] = {}
    for one in reachable([*plan.inputs, *(each.value for each in plan.definitions.values()), *roots_of(plan)]):
        form = forms[one] = _form(one, forms, numbers)
        op = with_operands(one, memo.__getitem__)
        new = one if op is one.op else value(op)
        if isinstance(one.op, Map | Reduce | Contract | Normalize) and form.array and one.known.whole is None:
            known = first.setdefault(form.number, one)
            new = new if known is one else _renamed(memo[known], forms[known].names, form.names)
        memo[one] = new
    return plan if all(one is other for one, other in memo.items()) else replaced(plan, memo)


def _renamed(one: Value, now: Names, want: Names) -> Value:
    """A value with other names for its axes."""
    axes = {old: Axis(new, one.extent(old)) for old, new in zip(now, want, strict=True) if old != new}
    return value(Read(one, tuple((old, value(Iota(axes[old]))) for old in sorted(axes)))) if axes else one


def _form(one: Value, forms: dict[Value, Form], numbers: dict[object, int]) -> Form:
    op = one.op
    match op:
        case Read(source, index, "never", None) if _renames(one):
            places = {name: at.axes[0].name for name, at in index}
            form = forms[source]
            return replace(form, names=tuple(places.get(name, name) for name in form.names))
        case Iota(axis):
            return Form(numbers.setdefault(("iota", axis.extent), len(numbers)), (axis.name,), False)
        case Map() | Reduce() | Contract() | Normalize() | Read():
            pass
        case _:
            array = not isinstance(op, Number | Table)
            names = tuple(axis.name for axis in one.axes)
            return Form(numbers.setdefault(one, len(numbers)), names, array)
    parts = [forms[part] for part in operands(op)]
    order: dict[Coordinate, int] = {}
    for form in parts[1:] if isinstance(op, Read) else parts:  # The axes of a source that are read at places are gone.
        for name in form.names:
            order.setdefault(name, len(order))
    read = tuple(_place(op, name) for name in parts[0].names) if isinstance(op, Read) else ()
    for name, place in zip(parts[0].names, read, strict=False):
        if place is None:
            order.setdefault(name, len(order))
    for axis in one.axes:  # What runs along an axis may not vary with it.
        order.setdefault(axis.name, len(order))
    inner = tuple(
        (form.number, tuple(order.get(name) for name in form.names) if n or not read else ())
        for n, form in enumerate(parts)
    )
    stays = tuple(order[name] if place is None else ~place for name, place in zip(parts[0].names, read, strict=False))
    extents = tuple((order[axis.name], axis.extent) for axis in _bound(one) if axis.name in order)
    key = (type(op), _plain(op), inner, stays, _placed(_bound_by(op), order), frozenset(extents))
    names = tuple(name for name in order if name in one.names)
    return Form(numbers.setdefault(key, len(numbers)), names, any(form.array for form in parts))


def _renames(one: Value) -> bool:
    """Whether a read gives axes other names, and does nothing else."""
    op = one.op
    assert isinstance(op, Read)
    whole = all(isinstance(at.op, Iota) and at.op.axis.extent == op.source.extent(name) for name, at in op.index)
    return whole and len(one.axes) == len(op.source.axes)


def _place(op: Read, name: Coordinate) -> int | None:
    """Which of the places of a read is along an axis of its source; None where the axis stays."""
    return next((n for n, (other, _) in enumerate(op.index) if other == name), None)


def _plain(op: Map | Reduce | Contract | Normalize | Read) -> tuple[object, ...]:
    """What an operation says beside its operands and axes."""
    match op:
        case Map(fn, args, checked):
            return fn, checked, len(args)
        case Reduce(fn, _, _, where, checked) | Normalize(fn, _, _, where, checked):
            return fn, checked, where is None
        case Read(_, index, outside, under):
            return outside, under is None, len(index)
    return ()


def _bound_by(op: object) -> tuple[Axis, ...]:
    """The axes that an operation names."""
    match op:
        case Reduce(over=over) | Contract(over=over):
            return over
        case Normalize(along=along):
            return (along,)
    return ()


def _bound(one: Value) -> tuple[Axis, ...]:
    return (*one.axes, *_bound_by(one.op))


def _placed(axes: Iterable[Axis], order: dict[Coordinate, int]) -> frozenset[object]:
    """Axes by their numbers; those that nothing varies with, by their extents."""
    return frozenset(order.get(axis.name, axis.extent) for axis in axes)
