"""The keys of a query: what slices say is what the guard says, at every point."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.plan.agreement import program_of

from indexical.backends.old.plan.choose import choose
from indexical.backends.old.plan.recognize import recognize
from indexical.backends.old.torch_ import DIALECT
from indexical.ir import build
from indexical.ir import nodes as ir
from indexical.ir.algebra.canonical import text
from indexical.ir.domain import Domain, Slice
from indexical.ir.pairs import Block
from indexical.ir.slices import MOST_PIECES
from indexical.ir.text import shown
from indexical.ir.types import Coordinate, Dtype
from indexical.plan.steps import Attend, Attention
from indexical.run.floats import Floats
from indexical.run.reference import Evaluation, Table

pytestmark = pytest.mark.sampled(2)

HEAD = """
input Q[b, i, d], K[b, j, d], V[b, j, e], document[b, i] : i64, kind[b, j] : i64, keep[b, j] : bool, w : i64;
input table[i, j] : bool, level[i], height[j], mark[i] : bool, sign[j] : bool;
let n = 3;
let near[i, j] = i - 2 < j;
"""
SIZES = {"b": 2, "i": 5, "j": 5, "d": 1, "e": 1}


def source_of(guard: str, head: str = HEAD) -> str:
    return f"{head}let out[b, i, e] = sum[j](softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) where {guard}) * V[b, j, e]);"


def attention_of(guard: str, head: str = HEAD) -> tuple[Attention, ir.Let, ir.Program]:
    """The attention that this guard gives, in its own definition."""
    source = source_of(guard, head)
    program = recognize(program_of(source), ("out",)).program
    let = program.tensors["out"]
    assert isinstance(let, ir.Let)
    return recognize(program_of(source), ("out",)).attentions["out"], let, program


def keys_of(guard: str, head: str = HEAD) -> tuple[tuple[Slice, ...], Attention, ir.Let, ir.Program]:
    attention, let, program = attention_of(guard, head)
    lets = {other.name: other for other in program.lets}
    domain = Domain.of((*let.clauses[0].ranges, attention.key), attention.guard, lets)
    return domain.bounds(attention.coordinate, (Coordinate("i"),)), attention, let, program


def shape_of(guard: str, head: str = HEAD) -> str | None:
    return shape_in(source_of(guard, head))


def shape_in(source: str) -> str | None:
    return attend_in(source).shape


def attend_in(source: str) -> Attend:
    """The attention of a program, as its plan has it."""
    program = program_of(source)
    dtypes: dict[str, Dtype] = {i.name: i.dtype or "f64" for i in program.inputs}
    step = choose(program, ("out",), dtypes, DIALECT.target, "cpu", False).steps[-1]
    assert step.attend is not None
    return step.attend


def evaluation(program: ir.Program, seed: int, sizes: Mapping[str, int] = SIZES) -> Evaluation:
    noise = np.random.default_rng(seed)
    tables = {}
    for tensor in program.inputs:
        shape = tuple(sizes[str(axis.coordinate)] for axis in tensor.axes)
        draws: dict[str, Any] = {"bool": noise.random(shape) < 0.5, "whole": noise.integers(0, 3, shape)}
        cells = np.asarray(draws.get(tensor.kind, noise.integers(0, 3, shape).astype(float)))
        tables[tensor.name] = Table(shape, cells.reshape(-1).tolist())
    return Evaluation(program, tables, {Coordinate(name): size for name, size in sizes.items()}, Floats())


def holds(piece: Slice, run: Evaluation, point: dict[Coordinate, int], key: Coordinate) -> bool:
    here = point[key]
    return (
        all(here >= run.value(bound, point) for bound in piece.lower)
        and all(here < run.value(bound, point) for bound in piece.upper)
        and all(run.value(asked, point) == run.value(answered, point) for asked, answered in piece.labels)
        and all(run.value(condition, point) for condition in piece.rest)
    )


def check(guard: str, seed: int = 0, head: str = HEAD, sizes: Mapping[str, int] = SIZES) -> tuple[Slice, ...]:
    """The slices of a guard; they hold where the guard does, and their parts vary with what they may."""
    keys, attention, let, program = keys_of(guard, head)
    run = evaluation(program, seed, sizes)
    for order in program.order:
        if isinstance(order, ir.Once) and order.name != let.name and program.tensors[order.name].kind != "real":
            run.run(order, {})
    key = attention.coordinate
    for b, i, j in product(range(sizes["b"]), range(sizes["i"]), range(run.value(attention.key.upper, {}))):
        point = {Coordinate("b"): b, Coordinate("i"): i, Coordinate("e"): 0, key: j}
        wanted = all(run.value(condition, point) for condition in attention.guard)
        found = any(holds(piece, run, point, key) for piece in keys)
        assert wanted == found, f"{guard} at {point}: {wanted}, and the slices say {found}"
    for piece in keys:
        bounds = [*piece.lower, *piece.upper, *(asked for asked, _ in piece.labels)]
        assert all(key not in bound.type.coordinates for bound in bounds)
        assert all(Coordinate("i") not in answered.type.coordinates for _, answered in piece.labels)
    return keys


def described(keys: tuple[Slice, ...]) -> list[str]:
    """The parts of each piece, in short."""
    result = []
    for piece in keys:
        parts = [f"{text(bound)} <= j" for bound in piece.lower]
        parts += [f"j < {text(bound)}" for bound in piece.upper]
        parts += [f"{text(asked)} ~ {text(answered)}" for asked, answered in piece.labels]
        parts += [f"? {text(condition)}" for condition in piece.rest]
        result.append(", ".join(parts))
    return result


RELATIONS = {
    "j <= i": ["j < (+ i 1)"],
    "i >= j": ["j < (+ i 1)"],
    "j < i + 3": ["j < (+ i 3)"],
    "j <= i + w": ["j < (+ (+ i w[]) 1)"],
    "0 <= i - j < 2": ["(- i 1) <= j, j < (+ i 1)"],
    "abs(i - j) < 2": ["(- i 1) <= j, j < (+ i 2)"],
    "abs(j - i) <= w": ["(- i w[]) <= j, j < (+ (+ i w[]) 1)"],
    "abs(i - j) >= 2": ["(+ i 2) <= j", "j < (- i 1)"],
    "j >= i / 2 * 2": ["(* 2 (// i 2)) <= j"],
    "2 * j <= i": ["j < (+ (// i 2) 1)"],
    "2 * j >= i - 1": ["(// i 2) <= j"],
    "2 * j >= i + 1": ["(// (+ i 2) 2) <= j"],
    "3 * j < i + 2": ["j < (+ (// (+ i 1) 3) 1)"],
    "j == i": ["i <= j, j < (+ i 1)"],
    "j != i": ["j < i", "(+ i 1) <= j"],
    "i / 2 == j / 2": ["(* 2 (// i 2)) <= j, j < (+ (* 2 (// i 2)) 2)"],
    "j / n <= i / n": ["j < (+ (* 3 (// i 3)) 3)"],
    "j / 2 < i / 2": ["j < (* 2 (// i 2))"],
    "i % 2 == j % 2": ["(% i 2) ~ (% j 2)"],
    "(i - j) % 2 == 0": ["(% i 2) ~ (% j 2)"],
    "(j - i) % 3 == 0 && j <= i": ["j < (+ i 1), (% i 3) ~ (% j 3)"],
    "document[b, i] == kind[b, j]": ["document[b,i] ~ kind[b,j]"],
    "document[b, i] == kind[b, j] + 1": ["(- document[b,i] 1) ~ kind[b,j]"],
    "keep[b, j]": ["1 ~ (if keep[b,j] 1 0)"],
    "!keep[b, j]": ["1 ~ (if (! keep[b,j]) 1 0)"],
    "kind[b, j] > 0": ["1 ~ (if (<= 1 kind[b,j]) 1 0)"],
    "height[j] > 0.5": ["1 ~ (if (< 1/2 height[j]) 1 0)"],
    "mark[i] == sign[j]": ["(if mark[i] 1 0) ~ (if sign[j] 1 0)"],
    "mark[i] && j <= i": ["j < (+ i 1), j < (if mark[i] #j 0)"],
    "table[i, j]": ["? table[i,j]"],
    "level[i] < height[j]": ["? (< level[i] height[j])"],
    "j < 2 || j <= i": ["j < 2", "j < (+ i 1)"],
    "j <= i && (j < w || i - 2 < j)": ["j < (+ i 1), j < w[]", "(- i 1) <= j, j < (+ i 1)"],
    "!(j > i && j > 2)": ["j < 3", "j < (+ i 1)"],
    "near[i, j]": ["(- i 1) <= j"],
    "j >= max(i - 1, 1)": ["(- i 1) <= j, 1 <= j"],
    "max(j, 2) <= i": ["j < (+ i 1), j < (if (<= 2 i) #j 0)"],
    "j < min(i + 1, n)": ["j < (+ i 1), j < 3"],
    "j >= 0": [""],
    "j < size(j)": [""],
    "j <= i || true": [""],
    "j <= i && j <= i + 1": ["j < (+ i 1)"],
    "j < 0": ["j < 0"],
}


@pytest.mark.parametrize("guard", RELATIONS)
def test_a_guard_is_taken_apart(guard: str) -> None:
    for seed in range(2):
        keys = check(guard, seed)
    assert sorted(part.replace("j_1", "j") for part in described(keys)) == sorted(RELATIONS[guard])


# The keys of queries from r to s: those that some of them may hear, those that all of them hear, what else is asked;
# then the same for the queries of keys from r to s.
TILES = {
    "j <= i": (["0..s | 0..r + 1"], ["r..size(i) | s - 1..size(i)"]),
    "i - 4 < j <= i": (
        ["max(0, r - 3)..s | max(0, s - 4)..r + 1"],
        ["r..min(size(i), s + 3) | s - 1..min(size(i), r + 4)"],
    ),
    "i / 4 == j / 4 && j <= i": (
        ["max(0, 4 * (r / 4))..s | max(0, 4 * ((s - 1) / 4))..r + 1"],
        ["r..min(size(i), 4 * ((s - 1) / 4) + 4) | s - 1..min(size(i), 4 * (r / 4) + 4)"],
    ),
    "2 * j <= i": (
        ["0..(s - 1) / 2 + 1 | 0..r / 2 + 1"],
        ["2 * r..size(i) | 2 * s - 2..size(i)"],
    ),
    "j <= i && document[b, i] == document[b, j]": (
        ["0..s | 0..r + 1 | document[b, i] ~ document[b, j]"],
        ["r..size(i) | s - 1..size(i) | document[b, j] ~ document[b, i]"],
    ),
    "j < w || j <= i": (
        ["0..min(size(i), w) | 0..min(size(i), w)", "0..s | 0..r + 1"],
        [
            "0..min(size(i), if r < w { size(i) } else { 0 }) | 0..min(size(i), if s <= w { size(i) } else { 0 })",
            "r..size(i) | s - 1..size(i)",
        ],
    ),
    "j <= document[b, i]": (
        ["0..size(i) | 0..size(i) | ? j < document[b, i] + 1"],
        ["0..size(i) | 0..size(i) | ? j <= document[b, i]"],
    ),
}


@pytest.mark.parametrize("guard", TILES)
def test_tiles_of_queries_and_of_keys(guard: str) -> None:
    head = "input Q[b, i, d], K[b, i, d], V[b, i, e], document[b, i] : i64, w : i64;\n"
    attend = attend_in(source_of(guard, head))
    pairs = attend.pairs
    assert pairs is not None
    ends = [build.read(name, (), "whole", attend.attention.key.span) for name in "rs"]
    for way, wanted in zip((pairs, pairs.transpose()), TILES[guard], strict=True):
        blocks = way.blocks(ends[0], ends[1])
        assert sorted(shown_block(block).replace("i_1", "j") for block in blocks) == sorted(wanted)


def shown_block(block: Block) -> str:
    hull, full = (
        f"{shown(block.first)}..{shown(block.beyond)}",
        f"{shown(block.full_first)}..{shown(block.full_beyond)}",
    )
    asked = [f"{shown(one)} ~ {shown(other)}" for one, other in block.labels]
    return " | ".join([hull, full, *asked, *(f"? {shown(condition)}" for condition in block.rest)])


def test_any_guard_keeps_its_meaning() -> None:
    simple = [*RELATIONS, "j + 2 * i < 6", "document[b, i] != kind[b, j]", "i + j > 3", "2 * j - i >= 1"]
    for seed in range(50):
        chance = Random(seed)
        parts = [f"({chance.choice(simple)})" for _ in range(chance.randint(2, 3))]
        parts = [f"!{part}" if chance.random() < 0.3 else part for part in parts]
        guard = parts[0]
        for part in parts[1:]:
            guard = f"({guard} {chance.choice(('&&', '||'))} {part})"
        check(guard, seed)


def test_too_many_alternatives_are_left_as_they_are() -> None:
    sides = [f"(j < {n} || j >= i + {n})" for n in range(4)]
    keys = check(" && ".join(sides))
    assert len(keys) <= MOST_PIECES
    assert keys[0].rest


@pytest.mark.parametrize(
    ("guard", "shape"),
    [
        ("j <= i", "causal"),
        ("i - j >= 0", "causal"),
        ("j < i + 1 && j >= 0", "causal"),
        ("j <= i && j <= i + 2", "causal"),
        ("j >= 0", "full"),
        ("j < size(j) || keep[b, j]", "full"),
        ("j < i", None),
        ("j <= i + w", None),
        ("j <= i && keep[b, j]", None),
        ("i - 2 < j <= i", None),
    ],
)
def test_the_shapes_that_have_a_name(guard: str, shape: str | None) -> None:
    assert shape_of(guard) == shape


def test_over_one_axis_the_bounds_of_the_range_are_known() -> None:
    """Queries and keys share their size here, so that `j <= i` ends inside the range and `j < i + size` does not."""
    head = "input Q[b, i, d], K[b, i, d], V[b, i, e];\n"
    assert shape_of("j < i + size(i)", head) == "full"
    assert shape_of("j <= i", head) == "causal"
    check("i - 2 < j <= i", 0, head)


def test_a_range_that_does_not_start_at_0_is_not_causal() -> None:
    source = """
    input Q[i, d], K[j, d], V[j, e];
    let w[i] = sum[j in 1..size(j)](exp(sum[d](Q[i, d] * K[j, d])) where j <= i);
    let out[i, e] = sum[j in 1..size(j)](exp(sum[d](Q[i, d] * K[j, d])) * V[j, e] where j <= i) / w[i];
    """
    assert shape_in(source) is None
    assert shape_in(source.replace("1..", "0..")) == "causal"
