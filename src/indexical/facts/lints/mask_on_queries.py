"""A mask of padding on who asks, where it is meant for who answers: padding is heard."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...ir.walk import walk
from ..attention import Gather, Ungathered
from ..masks import CONTENT, PADDING, looked_up, masked, of_weights, words_in
from ..orders import CAUSAL, compare
from ..roles import query_of, spaces_of
from ..view import View

CODE = "IX432"

# In any sense: on queries alone, all of these are as wrong.
_MASKS = PADDING | CONTENT | {"mask", "masks"}

# A tensor, and its axis along which it masks.
_Mask = tuple[str, int]


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    uses = [(gather, query_of(view, gather)) for gather in masked(view)]
    keys = {mask for gather, _ in uses for mask, _ in _masks(view, gather, gather.coordinate)}
    for gather, asks in uses:
        if len(asks) != 1:
            continue
        (query,) = asks
        for mask, guard in _masks(view, gather, query):
            said = mask in keys or bool(set(words_in(mask[0])) & _MASKS)
            if said and _is_for_keys(view, gather, query, mask):
                yield gather.site.let, _report(view, gather, query, guard)
                break


def _masks(view: View, gather: Gather | Ungathered, at: Coordinate) -> Iterator[tuple[_Mask, ir.Expr]]:
    """The inputs that are looked up at one coordinate of a gather alone, to tell whether it takes part."""
    others = gather.weight_coordinates | {gather.coordinate}
    for literal, _, guard in of_weights(view, gather):
        for read, axis in looked_up(view, literal, at):
            if not (others - {at}) & read.type.coordinates & (query_of(view, gather) | {gather.coordinate}):
                yield (read.tensor, axis), guard


def _is_for_keys(view: View, gather: Gather | Ungathered, query: Coordinate, mask: _Mask) -> bool:
    """Whether a mask on queries is one of the keys too, and nothing asks for it there. Behind a causal mask nobody who
    takes part hears padding that comes last."""
    key, (tensor, axis) = gather.coordinate, mask
    if view.space_of(tensor, axis) not in set(spaces_of(view, gather, frozenset((key,)))):
        return False
    ranges = [step.range for step in gather.site.product.summed]
    known = view.assume(gather.site.clause, *ranges, *gather.weights.kept)
    span = gather.weights.span
    if compare(known, build.coord(query, span), build.coord(key, span)) == CAUSAL:
        return False
    product = gather.site.product
    waiting = [*gather.weights.kept, *(c.expr for c in product.conditions), *(f.expr for f in product.factors)]
    waiting += [] if gather.weights.basis is None else [gather.weights.basis]
    seen = 0
    while waiting and seen < _MOST:
        for part in walk(waiting.pop()):
            seen += 1
            if isinstance(part, ir.Read):
                if part.tensor == tensor and key in part.type.coordinates:
                    return False
                opened = view.forms.opened(part)
                waiting += [] if opened is None else [part for part in opened if part is not None]
    return seen < _MOST


# So many parts of a gather are looked at.
_MOST = 500


def _report(view: View, gather: Gather | Ungathered, query: Coordinate, guard: ir.Expr) -> Diagnostic:
    asks, answers = view.shown(query), view.shown(gather.coordinate)
    return Diagnostic(
        CODE,
        f"this mask is asked at `{asks}`, who asks, and not at `{answers}`, who answers",
        (Label(guard.span, f"leaves out some `{asks}`"), Label(gather.weights.span, f"hears every `{answers}`")),
        (f"padding among the `{answers}` is heard by all who ask",),
        f"ask it at the key: read the mask at `{answers}`",
    )
