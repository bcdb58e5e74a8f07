"""What an operation costs, roughly: the numbers that it touches, an axis of open length having so many points."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ...ir import nodes as ir
from ...ir import whole as wholes
from ..ops import Axis, Contract, Library, Map, Normalize, Put, Read, Reduce, Value, Write, axes_of, merged
from ..order import is_view
from .pairs import pairs_cost

TYPICAL = 64
CONTRACTED = 8  # A library's product of matrices is so much faster than a product and a sum of arrays.
GATHERED = 2
NORMALIZED = 3
SORTED = 16


@lru_cache(maxsize=4096)
def _points(extent: ir.Expr) -> int:
    try:
        return max(1, wholes.value(extent, lambda leaf: TYPICAL))
    except wholes.Unknown:
        return TYPICAL


def points(axes: Iterable[Axis]) -> float:
    """The number of points of some axes."""
    result = 1.0
    for axis in axes:
        result *= _points(axis.extent)
    return result


def elements(one: Value) -> float:
    """The numbers that an operation touches; a product of matrices touches fewer for what it multiplies."""
    match one.op:
        case Contract(factors) as op if len(factors) > 2:
            return pairs_cost(op) + sum(points(factor.axes) for factor in factors)
        case Contract(factors):
            return points(axes_of(*factors)) / CONTRACTED + sum(points(factor.axes) for factor in factors)
        case Reduce(source=source, over=over, where=None):
            return points(merged(source.axes, over))
        case Reduce(source=source, over=over, where=Value(axes=guard)):
            return 2 * points(merged(source.axes, over, guard))
        case Map():  # Places that are a polynomial of axes are strides where they are read.
            return 0 if one.known.whole is not None else points(one.axes)
        case Normalize(fn):
            return (SORTED if fn == "rank" else NORMALIZED) * points(one.axes)
        case Library(args=args):
            return points(one.axes) + sum(points(arg.axes) for arg in args)
        case Read(index=index) if not is_view(one):  # Strides that leave their source are a copy of it.
            return (1 if all(at.known.whole is not None for _, at in index) else GATHERED) * points(one.axes)
        case Put(values=values):
            return GATHERED * points(values.axes)
        case Write(values=values, index=index):
            return GATHERED * points(axes_of(values, *(place for _, place in index)))
    return 0


def products(one: Value) -> float:
    """The numbers that an operation touches, where it is no elementwise function: what is made of cells of small arrays
    is not counted against what is made of cells of large ones, since which are small is open."""
    return 0 if isinstance(one.op, Map) else elements(one)


def normalized(one: Value) -> float:
    """The numbers that normalisers touch: where all weights are there anyway, nothing is gained by those of few."""
    return elements(one) if isinstance(one.op, Normalize) else 0
