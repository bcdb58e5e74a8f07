"""A value that is not read at the key: it leaves the sum, the weights sum to 1, and do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ..roles import is_given_back
from ..view import View

CODE = "IX403"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.gathers:
        key = gather.coordinate
        values = [factor for factor in gather.values if isinstance(factor.expr, ir.Read) and factor.coordinates]
        if not values or any(key in factor.coordinates for factor in gather.values) or is_given_back(view, gather):
            continue
        if not gather.weights.exact:
            continue
        own = {id(condition) for condition in gather.weights.kept}
        late = [c for c in gather.site.product.conditions if key in c.expr.type.coordinates and id(c.expr) not in own]
        if late:
            continue
        value = values[0].expr
        shown = value.span.text
        what = f"`{shown}`" if len(values) == 1 else "what is gathered, unweighted"
        asks = sorted(view.shown(c) for c in gather.weight_coordinates & value.type.coordinates)
        at = f"at `{asks[-1]}`, who asks" if asks else "without the key"
        yield (
            gather.site.let,
            Diagnostic(
                CODE,
                f"`{shown}` is read {at}, and not at the key `{view.shown(key)}`",
                (
                    Label(value.span, f"does not vary with `{view.shown(key)}`"),
                    Label(gather.key.reduce.span, "so it leaves this sum"),
                ),
                (f"the weights sum to 1 over `{view.shown(key)}`: `{gather.name}` is {what}; the weights do nothing",),
                f"read it at the key, `{view.shown(key)}`",
            ),
        )
