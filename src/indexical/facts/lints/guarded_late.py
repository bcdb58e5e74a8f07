"""Weights guarded after they were normalised: their rows no longer sum to 1."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ..attention import Gather, Site, as_condition
from ..view import View
from ..weights import Weights
from .sink_apart import sinks

CODE = "IX405"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.gathers:
        if any(gather.coordinate in value.coordinates for value in gather.values):
            found = list(_late(view, gather.site, gather.weights))
            if found and not _is_mended(view, gather):
                yield from _reports(view, gather.site, gather.weights, found, gather.key.range)
    for weights in view.ungathered:
        for site in weights.again:
            yield from _reports(view, site, site.weights[0], list(_late(view, site, site.weights[0])))


def _reports(
    view: View, site: Site, weights: Weights, late: list[ir.Expr], *ranges: ir.Range
) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    known = view.assume(site.clause, *ranges, *weights.kept)
    places = list(sinks(view, weights.score, weights.coordinate))
    for condition in late:
        # A sink is heard, and carries nothing home.
        if not known.proves(condition) and not any(place.is_elsewhere(view, condition) for place in places):
            labels = (Label(condition.span, "removed here"), Label(weights.span, "normalised here, over more"))
            note = f"what is left no longer sums to 1 over `{view.shown(weights.coordinate)}`"
            help = f"guard the normaliser: `softmax[…](… where {condition.span.text})`, or divide by what is left"
            yield (
                site.let,
                Diagnostic(CODE, "these weights are guarded after they were normalised", labels, (note,), help),
            )


def _is_mended(view: View, gather: Gather) -> bool:
    """Whether what was gathered is later divided by what is left of the weights."""
    forms, product = view.forms, gather.site.product
    factors = [product.factors[n] for n in sorted(gather.weights.used)]
    held = {k: c for each in product.conditions for k, c in forms.algebra.conditions(each.expr).items()}
    for let in view.program.lets:
        for clause in let.clauses:
            scope = {r.coordinate: r for r in (*clause.ranges, *(step.range for step in product.summed))}
            for part in view.parts(clause):
                match part:
                    case ir.Map("/", (ir.Read(tensor), divisor)) if tensor == gather.name:
                        left = forms.total(factors, held, forms.algebra.binder(gather.key.range), scope)
                        if forms.is_same(left, forms.form(forms.written_out(divisor), scope)):
                            return True
    return False


def _late(view: View, site: Site, weights: Weights) -> Iterator[ir.Expr]:
    """Conditions on the key that stand outside the weights: guards, and factors that are 1 or 0."""
    key = weights.coordinate
    used = {id(condition) for each in site.weights for condition in each.kept}
    for condition in site.product.conditions:
        if key in condition.expr.type.coordinates and id(condition.expr) not in used:
            yield condition.expr
    for factor in site.values(weights):
        test = as_condition(view.forms, factor)
        if test is not None and key in test.type.coordinates:
            yield test
