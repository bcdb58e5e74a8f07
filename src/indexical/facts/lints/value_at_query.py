"""A value that is not read at the key: it leaves the sum, the weights sum to 1, and do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ..view import View

CODE = "IX403"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.gathers:
        key = gather.key.coordinate
        values = [factor for factor in gather.values if isinstance(factor.expr, ir.Read) and factor.coordinates]
        if not values or any(key in factor.coordinates for factor in gather.values):
            continue
        if any(key in condition.expr.type.coordinates for condition in gather.site.product.conditions):
            continue
        value = values[0].expr
        shown = value.span.text
        asks = sorted(c.name for c in gather.weight_coordinates & value.type.coordinates)
        at = f"at `{asks[-1]}`, who asks" if asks else "without the key"
        yield (
            gather.site.let,
            Diagnostic(
                CODE,
                f"`{shown}` is read {at}, and not at the key `{key.name}`",
                (
                    Label(value.span, f"does not vary with `{key.name}`"),
                    Label(gather.key.reduce.span, "so it leaves this sum"),
                ),
                (f"the weights sum to 1 over `{key.name}`: `{gather.name}` is `{shown}`; the weights do nothing",),
                f"read it at the key, `{key.name}`",
            ),
        )
