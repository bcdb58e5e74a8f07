"""Weights as they are, wherever they come from: words for their rows and heads, and a page of all heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .diagnostics import CallError, Diagnostic
from .pages import WebPage
from .run.patterns import Head, Patterns, find_patterns
from .views.heads import heads_data
from .views.patterns import patterns_html, patterns_json, show_patterns
from .views.static import page_fragment

# A notebook shows the page of weights in place up to this many of them; a larger one has its table alone.
MOST_IN_PLACE = 1 << 20


class PatternSheet:
    """The patterns of the rows and heads of a weights tensor, readable as they stand."""

    def __init__(self, found: Patterns, tokens: Sequence[str] | None = None) -> None:
        self.found = found
        self.tokens = tokens

    @property
    def heads(self) -> tuple[Head, ...]:
        return tuple(self.found.heads)

    def text(self, rows: bool = False, sort_by: str = "head") -> str:
        return show_patterns(self.found, rows, sort_by)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        return patterns_json(self.found)

    def page(self, title: str | None = None, axes: Sequence[str] | None = None) -> WebPage:
        """A page of all heads: a wall of small pictures, and the chosen one large. `axes` names the leading axes."""
        shape = self.found.weights.shape
        leading = len(shape) - 2
        usual = [*["axis"] * (leading - 2), "layer", "head"][-leading:] if leading else []
        data = heads_data([self.found], shape, self.tokens, usual if axes is None else axes)
        return WebPage(title or "Who listens to whom", [data.block], self.table(), data.attached)

    def table(self) -> str:
        """The heads as a table without scripts."""
        return patterns_html(self.found)

    def _repr_html_(self) -> str:
        is_small = 0 < self.found.weights.size <= MOST_IN_PLACE
        return page_fragment(self.page().html, self.table()) if is_small else self.table()


def patterns(weights: Any, *, causal: bool | None = None, tokens: Sequence[str] | None = None) -> PatternSheet:
    """Peaked, uniform, sparse, …: a word for every row and head of weights, with the figures behind it.

    `tokens` are what stands at the keys: with them, heads that hear what followed the same token before are found, and
    the page has names for its rows and columns.
    """
    if tokens is not None and (isinstance(tokens, str) or not isinstance(tokens, Sequence | np.ndarray)):
        raise CallError([Diagnostic("IX515", "tokens are a list of texts, one for each key")])
    return PatternSheet(find_patterns(weights, causal=causal, tokens=tokens), tokens)
