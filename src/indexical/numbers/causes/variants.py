"""The usual mistakes in one operation: what it may have been taken for, and what is said of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from ...ir import build
from ...ir import nodes as ir
from ...ir.functions import FUNCTIONS
from ...ir.text import shown
from ...ir.types import Coordinate
from ...records import dataclass, replace
from ...source import Span

# In bits: how unusual a mistake is, before any figure is looked at.
FREQUENT, USUAL, UNUSUAL, RARE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Variant:
    """An expression that may have been taken for another. Those with one `rule` are one mistake, made in several
    places, and so are those of one `span`: a function that is called several times."""

    kind: str
    words: str
    prior: float
    expr: ir.Expr
    rule: str = ""
    span: Span | None = None

    @property
    def keys(self) -> tuple[object, ...]:
        """What makes it the same mistake as another."""
        text = (self.words, self.span)
        return (self.rule, text) if self.rule else (text,)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an expression: with which ranges around it, among tensors of these shapes and kinds, and where the
    text has coordinates begin that do not begin at 0."""

    ranges: tuple[ir.Range, ...]
    shapes: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, str]
    shifted: frozenset[Coordinate] = frozenset()


def variants(expr: ir.Expr, place: Place) -> Iterator[Variant]:
    """Every usual mistake in an operation, one at a time."""
    match expr:
        case ir.Map("/" | "*" | "+" | "-", (left, right)) if expr.type.kind in ("real", "whole"):
            yield from _of_two(expr, left, right)
        case ir.Map(op, (inside,)) if expr.type.kind == "real" and inside.type.kind == "real":
            yield from _of_one(expr, op, inside)
        case ir.Map("**", (base, exponent)) if expr.type.kind in ("real", "whole"):
            yield from _of_power(expr, base, exponent)
        case ir.Map(op, (left, right)) if op in FUNCTIONS and isinstance(right, ir.Const) and expr.type.kind == "real":
            # A bound that a number is held to.
            yield Variant("left out", f"`{op}` is left out of `{said(expr)}`", UNUSUAL, left, f"`{op}` is left out")
        case ir.Normalize(op="softmax" | "log_softmax"):
            yield from _of_softmax(expr, place)
        case ir.Reduce():
            yield from _of_reduction(expr, place)
        case ir.Read():
            yield from _of_read(expr, place)
        case ir.Coord(coordinate):
            further = build.apply("+", (expr, build.whole(1, expr.span)), "whole", expr.span)
            words = f"`{coordinate}` is counted from 1, not from 0"
            words = f"`{coordinate}` is counted one further" if coordinate in place.shifted else words
            yield Variant("position", words, FREQUENT, further, words)


def said(expr: ir.Expr) -> str:
    """An expression as its author wrote it, where that is short."""
    text = " ".join(expr.span.text.split())
    return text if 0 < len(text) <= 48 else shown(expr)


def is_scale(expr: ir.Expr) -> bool:
    """Whether a number is the same at every point."""
    return not expr.type.coordinates


def as_real(expr: ir.Expr) -> ir.Expr:
    return expr if expr.type.kind == "real" else build.apply("as f64", (expr,), "real", expr.span)


# ------------------------------------------------------------------- arithmetic


def _of_two(expr: ir.Map, left: ir.Expr, right: ir.Expr) -> Iterator[Variant]:
    op, kind, span = expr.op, expr.type.kind, expr.span
    if kind == "whole" and span in (left.span, right.span):
        # A coordinate that does not begin at 0 brings its own terms along.
        yield from _of_shifted(expr, left, right)
    elif op == "*" and kind == "real" and is_scale(left) and (not is_scale(right) or isinstance(left, ir.Const)):
        yield from _of_scale(expr, right, left)
    elif op in "*/" and kind == "real" and is_scale(right):
        yield from _of_scale(expr, left, right)
        if op == "*" and is_scale(left):
            yield Variant("left out", f"the factor `{said(left)}` is left out", UNUSUAL, as_real(right))
    elif op == "/":
        yield Variant("left out", f"the division by `{said(right)}` is left out", RARE, left)
    elif op == "*":
        prior = USUAL if kind == "whole" else RARE
        for factor, rest in ((right, left), (left, right)):
            words = f"the factor `{said(factor)}` is left out"
            yield Variant("left out", words, prior, rest, words if isinstance(factor, ir.Const) else "")
        if kind == "whole" and isinstance(left, ir.Const):
            twice = build.apply("*", (left, expr), kind, span)
            yield Variant("scale", f"the factor `{said(left)}` is taken twice", RARE, twice)
    else:
        other = "-" if op == "+" else "+"
        word = {"+": "added", "-": "subtracted"}
        turned = build.apply(other, (left, right), kind, span)
        yield Variant("left out", f"`{said(right)}` is not {word[op]}", UNUSUAL, left)
        yield Variant("sign", f"`{said(right)}` is {word[other]}, not {word[op]}", UNUSUAL, turned)
        if op == "+":
            yield Variant("left out", f"`{said(left)}` is not added", UNUSUAL, right)
        else:
            swapped = build.apply(op, (right, left), kind, span)
            yield Variant("sign", f"`{said(left)}` is subtracted from `{said(right)}`", UNUSUAL, swapped)
            prior = USUAL if build.is_number(left, 1) else RARE
            yield Variant("left out", f"`{said(right)}` is taken for `{said(expr)}`", prior, right)
    if op == "/" and isinstance(left, ir.Map) and left.op in "+-" and len(left.arguments) == 2:
        first, second = left.arguments
        part = build.apply("/", (second, right), "real", span)
        last = build.apply(left.op, (first, part), "real", span)
        yield Variant("left out", f"only `{said(second)}` is divided by `{said(right)}`", UNUSUAL, last)
    if op == "/" and kind == "real" and isinstance(left, ir.Coord):
        doubled = build.apply("*", (build.whole(2, span), left), "whole", span)
        words = f"`{said(left)}` is doubled"
        yield Variant("scale", words, UNUSUAL, build.apply("/", (doubled, right), "real", span), words)


def _of_shifted(expr: ir.Map, left: ir.Expr, right: ir.Expr) -> Iterator[Variant]:
    """A factor of a coordinate that is counted from elsewhere: `2 * i` is then `2 * i + 2`."""
    match left, right:
        case ir.Map("*", (ir.Const(int(factor)), index) | (index, ir.Const(int(factor)))), ir.Const(int(more)):
            if factor > 1 and more % factor == 0:
                shift = build.whole(more // factor, expr.span)
                words = f"the factor `{factor}` is left out of `{said(expr)}`"
                yield Variant("left out", words, USUAL, build.apply(expr.op, (index, shift), "whole", expr.span))


def _of_scale(expr: ir.Map, value: ir.Expr, scale: ir.Expr) -> Iterator[Variant]:
    """A scale that is left out, taken twice, turned over, without its root, or by one less."""
    op, span = expr.op, expr.span
    word, other = ("divided", "multiplied") if op == "/" else ("multiplied", "divided")
    text = said(scale)
    if op == "/" and isinstance(scale, ir.Map) and scale.op == "log" and isinstance(scale.arguments[0], ir.Const):
        yield from _of_base(expr, value, scale.arguments[0])

    def applied(op: str, value: ir.Expr, scale: ir.Expr) -> ir.Expr:
        return build.apply(op, (value, scale), "real", span)

    yield Variant("scale", f"the scale is left out: it is not {word} by `{text}`", FREQUENT, as_real(value))
    match scale:
        case ir.Map("sqrt", (inside,)):
            yield Variant(
                "scale", f"it is {word} by `{said(inside)}`, without the root", USUAL, applied(op, value, inside)
            )
        case ir.Map("rsqrt", (inside,)):
            yield Variant(
                "scale", f"it is divided by `{said(inside)}`, without the root", USUAL, applied("/", value, inside)
            )
        case _:
            root = build.apply("sqrt", (as_real(scale),), "real", span)
            yield Variant("scale", f"it is {word} by the root of `{text}`", UNUSUAL, applied(op, value, root))
    yield Variant(
        "scale", f"the scale is taken twice: it is {word} by `{text}` two times", USUAL, applied(op, expr, scale)
    )
    yield Variant(
        "scale", f"it is {other} by `{text}`, not {word}", UNUSUAL, applied("*" if op == "/" else "/", value, scale)
    )
    if op == "/":
        yield from _of_count(value, scale, applied)


def _of_base(expr: ir.Map, value: ir.Expr, base: ir.Const) -> Iterator[Variant]:
    """A logarithm to some base, `log(x) / log(2)`, that is taken to another."""
    words = f"the logarithm is taken to base e, not {said(base).removesuffix('.0')}"
    yield Variant("base", words, FREQUENT, as_real(value), words)
    if not build.is_number(base, 10):
        ten = build.apply("log", (build.real(Fraction(10), base.span),), "real", expr.span)
        words = f"the logarithm is taken to base 10, not {said(base).removesuffix('.0')}"
        yield Variant("base", words, FREQUENT, build.apply("/", (value, ten), "real", expr.span), words)


def _of_count(value: ir.Expr, count: ir.Expr, applied: Callable[[str, ir.Expr, ir.Expr], ir.Expr]) -> Iterator[Variant]:
    """A division by a number of points, by one more or less: the variance of a sample, or of a population."""
    match count:
        case ir.Map("-", (whole, one)) if build.is_number(one, 1):
            words = f"it is divided by `{said(whole)}`, not by one less"
            yield Variant("reduction", words, FREQUENT, applied("/", value, whole), "a variance is divided by `n`")
        case ir.Size() | ir.Const(int() | Fraction()) | ir.Read():
            below = build.apply("-", (count, build.whole(1, count.span)), count.type.kind, count.span)
            words = f"it is divided by one less than `{said(count)}`"
            if isinstance(value, ir.Reduce) or said(count).startswith("size("):
                fewer = applied("/", value, below)
                yield Variant("reduction", words, FREQUENT, fewer, "a variance is divided by `n - 1`")


def _of_power(expr: ir.Map, base: ir.Expr, exponent: ir.Expr) -> Iterator[Variant]:
    kind = expr.type.kind
    alone = as_real(base) if kind == "real" else base
    yield Variant("left out", f"the power in `{said(expr)}` is left out", UNUSUAL, alone)
    if build.is_number(exponent, 2):
        doubled = build.apply("*", (build.whole(2, expr.span), base), kind, expr.span)
        yield Variant("scale", f"`{said(base)}` is doubled, not squared", UNUSUAL, doubled)
        cubed = build.apply("**", (base, build.whole(3, expr.span)), kind, expr.span)
        yield Variant("scale", f"`{said(base)}` is raised to 3, not squared", RARE, cubed)
    if kind == "whole":
        return
    if exponent.type.kind == "real" or isinstance(exponent, ir.Map):
        turned = build.apply("neg", (exponent,), exponent.type.kind, expr.span)
        changed = build.apply("**", (base, turned), "real", expr.span)
        yield Variant("sign", f"the exponent of `{said(expr)}` has the other sign", UNUSUAL, changed)


# Functions that are taken for each other, the more usual pairs first.
_USUALLY_CONFUSED = tuple(pair.split() for pair in ("sigmoid tanh", "sin cos"))
_CONFUSED = tuple(pair.split() for pair in ("gelu silu", "relu gelu", "relu silu", "relu tanh", "relu sigmoid"))


def _of_one(expr: ir.Map, op: str, inside: ir.Expr) -> Iterator[Variant]:
    span = expr.span

    def call(name: str, *arguments: ir.Expr) -> ir.Expr:
        return build.apply(name, arguments, "real", span)

    def number(text: str) -> ir.Expr:
        return build.real(Fraction(text), span)

    if op == "neg":
        yield Variant("sign", f"the sign of `{said(expr)}` is left out", UNUSUAL, inside)
    elif op in FUNCTIONS:
        prior = USUAL if op == "sqrt" else UNUSUAL
        yield Variant("left out", f"`{op}` is left out of `{said(expr)}`", prior, inside, f"`{op}` is left out")
    for pairs, prior in ((_USUALLY_CONFUSED, USUAL), (_CONFUSED, UNUSUAL)):
        for one, other in (names for pair in pairs for names in (pair, pair[::-1])):
            if op == one:
                words = f"`{other}` is taken for `{one}`"
                yield Variant("function", words, prior, call(other, inside), words)
    if op == "log":
        for base in (2, 10):
            words = f"the logarithm is taken to base {base}, not e"
            yield Variant("base", words, FREQUENT, call("/", expr, call("log", number(str(base)))), words)
    if op == "gelu":
        cubed = call("*", number("0.044715"), call("**", inside, build.whole(3, span)))
        root = call("sqrt", call("/", number("2"), build.pi(span)))
        bent = call("tanh", call("*", root, call("+", inside, cubed)))
        half = call("*", number("0.5"), call("*", inside, call("+", number("1"), bent)))
        words = "`gelu` is taken in its form with `tanh`, not with `erf`"
        yield Variant("function", words, FREQUENT, half, words)
        words = "`gelu` is taken as `x * sigmoid(1.702 * x)`"
        yield Variant("function", words, USUAL, call("*", inside, call("sigmoid", call("*", number("1.702"), inside))))
    if op in _USUALLY_CONFUSED[1]:
        turn = call("/", call("*", inside, build.pi(span)), number("180"))
        words = "the angle is taken in degrees"
        yield Variant("scale", words, USUAL, call(op, turn), words)


def exchanged(expr: ir.Expr, place: Place) -> Iterator[Variant]:
    """Sine for cosine, and cosine for sine: one mistake where both are there."""
    pair = _USUALLY_CONFUSED[1]
    if isinstance(expr, ir.Map) and expr.op in pair:
        words = "sine and cosine are exchanged"
        other = pair[1 - pair.index(expr.op)]
        yield Variant("function", words, FREQUENT, build.apply(other, expr.arguments, "real", expr.span), words)


# ------------------------------------------------------ softmax, sums and reads


def _of_softmax(expr: ir.Normalize, place: Place) -> Iterator[Variant]:
    for range in place.ranges:
        if range.coordinate != expr.coordinate:
            words = f"softmax is taken over `{range.coordinate}`, not over `{expr.coordinate}`"
            turned = build.normalize(expr.op, range.coordinate, expr.body, expr.guard, "real", expr.span)
            yield Variant("axis", words, FREQUENT, turned)
    own = next((range for range in place.ranges if range.coordinate == expr.coordinate), None)
    if own is not None and expr.op == "softmax":
        yield Variant(
            "left out", "the values are divided by their sum, without `exp`", UNUSUAL, shares(expr, expr.body, own)
        )
        doubled = build.apply("exp2", (as_real(expr.body),), "real", expr.span)
        yield Variant("base", "the powers are taken of 2, not of e", UNUSUAL, shares(expr, doubled, own))
    if expr.guard is None:
        return
    open_ended = build.normalize(expr.op, expr.coordinate, expr.body, None, "real", expr.span)
    zero = build.real(Fraction(0), expr.span)
    yield Variant("mask", f"the mask `{said(expr.guard)}` is left out", FREQUENT, open_ended)
    for guard in other_guards(expr.guard):
        yield replace(guard, expr=replace(expr, guard=guard.expr))
    if expr.op == "softmax":
        after = build.select(expr.guard, open_ended, zero, expr.span)
        yield Variant("mask", "the mask is applied after softmax, and the rows are not normalised again", USUAL, after)
        zeroed = build.select(expr.guard, as_real(expr.body), zero, expr.span)
        counted = build.normalize("softmax", expr.coordinate, zeroed, None, "real", expr.span)
        yield Variant("mask", "masked scores are taken as 0, and are counted by softmax", USUAL, counted)
        hidden = build.select(expr.guard, counted, zero, expr.span)
        yield Variant("mask", "masked scores are taken as 0 in the sum of softmax", USUAL, hidden)


def shares(expr: ir.Normalize, parts: ir.Expr, own: ir.Range) -> ir.Expr:
    """Each part by the sum of all, where the guard holds."""
    total = build.reduce("sum", (own,), parts, expr.guard, "real", expr.span)
    share = build.apply("/", (as_real(parts), total), "real", expr.span)
    return (
        share if expr.guard is None else build.select(expr.guard, share, build.real(Fraction(0), expr.span), expr.span)
    )


_TURNED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}
_STRICTER = {"<=": "<", ">=": ">", "<": "<=", ">": ">="}


def other_guards(guard: ir.Expr) -> Iterator[Variant]:
    """A mask that is turned round, or off by one."""
    match guard:
        case ir.Map(op, (left, right)) if op in _TURNED:
            turned = build.apply(_TURNED[op], (left, right), "bool", guard.span)
            stricter = build.apply(_STRICTER[op], (left, right), "bool", guard.span)
            step = "+" if op in ("<=", ">") else "-"
            moved = build.apply(step, (right, build.whole(1, guard.span)), right.type.kind, guard.span)
            farther = build.apply(op, (left, moved), "bool", guard.span)
            yield Variant("mask", f"the mask is reversed: `{shown(turned)}`, not `{said(guard)}`", USUAL, turned)
            yield Variant("mask", f"the mask is off by one: `{shown(stricter)}`, not `{said(guard)}`", USUAL, stricter)
            if left.type.kind == right.type.kind == "whole":
                yield Variant(
                    "mask", f"the mask is off by one: `{shown(farther)}`, not `{said(guard)}`", USUAL, farther
                )
        case ir.Map("&&", (left, right)):
            for one, other in ((left, right), (right, left)):
                yield Variant("mask", f"the mask `{said(one)}` is left out", USUAL, other)
                for variant in other_guards(one):
                    yield replace(variant, expr=build.apply("&&", (variant.expr, other), "bool", guard.span))
        case _:
            opposite = build.apply("!", (guard,), "bool", guard.span)
            yield Variant("mask", f"the mask `{said(guard)}` is reversed", USUAL, opposite)


def _of_reduction(expr: ir.Reduce, place: Place) -> Iterator[Variant]:
    others = {"sum": "mean", "mean": "sum", "max": "min", "min": "max"}
    if expr.type.kind == "real" and expr.op in others:
        other = replace(expr, op=others[expr.op])
        yield Variant("reduction", f"`{others[expr.op]}` is taken, not `{expr.op}`", USUAL, other)
    counted = all(range.is_counted for range in expr.ranges)
    if expr.op == "mean" and expr.guard is None and counted:
        below = build.apply("-", (_count(expr), build.whole(1, expr.span)), "whole", expr.span)
        total = build.reduce("sum", expr.ranges, expr.body, None, "real", expr.span)
        changed = build.apply("/", (total, below), "real", expr.span)
        words = f"the mean is divided by one less: `{shown(below)}`"
        yield Variant("reduction", words, FREQUENT, changed, "a variance is divided by `n - 1`")
    if expr.guard is not None:
        yield Variant("mask", f"the mask `{said(expr.guard)}` is left out", USUAL, replace(expr, guard=None))
        for guard in other_guards(expr.guard):
            yield replace(guard, expr=replace(expr, guard=guard.expr))
    is_product = isinstance(expr.body, ir.Map) and expr.body.op == "*"
    if expr.op == "sum" and is_product and counted and expr.type.kind == "real":
        root = build.apply("sqrt", (as_real(_count(expr)),), "real", expr.span)
        scaled = build.apply("/", (expr, root), "real", expr.span)
        yield Variant("scale", f"it is divided by `sqrt({shown(_count(expr))})`", USUAL, scaled)
    if expr.op == "sum":
        yield from _of_terms(expr)


def _of_terms(expr: ir.Reduce) -> Iterator[Variant]:
    """A sum that ends a term too early, or begins one too late."""
    one = build.whole(1, expr.span)
    for at, own in enumerate(expr.ranges):
        fewer = replace(own, upper=build.apply("-", (own.upper, one), "whole", own.span))
        later = replace(own, lower=build.apply("+", (own.lower, one), "whole", own.span))
        for which, changed in (("last", fewer), ("first", later)):
            words = f"the {which} term along `{own.coordinate}` is left out of `{said(expr)}`"
            ranges = (*expr.ranges[:at], changed, *expr.ranges[at + 1 :])
            yield Variant("left out", words, UNUSUAL, replace(expr, ranges=ranges))


def _count(expr: ir.Reduce) -> ir.Expr:
    """How many points a reduction runs over."""
    result: ir.Expr | None = None
    for range in expr.ranges:
        length = range.upper if range.from_zero else build.apply("-", (range.upper, range.lower), "whole", range.span)
        result = length if result is None else build.apply("*", (result, length), "whole", range.span)
    assert result is not None
    return result


def _of_read(expr: ir.Read, place: Place) -> Iterator[Variant]:
    """A tensor that is transposed, reversed, or taken for another of its shape."""
    shape = place.shapes.get(expr.tensor, ())
    for first in range(len(shape)):
        for second in range(first + 1, len(shape)):
            indices = list(expr.indices)
            if shape[first] == shape[second] > 1 and indices[first] != indices[second]:
                indices[first], indices[second] = indices[second], indices[first]
                changed = replace(expr, indices=tuple(indices))
                yield Variant("transposed", f"`{shown(expr)}` is read as `{shown(changed)}`", FREQUENT, changed)
    for axis, index in enumerate(expr.indices[: len(shape)]):
        if isinstance(index, ir.Coord) and shape[axis] > 2:
            for step, word in ((1, "next"), (shape[axis] - 1, "previous")):
                moved = build.apply("+", (index, build.whole(step, expr.span)), "whole", expr.span)
                moved = build.apply("%", (moved, build.whole(shape[axis], expr.span)), "whole", expr.span)
                changed = replace(expr, indices=(*expr.indices[:axis], moved, *expr.indices[axis + 1 :]))
                yield Variant("position", f"`{said(expr)}` is read at the {word} `{index.coordinate}`", RARE, changed)
        if isinstance(index, ir.Const) and index.span.text.isdigit():
            yield from _elsewhere(expr, axis, index, shape[axis])
    yield from _flipped(expr, shape, place)
    for other, found in place.shapes.items() if expr.tensor in place.shapes else ():
        alike = found == shape and place.kinds[other] == place.kinds[expr.tensor]
        if alike and other != expr.tensor:
            words = f"`{other}` is read in place of `{expr.tensor}`"
            yield Variant("other", words, RARE, replace(expr, tensor=other), words)


def _elsewhere(expr: ir.Read, axis: int, index: ir.Const, length: int) -> Iterator[Variant]:
    """An element that is read in place of its neighbour."""
    for step in (-1, 1):
        at = int(index.value) + step
        if 0 <= at < length:
            indices = (*expr.indices[:axis], build.whole(at, index.span), *expr.indices[axis + 1 :])
            names = [one.span.text for one in expr.indices]
            names[axis] = str(int(index.span.text) + step)
            words = f"`{expr.tensor}[{', '.join(names)}]` is read, not `{said(expr)}`"
            yield Variant("position", words, RARE, replace(expr, indices=indices))


def _flipped(expr: ir.Read, shape: tuple[int, ...], place: Place) -> Iterator[Variant]:
    """A kernel that is read from its other end, along one of the coordinates that are summed over or along all."""
    around = {range.coordinate for range in place.ranges}
    summed = [
        axis
        for axis, index in enumerate(expr.indices[: len(shape)])
        if isinstance(index, ir.Coord) and index.coordinate not in around and shape[axis] > 1
    ]
    for axes in dict.fromkeys((tuple(summed), *((axis,) for axis in summed))):
        indices = list(expr.indices)
        for axis in axes:
            last = build.whole(shape[axis] - 1, expr.span)
            indices[axis] = build.apply("-", (last, expr.indices[axis]), "whole", expr.span)
        if axes:
            names = " and ".join(f"`{said(expr.indices[axis])}`" for axis in axes)
            words = f"`{expr.tensor}` is flipped: it is read from its end along {names}"
            yield Variant("flipped", words, UNUSUAL, replace(expr, indices=tuple(indices)))
