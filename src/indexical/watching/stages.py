"""The program of every head with its numbers, packed for a page that unpacks the one that is chosen."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence

import numpy as np

from ..pages import gather
from ..records import replace
from ..views.document import Shown, document_json
from .relation import HeadInputs

# Numbers that a stage has at most in a page of all heads: with more, that has the wall and the matrix alone.
MOST_NUMBERS = 200_000


def labelled(found: Shown, tokens: Sequence[str] | None) -> Shown:
    return replace(found, labels={"position": list(tokens)}) if tokens is not None else found


def packed_stages(layers: list[list[HeadInputs]], tokens: Sequence[str] | None, room: int) -> dict[str, str]:
    """The stages of as many heads as there is room for, in base 64, by the number of their head."""
    packed: dict[str, str] = {}
    for number, inputs in enumerate(inputs for layer in layers for inputs in layer):
        scores = 2 * len(inputs.arrays["Q"]) * len(inputs.arrays["K"])
        if scores + sum(np.size(array) for array in inputs.arrays.values()) > MOST_NUMBERS:
            return packed
        document = document_json(labelled(gather(inputs.kind.program, (), inputs.arrays, None), tokens))
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        data = base64.b64encode(zlib.compress(text.encode(), 6)).decode("ascii")
        room -= len(data)
        if room < 0:
            return packed
        packed[f"stage-{number}"] = data
    return packed
