"""Clauses put together, as Python source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.affine import Polynomial, is_counted, of_atom, polynomial
from ...ir.context import assume
from ...ir.types import Dtype
from ...records import dataclass
from ..ops import Axis, Join, Number, Value
from ..reach import is_axis
from .code import Code
from .numbers import counted, extent, number

if TYPE_CHECKING:
    from .printer import Printer


def join(p: Printer, one: Value) -> Code:
    """Zeros, and each part stored at its slots."""
    from .printer import dtype_of

    op = one.op
    assert isinstance(op, Join)
    if (axis := _along(op)) is not None:
        return _concatenated(p, op, axis, dtype_of(one))
    parts = []
    for slots, part in op.parts:
        index = ", ".join(slot(p, at, axis).index for at, axis in zip(slots, op.home, strict=True))
        names = tuple(at.axes[0].name for at in slots if at.axes)
        parts.append((index, p.aligned(part, names)))
    definition = p.definition_of.get(one)
    name = p.fresh("joined") if definition is None else p.own_names[definition.name]
    p.add(f"{name} = {p.d.zeros(p, p.shape(op.home), dtype_of(one))}")
    for index, code in parts:
        p.add(p.d.store(name, index or "...", code))
    p.names[one] = name
    return Code(name)


def _along(op: Join) -> int | None:
    """The one axis along which all parts lie, each behind the one before it; None where they do not fill the array."""
    axes = {n for slots, _ in op.parts for n, at in enumerate(slots) if not is_axis(at, op.home[n])}
    if len(axes) != 1 or len(op.parts) < 2:
        return None
    (axis,) = axes
    known, reached = assume((), {}), Polynomial({})
    for slots, _ in op.parts:
        at = slots[axis]
        if len(at.axes) != 1 or at.known.whole is None or at.known.whole - of_atom(at.axes[0].name) != reached:
            return None
        if not known.entails(polynomial(at.axes[0].extent)):
            return None
        reached = reached + polynomial(at.axes[0].extent)
    return axis if reached == polynomial(op.home[axis].extent) else None


def _concatenated(p: Printer, op: Join, axis: int, dtype: Dtype) -> Code:
    """The parts one behind the other."""
    parts = [p.whole(part, tuple(at.axes[0] for at in slots), dtype) for slots, part in op.parts]
    return p.d.concatenate(p, parts, axis)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a clause stores along one axis: at a place, or from a first one up to a last, which may be left out."""

    place: str = ""
    first: str = ""
    last: str = ""

    @property
    def index(self) -> str:
        return self.place or f"{self.first}:{self.last}"

    @property
    def value(self) -> str:
        """The same as a value of its own."""
        if self.place:
            return self.place
        ends = (self.first or "None", self.last or "None")
        return f"slice({', '.join(ends)})" if self.first or self.last else "slice(None)"


def slot(p: Printer, at: Value, axis: Axis) -> Slot:
    """The slot of a host number, or of an axis plus a host number."""
    if isinstance(at.op, Number):
        return Slot(number(p, at.op.expr))
    assert at.known.whole is not None
    (own,) = at.axes
    start, span = at.known.whole - of_atom(own.name), own.extent.span
    end = start + polynomial(own.extent)
    first = "" if start.constant == 0 else str(counted(p, start, span))
    if end == polynomial(axis.extent):
        return Slot("", first)
    if first or is_counted(end):
        return Slot("", first, counted(p, end, span))
    return Slot("", first, extent(p, own))
