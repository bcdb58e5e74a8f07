"""The order of every value's axes in memory.

What is given or stored has the order of its home, and so has what the user asks for, or a kernel of the former emitter.
All else has the order in which its operation delivers it, so that nothing is permuted on the way: an elementwise value
that of its largest operand, a product of matrices rows before columns. Where several orders are equally good, what the
readers wish decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..ir.affine import of_atom, polynomial
from ..ir.types import Coordinate
from .ops import (
    Axis,
    Carried,
    Contract,
    Either,
    Input,
    Iota,
    Join,
    Library,
    Loop,
    Map,
    Normalize,
    Opaque,
    Plan,
    Put,
    Read,
    Reduce,
    Result,
    Table,
    Tiles,
    Value,
    Write,
)
from .order import reachable, roots_of
from .products import Order, is_pair, product_of


def layouts(plan: Plan) -> dict[Value, Order]:
    """The order of the axes of every value that a plan computes."""
    values = reachable(roots_of(plan))
    homes = {one: home for one in values if (home := _home(one)) is not None}
    written = {one: _of_home(plan.definitions[name].home, one) for name, one in _stored(values)}
    written |= {one.value: _of_home(one.home, one.value) for one in reversed(plan.definitions.values())}
    kernels = [one.op for one in values if isinstance(one.op, Opaque)]
    for name in (*plan.wanted, *(name for op in kernels for name, _ in op.operands)):
        if name in plan.definitions:
            wanted = plan.definitions[name]
            homes.setdefault(wanted.value, _of_home(wanted.home, wanted.value))
    wishes = _wishes(values, {**written, **homes})
    order: dict[Value, Order] = {}
    for one in values:
        order[one] = homes[one] if one in homes else _delivered(one, order, wishes[one])
    return order


def _home(one: Value) -> Order | None:
    """The order of an array that is given or stored; None for what is free."""
    match one.op:
        case Input(_, home) | Table(home) | Join(home) | Carried(_, home) | Library(axes=home):
            return _names(home)
        case Opaque() | Tiles() | Either():
            return _names(one.op.home)
        case Result(_, of):
            return _names(of.home)
        case Iota(axis):
            return (axis.name,)
    return None if one.axes else ()


def _stored(values: Iterable[Value]) -> Iterator[tuple[str, Value]]:
    """What loops store, and the definition that it is a row of."""
    waiting = [one.op.loop for one in values if isinstance(one.op, Result)]
    for loop in waiting:
        for item in loop.body:
            if isinstance(item, Loop):
                waiting.append(item)
            else:
                yield item.name, item.value


def _names(axes: Iterable[Axis]) -> Order:
    return tuple(axis.name for axis in axes)


def _of_home(home: tuple[Axis, ...], one: Value) -> Order:
    """The order of a home for a value that may have fewer axes."""
    return _extended(tuple(axis.name for axis in home if axis.name in one.names), _names(one.axes))


# ---------------------------------------------------------------------------- wishes


def _wishes(values: list[Value], written: Mapping[Value, Order]) -> dict[Value, Order]:
    """The order that is wished for each value: that in which the text has it, or that in which the first of its readers
    reads it without a permutation."""
    wishes = dict(written)
    for one in reversed(values):
        own = wishes.setdefault(one, _names(one.axes))
        for part in one.parts:
            if part not in wishes:
                wishes[part] = _restricted(_wish(one, part, own), part)
    return wishes


def _wish(one: Value, part: Value, own: Order) -> Order:
    match one.op:
        case Reduce(over=gone) | Contract(over=gone) | Put(gone=gone):
            return (*own, *_names(gone))
        case Write(index=index, gone=gone) if part is one.op.values:  # What has a place lies together.
            moved = frozenset[Coordinate]().union(*(place.names for _, place in index))
            return (*(name for name in own if name in moved), *_names(gone), *own)
        case Tiles(turn=turn, leaves=leaves):
            return _names(turn.given[leaves.index(part)].op.home)
        case Library(args=args, layouts=layouts):
            return tuple(name for group in layouts[args.index(part)][1] for name in group)
        case Read(source, index) if part is source:
            back = {at.op.axis.name: name for name, at in index if isinstance(at.op, Iota)}
            single = [name for name, at in index if not at.axes]  # One row after the other: rows lie together.
            return (*single, *(back.get(name, name) for name in own))
    return own


def _restricted(wish: Order, one: Value) -> Order:
    """A wish for the axes that a value has, the others behind them."""
    return _extended(tuple(dict.fromkeys(name for name in wish if name in one.names)), _names(one.axes))


# ---------------------------------------------------------------------------- orders


def _delivered(one: Value, order: Mapping[Value, Order], wish: Order) -> Order:
    """The order in which an operation delivers its value."""
    match one.op:
        case Contract() as op if is_pair(op):
            return product_of(op, order, wish).axes
        case Reduce(source=source, over=over):
            return _joined([source], order, wish, without=frozenset(_names(over)))
        case Write(values=values, index=index, gone=gone):
            written = _names(axis for axis, _ in index)
            kept = _joined([values], order, wish, without=frozenset((*_names(gone), *written)))
            return _extended(tuple(name for name in kept if name not in written), written)
        case Read():
            return _extended(_read(one.op, order), _restricted(wish, one))
        case Put(into=into):
            return order[into]
        case Map(args=args):
            return _joined(args, order, wish)
        case Normalize(source=source):
            return _joined([source], order, wish)
    return wish


def _joined(
    parts: Iterable[Value], order: Mapping[Value, Order], wish: Order, without: frozenset[Coordinate] = frozenset()
) -> Order:
    """The order of arrays that meet: that of the largest, of several the one that is wished, and the other axes where
    the wish has them."""
    found = [tuple(name for name in order[one] if name not in without) for one in parts]
    most = max(map(len, found), default=0)
    largest = [names for names in found if len(names) == most]
    agreeing = (names for names in largest if names == tuple(name for name in wish if name in names))
    result = list(next(agreeing, largest[0] if largest else ()))
    for place, name in enumerate(wish):
        if name not in result:
            before = [result.index(other) for other in wish[:place] if other in result]
            result.insert(before[-1] + 1 if before else 0, name)
    return tuple(result)


def _split(places: Value) -> Order:
    """The outer and the inner axis of an index that splits one in two: `n * outer + inner` with `n` points of the
    inner; none where it does not."""
    known = places.known.whole
    if known is None or len(places.axes) != 2:
        return ()
    for outer, inner in (places.axes, places.axes[::-1]):
        if known == of_atom(outer.name) * polynomial(inner.extent) + of_atom(inner.name):
            return (outer.name, inner.name)
    return ()


def _read(op: Read, order: Mapping[Value, Order]) -> Order:
    """The axes of a read where those of its source stand: an index in the place of the axis that it reads, and behind
    all others the second axis of a window."""
    index = dict(op.index)
    first: list[Coordinate] = []
    last: list[Coordinate] = []
    for name in order[op.source]:
        if name not in index:
            first.append(name)
            continue
        places = index[name]
        if places.known.whole is None:
            first += order[places]
        elif split := _split(places):
            first += split
        else:
            first += _names(places.axes)[:1]
            last += _names(places.axes)[1:]
    return tuple(dict.fromkeys((*first, *last)))


def _extended(order: Order, names: Iterable[Coordinate]) -> Order:
    return (*order, *(name for name in names if name not in order))
