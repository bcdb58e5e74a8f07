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
                yield (
                    site.let,
                    Diagnostic(
                        CODE,
                        "these exponentials are summed without a shift",
                        (Label(weights.score.span, "overflows where it is large"), Label(weights.span, "summed here")),
                        (),
                        f"write `softmax[{name}](…)`, or subtract the largest first",
                    ),
                )
