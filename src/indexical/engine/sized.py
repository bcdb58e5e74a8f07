"""Calls of known sizes: the door from a lowered plan to two functions.

One computes what is the same in all calls, once for each device; the other is called with the arrays of a call, and
with that. Whoever calls has compared sizes, dtypes and devices before: the second function compares nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..records import dataclass
from .constants import ALL_POINTS, POINTS, Apart, apart
from .dialects.base import Dialect
from .ops import Input, Opaque, Plan
from .order import ordered
from .rules import Target, optimise
from .show import show
from .specialise import Sizes, specialise


@dataclass(frozen=True, slots=True)
class Sized:
    """The source of a function for known sizes, and of one that computes what is kept: None where nothing is. The first
    takes the inputs of the program and then all that is kept; the second the inputs that are `held`, by their names,
    and returns one array or a tuple of them."""

    source: str
    kept_source: str | None
    held: tuple[str, ...]
    kept: tuple[str, ...]


def plan_for(
    lowered: Plan,
    sizes: Sizes,
    target: Target,
    scalars: Mapping[str, int] | None = None,
    held: Collection[str] = (),
    points: int = POINTS,
    all_points: int = ALL_POINTS,
) -> Apart:
    """A lowered plan for known sizes, by all rules, without what is the same in all calls. A size that is left out may
    be any: of a step of decoding, that of the past. `held` inputs are the same arrays in all calls: weights. A kernel
    of the former printer reads sizes from shapes, so that a plan with one keeps them."""
    if any(isinstance(one.op, Opaque) for one in ordered(lowered)):
        sizes = {}
    small = optimise(specialise(lowered, sizes, scalars), target)
    return apart(specialise(small, sizes, scalars), held, points, all_points)


def sized(two: Apart, dialect: Dialect) -> Sized:
    """The sources of both functions."""
    kept = two.kept.wanted
    held = tuple(one.op.name for one in two.kept.inputs if isinstance(one.op, Input))
    first = show(two.kept, dialect, sized=True, shares=True) if kept else None
    return Sized(show(two.plan, dialect, sized=True), first, held, kept)
