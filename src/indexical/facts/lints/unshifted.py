"""Exponentials summed without a shift: they overflow where a softmax would not."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ..view import View

CODE = "IX414"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for site in view.sites:
        for weights in site.weights:
            if weights.by_hand and not weights.shifted and weights.score is not None:
                name = weights.coordinate.name
                largest = "subtract the largest first"
                beside = f"{largest}, from what is added to their sum too"
                mend = f"write `softmax[{name}](…)`, or {largest}" if weights.rows == "sum to 1" else beside
                yield (
                    site.let,
                    Diagnostic(
                        CODE,
                        "these exponentials are summed without a shift",
                        (Label(weights.score.span, "overflows where it is large"), Label(weights.span, "summed here")),
                        (),
                        mend,
                    ),
                )
