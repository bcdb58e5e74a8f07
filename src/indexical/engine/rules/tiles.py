"""Folds as loops over tiles: what is computed for some queries, and for these and some keys in turn.

What is summed for one side alone is an array that is computed before the loop. In a turn there is what varies with
both, and what is elementwise, so that no array is as large as keys that are pairs. A turn is made of parts of arrays:
an axis has so many points as its tile, from a start on, which are sizes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import Polynomial, expression, number, of_atom
from ...ir.types import Coordinate
from ...ir.walk import walk
from ...records import dataclass, field
from ..ops import (
    Axis,
    Contract,
    Fold,
    Input,
    Iota,
    Map,
    Normalize,
    Number,
    Plan,
    Read,
    Reduce,
    Tiles,
    Value,
    axes_of,
    host,
    value,
    with_operands,
)
from ..order import mapped, reachable
from ..products import is_pair
from .folds import GATHERED, NORMALISERS, exp_less
from .terms import NOWHERE, applied, cast, infinity, kept, promoted, real, where

PEAK = "peak"

NAME, LAW = "tile by tile", "a sum over all keys is one over tiles of sums over their keys"


@dataclass(frozen=True, slots=True)
class Turn:
    """What loops over tiles of a fold compute. The values `given` stand for parts of its leaves, `carried` are inputs
    for what goes from one tile of keys to the next: each turn makes `new` ones, and after the last they make `result`.
    The keys of the tile are those from `first` on and before `end`, where they are not all. `names` are what values of
    a turn are called."""

    row: Axis | None
    key: Axis
    given: tuple[Value, ...]
    carried: tuple[Value, ...]
    new: tuple[Value, ...]
    result: Value
    first: Value | None
    end: Value | None
    texts: tuple[str, ...]
    names: tuple[tuple[str, Value], ...]

    def changed(self, axis: Callable[[Axis], Axis], change: Callable[[Value], Value]) -> Turn:
        """The same, with other axes, and with other values in the place of its own."""

        def each(values: Iterable[Value]) -> tuple[Value, ...]:
            return tuple(map(change, values))

        first, end = (None if one is None else change(one) for one in (self.first, self.end))
        row = None if self.row is None else axis(self.row)
        parts = each(self.given), each(self.carried), each(self.new), change(self.result)
        names = tuple((name, change(one)) for name, one in self.names)
        return Turn(row, axis(self.key), *parts, first, end, self.texts, names)

    def of_rows(self) -> list[Value]:
        """What is computed of the queries of a tile alone, and is the same for all tiles of keys."""
        mine = {start_of(self.key.name), count_of(self.key.name)}
        memo: dict[Value, bool] = {}
        for one in reachable(self.new):
            numbers = walk(one.op.expr) if isinstance(one.op, Number) else ()
            moves = any(isinstance(part, ir.Size) and part.coordinate in mine for part in numbers)
            changes = one in self.carried or self.key.name in one.names or moves
            memo[one] = not changes and all(memo[part] for part in one.parts)
        read = dict.fromkeys(part for one in memo if not memo[one] for part in one.parts)
        return [one for one in read if memo[one] and one.axes and not isinstance(one.op, Input)]

    def with_parts(self, others: Mapping[Value, Value]) -> Turn:
        """The same, with other inputs that stand for parts of arrays."""
        memo = dict(others)

        def changed(one: Value) -> Value:
            for part in reachable([one]):
                if part not in memo:
                    new = with_operands(part, memo.__getitem__)
                    memo[part] = part if new is part.op else value(new)
            return memo[one]

        return self.changed(lambda axis: axis, changed)


def start_of(name: Coordinate) -> Coordinate:
    """The size that says where a tile starts along an axis. No coordinate of a program is called so."""
    return Coordinate(f"{name.name}'0")


def count_of(name: Coordinate) -> Coordinate:
    """The size that says how many points a tile has along an axis."""
    return Coordinate(f"{name.name}'n")


def _size(name: Coordinate) -> ir.Expr:
    return build.size(name, NOWHERE)


def by_tiles(plan: Plan) -> Plan:
    """The plan with loops over tiles in the place of folds."""
    values = reachable([each.value for each in plan.definitions.values()])
    return mapped(plan, _by_tiles) if any(isinstance(one.op, Fold) for one in values) else plan


def _by_tiles(one: Value) -> Value:
    op = one.op
    if not isinstance(op, Fold):
        return one
    parts = _Parts(op)
    turn, home = _turn(one, op, parts)
    return value(Tiles(turn, tuple(leaf for leaf, _ in parts.leaves), home, one.dtype))


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
        if not own or one in self.op.given:
            return self.leaf(one)
        match op:
            case Map(fn, args, checked):
                return value(Map(fn, tuple(map(self.of, args)), checked))
            case Read(_, index) if own != self.sides and all(isinstance(at.op, Iota) for _, at in index):
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
        index = tuple((name, self.of(at)) for name, at in op.index)
        under = None if op.under is None else self.of(op.under)
        source = op.source if op.source.is_host else self.leaf(op.source, whole=True)
        return value(Read(source, index, op.outside, under))

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
        return self.leaves[one, whole]

    def ordered(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Queries and keys behind all axes of a batch, before those that are carried along."""
        last = self.op.value.names - self.op.score.names
        return tuple(sorted(axes, key=lambda axis: (axis.name in self.sides) + 2 * (axis.name in last)))

    def axis(self, axis: Axis) -> Axis:
        """An axis as far as the tile has it."""
        return Axis(axis.name, _size(count_of(axis.name))) if axis.name in self.sides else axis


def _turn(one: Value, op: Fold, parts: _Parts) -> tuple[Turn, tuple[Axis, ...]]:
    rule = NORMALISERS[op.normaliser]
    key = parts.axis(op.key)
    score, values = parts.of(op.score), parts.of(op.value)
    allowed = None if op.where is None else parts.of(op.where)
    more = tuple(parts.of(other) for other in op.more)
    dtype = "f64" if score.dtype in (None, "f64") else "f32"
    score, values = cast(score, dtype), cast(_heard(values, allowed, op.row), dtype)
    weighed = (score,) if allowed is None else (score, allowed)
    axes, wide = (axes_of(*each, without=(key,)) for each in (weighed, (*weighed, values)))
    homes = {name: wide if name == GATHERED else axes for name in rule.sums}
    before = {name: _carried(name, parts, homes[name], dtype) for name in rule.sums}
    carried, new, peak, level = [*before.values()], [], real(0), real(0)
    fade: Value | None = None
    names = [("allowed", allowed)] if allowed is not None else []
    if rule.level is not None and rule.before is not None:
        masked = score if allowed is None else where(allowed, score, infinity(-1))
        score = masked if rule.masks_scores else score
        last = _carried(PEAK, parts, axes, dtype)
        peak = applied("max", last, value(Reduce("max", masked, (key,))))
        level, fade = rule.level(peak), exp_less(rule.before(last), rule.level(peak))
        carried, new = [last, *carried], [peak]
        names += [("score", masked), ("level", level), ("fade", fade)]
    for name, weight in rule.sums.items():
        weights = weight(score, level)
        weights = weights if rule.masks_scores else kept(allowed, weights)
        names.append(("weights", weights))
        found = _gathered(weights, values, key) if name == GATHERED else value(Reduce("sum", weights, (key,)))
        new.append(applied("+", before[name] if fade is None else applied("*", before[name], fade), found))
    ends = {each.op.name.rstrip("'"): each for each in carried}  # type: ignore[union-attr]
    peak = ends.get(PEAK, real(0))
    level = real(0) if rule.level is None else rule.level(peak)
    result = rule.finish(ends, level, peak, more)
    if rule.level is not None and not op.divides and "total" in ends:
        result = where(applied("==", ends["total"], real(0)), real(0), result)
    row = None if op.row is None else one.axis(op.row) if op.row in one.names else None
    first, end = (_edge(bound, op, parts, least) for bound, least in ((op.low, True), (op.beyond, False)))
    given = tuple(parts.leaves.values())
    loops = given, tuple(carried), tuple(new), cast(result, one.dtype)
    turn = Turn(row, op.key, *loops, first, end, op.texts, tuple(names))
    return turn, parts.ordered(one.axes)


def _gathered(weights: Value, values: Value, key: Axis) -> Value:
    """The sum over keys of weights times values: a product of matrices where it is one."""
    pair = tuple(promoted((weights, values)))
    product = Contract(pair, (key,))
    return value(product) if is_pair(product) else value(Reduce("sum", applied("*", *pair), (key,)))


def _carried(name: str, parts: _Parts, axes: tuple[Axis, ...], dtype: str) -> Value:
    """What a sum is before a turn. No input of a program is called so."""
    return value(Input(f"{name}'", parts.ordered(axes), "real", dtype))  # type: ignore[arg-type]


def _heard(values: Value, allowed: Value | None, row: Coordinate | None) -> Value:
    """Values, 0 where no query of the tile hears them: NaN and infinity stay where they are."""
    if allowed is None:
        return values
    over = tuple(axis for axis in allowed.axes if axis.name == row)
    return kept(value(Reduce("any", allowed, over)) if over else allowed, values)


def _edge(bound: Value | None, op: Fold, parts: _Parts, least: bool) -> Value | None:
    """The first key that a query of the tile hears, or the one beyond the last: a number of the host where it rises
    with the query."""
    if bound is None or bound.is_host or op.row is None:
        return bound
    known = bound.known.whole
    if known is not None and bound.names == {op.row}:
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
