"""A bias that is added to weights, after they were normalised."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.algebra.factors import Factor, factors_of, varying
from ...ir.algebra.predicates import is_exponential
from ...ir.types import Coordinate
from ...ir.walk import walk
from ...records import replace
from ..attention import as_condition
from ..view import View
from ..weights import Weights, added, find_weights, is_addition, may_contain_weights

CODE = "IX434"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    found: list[tuple[ir.Let, Weights, ir.Expr]] = []
    # What is summed alone is a total, to divide by: the weights are normalised again.
    again = set()
    for let in view.program.lets:
        for clause in let.clauses:
            for part in walk(clause.body):
                if isinstance(part, ir.Reduce) and part.op == "sum" and part.type.kind == "real":
                    for weights, bias, alone in _added(view, clause, part):
                        if alone:
                            again.add(weights.span)
                        found.append((let, weights, bias))
    for let, weights, bias in found:
        if weights.span not in again:
            yield let, _report(view, weights, bias)


def _added(view: View, clause: ir.Clause, total: ir.Reduce) -> Iterator[tuple[Weights, ir.Expr, bool]]:
    """The weights that a sum gathers with after something was added to them that varies along the keys; or that it
    sums up alone."""
    factors = _factors(view, view.forms.written_out(total.body))
    for factor in factors:
        terms = [] if factor.inverse else added(factor.expr)
        if len(terms) < 2:
            continue
        shares = {n: share for n, term in enumerate(terms) if (share := _weights(view, clause, total, term))}
        biases = [term for n, term in enumerate(terms) if shares and n not in shares and _is_bias(view, term)]
        alone = not any(other is not factor and other.coordinates & total.coordinates for other in factors)
        for weights in shares.values():
            for bias in biases:
                if weights.coordinate in bias.type.coordinates:
                    yield weights, bias, alone
                    return


def _factors(view: View, expr: ir.Expr) -> list[Factor]:
    """The factors of a product, those that add something up written out."""
    result = []
    for factor in factors_of(expr):
        opened = view.forms.written_out(factor.expr)
        inner = factors_of(opened)
        if any(is_addition(part.expr) for part in inner):
            result += [replace(part, inverse=part.inverse != factor.inverse) for part in inner]
        else:
            result.append(factor)
    return result


def _weights(view: View, clause: ir.Clause, total: ir.Reduce, term: ir.Expr) -> Weights | None:
    """The weights that a term is, and is alone: over what is summed, and of their own for each who asks."""
    if not term.type.coordinates & total.coordinates or not _may_be_weights(view, term):
        return None
    taken: list[Coordinate] = [range.coordinate for range in (*clause.ranges, *total.ranges)]
    product = view.forms.expand(term, taken, lambda read: may_contain_weights(view.forms, read.tensor))
    for weights in find_weights(view.forms, product, (*clause.ranges, *total.ranges)):
        used = [product.factors[n] for n in weights.used]
        alone = len(used) == len(product.factors) and not product.summed
        if alone and weights.coordinate in total.coordinates and varying(used) - {weights.coordinate}:
            return weights
    return None


def _may_be_weights(view: View, term: ir.Expr) -> bool:
    return not isinstance(term, ir.Read) or may_contain_weights(view.forms, term.tensor)


def _is_bias(view: View, term: ir.Expr) -> bool:
    """Whether a term that is added is no condition, and nothing that was normalised, or is exponentiated."""
    if as_condition(view.forms, Factor(term)) is not None:
        return False
    waiting, seen = [term], 0
    while waiting and seen < _MOST:
        for part in walk(waiting.pop()):
            seen += 1
            if is_exponential(part) or isinstance(part, ir.Normalize):
                return False
            if isinstance(part, ir.Read) and (opened := view.forms.opened(part)) is not None:
                waiting.append(opened[0])
    return seen < _MOST


# So many parts of a term are looked at.
_MOST = 300


def _report(view: View, weights: Weights, bias: ir.Expr) -> Diagnostic:
    name = view.shown(weights.coordinate)
    return Diagnostic(
        CODE,
        f"this is added to weights that were normalised over `{name}`",
        (Label(bias.span, "added here"), Label(weights.span, "normalised before")),
        (f"the weights no longer sum to 1 over `{name}`, and some may be negative",),
        f"add it to the score: `softmax[{name}](… + {bias.span.text})`",
    )
