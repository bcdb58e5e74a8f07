"""Which token comes next."""

from __future__ import annotations

from typing import Any

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn: the likeliest at temperature 0; else by chance, among the `top_k` likeliest, and of these
    among the fewest that together have the probability `top_p`."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def check(self) -> Sampling:
        """The sampling itself, where it makes sense."""
        if not 0 <= self.temperature < float("inf"):
            raise _error(
                f"a temperature of {self.temperature}", "0 takes the likeliest token, 1 draws as it was trained"
            )
        if self.top_k is not None and self.top_k < 1:
            raise _error(f"the {self.top_k} likeliest tokens", "at least 1 must be left to draw from")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise _error(f"a probability of {self.top_p}", "it lies above 0 and is at most 1")
        if not -(2**63) <= self.seed < 2**64:
            raise _error(f"the seed {self.seed}", "a seed has 64 bits")
        return self


def _error(what: str, help: str) -> CallError:
    return CallError([Diagnostic("IX515", f"no token can be drawn with {what}", help=help)])


def draw(logits: Any, sampling: Sampling, chance: Any) -> int:
    """A token, by the logits of all of them; `chance` is a generator of PyTorch."""
    import torch

    if bool(logits.isnan().any()):
        message = "the model gave numbers that are none (NaN): no token can be drawn from them"
        raise CallError([Diagnostic("IX515", message, help="its weights are damaged, or too large for float32")])
    if sampling.temperature == 0:
        return int(logits.argmax())
    # At the least temperatures a difference of logits may leave what a number can be; the likeliest has 0.
    scaled = (logits.double() - logits.max()) / sampling.temperature
    scaled, order = scaled.sort(descending=True, stable=True)
    if sampling.top_k is not None:
        scaled = scaled[: sampling.top_k]
    likely = torch.softmax(scaled, -1)
    if sampling.top_p is not None:
        # One that crosses the line still belongs to the fewest.
        likely = likely[likely.cumsum(-1) - likely < sampling.top_p]
    return int(order[torch.multinomial(likely, 1, generator=chance)])
