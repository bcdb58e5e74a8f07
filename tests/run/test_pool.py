"""Pages that states share, against plain lists: whatever is done, each state has the rows that it was given."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.run.pool import Pool, Rows

Sequences = list[list[float]]


class Both:
    """Rows in pages, and the same as lists."""

    def __init__(self, rows: Rows, lists: Sequences) -> None:
        self.rows, self.lists = rows, lists

    def longer(self, counts: list[int], draw: random.Random, forgets: bool = False) -> Both:
        new = [[draw.random() for _ in range(max(counts))] for _ in counts]
        first = np.array([draw.randint(0, len(row)) if forgets else 0 for row in self.lists])
        ready = self.rows.with_room(np.array(counts), first)
        rows = ready.put(np.array(counts), [np.array(new).reshape(len(counts), -1, 1)])
        added = (had + row[:count] for had, row, count in zip(self.lists, new, counts, strict=True))
        return Both(rows, list(added))

    def shorter(self, lengths: list[int]) -> Both:
        return Both(self.rows.shorter(lengths), [had[:n] for had, n in zip(self.lists, lengths, strict=True)])

    def reordered(self, indices: list[int]) -> Both:
        return Both(self.rows.reordered(indices), [self.lists[index] for index in indices])

    def check(self) -> None:
        size, (array,) = self.rows.pool.size, self.rows.pool.arrays
        assert self.rows.lengths.tolist() == [len(row) for row in self.lists]
        for pages, row, first in zip(self.rows.table, self.lists, self.rows.first, strict=True):
            assert [array[pages[n // size], n % size, 0] for n in range(first, len(row))] == row[first:]

    def pages(self) -> set[int]:
        size = self.rows.pool.size
        both = zip(self.rows.table, self.lists, strict=True)
        return {int(page) for pages, row in both for page in pages[: -(-len(row) // size)]} - {0}


def started(sequences: int, size: int, most: int | None = None) -> Both:
    pool = Pool(size, most, [np.zeros((sequences, 0, 1))])
    return Both(Rows.none(pool, sequences), [[] for _ in range(sequences)])


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_done_states_keep_their_rows(seed: int) -> None:
    draw = random.Random(seed)
    states = [started(draw.choice((1, 3)), draw.choice((1, 4)))]
    pool = states[0].rows.pool
    for _ in range(40):
        state = draw.choice(states)
        count = len(state.lists)
        match draw.choice(("longer", "longer", "each longer", "shorter", "reordered", "gone")):
            case "longer":
                state = state.longer([draw.randrange(6)] * count, draw, draw.random() < 0.3)
            case "each longer":
                state = state.longer([draw.randrange(6) for _ in range(count)], draw)
            case "shorter":
                held = zip(state.rows.first.tolist(), state.lists, strict=True)
                state = state.shorter([draw.randint(min(first, len(row)), len(row)) for first, row in held])
            case "reordered":
                state = state.reordered([draw.randrange(count) for _ in range(draw.randint(1, 4))])
            case "gone" if len(states) > 1:
                states.remove(state)
                continue
        states.append(state)
        for one in states:
            one.check()
        del one, state
        gc.collect(0)
        assert pool.held == len(set[int]().union(*(other.pages() for other in states)))


def copies_of(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pages that are copied from now on."""
    found: list[int] = []
    copy = pool._copy
    monkeypatch.setattr(pool, "_copy", lambda old, new: (found.extend(old), copy(old, new)))
    return found


def test_a_page_is_copied_only_where_another_state_has_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    state = started(2, 4)
    copied = copies_of(state.rows.pool, monkeypatch)
    for _ in range(9):
        state = state.longer([1, 1], draw)
    earlier, state = state, state.longer([1, 1], draw)
    assert copied == []
    again = earlier.longer([1, 1], draw)  # `state` has a row there.
    assert len(copied) == 2
    del again, state
    earlier.longer([1, 1], draw)  # Nobody has any more.
    tried = earlier.longer([2, 1], draw)
    back = tried.shorter([9, 10])
    del tried, earlier
    back = back.longer([1, 1], draw)  # What was given up is written over.
    assert len(copied) == 2
    beams = back.reordered([0, 0, 0])
    del back
    after = beams.longer([1, 1, 1], draw)  # The first keeps the page, the others have copies.
    assert len(copied) == 4
    after.check()
    beams.check()


def test_room_that_is_full_is_refused_and_let_go_of() -> None:
    draw = random.Random(0)
    state = started(1, 4, most=3).longer([9], draw)
    with pytest.raises(ix.CallError, match="0 of 3 pages are free, and 1 are needed"):
        state.longer([4], draw)
    state.check()
    state = state.shorter([2])
    assert state.longer([10], draw).rows.pool.pages == 3


def test_bytes_are_those_of_pages_that_a_state_has() -> None:
    state = started(2, 4).longer([5, 1], random.Random(0))
    page = 4 * 8
    assert state.rows.pool.page_bytes == page
    assert state.rows.nbytes == 3 * page
    assert state.reordered([0, 0, 0]).rows.nbytes == 2 * page


def test_arrays_double_when_all_pages_are_held() -> None:
    state: Any = started(1, 1)
    sizes = set()
    for _ in range(100):
        state = state.longer([1], random.Random(0))
        sizes.add(state.rows.pool.pages)
    assert sorted(sizes) == [16, 32, 64, 128]


def test_graphs_of_few_numbers_of_sequences_are_kept() -> None:
    state = started(1, 4)
    pool = state.rows.pool
    for number in range(40):
        pool.captures(number).graphs["kind"] = 2
        assert pool.captures(0).graphs  # It is asked for all the time.
    assert sum(bool(pool.captures(number).graphs) for number in (39, 38, 1, 2)) == 2
    state.longer([1], random.Random(0))  # The arrays double, and what writes to those before is forgotten.
    assert not any(pool.captures(number).graphs for number in (0, 39))
