"""A program computed as somebody else may have: with a step rounded, a mask that is added, another scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..ir import nodes as ir
from ..ir.needs import needed as needs
from ..ir.walk import children, parts_of
from ..records import dataclass, field
from ..run.bind import Bound
from .arrays import Arrays, Scope, Spot
from .balls import Array, Ball

# Significant bits, and the exponent of the smallest number that has them all; 1 less it is that of the largest. The
# last is that of products on GPUs: 32 bits, of which ten count behind the point.
FORMATS: dict[str, tuple[int, int]] = {
    "f16": (11, -14),
    "bf16": (8, -126),
    "f32": (24, -126),
    "f64": (53, -1022),
    "TF32": (11, -126),
}


_NATIVE: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def units(size: Array, dtype: str) -> Array:
    """The distances of neighbouring numbers of a dtype, at numbers of these magnitudes."""
    precision, least = FORMATS[dtype]
    found: Array = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - 1, least) - precision + 1)
    return found


def rounded(numbers: Array, dtype: str) -> Array:
    """The nearest numbers of a dtype, halves to even; infinite beyond its largest."""
    numbers = np.asarray(numbers, np.float64)
    if dtype in _NATIVE:
        return numbers.astype(_NATIVE[dtype]).astype(np.float64)
    # NumPy has no such dtype: the bits that it lacks are rounded off; below 2^-126 it would lose more of them.
    lost = 53 - FORMATS[dtype][0]
    bits = np.ascontiguousarray(numbers).view(np.uint64)
    bits = bits + np.uint64((1 << (lost - 1)) - 1) + ((bits >> np.uint64(lost)) & np.uint64(1))
    found = (bits & np.uint64(~((1 << lost) - 1) & (2**64 - 1))).view(np.float64).reshape(numbers.shape)
    found = np.where(np.abs(found) >= 2.0**128, np.copysign(np.inf, numbers), found)
    return np.where(np.isfinite(numbers), found, numbers)


@dataclass(frozen=True, slots=True)
class Mask:
    """Another mask: a number that is added where the guard fails, in some dtype; or the guard turned round, at keys
    that are moved by so many places, or with ends that count where they did not."""

    added: float | None = None
    dtype: str = "f64"
    turned: bool = False
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Supposition:
    """A way in which somebody may have computed it otherwise. Steps are given by the `id` of their expressions."""

    kind: str
    words: str
    rounds: Mapping[int, str] = field(default_factory=dict)
    adds_in: Mapping[int, str] = field(default_factory=dict)
    factors: Mapping[int, float] = field(default_factory=dict)
    raises_in: str | None = None
    reads_in: str | None = None
    mask: Mask | None = None


@dataclass(frozen=True, slots=True)
class _Moved(Spot):
    """A coordinate that is looked at some places further on."""

    by: int = 0

    @property
    def points(self) -> Array:
        return np.arange(self.first + self.by, self.first + self.by + self.count).reshape(-1, *(1,) * self.axis)


class Supposed(Arrays):
    """A program by floats, under a supposition."""

    def __init__(self, program: ir.Program, bound: Bound, supposition: Supposition) -> None:
        self.supposition = supposition
        super().__init__(program, bound, False)

    def given(self, array: Array) -> Ball:
        found = super().given(array)
        dtype = self.supposition.reads_in
        return found if dtype is None or array.dtype.kind != "f" else Ball(rounded(found.middle, dtype), None)

    def value(self, expr: ir.Expr, scope: Scope) -> Any:
        found = super().value(expr, scope)
        key = id(expr)
        if key in self.supposition.factors:
            found = Ball(found.middle * self.supposition.factors[key], None)
        if key in self.supposition.rounds:
            found = Ball(rounded(found.middle, self.supposition.rounds[key]), None)
        return found

    def contracted(self, expr: ir.Reduce, left: Any, right: Any, counts: list[int], depth: int) -> Ball:
        dtype = self.supposition.adds_in.get(id(expr))
        if dtype is None or len(counts) != 1:
            return super().contracted(expr, left, right, counts, depth)
        one, other = (self._deep(side, depth + 1) for side in (left, right))
        places = range(counts[0])
        terms = (one[n if one.shape[0] > 1 else 0] * other[n if other.shape[0] > 1 else 0] for n in places)
        return _added(terms, dtype)

    def folded(self, expr: ir.Reduce, value: Any, there: Any, axes: int) -> Any:
        dtype = self.supposition.adds_in.get(id(expr))
        if dtype is None or axes != 1 or not isinstance(value, Ball):
            return super().folded(expr, value, there, axes)
        kept = value.middle if there is None else np.where(there, value.middle, 0.0)
        return _added(iter(kept), dtype)

    def _deep(self, side: Any, depth: int) -> Array:
        middle = self.real(side).middle
        return middle.reshape(*(1,) * (depth - middle.ndim), *middle.shape)

    def kept_keys(self, expr: ir.Normalize, scope: Scope) -> Any:
        mask = self.supposition.mask
        if mask is None or expr.guard is None:
            return super().kept_keys(expr, scope)
        if mask.moved:
            spot = scope[expr.coordinate]
            moved = {**scope, expr.coordinate: _Moved(spot.axis, spot.first, spot.count, spot.there, mask.moved)}
            return self.value(expr.guard, moved)
        return ~self.value(expr.guard, scope) if mask.turned else super().kept_keys(expr, scope)

    def softmax(self, expr: ir.Normalize, scores: Ball, there: Any, axis: int) -> Ball:
        mask = self.supposition.mask
        if there is None or mask is None or mask.added is None:
            return super().softmax(expr, scores, there, axis)
        added = rounded(scores.middle + rounded(np.asarray(mask.added), mask.dtype), mask.dtype)
        return super().softmax(expr, Ball(np.where(there, scores.middle, added), None), None, axis)

    def shared(self, expr: ir.Normalize, raised: Ball, whole: Ball) -> Ball:
        dtype = self.supposition.raises_in
        return super().shared(expr, raised if dtype is None else Ball(rounded(raised.middle, dtype), None), whole)


def _added(terms: Iterator[Array], dtype: str) -> Ball:
    """Terms that are added one after the other in some dtype, each rounded to it."""
    total: Any = np.zeros((), _NATIVE.get(dtype))
    for term in terms:
        if dtype in _NATIVE:
            total = total + term.astype(_NATIVE[dtype])
        else:
            total = rounded(total + rounded(term, dtype), dtype)
    return Ball(np.asarray(total, np.float64), None)


# ------------------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of an attention: softmaxes with the name of their definition, the sums of products under them, those
    that gather with them, and the sizes that the products run over."""

    softmaxes: tuple[tuple[ir.Normalize, str], ...]
    products: tuple[ir.Reduce, ...]
    gathers: tuple[ir.Reduce, ...]
    every: tuple[ir.Expr, ...]
    widths: tuple[int, ...]


def steps_in(program: ir.Program, bound: Bound, output: str) -> Steps:
    """The steps that lead to an output."""
    lets = program.definitions
    needed = [lets[name] for name in lets if name in needs(program, (output,))]
    softmaxes = [
        (part, "the softmax" if let.hidden else f"`{let.name}`")
        for let in needed
        for part in parts_of(let)
        if isinstance(part, ir.Normalize) and part.op == "softmax"
    ]
    products: dict[int, ir.Reduce] = {}
    for part, _ in softmaxes:
        products.update({id(found): found for found in _sums_under(part.body, lets, set())})
    reals = [part for let in needed for part in parts_of(let) if part.type.kind == "real"]
    sums = [part for part in reals if isinstance(part, ir.Reduce) and part.op == "sum"]
    widths = [math.prod(bound.extent(range.upper) for range in found.ranges if range.is_counted) for found in
              products.values()]  # fmt: skip
    every = tuple(part for part in reals if isinstance(part, ir.Map | ir.Reduce | ir.Normalize))
    gathers = tuple(part for part in sums if id(part) not in products)
    return Steps(tuple(softmaxes), tuple(products.values()), gathers, every, tuple(dict.fromkeys(widths)))


def _sums_under(expr: ir.Expr, lets: Mapping[str, ir.Let], seen: set[str]) -> list[ir.Reduce]:
    """The sums that a score is made of, through definitions, and not below another softmax."""
    if isinstance(expr, ir.Normalize):
        return []
    found = [expr] if isinstance(expr, ir.Reduce) and expr.op == "sum" else []
    if isinstance(expr, ir.Read) and expr.tensor in lets and expr.tensor not in seen:
        seen.add(expr.tensor)
        for clause in lets[expr.tensor].clauses:
            found += _sums_under(clause.body, lets, seen)
    for child in children(expr):
        found += _sums_under(child, lets, seen)
    return found
