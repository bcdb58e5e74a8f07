"""Writes as Python source: values added up, or stored, at places; rows put into an array that is given away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.affine import of_atom
from ...ir.types import Coordinate
from ..constants import shared
from ..ops import Axis, Iota, Put, Value, Write, value
from .checks import check_places, out_of_bounds
from .code import Code, tupled
from .joins import slot
from .numbers import extent

if TYPE_CHECKING:
    from .printer import Printer


def write(p: Printer, one: Value) -> Code:
    """Values added up at places of new axes. An axis that the places vary with and that stays is a place, too."""
    op = one.op
    assert isinstance(op, Write)
    for axis, place in op.index if op.outside == "check" else ():
        check_places(p, place, axis, op.under, out_of_bounds(p, _multiplied(p, one, axis), axis.name))
    own, at_axis = p.order_of(one), {axis.name: place for axis, place in op.index}
    written = tuple(name for name in own if name in at_axis)
    moved = frozenset[Coordinate]().union(*(place.names for _, place in op.index))
    batch = tuple(name for name in own if name in moved)
    rest = tuple(name for name in own if name not in (*batch, *written))
    summed = tuple(axis for axis in op.gone if axis.name not in moved)
    first = (*(one.axis(name) for name in batch), *(axis for axis in op.gone if axis.name in moved))
    axes = (*first, *(one.axis(name) for name in rest if name in op.values.names), *summed)
    values = p.whole(op.values, axes)
    if summed:
        dims = tuple(range(len(axes) - len(summed), len(axes)))
        values = p.d.reduce(p, "sum", values, dims, op.values, True)
    at = tuple(axis.name for axis in first)
    places = (*(value(Iota(one.axis(name))) for name in batch), *(at_axis[name] for name in written))
    index = [p.aligned(place, at) for place in places]
    counts = [extent(p, one.axis(name)) for name in (*batch, *written)]
    helper = "scattered" if op.combine == "add" else "stored"
    code = p.call(helper, values, tupled(index), tupled(counts))
    return p.permuted(code, (*batch, *written, *rest), own)


def _multiplied(p: Printer, one: Value, axis: Axis) -> Value:
    """What is multiplied with values by place: the array that has these places."""
    beside = [part for reader in p.readers(one) for part in reader.parts if part is not one]
    return next((part for part in beside if axis.name in part.names), one)


def put(p: Printer, one: Value) -> Code:
    """An array that is written to. It is copied first where something else reads it as it was."""
    op = one.op
    assert isinstance(op, Put)
    slots, axes = _slots(p, one, op)
    values = p.whole(op.values, axes)
    into = p.permuted(p.code(op.into), p.order_of(op.into), p.order_of(one))
    is_free = _is_free(p, one, op.into)
    definition = p.definition_of.get(one)
    name = p.fresh("written") if definition is None else p.own_names[definition.name]
    p.add(f"{name} = {into if is_free else p.d.copy(into)}")
    while slots[-1] == ":":
        slots.pop()
    p.add(p.d.store(name, ", ".join(slots), values))
    p.names[one] = name
    return Code(name)


def _is_free(p: Printer, one: Value, source: Value) -> bool:
    """Whether nothing but this value needs an array any more, or the array that it is a view of."""
    before = all(_is_free(p, one, part) for part in shared(source))
    return before and all(_is_done(p, one, reader, source, True) for reader in p.readers(source))


def _is_done(p: Printer, one: Value, reader: Value, source: Value, is_memory: bool) -> bool:
    """Whether a reader of what may be memory of an array needs that no more: it is another array and has a name, or all
    that read it are done. What is stored is computed before, unless it is memory of the array itself."""
    if reader is one:
        return not is_memory or (isinstance(one.op, Put) and source is one.op.into)
    is_memory = is_memory and source in shared(reader)
    if reader in p.names and not is_memory:
        return True
    return reader in p.emitted and all(_is_done(p, one, each, reader, is_memory) for each in p.readers(reader))


def _slots(p: Printer, one: Value, op: Put) -> tuple[list[str], tuple[Axis, ...]]:
    """The slots of what is written, and the axes of what is stored there in their order. An axis plus a number is a
    slice. Else the places are arrays, and so is each axis that they vary with; these axes come first where others
    stand between them."""
    own, places = p.order_of(one), dict(op.index)
    if len(places) == 1 and all(_is_slice(place, op.gone) for place in places.values()):
        slots = [slot(p, places[name], one.axis(name)).index if name in places else ":" for name in own]
        return slots, tuple(places[name].axes[0] if name in places else one.axis(name) for name in own)
    gone = {axis.name for axis in op.gone}
    varied = frozenset[Coordinate]().union(*(place.names for place in places.values())) - gone
    at = (*(one.axis(name) for name in own if name in varied), *op.gone)
    order = tuple(axis.name for axis in at)
    arrays = {name: value(Iota(one.axis(name))) for name in varied} | places
    slots = [str(p.aligned(arrays[name], order)) if name in arrays else ":" for name in own]
    taken = [n for n, name in enumerate(own) if name in arrays]
    first = taken[0] if taken == list(range(taken[0], taken[-1] + 1)) else 0
    rest = [one.axis(name) for name in own if name not in arrays]
    return slots, (*rest[:first], *at, *rest[first:])


def _is_slice(place: Value, gone: tuple[Axis, ...]) -> bool:
    """Whether places are an axis plus a number."""
    found = place.known.whole
    if found is None or len(gone) != 1 or place.axes != gone:
        return False
    return gone[0].name not in (found - of_atom(gone[0].name)).atoms
