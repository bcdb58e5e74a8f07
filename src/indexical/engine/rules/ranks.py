"""Ranks, the largest few of a ranking, and their places: each by a kernel of the dialect."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...ir.walk import walk
from ...records import dataclass
from ..ops import Axis, Contract, Library, Map, Normalize, Number, Reduce, Value, all_of, conjuncts, host, value
from ..words import Names, as_written
from .patterns import Found, No, Target
from .places import placed
from .sums import is_size
from .terms import NOWHERE, applied, factors_of, fresh, product, promoted, whole

AMONG_FIRST, TOP, RANK = "among_first", "top", "rank"


def by_sorting(one: Value, found: Found, target: Target) -> Value | No | None:
    """All ranks, by a stable sort."""
    assert isinstance(one.op, Normalize)
    return _ranked(RANK, one, one.op)


def select_first(one: Value, found: Found, target: Target) -> Value | No | None:
    """Whether a rank is below a number, by the places of so many largest, and not by all ranks."""
    rank, limit = found["rank"].op, found["limit"].op
    assert isinstance(rank, Normalize)
    if AMONG_FIRST not in target.kernels or rank.along.name not in rank.source.names:
        return None
    if not isinstance(limit, Number):
        return No("how many come first is no single number")
    return _ranked(AMONG_FIRST, one, rank, limit.expr)


def gather_first(one: Value, found: Found, target: Target) -> Value | No | None:
    """A sum over the first of a ranking, or under a softmax of these, over their places: no other is read."""
    op = one.op
    assert isinstance(op, Reduce)
    if TOP not in target.kernels or len(op.over) != 1 or one.kind != "real":
        return None
    (key,) = op.over
    chosen = _chosen(op.where, key)
    if isinstance(chosen, No):
        return chosen
    if chosen is not None:
        guard = all_of(chosen.is_there, *map(chosen.at, chosen.others))
        return value(Reduce("sum", chosen.at(op.source), (chosen.turn,), guard, op.checked))
    factors = factors_of(op.source)
    for n, factor in enumerate(factors):
        weights = factor.value.op
        if factor.inverse or not isinstance(weights, Normalize) or weights.fn != "softmax" or weights.along != key:
            continue
        chosen = _chosen(weights.where, key)
        if isinstance(chosen, No):
            return chosen
        if chosen is None:
            continue
        guard = all_of(chosen.is_there, *map(chosen.at, chosen.others))
        few = value(Normalize("softmax", chosen.at(weights.source), chosen.turn, guard))
        rest = [chosen.at(other.value) for other in factors[:n] + factors[n + 1 :] if not other.inverse]
        below = [chosen.at(other.value) for other in factors if other.inverse]
        source = product((few, *rest))
        for divisor in below:
            source = applied("/", *promoted((source, divisor)))
        guard = all_of(*map(chosen.at, conjuncts(op.where)))
        return value(Reduce("sum", source, (chosen.turn,), guard, op.checked))
    return None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The first of a ranking along `key`, which have a `turn` each: the `place` of each in what is `ranked`, and what
    else is asked of them."""

    ranked: Value
    key: Axis
    turn: Axis
    place: Value
    others: tuple[Value, ...]

    @property
    def is_there(self) -> Value:
        return applied(">=", self.place, whole(0))

    def at(self, one: Value) -> Value:
        """A value at the places: what is made cell by cell is made of few."""
        if self.key.name not in one.names:
            return one
        match one.op:
            case Map(fn, args, False) if one is not self.ranked:
                return applied(fn, *map(self.at, args))
        return placed(one, {self.key.name: self.place})


def _chosen(guard: Value | None, key: Axis) -> Chosen | No | None:
    """The first of a ranking that a guard leaves, where it leaves no other than the ranking ranks."""
    tests = conjuncts(guard)
    for n, test in enumerate(tests):
        found = _first(test)
        if found is None or found[0].result[-1] != (key.name,) or key.name not in found[0].args[0].names:
            continue
        ranks, count = found
        own, rest = set(conjuncts(ranks.args[1])) if len(ranks.args) > 1 else set(), tests[:n] + tests[n + 1 :]
        if not own <= set(rest):
            return No("the ranking leaves out numbers that the sum does not")
        taken = frozenset[Coordinate]().union(*(each.names for each in (test, *tests)))
        turn = Axis(fresh(key.name, taken), count)
        axes = (*(axis for axis in ranks.axes if axis.name != key.name), turn)
        result = (*ranks.result[:-1], (turn.name,))
        words = (("count", _at_least_none(count)),)
        given = (_unscaled(ranks.args[0]), *ranks.args[1:])
        place = value(Library(TOP, given, ranks.layouts, axes, result, words, "whole", "i64"))
        return Chosen(given[0], key, turn, place, tuple(other for other in rest if other not in own))
    return None


def _unscaled(one: Value) -> Value:
    """What is scaled, without the scale: no order changes with it. Where it is 0, since an axis has no points, all
    numbers are equal."""
    match one.op:
        case Map("/" | "*", (x, Value(op=Number(scale)) as by)) if is_size(by):
            summed = x.op.over if isinstance(x.op, Contract | Reduce) else ()
            lengths = {axis.extent for axis in (*x.axes, *summed)}
            return x if all(part in lengths for part in walk(scale) if isinstance(part, ir.Size)) else one
    return one


def _first(test: Value) -> tuple[Library, ir.Expr] | None:
    """The kernel that ranks, and the number of ranks that a condition leaves, from 0 on."""
    match test.op:
        case Library("among_first", words=words) as ranks:
            return ranks, dict(words)["count"]
        case Map("<" | "<=" as fn, (rank, Value(op=Number(ir.Const(int() as limit))))):
            pass
        case Map(">" | ">=" as fn, (Value(op=Number(ir.Const(int() as limit))), rank)):
            pass
        case _:
            return None
    if not isinstance(rank.op, Normalize) or rank.op.fn != "rank":
        return None
    sorted_by = _ranked(RANK, rank, rank.op).op
    assert isinstance(sorted_by, Library)
    return sorted_by, build.whole(limit + ("=" in fn), NOWHERE)


def _ranked(kernel: str, one: Value, rank: Normalize, limit: ir.Expr | None = None) -> Value:
    """A kernel of what a ranking ranks, the axis along which it does last."""
    given = (rank.source,) if rank.where is None else (rank.source, rank.where)
    along = rank.along.name
    rest = tuple(sorted(frozenset[Coordinate]().union(*(each.names for each in given)) - {along}))
    layout = tuple((name,) for name in (*rest, along))
    words = () if limit is None else (("count", _at_least_none(limit)),)
    layouts = tuple((name, layout) for name in ("x", "kept")[: len(given)])
    axes = tuple(one.axis(name) for name in (*rest, along))
    return value(Library(kernel, given, layouts, axes, layout, words, one.kind, one.dtype))


def _at_least_none(limit: ir.Expr) -> ir.Expr:
    if isinstance(limit, ir.Const):
        return build.whole(max(0, int(limit.value)), NOWHERE)
    return build.apply("max", (limit, build.whole(0, NOWHERE)), "whole", NOWHERE)


# ------------------------------------------------------------------------ the plan's words


def all_ranks(before: Value, after: Value, names: Names) -> str:
    """A ranking of all numbers."""
    assert isinstance(before.op, Normalize)
    return f"the ranks along `{before.op.along.name}` by a stable sort"


def among_the_largest(before: Value, after: Value, names: Names) -> str:
    """A ranking of which only the first count."""
    assert isinstance(before.op, Map)
    rank, limit = before.op.args
    assert isinstance(rank.op, Normalize)
    return f"the {as_written(limit, names)} largest along `{rank.op.along.name}`, and not all ranks"


def few_places(before: Value, after: Value, names: Names) -> str:
    """A sum over the places of the first of a ranking."""
    assert isinstance(before.op, Reduce)
    assert isinstance(after.op, Reduce)
    count, along = host(after.op.over[0].extent), before.op.over[0].name
    return f"the places of the {as_written(count, names)} largest along `{along}`"

