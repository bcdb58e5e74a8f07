"""An inquiry: one attention, at some sizes, against one contract."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .access import Access
from .contract import Contract
from .observing import Draw, draw_inputs, observe, own
from .reports import Finding, place_of
from .settings import Setting, Settings


class Inquiry:
    """An audit in progress: what is asked, and what was found so far."""

    def __init__(
        self, access: Access, settings: Settings, contract: Contract, target: Any, tolerance: float, each: bool = True
    ) -> None:
        self.access, self.settings, self.contract, self.target = access, settings, contract, target
        self.tolerance = tolerance
        self.each = each
        self.rng = np.random.default_rng(7)
        self.size = 1.0
        self.slack = max(tolerance, 1e-7)  # How far numbers may be from what they should be.
        self.findings: list[Finding] = []
        self.found: dict[str, str] = {}
        self.laws: list[str] = []
        self.reasons: dict[str, str] = {}  # Why a law could not be judged, by its name.
        self.first: Draw | None = None  # The weights by which the structure was judged.
        self.beside: tuple[str, ...] = ()  # Weights that take part in what is asked, beside queries, keys and values.
        self.normed = False  # Whether the size of queries and keys has no effect on the scores.

    def report(
        self,
        law: str,
        message: str,
        witness: str = "",
        cause: str = "",
        mend: str = "",
        hints: tuple[str, ...] = (),
        confidence: str = "refuted",
    ) -> None:
        span = place_of(self.target, hints)
        self.findings.append(Finding(law, message, witness, cause, mend, span, confidence))

    def tested(self, law: str) -> None:
        if law not in self.laws:
            self.laws.append(law)

    def cannot(self, law: str, reason: str) -> None:
        """Say why a law is not judged, though it may be declared."""
        self.reasons.setdefault(law, reason)

    def inputs(self) -> tuple[Any, Any, Any]:
        return draw_inputs(self.access, self.rng, self.size)

    def forward(self, q: Any, k: Any, v: Any, setting: Setting) -> Any:
        return self.access.forward(q, k, v, setting.arrays)

    def observe(self, q: Any, k: Any, setting: Setting) -> Draw:
        return observe(self.access, q, k, setting, self.each)

    def sample(self, q: Any, k: Any, setting: Setting) -> Draw:
        """The same for a few values, one at a time."""
        lanes, keys, _ = self.access.shape("v")
        chosen = {(int(lane), int(key)) for lane, key in self.rng.integers(0, (lanes, keys), (24, 2))}
        return observe(self.access, q, k, setting, places=sorted(chosen | {(0, 0), (lanes - 1, keys - 1)}))

    def weights(self, q: Any, k: Any, setting: Setting) -> Any:
        """The weights of each lane, with all values in one call: for when lanes are known to be apart."""
        return own(self.access, observe(self.access, q, k, setting, each=False).full)

    # ------------------------------------------------------------------ wording

    def out_at(self, lane: int, query: int) -> str:
        name = self.access.lane_name("out", lane)
        position = self.access.ports["out"].position
        return f"out[{name + ', ' if name else ''}{position} = {query}]"

    def input_at(self, role: str, lane: int, position: int) -> str:
        port = self.access.ports[role]
        name = self.access.lane_name(role, lane)
        what = {"q": "query", "k": "key", "v": "value"}[role]
        shown = f"{name}, " if name else ""
        return f"the {what} at {shown}{port.position} = {position}"


Law = Callable[[Inquiry], None]


def letter_law(letter: str) -> str:
    """The law that a dependence along a letter breaks."""
    return {"b": "batch", "h": "heads", "g": "heads"}.get(letter, f"axis {letter}")


def normalised_over(inquiry: Inquiry) -> str:
    """The axis that the contract normalises over."""
    ports = inquiry.access.ports
    apart = ports["q"].position != ports["k"].position
    return "query" if apart and inquiry.contract.attends == ports["q"].position else "key"


def number(value: float) -> str:
    text = f"{value:.6g}"
    return re.sub(r"e([+-])0*(\d)", r"e\1\2", text)
