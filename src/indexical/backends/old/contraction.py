"""Sums of products → matrix products."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import nodes as ir
from ...ir.algebra.factors import Factor, factors_of
from ...ir.types import Coordinate, Dtype
from ...records import replace
from . import arrays, removal, reuse, sizes
from .base import Value, plain
from .code import ONE, Index, Infix, Name, Node, Slice, call, chain, fill, infix, method
from .lowering import Lowering
from .scope import Scope
from .values import aligned, joined, permuted, widest


def contract(low: Lowering, expr: ir.Reduce, inner: Scope, masks: list[Value], scope: Scope) -> Value | None:
    """The sum as matrix products; None where its body is no product of arrays that it would broadcast, or where a
    removed non-finite number would make a NaN as 0 · ∞."""
    bound = expr.coordinates
    found = factors_of(expr.body)
    moving = [factor for factor in found if factor.expr.type.coordinates & bound]
    fixed = [factor for factor in found if factor not in moving]
    factor_axes = [frozenset(inner.sort(factor.expr.type.coordinates)) for factor in moving]
    if not _is_worthwhile(factor_axes, bound, masks) or not is_harmless(low, moving, factor_axes, masks):
        return None
    cleared = [_removals(low, factor, found) for factor in moving]
    if any(gone is None for gone in cleared):
        return None
    if scope.conditions() and any(low.poles.may_be_infinite(factor.expr) for factor in found):
        # At a point that a guard removes, an infinity would give the gradient 0 · ∞.
        return None
    over = frozenset(inner.sort(bound))
    idle = inner.sort(over.difference(*factor_axes, *(mask.axes for mask in masks)))
    if not all(sizes.is_filled(low, axis, inner) for axis in idle) and (
        any(may_become_infinite(low, factor) for factor in moving)
    ):
        return None
    kept = removal.kept_factors(low, [factor.expr for factor in (*moving, *fixed)], inner)
    factors = [multiplied(low, f, value) for f, value in zip((*moving, *fixed), kept, strict=True)]
    for n, gone in enumerate(cleared):
        for other in gone or ():
            mask = removal.removed(low, other.expr, inner)
            assert mask is not None
            factors[n] = arrays.where(low, mask, plain(0, "real"), factors[n], inner, factors[n].dtype)
    values = masked_factors(low, factors[: len(moving)], masks, inner)
    idle = inner.sort(over.difference(*(value.axes for value in values)))
    result = repeated(low, contract_all(low, values, over, inner), idle, inner)
    for value in factors[len(moving) :]:
        result = times(low, result, value, inner)
    if masks and any(may_become_infinite(low, factor) for factor in fixed):
        some = some_left(low, masks, over, inner)
        result = arrays.where(low, some, arrays.as_array(low, result), plain(0, "real"), inner, result.dtype)
    return result


def may_become_infinite(low: Lowering, factor: Factor) -> bool:
    """Whether a factor may be infinite where all that it is made of is finite."""
    return factor.inverse or low.poles.may_be_nonfinite(factor.expr) or low.poles.may_be_infinite(factor.expr)


def _removals(low: Lowering, factor: Factor, found: list[Factor]) -> list[Factor] | None:
    """The other factors of a product where whose removal a factor that may be infinite is made 0; None where that takes
    an array of more axes than it has."""
    others = [other for other in found if other is not factor and removal.may_be_removed(low, other.expr)]
    if not others or not may_become_infinite(low, factor):
        return []
    conditions = [removal.removal_condition(low, other.expr) for other in others]
    over = factor.expr.type.coordinates
    return others if all(c is not None and c.type.coordinates <= over for c in conditions) else None


def repeated(low: Lowering, value: Value, idle: Iterable[Coordinate], scope: Scope) -> Value:
    """The value as often as these coordinates have points, with which no factor varies."""
    for axis in idle:
        value = times(low, value, plain(sizes.length(low, axis, scope)), scope)
    return value


def is_harmless(
    low: Lowering,
    moving: list[Factor],
    factor_axes: list[frozenset[Coordinate]],
    masks: list[Value],
) -> bool:
    """Whether a product of 0 and a removed value is 0 whatever number that is."""
    infinite = [may_become_infinite(low, factor) for factor in moving]
    return all(set(mask.axes) <= axes for mask in masks for axes, may in zip(factor_axes, infinite, strict=True) if may)


def some_left(low: Lowering, masks: list[Value], bound: frozenset[Coordinate], scope: Scope) -> Value:
    """The mask where some point is left."""
    mask = arrays.conjunction(low, masks, scope)
    assert mask is not None
    gone = tuple(n for n, axis in enumerate(mask.axes) if axis in bound)
    if not gone:
        return mask
    code = low.text.dialect.reduction("any", mask, gone, low.text)
    return Value(code, tuple(axis for axis in mask.axes if axis not in bound), "bool", "bool")


def multiplied(low: Lowering, factor: Factor, value: Value) -> Value:
    """A factor as it is multiplied; a divisor as `1 / x`, which `times` takes apart again."""
    value = arrays.as_real(low, value)
    if not factor.inverse:
        return value
    if value.python:
        value = arrays.as_array(low, value)
    return value.but(infix("/", 1, value.code))


def times(low: Lowering, left: Value, right: Value, scope: Scope) -> Value:
    """A product of two values. By `1 / x` it is a quotient."""
    left, right = arrays.promoted(low, [left, right])
    axes = joined((left, right), scope.order)
    dtype = widest((left.dtype, right.dtype))
    sign = "*"
    match right.code:
        case Infix("/", one, divisor) if one == ONE:
            sign, right = "/", right.but(divisor)
    code = Infix(sign, aligned(left, axes).code, aligned(right, axes).code)
    return Value(code, axes, "real", dtype, left.python and right.python)


def masked_factors(low: Lowering, values: list[Value], masks: list[Value], scope: Scope) -> list[Value]:
    """Every mask removes its points from all factors that have its axes; else it is a factor of its own."""
    result = list(values)
    covered: dict[int, list[Value]] = {}
    for mask in masks:
        covering = [n for n, value in enumerate(values) if set(mask.axes) <= set(value.axes)]
        for n in covering:
            covered.setdefault(n, []).append(mask)
        if not covering:
            result.append(arrays.as_real(low, mask, widest(value.dtype for value in values)))
    for n, found in covered.items():
        mask_of_all = arrays.conjunction(low, found, scope)
        assert mask_of_all is not None
        zero = plain(0, "real")
        result[n] = arrays.where(low, mask_of_all, arrays.as_array(low, values[n]), zero, scope, values[n].dtype)
    return result


def contract_all(low: Lowering, values: list[Value], bound: frozenset[Coordinate], scope: Scope) -> Value:
    """Pair by pair: first the pair that leaves the fewest axes."""
    values = list(values)
    while len(values) > 2 and (pair := _nested(values, bound)) is not None:
        small, large = (values[n] for n in pair)
        values = [value for n, value in enumerate(values) if n not in pair]
        values.append(low.text.keep(times(low, large, small, scope), low.label))
    while len(values) > 1:
        n, m = min(
            ((n, m) for m in range(len(values)) for n in range(m)),
            key=lambda pair: _left_over(values, pair, bound),
        )
        others = [value for k, value in enumerate(values) if k not in (n, m)]
        kept = {axis for value in others for axis in value.axes}
        values = [contract_pair(low, values[n], values[m], bound - kept, scope), *others]
        if others:
            values[0] = reuse.held(low, values[0])
    return summed(low, values[0], bound)


def summed(low: Lowering, value: Value, bound: Iterable[Coordinate]) -> Value:
    """The value without some of its axes, these summed."""
    gone = tuple(n for n, axis in enumerate(value.axes) if axis in set(bound))
    if not gone:
        return value
    kept = tuple(axis for n, axis in enumerate(value.axes) if n not in gone)
    return value.but(low.text.dialect.reduction("sum", value, gone, low.text), axes=kept)


# ------------------------------------------------------------ a pair of arrays


def contract_pair(low: Lowering, left: Value, right: Value, bound: frozenset[Coordinate], scope: Scope) -> Value:
    """One matrix product: over the bound axes of both, for every point of their other axes."""
    left = summed(low, left, bound - set(right.axes))
    right = summed(low, right, bound - set(left.axes))
    shared = set(left.axes) & set(right.axes)
    over, both = scope.sort(shared & bound), scope.sort(shared - bound)
    if not over:
        return times(low, left, right, scope)
    mine = scope.sort(set(left.axes) - shared)
    theirs = scope.sort(set(right.axes) - shared)
    if theirs and (not mine or scope.order.index(theirs[0]) < scope.order.index(mine[0])):
        left, right, mine, theirs = right, left, theirs, mine
    dtype = widest((left.dtype, right.dtype))
    left, right = same(low, left, dtype), same(low, right, dtype)
    if both:
        result = batched(low, left, right, both, mine, over, theirs, scope)
    else:
        result = plain_product(low, left, right, mine, over, theirs, scope)
    return permuted(replace(result, dtype=dtype), scope.sort(result.axes), low.text)


def same(low: Lowering, value: Value, dtype: Dtype | None) -> Value:
    """Matrix products want one dtype on both sides."""
    return value if dtype is None or value.dtype in (dtype, None) else low.text.dialect.cast(value, dtype)


def plain_product(
    low: Lowering,
    left: Value,
    right: Value,
    mine: tuple[Coordinate, ...],
    over: tuple[Coordinate, ...],
    theirs: tuple[Coordinate, ...],
    scope: Scope,
) -> Value:
    """Two arrays that share only what is summed: `@` where their axes allow it, else all at once."""
    wanted = scope.sort({*mine, *theirs})
    if low.text.dialect.contracts_by_copying:
        found = linear_map(low, left, right, over, scope) or linear_map(low, right, left, over, scope)
        if found is not None:
            return found
    if len(over) == 1:
        found = matrix_by_stack(low, left, right, over[0], wanted) or matrix_by_stack(low, right, left, over[0], wanted)
        if found is not None:
            return found
    if len(over) == 1:
        if len(theirs) <= 1 and (left.axes == (*mine, *over) or len(mine) <= 1):
            first, second = arrays.in_order(low, left, (*mine, *over)), arrays.in_order(low, right, (*over, *theirs))
            return _matmul(first, second, (*mine, *theirs))
        if len(mine) <= 1 and right.axes == (*theirs, *over) and wanted == (*theirs, *mine):
            return _matmul(right, arrays.in_order(low, left, (*over, *mine)), (*theirs, *mine))
    before = [value.turned or value for value in (left, right)]
    if len(over) > 1 and low.text.dialect.contracts_by_copying:
        return as_matrices(low, before[0], before[1], mine, over, theirs, scope)
    places = tuple(tuple(value.axes.index(axis) for axis in over) for value in before)
    code = low.text.dialect.tensordot(before[0].code, before[1].code, places)  # type: ignore[arg-type]
    axes = tuple(axis for value in before for axis in value.axes if axis not in over)
    return Value(code, axes, "real", None)


def linear_map(
    low: Lowering, rows: Value, weights: Value, over: tuple[Coordinate, ...], scope: Scope
) -> Value | None:
    """Rows by weights that are given with the summed coordinates last, `x[i, m]` by `W[h, d, m]`: one matrix, read as
    it lies. None where the weights lie otherwise."""
    weights = weights.turned or weights
    split = len(weights.axes) - len(over)
    made, summed = weights.axes[:split], weights.axes[split:]
    kept = tuple(axis for axis in rows.axes if axis not in over)
    if not made or not kept or set(summed) != set(over) or not is_given(low, weights.code):
        return None
    if len(made) == len(summed) == 1:
        lying = rows.turned or rows
        if lying.axes[-1:] != summed or is_given(low, lying.code, cut=True):  # Two inputs: a product like any other.
            return None
        code = call("torch.nn.functional.linear", rows.code, weights.code)
        product = ("@", rows, permuted(weights, (*summed, *made), low.text))
        return Value(code, (*kept, *made), "real", None, product=product)
    rows = permuted(rows, (*kept, *summed), low.text)
    if len(summed) > 1:
        lengths = [sizes.length(low, axis, scope) for axis in kept]
        rows = rows.but(method(rows.code, "reshape", *lengths, product_of_lengths(low, summed, scope)))
    matrix = folded(low, weights, (), made, summed, scope)
    result = Value(call("torch.nn.functional.linear", rows.code, matrix.code), (*kept, *made), "real", None)
    return unfolded_sides(low, result, scope) if len(made) > 1 else result


def is_given(low: Lowering, code: Node, cut: bool = False) -> bool:
    """Whether this is an input, or one at places along its first axes: it lies as it was given. With `cut`, it may also
    be some of its rows."""
    while isinstance(code, Index) and (cut or not any(isinstance(part, Slice) for part in code.slots)):
        code = code.of
    inputs = (low.stored.get(tensor.name) for tensor in low.program.inputs)
    return isinstance(code, Name) and any(stored is not None and stored.variable == code.text for stored in inputs)


def matrix_by_stack(
    low: Lowering, matrix: Value, stack: Value, over: Coordinate, wanted: tuple[Coordinate, ...]
) -> Value | None:
    """A matrix times a stack of matrices, `X[i, m]` by `W[h, m, d]`: its result lies as it is wanted, and nothing
    is turned around. None where the axes are others."""
    stack = stack.turned or stack
    rows = [axis for axis in matrix.axes if axis != over]
    if len(rows) != 1 or len(stack.axes) < 3 or stack.axes[-2] != over:
        return None
    if wanted != (*stack.axes[:-2], rows[0], stack.axes[-1]):
        return None
    return _matmul(arrays.in_order(low, matrix, (rows[0], over)), stack, wanted)


def as_matrices(
    low: Lowering,
    left: Value,
    right: Value,
    mine: tuple[Coordinate, ...],
    over: tuple[Coordinate, ...],
    theirs: tuple[Coordinate, ...],
    scope: Scope,
) -> Value:
    """One product of two matrices, of which the summed coordinates are one axis in the order of the right side: a
    projection that merges heads reads its weights as they lie."""
    over = tuple(axis for axis in right.axes if axis in over)
    first, second = folded(low, left, (), mine, over, scope), folded(low, right, (), over, theirs, scope)
    result = _matmul(first, second, (*mine, *theirs))
    return unfolded_sides(low, result, scope) if len(mine) > 1 or len(theirs) > 1 else result


def unfolded_sides(low: Lowering, value: Value, scope: Scope) -> Value:
    """A matrix product with an axis for every coordinate again."""
    return value.but(method(value.code, "reshape", *sizes.shape(low, value.axes, scope).items))


def product_of_lengths(low: Lowering, axes: tuple[Coordinate, ...], scope: Scope) -> Node:
    """The product of the lengths of some coordinates."""
    return chain("*", [sizes.length(low, axis, scope) for axis in axes]) if axes else ONE


def batched(
    low: Lowering,
    left: Value,
    right: Value,
    both: tuple[Coordinate, ...],
    mine: tuple[Coordinate, ...],
    over: tuple[Coordinate, ...],
    theirs: tuple[Coordinate, ...],
    scope: Scope,
) -> Value:
    """A matrix product for every point of the axes that both have and keep."""
    if not mine:
        return summed(low, low.text.keep(times(low, left, right, scope), low.label), over)
    first = folded(low, left, both, mine, over, scope)
    if not theirs:
        column = folded(low, right, both, (), over, scope)
        code = fill("({first} @ {column}[..., None])[..., 0]", first=first.code, column=column.code)
        result = Value(code, (*both, *mine), "real", None)
    else:
        result = _matmul(first, folded(low, right, both, over, theirs, scope), (*both, *mine, *theirs))
    return unfolded_sides(low, result, scope) if len(mine) > 1 or len(theirs) > 1 else result


def folded(
    low: Lowering,
    value: Value,
    both: tuple[Coordinate, ...],
    rows: tuple[Coordinate, ...],
    columns: tuple[Coordinate, ...],
    scope: Scope,
) -> Value:
    """The value as a batch of matrices; several coordinates of a side are one axis."""
    value = permuted(value, (*both, *rows, *columns), low.text)
    if len(rows) <= 1 and len(columns) <= 1:
        return value
    lengths = [sizes.length(low, axis, scope) for axis in both]
    for side in (rows, columns):
        if side:
            lengths.append(product_of_lengths(low, side, scope))
    return value.but(method(value.code, "reshape", *lengths))


def _matmul(left: Value, right: Value, axes: tuple[Coordinate, ...]) -> Value:
    return Value(Infix("@", left.code, right.code), axes, "real", None, product=("@", left, right))


def _is_worthwhile(factor_axes: list[frozenset[Coordinate]], bound: frozenset[Coordinate], masks: list[Value]) -> bool:
    """Whether a product would be larger than any of its factors, or is one of a matrix and vectors."""
    if len(factor_axes) < 2:
        return False
    largest = frozenset().union(*factor_axes)
    if largest not in factor_axes:
        return True
    vectors = [axes for axes in factor_axes if axes != largest]
    return not masks and len(vectors) == len(factor_axes) - 1 and all(axes & bound for axes in vectors)


def _nested(values: list[Value], bound: frozenset[Coordinate]) -> tuple[int, int] | None:
    """A factor that has no axis that another does not have, and none that a product of these two would consume: it
    goes into the least of those."""
    for n, small in enumerate(values):
        larger = [m for m, large in enumerate(values) if m != n and set(small.axes) <= set(large.axes)]
        if not larger:
            continue
        chosen = min(larger, key=lambda m: len(values[m].axes))
        others = {axis for m, value in enumerate(values) if m not in (n, chosen) for axis in value.axes}
        if not (bound & set(small.axes)) - others:
            return n, chosen
    return None


def _left_over(values: list[Value], pair: tuple[int, int], bound: frozenset[Coordinate]) -> tuple[int, int]:
    others = {axis for n, value in enumerate(values) if n not in pair for axis in value.axes}
    axes = {axis for n in pair for axis in values[n].axes}
    left = {axis for axis in axes if axis in others or axis not in bound}
    return len(left), -len(axes - left)
