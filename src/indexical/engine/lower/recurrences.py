"""Recurrences as loops: every clause of their definitions is stored step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import expression, polynomial
from ...ir.types import Coordinate
from ...source import Span
from ..ops import Carried, Iota, Loop, Result, Store, Value, host, value
from .lowering import Lowering
from .parting import parted
from .ranges import is_zero
from .scope import NOWHERE

# The value of a clause at the steps of some axes.
ClauseOf: TypeAlias = Callable[
    [Lowering, ir.Let, ir.Clause, Mapping[int, Value]], tuple[tuple[Value, ...], Value]
]
# The axes that loops step, of each definition: the step as a number of the host, and how many steps there are.
Steps: TypeAlias = dict[str, dict[int, tuple[ir.Expr, ir.Expr]]]


def define(low: Lowering, order: ir.Stepwise, clause_of: ClauseOf) -> None:
    """The definitions of a recurrence."""
    steps: Steps = {}
    symbols: dict[int, Coordinate] = {}
    _name_steps(low, order, steps, symbols)
    finite = not any(_may_be_nonfinite(low, name) for name in steps)
    for name, axes in steps.items():
        let, home = low.lets[name], low.home(name)
        varying = frozenset[Coordinate]().union(*(step.type.coordinates for step, _ in axes.values()))
        dtype = None if name in low.weak else low.dtypes[name]
        along = tuple(home[n].name for n in axes)
        low.carried[name] = value(Carried(name, home, along, varying, let.kind, dtype, finite))
    loop = _loop(low, order, steps, symbols, clause_of)
    for name in steps:
        carried = low.carried.pop(name).op
        assert isinstance(carried, Carried)
        low.values[name] = value(Result(loop, carried))


def _may_be_nonfinite(low: Lowering, name: str) -> bool:
    return any(low.poles.may_be_nonfinite(clause.body) for clause in low.lets[name].clauses)


def _name_steps(low: Lowering, order: ir.Order, steps: Steps, symbols: dict[int, Coordinate]) -> None:
    """A coordinate for the step of each loop, and what the step of each definition is: later ones lag behind."""
    if not isinstance(order, ir.Stepwise):
        return
    first, axis = order.axes[0]
    let, later = low.lets[first], dict(order.later)
    low.symbols += 1
    symbol = Coordinate(f"{let.axes[axis].coordinate.name}_step{'' if low.symbols == 1 else low.symbols}")
    symbols[id(order)] = symbol
    here, count = build.coord(symbol, let.span), _count(low, order)
    for name, axis in order.axes:
        lag = later.get(name, 0)
        steps.setdefault(name, {})[axis] = after(here, -lag), count
    for inner in order.body:
        _name_steps(low, inner, steps, symbols)


def _loop(
    low: Lowering, order: ir.Stepwise, steps: Steps, symbols: dict[int, Coordinate], clause_of: ClauseOf
) -> Loop:
    body: list[Loop | Store] = []
    for item in order.body:
        if isinstance(item, ir.Stepwise):
            body.append(_loop(low, item, steps, symbols, clause_of))
            continue
        let = low.lets[item.name]
        low.turn_to(let)
        (axis, *others), parts = steps[item.name], let.clauses
        if not others:
            parts = tuple(part for clause in parts for part in parted(low, let, clause, axis, order.forward))
        body += [_store(low, let, clause, steps[item.name], clause_of) for clause in parts]
    return Loop(symbols[id(order)], host(_count(low, order)), order.forward, tuple(body))


def _count(low: Lowering, order: ir.Stepwise) -> ir.Expr:
    """The number of steps: the longest axis, and how far its definition lags behind."""
    later, span = dict(order.later), low.lets[order.axes[0][0]].span
    counts = list(dict.fromkeys(after(low.home(name)[axis].extent, later.get(name, 0)) for name, axis in order.axes))
    return counts[0] if len(counts) == 1 else build.apply("max", tuple(counts), "whole", span)


def _store(
    low: Lowering, let: ir.Let, clause: ir.Clause, steps: Mapping[int, tuple[ir.Expr, ir.Expr]], clause_of: ClauseOf
) -> Store:
    """One clause in a turn, under the tests that its steps are points of it."""
    home = low.home(let.name)
    here = {axis: host(step) for axis, (step, _) in steps.items()}
    tests: list[Value] = []
    for axis, (step, count) in steps.items():
        tests += _tests(low, clause, clause.slots[axis], step, count, let.span)
    slots, body = clause_of(low, let, clause, here)
    rest = tuple(
        (axis.name, slot)
        for n, (axis, slot) in enumerate(zip(home, slots, strict=True))
        if n not in steps and not (isinstance(slot.op, Iota) and slot.op.axis.extent == axis.extent)
    )
    return Store(let.name, tuple(tests), tuple(here.values()), rest, body)


def _tests(
    low: Lowering, clause: ir.Clause, slot: ir.Expr, step: ir.Expr, count: ir.Expr, span: Span
) -> list[Value]:
    """The tests of a slot, as comparisons of the step of the loop: that of the definition may lag behind."""
    (symbol,) = step.type.coordinates
    here = build.coord(symbol, span)
    lag = (polynomial(here) - polynomial(step)).constant or 0

    def compared(op: str, other: ir.Expr) -> Value:
        return host(build.apply(op, (here, after(other, lag)), "bool", span))

    if not isinstance(slot, ir.Coord):
        return [compared("==", low.number(slot, NOWHERE))]
    range = next(range for range in clause.ranges if range.coordinate == slot.coordinate)
    lower, upper = low.number(range.lower), low.number(range.upper)
    tests = [] if not lag and is_zero(lower) else [compared(">=", lower)]
    match upper:  # No step is beyond the count.
        case ir.Map("min", (end, other)) | ir.Map("min", (other, end)) if other == count:
            upper = end
    if not tests and upper == build.whole(1, upper.span):
        return [compared("==", build.whole(0, span))]
    return tests if after(upper, lag) == count else [*tests, compared("<", upper)]


def after(place: ir.Expr, lag: int) -> ir.Expr:
    """A place so many steps further on."""
    return expression(polynomial(place) + lag, place.span) if lag else place
