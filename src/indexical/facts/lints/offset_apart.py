"""An offset of the queries that the mask has and their positions have not, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...checker.sizes import show
from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.affine import Polynomial, expression, of_atom
from ...ir.context import constants_of
from ...ir.prove import inequalities
from ...ir.types import Coordinate
from ..attention import Gather, Ungathered
from ..view import View

if TYPE_CHECKING:
    from ..rotations import Side

CODE = "IX417"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    if not view.turns:
        return
    from ..rotations import sides

    for gather in view.scored:
        for _, query, key in sides(view, gather):
            ahead, behind = query.offset(view), key.offset(view)
            masks = _masks(view, gather, query.at, key.at)
            if ahead is None or behind is None or len(masks) != 1:
                continue
            ((mask, guard),) = masks.items()
            turned = ahead - behind
            if turned.constant is None and mask.constant in (0, -1):
                yield gather.site.let, _only_turned(view, query, key, guard, turned)
            elif turned.constant == 0 and _is_of_sizes(mask):
                yield gather.site.let, _only_masked(view, query, guard, mask)


def _masks(
    view: View, gather: Gather | Ungathered, query: Coordinate, key: Coordinate
) -> dict[Polynomial, ir.Expr]:
    """Every `n` of the conditions `key <= query + n` on who is heard, and where it stands."""
    found: dict[Polynomial, ir.Expr] = {}
    for guard in gather.weights.kept:
        for fact in view.forms.algebra.conditions(guard).values():
            for row in inequalities(fact, constants_of(view.lets)) or ():
                rest = row - of_atom(query) + of_atom(key)
                if not any(isinstance(atom, Coordinate) or atom.type.coordinates for atom in rest.atoms):
                    found.setdefault(rest, guard)
    return found


def _is_of_sizes(offset: Polynomial) -> bool:
    """Whether an offset is counted from sizes, as that of a cache is: what is given may be a view of the future."""
    return offset.constant is None and all(isinstance(atom, ir.Size) for atom in offset.atoms)


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


def _only_masked(view: View, query: Side, guard: ir.Expr, mask: Polynomial) -> Diagnostic:
    asks = view.shown(query.at)
    ahead = show(expression(mask, guard.span))
    return Diagnostic(
        CODE,
        f"`{asks}` is masked as if it stood {ahead} further on, and turned as if it did not",
        (Label(query.factor.expr.span, f"turned as `{asks}`"), Label(guard.span, "masked here")),
        ("the turn counts the distance to each key wrongly, by the same number",),
        "count from the same place in both: the offset belongs in the positions of the queries too",
    )
