"""Ranks, the largest few of a ranking, and their places: each by a kernel of the dialect."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ..ops import Iota, Library, Map, Normalize, Number, Reduce, Value, conjuncts, host, value
from ..words import Names, as_written
from .patterns import Found, No, Target
from .terms import NOWHERE

AMONG_FIRST, TOP, RANK = "among_first", "top", "rank"


def by_sorting(one: Value, found: Found, target: Target) -> Value | No | None:
    """All ranks, by a stable sort."""
    assert isinstance(one.op, Normalize)
    return _ranked(RANK, one, one.op)


def select_first(one: Value, found: Found, target: Target) -> Value | No | None:
    """Whether a rank is below a number, by the places of so many largest, and not by all ranks."""
    rank, limit = found["rank"].op, found["limit"].op
    assert isinstance(rank, Normalize)
    if AMONG_FIRST not in target.kernels or not isinstance(limit, Number) or rank.along.name not in rank.source.names:
        return None
    return _ranked(AMONG_FIRST, one, rank, limit.expr)


def first_places(one: Value, found: Found, target: Target) -> Value | No | None:
    """The places of those that have the ranks from 0 on; -1 where there are no more."""
    op = one.op
    assert isinstance(op, Reduce)
    tests = conjuncts(op.where)
    for n, test in enumerate(tests):
        match test.op:
            case Map("==", (Value(op=Normalize("rank") as rank), Value(op=Iota(turn)))):
                others = {*tests[:n], *tests[n + 1 :]}
                is_own = op.over == (rank.along,) and others == set(conjuncts(rank.where))
                if is_own and rank.along.name in rank.source.names and turn.name not in rank.source.names:
                    return _ranked(TOP, one, rank, turn.extent, turn.name)
    return None


def _ranked(
    kernel: str, one: Value, rank: Normalize, limit: ir.Expr | None = None, turn: Coordinate | None = None
) -> Value:
    """A kernel of what a ranking ranks, the axis along which it does last; that is a `turn` in the result."""
    given = (rank.source,) if rank.where is None else (rank.source, rank.where)
    along = rank.along.name
    rest = tuple(sorted(frozenset[Coordinate]().union(*(each.names for each in given)) - {along}))
    layout = tuple((name,) for name in (*rest, along))
    result = (*rest, turn or along)
    words = () if limit is None else (("count", _at_least_none(limit)),)
    layouts = tuple((name, layout) for name in ("x", "kept")[: len(given)])
    axes = tuple(one.axis(name) for name in result)
    return value(Library(kernel, given, layouts, axes, tuple((name,) for name in result), words, one.kind, one.dtype))


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


def places_of_the_largest(before: Value, after: Value, names: Names) -> str:
    """The places of the first of a ranking."""
    assert isinstance(before.op, Reduce)
    assert isinstance(after.op, Library)
    (_, count), *_ = after.op.words
    return f"the places of the {as_written(host(count), names)} largest along `{before.op.over[0].name}`"
