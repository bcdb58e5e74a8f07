"""A normaliser over one coordinate and a gather over another: nobody's weights sum to 1."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.algebra.factors import Factor, Summed, varying
from ...ir.types import Coordinate
from ...ir.walk import children, walk
from ..attention import Site, compare
from ..view import View
from ..weights import Weights

CODE = "IX402"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for site in view.sites:
        for step in site.product.summed:
            if not step.local or any(weights.coordinate == step.coordinate for weights in site.weights):
                continue
            for weights in site.weights:
                if not _gathers_across(site, weights, step) or not _is_key(view, site, weights, step):
                    continue
                if not _is_shared_out(view, site, weights, step):
                    yield site.let, _report(view, site, weights, step)


def _gathers_across(site: Site, weights: Weights, step: Summed) -> bool:
    """Whether weights that are normalised over a coordinate that survives are summed over another one,
    together with something to gather."""
    if weights.coordinate in site.product.bound:
        return False
    made_of = [site.product.factors[number] for number in weights.used]
    if any(_is_centred(factor, weights) for factor in site.product.factors):
        return False
    varies = any(step.coordinate in factor.coordinates for factor in made_of)
    return varies and any(step.coordinate in value.coordinates for value in site.values(weights))


def _is_centred(factor: Factor, weights: Weights) -> bool:
    """Whether a factor is a value less the mean of all: times the weights it is how they change, not how they weigh."""
    match factor.expr:
        case ir.Map("-", (value, ir.Reduce("sum") as mean)):
            return weights.coordinate in value.type.coordinates and weights.coordinate not in mean.type.coordinates
        case _:
            return False


def _is_shared_out(view: View, site: Site, weights: Weights, step: Summed) -> bool:
    """Whether the weights are divided by what they come to over the key, in the product or in a definition that is made
    of it: by their sum, by more than it, by no less than a small number, by their largest."""
    made = [let for let in view.program.lets if let is site.let or site.let.name in view.made_of(let.name)]
    for let in made:
        for part in (part for clause in let.clauses for part in view.parts(clause)):
            if isinstance(part, ir.Map) and part.op == "/" and _totals(view, part.arguments[1], weights):
                return True
    factors = [factor.expr for factor in site.product.factors if step.coordinate not in factor.coordinates]
    return any(_totals(view, factor, weights) for factor in factors)


def _totals(view: View, expr: ir.Expr, weights: Weights) -> bool:
    """Whether an expression reduces the weights over another coordinate than the one that they are normalised over."""
    waiting: list[tuple[ir.Expr, frozenset[Coordinate]]] = [(expr, frozenset())]
    seen = 0
    while waiting and seen < _MOST_PARTS:
        part, bound = waiting.pop()
        seen += 1
        own = {part.coordinate} if isinstance(part, ir.Normalize) else set()
        if part.span == weights.span and bound & part.type.coordinates - own:
            return True
        if isinstance(part, ir.Read) and (found := view.forms.opened(part)) is not None:
            waiting.append((found[0], bound))
            continue
        inside = bound | part.coordinates if isinstance(part, ir.Reduce) else bound
        waiting += [(child, inside) for child in children(part)]
    return False


# So many parts of a divisor are looked at.
_MOST_PARTS = 200


def _is_key(view: View, site: Site, weights: Weights, step: Summed) -> bool:
    """Whether what is summed over is the key: in the scores, one side alone varies with it. Where the scores
    do not tell, it is, unless the values also vary with what is normalised over, and that is gathered later."""
    every = frozenset().union(*(site.product.factors[n].coordinates for n in weights.used))
    for pivot in (weights.coordinate, step.coordinate):
        found = compare(view.forms, weights.basis, pivot, every - {pivot})
        if found:
            sides = [varying(comparison.query_side) for comparison in found]
            others = [varying(comparison.key_side) for comparison in found]
            return any((step.coordinate in a) != (step.coordinate in b) for a, b in zip(sides, others, strict=True))
    kept = any(weights.coordinate in value.coordinates for value in site.values(weights))
    return not kept or not _is_summed_later(view, site, weights)


def _is_summed_later(view: View, site: Site, weights: Weights) -> bool:
    """Whether another definition sums this one over what its weights are normalised over."""
    places = [n for n, slot in enumerate(site.clause.slots) if slot.type.coordinates == {weights.coordinate}]
    for let in view.program.lets:
        for part in (part for clause in let.clauses for part in view.parts(clause)):
            if isinstance(part, ir.Reduce) and part.op == "sum":
                for read in (inner for inner in walk(part.body) if isinstance(inner, ir.Read)):
                    at = [read.indices[n].type.coordinates for n in places] if read.tensor == site.let.name else []
                    if any(coordinates & part.coordinates for coordinates in at):
                        return True
    return False


def _report(view: View, site: Site, weights: Weights, step: Summed) -> Diagnostic:
    name, other = view.shown(step.coordinate), view.shown(weights.coordinate)
    note = f"for each `{other}`, nobody's weights over `{name}` sum to 1: `{site.let.name}` is no average of the values"
    return Diagnostic(
        CODE,
        f"the weights are normalised over `{other}`, and gathered over `{name}`",
        (
            Label(weights.span, f"sums to 1 over `{other}`"),
            Label(step.reduce.span, f"gathers over `{name}`"),
        ),
        (note,),
        f"`{name}` is the key: normalise over it, `softmax[{name}](…)`",
    )
