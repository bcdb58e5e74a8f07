"""Fewer digits: what a module needs cast is cast, and what does not run is said of what really does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import indexical as ix
from indexical.auditor.numerics import rounded

AXES = "x=b i c, out=b i c"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(8)
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def normed(self, x: Any) -> Any:
        return self.norm(x)

    def forward(self, x: Any, mask: Any = None, tables: Any = None, at: Any = None) -> Any:
        b, n, c = x.shape
        q, k, v = (project(self.normed(x)).view(b, n, 2, 4).transpose(1, 2) for project in (self.q, self.k, self.v))
        if tables is not None:
            assert {table.dtype for table in tables} == {q.dtype}
            cos, sin = (table if at is None else table[at][:, None] for table in tables)
            q, k = (y * cos + torch.cat([-y[..., 2:], y[..., :2]], -1) * sin for y in (q, k))
        scores = q @ k.mT / 2
        if mask is not None:
            assert mask.dtype == scores.dtype
            scores = scores + mask
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class SingleNorm(Attention):
    """Its norm gives single precision for halves: those run in mixed precision alone."""

    def normed(self, x: Any) -> Any:
        return nn.functional.layer_norm(x.to(torch.promote_types(x.dtype, torch.float32)), (8,))


class Strict(Attention):
    def normed(self, x: Any) -> Any:
        if x.dtype == torch.float16 or torch.is_autocast_enabled("cpu"):
            raise TypeError("no halves")
        return self.norm(x)


def found(module: Any, axes: str = AXES, **rest: Any) -> dict[str, str]:
    report = ix.audit(module, {"x": torch.randn(2, 5, 8), **rest}, axes, ix.Contract(heads=2))
    assert report.ok, report
    return report.found


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_tables_masks_and_positions_are_cast_as_the_module_needs_them(kind: str) -> None:
    angles = torch.arange(5.0)[:, None] * torch.tensor([1.0, 0.1]).repeat(2)
    tables = (angles.cos(), angles.sin())
    assert found(Attention(), tables=tables)[kind].endswith("at most")
    assert found(Attention(), tables=tables, at=torch.arange(5)[None])[kind].endswith("at most")
    mask = torch.full((5, 5), torch.finfo(torch.float32).min).triu(1)
    assert found(Attention(), mask=mask)[kind].endswith("at most")


def test_a_norm_in_single_precision_stays_so() -> None:
    module = Attention().to(torch.bfloat16)
    module.norm.float()
    assert found(module)["bfloat16"].endswith("at most")
    assert {module.norm.weight.dtype, module.q.weight.dtype} == {torch.float32, torch.bfloat16}


def test_what_runs_in_mixed_precision_alone_is_run_so() -> None:
    told = found(SingleNorm())
    assert told["float16"].startswith("in mixed precision (autocast): ")
    assert told["float32"].endswith("at most")


def test_what_really_does_not_run_is_told() -> None:
    told = found(Strict())
    assert told["float16"].startswith("does not run: the callable raises TypeError: no halves")
    assert told["float32"].endswith("at most")


def test_the_least_of_one_kind_is_the_least_of_another() -> None:
    least = np.array([np.finfo(np.float32).min, -np.inf, 1.0, -1e9])
    assert rounded(least, "float16").tolist() == [-65504.0, -np.inf, 1.0, -65504.0]
    assert rounded(least, "bfloat16")[0] == torch.finfo(torch.bfloat16).min
