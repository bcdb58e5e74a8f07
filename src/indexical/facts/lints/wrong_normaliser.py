"""A normaliser over one coordinate and a gather over another: nobody's weights sum to 1."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.algebra.factors import Factor, Summed, varying
from ...ir.algebra.predicates import is_exponential
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
    wanted = _leaves(view, *(site.product.factors[number].expr for number in weights.used))
    later = [let for let in view.program.lets if let is not site.let and site.let.name in view.made_of(let.name)]
    parts = [part for let in (site.let, *later) for clause in let.clauses for part in view.parts(clause)]
    divisors = [part.arguments[1] for part in parts if isinstance(part, ir.Map) and part.op == "/"]
    divisors += [factor.expr for factor in site.product.factors]
    return any(
        step.coordinate not in divisor.type.coordinates and _totals(view, divisor, wanted)
        for divisor in divisors
    )


def _totals(view: View, expr: ir.Expr, wanted: set[str]) -> bool:
    """Whether an expression reduces the weights, and them alone, to a number for each of its points: what is left does
    not vary with more than they do, nor with what the expression sums itself, as what they were divided by does."""
    for part in _parts(view, expr):
        if isinstance(part, ir.Reduce) and part.type.coordinates and part.type.coordinates <= expr.type.coordinates:
            raised = [inner.type.coordinates for inner in _parts(view, part.body) if is_exponential(inner)]
            weights = frozenset().union(*raised)
            if weights & part.coordinates and part.type.coordinates <= weights and _leaves(view, part.body) == wanted:
                return True
    return False


def _leaves(view: View, *exprs: ir.Expr) -> set[str]:
    """The tensors with axes that expressions are made of, as far as definitions can be written out."""
    reads = (part for expr in exprs for part in _parts(view, expr) if isinstance(part, ir.Read) and part.indices)
    return {read.tensor for read in reads if view.forms.opened(read) is None}


def _parts(view: View, expr: ir.Expr) -> Iterator[ir.Expr]:
    """An expression and what it is made of, through the definitions that can be written out."""
    waiting, seen = [expr], 0
    while waiting and seen < _MOST_PARTS:
        part = waiting.pop()
        seen += 1
        yield part
        opened = view.forms.opened(part) if isinstance(part, ir.Read) else None
        waiting += children(part) if opened is None else [opened[0]]


# So many parts of a divisor are looked at.
_MOST_PARTS = 400


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
