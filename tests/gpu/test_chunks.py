"""Causal products of two sides on a GPU, in chunks by Triton kernels: programs and the function that they call."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

from tests.backends.triton.chunking import CASES, Case, errors, reached  # noqa: E402

import indexical as ix  # noqa: E402

SIDES = "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]"
SUM = "let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);"
DOT = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
PROGRAMS = {
    "linear": f"{SIDES}; let w[b, h, i, j] = {DOT} where j <= i; {SUM}",
    "strict": f"{SIDES}; let w[b, h, i, j] = {DOT} where j < i; {SUM}",
    "later": f"{SIDES}; let w[b, h, i, j] = {DOT} where j >= i; {SUM}",
    "retention": f"{SIDES}, a[h]; let w[b, h, i, j] = {DOT} * exp(a[h] * (i - j)) where j <= i; {SUM}",
    "ssd": f"{SIDES}, c[b, h, i]; let w[b, h, i, j] = {DOT} * exp(c[b, h, i] - c[b, h, j]) where j <= i; {SUM}",
    "recurrence": """input Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e], a[h];
        let S[b, h, 0, d, e] = K[b, h, 0, d] * V[b, h, 0, e];
        let S[b, h, i in 1..size(i), d, e] = exp(a[h]) * S[b, h, i - 1, d, e] + K[b, h, i, d] * V[b, h, i, e];
        let out[b, h, i, e] = sum[d](Q[b, h, i, d] * S[b, h, i, d, e]);""",
}
WIDE = {"at 64": (64, 64), "at 128": (128, 128), "odd": (80, 50), "wide": (256, 200), "narrow": (8, 3)}


def given(name: str, rows: int, widths: tuple[int, int]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"Q": (2, 3, rows, widths[0]), "K": (2, 3, rows, widths[0]), "V": (2, 3, rows, widths[1])}
    arrays = {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}
    arrays["a"] = -torch.rand(3, generator=generator) * 0.05
    arrays["c"] = -(torch.rand(2, 3, rows, generator=generator) * 0.02).cumsum(-1)
    inputs = ix.compile(PROGRAMS[name]).inputs
    return {key: array.to("cuda", torch.bfloat16) for key, array in arrays.items() if key in inputs}


def computed(name: str, arrays: dict[str, Any], device: str, dtype: torch.dtype) -> list[Any]:
    """The result and all gradients, in double precision on the processor."""
    leaves = {key: array.detach().to(device, dtype).requires_grad_() for key, array in arrays.items()}
    out = ix.compile(PROGRAMS[name])(**leaves)
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(out.shape, generator=generator).bfloat16().to(out)
    return [x.detach() for x in (out, *torch.autograd.grad(out, list(leaves.values()), cotangent))]


def check(name: str, arrays: dict[str, Any]) -> None:
    """Results in bf16 beside those in double precision on the processor. Sums over all positions are rougher."""
    found, exact = computed(name, arrays, "cuda", torch.bfloat16), computed(name, arrays, "cpu", torch.float64)
    assert found[0].dtype == torch.bfloat16
    for a, b in zip(found, exact, strict=True):
        assert float((a.double().cpu() - b).norm() / b.norm()) < (2e-2 if a.ndim == 1 else 6e-3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_right_on_long_rows(name: str) -> None:
    arrays = given(name, 2100, (64, 48))
    program = ix.compile(PROGRAMS[name])
    assert "Triton kernels" in str(program.plan(**arrays))
    check(name, arrays)


@pytest.mark.parametrize("widths", WIDE)
def test_any_width_is_right(widths: str) -> None:
    check("retention", given("retention", 2050, WIDE[widths]))


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_those_of_the_array_library(name: str) -> None:
    case: Case = CASES[name]._replace(dtype=torch.bfloat16)
    found = errors(case, "cuda")
    assert max(found[:4]) < 6e-3
    assert max(found) < 2e-2


def test_a_nan_reaches_those_who_hear_it() -> None:
    assert reached("cuda", torch.bfloat16) == list(range(70, 150))


def test_a_graph_replays_them() -> None:
    arrays = given("retention", 2100, (64, 64))
    program = ix.compile(PROGRAMS["retention"])
    expected = program(**arrays).clone()
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        program(**arrays)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        out = program(**arrays)
    graph.replay()
    assert torch.equal(out, expected)


def test_compiled_code_calls_them() -> None:
    arrays = given("retention", 2100, (64, 64))
    program = ix.compile(PROGRAMS["retention"])
    assert torch.equal(torch.compile(program, fullgraph=True, backend="aot_eager")(**arrays), program(**arrays))
