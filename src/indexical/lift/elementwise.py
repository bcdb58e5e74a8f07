"""Functions of tensors, point by point, as nodes of the graph."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..ir.affine import Polynomial, number
from .rules import ALL, ONCE, RULES, SOME, Asked, Rule, Unreadable, rule
from .values import Full, Map, Node, Normalize, Reduce, Scale, View, unsqueezed

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
        if op == "/" and nodes[0].kind == "whole":
            nodes[0] = asked.apply("real", nodes[0], kind="real", shape=nodes[0].shape)
        found = asked.apply(op, *nodes)
        return _softmax_in(found) or found

    return apply


def _softmax_in(node: Node) -> Node | None:
    """The softmax that exponentials over their sum are."""
    if not (isinstance(node, Map) and node.op == "/"):
        return None
    above, total = node.arguments[0], _behind(node.arguments[1])
    score = _exponent(above)
    if score is None or not (isinstance(total, Reduce) and total.op == "sum"):
        return None
    if len(total.axes) != 1:
        return None
    score = _unshifted(score, total.axes)
    if total.source is not above and not _is_masked(total.source, above, score):
        return None
    return Normalize(above.shape, "real", "softmax", source=score, axis=total.axes[0], site=node.site)


def _is_masked(node: Node, value: Node, score: Node) -> bool:
    """Whether a tensor is a value where a score is not masked, and 0 elsewhere."""
    if not (isinstance(node, Map) and node.op == "if" and isinstance(score, Map) and score.op == "if"):
        return False
    (kept, then, otherwise), (condition, _, absent) = node.arguments, score.arguments
    return kept is condition and then is value and _is_full(otherwise, 0) and _is_full(absent, -math.inf)


def _log_softmax_in(node: Node) -> Node | None:
    """The logarithm of a softmax that scores less the logarithm of the sum of their exponentials are."""
    if not (isinstance(node, Map) and node.op == "-"):
        return None
    score, taken = node.arguments[0], _behind(node.arguments[1])
    total = _behind(taken.arguments[0]) if isinstance(taken, Map) and taken.op == "log" else None
    if not (isinstance(total, Reduce) and total.op == "sum" and len(total.axes) == 1):
        return None
    if not isinstance(total.source, Map) or total.source.op != "exp" or total.source.arguments[0] is not score:
        return None
    source = _unshifted(score, total.axes)
    return Normalize(node.shape, "real", "log_softmax", source=source, axis=total.axes[0], site=node.site)


def _unshifted(score: Node, axes: tuple[int, ...]) -> Node:
    """Scores from which their maximum is taken, without that: a normaliser does not see what is the same for all."""
    if isinstance(score, Map) and score.op == "-":
        found = _behind(score.arguments[1])
        if isinstance(found, Reduce) and found.op == "max" and found.axes == axes:
            return score.arguments[0] if found.source is score.arguments[0] else score
    return score


def _behind(node: Node) -> Node:
    while isinstance(node, View):
        node = node.source
    return node


def _exponent(node: Node) -> Node | None:
    """The score of an exponential; where it is 0 under a mask, the score is masked."""
    if not isinstance(node, Map):
        return None
    if node.op == "exp":
        return node.arguments[0]
    absent = Full(node.shape, "real", Scale(-math.inf), site=node.site)
    if node.op == "if":
        condition, then, otherwise = node.arguments
        if _is_full(otherwise, 0) and (score := _exponent(then)) is not None:
            return Map(node.shape, "real", "if", (condition, score, absent), site=node.site)
        if _is_full(then, 0) and (score := _exponent(otherwise)) is not None:
            return Map(node.shape, "real", "if", (condition, absent, score), site=node.site)
    if node.op == "*":
        for factor, mask in (node.arguments, node.arguments[::-1]):
            if (score := _exponent(factor)) is not None and (kept := _kept_by(mask)) is not None:
                return Map(node.shape, "real", "if", (kept, score, absent), site=node.site)
    return None


def _kept_by(mask: Node) -> Node | None:
    """The condition under which a mask of ones and zeros is 1."""
    if isinstance(mask, View):
        kept = _kept_by(mask.source)
        return None if kept is None else replace(mask, source=kept, kind="bool")
    if isinstance(mask, Map) and mask.op in ("number", "real") and len(mask.arguments) == 1:
        return mask.arguments[0] if mask.arguments[0].kind == "bool" else _kept_by(mask.arguments[0])
    if isinstance(mask, Map) and mask.op == "if":
        condition, then, otherwise = mask.arguments
        return condition if _is_full(then, 1) and _is_full(otherwise, 0) else None
    return None


def _is_full(node: Node, value: float) -> bool:
    node = _behind(node)
    return isinstance(node, Full) and not node.value.powers and node.value.factor == value


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
    found = asked.apply(op, *nodes)
    return _log_softmax_in(found) or found


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
    found = asked.apply("if", condition, x, y)
    weights = found.arguments[1] if isinstance(found, Map) else found
    if isinstance(weights, Normalize) and weights.op == "softmax" and _is_masked(found, weights, weights.source):
        return weights  # Its masked points are 0 already.
    return found


@rule("masked_fill")
def masked_fill(asked: Asked, x: Node, mask: Node, value: Any) -> Node:
    return asked.apply("if", mask, value, x)


@rule("index_put")
def index_put(asked: Asked, x: Node, places: tuple[Node | None, ...], value: Any, accumulate: Any = False) -> Node:
    if len(places) != 1 or places[0] is None or places[0].kind != "bool" or accumulate:
        raise Unreadable("elements are set at places that data say")
    mask = asked.node(places[0])
    if value.shape != ():
        raise Unreadable("elements are set to values in the order in which a mask lets them through")
    for _ in range(len(x.shape) - len(mask.shape)):
        mask = unsqueezed(mask, len(mask.shape), asked.site)
    return asked.apply("if", mask, value, x)


@rule("isinf")
def isinf(asked: Asked, x: Node) -> Node:
    return asked.apply("isinf", x)


@rule("nan_to_num")
def nan_to_num(asked: Asked, x: Node, *rest: Any, **more: Any) -> Node:
    """Rows of weights with nobody to listen to are 0 already."""
    return x
