"""What the checker finds in a callable, at places in the file of the callable."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import indexical as ix
from indexical.cli import main

torch = pytest.importorskip("torch")

from indexical.lift import findings  # noqa: E402

AXES = {"q": "b h i d", "k": "b h j d", "v": "b h j e"}


def scored(q: Any, k: Any) -> Any:
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def over_queries(q: Any, k: Any, v: Any) -> Any:
    weights = torch.softmax(scored(q, k), dim=-2)  # IX402
    return weights @ v


def masked_late(q: Any, k: Any, v: Any) -> Any:
    weights = scored(q, k).softmax(-1)
    future = torch.ones(weights.shape[-2:]).triu(1).bool()  # IX405
    return weights.masked_fill(future, 0.0) @ v


def at_the_query(q: Any, k: Any, v: Any) -> Any:
    weights = scored(q, k).softmax(-1)
    return torch.einsum("bhij,bhie->bhie", weights, v)  # IX403


def wrong_scale(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT / math.sqrt(q.shape[-2])  # IX408
    return scores.softmax(-1) @ v


def late_by_one(q: Any, k: Any, v: Any) -> Any:
    scores = scored(q, k)
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(2).bool(), -1e9)  # IX423
    return scores.softmax(-1) @ v


def viewed(q: Any, k: Any, v: Any) -> Any:
    b, t, c = q.shape[0], q.shape[2], q.shape[3] * 3
    rows = q.transpose(1, 2).reshape(b, t, c)
    q = rows.view(b, 3, t, c // 3)  # IX604
    return scored(q, k).softmax(-1) @ v


def causal(q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def scaled_on_both_sides(q: Any, k: Any, v: Any) -> Any:
    root = q.shape[-1] ** -0.25
    return ((q * root) @ (k * root).mT).softmax(-1) @ v


def example() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(2, 3, 6, 8, generator=generator) for name in "qkv"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", [over_queries, masked_late, at_the_query, wrong_scale, late_by_one, viewed])
def test_a_broken_callable_is_found_at_its_line(function: Any) -> None:
    found = findings(function, example(), AXES, {"causal": function is late_by_one})
    told = [finding for finding in found if finding.severity != "note"]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert len(told) == 1
    assert told[0].labels[0].span.source.name.endswith("test_proving.py")
    assert lines[told[0].labels[0].span.line - 1].endswith(f"# {told[0].code}")


@pytest.mark.parametrize("function", [causal, scaled_on_both_sides])
def test_a_right_callable_has_no_finding(function: Any) -> None:
    assert findings(function, example(), AXES, {"causal": function is causal}) == []


class Grouped(torch.nn.Module):
    """Heads that share keys through projections: what is repeated is no axis of the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(12, width) for width in (12, 4, 4))

    def forward(self, x: Any) -> Any:
        q, k, v = (part(x).unflatten(-1, (-1, 2)).transpose(1, 2) for part in (self.query, self.key, self.value))
        k, v = k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_heads_that_share_keys_are_groups() -> None:
    given = {"x": torch.randn(2, 5, 12)}
    program = ix.read(Grouped(), given["x"])
    assert "K[b, g, j, d] " in str(program)
    assert "V[b, h / 3, j, e]" in str(program)
    assert not findings(Grouped(), given, {"x": "b i c"})


def test_the_command_prints_the_relation_and_the_findings(tmp_path: Path, capsys: Any) -> None:
    import numpy as np

    file = tmp_path / "model.py"
    file.write_text("def attention(q, k, v):\n    return (q @ k.mT).softmax(-2) @ v\n")
    arrays = tmp_path / "inputs.npz"
    np.savez(arrays, **{name: np.random.default_rng(0).normal(size=(5, 4)) for name in "qkv"})
    assert main(["read", f"{file}:attention", "--example", str(arrays)]) == 0
    printed = capsys.readouterr()
    assert "softmax[i](scores[i, j])" in printed.out
    assert "IX402" in printed.out + printed.err
    assert "model.py:2" in printed.out + printed.err
    assert main(["read", f"{file}:missing", "--example", str(arrays)]) == 2
    for text, words in (("def (:\n", "cannot be imported"), ("def attention(q, k, v):\n    pass\n", "no array")):
        file.write_text(text)
        assert main(["read", f"{file}:attention", "--example", str(arrays)]) != 0
        assert words in capsys.readouterr().err


def test_an_error_of_reading_is_an_error_of_ours() -> None:
    with pytest.raises(ix.Error, match="IX601"):
        findings(causal, {"q": torch.ones(2, 3)})
