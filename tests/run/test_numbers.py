"""Numbers: every function at its special values, whole arithmetic in full, and what binds tighter than what."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.ir.functions import FUNCTIONS

SPECIAL = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 3.75, -3.75, 1e-8, -30.0, 30.0, 800.0, -800.0, 1e300)
UNBOUNDED = (math.inf, -math.inf, math.nan)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


# Each with its values at +∞, −∞ and NaN.
EXPECTED: dict[str, tuple[Any, tuple[float, float, float]]] = {
    "exp": (exp, (math.inf, 0.0, math.nan)),
    "log": (lambda x: math.log(x) if x > 0 else -math.inf if x == 0 else math.nan, (math.inf, math.nan, math.nan)),
    "sqrt": (lambda x: math.sqrt(x) if x >= 0 else math.nan, (math.inf, math.nan, math.nan)),
    "rsqrt": (lambda x: x**-0.5 if x > 0 else math.inf if x == 0 else math.nan, (0.0, math.nan, math.nan)),
    "tanh": (math.tanh, (1.0, -1.0, math.nan)),
    "sigmoid": (sigmoid, (1.0, 0.0, math.nan)),
    "relu": (lambda x: max(x, 0.0), (math.inf, 0.0, math.nan)),
    "abs": (abs, (math.inf, math.inf, math.nan)),
    "sin": (math.sin, (math.nan, math.nan, math.nan)),
    "cos": (math.cos, (math.nan, math.nan, math.nan)),
    "erf": (math.erf, (1.0, -1.0, math.nan)),
    "floor": (lambda x: float(math.floor(x)), (math.inf, -math.inf, math.nan)),
    "ceil": (lambda x: float(math.ceil(x)), (math.inf, -math.inf, math.nan)),
    "round": (lambda x: float(round(x)), (math.inf, -math.inf, math.nan)),
}
# These are a product with x, and what that is at −∞ is not said.
PRODUCTS: dict[str, Any] = {
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "silu": lambda x: x * sigmoid(x),
}


def test_every_function_without_a_formula_is_here() -> None:
    """Those with one are tested against it, in `tests/ir/test_functions.py`."""
    own = {name for name, row in FUNCTIONS.items() if row.arity == 1 and row.definition is None}
    assert {*EXPECTED, *PRODUCTS} == own


@pytest.mark.parametrize("name", EXPECTED)
def test_a_function_at_special_values(name: str) -> None:
    function, beyond = EXPECTED[name]
    found = ix.compile(f"input x[i]; let y[i] = {name}(x[i]);")([*SPECIAL, *UNBOUNDED])
    expected = [function(x) for x in SPECIAL] + list(beyond)
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_function_that_is_a_product(name: str) -> None:
    found = ix.compile(f"input x[i]; let y[i] = {name}(x[i]);")([*SPECIAL, math.inf, math.nan])
    expected = [PRODUCTS[name](x) for x in SPECIAL] + [math.inf, math.nan]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("backend", ["reference", "numpy", "torch"])
def test_powers_at_special_values(backend: str) -> None:
    """As IEEE has them: of signed zeros, infinities and NaN."""
    ends = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, *UNBOUNDED])
    a, b = (grid.ravel() for grid in np.meshgrid(ends, ends))
    found = np.asarray(ix.compile("input a[i], b[i]; let y[i] = a[i] ** b[i];")(a, b, backend=backend))
    with np.errstate(all="ignore"):
        expected = np.power(a, b)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(expected)], np.signbit(expected)[~np.isnan(expected)])


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("place", range(3))
def test_nan_is_passed_on_from_any_place(name: str, place: int) -> None:
    x = np.array([1.0, 2.0, 3.0])
    x[place] = np.nan
    program = ix.compile(
        f"input x[i]; let a = {name}(x[0], x[1], x[2]); let b = {name}[i](x[i]); let p = arg{name}[i](x[i]);"
        f"let c = clamp(x[{place}], 0, 1); let s = sum[i](x[i]); let m = mean[i](x[i]);"
    )
    found = program(x)
    assert all(np.isnan(value) for value in (found.a, found.b, found.c, found.s, found.m))
    assert found.p == place


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_clamp_with_its_ends_crossed_gives_the_upper_one(dtype: type) -> None:
    kind = {np.int64: "i64", np.float64: "f64"}[dtype]
    found = ix.compile(f"input x[i] : {kind}; let y[i] = clamp(x[i], 3, 1);")(np.arange(5, dtype=dtype))
    assert found.tolist() == [1] * 5


@pytest.mark.parametrize(("op", "place"), [("argmax", 1), ("argmin", 0)])
def test_the_first_of_a_tie(op: str, place: int) -> None:
    assert ix.compile(f"input x[i]; let y = {op}[i](x[i]);")([1.0, 3.0, 1.0, 3.0]) == place
    assert ix.compile(f"input x[i]; let y = {op}[i](x[i] where i > {place});")([1.0, 3.0, 1.0, 3.0]) == place + 2


WHOLES = range(-7, 8)


def truncated(a: int, b: int) -> int:
    return int(math.copysign(abs(a) // abs(b), a * b)) if a else 0


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("+", lambda a, b: a + b),
        ("-", lambda a, b: a - b),
        ("*", lambda a, b: a * b),
        ("/", truncated),
        ("%", lambda a, b: a - b * truncated(a, b)),
    ],
)
def test_whole_arithmetic(op: str, function: Any) -> None:
    pairs = [(a, b) for a, b in product(WHOLES, WHOLES) if b]
    found = ix.compile(f"input a[i] : i64, b[i] : i64; let y[i] = a[i] {op} b[i];")(*zip(*pairs, strict=True))
    assert found.tolist() == [function(a, b) for a, b in pairs]
    for a, b in pairs[::11]:
        assert ix.compile(f"let y = ({a}) {op} ({b});")() == function(a, b)


def test_whole_functions() -> None:
    text = """input a[i] : i64;
        let p[i] = abs(a[i]); let q[i] = relu(a[i]); let r[i] = clamp(a[i], -2, 3); let s[i] = -a[i];
        let t[i] = max(a[i], 1, -a[i]); let u[i] = min(a[i], 1); let v[i] = a[i] ** 3;"""
    found = ix.compile(text)(WHOLES)
    assert found.p.tolist() == [abs(a) for a in WHOLES]
    assert found.q.tolist() == [max(a, 0) for a in WHOLES]
    assert found.r.tolist() == [min(max(a, -2), 3) for a in WHOLES]
    assert found.s.tolist() == [-a for a in WHOLES]
    assert found.t.tolist() == [max(a, 1, -a) for a in WHOLES]
    assert found.u.tolist() == [min(a, 1) for a in WHOLES]
    assert found.v.tolist() == [a**3 for a in WHOLES]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 ** 3 ** 2", 512),
        ("(2 ** 3) ** 2", 64),
        ("-2 ** 2", -4),
        ("(-2) ** 2", 4),
        ("2.0 ** -1", 0.5),
        ("2 * 3 ** 2", 18),
        ("10 - 4 - 3", 3),
        ("10 - (4 - 3)", 9),
        ("7 / 2 * 2", 6),
        ("7 * 2 / 4", 3),
        ("7 - 6 / 4", 6),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 % 4 * 2", 6),
        ("2 + 3 * 4 - 5", 9),
        ("7.0 / 2", 3.5),
        ("7 / 2.0", 3.5),
        ("7 / 2 as f64", 3.5),
        ("(7 / 2) as f64", 3.0),
        ("-1.5 as i64", -1),
        ("-(1.5 as i64)", -1),
        ("2.9 as i64 + 1", 3),
        ("1 < 2", True),
        ("0 <= 1 < 2", True),
        ("0 <= 3 < 2", False),
        ("3 > 2 > 1 > 0", True),
        ("1 + 1 == 2", True),
        ("1 == 1 && 2 == 3", False),
        ("true || false && false", True),
        ("(true || false) && false", False),
        ("!true || true", True),
        ("!(true || true)", False),
        ("!false && true", True),
        ("if 1 < 2 { 3 } else { 4 } + 10", 13),
        ("if 2 < 1 { 3 } else if 1 < 1 { 4 } else { 5 }", 5),
        ("{ let a = 2; a * a } + 1", 5),
        ("1e-3 * 1000.0", 1.0),
        ("~0.5 + ~0.25", 0.75),
        ("[10, 20, 30][1] - 1", 19),
        ("max(1, 2, 3) - min(3, 2)", 1),
        ("sum[i in 0..3](i) * 2", 6),
        ("sum[i in 0..3](i * 2)", 6),
        ("-sum[i in 1..=3](i) ** 2", -36),
    ],
)
def test_what_binds_tighter(text: str, value: Any) -> None:
    found = ix.compile(f"let y = {text};")()
    assert found == value
    assert found.dtype.kind == np.asarray(value).dtype.kind


def test_sizes_of_ranges() -> None:
    text = """input x[i];
        let a[k in 0..5] = size(k);
        let b = sum[k in 2..5](size(k));
        let c = sum[k in 2..=5](size(k));
        let d[i] = sum[j in i..size(i)](size(j));
        let h[0] = 0;
        let h[t in 1..size(i)] = h[t - 1] + size(t);
        let e[t in 0..size(i) - 1] = size(t) * size(i);"""
    found = ix.compile(text)(np.zeros(4))
    assert found.a.tolist() == [5] * 5
    assert found.b == 9
    assert found.c == 16
    assert found.d.tolist() == [16, 9, 4, 1]
    assert found.h.tolist() == [0, 3, 6, 9]
    assert found.e.tolist() == [12, 12, 12]


def test_a_function_captures_nothing() -> None:
    """Whatever the coordinates of its caller are called."""
    text = """fn f(s) { sum[e in 0..3](cumsum[e](s)) }
        fn g(x[i], s) -> [i] { x[i] * s + sum[j](x[j]) }
        fn twice(s) { f(s) + sum[e in 0..2](s) }
        input z[e], x[i, j];
        let a = f(max[e](z[e]));
        let b[i, j in 0..size(e)] = g(z, x[i, i])[j] * i;
        let c[e in 0..2] = twice(sum[e](z[e])) + e;"""
    z, x = np.array([2.0]), np.array([[1.0, 2.0], [3.0, 4.0]])
    found = ix.compile(text)(z, x)
    assert found.a == 12.0
    assert found.b.tolist() == [[0.0], [10.0]]
    assert found.c.tolist() == [16.0, 17.0]
