"""Reductions, normalisers, products, norms and gathers, as nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.affine import Polynomial, number
from .indices import product
from .layouts import pad, turned
from .rules import ONCE, RULES, TWICE, Asked, Rule, Unreadable, place, places, rule
from .values import Gathered, Indices, Map, Node, Normalize, Scale, View

# ------------------------------------------------------------------------------------- over axes


def _over(op: str) -> Rule:
    def reduce(asked: Asked, x: Node, axes: Any = None, keepdim: Any = False, **rest: Any) -> Node:
        if op in ("any", "all") and x.kind != "bool":
            x = asked.apply("!=", x, number(0), kind="bool", shape=x.shape)
        elif x.kind == "bool" and op not in ("any", "all"):
            x = asked.apply("number", x, kind="whole", shape=x.shape)
        if asked.kind == "real" and x.kind == "whole":
            x = asked.apply("real", x, kind="real", shape=x.shape)
        return asked.reduced(op, x, places(axes, len(x.shape)), bool(keepdim), asked.kind)

    return reduce


RULES.update(
    {
        name: _over(name.removeprefix("a") if name in ("amax", "amin") else name)
        for name in "sum mean amax amin prod any all".split()
    }
)


def _extreme(op: str) -> Rule:
    def find(asked: Asked, x: Node, axis: Any = None, keepdim: Any = False) -> Any:
        if isinstance(axis, Node):
            return asked.apply(op, x, axis)
        axes = places(axis, len(x.shape))
        value = asked.reduced(op, x, axes, bool(keepdim))
        if axis is None:
            return value
        return value, asked.reduced(f"arg{op}", x, axes, bool(keepdim), "whole")

    return find


RULES["max"] = _extreme("max")
RULES["min"] = _extreme("min")


@rule("argmax")
def argmax(asked: Asked, x: Node, axis: Any = None, keepdim: Any = False) -> Node:
    if axis is None and len(x.shape) > 1:
        raise Unreadable("the place of the largest of all elements is asked for")
    return asked.reduced("argmax", x, places(axis, len(x.shape)), bool(keepdim), "whole")


@rule("logsumexp")
def logsumexp(asked: Asked, x: Node, axes: Any, keepdim: Any = False) -> Node:
    exponentials = asked.apply("exp", x, shape=x.shape)
    total = asked.reduced("sum", exponentials, places(axes, len(x.shape)), bool(keepdim))
    return asked.apply("log", total)


@rule("var")
def variance(asked: Asked, x: Node, axes: Any = None, *rest: Any, correction: Any = ONCE, keepdim: Any = False) -> Node:
    over = places(axes, len(x.shape))
    mean = asked.reduced("mean", x, over, True)
    squares = asked.apply("**", asked.apply("-", x, mean, shape=x.shape), number(2), shape=x.shape)
    count = product(x.shape[axis] for axis in over)
    corrected = count if not isinstance(correction, Polynomial) else count - correction
    total = asked.reduced("sum", squares, over, bool(keepdim))
    return asked.apply("/", total, corrected)


@rule("std")
def deviation(asked: Asked, *arguments: Any, **rest: Any) -> Node:
    return asked.apply("sqrt", variance(asked, *arguments, **rest))


@rule("linalg_vector_norm", "norm")
def norm(asked: Asked, x: Node, order: Any = TWICE, axes: Any = None, keepdim: Any = False, **rest: Any) -> Node:
    two = order.constant == 2 if isinstance(order, Polynomial) else isinstance(order, Scale) and order.factor == 2
    if order is not None and not two:
        raise Unreadable("a norm other than the root of the sum of squares")
    squares = asked.apply("**", x, number(2), shape=x.shape)
    return asked.apply("sqrt", asked.reduced("sum", squares, places(axes, len(x.shape)), bool(keepdim)))


@rule("_softmax", "softmax", "_safe_softmax")
def softmax(asked: Asked, x: Node, axis: Any, *rest: Any, **more: Any) -> Node:
    return Normalize(x.shape, "real", "softmax", source=x, axis=place(axis, len(x.shape)), site=asked.site)


@rule("_log_softmax", "log_softmax")
def log_softmax(asked: Asked, x: Node, axis: Any, *rest: Any, **more: Any) -> Node:
    return Normalize(x.shape, "real", "log_softmax", source=x, axis=place(axis, len(x.shape)), site=asked.site)


def scanned(asked: Asked, op: str, x: Node, axis: Any, backwards: bool = False) -> Node:
    """A running sum, product, maximum or minimum, from the first element or from the last."""
    if backwards:
        found: Node = RULES["flip"](asked, scanned(asked, op, RULES["flip"](asked, x, (axis,)), axis), (axis,))
        return found
    if op == "cummin":
        opposite = asked.apply("neg", x, kind=x.kind, shape=x.shape)
        return asked.apply("neg", scanned(asked, "cummax", opposite, axis), kind=x.kind, shape=x.shape)
    if x.kind == "bool":
        x = asked.apply("number", x, kind="whole", shape=x.shape)
    return Normalize(x.shape, x.kind, op, source=x, axis=place(axis, len(x.shape)), site=asked.site)


def _total(op: str) -> Rule:
    return lambda asked, x, axis, **rest: scanned(asked, op, x, axis)


def _extreme_so_far(op: str) -> Rule:
    def largest(asked: Asked, x: Node, axis: Any) -> Any:
        """The values; their places, the last of equal ones, have no rule."""
        if x.kind == "bool":
            raise Unreadable("truths are put in order")
        return scanned(asked, op, x, axis), None

    return largest


RULES.update({op: _total(op) for op in ("cumsum", "cumprod")})
RULES.update({op: _extreme_so_far(op) for op in ("cummax", "cummin")})


# ------------------------------------------------------------------------------------- products


@rule("mm", "bmm", "matmul", "dot", "mv")
def matmul(asked: Asked, x: Node, y: Node) -> Node:
    """The last axis of `x` with the last but one of `y`; what stands before them is shared."""
    batch = max(len(x.shape), len(y.shape)) - 2
    if len(x.shape) == 1 or len(y.shape) == 1:
        return _vectors(asked, x, y)
    lead = asked.shape[:batch]
    whole = (*lead, x.shape[-2], y.shape[-1], x.shape[-1])
    left = View(
        whole,
        x.kind,
        source=x,
        move=lambda at: (*at[: len(x.shape) - 2], at[-3], at[-1]),
        expands=True,
        site=asked.site,
    )
    right = View(
        whole,
        y.kind,
        source=y,
        move=lambda at: (*at[: len(y.shape) - 2], at[-1], at[-2]),
        expands=True,
        site=asked.site,
    )
    body = Map(whole, asked.kind, "*", (left, right), site=asked.site)
    return asked.reduced("sum", body, (len(whole) - 1,), False)


def _vectors(asked: Asked, x: Node, y: Node) -> Node:
    if len(x.shape) == len(y.shape) == 1:
        return asked.reduced("sum", asked.apply("*", x, y, shape=x.shape), (0,), False)
    body = asked.apply("*", x, y, shape=x.shape)
    return asked.reduced("sum", body, (1,), False)


@rule("addmm", "baddbmm", "addmv")
def add_product(asked: Asked, bias: Node, x: Node, y: Node, beta: Any = ONCE, alpha: Any = ONCE) -> Node:
    found = matmul(asked, x, y)
    if not (isinstance(alpha, Polynomial) and alpha.constant == 1):
        found = asked.apply("*", found, alpha)
    if isinstance(beta, Polynomial) and beta.constant == 0:
        return found
    if not (isinstance(beta, Polynomial) and beta.constant == 1):
        bias = asked.apply("*", bias, beta, shape=bias.shape)
    return asked.apply("+", found, bias)


@rule("linear")
def linear(asked: Asked, x: Node, weight: Node, bias: Node | None = None) -> Node:
    found = matmul(asked, x, turned(asked, weight))
    return found if bias is None else asked.apply("+", found, bias)


@rule("convolution")
def convolution(
    asked: Asked, x: Node, weight: Node, bias: Any, strides: Any, widths: Any, steps: Any, transposed: Any, *rest: Any
) -> Node:
    """A sum over the points around each: of all channels, or of each channel alone."""
    rank, groups = len(asked.shape), rest[-1].constant
    alone = groups != 1 and weight.shape[1].constant == 1 and x.shape[1] == asked.shape[1]
    if transposed or any(stride.constant != 1 for stride in strides):
        raise Unreadable("it is transposed" if transposed else "it takes steps of several points")
    if groups != 1 and not alone:
        raise Unreadable("its channels are in groups")
    padded = (*x.shape[:2], *(size + width + width for size, width in zip(x.shape[2:], widths, strict=True)))
    edges = tuple(width for width in reversed(widths) for _ in range(2))
    source = pad(Asked((padded,), (x.kind,), asked.site), x, edges)
    whole = (*asked.shape, *(() if alone else weight.shape[1:2]), *weight.shape[2:])
    first = len(whole) - (rank - 2)

    def around(at: Indices) -> Indices:
        moved = [at[2 + n] + at[first + n] * steps[n] for n in range(rank - 2)]
        return (at[0], at[1] if alone else at[rank], *moved)

    left = View(whole, x.kind, source=source, move=around, expands=True, site=asked.site)
    right = View(
        whole,
        weight.kind,
        source=weight,
        move=lambda at: (at[1], number(0) if alone else at[rank], *at[first:]),
        expands=True,
        site=asked.site,
    )
    body = Map(whole, asked.kind, "*", (left, right), site=asked.site)
    found = asked.reduced("sum", body, tuple(range(rank, len(whole))), False)
    if bias is None:
        return found
    over = View(asked.shape, bias.kind, source=bias, move=lambda at: (at[1],), expands=True, site=asked.site)
    return asked.apply("+", found, over)


# ------------------------------------------------------------------------------------- norms


@rule("native_layer_norm")
def layer_norm(asked: Asked, x: Node, shape: Any, weight: Any, bias: Any, eps: Any) -> tuple[Node, Node, Node]:
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    mean = asked.reduced("mean", x, axes, True)
    centred = asked.apply("-", x, mean, shape=x.shape)
    squares = asked.apply("**", centred, number(2), shape=x.shape)
    spread = asked.reduced("mean", squares, axes, True)
    inverse = asked.apply("rsqrt", asked.apply("+", spread, eps, shape=spread.shape), shape=spread.shape)
    result = asked.apply("*", centred, inverse, shape=x.shape)
    if weight is not None:
        result = asked.apply("*", result, weight, shape=x.shape)
    if bias is not None:
        result = asked.apply("+", result, bias, shape=x.shape)
    return result, mean, inverse


@rule("rms_norm", "_fused_rms_norm")
def rms_norm(asked: Asked, x: Node, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    if eps is None:
        raise Unreadable("it has no eps of its own")
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    squares = asked.apply("**", x, number(2), shape=x.shape)
    mean = asked.reduced("mean", squares, axes, True)
    inverse = asked.apply("rsqrt", asked.apply("+", mean, eps, shape=mean.shape), shape=mean.shape)
    result = asked.apply("*", x, inverse, shape=x.shape)
    if weight is not None:
        result = asked.apply("*", result, weight, shape=x.shape)
    return (result, inverse) if len(asked.shapes) == 2 else result


# ------------------------------------------------------------------------------------- places that data say


@rule("embedding")
def embedding(asked: Asked, table: Node, ids: Node, *rest: Any) -> Node:
    rank = len(ids.shape)
    return Gathered(
        asked.shape,
        table.kind,
        source=table,
        tables={0: (ids, lambda at: at[:rank])},
        move=lambda at: (at[0], *at[rank:]),
        site=asked.site,
    )


@rule("index_select")
def index_select(asked: Asked, x: Node, axis: Any, ids: Node) -> Node:
    at = place(axis, len(x.shape))
    return Gathered(
        asked.shape, x.kind, source=x, tables={at: (ids, lambda i: (i[at],))}, move=lambda i: i, site=asked.site
    )


@rule("gather")
def gather(asked: Asked, x: Node, axis: Any, ids: Node, **rest: Any) -> Node:
    at = place(axis, len(x.shape))
    return Gathered(asked.shape, x.kind, source=x, tables={at: (ids, lambda i: i)}, move=lambda i: i, site=asked.site)


@rule("index", "_unsafe_index")
def index(asked: Asked, x: Node, ids: tuple[Node | None, ...]) -> Node:
    used = [axis for axis, table in enumerate(ids) if table is not None]
    tables = [table for table in ids if table is not None]
    if any(table.kind == "bool" for table in tables):
        raise Unreadable("the shape of a result depends on values")
    if used != list(range(used[0], used[-1] + 1)):
        raise Unreadable("places are given for axes that do not stand side by side")
    rank = max(len(table.shape) for table in tables)
    first = used[0]

    def where_in(table: Node) -> Callable[[Indices], Indices]:
        ones = [extent.constant == 1 for extent in table.shape]

        def at(i: Indices) -> Indices:
            own = i[first + rank - len(ones) : first + rank]
            return tuple(number(0) if one else part for part, one in zip(own, ones, strict=True))

        return at

    def move(i: Indices) -> Indices:
        return (*i[:first], *(number(0) for _ in used), *i[first + rank :])

    return Gathered(
        asked.shape,
        x.kind,
        source=x,
        tables={axis: (ids[axis], where_in(ids[axis])) for axis in used},  # type: ignore[arg-type, misc]
        move=move,
        site=asked.site,
    )
