"""Folds as Python source: a loop over tiles of queries, and in it one over tiles of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import DEFAULT_DTYPE
from ..ops import Axis, Definition, Input, Plan, Tiles, Value, value
from ..order import reachable
from ..rules.terms import NOWHERE
from ..rules.tiles import PEAK, Turn, count_of, start_of
from .blocks import inside
from .code import Code, closed, indexed
from .numbers import extent

if TYPE_CHECKING:
    from .printer import Printer

KEYS = 512  # The keys of a tile.
PAIRS = 1 << 19  # The pairs of a tile over all batches, about.

Given = dict[str, str]


def tiles(p: Printer, one: Value) -> Code:
    """The array of a fold."""
    op = one.op
    assert isinstance(op, Tiles)
    leaves = {_name(stand_in): p.named(leaf) for leaf, stand_in in zip(op.leaves, op.turn.given, strict=True)}
    turn: Turn = op.turn.with_parts(dict(_in_order(p, *pair) for pair in zip(op.leaves, op.turn.given, strict=True)))
    definition = p.definition_of.get(one)
    name = p.fresh("folded") if definition is None else p.own_names[definition.name]
    p.names[one] = name
    taken = {*p.taken}
    p.tell(turn.texts)
    p.add(f"{name} = {p.d.zeros(p, p.shape(op.home), one.dtype or 'f64')}")
    if turn.row is None:
        _rows(p, op, turn, leaves, name, {})
        return Code(name)
    step = p.fresh(f"{turn.row.name.name}_step")
    batch = [axis for axis in _input(turn.carried[0]).home if axis.name != turn.row.name]
    points = " * ".join([*(closed(extent(p, axis)) for axis in batch), f"min({extent(p, turn.key)}, {KEYS})"])
    p.add(f"{step} = max(1, {PAIRS} // max(1, {points}))")
    given: Given = {}
    with _loop(p, turn.row, "0", str(extent(p, turn.row)), step, given):
        _rows(p, op, turn, leaves, name, given)
    p.taken &= taken  # The next fold writes over the arrays of this one's tiles.
    return Code(name)


def _in_order(p: Printer, leaf: Value, stand_in: Value) -> tuple[Value, Value]:
    """What stands for parts of an array, and the same with its axes in the order in which they lie."""
    return stand_in, _of_home(_name(stand_in), tuple(map(stand_in.axis, p.order_of(leaf))), stand_in)


def _rows(p: Printer, op: Tiles, turn: Turn, leaves: Mapping[str, Code], name: str, given: Given) -> None:
    """The queries of one tile, against all keys that they hear."""
    _slice(turn, leaves, given, of_rows=True)
    _carry(p, turn, given)
    first, end = _ends(p, turn, given)
    with _loop(p, turn.key, first, end, str(KEYS), given):
        _slice(turn, leaves, given, of_rows=False)
        found = _compute(p, list(zip(turn.carried, turn.new, strict=True)), dict(given), turn.names)
        p.add(f"{', '.join(given[_name(old)] for old in turn.carried)} = {', '.join(found)}")
    home = tuple(axis if turn.row is None or axis.name != turn.row.name else _tiled(axis) for axis in op.home)
    (result,) = _compute(p, [(_of_home("result", home, turn.result), turn.result)], given)
    index = [_part(axis, given) for axis in home]
    while index and index[-1] == ":":
        index.pop()
    p.add(p.d.store(name, ", ".join(index) or "...", result))


def _input(one: Value) -> Input:
    assert isinstance(one.op, Input)
    return one.op


def _name(stand_in: Value) -> str:
    return _input(stand_in).name


@contextmanager
def _loop(p: Printer, axis: Axis, first: str, end: str, step: str, given: Given) -> Iterator[None]:
    """A loop over the tiles of an axis, whose slice is given from then on."""
    word, size = axis.name.name, count_of(axis.name)
    ends = ("0", "1") if word.isalpha() else ("_start", "_stop")
    start, stop, p.sizes[size] = (p.fresh(f"{word}{end}") for end in (*ends, "_count"))
    p.sizes[start_of(axis.name)] = start
    p.measured.discard(size)
    given[word] = f"{start}:{stop}"
    p.add(f"for {start} in range({first}, {end}, {step}):")
    p.depth += 1
    p.add(f"{stop} = min({start} + {step}, {end})")
    place, margin = len(p.lines), "    " * p.depth
    yield
    if size in p.measured:
        p.lines.insert(place, f"{margin}{p.sizes[size]} = {stop} - {start}")
    p.depth -= 1


def _slice(turn: Turn, leaves: Mapping[str, Code], given: Given, of_rows: bool) -> None:
    """The parts of arrays: those that vary with the queries alone, or with keys."""
    for stand_in in turn.given:
        home = _input(stand_in).home
        by_key = any(axis.extent == build.size(count_of(turn.key.name), NOWHERE) for axis in home)
        if by_key is of_rows:
            continue
        parts = [_part(axis, given) for axis in home]
        code = leaves[_name(stand_in)]
        if any(part != ":" for part in parts):
            while parts[-1] == ":":
                parts.pop()
            code = indexed(code, parts)
        given[_name(stand_in)] = str(code)


def _part(axis: Axis, given: Given) -> str:
    """The slice of an axis."""
    match axis.extent:
        case ir.Size(coordinate) if coordinate == count_of(axis.name):
            return given[axis.name.name]
    return ":"


def _compute(
    p: Printer,
    values: Sequence[tuple[Value, Value]],
    given: Given,
    names: Iterable[tuple[str, Value]] = (),
) -> list[Code]:
    """The lines that compute values, each for the input that stands for it from then on, and their code. Others have
    `names`, too."""
    if not values:
        return []
    plan = _plan(p, values, names)
    known = {_name(one): given.get(_name(one)) or p.variables[_name(one)] for one in plan.inputs}
    lines, found, _ = inside(p, plan, known, 0)
    p.lines += [line for line in lines if line]
    given |= {_name(stand_in): str(code) for (stand_in, _), code in zip(values, found, strict=True)}
    return found


def _plan(p: Printer, values: Sequence[tuple[Value, Value]], names: Iterable[tuple[str, Value]]) -> Plan:
    inputs = tuple(one for one in reachable(one for _, one in values) if isinstance(one.op, Input))
    numbers = tuple(one for one in p.plan.inputs if not one.axes and one not in inputs)
    let = ir.Let("", (), "real", (), True, NOWHERE)
    wanted = [(_name(stand_in), one, _input(stand_in).home) for stand_in, one in values]
    others = [(name, one, one.axes) for name, one in names if not isinstance(one.op, Input)]
    definitions = {
        name: Definition(name, home, one, one.kind, one.dtype or DEFAULT_DTYPE[one.kind], let)
        for name, one, home in (*others, *wanted)
    }
    return Plan(p.plan.program, (*inputs, *numbers), definitions, tuple(name for name, _, _ in wanted))


def _of_home(name: str, home: tuple[Axis, ...], one: Value) -> Value:
    """An input that stands for a value with its axes in this order."""
    return value(Input(name, home, one.kind, one.dtype))


def _tiled(axis: Axis) -> Axis:
    return Axis(axis.name, build.size(count_of(axis.name), NOWHERE))


def _carry(p: Printer, turn: Turn, given: Given) -> None:
    """What goes from one tile of keys to the next, before the first."""
    for one in turn.carried:
        home, dtype = _input(one).home, one.dtype or "f64"
        name, shape = p.fresh(_name(one)), p.shape(home)
        least = p.d.least(p, "max", one)
        p.add(f"{name} = {p.d.full(p, shape, least, dtype) if _name(one) == PEAK else p.d.zeros(p, shape, dtype)}")
        given[_name(one)] = name


def _ends(p: Printer, turn: Turn, given: Given) -> tuple[str, str]:
    """The first key of a tile of queries, and the one beyond the last."""
    length = str(extent(p, turn.key))
    first, end = "0", length
    if turn.first is not None:
        first = _bound(p, turn.first, given, f"{turn.key.name.name}_first", "max(0, {})")
    if turn.end is not None:
        end = _bound(p, turn.end, given, f"{turn.key.name.name}_end", f"min({length}, {{}})")
    return first, end


def _bound(p: Printer, bound: Value, given: Given, name: str, around: str) -> str:
    (code,) = _compute(p, [(_of_home(name, (), bound), bound)], given) if not bound.is_host else (p.code(bound),)
    found = p.fresh(name)
    p.add(f"{found} = {around.format(code if bound.is_host else f'int({code})')}")
    return found
