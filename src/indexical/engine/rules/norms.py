"""Layer normalisation, and that by the root of the mean square, as the library's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.types import Dtype
from ...records import dataclass, replace
from ..ops import Axis, Iota, Library, Map, Number, Read, Reduce, Value, apply, value
from .narrow import stored
from .patterns import Found, No, Target
from .renaming import rename
from .sums import multiplied
from .terms import Factor, factors_of, is_number, length

# How a value gets another name for an axis.
Naming: TypeAlias = Callable[[Value, Axis, Axis], Value | None]

LAYER_NORM, RMS_NORM = "layer_norm", "rms_norm"


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


def _with(normed: Value, name: str, other: Value, kernels: Sequence[str]) -> Value | No | None:
    match normed.op:
        case Map("some mean", (inner, test)):
            made = _with(inner, name, other, kernels)
            return apply("some mean", made, test) if isinstance(made, Value) else made
        case Library(kernel=kernel, layouts=layouts, result=result) as op if kernel in kernels:
            names = [had for had, _ in layouts]
            if name in names or "bias" in names or other.is_host or other.dtype != op.dtype:
                return None
            if other.names != frozenset(result[-1]):
                return No(f"the {name} of a norm varies with its axis, and with no other")
            return value(replace(op, args=(*op.args, other), layouts=(*layouts, (name, (result[-1],)))))
    return None


def round_norm(one: Value, found: Found, target: Target) -> Value | No | None:
    """A norm of widened arrays that is rounded is that of the arrays as they are stored: the kernel computes in 32
    bits."""
    return _narrowed(found["norm"], one.dtype)


def _narrowed(normed: Value, dtype: Dtype | None) -> Value | No | None:
    match normed.op:
        case Map("some mean", (inner, test)):
            made = _narrowed(inner, dtype)
            return apply("some mean", made, test) if isinstance(made, Value) else made
        case Library(args=args) as op if op.dtype == "f32":
            parts = [stored(arg, dtype) for arg in args]
            own = tuple(part for part in parts if part is not None)
            if len(own) < len(args):
                return No("not all that the norm takes is stored in 16 bits")
            return value(replace(op, args=own, dtype=dtype))
    return None


def is_norm(one: Value) -> bool:
    """Whether a value is a kernel's norm, as far as can be seen from outside."""
    inner = one
    while isinstance(inner.op, Map) and inner.op.fn == "some mean":
        inner = inner.op.args[0]
    return isinstance(inner.op, Library) and inner.op.kernel in (LAYER_NORM, RMS_NORM)


def negated_twice(one: Value, found: Found, target: Target) -> Value | No | None:
    """What is negated twice is as it was."""
    return found["x"]


