"""Programs on a GPU: every kernel, forward and backward, beside the same relation written out in double precision."""

from __future__ import annotations

from typing import Any

import pytest

import indexical as ix

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

DOT = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
ROWS = 33


def attention(guard: str = "", score: str = DOT, more: str = "") -> str:
    where = f" where {guard}" if guard else ""
    return (
        f"input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{more};"
        f"let weights[b, h, i, j] = softmax[j]({score}){where};"
        "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);"
    )


PROGRAMS = {
    "full": attention(),
    "causal": attention("j <= i"),
    "window": attention("j <= i, i - j < 5"),
    "prefix": attention("j <= i || j < 4"),
    "documents": attention("j <= i, doc[b, i] == doc[b, j]", more=", doc[b, i] : i64"),
    "alibi": attention("j <= i", f"{DOT} + slope[h] * (j - i)", ", slope[h]"),
    "soft cap": attention("j <= i", f"50 * tanh({DOT} / 50)"),
    "mask": attention("mask[i, j]", more=", mask[i, j] : bool"),
    "padded": attention("j < n[b]", more=", n[b] : i64"),
}


def arrays(name: str, dtype: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    more = {
        "documents": {"doc": torch.arange(ROWS).repeat(2, 1) // 7},
        "alibi": {"slope": torch.rand(4, dtype=dtype)},
        "mask": {"mask": torch.rand(ROWS, ROWS) > 0.5},
        "padded": {"n": torch.tensor([7, 0])},
    }
    found = {letter: torch.randn(2, 4, ROWS, 16, dtype=dtype, requires_grad=True) for letter in "QKV"}
    return {
        key: array.detach().cuda().requires_grad_(key in "QKV")
        for key, array in {**found, **more.get(name, {})}.items()
    }


def results(program: ix.Program, given: dict[str, Any], weight: Any, **options: Any) -> list[Any]:
    out = program(**given, **options)
    return [out, *torch.autograd.grad((out * weight.to(out.dtype)).sum(), [given[letter] for letter in "QKV"])]


@pytest.mark.parametrize(("dtype", "most"), [("float64", 1e-10), ("float32", 2e-3), ("bfloat16", 0.2)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernel_computes_the_relation(name: str, dtype: str, most: float) -> None:
    program = ix.compile(PROGRAMS[name])
    given = arrays(name, getattr(torch, dtype))
    weight = torch.randn(2, 4, ROWS, 16, device="cuda")
    exact = {
        k: v.detach().double().requires_grad_(k in "QKV") if v.is_floating_point() else v for k, v in given.items()
    }
    right = results(program, exact, weight, isolate=True)
    for found, expected in zip(results(program, given, weight), right, strict=True):
        assert found.device.type == "cuda"
        assert (found.double() - expected).abs().max().item() <= most


def test_command_runs_on_the_device(tmp_path: Any, capsys: Any) -> None:
    from indexical.cli import main

    file = tmp_path / "attention.ix"
    file.write_text(PROGRAMS["causal"])
    assert main(["run", str(file), "--random", "i=5", "--backend", "torch", "--device", "cuda"]) == 0
    assert "out[b, h, i, e]" in capsys.readouterr().out
