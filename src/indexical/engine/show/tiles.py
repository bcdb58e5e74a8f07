"""Folds as Python source: a loop over tiles of queries, and in it one over tiles of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...records import dataclass, field
from ..ops import Axis, Definition, Input, Plan, Tiles, Value, value
from ..order import reachable
from ..rules.terms import NOWHERE
from ..rules.tiles import PEAK, Turn, count_of, start_of
from .blocks import inside
from .code import Code, closed, indexed
from .numbers import extent
from .words import word_for

if TYPE_CHECKING:
    from .printer import Printer

KEYS = 512  # The keys of a tile.
PAIRS = 1 << 19  # The pairs of a tile over all batches, about.


@dataclass
class _Tiles:
    """The printing of one fold: the code of what stands for arrays and sums, by name, the slices of tiles, by axis, and
    the plans of what is printed."""

    p: Printer
    op: Tiles
    turn: Turn
    given: dict[str, str] = field(default_factory=dict)
    slices: dict[Coordinate, str] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)


def tiles(p: Printer, one: Value) -> Code:
    """The array of a fold."""
    from .printer import dtype_of

    op = one.op
    assert isinstance(op, Tiles)
    leaves = {_name(stand_in): p.named(leaf) for leaf, stand_in in zip(op.leaves, op.turn.given, strict=True)}
    turn: Turn = op.turn.with_parts(dict(_in_order(p, *pair) for pair in zip(op.leaves, op.turn.given, strict=True)))
    definition = p.definition_of.get(one)
    name = p.fresh("folded") if definition is None else p.own_names[definition.name]
    p.names[one] = name
    taken = {*p.taken}
    p.tell(turn.texts)
    p.add(f"{name} = {p.d.zeros(p, p.shape(op.home), dtype_of(one))}")
    t = _Tiles(p, op, turn)
    if turn.row is None:
        _rows(t, leaves, name)
    else:
        step = p.fresh(f"{turn.row.name.name}_step")
        batch = [axis for axis in _input(turn.carried[0]).home if axis.name != turn.row.name]
        points = " * ".join([*(closed(extent(p, axis)) for axis in batch), f"min({extent(p, turn.key)}, {KEYS})"])
        p.add(f"{step} = max(1, {PAIRS} // max(1, {points}))")
        with _loop(t, turn.row, "0", str(extent(p, turn.row)), step):
            _rows(t, leaves, name)
    p.inside[one] = _joined(t.plans)
    p.taken &= taken  # The next fold writes over the arrays of this one's tiles.
    return Code(name)


def _in_order(p: Printer, leaf: Value, stand_in: Value) -> tuple[Value, Value]:
    """What stands for parts of an array, and the same with its axes in the order in which they lie."""
    if stand_in is leaf:
        return stand_in, leaf
    return stand_in, _of_home(_name(stand_in), tuple(map(stand_in.axis, p.order_of(leaf))), stand_in)


def _rows(t: _Tiles, leaves: Mapping[str, Code], name: str) -> None:
    """The queries of one tile, against all keys that they hear."""
    p, turn = t.p, t.turn
    _slice(t, leaves, by_key=False)
    _carry(t)
    first, end = _begun(t)
    with _loop(t, turn.key, first, end, str(KEYS)):
        _slice(t, leaves, by_key=True)
        found = _compute(t, list(zip(turn.carried, t.turn.new, strict=True)), t.turn.names)
        p.add(f"{', '.join(t.given[_name(old)] for old in turn.carried)} = {', '.join(found)}")
    home = tuple(axis if turn.row is None or axis.name != turn.row.name else _tiled(axis) for axis in t.op.home)
    (result,) = _compute(t, [(_of_home("result", home, turn.result), turn.result)])
    index = [_part(t, axis) for axis in home]
    while index and index[-1] == ":":
        index.pop()
    p.add(p.d.store(name, ", ".join(index) or "...", result))


def _input(one: Value) -> Input:
    assert isinstance(one.op, Input)
    return one.op


def _name(stand_in: Value) -> str:
    return _input(stand_in).name


def _word(stand_in: Value) -> str:
    """What a variable is called that has the value for which an input stands."""
    return _name(stand_in).partition("'")[0]


@contextmanager
def _loop(t: _Tiles, axis: Axis, first: str, end: str, step: str) -> Iterator[None]:
    """A loop over the tiles of an axis, whose slice is known from then on."""
    p, word, size = t.p, axis.name.name, count_of(axis.name)
    ends = ("0", "1") if word.isalpha() else ("_start", "_stop")
    start, stop, p.sizes[size] = (p.fresh(f"{word}{end}") for end in (*ends, "_count"))
    p.sizes[start_of(axis.name)] = start
    p.measured.discard(size)
    t.slices[axis.name] = f"{start}:{stop}"
    p.add(f"for {start} in range({first}, {end}, {step}):")
    p.depth += 1
    p.add(f"{stop} = min({start} + {step}, {end})")
    place, margin = len(p.lines), "    " * p.depth
    yield
    if size in p.measured:
        p.lines.insert(place, f"{margin}{p.sizes[size]} = {stop} - {start}")
    p.depth -= 1


def _slice(t: _Tiles, leaves: Mapping[str, Code], by_key: bool) -> None:
    """The parts of arrays: those that vary with keys, or all others."""
    for stand_in in t.turn.given:
        home = _input(stand_in).home
        if (_tiled(t.turn.key) in home) is by_key:
            parts = [_part(t, axis) for axis in home]
            while parts and parts[-1] == ":":
                parts.pop()
            code = leaves[_name(stand_in)]
            t.given[_name(stand_in)] = str(indexed(code, parts) if parts else code)


def _part(t: _Tiles, axis: Axis) -> str:
    """The slice of an axis."""
    return t.slices[axis.name] if axis == _tiled(axis) else ":"


def _compute(
    t: _Tiles, values: Sequence[tuple[Value, Value]], names: Iterable[tuple[str, Value]] = ()
) -> list[Code]:
    """The lines that compute values, each for the input that stands for it, and their code. Others have `names`, too.
    """
    plan = _plan(t, values, names)
    known = {_name(one): t.given.get(_name(one)) or t.p.variables[_name(one)] for one in plan.inputs}
    lines, found, _ = inside(t.p, plan, known, 0)
    t.p.lines += [line for line in lines if line]
    t.plans.append(plan)
    return found


def _plan(t: _Tiles, values: Sequence[tuple[Value, Value]], names: Iterable[tuple[str, Value]]) -> Plan:
    from .printer import dtype_of

    p = t.p
    inputs = tuple(one for one in reachable(one for _, one in values) if isinstance(one.op, Input))
    numbers = tuple(one for one in p.plan.inputs if not one.axes and one not in inputs)
    let = ir.Let("", (), "real", (), True, NOWHERE)
    wanted = [(_word(stand_in), one, _input(stand_in).home) for stand_in, one in values]
    others = [(name, one, one.axes) for name, one in names if not isinstance(one.op, Input)]
    definitions = {
        name: Definition(name, home, one, one.kind, dtype_of(one), let) for name, one, home in (*others, *wanted)
    }
    given = {  # By these names messages speak of them.
        f"given {n}": Definition(known.name, _input(one).home, one, one.kind, dtype_of(one), let)
        for n, (leaf, one) in enumerate(zip(t.op.leaves, t.turn.given, strict=True))
        if one in inputs and (known := p.definition_of.get(leaf)) is not None
    }
    return Plan(p.plan.program, (*inputs, *numbers), {**given, **definitions}, tuple(name for name, _, _ in wanted))


def _joined(plans: Sequence[Plan]) -> Plan:
    """Plans as one, for who asks what is computed."""
    definitions = {f"{n} {name}": each for n, plan in enumerate(plans) for name, each in plan.definitions.items()}
    inputs = tuple(dict.fromkeys(one for plan in plans for one in plan.inputs))
    wanted = tuple(f"{n} {name}" for n, plan in enumerate(plans) for name in plan.wanted)
    return Plan(plans[0].program, inputs, definitions, wanted)


def _of_home(name: str, home: tuple[Axis, ...], one: Value) -> Value:
    """An input that stands for a value with its axes in this order."""
    return value(Input(name, home, one.kind, one.dtype))


def _tiled(axis: Axis) -> Axis:
    return Axis(axis.name, build.size(count_of(axis.name), NOWHERE))


def _carry(t: _Tiles) -> None:
    """What goes from one tile of keys to the next, before the first."""
    from .printer import dtype_of

    p = t.p
    for one in t.turn.carried:
        name, shape, dtype = p.fresh(_word(one)), p.shape(_input(one).home), dtype_of(one)
        lowest = _word(one) == PEAK
        code = p.d.full(p, shape, p.d.least(p, "max", one), dtype) if lowest else p.d.zeros(p, shape, dtype)
        p.add(f"{name} = {code}")
        t.given[_name(one)] = name


def _begun(t: _Tiles) -> tuple[str, str]:
    """What varies with the queries of a tile alone, computed before its loop: values of the turn, which reads them from
    then on, the first key, and the one beyond the last."""
    p, turn, word = t.p, t.turn, t.turn.key.name.name
    ends = {f"{word}_least": turn.first, f"{word}_beyond": turn.end}
    arrays = [(_of_home(name, (), one), one) for name, one in ends.items() if one is not None and not one.is_host]
    alone: dict[Value, Value] = {}
    words: Counter[str] = Counter()
    for one in turn.of_rows():
        words[name := word_for(one)] += 1
        count = f"_{words[name]}" if words[name] > 1 else ""
        alone[one] = _of_home(f"{name}{count}'alone", one.axes, one)
    wanted = [*((stand_in, one) for one, stand_in in alone.items()), *arrays]
    codes = _compute(t, wanted) if wanted else []
    edges = codes[len(alone) :]
    for one, code in zip(alone.values(), codes[: len(alone)], strict=True):
        t.given[_name(one)] = code if code.isidentifier() else p.fresh(_word(one))
        if not code.isidentifier():
            p.add(f"{t.given[_name(one)]} = {code}")
    t.turn = turn.with_parts(alone)
    found = {_name(one): f"int({code})" for (one, _), code in zip(arrays, edges, strict=True)}
    found |= {name: str(p.code(one)) for name, one in ends.items() if one is not None and one.is_host}
    length = str(extent(p, turn.key))
    return (
        _bound(p, found.get(f"{word}_least"), f"{word}_first", "max(0, {})", "0"),
        _bound(p, found.get(f"{word}_beyond"), f"{word}_end", f"min({length}, {{}})", length),
    )


def _bound(p: Printer, code: str | None, name: str, around: str, otherwise: str) -> str:
    """The first key of a tile of queries, or the one beyond the last, under a name, where these are not all."""
    if code is None:
        return otherwise
    found = p.fresh(name)
    p.add(f"{found} = {around.format(code)}")
    return found
