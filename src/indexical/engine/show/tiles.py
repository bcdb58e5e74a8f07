"""Folds as Python source: a loop over tiles of queries, and in it one over tiles of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...ir.walk import walk
from ...records import dataclass, field, replace
from ..ops import Axis, Definition, Either, Input, Map, Number, Opaque, Plan, Reduce, Tiles, Value, host, value
from ..order import reachable
from ..rules.terms import NOWHERE
from ..rules.tiles import PEAK, Turn, count_of, moving, start_of
from .blocks import inside
from .code import Code, call, closed, indexed, quoted, tupled
from .lines import wrapped
from .numbers import extent, number
from .words import word_for

if TYPE_CHECKING:
    from .printer import Printer

# What functions of tiles take, unpack and make, by what that is called where nothing else is.
_WORDS = ("tensors", "sizes", "scalars", "arriving", "found", "sums", "pairs", "keys", "totals", "peaks")


@dataclass
class _Tiles:
    """The printing of the loops of one fold: the code of what stands for arrays and sums, by name, the slices of tiles,
    by axis, and their ends, from which key on all are allowed and up to which, and the
    names of the arrays that gradients are added up in."""

    p: Printer
    turn: Turn
    leaves: tuple[Value, ...]
    batch: tuple[Axis, ...]
    tile: tuple[str, str]
    given: dict[str, str] = field(default_factory=dict)
    slices: dict[Coordinate, str] = field(default_factory=dict)
    ends: dict[Coordinate, tuple[str, str]] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    sums: Sequence[str] = ()

    @property
    def keys(self) -> str:
        """The keys of a tile."""
        return self.tile[1]


def either(p: Printer, one: Value) -> Code:
    """All pairs at once where these are few, or the other way. Arrays that this gives together have names from then on.
    """
    op = one.op
    assert isinstance(op, Either)
    ways = {each: each.op for each in p.uses if isinstance(each.op, Either)}
    group = {each: way for each, way in ways.items() if _are_given_together(way.many, op.many)}
    names = {}
    for each in group:
        definition = p.definition_of.get(each)
        names[each] = p.fresh("folded") if definition is None else p.own_names[definition.name]
        p.told |= set() if definition is None else {definition.name}
    read = set(reachable(way.few.result for way in group.values()))
    leaves = {one: leaf for way in group.values() for one, leaf in zip(way.few.given, way.leaves, strict=True)}
    is_read = isinstance(op.many.op, Tiles)
    known = {one: p.named(leaf) for one, leaf in leaves.items() if is_read or one in read}
    p.tell(op.texts)
    p.add(f"if {number(p, op.test)}:")
    before, p.nested = p.nested, []
    _few(p, group, names, leaves, known)
    p.add("else:")
    p.depth += 1
    p.is_told, outside = True, set(p.names)
    p.wanted_names |= {way.many: names[each] for each, way in group.items()}
    for each, name in names.items():
        # A kernel names all its definitions at once.
        code = p.names.get(each) or p.code(group[each].many)
        if code != name:
            p.add(f"{name} = {code}")
    p.is_told = False
    p.depth -= 1
    for each in p.names.keys() - outside:  # What is computed there has no name outside.
        del p.names[each]
    p.names |= names
    p.inside[one] = joined(p.nested)
    p.nested = before + p.nested
    return Code(names[one])


def _are_given_together(one: Value, other: Value) -> bool:
    """Whether two arrays are given by the same loops, or the same kernel."""
    if isinstance(one.op, Tiles) and isinstance(other.op, Tiles):
        return (one.op.turn, one.op.leaves) == (other.op.turn, other.op.leaves)
    return isinstance(one.op, Opaque) and isinstance(other.op, Opaque) and one.op.step is other.op.step


def _few(
    p: Printer,
    group: Mapping[Value, Either],
    names: Mapping[Value, str],
    leaves: Mapping[Value, Value],
    codes: Mapping[Value, Code],
) -> None:
    """The lines of a call of few pairs, with the code of what stands for leaves."""
    orders = dict(_in_order(p, leaf, one) for one, leaf in leaves.items())
    known = {_name(orders[one]): str(code) for one, code in codes.items()}
    inputs = tuple(orders.values())
    numbers = tuple(one for one in p.plan.inputs if not one.axes and one not in inputs)
    known |= {_name(one): p.variables[_name(one)] for one in numbers}
    let = ir.Let("", (), "real", (), True, NOWHERE)
    definitions = {}
    for each, way in group.items():
        name, result = names[each], way.few.of([orders[one] for one in way.few.given])
        definitions[name] = Definition(name, way.home, result, "real", each.dtype or "f64", let)
    p.taken -= definitions.keys()
    named = {**_named(p, leaves.values(), inputs), **definitions}
    lines, found, _ = inside(p, Plan(p.plan.program, (*inputs, *numbers), named, tuple(definitions)), known, 1)
    p.taken |= definitions.keys()
    p.lines += [line for line in lines if line]
    for name, code in zip(definitions, found, strict=True):
        if code != name:
            p.add(f"    {name} = {code}")


def tiles(p: Printer, one: Value) -> Code:
    """The array of a fold. Where others are given by the same loops, all have names from then on."""
    op = one.op
    assert isinstance(op, Tiles)
    names: dict[int, str] = {}
    for each in p.uses:
        if not isinstance(each.op, Tiles) or not _are_given_together(each, one):
            continue
        definition, name = p.definition_of.get(each), p.wanted_names.get(each)
        name = name or (p.fresh("folded") if definition is None else p.own_names[definition.name])
        p.names[each] = names[each.op.part] = name
        p.told |= set() if definition is None else {definition.name}
    turn: Turn = op.turn.with_parts(dict(_in_order(p, *pair) for pair in zip(op.leaves, op.turn.given, strict=True)))
    if not p.is_told:
        p.tell(turn.texts)
    before, p.nested = p.nested, []
    if p.d.folding:
        _apart(p, op, turn, names)
    else:
        _in_place(p, op, turn, names)
    p.inside[one] = joined(p.nested)
    p.nested = before + p.nested
    return Code(p.names[one])


def _in_place(p: Printer, op: Tiles, turn: Turn, names: dict[int, str]) -> None:
    """The loops of a fold where it is read."""
    leaves = {_name(stand_in): p.named(leaf) for leaf, stand_in in zip(op.leaves, op.turn.given, strict=True)}
    for n, (home, dtype) in enumerate(op.homes):
        name = names.setdefault(n, p.fresh("folded"))
        p.add(f"{name} = {p.d.zeros(p, p.shape(home), dtype or 'f64')}")
    taken = {*p.taken}
    t = _Tiles(p, turn, op.leaves, _batch(turn), p.d.tile)
    _loops(t, leaves, [names[n] for n in range(len(op.homes))], [home for home, _ in op.homes])
    p.taken &= taken  # The next fold writes over the arrays of this one's tiles.


def _apart(p: Printer, op: Tiles, turn: Turn, names: Mapping[int, str]) -> None:
    """A fold as a function of arrays, with one for its way back and one for the shapes of what it gives, and its call.
    """
    arrays = [p.named(leaf) for leaf in op.leaves]
    given = [code if code not in arrays[:n] else Code(p.fresh(code)) for n, code in enumerate(arrays)]
    first = names[min(names)]
    attend, rows, returned, like = (p.fresh(f"{word}_{first}") for word in ("attend", "rows_of", "back_from", "like"))
    back = op.back if isinstance(op.back, Turn) else None
    if back is not None:
        back = back.with_parts(dict(_in_order(p, *pair) for pair in zip(op.leaves, back.given, strict=False)))
    numbers = _numbers_of(turn, *(() if back is None else (back,)))
    sizes, scalars = ([p.code(host(each)) for each in group] for group in numbers)
    # An input or a definition may be called as what is called so here.
    word = {name: p.fresh(name) for name in _WORDS}
    outputs = [first, word["totals"], word["peaks"]][: len(op.homes)]
    parameters = f"{word['tensors']}, {word['sizes']}, {word['scalars']}"

    def unpack(name: str, parts: Sequence[str]) -> None:
        if parts:
            targets = f"{', '.join(parts)}{',' * (len(parts) == 1)}"
            p.add(f"{f'({targets})' if len(targets) > 72 else targets} = {word[name]}")

    def opening(**more: Sequence[str]) -> None:
        for name, parts in {**more, "tensors": given, "sizes": sizes, "scalars": scalars}.items():
            unpack(name, parts)
        p.files.setdefault(p.d.folding_file, set()).add("tile_of")
        p.add(f"{', '.join(tile)} = tile_of({word['tensors']}[0])")

    tile = word["pairs"], word["keys"]
    taken = {*map(str, given), *sizes, *scalars, attend, rows, returned, like, *word.values()}
    with _function(p, f"def {like}({parameters}):", taken, word["tensors"]):
        unpack("sizes", sizes)
        first_array = f"{word['tensors']}[0]"
        p.add(f"return {tupled(p.d.like(p, first_array, p.shape(home), dtype) for home, dtype in op.homes)}")
    with _function(p, f"def {rows}({parameters}):", {*taken, *outputs}, word["tensors"]):
        p.tell(turn.texts)
        opening()
        p.add(f"{', '.join(outputs)}{',' * (len(outputs) == 1)} = {like}({parameters})")
        t = _Tiles(p, turn, op.leaves, _batch(turn), tile)
        _loops(t, dict(zip(map(_name, turn.given), given, strict=True)), outputs, [home for home, _ in op.homes])
        p.add(f"return {tupled(outputs)}")
    if back is not None:
        arriving, sums = ([p.fresh(f"d_{code}") for code in group] for group in (outputs[:2], given))
        own = {*taken, *outputs, *arriving, *sums}
        head = f"def {returned}({word['arriving']}, {word['found']}, {parameters}, {word['sums']}):"
        with _function(p, head, own, word["tensors"]):
            opening(arriving=arriving, found=outputs, sums=sums)
            t = _Tiles(p, back, op.leaves, _batch(turn), tile, sums=sums)
            read = [*given, *map(Code, (*outputs, *arriving))]
            _loops(t, dict(zip(map(_name, back.given), read, strict=True)), (), ())
        p.taken.difference_update((*arriving, *sums))
    elif isinstance(op.back, str):
        learned = dict.fromkeys(code for code, leaf in zip(arrays, op.leaves, strict=True) if leaf.kind == "real")
        p.refuse(str(p.call("learns", *learned)), "IX218", op.back)
    maker = call(p.d.folding, quoted(attend), rows, returned if back is not None else "None", like, len(op.homes))
    p.files.setdefault(p.d.folding_file, set()).add(p.d.folding)
    p.functions.append("\n".join(wrapped(f"{attend} = {maker}")))
    p.taken.difference_update(word.values())
    arguments = [f"[{', '.join(group)}]" for group in (arrays, sizes, scalars)]
    targets = [names.get(n, "_") for n in range(len(op.homes))]
    found_ = call(attend, *arguments)
    p.add(f"{targets[0]} = {found_}[0]" if set(targets[1:]) <= {"_"} else f"{', '.join(targets)} = {found_}")


@contextmanager
def _function(p: Printer, head: str, taken: set[str], tensors: str) -> Iterator[None]:
    """A function that stands above, whose lines are added from then on, with names of its own."""
    outside = p.lines, p.depth, p.taken, p.refused, p.uses_device
    p.lines, p.depth, p.taken, p.refused, p.uses_device = [], 1, {*p.reserved, *taken}, set(), False
    p.overwrites = True
    yield
    p.overwrites = False
    device = [f"    device = {tensors}[0].device"] if p.uses_device else []
    p.functions.append("\n".join(part for line in (head, *device, *p.lines) for part in wrapped(line)))
    p.lines, p.depth, p.taken, p.refused, p.uses_device = outside


def _numbers_of(*turns: Turn) -> tuple[list[ir.Expr], list[ir.Expr]]:
    """The numbers of the host that loops are made of: whole ones, and reals."""
    found: dict[ir.Expr, None] = {}
    for turn in turns:
        edges = (turn.first, turn.end, *(turn.full or ()), turn.allowed, *turn.begin)
        roots = [*turn.given, *turn.carried, *turn.turned, *turn.results, *(one for one in edges if one is not None)]
        own = {name(axis.name) for axis in (turn.row, turn.key) if axis is not None for name in (start_of, count_of)}
        exprs = [axis.extent for axis in (turn.row, turn.key) if axis is not None]
        for one in reachable(roots):
            exprs += [axis.extent for axis in one.axes]
            exprs += [one.op.expr] if isinstance(one.op, Number) else []
        for part in (part for expr in exprs for part in walk(expr)):
            is_size = isinstance(part, ir.Size) and part.coordinate not in own
            if is_size or isinstance(part, ir.Read):
                found[part] = None
    return [one for one in found if one.type.kind != "real"], [one for one in found if one.type.kind == "real"]


def _batch(turn: Turn) -> tuple[Axis, ...]:
    """The axes of scores but queries and keys."""
    assert turn.allowed is not None or turn.names
    score = next(one for name, one in turn.names if name == "score")
    sides = {turn.key.name} | ({turn.row.name} if turn.row is not None else set())
    return tuple(axis for axis in score.axes if axis.name not in sides)


def _loops(t: _Tiles, leaves: Mapping[str, Code], names: Sequence[str], homes: Sequence[tuple[Axis, ...]]) -> None:
    """The loop over tiles of queries, and in it the one over tiles of keys."""
    p, turn = t.p, t.turn
    if turn.row is None:
        _rows(t, leaves, names, homes)
        return
    step = p.fresh(f"{turn.row.name.name}_step")
    batch = [axis for axis in t.batch if axis.name != turn.row.name]
    points = " * ".join([*(closed(extent(p, axis)) for axis in batch), f"min({extent(p, turn.key)}, {t.keys})"])
    p.add(f"{step} = max(1, {t.tile[0]} // max(1, {points}))")
    with _loop(t, turn.row, "0", str(extent(p, turn.row)), step):
        _rows(t, leaves, names, homes)


def _in_order(p: Printer, leaf: Value, stand_in: Value) -> tuple[Value, Value]:
    """What stands for parts of an array, and the same with its axes in the order in which they lie."""
    if stand_in is leaf:
        return stand_in, leaf
    return stand_in, _of_home(_name(stand_in), tuple(map(stand_in.axis, p.order_of(leaf))), stand_in)


def _rows(t: _Tiles, leaves: Mapping[str, Code], names: Sequence[str], homes: Sequence[tuple[Axis, ...]]) -> None:
    """The queries of one tile, against all keys that they hear."""
    p = t.p
    _slice(t, leaves, by_key=False)
    first, end = _begun(t)
    _carry(t)
    still = [place for place, (_, one) in enumerate(t.turn.adds) if not _moves(t, one)]
    _add_up(t, [t.turn.adds[place] for place in still])
    with _loop(t, t.turn.key, first, end, t.keys):
        _slice(t, leaves, by_key=True)
        turn = _masked(t)
        turn = replace(turn, adds=tuple(each for place, each in enumerate(turn.adds) if place not in still))
        called: Iterable[tuple[str, Value]] = turn.names
        if turn.adds:
            turn = _in_common(t, turn)
            called = ()
        _add_up(t, turn.adds)
        found = _compute(t, list(zip(turn.carried, turn.new, strict=True)), called) if turn.new else []
        if found:
            p.add(f"{', '.join(t.given[_name(old)] for old in turn.carried)} = {', '.join(found)}")
    row = t.turn.row
    for n, (name, home) in enumerate(zip(names, homes, strict=True)):
        home = tuple(_tiled(axis) if row is not None and axis.name == row.name else axis for axis in home)
        code = _expression(t, _of_home("result", home, t.turn.results[n]), t.turn.results[n])
        p.add(p.d.store(name, _index(t, home) or "...", code))


def _index(t: _Tiles, home: tuple[Axis, ...]) -> str:
    """The part of an array that belongs to the tile."""
    index = [_part(t, axis) for axis in home]
    while index and index[-1] == ":":
        index.pop()
    return ", ".join(index)


def _moves(t: _Tiles, one: Value) -> bool:
    """Whether a value is another one for each tile of keys."""
    return one in moving((one,), t.turn.key.name, t.turn.carried)


def _masked(t: _Tiles) -> Turn:
    """The turn with a mask that is made only for tiles of which not all pairs are allowed, where these are known."""
    p, turn = t.p, t.turn
    if not any(t.full):
        return turn
    assert turn.allowed is not None
    (start, stop), (lower, upper) = t.ends[turn.key.name], t.full
    test = " or ".join([f"{start} < {lower}"] * bool(lower) + [f"{stop} > {upper}"] * bool(upper))
    mask = value(Input("allowed'", turn.allowed.axes, "bool", "bool"))
    p.add(f"if {test}:")
    p.depth += 1
    before = len(p.lines)
    (code,) = _compute(t, [(mask, turn.allowed)])
    t.given[_name(mask)] = _held(t, "allowed", code)
    p.depth -= 1
    if len(p.lines) == before:  # It is an array that is there.
        p.lines.pop()
    p.masks[mask] = test
    return turn.with_parts({turn.allowed: mask})


def _is_apart(turn: Turn) -> bool:
    """Whether the mask of pairs is read by choices alone, and is no part of another condition."""
    assert turn.allowed is not None
    for one in reachable(turn.turned):
        is_choice = isinstance(one.op, Map) and one.op.fn == "where"
        read = one.parts[1:] if is_choice else one.parts
        if not _is_mask(one, turn.allowed) and any(_is_mask(part, turn.allowed) for part in read):
            return False
    return True


def _is_mask(one: Value, allowed: Value) -> bool:
    """Whether a condition is the mask of pairs, or tells who is heard by some."""
    return one is allowed or (isinstance(one.op, Reduce) and one.op.fn == "any" and one.op.source is allowed)


def _in_common(t: _Tiles, turn: Turn) -> Turn:
    """The lines that compute what several gradients are made of, or has a name; the turn with what stands for that."""
    roots = [*(one for _, one in turn.adds), *turn.new]
    counts: Counter[Value] = Counter(part for root in dict.fromkeys(roots) for part in reachable([root]))
    readers: dict[Value, int] = {}
    for one in counts:
        for part in one.parts:
            readers[part] = min(readers.get(part, len(roots)), counts[one])
    shared = {one: name for name, one in turn.names if counts[one] > 1 and not isinstance(one.op, Input)}
    for one in reachable(roots):
        is_last = readers.get(one, 0) < counts[one] or one in roots
        if counts[one] > 1 and is_last and one.axes and one.kind == "real":
            shared.setdefault(one, word_for(one))
    moving = {one: name for one, name in shared.items() if _moves(t, one)}
    pairs = [(_of_home(name, _ordered(t, one.axes), one), one) for one, name in _numbered(moving).items()]
    called = turn.names
    turn = turn.with_parts({one: stand_in for stand_in, one in pairs})
    used = set(reachable((*turn.new, *(one for _, one in turn.adds))))
    pairs = [(stand_in, one) for stand_in, one in pairs if stand_in in used]
    codes = _compute(t, pairs, called)
    for (stand_in, _), code in zip(pairs, codes, strict=True):
        t.given[_name(stand_in)] = _held(t, _word(stand_in), code)
    return turn


def _numbered(names: Mapping[Value, str]) -> dict[Value, str]:
    """Names of values, each of its own."""
    words: Counter[str] = Counter()
    found: dict[Value, str] = {}
    for one, name in names.items():
        words[name] += 1
        found[one] = f"{name}_{words[name]}'" if words[name] > 1 else f"{name}'"
    return found


def _held(t: _Tiles, word: str, code: Code) -> str:
    """The name of what is computed, given to it here where it has none."""
    if code.isidentifier():
        return str(code)
    name = t.p.fresh(word)
    t.p.add(f"{name} = {code}")
    return name


def _add_up(t: _Tiles, adds: Iterable[tuple[int, Value]]) -> None:
    """What a tile adds to gradients, where these are asked for."""
    p = t.p
    for n, one in adds:
        name, home = t.sums[n], _input(t.turn.given[n]).home
        p.add(f"if {name} is not None:")
        p.depth += 1
        code = _expression(t, _of_home("more", home, one), one, part=True)
        index = _index(t, home)
        p.add(f"{name}[{index}] += {code}" if index else f"{name} += {code}")
        p.depth -= 1


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
    t.slices[axis.name], t.ends[axis.name] = f"{start}:{stop}", (start, stop)
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
    t: _Tiles, values: Sequence[tuple[Value, Value]], names: Iterable[tuple[str, Value]] = (), part: bool = False
) -> list[Code]:
    """The lines that compute values, each for the input that stands for it, and their code, of a `part` with the axes
    that it has. Others have `names`, too."""
    if not values:
        return []
    plan = _plan(t, values, names)
    known = {_name(one): t.given.get(_name(one)) or t.p.variables[_name(one)] for one in plan.inputs}
    lines, found, _ = inside(t.p, plan, known, 0, part)
    t.p.lines += [line for line in lines if line]
    return found


def _expression(t: _Tiles, stand_in: Value, one: Value, part: bool = False) -> Code:
    """The lines that compute a value, and its code, which is read once: it needs no name."""
    before = len(t.p.lines)
    (code,) = _compute(t, [(stand_in, one)], part=part)
    if len(t.p.lines) == before:
        return code
    margin = "    " * t.p.depth
    name, sign, last = t.p.lines[-1].removeprefix(margin).partition(" = ")
    if sign and name == code:
        t.p.lines.pop()
        t.p.taken.discard(name)
        return Code(last)
    return code


def _plan(t: _Tiles, values: Sequence[tuple[Value, Value]], names: Iterable[tuple[str, Value]]) -> Plan:
    from .printer import dtype_of

    p = t.p
    inputs = tuple(one for one in reachable(one for _, one in values) if isinstance(one.op, Input))
    numbers = tuple(one for one in p.plan.inputs if not one.axes and one not in inputs)
    let = ir.Let("", (), "real", (), True, NOWHERE)
    wanted = [(_word(stand_in), one, _input(stand_in).home) for stand_in, one in values]
    taken = dict.fromkeys(name for name, _, _ in wanted)
    made = {one for one in reachable(one for _, one in values) if not isinstance(one.op, Input)}
    others = {one: name for name, one in names if one in made - {one for _, one in values}}
    numbered = ((name.strip("'"), one, _ordered(t, one.axes)) for one, name in _numbered(others).items())
    own = [each for each in numbered if each[0] not in taken]
    definitions = {
        name: Definition(name, home, one, one.kind, dtype_of(one), let) for name, one, home in (*own, *wanted)
    }
    given = _named(p, t.leaves, [one if one in inputs else None for one in t.turn.given])
    return Plan(p.plan.program, (*inputs, *numbers), {**given, **definitions}, tuple(name for name, _, _ in wanted))


def _named(p: Printer, leaves: Iterable[Value], stand_ins: Iterable[Value | None]) -> dict[str, Definition]:
    """Definitions that stand for arrays: by their names messages speak of these."""
    from .printer import dtype_of

    found = {}
    for n, (leaf, one) in enumerate(zip(leaves, stand_ins, strict=False)):
        known = p.definition_of.get(leaf)
        if one is not None and known is not None:
            found[f"given {n}"] = Definition(known.name, _input(one).home, one, one.kind, dtype_of(one), known.let)
    return found


def joined(plans: Sequence[Plan]) -> Plan:
    """Plans as one, for who asks what is computed."""
    definitions = {f"{n} {name}": each for n, plan in enumerate(plans) for name, each in plan.definitions.items()}
    inputs = tuple(dict.fromkeys(one for plan in plans for one in plan.inputs))
    wanted = tuple(f"{n} {name}" for n, plan in enumerate(plans) for name in plan.wanted)
    return Plan(plans[0].program, inputs, definitions, wanted)


def _of_home(name: str, home: tuple[Axis, ...], one: Value) -> Value:
    """An input that stands for a value with its axes in this order."""
    return value(Input(name, home, one.kind, one.dtype))


def _ordered(t: _Tiles, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes of a batch first, then queries and keys, then all others."""
    sides = [axis.name for axis in (t.turn.row, t.turn.key) if axis is not None]
    names = [*(axis.name for axis in t.batch), *sides]
    return tuple(sorted(axes, key=lambda axis: names.index(axis.name) if axis.name in names else len(names)))


def _tiled(axis: Axis) -> Axis:
    return Axis(axis.name, build.size(count_of(axis.name), NOWHERE))


def _carry(t: _Tiles) -> None:
    """What goes from one tile of keys to the next, before the first."""
    from .printer import dtype_of

    p = t.p
    for one, begin in zip(t.turn.carried, t.turn.begin, strict=True):
        name, shape, dtype = p.fresh(_word(one)), p.shape(_input(one).home), dtype_of(one)
        if begin is not None:
            code = _expression(t, _of_home("start", _input(one).home, begin), begin)
        else:
            lowest = _word(one) == PEAK
            code = p.d.full(p, shape, p.d.least(p, "max", one), dtype) if lowest else p.d.zeros(p, shape, dtype)
        p.add(f"{name} = {code}")
        t.given[_name(one)] = name


def _begun(t: _Tiles) -> tuple[str, str]:
    """What varies with the queries of a tile alone, computed before its loop: values of the turn, which reads them from
    then on, the first key, and the one beyond the last."""
    p, turn, word = t.p, t.turn, t.turn.key.name.name
    tells = p.d.folding and turn.full is not None and _is_apart(turn)
    full = turn.full if tells and turn.full is not None else (None, None)
    ends = {f"{word}_least": turn.first, f"{word}_beyond": turn.end, f"{word}_from": full[0], f"{word}_to": full[1]}
    arrays = [(_of_home(name, (), one), one) for name, one in ends.items() if one is not None and not one.is_host]
    alone: dict[Value, Value] = {}
    words: Counter[str] = Counter()
    for one in turn.of_rows():
        words[name := word_for(one)] += 1
        count = f"_{words[name]}" if words[name] > 1 else ""
        alone[one] = _of_home(f"{name}{count}'alone", _ordered(t, one.axes), one)
    wanted = [*((stand_in, one) for one, stand_in in alone.items()), *arrays]
    codes = _compute(t, wanted) if wanted else []
    edges = codes[len(alone) :]
    for one, code in zip(alone.values(), codes[: len(alone)], strict=True):
        t.given[_name(one)] = _held(t, _word(one), code)
    t.turn = turn.with_parts(alone)
    length = str(extent(p, turn.key))
    # Where nobody may look at arrays, all keys are met, and all masked.
    unseen = dict(zip(ends, ("0", length, length, "0"), strict=True))
    looked = {_name(one): code for (one, _), code in zip(arrays, edges, strict=True)}
    found = {name: p.d.number_of(p, code, unseen[name]) for name, code in looked.items()}
    found |= {name: str(p.code(one)) for name, one in ends.items() if one is not None and one.is_host}
    first, end = (
        _bound(p, found.get(f"{word}_least"), f"{word}_first", "max(0, {})", "0"),
        _bound(p, found.get(f"{word}_beyond"), f"{word}_end", f"min({length}, {{}})", length),
    )
    if tells:
        t.full = tuple(_bound(p, found.get(f"{word}_{side}"), f"{word}_{side}", "{}", "") for side in ("from", "to"))
    return first, end


def _bound(p: Printer, code: str | None, name: str, around: str, otherwise: str) -> str:
    """The first key of a tile of queries, or the one beyond the last, under a name, where these are not all."""
    if code is None:
        return otherwise
    found = p.fresh(name)
    p.add(f"{found} = {around.format(code)}")
    return found
