"""A cotangent's definition, from its terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Constants
from ..ir.types import Coordinate
from ..source import Span
from .products import Product, total
from .terms import Term


def definition(
    name: str, ranges: tuple[ir.Range, ...], terms: Sequence[Term], span: Span, constants: Constants
) -> ir.Let:
    """The sum of the terms, for every point of the ranges. Where all of them have one guard, it is absent elsewhere."""
    order = [range.coordinate for range in ranges]
    slots = tuple(build.coord(coordinate, span) for coordinate in order)
    alike = collected(terms)
    guards = {term.guards for term in alike if not term.ranges}
    shared = guards.pop() if len(guards) == 1 and not any(term.ranges for term in alike) else ()
    written = [_written(term, shared, order, span) for term in alike]
    body = total(sorted(written, key=_is_negative), span)
    assert body is not None
    guard = build.conjunction(shared)
    axes = tuple(ir.Axis(range.coordinate, range.upper) for range in ranges)
    return ir.Let(name, axes, "real", (ir.Clause(slots, ranges, body, guard, span),), False, span)


def _is_negative(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Map) and expr.op == "neg"


def _written(term: Term, shared: tuple[ir.Expr, ...], order: Sequence[Coordinate], span: Span) -> ir.Expr:
    expr = term.expression(span, order)
    condition = build.conjunction(term.guards)
    if term.ranges or term.guards == shared or condition is None:
        return expr
    return build.select(condition, expr, build.whole(0, span), span)


def collected(terms: Sequence[Term]) -> list[Term]:
    """Terms that differ in their number alone, as one."""
    found: list[tuple[object, Term]] = []
    for term in terms:
        parts = (Counter(term.product.factors), Counter(term.product.divisors), term.ranges, term.guards, term.cases)
        for place, (known, other) in enumerate(found):
            if known == parts:
                number = other.product.number + term.product.number
                product = Product(number, other.product.factors, other.product.divisors)
                found[place] = (known, Term(product, term.ranges, term.guards, term.cases))
                break
        else:
            found.append((parts, term))
    return [term for _, term in found if term.product.number] or [Term(Product(Fraction(0)), (), ())]
