"""Functions that give several tensors, and the names that are bound to them together."""

from __future__ import annotations

import numpy as np
import pytest

import indexical as ix

BOTH = "fn both(x[i]) -> ([i], [i]) { let c[i] = x[i] - mean[i](x[i]); (c[i] + 1, 2 * c[i]) }\ninput X[t];\n"


def test_what_is_shared_is_there_once() -> None:
    program = ix.compile(BOTH + "let (a, b) = both(X);")
    assert program.outputs == ("a", "b")
    assert sorted(let.name for let in program.ir.lets) == ["a", "b", "both_c"]
    a, b = program(np.array([1.0, 2.0, 6.0]))
    np.testing.assert_allclose((a, b), ([-1, 0, 4], [-4, -2, 6]))


def test_they_may_be_bound_inside_a_block_and_in_a_function() -> None:
    program = ix.compile(
        "fn two(x[i], s) -> ([], [i]) { (sum[i](x[i]) + s, x[i] * s) }\n"
        "fn outer(x[i], s) -> [i] { let (p, q) = two(x, s); p * q[i] }\n"
        "input X[b, t], z[t];\n"
        "let y[b, t] = { let (p, q) = two(z, X[b, t]); p - q[t] };\n"
        "let w[b, t] = outer(z, X[b, 0])[t];"
    )
    x, z = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0, 7.0])
    y, w = program(x, z)
    np.testing.assert_allclose(y, 12 + x - x * z)
    np.testing.assert_allclose(w, (12 + x[:, :1]) * x[:, :1] * z)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("let y = both(X);", "IX209", "`both` gives 2 tensors, and one is needed here"),
        ("let y[t] = both(X)[t];", "IX209", "`both` gives 2 tensors, and one is needed here"),
        ("let (a, b, c) = both(X);", "IX206", "`both` gives 2 tensors, and 3 names are bound to it"),
        ("let (a, b) = (X[t], 2);", "IX209", "several names are bound to a call that gives several tensors"),
        ("let (a, b) = both(X) where t > 0;", "IX209", "a guard needs coordinates on the left"),
        ("let (a, b) = both(b);", "IX208", "`b` is defined by itself"),
        ("let (a, a) = both(X);", "IX202", "`a` is defined twice"),
        ("let y[t] = (X[t], 2) + 1;", "IX209", "several values where one number is needed"),
        ("fn one(x[i]) -> ([i], [i]) { x[i] }\nlet y = X;", "IX209", "`one` says that it gives 2 tensors"),
        ("fn no(x[i]) { (1, 2) }\nlet (a, b) = no(X);", "IX206", "`no` gives one number, and 2 names are bound to it"),
    ],
)
def test_what_is_refused(text: str, code: str, words: str) -> None:
    assert (code, words) in [(found.code, found.message) for found in ix.check(BOTH + text)]
