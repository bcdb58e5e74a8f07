"""What programs are lowered to: views, matrix products in a good order, loops over nothing but what is recurrent, and
a text without anything that is not used."""

from __future__ import annotations

import ast
import re
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.agreement import is_within
from tests.laws.programs import random_case

import indexical as ix
from indexical.run.samples import random_arrays

torch = pytest.importorskip("torch")

BACKENDS = ("numpy", "torch")
PRODUCT = r" @ |linear\("
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.ix"))


def body(
    text: str, *shapes: tuple[int, ...], backend: str = "numpy", outputs: Any = None, isolate: bool = False
) -> str:
    """The emitted function without its comments, for reals of these shapes."""
    program = ix.compile(text)
    arrays = [np.zeros(shape) for shape in shapes]
    source = program.source(*arrays, backend=backend, outputs=outputs, isolate=isolate)
    function = source[source.index("def program") :]
    return "\n".join(line for line in function.splitlines() if not line.strip().startswith("#"))


def statements(text: str) -> list[str]:
    """The statements of an emitted function that compute something: without checks and shapes."""
    lines = text.splitlines()[1:]
    skipped = ("if ", "raise ", "return ", "n_", "device ", "check(")
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith(skipped)]


# ------------------------------------------------------------------------------------------------ views


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("text", "shapes", "shown"),
    [
        ("input x[i]; let y[i in 0..size(i) - 1] = x[i + 1] - x[i];", [(5,)], "x[1:] - x[:n_i - 1]"),
        ("input x[i]; let y[i in 0..size(i) / 2] = x[2 * i] + 1.0;", [(6,)], "::2] + 1.0|:2] + 1.0"),
        ("input x[i, j]; let y[j, i] = x[i, j] + 1.0;", [(2, 3)], "x.T + 1.0"),
        ("input x[i, j, k]; let y[i, k] = x[i, 0, k] + 1.0;", [(2, 3, 4)], "x[:, 0] + 1.0"),
        ("input x[i], w[k]; let y[i in 0..size(i) - size(k) + 1] = sum[k](x[i + k] * w[k]);", [(6,), (3,)], "windows("),
    ],
)
def test_affine_indices_are_views(backend: str, text: str, shapes: list[tuple[int, ...]], shown: str) -> None:
    found = body(text, *shapes, backend=backend)
    assert any(part in found for part in shown.split("|"))
    assert "arange" not in found
    assert "pick(" not in found


def test_a_reversed_axis_is_a_view() -> None:
    text = "input x[i]; let y[i] = x[size(i) - 1 - i] + 1.0;"
    assert "x[::-1] + 1.0" in body(text, (4,))
    assert "x.flip(0) + 1.0" in body(text, (4,), backend="torch")


@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_are_split_and_merged_by_reshaping(backend: str) -> None:
    text = """input X[b, i, m in 0..size(h) * size(d)], G[h, d];
    let Q[b, h, i, d] = X[b, i, h * size(d) + d] * G[h, d];
    let back[b, i, m in 0..size(h) * size(d)] = Q[b, m / size(d), i, m % size(d)];"""
    first, second = statements(body(text, (2, 3, 8), (2, 4), backend=backend))
    assert first == "Q = X.reshape(n_b, n_i, n_h, n_d) * G", "nothing is turned for what only a merge reads"
    assert second == "back = Q.reshape(n_b, n_i, n_d * n_h)"


def test_a_gather_is_checked_and_indexed_in_place() -> None:
    program = ix.compile("input E[v, m], p[b, i] : i64; let X[b, i, m] = E[p[b, i], m] + 1.0;")
    found = program.source(np.zeros((5, 3)), np.zeros((2, 4), int))
    assert "X = E[p] + 1.0" in found
    assert 'check((p < 0) | (p >= E.shape[0]), "IX305"' in found


def test_nothing_is_checked_that_is_proved() -> None:
    text = """input x[i, j]; let y[i, j] = x[min(i, size(i) - 1), (j + 1) % size(j)];
    let z[i] = x[i, argmax[j](x[i, j])];"""
    assert "IX305" not in body(text, (3, 4), outputs="y")
    assert "IX305" not in body(text, (3, 4), outputs="z")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_convolution_is_one_product_of_windows(backend: str) -> None:
    text = """input image[b, c, y, x], kernel[o, c, v in 0..3, u in 0..3];
    let out[b, o, y, x] = sum[c, v, u](kernel[o, c, v, u] * image[b, c, y + v - 1, x + u - 1]
        where 0 <= y + v - 1 < size(y), 0 <= x + u - 1 < size(x));"""
    found = body(text, (1, 2, 5, 5), (3, 2, 3, 3), backend=backend)
    assert "where(" not in found, "zeros beyond the border need no mask"
    if backend == "torch":
        assert found.count("convolved(") == 1
    else:
        assert found.count("windows(") == 2
        assert found.count(" @ ") == 1


# ---------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize(
    ("text", "shapes", "shown"),
    [
        ("input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j]);", [(2, 3), (3, 4)], "C = A @ B"),
        ("input A[i, k], x[k]; let y[i] = sum[k](A[i, k] * x[k]);", [(2, 3), (3,)], "y = A @ x"),
        (
            "input X[b, i, m], W[m, n]; let Y[b, i, n] = sum[m](X[b, i, m] * W[m, n]);",
            [(2, 3, 4), (4, 5)],
            "Y = (X.reshape(n_b * n_i, n_m) @ W).reshape(n_b, n_i, n_n)",
        ),
        (
            "input X[b, i, m], W[h, m, d]; let Q[b, h, i, d] = sum[m](X[b, i, m] * W[h, m, d]);",
            [(2, 3, 4), (2, 4, 5)],
            "Q = (X.reshape(n_b * n_i, n_m) @ W.transpose(1, 0, 2).reshape(n_m, n_h * n_d))"
            ".reshape(n_b, n_i, n_h, n_d).transpose(0, 2, 1, 3)",
        ),
        (
            "input Q[h, i, d], K[h, j, d]; let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));",
            [(2, 3, 4), (2, 5, 4)],
            "s = Q @ K.transpose(0, 2, 1) / math.sqrt(n_d)",
        ),
    ],
)
def test_sums_of_products_are_matrix_products(text: str, shapes: list[tuple[int, ...]], shown: str) -> None:
    assert " ".join(statements(body(text, *shapes))).replace("( ", "(").replace(" )", ")") == shown


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_product_of_many_is_never_built(backend: str) -> None:
    text = "input A[i, k], B[k, l], C[l, j], w[k]; let D[i, j] = sum[k, l](A[i, k] * w[k] * B[k, l] * C[l, j]);"
    program = ix.compile(text)
    n = 60
    arrays: list[Any] = [np.ones((n, n)), np.ones((n, n)), np.ones((n, n)), np.ones(n)]
    found = body(text, *(array.shape for array in arrays), backend=backend)
    assert len(re.findall(PRODUCT, found)) == 2
    if backend == "numpy":
        program(*arrays)
        tracemalloc.start()
        program(*arrays)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * n**3 / 4, "not even the product of three of them"


def test_the_pair_that_leaves_least_comes_first() -> None:
    text = "input A[i, k], B[k, l], x[l]; let y[i] = sum[k, l](A[i, k] * B[k, l] * x[l]);"
    assert statements(body(text, (2, 3), (3, 4), (4,))) == ["y = A @ (B @ x)"]


def test_what_does_not_vary_leaves_the_sum() -> None:
    text = "input A[i, k], B[k, j], s[i]; let C[i, j] = sum[k](s[i] * A[i, k] * B[k, j]);"
    assert statements(body(text, (2, 3), (3, 4), (2,))) == ["C = s[:, None] * (A @ B)"]


# ------------------------------------------------------------------------------------------- recurrences


LSTM = """input x[b, t, m], W[g in 0..4, n, m], U[g in 0..4, n, p];
let gate[b, t in 0..size(t), g, n] = sum[m](W[g, n, m] * x[b, t, m]) + sum[p](U[g, n, p] * shown[b, t, p]);
let cell[b, 0, n] = 0.0;
let cell[b, s in 1..=size(t), n] = sigmoid(gate[b, s - 1, 1, n]) * cell[b, s - 1, n] + tanh(gate[b, s - 1, 2, n]);
let shown[b, 0, n] = 0.0;
let shown[b, s in 1..=size(t), n] = sigmoid(gate[b, s - 1, 3, n]) * tanh(cell[b, s, n]);
output shown;"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_what_is_recurrent_is_stepped(backend: str) -> None:
    found = body(LSTM, (2, 5, 3), (4, 6, 3), (4, 6, 6), backend=backend)
    assert len(re.findall(r"^ *for ", found, re.MULTILINE)) == 1
    before, inside = found.split("    for ")
    assert len(re.findall(PRODUCT, before)) == 1, "the input's part is computed for all steps at once"
    assert len(re.findall(PRODUCT, inside)) == 1


def test_each_step_of_a_recurrence_is_one_turn() -> None:
    text = "let f[0] = 0; let f[1] = 1; let f[n in 2..20] = f[n - 1] + f[n - 2];"
    assert [line.strip() for line in body(text).splitlines() if line.strip()][1:-1] == [
        "f = np.zeros((20,), np.int64)",
        "for n in range(20):",
        "if n == 0:",
        "f[n] = 0",
        "if n == 1:",
        "f[n] = 1",
        "if n >= 2:",
        "f[n] = add(f[n - 1], f[n - 2])",
    ]


def test_what_stays_the_same_is_computed_before_the_loop() -> None:
    text = "input x[t], a[i]; let h[0, i] = a[i]; let h[t in 1..size(t), i] = tanh(h[t - 1, i] * exp(a[i]) + x[t]);"
    found = body(text, (5,), (3,))
    assert found.index("np.exp(a)") < found.index("for t")
    assert found.count("np.exp(") == 1


def test_only_what_is_asked_for_is_computed() -> None:
    text = "input x[i, j]; let a[i] = sum[j](x[i, j]); let b[i] = exp(a[i]); let c[j] = max[i](x[i, j]);"
    assert statements(body(text, (2, 3), outputs="b")) == ["a = x.sum(-1)", "b = np.exp(a)"]
    assert "exp" not in body(text, (2, 3), outputs="c")


# -------------------------------------------------------------------------------------------------- text


@cache
def emitted() -> list[tuple[str, str]]:
    """The examples and some generated programs, lowered by both backends."""
    found = []
    for path in EXAMPLES:
        program = ix.compile(path)
        arrays = random_arrays(program.ir, {}, {}, 0)[0].arrays
        found += [(f"{path.stem}, {backend}", program.source(**arrays, backend=backend)) for backend in BACKENDS]
    for seed in range(40):
        case = random_case(seed)
        if is_within(case):
            program = ix.compile(case.text)
            for backend in BACKENDS:
                source = program.source(**case.arrays, backend=backend, outputs=list(program.definitions))
                found.append((f"random_case({seed}), {backend}", source))
    return found


@pytest.mark.sampled(0)
def test_every_name_is_used() -> None:
    for name, source in emitted():
        function = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "program")
        stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        loaded = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        unused = {variable for variable in stored - loaded if not variable.startswith(("n_", "_"))}
        assert not unused, f"{name}: {unused}\n{source}"


def test_no_line_is_too_long_and_nothing_is_clumsy() -> None:
    clumsy = re.compile(r"max\(0, -?\d+\)|\+ -|~~|(?<!\w)\(\w+\)\[|max\(\d+, \d+\)|__\d|\)\)\)\)\)\)\)")
    for name, source in emitted():
        for line in source[source.index("\ndef program") :].splitlines():
            assert len(line) <= 120, f"{name}: {line}"
            if not line.strip().startswith(("#", "raise")):
                assert not clumsy.search(line), f"{name}: {line}\n{source}"


# ------------------------------------------------------------------------------------------------- PyTorch


FLOWING = {
    "a convolution": (
        "input x[i], w[k in 0..3]; let y[i] = sum[k](x[i + k - 1] * w[k] where 0 <= i + k - 1 < size(i));",
        [(6,), (3,)],
    ),
    "a guarded softmax": ("input x[i, j]; let y[i, j] = softmax[j](x[i, j]) where j < i;", [(3, 4)]),
    "a running sum": ("input x[i, j]; let y[i, j] = cumsum[j](x[i, j] where j != i) * x[i, 0];", [(3, 4)]),
    "largest, product, mean": (
        "input x[i, j]; let y[i] = max[j](x[i, j]) * prod[j](x[i, j]) + mean[j](x[i, j] where j > i);",
        [(3, 5)],
    ),
    "shared heads": (
        "input Q[h, d], K[g, d]; let s[h] = sum[d](Q[h, d] * K[h / (size(h) / size(g)), d]);",
        [(4, 3), (2, 3)],
    ),
    "a branch": ("input x[i]; let y[i] = if x[i] > 0 { log(x[i]) } else { exp(x[i]) };", [(6,)]),
    "a filter": (
        "input x[t, i]; let h[0, i] = x[0, i]; let h[t in 1..size(t), i] = tanh(h[t - 1, i]) * x[t, i];",
        [(4, 3)],
    ),
    "rows in parts": (
        "input x[i]; let h[0, i] = x[i]; let h[t in 1..4, 0] = x[0]; "
        "let h[t in 1..4, i in 1..size(i)] = h[t - 1, i] * h[t - 1, i - 1];",
        [(4,)],
    ),
    "two steps": (
        "input x[i, j]; let g[0, j] = x[0, j]; let g[i in 1..size(i), 0] = x[i, 0]; "
        "let g[i in 1..size(i), j in 1..size(j)] = g[i - 1, j] * g[i, j - 1] + x[i, j];",
        [(3, 4)],
    ),
    "all rows so far": (
        "input x[t]; let h[t in 0..size(t)] = x[t] + sum[s in 0..t](h[s] * x[s]);",
        [(5,)],
    ),
    "an LSTM": (LSTM, [(1, 3, 2), (4, 2, 2), (4, 2, 2)]),
}


@pytest.mark.parametrize("name", FLOWING)
def test_gradients_are_right(name: str) -> None:
    text, shapes = FLOWING[name]
    generator = torch.Generator().manual_seed(1)
    arrays = [torch.randn(s, dtype=torch.float64, generator=generator, requires_grad=True) for s in shapes]
    program = ix.compile(text)
    assert torch.autograd.gradcheck(lambda *given: program(*given), arrays)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FLOWING)
def test_it_is_one_graph(name: str) -> None:
    text, shapes = FLOWING[name]
    arrays = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    names: dict[str, Any] = {}
    exec(ix.compile(text).source(*arrays), names)
    torch.compiler.reset()
    found = torch.compile(names["program"], fullgraph=True, backend="eager")(*arrays)
    torch.compiler.reset()
    assert torch.equal(found, names["program"](*arrays))


# ------------------------------------------------------------------------------------------------- corners


EMPTY = [
    ("input x[i, j]; let y[i] = sum[j](x[i, j]) + prod[j](x[i, j]);", [(3, 0)]),
    ("input x[i, j]; let y[i] = max[j](x[i, j]);", [(3, 0)]),
    ("input x[i, j]; let y[i, j] = softmax[j](x[i, j]) + cumsum[i](x[i, j]);", [(0, 3)]),
    ("input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j]);", [(2, 0), (0, 3)]),
    ("input x[i]; let y[i in 0..size(i) - 1] = x[i + 1] - x[i];", [(0,)]),
    ("input x[i], w[k]; let y[i in 0..size(i) - size(k) + 1] = sum[k](x[i + k] * w[k]);", [(2,), (3,)]),
    ("input x[i, j]; let y[i, j] = x[i, (j + 1) % size(j)];", [(2, 0)]),
    ("input x[t, i]; let h[t in 0..size(t), i] = (if t > 0 { h[t - 1, i] } else { 0.0 }) + x[t, i];", [(0, 3)]),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("text", "shapes"), EMPTY)
def test_over_no_points(text: str, shapes: list[tuple[int, ...]], backend: str) -> None:
    program = ix.compile(text)
    arrays = [np.ones(shape) for shape in shapes]
    names: dict[str, Any] = {}
    exec(program.source(*arrays, backend=backend), names)
    found = names["program"](*(torch.from_numpy(array) if backend == "torch" else array for array in arrays))
    np.testing.assert_array_equal(np.asarray(found), program(*arrays, backend="reference"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tile_has_names_of_its_own(backend: str) -> None:
    program = ix.compile("""input Q[h, i, d], K[h, j, d], V[h, j, e], bias[i, j];
    let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) + bias[i, j];
    let o[h, i in 0..size(i) / 2, e] = sum[j in size(j) / 4..size(j)](softmax[j](s[h, i, j]) * V[h, j, e]);""")
    noise = np.random.default_rng(0)
    arrays = [noise.standard_normal(shape) for shape in ((2, 6, 3), (2, 8, 3), (2, 8, 2), (6, 8))]
    given = [torch.from_numpy(array).requires_grad_() for array in arrays] if backend == "torch" else arrays
    found = program(*given)
    found = found.detach() if backend == "torch" else found
    np.testing.assert_allclose(np.asarray(found), program(*arrays, backend="reference"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_half_precision_is_computed_with_more(backend: str) -> None:
    program = ix.compile("input x[i, m]; let y[i, m] = x[i, m] * rsqrt(mean[m](x[i, m] ** 2) + 1e-12);")
    x = np.full((2, 4), 300, np.float16)
    given = torch.from_numpy(x) if backend == "torch" else x
    assert np.asarray(program(given)).tolist() == np.ones((2, 4)).tolist()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("input p[i] : i64; let y[i] = p[i] + p[i];", 2**62),
        ("input p[i] : i64; let y[i] = -2 - p[i];", 2**63 - 1),
        ("input p[i] : i64; let y[i] = p[i] * p[i];", 2**32),
        ("input p[i] : i64; let y[i] = p[i] ** 3;", 2**21),
        ("input p[i] : i64; let y = sum[i](p[i]);", 2**62),
        ("input p[i] : i64; let y = prod[i](p[i]);", 2**32),
        ("input p[i] : i32; let y[i] = p[i] + 1;", 2**31 - 1),
        ("input x[i]; let y[i] = x[i] as i32;", 2**31),
    ],
)
def test_a_whole_number_never_wraps(text: str, value: int, backend: str) -> None:
    program = ix.compile(text)
    dtype = np.float64 if "input x" in text else np.int32 if "i32;" in text.split("let")[0] else np.int64
    for number, fits in ((value, False), (-3, True)):
        array = np.full(2, number, dtype)
        names: dict[str, Any] = {}
        given = torch.from_numpy(array) if backend == "torch" else array
        exec(program.source(given, backend=backend), names)
        if fits:
            np.testing.assert_array_equal(np.asarray(names["program"](given)), program(array, backend="reference"))
        else:
            with pytest.raises(names["Refused"]):
                names["program"](given)
