"""A decoder that goes on from what it has read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..api import Program, compile
from ..decoding import incremental
from ..run.states import State


@cache
def _last() -> Program:
    """The last step of a model, for one position: of a prompt, only what follows it is asked for."""
    return compile("input final[b, m], unembedding[v, m]; let logits[b, v] = sum[m](unembedding[v, m] * final[b, m]);")


class Decoding:
    """The logits of what comes next: after a prompt, and after each token that follows it."""

    def __init__(self, program: Program, weights: Mapping[str, Any]) -> None:
        self.decoder = incremental(program, along="i", outputs="final", **weights)
        self.unembedding = weights["unembedding"]

    def begin(self, tokens: Any, capacity: int) -> tuple[Any, State]:
        """The logits after a prompt, and the state to go on from, with room for so many positions."""
        state, final = self.decoder.prefill(tokens, capacity=capacity)
        return _last()(final[:, -1], self.unembedding), state

    def go_on(self, tokens: Any, state: State) -> tuple[Any, State]:
        """The logits after more tokens, and the state to go on from."""
        state, final = self.decoder.step(tokens, state)
        return _last()(final[:, -1], self.unembedding), state
