"""A guard that leaves some query nobody to listen to: it hears zero."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ..view import View

CODE = "IX415"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for let in view.program.lets:
        for clause in let.clauses:
            for normalizer, trail in view.normalizers(clause):
                if normalizer.op != "softmax" or normalizer.guard is None:
                    continue
                if view.keeps_a_point(normalizer, trail):
                    continue
                if let.hidden and _is_of_several(view, let.name):
                    continue
                name = normalizer.coordinate.name
                yield (
                    let,
                    Diagnostic(
                        CODE,
                        f"this guard may leave nobody over `{name}` to listen to",
                        (Label(normalizer.guard.span),),
                        ("such a row gets no weight at all: what it gathers is 0",),
                        None,
                    ),
                )


def _is_of_several(view: View, name: str) -> bool:
    """Whether weights run over the places of several coordinates: what a guard on these keeps is not known."""
    from ...ir.joins import normalised_together

    clauses = [clause for let in view.program.lets for clause in let.clauses]
    found = [normalised_together(clause, view.lets) for clause in clauses]
    return any(together is not None and together[0].tensor == name for together in found)
