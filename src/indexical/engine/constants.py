"""What is the same in all calls of known sizes: masks, tables, positions; and views of weights that stay.

`apart` takes a plan apart in two. One computes what is kept, once for each device; the other takes it as further inputs
after its own, and is called again and again. So neither the printer nor a dialect knows that anything is kept.

A kept array is shared by all calls. Operations never write to their operands, so it may be an operand of any; but it is
never handed out, nor is a view of it: what a call returns is made anew in each call. Of a weight only views are kept,
which have its numbers also after these were changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count
from math import prod
from typing import Any

from ..ir import nodes as ir
from ..ir.types import Dtype
from ..ir.walk import walk
from ..records import dataclass, replace
from .layouts import layouts
from .ops import (
    Axis,
    Contract,
    Definition,
    Either,
    Input,
    Iota,
    Join,
    Loop,
    Map,
    Number,
    Opaque,
    Plan,
    Put,
    Read,
    Reduce,
    Result,
    Table,
    Value,
    Write,
    value,
)
from .order import is_view, mapped, ordered, reachable, roots_of, stored

# Points of one array that is kept: a mask of 1,024 queries by as many keys; and of all: two such masks.
POINTS, ALL_POINTS = 1 << 20, 1 << 21

_STRONG: dict[str, Dtype] = {"real": "f64", "whole": "i64", "bool": "bool"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of calls: the arrays of one like them, by their names, those that grow among them; whether some
    array `learns`; and whether arrays may be kept."""

    arrays: Mapping[str, Any]
    growing: frozenset[str] = frozenset()
    learns: bool = True
    keeps: bool = True


@dataclass(frozen=True, slots=True)
class Apart:
    """A plan in two: `kept` computes what stays the same in all calls, of the inputs that are held; `plan` takes the
    results of it after its own inputs."""

    plan: Plan
    kept: Plan


def apart(
    plan: Plan,
    held: Collection[str] = (),
    points: int = POINTS,
    all_points: int = ALL_POINTS,
    memo: dict[Value, Value] | None = None,
) -> Apart:
    """A plan of known sizes without what is the same in all calls, and a plan for that. Inputs that are `held` are the
    same arrays in all calls. An array of more than so many `points` is computed in each call. What each value became is
    written into `memo`."""
    order, owners = layouts(plan), _owners(plan)
    taken = {*plan.definitions, *(one.op.name for one in plan.inputs if isinstance(one.op, Input))}
    kept: dict[Value, Definition] = {}
    inputs: dict[Value, Value] = {}
    names = (name for number in count() if (name := f"kept_{number}") not in taken)
    for one in _kept(plan, frozenset(held), points, all_points):
        name = next(names)
        home = tuple(one.axis(axis) for axis in order[one])
        kept[one] = Definition(name, home, one, one.kind, one.dtype or _STRONG[one.kind], owners[one].let)
        inputs[one] = value(Input(name, home, one.kind, one.dtype))
    rest = mapped(plan, lambda one: one, memo, inputs)
    made = {one.name: one for one in kept.values()}
    used = {one for one in reachable(kept) if isinstance(one.op, Input)}
    first = Plan(plan.program, tuple(one for one in plan.inputs if one in used), made, tuple(made), spans=plan.spans)
    return Apart(replace(rest, inputs=(*rest.inputs, *inputs.values())), first)


def _owners(plan: Plan) -> dict[Value, Definition]:
    """The first definition that each value is a part of."""
    found: dict[Value, Definition] = {}
    for definition in plan.definitions.values():
        waiting = [definition.value]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found[one] = definition
                waiting += one.parts
    last = next(reversed(plan.definitions.values()))
    return {one: found.get(one, last) for one in reachable([*found, *roots_of(plan)])}


def _kept(plan: Plan, held: frozenset[str], points: int, all_points: int) -> Iterator[Value]:
    """The values that are kept: the last of what follows from constants, or is a view of what is held."""
    values = ordered(plan)
    refused = handed_out(plan) | _read_by_place(values)
    stays: set[Value] = set()
    for one in values:
        if _is_constant(one, stays) or _is_held(one, held, stays):
            stays.add(one)
    left = all_points
    seen: set[Value] = set()
    read = set(roots_of(plan))
    for one in reversed(values):  # Readers first: what only kept values read is not kept itself.
        if one not in read or one in seen:
            continue
        seen.add(one)
        size = _points(one)
        is_kept = one in stays and one not in refused and _is_array(one)
        if is_kept and size <= min(points, left):
            left -= size
            yield one
        else:
            read.update(one.parts)


def _is_constant(one: Value, stays: set[Value]) -> bool:
    """Whether a value follows from the plan alone. A kernel is called in each call: it is printed elsewhere."""
    match one.op:
        case Opaque() | Either():
            return False
        case Number(expr):
            return not any(isinstance(part, ir.Size | ir.Read | ir.Coord) for part in walk(expr))
        case Iota() | Table():
            return all(isinstance(axis.extent, ir.Const) for axis in one.axes)
    parts = one.parts
    is_whole = not one.symbols and all(isinstance(axis.extent, ir.Const) for axis in _bound(one))
    return bool(parts) and is_whole and all(part in stays for part in parts)


def _is_held(one: Value, held: frozenset[str], stays: set[Value]) -> bool:
    """Whether a value is a view of an input that is the same array in all calls."""
    match one.op:
        case Input(name):
            return name in held
        case Read(outside="never"):
            return is_view(one) and not one.symbols and all(part in stays for part in one.parts)
    return False


def _is_array(one: Value) -> bool:
    """Whether a value is an array that is worth keeping; a single whole number is a number to whoever takes it."""
    return not isinstance(one.op, Number | Input) and (bool(one.axes) or one.kind == "real")


def _bound(one: Value) -> tuple[Axis, ...]:
    over = one.op.over if isinstance(one.op, Reduce | Contract) else ()
    return (*one.axes, *over)


def _points(one: Value) -> int:
    """The points of a constant; a view of what is held has none of its own."""
    if is_view(one) and not isinstance(one.op, Iota):
        return 0
    return prod(int(axis.extent.value) for axis in one.axes if isinstance(axis.extent, ir.Const))


def handed_out(plan: Plan) -> set[Value]:
    """The values whose memory the result of a call may share."""
    found: set[Value] = set()
    waiting = roots_of(plan)
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += shared(one)
            if isinstance(one.op, Opaque):  # A kernel may return what it is given, where there is nothing to do.
                waiting += [part for _, part in one.op.operands if part.kind == one.kind]
    return found


def shared(one: Value) -> tuple[Value, ...]:
    """The operands that the array of a value may be a view of."""
    match one.op:
        case Read(source):
            return (source,)
        case Map("where", (test, *sides)):
            return tuple(sides) if not test.axes else ()
        case Map(fn, args):
            return args if fn.startswith(("as ", "some ")) else ()
        case Reduce(source=source, over=over):
            return () if over else (source,)
        case Contract(factors, over):
            return () if over else factors
        case Join(parts=parts):
            return tuple(part for _, part in parts)
        case Result(loop):  # A row that is read alone may be what was stored.
            return tuple(store.value for stores in stored(loop).values() for store in stores)
    return ()


def _read_by_place(values: list[Value]) -> set[Value]:
    """The places that a slice, a stride or a clause is made of, and their parts: known as sums of positions, they are
    no arrays."""
    found: set[Value] = set()
    for one in values:
        match one.op:
            case Read(index=index) | Put(index=index) | Write(index=index):
                found.update(at for _, at in index if at.known.whole is not None)
            case Join(parts=parts):
                found.update(at for slots, _ in parts for at in slots)
            case Result(loop):
                found.update(_slots(loop))
    return set(reachable(found))


def _slots(loop: Loop) -> Iterator[Value]:
    for item in loop.body:
        if isinstance(item, Loop):
            yield from _slots(item)
        else:
            yield from (at for _, at in item.slots)
