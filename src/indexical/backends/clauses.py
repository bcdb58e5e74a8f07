"""Definitions → statements: whole arrays, or arrays filled clause by clause."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.cache_writes import Append, find_append, find_put
from ..ir.types import SHORT, Dtype
from ..ir.walk import renamed_apart
from . import arrays, branches, integers, removal, scatter, sizes
from .base import Value, is_step, plain
from .code import ALL, ELLIPSIS, ZERO, Call, Name, Node, Slice, Tuple, call
from .integers import LARGEST
from .lowering import Lowering, Stored
from .removal import is_written, mask_name
from .scope import Place, Scope
from .values import aligned

NO_STEPS: Mapping[int, Node] = {}


# -------------------------------------------------------------- plain ones


def define_whole(low: Lowering, let: ir.Let) -> None:
    """A definition whose points can all be computed at once."""
    begin(low, let)
    variable = low.text.fresh(let.name)
    if not is_one(let):
        define_by_clauses(low, let, variable)
        return
    clause = let.clauses[0]
    if _append(low, let, clause, variable) or _put(low, let, clause, variable):
        return
    value = clause_value(low, let, clause, {})
    if not let.axes and value.python:
        low.text.assign(variable, value.code)
        low.stored[let.name] = Stored(variable, None, True)
        return
    own = low.handed_out is None or let.name in low.handed_out
    low.text.assign(variable, finished(low, let, value, clause, {}, own))
    starts = tuple(range.lower for range in clause.ranges)
    low.stored[let.name] = Stored(variable, low.dtypes[let.name], starts=starts)
    define_mask(low, let)


def _append(low: Lowering, let: ir.Let, clause: ir.Clause, variable: str) -> bool:
    """Write new rows into an array that is ours, behind those that it has: nothing is copied."""
    append = find_append(let, low.tensors)
    if append is None or low.isolate:
        return False
    dtype = low.dtypes[let.name]
    if not low.text.dialect.updates_in_place or low.dtypes[append.past] != dtype:
        low.decline("append", "the array that has what is past cannot be written to")
        return False
    assert isinstance(clause.body, ir.Select)
    first, end = (append.first, None) if append.count is None else (build.whole(0, clause.span), append.count)
    new = clause.body.then
    if append.count is not None:
        assert isinstance(new, ir.Read)
        new = replace(new, indices=clause.slots)
    ranges = tuple(
        replace(range, lower=first, upper=end or range.upper, stated=True) if number == append.axis else range
        for number, range in enumerate(clause.ranges)
    )
    rows = replace(clause, ranges=ranges, body=new)
    code = placed(low, let, clause_value(low, let, rows, {}), rows, {})
    past = Name(low.stored[append.past].variable)
    if append.count is None:
        low.text.assign(variable, past)
        low.text.store(variable, slots(low, let, rows, ()), code)
    else:
        put = call(low.text.helper("put_rows"), past, append.axis, _places(low, append, rows), code)
        low.text.assign(variable, put)
    low.stored[let.name] = Stored(variable, dtype)
    low.tell("new rows are written behind those that are kept")
    return True


def _places(low: Lowering, append: Append, rows: ir.Clause) -> Node:
    """The rows of an array at which new ones are written, as an array with its axes."""
    scope = scope_of(rows, {})
    here = build.apply("+", (append.first, rows.slots[append.axis]), "whole", rows.span)
    place = arrays.as_array(low, low.value(here, scope))
    return aligned(arrays.cast_to(low, place, "i64"), scope.sort(scope.places)).code


def define_by_clauses(low: Lowering, let: ir.Let, variable: str) -> None:
    """An array of zeros first, then each clause in its place."""
    shape = storage_shape(low, let)
    low.text.assign(variable, low.text.dialect.full(shape, zero_of(let), low.dtypes[let.name]))
    for clause in let.clauses:
        code = placed(low, let, clause_value(low, let, clause, {}), clause, {})
        low.text.store(variable, slots(low, let, clause, ()), code)
    low.stored[let.name] = Stored(variable, low.dtypes[let.name])
    define_mask(low, let)


def _put(low: Lowering, let: ir.Let, clause: ir.Clause, variable: str) -> bool:
    """Write new rows into an array that is ours, at the places that arrays name: nothing else of it is touched."""
    put = find_put(let, low.tensors)
    if put is None or low.isolate:
        return False
    dtype = low.dtypes[let.name]
    if low.dtypes[put.past] != dtype:
        low.decline("put", f"the array that has what is past holds {low.dtypes[put.past]}")
        return False
    ranges = (*put.over, *clause.ranges[len(put.places) :])
    coordinates = tuple(build.coord(range.coordinate, range.span) for range in ranges)
    new = replace(clause, slots=coordinates, ranges=ranges, body=put.new)
    value = arrays.cast_to(low, arrays.as_array(low, clause_value(low, let, new, {})), dtype)
    code = placed(low, let, value, new, {})
    low.text.assign(variable, Name(low.stored[put.past].variable))
    low.text.store(variable, tuple(Name(low.stored[name].variable) for name in put.places), code)
    low.stored[let.name] = Stored(variable, dtype)
    low.tell("new rows are written into their pages")
    return True


def is_one(let: ir.Let) -> bool:
    """Whether one clause has all points, with its coordinates in the order of the axes; `y[0]` has one point, and
    no coordinate for it."""
    clause = let.clauses[0]
    slots = tuple(slot.coordinate if isinstance(slot, ir.Coord) else None for slot in clause.slots)
    return len(let.clauses) == 1 and slots == tuple(range.coordinate for range in clause.ranges)


def begin(low: Lowering, let: ir.Let, covered: Sequence[ir.Let] = ()) -> None:
    """Start the statements of a definition with its lines, as a comment."""
    turn_to(low, let)
    if low.quiet:
        return
    low.text.blank()
    for text in dict.fromkeys(clause.span.text for other in (*covered, let) for clause in other.clauses):
        low.text.comment(text)


def turn_to(low: Lowering, let: ir.Let) -> None:
    """Weak numbers take the dtype of this definition from here on, and steps its name. What has 16 bits is
    computed with 32."""
    low.text.subject = let.name
    dtype = low.dtypes[let.name] if let.kind == "real" else "f64"
    low.compute = "f32" if dtype in SHORT else dtype
    low.label = step_name(low, let)


def step_name(low: Lowering, let: ir.Let) -> str:
    """The name of the steps of a definition: of a local one without the name of its owner. A number is no name."""
    ends = [end for end, letter in enumerate(let.name) if letter == "_"] if let.hidden else []
    owned = [end for end in ends if let.name[:end] in low.lets and not low.lets[let.name[:end]].hidden]
    name = let.name[owned[-1] + 1 :] if owned else let.name
    return name if len(name) <= 10 and name.isidentifier() and not keyword.iskeyword(name) else "part"


def storage_shape(low: Lowering, let: ir.Let) -> Tuple:
    return Tuple(tuple(sizes.extent(low, axis.extent) for axis in let.axes))


# ------------------------------------------------------------------ clauses


def scope_of(clause: ir.Clause, steps: Mapping[int, Node]) -> Scope:
    """The coordinates of a clause in the order of its slots; those of stepped axes have their step."""
    ranges = {range.coordinate: range for range in clause.ranges}
    scope = Scope({})
    for axis, slot in enumerate(clause.slots):
        if isinstance(slot, ir.Coord) and slot.coordinate in ranges:
            range = ranges[slot.coordinate]
            place = Place(range.lower, range.upper, not range.stated, None, steps.get(axis))
            scope = scope.binding(range, place)
    return scope


def clause_value(low: Lowering, let: ir.Let, clause: ir.Clause, steps: Mapping[int, Node]) -> Value:
    """The body, with 0 where the guard removes a point."""
    scope = replace(scope_of(clause, steps), asked=tuple(low.asked.get(let.name, ())))
    taken = {coordinate.name for coordinate in scope.places}
    body = renamed_apart(clause.body, taken)
    if clause.guard is None:
        return _typed(low, let, low.value(body, scope))
    zero = plain(zero_of(let), let.kind)
    guard = renamed_apart(clause.guard, taken)
    stored = scatter.put(low, guard, body, let.kind, scope)
    if stored is not None:
        return stored
    return branches.choose(
        low,
        guard,
        low.value(guard, scope),
        lambda inner: _typed(low, let, low.value(body, inner)),
        lambda inner: zero,
        let.kind == "real",
        scope,
    )


def _typed(low: Lowering, let: ir.Let, value: Value) -> Value:
    return arrays.as_real(low, value) if let.kind == "real" else value


def finished(
    low: Lowering, let: ir.Let, value: Value, clause: ir.Clause, steps: Mapping[int, Node], own: bool = True
) -> Value:
    """All points of the clause's slots, in the definition's dtype, in memory of its `own`."""
    scope = scope_of(clause, steps)
    axes = scope.sort(scope.places)
    dtype = low.dtypes[let.name]
    if value.python:
        return Value(low.text.dialect.full(sizes.shape(low, axes, scope), value.code, dtype), axes, let.kind, dtype)
    chosen = clause.guard is not None and isinstance(value.code, Call)
    shared = value.axes != axes or (not chosen and is_shared(low, clause.body, value))
    if shared and not own and not steps:
        low.borrowed.add(let.name)
    value = arrays.broadcast(low, arrays.in_order(low, value, axes), axes, scope)
    if value.dtype != dtype:
        value = narrowed(low, value, dtype, clause, scope)
    elif shared and own:
        value = value.but(low.text.dialect.copy(value.code))
    return value


def placed(low: Lowering, let: ir.Let, value: Value, clause: ir.Clause, steps: Mapping[int, Node]) -> Node:
    """The value that is stored at the clause's slots of an array, which broadcasts and rounds it by itself."""
    if value.python:
        return value.code
    scope = scope_of(clause, steps)
    axes = scope.sort(scope.places)
    value = arrays.in_order(low, value, axes)
    rounds = low.text.dialect.updates_in_place and low.dtypes[let.name] not in ("i32", "bf16")
    if value.dtype != low.dtypes[let.name] and not rounds:
        value = narrowed(low, value, low.dtypes[let.name], clause, scope)
    return aligned(value, axes).code


def narrowed(low: Lowering, value: Value, dtype: Dtype, clause: ir.Clause, scope: Scope) -> Value:
    """Rounded to the definition's dtype; whole numbers of 32 bits have to fit."""
    if dtype == "i32" and integers.largest(low, clause.body, scope) > LARGEST["i32"]:
        return value.but(call(low.text.helper("fitting_32"), value.code), dtype=dtype)
    return replace(arrays.cast_to(low, value, dtype), kind=value.kind)


def is_shared(low: Lowering, body: ir.Expr, value: Value) -> bool:
    """Whether a value is another one's memory, which the caller holds too or may come to hold."""
    if is_step(value.code):
        return False
    match body:
        case ir.Select(_, then, otherwise):
            return is_shared(low, then, value) or is_shared(low, otherwise, value)
        case ir.Map(op, (operand,)) if op.startswith("as "):
            return is_shared(low, operand, value)
    if not isinstance(body, ir.Read) or body.tensor in low.borrowed:
        return isinstance(body, ir.Read)
    return body.tensor not in low.lets or not low.lets[body.tensor].hidden


def slots(
    low: Lowering, let: ir.Let, clause: ir.Clause, without: tuple[int, ...], steps: Mapping[int, Node] = NO_STEPS
) -> tuple[Node, ...]:
    """The indices at which the points of a clause are stored."""
    ranges = {range.coordinate: range for range in clause.ranges}
    slots: list[Node] = []
    for n, (slot, axis) in enumerate(zip(clause.slots, let.axes, strict=True)):
        if n in without:
            continue
        if n in steps:
            slots.append(steps[n])
        elif isinstance(slot, ir.Coord):
            range = ranges[slot.coordinate]
            start, stop = sizes.number(low, range.lower), sizes.number(low, range.upper)
            length = low.prover.polynomial(axis.extent)
            if not low.prover.entails((), low.prover.polynomial(range.upper), also=(length - 1,)):
                stop = call("max", 0, stop)
            whole = sizes.is_same(low, range.upper, axis.extent)
            slots.append(Slice(None if start == ZERO else start, None if whole else stop))
        else:
            slots.append(sizes.number(low, slot))
    while slots and slots[-1] == ALL:
        slots.pop()
    return tuple(slots) or (ELLIPSIS,)


# -------------------------------------------------------------------- masks


def define_mask(low: Lowering, let: ir.Let) -> None:
    """Define a mask of the removed points beside a definition: where NaN must be isolated, and no condition can be
    written for them."""
    if not low.isolate or not removal.may_remove(low, let.name):
        return
    conditions = [removal.clause_removal(low, clause) for clause in let.clauses]
    if is_written(let, conditions[0]):
        return
    mask = mask_of(low, let)
    variable = low.text.fresh(f"{let.name}_removed")
    low.text.assign(variable, low.text.dialect.full(storage_shape(low, let), zero_of(mask), "bool"))
    for clause in mask.clauses:
        code = placed(low, mask, clause_value(low, mask, clause, {}), clause, {})
        low.text.store(variable, slots(low, mask, clause, ()), code)
    low.stored[mask.name] = Stored(variable, "bool")


def mask_of(low: Lowering, let: ir.Let) -> ir.Let:
    """The mask beside a definition, as a definition."""
    clauses = []
    for clause in let.clauses:
        condition = removal.clause_removal(low, clause) or build.truth(False, clause.span)
        clauses.append(replace(clause, body=condition, guard=None))
    mask = replace(let, name=mask_name(let.name), kind="bool", clauses=tuple(clauses), hidden=True)
    low.tensors = {**low.tensors, mask.name: mask}
    low.dtypes[mask.name] = "bool"
    return mask


def is_partial(low: Lowering, let: ir.Let, clause: ir.Clause, stepped: Collection[int]) -> bool:
    """Whether a clause fills only a part of its row."""
    ranges = {range.coordinate: range for range in clause.ranges}
    for n, (slot, axis) in enumerate(zip(clause.slots, let.axes, strict=True)):
        if n in stepped:
            continue
        if not isinstance(slot, ir.Coord):
            return True
        range = ranges[slot.coordinate]
        if not range.from_zero or not sizes.is_same(low, range.upper, axis.extent):
            return True
    return False


def zero_of(tensor: ir.Let | ir.Input) -> Node:
    return Name("False") if tensor.kind == "bool" else ZERO
