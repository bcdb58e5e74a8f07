"""Bodies of definitions, before its coordinates have names: a small tree, simplified as it is built."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..ir.affine import Polynomial, number
from ..ir.functions import FUNCTIONS
from ..syntax.vocabulary import NORMALISERS
from .indices import Axis, Looked, atom, atoms_in, bounds, is_natural, split
from .recording import Site
from .values import Kind, Scale


def _site() -> Any:
    return field(default=None, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Num:
    value: Scale
    kind: Kind = "real"
    site: Site | None = _site()


@dataclass(frozen=True, slots=True)
class Whole:
    """The number that an index is."""

    index: Polynomial
    kind: Kind = "whole"
    site: Site | None = _site()


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor at some indices: a leaf, or a definition."""

    tensor: Any
    indices: tuple[Polynomial, ...]
    kind: Kind = "real"
    site: Site | None = _site()


@dataclass(frozen=True, slots=True)
class Op:
    op: str
    arguments: tuple[Expr, ...]
    kind: Kind = "real"
    site: Site | None = _site()


@dataclass(frozen=True, slots=True)
class Over:
    """A reduction or a normaliser, over `axes`, of the points that the guard leaves."""

    op: str
    axes: tuple[Axis, ...]
    body: Expr
    guard: Expr | None = None
    kind: Kind = "real"
    site: Site | None = _site()


Expr: TypeAlias = Num | Whole | Read | Op | Over

TRUE = Num(Scale(True), "bool")
FALSE = Num(Scale(False), "bool")
# A score this far below the others has no weight at all.
ABSENT = -1e4


def parts(expr: Expr) -> Iterator[Expr]:
    """The expression and all that it is made of, those inside indices too."""
    yield expr
    match expr:
        case Op(arguments=arguments):
            for argument in arguments:
                yield from parts(argument)
        case Over(body=body, guard=guard):
            yield from parts(body)
            if guard is not None:
                yield from parts(guard)
        case Read(indices=indices):
            for index in indices:
                yield from _looked(index)
        case Whole(index):
            yield from _looked(index)


def _looked(index: Polynomial) -> Iterator[Expr]:
    for part in atoms_in(index):
        if isinstance(part, Looked):
            yield from parts(part.value)


def indices_in(expr: Expr) -> Iterator[Polynomial]:
    """Every index, and every polynomial that stands as a number."""
    for part in parts(expr):
        match part:
            case Read(indices=indices):
                yield from indices
            case Whole(index):
                yield index


def axes_in(expr: Expr) -> dict[Axis, None]:
    """The coordinates that stand in an expression, bound ones too, in the order of the text."""
    found: dict[Axis, None] = {}
    for part in parts(expr):
        if isinstance(part, Over):
            found.update(dict.fromkeys(part.axes))
    for index in indices_in(expr):
        found.update({part: None for part in atoms_in(index) if isinstance(part, Axis)})
    return found


def bound_in(expr: Expr) -> set[Axis]:
    """The coordinates that reductions of an expression bind."""
    return {axis for part in parts(expr) if isinstance(part, Over) and part.op not in NORMALISERS for axis in part.axes}


# ------------------------------------------------------------------------------------- simplification

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Functions that are powers, so that those of sizes are.
_ROOTS = {"sqrt": 0.5, "rsqrt": -0.5}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def apply(op: str, arguments: tuple[Expr, ...], kind: Kind, site: Site | None) -> Expr:
    """A function of expressions, as simple as it can be said without changing its value."""
    for rule in (_of_numbers, _of_choices, _of_wholes, _neutral, _real_enough):
        found = rule(op, arguments, kind, site)
        if found is not None:
            return found
    return Op(op, arguments, kind, site=site)


def _value(expr: Expr) -> Any:
    """The number that an expression is; None where it is not one that is known."""
    if isinstance(expr, Num) and not expr.value.powers:
        return expr.value.factor
    if isinstance(expr, Whole) and expr.index.constant is not None:
        return expr.index.constant
    return None


def _of_numbers(op: str, arguments: tuple[Expr, ...], kind: Kind, site: Site | None) -> Expr | None:
    if op in ("*", "/", "**") and all(isinstance(argument, Num) for argument in arguments):
        return _scaled(op, arguments, kind, site)
    if op in _ROOTS and isinstance(arguments[0], Num) and arguments[0].value.powers:
        return _scaled("**", (arguments[0], Num(Scale(_ROOTS[op]))), kind, site)
    values = [_value(argument) for argument in arguments]
    if any(value is None for value in values):
        return None
    result: Any
    match op, values:
        case ("number" | "real", [value]):
            result = int(value) if kind == "whole" else float(value)
        case ("!", [value]):
            result = not value
        case ("&&" | "||", [left, right]):
            result = bool(left and right) if op == "&&" else bool(left or right)
        case ("+", [left, right]):
            result = left + right
        case ("-", [left, right]):
            result = left - right
        case ("*", [left, right]):
            result = left * right
        case ("//" | "%", [left, right]) if right > 0 and left >= 0:
            result = left // right if op == "//" else left % right
        case ("isinf", [value]):
            result = math.isinf(value)
        case (_, [left, right]) if op in _COMPARE:
            result = _COMPARE[op](left, right)
        case ("neg", [value]) if not math.isinf(value):
            result = -value
        case (_, _) if op in FUNCTIONS and not any(map(math.isinf, values)):
            result = FUNCTIONS[op].value(*values)
        case _:
            return None
    if isinstance(result, float) and math.isnan(result):
        return None
    return Num(Scale(result), kind, site=site)


def _scaled(op: str, arguments: tuple[Expr, ...], kind: Kind, site: Site | None) -> Expr | None:
    left, right = (argument.value for argument in arguments if isinstance(argument, Num))
    powers = dict(left.powers)
    if op == "**":
        if right.powers or kind != "real" or left.factor <= 0:
            return None
        factor = float(left.factor) ** float(right.factor)
        return Num(Scale(factor, tuple((e, p * float(right.factor)) for e, p in left.powers)), kind, site=site)
    if op == "/" and not right.factor:
        return None
    sign = 1 if op == "*" else -1
    for extent, power in right.powers:
        powers[extent] = powers.get(extent, 0) + sign * power
    factor = left.factor * right.factor if op == "*" else left.factor / right.factor
    if math.isnan(factor):
        return None
    return Num(Scale(factor, tuple((e, p) for e, p in powers.items() if abs(p) > 1e-9)), kind, site=site)


def _of_choices(op: str, arguments: tuple[Expr, ...], kind: Kind, site: Site | None) -> Expr | None:
    """A function of a choice between two numbers is a choice between two numbers."""
    if op == "number":
        return choose(
            arguments[0],
            Num(Scale(1 if kind == "whole" else 1.0), kind),
            Num(Scale(0 if kind == "whole" else 0.0), kind),
            kind,
            site,
        )
    if op == "if":
        return choose(arguments[0], arguments[1], arguments[2], kind, site)
    if op in ("&&", "||", "!"):
        return _logical(op, arguments, site)
    choices = [a for a in arguments if isinstance(a, Op) and a.op == "if"]
    if len(choices) != 1 or op == "*":
        return None
    [choice] = choices
    others = [a for a in arguments if a is not choice]
    condition, then, otherwise = choice.arguments
    if not all(isinstance(a, Num) for a in (then, otherwise, *others)):
        return None

    def at(value: Expr) -> Expr:
        return apply(op, tuple(value if a is choice else a for a in arguments), kind, site)

    return choose(condition, at(then), at(otherwise), kind, site)


def choose(condition: Expr, then: Expr, otherwise: Expr, kind: Kind, site: Site | None) -> Expr:
    if condition == TRUE or then == otherwise:
        return then
    if condition == FALSE:
        return otherwise
    if kind == "bool" and isinstance(then, Num) and isinstance(otherwise, Num):
        return condition if then.value.factor else negated(condition)
    if kind == "bool" and isinstance(otherwise, Num) and not otherwise.value.factor:
        return _logical("&&", (condition, then), site)
    if isinstance(condition, Op) and condition.op == "!":
        return choose(condition.arguments[0], otherwise, then, kind, site)
    if isinstance(then, Num) and not then.value.factor and not isinstance(otherwise, Num):
        return Op("if", (negated(condition), otherwise, then), kind, site=site)
    return Op("if", (condition, then, otherwise), kind, site=site)


def _logical(op: str, arguments: tuple[Expr, ...], site: Site | None) -> Expr:
    if op == "!":
        return negated(arguments[0])
    left, right = arguments
    whole, nothing = (TRUE, FALSE) if op == "&&" else (FALSE, TRUE)
    if nothing in (left, right):
        return nothing
    if left in (whole, right):
        return right
    return left if right == whole else Op(op, (left, right), "bool", site=site)


def negated(condition: Expr) -> Expr:
    match condition:
        case Num(value):
            return FALSE if value.factor else TRUE
        case Op("!", (inner,)):
            return inner
        case Op("&&" | "||" as op, (left, right)):
            return Op("||" if op == "&&" else "&&", (negated(left), negated(right)), "bool", site=condition.site)
        case Op(op, arguments) if op in OPPOSITE and all(argument.kind == "whole" for argument in arguments):
            first, second = (index_of(argument) for argument in arguments)
            if first is None or second is None:
                return Op(OPPOSITE[op], arguments, "bool", site=condition.site)
            return compare(OPPOSITE[op], first, second, condition.site)
    return Op("!", (condition,), "bool", site=condition.site)


def _of_wholes(op: str, arguments: tuple[Expr, ...], kind: Kind, site: Site | None) -> Expr | None:
    """Whole numbers made of indices stay polynomials, so that comparisons of them are relations."""
    indices = [index_of(argument) for argument in arguments]
    if any(index is None for index in indices):
        return None
    found = [index for index in indices if index is not None]
    if kind == "whole":
        match op, found:
            case ("+", [left, right]):
                return Whole(left + right, site=site)
            case ("-", [left, right]):
                return Whole(left - right, site=site)
            case ("*", [left, right]):
                return Whole(left * right, site=site)
            case ("neg", [left]):
                return Whole(-left, site=site)
            case ("//" | "%", [left, right]) if right.constant is None or right.constant > 0:
                ends = bounds(left)
                if ends is not None and is_natural(ends[0]):
                    return Whole(split(left, right)[0 if op == "//" else 1], site=site)
    elif op in _COMPARE:
        return compare(op, found[0], found[1], site)
    return None


def index_of(expr: Expr) -> Polynomial | None:
    match expr:
        case Whole(index):
            return index
        case Num(Scale(factor, ()), "whole"):
            return number(int(factor))
        case Read(kind="whole"):
            return atom(Looked(expr))
    return None


def compare(op: str, left: Polynomial, right: Polynomial, site: Site | None) -> Expr:
    """A comparison of whole numbers, decided where the ranges of its coordinates decide it."""
    gap = right - left
    ends = bounds(gap)
    if ends is not None:
        low, high = ends
        for relation, holds, fails in (
            ("<=", is_natural(low), is_natural(number(-1) - high)),
            ("<", is_natural(low - 1), is_natural(number(0) - high)),
            (">=", is_natural(number(0) - high), is_natural(low - 1)),
            (">", is_natural(number(-1) - high), is_natural(low)),
        ):
            if op == relation and (holds or fails):
                return TRUE if holds else FALSE
    step = gap.terms.get(frozenset(), 0)
    shorter = _without_constant(left), _without_constant(right)
    if (op, step) in (("<", 1), (">", -1)) and all(side.terms for side in shorter):
        op, (left, right) = f"{op}=", shorter
    return Op(op, (Whole(left), Whole(right)), "bool", site=site)


def _without_constant(index: Polynomial) -> Polynomial:
    return index - index.terms.get(frozenset(), 0)


def _real_enough(op: str, arguments: tuple[Expr, ...], kind: Kind, site: Site | None) -> Expr | None:
    """A whole number that meets a real one is real by that."""
    if op not in ("+", "-", "*") or kind != "real":
        return None
    for place in (0, 1):
        one, other = arguments[place], arguments[1 - place]
        if isinstance(one, Op) and one.op == "real" and other.kind == "real" and not _is_conversion(other):
            plain = tuple(one.arguments[0] if argument is one else argument for argument in arguments)
            return apply(op, plain, kind, site)
    return None


def _is_conversion(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.op == "real"


def _neutral(op: str, arguments: tuple[Expr, ...], kind: Kind, site: Site | None) -> Expr | None:
    values = [_value(argument) for argument in arguments]
    match op, values:
        case ("+", [0, _]) | ("*", [1, _]) if not isinstance(values[0], bool):
            return arguments[1]
        case ("+" | "-", [_, 0]) | ("*" | "/" | "**", [_, 1]) if not isinstance(values[1], bool):
            return arguments[0]
        case ("real", _) if arguments[0].kind == "real":
            return arguments[0]
        case ("*", _):
            return _of_product(arguments, kind, site)
    return None


def _of_product(arguments: tuple[Expr, ...], kind: Kind, site: Site | None) -> Expr | None:
    """A product with a choice between a value and 0 is a choice between the product and 0."""
    for choice, other in (arguments, arguments[::-1]):
        if not (isinstance(choice, Op) and choice.op == "if"):
            continue
        condition, then, otherwise = choice.arguments
        values = (_value(then), _value(otherwise))
        if (isinstance(other, Num) and None not in values) or 0 in values:
            zero = Num(Scale(0.0 if kind == "real" else 0), kind)
            sides = [
                zero if value == 0 else apply("*", (side, other), kind, site)
                for side, value in zip((then, otherwise), values, strict=True)
            ]
            return choose(condition, sides[0], sides[1], kind, site)
    return None


# ------------------------------------------------------------------------------------- scales and masks

ONE = Scale(1.0)


def unscaled(expr: Expr) -> tuple[Num, Expr | None]:
    """The number that an expression is multiplied by, and the rest of it; None for the rest if that is all."""
    match expr:
        case Num(_, "real"):
            return expr, None
        case Op("*", (left, right)):
            (first, x), (second, y) = unscaled(left), unscaled(right)
            total = _times(first, second)
            if total is None:
                return Num(ONE), expr
            rest = y if x is None else x if y is None else apply("*", (x, y), expr.kind, expr.site)
            return total, rest
        case Op("/", (left, right)) if isinstance(right, Num) and right.value.factor:
            first, x = unscaled(left)
            found = _scaled("/", (first, replace(right, kind="real")), "real", right.site or expr.site)
            return (found, x) if isinstance(found, Num) else (Num(ONE), expr)
        case Op("neg", (inner,)):
            first, x = unscaled(inner)
            return replace(first, value=Scale(-first.value.factor, first.value.powers)), x
        case Over("sum", body=body):
            first, x = unscaled(body)
            if first.value == ONE or x is None:
                return Num(ONE), expr
            return first, replace(expr, body=x)
    return Num(ONE), expr


def _times(left: Num, right: Num) -> Num | None:
    """The product of two numbers; None where it is not one, as of an infinity and 0."""
    if left.value == ONE:
        return right
    found = _scaled("*", (left, right), "real", left.site if right.value == ONE else right.site)
    return found if isinstance(found, Num) else None


def hoisted(expr: Expr) -> Expr:
    """The expression with the number that it is multiplied by in front of the reduction that it stands in."""
    scale, rest = unscaled(expr)
    if rest is None or scale.value == ONE or math.isinf(scale.value.factor):
        return expr
    return Op("*", (rest, scale), expr.kind, site=scale.site or expr.site)


def unmasked(expr: Expr, limit: float = ABSENT) -> tuple[Expr, list[Expr]]:
    """A score without its masks, and what holds of the points that they leave. A number up to `limit` is a mask."""
    match expr:
        case Op("if", (condition, then, otherwise)):
            if _is_absent(then, limit):
                core, guards = unmasked(otherwise, limit)
                return core, [replace_site(negated(condition), expr.site), *guards]
            if _is_absent(otherwise, limit):
                core, guards = unmasked(then, limit)
                return core, [replace_site(condition, expr.site), *guards]
        case Op("+" | "-" as op, (left, right)):
            mask = right if op == "+" else apply("neg", (right,), right.kind, expr.site)
            for score, bias in ((left, mask), (right, left)) if op == "+" else ((left, mask),):
                if isinstance(bias, Op) and bias.op == "if":
                    condition, then, otherwise = bias.arguments
                    for kept, value, other in ((negated(condition), then, otherwise), (condition, otherwise, then)):
                        if _is_absent(value, limit):
                            core, guards = unmasked(apply("+", (score, other), expr.kind, expr.site), limit)
                            return core, [replace_site(kept, expr.site), *guards]
            (x, one), (y, two) = unmasked(left, limit), unmasked(right, limit)
            if one or (two and op == "+"):
                return apply(op, (x, y if op == "+" else right), expr.kind, expr.site), [
                    *one,
                    *(two if op == "+" else ()),
                ]
        case Op("*" | "/" as op, (left, Num(value) as right)) if value.factor > 0:
            core, guards = unmasked(left, limit)
            if guards:
                return apply(op, (core, right), expr.kind, expr.site), guards
        case Op("*", (Num(value) as left, right)) if value.factor > 0:
            core, guards = unmasked(right, limit)
            if guards:
                return apply("*", (left, core), expr.kind, expr.site), guards
    return expr, []


def replace_site(expr: Expr, site: Site | None) -> Expr:
    return replace(expr, site=site)


def _is_absent(expr: Expr, limit: float) -> bool:
    value = _value(expr)
    return value is not None and not isinstance(value, bool) and value <= limit
