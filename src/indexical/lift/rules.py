"""The operations that can be read: each as nodes of the graph. A rule is a function of the same name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..ir.affine import Polynomial, number
from .indices import product
from .values import (
    Condition,
    Count,
    Full,
    Gathered,
    Indices,
    Join,
    Kind,
    Map,
    Node,
    Normalize,
    Reduce,
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

# What arguments are where a call leaves them out.
ZERO, ONCE, TWICE = number(0), number(1), number(2)
NOTHING, ALL, SOME = Scale(0.0), Scale(1.0), Scale(0.01)


class Unreadable(Exception):
    """An operation has no rule, or not for these arguments."""


class Unfit(Unreadable):
    """A number is no function of the sizes that is known; on other sizes it may be."""

    site: Any = None


class Asked:
    """What a rule is asked for: the shapes of the results, their kinds, and the place in the file."""

    def __init__(self, shapes: Sequence[Shape], kinds: Sequence[Kind], site: Any) -> None:
        self.shapes = shapes
        self.kinds = kinds
        self.site = site

    @property
    def shape(self) -> Shape:
        return self.shapes[0]

    @property
    def kind(self) -> Kind:
        return self.kinds[0]

    def apply(self, op: str, *arguments: Any, kind: Kind | None = None, shape: Shape | None = None) -> Node:
        """A function of tensors and numbers, point by point."""
        shape = self.shape if shape is None else shape
        nodes = tuple(self.spread(argument, shape) for argument in arguments)
        return Map(shape, kind or self.kind, op, nodes, site=self.site)

    def spread(self, value: Any, shape: Shape) -> Node:
        return expanded(self.node(value), shape, self.site)

    def node(self, value: Any) -> Node:
        match value:
            case Node():
                return value
            case Polynomial():
                if value.constant is not None:
                    return Full((), "whole", Scale(value.constant), site=self.site)
                return Count((), "whole", lambda at: value, site=self.site)
            case Scale(factor):
                kind: Kind = "bool" if isinstance(factor, bool) else "whole" if isinstance(factor, int) else "real"
                return Full((), kind, value, site=self.site)
            case bool():
                return Full((), "bool", Scale(value), site=self.site)
        raise Unreadable(f"{value!r} is neither a tensor nor a number")

    def reduced(self, op: str, source: Node, axes: Sequence[int], keepdim: bool, kind: Kind | None = None) -> Node:
        axes = tuple(sorted(axes))
        shape = tuple(extent for axis, extent in enumerate(source.shape) if axis not in axes)
        result: Node = Reduce(shape, kind or source.kind, op, source=source, axes=axes, site=self.site)
        for axis in axes if keepdim else ():
            result = unsqueezed(result, axis, self.site)
        return result


Rule = Callable[..., Any]
Written = TypeVar("Written", bound=Rule)
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Written], Written]:
    def put(function: Written) -> Written:
        for name in names:
            RULES[name] = function
        return function

    return put


def place(value: Any, rank: int) -> int:
    """An axis by its number, negative ones from the end."""
    fixed = value if isinstance(value, int) else value.constant if isinstance(value, Polynomial) else None
    if fixed is None:
        raise Unreadable("an axis is chosen by a size")
    return int(fixed) % rank if rank else 0


def places(value: Any, rank: int) -> tuple[int, ...]:
    if value is None or value == ():
        return tuple(range(rank))
    return tuple(place(part, rank) for part in value) if isinstance(value, tuple) else (place(value, rank),)


# ------------------------------------------------------------------------------------- the same tensor


@rule("alias", "detach", "clone", "lift_fresh", "lift_fresh_copy", "lift", "contiguous", "positive")
def same(asked: Asked, x: Node, **rest: Any) -> Node:
    return x


@rule("_to_copy", "to")
def cast(asked: Asked, x: Node, **rest: Any) -> Node:
    order = ("bool", "whole", "real")
    if x.kind == asked.kind:
        return x
    if order.index(x.kind) < order.index(asked.kind):
        return asked.apply("number", x) if x.kind == "bool" else asked.apply("real", x)
    if asked.kind == "bool":
        return asked.apply("!=", x, number(0))
    raise Unreadable("numbers are truncated to whole ones")


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
    return Full(asked.shape, asked.kind, _as_kind(value, asked.kind), site=asked.site)


def _as_kind(value: Scale, kind: Kind) -> Scale:
    if kind == "bool":
        return Scale(bool(value.factor))
    return Scale(float(value.factor), value.powers) if kind == "real" else value


@rule("ones", "ones_like", "new_ones")
def ones(asked: Asked, *rest: Any, **more: Any) -> Node:
    return Full(asked.shape, asked.kind, _as_kind(Scale(1), asked.kind), site=asked.site)


@rule("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "new_empty")
def zeros(asked: Asked, *rest: Any, **more: Any) -> Node:
    return Full(asked.shape, asked.kind, _as_kind(Scale(0), asked.kind), site=asked.site)


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
        zero = Full(x.shape, x.kind, _as_kind(Scale(0), x.kind), site=asked.site)
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


# ------------------------------------------------------------------------------------- point by point

# The name of an operation here, where it takes the same arguments in the same order.
POINTWISE = {
    **{name: name for name in "exp exp2 expm1 log log1p sqrt rsqrt tanh sigmoid relu silu abs sin cos erf".split()},
    **{name: name for name in "floor ceil round softplus".split()},
    "log_sigmoid_forward": "log_sigmoid",
    "neg": "neg",
    "mul": "*",
    "div": "/",
    "true_divide": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "logical_and": "&&",
    "logical_or": "||",
    "logical_not": "!",
    "maximum": "max",
    "minimum": "min",
}
COMPARISONS = frozenset("== != < <= > >=".split())
BITS = {"bitwise_and": "&&", "bitwise_or": "||", "bitwise_not": "!", "bitwise_xor": "!="}


def _pointwise(op: str) -> Rule:
    def apply(asked: Asked, *arguments: Any, **rest: Any) -> Node:
        if op == "/" and rest.get("rounding_mode") is not None:
            return divide_down(asked, *arguments, **rest)
        if op == "softplus":
            arguments = arguments[:1]
        nodes = [asked.node(argument) for argument in arguments]
        if op in ("&&", "||", "!"):
            nodes = [
                asked.apply("!=", node, number(0), kind="bool", shape=node.shape) if node.kind != "bool" else node
                for node in nodes
            ]
        elif op not in COMPARISONS or len({node.kind for node in nodes}) > 1:
            nodes = [asked.apply("number", n, kind="whole", shape=n.shape) if n.kind == "bool" else n for n in nodes]
        found = asked.apply(op, *nodes)
        return _softmax_in(found) or found

    return apply


def _softmax_in(node: Node) -> Node | None:
    """The softmax that exponentials over their sum are."""
    if not (isinstance(node, Map) and node.op == "/"):
        return None
    above, total = node.arguments
    while isinstance(total, View):
        total = total.source
    if not (isinstance(above, Map) and above.op == "exp" and isinstance(total, Reduce) and total.op == "sum"):
        return None
    if total.source is not above or len(total.axes) != 1:
        return None
    return Normalize(above.shape, "real", "softmax", source=above.arguments[0], axis=total.axes[0], site=node.site)


RULES.update({name: _pointwise(op) for name, op in POINTWISE.items()})


def _bitwise(op: str) -> Rule:
    def apply(asked: Asked, *arguments: Any) -> Node:
        if any(asked.node(argument).kind != "bool" for argument in arguments):
            raise Unreadable("bits of whole numbers are combined")
        return asked.apply(op, *arguments)

    return apply


RULES.update({name: _bitwise(op) for name, op in BITS.items()})
RULES.update({f"__{name}__": RULES[f"bitwise_{name}"] for name in ("and", "or", "xor")})


@rule("add")
def add(asked: Asked, x: Any, y: Any, alpha: Any = ONCE, **rest: Any) -> Node:
    return _sum(asked, "+", x, y, alpha)


@rule("sub", "subtract")
def subtract(asked: Asked, x: Any, y: Any, alpha: Any = ONCE, **rest: Any) -> Node:
    return _sum(asked, "-", x, y, alpha)


@rule("rsub")
def subtract_from(asked: Asked, x: Any, y: Any, alpha: Any = ONCE) -> Node:
    return _sum(asked, "-", y, x, alpha)


def _sum(asked: Asked, op: str, x: Any, y: Any, alpha: Any) -> Node:
    if asked.kind == "bool":
        return asked.apply("||", x, y)
    nodes = [asked.node(part) for part in (x, y)]
    nodes = [asked.apply("number", n, kind="whole", shape=n.shape) if n.kind == "bool" else n for n in nodes]
    if not (isinstance(alpha, Polynomial) and alpha.constant == 1):
        nodes[1] = asked.apply("*", nodes[1], alpha, shape=nodes[1].shape)
    return asked.apply(op, *nodes)


@rule("floor_divide")
def divide_down(asked: Asked, x: Any, y: Any, **rest: Any) -> Node:
    if asked.kind != "whole":
        raise Unreadable("real numbers are divided and rounded")
    return asked.apply("//", x, y)


@rule("remainder", "fmod")
def remainder(asked: Asked, x: Any, y: Any) -> Node:
    if asked.kind != "whole":
        raise Unreadable("the remainder of real numbers is taken")
    return asked.apply("%", x, y)


@rule("pow")
def power(asked: Asked, x: Any, y: Any) -> Node:
    if isinstance(y, Scale) and y.factor == 0.5 and not y.powers:
        return asked.apply("sqrt", x)
    return asked.apply("**", x, y)


@rule("square")
def square(asked: Asked, x: Node) -> Node:
    return asked.apply("**", x, number(2))


@rule("reciprocal")
def reciprocal(asked: Asked, x: Node) -> Node:
    return asked.apply("/", Scale(1.0), x)


@rule("gelu")
def gelu(asked: Asked, x: Node, approximate: str = "none") -> Node:
    if approximate == "none":
        return asked.apply("gelu", x)
    cube = asked.apply("*", asked.apply("**", x, number(3)), Scale(0.044715))
    inner = asked.apply("*", asked.apply("+", x, cube), Scale(math.sqrt(2 / math.pi)))
    return asked.apply("*", asked.apply("*", x, Scale(0.5)), asked.apply("+", asked.apply("tanh", inner), Scale(1.0)))


@rule("elu")
def elu(asked: Asked, x: Node, alpha: Any = ALL, *rest: Any) -> Node:
    below = asked.apply("*", asked.apply("expm1", x), alpha)
    return asked.apply("if", asked.apply(">", x, number(0), kind="bool"), x, below)


@rule("leaky_relu")
def leaky_relu(asked: Asked, x: Node, slope: Any = SOME) -> Node:
    return asked.apply("if", asked.apply(">", x, number(0), kind="bool"), x, asked.apply("*", x, slope))


@rule("clamp", "clip", "clamp_min", "clamp_max", "hardtanh")
def clamp(asked: Asked, x: Node, low: Any = None, high: Any = None) -> Node:
    result = x if low is None else asked.apply("max", x, low)
    return result if high is None else asked.apply("min", result, high)


@rule("clamp_max")
def clamp_max(asked: Asked, x: Node, high: Any) -> Node:
    return asked.apply("min", x, high)


@rule("where")
def where(asked: Asked, condition: Node, x: Any = None, y: Any = None) -> Node:
    if x is None:
        raise Unreadable("the shape of a result depends on values")
    return asked.apply("if", condition, x, y)


@rule("masked_fill")
def masked_fill(asked: Asked, x: Node, mask: Node, value: Any) -> Node:
    return asked.apply("if", mask, value, x)


@rule("isinf")
def isinf(asked: Asked, x: Node) -> Node:
    return asked.apply("isinf", x)


@rule("nan_to_num")
def nan_to_num(asked: Asked, x: Node, *rest: Any, **more: Any) -> Node:
    """Rows of weights with nobody to listen to are 0 already."""
    return x


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


@rule("cumsum")
def cumsum(asked: Asked, x: Node, axis: Any, **rest: Any) -> Node:
    if x.kind == "bool":
        x = asked.apply("number", x, kind="whole", shape=x.shape)
    return Normalize(x.shape, x.kind, "cumsum", source=x, axis=place(axis, len(x.shape)), site=asked.site)


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
