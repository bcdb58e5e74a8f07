"""Arrays side by side: dtypes joined, axes aligned, masks put together, checks made where they are evaluated."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.conditions import fails
from ...ir.types import DEFAULT_DTYPE, SHORT, Coordinate, Dtype, widest
from ...records import replace
from . import sizes
from .base import Value
from .code import Attribute, Call, Infix, Name, Node, Prefix, call, chain, method
from .lowering import Lowering
from .scope import Scope
from .values import aligned, joined, permuted

# What a library calls the signs that it may round by themselves.
_SIGNS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
# The helpers that compute with arrays of 16 bits and round once: with a sign, or a sum of which one part is scaled.
_ROUNDED, _ADD_SCALED = Name("rounded"), Name("add_scaled")

# ------------------------------------------------------------------- dtypes


def as_real(low: Lowering, value: Value, dtype: Dtype | None = None) -> Value:
    """A whole or Boolean array among reals takes their dtype; a plain number has none to change."""
    if value.kind == "real" or (value.python and value.kind == "whole"):
        return replace(value, kind="real")
    return replace(low.text.dialect.cast(value.narrow or value, dtype or low.compute), kind="real")


def widened(low: Lowering, value: Value) -> Value:
    """An array that is narrower than what is computed here, as wide: sums and products of narrow numbers lose
    what their result could hold."""
    narrow = value.kind == "real" and value.dtype not in (low.compute, None)
    if not narrow or value.python or widest((value.dtype, low.compute)) != low.compute:
        return value
    wide = cast_to(low, value, low.compute)
    return replace(wide, narrow=value) if value.dtype in SHORT and low.compute == "f32" and _rounds(low) else wide


def _rounds(low: Lowering) -> bool:
    """Whether operations round by themselves here, in a library that does: arrays are whole."""
    return bool(low.text.dialect.rounds_once) and low.unbounded is None


def as_array(low: Lowering, value: Value, dtype: Dtype | None = None) -> Value:
    """A plain number as an array of one."""
    if not value.python:
        return value
    chosen = dtype or (low.compute if value.kind == "real" else DEFAULT_DTYPE[value.kind])
    return Value(low.text.dialect.constant(value.code, chosen), (), value.kind, chosen)


def promoted(low: Lowering, values: list[Value]) -> list[Value]:
    """PyTorch lets an array of no axes take the dtype of others: where it is the wider one, they take its."""
    dtype = widest(value.dtype for value in values)
    scalar = any(value.dtype == dtype and not value.axes and not value.python for value in values)
    if not low.text.dialect.scalars_are_weak or not scalar:
        return values
    return [
        value if value.dtype in (dtype, None) or dtype is None else low.text.dialect.cast(value, dtype)
        for value in values
    ]


def cast_to(low: Lowering, value: Value, dtype: Dtype) -> Value:
    """Rounded to a dtype. NumPy has no bf16: it is a float32 of fewer digits."""
    if value.dtype == dtype:
        return value
    for short in (value.narrow, value.once):
        if value.kind == "real" and short is not None and short.dtype == dtype:
            if isinstance(short.code, Call) and short.code.function in (_ROUNDED, _ADD_SCALED):
                low.text.helper(short.code.function.text)
            return short
    if dtype == "bf16" and not low.text.dialect.has_bfloat16:
        value = value if value.dtype == "f32" else low.text.dialect.cast(value, "f32")
        return value.but(call(low.text.helper("round_bf16"), value.code), dtype="bf16")
    return low.text.dialect.cast(value, dtype)


# --------------------------------------------------------------------- axes


def in_order(low: Lowering, value: Value, axes: tuple[Coordinate, ...]) -> Value:
    """The axes of a value in the order of these."""
    return permuted(value, tuple(axis for axis in axes if axis in value.axes), low.text)


def broadcast(low: Lowering, value: Value, axes: tuple[Coordinate, ...], scope: Scope) -> Value:
    """The value with all of these axes, repeated along those it lacks."""
    if value.axes == axes:
        return value
    if value.python:
        chosen = as_array(low, value).dtype or low.compute
        return Value(low.text.dialect.full(sizes.shape(low, axes, scope), value.code, chosen), axes, value.kind, chosen)
    repeat = f"{low.text.dialect.module}.broadcast_to"
    return value.but(call(repeat, aligned(value, axes).code, sizes.shape(low, axes, scope)), axes=axes)


def combined(low: Lowering, op: str, values: list[Value], expr: ir.Map, dtype: Dtype | None, scope: Scope) -> Value:
    """Two operands and a sign between them."""
    axes = joined(values, scope.order)
    if op == "+" and low.text.dialect.adds_products:
        for product, other in (values, values[::-1]):
            if product.product is not None and is_linear_map(product, other, axes):
                return Value(added_product(*product.product, other), axes, "real", dtype)
    left, right = (aligned(value, axes) for value in values)
    python = left.python and right.python
    code, once = Infix(op, *_mixed(op, values, axes)), _once(low, op, values, axes)
    value = Value(code, axes, expr.type.kind, None if python else dtype, python, once=once)
    if op != "*" or value.kind != "real" or left.python or right.python:
        return value
    narrow = [side.narrow for side in values if side.narrow is not None]
    if len(narrow) == 2:
        return replace(value, product=("scale", narrow[0], narrow[1]))
    alike = left.axes == right.axes == axes and left.dtype == right.dtype == dtype
    return replace(value, product=("*", left, right)) if alike else value


def _mixed(op: str, values: list[Value], axes: tuple[Coordinate, ...]) -> tuple[Node, Node]:
    """The sides of a sign. One that was only widened is taken as it is stored beside an array of 32 bits: the library
    widens it by itself, and no copy is made."""
    left, right = values
    if op in _SIGNS and left.axes and right.axes and left.dtype == right.dtype == "f32":
        if right.narrow is not None:
            right = right.narrow
        elif left.narrow is not None:
            left = left.narrow
    return aligned(left, axes).code, aligned(right, axes).code


def _once(low: Lowering, op: str, values: list[Value], axes: tuple[Coordinate, ...]) -> Value | None:
    """The result of a sign in the 16 bits of its definition, computed in 32 and rounded once; None where that takes a
    cast. Of arrays that are stored so the library gives it, on the way back too: but not of a factor that is repeated
    along an axis, whose gradient is a sum, nor of what is divided by an array. A number of Python may be a factor: what
    it is added to would round it first. Else a helper does, which knows whether there is a way back."""
    dtype, (left, right) = low.dtypes.get(low.text.subject), values
    if op not in low.text.dialect.rounds_once or dtype is None or dtype not in SHORT or not _rounds(low):
        return None
    if any(value.kind != "real" or (value.narrow or value).dtype not in (dtype, "f32", None) for value in values):
        return None
    scaled = _scaled_sum(op, values, axes)
    if scaled is not None:
        return scaled
    sides = [aligned(value.narrow or value, axes).code for value in values]
    stored = sum(value.narrow is not None for value in values)
    if stored == 2 and (op in "+-" or (op == "*" and left.axes == right.axes)):
        return Value(Infix(op, *sides), axes, "real", dtype)
    if stored == 1 and ((right.python and op in "*/") or (left.python and op == "*")):
        return Value(Infix(op, *sides), axes, "real", dtype)
    if not left.axes or not right.axes:
        return None
    sign = Name(f"{low.text.dialect.module}.{_SIGNS[op]}")
    return Value(call(_ROUNDED, sign, *sides, low.text.dialect.dtype(dtype)), axes, "real", dtype)


def _scaled_sum(op: str, values: list[Value], axes: tuple[Coordinate, ...]) -> Value | None:
    """An array of 16 bits and another one times a factor, both widened, in one call that rounds once."""
    pairs = (values, values[::-1]) if op == "+" else (values[::-1],) if op == "-" else ()
    for product, other in pairs:
        if product.product is None or other.narrow is None or product.axes != axes or other.axes != axes:
            continue
        sign, *factors = product.product
        times, scaled = sorted((aligned(factor, axes) for factor in factors), key=lambda factor: factor.axes == axes)
        if sign != "scale" or scaled.axes != axes or {times.dtype, scaled.dtype} != {other.narrow.dtype}:
            continue
        sides = (other.narrow.code, scaled.code, times.code)
        return other.narrow.but(call(_ADD_SCALED, *sides, *((-1,) if op == "-" else ())))
    return None


def where(low: Lowering, condition: Value, then: Value, otherwise: Value, scope: Scope, dtype: Dtype | None) -> Value:
    """One of two values at every point."""
    axes = joined((condition, then, otherwise), scope.order)
    parts = [aligned(low.text.short(value, low.label), axes) for value in (condition, then, otherwise)]
    code = low.text.dialect.where(parts[0], parts[1].code, parts[2].code)
    return Value(code, axes, then.kind if not then.python else otherwise.kind, dtype)


# -------------------------------------------------------------------- masks


def both(left: Value, right: Value, scope: Scope) -> Value:
    """The mask where two conditions hold."""
    axes = joined((left, right), scope.order)
    left, right = aligned(left, axes), aligned(right, axes)
    if left.python and right.python:
        return Value(Infix("and", left.code, right.code), axes, "bool", None, True)
    return Value(Infix("&", left.code, right.code), axes, "bool", "bool")


def negation(value: Value) -> Value:
    """The mask where a condition fails."""
    return value.but(Prefix("not " if value.python else "~", value.code))


def conjunction(low: Lowering, masks: list[Value], scope: Scope) -> Value | None:
    """The mask where all of these hold: those of fewer axes first, so that few operations are on all axes."""
    if not masks:
        return None
    result, *others = sorted(masks, key=lambda mask: len(mask.axes))
    for mask in others:
        result = both(result, mask, scope)
    return low.text.short(result, "kept")


# ------------------------------------------------------------------- checks


def fail_where(
    low: Lowering, test: Value, code: str, message: str, scope: Scope, possible: Node | None = None
) -> None:
    """Refuse where a test holds at a point that is evaluated: one where all that holds here does. Only sizes that make
    it `possible` are looked at point by point."""
    low.guarded += bool(scope.conditions())
    if not low.text.checks:
        return
    plain, masks = holding(low, low.prover.projected(scope, test.axes, opaque=False))
    mask: Value | None = None
    for part in (*masks, *(() if test.python else (test,))):
        mask = part if mask is None else both(mask, part, scope)
    tests = [part.code for part in (*plain, *((test,) if test.python else ()))]
    tests = [*(() if possible is None else (possible,)), *tests]
    sizes.refuse_once(low, chain("and", [*tests, *(() if mask is None else (somewhere(mask),))]), code, message)


def holding(low: Lowering, scope: Scope, own: set[Coordinate] | None = None) -> tuple[list[Value], list[Value]]:
    """Return the conditions on a point that is evaluated: plain ones, and masks; only those about some coordinates
    of their `own`, where these are given, and outside of a loop none about its step."""
    checks, low.text.checks = low.text.checks, False
    asking, low.in_guard = low.in_guard, True
    plain: list[Value] = []
    masks: list[Value] = []
    inside = scope.plainly()
    for condition, holds in scope.conditions():
        if own is None or is_about(condition, own):
            value = low.value(condition if holds else fails(condition), inside)
            found = plain if value.python else masks
            if value not in found:
                found.append(value)
        # Also of one that is not asked: what comes after it is only read where it holds.
        inside = inside.where(condition, holds)
    low.text.checks, low.in_guard = checks, asking
    return plain, masks


def is_about(condition: ir.Expr, own: set[Coordinate]) -> bool:
    """Whether a condition varies with some coordinates, or with none, and can be asked here."""
    over = condition.type.coordinates
    return not over or not own.isdisjoint(over)


def somewhere(mask: Value) -> Node:
    """Whether a mask holds somewhere, said of an array, also of one without axes."""
    return method(mask.code, "any")


def kept_points(low: Lowering, own: set[Coordinate], scope: Scope, apart: bool = False) -> Value | None:
    """The mask of the points of these coordinates that guards keep: of a condition that has others as well, those at
    which it holds for some point of the others. One that has only others is left out, unless it is asked `apart`: then
    no point is kept where it holds nowhere."""
    found = holding(low, low.prover.projected(scope, own, opaque=False), None if apart else own)[1]
    masks = [mask for mask in found if own.issuperset(mask.axes)]
    wider = [mask for mask in found if not own.issuperset(mask.axes)]
    if wider:
        whole = conjunction(low, wider, scope)
        assert whole is not None
        gone = tuple(n for n, axis in enumerate(whole.axes) if axis not in own)
        some = low.text.dialect.reduction("any", whole, gone, low.text)
        masks.append(Value(some, tuple(axis for axis in whole.axes if axis in own), "bool", "bool"))
    return conjunction(low, masks, scope)


def is_linear_map(product: Value, other: Value, axes: tuple[Coordinate, ...]) -> bool:
    """Whether a product of two matrices and what is added to each row of it are one call of the library."""
    if product.product is None or product.product[0] != "@" or product.axes != axes or product.dtype != other.dtype:
        return False
    if not axes:  # All is summed: no rows are left.
        return False
    _, left, right = product.product
    return len(left.axes) == len(right.axes) == 2 and other.axes == axes[-1:]


def added_product(sign: str, left: Value, right: Value, other: Value) -> Node:
    """A product and what is added to it, in one call."""
    if sign == "*":
        return call("torch.addcmul", other.code, left.code, right.code)
    if len(left.axes) == 1:
        left, right = right.but(Attribute(right.code, "mT")), left
    name = "torch.addmm" if len(right.axes) == 2 else "torch.addmv"
    return call(name, other.code, left.code, right.code)
