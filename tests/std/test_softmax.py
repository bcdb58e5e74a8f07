"""Softmax and its kin against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import LEADS, agree, draw, softmax

import indexical as ix


@pytest.mark.parametrize("lead", LEADS)
def test_softmax_over_the_last_coordinate(lead: tuple[int, ...]) -> None:
    (x,) = draw(1, (*lead, 5))
    agree(ix.std.softmax_last(x), softmax(x))
    agree(ix.std.log_softmax_last(x), np.log(softmax(x)))
    agree(ix.std.tempered_softmax(x, 0.25), softmax(x / 0.25))
    agree(ix.std.log_sum_exp(x), np.log(np.exp(x).sum(-1)))


def test_softmax_of_one_point_is_exactly_one() -> None:
    assert ix.std.softmax_last([[3.7], [-900.0]]).tolist() == [[1.0], [1.0]]
    assert ix.std.log_softmax_last([[3.7], [-900.0]]).tolist() == [[0.0], [0.0]]


def test_softmax_over_no_points() -> None:
    assert ix.std.softmax_last(np.zeros((3, 0))).shape == (3, 0)
    assert ix.std.softmax1(np.zeros((3, 0))).shape == (3, 0)
    assert ix.std.log_sum_exp(np.zeros((3, 0))).tolist() == [-np.inf] * 3


def test_large_scores_do_not_overflow() -> None:
    x = np.array([1000.0, 1001.0, -1000.0])
    agree(ix.std.softmax_last(x), softmax(x))
    agree(ix.std.sink_softmax(x, np.array(1001.0)), softmax(x, sink=np.array(1001.0)))
    agree(ix.std.softmax1(-x), softmax(-x, sink=np.array(0.0)))
    agree(ix.std.log_sum_exp(x), np.array(1001 + np.log1p(np.exp(-1.0))))


@pytest.mark.parametrize("lead", LEADS)
def test_guarded_softmax(lead: tuple[int, ...]) -> None:
    (x,) = draw(2, (*lead, 5))
    allowed = draw(3, (*lead, 5))[0] > 0.3
    agree(ix.std.guarded_softmax(x, allowed), softmax(x, allowed))


def test_guarded_softmax_where_nothing_is_allowed() -> None:
    allowed = np.array([[False, False], [True, False]])
    assert ix.std.guarded_softmax(np.ones((2, 2)), allowed).tolist() == [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("lead", LEADS)
def test_softmax_with_a_sink(lead: tuple[int, ...]) -> None:
    x, sink = draw(4, (*lead, 4), lead)
    agree(ix.std.sink_softmax(x, sink), softmax(x, sink=sink))
    agree(ix.std.softmax1(x), np.exp(x) / (1 + np.exp(x).sum(-1, keepdims=True)))


def test_rows_with_a_sink_stay_under_one() -> None:
    (x,) = draw(5, (3, 4))
    assert (ix.std.softmax1(x).sum(-1) < 1).all()
    agree(ix.std.sink_softmax(x, np.full(3, -200.0)), softmax(x))


def test_soft_cap() -> None:
    (x,) = draw(6, (2, 3))
    agree(ix.std.soft_cap(x, 1.5), 1.5 * np.tanh(x / 1.5))
    assert abs(float(ix.std.soft_cap(1e9, 30.0))) <= 30
    agree(ix.std.soft_cap(1e-4, 30.0), 1e-4, rtol=1e-9)


def test_elu_plus_one() -> None:
    x = np.array([-800.0, -1.0, 0.0, 2.0, 800.0])
    agree(ix.std.elu_plus_one(x), np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))))
