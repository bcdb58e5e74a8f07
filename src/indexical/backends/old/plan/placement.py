"""A definition for an attention: its axes, its guard, its body."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.canonical import text
from ....ir.algebra.normal import ONE, ZERO, Form, form, under
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.predicates import is_normalized
from ....ir.algebra.safety import is_open
from ....ir.algebra.sums import replaced
from ....ir.algebra.writing import name_for, named, written
from ....ir.conditions import fails
from ....ir.context import Trail
from ....ir.types import Coordinate
from ....ir.walk import is_bare, renamed_apart, substitute, walk
from ....plan.steps import Attention, Free, Normaliser, Softmax, Softpick
from ....records import dataclass, replace
from ....source import Span
from .weights import Gathered, has_keys, holds_extreme

Names = Mapping[Coordinate, Coordinate]


@dataclass(frozen=True, slots=True)
class Placement:
    """A new definition for an attention, the attention, and the read that replaces it."""

    let: ir.Let
    attention: Attention
    read: ir.Read


def place_attention(
    algebra: Algebra, found: Gathered, name: str, let: ir.Let, clause: ir.Clause, trail: Trail, span: Span
) -> Placement | str:
    """A definition of this name for an attention that was found in a clause of `let`; or why there is none."""
    ranges = {step.coordinate: step for step in trail if isinstance(step, ir.Range)}
    ranges |= {b.coordinate: ir.Range(b.coordinate, b.lower, b.upper, b.stated, span) for b in found.others}
    order = _ordered(found, ranges)
    limits = [bound for c in order for bound in (ranges[c].lower, ranges[c].upper)]
    if any(bound.type.coordinates for bound in (*limits, found.key.lower, found.key.upper)):
        return "a range around it depends on another coordinate"
    if any(text(ranges[c].lower) != "0" for c in order) and is_normalized(found.score, found.value):
        return "something in it is normalised over a range that does not start at 0"
    names = _names(order, ranges, clause)
    taken = {new.name for new in names.values()} | {r.coordinate.name for r in clause.ranges}
    key = name_for(found.key.upper, taken)
    attention = _described(algebra, found, {**names, found.key.coordinate: key}, span)
    if algebra.may_be_infinite(attention.value) or _may_be_undefined(attention):
        return "what is gathered is infinite where a guard removed it, and a kernel multiplies it with 0 there"
    body = body_of(attention, found.key.stated, span)
    bare = is_bare(body)
    # Where a condition beside it fails, nothing is multiplied with it: there it may not be read at all.
    beside = () if bare else (*found.inside.conditions.values(), *found.outside.conditions.values())
    held, dropped = _conditions(order, ranges, (*trail, *((condition, True) for condition in beside)), span)
    if dropped and not bare:
        return "what is read in it may be out of bounds where a guard around it fails"
    values = _values(names, span)
    guard = build.conjunction(substitute(condition, values) for condition in held)
    axes = tuple(ir.Axis(names[c], ranges[c].upper) for c in order)
    zero = build.whole(0, span)
    new = tuple(ir.Range(names[c], zero, ranges[c].upper, ranges[c].stated, span) for c in order)
    made = ir.Clause(tuple(values[c] for c in order), new, body, guard, span)
    own = ir.Let(name, axes, "real", (made,), True, let.span, let.call)
    read = build.read(name, tuple(build.coord(c, span) for c in order), "real", span)
    return Placement(own, attention, read)


def _may_be_undefined(attention: Attention) -> bool:
    """Whether what is gathered is NaN or infinite by its places alone, at pairs of which the guard may remove some."""
    pairs = [fact.type.coordinates for fact in attention.guard if attention.coordinate in fact.type.coordinates]
    parts = [part for part in walk(attention.value) if any(pair <= part.type.coordinates for pair in pairs)]
    return any(is_open(part) and not any(isinstance(inner, ir.Read) for inner in walk(part)) for part in parts)


def body_of(attention: Attention, stated: bool, span: Span) -> ir.Expr:
    """An attention as an expression. Where a row without keys is NaN, it is divided by whether there is one."""
    key = replace(attention.key, stated=stated)
    guard = build.conjunction(attention.guard)
    if isinstance(attention.normaliser, Free):
        shares = build.apply("*", (attention.score, attention.value), "real", span)
        return build.reduce("sum", (key,), shares, guard, "real", span)
    if attention.total:
        below: ir.Expr = build.reduce("sum", (key,), _raised(attention.score), guard, "real", span)
        if attention.sink is not None:
            below = build.apply("+", (below, _raised(attention.sink)), "real", span)
        return build.apply("log", (below,), "real", span)
    if attention.sink is not None:
        return _beside_sink(attention, attention.sink, key, guard, span)
    weights = build.normalize("softmax", key.coordinate, attention.score, guard, "real", span)
    body = build.apply("*", (weights, attention.value), "real", span)
    total = build.reduce("sum", (key,), body, None, "real", span)
    if attention.empty == "zero":
        return total
    some = has_keys(key, guard if attention.empty == "nan" else None)
    one = build.select(some, build.whole(1, span), build.whole(0, span), span)
    return build.apply("/", (total, one), "real", span)


def restated(let: ir.Let, attention: Attention) -> ir.Let:
    """The definition of an attention in another form."""
    clause = let.clauses[0]
    total = next(part for part in walk(clause.body) if isinstance(part, ir.Reduce) and part.op == "sum")
    body = body_of(attention, total.ranges[0].stated, clause.body.span)
    return replace(let, clauses=(replace(clause, body=body),))


def _raised(expr: ir.Expr) -> ir.Expr:
    return build.apply("exp", (expr,), "real", expr.span)


def _beside_sink(
    attention: Attention, sink: ir.Expr, key: ir.Range, guard: ir.Expr | None, span: Span
) -> ir.Expr:
    """Exponentials over their sum and e to the sink, all of them less the largest; or what they are above 1, over the
    sum of how far they are from it."""
    picked = attention.normaliser if isinstance(attention.normaliser, Softpick) else None
    highest = build.reduce("max", (key,), attention.score, guard, "real", span)
    floor = build.real(Fraction(0), span)
    if picked is not None and picked.origin != "zero":
        origin: ir.Expr = build.select(has_keys(key, guard), highest, floor, span)
        if picked.origin == "floor":
            origin = build.apply("max", (highest, floor), "real", span)
        sink = build.apply("+", (sink, origin), "real", span)
    level = build.apply("max", (highest, sink if picked is None else floor), "real", span)
    if picked is not None and picked.origin == "zero":
        level = build.apply("max", (level, sink), "real", span)

    def raised(score: ir.Expr) -> ir.Expr:
        return build.apply("exp", (build.apply("-", (score, level), "real", span),), "real", span)

    taken = {c.name for c in attention.score.type.coordinates}
    share = raised(attention.score)
    if picked is not None:
        share = build.apply("-", (share, raised(floor)), "real", span)
    share = renamed_apart(share, taken)
    weights, shares = (share, share) if picked is None else (build.apply(f, (share,), "real", span) for f in _PARTS)
    above = build.reduce("sum", (key,), build.apply("*", (weights, attention.value), "real", span), guard, "real", span)
    below = build.reduce("sum", (key,), shares, guard, "real", span)
    return build.apply("/", (above, build.apply("+", (below, raised(sink)), "real", span)), "real", span)


# What is taken of a share for a weight, and for the sum of all.
_PARTS = ("relu", "abs")


def _ordered(found: Gathered, ranges: Mapping[Coordinate, ir.Range]) -> list[Coordinate]:
    """The coordinates of an attention: those of scores and values, of scores, of values; each in the order in
    which they are bound."""
    asked = found.score.coordinates.union(*(c.type.coordinates for c in found.guard.values()))
    asked = asked if found.sink is None else asked | found.sink.coordinates
    carried = found.value.coordinates
    place = {coordinate: number for number, coordinate in enumerate(ranges)}
    return sorted(found.coordinates, key=lambda c: (not (c in asked and c in carried), c not in asked, place[c]))


def _names(order: list[Coordinate], ranges: Mapping[Coordinate, ir.Range], clause: ir.Clause) -> Names:
    """The definition's own coordinates keep their names; what is bound inside of it is named after its size."""
    own = {r.coordinate for r in clause.ranges}
    names = {c: c for c in order if c in own}
    taken = {c.name for c in own}
    for c in order:
        if c not in own:
            names[c] = name_for(ranges[c].upper, taken)
            taken.add(names[c].name)
    return names


def _values(names: Names, span: Span) -> dict[Coordinate, ir.Expr]:
    return {old: build.coord(new, span) for old, new in names.items()}


def _described(algebra: Algebra, found: Gathered, names: Names, span: Span) -> Attention:
    """The attention in the coordinates of its own definition."""
    values = _values({old: new for old, new in names.items() if old != new or old.space != new.space}, span)
    taken = [name.name for name in names.values()]

    def shown(part: Form) -> ir.Expr:
        return named(written(replaced(part, values, algebra), span), taken)

    guard = replaced(under(ONE, found.guard, False), values, algebra).terms[0][1].conditions.values()
    lower, upper = (named(bound, taken) for bound in (found.key.lower, found.key.upper))
    key = ir.Range(names[found.key.coordinate], lower, upper, False, span)
    conditions = tuple(named(condition, taken) for condition in guard)
    sink = None if found.sink is None else shown(found.sink)
    shifts = [one for one in (found.sink or ZERO).terms if holds_extreme(algebra, form((one,)), span)]
    if found.sink is not None and shifts and not found.total:
        # The largest of no scores is -inf, and so is a sink that counts from it. A row without keys is 0 whatever the
        # sink, if only that is finite.
        some = has_keys(key, None if found.heard else build.conjunction(conditions))
        shift = build.select(some, shown(form(shifts)), build.real(Fraction(0), span), span)
        rest = shown(form(one for one in found.sink.terms if one not in shifts))
        sink = build.apply("+", (rest, shift), "real", span)
    normaliser: Normaliser = Free() if found.free else Softmax(sink)
    if found.origin is not None and sink is not None:
        normaliser = Softpick(sink, found.origin)
    value = shown(found.value)
    return Attention(key, shown(found.score), conditions, value, found.empty, normaliser, found.total)


def _conditions(
    order: list[Coordinate], ranges: Mapping[Coordinate, ir.Range], trail: Trail, span: Span
) -> tuple[list[ir.Expr], bool]:
    """The conditions that hold wherever the attention is read, as far as they have only its coordinates, and whether
    there are others."""
    steps = [step for step in trail if isinstance(step, tuple)]
    held = [condition if holds else fails(condition) for condition, holds in steps]
    decided = [condition for condition in held if condition.type.coordinates <= set(order)]
    for c in order:
        if text(ranges[c].lower) != "0":
            decided.append(build.apply("<=", (ranges[c].lower, build.coord(c, span)), "bool", span))
    return decided, len(held) > sum(1 for condition in held if condition.type.coordinates <= set(order))
