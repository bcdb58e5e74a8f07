"""A compared feature summed apart on the two sides, or none at all."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ..attention import Comparison, Gather
from ..view import View

CODE = "IX406"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.gathers:
        found = view.comparisons(gather)
        if any(comparison.compared for comparison in found):
            continue
        for comparison in found:
            if all(any(_is_data(f.expr) for f in side) for side in (comparison.query_side, comparison.key_side)):
                yield gather.site.let, _report(comparison)
        if not found and gather.weights.score is not None and _is_separable(view, gather, gather.weights.score):
            yield gather.site.let, _no_influence(gather)


def _is_data(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Read) and bool(expr.indices)


def _report(comparison: Comparison) -> Diagnostic:
    query_side, key_side = comparison.query_side[0].expr, comparison.key_side[0].expr
    product = comparison.product
    written = {step.coordinate: step.range.span.text.split()[0] for step in product.summed}
    apart = [sorted(written[c] for c in product.bound & expr.type.coordinates) for expr in (query_side, key_side)]
    shown = [f"summed over `{'`, `'.join(names)}`" if names else "summed over nothing" for names in apart]
    return Diagnostic(
        CODE,
        f"`{query_side.span.text}` and `{key_side.span.text}` share no feature that is compared",
        (Label(query_side.span, shown[0]), Label(key_side.span, shown[1])),
        ("the score is one number of the query times one number of the key; no feature meets its like",),
        "read both at one coordinate and sum over it: `sum[d](Q[i, d] * K[j, d])`",
    )


def _is_separable(view: View, gather: Gather, score: ir.Expr) -> bool:
    """Whether a score is a sum of terms that vary with the query alone and with the key alone."""
    terms = _terms(view, score)
    key, asks = gather.weights.coordinate, gather.asks
    both = [t for t in terms if key in t.type.coordinates and asks & t.type.coordinates]
    query_side = [t for t in terms if asks & t.type.coordinates and key not in t.type.coordinates]
    return bool(asks) and not both and (bool(query_side) or len(terms) > 0)


def _terms(view: View, score: ir.Expr) -> list[ir.Expr]:
    waiting: list[ir.Expr] = [score]
    result: list[ir.Expr] = []
    while waiting:
        expr = waiting.pop()
        match expr:
            case ir.Map("+" | "-", arguments):
                waiting += arguments
            case ir.Map("/" | "*", (left, right)) if not right.type.coordinates:
                waiting.append(left)
            case ir.Map("*", (left, right)) if not left.type.coordinates:
                waiting.append(right)
            case ir.Reduce("sum", _, body):
                inner = view.forms.written_out(body)
                if isinstance(inner, ir.Map) and inner.op in ("+", "-"):
                    waiting += inner.arguments
                else:
                    result.append(expr)
            case ir.Read():
                found = view.forms.opened(expr)
                if found is None:
                    result.append(expr)
                else:
                    waiting.append(found[0])
            case _:
                result.append(expr)
    return result


def _no_influence(gather: Gather) -> Diagnostic:
    assert gather.weights.score is not None
    asks = ", ".join(sorted(c.name for c in gather.asks))
    return Diagnostic(
        CODE,
        "nothing is compared: no term of this score varies with the query and the key at once",
        (Label(gather.weights.score.span), Label(gather.weights.span, "normalised here")),
        (f"what varies with `{asks}` alone cancels in the softmax: everybody listens to the same",),
        "compare them feature by feature: `sum[d](Q[i, d] * K[j, d])`",
    )
