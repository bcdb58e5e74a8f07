"""The logarithm of what weights are divided by, derivative programs and tuned tiles, on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexical as ix

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

from indexical.plan.target import TRITON  # noqa: E402

TEXT = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], slope[h];
let s[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 8 - slope[h] * (i - j);
let out[b, h, i, e] = sum[j](softmax[j](s[b, h, i, j] where GUARD) * V[b, h, j, e]);
let lse[b, h, i] = log(sum[j](exp(s[b, h, i, j]) where GUARD));
"""
GUARDS = {"causal": "j <= i", "strict": "j < i", "window": "j <= i && i - j < 50"}
MOST = {"float32": 5e-5, "float16": 1e-2, "bfloat16": 8e-2}


def drawn(dtype: Any, rows: int = 201) -> dict[str, Any]:
    torch.manual_seed(1)
    shapes = {"Q": (2, 3, rows, 64), "K": (2, 3, rows, 64), "V": (2, 3, rows, 80), "slope": (3,)}
    return {name: torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for name, shape in shapes.items()}


def results(program: ix.Program, given: dict[str, Any], **options: Any) -> list[Any]:
    out, lse = program(**given, outputs=["out", "lse"], **options)
    torch.manual_seed(2)
    flows = [torch.randn(x.shape, device="cuda", dtype=torch.float64).to(x.dtype) for x in (out, lse)]
    total = (out * flows[0]).sum() + (lse * flows[1])[lse.isfinite()].sum()
    return [out, lse, *torch.autograd.grad(total, list(given.values()))]


def doubled(given: dict[str, Any]) -> dict[str, Any]:
    return {name: array.detach().double().requires_grad_() for name, array in given.items()}


def check(found: list[Any], right: list[Any], dtype: str) -> None:
    for one, other in zip(found, right, strict=True):
        assert torch.equal(one == -torch.inf, other == -torch.inf)
        kept = other.isfinite()
        scale = max(1.0, other[kept].abs().max().item())
        assert (one.double() - other)[kept].abs().max().item() <= MOST[dtype] * scale * (3 if other.numel() < 8 else 1)


@pytest.mark.parametrize("dtype", MOST)
@pytest.mark.parametrize("guard", GUARDS)
def test_totals_have_values_and_gradients(guard: str, dtype: str) -> None:
    program = ix.compile(TEXT.replace("GUARD", GUARDS[guard]))
    given = drawn(getattr(torch, dtype))
    steps = program.plan(**given, outputs=["out", "lse"]).steps
    assert [step.kernel for step in steps if "out" in step.definitions] == [TRITON]
    right = results(program, doubled(given), isolate=True)
    for _ in range(2):  # The second is launched from a tape.
        check(results(program, given), right, dtype)


def test_derivative_programs_take_the_kernels_of_the_way_back() -> None:
    program = ix.compile(TEXT.replace("GUARD", GUARDS["window"]) + "output out;")
    derivative = ix.grad(program, "out", ["Q", "K", "V"])
    given = {name: array.detach() for name, array in drawn(torch.float16).items()}
    given["d_out"] = torch.randn(2, 3, 201, 80, device="cuda", dtype=torch.float16)
    assert any(step.kernel == f"the backward of {TRITON}" for step in derivative.plan(**given).steps)
    right = derivative(**{name: array.double() for name, array in given.items()}, isolate=True)
    check(list(derivative(**given)), list(right), "float16")


def test_tiles_are_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").mkdir(mode=0o700)
    monkeypatch.setenv("IX_CACHE", str(tmp_path / "kept"))
    program = ix.compile(TEXT.replace("GUARD", GUARDS["causal"]))
    given = drawn(torch.float16, 400)
    before = results(program, given)
    tuned = ix.tune(program, **given)
    assert [one.part for one in tuned] == ["forward", "backward to queries", "backward to keys"]
    assert all(0 < one.after <= one.before for one in tuned)
    check(results(program, given), [x.double() for x in before], "float16")


def test_few_queries_have_totals() -> None:
    """Keys that are split over the card, and merged; nobody wants a gradient."""
    program = ix.compile(TEXT.replace("GUARD", "j <= i + size(j) - size(i)"))
    given = {name: array.detach() for name, array in drawn(torch.float16, 3000).items()}
    given["Q"] = given["Q"][:, :, :2].contiguous()
    right = program(**{name: array.double() for name, array in given.items()}, isolate=True)
    check(list(program(**given)), list(right), "float16")
