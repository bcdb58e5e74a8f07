"""Memory as a budget: which definitions are kept for the way back, and which are computed again.

The ledger says the bytes of a call whatever is computed again. Groups of definitions are drawn up for several prices of
a byte that is kept, and up to several sizes; the one of least work that fits is taken, and what still fits is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import islice, pairwise

import numpy as np

from ..records import dataclass
from .counted import work_of
from .ledger import Ledger
from .ops import Plan, Put, Result, Value
from .order import is_view, owners_of, read_by_rows, stored
from .show import Again
from .way_back import Call

# So many sizes of groups are tried, and so many prices of a byte that is kept.
_SIZES, _PRICES = 8, 12
# So many ways of little work that fit are tried without the groups that need not be.
_TRIES = 4
# So many of the last groups are tried without: what is computed again has to be there at once, which at the end is more
# than to keep it.
_LAST = 4


@dataclass(frozen=True, slots=True)
class Held:
    """A definition, and the bytes that are kept of it for the way back."""

    definition: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """Definitions that are computed again together, the bytes that are not kept of them, and their share of the work of
    the whole way there."""

    definitions: tuple[str, ...]
    bytes: int
    share: float


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory of a call: the `limit` it was given, the `peak` that it reaches, and the one that it would reach with
    nothing computed again (`whole`), all beside its `inputs`. Where it `learns`, the way back is part of it. Blocks of
    rows that are smaller than usual have a `room` of so many points, and are not kept."""

    limit: int
    peak: int
    whole: int
    inputs: int
    learns: bool
    kept: tuple[Held, ...] = ()
    again: tuple[Repeated, ...] = ()
    room: int | None = None


# Paragraphs from one up to another.
Group = tuple[int, int]


class Choices:
    """The ways in which one call may go: its paragraphs, each the definitions that are computed at once, and groups of
    them that are computed again."""

    def __init__(self, call: Call) -> None:
        self.call, self.learns = call, bool(call.learned)
        self.plan, self.counted = call.plan, call.counted
        self.paragraphs = _paragraphs(self.plan, call.text.ends)
        self.ledgers: dict[tuple[Group, ...], Ledger] = {}

    def ledger(self, groups: tuple[Group, ...]) -> Ledger:
        """The bytes of the call with these groups."""
        if groups not in self.ledgers:
            self.ledgers[groups] = self.call.whole(self.names(groups))
        return self.ledgers[groups]

    def peak(self, groups: tuple[Group, ...]) -> int:
        return self.ledger(groups).peak

    def names(self, groups: Iterable[Group]) -> Again:
        """The definitions of groups."""
        return tuple(tuple(name for one in self.paragraphs[slice(*group)] for name in one) for group in groups)

    def work(self, groups: Iterable[Group]) -> float:
        """What is done twice."""
        return float(sum(self.costs[slice(*group)].sum() for group in groups))

    def within(self, limit: int) -> tuple[Group, ...] | None:
        """The groups of least work that fit; None where none do."""
        if self.peak(()) <= limit:
            return ()
        fitting = (groups for groups in sorted(self.options, key=self.work) if self.peak(groups) <= limit)
        some = [self._relaxed(groups, limit) for groups in islice(fitting, _TRIES)]
        return min(some, key=self.work, default=None)

    @cached_property
    def least(self) -> int:
        """The least memory that there is a way for."""
        return min(map(self.peak, ((), *self.options)))

    def _relaxed(self, groups: tuple[Group, ...], limit: int) -> tuple[Group, ...]:
        """The groups without those that still fit: first those that save much work for few bytes."""

        def gain(group: Group) -> tuple[float, int]:
            return self.work([group]) / (1 + self.kept[slice(*group)].sum()), group[0]

        for group in sorted(groups, key=gain, reverse=True):
            without = tuple(one for one in groups if one != group)
            if self.peak(without) <= limit:
                groups = without
        return groups

    @cached_property
    def options(self) -> list[tuple[Group, ...]]:
        """Groups of paragraphs, each of least cost for a price of bytes and up to a size; the leanest also without some
        of its last groups."""
        if not self.learns:
            return []
        total, effort = max(self.kept.sum(), 1.0), max(self.costs.sum(), 1.0)
        found: dict[tuple[Group, ...], None] = {}
        for size in np.geomspace(max(self.kept.max(), total / len(self.kept)), total, _SIZES):
            for price in np.geomspace(0.02, 50.0, _PRICES) * effort / total:
                found.setdefault(self._cheapest(float(size), float(price)))
        found.pop((), None)
        best = min(found, key=self.peak, default=())
        for group in best[::-1][:_LAST]:
            without = tuple(one for one in best if one != group)
            found.setdefault(without)
            best = min(best, without, key=self.peak)
        return list(found)

    def _cheapest(self, size: float, price: float) -> tuple[Group, ...]:
        """The groups that keep up to a size of bytes from being kept, for which the work that is done twice and the
        price of all that is kept are least: from the first paragraph on, the best way to each border."""
        sums = np.concatenate([[0.0], np.cumsum(self.kept)])
        works = np.concatenate([[0.0], np.cumsum(self.costs)])
        best, begin = [0.0], [0]
        for stop in range(1, len(sums)):
            first = int(np.searchsorted(sums, sums[stop] - 1.001 * size))
            costs = np.array(best[first:]) + price * self.read[first:stop, stop] + works[stop] - works[first:stop]
            plain = best[-1] + price * self.kept[stop - 1]
            least = int(np.argmin(costs)) if costs.size else -1
            is_group = least >= 0 and costs[least] < plain
            best.append(float(costs[least]) if is_group else plain)
            begin.append(first + least if is_group else -1)
        groups: list[Group] = []
        stop = len(self.paragraphs)
        while stop:
            if begin[stop] >= 0:
                groups.append((begin[stop], stop))
            stop = begin[stop] if begin[stop] >= 0 else stop - 1
        return tuple(groups[::-1])

    # ------------------------------------------------------------------------ figures

    @cached_property
    def _values(self) -> list[list[Value]]:
        """What is computed in each paragraph."""
        ends = [0, *(self.call.text.ends[one[-1]] for one in self.paragraphs)]
        spans = [self.call.text.values[slice(*pair)] for pair in pairwise(ends)]
        return [[part for one, _ in span for part in self.call.expression(one)] for span in spans]

    @cached_property
    def place(self) -> dict[Value, int]:
        """The paragraph of each value."""
        return {one: n for n, values in enumerate(self._values) for one in values}

    @cached_property
    def kept(self) -> np.ndarray:
        """The bytes that each paragraph is the first to keep."""
        found = np.zeros(len(self.paragraphs))
        for one, size in self.ledger(()).keepers.items():
            found[self.place.get(one, 0)] += size
        return found

    @cached_property
    def costs(self) -> np.ndarray:
        """The work of each paragraph."""
        return np.array([sum(work_of(one, self.counted) for one in values) for values in self._values])

    @cached_property
    def read(self) -> np.ndarray:
        """The bytes that a group from a paragraph (row) up to another (column) reads and that are not given; infinite
        where there can be no group: what is written to cannot be computed again."""
        count = len(self.paragraphs)
        found = np.full((count, count + 1), np.inf)
        reads = [dict.fromkeys(_root(part) for one in v for part in one.parts) for v in self._values]
        for start in range(count):
            seen: set[Value] = set()
            total = 0
            for stop in range(start, count):
                if any(isinstance(one.op, Put) for one in self._values[stop]):
                    break
                new = [one for one in reads[stop] if one not in seen and self.place.get(one, start) < start]
                seen.update(new)
                total += sum(map(self.counted.bytes, new))
                found[start, stop + 1] = total
        return found

    def told(self, groups: tuple[Group, ...], limit: int, inputs: int) -> Budget:
        """A choice in the words of the program."""
        ledger, whole = self.ledger(groups), self.ledger(())
        owners = owners_of(self.plan)
        kept: dict[str, int] = {}
        for one, size in ledger.kept.items() if self.learns else ():
            kept[owners[one]] = kept.get(owners[one], 0) + size
        order = {name: n for n, name in enumerate(self.plan.definitions)}
        held = tuple(Held(name, kept[name]) for name in sorted(kept, key=order.__getitem__))
        again = []
        for group in groups:
            own = [one for one in whole.kept if self.place.get(one, -1) in range(*group) and one not in ledger.kept]
            names = tuple(one[-1] for one in self.paragraphs[slice(*group)])
            again.append(Repeated(names, sum(whole.kept[one] for one in own), self.work([group]) / self.costs.sum()))
        return Budget(limit, ledger.peak, whole.peak, inputs, self.learns, held, tuple(again))


def _root(one: Value) -> Value:
    """The value whose memory a value is."""
    while is_view(one) and one.parts:
        one = one.parts[0]
    return one


def _paragraphs(plan: Plan, ends: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Definitions that have statements, each with those before it that have none; those of one loop are together, with
    all that stands between them, and so is what reads single rows of it."""
    names = list(ends)
    last: dict[str, str] = {}
    for name in names:
        op = plan.definitions[name].value.op
        if isinstance(op, Result):
            own = stored(op.loop)
            last[name] = [other for other in names if other in own][-1]
    owners, rows = owners_of(plan), read_by_rows(plan)
    for one, owner in owners.items():
        for part in one.parts if owner in ends else ():
            if part in rows:
                last[owners[part]] = max(last.get(owners[part], owner), owner, key=names.index)
    found: list[tuple[str, ...]] = []
    waiting: list[str] = []
    done, until = 0, ""
    for name in names:
        waiting.append(name)
        until = max(until, last.get(name, ""), key=lambda one: names.index(one) if one else -1)
        if ends[name] > done and (not until or names.index(until) <= names.index(name)):
            found.append(tuple(waiting))
            waiting, done, until = [], ends[name], ""
    if waiting and found:
        found[-1] = (*found[-1], *waiting)
    return found
