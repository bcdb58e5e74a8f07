"""Layer normalisation, that by the root of the mean square, and cross-entropy, as the library's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.types import Dtype
from ...records import dataclass
from ..ops import Axis, Iota, Library, Map, Normalize, Number, Read, Reduce, Value, apply, value
from .narrow import stored
from .patterns import Found, No, Target
from .renaming import rename
from .sums import multiplied
from .terms import Factor, applied, cast, factors_of, is_number, length

# How a value gets another name for an axis.
Naming: TypeAlias = Callable[[Value, Axis, Axis], Value | None]

LAYER_NORM, RMS_NORM, CROSS_ENTROPY = "layer_norm", "rms_norm", "cross_entropy"


@dataclass(frozen=True, slots=True)
class Mean:
    """What a value is the mean of, over which axis, and the conditions without which it is refused."""

    source: Value
    axis: Axis
    tests: tuple[Value, ...] = ()


def mean_of(one: Value) -> Mean | None:
    """The mean that a value is: as such, or as a sum over a number of points. One that is rounded to 16 bits on the way
    counts too: a kernel has it in 32."""
    match one.op:
        case Map("as f32" | "as wide", (Value(op=Map("as f16" | "as bf16", (inner,))),)) if inner.dtype == "f32":
            return mean_of(inner)
        case Map("some mean", (inner, test)):
            found = mean_of(inner)
            return None if found is None else replace(found, tests=(*found.tests, test))
        case Reduce("mean", source, (axis,), None):
            return Mean(source, axis)
        case Map("/", (Value(op=Reduce("sum", source, (axis,), None)), Value(op=Number(count)))):
            return Mean(source, axis) if polynomial(_uncast(count)) == polynomial(axis.extent) else None
    return None


def _uncast(expr: ir.Expr) -> ir.Expr:
    return expr.arguments[0] if isinstance(expr, ir.Map) and expr.op == "as real" else expr


def _base(one: Value) -> Value | None:
    """What a value is the square of."""
    match one.op:
        case Map("**", (base, power)) if is_number(power, 2):
            return base
        case Map("*", (base, same)) if base is same:
            return base
    return None


def norm(one: Value, found: Found, target: Target) -> Value | No | None:
    """A value over the root of its mean square and a little; less its mean, or as it is."""
    factors = factors_of(one)
    for root in factors:
        inner = root.value.op
        if not isinstance(inner, Map) or inner.fn != ("sqrt" if root.inverse else "rsqrt"):
            continue
        spread, eps = _spread(inner.args[0])
        square = None if spread is None or eps is None else mean_of(spread)
        base = None if square is None else _base(square.source)
        if square is None or base is None or eps is None:
            continue
        if square.axis.name not in base.names or base.dtype not in ("f32", "f64"):
            continue
        axes = {factor: _axis_of(factor.value, base, square.axis) for factor in factors if not factor.inverse}
        whole = next(((factor, axis) for factor, axis in axes.items() if axis is not None), None)
        if whole is None:
            continue
        rest = [factor for factor in factors if factor is not root and factor is not whole[0]]
        naming = _read_along if _is_read(whole[0].value, base) else rename
        made = _normed(base, square, eps, whole[1], naming, target)
        return None if made is None else multiplied([Factor(made), *rest])
    return None


def _axis_of(one: Value, base: Value, axis: Axis) -> Axis | None:
    """The axis of a value that is another one by a new name; None where the two differ in more than that."""
    if one is base:
        return axis
    names = one.names - base.names
    if len(names) != 1 or base.names - one.names != {axis.name}:
        return None
    own = one.axis(next(iter(names)))
    same = _read_along(base, axis, own) is one or rename(base, axis, own) is one
    return own if own.extent == axis.extent and same else None


def _read_along(one: Value, axis: Axis, own: Axis) -> Value:
    """A value that is read along another axis."""
    return value(Read(one, ((axis.name, value(Iota(own))),)))


def _spread(one: Value) -> tuple[Value | None, float | None]:
    """The mean under a root, and the number that is added to it."""
    match one.op:
        case Map("+", (spread, Value(op=Number(ir.Const(number))))):
            return spread, float(number)
        case Map("+", (Value(op=Number(ir.Const(number))), spread)):
            return spread, float(number)
    return None, None


def _is_read(one: Value, base: Value) -> bool:
    return isinstance(one.op, Read) and one.op.source is base


def _normed(base: Value, square: Mean, eps: float, own: Axis, naming: Naming, target: Target) -> Value | None:
    """The kernel's norm along an axis, which the result has by its `own` name."""
    axis, tests = square.axis, square.tests
    kernel, x = RMS_NORM, base
    match base.op:
        case Map("-", (source, centre)):
            mean = mean_of(centre)
            if mean is not None and mean.source is source and mean.axis == axis:
                kernel, x, tests = LAYER_NORM, source, (*tests, *mean.tests)
    named = x if own == axis else naming(x, axis, own)
    if kernel not in target.kernels or named is None:
        return None
    x, axis = named, own
    order = (*(name for name in sorted(x.names) if name != axis.name), axis.name)
    layout = tuple((name,) for name in order)
    words = (("normalized_shape", (length(axis),)), ("eps", eps))
    axes = tuple(x.axis(name) for name in order)
    made = value(Library(kernel, (x,), (("", layout),), axes, layout, words, "real", x.dtype))
    for test in dict.fromkeys(tests):
        made = apply("some mean", made, test)
    return made


def norm_weight(one: Value, found: Found, target: Target) -> Value | No | None:
    """A norm times what varies with its axis alone."""
    return _with(found["norm"], "weight", found["other"], (LAYER_NORM, RMS_NORM))


def norm_bias(one: Value, found: Found, target: Target) -> Value | No | None:
    """A layer norm plus what varies with its axis alone."""
    return _with(found["norm"], "bias", found["other"], (LAYER_NORM,))


def _with(normed: Value, name: str, other: Value, kernels: Sequence[str]) -> Value | None:
    match normed.op:
        case Map("some mean", (inner, test)):
            made = _with(inner, name, other, kernels)
            return None if made is None else apply("some mean", made, test)
        case Library(kernel=kernel, layouts=layouts, result=result) as op if kernel in kernels:
            names = [had for had, _ in layouts]
            if name in names or "bias" in names or other.names != frozenset(result[-1]) or other.dtype != op.dtype:
                return None
            return value(replace(op, args=(*op.args, other), layouts=(*layouts, (name, (result[-1],)))))
    return None


def round_norm(one: Value, found: Found, target: Target) -> Value | No | None:
    """A norm of widened arrays that is rounded is that of the arrays as they are stored: the kernel computes in 32
    bits."""
    return _narrowed(found["norm"], one.dtype)


def _narrowed(normed: Value, dtype: Dtype | None) -> Value | None:
    match normed.op:
        case Map("some mean", (inner, test)):
            made = _narrowed(inner, dtype)
            return None if made is None else apply("some mean", made, test)
        case Library(args=args) as op if op.dtype == "f32":
            parts = [stored(arg, dtype) for arg in args]
            own = tuple(part for part in parts if part is not None)
            return value(replace(op, args=own, dtype=dtype)) if len(own) == len(args) else None
    return None


def is_norm(one: Value) -> bool:
    """Whether a value is a kernel's norm, as far as can be seen from outside."""
    inner = one
    while isinstance(inner.op, Map) and inner.op.fn == "some mean":
        inner = inner.op.args[0]
    return isinstance(inner.op, Library) and inner.op.kernel in (LAYER_NORM, RMS_NORM)


# ---------------------------------------------------------------------------- losses


def cross_entropy(one: Value, found: Found, target: Target) -> Value | No | None:
    """The logarithm of a softmax at one class for each row is less its cross-entropy."""
    inner = found["inner"].op
    assert isinstance(inner, Normalize)
    if inner.where is not None:
        return None
    made = _loss(one, inner.source, inner.along, target)
    return applied("neg", made) if isinstance(made, Value) else made


def cross_entropy_of_total(one: Value, found: Found, target: Target) -> Value | No | None:
    """The logarithm of the sum of all exponentials, less the number at one class, is the cross-entropy."""
    read = found["read"]
    assert isinstance(read.op, Read)
    logits = read.op.source
    axis = _log_sum_exp(found["total"], logits)
    return None if axis is None else _loss(read, logits, axis, target)


def _log_sum_exp(one: Value, logits: Value) -> Axis | None:
    """The axis along which this is the logarithm of the sum of exponentials, taken from the largest number."""
    match one.op:
        case Map("+", (a, b)):
            for largest, rest in ((a, b), (b, a)):
                match rest.op:
                    case Map("log", (Value(op=Reduce("sum", Value(op=Map("exp", (below,))), (axis,), None)),)):
                        if _is_largest(largest, logits, axis) and below.op == Map("-", (logits, largest)):
                            return axis
    return None


def _is_largest(one: Value, of: Value, axis: Axis) -> bool:
    inner = one.op.args[0] if isinstance(one.op, Map) and one.op.fn == "some max" else one
    return inner.op == Reduce("max", of, (axis,))


def _loss(one: Value, logits: Value, classes: Axis, target: Target) -> Value | No | None:
    """The cross-entropy at the class that is read."""
    read = one.op
    assert isinstance(read, Read)
    name, index = classes.name, dict(read.index)
    if CROSS_ENTROPY not in target.kernels or name not in index:
        return None
    place = index.pop(name)
    if index:  # Of other rows than its own.
        logits = value(Read(logits, tuple(index.items()), read.outside))
    rows = logits.names - {name}
    if name not in logits.names or place.names != rows or not rows:
        return None
    if logits.dtype not in ("f32", "f64"):
        return None
    if read.outside == "masked" or read.under is not None:
        return No("a place that a guard removes may be no class", "cross-entropy")
    if read.outside == "check":  # The places themselves, each refused where it is none.
        place = value(Read(value(Iota(classes)), ((name, place),), "check"))
    order = tuple(sorted(rows))
    layouts = (("", (order, (name,))), ("", (order,)))
    axes = tuple(logits.axis(row) for row in order)
    words = (("reduction", "none"),)
    args = (logits, cast(place, "i64"))
    return value(Library(CROSS_ENTROPY, args, layouts, axes, (order,), words, "real", logits.dtype))


def negated_twice(one: Value, found: Found, target: Target) -> Value | No | None:
    """What is negated twice is as it was."""
    return found["x"]


