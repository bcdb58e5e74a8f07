"""Orders along positions: whether one coordinate never comes after another, and by how much it may come before it."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Atom, polynomial
from ..ir.domain import Domain
from ..ir.prove import Assumptions
from ..ir.types import Coordinate
from ..records import dataclass
from ..source import Span
from .wording import size_words

CAUSAL, ANTI_CAUSAL, OWN = "causal", "anti-causal", "own"


@dataclass(frozen=True, slots=True)
class Order:
    """`causal` where only positions up to its own are reached, `anti-causal` where only those from its own on are,
    `own` where it is its own alone; None where nothing of that kind is proved. `within` so many of them."""

    verdict: str | None
    within: str | None = None


def compare(known: Assumptions | Domain, here: ir.Expr, there: ir.Expr) -> str | None:
    """The order of one position and another, wherever these assumptions hold, or at every point of a domain."""
    before = known.proves(build.apply("<=", (there, here), "bool", there.span))
    after = known.proves(build.apply(">=", (there, here), "bool", there.span))
    return OWN if before and after else CAUSAL if before else ANTI_CAUSAL if after else None


def both(one: str | None, other: str | None) -> str | None:
    """The order that holds of both, where one does."""
    if OWN in (one, other):
        return other if one == OWN else one
    return one if one == other else None


def place_on(axis: ir.Axis | None, coordinate: Coordinate, span: Span) -> ir.Expr:
    """The position of a point on an axis, as the text counts it: an axis may begin above 0."""
    place = build.coord(coordinate, span)
    return place if axis is None or axis.origin is None else build.apply("+", (place, axis.origin), "whole", span)


def order(known: Assumptions, here: ir.Expr, there: ir.Expr) -> Order:
    """As `compare`, with how many positions are reached at most, where a guard says so."""
    verdict = compare(known, here, there)
    if verdict not in (CAUSAL, ANTI_CAUSAL):
        return Order(None)
    distance = polynomial(here) - polynomial(there)
    for row in known.known:
        width = row + (distance if verdict == CAUSAL else -distance) + 1
        both = here.type.coordinates | there.type.coordinates
        if row.atoms >= both and not any(_varies(atom) for atom in width.atoms):
            return Order(verdict, size_words(width))
    return Order(verdict)


def _varies(atom: Atom) -> bool:
    return isinstance(atom, Coordinate) or bool(atom.type.coordinates)
