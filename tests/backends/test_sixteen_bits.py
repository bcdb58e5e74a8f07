"""Arithmetic of arrays of 16 bits in PyTorch: computed in 32 bits and rounded once, with casts where they count."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402
from indexical.backends.old.torch_helpers import HELPERS  # noqa: E402
from indexical.ir.functions import FUNCTIONS  # noqa: E402

PROGRAM = ix.compile("""
    input x[i, d], y[i, d], g[d];
    let added[i, d]  = x[i, d] + y[i, d];
    let scaled[i, d] = x[i, d] * g[d];
    let mixed[i, d]  = x[i, d] * g[d] - y[i, d];
    let summed[i, d] = x[i, d] + y[i, d] + g[d];
    let more[i, d]   = y[i, d] + g[d] * x[i, d];
    let less[i, d]   = y[i, d] - x[i, d] * g[d];
    let chain[i, d]  = x[i, d] + y[i, d] + 3 * x[i, d];
    let tenth[i, d]  = x[i, d] / 10;
    let ratio[i, d]  = x[i, d] / (4 + y[i, d]);
    output added, scaled, mixed, summed, more, less, chain, tenth, ratio;
""")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_values_and_gradients_are_rounded_once(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    x, y, g = (torch.randn(shape, generator=draw).to(dtype).requires_grad_() for shape in ((300, 5), (300, 5), (5,)))
    wide = [array.detach().float().requires_grad_() for array in (x, y, g)]
    a, b, c = wide
    sums = a + b + c, b + c * a, b - a * c, a + b + 3 * a
    expected = a + b, a * c, a * c - b, *sums, a / 10, a / (4 + b)
    given = torch.randn((300, 5), generator=draw).to(dtype)
    for name, want in zip(PROGRAM.outputs, expected, strict=True):
        out = PROGRAM(x, y, g, outputs=name)
        assert out.dtype == dtype
        assert torch.equal(out, want.to(dtype)), name
        with torch.no_grad():
            assert torch.equal(PROGRAM(x, y, g, outputs=name), want.to(dtype)), name
        found = torch.autograd.grad(out, (x, y, g), given, allow_unused=True)
        for mine, theirs in zip(found, torch.autograd.grad(want, wide, given.float(), allow_unused=True), strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine, theirs.to(dtype)), name


def test_casts_are_left_out_where_pytorch_rounds_once() -> None:
    arrays = [torch.ones(shape, dtype=torch.bfloat16) for shape in ((3, 5), (3, 5), (5,))]
    assert "added = x + y\n" in PROGRAM.source(*arrays, outputs="added")
    assert "more = add_scaled(y, x, g)\n" in PROGRAM.source(*arrays, outputs="more")
    assert "less = add_scaled(y, x, g, -1)\n" in PROGRAM.source(*arrays, outputs="less")
    assert "add_scaled" not in PROGRAM.source(*arrays, outputs="mixed")
    assert "unknown" not in {operation.name for operation in PROGRAM.plan(*arrays).operations}
    assert "tenth = x / 10\n" in PROGRAM.source(*arrays, outputs="tenth")
    assert "scaled = rounded(torch.mul, x, g, torch.bfloat16)\n" in PROGRAM.source(*arrays, outputs="scaled")
    turned = ix.compile("input x[i, d], g[d]; let y[i, d] = x[i, d] * cos(g[d]) + x[i, d] * sin(g[d]);")
    assert "y = rounded(torch.add, " in turned.source(arrays[0], arrays[2])


def finite(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of 16 bits."""
    x = torch.arange(1 << 16).to(torch.int16).view(dtype)
    return x[x.isfinite()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sign", ["x[i] + 0.1", "0.1 - x[i]", "0.1 * x[i]", "x[i] / 0.3", "0.1 / x[i]"])
def test_numbers_keep_their_digits_beside_short_ones(sign: str, dtype: torch.dtype) -> None:
    program = ix.compile(f"input x[i]; let y[i] = {sign}; output y;")
    x = finite(dtype)
    torch.testing.assert_close(program(x), program(x.float()).to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [name for name, row in FUNCTIONS.items() if row.torch.once])
def test_functions_of_all_short_numbers_are_rounded_once(name: str, dtype: torch.dtype) -> None:
    x = finite(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()
    program = ix.compile(f"input x[i]; let y[i] = {name}(x[i]); output y;")
    assert ".to(" not in program.source(x)
    found = program(x)
    expected = program(wide).to(dtype)
    given = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    slopes = (torch.autograd.grad(out, of, given)[0].to(dtype) for out, of in ((found, x), (expected, wide)))
    for mine, theirs in ((found, expected), tuple(slopes)):
        # PyTorch has another `erf` for 16 bits: its last digits of 32 differ, and now and then what is rounded to.
        few, near = (x.numel() // 128, {"rtol": 2**-7, "atol": 1e-6}) if name == "gelu" else (0, {"rtol": 0, "atol": 0})
        assert (mine != theirs)[~theirs.isnan()].count_nonzero() <= few
        torch.testing.assert_close(mine, theirs, equal_nan=True, **near)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_helper_rounds_where_the_library_would(name: str) -> None:
    """What a GPU does by one kernel: the result goes into an array of 16 bits."""
    space: dict[str, Any] = {"torch": torch}
    exec(HELPERS["learns"] + HELPERS["rounded"].replace("not x.is_cuda or ", ""), space)
    sign, x, y = getattr(torch, name), torch.randn(40, 3), torch.randn(3).bfloat16()
    with torch.no_grad():
        assert torch.equal(space["rounded"](sign, x, y, torch.bfloat16), sign(x, y).bfloat16())
