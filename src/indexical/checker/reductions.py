"""Reductions and normalisers: coordinates bound, guarded, consumed or normalised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import fresh
from ..records import replace
from ..syntax import tree
from ..syntax.vocabulary import SCANS
from . import elaborate, kinds, sizes
from .names import check_free
from .scope import Abbreviated, Binding, Meaning, Poison, RestBinding, Scope, Unit


def bind(unit: Unit, scope: Scope, binder: tree.Binder, by: tree.Reduction | None = None) -> Binding | RestBinding:
    """A new coordinate, bound on the left or `by` a reduction. In the Program its name differs from all that are in
    force around it. One that hides another is warned of, unless that is surely meant."""
    check_free(binder.name, binder.span, unit.sink)
    warn_of_hiding(unit, scope, binder, by)
    if binder.rest:
        return RestBinding(binder.name, binder.span)
    coordinate = Coordinate(binder.name, False, scope.spaces.get(binder.name))
    binding = Binding(fresh(coordinate, set(scope.frame.live)), binder.name, binder.span)
    scope.frame.live[binding.coordinate.name] = binding
    return binding


def warn_of_hiding(unit: Unit, scope: Scope, binder: tree.Binder, by: tree.Reduction | None = None) -> None:
    hidden = scope.names.get(f"..{binder.name}" if binder.rest else binder.name)
    if hidden is None or isinstance(hidden, Poison) or (by is not None and _is_norm(unit, by, binder)):
        return
    shown = f"..{binder.name}" if binder.rest else binder.name
    unit.report(
        "IX204",
        f"`{shown}` hides another `{shown}`",
        Label(binder.span, "from here on, this one is meant"),
        Label(hidden.span, "hidden"),
        help="give one of them another name",
    )


def reduction(unit: Unit, scope: Scope, node: tree.Reduction) -> ir.Expr | None:
    live = dict(scope.frame.live)
    inner, bindings, good = _bind_all(unit, scope, node)
    inner, guard, guarded = _guard(unit, inner, node)
    body = elaborate.expression(unit, inner, node.body)
    ranges = []
    for binding in bindings:
        parts = [binding] if isinstance(binding, Binding) else sizes.settle_rest(unit, inner, binding)
        ranges += [sizes.settle(unit, scope, part) for part in parts]
    whole = body is not None and good and guarded and None not in ranges
    joint = None
    if whole and body is not None and node.operator in ("argmax", "argmin") and len(bindings) > 1:
        if kinds.reduction_kind(unit, node.operator, body) is not None:
            from . import joined

            several = [binding for binding in bindings if isinstance(binding, Binding)]
            joint = joined.extreme(unit, scope, node, several, body, guard)
        whole = joint is not None
    for name in set(scope.frame.live) - set(live):
        if not any(part.coordinate.name == name for part in outer_parts(scope)):
            del scope.frame.live[name]
    if body is None or not whole or joint is not None:
        return joint
    kind = kinds.reduction_kind(unit, node.operator, body)
    known = tuple(range for range in ranges if range is not None)
    return None if kind is None else build.reduce(node.operator, known, body, guard, kind, node.span)


def outer_parts(scope: Scope) -> list[Binding]:
    """The coordinates that the `..` of the statement around stand for: found inside, but bound outside."""
    return [part for rest in scope.leading.values() for part in rest.parts or ()]


def _bind_all(unit: Unit, scope: Scope, node: tree.Reduction) -> tuple[Scope, list[Binding | RestBinding], bool]:
    names: dict[str, Meaning] = {}
    good = True
    if node.operator in ("argmax", "argmin") and any(binder.rest for binder in node.binders):
        unit.report("IX206", f"`{node.operator}` binds coordinates that are named", node.operator_span)
        good = False
    for number, binder in enumerate(node.binders):
        key = f"..{binder.name}" if binder.rest else binder.name
        if key in names or (binder.rest and number):
            unit.report("IX211", f"`{key}` is bound twice, or does not lead the bracket", binder.span)
            good = False
            continue
        binding = bind(unit, scope, binder, node)
        if binder.range is not None and isinstance(binding, Binding):
            good &= sizes.state_range(
                unit, scope.binding(names), binding, binder.range, elaborate.expression, outer=True
            )
        names[key] = binding
    bindings = [binding for binding in names.values() if isinstance(binding, Binding | RestBinding)]
    return scope.binding(names), bindings, good


def _is_norm(unit: Unit, node: tree.Reduction, binder: tree.Binder) -> bool:
    """Whether a reduction scans, with a letter, what stands beside it at that letter: `x[e] / sum[e](x[e])`."""
    if unit.statement is None:
        return False
    inside, around = (Counter(_reads_at(binder.name, part)) for part in (node, unit.statement))
    return binder.range is None and bool(inside) and inside <= around and inside.keys() <= (around - inside).keys()


def _reads_at(name: str, node: tree.Node) -> Iterator[str]:
    """Yield the reads in which this letter stands, without their spaces."""
    for part in tree.walk(node):
        if isinstance(part, tree.Index) and any(isinstance(p, tree.Name) and p.name == name for p in tree.walk(part)):
            yield "".join(part.span.text.split())


def _guard(unit: Unit, scope: Scope, node: tree.Reduction) -> tuple[Scope, ir.Expr | None, bool]:
    """The guard of a reduction, written inside its bracket or attached from outside."""
    inside = {c.name: Abbreviated(c.value, c.span) for c in node.where if isinstance(c, tree.Abbreviation)}
    scope = scope.binding(inside)
    clauses = [clause for clause in node.where if isinstance(clause, tree.Guard)]
    clauses += unit.attached.get(id(node), [])
    found = [elaborate.condition(unit, scope, clause.condition, "a guard") for clause in clauses]
    guard = build.conjunction(found)
    return scope.given(guard), guard, None not in found


def normaliser(unit: Unit, scope: Scope, node: tree.Reduction) -> ir.Expr | None:
    bindings = _survivors(unit, scope, node)
    if bindings is None:
        return None
    # Inside, the coordinate runs over all its points: what holds of it outside does not hold there.
    own = {binding.coordinate for binding in bindings}
    outside = replace(scope, conditions=tuple(held for held in scope.conditions if not own & held.type.coordinates))
    inner, guard, guarded = _guard(unit, outside, node)
    body = elaborate.expression(unit, inner, node.body)
    if body is None or not guarded:
        return None
    kind = kinds.reduction_kind(unit, node.operator, body)
    if kind is None:
        return None
    if len(bindings) > 1:
        from . import joined  # Few programs have one.

        return joined.normaliser(unit, outside, node, bindings, body, guard)
    unit.scans |= node.operator in sizes.WRITTEN_OUT
    return build.normalize(node.operator, bindings[0].coordinate, body, guard, kind, node.span)


def _survivors(unit: Unit, scope: Scope, node: tree.Reduction) -> list[Binding] | None:
    """The coordinates that a normaliser runs over; None, and reported, where it cannot."""
    if any(binder.rest or binder.range is not None for binder in node.binders):
        unit.report("IX210", f"`{node.operator}` normalises over coordinates without a range", node.operator_span)
        return None
    if node.operator in SCANS and len(node.binders) > 1:
        unit.report("IX210", f"`{node.operator}` goes along one coordinate", node.operator_span)
        return None
    found: list[Binding] = []
    for binder in node.binders:
        binding = scope.names.get(binder.name)
        if not isinstance(binding, Binding):
            unit.report(
                "IX210",
                f"`{node.operator}[{binder.name}]` needs a `{binder.name}` that survives it",
                Label(binder.span, "not in scope outside"),
                help=f"put `{binder.name}` on the left, or inside a reduction over it",
            )
            return None
        if binding in found:
            unit.report("IX211", f"`{binder.name}` is bound twice", binder.span)
            return None
        found.append(binding)
    return found
