"""Reads that a coordinate shifts: windows of an array with zeros around it, forward and backward."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tests.backends.test_scatter import agrees, emitted, reals, tensors

import indexical as ix

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.sampled(6)

BACKENDS = ("numpy", "torch")

CONVOLUTIONS = {
    "plain": "input x[n], w[k]; let y[i in 0..size(n) - size(k) + 1] = sum[k](x[i + k] * w[k]);",
    "padded": "input x[n], w[k]; let y[n] = sum[k](x[n + k - 1] * w[k] where 0 <= n + k - 1 < size(n));",
    "causal": "input x[n], w[k]; let y[n] = sum[k](x[n - k] * w[k] where k <= n);",
    "dilated": "input x[n], w[k]; let y[i in 0..size(n) - 2 * size(k) + 2] = sum[k](x[i + 2 * k] * w[k]);",
    "strided": "input x[n], w[k]; let y[i in 0..(size(n) - size(k)) / 2 + 1] = sum[k](x[2 * i + k] * w[k]);",
    "strided and padded": """input x[n], w[k in 0..3];
    let y[i in 0..size(n) / 2] = sum[k](x[2 * i + k - 1] * w[k] where 0 <= 2 * i + k - 1 < size(n));""",
    "with channels": """input x[b, n, c], w[k, c, o];
    let y[b, i in 0..size(n) - size(k) + 1, o] = sum[k, c](x[b, i + k, c] * w[k, c, o]);""",
    "of an image": """input x[b, c, u, v], w[o, c, k, l];
    let y[b, o, u, v] = sum[k, l, c](x[b, c, u - k, v + l - 1] * w[o, c, k, l]
        where k <= u, 0 <= v + l - 1 < size(v));""",
    "strided, of an image": """input x[b, c, u, v], w[o, c, k in 0..3, l in 0..2];
    let y[b, o, i in 0..size(u) / 2, j in 0..size(v) / 3] =
        sum[k, l, c](x[b, c, 2 * i + k - 1, 3 * j + l] * w[o, c, k, l]
            where 0 <= 2 * i + k - 1 < size(u), 3 * j + l < size(v));""",
    "of one channel each": """input x[b, n, c], w[k, c];
    let y[b, n, c] = sum[k](x[b, n + 1 - k, c] * w[k, c] where 0 <= n + 1 - k < size(n));""",
}
SIZES = {"n": 9, "k": 3, "b": 2, "c": 3, "o": 2, "u": 6, "v": 6, "l": 2}


def both_ways(text: str, arrays: dict[str, Any], isolate: bool = False) -> tuple[str, dict[str, Any]]:
    """A convolution agrees with the reference; and what flows back through it, which is returned."""
    agrees(text, arrays, isolate)
    program = ix.compile(text)
    out = program(**arrays, backend="reference")
    arrays = {**arrays, "d_y": reals(*np.shape(out), seed=1)}
    backward = str(ix.grad(program))
    agrees(backward, arrays, isolate)
    return backward, arrays


# ------------------------------------------------------------------------------------- what is emitted


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_flow_back_without_a_mask(name: str, backend: str) -> None:
    text, arrays = both_ways(CONVOLUTIONS[name], shaped(CONVOLUTIONS[name], SIZES))
    found = emitted(text, arrays, backend)
    assert "where(" not in found
    assert "pick(" not in found
    assert "arange" not in found
    assert "windows(" in found or "convolved(" in found


def shaped(text: str, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Reals for `x` and `w`, by the coordinates that they are declared with."""
    arrays = {}
    for tensor in ix.compile(text).ir.inputs:
        stated = {"strided and padded": {"k": 3}, "strided, of an image": {"k": 3, "l": 2}}
        own = next((stated[name] for name, other in CONVOLUTIONS.items() if other == text and name in stated), {})
        arrays[tensor.name] = reals(*({**sizes, **own}[axis.coordinate] for axis in tensor.axes), seed=seed)
    return arrays


def test_what_is_summed_is_counted_from_its_end() -> None:
    text, arrays = both_ways(CONVOLUTIONS["plain"], shaped(CONVOLUTIONS["plain"], SIZES))
    found = emitted(text, arrays)
    assert "windows(padded(d_y, {0: (-n_k + 1, n_n)}), 0, n_k, n_n, 1).T @ w.flip(0)" in found


def test_what_survives_is_turned_around_in_the_end() -> None:
    text, arrays = both_ways(CONVOLUTIONS["causal"], shaped(CONVOLUTIONS["causal"], SIZES))
    assert emitted(text, arrays).count("@ d_y).flip(0)") == 1
    assert emitted(text, arrays, "numpy").count("@ d_y)[::-1]") == 1


def test_remainders_are_computed_apart() -> None:
    text, arrays = both_ways(CONVOLUTIONS["strided"], shaped(CONVOLUTIONS["strided"], SIZES))
    assert "% 2" not in emitted(text, arrays)
    assert ".reshape((n_k + 1) // 2, 2).flip(0)" in emitted(text, arrays)


@pytest.mark.parametrize(("number", "name"), list(enumerate(CONVOLUTIONS)))
def test_small_sizes_agree(name: str, number: int) -> None:
    text, isolate = CONVOLUTIONS[name], number % 3 == 0
    for n, k in ((4, 1), (3, 3), (1, 1)):
        both_ways(text, shaped(text, {**SIZES, "n": n, "u": n, "v": n, "k": k, "l": k}, seed=n), isolate)


@pytest.mark.parametrize("name", ["padded", "causal", "of one channel each", "of an image"])
def test_no_points_agree(name: str) -> None:
    text = CONVOLUTIONS[name]
    for n, k, b in ((0, 2, 2), (3, 0, 2), (0, 0, 1), (3, 2, 0), (1, 4, 1)):
        both_ways(text, shaped(text, {**SIZES, "n": n, "u": n, "v": n, "k": k, "l": k, "b": b}))


# ------------------------------------------------------------------------------------------ other reads

READS = [
    "input x[n]; let y[n, m in 0..size(n)] = x[n - m] where m <= n;",
    "input x[n]; let y[n, m in 0..size(n)] = x[size(n) - 1 - n - m] where n + m < size(n);",
    "input x[n]; let y[i in 0..3, j in 0..2] = x[2 * i + 3 * j] where 2 * i + 3 * j < size(n);",
    "input x[n]; let y[i in 0..3, j in 0..2] = x[7 - 2 * i - 3 * j] where 0 <= 7 - 2 * i - 3 * j < size(n);",
    "input x[n]; let y[i in 0..3, j in 0..2] = x[5 - 2 * i + j] where 0 <= 5 - 2 * i + j < size(n);",
    "input x[n]; let y[i in 0..3] = x[6 - 3 * i] where 0 <= 6 - 3 * i < size(n);",
    "input x[n]; let y[i in 0..4] = sum[n](x[n] * x[n - i] where i <= n);",
    "input x[n]; let y[i in 0..4] = max[n](x[n - i] where i <= n, i < 1);",
    "input x[n]; let y[n] = sum[m in 0..=n](x[n - m] * x[m]);",
    "input x[n]; let y[n] = sum[m in 0..size(n), l in 0..size(n)](x[m] * x[l] * x[n - m] where m <= n, l <= m);",
    "input x[n]; let y[n] = mean[k in 0..3](x[n - k + 1] * x[n] where 0 <= n - k + 1 < size(n));",
    "input x[n]; let y[n] = sum[k in 0..3](x[n - k] * x[n + k] where k <= n, n + k < size(n));",
    "input x[n]; let y[n] = sum[k in 0..3](x[n - k] / x[n] where k <= n, (n - k) % 2 == 0);",
    "input x[n]; let y[n] = sum[k in 0..3](x[(n + k) / 2] where (n + k) % 2 == 0, n + k < size(n));",
    "input x[n]; let y[n] = sum[k in 0..4](x[k] * x[k] where (n - k) % 2 == 0, k < size(n));",
    "input x[n]; let y[n] = sum[k in 1..4](x[(n - k) / 2] where (n - k) % 2 == 0, k <= n);",
    "input x[n]; let y[n] = sum[k in 0..4](x[(k - n + 2) / 2] * x[n] where (k - n + 2) % 2 == 0, k + 2 >= n);",
    "input x[n]; let y[n] = sum[k in 0..4](x[(n - k) / 2] where (n - k) % 2 == 0, k <= n) where n % 3 == 0;",
    "input x[n]; let y[n] = sum[k in 0..4](x[(n - k - 3) / 2] where (n - k - 3) % 2 == 0, k + 3 <= n, n > 2);",
    """input x[n], w[k];
    let y[n] = sum[k](x[(n - k + size(k)) / 3 - 1] * w[k] where (n - k + size(k)) % 3 == 0, n - k + size(k) >= 3,
        (n - k + size(k)) / 3 <= size(n));""",
]


@pytest.mark.parametrize("text", READS)
def test_shifted_reads_agree(text: str) -> None:
    for n in (9, 8, 4, 1, 0):
        agrees(text, {"x": reals(n), "w": reals(3)} if "w[" in text else {"x": reals(n)}, isolate=n == 4)


def drawn(seed: int) -> tuple[str, dict[str, Any]]:
    """A convolution in one or two coordinates, drawn at random: its steps, offsets, signs, channels and sizes."""
    draw = random.Random(seed)
    axes = draw.choice((1, 1, 2))
    batch = draw.choice(([], ["b"]))
    mixed = draw.random() < 0.5
    inner, outer = (["c"], ["o"]) if mixed else ([], [])
    reads, outs, kernel, conditions = [], [], [], []
    shapes = {"b": 2, "c": 2, "o": 2}
    for a in range(axes):
        stride, dilation, offset = draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, -1, -2)), draw.randint(-2, 3)
        shapes[f"n{a}"], shapes[f"k{a}"] = draw.randint(0, 7), draw.randint(0, 4)
        sign = "+" if dilation > 0 else "-"
        index = f"{stride} * i{a} {sign} {abs(dilation)} * k{a} + {offset}".replace("1 * ", "").replace("+ -", "- ")
        reads.append(index)
        outs.append(f"i{a} in 0..{draw.randint(0, 6)}")
        kernel.append(f"k{a}")
        conditions.append(f"0 <= {index} < size(n{a})")
    if draw.random() < 0.3:
        conditions.append("i0 != k0")
    draw.shuffle(conditions)
    home, weights = [*batch, *inner, *(f"n{a}" for a in range(axes))], [*outer, *inner, *kernel]
    bound = [*kernel, *inner]
    draw.shuffle(weights)
    draw.shuffle(bound)
    text = f"""input x[{", ".join(home)}], w[{", ".join(weights)}];
    let y[{", ".join([*batch, *outer, *outs])}] = sum[{", ".join(bound)}](x[{", ".join([*batch, *inner, *reads])}]
        * w[{", ".join(weights)}] where {", ".join(conditions)});"""
    return text, {
        "x": reals(*(shapes[c] for c in home), seed=seed),
        "w": reals(*(shapes[c] for c in weights), seed=seed + 1),
    }


@pytest.mark.parametrize("start", range(0, 24, 6))
def test_drawn_convolutions_agree_both_ways(start: int) -> None:
    for seed in range(start, start + 6):
        both_ways(*drawn(seed), isolate=seed % 4 == 0)


# ------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_flow_through_what_flows_back(name: str) -> None:
    text, arrays = both_ways(CONVOLUTIONS[name], shaped(CONVOLUTIONS[name], {**SIZES, "n": 6, "b": 1, "u": 4, "v": 4}))
    backward = ix.compile(text)
    values = [tensor.requires_grad_() for tensor in tensors(arrays, "torch").values()]
    function = lambda *given: tuple(backward(**dict(zip(arrays, given, strict=True))))  # noqa: E731
    assert torch.autograd.gradcheck(function, values)


def test_an_image_flows_back_as_pytorch_has_it() -> None:
    text = """input x[b, c, u, v], w[o, c, k in 0..3, l in 0..3];
    let y[b, o, i in 0..size(u) / 2, j in 0..size(v) / 2] = sum[k, l, c](
        x[b, c, 2 * i + k - 1, 2 * j + l - 1] * w[o, c, k, l]
        where 0 <= 2 * i + k - 1 < size(u), 0 <= 2 * j + l - 1 < size(v));"""
    x, w = torch.from_numpy(reals(2, 3, 8, 6)).requires_grad_(), torch.from_numpy(reals(4, 3, 3, 3)).requires_grad_()
    out = torch.nn.functional.conv2d(x, w, stride=2, padding=1)
    arriving = torch.from_numpy(reals(*out.shape, seed=2))
    wanted = torch.autograd.grad(out, (x, w), arriving)
    for found, expected in zip(ix.grad(text)(x, w, arriving), wanted, strict=True):
        torch.testing.assert_close(found, expected)


def test_patches_flow_back_by_quotients_and_remainders() -> None:
    text = """input x[b, c, u, v], w[o, c, k in 0..4, l in 0..4];
    let y[b, o, i in 0..size(u) / 4, j in 0..size(v) / 4] =
        sum[c, k, l](x[b, c, 4 * i + k, 4 * j + l] * w[o, c, k, l]);"""
    for u, v in ((8, 8), (9, 7), (3, 4)):
        back, arrays = both_ways(text, {"x": reals(2, 3, u, v), "w": reals(2, 3, 4, 4)})
        assert "pick(" not in emitted(back, arrays)


# ----------------------------------------------------------------------------------------- convolutions


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_convolutions_keep_their_dtype(dtype: str) -> None:
    program = ix.compile(CONVOLUTIONS["of an image"])
    x, w = (torch.from_numpy(array) for array in shaped(CONVOLUTIONS["of an image"], SIZES).values())
    found = program(x.to(getattr(torch, dtype)), w.to(getattr(torch, dtype)))
    assert found.dtype == getattr(torch, dtype)
    close = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 1e-1}[dtype]
    torch.testing.assert_close(found.double(), program(x, w), rtol=close, atol=close)


def test_products_of_windows_are_what_convolutions_are() -> None:
    """What is done on a GPU, and in narrow dtypes: here, with the same numbers on both ways."""
    program = ix.compile(CONVOLUTIONS["strided, of an image"])
    x, w = (torch.randint(-3, 4, shape) for shape in ((2, 3, 6, 6), (2, 3, 3, 2)))
    narrow = program(x.bfloat16(), w.bfloat16())
    torch.testing.assert_close(narrow.double(), program(x.double(), w.double()))


def test_convolutions_have_second_derivatives_and_vmap() -> None:
    text = CONVOLUTIONS["with channels"]
    program = ix.compile(text)
    x, w = (torch.from_numpy(array).requires_grad_() for array in shaped(text, {**SIZES, "n": 5}).values())
    assert torch.autograd.gradgradcheck(program, (x, w))
    kernels = torch.stack([w.detach(), 2 * w.detach()])
    found = torch.func.vmap(lambda kernel: program(x.detach(), kernel))(kernels)
    torch.testing.assert_close(found[1], 2 * program(x, w).detach())


# --------------------------------------------------------------------------------------------- plans


def test_the_plan_says_what_is_padded() -> None:
    text, arrays = both_ways(CONVOLUTIONS["plain"], shaped(CONVOLUTIONS["plain"], SIZES))
    shown = str(ix.compile(text).plan(**arrays))
    assert "  by arrays: pad, contract" in shown


def test_the_plan_says_why_not() -> None:
    text = "input x[n], w[k]; let y[n] = sum[k](x[(n + k) / 2] * w[k] where n + k < size(n));"
    shown = str(ix.compile(text).plan(x=reals(5), w=reals(3)))
    assert "not by windows: `(n + k) / 2` is no sum of multiples of two coordinates: it is gathered" in shown
