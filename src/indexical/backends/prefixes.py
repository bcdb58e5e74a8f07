"""Prefixes → running totals, and scans where there is a decay: in time and memory that grow with the points alone."""

from __future__ import annotations

from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, number
from ..ir.conditions import conjuncts_of
from ..ir.context import look_through
from ..ir.prefixes import RUNNING, Decay, Order, Prefix, Steps, find
from ..ir.prove import conjuncts
from ..ir.types import Coordinate
from ..ir.walk import substitute
from ..plan.scatters import is_total
from . import arrays, binding, contraction, integers, points, removal, scans, sizes
from .base import Value, plain
from .code import ALL, ONE, ZERO, Name, Node, Slice, Tuple, call, infix, method, negative
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope, static_bounds
from .values import permuted, sliced

_WORDS = {
    "sum": "sum", "mean": "sum", "prod": "product", "max": "maximum", "min": "minimum", "any": "any", "all": "all",
    "argmax": "place of the maximum", "argmin": "place of the minimum",
}  # fmt: skip
_PLACES = ("argmax", "argmin")


def prefixed(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The running total of a reduction over all points up to one, or from one on; None where it is none."""
    inner = _inside(low, expr, scope)
    if inner is None:
        return None
    conditions = binding.removing(expr.ranges, expr.guard, inner)
    facts = [fact for condition in conditions for fact in conjuncts(condition, True, look_through(low.lets))]
    queries = [c for c in scope.sort(scope.places) if scope.places[c].within is None]
    found = find(expr, facts, queries, low.prover.constants)
    if found is None or not _stands_apart(low, found, inner, scope):
        return None
    if not _is_exact(low, found, inner) or not _is_whole(low, expr, found, inner, scope):
        return None
    order = found.order
    way = "up to" if order.forward else "from"
    words = "a scan with a decay" if found.decay else f"a running {_WORDS[expr.op]}"
    low.tell(f"{words} along `{order.key}`, {way} each `{order.query}`")
    guarded = inner.where(expr.guard)
    body, *fixed = removal.kept_factors(low, [found.body, *(factor.expr for factor in found.fixed)], guarded)
    if expr.op in _PLACES:
        return _place(low, expr, found, body, inner, scope)
    total = _total(low, expr, found, body, inner, scope)
    for factor, value in zip(found.fixed, fixed, strict=True):
        total = contraction.times(low, total, contraction.multiplied(low, factor, value), scope)
    total = _where_asked(low, total, points.neutral(expr.op, total), found, scope)
    if expr.type.kind == "whole" and expr.op in ("max", "min"):
        _check_some(low, expr, found, inner, scope)
    if expr.op != "mean":
        return total
    return points.divided(low, total, low.value(_ones(expr), scope), expr, scope)


def _inside(low: Lowering, expr: ir.Reduce, scope: Scope) -> Scope | None:
    """The scope inside; None where it has no bounds that sizes decide, or is only a window of some points."""
    whole = expr.op in _PLACES and expr.body.type.kind == "whole"
    if expr.op not in RUNNING or len(expr.ranges) != 1 or whole or low.unbounded is not None:
        return None
    range = expr.ranges[0]
    moves = bool(scope.sort(range.depends_on))
    if (expr.guard is None and not moves) or (moves and static_bounds(range, scope) is None):
        return None
    return binding.bind(low, expr.ranges, scope)


def _stands_apart(low: Lowering, found: Prefix, inner: Scope, scope: Scope) -> bool:
    """Whether what keys are asked, and what queries are, can be asked without the order between them: all of them are
    asked anyhow, or it has an answer everywhere."""
    first, last, count = _reach(low, found.order, inner)
    everyone = (last == count if found.order.forward else first == number(0)) and not found.asked
    heard = not scope.conditions()
    return ((heard and everyone) or _have_answers(low, found.others, inner)) and (
        (heard and _all_hear(low, found, inner)) or _have_answers(low, found.asked, scope)
    )


def _have_answers(low: Lowering, conditions: tuple[ir.Expr, ...], scope: Scope) -> bool:
    """Whether conditions can be asked at every point, each where those before it hold."""

    def is_inside(read: ir.Read) -> bool:
        axes = low.tensors[read.tensor].axes
        return all(low.prover.is_inside(i, a.extent, scope, True) for i, a in zip(read.indices, axes, strict=True))

    for condition in conditions:
        if not is_total(condition, is_inside):
            return False
        scope = scope.where(condition)
    return True


def _is_whole(low: Lowering, expr: ir.Reduce, found: Prefix, inner: Scope, scope: Scope) -> bool:
    """Whether whole numbers are refused where the reduction would refuse them, and nowhere else; the first place of
    equal ones is found forward alone."""
    if expr.op in _PLACES:
        return found.order.forward
    if expr.type.kind != "whole" or expr.op in ("max", "min") or integers.largest(low, expr, scope) <= LARGEST["i64"]:
        return True
    # The total of a query that asks for none is that of an earlier one, where what it asks is what keys are asked.
    mirrored = _moved(found.others, {found.order.key: build.coord(found.order.query, expr.span)})
    asked = all(condition in mirrored for condition in found.asked)
    if expr.op == "sum":
        return asked
    # Every product on the way to the last is somebody's.
    _, last, count = _reach(low, found.order, inner)
    everyone = asked and not scope.conditions() and low.prover.entails(inner.standing, last - count)
    return found.order.forward and everyone


def _is_exact(low: Lowering, found: Prefix, inner: Scope) -> bool:
    """Whether all that is multiplied afterwards, or handed on in a scan, is what it would be inside."""
    removable = removal.may_be_removed(low, found.body)
    fixed = any(contraction.may_become_infinite(low, factor) for factor in found.fixed)
    first, last, count = _reach(low, found.order, inner)
    least, most = (number(1), count) if found.order.forward else (number(0), count - 1)
    if fixed and not (_hears_itself(low, found, inner) and not removable):
        if found.others or low.isolate or removable:
            return False
        if not _are_between(low, (first, last), (least, most), inner):
            return False
    if found.decay is None:
        return True
    if isinstance(found.decay, Steps):
        step = found.decay.at(build.coord(found.order.key, found.body.span))
        if not _are_between(low, (first, last), (number(0), count), inner):
            return False
        everyone = last == count if found.order.forward else first == number(0)
        kept = not (low.isolate and (found.others or removable)) and not removal.may_be_removed(low, step)
        total = all(map(is_total, (found.decay.body, *conjuncts_of(found.decay.guard))))
        return kept and total and (everyone or not found.decay.between)
    bases = [part for part in (found.decay.base, found.decay.rate) if part is not None]
    if low.isolate or any(removal.may_be_removed(low, part) for part in bases):
        return False
    return _are_between(low, (first, last), (number(0), count), inner)


def _hears_itself(low: Lowering, found: Prefix, inner: Scope) -> bool:
    """Whether every query that asks for keys is one of them."""
    order, place = found.order, build.coord(found.order.query, found.body.span)
    shift = (order.shift if order.forward else -order.shift).constant
    same = all(condition in found.asked for condition in _moved(found.others, {order.key: place}))
    key, query = inner.places[order.key], inner.places[order.query]
    bounds = low.prover.agree(key.start, query.start) and low.prover.agree(key.stop, query.stop)
    return shift is not None and shift >= 0 and same and bounds


def _moved(conditions: tuple[ir.Expr, ...], values: dict[Coordinate, ir.Expr]) -> list[ir.Expr]:
    return [substitute(condition, values) for condition in conditions]


def _reach(low: Lowering, order: Order, inner: Scope) -> tuple[Polynomial, Polynomial, Polynomial]:
    """The number of keys behind the first query, that behind the last, and that of all keys."""
    key, query = inner.places[order.key], inner.places[order.query]
    start, stop = low.prover.polynomial(query.start), low.prover.polynomial(query.stop)
    first, end = low.prover.polynomial(key.start), low.prover.polynomial(key.stop)
    count = (stop if low.prover.agree(key.stop, query.stop) else end) - first
    start, stop = start + order.shift - first, stop + order.shift - first
    return (start + 1, stop, count) if order.forward else (start, stop - 1, count)


# ------------------------------------------------------------------------- totals


def _total(low: Lowering, expr: ir.Reduce, found: Prefix, body: Value, inner: Scope, scope: Scope) -> Value:
    """The total at every query: of the body along the keys, with what changes nothing where it takes no part."""
    order, decay = found.order, found.decay
    if expr.type.kind == "real":
        body = arrays.as_real(low, body)
        body = body if expr.op in ("max", "min") else arrays.widened(low, body)
    mask = _mask(low, found.others, inner)
    body = arrays.as_array(low, body) if mask is None else points.filled(low, expr, body, mask, inner)
    if decay is None:
        axes = inner.sort({*body.axes, order.key})
        total = _running(low, expr, arrays.broadcast(low, body, axes, inner), order, scope)
        neutral = points.neutral(expr.op, total)
        return _placed(low, total, neutral, order, inner)
    return _scanned(low, expr, body, decay, order, inner)


def _mask(low: Lowering, conditions: tuple[ir.Expr, ...], scope: Scope) -> Value | None:
    """The mask of where all of these hold; None where there are none."""
    masks, around = [], scope
    for condition in conditions:
        masks.append(low.value(condition, around))
        around = around.where(condition)
    return arrays.conjunction(low, masks, scope)


def _where_asked(low: Lowering, total: Value, nothing: Node, found: Prefix, scope: Scope) -> Value:
    """The totals, and that of no keys at queries that ask for none."""
    mask = _mask(low, found.asked, scope)
    return total if mask is None else arrays.where(low, mask, total, plain(nothing, total.kind), scope, total.dtype)


def _check_some(low: Lowering, expr: ir.Reduce, found: Prefix, inner: Scope, scope: Scope) -> None:
    """Refuse where a query has no keys."""
    if not _all_hear(low, found, inner):
        there = low.value(_ones(expr), scope)
        message = f"`{expr.op}` of whole numbers over no points has no value"
        none = Value(infix("==", there.code, 0), there.axes, "bool", "bool")
        arrays.fail_where(low, none, "IX310", message, scope)


def _all_hear(low: Lowering, found: Prefix, inner: Scope) -> bool:
    """Whether every query surely has a key."""
    first, last, count = _reach(low, found.order, inner)
    ends = (number(1), last) if found.order.forward else (first, count - 1)
    return not found.others and not found.asked and _are_between(low, (first, last), ends, inner)


def _ones(expr: ir.Reduce) -> ir.Expr:
    """The number of points that a reduction runs over."""
    return build.reduce("sum", expr.ranges, build.whole(1, expr.span), expr.guard, "whole", expr.span)


def _place(low: Lowering, expr: ir.Reduce, found: Prefix, body: Value, inner: Scope, scope: Scope) -> Value:
    """The place of the largest (smallest) value so far, at every query."""
    key = found.order.key
    mask = _mask(low, found.others, inner)
    axes = inner.sort({*body.axes, *(() if mask is None else mask.axes), key})
    body = arrays.broadcast(low, arrays.as_array(low, body), axes, inner)
    kept = Name("True") if mask is None else arrays.broadcast(low, mask, axes, inner).code
    code = call(low.text.helper(f"running_{expr.op}"), body.code, kept, axes.index(key))
    places = _placed(low, Value(code, axes, "whole", "i64"), negative(1), found.order, inner)
    places = _where_asked(low, places, negative(1), found, scope)
    return points.place(low, expr, places, inner, scope, _all_hear(low, found, inner))


def _running(low: Lowering, expr: ir.Reduce, body: Value, order: Order, scope: Scope) -> Value:
    """The running totals along the keys, from the first one or from the last."""
    dialect, at = low.text.dialect, body.axes.index(order.key)
    op = "sum" if expr.op == "mean" else expr.op
    turned = body if order.forward else body.but(dialect.flip(body.code, at))
    if expr.type.kind == "whole" and op in ("sum", "prod") and integers.largest(low, expr, scope) > LARGEST["i64"]:
        code: Node = call(low.text.helper(f"checked_cum{op}"), turned.code, at)
    else:
        code = dialect.running(op, turned, at, low.text)
    code = code if order.forward else dialect.flip(code, at)
    return Value(code, body.axes, expr.type.kind, "i64" if expr.type.kind == "whole" else body.dtype)


def _scanned(low: Lowering, expr: ir.Reduce, body: Value, decay: Decay | Steps, order: Order, inner: Scope) -> Value:
    """The recurrence that multiplies by the decay of one step and adds the body; it begins with 0, before all keys."""
    times = arrays.widened(low, arrays.as_real(low, low.value(_one_step(expr, decay, order, inner), inner)))
    axes = inner.sort({*body.axes, *times.axes, order.key})
    at = axes.index(order.key)
    body = arrays.broadcast(low, body, axes, inner)
    low.text.dialect.scan("scan", low.kernels, low.text)
    factor = times.code if times.python else scans.placed_among(arrays.in_order(low, times, axes), axes)
    way = {} if order.forward else {"backward": True}
    code = call("scan", _row(low, ZERO, body, at, inner), factor, body.code, *([at] if at else []), **way)
    value = _placed(low, body.but(code), None, order, inner)
    if isinstance(decay, Steps):
        return value
    extra = decay.extra.plus(order.shift, -decay.speed)
    if extra == number(0):
        return value
    return contraction.times(low, value, arrays.as_real(low, low.value(decay.at(extra, expr), inner)), inner)


def _one_step(expr: ir.Reduce, decay: Decay | Steps, order: Order, inner: Scope) -> ir.Expr:
    """The factor of the step to a key."""
    if isinstance(decay, Decay):
        return decay.at(number(decay.speed if order.forward else -decay.speed), expr)
    key, place, span = build.coord(order.key, expr.span), inner.places[order.key], expr.span
    last = build.apply("-", (place.stop, build.whole(1, span)), "whole", span)
    # Nothing comes before the first.
    later = build.apply(">", (key, place.start), "bool", span) if order.forward else None
    later = later or build.apply("<", (key, last), "bool", span)
    return build.select(later, decay.at(key), build.real(Fraction(1), span), span)


def _row(low: Lowering, number: Node, value: Value, at: int, inner: Scope) -> Node:
    """One point along an axis, all of it this number."""
    lengths = [ONE if n == at else sizes.length(low, axis, inner) for n, axis in enumerate(value.axes)]
    return low.text.dialect.full(Tuple(tuple(lengths)), number, value.dtype or low.compute)


def _placed(low: Lowering, total: Value, neutral: Node | None, order: Order, inner: Scope) -> Value:
    """The totals at the queries, whose axis may have another place in the order of axes than that of the keys.
    `neutral` is the total of no keys; with None it stands before the others already, or behind them where they run
    backward."""
    at = total.axes.index(order.key)
    first, last, count = _reach(low, order, inner)
    least, most = (number(1), count) if order.forward else (number(0), count - 1)
    inside = _are_between(low, (first, last), (least, most), inner)
    if neutral is not None and not inside:
        row = _row(low, neutral, total, at, inner)
        total = total.but(low.text.dialect.concatenate((row, total.code) if order.forward else (total.code, row), at))
    if neutral is None or not inside:
        least, most = number(0), count
        inside = _are_between(low, (first, last), (least, most), inner)
    axes = tuple(order.query if axis == order.key else axis for axis in total.axes)
    if inside and first == least and last == most and not sizes.may_be_reversed(low, order.key, inner):
        return permuted(total.but(total.code, axes=axes), inner.sort(axes), low.text)
    start = sizes.plain_number(low, first - least, inner).code
    queries = sizes.length(low, order.query, inner)
    if inside:
        places: Node = Slice(None, queries) if start == ZERO else Slice(start, infix("+", start, queries))
    else:
        end = sizes.length(low, order.key, inner)
        places = method(infix("+", low.text.dialect.arange(ZERO, queries), start), "clip", 0, end)
    placed = total.but(sliced(low.text.keep(total, low.label).code, [*[ALL] * at, places]), axes=axes)
    return permuted(placed, inner.sort(axes), low.text)


def _are_between(
    low: Lowering, ends: tuple[Polynomial, Polynomial], bounds: tuple[Polynomial, Polynomial], inner: Scope
) -> bool:
    """Whether whole numbers surely lie within bounds."""
    return low.prover.entails(inner.standing, ends[0] - bounds[0]) and low.prover.entails(
        inner.standing, bounds[1] - ends[1]
    )
