"""Prefixes → running totals, and scans where there is a decay: in time and memory that grow with the points alone."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, number
from ..ir.context import look_through
from ..ir.prefixes import RUNNING, Decay, Order, Prefix, find
from ..ir.prove import conjuncts
from . import arrays, binding, contraction, integers, points, removal, scans, sizes
from .base import Value
from .code import ALL, ONE, ZERO, Node, Slice, Tuple, call, infix, method
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope, static_bounds
from .values import permuted, sliced

_WORDS = {
    "sum": "sum", "mean": "sum", "prod": "product", "max": "maximum", "min": "minimum", "any": "any", "all": "all",
}  # fmt: skip


def prefixed(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The running total of a reduction over all points up to one, or from one on; None where it is none."""
    inner = _inside(low, expr, scope)
    if inner is None:
        return None
    conditions = binding.removing(expr.ranges, expr.guard, inner)
    facts = [fact for condition in conditions for fact in conjuncts(condition, True, look_through(low.lets))]
    queries = [c for c in scope.sort(scope.places) if scope.places[c].within is None]
    found = find(expr, facts, queries, low.prover.constants)
    if found is None or not _is_exact(low, found, inner):
        return None
    order = found.order
    way = "up to" if order.forward else "from"
    words = "a scan with a decay" if found.decay else f"a running {_WORDS[expr.op]}"
    low.tell(f"{words} along `{order.key}`, {way} each `{order.query}`")
    guarded = inner.where(expr.guard)
    body, *fixed = removal.kept_factors(low, [found.body, *(factor.expr for factor in found.fixed)], guarded)
    total = _total(low, expr, found, body, inner, scope)
    for factor, value in zip(found.fixed, fixed, strict=True):
        total = contraction.times(low, total, contraction.multiplied(low, factor, value), scope)
    if expr.op != "mean":
        return total
    ones = build.reduce("sum", expr.ranges, build.whole(1, expr.span), expr.guard, "whole", expr.span)
    return points.divided(low, total, low.value(ones, scope), expr, scope)


def _inside(low: Lowering, expr: ir.Reduce, scope: Scope) -> Scope | None:
    """The scope inside; None where it has no bounds that sizes decide, or is only a window of some points."""
    whole = expr.type.kind == "whole" and expr.op not in ("sum", "any", "all")
    if expr.op not in RUNNING or len(expr.ranges) != 1 or whole or low.unbounded is not None:
        return None
    range = expr.ranges[0]
    moves = bool(scope.sort(range.depends_on))
    if (expr.guard is None and not moves) or (moves and static_bounds(range, scope) is None):
        return None
    return binding.bind(low, expr.ranges, scope)


def _is_exact(low: Lowering, found: Prefix, inner: Scope) -> bool:
    """Whether all that is multiplied afterwards, or handed on in a scan, is what it would be inside."""
    fixed = any(contraction.may_become_infinite(low, factor) for factor in found.fixed)
    if fixed and (found.others or low.isolate or removal.may_be_removed(low, found.body)):
        return False
    first, last, count = _reach(low, found.order, inner)
    least, most = (number(1), count) if found.order.forward else (number(0), count - 1)
    if fixed and not _are_between(low, (first, last), (least, most), inner):
        return False
    if found.decay is None:
        return True
    bases = [part for part in (found.decay.base, found.decay.rate) if part is not None]
    if low.isolate or any(removal.may_be_removed(low, part) for part in bases):
        return False
    return _are_between(low, (first, last), (number(0), count), inner)


def _reach(low: Lowering, order: Order, inner: Scope) -> tuple[Polynomial, Polynomial, Polynomial]:
    """How many keys the first query has behind it, and the last; how many keys there are."""
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
    masks, around = [], inner
    for condition in found.others:
        masks.append(low.value(condition, around))
        around = around.where(condition)
    mask = arrays.conjunction(low, masks, inner)
    body = arrays.as_array(low, body) if mask is None else points.filled(low, expr, body, mask, inner)
    if decay is None:
        axes = inner.sort({*body.axes, order.key})
        total = _running(low, expr, arrays.broadcast(low, body, axes, inner), order, scope)
        neutral = points.neutral(expr.op, total)
        value = _placed(low, total, neutral, order, inner)
    else:
        value = _scanned(low, expr, body, decay, order, inner)
    return permuted(value, scope.sort(value.axes), low.text)


def _running(low: Lowering, expr: ir.Reduce, body: Value, order: Order, scope: Scope) -> Value:
    """The running totals along the keys, from the first one or from the last."""
    dialect, at = low.text.dialect, body.axes.index(order.key)
    op = "sum" if expr.op == "mean" else expr.op
    turned = body if order.forward else body.but(dialect.flip(body.code, at))
    if expr.type.kind == "whole" and integers.largest(low, expr, scope) > LARGEST["i64"]:
        code: Node = call(low.text.helper("checked_cumsum"), turned.code, at)
    else:
        code = dialect.running(op, turned, at, low.text)
    code = code if order.forward else dialect.flip(code, at)
    return Value(code, body.axes, expr.type.kind, "i64" if expr.type.kind == "whole" else body.dtype)


def _scanned(low: Lowering, expr: ir.Reduce, body: Value, decay: Decay, order: Order, inner: Scope) -> Value:
    """The recurrence that multiplies by the decay of one step and adds the body; it begins with 0, before all keys."""
    speed = number(decay.speed if order.forward else -decay.speed)
    times = arrays.widened(low, arrays.as_real(low, low.value(decay.at(speed, expr), inner)))
    axes = inner.sort({*body.axes, *times.axes, order.key})
    at = axes.index(order.key)
    body = arrays.broadcast(low, body, axes, inner)
    low.text.dialect.scan("scan", low.kernels, low.text)
    factor = times.code if times.python else scans.placed_among(arrays.in_order(low, times, axes), axes)
    way = {} if order.forward else {"backward": True}
    code = call("scan", _row(low, ZERO, body, at, inner), factor, body.code, *([at] if at else []), **way)
    value = _placed(low, body.but(code), None, order, inner)
    extra = decay.extra.plus(order.shift, -decay.speed)
    if extra == number(0):
        return value
    return contraction.times(low, value, arrays.as_real(low, low.value(decay.at(extra, expr), inner)), inner)


def _row(low: Lowering, number: Node, value: Value, at: int, inner: Scope) -> Node:
    """One point along an axis, all of it this number."""
    lengths = [ONE if n == at else sizes.length(low, axis, inner) for n, axis in enumerate(value.axes)]
    return low.text.dialect.full(Tuple(tuple(lengths)), number, value.dtype or low.compute)


def _placed(low: Lowering, total: Value, neutral: Node | None, order: Order, inner: Scope) -> Value:
    """The totals at the queries. `neutral` is the one of no keys; with None it stands before the others already, or
    behind them where they run backward."""
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
        return total.but(total.code, axes=axes)
    start = sizes.plain_number(low, first - least, inner).code
    queries = sizes.length(low, order.query, inner)
    if inside:
        places: Node = Slice(None, queries) if start == ZERO else Slice(start, infix("+", start, queries))
    else:
        end = sizes.length(low, order.key, inner)
        places = method(infix("+", low.text.dialect.arange(ZERO, queries), start), "clip", 0, end)
    return total.but(sliced(low.text.keep(total, low.label).code, [*[ALL] * at, places]), axes=axes)


def _are_between(
    low: Lowering, ends: tuple[Polynomial, Polynomial], bounds: tuple[Polynomial, Polynomial], inner: Scope
) -> bool:
    """Whether whole numbers surely lie within bounds."""
    return low.prover.entails(inner.standing, ends[0] - bounds[0]) and low.prover.entails(
        inner.standing, bounds[1] - ends[1]
    )
