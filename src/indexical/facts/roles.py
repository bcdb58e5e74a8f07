"""Roles: who asks, who answers, what is compared, what is carried, which heads, which batch.

They follow from what is done with a coordinate, never from its name or from where it stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..checker.context import look_through
from ..ir import nodes as ir
from ..ir.prove import conjuncts
from ..ir.types import Coordinate
from ..ir.walk import walk
from .attention import Comparison, Gather
from .products import Factor
from .view import View
from .wording import relation


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles in one gather. `shared` coordinates keep apart what nothing tells to be heads or examples."""

    definition: str
    query: tuple[str, ...]
    key: tuple[str, ...]
    compare: tuple[str, ...]
    carry: tuple[str, ...]
    head: tuple[str, ...]
    batch: tuple[str, ...]
    shared: tuple[str, ...]
    # The relation between query and key that lets one hear the other; None where everybody hears everybody.
    hears: str | None
    # Every name that a coordinate of this role goes by in the definitions that take part.
    names: dict[str, frozenset[str]] = field(compare=False, repr=False, hash=False)

    def of(self, role: str) -> tuple[str, ...]:
        return getattr(self, role)  # type: ignore[no-any-return]


ROLES = ("query", "key", "compare", "carry", "head", "batch")


def roles(view: View, gather: Gather) -> Roles:
    """The roles of the coordinates in a gather."""
    found = view.comparisons(gather)
    weights = gather.weight_coordinates
    query = query_of(view, gather)
    kept = weights - query
    head = {c for c in kept if _is_head(view, gather, found, c)}
    batch = {c for c in kept - head if head or _said(view, gather, found, c) == "batch"}
    carry = _carried(gather, weights)
    compare = frozenset().union(*(comparison.compared for comparison in found))
    parts = {
        "query": query,
        "key": frozenset((gather.key.coordinate,)),
        "compare": compare,
        "carry": carry,
        "head": frozenset(head),
        "batch": frozenset(batch),
        "shared": kept - head - batch,
    }
    shown = {role: tuple(sorted(view.shown(c) for c in coordinates)) for role, coordinates in parts.items()}
    names = {role: _names(view, gather, found, coordinates) for role, coordinates in parts.items()}
    meaning = look_through(view.lets)
    facts = [fact for guard in gather.weights.kept for fact in conjuncts(guard, True, meaning)]
    hears = " and ".join(dict.fromkeys(relation(fact) for fact in facts)) or None
    return Roles(gather.name, **shown, hears=hears, names=names)


def query_of(view: View, gather: Gather) -> frozenset[Coordinate]:
    """Who asks: what the asking side of the scores varies with, and the answering side does not."""
    found = view.comparisons(gather)
    asking = _together(f for comparison in found for f in comparison.asking)
    answering = _together(f for comparison in found for f in comparison.answering)
    query = gather.weight_coordinates & (asking - answering) if found else gather.asks
    # Several may ask at once: what is said to be a head or a batch is that.
    return frozenset(c for c in query if _said(view, gather, found, c) is None) or query


def _together(factors: Iterable[Factor]) -> frozenset[Coordinate]:
    return frozenset().union(*(factor.coordinates for factor in factors))


_SPACES = {"head": "head", "heads": "head", "batch": "batch", "batches": "batch", "example": "batch"}


def _is_head(view: View, gather: Gather, found: list[Comparison], coordinate: Coordinate) -> bool:
    """A head is said to be one, or has parameters of its own, or is split off a feature, or is mixed."""
    said = _said(view, gather, found, coordinate)
    if said is not None:
        return said == "head"
    if coordinate in gather.site.product.bound:
        return True
    positions = gather.weight_coordinates - {coordinate} | {gather.key.coordinate}
    for read in _leaves(view, gather, found):
        if coordinate not in read.type.coordinates:
            continue
        if any(coordinate in i.type.coordinates and not isinstance(i, ir.Coord) for i in read.indices):
            return True
        if not positions & read.type.coordinates:
            return True
    return False


def _said(view: View, gather: Gather, found: list[Comparison], coordinate: Coordinate) -> str | None:
    """Head or batch, where the program says so: by a contract, or by the name of the space."""
    if coordinate.space in _SPACES:
        return _SPACES[coordinate.space]
    claims = [claim for contract in view.program.contracts for claim in contract.roles if claim[0] in ("head", "batch")]
    names = _names(view, gather, found, frozenset((coordinate,))) if claims else frozenset()
    return next((role for role, name in claims if name in names), None)


def _leaves(view: View, gather: Gather, found: list[Comparison]) -> list[ir.Read]:
    """The inputs that both sides of the comparison and the values are made of, at this gather's coordinates."""
    sides = [f for comparison in found for f in (*comparison.asking, *comparison.answering)]
    result: list[ir.Read] = []
    waiting: list[ir.Expr] = [factor.expr for factor in (*sides, *gather.values)]
    while waiting and len(result) < 200:
        for part in walk(waiting.pop()):
            if isinstance(part, ir.Read):
                opened = view.forms.opened(part)
                if opened is None:
                    result.append(part)
                else:
                    waiting.append(opened[0])
    return result


def _carried(gather: Gather, weights: frozenset[Coordinate]) -> frozenset[Coordinate]:
    """What comes home with the values: the coordinates that they bring and the weights do not have."""
    home = {slot.coordinate for slot in gather.site.clause.slots if isinstance(slot, ir.Coord)}
    own = _together(f for f in gather.values if gather.key.coordinate in f.coordinates)
    own = own - weights - {gather.key.coordinate}
    brought = _together(gather.values) - weights - {gather.key.coordinate}
    mixed = weights & gather.site.product.bound
    return own & home or (own if mixed else brought & home) or own


def _names(view: View, gather: Gather, found: list[Comparison], coordinates: frozenset[Coordinate]) -> frozenset[str]:
    """The names of some coordinates, here and in the homes of what is read at them: of the program's own
    definitions and inputs, not of what a function brought along."""
    slots = {c for slot in gather.site.clause.slots for c in slot.type.coordinates}
    names = {view.shown(c) for c in coordinates if not gather.site.let.hidden or c not in slots}
    names |= _outside(view, gather, coordinates)
    factors = [f for comparison in found for f in (*comparison.asking, *comparison.answering)]
    reads = [part for f in (*factors, *gather.values) for part in walk(f.expr) if isinstance(part, ir.Read)]
    for read in (*reads, *_leaves(view, gather, found)):
        tensor = view.program.tensors[read.tensor]
        if isinstance(tensor, ir.Let) and tensor.hidden:
            continue
        for axis, index in zip(tensor.axes, read.indices, strict=True):
            if isinstance(index, ir.Coord) and index.coordinate in coordinates:
                names.add(axis.coordinate.name)
    if gather.weights.normalizer is not None and gather.key.coordinate in coordinates:
        names |= _written(view, gather.weights.normalizer)
    return frozenset(names)


def _outside(view: View, gather: Gather, coordinates: frozenset[Coordinate]) -> set[str]:
    """What coordinates of a gather are called in the definitions that contracts speak of."""
    names: set[str] = set()
    for contract in view.program.contracts:
        for indices in view.read_as(view.lets[contract.name], gather.site.let):
            for slot, index in zip(gather.site.clause.slots, indices, strict=True):
                if slot.type.coordinates <= coordinates and slot.type.coordinates and isinstance(index, ir.Coord):
                    names.add(view.shown(index.coordinate))
    return names


def _written(view: View, normalizer: ir.Normalize) -> set[str]:
    """The names a normaliser's coordinate has in the text."""
    for let in view.program.lets:
        for clause in let.clauses:
            for part in walk(clause.body):
                if isinstance(part, ir.Normalize) and part.span == normalizer.span and not let.hidden:
                    return {view.shown(part.coordinate)}
    return set()
