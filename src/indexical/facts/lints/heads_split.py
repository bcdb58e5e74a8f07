"""Heads split one way on one side and another on the other, or packed in another order than split."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.affine import Polynomial, polynomial
from ...ir.algebra.factors import Factor
from ...ir.context import constants_of
from ...ir.types import Coordinate
from ...ir.walk import walk
from ..view import View

CODE = "IX407"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.scored:
        for comparison in view.comparisons(gather):
            for compared in sorted(comparison.compared, key=str):
                query_side = _splits(view, comparison.query_side, compared)
                key_side = _splits(view, comparison.key_side, compared)
                for mine in query_side:
                    for other in key_side:
                        if mine[0] != other[0]:
                            yield gather.site.let, _report(mine[1], other[1])
            keys = _orders(view, comparison.key_side, gather.weight_coordinates)
            for value, slower in _orders(view, tuple(gather.values), gather.weight_coordinates):
                for key, other_slower in keys:
                    if slower != other_slower:
                        yield gather.site.let, _report(value, key)
    yield from _packs(view)


Split = tuple[Polynomial, ir.Expr]


def _splits(view: View, factors: tuple[Factor, ...], compared: Coordinate) -> list[Split]:
    """The indices in which a compared coordinate stands together with another one."""
    return [
        (_varying(polynomial(index, constants_of(view.lets))), index)
        for factor in factors
        if isinstance(factor.expr, ir.Read)
        for index in view.forms.seen_through(factor.expr).indices
        if compared in index.type.coordinates and len(index.type.coordinates) == 2
    ]


def _varying(index: Polynomial) -> Polynomial:
    """An index without the terms that no coordinate stands in: an offset moves all heads alike."""
    terms = {m: f for m, f in index.terms.items() if any(isinstance(atom, Coordinate) for atom, _ in m)}
    return Polynomial(terms)


def _report(mine: ir.Expr, other: ir.Expr) -> Diagnostic:
    return Diagnostic(
        CODE,
        f"the features are split as `{mine.span.text}` on one side and as `{other.span.text}` on the other",
        (Label(mine.span), Label(other.span)),
        ("feature by feature, these are different ones: each head compares its own with another head's",),
        "split both the same way",
    )


# ---------------------------------------------------------------------- packing


def _packs(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    """`Y[m / D, m % D]` undoes `X[h * D + d]`; `Y[m % H, m / H]` undoes `X[d * H + h]`."""
    split = _order_of_splits(view)
    if split is None:
        return
    head_first, place = split
    for let in view.program.lets:
        for clause in let.clauses:
            for read, packed_head_first in _packed(view, clause.body):
                if packed_head_first != head_first:
                    yield (
                        let,
                        Diagnostic(
                            CODE,
                            f"`{read.span.text}` packs the heads in another order than they were split",
                            (Label(read.span, "packed here"), Label(place.span, "split here")),
                            ("what was one head's features is now spread over all of them",),
                            "pack as the inverse of the split: `Y[m / D, m % D]` undoes `X[h * D + d]`",
                        ),
                    )


def _order_of_splits(view: View) -> tuple[bool, ir.Expr] | None:
    """Whether the carried features are split with the head as the slower coordinate, and where; None if nowhere."""
    for gather in view.gathers:
        for factor in gather.values:
            if isinstance(factor.expr, ir.Read):
                for index in view.forms.seen_through(factor.expr).indices:
                    order = _slower(index, gather.weight_coordinates)
                    if order is not None:
                        return order, index
    return None


def _orders(view: View, factors: tuple[Factor, ...], heads: frozenset[Coordinate]) -> list[tuple[ir.Expr, bool]]:
    """The indices that split a head off, and whether the head is the slower coordinate in them."""
    reads = [view.forms.seen_through(factor.expr) for factor in factors if isinstance(factor.expr, ir.Read)]
    found = [(index, _slower(index, heads)) for read in reads for index in read.indices]
    return [(index, slower) for index, slower in found if slower is not None]


def _slower(index: ir.Expr, heads: frozenset[Coordinate]) -> bool | None:
    """Whether, in an index of a head and a feature, the head is the one that is multiplied."""
    if len(index.type.coordinates) != 2:
        return None
    terms = polynomial(index).terms
    plain = [c for c in index.type.coordinates if terms.get(frozenset(((c, 1),))) == 1]
    head = [c for c in index.type.coordinates if c in heads]
    if len(plain) != 1 or len(head) != 1:
        return None
    return plain[0] != head[0]


def _packed(view: View, body: ir.Expr) -> Iterator[tuple[ir.Read, bool]]:
    """Reads of a gather's result at `m / D` and `m % D`, and whether the head is the quotient."""
    for part in (part for part in walk(body) if isinstance(part, ir.Read)):
        read = view.forms.seen_through(part)
        let = view.lets.get(read.tensor)
        if let is None:
            continue
        quotient = [n for n, index in enumerate(read.indices) if isinstance(index, ir.Map) and index.op == "//"]
        remainder = [n for n, index in enumerate(read.indices) if isinstance(index, ir.Map) and index.op == "%"]
        if len(quotient) != 1 or len(remainder) != 1:
            continue
        for gather in view.gathers:
            if gather.name != read.tensor:
                continue
            slots = gather.site.clause.slots
            heads = {
                n
                for n, slot in enumerate(slots)
                if isinstance(slot, ir.Coord) and slot.coordinate in gather.weight_coordinates
            }
            if quotient[0] in heads and remainder[0] not in heads:
                yield part, True
            elif remainder[0] in heads and quotient[0] not in heads:
                yield part, False
