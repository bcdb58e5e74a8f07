"""Decoding against the pass over all positions: the whole catalogue, in pieces of all kinds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.decoding import catalogue
from tests.decoding.law import check, pieces
from tests.variants import roster

import indexical as ix

DECODED = [name for name in roster.NAMES if name not in catalogue.REFUSED]
CASES = [(name, True) for name in DECODED] + [(name, False) for name in catalogue.EXAMPLES]


@lru_cache(maxsize=2)
def decoder_of(name: str, variant: bool) -> Any:
    return ix.incremental(*catalogue.compiled(name, variant))


@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "variant"), CASES)
def test_pieces_give_what_the_whole_gives(name: str, variant: bool, seed: int) -> None:
    """Every definition that has positions: outputs, weights and scores."""
    decoder = decoder_of(name, variant)
    arrays, length = catalogue.arrays(name, variant, decoder)
    counts = pieces(length, seed)
    match seed % 4:
        case 0:
            check(decoder, {key: torch.as_tensor(np.asarray(value)) for key, value in arrays.items()}, counts)
        case 1:
            check(decoder, arrays, counts, "reference")
        case _:
            check(decoder, arrays, counts)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", catalogue.REFUSED)
def test_what_cannot_be_decoded_is_refused_with_the_reason(name: str) -> None:
    program = ix.compile(catalogue.file_of(name, True))
    with pytest.raises(ix.CallError, match=catalogue.REFUSED[name]):
        ix.incremental(program, catalogue.along(program))
