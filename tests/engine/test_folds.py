"""Sums over keys with normalised weights: the law that lets tiles be taken in turn, and tiles of any size."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from tests.pairs import called_few

import indexical as ix
from indexical.backends.kernels import torch_fold
from indexical.engine.dialects import dialect
from indexical.engine.ops import Axis, Contract, Definition, Input, Plan, Reduce, Value, value
from indexical.engine.rules.folds import GATHERED, NORMALISERS
from indexical.engine.rules.terms import NOWHERE
from indexical.engine.show import show
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
    "one more": "exp(S) / (1 + sum[k](exp(T) where H)) where G",
    "relu": "relu(S) ** 2 where G",
    "softpick": "relu(exp(S) - 1) / (sum[k](abs(exp(T) - 1) where H) + 0.01) where G",
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
    program = printed(rule.result(sums, level, peak, (sink,)), inputs)
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


# Few weights of these are built.
BUILT = ("sigmoid", "relu", "softpick")
# Of no score of places alone a second letter for the keys has a size.
CASES = [case for case in product(SCORES, GUARDS, MADE) if case[0] != "distance" or "T" not in MADE[case[2]]]


@pytest.mark.parametrize(("score", "guard", "made"), CASES)
def test_tiles_of_any_size_are_the_relation(
    score: str, guard: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of two keys and few queries, and one tile of all, are what the relation says."""
    text = text_of(score, guard, made)
    given = arrays(ix.compile(text), 7, 7)
    wanted = ix.compile(text)(**given, backend="reference")
    np.testing.assert_allclose(ix.compile(text)(**given), wanted, atol=1e-13)
    monkeypatch.setattr(type(dialect("numpy")), "tile", ("12", "2"))
    program = ix.compile(text)
    assert made in BUILT or "tiles of" in program.plan(**given).passes()
    np.testing.assert_allclose(program(**given), wanted, atol=1e-13)


LEARNED = ("Q", "K", "V", "slope", "B", "t", "f", "s", "sink")


def there_and_back(program: ix.Program, given: dict[str, Any], **flags: Any) -> list[Any]:
    """The result by PyTorch, and the gradients of what learns."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in given.items()}
    leaves = [tensors[name].requires_grad_() for name in LEARNED if name in tensors]
    out = program(**tensors, **flags)
    weight = torch.sin(torch.arange(out.numel(), dtype=torch.float64)).reshape(out.shape)
    return [out.detach(), *torch.autograd.grad(out, leaves, weight, materialize_grads=True)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("score", "guard", "made"), CASES)
def test_gradients_by_tiles_are_those_of_the_relation(
    score: str, guard: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_fold, "tile_of", lambda x: (12, 2))
    with called_few(0):
        program = ix.compile(text_of(score, guard, made))
        given = arrays(program, 7, 7)
        found, wanted = there_and_back(program, given), there_and_back(program, given, isolate=True)
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in given.items()}
        assert score != "cap" or made in BUILT or "folded(" in program.source(**tensors)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


DOTS = "sum[d](Q[i, d] * K[j, d])"
# What drawn programs found, each with the shapes of its arrays: those of n points have seven of them and 150.
DRAWN = {
    "a mask with a batch of its own": (
        "input Q[i, d], K[j, d], V[b, j, e], s, m[b, j] : bool;"
        f"let w[b, i, j] = sigmoid({DOTS} - s * abs(i - j)) where m[b, j];"
        "let out[b, i, e] = sum[j](w[b, i, j] * V[b, j, e]);",
        {"Q": "n3", "K": "n3", "V": "2n2", "s": "", "m": "2n"},
    ),
    "a mask with a batch of its own under softmax": (
        "input Q[i, d], K[j, d], V[b, j, e], m[b, i, j] : bool;"
        f"let w[b, i, j] = softmax[j](3 * tanh({DOTS} / (1 + abs(i - j)))) where m[b, i, j];"
        "let out[b, i, e] = sum[j](w[b, i, j] * V[b, j, e]);",
        {"Q": "n3", "K": "n3", "V": "2n2", "m": "2nn"},
    ),
    "a gate of pairs": (
        "input Q[i, d], K[j, d], V[j, e], G[i, j];"
        f"let w[i, j] = sigmoid({DOTS}) where j <= i; let out[i, e] = sum[j](w[i, j] * G[i, j] * V[j, e]);",
        {"Q": "n3", "K": "n3", "V": "n2", "G": "nn"},
    ),
    "the sign of scores": (
        "input Q[i, d], K[j, d], V[j, e], c[i];"
        f"let s[i, j] = {DOTS} + c[i] - c[j]; let w[i, j] = softmax[j](abs(s[i, j])) where j <= i;"
        "let out[i, e] = sum[j](w[i, j] * (if s[i, j] < 0 { -1.0 } else { 1.0 }) * V[j, e]);",
        {"Q": "n3", "K": "n3", "V": "n2", "c": "n"},
    ),
    "one query": (
        "input Q[d], K[j, d], V[j, e], f[j];"
        "let w[j] = softmax[j](sum[d](Q[d] * K[j, d]) - abs(f[j])) where j >= 2;"
        "let out[e] = sum[j](w[j] * V[j, e]);",
        {"Q": "3", "K": "n3", "V": "n2", "f": "n"},
    ),
    "a sink of each head": (
        "input Q[i, d], K[j, d], V[h, j, e], s[h];"
        f"let w[h, i, j] = exp(3 * tanh({DOTS} / 3)) / (exp(s[h]) + sum[k](exp(3 * tanh(T / 3))));"
        "let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);".replace("T", DOTS.replace("j", "k")),
        {"Q": "n3", "K": "n3", "V": "2n2", "s": "2"},
    ),
    "keys from the second on": (
        "input Q[i, d], K[j, d], V[j, e];"
        f"let w[i, j] = relu({DOTS}) where j <= i; let out[i, e] = sum[j in 1..size(j)](w[i, j] * V[j, e]);",
        {"Q": "n3", "K": "n3", "V": "n2"},
    ),
    "keys read backwards": (
        "input Q[i, d], K[j, d], V[j, e];"
        "let w[i, j] = softmax[j](tanh(sum[d](Q[i, d] * K[size(j) - 1 - j, d])));"
        "let out[i, e] = sum[j](w[i, j] * V[j, e]);",
        {"Q": "n3", "K": "n3", "V": "n2"},
    ),
    "a learned table": (
        "input Q[i, d], K[j, d], V[j, e], T[r];"
        f"let w[i, j] = softmax[j](5 * tanh({DOTS} / 5) + T[i + size(j) - size(i) - j])"
        " where j <= i + size(j) - size(i); let out[i, e] = sum[j](w[i, j] * V[j, e]);",
        {"Q": "n3", "K": "n3", "V": "n2", "T": "n"},
    ),
    "a net that scores one query and one key of stated sizes": (
        "input Q[i in 0..1, a in 0..5], K[j in 0..1, a in 0..5], V[j in 0..1, e], v[a in 0..5];"
        "let s[i, j] = sum[a](v[a] * tanh(Q[i, a] + K[j, a]));"
        "let out[i, e] = sum[j](exp(s[i, j]) / (1 + sum[k](exp(s[i, k]))) * V[j, e]);",
        {"Q": "15", "K": "15", "V": "12", "v": "5"},
    ),
    "an array in scores and in values, of which the way back reads what is masked": (
        "input x[j], a;"
        "let w[j] = softmax[j](abs(x[j]) ** a where j > 0); let out = sum[j](w[j] / x[j]);",
        {"x": "n", "a": ""},
    ),
    "a sink that counts from a maximum of its own": (
        "input Q[i, d], K[j, d], B[i, j], s, V[j, e];"
        f"let t[i] = max[j]({DOTS} + B[i, j] where j <= i); let x[i, j] = exp({DOTS} + B[i, j] - t[i]) where j <= i;"
        "let out[i, e] = sum[j](x[i, j] * V[j, e]) / (exp(s) + sum[j](x[i, j]));",
        {"Q": "n3", "K": "n3", "B": "nn", "s": "", "V": "n2"},
    ),
    "squares over their sum": (
        "input Q[i, d], K[j, d], V[j, e];"
        f"let s[i, j] = {DOTS}; let q[i, j] = s[i, j] ** 2 where j <= i; let w[i, j] = q[i, j] / sum[k](q[i, k]);"
        "let out[i, e] = sum[j](w[i, j] * V[j, e]);",
        {"Q": "n3", "K": "n3", "V": "n2"},
    ),
    "values that are exponentials": (
        "input Q[i, d], K[j, d], V[j, e];"
        f"let w[i, j] = softmax[j](3 * tanh({DOTS} / 3)) where j <= i; let m[e] = max[j](V[j, e]);"
        "let out[i, e] = m[e] + log(sum[j](w[i, j] * exp(V[j, e] - m[e])));",
        {"Q": "n3", "K": "n3", "V": "n2"},
    ),
    "a sink that is in scores too": (
        "input f[j], c[i], t, V[j, e];"
        "let z[i, j] = t * tanh(f[j] * c[i]) + c[i] where j <= i;"
        "let w[i, j] = exp(z[i, j]) / (exp(t) + sum[k](exp(z[i, k]) where k <= i)) where j <= i;"
        "let out[i, e] = sum[j](w[i, j] * V[j, e]);",
        {"f": "n", "c": "n", "t": "", "V": "n2"},
    ),
    "scores that are the values": (
        "input x[j]; let out = sum[j](x[j] * softmax[j](x[j]) where j > 0);",
        {"x": "n"},
    ),
    "inputs by names that functions of tiles have": (
        "input keys[i, d], tensors[j, d], totals[j, e], sizes[j], found;"
        "let sums[i, j] = softmax[j](tanh(sum[d](keys[i, d] * tensors[j, d])) * found + sizes[j]) where j <= i;"
        "let out[i, e] = sum[j](sums[i, j] * totals[j, e]);",
        {"keys": "n3", "tensors": "n3", "totals": "n2", "sizes": "n", "found": ""},
    ),
    "several axes of values": (
        "input Q[i, d], K[j, d], V[b, j, e, f], t[i];"
        f"let w[i, j] = softmax[j](t[i] * tanh({DOTS})) where j <= i, i - j < 3;"
        "let out[b, i, e, f] = sum[j](w[i, j] * V[b, j, e, f]);",
        {"Q": "n3", "K": "n3", "V": "2n22", "t": "n"},
    ),
}


@pytest.mark.parametrize("tiled", [False, True], ids=["few", "tiled"])
@pytest.mark.parametrize("points", [7, 150])
@pytest.mark.parametrize("name", DRAWN)
def test_what_drawn_programs_found(name: str, points: int, tiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text, shapes = DRAWN[name]
    draw = torch.Generator().manual_seed(points)
    given: dict[str, Any] = {}
    for letter, shape in shapes.items():
        array = torch.randn([points if n == "n" else int(n) for n in shape], generator=draw, dtype=torch.float64)
        given[letter] = array > -0.5 if letter == "m" else array.requires_grad_()
    if tiled:
        monkeypatch.setattr(torch_fold, "tile_of", lambda x: (400, 32))
    before = {letter: array.detach().clone() for letter, array in given.items()}
    with called_few(0 if tiled else 1 << 40):
        program = ix.compile(text)
        found, wanted = ([program(**given, **flags)] for flags in ({}, {"isolate": True}))
    weight = torch.sin(torch.arange(found[0].numel(), dtype=torch.float64)).reshape(found[0].shape)
    for outs in (found, wanted):
        outs += torch.autograd.grad(outs[0], [x for x in given.values() if x.requires_grad], weight)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)
    assert all(torch.equal(array, before[letter]) for letter, array in given.items())


def test_an_index_out_of_bounds_is_refused_in_tiles_of_which_all_pairs_count() -> None:
    program = ix.compile(
        f"input Q[i, d], K[j, d], V[j, e], T[r], p[i, j] : i64; let w[i, j] = softmax[j](tanh({DOTS}) + T[p[i, j]])"
        " where j <= i; let out[i, e] = sum[j](w[i, j] * V[j, e]);"
    )
    given = [torch.ones(900, 2), torch.ones(900, 2), torch.ones(900, 2), torch.ones(4)]
    places = torch.zeros(900, 900, dtype=torch.int64)
    places[3, 200] = 9
    with called_few(0):
        assert torch.equal(program(*given, places), torch.ones(900, 2))
        places[800, 200] = 9
        with pytest.raises(ix.Error, match="an index of `T` is out of bounds"):
            program(*given, places)


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
