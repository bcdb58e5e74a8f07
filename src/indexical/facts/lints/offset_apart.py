"""An offset of the queries that the mask has and their positions have not, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...checker.sizes import show
from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.affine import ONE, Polynomial, expression, of_atom, polynomial
from ...ir.context import constants_of
from ...ir.functions import FUNCTIONS
from ...ir.prove import inequalities
from ...ir.types import Coordinate
from ...ir.walk import children
from ..attention import Gather, Ungathered
from ..roles import query_of
from ..view import View

if TYPE_CHECKING:
    from ..rotations import Side

CODE = "IX417"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.scored:
        asks = query_of(view, gather)
        if len(asks) != 1:
            continue
        (query,) = asks
        masks = _masks(view, gather, query, gather.coordinate)
        if len(masks) == 1:
            ((mask, guard),) = masks.items()
            for found in (*_turned(view, gather, mask, guard), *_counted(view, gather, query, mask, guard)):
                yield gather.site.let, found


def _turned(view: View, gather: Gather | Ungathered, mask: Polynomial, guard: ir.Expr) -> Iterator[Diagnostic]:
    """Rotary positions that are not those of the mask."""
    if not view.turns:
        return
    from ..rotations import sides

    for _, query, key in sides(view, gather):
        ahead, behind = query.offset(view), key.offsets(view)
        for turned in () if ahead is None else [ahead - place for place in behind]:
            if turned.constant is None and mask.constant in (0, -1):
                yield _only_turned(view, query, key, guard, turned)
            elif turned.constant == 0 and (_is_of_sizes(mask) or _is_cache(view, gather, query.at, mask)):
                yield _only_masked(view, query.at, guard, mask, query.factor.expr, "turned")
            elif turned.constant is None and _is_apart(turned, mask):
                yield _apart(view, query, key, guard, turned, mask)
            else:
                continue
            break


def _counted(
    view: View, gather: Gather | Ungathered, query: Coordinate, mask: Polynomial, guard: ir.Expr
) -> Iterator[Diagnostic]:
    """A distance in the score that is not the one of the mask. One that is only multiplied is the same for all keys
    but for a number that the softmax takes away; so it must be inside a function, as in `abs(i - j)`."""
    if not (_is_of_sizes(mask) or _is_cache(view, gather, query, mask)) or gather.weights.score is None:
        return
    distance = of_atom(query) - of_atom(gather.coordinate)
    waiting, seen = [(gather.weights.score, gather.weights.score)], 0
    while waiting and seen < _MOST:
        expr, place = waiting.pop()
        seen += 1
        place = expr if expr.span.source is view.program.source else place
        inside = expr.arguments if isinstance(expr, ir.Map) and expr.op in FUNCTIONS else ()
        if any(polynomial(view.forms.written_out(part)) in (distance, -distance) for part in inside):
            yield _only_masked(view, query, guard, mask, place, "counted")
            return
        opened = view.forms.opened(expr) if isinstance(expr, ir.Read) else None
        waiting += [(part, place) for part in (children(expr) if opened is None else opened[:1])]


# So many parts of a score are looked at.
_MOST = 500


def _masks(
    view: View, gather: Gather | Ungathered, query: Coordinate, key: Coordinate
) -> dict[Polynomial, ir.Expr]:
    """Every `n` of the conditions `key <= query + n` on who is heard, and where it stands."""
    found: dict[Polynomial, ir.Expr] = {}
    for guard in gather.weights.kept:
        for fact in view.forms.algebra.conditions(guard).values():
            for row in inequalities(view.in_full(fact), constants_of(view.lets)) or ():
                rest = row - of_atom(query) + of_atom(key)
                if not any(isinstance(atom, Coordinate) or atom.type.coordinates for atom in rest.atoms):
                    found.setdefault(rest, guard)
    return found


def _is_of_sizes(offset: Polynomial) -> bool:
    """Whether an offset is one size less another, as that of a cache is: any other may be a view of the future."""
    sizes = [term for term in offset.terms if term != ONE]
    whole = all(isinstance(atom, ir.Size) and power == 1 for term in sizes for atom, power in term)
    return whole and sorted(offset.terms[term] for term in sizes) == [-1, 1] and offset.terms.get(ONE, 0) in (0, -1)


def _is_cache(view: View, gather: Gather | Ungathered, query: Coordinate, offset: Polynomial) -> bool:
    """Whether an offset is by how many keys there are more than queries."""
    constants = constants_of(view.lets)
    ranges = [*gather.site.clause.ranges, *(step.range for step in gather.site.product.summed)]
    found = {range.coordinate: polynomial(range.upper, constants) for range in ranges}
    if query not in found or gather.coordinate not in found or offset.constant is not None:
        return False
    return (found[gather.coordinate] - found[query] - offset).constant in (0, 1)


def _is_apart(turned: Polynomial, mask: Polynomial) -> bool:
    """Whether two offsets are of sizes alone, and differ by one."""
    apart = turned - mask
    return apart.constant is None and all(isinstance(a, ir.Size) for a in (*turned.atoms, *mask.atoms))


def _apart(
    view: View, query: Side, key: Side, guard: ir.Expr, turned: Polynomial, mask: Polynomial
) -> Diagnostic:
    asks, answers = view.shown(query.at), view.shown(key.at)
    ahead, heard = (show(expression(offset, guard.span)) for offset in (turned, mask))
    return Diagnostic(
        CODE,
        f"`{asks}` is masked as if it stood {heard} further on than `{answers}`, and turned as if by {ahead}",
        (Label(guard.span, "masked here"), Label(key.factor.expr.span, "turned here")),
        ("the distance to each key is wrong by that number",),
        "count queries and keys from the same place: what follows a cache is turned from behind it",
    )


def _only_turned(view: View, query: Side, key: Side, guard: ir.Expr, turned: Polynomial) -> Diagnostic:
    asks, answers = view.shown(query.at), view.shown(key.at)
    ahead = show(expression(turned, guard.span))
    return Diagnostic(
        CODE,
        f"`{asks}` is turned as if it stood {ahead} further on, and masked as if it did not",
        (Label(guard.span, f"`{asks}` stands at `{asks}`"), Label(query.factor.expr.span, "turned here")),
        (f"the `{answers}` that stand before it, and after `{asks}`, are not heard",),
        "count from the same place in both: the offset belongs in the guard too",
    )


def _only_masked(
    view: View, query: Coordinate, guard: ir.Expr, mask: Polynomial, place: ir.Expr, how: str
) -> Diagnostic:
    asks = view.shown(query)
    ahead = show(expression(mask, guard.span))
    return Diagnostic(
        CODE,
        f"`{asks}` is masked as if it stood {ahead} further on, and {how} as if it did not",
        (Label(place.span, f"{how} as `{asks}`"), Label(guard.span, "masked here")),
        ("the distance to each key is wrong by that number",),
        "count from the same place in both: the offset belongs to the position of the query too",
    )
