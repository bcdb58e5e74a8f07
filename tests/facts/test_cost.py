"""What a program costs, counted by hand."""

from __future__ import annotations

import pytest

import indexical as ix


@pytest.mark.parametrize(
    ("text", "dense", "count"),
    [
        ("input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j]);", "i·j·k", 4 * 5 * 3),
        ("input S[i, j], b[j]; let w[i, j] = softmax[j](S[i, j] + b[j]);", "3·i·j", 3 * 4 * 5),
        ("input S[i, j], b[j]; let w[i, j] = softmax[j](S[i, j] + b[j]) where j <= i;", "3·i·j", 3 * (1 + 2 + 3 + 4)),
        ("input S[i, j]; let w[i, j] = softmax[j](S[i, j] * softmax[j](2 * S[i, j])) + 1;", "7·i·j", 7 * 4 * 5),
        ("input S[i, j]; let w[i, j] = cumsum[j](S[i, j] * S[i, j]);", "2·i·j", 2 * 4 * 5),
        ("input S[i, j]; let w[i, k in 0..size(j)] = sum[j](S[i, j] where j <= k);", "i·j", 4 * 5),
        ("input S[i, j]; let w[i, k in 0..size(j)] = sum[j](S[i, j] where k < j <= i);", "i·j", 1 + 2 + 3 + 4),
        ("input S[i, j]; let w[i, k in 0..size(j)] = sum[j](0.5 ** (k - j) * S[i, j] where j <= k);", "i·j", 4 * 5),
        ("input S[i, j]; let w[i, k in 0..size(j)] = sum[j](S[i, j] where j <= k, j > k - 2);", "i·j^2", 4 * 9),
    ],
)
def test_cost_is_counted_once_for_each_point(text: str, dense: str, count: int) -> None:
    """The body of a normaliser is computed for each of its points, not for each pair of them."""
    program = ix.compile(text)
    letters = {axis.coordinate.name for tensor in program.ir.inputs for axis in tensor.axes}
    cost = program.cost(**{name: size for name, size in {"i": 4, "j": 5, "k": 3}.items() if name in letters})
    assert cost.figures[0].multiply_adds == dense
    assert cost.total == count
