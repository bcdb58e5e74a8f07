"""A table of distances that is read forwards in one place and backwards in another."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.context import constants_of
from ...ir.types import NOWHERE, Coordinate
from ...ir.walk import children, parts_in
from ...records import dataclass
from ..attention import Gather, Ungathered
from ..orders import compare
from ..roles import query_of
from ..view import View

CODE = "IX433"

# So many parts of a gather are looked at.
_MOST = 500


@dataclass(frozen=True, slots=True)
class _Use:
    """A read of a table at the distance from the query to the key (1), or from the key to the query (-1). `beside` says
    which of the two what it is multiplied with belongs to, and `order` which may come before which."""

    let: ir.Let
    read: ir.Read
    place: ir.Expr
    axis: int
    way: int
    beside: tuple[bool, bool]
    order: str | None


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    tables: dict[tuple[str, int, tuple[bool, bool]], list[_Use]] = {}
    reads = [part for let in view.program.lets for part in parts_in(let) if isinstance(part, ir.Read)]
    placed = any(len(index.type.coordinates) > 1 for read in reads for index in read.indices)
    for gather in (*view.scored, *view.free) if placed else ():
        asks = query_of(view, gather)
        if len(asks) == 1:
            for use in _uses(view, gather, next(iter(asks))):
                tables.setdefault((use.read.tensor, use.axis, use.beside), []).append(use)
    for uses in tables.values():
        forwards = [use for use in uses if use.way > 0]
        backwards = [use for use in uses if use.way < 0]
        # Each of two directions may have its own side of one table; a table of both is read one way.
        if forwards and backwards and len({use.order for use in uses}) == 1:
            odd, rest = (forwards, backwards) if len(forwards) < len(backwards) else (backwards, forwards)
            yield odd[-1].let, _report(odd[-1], rest[0])


def _uses(view: View, gather: Gather | Ungathered, query: Coordinate) -> Iterator[_Use]:
    """The reads of tables at a distance, in the score of a gather and in its values."""
    key = gather.coordinate
    ranges = [step.range for step in gather.site.product.summed]
    known = view.assume(gather.site.clause, *ranges, *gather.weights.kept)
    span = gather.weights.span
    order = compare(known, build.coord(query, span), build.coord(key, span))
    starts = [factor.expr for factor in gather.values]
    starts += [] if gather.weights.basis is None else [gather.weights.basis]
    waiting = [(expr, expr, NOWHERE) for expr in starts]
    seen = 0
    while waiting and seen < _MOST:
        expr, place, beside = waiting.pop()
        seen += 1
        place = expr if expr.span.source is view.program.source else place
        match expr:
            case ir.Read():
                opened = view.forms.opened(expr)
                if opened is not None:
                    waiting.append((opened[0], place, beside))
                    continue
                for axis, index in enumerate(expr.indices):
                    way = _way(view, index, query, key)
                    if way:
                        sides = (query in beside, key in beside)
                        yield _Use(gather.site.let, expr, place, axis, way, sides, order)
            case ir.Map("*" | "/", (left, right)):
                waiting += [
                    (left, place, beside | right.type.coordinates),
                    (right, place, beside | left.type.coordinates),
                ]
            case ir.Select(condition) if {query, key} <= condition.type.coordinates:
                # Each branch may have a side of its own.
                continue
            case _:
                waiting += [(part, place, beside) for part in children(expr)]


def _way(view: View, index: ir.Expr, query: Coordinate, key: Coordinate) -> int:
    """1 for an index that is counted by `query - key`, -1 for one by `key - query`, 0 for any other, and for one that
    is the same both ways."""
    index = view.forms.written_out(index)
    if not {query, key} <= index.type.coordinates or (isinstance(index, ir.Map) and index.op == "abs"):
        return 0
    value = polynomial(index, constants_of(view.lets))
    ahead, behind = (value.terms.get(frozenset(((c, 1),)), 0) for c in (query, key))
    if ahead and ahead == -behind:
        return 1 if ahead > 0 else -1
    found = {way for part in children(index) if (way := _way(view, part, query, key))}
    sign = -1 if isinstance(index, ir.Map) and index.op == "neg" else 1
    return sign * found.pop() if len(found) == 1 else 0


def _report(odd: _Use, rest: _Use) -> Diagnostic:
    return Diagnostic(
        CODE,
        f"`{odd.read.tensor}` is read at another distance here than elsewhere: from the other end",
        (Label(odd.place.span, "counted one way"), Label(rest.place.span, "counted the other way")),
        ("what was learned for the key before is used for the key after",),
        "take the difference of query and key in the same order in both places",
    )
