"""Definitions: inputs, clauses, and the plan of all that is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from ...ir import build
from ...ir import nodes as ir
from ...ir.context import agreed
from ...ir.needs import asserted, members, reached
from ...ir.removal import removal_of, removal_through
from ...ir.types import Dtype
from ...ir.walk import reads_of
from ...records import replace
from ..ops import Axis, Check, Definition, Input, Iota, Join, Opaque, Plan, Value, host, value
from . import elementwise, recurrences
from .folds import fold
from .lowering import Lowering
from .ranges import bind
from .scope import NOWHERE, Scope


def planned(low: Lowering, wanted: tuple[str, ...]) -> Plan:
    """The plan of some definitions, of all that they are made of, and of all assertions."""
    low.wanted = wanted
    low.removed = removal_through(low.lets, partial(_removed, low))
    inputs = tuple(_input(low, tensor) for tensor in low.program.inputs)
    needed = _needed(low, wanted)
    for order in low.program.order:
        if needed.isdisjoint(members(order)):
            continue
        match order:
            case ir.Once(name) | ir.Stepwise(((name, _), *_)) if name in low.kernels:
                low.values[name] = _kernel(low, low.lets[name])
            case ir.Once(name):
                low.values[name] = define(low, low.lets[name])
            case ir.Stepwise():
                recurrences.define(low, order, clause_of)
    definitions = {name: _definition(low, low.lets[name]) for name in low.values if name in low.lets}
    low.compute = None
    for claim in low.program.asserts:
        condition = low.value(claim.condition, NOWHERE)
        low.checks.setdefault(Check(condition, "IX506", claim.message, claim.span))
    checks = tuple(low.checks)
    return Plan(low.program, inputs, definitions, wanted, _agreed(low), checks, tuple(low.told), spans=low.spans)


def _needed(low: Lowering, wanted: tuple[str, ...]) -> set[str]:
    """The definitions that are computed: those wanted, those asserted, and what these and the kernels read."""

    def reads(name: str) -> Iterable[str]:
        if name in low.kernels:
            return low.kernels[name].reads
        return (read.tensor for read in reads_of(low.lets[name])) if name in low.lets else ()

    return low.lets.keys() & reached((*wanted, *asserted(low.program)), reads)


def _kernel(low: Lowering, let: ir.Let) -> Value:
    """A definition that a kernel computes, of the former emitter or as an operation."""
    kernel = low.kernels[let.name]
    if kernel.fold is not None:
        return fold(low, let, kernel.fold)
    read, home = tuple((name, low.values[name]) for name in kernel.reads), low.home(let.name)
    found = value(Opaque(let.name, kernel.label, kernel, read, home, let.kind, low.dtypes[let.name]))
    return found if kernel.few is None else fold(low, let, kernel.few, found)


def _agreed(low: Lowering) -> tuple[tuple[ir.Expr, ir.Expr], ...]:
    """Pairs of extents that must be equal, and are not so by themselves."""
    pairs = ((one, other) for one, other in agreed(low.program) if low.known_so_far(one, other))
    found = dict.fromkeys((low.extent(one), low.extent(other)) for one, other in pairs)
    return tuple(pair for pair in found if pair[0] != pair[1])


def _input(low: Lowering, tensor: ir.Input) -> Value:
    """An input. A whole scalar is a number of the host, unless it comes as an array that nobody should wait for; a real
    one is an array, so that gradients flow, unless it comes as a number."""
    dtype = low.given.get(tensor.name)
    found = value(Input(tensor.name, low.home(tensor.name), tensor.kind, dtype, tensor.owned, tensor.counts))
    is_number = tensor.name not in low.arrays if tensor.kind == "whole" else tensor.name in low.numbers
    if not tensor.axes and is_number:
        low.values[tensor.name] = host(build.read(tensor.name, (), tensor.kind, tensor.span))
    else:
        low.values[tensor.name] = found
    return found


def _removed(low: Lowering, read: ir.Read) -> ir.Expr | None:
    """Where a definition of several clauses is removed: a mask beside it, which is a definition of its own."""
    let, name = low.lets[read.tensor], f"{read.tensor} removed"
    if let.name not in low.values or (name in low.dtypes and name not in low.tensors):
        return None  # It is being computed, or its mask is.
    if name not in low.tensors:
        low.dtypes[name] = "bool"
        conditions = [removal_of(clause, low.removed) for clause in let.clauses]
        if all(condition is None for condition in conditions):
            return None
        clauses = tuple(
            replace(clause, body=condition or build.truth(False, clause.span), guard=None)
            for clause, condition in zip(let.clauses, conditions, strict=True)
        )
        mask = low.tensors[name] = replace(let, name=name, kind="bool", clauses=clauses, hidden=True)
        compute = low.compute
        low.values[name] = define(low, mask)
        low.compute = compute
    return build.read(name, read.indices, "bool", read.span)


def _definition(low: Lowering, let: ir.Let) -> Definition:
    return Definition(let.name, low.home(let.name), low.values[let.name], let.kind, low.dtypes[let.name], let)


def define(low: Lowering, let: ir.Let) -> Value:
    """A definition whose points can all be computed at once."""
    low.turn_to(let)
    home = low.home(let.name)
    parts = [clause_of(low, let, clause, {}) for clause in let.clauses]
    slots, body = parts[0]
    if len(parts) == 1 and all(is_all(slot, axis) for slot, axis in zip(slots, home, strict=True)):
        return body
    return value(Join(home, tuple(parts), let.kind, dtype_of(low, let)))


def clause_of(
    low: Lowering, let: ir.Let, clause: ir.Clause, steps: Mapping[int, Value]
) -> tuple[tuple[Value, ...], Value]:
    """The slots of a clause in the axes of its home, and its value there; 0 where its guard fails."""
    home, scope = low.home(let.name), Scope({}, within=let.name)
    names = {slot.coordinate: n for n, slot in enumerate(clause.slots) if isinstance(slot, ir.Coord)}
    for range in clause.ranges:
        at = names.get(range.coordinate)
        if at is not None and at in steps:
            scope = _stepped(scope, range, steps[at])
        else:
            scope = bind(low, range, scope, None if at is None else home[at].name)
    slots = tuple(steps[n] if n in steps else low.value(slot, scope) for n, slot in enumerate(clause.slots))
    guard = None if clause.guard is None else low.value(clause.guard, scope)
    inner = scope.where(clause.guard)
    body = elementwise.as_kind(low, low.value(clause.body, inner), let, inner)
    if guard is not None:
        body = elementwise.where(low, guard, body, elementwise.zero(let.kind, clause.span))
    low.spans.setdefault(body, clause.span)
    return slots, body


def _stepped(scope: Scope, range: ir.Range, step: Value) -> Scope:
    places = {**scope.places, range.coordinate: step}
    stepped = scope.stepped | {range.coordinate}
    return replace(scope, places=places, box=(*scope.box, range), stepped=stepped)


def dtype_of(low: Lowering, let: ir.Let) -> Dtype | None:
    """The dtype of a definition's array; None where it is weak."""
    return None if let.name in low.weak else low.dtypes[let.name]


def is_all(slot: Value, axis: Axis) -> bool:
    """Whether a slot is every point of an axis, in order."""
    return isinstance(slot.op, Iota) and slot.op.axis.extent == axis.extent
