"""What is known of the numbers of a value, worked out when it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..ir import nodes as ir
from ..ir.affine import Polynomial
from ..ir.types import BOUNDS
from ..records import dataclass

# The least and the largest value of a whole number.
Bounds: TypeAlias = tuple[int, int]

# An axis has fewer points than this.
LONGEST = 2**31
# Where counting stops: no number of 64 bits is near it.
UNBOUNDED = 2**200

ANYTHING: Bounds = (-UNBOUNDED, UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Known:
    """`finite`: wherever all inputs are, on and off every domain. A whole value may be `whole`, a polynomial of its
    axes and of host numbers. It is never below `least` nor above `most`, whatever the sizes are; these are far beyond
    64 bits where nothing is known."""

    finite: bool = False
    whole: Polynomial | None = None
    least: int = -UNBOUNDED
    most: int = UNBOUNDED

    @property
    def bounds(self) -> Bounds:
        return self.least, self.most

    @property
    def may_be_zero(self) -> bool:
        return self.least <= 0 <= self.most


def fits(bounds: Bounds, dtype: str) -> bool:
    """Whether all numbers within bounds are numbers of a dtype."""
    return BOUNDS[dtype][0] <= bounds[0] and bounds[1] <= BOUNDS[dtype][1]


def within(bounds: Bounds, dtype: str) -> Bounds:
    """The bounds of numbers that are known to be of a dtype, too."""
    least, most = BOUNDS[dtype]
    return max(least, bounds[0]), min(most, bounds[1])


def either(*bounds: Bounds) -> Bounds:
    """The bounds of what is within some of these."""
    return min(one[0] for one in bounds), max(one[1] for one in bounds)


def bounds_of(expr: ir.Expr) -> Bounds:
    """The bounds of a whole number of the host."""
    match expr:
        case ir.Const(value):
            return int(value), int(value)
        case ir.Size() | ir.Coord():
            return 0, LONGEST
        case ir.Read():
            return BOUNDS["i64"]
        case ir.Select(_, then, otherwise):
            return either(bounds_of(then), bounds_of(otherwise))
        case ir.Map(op, arguments) if all(one.type.kind == "whole" for one in arguments):
            return mapped(op, [bounds_of(one) for one in arguments])
    return BOUNDS["i64"]


def mapped(op: str, arguments: Sequence[Bounds]) -> Bounds:
    """The bounds of an elementwise function of whole numbers."""
    least, most = _BOUNDS.get(op, _unknown)(*arguments)
    return max(-UNBOUNDED, least), min(UNBOUNDED, most)


def repeated(fn: str, one: Bounds) -> Bounds:
    """The bounds of a sum or a product of numbers, of at most as many as an axis has points."""
    if fn == "sum":
        return min(0, one[0] * LONGEST), max(0, one[1] * LONGEST)
    if fn == "prod" and one[0] >= -1 and one[1] <= 1:
        return min(0, one[0]), 1
    return (0, UNBOUNDED) if fn == "prod" and one[0] >= 0 else ANYTHING


def _unknown(*arguments: Bounds) -> Bounds:
    return ANYTHING


def _product(a: Bounds, b: Bounds) -> Bounds:
    ends = [one * other for one in a for other in b]
    return min(ends), max(ends)


def _quotient(a: Bounds, b: Bounds) -> Bounds:
    if b[0] > 0 or (a[0] >= 0 and b[0] >= 0):
        by = max(1, b[0])
        return min(0, -(-a[0] // by)), max(0, a[1] // by)
    most = max(map(abs, a))
    return -most, most


def _remainder(a: Bounds, b: Bounds) -> Bounds:
    """A remainder has the sign of the dividend."""
    most = max(0, max(map(abs, b)) - 1)
    return max(min(a[0], 0), -most), min(max(a[1], 0), most)


def _power(a: Bounds, b: Bounds) -> Bounds:
    if b[1] > 64:
        return (0, UNBOUNDED) if a[0] >= 0 else ANYTHING
    most = max(1, *map(abs, a)) ** max(0, b[1])
    return (0 if a[0] >= 0 else -most), most


_BOUNDS: dict[str, Callable[..., Bounds]] = {
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "neg": lambda a: (-a[1], -a[0]),
    "*": _product,
    "//": _quotient,
    "%": _remainder,
    "**": _power,
    "abs": lambda a: (max(0, a[0], -a[1]), max(map(abs, a))),
    "relu": lambda a: (max(0, a[0]), max(0, a[1])),
    "max": lambda *some: (max(one[0] for one in some), max(one[1] for one in some)),
    "min": lambda *some: (min(one[0] for one in some), min(one[1] for one in some)),
    "clamp": lambda x, low, high: (min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])),
}
