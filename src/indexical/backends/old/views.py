"""Affine indices → views: slices, splits, windows, and zeros where an index leaves its axis."""

from __future__ import annotations

from typing import Literal

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import Polynomial, expression, number, polynomial
from ...ir.text import shown
from ...ir.types import Coordinate
from ...ir.walk import substitute
from ...records import dataclass, replace
from ...source import Span
from . import arrays, sizes
from .base import Value, plain
from .code import ALL, ONE, ZERO, Between, Dict, Node, Prefix, Slice, String, Tuple, call, chain, infix, node
from .lowering import Lowering
from .plan.reach import reach as ends_of
from .scope import Scope


@dataclass(frozen=True, slots=True)
class Access:
    """The places of an index: `first`, and all up to `beyond`, every `step`-th of them.

    A `fixed` one is a single place, a `run` has one coordinate, a `split` two of which the inner one fills the step of
    the outer, `windows` two that overlap, of which the inner one goes on by its `dilation`. A `backward` one has its
    places from the last to the first; of a split and of windows only the `flipped` coordinates run that way. `padded`
    ones leave the axis where a guard removes points, and find 0 there.
    """

    how: Literal["fixed", "run", "split", "windows"]
    coordinates: tuple[Coordinate, ...]
    first: Polynomial
    beyond: Polynomial
    step: Polynomial
    backward: bool = False
    padded: bool = False
    dilation: int = 1
    flipped: tuple[Coordinate, ...] = ()


# ---------------------------------------------------------------- which view


def access(low: Lowering, index: ir.Expr, scope: Scope) -> Access | None:
    """An index as a view; None where it has to be gathered."""
    if isinstance(index, ir.Coord):
        place = scope.places[index.coordinate]
        return Access("run", (index.coordinate,), polynomial(place.start), polynomial(place.stop), number(1))
    found = affine(low, index, scope)
    if found is None:
        return None
    factors, offset = found
    if not factors:
        return Access("fixed", (), offset, offset + 1, number(1))
    if len(factors) == 1:
        return straight(low, factors[0], offset, index.span, scope)
    return pair(low, factors, offset, index.span, scope) if len(factors) == 2 else None


def affine(
    low: Lowering, index: ir.Expr, scope: Scope
) -> tuple[list[tuple[Coordinate, Polynomial]], Polynomial] | None:
    """The index as `offset + Σ factor · coordinate`, the coordinates in force, all else plain numbers; None where it is
    nothing of the kind."""
    factors: dict[Coordinate, Polynomial] = {}
    offset = number(0)
    for monomial, factor in polynomial(index).terms.items():
        moving = [a for a, _ in monomial if isinstance(a, Coordinate)]
        if any(not isinstance(a, Coordinate) and not is_plain(low, a, scope) for a, _ in monomial):
            return None
        if not moving:
            offset = offset.plus(Polynomial({monomial: factor}), 1)
            continue
        if len(moving) > 1 or dict(monomial)[moving[0]] != 1:
            return None
        rest = frozenset((a, p) for a, p in monomial if a != moving[0])
        factors[moving[0]] = factors.get(moving[0], number(0)).plus(Polynomial({rest: factor}), 1)
    return list(factors.items()), offset


def is_plain(low: Lowering, expr: ir.Expr, scope: Scope) -> bool:
    """Whether an expression is a plain number in the emitted code, without reading an array."""
    match expr:
        case ir.Const() | ir.Size():
            return True
        case ir.Read(tensor, ()):
            return low.stored[tensor].python
        case ir.Map("+" | "-" | "*" | "//" | "%" | "neg" | "max" | "min" | "abs", arguments):
            return all(is_plain(low, argument, scope) for argument in arguments)
        case _:
            return False


def straight(
    low: Lowering, factor: tuple[Coordinate, Polynomial], offset: Polynomial, span: Span, scope: Scope
) -> Access | None:
    """One coordinate, forward or backward in steps; None for a step that may be 0."""
    coordinate, step = factor
    first, beyond = reach(low, [factor], offset, span, scope)
    through = sizes.with_constants(low, step, span)
    if through.constant is not None and through.constant < 0:
        return Access("run", (coordinate,), first, beyond, number(-through.constant), backward=True)
    if not low.prover.entails((), through - 1):
        return None
    return Access("run", (coordinate,), first, beyond, step)


def pair(
    low: Lowering, factors: list[tuple[Coordinate, Polynomial]], offset: Polynomial, span: Span, scope: Scope
) -> Access | None:
    """`outer · n + inner` with n points of `inner`: a split. `outer · s + inner · d` else: windows. Either of the
    two may count down: then its axis is turned around, or that of the whole array if both do."""
    falling = tuple(coordinate for coordinate, factor in factors if is_falling(low, factor, span))
    whole = len(falling) == 2
    steps = {c: -factor if c in falling else factor for c, factor in factors}
    through = {c: sizes.with_constants(low, step, span) for c, step in steps.items()}
    first, beyond = reach(low, factors, offset, span, scope)
    (one, _), (other, _) = factors
    turned = Access("split", (), first, beyond, number(1), whole, flipped=() if whole else falling)
    for outer, inner in ((one, other), (other, one)):
        filled = sizes.with_constants(low, sizes.extent_of(inner, scope), span) == through[outer]
        if through[inner].constant == 1 and filled and low.prover.entails((), through[outer]):
            return replace(turned, coordinates=(outer, inner), step=steps[outer])
    for wide in (False, True):
        for outer, inner in ((one, other), (other, one)):
            stride, dilation = through[outer].constant or 0, through[inner].constant or 0
            if stride >= 1 and (dilation == 1 or (wide and dilation >= 1)):
                found = replace(turned, how="windows", coordinates=(outer, inner), step=steps[outer])
                return replace(found, dilation=dilation)
    return None


def is_falling(low: Lowering, factor: Polynomial, span: Span) -> bool:
    """Whether an index goes down as a coordinate with this factor goes up."""
    through = sizes.with_constants(low, factor, span)
    return bool(through.terms) and low.prover.is_count(-through)


def reach(
    low: Lowering, factors: list[tuple[Coordinate, Polynomial]], offset: Polynomial, span: Span, scope: Scope
) -> tuple[Polynomial, Polynomial]:
    """The first place an affine index reaches, and the one beyond its last."""
    first, last = offset, offset
    for coordinate, factor in factors:
        place = scope.places[coordinate]
        start, end = polynomial(place.start), polynomial(place.stop) - 1
        if is_falling(low, factor, span):
            start, end = end, start
        first, last = first + factor * start, last + factor * end
    return first, last + 1


# -------------------------------------------------------------------- bounds


def bounded(
    low: Lowering, access: Access, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope
) -> Access | None:
    """The access, in bounds wherever it is evaluated: by proof, or by a check. None for a single place that may be
    out of bounds where a guard removes it. A single place is read even where there are no points."""
    inside = low.prover.is_inside(index, extent, scope, guarded=False)
    if inside and access.how != "fixed":
        return access
    if inside or not (scope.conditions() or low.in_guard):
        check_reach(low, access, index, extent, message, scope)
        return access
    if not low.prover.is_inside(index, extent, scope, guarded=True):
        check_index(low, index, extent, message, scope)
    low.guarded += 1
    if access.how == "fixed":
        return None
    tell_padding(low, access, index, extent)
    return replace(access, padded=True)


def tell_padding(low: Lowering, access: Access, index: ir.Expr, extent: ir.Expr) -> None:
    """Say in the plan how many zeros are put before and after an axis."""
    ends = {"before": -access.first, "after": access.beyond - polynomial(extent)}
    some = {side: end for side, end in ends.items() if end.constant is None or end.constant > 0}
    counts = [f"`{shown(expression(end, index.span))}` {side} it" for side, end in some.items()]
    low.tell(f"`{shown(index)}` leaves its axis; zeros: {' and '.join(counts) or 'none'}")


def check_reach(low: Lowering, access: Access, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope) -> None:
    """Refuse where the first or the last place is out of bounds; with no points there is none."""
    around = scope.standing
    length, span = polynomial(extent), index.span
    ends = [access.first, length - access.beyond]
    open_ends = [end for end in ends if not low.prover.entails(around, sizes.with_constants(low, end, span))]
    if not open_ends:
        return
    tests = [sizes.is_below(low, end, scope) for end in open_ends]
    empty = [c for c in access.coordinates if not sizes.is_filled(low, c, scope)]
    some = [infix(">", sizes.plain_number(low, sizes.extent_of(c, scope), scope).code, 0) for c in empty]
    sizes.refuse_once(low, chain("and", [*some, chain("or", tests)]), "IX305", message)


def check_index(low: Lowering, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope) -> None:
    """Refuse where an index is out of bounds at a point that is evaluated."""
    with low.labelled("place"):
        place = low.text.keep(low.value(index, scope), "place")
    check_place(low, place, index, extent, message, scope)


def check_place(low: Lowering, place: Value, index: ir.Expr, extent: ir.Expr, message: str, scope: Scope) -> None:
    """Refuse where a place is out of bounds, on that side where no proof says that it is not."""
    where, length = low.prover.polynomial(index), low.prover.polynomial(extent)
    below = not low.prover.entails(scope.trail, where)
    above = not low.prover.entails(scope.trail, length - where - 1)
    if place.python or (not scope.conditions() and is_rising(low, index, scope)):
        check_last(low, index, extent, below, above, message, scope)
        return
    end = sizes.plain_number(low, polynomial(extent), scope).code
    before, behind = infix("<", place.code, 0), infix(">=", place.code, end)
    test: Node = before if below else behind
    if not place.axes and low.text.dialect.branches_on_scalars:
        test = Prefix("not ", Between(ZERO, place.code, end)) if below and above else test
        arrays.fail_where(low, plain(test, "bool"), "IX305", message, scope)
        return
    test = infix("|", before, behind) if below and above else test
    if below and above and place.axes and not scope.conditions() and "check_places" in low.text.dialect.helpers:
        sizes.check_once(low, call(low.text.helper("check_places"), place.code, end, String(message)))
        return
    possible = _may_leave(low, index, end, below, above, scope)
    arrays.fail_where(low, Value(test, place.axes, "bool", "bool"), "IX305", message, scope, possible)


def _may_leave(low: Lowering, index: ir.Expr, end: Node, below: bool, above: bool, scope: Scope) -> Node | None:
    """A test of sizes that an index may be out of bounds somewhere; None where they do not say."""
    ranges = {step.coordinate: step for step in scope.trail if isinstance(step, ir.Range)}
    found = ends_of(index, ranges, low.lets)
    ends = (*((found.lowest,) if below else ()), *((found.highest,) if above else ()))
    if not ends or any(edge is None or not is_plain(low, edge, scope) for edge in ends):
        return None
    tests: list[Node] = []
    if below and found.lowest is not None:
        tests.append(infix("<", sizes.number(low, found.lowest, scope), 0))
    if above and found.highest is not None:
        tests.append(infix(">=", sizes.number(low, found.highest, scope), end))
    return chain("or", tests)


def is_rising(low: Lowering, index: ir.Expr, scope: Scope) -> bool:
    """Whether an index is a quotient that grows with its one coordinate: then checking its ends is enough."""
    match index:
        case ir.Map("//", (ir.Coord(coordinate), by)):
            counted = low.prover.entails(scope.box, low.prover.polynomial(by))
            return coordinate in scope.places and is_plain(low, by, scope) and counted
    return False


def check_last(
    low: Lowering, index: ir.Expr, extent: ir.Expr, below: bool, above: bool, message: str, scope: Scope
) -> None:
    """Refuse where the first or the last place of an index is out of bounds, by plain numbers."""
    first, last = index, index
    some: list[Node] = []
    for coordinate in scope.sort(index.type.coordinates):
        place = scope.places[coordinate]
        end = build.apply("-", (place.stop, build.whole(1, index.span)), "whole", index.span)
        first, last = substitute(first, {coordinate: place.start}), substitute(last, {coordinate: end})
        if not sizes.is_filled(low, coordinate, scope):
            some = [infix(">", sizes.plain_number(low, sizes.extent_of(coordinate, scope), scope).code, 0)]
    tests = [sizes.is_below(low, polynomial(first), scope)] if below else []
    if above:
        tests.append(sizes.is_below(low, polynomial(extent) - polynomial(last) - 1, scope))
    test = plain(chain("and", [*some, chain("or", tests)]), "bool")
    arrays.fail_where(low, test, "IX305", message, scope)


# ----------------------------------------------------------------- the slice


def view_slice(low: Lowering, access: Access, index: ir.Expr, extent: ir.Expr, scope: Scope) -> Node:
    """The slice of one axis for a view."""
    span = index.span
    if access.how == "fixed":
        return sizes.plain_number(low, access.first, scope).code
    step = sizes.plain_number(low, access.step, scope).code if access.how == "run" else ONE
    every = ALL if step == ONE else Slice(step=step)
    if access.padded or is_whole(low, access, index, extent, scope):
        return every
    around = scope.standing
    first, beyond = sizes.with_constants(low, access.first, span), sizes.with_constants(low, access.beyond, span)
    length = low.prover.polynomial(extent)
    start = None if not first.terms else sizes.plain_number(low, access.first, scope).code
    if not low.prover.entails(around, first, also=(length - 1,)):
        start = call("max", 0, start)
    if beyond == length:
        return replace(every, start=start)
    stop = sizes.plain_number(low, access.beyond, scope).code
    if not is_safe_stop(low, first, beyond, length, around):
        stop = call("max", 0, stop)
    return replace(every, start=start, stop=stop)


def is_whole(low: Lowering, access: Access, index: ir.Expr, extent: ir.Expr, scope: Scope) -> bool:
    """Whether a view has every place of its axis."""
    place = scope.places[access.coordinates[0]]
    if isinstance(index, ir.Coord) and low.prover.is_measured(place, extent):
        return True
    span = index.span
    if access.how == "run" and sizes.with_constants(low, access.step, span).constant != 1:
        return False
    first, beyond = sizes.with_constants(low, access.first, span), sizes.with_constants(low, access.beyond, span)
    return not first.terms and beyond == low.prover.polynomial(extent)


def is_safe_stop(
    low: Lowering,
    first: Polynomial,
    beyond: Polynomial,
    length: Polynomial,
    around: tuple[ir.Range | tuple[ir.Expr, bool], ...],
) -> bool:
    """Whether a slice that ends before it starts is empty as it stands: a negative end counts from behind."""
    if low.prover.entails(around, beyond, also=(length - 1,)):
        return True
    return low.prover.entails(around, first - beyond - length, also=(length - 1, -beyond - 1))


def padded(low: Lowering, code: Node, accesses: dict[int, Access], scope: Scope) -> Node:
    """Zeros where these axes are left."""
    if not accesses:
        return code
    places: list[tuple[Node, Node]] = []
    for axis, access in accesses.items():
        ends = (sizes.plain_number(low, end, scope).code for end in (access.first, access.beyond))
        places.append((node(axis), Tuple(tuple(ends))))
    return call(low.text.helper("padded"), code, Dict(tuple(places)))
