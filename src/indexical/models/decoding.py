"""A decoder that goes on from what it has read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..api import Program, compile
from ..records import dataclass


@cache
def _last() -> Program:
    return compile("input final[b, m], unembedding[v, m]; let logits[b, v] = sum[m](unembedding[v, m] * final[b, m]);")


@dataclass(frozen=True, slots=True)
class Decoding:
    """The logits of what comes next: after a prompt, and after each token that follows it."""

    program: Program
    weights: Mapping[str, Any]

    def begin(self, tokens: Any, capacity: int) -> tuple[Any, Any]:
        """The logits after a prompt, and the state to go on from, with room for so many positions."""
        return self._next(tokens)

    def go_on(self, tokens: Any, state: Any) -> tuple[Any, Any]:
        """The logits after more tokens, and the state to go on from."""
        import torch

        return self._next(torch.cat((state, tokens), 1))

    def _next(self, tokens: Any) -> tuple[Any, Any]:
        import torch

        with torch.no_grad():
            final = self.program(tokens=tokens, **self.weights, outputs="final")
            return _last()(final[:, -1].contiguous(), self.weights["unembedding"]), tokens
