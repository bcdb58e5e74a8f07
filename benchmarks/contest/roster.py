"""Who runs where, so that a whole run ends within the hour: the slow run where they tell something new."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .peers import OURS, PEERS
from .variants import Setting

# Above this, matmul, softmax, matmul in other words tells nothing new.
SHORT, LONG = 512, 2048


@dataclass(frozen=True, slots=True)
class Roster:
    """`largest` is the largest size of the run; `everyone` lifts all rules."""

    ours: bool
    missing: tuple[str, ...]
    largest: int
    quick: bool = False
    everyone: bool = False

    def names(self, setting: Setting, backward: bool) -> list[str]:
        """Who runs in a cell, ours first."""
        here = [name for name in PEERS if name not in self.missing]
        if not self.everyone:
            here = [name for name in here if self._runs(name, setting, backward)]
        return [OURS, *here] if self.ours else here

    def _runs(self, name: str, setting: Setting, backward: bool) -> bool:
        variant, size = setting.variant, setting.size
        by_hand = variant.name.endswith("by hand")
        plain = variant.direct is not None
        match name:
            case "sdpa mask" | "sdpa bias":
                return backward or not by_hand
            case "sdpa bias f32":
                return variant.added is not None and setting.dtype != torch.float32
            case "eager":
                telling = variant.changed is not None or (plain and not backward)
                return size <= LONG or telling or setting.device == "cuda"
            case "einops" | "einx":
                return not (backward or by_hand or self.quick) and size <= (LONG if plain else SHORT)
            case "flex":
                return not by_hand and self._compiles(setting, backward)
            case _:
                return True

    def _compiles(self, setting: Setting, backward: bool) -> bool:
        """FlexAttention is compiled for each cell, for seconds: where a target names it, and once where none does."""
        variant, size = setting.variant, setting.size
        if self.quick:
            return variant.name == "window" and size == self.largest and not backward
        if setting.device == "cuda":
            return size >= LONG
        if backward or (variant.direct is not None and setting.dtype != torch.float32):
            return False
        return size == self.largest or (variant.name == "window" and size == 2048)
