"""Sums over keys with normalised weights: the law that lets tiles be taken in turn, and tiles of any size."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.engine.dialects import dialect
from indexical.engine.ops import Axis, Contract, Definition, Input, Plan, Reduce, Value, value
from indexical.engine.rules.folds import GATHERED, NORMALISERS
from indexical.engine.rules.terms import NOWHERE
from indexical.engine.show import show, tiles
from indexical.ir import build
from indexical.ir import nodes as ir
from indexical.ir.types import Coordinate

ROWS, KEYS, WIDTH = (Axis(Coordinate(name), build.whole(n, NOWHERE)) for name, n in (("i", 5), ("j", 7), ("e", 3)))

DOT = "sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d))"
SCORES = {
    "dot": (DOT, ""),
    "slope": (f"{DOT} + slope[h] * (j - i)", ", slope[h]"),
    "cap": (f"3 * tanh({DOT} / 3)", ""),
    "bias": (f"{DOT} + B[i, j]", ", B[i, j]"),
    "temperature": (f"{DOT} * t[h, i]", ", t[h, i]"),
    "key": (f"{DOT} - abs(f[j])", ", f[j]"),
    "distance": ("0.25 * (i - j) * s", ", s"),
}
GUARDS = {
    "all": "",
    "causal": "j <= i",
    "window": "j <= i && i - j < 3",
    "later": "j >= i + 4",
    "labels": "doc[i] == doc[j]",
    "mask": "m[i, j]",
    "even": "(i + j) % 2 == 0",
    "near": "abs(i - j) < 2",
    "band": "i - 3 < j && j <= i + 1",
    "stride": "j % 2 == i % 2 && j <= i",
    "two": "j == i || j == i - 2",
    "between": "j >= lo[i] && j < hi[i]",
}
MADE = {
    "softmax": "softmax[j](S) where G",
    "sigmoid": "sigmoid(S) where G",
    "sink": "exp(S) / (exp(sink[h]) + sum[k](exp(T) where H)) where G",
}


def printed(result: Value, inputs: tuple[Value, ...]) -> Any:
    """A function of arrays that computes a value."""
    let = ir.Let("y", (), "real", (), True, NOWHERE)
    definition = Definition("y", (ROWS, WIDTH), result, "real", "f64", let)
    plan = Plan(ix.compile("input x; let y = x;").ir, inputs, {"y": definition}, ("y",))
    scope: dict[str, Any] = {}
    exec(show(plan, dialect("numpy")), scope)
    return scope["program"]


@pytest.mark.parametrize("name", NORMALISERS)
def test_results_do_not_depend_on_the_level(name: str) -> None:
    """What a normaliser makes of its sums is the same wherever weights count from."""
    rule = NORMALISERS[name]
    homes = {"score": (ROWS, KEYS), "values": (KEYS, WIDTH), "level": (ROWS,), "peak": (ROWS,), "sink": (ROWS,)}
    score, values, level, peak, sink = inputs = tuple(value(Input(n, home, "real", "f64")) for n, home in homes.items())
    sums = {}
    for part, weight in rule.sums.items():
        weights = weight(score, level)
        gathers = part == GATHERED
        sums[part] = value(Contract((weights, values), (KEYS,)) if gathers else Reduce("sum", weights, (KEYS,)))
    program = printed(rule.finish(sums, level, peak, (sink,)), inputs)
    rng = np.random.default_rng(0)
    scores, carried, sinks = rng.normal(size=(5, 7)), rng.normal(size=(7, 3)), rng.normal(size=5)
    own = scores.max(1)
    found = [program(scores, carried, own + by, own, sinks) for by in (0.0, 1.0, -2.0)]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-13)


def text_of(score: str, guard: str, made: str) -> str:
    expr, more = SCORES[score]
    again = expr.replace("[h, j", "[h, k").replace("j - i", "k - i").replace("i - j", "i - k")
    again = again.replace("B[i, j]", "B[i, k]").replace("f[j]", "f[k]")
    test = GUARDS[guard]
    weights = MADE[made].replace("S", expr).replace("T", again).replace("H", re.sub(r"\bj\b", "k", test) or "true")
    weights = weights.replace("G", test or "true").replace(" where true", "")
    given = "Q[h, i, d], K[h, j, d], V[h, j, e], doc[i] : i64, m[i, j] : bool, lo[i] : i64, hi[i] : i64, sink[h]"
    return f"input {given}{more}; let w[h, i, j] = {weights}; let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);"


def arrays(program: ix.Program, rows: int, keys: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows + keys)
    sizes = {"h": 2, "i": rows, "j": keys, "d": 3, "e": 4}
    found: dict[str, Any] = {}
    for tensor in program.ir.inputs:
        shape = tuple(sizes[axis.coordinate.name] for axis in tensor.axes)
        found[tensor.name] = rng.normal(size=shape) if tensor.axes else 0.5
    low = rng.integers(0, keys, rows)
    ends = {"lo": low, "hi": low + rng.integers(0, 4, rows)}
    return found | ends | {"doc": np.sort(rng.integers(0, 3, rows)), "m": rng.random((rows, keys)) < 0.6}


# Of no score of places alone a second letter for the keys has a size.
CASES = [case for case in product(SCORES, GUARDS, MADE) if (case[0], case[2]) != ("distance", "sink")]


@pytest.mark.parametrize(("score", "guard", "made"), CASES)
def test_tiles_of_any_size_are_the_relation(
    score: str, guard: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of two keys and few queries, and one tile of all, are what the relation says."""
    text = text_of(score, guard, made)
    given = arrays(ix.compile(text), 7, 7)
    wanted = ix.compile(text)(**given, backend="reference")
    np.testing.assert_allclose(ix.compile(text)(**given), wanted, atol=1e-13)
    monkeypatch.setattr(tiles, "KEYS", 2)
    monkeypatch.setattr(tiles, "PAIRS", 12)
    program = ix.compile(text)
    assert made == "sigmoid" or "tiles of" in program.plan(**given).passes()  # Few sigmoids are built.
    np.testing.assert_allclose(program(**given), wanted, atol=1e-13)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["K", "V"])
def test_what_nobody_hears_changes_nothing(name: str, bad: float) -> None:
    program = ix.compile(text_of("dot", "window", "softmax").replace("i - j < 3", "j > 1"))
    given = arrays(program, 6, 6)
    wanted = program(**given)
    given[name][:, :2] = bad
    np.testing.assert_array_equal(program(**given), wanted)


def test_a_fold_is_shown_before_its_tiles() -> None:
    program = ix.compile(text_of("dot", "causal", "softmax"))
    passes = program.plan(**arrays(program, 4, 4)).passes()
    assert "fold[j] softmax(" in passes
    assert "tile by tile: a sum over all keys is one over tiles of sums over their keys" in passes


def test_a_definition_that_is_read_out_of_bounds_has_its_name() -> None:
    """In the emitted file too, where it is handed to tiles."""
    text = """
        input Q[i, d], K[j, d], V[j, e], t[k, m], n[i, j] : i64;
        let T[k] = cumsum[k](t[k, 0]);
        let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) + T[n[i, j]]);
        let out[i, e] = sum[j](w[i, j] * V[j, e]);
    """
    given = [np.ones(shape) for shape in ((3, 2), (4, 2), (4, 2), (3, 2))]
    scope: dict[str, Any] = {}
    exec(ix.compile(text).source(*given, np.zeros((3, 4), int)), scope)
    with pytest.raises(scope["Refused"], match="an index of `T` is out of bounds"):
        scope["program"](*given, np.full((3, 4), 7))


def test_the_bytes_of_tiles_are_not_told_as_none() -> None:
    program = ix.compile(text_of("dot", "causal", "softmax"))
    assert "beside what kernels need" in program.plan(**arrays(program, 4, 4)).passes(True)


def test_a_result_has_the_dtype_of_all_that_the_relation_reads() -> None:
    """Also of what is the same for all keys, and so is left out of scores; and whole numbers count as f64."""
    program = ix.compile("""
        input q[i], b[i], k[j], V[j, e];
        let w[i, j] = softmax[j](q[i] * k[j] + b[i]); let out[i, e] = sum[j](w[i, j] * V[j, e]);
    """)
    rng = np.random.default_rng(0)
    q, b, k, V = (rng.normal(size=shape).astype("f4") for shape in (5, 5, 5, (5, 2)))
    assert program(q, b.astype("f8"), k, V).dtype == np.float64
    assert program(q, b, k, V).dtype == np.float32
    whole = {name: rng.integers(-3, 4, shape) for name, shape in (("q", 5), ("b", 5), ("k", 5), ("V", (5, 2)))}
    np.testing.assert_allclose(program(**whole), program(**whole, backend="reference"), rtol=1e-14, atol=1e-14)


def test_places_of_two_axes_of_keys_are_not_checked() -> None:
    """Both are read from one place by a size. Where that is 0 there is no place."""
    text = """
        input Q[i, d], K[j, d], L[k, d], V[j, e];
        let w[i, j, k] = softmax[j, k](sum[d](Q[i, d] * K[j, d] * L[k, d])) where j <= i, k <= i;
        let out[i, e] = sum[j, k](w[i, j, k] * V[j, e]);
    """
    program, rng = ix.compile(text), np.random.default_rng(0)
    Q, K, V = rng.normal(size=(3, 6, 3))
    for keys in (0, 6):
        L = rng.normal(size=(keys, 3))
        assert "IX505" not in program.source(Q, K, L, V)
        np.testing.assert_allclose(program(Q, K, L, V), program(Q, K, L, V, backend="reference"), atol=1e-13)
