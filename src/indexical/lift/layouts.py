"""Operations that move, cut, join or make tensors, as nodes of the graph."""

from __future__ import annotations

from typing import Any

from ..ir.affine import Polynomial, number
from .rules import NOTHING, ONCE, RULES, ZERO, Asked, Rule, Unreadable, place, places, rule
from .values import (
    Condition,
    Count,
    Full,
    Indices,
    Join,
    Kind,
    Map,
    Node,
    Scale,
    Shape,
    View,
    expanded,
    permuted,
    selected,
    sliced,
    squeezed,
    unsqueezed,
    viewed,
)

# ------------------------------------------------------------------------------------- the same tensor


@rule("alias", "detach", "clone", "lift_fresh", "lift_fresh_copy", "lift", "contiguous", "positive")
def same(asked: Asked, x: Any, **rest: Any) -> Node:
    return asked.node(x)


@rule("_to_copy", "to")
def cast(asked: Asked, given: Any, **rest: Any) -> Node:
    order = ("bool", "whole", "real")
    x = asked.node(given)
    if x.kind == asked.kind:
        return x
    if isinstance(x, Full) and not x.value.powers and float(x.value.factor).is_integer():
        return Full(x.shape, asked.kind, as_kind(Scale(int(x.value.factor)), asked.kind), site=x.site)
    if order.index(x.kind) < order.index(asked.kind):
        return asked.apply("number", x) if x.kind == "bool" else asked.apply("real", x)
    if asked.kind == "bool":
        return asked.apply("!=", x, number(0))
    return asked.apply("truncated", x)


# ------------------------------------------------------------------------------------- views


@rule("view", "_unsafe_view", "reshape", "_reshape_alias", "unflatten", "flatten", "_reshape_copy", "view_copy")
def view(asked: Asked, x: Node, *rest: Any) -> Node:
    if rest and not isinstance(rest[0], tuple):
        raise Unreadable("the bits of a tensor are read as another dtype")
    return viewed(x, asked.shape, asked.site)


@rule("permute")
def permute(asked: Asked, x: Node, order: Any) -> Node:
    return permuted(x, places(order, len(x.shape)), asked.site)


@rule("transpose", "swapaxes", "swapdims")
def transpose(asked: Asked, x: Node, first: Any, second: Any) -> Node:
    order = list(range(len(x.shape)))
    if not order:
        return x
    a, b = place(first, len(order)), place(second, len(order))
    order[a], order[b] = order[b], order[a]
    return permuted(x, order, asked.site)


@rule("t", "numpy_T", "mT")
def turned(asked: Asked, x: Node) -> Node:
    return permuted(x, tuple(reversed(range(len(x.shape)))), asked.site)


@rule("expand")
def expand(asked: Asked, x: Node, *rest: Any, **more: Any) -> Node:
    return expanded(x, asked.shape, asked.site)


@rule("unsqueeze")
def unsqueeze(asked: Asked, x: Node, axis: Any) -> Node:
    return unsqueezed(x, place(axis, len(x.shape) + 1), asked.site)


@rule("squeeze")
def squeeze(asked: Asked, x: Node, axes: Any = None) -> Node:
    ones = [axis for axis in places(axes, len(x.shape)) if x.shape[axis].constant == 1]
    return squeezed(x, ones, asked.site)


@rule("select")
def select(asked: Asked, x: Node, axis: Any, index: Polynomial) -> Node:
    at = place(axis, len(x.shape))
    return selected(x, at, from_start(index, x.shape[at]), asked.site)


def from_start(index: Polynomial, extent: Polynomial) -> Polynomial:
    return index + extent if index.constant is not None and index.constant < 0 else index


@rule("slice")
def take(asked: Asked, x: Node, axis: Any = ZERO, start: Any = None, end: Any = None, step: Any = ONCE) -> Node:
    at = place(axis, len(x.shape))
    first = number(0) if start is None else from_start(start, x.shape[at])
    return sliced(x, at, first, step.constant, asked.shape, asked.site)


@rule("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk", "tensor_split")
def pieces(asked: Asked, x: Node, sizes: Any, axis: Any = ZERO) -> tuple[Node, ...]:
    at = place(axis, len(x.shape))
    start, found = number(0), []
    for shape in asked.shapes:
        found.append(sliced(x, at, start, 1, shape, asked.site))
        start = start + shape[at]
    return tuple(found)


@rule("unbind")
def unbind(asked: Asked, x: Node, axis: Any = ZERO) -> tuple[Node, ...]:
    at = place(axis, len(x.shape))
    return tuple(selected(x, at, number(index), asked.site) for index in range(len(asked.shapes)))


@rule("diagonal")
def diagonal(asked: Asked, x: Node, offset: Any = ZERO, first: Any = ZERO, second: Any = ONCE) -> Node:
    a, b = place(first, len(x.shape)), place(second, len(x.shape))
    rest = [axis for axis in range(len(x.shape)) if axis not in (a, b)]
    if offset.constant is None or offset.constant < 0:
        raise Unreadable("a diagonal below the main one")

    def move(at: Indices) -> Indices:
        found = dict(zip(rest, at, strict=False)) | {a: at[-1], b: at[-1] + offset}
        return tuple(found[axis] for axis in range(len(x.shape)))

    return View(asked.shape, x.kind, source=x, move=move, restricts=True, site=asked.site)


@rule("flip")
def flip(asked: Asked, x: Node, axes: Any) -> Node:
    turned = places(axes, len(x.shape))

    def move(at: Indices) -> Indices:
        return tuple(x.shape[axis] - 1 - i if axis in turned else i for axis, i in enumerate(at))

    return View(asked.shape, x.kind, source=x, move=move, site=asked.site)


@rule("repeat", "tile")
def repeat(asked: Asked, x: Node, times: Any) -> Node:
    """Copies one after the other: along an axis, `c % n`."""
    lead = len(asked.shape) - len(x.shape)
    shape: list[Polynomial] = list(asked.shape[:lead])
    for extent, count in zip(x.shape, times[lead:], strict=True):
        shape += (count, extent)
    wide = expanded(viewed(x, spaced(x.shape), asked.site), tuple(shape), asked.site)
    return viewed(wide, asked.shape, asked.site)


def spaced(shape: Shape) -> Shape:
    return tuple(extent for pair in ((number(1), extent) for extent in shape) for extent in pair)


@rule("repeat_interleave")
def repeat_each(asked: Asked, x: Node, times: Any, axis: Any = None, **rest: Any) -> Node:
    if axis is None or not isinstance(times, Polynomial):
        raise Unreadable("elements are repeated by other than one number along an axis")
    at = place(axis, len(x.shape))
    wide = (*x.shape[: at + 1], times, *x.shape[at + 1 :])
    return viewed(expanded(unsqueezed(x, at + 1, asked.site), wide, asked.site), asked.shape, asked.site)


@rule("unfold")
def unfold(asked: Asked, x: Node, axis: Any, size: Any, step: Any) -> Node:
    at = place(axis, len(x.shape))

    def move(i: Indices) -> Indices:
        return (*i[:at], i[at] * step + i[-1], *i[at + 1 : -1])

    return View(asked.shape, x.kind, source=x, move=move, expands=True, site=asked.site)


# ------------------------------------------------------------------------------------- tensors put together


@rule("cat", "concat", "concatenate")
def cat(asked: Asked, parts: tuple[Node, ...], axis: Any = ZERO) -> Node:
    at = place(axis, len(asked.shape))
    kept = [part for part in parts if len(part.shape) == len(asked.shape)]
    starts, start = [], number(0)
    for part in kept:
        starts.append(start)
        start = start + part.shape[at]
    return Join(asked.shape, asked.kind, tuple(kept), tuple(starts), at, site=asked.site)


@rule("stack")
def stack(asked: Asked, parts: tuple[Node, ...], axis: Any = ZERO) -> Node:
    at = place(axis, len(asked.shape))
    return cat(asked, tuple(unsqueezed(part, at, asked.site) for part in parts), number(at))


@rule("constant_pad_nd", "pad")
def pad(asked: Asked, x: Node, widths: tuple[Any, ...], value: Any = NOTHING) -> Node:
    result = x
    for step in range(len(widths) // 2):
        axis = len(x.shape) - 1 - step
        for width, before in ((widths[2 * step], True), (widths[2 * step + 1], False)):
            if width.constant == 0:
                continue
            if width.constant is not None and width.constant < 0:
                raise Unreadable("a tensor is padded by less than nothing")
            edge = asked.spread(value, (*result.shape[:axis], width, *result.shape[axis + 1 :]))
            parts = (edge, result) if before else (result, edge)
            length = asked.shape[axis] if not before or widths[2 * step + 1].constant == 0 else width + x.shape[axis]
            shape = (*result.shape[:axis], length, *result.shape[axis + 1 :])
            result = Join(shape, x.kind, parts, (number(0), parts[0].shape[axis]), axis, site=asked.site)
    return result


@rule("roll")
def roll(asked: Asked, x: Node, shifts: tuple[Any, ...], axes: tuple[Any, ...] = ()) -> Node:
    if len(axes) != 1:
        raise Unreadable("several axes are rolled at once")
    at, shift = place(axes[0], len(x.shape)), shifts[0].constant
    if shift is None:
        raise Unreadable("an axis is rolled by a size")
    extent = x.shape[at]
    cut = number(-shift) if shift < 0 else extent - shift
    rest = extent - cut
    head = sliced(x, at, cut, 1, (*x.shape[:at], rest, *x.shape[at + 1 :]), asked.site)
    tail = sliced(x, at, number(0), 1, (*x.shape[:at], cut, *x.shape[at + 1 :]), asked.site)
    return Join(asked.shape, x.kind, (head, tail), (number(0), rest), at, site=asked.site)


# ------------------------------------------------------------------------------------- new tensors


@rule("full", "full_like", "new_full", "scalar_tensor")
def full(asked: Asked, *arguments: Any, **rest: Any) -> Node:
    value = arguments[-1]
    if isinstance(value, Polynomial) and value.constant is not None:
        value = Scale(value.constant)
    if not isinstance(value, Scale):
        return asked.spread(value, asked.shape)
    return Full(asked.shape, asked.kind, as_kind(value, asked.kind), site=asked.site)


def as_kind(value: Scale, kind: Kind) -> Scale:
    if kind == "bool":
        return Scale(bool(value.factor))
    return Scale(float(value.factor), value.powers) if kind == "real" else value


@rule("ones", "ones_like", "new_ones")
def ones(asked: Asked, *rest: Any, **more: Any) -> Node:
    return Full(asked.shape, asked.kind, as_kind(Scale(1), asked.kind), site=asked.site)


@rule("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "new_empty")
def zeros(asked: Asked, *rest: Any, **more: Any) -> Node:
    return Full(asked.shape, asked.kind, as_kind(Scale(0), asked.kind), site=asked.site)


@rule("fill")
def fill(asked: Asked, x: Node, value: Any) -> Node:
    return asked.spread(value, asked.shape)


@rule("copy")
def copy(asked: Asked, x: Node, value: Node, *rest: Any) -> Node:
    return asked.spread(value, asked.shape)


@rule("arange")
def arange(asked: Asked, *arguments: Any, **rest: Any) -> Node:
    start: Any = arguments[0] if len(arguments) > 1 else ZERO
    step: Any = arguments[2] if len(arguments) > 2 else ONCE
    if isinstance(start, Polynomial) and isinstance(step, Polynomial):
        count = Count(asked.shape, "whole", lambda at: start + step * at[0], site=asked.site)
        return count if asked.kind == "whole" else asked.apply("real", count)
    counted = asked.apply("real", Count(asked.shape, "whole", lambda at: at[0], site=asked.site))
    return asked.apply("+", asked.apply("*", counted, step), start)


def _triangle(lower: bool) -> Rule:
    def triangle(asked: Asked, x: Node, diagonal: Any = ZERO) -> Node:
        def at(i: Indices) -> Polynomial:
            gap: Polynomial = i[-2] + diagonal - i[-1]
            return gap if lower else -gap

        kept = Condition(x.shape, "bool", at, site=asked.site)
        zero = Full(x.shape, x.kind, as_kind(Scale(0), x.kind), site=asked.site)
        return Map(x.shape, x.kind, "if", (kept, x, zero), site=asked.site)

    return triangle


RULES["tril"] = _triangle(lower=True)
RULES["triu"] = _triangle(lower=False)


@rule("eye")
def eye(asked: Asked, *rest: Any, **more: Any) -> Node:
    def count(axis: int) -> Node:
        return Count(asked.shape, "whole", lambda at: at[axis], site=asked.site)

    same = asked.apply("==", count(0), count(1), kind="bool")
    return asked.apply("number", same) if asked.kind != "bool" else same
