"""The usual mistakes in a definition: each is the definition, changed in one place, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

from ...ir import build
from ...ir import nodes as ir
from ...ir.functions import FUNCTIONS
from ...ir.text import shown
from ...ir.walk import children, rebuild
from ...records import dataclass

# In bits: how unusual a mistake is, before any figure is looked at.
FREQUENT, USUAL, UNUSUAL, RARE = 2, 4, 6, 8
# The same for what is rounded on the way, where the figures are off by no more than that.
ROUNDED = 3


@dataclass(frozen=True, slots=True)
class Mistake:
    """A definition with a mistake in it. `words` go on after "holds if"."""

    kind: str
    words: str
    cost: int
    let: ir.Let
    rounds: bool = False


@dataclass(frozen=True, slots=True)
class Variant:
    """An expression that may have been taken for another."""

    kind: str
    words: str
    cost: int
    expr: ir.Expr


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an expression: in which definition, with which ranges around it, among tensors of these shapes."""

    let: ir.Let
    ranges: tuple[ir.Range, ...]
    shapes: Mapping[str, tuple[int, ...]]
    kinds: Mapping[str, str]


def mistakes(let: ir.Let, shapes: Mapping[str, tuple[int, ...]], kinds: Mapping[str, str]) -> Iterator[Mistake]:
    """Every usual mistake in a definition, one at a time."""
    for number, clause in enumerate(let.clauses):
        place = Place(let, clause.ranges, shapes, kinds)
        for variant in _changed(clause.body, place):
            yield _mistake(let, number, replace(clause, body=variant.expr), variant)
        if clause.guard is not None:
            yield _mistake(
                let,
                number,
                replace(clause, guard=None),
                Variant("mask", f"the mask of `{let.name}` is left out", FREQUENT, clause.guard),
            )
            for variant in _other_guards(clause.guard, place):
                yield _mistake(let, number, replace(clause, guard=variant.expr), variant)


def rounded(let: ir.Let, places: int) -> Mistake:
    """A definition whose values are rounded to so many places before they are used."""
    clauses = tuple(replace(clause, body=_to_places(clause.body, places)) for clause in let.clauses)
    words = f" `{let.name}` is rounded to {_places(places)} before it is used"
    return Mistake("rounded early", words, ROUNDED, replace(let, clauses=clauses), rounds=True)


def rounded_inside(let: ir.Let, places: int) -> Iterator[Mistake]:
    """A definition in which terms, exponentials or roots are rounded to so many places before they are combined."""
    for number, clause in enumerate(let.clauses):
        rounding = partial(_roundings, ranges=clause.ranges, places=places)
        for variant in _everywhere(clause.body, rounding):
            yield replace(_mistake(let, number, replace(clause, body=variant.expr), variant), rounds=True)


def _mistake(let: ir.Let, number: int, clause: ir.Clause, variant: Variant) -> Mistake:
    clauses = (*let.clauses[:number], clause, *let.clauses[number + 1 :])
    inside = "" if let.hidden or f"`{let.name}`" in variant.words else f", in `{let.name}`,"
    words = f"{inside} {variant.words}"
    return Mistake(variant.kind, words, variant.cost, replace(let, clauses=clauses))


# ------------------------------------------------------------------- one place


def _changed(expr: ir.Expr, place: Place) -> Iterator[Variant]:
    return _everywhere(expr, lambda part: _variants(part, place))


def _everywhere(expr: ir.Expr, variants: Callable[[ir.Expr], Iterator[Variant]]) -> Iterator[Variant]:
    """The expression with one part replaced. What is an index, a bound or a guard is left as it is."""
    yield from variants(expr)
    for child in _values_in(expr):
        for variant in _everywhere(child, variants):
            yield replace(variant, expr=_replaced(expr, child, variant.expr))


def _values_in(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    match expr:
        case ir.Reduce(_, _, body) | ir.Normalize(_, _, body):
            return (body,)
        case ir.Select(_, then, otherwise):
            return (then, otherwise)
        case ir.Map():
            return children(expr)
        case _:
            return ()


def _replaced(expr: ir.Expr, child: ir.Expr, new: ir.Expr) -> ir.Expr:
    return rebuild(expr, lambda part: new if part is child else part)


def _variants(expr: ir.Expr, place: Place) -> Iterator[Variant]:
    match expr:
        case ir.Map("/" | "*" | "+" | "-", (left, right)) if expr.type.kind == "real":
            yield from _of_two(expr, left, right)
        case ir.Map(op, (inside,)) if expr.type.kind == "real" and inside.type.kind == "real":
            yield from _of_one(expr, op, inside)
        case ir.Map("**", (base, _)) if expr.type.kind == "real":
            yield Variant("left out", f"the power in `{_said(expr)}` is left out", RARE, base)
        case ir.Normalize(op="softmax" | "log_softmax"):
            yield from _of_softmax(expr, place)
        case ir.Reduce():
            yield from _of_reduction(expr, place)
        case ir.Read():
            yield from _of_read(expr, place)
        case ir.Coord(coordinate):
            one = build.whole(1, expr.span)
            words = f"`{coordinate}` is counted from 1, not from 0"
            yield Variant("position", words, FREQUENT, build.apply("+", (expr, one), "whole", expr.span))


def _said(expr: ir.Expr) -> str:
    """An expression as its author wrote it, where that is short."""
    text = " ".join(expr.span.text.split())
    return text if 0 < len(text) <= 48 else shown(expr)


def _is_scale(expr: ir.Expr) -> bool:
    """Whether a number is the same at every point."""
    return not expr.type.coordinates


def _of_two(expr: ir.Map, left: ir.Expr, right: ir.Expr) -> Iterator[Variant]:
    op, span = expr.op, expr.span
    if op in "*/" and _is_scale(right):
        yield from _of_scale(expr, left, right)
    elif op == "*" and _is_scale(left):
        yield from _of_scale(expr, right, left)
    elif op == "/":
        yield Variant("left out", f"the division by `{_said(right)}` is left out", RARE, left)
    elif op == "*":
        yield Variant("left out", f"the factor `{_said(right)}` is left out", RARE, left)
        yield Variant("left out", f"the factor `{_said(left)}` is left out", RARE, right)
    else:
        other = "-" if op == "+" else "+"
        word = {"+": "added", "-": "subtracted"}
        turned = build.apply(other, (left, right), "real", span)
        yield Variant("left out", f"`{_said(right)}` is not {word[op]}", UNUSUAL, left)
        yield Variant("sign", f"`{_said(right)}` is {word[other]}, not {word[op]}", UNUSUAL, turned)
        if op == "+":
            yield Variant("left out", f"`{_said(left)}` is not added", UNUSUAL, right)
        else:
            swapped = build.apply(op, (right, left), "real", span)
            yield Variant("sign", f"`{_said(left)}` is subtracted from `{_said(right)}`", UNUSUAL, swapped)


def _of_scale(expr: ir.Map, value: ir.Expr, scale: ir.Expr) -> Iterator[Variant]:
    """A scale that is left out, taken twice, turned over, or without its root."""
    op, span = expr.op, expr.span
    word, other = ("divided", "multiplied") if op == "/" else ("multiplied", "divided")
    text = _said(scale)

    def applied(op: str, value: ir.Expr, scale: ir.Expr) -> ir.Expr:
        return build.apply(op, (value, scale), "real", span)

    yield Variant("scale", f"the scale is left out: it is not {word} by `{text}`", FREQUENT, value)
    match scale:
        case ir.Map("sqrt", (inside,)):
            yield Variant(
                "scale", f"it is {word} by `{_said(inside)}`, without the root", USUAL, applied(op, value, inside)
            )
        case ir.Map("rsqrt", (inside,)):
            yield Variant(
                "scale", f"it is divided by `{_said(inside)}`, without the root", USUAL, applied("/", value, inside)
            )
        case _:
            root = build.apply("sqrt", (_real(scale),), "real", span)
            yield Variant("scale", f"it is {word} by the root of `{text}`", UNUSUAL, applied(op, value, root))
    yield Variant(
        "scale", f"the scale is taken twice: it is {word} by `{text}` two times", USUAL, applied(op, expr, scale)
    )
    yield Variant(
        "scale", f"it is {other} by `{text}`, not {word}", UNUSUAL, applied("*" if op == "/" else "/", value, scale)
    )


def _real(expr: ir.Expr) -> ir.Expr:
    return expr if expr.type.kind == "real" else build.apply("as f64", (expr,), "real", expr.span)


def _of_one(expr: ir.Map, op: str, inside: ir.Expr) -> Iterator[Variant]:
    if op == "neg":
        yield Variant("sign", f"the sign of `{_said(expr)}` is left out", UNUSUAL, inside)
    elif op in FUNCTIONS:
        yield Variant("left out", f"`{op}` is left out of `{_said(expr)}`", UNUSUAL, inside)
    if op == "log":
        for base, name in ((2, "2"), (10, "10")):
            below = build.apply("log", (build.real(Fraction(base), expr.span),), "real", expr.span)
            changed = build.apply("/", (expr, below), "real", expr.span)
            yield Variant("base", f"the logarithm is taken to base {name}, not e", FREQUENT, changed)


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
            "left out", "the values are divided by their sum, without `exp`", UNUSUAL, _shares(expr, expr.body, own)
        )
        doubled = build.apply("exp2", (_real(expr.body),), "real", expr.span)
        yield Variant("base", "the powers are taken of 2, not of e", UNUSUAL, _shares(expr, doubled, own))
    if expr.guard is None:
        return
    open_ended = build.normalize(expr.op, expr.coordinate, expr.body, None, "real", expr.span)
    zero = build.real(Fraction(0), expr.span)
    yield Variant("mask", f"the mask `{_said(expr.guard)}` is left out", FREQUENT, open_ended)
    for guard in _other_guards(expr.guard, place):
        yield replace(guard, expr=replace(expr, guard=guard.expr))
    if expr.op == "softmax":
        after = build.select(expr.guard, open_ended, zero, expr.span)
        yield Variant("mask", "the mask is applied after softmax, and the rows are not normalised again", USUAL, after)
        zeroed = build.select(expr.guard, _real(expr.body), zero, expr.span)
        counted = build.normalize("softmax", expr.coordinate, zeroed, None, "real", expr.span)
        yield Variant("mask", "masked scores are taken as 0, and are counted by softmax", USUAL, counted)
        hidden = build.select(expr.guard, counted, zero, expr.span)
        yield Variant("mask", "masked scores are taken as 0 in the sum of softmax", USUAL, hidden)


def _shares(expr: ir.Normalize, parts: ir.Expr, own: ir.Range) -> ir.Expr:
    """Each part by the sum of all, where the guard holds."""
    total = build.reduce("sum", (own,), parts, expr.guard, "real", expr.span)
    share = build.apply("/", (_real(parts), total), "real", expr.span)
    return (
        share if expr.guard is None else build.select(expr.guard, share, build.real(Fraction(0), expr.span), expr.span)
    )


_TURNED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}
_STRICTER = {"<=": "<", ">=": ">", "<": "<=", ">": ">="}


def _other_guards(guard: ir.Expr, place: Place) -> Iterator[Variant]:
    """A mask that is turned round, or off by one."""
    match guard:
        case ir.Map(op, (left, right)) if op in _TURNED:
            turned = build.apply(_TURNED[op], (left, right), "bool", guard.span)
            stricter = build.apply(_STRICTER[op], (left, right), "bool", guard.span)
            step = "+" if op in ("<=", ">") else "-"
            moved = build.apply(step, (right, build.whole(1, guard.span)), right.type.kind, guard.span)
            farther = build.apply(op, (left, moved), "bool", guard.span)
            yield Variant("mask", f"the mask is reversed: `{shown(turned)}`, not `{_said(guard)}`", USUAL, turned)
            yield Variant("mask", f"the mask is off by one: `{shown(stricter)}`, not `{_said(guard)}`", USUAL, stricter)
            if left.type.kind == right.type.kind == "whole":
                yield Variant(
                    "mask", f"the mask is off by one: `{shown(farther)}`, not `{_said(guard)}`", USUAL, farther
                )
        case ir.Map("&&", (left, right)):
            for one, other in ((left, right), (right, left)):
                yield Variant("mask", f"the mask `{_said(one)}` is left out", USUAL, other)
                for variant in _other_guards(one, place):
                    yield replace(variant, expr=build.apply("&&", (variant.expr, other), "bool", guard.span))
        case _:
            opposite = build.apply("!", (guard,), "bool", guard.span)
            yield Variant("mask", f"the mask `{_said(guard)}` is reversed", USUAL, opposite)


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
        yield Variant("reduction", f"the mean is divided by one less: `{shown(below)}`", FREQUENT, changed)
    if expr.guard is not None:
        yield Variant("mask", f"the mask `{_said(expr.guard)}` is left out", USUAL, replace(expr, guard=None))
        for guard in _other_guards(expr.guard, place):
            yield replace(guard, expr=replace(expr, guard=guard.expr))
    is_product = isinstance(expr.body, ir.Map) and expr.body.op == "*"
    if expr.op == "sum" and is_product and counted and expr.type.kind == "real":
        root = build.apply("sqrt", (_real(_count(expr)),), "real", expr.span)
        scaled = build.apply("/", (expr, root), "real", expr.span)
        yield Variant("scale", f"it is divided by `sqrt({shown(_count(expr))})`", USUAL, scaled)


def _count(expr: ir.Reduce) -> ir.Expr:
    """How many points a reduction runs over."""
    result: ir.Expr | None = None
    for range in expr.ranges:
        length = range.upper if range.from_zero else build.apply("-", (range.upper, range.lower), "whole", range.span)
        result = length if result is None else build.apply("*", (result, length), "whole", range.span)
    assert result is not None
    return result


def _of_read(expr: ir.Read, place: Place) -> Iterator[Variant]:
    """A tensor that is transposed, or taken for another of its shape."""
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
                yield Variant("position", f"`{shown(expr)}` is read at the {word} `{index.coordinate}`", RARE, changed)
    for other, found in place.shapes.items():
        alike = found == shape != () and place.kinds[other] == place.kinds[expr.tensor]
        if alike and other != expr.tensor:
            words = f"`{other}` is read in place of `{expr.tensor}`"
            yield Variant("other", words, RARE, replace(expr, tensor=other))


# ------------------------------------------------------------ rounding on the way


def _roundings(expr: ir.Expr, ranges: tuple[ir.Range, ...], places: int) -> Iterator[Variant]:
    """Terms of a sum, exponentials of a softmax, constants: each rounded before they are used."""
    match expr:
        case ir.Reduce(op="sum") if expr.type.kind == "real":
            body = _to_places(expr.body, places)
            yield Variant(
                "terms", f"its terms are added as rounded to {_places(places)}", ROUNDED, replace(expr, body=body)
            )
        case ir.Normalize(op="softmax"):
            own = next((range for range in ranges if range.coordinate == expr.coordinate), None)
            if own is not None:
                parts = _to_places(build.apply("exp", (_real(expr.body),), "real", expr.span), places)
                words = f"the exponentials are rounded to {_places(places)} before they are divided"
                yield Variant("terms", words, ROUNDED, _shares(expr, parts, own))
                base = build.real(round(Fraction("2.718281828459045"), places), expr.span)
                raised = build.apply("**", (base, _real(expr.body)), "real", expr.span)
                yield Variant("constant", f"`e` is taken as {float(base.value)}", ROUNDED, _shares(expr, raised, own))
                body = _to_places(_real(expr.body), places)
                words = f"`{_said(expr.body)}` is rounded to {_places(places)} before softmax"
                yield Variant("rounded early", words, ROUNDED, replace(expr, body=body))
        case ir.Map(op) if _is_scale(expr) and (op == "pi" or (op in FUNCTIONS and not FUNCTIONS[op].exact)):
            words = f"`{_said(expr)}` is rounded to {_places(places)}"
            yield Variant("constant", words, ROUNDED, _to_places(expr, places))


def _to_places(expr: ir.Expr, places: int) -> ir.Expr:
    """An expression, rounded to so many places."""
    span = expr.span
    power = build.real(Fraction(10) ** places, span)
    scaled = build.apply("*", (_real(expr), power), "real", span)
    return build.apply("/", (build.apply("round", (scaled,), "real", span), power), "real", span)


def _places(places: int) -> str:
    return "a whole number" if places == 0 else "1 place" if places == 1 else f"{places} places"
