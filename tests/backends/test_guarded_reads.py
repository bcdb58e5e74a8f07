"""Reads that are in range only under a guard: values, and gradients by autograd, `ix.grad` and `ix.jvp`."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

pytestmark = pytest.mark.sampled(8)

QK = "sum[d](Q[{h}i, d] * K[{h}j, d])"
QR = "sum[d](Q[{h}i, d] * R[{h}i - j, d])"
KR = "sum[d](K[{h}j, d] * R[{h}i - j, d])"
SCORES = (
    f"{QK} + {QR}",
    f"({QK} + {QR}) / sqrt(size(d))",
    f"tanh({QK} + b[{{h}}i - j])",
    f"{QK} * b[{{h}}i - j]",
    f"{QK} + b[{{h}}i - j]",
    KR,
    f"{QK} + {KR}",
    "sum[d]((Q[{h}i, d] + u[d]) * (K[{h}j, d] + R[{h}i - j, d]))",
    f"max({QK}, b[{{h}}i - j])",
    f"if i - j < 2 {{{{ {QK} }}}} else {{{{ b[{{h}}i - j] }}}}",
)
GUARDS = ("j <= i", "i - 4 < j <= i", "j < i", "j <= i && j % 2 == 0")
SIZES = {"h": 2, "d": 3, "e": 4, "p3": 3, "p5": 5, "b": 2, "g": 1}


def attention(score: str, guard: str, value: str = "V[{h}j, e]", heads: bool = False, more: str = "") -> str:
    tables = {"R[": "R[{h}i1, d]", "b[": "b[{h}i1]", "u[": "u[d]"}
    inputs = ["Q[{h}i, d]", "K[{h}j, d]", "V[{h}j, e]", *(slot for read, slot in tables.items() if read in score)]
    text = f"""
        input {", ".join([*inputs, *more.split()])};
        let w[{{h}}i, j] = softmax[j]({score}) where {guard};
        let out[{{h}}i, e] = sum[j](w[{{h}}i, j] * {value});
    """
    return text.format(h="h, " if heads else "")


# One program for each way a read can leave its axis: in a query, a key, a value, a bias, a plain sum, a recurrence.
OTHERS = {
    "a value that is shifted": attention(QK, "j < i", "N[j + 1, e]", more="N[i1,e]"),
    "a value that is shifted, guarded in the gather": """
        input Q[i, d], K[j, d], V[i1, e];
        let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])) where j <= i;
        let out[i, e] = sum[j](w[i, j] * V[j + 1, e] where j < i);""",
    "a key that is shifted": attention("sum[d](Q[i, d] * N[j + 1, d])", "j < i", more="N[i1,d]"),
    "a query that is shifted": attention("sum[d](Q[i - 1, d] * K[j, d])", "j < i"),
    "rows that a guard removes": """
        input Q[i, d], K[j, d], V[j, e];
        let out[i, e] = sum[j](softmax[j](sum[d](Q[i - 2, d] * K[j, d]) where j <= i) * V[j, e]) where i >= 2;""",
    "rows of weights that a guard removes": """
        input Q[i, d], K[j, d], V[j, e];
        let w[i, j] = softmax[j](sum[d](Q[i - 2, d] * K[j, d]) where j <= i) where i >= 2;
        let out[i, e] = sum[j](w[i, j] * V[j, e]);""",
    "relative values": attention(QK, "j <= i", "N[i - j, e]", more="N[i1,e]"),
    "values and relative values": attention(QK, "j <= i", "(V[j, e] + N[i - j, e])", more="N[i1,e]"),
    "a gate by distance": attention(QK, "j <= i", "V[j, e] / (1 + exp(g[i - j]))", more="g[i1]"),
    "a clipped bias": attention(f"{QK} + t[min(i - j, 2)]", "j <= i", more="t[p3]"),
    "a clipped embedding": attention(f"{QK} + sum[d](Q[i, d] * T[clamp(i - j, 0, 2), d])", "j <= i", more="T[p3,d]"),
    "strided keys": attention("sum[d](Q[i, d] * K[2 * j, d])", "2 * j <= i"),
    "strided values": attention(QK, "2 * j <= i", "V[2 * j, e]"),
    "the future": attention(f"{QK} + t[j - i]", "j >= i", more="t[i1]"),
    "a softmax by hand": """
        input Q[i, d], K[j, d], V[j, e], b[i1];
        let x[i, j] = exp(sum[d](Q[i, d] * K[j, d]) + b[i - j]) where j <= i;
        let out[i, e] = sum[j](x[i, j] * V[j, e]) / sum[j](x[i, j]);""",
    "no normaliser": """
        input Q[i, d], K[j, d], V[j, e], b[i1];
        let s[i, j] = sum[d](Q[i, d] * K[j, d]) * b[i - j] where j <= i;
        let out[i, e] = sum[j](s[i, j] * V[j, e]);""",
    "a guard with a name": """
        input Q[i, d], K[j, d], V[j, e], b[i1];
        let heard[i, j] = j <= i;
        let s[i, j] = sum[d](Q[i, d] * K[j, d]) + b[i - j] where heard[i, j];
        let w[i, j] = softmax[j](s[i, j]) where heard[i, j];
        let out[i, e] = sum[j](w[i, j] * V[j, e]);""",
    "a bias that is shorter than the keys": """
        input x[i], b[p3], V[j, e];
        let w[i, j] = softmax[j](if i == j { 0.5 * x[i] } else { b[j - 1 + 1] }) where j < size(p3);
        let out[i, e] = sum[j](w[i, j] * V[j, e]);""",
    "heads that share keys": """
        input Q[b, h, i, d], K[b, g, j, d], V[b, g, i1, e], t[h, i1];
        let w[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h / 2, j, d]) + t[h, i - j]) where j < i;
        let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h / 2, j + 1, e]);""",
    "a convolution": "input x[i, d], k[j, d]; let out[i, d] = sum[j](x[i - j, d] * k[j, d] where j <= i);",
    "a recurrence": """
        input x[i], a[i];
        let y[t in 0..size(i)] = x[t - 2] where t >= 2;
        let r[0] = x[0];
        let r[t in 1..size(i)] = a[t] * r[t - 1] + y[t];
        let out[t] = r[t] * r[t];""",
    "two layers": """
        input Q[i, d], K[j, d], V[j, d], b[i1];
        let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) + b[i - j]) where j <= i;
        let y[i, d] = sum[j](w[i, j] * V[j, d]);
        let z[i, j] = softmax[j](sum[d](y[i, d] * y[j, d]) + b[i - j]) where j <= i;
        let out[i, d] = sum[j](z[i, j] * y[j, d]);""",
}
DRAWN = [
    *(
        (f"{score} where {guard}{', heads' if heads else ''}", attention(score, guard, heads=heads))
        for n, (score, guard, heads) in enumerate(product(SCORES, GUARDS, (False, True)))
        if n % 3 == 0 or guard == GUARDS[0]
    ),
    *OTHERS.items(),
]


def drawn(program: ix.Program, points: int) -> list[Any]:
    generator = torch.Generator().manual_seed(points)
    sizes = {**SIZES, "i": points, "j": points, "i1": points}
    shapes = [[sizes[axis.coordinate] for axis in tensor.axes] for tensor in program.ir.inputs]
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


def with_gradients(program: ix.Program, arrays: list[Any], **options: Any) -> tuple[Any, list[Any]]:
    """The output, and the gradients of all arrays for one cotangent."""
    leaves = [array.clone().requires_grad_() for array in arrays]
    out = program(*leaves, **options)
    assert out.requires_grad
    arriving = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    found = torch.autograd.grad(out, leaves, arriving, allow_unused=True)
    return out.detach(), [torch.zeros_like(a) if g is None else g for a, g in zip(arrays, found, strict=True)]


@pytest.mark.parametrize(("name", "text"), DRAWN, ids=[name for name, _ in DRAWN])
def test_all_gradients_agree(name: str, text: str) -> None:
    program = ix.compile(text)
    backward, forward = ix.grad(program), ix.jvp(program)
    for points in (1, 2, 5):
        arrays = drawn(program, points)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ix.SlowPath)
            out, found = with_gradients(program, arrays)
            plain, expected = with_gradients(program, arrays, isolate=True)
            arriving = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
            derived = backward(*arrays, arriving)
            tangents = [torch.randn_like(array) for array in arrays]
            pushed = forward(*arrays, *tangents)
        reference = program(*(array.numpy() for array in arrays), backend="reference")
        for value in (out, plain, program(*(array.numpy() for array in arrays))):
            np.testing.assert_allclose(value, reference, rtol=1e-9, atol=1e-9)
        for mine, other, right in zip(found, derived, expected, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)
            torch.testing.assert_close(other, right, rtol=1e-8, atol=1e-9)
        flowing = sum((t * g).sum() for t, g in zip(tangents, expected, strict=True))
        torch.testing.assert_close((pushed * arriving).sum(), flowing, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["a value that is shifted", "a key that is shifted", "a query that is shifted"])
def test_the_check_of_a_shifted_operand_is_linear(name: str) -> None:
    program = ix.compile(OTHERS[name])
    source = program.source(*drawn(program, 4))
    body = source[source.index("    else:", source.index("def program")) :]
    assert "[:, None] " not in body, "nothing as large as queries × keys is built to check a bound"


def test_an_index_that_is_heard_out_of_bounds_is_refused() -> None:
    program = ix.compile(OTHERS["a value that is shifted"])
    arrays = drawn(program, 5)
    arrays[-1] = arrays[-1][:4]
    with pytest.raises(ix.Error, match="index 4 is out of bounds for axis 0 of `N`"):
        program(*arrays)


# ------------------------------------------------------------------- lengths that need not agree

UNEQUAL = [
    ("input x[k], w[l]; let y[l] = {};", {"k": 7, "l": 4}, body)
    for body in ("w[l] / x[l + 0]", "max(x[l + 0], w[l])", "tanh(x[l + 0] + w[l]) * exp(x[l + 0] + w[l])")
]
UNEQUAL += [
    ("input x[k], w[l]; let z[l] = exp({}); let y[l] = z[l] * x[l + 0];", {"k": 7, "l": 4}, "x[2 * l - l] * w[l]"),
    ("input x[a, b], w[c]; let y = sum[u in 0..3]({});", {"a": 4, "b": 5, "c": 6}, "exp(x[u, u] * w[u])"),
    ("input x[a, b], w[c]; let y = prod[u in 0..3]({});", {"a": 3, "b": 3, "c": 4}, "exp(x[u, u] * w[u])"),
    ("input x[a, b], w[c]; let y[c] = sum[u in 0..3](w[c] * {});", {"a": 3, "b": 4, "c": 5}, "tanh(x[u, u] * w[u])"),
]


@pytest.mark.parametrize(("text", "sizes", "body"), UNEQUAL)
def test_a_derivative_asks_for_no_sizes_to_agree_that_need_not(text: str, sizes: dict[str, int], body: str) -> None:
    program = ix.compile(text.format(body))
    arrays = [
        torch.rand([sizes[axis.coordinate] for axis in tensor.axes], dtype=torch.float64) + 0.5
        for tensor in program.ir.inputs
    ]
    leaves = [array.clone().requires_grad_() for array in arrays]
    out = program(*leaves)
    right = torch.autograd.grad(out.sum(), leaves)
    backward = ix.grad(program)
    seeds = [torch.ones_like(out)] if out.ndim else []
    for found, expected in zip(backward(*arrays, *seeds), right, strict=True):
        torch.testing.assert_close(found, expected)


def test_axes_that_agree_in_the_program_need_no_range_in_its_derivative() -> None:
    backward = ix.grad("input x[k], w[l]; let y[l] = exp(x[l] * w[l]);")
    assert "let d_x[k] " in str(backward)


ONE_WAY = ("max[k in 0..3](Q[i, k] * K[j, k])", f"{QK.format(h='')} + min[k](b[k] where k <= i - j)")


@pytest.mark.parametrize("score", ONE_WAY)
def test_a_score_without_a_way_back_runs_plainly_where_a_gradient_is_wanted(score: str) -> None:
    inputs = "Q[i, d], K[j, d], V[j, e]" + (", b[k]" if "b[" in score else "")
    program = ix.compile(f"""
        input {inputs};
        let w[i, j] = softmax[j]({score}) where j <= i;
        let out[i, e] = sum[j](w[i, j] * V[j, e]);""")
    arrays = [torch.randn([{"e": 2, "d": 3}.get(a.coordinate, 4) for a in t.axes]) for t in program.ir.inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ix.SlowPath)
        value = program(*arrays)
        _, right = with_gradients(program, arrays, isolate=True)
    for _ in range(2):
        with pytest.warns(ix.SlowPath, match="inside a score has no way back"):
            out, found = with_gradients(program, arrays)
        torch.testing.assert_close(out, value)
        torch.testing.assert_close(found, right)


def test_what_is_reduced_for_each_key_has_a_way_back() -> None:
    """It is an array of its own, which the kernel reads."""
    program = ix.compile("""
        input Q[i, d], K[j, d], V[j, e], b[k];
        let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) + min[k](b[k] where k <= j)) where j <= i;
        let out[i, e] = sum[j](w[i, j] * V[j, e]);""")
    arrays = [torch.randn([{"e": 2, "d": 3}.get(a.coordinate, 4) for a in t.axes]) for t in program.ir.inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ix.SlowPath)
        torch.testing.assert_close(with_gradients(program, arrays), with_gradients(program, arrays, isolate=True))
