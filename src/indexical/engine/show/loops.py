"""Recurrences as Python source: loops over rows, which are a list by step, or an array that is filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...ir.affine import is_counted, of_atom, polynomial
from ..ops import Carried, Input, Join, Loop, Number, Read, Result, Store, Table, Value, operands, value
from ..order import reachable, roots_of, stored
from ..typed import stepped
from .code import COMPARE, Code, call, closed, tupled
from .joins import Slot, slot
from .numbers import number
from .once import Before
from .rows import Rows, count_of, expr_at, so_far
from .turns import first_turn, is_local, kept_for, last_rows, later_turns, made_by, made_until, needed_tests

if TYPE_CHECKING:
    from .printer import Printer


LONGEST = 100  # What is stored needs no name of its own, unless it is longer than this.


def result(p: Printer, one: Value) -> Code:
    """A definition after its loop, which is printed with the first of its definitions: an array, or the rows where only
    single ones are read."""
    op = one.op
    assert isinstance(op, Result)
    if op.of.name not in p.rows:
        _open(p, op.loop)
    rows = p.rows[op.of.name]
    if one not in p.by_rows or rows.filled:
        return so_far(p, op.of)
    p.names[one] = rows.variable
    return Code(rows.variable)


# -------------------------------------------------------------------------- loops


def _open(p: Printer, loop: Loop) -> None:
    """A loop and all its rows; what begins them stands before it, where it is needed."""
    inside = reachable(made_by(loop))
    reads = [one.op for one in inside if isinstance(one.op, Read)]
    others = [part.op for one in inside if not isinstance(one.op, Read) for part in one.parts]
    wholes = {op.name for op in others if isinstance(op, Carried)}
    after = {one.op.of.name: one for one in reachable(roots_of(p.plan)) if isinstance(one.op, Result)}
    for name in stored(loop):
        op = _carried(p, name)
        kept = None if name in wholes else kept_for(op, loop, reads)
        if name in after and kept is not None:
            last = last_rows(loop, p.by_rows.get(after[name]))
            kept = None if last is None else max(kept, last)
        filled, until = p.d.fills_rows and kept is None, made_until(loop, name)
        always = until is not None and is_counted(until - count_of(loop))
        local = kept is not None and name not in after and is_local(loop, name, always)
        whole = filled or local
        variable = p.own_names[name] if whole and name in p.own_names else p.fresh(name if whole else f"{name}_rows")
        zero = variable if local else p.fresh(f"{name}_zero")
        p.rows[name] = Rows(op, loop, variable, filled, until, kept, zero, local)
    begin = len(p.lines)
    _turns(p, loop)
    for name in stored(loop).keys() & after.keys():
        rows = p.rows[name]
        is_whole = rows.has(count_of(loop) - 1) if after[name] in p.by_rows else rows.stacks
        rows.uses_zero |= not (rows.filled or is_whole)
    p.insert(begin, list(_begun(p, stored(loop))))


def _begun(p: Printer, names: dict[str, list[Store]]) -> Iterator[str]:
    """The lines that begin the rows of definitions."""
    from .printer import dtype_of

    for name in names:
        rows = p.rows[name]
        if rows.local:
            continue
        dtype = dtype_of(value(rows.of))
        indent = "    " * p.depth
        if rows.filled:
            yield f"{indent}{rows.variable} = {p.d.zeros(p, p.shape(rows.of.home), dtype)}"
        else:
            yield f"{indent}{rows.variable} = {{}}"
        if rows.uses_zero:
            shape = p.shape(axis for axis in rows.of.home if axis.name not in rows.of.steps)
            yield f"{indent}{rows.zero} = {p.d.zeros(p, shape, dtype)}"


def _carried(p: Printer, name: str) -> Carried:
    """The definition of a recurrence by its name."""
    op = p.plan.definitions[name].value.op
    assert isinstance(op, Result)
    return op.of


def _turns(p: Printer, loop: Loop) -> None:
    """One loop. What does not vary with its step stands before it."""
    _hoist(p, loop)
    symbol = p.fresh(loop.symbol.name.split("_step")[0])
    names, steps, turns, refused = dict(p.names), p.steps, p.turns, set(p.refused)
    emitted = set(p.emitted)
    p.steps, p.turns = {**steps, loop.symbol: symbol}, {**turns, loop.symbol: count_of(loop)}
    begin, before = len(p.lines), p.before
    p.before = before or Before(frozenset(names))
    numbers = call("range", p.code(loop.count))
    p.add(f"for {symbol} in {numbers if loop.forward else call('reversed', numbers)}:")
    p.depth += 1
    last: tuple[object, ...] | None = None
    p.partial = None
    for item in _grouped(loop):
        if isinstance(item, Loop):
            _turns(p, item)
            last = None
            continue
        last = _store(p, item, loop, last)
    for name in stored(loop) if not steps else ():
        rows = p.rows[name]
        if rows.kept is not None and not rows.local:
            away = f"{symbol} {'-' if loop.forward else '+'} {rows.kept}" if rows.kept else symbol
            p.add(f"{rows.variable}.pop({away}, None)")
    p.depth -= 1
    if before is None:
        p.insert(begin, [f"{'    ' * p.depth}{name} = {code}" for code, name in p.before.views.items()])
    p.names, p.steps, p.turns, p.refused, p.before = names, steps, turns, refused, before
    _forget(p, loop, p.emitted - emitted)


def _forget(p: Printer, loop: Loop, made: set[Value]) -> None:
    """Let what was made inside of a loop, and is read after it, be made once more: its name is not known there, and
    what it is made of is not let go before."""
    waiting = [one for one in made if loop.symbol not in one.symbols and one not in p.names]
    while again := [one for one in waiting if one in p.emitted and not p.readers(one) <= p.emitted]:
        p.emitted.difference_update(again)


def _grouped(loop: Loop) -> list[Loop | Store]:
    """The body of a loop, with neighbouring clauses of the first turn before those of all others."""
    found: list[Loop | Store] = []
    later: list[Loop | Store] = []
    for item in loop.body:
        tests = needed_tests(item, loop) if isinstance(item, Store) else ()
        if tests == later_turns(loop):
            later.append(item)
            continue
        if tests != first_turn(loop):
            found += later
            later = []
        found.append(item)
    return [*found, *later]


def _hoist(p: Printer, loop: Loop) -> None:
    """Compute what a loop reads in each turn and does not change, and take apart what it reads row by row."""
    inner, own = stepped(loop), stored(loop).keys()
    inside = _unnamed(p, loop)
    memo: dict[Value, bool] = {}

    def stays(one: Value) -> bool:
        if one not in memo:
            op = one.op
            changes = isinstance(op, Carried) and op.name in own
            refuses = getattr(op, "outside", "never") == "check" or getattr(op, "checked", False) or _is_some(one)
            parts = () if isinstance(op, Result) and one in p.names else operands(op)  # A loop before has ended.
            memo[one] = not (one.symbols & inner or changes or refuses) and all(map(stays, parts))
        return memo[one]

    roots = {store.value for stores in stored(loop).values() for store in stores}
    read = {part for one in inside if not stays(one) for part in _computed(one)} | roots
    for one in inside:
        leaf = isinstance(one.op, Input | Number | Carried) or one in p.names
        if one in read and stays(one) and not leaf and not isinstance(one.op, Table) and one.symbols <= p.steps.keys():
            p.ahead = True
            p.named(one)
            p.ahead = False
    if p.d.takes_rows_apart:
        for one in inside:
            rows = isinstance(one.op, Read) and isinstance(one.op.source.op, Carried)  # They are apart.
            if isinstance(one.op, Read) and one.op.outside == "never" and not rows and stays(one.op.source):
                _take_apart(p, one.op, loop)


def _unnamed(p: Printer, loop: Loop) -> list[Value]:
    """What a loop computes, operands first, but for what has a name already."""
    found: dict[Value, None] = {}
    waiting = [root for root in reversed(made_by(loop)) if root not in p.names]
    while waiting:
        parts = [part for part in waiting[-1].parts if part not in found and part not in p.names]
        if parts:
            waiting += parts
        else:
            found[waiting.pop()] = None
    return list(found)


def _computed(one: Value) -> tuple[Value, ...]:
    """The operands of a value that are computed for it: the index of a view is not, nor a slot."""
    op = one.op
    if isinstance(op, Join):
        return tuple(part for _, part in op.parts)
    if not isinstance(op, Read):
        return operands(op)
    places = [at for _, at in op.index if at.known.whole is None]
    return (op.source, *places, *([] if op.under is None else [op.under]))


def _is_some(one: Value) -> bool:
    return getattr(one.op, "fn", "").startswith("some ")


def _take_apart(p: Printer, op: Read, loop: Loop) -> None:
    """A list of the rows of an array that a loop reads at its step: slices would each have a gradient as large as the
    array."""
    for name, place in op.index:
        step = isinstance(place.op, Number) and (polynomial(place.op.expr) - of_atom(loop.symbol)).constant is not None
        if step and not any((op.source, other) in p.apart for other, _ in op.index):
            source = p.named(op.source)
            rows = p.fresh(f"{source}_steps")
            p.add(f"{rows} = {p.d.unbind(source, p.order_of(op.source).index(name))}")
            p.apart[op.source, name] = rows


# ------------------------------------------------------------------------- stores


def _store(p: Printer, item: Store, loop: Loop, last: tuple[object, ...] | None) -> tuple[object, ...]:
    """One clause in a turn, under its tests. One with the tests of the clause before it goes on there."""
    tests = needed_tests(item, loop)
    before = dict(p.names)
    if tests != last or not item.slots:
        p.partial = None
    if tests:
        if last == first_turn(loop) and tests == later_turns(loop):
            p.add("else:")
        elif tests != last:
            needed = [test for test in item.tests if needed_tests(_only(item, test), loop)]
            p.add(f"if {' and '.join(closed(p.code(test), COMPARE) for test in needed)}:")
        p.depth += 1
    refused = set(p.refused)
    _tell(p, item, loop)
    _put(p, item)
    if tests:
        p.depth -= 1
        p.names, p.refused = before, refused
    memo: dict[Value, bool] = {}
    p.names = {one: name for one, name in p.names.items() if not _is_stale(one, item, memo)}
    return tests


def _tell(p: Printer, item: Store, loop: Loop) -> None:
    """The lines of a clause above what it stores; of a definition with other stores than clauses, above the first."""
    definition = p.plan.definitions.get(item.name)
    if definition is None:
        return
    stores, clauses = stored(loop)[item.name], definition.let.clauses
    if len(stores) == len(clauses):
        p.tell([clauses[stores.index(item)].span.text])
    elif item is stores[0]:
        p.tell([clause.span.text for clause in clauses])


def _only(item: Store, test: Value) -> Store:
    return Store(item.name, (test,), item.steps, item.slots, item.value)


def _is_stale(one: Value, item: Store, memo: dict[Value, bool]) -> bool:
    """Whether a value reads what was stored just now."""
    if one not in memo:
        memo[one] = _reads(one, item) or any(
            _is_stale(part, item, memo) for part in _read_through(one) if not isinstance(one.op, Result)
        )
    return memo[one]


def _read_through(one: Value) -> tuple[Value, ...]:
    """The operands of a value, without the source of a row, which is asked about as a whole."""
    if isinstance(one.op, Read) and isinstance(one.op.source.op, Carried):
        return tuple(at for _, at in one.op.index)
    return one.parts


def _reads(one: Value, item: Store) -> bool:
    """Whether a value is a row that was stored just now, or all rows."""
    op = one.op
    if isinstance(op, Carried):
        return op.name == item.name
    if not isinstance(op, Read) or not isinstance(op.source.op, Carried) or op.source.op.name != item.name:
        return False
    index = dict(op.index)
    for name, step in zip(op.source.op.steps, item.steps, strict=True):
        place = index.get(name)
        if place is not None and isinstance(place.op, Number):
            apart = (polynomial(place.op.expr) - polynomial(expr_at(step))).constant
            if apart is not None and apart != 0:
                return False
    return True


def _put(p: Printer, item: Store) -> None:
    """Store a row, or a part of one."""
    from .printer import dtype_of

    rows = p.rows[item.name]
    op, slots = rows.of, dict(item.slots)
    row = tuple(axis for axis in op.home if axis.name not in op.steps)
    key = dict(zip(op.steps, (str(number(p, expr_at(step))) for step in item.steps), strict=True))
    found = [(axis, slots.get(axis.name)) for axis in row]
    names = tuple(axis.name if at is None else at.axes[0].name for axis, at in found if at is None or at.axes)
    texts = {axis.name: Slot() if at is None else slot(p, at, axis) for axis, at in found}
    if rows.filled:
        code = p.aligned(item.value, names, LONGEST)
        at = [key.get(axis.name) or texts[axis.name].index for axis in op.home]
        while at[-1] == ":":
            at.pop()
        p.add(p.d.store(rows.variable, ", ".join(at), code))
        return
    place = ", ".join(key.values())
    if rows.local:
        p.add(f"{rows.variable} = {p.whole(item.value, row, dtype_of(value(op)), 2 * LONGEST)}")
        return
    if not slots:
        p.add(f"{rows.variable}[{place}] = {p.whole(item.value, row, dtype_of(value(op)), LONGEST)}")
        return
    code = p.aligned(item.value, names)
    if p.partial == (item.name, place) and not _is_stale(item.value, item, {}):
        # Nobody has read the new row yet.
        p.add(p.d.store(f"{rows.variable}[{place}]", ", ".join(one.index for one in texts.values()), code))
        return
    rows.uses_zero = True
    before = f"{rows.variable}.get({tupled(key.values()) if len(key) > 1 else place}, {rows.zero})"
    index = tupled(slice_.value for slice_ in texts.values())
    p.add(f"{rows.variable}[{place}] = {p.call('with_part', before, index, code)}")
    p.partial = item.name, place

