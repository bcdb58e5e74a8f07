"""Weights guarded after they were normalised: their rows no longer sum to 1."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ..attention import Gather
from ..view import View

CODE = "IX405"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.gathers:
        if not any(gather.key.coordinate in value.coordinates for value in gather.values):
            continue
        found = list(_late(view, gather))
        if not found or _is_mended(view, gather):
            continue
        for late in found:
            known = view.assume(gather.site.clause, gather.key.range, *gather.weights.kept)
            if known.proves(late):
                continue
            yield (
                gather.site.let,
                Diagnostic(
                    CODE,
                    "these weights are guarded after they were normalised",
                    (Label(late.span, "removed here"), Label(gather.weights.span, "normalised here, over more")),
                    (f"what is left no longer sums to 1 over `{view.shown(gather.key.coordinate)}`",),
                    f"guard the normaliser: `softmax[…](… where {late.span.text})`, or divide by what is left",
                ),
            )


def _is_mended(view: View, gather: Gather) -> bool:
    """Whether what was gathered is later divided by what is left of the weights."""
    forms, product = view.forms, gather.site.product
    made_of = {forms.factor_key(product.factors[n], {}) for n in gather.weights.used}
    held = {forms.key(condition.expr) for condition in product.conditions}
    for let in view.program.lets:
        for part in (part for clause in let.clauses for part in view.parts(clause)):
            match part:
                case ir.Map("/", (ir.Read(tensor), divisor)) if tensor == gather.name:
                    total = forms.expand(divisor, [r.coordinate for c in let.clauses for r in c.ranges])
                    for step in total.summed:
                        names = {step.coordinate: str(gather.key.coordinate)}
                        same = {forms.factor_key(factor, names) for factor in total.factors} == made_of
                        if same and {forms.key(c.expr, names) for c in total.conditions} == held:
                            return True
    return False


def _late(view: View, gather: Gather) -> Iterator[ir.Expr]:
    """Conditions on the key that stand outside the weights: guards, and factors that are 1 or 0."""
    key = gather.key.coordinate
    used = {id(condition) for weights in gather.site.weights for condition in weights.kept}
    for condition in gather.site.product.conditions:
        if key in condition.expr.type.coordinates and id(condition.expr) not in used:
            yield condition.expr
    for factor in gather.values:
        opened = view.forms.opened(factor.expr) if isinstance(factor.expr, ir.Read) else None
        test = _as_condition(factor.expr if opened is None else opened[0])
        if test is not None and key in test.type.coordinates and not factor.inverse:
            yield test


def _as_condition(expr: ir.Expr) -> ir.Expr | None:
    """The condition in `(j <= i) as f64` and in `if j <= i { 1 } else { 0 }`."""
    match expr:
        case ir.Map(op, (inner,)) if op.startswith("as ") and inner.type.kind == "bool":
            return inner
        case ir.Select(condition, ir.Const(one), ir.Const(zero)) if one == 1 and zero == 0:
            return condition
        case _:
            return None
