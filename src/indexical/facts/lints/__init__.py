"""Lints: mistakes that have the right shape. One file each: a code, a function that finds it.

A new one is a file beside these, a line in `LINTS`, a code in `codes.py`, a page in the docs and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ...checker.reporting import report_all
from ...diagnostics import Diagnostic, Sink
from ...ir import nodes as ir
from ..view import View
from . import (
    added_late,
    compared_apart,
    empty_rows,
    grows_with_distance,
    guarded_late,
    heads_split,
    idle_reduction,
    large_negative,
    lost_digits,
    mask_on_queries,
    mask_turned_round,
    offset_apart,
    other_head,
    scale,
    sink_apart,
    table_turned_round,
    turned_apart,
    unshifted,
    unused,
    value_at_query,
    wrong_normaliser,
)

Lint: TypeAlias = Callable[[View], Iterator[tuple[ir.Let | None, Diagnostic]]]

LINTS: tuple[Lint, ...] = (
    wrong_normaliser.find,
    value_at_query.find,
    other_head.find,
    guarded_late.find,
    added_late.find,
    mask_turned_round.find,
    mask_on_queries.find,
    compared_apart.find,
    heads_split.find,
    turned_apart.find,
    offset_apart.find,
    grows_with_distance.find,
    table_turned_round.find,
    scale.find,
    sink_apart.find,
    large_negative.find,
    idle_reduction.find,
    unused.find,
    unshifted.find,
    empty_rows.find,
    lost_digits.find,
)


def lint(view: View, sink: Sink) -> None:
    """Everything that the lints find in a program."""
    for find in LINTS:
        for let, diagnostic in find(view):
            found = Sink()
            found.add(diagnostic)
            if let is None:
                sink.add(diagnostic)
            elif not let.derived:
                # What a derivative does, the chain rule says: the program only asked for it.
                report_all(found, let, view.program, sink)
