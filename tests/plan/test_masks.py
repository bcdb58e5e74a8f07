"""Guards as arithmetic: what a mask says is what the guard says, at every point."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.plan.agreement import program_of

from indexical.ir import nodes as ir
from indexical.ir.algebra.canonical import text
from indexical.ir.types import Coordinate
from indexical.plan.masks import MOST_PIECES, analyze, kind
from indexical.plan.recognize import recognize
from indexical.plan.steps import Attention, Mask, Piece
from indexical.run.floats import Floats
from indexical.run.reference import Evaluation, Table

HEAD = """
input Q[b, i, d], K[b, j, d], V[b, j, e], document[b, i] : i64, kind[b, j] : i64, keep[b, j] : bool, w : i64;
input table[i, j] : bool, level[i], height[j], mark[i] : bool, sign[j] : bool;
let n = 3;
let near[i, j] = i - 2 < j;
"""
SIZES = {"b": 2, "i": 5, "j": 5, "d": 1, "e": 1}


def attention_of(guard: str, head: str = HEAD) -> tuple[Attention, ir.Let, ir.Program]:
    """The attention that this guard gives, in its own definition."""
    source = f"{head}let out[b, i, e] = sum[j](softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) where {guard}) * V[b, j, e]);"
    program = recognize(program_of(source), ("out",)).program
    let = program.tensors["out"]
    assert isinstance(let, ir.Let)
    return recognize(program_of(source), ("out",)).attentions["out"], let, program


def mask_of(guard: str, head: str = HEAD) -> tuple[Mask, Attention, ir.Let, ir.Program]:
    attention, let, program = attention_of(guard, head)
    lets = {other.name: other for other in program.lets}
    asks = frozenset((Coordinate("i"),))
    mask = analyze(attention.guard, attention.key, let.clauses[0].ranges, lets, asks)
    return mask, attention, let, program


def shape_of(guard: str, head: str = HEAD) -> str | None:
    mask, attention, let, program = mask_of(guard, head)
    rows = tuple(r for r in let.clauses[0].ranges if r.coordinate == "i")
    return kind(mask, attention.key, rows, {other.name: other for other in program.lets})


def evaluation(program: ir.Program, seed: int, sizes: Mapping[str, int] = SIZES) -> Evaluation:
    noise = np.random.default_rng(seed)
    tables = {}
    for tensor in program.inputs:
        shape = tuple(sizes[str(axis.coordinate)] for axis in tensor.axes)
        draws: dict[str, Any] = {"bool": noise.random(shape) < 0.5, "whole": noise.integers(0, 3, shape)}
        cells = np.asarray(draws.get(tensor.kind, noise.integers(0, 3, shape).astype(float)))
        tables[tensor.name] = Table(shape, cells.reshape(-1).tolist())
    return Evaluation(program, tables, {Coordinate(name): size for name, size in sizes.items()}, Floats())


def holds(piece: Piece, run: Evaluation, point: dict[Coordinate, int], key: Coordinate) -> bool:
    here = point[key]
    return (
        all(here >= run.value(bound, point) for bound in piece.lower)
        and all(here < run.value(bound, point) for bound in piece.upper)
        and all(run.value(asked, point) == run.value(answered, point) for asked, answered in piece.groups)
        and all(run.value(condition, point) for condition in piece.rest)
    )


def check(guard: str, seed: int = 0, head: str = HEAD, sizes: Mapping[str, int] = SIZES) -> Mask:
    """The mask of a guard; it holds where the guard does, and its parts vary with what they may."""
    mask, attention, let, program = mask_of(guard, head)
    run = evaluation(program, seed, sizes)
    for order in program.order:
        if isinstance(order, ir.Once) and order.name != let.name and program.tensors[order.name].kind != "real":
            run.run(order, {})
    key = attention.coordinate
    for b, i, j in product(range(sizes["b"]), range(sizes["i"]), range(run.value(attention.key.upper, {}))):
        point = {Coordinate("b"): b, Coordinate("i"): i, Coordinate("e"): 0, key: j}
        wanted = all(run.value(condition, point) for condition in attention.guard)
        found = any(holds(piece, run, point, key) for piece in mask.pieces)
        assert wanted == found, f"{guard} at {point}: {wanted}, and the mask says {found}"
    for piece in mask.pieces:
        bounds = [*piece.lower, *piece.upper, *(asked for asked, _ in piece.groups)]
        assert all(key not in bound.type.coordinates for bound in bounds)
        assert all(Coordinate("i") not in answered.type.coordinates for _, answered in piece.groups)
    return mask


def described(mask: Mask) -> list[str]:
    """The parts of each piece, in short."""
    result = []
    for piece in mask.pieces:
        parts = [f"{text(bound)} <= j" for bound in piece.lower]
        parts += [f"j < {text(bound)}" for bound in piece.upper]
        parts += [f"{text(asked)} ~ {text(answered)}" for asked, answered in piece.groups]
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
    "2 * j >= i - 1": ["(if (<= 0 (- i 1)) (// i 2) (neg (// (- 1 i) 2))) <= j"],
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
        mask = check(guard, seed)
    assert sorted(part.replace("j_1", "j") for part in described(mask)) == sorted(RELATIONS[guard])


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
    mask = check(" && ".join(sides))
    assert len(mask.pieces) <= MOST_PIECES
    assert mask.pieces[0].rest


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
    program = recognize(program_of(source), ("out",)).program
    attention = recognize(program_of(source), ("out",)).attentions["out"]
    let = program.tensors["out"]
    assert isinstance(let, ir.Let)
    ranges = let.clauses[0].ranges
    mask = analyze(attention.guard, attention.key, ranges, {}, frozenset((Coordinate("i"),)))
    assert kind(mask, attention.key, ranges[:1], {}) is None
