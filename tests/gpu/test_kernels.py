"""The kernels for PyTorch on a GPU: the same cases as on the CPU, against double precision on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

from tests.backends import hearing as cases  # noqa: E402
from tests.backends.hearing import asking, drawn, error, gradients, hearings, written_out  # noqa: E402

from indexical.backends.kernels import torch_intervals  # noqa: E402

NAMES = list(hearings(1, 1, 2, 2))
ROUGH = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
SHAPES = {
    "square": (2, 3, 900, 900, 64, 64),
    "wide values": (1, 2, 250, 1300, 20, 36),
    "one row": (2, 2, 1, 70, 32, 32),
}


def close(found: Any, wanted: Any, dtype: torch.dtype) -> bool:
    """Within the rounding of the dtype, of the largest entry where that is more than 1."""
    return error(found, wanted) < ROUGH[dtype] * max(1.0, float(wanted.detach().abs().max()))


def inputs_for(shape: str, dtype: torch.dtype) -> tuple[list[Any], list[Any]]:
    """The numbers on the GPU, and the same in double precision on the CPU."""
    batch, heads, rows, keys, width, carried = SHAPES[shape]
    given = drawn((batch, heads, rows, width), (batch, heads, keys, width), (batch, heads, keys, carried), dtype=dtype)
    return asking(given, "cuda"), asking(given, dtype=torch.float64)


@pytest.mark.parametrize("dtype", ROUGH, ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_within_intervals_as_written_out(shape: str, name: str, dtype: torch.dtype) -> None:
    given = hearings(*SHAPES[shape][:4])[name]
    inputs, exact = inputs_for(shape, dtype)
    wanted = written_out(*exact, given.allowed(), 0.15)
    found = torch_intervals.attend_within(*inputs, *given.arguments(0.15, "cuda"))
    assert found.is_cuda
    assert found.dtype == dtype
    assert close(found, wanted, dtype)
    for got, want in zip(gradients(found, inputs), gradients(wanted, exact), strict=True):
        assert close(got, want, dtype)


def sloped(arrays: Sequence[Any], batch: slice, head: slice, rows: Any, keys: Any) -> tuple[Any, Any]:
    places = (torch.arange(at.start, at.stop, device="cuda") if isinstance(at, slice) else at for at in (rows, keys))
    row, key = places
    return arrays[0][head, None, None] * (key - row[:, None]), arrays[1][rows][:, keys]


SLOPED = torch_intervals.with_tiles("sloped", sloped)


@pytest.mark.parametrize("dtype", ROUGH, ids=str)
@pytest.mark.parametrize("name", ["full", "causal", "window", "three of any", "groups"])
def test_tiles_as_written_out(name: str, dtype: torch.dtype) -> None:
    batch, heads, rows, keys, _, _ = SHAPES["square"]
    given = hearings(batch, heads, rows, keys)[name]
    inputs, exact = inputs_for("square", dtype)
    slope, mask = torch.arange(heads).double() / 512, drawn((rows, keys))[0] < 0.5
    bias = slope[:, None, None] * (torch.arange(keys) - torch.arange(rows)[:, None])
    wanted = written_out(*exact, given.allowed() & mask, 0.15, bias)
    arrays = [slope.to("cuda", torch.promote_types(dtype, torch.float32)), mask.cuda()]
    found = SLOPED(*inputs, *given.arguments(0.15, "cuda"), arrays=arrays)
    assert close(found, wanted, dtype)
    for got, want in zip(gradients(found, inputs), gradients(wanted, exact), strict=True):
        assert close(got, want, dtype)


@pytest.mark.parametrize("dtype", ROUGH, ids=str)
@pytest.mark.parametrize("name", ["full", "causal", "window", "few"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.filterwarnings("ignore:.*matrix units have no f64:indexical.SlowPath")
def test_tiles_of_any_score_as_written_out(shape: str, name: str, dtype: torch.dtype) -> None:
    given = hearings(*SHAPES[shape][:4])[name]
    inputs, exact = inputs_for(shape, dtype)
    bias = drawn(tuple(SHAPES[shape][2:4]), seed=4, dtype=dtype)
    (there,), (here,) = asking(bias, "cuda"), asking(bias, dtype=torch.float64)
    wanted = cases.weighed(cases.capped(exact[0], exact[1], here), given.allowed(), exact[2])
    bounds = given.lower[0].cuda(), given.upper[0].cuda()
    found = cases.capped_by_tiles([inputs[0], inputs[1], there], inputs[2], *bounds)
    assert close(found, wanted, dtype)
    for got, want in zip(gradients(found, [*inputs, there]), gradients(wanted, [*exact, here]), strict=True):
        assert close(got, want, dtype)


@pytest.mark.parametrize("name", ["window", "few", "padded", "groups"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_nobody_hears_changes_nothing(name: str, dtype: torch.dtype) -> None:
    given = hearings(2, 3, 900, 900)[name]
    (query, key, value), _ = inputs_for("square", dtype)
    unheard = ~given.allowed().expand(2, 3, -1, -1).any(-2)[..., None].cuda()
    bad = asking([query, key.masked_fill(unheard, float("nan")), value.masked_fill(unheard, float("inf"))], "cuda")
    found = torch_intervals.attend_within(*bad, *given.arguments(0.15, "cuda"))
    assert torch.equal(found, torch_intervals.attend_within(query, key, value, *given.arguments(0.15, "cuda")))
    assert all(bool(part.isfinite().all()) for part in gradients(found, bad))


@pytest.mark.parametrize("name", ["window", "documents", "prefix"])
def test_memory_is_linear(name: str) -> None:
    """Queries by keys would be 128 MiB of Booleans for each head."""
    size = 8 << 10
    given = hearings(1, 1, size, size)[name]
    inputs = asking(drawn(*[(1, 4, size, 64)] * 3, dtype=torch.bfloat16), "cuda")
    arguments = given.arguments(0.15, "cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = torch_intervals.attend_within(*inputs, *arguments)
    gradients(found, inputs)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 24 * found.numel() * found.itemsize + (64 << 20)


ATTEND = cases.capped_alone("capped_on_gpu")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # PyTorch's compiler warns of itself.
def test_graphs_stay_whole() -> None:
    def layer(query: Any, key: Any, value: Any) -> Any:
        row = torch.arange(query.shape[2], device=query.device)
        bounds = (row - 99)[None, None, None], (row + 1)[None, None, None]
        bias = torch.zeros(query.shape[2], query.shape[2], device=query.device, dtype=query.dtype)
        within = torch_intervals.attend_within(query, key, value, *bounds, 0.15)
        return within + ATTEND([query, key, bias], value, row - 99, row + 1)

    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for size in (300, 410):
        inputs = asking(drawn(*[(2, 2, size, 32)] * 3, dtype=torch.bfloat16), "cuda")
        same = asking(inputs, "cuda")
        found, wanted = compiled(*inputs), layer(*same)
        assert close(found, wanted.detach().cpu(), torch.bfloat16)
        for got, want in zip(gradients(found, inputs), gradients(wanted, same), strict=True):
            assert close(got, want.cpu(), torch.bfloat16)
