"""An absent point reads as 0 where 0 does no harm, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checker.reporting import codes

import indexical as ix

GUARDED = "input x[i, j]; let m[i, j] = x[i, j] where j <= i; "


@pytest.mark.parametrize(
    "reader",
    [
        "let y[i, j] = softmax[j](m[i, j]);",
        "let y[i, j] = log_softmax[j](m[i, j]);",
        "let y[i] = max[j](m[i, j]);",
        "let y[i] = min[j](m[i, j]);",
        "let y[i] = prod[j](m[i, j]);",
        "let y[i] = mean[j](m[i, j]);",
        "let y[i] = argmax[j](m[i, j]);",
        "let y[i] = argmin[j](m[i, j]);",
        "let y[i, j] = exp(m[i, j]);",
        "let y[i, j] = log(m[i, j]);",
        "let y[i, j] = rsqrt(m[i, j]);",
        "let y[i, j] = cos(m[i, j]);",
        "let y[i, j] = sigmoid(m[i, j]);",
        "let y[i, j] = 1 / m[i, j];",
        "let y[i, j] = m[i, j] > 0;",
        "let y[i, j] = max(m[i, j], 1);",
        "let y[i, j] = clamp(m[i, j], 1.0, 2.0);",
        "let y[i, j] = 2.0 ** m[i, j];",
        # Through definitions, as if they were inlined.
        "let s[i, j] = m[i, j] * 2; let y[i, j] = softmax[j](s[i, j]);",
        "let s[i, j] = m[i, j] + 1; let t[i, j] = -s[i, j]; let y[i] = max[j](t[i, j]);",
        "let s[i, j] = if i > 2 { m[i, j] } else { 1 }; let y[i, j] = exp(s[i, j]);",
        # A guard of the reader that does not exclude all of it.
        "let y[i, j] = softmax[j](m[i, j]) where j <= i + 1;",
        "let y[i, j] = softmax[j](m[j, i]) where j <= i;",
    ],
)
def test_refused(reader: str) -> None:
    assert codes(GUARDED + reader) == ["IX309"]


@pytest.mark.parametrize(
    "reader",
    [
        "let y[i, j] = softmax[j](m[i, j]) where j <= i;",
        "let y[i, j] = softmax[j](m[i, j]) where j < i;",
        "let y[i, j] = softmax[j](m[i, j]) where i >= j;",
        "let y[i, j] = softmax[j](m[i, j]) where !(j > i);",
        "let ok[i, j] = j <= i; let y[i, j] = softmax[j](m[i, j]) where ok[i, j];",
        "let y[i] = max[j](m[i, j] where j <= i);",
        "let y[i] = max[k](m[i, k] where k <= i);",
        "let y[i] = max[j in 0..=i](m[i, j]);",
        "let y[i] = exp(sum[j](m[i, j]));",
        "let y[i, j] = tanh(m[i, j]) + relu(m[i, j]);",
        "let y[i, j] = clamp(m[i, j], -1.0, 1.0);",
        "let y[i, j] = m[i, j] ** 2;",
        "let y[i, j] = m[i, j] / 2;",
        "let y[i, j] = if j <= i { exp(m[i, j]) } else { 7 };",
        "let y[i] = sum[j](exp(m[i, j]) where j <= i);",
        "let y[i] = exp(m[i, i]);",
        "let y[i] = exp(m[i, 0]);",
        "let s[i, j] = if j <= i { m[i, j] } else { 1 }; let y[i, j] = exp(s[i, j]);",
        "let y[i] = any[j](j <= i && m[i, j] > 0);",
    ],
)
def test_allowed(reader: str) -> None:
    assert codes(GUARDED + reader) == []


def test_a_data_guard_is_repeated_by_its_text() -> None:
    text = "input x[i], keep[i]; let m[i] = x[i] where keep[i]; let y = max[i](m[i] where {});"
    assert codes(text.format("keep[i]")) == []
    assert codes(text.format("x[i] > 0")) == ["IX309"]


def test_an_absent_point_reads_as_zero() -> None:
    program = ix.compile(GUARDED + "let y[i] = sum[j](m[i, j] + 1); output m, y;")
    m, y = program(np.arange(1.0, 10.0).reshape(3, 3))
    assert m.tolist() == [[1, 0, 0], [4, 5, 0], [7, 8, 9]]
    assert y.tolist() == [4, 12, 27]
