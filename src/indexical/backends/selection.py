"""The first of a ranking → the largest numbers alone, where a library finds these sooner than it sorts all."""

from __future__ import annotations

from ..ir import nodes as ir
from ..ir.conditions import conjuncts_of
from ..plan.selection import first_places
from . import binding, elementwise, normalizers, reuse
from .base import Value
from .code import call
from .lowering import Lowering
from .scope import Scope
from .values import permuted


def apply(low: Lowering, expr: ir.Map, scope: Scope) -> Value:
    """An elementwise function; `rank[j](…) < 64` by the places of the 64 largest."""
    found = among_first(low, expr, scope) if low.text.dialect.selects_largest else None
    return elementwise.apply(low, expr, scope) if found is None else found


def among_first(low: Lowering, expr: ir.Map, scope: Scope) -> Value | None:
    """Whether each point is among the first of a ranking; None where this is something else, or all ranks are there."""
    found = first_places(expr, {})
    if found is None or found[1] < 1 or scope.places[found[0].coordinate].step is not None:
        return None
    order, limit = found
    if reuse.recall(low, order, scope) is not None:
        return None
    low.tell(f"the {limit} largest along `{order.coordinate}`, and not all ranks")
    given, axes = normalizers.compared(low, order, scope)
    guarded = "guarded_" if len(given) > 1 else ""
    at = axes.index(order.coordinate) - len(axes)
    return Value(call(low.text.helper(f"{guarded}among_first"), *given, limit, at), axes, "bool", "bool")


def placed(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The places of the first of a ranking, `argmax[j](0 where rank[j](…) == t)` for every `t` from 0; None where this
    is something else."""
    if expr.op != "argmax" or not isinstance(expr.body, ir.Const):
        return None
    *own, last = conjuncts_of(expr.guard) or [expr.body]
    match last:
        case ir.Map("==", (ir.Normalize("rank") as order, ir.Coord(turn))):
            place, key = scope.places[turn], expr.ranges[0]
        case _:
            return None
    bare = place.step is None and place.within is None and isinstance(place.start, ir.Const) and place.start.value == 0
    if not bare or not isinstance(place.stop, ir.Const) or own != conjuncts_of(order.guard) or not key.is_counted:
        return None
    if order.coordinate != key.coordinate or turn in order.type.coordinates:
        return None
    limit = max(0, int(place.stop.value))
    low.tell(f"the places of the {limit} largest along `{order.coordinate}`")
    inner = binding.bind(low, expr.ranges, scope)
    given, axes = normalizers.compared(low, order, inner)
    helper = low.text.helper("guarded_top" if len(given) > 1 else "top")
    at = axes.index(order.coordinate)
    found = Value(
        call(helper, *given, limit, at - len(axes)), (*axes[:at], turn, *axes[at + 1 :]), "whole", "i64"
    )
    return permuted(found, scope.sort(found.axes), low.text)
