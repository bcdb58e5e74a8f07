"""A value that is not read at the key: it leaves the sum, the weights sum to 1, and do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.algebra.factors import Factor
from ...ir.functions import FUNCTIONS
from ...ir.walk import walk
from ..attention import Gather
from ..roles import is_given_back
from ..view import View

CODE = "IX403"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.gathers:
        key = gather.coordinate
        if any(key in factor.coordinates for factor in gather.values) or is_given_back(view, gather):
            continue
        if not gather.weights.exact:
            continue
        own = {id(condition) for condition in gather.weights.kept}
        late = [c for c in gather.site.product.conditions if key in c.expr.type.coordinates and id(c.expr) not in own]
        values = _summed(gather)
        reads = [(factor, read) for factor in values for read in _reads(factor)]
        if late or not reads:
            continue
        factor, value = max(reads, key=lambda pair: _likeness(view, gather, *pair))
        yield gather.site.let, _report(view, gather, value, len(values) == 1 and factor.expr is value)


def _summed(gather: Gather) -> list[Factor]:
    """The factors beside the weights that vary with something, as far as they stand in the sum: a gate before it leaves
    nothing. Where nothing stands in it, or other terms are added there, only what is read bare is taken for values."""
    values = [factor for factor in gather.values if factor.coordinates and not factor.inverse]
    place = gather.key.reduce.span
    inside = [f for f in values if not f.local or (place.start <= f.expr.span.start and f.expr.span.end <= place.end)]
    bare = [factor for factor in inside or values if isinstance(factor.expr, ir.Read)]
    return inside if inside and not gather.site.beside else bare


def _reads(factor: Factor) -> list[ir.Read]:
    """The tensors with axes in a factor, outside of indices and of sums that use them up."""
    if isinstance(factor.expr, ir.Read):
        return [factor.expr]
    parts = [part for part in walk(factor.expr) if isinstance(part, ir.Read) and part.indices]
    return [part for part in parts if part.type.kind == "real" and part.type.coordinates & factor.coordinates]


def _likeness(view: View, gather: Gather, factor: Factor, read: ir.Read) -> tuple[bool, bool, bool, bool]:
    """How much a tensor looks like the values, and not like a gate or a bias: it is read at the query, its home is at
    the key or it is read there elsewhere, it brings features along, it stands bare and is no share."""
    asks = read.type.coordinates & gather.weight_coordinates
    carried = read.type.coordinates - gather.weight_coordinates
    seen = view.forms.seen_through(read, visible=True)
    homes = {axis.coordinate.name for axis in view.program.tensors[seen.tensor].axes}
    named = view.shown(gather.coordinate) in homes or seen.tensor in _gathered(view)
    made = view.forms.written_out(read)
    share = isinstance(made, ir.Map) and made.op in FUNCTIONS and FUNCTIONS[made.op].values == (0, 1)
    return bool(asks), named, bool(carried), factor.expr is read and not share


def _gathered(view: View) -> set[str]:
    """The tensors that some gather reads at its key."""
    found = set()
    for gather in view.gathers:
        for factor in gather.values:
            for part in walk(factor.expr) if gather.coordinate in factor.coordinates else ():
                if isinstance(part, ir.Read) and gather.coordinate in part.type.coordinates:
                    found.add(view.forms.seen_through(part, visible=True).tensor)
    return found


def _report(view: View, gather: Gather, value: ir.Read, alone: bool) -> Diagnostic:
    key = view.shown(gather.coordinate)
    shown = value.span.text
    what = f"`{shown}`" if alone else "what is gathered, unweighted"
    asks = sorted(view.shown(c) for c in gather.weight_coordinates & value.type.coordinates)
    at = f"at `{asks[-1]}`, who asks" if asks else "without the key"
    return Diagnostic(
        CODE,
        f"`{shown}` is read {at}, and not at the key `{key}`",
        (
            Label(value.span, f"does not vary with `{key}`"),
            Label(gather.key.reduce.span, "so it leaves this sum"),
        ),
        (f"the weights sum to 1 over `{key}`: `{gather.name}` is {what}; the weights do nothing",),
        f"read it at the key, `{key}`",
    )
