"""FlexAttention is read by its definition; what no result needs may be anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import indexical as ix

flex = pytest.importorskip("torch.nn.attention.flex_attention")


def drawn(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def sloped(q: Any, k: Any, v: Any, slopes: Any) -> Any:
    def score(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return torch.where(i >= j, score - slopes[h] * (i - j), -torch.inf)

    return flex.flex_attention(q, k, v, score_mod=score)


def documents(q: Any, k: Any, v: Any, ids: Any) -> Any:
    def keep(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (ids[b, i] == ids[b, j]) & (i - j < 3)

    mask = flex.create_block_mask(keep, q.shape[0], None, q.shape[-2], k.shape[-2], device="cpu")
    return flex.flex_attention(q, k, v, block_mask=mask)


def test_functions_of_scores_and_masks_become_formulas_and_guards() -> None:
    q, k, v = (drawn(2, 3, 5, 4) for _ in range(3))
    text = str(ix.read(sloped, q, k, v, drawn(3)))
    assert "- slopes[h] * (i - j)" in text
    assert "where j <= i" in text
    ids = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 1]])
    text = str(ix.read(documents, q, k, v, ids))
    assert "ids[b, i] == ids[b, j]" in text
    assert "i - j < 3" in text


def test_the_library_is_left_as_it_was() -> None:
    kept = flex.flex_attention_hop, flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    ix.read(sloped, drawn(1, 2, 3, 4), drawn(1, 2, 3, 4), drawn(1, 2, 3, 4), drawn(2))
    assert kept == (flex.flex_attention_hop, flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG)


def test_a_function_of_single_numbers_is_mapped_over_all_of_them() -> None:
    from indexical.lift.flex import _everywhere

    def diagonal(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + torch.stack([i, j]).max() + h

    places = [
        torch.arange(size).view([-1 if axis == at else 1 for axis in range(4)]) for at, size in enumerate((2, 3, 4, 5))
    ]
    found = _everywhere(diagonal, torch.zeros(2, 3, 4, 5), *places)
    expected = torch.maximum(torch.arange(4)[:, None], torch.arange(5)) + torch.arange(3)[:, None, None]
    assert torch.equal(found, expected.expand(2, 3, 4, 5).float())
