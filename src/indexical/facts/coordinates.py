"""The coordinate story of a definition: what survives, is consumed, normalised, missing, rebound."""

from __future__ import annotations

import re

from ..ir import nodes as ir
from ..ir.context import look_through
from ..ir.prove import conjuncts
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import reads_of, walk
from ..records import dataclass
from .directions import Direction, directions
from .positions import Positions
from .scans import Reading, readings
from .view import View
from .wording import all_of, plain


@dataclass(frozen=True, slots=True)
class Normalised:
    """A coordinate that a normaliser runs over, separately for every point of the others."""

    coordinate: str
    by: str
    separately: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The definition sums to 1 over a coordinate: exactly, or where its guard keeps a point."""

    over: str
    always: bool


@dataclass(frozen=True, slots=True)
class Story:
    """The facts about one definition."""

    name: str
    hidden: bool
    kind: str
    survives: tuple[str, ...]
    consumed: tuple[tuple[str, str], ...]
    normalised: tuple[Normalised, ...]
    missing: tuple[tuple[str, tuple[str, ...]], ...]
    rebound: tuple[tuple[str, str, str], ...]
    independent: tuple[str, ...]
    stepped: tuple[str, ...]
    observed: tuple[str, ...]
    guard: tuple[str, ...]
    distribution: tuple[Distribution, ...]
    scans: tuple[Reading, ...]
    directions: tuple[Direction, ...] = ()
    # Coordinates that begin elsewhere than at 0, and where.
    begins: tuple[tuple[str, str], ...] = ()


def story(view: View, let: ir.Let, positions: Positions) -> Story:
    """Everything that is known of a definition without running it."""
    survives = tuple(str(axis.coordinate) for axis in let.axes)
    parts = [part for clause in let.clauses for expr in _expressions(clause) for part in walk(expr)]
    normalised = tuple(dict.fromkeys(_normalised(part, let) for part in parts if isinstance(part, ir.Normalize)))
    stepped = _stepped(view, let)
    coupled = {entry.coordinate for entry in normalised} | set(stepped)
    together = _together(view, let)
    if together is not None:
        weights, several = together
        others = [c for c in let.clauses[0].ranges if c.coordinate in weights.type.coordinates - set(several)]
        names = tuple(str(range.coordinate) for range in others)
        normalised += (Normalised(", ".join(several), _normaliser(view, weights).op, names),)
        coupled |= set(several)
    group = view.dependence.group(let.name)
    coupled |= view.dependence.mixed(group) if group else set()
    return Story(
        let.name,
        let.hidden,
        let.kind,
        survives,
        tuple(dict.fromkeys((str(r.coordinate), p.op) for p in parts if isinstance(p, ir.Reduce) for r in p.ranges)),
        normalised,
        _missing(let),
        _rebound(view, parts),
        tuple(name for name in survives if name not in coupled),
        stepped,
        survives if let.name in view.program.outputs else (),
        tuple(dict.fromkeys(_guards(view, let, parts))),
        _distributions(view, let),
        readings(view, let),
        directions(view, positions, let),
        tuple((str(axis.coordinate), shown(axis.origin)) for axis in let.axes if axis.origin is not None),
    )


def _expressions(clause: ir.Clause) -> list[ir.Expr]:
    return [clause.body] if clause.guard is None else [clause.guard, clause.body]


def _normalised(part: ir.Normalize, let: ir.Let) -> Normalised:
    homes = [axis.coordinate for axis in let.axes]
    others = [str(c) for c in homes if c != part.coordinate and c in part.type.coordinates]
    return Normalised(str(part.coordinate), part.op, tuple(others))


def _together(view: View, let: ir.Let) -> tuple[ir.Read, list[Coordinate]] | None:
    """The coordinates over which a definition is normalised together, and the weights that it reads."""
    body = let.clauses[0].body
    if len(let.clauses) > 1 or not isinstance(body, ir.Read) or body.tensor not in view.lets:
        return None
    if not view.lets[body.tensor].hidden:
        return None
    from ..ir.joins import normalised_together

    return normalised_together(let.clauses[0], view.lets)


def _normaliser(view: View, weights: ir.Read) -> ir.Normalize:
    body = view.lets[weights.tensor].clauses[0].body
    assert isinstance(body, ir.Normalize)
    return body


def _stepped(view: View, let: ir.Let) -> tuple[str, ...]:
    """The coordinates along which a recurrence goes step by step."""
    found = []
    waiting = list(view.program.order)
    while waiting:
        order = waiting.pop()
        if isinstance(order, ir.Stepwise):
            found += [str(let.axes[axis].coordinate) for name, axis in order.axes if name == let.name]
            waiting += order.body
    return tuple(found)


def _missing(let: ir.Let) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The operands that do not mention a coordinate that stands on the left, and so are broadcast over it."""
    result: dict[str, tuple[str, ...]] = {}
    for clause in let.clauses:
        home = [slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord)]
        for part in walk(clause.body):
            if isinstance(part, ir.Read) and part.indices:
                missing = tuple(str(c) for c in home if c not in part.type.coordinates)
                if missing:
                    # In a scan, `x[i]` is read at other points than `i`.
                    moved = not set(missing).isdisjoint(re.findall(r"\w+", part.span.text))
                    result[shown(part) if moved else part.span.text] = missing
    return tuple(result.items())


def is_figures(tensor: ir.Input | ir.Let) -> bool:
    """Whether this is only where the figures of another definition stand."""
    if not isinstance(tensor, ir.Let) or not tensor.hidden:
        return False
    if isinstance(tensor.clauses[0].body, ir.Array):
        return True
    return bool(tensor.axes) and not any(clause.ranges for clause in tensor.clauses) and not reads_of(tensor)


def _rebound(view: View, parts: list[ir.Expr]) -> tuple[tuple[str, str, str], ...]:
    """Reads at another coordinate than the tensor was declared with."""
    found: dict[tuple[str, str, str], None] = {}
    for part in parts:
        if isinstance(part, ir.Read) and not is_figures(view.program.tensors[part.tensor]):
            for axis, index in zip(view.program.tensors[part.tensor].axes, part.indices, strict=True):
                if isinstance(index, ir.Coord) and plain(index.coordinate.name) != plain(axis.coordinate.name):
                    found[part.tensor, str(axis.coordinate), str(index.coordinate)] = None
    return tuple(found)


def _guards(view: View, let: ir.Let, parts: list[ir.Expr]) -> list[str]:
    guards = [clause.guard for clause in let.clauses]
    guards += [part.guard for part in parts if isinstance(part, ir.Reduce | ir.Normalize)]
    meaning = look_through(view.lets)
    facts = [conjuncts(guard, True, meaning) for guard in guards if guard is not None]
    return [all_of(found) for found in facts]


def _distributions(view: View, let: ir.Let) -> tuple[Distribution, ...]:
    """Over what a definition sums to 1: all of it must be weights."""
    if len(let.clauses) != 1 or let.clauses[0].guard is not None or let.kind != "real":
        return ()
    clause = let.clauses[0]
    found = []
    for site in view.sites_of(let):
        if site.expr is not clause.body or isinstance(site.expr, ir.Normalize):
            continue
        for weights in site.weights:
            if weights.exact and len(weights.used) == len(site.product.factors) and not site.product.summed:
                always = all(view.keeps_a_point(n, trail) for n, trail in view.normalizers(clause))
                found.append(Distribution(weights.coordinate.name, always and not weights.by_hand))
    if isinstance(clause.body, ir.Normalize) and clause.body.op == "softmax":
        always = view.keeps_a_point(clause.body, clause.ranges)
        found.append(Distribution(clause.body.coordinate.name, always))
    together = _together(view, let)
    if together is not None and _normaliser(view, together[0]).op == "softmax":
        read, several = together
        inner = view.lets[read.tensor].clauses[0]
        always = view.keeps_a_point(_normaliser(view, read), inner.ranges)
        found.append(Distribution(", ".join(several), always))
    return tuple(dict.fromkeys(found))
