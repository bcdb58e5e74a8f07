"""The reference evaluator by its parts: points are left as they were, and what is computed can be watched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.ir import nodes as ir
from indexical.ir.types import Coordinate
from indexical.ir.walk import walk
from indexical.run.bind import bind
from indexical.run.floats import Floats
from indexical.run.reference import Evaluation, Table


def evaluation(
    text: str, arrays: Mapping[str, Any], kind: type[Evaluation] = Evaluation, numbers: Floats | None = None
) -> Evaluation:
    """An evaluation that has yet to compute anything."""
    bound = bind(ix.compile(text).ir, {name: np.asarray(array) for name, array in arrays.items()})
    return kind(bound.program, bound.tables, bound.sizes, numbers or Floats())


def compute(run: Evaluation) -> Evaluation:
    for name in run.lets:
        run.run(ir.Once(name), {})
    return run


X = np.arange(12.0).reshape(3, 4)

# ---------------------------------------------------------------------------- points

REBOUND = """input x[i, j];
let y[i, j] = sum[i in 0..2, j in i..3](x[i, j] * sum[i in 0..3](x[i, j]))
    + softmax[j](x[i, j] where j > 0) + x[i, j];"""


def test_a_point_is_left_as_it_was() -> None:
    run = compute(evaluation(REBOUND, {"x": X}))
    point = {Coordinate("j"): 2, Coordinate("i"): 1}
    for part in walk(run.lets["y"].clauses[0].body):
        if part.type.coordinates <= point.keys():
            run.value(part, point)
            run.is_removed(part, point)
    assert list(point.items()) == [("j", 2), ("i", 1)]


def test_a_name_that_is_bound_again_has_its_value_back_outside() -> None:
    found = ix.compile(REBOUND)(X, backend="reference")
    inner = sum(X[i, j] * X[:, j].sum() for i in range(2) for j in range(i, 3))
    weights = np.exp(X[:, 1:] - X[:, -1:])
    weights = np.pad(weights / weights.sum(1, keepdims=True), ((0, 0), (1, 0)))
    np.testing.assert_allclose(found, inner + weights + X, rtol=1e-14)


def test_scanned_points_may_be_kept() -> None:
    run = evaluation("input x[i]; let y = sum[i in 0..3, j in i..3](x[i] * x[j] where j != 1);", {"x": [1.0, 2.0, 3.0]})
    body = run.lets["y"].clauses[0].body
    assert isinstance(body, ir.Reduce)
    assert [tuple(point.values()) for point in list(run.scanned(body, {}))] == [(0, 0), (0, 2), (1, 2), (2, 2)]


def test_a_failure_names_the_coordinates_in_the_order_of_their_binding() -> None:
    program = ix.compile("input x[i], p[j] : i64; let y[j] = sum[i, k in 0..2, l in 0..k + 1](x[p[j] + i * k * l]);")
    with pytest.raises(ix.CallError, match=r"at `j = 1`, `i = 2`, `k = 1`, `l = 1`"):
        program([1.0, 2.0, 3.0], [0, 1], backend="reference")


def test_a_bound_is_evaluated_where_its_own_coordinate_is_not_yet() -> None:
    """Also when the range before it has gone on: what `v` was last is forgotten."""
    run = evaluation("input x[i]; let y = sum[u in 0..3, v in 0..u](x[u] * x[v]);", {"x": [1.0, 2.0, 3.0]})
    seen = []

    body = run.lets["y"].clauses[0].body
    assert isinstance(body, ir.Reduce)
    upper = body.ranges[1].upper
    stage = run.compiled(upper)

    def watched(point: Any) -> Any:
        seen.append(dict(point))
        return stage(point)

    run.stages[id(upper)] = (upper, watched)
    assert run.value(body, {}) == 2 * 1 + 3 * (1 + 2)
    assert seen == [{"u": 0}, {"u": 1}, {"u": 2}]


# ---------------------------------------------------------------------------- stages


def test_an_expression_is_looked_at_once() -> None:
    run = evaluation("input x[i]; let y[i] = x[i] * 2;", {"x": [1.0, 2.0]})
    body = run.lets["y"].clauses[0].body
    assert run.compiled(body) is run.compiled(body)


def test_an_expression_that_is_gone_leaves_nothing_behind() -> None:
    """Another may be put where it was: each has its own value."""
    run = evaluation("input x[i]; let y[i] = x[i] * 2;", {"x": [1.0, 2.0]})
    example = run.lets["y"].clauses[0].body
    for number in range(1000):
        constant = ir.Const(number, ir.Coord(Coordinate("i"), example.type, example.span).type, example.span)
        assert run.value(constant, {}) == float(number)


class Watching(Evaluation):
    """Remembers what is read and what is found removed."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.seen: list[str] = []

    def read(self, expr: ir.Read, point: Any) -> Any:
        self.seen.append(expr.tensor)
        return super().read(expr, point)

    def is_removed(self, expr: ir.Expr, point: Any) -> bool:
        found = super().is_removed(expr, point)
        if isinstance(expr, ir.Read):
            self.seen.append(f"{expr.tensor} {'is' if found else 'is not'} removed")
        return found


def test_a_subclass_is_asked_wherever_something_is_read_or_may_be_removed() -> None:
    text = "input x[i], w[i]; let g[i] = x[i] where i > 0; let y[i] = sum[k in 0..1](w[i] * -g[i]);"
    run = evaluation(text, {"x": [1.0, 2.0], "w": [3.0, 4.0]}, Watching)
    assert isinstance(run, Watching)
    run.run(ir.Once("g"), {})
    run.seen.clear()
    run.run(ir.Once("y"), {})
    assert run.tensors["y"].cells == [0.0, -8.0]
    assert run.seen == ["w is not removed", "g is removed", "w is not removed", "g is not removed", "w", "g"]


# --------------------------------------------------------------------------- numbers


class Refusing(Floats):
    """Refuses to divide by zero."""

    def divide(self, a: float, b: float) -> float:
        if b == 0:
            raise ZeroDivisionError
        return super().divide(a, b)


def test_an_evaluation_says_where_it_is() -> None:
    run = evaluation("input x[i]; let z[i] = x[i]; let y[i] = 1 / z[i];", {"x": [1.0, 0.0, 2.0]}, numbers=Refusing())
    assert run.at is None
    run.run(ir.Once("z"), {})
    assert run.at is None
    with pytest.raises(ZeroDivisionError):
        run.run(ir.Once("y"), {})
    let = run.lets["y"]
    assert run.at == (let, let.clauses[0], {"i": 1})


def test_a_total_of_floats_is_taken_one_after_the_other() -> None:
    chance = Random(0)
    values = [chance.uniform(-1, 1) * 10 ** chance.randrange(-9, 9) for _ in range(1000)]
    expected = 0.0
    for value in values:
        expected = expected + value
    assert Floats().total(values) == expected
    assert Floats().total([1e100, 1.0, -1e100]) == 0.0
    assert math.copysign(1, Floats().total([])) == math.copysign(1, Floats().total([-0.0])) == 1


class Totalling(Floats):
    """Remembers what it summed."""

    def __init__(self) -> None:
        self.totals: list[list[Any]] = []

    def total(self, values: list[Any]) -> float:
        self.totals.append(list(values))
        return super().total(values)


def test_a_sum_and_a_mean_of_reals_are_totals() -> None:
    text = """input x[i], n[i] : i64;
        let a = sum[i](x[i] where i != 1); let b = mean[i](x[i]); let c = mean[i](n[i]); let d = sum[i](n[i]);"""
    numbers = Totalling()
    run = compute(evaluation(text, {"x": [0.5, 1.5, 2.5], "n": [1, 2, 6]}, numbers=numbers))
    assert numbers.totals == [[0.5, 2.5], [0.5, 1.5, 2.5], [1.0, 2.0, 6.0]]
    assert [run.tensors[name].cells for name in "abcd"] == [[3.0], [1.5], [3.0], [9]]


# ---------------------------------------------------------------------------- tables


def test_a_place_is_where_its_offset_says() -> None:
    table = Table((2, 3, 4), [None] * 24)
    assert [table.offset(table.place(offset)) for offset in range(24)] == list(range(24))
    assert table.place(23) == (1, 2, 3)
    assert Table((), [1.0]).place(0) == ()


def test_steps_within_a_step_go_along_another_axis() -> None:
    text = """
        input start;
        let h[0, 0] = start;
        let h[0, i in 1..2] = h[0, i - 1] + 1;
        let h[t in 1..2, 0] = h[t - 1, 0] * 2;
        let h[t in 1..2, i in 1..2] = h[t, i - 1] - { let local[d in 0..2] = h[t, i - 1] + d; local[1] };
    """
    assert ix.compile(text)(np.array(0.25), backend="reference").tolist() == [[0.25, 1.25], [0.5, -1.0]]
