"""What the facts say a definition scans is what the reference evaluator reads, and nothing else moves it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.facts.affine import RECURRENCES, draw_attention, draw_program

import indexical as ix
from indexical.facts.dependence import Dependence
from indexical.ir import nodes as ir
from indexical.run.bind import bind
from indexical.run.floats import Floats
from indexical.run.reference import Evaluation, Table
from indexical.run.samples import random_arrays

pytestmark = pytest.mark.sampled(4)

Points = frozenset[tuple[str, tuple[int, ...]]]


class Recording(Evaluation):
    """An evaluation that remembers which input points went into each cell, through all definitions."""

    def __init__(self, program: ir.Program, arrays: Mapping[str, Any]) -> None:
        bound = bind(program, arrays)
        super().__init__(program, bound.tables, bound.sizes, Floats())
        self.program = program
        self.now: set[tuple[str, tuple[int, ...]]] = set()
        self.seen: dict[tuple[str, tuple[int, ...]], Points] = {}
        # What decides whether a guard removed a cell.
        self.presence: dict[tuple[str, tuple[int, ...]], Points] = {}

    def compute(self) -> Recording:
        for order in self.program.order:
            self.run(order, {})
        return self

    def define(self, let: ir.Let, fixed: dict[int, int]) -> None:
        """As in the evaluator, cell by cell; no row of a softmax is kept from one cell to the next."""
        table = self.table(let)
        for clause in let.clauses:
            self.now = set()
            pinned = self.pinned(clause, fixed)
            points = [] if pinned is None else list(self.points(clause.ranges, {}, pinned))
            bounds = frozenset(self.now)
            for point in points:
                self.now, self.ranges = set(bounds), {**self.ranges, **self.limits(clause, point)}
                self.rows.clear()
                place = tuple(self.value(slot, point) for slot in clause.slots)
                value = None
                if clause.guard is None or self.value(clause.guard, point):
                    guarding, self.now = self.now, set(self.now)
                    value = self.value(clause.body, point)
                    self.now, everything = guarding, self.now
                    if self.is_removed(clause.body, point):
                        table.removed.add(table.offset(place))
                    self.presence[let.name, place] = frozenset(self.now)
                    self.now |= everything
                table.cells[table.offset(place)] = value
                self.presence.setdefault((let.name, place), frozenset(self.now))
                self.seen[let.name, place] = frozenset(self.now)

    def limits(self, clause: ir.Clause, point: Any) -> Any:
        return {r.coordinate: (self.value(r.lower, point), self.value(r.upper, point)) for r in clause.ranges}

    def is_removed(self, expr: ir.Expr, point: Any) -> bool:
        if isinstance(expr, ir.Read) and self.may_be_removed(expr):
            place = tuple(self.value(index, point) for index in expr.indices)
            self.now |= self.presence.get((expr.tensor, place), frozenset())
        return super().is_removed(expr, point)

    def read(self, expr: ir.Read, point: Any) -> Any:
        place = tuple(self.value(index, point) for index in expr.indices)
        if expr.tensor in self.input_names:
            self.now.add((expr.tensor, place))
        else:
            self.now |= self.seen.get((expr.tensor, place), frozenset())
        return super().read(expr, point)


def claimed(recording: Recording, let: ir.Let, place: tuple[int, ...], dependence: Dependence) -> Points:
    """The input points that the facts say one cell scans."""
    home = {axis.coordinate: at for axis, at in zip(let.axes, place, strict=True)}
    found = set()
    for scan in dependence.of(let.name):
        for point in recording.points(scan.ranges, home, {}):
            if all(recording.value(condition, point) for condition in scan.conditions):
                found.add((scan.tensor, tuple(recording.value(index, point) for index in scan.indices)))
    return frozenset(found)


def cells(table: Table) -> Iterator[tuple[int, ...]]:
    return iter(np.ndindex(*table.shape))


# Layers: each hears the one below, at some of the positions.
LAYERED = """input start[i, m], W[t, m];
let x[0, i, m] = start[i, m];
let x[t in 1..size(t), i, m] = left[t - 1, i, m];
let scores[t, i, j] = sum[m](x[t, i, m] * x[t, j, m]);
let weights[t, i, j] = softmax[j](scores[t, i, j]) where {guard};
let left[t, i, m] = sum[j](weights[t, i, j] * x[t, j, m]) * W[t, m]{more};
let out[i, m] = left[size(t) - 1, i, m];
output out{contract}"""
GUARDED = ("j <= i", "j >= i", "j <= i && i - j < 2", "j == i", "j <= i + 1", "j < 2")
LAYERS = (
    *(LAYERED.format(guard=guard, more="", contract=";") for guard in GUARDED),
    LAYERED.format(guard="j <= i", more=" + x[t, size(i) - 1 - i, m]", contract=";"),
    LAYERED.format(guard="j <= i", more=" + (if i > 0 { x[t, i - 1, m] } else { 0 })", contract=";"),
    """input start[i, m], W[t, m];
    let x[0, i, m] = start[i, m]; let x[t in 1..size(t), i, m] = y[t - 1, i, m] + W[t, m];
    let y[0, i, m] = start[i, m] * 2; let y[t in 1..size(t), i, m] = sum[k in 0..size(i)](x[t, k, m] where k <= i);
    output x, y;""",
)


def arrays_for(program: ix.Program, seed: int, sizes: Mapping[str, int]) -> dict[str, Any]:
    sample, _ = random_arrays(program.ir, {}, sizes, seed)
    return sample.arrays


def compare(text: str, seed: int, sizes: Mapping[str, int], exact: bool) -> None:
    program = ix.compile(text)
    recording = Recording(program.ir, arrays_for(program, seed, sizes)).compute()
    dependence = Dependence(program.ir)
    for let in program.ir.lets:
        for place in cells(recording.tensors[let.name]):
            said = claimed(recording, let, place, dependence)
            read = recording.seen[let.name, place]
            missing, more = read - said, said - read
            shown = f"{text}\n{let.name}{list(place)}: not claimed {sorted(missing)}, not read {sorted(more)}"
            assert not missing, shown
            assert not (exact and more), shown


SIZES = {"i": 4, "j": 4, "d": 2, "e": 2, "t": 4, "m": 2, "n": 2}


@pytest.mark.parametrize("seed", range(60))
def test_claim_is_what_is_read(seed: int) -> None:
    compare(draw_program(seed), seed, {"i": 4, "j": 4}, exact=True)


@pytest.mark.parametrize("seed", range(30))
def test_claim_of_an_attention_is_what_is_read(seed: int) -> None:
    compare(draw_attention(seed), seed, SIZES, exact=True)


@pytest.mark.parametrize("text", [*RECURRENCES, *LAYERS])
def test_claim_of_a_recurrence_is_at_least_what_is_read(text: str) -> None:
    compare(text, 1, SIZES | {"i": 3, "t": 3}, exact=False)


# -------------------------------------------------------------------- what moves


def poisoned(arrays: Mapping[str, Any], kept: Points, chance: Random) -> dict[str, Any]:
    """The arrays with NaN at every real point that is not kept, and other values at every other."""
    result = {}
    for name, array in arrays.items():
        changed = np.array(array, copy=True)
        for place in np.ndindex(*changed.shape):
            flat = (name, place)
            if flat in kept:
                continue
            if changed.dtype.kind == "f":
                changed[place] = math.nan
            elif changed.dtype.kind == "b":
                changed[place] = not changed[place]
            elif changed.shape:
                changed[place] = chance.randrange(4)
        result[name] = changed
    return result


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_else_moves_a_cell(seed: int) -> None:
    chance = Random(seed)
    text = draw_program(1000 + seed) if seed % 4 else RECURRENCES[seed // 4 % len(RECURRENCES)]
    program = ix.compile(text)
    arrays = arrays_for(program, seed, SIZES)
    recording = Recording(program.ir, arrays).compute()
    dependence = Dependence(program.ir)
    for let in program.ir.lets:
        places = list(cells(recording.tensors[let.name]))
        for place in chance.sample(places, min(3, len(places))):
            kept = claimed(recording, let, place, dependence)
            again = Recording(program.ir, poisoned(arrays, kept, chance)).compute()
            table, other = recording.tensors[let.name], again.tensors[let.name]
            offset = table.offset(place)
            assert same(table.cells[offset], other.cells[offset]), f"{text}\n{let.name}{list(place)}"


def test_a_definition_that_reads_itself_in_a_product_has_facts() -> None:
    program = ix.compile("input x[t]; let h[t] = if t > 0 { h[t - 1] * x[t] * 0.5 } else { x[t] };")
    assert program.facts["h"].stepped == ("t",)
    assert "h" in str(program.facts)


@pytest.mark.parametrize("guard", GUARDED)
def test_layers_are_causal_where_each_of_them_is(guard: str) -> None:
    claimed = "; attention left(query i, key j, compare m, carry m, batch t, causal);"
    found = ix.check(LAYERED.format(guard=guard, more="", contract=claimed))
    forward = guard in ("j <= i", "j <= i && i - j < 2", "j == i")
    assert ("IX423" not in {one.code for one in found}) == forward
    back = ix.check(LAYERED.format(guard=guard, more=" + x[t, size(i) - 1 - i, m]", contract=claimed))
    assert "IX423" in {one.code for one in back}
