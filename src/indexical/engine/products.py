"""A contraction of two arrays as a product of matrices: which side has the rows, and which axes are one.

The axes of two factors are of four kinds: `over` is summed; `batch` both have and keep; `rows` only the left one has,
`columns` only the right one. Several of a kind become one axis, which is a view where they lie side by side in memory
and a copy where they do not. The ways differ in the side that comes first, in the order of axes that become one, and
in what lies before the columns: a stack of matrices is multiplied as it lies. The cheapest way for the orders in which
the factors lie, and for the order that is wished, is chosen here, for the pass that fixes orders and for the printer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..records import dataclass
from .ops import Axis, Contract, Value

Order = tuple[Coordinate, ...]

# What calls cost a host, in the time of one view.
VIEW, COPY, STACK = 1.0, 3.0, 6.0
# The result as a view of other strides, which its readers pay for; more so if its last axis is not dense.
PERMUTED, LAST = 2.5, 2.5
# Cells that are copied in the time of one view.
COPIED = 1500
# How much longer a copy takes whose last axis is another one.
TURNED = 3
# The points of an axis whose size is not known.
TYPICAL = 64


@dataclass(frozen=True, slots=True)
class Product:
    """One way to contract two arrays. The result lies as `axes` says; `stack` are axes of the right side in front of
    its matrices, by each of which the left one is multiplied."""

    left: Value
    right: Value
    batch: Order
    stack: Order
    rows: Order
    columns: Order
    over: Order

    @property
    def axes(self) -> Order:
        return (*self.batch, *self.stack, *self.rows, *self.columns)

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows may be as many axes as they are: a library multiplies them all by one matrix."""
        return not self.batch and not self.stack


def product_of(op: Contract, order: Mapping[Value, Order], wish: Order) -> Product:
    """The cheapest way to contract two factors that lie in these orders, where the result is wished in that order."""
    return min(_ways(op, order, wish), key=lambda way: _cost(way, order, wish))


def is_pair(op: Contract) -> bool:
    """Whether it is a product of matrices: two factors that both have every axis that is summed, and of which one has
    an axis that the other has not."""
    if len(op.factors) != 2 or not op.over:
        return False
    left, right = (one.names for one in op.factors)
    over = frozenset(axis.name for axis in op.over)
    return over <= left & right and (left != right or left == over)


def _ways(op: Contract, order: Mapping[Value, Order], wish: Order) -> Iterator[Product]:
    over = frozenset(axis.name for axis in op.over)
    first, second = op.factors
    both = (first.names & second.names) - over
    for left, right in ((first, second), (second, first)):
        mine, theirs = order[left], order[right]
        rows = tuple(name for name in mine if name not in both | over)
        columns = tuple(name for name in theirs if name not in both | over)
        for batch in _orders(both, wish, mine, theirs):
            for summed in _orders(over, theirs, mine):
                if rows or not columns or batch:  # A matrix comes before a vector, which is quicker than one row.
                    yield Product(left, right, batch, (), rows, columns, summed)
                if not both and len(over) == 1 and len(columns) > 1 and theirs[-2:] == (*summed, columns[-1]):
                    stack = Product(left, right, batch, columns[:-1], rows, columns[-1:], summed)
                    if stack.axes == wish:  # Else a copy of the stack, which one product then reads, is quicker.
                        yield stack


def _orders(names: frozenset[Coordinate], *orders: Order) -> list[Order]:
    """The orders in which some axes stand in others, each once."""
    return list(dict.fromkeys(tuple(name for name in order if name in names) for order in orders))


# ----------------------------------------------------------------------------- costs


def _cost(way: Product, order: Mapping[Value, Order], wish: Order) -> float:
    cost = PERMUTED * (way.axes != wish) + LAST * (way.axes[-1:] != wish[-1:])
    cost += VIEW * (len(way.columns) > 1 or (len(way.rows) > 1 and not way.keeps_rows))
    cost += _side(way.left, order[way.left], way.batch, way.rows, way.over, way.keeps_rows)
    if way.stack:
        return cost + STACK
    if way.rows and way.columns and order[way.right] == (*way.columns, *way.over):
        return cost + VIEW * (len(way.columns) > 1 or len(way.over) > 1)
    return cost + _side(way.right, order[way.right], way.batch, way.over, way.columns)


def _side(one: Value, lies: Order, batch: Order, rows: Order, columns: Order, keeps_rows: bool = False) -> float:
    """What it costs to see an array as a batch of matrices: axes that become one, and axes that change places."""
    if not all(_is_run(group, lies) for group in (batch, rows, columns)):
        turned = lies[-1:] != (*batch, *rows, *columns)[-1:]
        return COPY + VIEW + cells(one.axes) / COPIED * (TURNED if turned else 1)
    folds = len(columns) > 1 or (len(rows) > 1 and not keeps_rows)
    return VIEW * folds + VIEW * (lies != (*batch, *rows, *columns))


def copied(way: Product, order: Mapping[Value, Order]) -> tuple[Value, ...]:
    """The factors that are copied to be seen as matrices: axes that become one do not lie side by side."""
    sides = {way.left: (way.batch, way.rows, way.over)}
    if not way.stack:
        sides[way.right] = (way.batch, way.over, way.columns)
    return tuple(one for one, groups in sides.items() if not all(_is_run(group, order[one]) for group in groups))


def _is_run(group: Order, lies: Order) -> bool:
    """Whether some axes lie side by side in this order."""
    if len(group) < 2:
        return True
    first = lies.index(group[0])
    return lies[first : first + len(group)] == group


def cells(axes: Iterable[Axis]) -> float:
    """The cells of an array, axes of unknown size taken to have a typical one."""
    result = 1.0
    for axis in axes:
        result *= float(axis.extent.value) if isinstance(axis.extent, ir.Const) else TYPICAL
    return result
