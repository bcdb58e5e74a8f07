"""Gathers seen from the other side: weights that are normalised over a key that survives, summed over who asks.

What flows back through an attention flows along its weights: each key gathers from the queries that heard it. Times a
value less its mean, weights are not weights any more but how they change; that is told apart here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Factor, Forms
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh, substitute
from ..records import dataclass
from .attention import Gather, Site, Ungathered, Weighed, is_shared, reads_something


@dataclass(frozen=True, slots=True)
class Transposed(Weighed):
    """A site whose weights are normalised over a coordinate that survives, and that sums over the query: `summed` are
    the coordinates of the weights that it sums over."""

    summed: frozenset[Coordinate]

    @property
    def asks(self) -> frozenset[Coordinate]:
        """The coordinates that are summed over, here or in what is read: the query is among them."""
        return self.weight_coordinates & self.site.product.bound


# One use of weights: to gather with, to give back along, or none so far.
Use: TypeAlias = Gather | Transposed | Ungathered


def transposes(forms: Forms, found: list[Site]) -> Iterator[Transposed]:
    """The sites that gather backwards. What they gather varies with who asks; what only mixes the weights of
    several heads does not, and is none."""
    for site in found:
        for weights in site.weights:
            if weights.coordinate in site.product.bound or weights.coordinate not in site.survives:
                continue
            made_of = [site.product.factors[n].coordinates for n in weights.used]
            local = {step.coordinate for step in site.product.summed if step.local}
            over = frozenset().union(*made_of) & local
            brought = [f for f in site.values(weights) if reads_something(f) and f.coordinates & over]
            if brought and not is_shared(forms, weights):
                yield Transposed(site, weights, over)


# --------------------------------------------------------------------- changes


def changing(forms: Forms, gather: Use) -> Factor | None:
    """The factor that makes weights into how they change: a value less its own mean under these weights. Over the
    key such a product sums to exactly 0."""
    for factor in gather.values:
        match forms.written_out(factor.expr):
            case ir.Map("-", (value, mean)) if not factor.inverse and _is_mean(forms, gather, value, mean):
                return factor
    return None


def _is_mean(forms: Forms, gather: Use, value: ir.Expr, mean: ir.Expr) -> bool:
    """Whether one expression is the mean of another under the weights: the same sum, in any spelling."""
    key = gather.weights.coordinate
    if key not in value.type.coordinates or key in mean.type.coordinates:
        return False
    product = gather.site.product
    taken = {c.name for factor in product.factors for c in factor.coordinates} | {c.name for c in product.bound}
    running = fresh(key, taken)
    mean = forms.written_out(mean)
    total = forms.form(mean, {})
    try:
        weighted = _weighted(gather, value, build.coord(running, value.span))
    except Inexpressible:
        return False
    for step in forms.expand(mean).summed:
        around = ir.Range(running, step.range.lower, step.range.upper, step.range.stated, value.span)
        whole = build.reduce("sum", (around,), weighted, None, "real", value.span)
        if forms.is_same(total, forms.form(whole, {})):
            return True
    return False


def _weighted(gather: Use, value: ir.Expr, running: ir.Coord) -> ir.Expr:
    """The value times the weights, at another point of the key."""
    result = value
    for number in sorted(gather.weights.used):
        factor = gather.site.product.factors[number]
        result = build.apply("/" if factor.inverse else "*", (result, factor.expr), "real", value.span)
    return substitute(result, {gather.weights.coordinate: running})
