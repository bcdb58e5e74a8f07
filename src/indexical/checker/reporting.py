"""Findings passed on from a definition to the program that it stands in."""

from __future__ import annotations

from ..diagnostics import Label, Sink
from ..ir import nodes as ir
from ..records import replace


def report_all(found: Sink, let: ir.Let, program: ir.Program, sink: Sink) -> None:
    """Pass on what was found in a definition. What stands in a function's text also shows where the program
    brings it in."""
    for diagnostic in found:
        if diagnostic.labels and all(label.span.source is not program.source for label in diagnostic.labels):
            place = let.span if let.call is None else let.call
            diagnostic = replace(diagnostic, labels=(*diagnostic.labels, Label(place, "brought in here")))
        sink.add(diagnostic)
