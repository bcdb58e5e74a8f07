"""Arithmetic of arrays of 16 bits in PyTorch: computed in 32 bits and rounded once, with casts where they count."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

PROGRAM = ix.compile("""
    input x[i, d], y[i, d], g[d];
    let added[i, d]  = x[i, d] + y[i, d];
    let scaled[i, d] = x[i, d] * g[d];
    let mixed[i, d]  = x[i, d] * g[d] - y[i, d];
    let summed[i, d] = x[i, d] + y[i, d] + g[d];
    let more[i, d]   = y[i, d] + g[d] * x[i, d];
    let less[i, d]   = y[i, d] - x[i, d] * g[d];
    output added, scaled, mixed, summed, more, less;
""")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_values_and_gradients_are_rounded_once(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    x, y, g = (torch.randn(shape, generator=draw).to(dtype).requires_grad_() for shape in ((300, 5), (300, 5), (5,)))
    wide = [array.detach().float().requires_grad_() for array in (x, y, g)]
    a, b, c = wide
    expected = a + b, a * c, a * c - b, a + b + c, b + c * a, b - a * c
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
    assert "scaled = (x.to(torch.float32) * g).to(torch.bfloat16)\n" in PROGRAM.source(*arrays, outputs="scaled")
    assert "more = add_scaled(y, x, g)\n" in PROGRAM.source(*arrays, outputs="more")
    assert "less = add_scaled(y, x, g, -1)\n" in PROGRAM.source(*arrays, outputs="less")
    assert "add_scaled" not in PROGRAM.source(*arrays, outputs="mixed")
