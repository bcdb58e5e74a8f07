"""Sums of windows and kernels → convolutions, where PyTorch has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir import nodes as ir
from ..ir.algebra.factors import factors_of
from ..ir.types import Coordinate
from ..records import dataclass
from . import arrays, contraction, indexing, removal, sizes, views
from .base import Value
from .code import ALL, NONE, ZERO, Name, Node, call, method
from .indexing import AxisIndex, held_axes
from .lowering import Lowering
from .scope import Scope
from .values import permuted, sliced

# A convolution has at most so many coordinates that are shifted.
_MOST = 3


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of the coordinates in a convolution: `groups` are in both factors and survive, `inner` are in both and
    are summed, `batch` are in the shifted factor alone, `outer` in the other. Each of `counts` survives and is shifted
    by one of `sizes`, which is summed; they go by `steps` and `dilations`."""

    groups: tuple[Coordinate, ...]
    batch: tuple[Coordinate, ...]
    inner: tuple[Coordinate, ...]
    outer: tuple[Coordinate, ...]
    counts: tuple[Coordinate, ...]
    sizes: tuple[Coordinate, ...]
    steps: tuple[int, ...]
    dilations: tuple[int, ...]


def convolved(low: Lowering, expr: ir.Reduce, inner: Scope, masks: list[Value], scope: Scope) -> Value | None:
    """The sum as a convolution; None where it is none, or one of so little that windows do as well."""
    found = factors_of(expr.body)
    if not low.text.dialect.convolves or low.isolate or masks or low.text.loops or len(found) != 2:
        return None
    if any(contraction.may_become_infinite(low, f) or removal.may_be_removed(low, f.expr) for f in found):
        return None
    if any(f.expr.type.kind != "real" for f in found):
        return None
    for shifted, other in ((found[0].expr, found[1].expr), (found[1].expr, found[0].expr)):
        if not isinstance(shifted, ir.Read) or not isinstance(other, ir.Read):
            continue
        plan = shifted_views(low, shifted, inner)
        roles = None if plan is None else roles_of(low, expr, plan, other, inner)
        if plan is not None and roles is not None:
            idle = expr.coordinates - shifted.type.coordinates - other.type.coordinates
            low.tell(f"a convolution along {', '.join(f'`{count}`' for count in roles.counts)}")
            once = convolution(low, shifted, plan, other, roles, inner, scope)
            return contraction.repeated(low, once, inner.sort(idle), inner)
    return None


def shifted_views(low: Lowering, read: ir.Read, inner: Scope) -> list[AxisIndex] | None:
    """The views of a read that has windows, and otherwise only whole axes; None for any other."""
    stored = low.stored[read.tensor]
    if not read.indices or stored.rows or stored.starts or stored.growing or stored.dtype != low.compute:
        return None
    accesses = [views.access(low, index, inner) for index in read.indices]
    if not 1 <= sum(a is not None and a.how == "windows" for a in accesses) <= _MOST:
        return None
    extents = [axis.extent for axis in low.tensors[read.tensor].axes]
    message = f"an index of `{read.tensor}` is out of bounds"
    plan = indexing.planned(low, list(read.indices), extents, message, inner)
    for index in plan:
        if index.access is None or index.access.how == "split" or index.access.flipped:
            return None
    return plan


def roles_of(low: Lowering, expr: ir.Reduce, plan: list[AxisIndex], other: ir.Read, inner: Scope) -> Roles | None:
    """The role of each coordinate in the convolution; None where one has none."""
    mine: set[Coordinate] = set()
    counts: list[Coordinate] = []
    widths: list[Coordinate] = []
    steps: list[int] = []
    dilations: list[int] = []
    for index in plan:
        assert index.access is not None
        if index.access.how != "windows":
            mine.update(index.access.coordinates)
            continue
        first, second = index.access.coordinates
        step = sizes.with_constants(low, index.access.step, index.expr.span).constant
        if step is None or (first in expr.coordinates) == (second in expr.coordinates):
            return None
        pair = [(first, step), (second, index.access.dilation)]
        survives, summed = pair if second in expr.coordinates else pair[::-1]
        counts.append(survives[0])
        steps.append(survives[1])
        widths.append(summed[0])
        dilations.append(summed[1])
    theirs = set(inner.sort(other.type.coordinates))
    if not theirs.issuperset(widths) or not theirs.isdisjoint(counts) or mine & {*counts, *widths}:
        return None
    theirs -= set(widths)
    if (mine ^ theirs) & expr.coordinates or not mine or not theirs:
        return None
    both = inner.sort(mine & theirs)
    return Roles(
        tuple(c for c in both if c not in expr.coordinates),
        inner.sort(mine - theirs),
        tuple(c for c in both if c in expr.coordinates),
        inner.sort(theirs - mine),
        tuple(counts),
        tuple(widths),
        tuple(steps),
        tuple(dilations),
    )


def convolution(
    low: Lowering, shifted: ir.Read, plan: list[AxisIndex], other: ir.Read, roles: Roles, inner: Scope, scope: Scope
) -> Value:
    """One call of PyTorch's, its axes named and in order."""
    stored = low.stored[shifted.tensor]
    base = Value(Name(stored.variable), (), "real", stored.dtype, stored.python)
    # Of an axis that is shifted, the name is that of what survives.
    held = [index.access.coordinates for _, index in held_axes(plan) if index.access is not None]
    names = tuple(next((c for c in axis if c in roles.counts), axis[0]) for axis in held)
    x = replace(indexing.sliced_view(low, base, plan, inner), axes=names)
    w = arrays.widened(low, arrays.as_real(low, low.value(other, inner)))
    first = laid_out(low, x, (roles.groups, roles.batch, roles.inner), roles.counts)
    second = laid_out(low, w, (roles.groups, roles.outer, roles.inner), roles.sizes)
    counts = sizes.shape(low, roles.counts, inner)
    code = call(low.text.helper("convolved"), first, second, counts, roles.steps, roles.dilations)
    kept = (roles.groups, roles.batch, roles.outer)
    value = taken_apart(low, Value(code, (), "real", x.dtype), kept, roles.counts, inner)
    return permuted(value, scope.sort(value.axes), low.text)


def laid_out(
    low: Lowering, value: Value, roles: Iterable[tuple[Coordinate, ...]], last: tuple[Coordinate, ...]
) -> Node:
    """The value with one axis for each role, of one point for a role that nothing has."""
    roles = tuple(roles)
    value = permuted(value, (*(c for role in roles for c in role), *last), low.text)
    code, at = value.code, 0
    slots: list[Node] = []
    for role in roles:
        if len(role) > 1:
            code = method(code, "flatten", at, at + len(role) - 1)
        slots.append(ALL if role else NONE)
        at += bool(role)
    return low.text.short(value.but(sliced(code, slots)), low.label).code


def taken_apart(
    low: Lowering, value: Value, roles: Iterable[tuple[Coordinate, ...]], last: tuple[Coordinate, ...], scope: Scope
) -> Value:
    """A result with one axis for each role, with its own axes again."""
    roles = tuple(roles)
    code = value.code
    for n, role in reversed(list(enumerate(roles))):
        if len(role) > 1:
            code = method(code, "unflatten", n, sizes.shape(low, role, scope))
    slots: list[Node] = []
    for role in roles:
        slots += [ALL] * len(role) if role else [ZERO]
    return value.but(sliced(code, slots), axes=(*(c for role in roles for c in role), *last))
