"""Folds as loops over tiles: what is computed for some queries, and for these and some keys in turn.

What is summed for one side alone is an array that is computed before the loop. In a turn there is what varies with
both, and what is elementwise, so that no array is as large as keys that are pairs. A turn is made of parts of arrays:
an axis has so many points as its tile, from a start on, which are sizes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import Polynomial, expression, number, of_atom, polynomial, replaced
from ...ir.functions import FUNCTIONS
from ...ir.operations import REALS
from ...ir.types import SHORT, Coordinate, Dtype, widest
from ...ir.walk import walk
from ...records import dataclass, field, replace
from ..ops import (
    Axis,
    Contract,
    Either,
    Fold,
    Input,
    Iota,
    Join,
    Layout,
    Library,
    Map,
    Normalize,
    Number,
    Op,
    Opaque,
    Plan,
    Read,
    Reduce,
    Tiles,
    Value,
    apply,
    axes_of,
    host,
    value,
    with_operands,
)
from ..order import mapped, reachable
from .folds import GATHERED, NORMALISERS, exp_less
from .slopes import Undifferentiable, flows, product_sum
from .terms import (
    NOWHERE,
    added,
    applied,
    cast,
    factors_of,
    infinity,
    kept,
    length,
    product,
    promoted,
    real,
    terms_of,
    where,
)

PEAK, LOGARITHM, DIVISOR, RESULT = "peak", "logarithm", "divisor", "result"

NAME, LAW = "tile by tile", "a sum over all keys is one over tiles of sums over their keys"


@dataclass(frozen=True, slots=True)
class Turn:
    """What loops over tiles of a fold compute. The values `given` stand for parts of its leaves, `carried` are inputs
    for what goes from one tile of keys to the next, of which some `begin` with a value: each turn makes `new` ones, and
    after the last they make `results`, each with the axes of its home. What each turn `adds` goes to the array of the
    same place in `given`.

    The keys of the tile are those from `first` on and before `end`, where they are not all. Those from `full_first` on
    and before `full_end` are `allowed` for all of its queries, where both are known. `names` are what values of a turn
    are called."""

    row: Axis | None
    key: Axis
    given: tuple[Value, ...]
    carried: tuple[Value, ...]
    begin: tuple[Value | None, ...]
    new: tuple[Value, ...]
    results: tuple[Value, ...]
    adds: tuple[tuple[int, Value], ...]
    first: Value | None
    end: Value | None
    full: tuple[Value | None, Value | None] | None
    allowed: Value | None
    texts: tuple[str, ...]
    names: tuple[tuple[str, Value], ...]

    def changed(self, axis: Callable[[Axis], Axis], change: Callable[[Value], Value]) -> Turn:
        """The same, with other axes, and with other values in the place of its own."""

        def some(one: Value | None) -> Value | None:
            return None if one is None else change(one)

        def each(values: Iterable[Value]) -> tuple[Value, ...]:
            return tuple(map(change, values))

        return replace(
            self,
            row=None if self.row is None else axis(self.row),
            key=axis(self.key),
            given=each(self.given),
            carried=each(self.carried),
            begin=tuple(map(some, self.begin)),
            new=each(self.new),
            results=each(self.results),
            adds=tuple((n, change(one)) for n, one in self.adds),
            first=some(self.first),
            end=some(self.end),
            full=None if self.full is None else (some(self.full[0]), some(self.full[1])),
            allowed=some(self.allowed),
            names=tuple((name, change(one)) for name, one in self.names),
        )

    @property
    def turned(self) -> tuple[Value, ...]:
        """All that a turn computes."""
        return (*self.new, *(one for _, one in self.adds))

    def of_rows(self) -> list[Value]:
        """What is computed of the queries of a tile alone, and is the same for all tiles of keys."""
        moves = moving(self.turned, self.key.name, self.carried)
        read = dict.fromkeys(part for one in moves for part in one.parts)
        read |= dict.fromkeys(one for _, one in self.adds)
        return [one for one in read if one not in moves and one.axes and not isinstance(one.op, Input)]

    def with_parts(self, others: Mapping[Value, Value]) -> Turn:
        """The same, with other inputs that stand for parts of arrays."""
        return self.changed(lambda axis: axis, lambda one: _replaced(one, others))


def moving(roots: Iterable[Value], key: Coordinate, carried: Collection[Value]) -> dict[Value, None]:
    """Of all that some values are made of, what is another value for each tile of keys."""
    mine = {start_of(key), count_of(key)}
    found: dict[Value, None] = {}
    for one in reachable(roots):
        numbers = walk(one.op.expr) if isinstance(one.op, Number) else ()
        moves = any(isinstance(part, ir.Size) and part.coordinate in mine for part in numbers)
        if moves or one in carried or key in one.names or any(part in found for part in one.parts):
            found[one] = None
    return found


def start_of(name: Coordinate) -> Coordinate:
    """The size that says where a tile starts along an axis. No coordinate of a program is called so."""
    return Coordinate(f"{name.name}'0")


def count_of(name: Coordinate) -> Coordinate:
    """The size that says how many points a tile has along an axis."""
    return Coordinate(f"{name.name}'n")


def _size(name: Coordinate) -> ir.Expr:
    return build.size(name, NOWHERE)


@dataclass(frozen=True, slots=True)
class Few:
    """The way of calls of few pairs: a `result` of all pairs at once, made of what is `given` for leaves."""

    given: tuple[Value, ...]
    result: Value

    def of(self, leaves: Iterable[Value]) -> Value:
        """The result, made of leaves."""
        return _replaced(self.result, dict(zip(self.given, leaves, strict=True)))

    def changed(self, change: Callable[[Value], Value]) -> Few:
        return Few(tuple(map(change, self.given)), change(self.result))


def _replaced(one: Value, others: Mapping[Value, Value]) -> Value:
    """A value with others in the place of some that it is made of; places that are numbers may be read before."""
    memo = dict(others)
    waiting = [one]
    while waiting:
        top = waiting[-1]
        made = top
        if isinstance(top.op, Read) and (parted := _parted(top.op)) is not None and parted[0] in others:
            made = value(Read(*parted, top.op.outside))
        before = [part for part in made.parts if part not in memo] if top not in memo else []
        if before:
            waiting += before
            continue
        waiting.pop()
        if top not in memo:
            memo[top] = _with(made, with_operands(made, memo.__getitem__))
    return memo[one]


def _parted(op: Read) -> tuple[Value, tuple[tuple[Coordinate, Value], ...]] | None:
    """What a read gives of its places that are numbers, and its other places; None where it has but one kind."""
    fixed = tuple(each for each in op.index if each[1].is_host)
    if not fixed or len(fixed) == len(op.index) or op.under is not None:
        return None
    return value(Read(op.source, fixed, op.outside)), tuple(each for each in op.index if each not in fixed)


def _with(one: Value, new: Op) -> Value:
    """A value with another operation, which leaves out a cast to the dtype that is there; a choice of two numbers is
    made in the dtype that is asked for."""
    match new:
        case Map("as wide", (wide,)) if wide.dtype not in SHORT:
            return wide
        case Map("as f32", (Value(op=Map("where", (test, then, otherwise))),)) if then.is_host and otherwise.is_host:
            return where(test, apply("as f32", then), otherwise)
    return one if new is one.op else value(new)


def _widened(one: Value) -> Value:
    """An array of 16 bits in 32, in which tiles compute."""
    return cast(one, "f32") if one.dtype in SHORT else one


def by_tiles(plan: Plan, learns: bool = False) -> Plan:
    """The plan with loops over tiles in the place of folds, and where it `learns` with the loops of their way back."""
    values = reachable([each.value for each in plan.definitions.values()])
    if not any(isinstance(one.op, Fold) for one in values):
        return plan
    return mapped(plan, partial(_by_tiles, learns=learns, pairs={}))


def _by_tiles(one: Value, learns: bool, pairs: dict[Value, ir.Expr]) -> Value:
    """A value with loops, or all `pairs` at once, in the place of a fold; of the latter it is noted how many there are.
    """
    op = one.op
    if isinstance(op, Either) and op.fold:
        kernel = op.many.op
        assert isinstance(kernel, Opaque)
        # All that one kernel gives has the same leaves.
        own = dict.fromkeys(part for _, part in kernel.operands if not part.is_host)
        leaves = tuple(own | dict.fromkeys(_reached(op.fold[0], own)))
        count = next((pairs[part] for part in reachable(op.fold) if part in pairs), op.pairs)
        return value(replace(op, pairs=count, fold=(), few=_few(leaves, op.fold[0]), leaves=leaves))
    if not isinstance(op, Fold):
        return one
    nest = _Nest(op, learns)
    if op.at_once:
        whole = nest.at_once()
        pairs[whole] = op.pairs
        return whole
    forward = nest.forward()
    back: Turn | str | None = None
    if learns:
        try:
            back = nest.back()
        except Undifferentiable as problem:
            back = str(problem)
    outputs = nest.outputs()
    homes = tuple((home, dtype) for _, home, dtype in outputs)
    part = [name for name, _, _ in outputs].index(op.part)
    leaves = tuple(leaf for leaf, _ in nest.parts.leaves)
    many = value(Tiles(forward, back, leaves, homes, part))
    if op.few is None:
        return many
    leaves = tuple(dict.fromkeys(leaves))
    few = _few(leaves, nest.at_once())
    return value(Either(op.pairs, int(op.divides), op.few, many, op.texts, few=few, leaves=leaves))


def _reached(root: Value, ends: Collection[Value]) -> tuple[Value, ...]:
    """The arrays that a value is made of: some of these, and inputs."""
    found: dict[Value, None] = {}
    waiting, seen = [root], set[Value]()
    while waiting:
        one = waiting.pop()
        if one in ends or (isinstance(one.op, Input) and one.axes):
            found[one] = None
        elif one not in seen:
            seen.add(one)
            waiting += one.parts
    return tuple(found)


def _few(leaves: Sequence[Value], result: Value) -> Few:
    """A way of calls of few pairs, with inputs that stand for leaves."""
    stand_ins = (value(Input(f"whole {n}", leaf.axes, leaf.kind, leaf.dtype)) for n, leaf in enumerate(leaves))
    given = {
        leaf: leaf if isinstance(leaf.op, Input) else stand_in for leaf, stand_in in zip(leaves, stand_ins, strict=True)
    }
    return Few(tuple(given.values()), _replaced(result, given))


@dataclass
class _Parts:
    """The parts of values for a tile, and the `leaves` that these are parts of, each with what stands for it: a leaf is
    for a part, or whole."""

    op: Fold
    leaves: dict[tuple[Value, bool], Value] = field(default_factory=dict)
    memo: dict[Value, Value] = field(default_factory=dict)

    @property
    def sides(self) -> frozenset[Coordinate]:
        return frozenset((self.op.key.name,) if self.op.row is None else (self.op.key.name, self.op.row))

    def of(self, one: Value) -> Value:
        """The part of a value for a tile: computed there where it varies with a query and a key, or is elementwise."""
        if one not in self.memo:
            self.memo[one] = self._part(one)
        return self.memo[one]

    def _part(self, one: Value) -> Value:
        own, op = one.names & self.sides, one.op
        if one.is_host:
            return one
        if isinstance(op, Iota) and own:
            return applied("+", value(Iota(self.axis(op.axis))), host(_size(start_of(op.axis.name))))
        if own and isinstance(op, Map) and one.known.whole is not None:
            return value(Map(op.fn, tuple(map(self.of, op.args)), op.checked))
        if not own or (one in self.op.given and (own != self.sides or not isinstance(op, Map | Contract))):
            return self.leaf(one)
        match op:
            case Map(fn, args, checked):
                return _with(one, Map(fn, tuple(map(self.of, args)), checked))
            case Read(_, index) if own != self.sides and all(isinstance(at.op, Iota | Number) for _, at in index):
                return self.leaf(one)  # The same array, its axes by other names.
            case Read(source, index) if source.names & self.sides <= dict(index).keys():
                return self._read(op)
            case _ if own != self.sides:
                return self.leaf(one)
            case Contract(factors, over) if not self._binds(over):
                return value(Contract(tuple(map(self.of, factors)), over))
            case Reduce(fn, source, over, None, checked) if not self._binds(over):
                return value(Reduce(fn, self.of(source), over, None, checked))
            case Normalize(fn, source, along, None, checked) if not self._binds((along,)):
                return value(Normalize(fn, self.of(source), along, None, checked))
        return self.leaf(one)

    def _read(self, op: Read) -> Value:
        """A read of an array at places that vary with the tile."""
        source, places = _parted(op) or (op.source, op.index)
        index = tuple((name, self.of(at)) for name, at in places)
        under = None if op.under is None else self.of(op.under)
        source = source if source.is_host else self.leaf(source, whole=True)
        return _widened(value(Read(source, index, op.outside, under)))

    def _binds(self, over: Iterable[Axis]) -> bool:
        return any(axis.name in self.sides for axis in over)

    def leaf(self, one: Value, whole: bool = False) -> Value:
        """What stands for a part of an array that is computed before, or for all of it."""
        if (one, whole) not in self.leaves:
            home = one.op.home if isinstance(one.op, Input) else self.ordered(one.axes)
            axes = home if whole else tuple(map(self.axis, home))
            name = f"leaf {len(self.leaves)}"
            is_itself = whole and isinstance(one.op, Input)
            self.leaves[one, whole] = one if is_itself else value(Input(name, axes, one.kind, one.dtype))
        return self.leaves[one, whole] if whole else _widened(self.leaves[one, whole])

    def ordered(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Queries and keys behind all axes of a batch, before those that are carried along."""
        last = self.op.value.names - self.op.score.names
        return tuple(sorted(axes, key=lambda axis: (axis.name in self.sides) + 2 * (axis.name in last)))

    def axis(self, axis: Axis) -> Axis:
        """An axis as far as the tile has it."""
        return Axis(axis.name, _size(count_of(axis.name))) if axis.name in self.sides else axis


class _Nest:
    """The loops of one fold: those that compute it, and those that bring gradients back through it."""

    def __init__(self, op: Fold, learns: bool) -> None:
        self.op, self.learns = op, learns
        self.rule, self.parts = NORMALISERS[op.normaliser], _Parts(op)
        of = self.parts.of
        self.key = self.parts.axis(op.key)
        score, carried = of(op.score), of(op.value)
        self.allowed = None if op.where is None else of(op.where)
        self.more = tuple(map(of, op.more))
        self.dtype: Dtype = "f64" if score.dtype in (None, "f64") else "f32"
        self.plain = _scaled(cast(score, self.dtype), self.key)
        self.values, self.beside = self._apart(cast(carried, self.dtype))
        self.masked = self.plain if self.allowed is None else where(self.allowed, self.plain, infinity(-1))
        self.score = self.masked if self.rule.masks_scores else self.plain
        pair = tuple(one for one in (self.plain, self.allowed, self.beside) if one is not None)
        self.axes = self.parts.ordered(axes_of(*pair, without=(self.key,)))
        self.divided = self.parts.ordered(axes_of(*pair, *self.more, without=(self.key,)))
        self.wide = self.parts.ordered(axes_of(*pair, self.values, without=(self.key,)))
        outer = (op.score, op.value, *op.more, *(() if op.where is None else (op.where,)))
        self.home = self.parts.ordered(axes_of(*outer, without=(op.key,)))
        bounds = zip((op.low, op.beyond) * 2, _EDGES, strict=True)
        self.edges = [_edge(bound, op, self.parts, least) for bound, least in bounds]

    def _apart(self, carried: Value) -> tuple[Value, Value | None]:
        """The values, and a factor of them that varies with queries and keys: weights are multiplied with it."""
        inner = carried.op.args[0] if isinstance(carried.op, Map) and carried.op.fn.startswith("as f") else carried
        factors = factors_of(inner)
        pairs = [one for one in factors if self.op.row in one.value.names and one.value.names < inner.names]
        rest = [one for one in factors if one not in pairs]
        if not pairs or not rest or any(one.inverse for one in factors) or self.op.row is None:
            return carried, None
        beside, values = (product(one.value for one in group) for group in (pairs, rest))
        if self.op.row in values.names or self.key.name not in values.names:
            return carried, None
        return cast(values, self.dtype), cast(beside, self.dtype)

    @property
    def row(self) -> Axis | None:
        return next((axis for axis in self.home if axis.name == self.op.row), None)

    def outputs(self) -> list[tuple[str, tuple[Axis, ...], Dtype | None]]:
        """What the loops give, each with its home: the result, and what the way back needs of each row."""
        whole = {axis.name: axis for axis in self.home}
        rows, divided = ([whole[axis.name] for axis in group] for group in (self.axes, self.divided))
        found = [(RESULT, self.home, widest((self.op.score.dtype, self.op.value.dtype)))]
        if self.rule.divisor is not None and (self.learns or self.op.part == LOGARITHM):
            found.append((DIVISOR if self.rule.level is None else LOGARITHM, tuple(divided), self.dtype))
            if self.learns and self._counts_from_peak:
                found.append((PEAK, tuple(rows), self.dtype))
        return found

    @property
    def _counts_from_peak(self) -> bool:
        """Whether rows are divided by something that varies with their largest score."""
        peak, sums = self._row(PEAK, self.axes), self._sums()
        assert self.rule.divisor is not None
        return peak in reachable([self.rule.divisor(sums, self._row("level", self.axes), peak, self.more)])

    def _sums(self) -> dict[str, Value]:
        """What stands for the sums of the rows of a tile."""
        return {name: self._row(name, self.wide if name == GATHERED else self.axes) for name in self.rule.sums}

    def _row(self, name: str, axes: tuple[Axis, ...], dtype: Dtype | None = None) -> Value:
        """What stands for a value of rows. No input of a program is called so."""
        return value(Input(f"{name}'", axes, "real", dtype or self.dtype))

    def _turn(self, **more: Any) -> Turn:
        first, end, full_first, full_end = self.edges
        full = (full_first, full_end) if self.op.is_interval and self.allowed is not None else None
        plain = {"carried": (), "begin": (), "new": (), "results": (), "adds": ()}
        turn = Turn(
            **{**plain, **more},
            row=self.row,
            key=self.op.key,
            first=first,
            end=end,
            full=full,
            allowed=self.allowed,
            texts=self.op.texts,
        )
        return turn.with_parts({})

    # ------------------------------------------------------------------------ there

    def forward(self) -> Turn:
        rule, sums = self.rule, self._sums()
        peak = level = fade = None
        last = self._row(PEAK, self.axes)
        names = [("score", self.masked if rule.level is not None else self.plain)]
        if rule.level is not None and rule.before is not None:
            peak = applied("max", last, value(Reduce("max", self.masked, (self.key,))))
            level, fade = rule.level(peak), exp_less(rule.before(last), rule.level(peak))
            names += [(PEAK, peak), ("level", level), ("fade", fade)]
        new = []
        for name in rule.sums:
            weights = self._weights(name, real(0) if level is None else level)
            names.append(("weights", weights))
            gathers = name == GATHERED
            found = self._gathered(weights) if gathers else value(Reduce("sum", weights, (self.key,)))
            new.append(applied("+", sums[name] if fade is None else applied("*", sums[name], fade), found))
        carried = [*sums.values()]
        if peak is not None:
            carried, new = [last, *carried], [peak, *new]
        level = real(0) if rule.level is None else rule.level(last)
        results = tuple(cast(self._result(name, sums, level, last), dtype) for name, _, dtype in self.outputs())
        return self._turn(
            given=(*self.parts.leaves.values(),),
            carried=tuple(carried),
            begin=(None,) * len(carried),
            new=tuple(new),
            results=results,
            names=tuple(names),
        )

    def _weights(self, name: str, level: Value) -> Value:
        weights = self.rule.sums[name](self.score, level)
        if name == GATHERED and self.beside is not None:
            return kept(self.allowed, applied("*", weights, self.beside))
        return weights if self.rule.masks_scores else kept(self.allowed, weights)

    def _gathered(self, weights: Value) -> Value:
        return product_sum(weights, self._heard(self.values), [axis.name for axis in self.wide])

    def _heard(self, one: Value) -> Value:
        """A value of keys, 0 where no query of the tile hears them: there it may be anything."""
        if self.allowed is None or self.key.name not in one.names:
            return one
        over = tuple(axis for axis in self.allowed.axes if axis.name not in one.names)
        return kept(value(Reduce("any", self.allowed, over)) if over else self.allowed, one)

    def _result(self, name: str, sums: Mapping[str, Value], level: Value, peak: Value) -> Value:
        rule = self.rule
        if name == PEAK:
            return peak
        if name == RESULT:
            found = rule.result(sums, level, peak, self.more)
            is_mean = rule.masks_scores and not self.op.divides and "total" in sums
            return where(applied("==", sums["total"], real(0)), real(0), found) if is_mean else found
        assert rule.divisor is not None
        divisor = rule.divisor(sums, level, peak, self.more)
        if name == DIVISOR:
            return divisor
        return applied("+", *promoted((applied("log", divisor), level)))

    def at_once(self) -> Value:
        """The result of all pairs. What nobody hears is 0 there: it reaches neither a result nor a gradient."""
        op, dtype = self.op, self.dtype
        wide = {leaf: _widened(leaf) for leaf, _ in self.parts.leaves}
        heard = self._heard_keys()
        key = op.key if heard is None else heard[0]
        if heard is not None:
            at = applied("+", value(Iota(key)), heard[1])
            parts = {leaf: value(Read(one, ((key.name, at),))) for leaf, one in wide.items() if op.key in leaf.axes}
            wide |= {**parts, value(Iota(op.key)): at}
        test = None if op.where is None else _replaced(op.where, wide)
        # What is read at other places, too, has axes of its own, whatever they are called.
        whole = {leaf for leaf, is_whole in self.parts.leaves if is_whole}
        taking = {leaf: one if leaf in whole else self._taking_part(one, test) for leaf, one in wide.items()}
        for one in reachable((op.score, op.value)):
            if isinstance(one.op, Read) and one not in taking and len(one.names & self.parts.sides) == 1:
                taking[one] = self._taking_part(_replaced(one, wide), test)
        score, carried = (self._bounded(_replaced(cast(one, dtype), taking), test) for one in (op.score, op.value))
        more = tuple(_replaced(one, wide) for one in op.more)
        name, home, found_dtype = next(each for each in self.outputs() if each[0] == op.part)
        return cast(self._all_pairs(name, score, carried, test, more, [axis.name for axis in home], key), found_dtype)

    def _heard_keys(self) -> tuple[Axis, Value] | None:
        """The keys from the first to the last that some query hears, and the number of the first, where a window with
        the same steps as queries says so; None where all keys are taken."""
        op = self.op
        if op.low is None or op.beyond is None or not op.is_interval or self.row is None or op.row is None:
            return None
        if any(is_whole and op.key in leaf.axes for leaf, is_whole in self.parts.leaves):
            return None
        low, beyond = op.low.known.whole, op.beyond.known.whole
        if low is None or beyond is None or not op.low.names | op.beyond.names <= {op.row}:
            return None
        slopes = [_slope(bound, op.row) for bound in (low, beyond)]
        if None in slopes or min(slope or 0 for slope in slopes) < 0:
            return None
        zero, extent = build.whole(0, NOWHERE), length(op.key)
        ends = replaced(low, op.row, number(0)), replaced(beyond, op.row, polynomial(self.row.extent) - 1)
        if ends[0].constant is not None and ends[0].constant <= 0:
            return None  # Of as many queries as keys all keys are heard.
        first, last = (expression(end, NOWHERE) for end in ends)
        first = build.apply("min", (build.apply("max", (first, zero), "whole", NOWHERE), extent), "whole", NOWHERE)
        last = build.apply("max", (build.apply("min", (last, extent), "whole", NOWHERE), first), "whole", NOWHERE)
        return Axis(op.key.name, build.apply("-", (last, first), "whole", NOWHERE)), host(first)

    def _bounded(self, one: Value, test: Value | None) -> Value:
        """A value whose exponentials are 1 where a pair does not count: their slope, infinite, would outlast the 0 that
        it is multiplied with."""
        others: dict[Value, Value] = {}
        for part in reachable((one,)) if test is not None else ():
            if _outgrows(part) and self.parts.sides <= part.names:
                assert isinstance(part.op, Map)
                others[part] = apply(part.op.fn, kept(test, _replaced(part.op.args[0], others)))
        return _replaced(one, others)

    def _taking_part(self, one: Value, test: Value | None) -> Value:
        """An array of queries or keys, 0 for those that are in no pair."""
        mine = one.names & self.parts.sides
        if test is None or one.kind != "real" or len(mine) != 1:
            return one
        if not test.names & mine and self.op.key.name not in mine:
            return one
        return self._unless_all_hear(one, _only_heard(one, test))

    def _unless_all_hear(self, one: Value, otherwise: Value) -> Value:
        """One of two values: the first where all queries and all keys are in some pair, as far as sizes say so."""
        op = self.op
        if not op.hears_itself or self.row is None:
            return otherwise
        if self.row.extent == op.key.extent:
            return one
        return where(host(build.apply("==", (self.row.extent, op.key.extent), "bool", NOWHERE)), one, otherwise)

    def _all_pairs(
        self,
        name: str,
        score: Value,
        values: Value,
        test: Value | None,
        more: tuple[Value, ...],
        names: list[Coordinate],
        key: Axis,
    ) -> Value:
        """A result of all pairs of queries and these keys, with axes of these names."""
        rule = self.rule
        values, beside = self._apart(values)
        further = self._further_keys(more)
        nothing = real(0)
        if self.op.divides:
            nothing = applied("/", nothing, nothing)
        if name == RESULT and further == () and beside is None:
            found = self._by_library(score, values, test, names, key)
            if found is not None:
                return where(_any(test, names), found, nothing) if self.op.divides and test is not None else found
        score = _scaled(score, key)
        masked = score if test is None else where(test, score, infinity(-1))

        def gathered(weights: Value) -> Value:
            weights = weights if beside is None else applied("*", weights, kept(test, beside))
            return product_sum(weights, values, names)

        if rule.divisor is None:
            return gathered(kept(test, rule.sums[GATHERED](score, real(0))))
        if name == RESULT and further is not None:
            weights = value(Normalize("softmax", *_joined(masked, key, further)))
            if further:
                return gathered(value(Read(weights, ((_beyond(key), value(Iota(key))),))))
            if test is None:
                return gathered(weights)
            # Of a row that hears nobody they are no numbers. Which rows these are, sizes may say of positions.
            rows = [name for name in test.names if name != key.name]
            heard = test if _is_of_data(test) else _any(test, rows)
            found = gathered(self._unless_all_hear(weights, kept(heard, weights)))
            if not self.op.divides:
                return found
            return self._unless_all_hear(found, where(_any(test, names), found, nothing))
        peak = value(Reduce("max", masked, (key,)))
        level = real(0) if rule.level is None else rule.level(peak)
        each = {
            part: weight(masked, level) if rule.masks_scores else kept(test, weight(score, level))
            for part, weight in rule.sums.items()
        }
        sums = {part: value(Reduce("sum", one, (key,))) for part, one in each.items() if part != GATHERED}
        divisor = rule.divisor(sums, level, peak, more)
        if name != RESULT:
            return applied("+", *promoted((applied("log", divisor), level)))
        is_none = applied("==", divisor, real(0))
        found = gathered(each[GATHERED])
        return where(is_none, nothing, applied("/", *promoted((found, where(is_none, real(1), divisor)))))

    def _by_library(
        self, score: Value, values: Value, test: Value | None, names: Sequence[Coordinate], along: Axis
    ) -> Value | None:
        """The result of a softmax by the library's kernel, where a score is a product and something that is added; None
        where it is not."""
        key, parts = along.name, _product_and_more(score, along.name)
        if parts is None or key not in values.names:
            return None
        (query, keys, over, scale), bias = parts
        carried = [axis for axis in values.axes if axis.name not in score.names]
        batch = [name for name in names if name in score.names and name != self.op.row]
        batch += [axis.name for axis in values.axes if axis.name not in {key, *batch, *(one.name for one in carried)}]
        # Heads that share keys, a query a row of theirs, are faster as products.
        is_shared = not {axis.name for axis in query.axes if axis.name in batch} <= keys.names & values.names
        if not carried or is_shared or self.op.row in keys.names | values.names or key in query.names:
            return None
        lead = (tuple(batch[:-1]), tuple(batch[-1:]))
        row = () if self.op.row is None else (self.op.row,)
        compared, gathered = (tuple(axis.name for axis in group) for group in (over, carried))
        given: list[tuple[str, Value, Layout]] = [
            ("", query, (*lead, row, compared)),
            ("", keys, (*lead, (key,), compared)),
            ("", values, (*lead, (key,), gathered)),
        ]
        if test is not None or bias is not None:
            mask = real(0) if bias is None else bias
            mask = mask if test is None else where(test, mask, infinity(-1))
            mask = mask if mask.dtype == self.dtype else apply(f"as {self.dtype}", mask)
            own = tuple(group if set(group) & mask.names else () for group in lead)
            given.append(("mask", mask, (*own, row if set(row) & mask.names else (), (key,))))
        if any(one.names - {name for group in layout for name in group} for _, one, layout in given):
            return None
        every, order = [one for _, one, _ in given], (*batch, *row, *gathered)
        found = axes_of(*every, without=(along, *over))
        if {axis.name for axis in found} != set(order):
            return None
        axes = tuple(sorted(found, key=lambda axis: order.index(axis.name)))
        return value(
            Library(
                "attention",
                tuple(one for _, one, _ in given),
                tuple((name, layout) for name, _, layout in given),
                axes,
                (*lead, row, gathered),
                (("scale", scale),),
                "real",
                self.dtype,
            )
        )

    def _further_keys(self, more: tuple[Value, ...]) -> tuple[Value, ...] | None:
        """The scores of further keys that carry 0, of weights that are exponentials over their sum; None for others."""
        rule = self.rule
        if rule.divisor is None or any(weight is not exp_less for weight in rule.sums.values()):
            return None
        sums, level, peak = self._sums(), self._row("level", self.axes), self._row(PEAK, self.axes)
        divisor = rule.divisor(sums, level, peak, more)
        if divisor is sums["total"]:
            return ()
        found = (one for one in more if divisor is applied("+", *promoted((sums["total"], exp_less(one, level)))))
        return next(((one,) for one in found), None)

    # ------------------------------------------------------------------------- back

    def back(self) -> Turn:
        """The gradients of leaves, from those of the outputs: weights once more, by a level for which the divisor is 1.
        """
        rule, homes = self.rule, {name: (home, dtype) for name, home, dtype in self.outputs()}
        tiled = {name: tuple(map(self.parts.axis, home)) for name, (home, _) in homes.items()}
        found = {name: self._row(name, tiled[name], homes[name][1]) for name in homes}
        arriving = {name: self._row(f"d_{name}", tiled[name], homes[name][1]) for name in homes if name != PEAK}
        out, flow = (cast(one, self.dtype) for one in (found[RESULT], arriving[RESULT]))
        # Each query of the divisor has weights of its own then.
        sums, cotangents = {name: self._row(name, self.divided) for name in rule.sums}, {GATHERED: flow}
        level, lost = real(0), None
        learned = {one for one in self.parts.leaves.values() if one.kind == "real"}
        lost_row = self._row("lost", self.axes)
        # What is the same for all tiles of keys is added once.
        gradients: dict[tuple[Value, bool], Value] = {}

        def arrive(part: Value, more: Value) -> None:
            at = part, more in moving((more,), self.key.name, (lost_row,))
            gradients[at] = applied("+", gradients[at], more) if at in gradients else more

        names: list[tuple[str, Value]] = []
        if rule.divisor is not None:
            to_divisor = applied("neg", product_sum(flow, out, [axis.name for axis in self.divided]))
            if rule.level is None:
                divisor = where(applied("==", found[DIVISOR], real(0)), infinity(1), found[DIVISOR])
                cotangents[GATHERED] = applied("/", flow, divisor)
                to_divisor = applied("/", to_divisor, divisor)
            else:
                total = found[LOGARITHM]
                level = where(applied("==", total, infinity(-1)), infinity(1), total)
                to_divisor = applied("+", to_divisor, arriving[LOGARITHM])
            peak = found.get(PEAK, self._row(PEAK, self.axes))
            whole = rule.divisor(sums, level, peak, self.more)
            leaves = {*sums.values(), peak, *learned}
            for part, more in flows(whole, to_divisor, leaves).items():
                name = next((name for name, one in sums.items() if one is part), None)
                if name is not None:
                    cotangents[name] = more
                elif part is peak:
                    lost = more
                else:
                    arrive(part, more)
        to_weights: dict[Value, Value] = {}
        for name, arrived in cotangents.items():
            weights = self._weights(name, level)
            if name == GATHERED:
                names.append(("weights", weights))
                share = product_sum(weights, arrived, self.values.names)
                for part, more in flows(self.values, share, learned, self._keep, self._heard).items():
                    arrive(part, more)
                keeps = {*weights.names, *(axis.name for axis in self.axes)}
                arrived = product_sum(arrived, self._heard(self.values), keeps)
            to_weights[weights] = applied("+", to_weights[weights], arrived) if weights in to_weights else arrived
        to_score: Value | None = None
        for weights, arrived in to_weights.items():
            ends = {self.score, *learned} if self.beside is not None else {self.score}
            for part, more in flows(weights, arrived, ends, self._keep, self._heard).items():
                if part is self.score:
                    to_score = more if to_score is None else applied("+", to_score, more)
                else:
                    arrive(part, more)
        begin: list[Value | None] = []
        carried, new = [], []
        if lost is not None:
            to_score, left = self._to_peak(to_score, found[PEAK])
            carried, begin, new = [lost_row], [lost], [left]
        assert to_score is not None
        # What has not all axes of the mask was masked before it was summed.
        is_masked = self.allowed is None or not self.allowed.names <= to_score.names
        names += [("score", self.score), ("d_score", to_score if is_masked else kept(self.allowed, to_score))]
        for part, more in flows(self.plain, names[-1][1], learned, self._keep, self._heard).items():
            arrive(part, more)
        rows = [found[name] for name in homes] + [arriving[name] for name in arriving]
        given = (*self.parts.leaves.values(), *rows)
        every = ((n, gradients.get((one, moves))) for n, one in enumerate(given) for moves in (False, True))
        adds = tuple((n, one) for n, one in every if one is not None)
        return self._turn(
            given=given, carried=tuple(carried), begin=tuple(begin), new=tuple(new), adds=adds, names=tuple(names)
        )

    def _keep(self, slope: Value, product: Value) -> Value:
        """0 where a pair does not count, and a slope may be anything."""
        if self.allowed is None or not slope.names & self.allowed.names or not self.allowed.names <= product.names:
            return product
        reads = any(isinstance(part.op, Input) for part in reachable([slope]))
        return kept(self.allowed, product) if reads else product

    def _to_peak(self, to_score: Value | None, peak: Value) -> tuple[Value, Value]:
        """What flows to the scores, and of it to the first of those that are the largest of their row; and what has
        not met that score yet."""
        lost = self._row("lost", self.axes)
        hit = applied("==", self.masked, peak)
        first = value(Reduce("argmax", where(hit, real(1), real(0)), (self.key,)))
        here = applied("&&", hit, applied("==", value(Iota(self.key)), first))
        more = where(here, lost, real(0))
        left = where(value(Reduce("any", hit, (self.key,))), real(0), lost)
        return (more if to_score is None else applied("+", to_score, more)), left


def _product_and_more(
    score: Value, key: Coordinate
) -> tuple[tuple[Value, Value, tuple[Axis, ...], ir.Expr], Value | None] | None:
    """A score as a product of queries and keys, the axes that it is summed over and the number that it is multiplied
    with, and what is added to it, if anything; None where it is something else."""
    terms = terms_of(score)
    for term in terms:
        factors = factors_of(term.value)
        dots = [one for one in factors if isinstance(one.value.op, Contract) and key in one.value.names]
        rest = [one for one in factors if one not in dots]
        if len(dots) != 1 or dots[0].inverse or any(key in one.value.names for one in rest):
            continue
        op = dots[0].value.op
        assert isinstance(op, Contract)
        sides = sorted(op.factors, key=lambda one: key in one.names)
        if len(sides) != 2 or key in sides[0].names or key not in sides[1].names:
            continue
        scale = real(1 if term.positive else -1)
        query = sides[0]
        for one in rest:
            if one.value.is_host:
                scale = applied("/" if one.inverse else "*", scale, one.value)
            else:
                query = applied("/" if one.inverse else "*", *promoted((query, one.value)))
        others = [other for other in terms if other is not term]
        assert isinstance(scale.op, Number)
        return (query, sides[1], op.over, scale.op.expr), added(others) if others else None
    return None


def _is_of_data(test: Value) -> bool:
    """Whether a condition is of more than positions."""
    return any(isinstance(part.op, Input) for part in reachable((test,)))


def _only_heard(one: Value, test: Value) -> Value:
    """An array where a condition holds somewhere along its other axes, and 0 elsewhere: by a kernel that looks at the
    condition only where some number is not finite."""
    inner = one.op.args[0] if isinstance(one.op, Map) and one.op.fn.startswith("as ") else one
    own = tuple(axis.name for axis in (inner.op.home if isinstance(inner.op, Input) else one.axes))
    gone = tuple(axis.name for axis in test.axes if axis.name not in own)
    if not gone:
        return kept(test, one)
    layout = tuple((name,) for name in own)
    mask: Layout = (*((name,) if name in test.names else () for name in own), *((name,) for name in gone))
    axes = tuple(map(one.axis, own))
    given, words = (("", layout), ("", mask)), (("gone", len(gone)),)
    return value(Library("only_heard", (one, test), given, axes, layout, words, "real", one.dtype))


def _outgrows(one: Value) -> bool:
    """Whether a value leaves the range of numbers for large arguments, where it is defined, as exponentials do."""
    if not isinstance(one.op, Map) or one.op.fn not in FUNCTIONS:
        return False
    row = FUNCTIONS[one.op.fn]
    return row.domain == REALS and not row.finite


def _any(test: Value, names: Collection[Coordinate]) -> Value:
    """Whether a condition holds anywhere, along axes that are not among these."""
    over = tuple(axis for axis in test.axes if axis.name not in names)
    return value(Reduce("any", test, over)) if over else test


def _beyond(key: Axis) -> Coordinate:
    """The axis of all keys and a further one."""
    return Coordinate(f"{key.name.name}'more")


def _joined(scores: Value, key: Axis, further: tuple[Value, ...]) -> tuple[Value, Axis]:
    """Scores, and those of a further key behind the last."""
    if not further:
        return scores, key
    one, extent = further[0], length(key)
    if not isinstance(one.op, Number) or not isinstance(one.op.expr, ir.Const):
        one = applied("min", one, real(10**38))  # An infinite one takes all weight.
    last = Axis(Coordinate(f"{key.name.name}'last"), build.whole(1, NOWHERE))
    along = Axis(_beyond(key), build.apply("+", (extent, build.whole(1, NOWHERE)), "whole", NOWHERE))
    beside = [axis for axis in axes_of(scores, one) if axis.name != key.name]
    scores, one = promoted((scores, one))
    slots = tuple(value(Iota(axis)) for axis in beside)
    behind = applied("+", value(Iota(last)), host(extent))
    parts = (((*slots, value(Iota(key))), scores), ((*slots, behind), one))
    return value(Join((*beside, along), parts, "real", scores.dtype)), along


# Of the first key that queries hear, and of the one beyond the last, whether the least counts: for those that some
# query of a tile hears, and for those that all hear.
_EDGES = (True, False, False, True)


def _scaled(score: Value, key: Axis) -> Value:
    """A score with the number that a product of queries and keys is multiplied with at the side of the queries."""
    memo: dict[Value, Value] = {}
    for one in reachable([score]):
        new = with_operands(one, memo.__getitem__)
        made = one if new is one.op else value(new)
        match made.op:
            case Map("*" | "/" as fn, (Value(op=Contract((a, b), over)), factor)) if factor.is_host:
                side = a if key.name not in a.names else b
                if key.name not in side.names:
                    scaled = applied(fn, side, factor)
                    made = value(Contract((scaled, b) if side is a else (a, scaled), over))
        memo[one] = made
    return memo[score]


def _edge(bound: Value | None, op: Fold, parts: _Parts, least: bool) -> Value | None:
    """The first key that a query of the tile hears, or the one beyond the last: a number of the host where it rises
    with the query."""
    if bound is None or bound.is_host:
        return bound
    known = bound.known.whole
    if known is not None and op.row is not None and bound.names == {op.row}:
        slope = _slope(known, op.row)
        if slope is not None and slope >= 0:
            start = of_atom(_size(start_of(op.row)))
            place = start if least else start + of_atom(_size(count_of(op.row))) - 1
            moved = (place - of_atom(op.row)) * number(slope)
            return host(expression(known + moved, NOWHERE))
    part = parts.of(bound)
    return value(Reduce("min" if least else "max", part, part.axes)) if part.axes else part


def _slope(known: Polynomial, name: Coordinate) -> int | None:
    """The factor of a coordinate in a polynomial; None where it occurs otherwise."""
    found = 0
    for monomial, factor in known.terms.items():
        if any(atom == name for atom, _ in monomial):
            if monomial != frozenset(((name, 1),)):
                return None
            found = int(factor)
    return found
