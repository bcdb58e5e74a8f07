"""What is well formed: a specification of plans. `tests/engine/test_spec.py` runs it after lowering, after every table
of rules and after the passes that follow, for all examples and every library; and every test of the engine after what
is rewritten when it compiles a program.

A plan that it finds nothing wrong with may still compute the wrong numbers; one that it finds fault with was made by a
rule or a pass that forgot something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.affine import polynomial
from ..ir.functions import FUNCTIONS
from ..ir.types import DEFAULT_DTYPE, Coordinate, Dtype
from .ops import (
    OUTSIDE,
    Axis,
    Carried,
    Contract,
    Definition,
    Input,
    Join,
    Library,
    Loop,
    Map,
    Normalize,
    Number,
    Op,
    Opaque,
    Plan,
    Put,
    Read,
    Reduce,
    Result,
    Store,
    Table,
    Value,
    Write,
    value,
)
from .order import reachable, roots_of, stored
from .typed import COMPARISONS, CONNECTIVES, stepped, typed

_TWO = COMPARISONS | {"&&", "||", "+", "-", "*", "/", "//", "%", "**"}


class Malformed(AssertionError):
    """A plan that is not well formed: what is wrong with it, each in a line."""


def check(plan: Plan, legal: bool = False) -> Plan:
    """The plan itself; `Malformed` where something is wrong with it. `legal`: what is left must be printable."""
    found = verify(plan, legal)
    if found:
        raise Malformed("\n".join(found))
    return plan


def verify(plan: Plan, legal: bool = False) -> list[str]:
    """Everything that is wrong with a plan; nothing, for one that is well formed."""
    return [*_definitions(plan), *_values(plan, legal)]


# ------------------------------------------------------------------------- definitions


def _definitions(plan: Plan) -> Iterator[str]:
    for name in plan.wanted:
        if name not in plan.definitions and name not in {_name(one) for one in plan.inputs}:
            yield f"`{name}` is wanted, and is neither defined nor given"
    for given in plan.inputs:
        if not isinstance(given.op, Input):
            yield f"an input is {given!r}"
    for name, definition in plan.definitions.items():
        yield from _definition(name, definition)
    for one in plan.checks:
        if one.condition.kind != "bool" or one.condition.axes:
            yield f"the condition of {one.message!r} is no single truth"


def _name(one: Value) -> str | None:
    return one.op.name if isinstance(one.op, Input) else None


def _definition(name: str, definition: Definition) -> Iterator[str]:
    made, home = definition.value, {axis.name: axis for axis in definition.home}
    where = f"the definition `{name}`"
    if len(home) != len(definition.home):
        yield f"{where} has an axis twice in its home"
    for axis in made.axes:
        if axis.name not in home:
            yield f"{where} has no axis `{axis.name}`, and its value has"
        elif not _same_extent(axis, home[axis.name]):
            yield f"{where} has another extent along `{axis.name}` than its value"
    if made.kind != definition.kind:
        yield f"{where} is {definition.kind}, and its value {made.kind}"
    if made.symbols:
        yield f"{where} varies with {_listed(made.symbols)}, a step of a loop that is over"
    if carried := _carried(made, {}):
        yield f"{where} reads {_listed(carried)} of a recurrence that is not done"


def _carried(one: Value, memo: dict[Value, frozenset[str]]) -> frozenset[str]:
    """The definitions that a value reads while they are being computed."""
    for part in reachable((one,)):
        own = frozenset((part.op.name,)) if isinstance(part.op, Carried) else frozenset[str]()
        inner = own.union(*(memo[other] for other in part.parts))
        memo[part] = inner.difference(stored(part.op.loop)) if isinstance(part.op, Result) else inner
    return memo[one]


# ------------------------------------------------------------------------------ values


def _values(plan: Plan, legal: bool) -> Iterator[str]:
    roots = [definition.value for definition in plan.definitions.values()]
    for one in reachable([*roots, *roots_of(plan)]):
        for words in (*_type(one), *_operation(one.op), *(_illegal(one.op) if legal else ())):
            yield f"{one!r}: {words}"


def _type(one: Value) -> Iterator[str]:
    """A value is interned, and all of it follows from its operation."""
    again = typed(one.op)
    if value(one.op) is not one:
        yield "is not the one value of its operation"
    for field in ("axes", "kind", "dtype", "symbols", "known"):
        if getattr(one, field) != getattr(again, field):
            yield f"its {field} is {getattr(one, field)}, and by its operation {getattr(again, field)}"
    names = [axis.name for axis in one.axes]
    if names != sorted(set(names)):
        yield "its axes are not sorted, or one is there twice"
    for axis in one.axes:
        if axis.extent.type.kind != "whole":
            yield f"the extent of `{axis.name}` is no whole number"
        held = [part for part in one.parts if axis.name in part.names and not _binds(one.op, axis.name)]
        for part in held:
            if not _same_extent(part.axis(axis.name), axis):
                yield f"`{axis.name}` has another extent in {part!r}"


def _binds(op: Op, name: Coordinate) -> bool:
    """Whether an operation takes an axis of this name from an operand and may give another one of that name."""
    match op:
        case Read(index=index):
            return any(name == one for one, _ in index)
        case Write(gone=gone) | Put(gone=gone):
            return any(name == axis.name for axis in gone)
        case Join() | Result() | Opaque() | Library():
            return True
    return False


def _same_extent(one: Axis, other: Axis) -> bool:
    return one.extent == other.extent or polynomial(one.extent) == polynomial(other.extent)


def _operation(op: Op) -> Iterator[str]:
    match op:
        case Map():
            yield from _map(op)
        case Read(source, index, outside, under):
            if not index or [name for name, _ in index] != sorted({name for name, _ in index}):
                yield "its index is empty, not sorted by name, or has a name twice"
            for name, at in index:
                if name not in source.names:
                    yield f"it reads at `{name}`, which the source has not"
                if at.kind != "whole":
                    yield f"its place along `{name}` is {at.kind}, not whole"
            yield from _guard(outside, under)
        case Write(values, index, gone, _, outside, under):
            yield from _bound(gone, (values, *(place for _, place in index)))
            if not index or [axis.name for axis, _ in index] != sorted({axis.name for axis, _ in index}):
                yield "its index is empty, not sorted by name, or has a name twice"
            for axis, place in index:
                if place.kind != "whole":
                    yield f"its place along `{axis.name}` is {place.kind}, not whole"
                if axis.name in values.names.union(*(at.names for _, at in index)) - {each.name for each in gone}:
                    yield f"`{axis.name}` is written, and stays from the values as well"
            yield from _guard(outside, under)
        case Put(into, index, values, gone):
            yield from _bound(gone, (values, *(at for _, at in index)))
            if any(name not in into.names or at.kind != "whole" for name, at in index):
                yield "it stores at an axis that the array has not, or at what is no place"
            array = into.op.source if isinstance(into.op, Read) else into
            if not isinstance(array.op, Input) or not array.op.owned:
                yield "it stores in an array that nobody gave away"
            if values.kind != into.kind or _dtypes((values,)) - _dtypes((into,)):
                yield "what it stores is of another dtype than the array"
        case Reduce(fn, source, over, where):
            yield from _bound(over, (source,) if where is None else (source, where), all_there=False)
            yield from _truth(where)
            if fn in ("argmax", "argmin") and len(over) != 1:
                yield f"it is an {fn} over {len(over)} axes"
        case Contract(factors, over):
            yield from _bound(over, factors)
            if len(_dtypes(factors)) != 1:
                yield f"its factors are {_listed(_dtypes(factors))}: promotion is a cast of its own"
        case Normalize(where=where):
            yield from _truth(where)
        case Join() | Table() | Opaque() | Result():
            yield from _placed(op)


def _map(op: Map) -> Iterator[str]:
    fn, args = op.fn.removeprefix("some "), op.args
    if op.fn != fn:  # A reduction, and a condition that it is over some points.
        if len(args) != 2 or args[1].kind != "bool":
            yield f"`{op.fn}` is not of a value and a truth"
        return
    arity = 3 if fn == "where" else 2 if fn in _TWO else 1 if fn in ("!", "neg") or fn.startswith("as ") else None
    if arity is None:
        arity = FUNCTIONS[fn].arity if fn in FUNCTIONS else -1
    if arity != len(args) and (arity is not None or len(args) < 2):
        yield f"`{fn}` has {len(args)} arguments" if arity != -1 else f"there is no function `{fn}`"
        return
    truths = args[:1] if fn == "where" else args if fn in CONNECTIVES else ()
    if any(one.kind != "bool" for one in truths):
        yield f"a condition of `{fn}` is no truth"
    numbers = args[1:] if fn == "where" else () if fn in CONNECTIVES or fn.startswith("as ") else args
    if any(one.kind == "real" for one in numbers) and len(_dtypes(numbers)) > 1:
        yield f"its arguments are {_listed(_dtypes(numbers))}: promotion is a cast of its own"


def _dtypes(parts: Iterable[Value]) -> set[Dtype]:
    """The dtypes of arrays as a library holds them; a number of the host has none."""
    return {one.dtype or DEFAULT_DTYPE[one.kind] for one in parts if not one.is_host}


def _bound(over: tuple[Axis, ...], parts: tuple[Value, ...], all_there: bool = True) -> Iterator[str]:
    """Axes that an operation takes away: sorted, each once, and each in some operand. A reduction may be over an axis
    that nothing varies with, as it counts its points."""
    names = [axis.name for axis in over]
    if names != sorted(set(names)):
        yield "the axes that it takes away are not sorted, or one is there twice"
    for axis in over:
        held = [part.axis(axis.name) for part in parts if axis.name in part.names]
        if all_there and not held:
            yield f"it takes `{axis.name}` away, which no operand has"
        if any(not _same_extent(one, axis) for one in held):
            yield f"it takes `{axis.name}` away with another extent than an operand has"


def _guard(outside: str, under: Value | None) -> Iterator[str]:
    if outside not in OUTSIDE:
        yield f"outside is {outside!r}"
    if under is not None and outside != "check":
        yield "it has a guard for a check, and no check"
    yield from _truth(under)


def _truth(where: Value | None) -> Iterator[str]:
    if where is not None and where.kind != "bool":
        yield f"its guard is {where.kind}, and no truth"


def _illegal(op: Op) -> Iterator[str]:
    """What no printer prints: a guard that `LEGAL` has to turn into a `where`."""
    if isinstance(op, Reduce | Normalize) and op.where is not None:
        yield "it has a guard that was to become a `where`"


# --------------------------------------------------------- what has a home, and what is stepped


def _placed(op: Join | Table | Opaque | Result) -> Iterator[str]:
    home = op.of.home if isinstance(op, Result) else op.home
    if len({axis.name for axis in home}) != len(home):
        yield "an axis is there twice in its home"
    match op:
        case Join(parts=parts):
            for slots, part in parts:
                yield from _slots(slots, len(home))
                if part.names - frozenset(name for slot in slots for name in slot.names):
                    yield "a part has an axis that none of its slots has"
        case Result(loop, of):
            if of.name not in stored(loop):
                yield f"its loop does not store `{of.name}`"
            yield from _loop(loop, frozenset(), set())


def _slots(slots: Iterable[Value], count: int) -> Iterator[str]:
    slots = tuple(slots)
    if len(slots) != count:
        yield f"it has {len(slots)} slots for {count} axes"
    for slot in slots:
        if slot.kind != "whole" or len(slot.axes) > 1 or (slot.axes and slot.known.whole is None):
            yield f"the slot {slot!r} is neither a number nor an axis plus a number"


def _loop(loop: Loop, outer: frozenset[Coordinate], seen: set[Coordinate]) -> Iterator[str]:
    """What is inside a loop varies with its steps and with those around it, and with no other."""
    if loop.symbol in outer or loop.symbol in seen:
        yield f"the step `{loop.symbol}` is bound twice"
    seen.add(loop.symbol)
    if not isinstance(loop.count.op, Number) or loop.count.kind != "whole" or loop.count.symbols - outer:
        yield f"the count of the loop over `{loop.symbol}` is no number that is known before it"
    inner = outer | {loop.symbol}
    for item in loop.body:
        if isinstance(item, Loop):
            yield from _loop(item, inner, seen)
            continue
        yield from _store(item, inner)


def _store(item: Store, steps: frozenset[Coordinate]) -> Iterator[str]:
    where = f"a row of `{item.name}`"
    for part in (*item.tests, *item.steps, *(at for _, at in item.slots), item.value):
        if part.symbols - steps and (loose := _steps(part) - steps):
            yield f"{where} varies with {_listed(loose)}, which no loop around it steps"
    if any(test.kind != "bool" or test.axes for test in item.tests):
        yield f"a test of {where} is no single truth"
    if any(step.kind != "whole" or step.axes for step in item.steps):
        yield f"a step of {where} is no single whole number"
    yield from _slots((at for _, at in item.slots), len(item.slots))


def _steps(one: Value) -> frozenset[Coordinate]:
    """The steps whose numbers a value is made of. What is carried changes with the steps of all loops that store it,
    and may be read outside of the inner ones."""
    parts = reachable((one,))
    found = frozenset[Coordinate]().union(*(part.symbols for part in parts if isinstance(part.op, Number)))
    return found.difference(*(stepped(part.op.loop) for part in parts if isinstance(part.op, Result)))


def _listed(words: Iterable[object]) -> str:
    return ", ".join(sorted(f"`{word}`" for word in words))
