"""Roles: who asks, who answers, what is compared, what is carried, which heads, which batch.

They follow from what is done with a coordinate, never from its name or from where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, product

from ..checker.spaces import tied
from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Factor, varying
from ..ir.algebra.predicates import is_exponential
from ..ir.context import look_through
from ..ir.needs import read_in
from ..ir.prove import conjuncts
from ..ir.types import Coordinate
from ..ir.walk import of_kinds, rebuild, walk
from ..records import dataclass, field
from .attention import Comparison, Gather, Ungathered, meet
from .orders import Order, order, place_on
from .transposes import Transposed, Use, changing
from .view import View
from .weights import Rows
from .wording import all_of


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles in one gather. `shared` coordinates keep apart what nothing tells to be heads or examples.

    Of the `kind`s, an `attention` gathers at the query from the keys, and a `transpose` at the key from the queries
    that heard it: there, `query` is summed over and `key` survives. A `change` and a `transposed change` are the same
    under how the weights change, which sums to 0 over the key. A `mean` carries nothing that the key alone has. With
    `weights`, nothing is gathered so far.
    """

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
    kind: str = "attention"
    # What is gathered, by name.
    values: tuple[str, ...] = ()
    # `causal`, `anti-causal`, or None where neither is proved: which positions this gather reaches from its own.
    direction: str | None = None
    # So many positions at most, where that is known.
    within: str | None = None
    # What the weights of a query come to.
    rows: Rows = "sum to 1"

    def of(self, role: str) -> tuple[str, ...]:
        return getattr(self, role)  # type: ignore[no-any-return]


ROLES = ("query", "key", "compare", "carry", "head", "batch")


@dataclass(eq=False)
class Parts:
    """The coordinates of each role in a gather, or in the transpose of one. Their names are found when they are asked
    for. Some are heard `together`, each as a digit of the gather's own."""

    view: View
    gather: Use
    found: list[Comparison]
    values: list[Factor]
    changed: Factor | None
    coordinates: dict[str, frozenset[Coordinate]]
    together: dict[Coordinate, ir.Expr]

    def of(self, role: str) -> tuple[str, ...]:
        """What the coordinates of a role are called in the gather."""
        if role == "key" and self.together:
            return tuple(self.view.shown(c) for c in self.together)
        return tuple(sorted(self.view.shown(c) for c in self.coordinates[role]))

    def names(self, role: str) -> frozenset[str]:
        """Every name that a coordinate of a role goes by in the definitions that take part."""
        names = _names(self.view, self.gather, self.found, self.coordinates[role])
        return names.union(self.of("key")) if role == "key" and self.together else names


def parts_of(view: View, gather: Use) -> Parts:
    """The coordinates of each role."""
    found = view.comparisons(gather)
    weights = gather.weight_coordinates
    query = query_of(view, gather)
    kept = weights - query
    head = frozenset(c for c in kept if _is_head(view, gather, found, c))
    batch = frozenset(c for c in kept - head if head or _said(view, gather, found, c) == "batch")
    if not any(comparison.compared for comparison in found):
        found = [*found, *meet(view.forms, gather.weights.basis, gather.coordinate, query)]
    changed = changing(view.forms, gather)
    values = [factor for factor in gather.values if factor is not changed]
    coordinates = {
        "query": query,
        "key": frozenset((gather.coordinate,)),
        "compare": frozenset().union(*(comparison.compared for comparison in found)),
        "carry": _carried(gather, weights, query, values),
        "head": head,
        "batch": batch,
        "shared": kept - head - batch,
    }
    return Parts(view, gather, found, values, changed, coordinates, _together(view, gather))


def roles(view: View, gather: Use) -> Roles:
    """The roles of the coordinates in a gather, or in the transpose of one, and all else that is said of it."""
    parts = parts_of(view, gather)
    query, carry = parts.coordinates["query"], parts.coordinates["carry"]
    meaning = look_through(view.lets)
    facts = [fact for guard in gather.weights.kept for fact in conjuncts(guard, True, meaning)]
    hears = all_of(_by_parts(fact, parts.together) for fact in facts) or None
    way = _order(view, gather, query)
    return Roles(
        gather.name,
        **{role: parts.of(role) for role in parts.coordinates},
        hears=hears,
        names={role: parts.names(role) for role in parts.coordinates},
        kind=_kind(gather, query, carry, parts.values, parts.changed),
        values=_brought(view, gather, query, parts.values),
        direction=way.verdict,
        within=way.within,
        rows=rows_of(view, gather),
    )


def _together(view: View, gather: Use) -> dict[Coordinate, ir.Expr]:
    """The coordinates that are heard together, each as a digit of the gather's own, where a definition names them."""
    normalizer = gather.weights.normalizer
    if normalizer is None:
        return {}
    made = [let.name for let in view.program.lets if let.hidden and _is_made_by(let, normalizer)]
    for let in view.program.lets:
        for clause in () if let.hidden else let.clauses:
            if isinstance(clause.body, ir.Read) and clause.body.tensor in made and clause.body.indices:
                place = clause.body.indices[-1]
                inside = [range for range in clause.ranges if range.coordinate in place.type.coordinates]
                if len(inside) > 1:
                    from ..ir.joins import digits

                    found = digits(build.coord(gather.coordinate, clause.span), inside)
                    return {range.coordinate: found[range.coordinate] for range in inside}
    return {}


def _is_made_by(let: ir.Let, normalizer: ir.Normalize) -> bool:
    body = let.clauses[0].body
    return isinstance(body, ir.Normalize) and body.span == normalizer.span


def _by_parts(expr: ir.Expr, digits: dict[Coordinate, ir.Expr]) -> ir.Expr:
    """A relation between places, told of the coordinates that these are the places of."""
    for coordinate, digit in digits.items():
        if expr == digit:
            return build.coord(coordinate, expr.span)
    return rebuild(expr, lambda part: _by_parts(part, digits)) if digits else expr


def rows_of(view: View, gather: Use, name: str | None = None) -> Rows:
    """The sums of the weights with which a definition gathers: of several that gather the same values, together."""
    own = gather.weights.rows
    if own == "free" and isinstance(gather, Gather) and gather.weights.by_hand and gather.weights.raw is not None:
        from .free_weights import is_shared_out

        if is_shared_out(view, gather):
            return "sum to 1"
    let = view.lets[name or gather.name]
    values = _reads_of_values(gather)
    shares = [share for clause in let.clauses for share in _shares(view, clause.body, Fraction(1), values, 0)]
    reached = {let.name, *(found for _, found in shares if found is not None)}
    alike = [g for g in view.gathers if g.name in reached and _reads_of_values(g) == values]
    if len(shares) < 2 or len({g.weights.span for g in alike}) < 2:
        return own
    numbers = [number for number, _ in shares if number is not None and number >= 0]
    if len(numbers) < len(shares) or sum(numbers) > 1 or any(g.weights.rows != "sum to 1" for g in alike):
        return "free" if any(g.weights.rows == "free" for g in alike) else "signed"
    return "sum to 1" if sum(numbers) == 1 else "at most 1"


def _reads_of_values(gather: Use) -> frozenset[str]:
    """The tensors that are gathered."""
    values = [factor.expr for factor in gather.values if gather.coordinate in factor.coordinates]
    return frozenset(read_in(*values))


def _shares(
    view: View, expr: ir.Expr, number: Fraction | None, values: frozenset[str], depth: int
) -> Iterator[tuple[Fraction | None, str | None]]:
    """The weights of some values that are added up in an expression, each with the number before it, None where that is
    no figure, and the definition that gathers with it, where that is another one."""

    def of(part: ir.Expr, factor: Fraction | None = Fraction(1)) -> Iterator[tuple[Fraction | None, str | None]]:
        return _shares(view, part, None if number is None or factor is None else number * factor, values, depth)

    match expr:
        case ir.Map("+", (left, right)):
            yield from (*of(left), *of(right))
        case ir.Map("-", (left, right)):
            yield from (*of(left), *of(right, Fraction(-1)))
        case ir.Map("neg", (inner,)):
            yield from of(inner, Fraction(-1))
        case ir.Map("*", (left, right)):
            asked, heard = list(of(left, _figure(right, values))), list(of(right, _figure(left, values)))
            if asked and heard:  # Weights of weights, one layer behind another: each of one with each of the other.
                sides = [list(_shares(view, side, Fraction(1), values, depth)) for side in (left, right)]
                for (one, name), (two, other) in product(*sides):
                    if number is None or one is None or two is None:
                        yield None, other or name
                    else:
                        yield number * one * two, other or name
                return
            yield from (*asked, *heard)
        case ir.Map("/", (left, ir.Const(value))) if value:
            yield from of(left, 1 / Fraction(value))
        case ir.Map("/", (left, _)) | ir.Reduce("sum", body=left):
            yield from of(left)
        case ir.Read(tensor) if tensor in view.forms.gathering:
            yield number, tensor
        case ir.Read() if depth < _DEEPEST and (found := view.forms.opened(expr)) is not None:
            yield from _shares(view, found[0], number, values, depth + 1)
        case _ if is_exponential(expr):
            yield number, None


def _figure(factor: ir.Expr, values: frozenset[str]) -> Fraction | None:
    """A factor of weights as a number: values count for 1, and what is neither is not known."""
    if isinstance(factor, ir.Const):
        return Fraction(factor.value)
    return Fraction(1) if any(isinstance(p, ir.Read) and p.tensor in values for p in walk(factor)) else None


# Definitions are looked through so many deep.
_DEEPEST = 8


def all_roles(view: View) -> tuple[Roles, ...]:
    """The roles of every gather, of every transpose of one and of weights that nothing is gathered with, in the order
    of the definitions."""
    found: list[Use] = [gather for gather in view.transposes if query_of(view, gather)]
    found += [gather for gather in view.gathers if not is_given_back(view, gather)]
    found += view.ungathered
    found += [gather for gather in view.free if gather.values]
    places = {let.name: number for number, let in enumerate(view.program.lets)}
    return tuple(roles(view, gather) for gather in sorted(found, key=lambda gather: places[gather.name]))


def is_given_back(view: View, gather: Gather) -> bool:
    """Whether all who ask were summed over first, at each key: that is the transpose of a gather, and what sums it
    over the keys gathers from nobody: it counts what was given back in all, however it was shared out."""
    summed = gather.site.product.summed
    inner = {step.coordinate for step in summed[summed.index(gather.key) + 1 :] if step.reduce != gather.key.reduce}
    asks = query_of(view, gather)
    return bool(asks) and asks <= inner


def _kind(
    gather: Use,
    query: frozenset[Coordinate],
    carry: frozenset[Coordinate],
    values: list[Factor],
    changed: Factor | None,
) -> str:
    if isinstance(gather, Ungathered):
        return "weights"
    if isinstance(gather, Transposed):
        return "transpose" if changed is None else "transposed change"
    if changed is not None:
        return "change"
    answers = [factor for factor in values if gather.coordinate in factor.coordinates]
    pairs = all(query & factor.coordinates for factor in answers)
    return "mean" if pairs and not carry else "attention"


def _brought(view: View, gather: Use, query: frozenset[Coordinate], values: list[Factor]) -> tuple[str, ...]:
    """The names of what is gathered: of what is read at the key, or in a transpose at the query. What varies with
    both only scales it, unless there is nothing else."""
    key = frozenset((gather.coordinate,))
    where, other = (query, key) if isinstance(gather, Transposed) else (key, query)
    found = [factor for factor in values if factor.coordinates & where and not factor.inverse]
    names = []
    for factor in [factor for factor in found if not factor.coordinates & other] or found:
        reads = [part for part in walk(factor.expr) if isinstance(part, ir.Read) and part.type.coordinates & where]
        names += [view.forms.seen_through(read, visible=True).tensor for read in reads if read.type.kind == "real"]
    return tuple(dict.fromkeys(names))


def _order(view: View, gather: Use, query: frozenset[Coordinate]) -> Order:
    """The direction of a gather, by what its weights keep: what is removed later was heard."""
    if len(query) != 1:
        return Order(None, None)
    (asks,) = query
    if None not in (asks.space, gather.coordinate.space) and asks.space != gather.coordinate.space:
        return Order(None, None)
    ranges = [step.range for step in gather.site.product.summed]
    known = view.assume(gather.site.clause, *ranges, *gather.weights.kept)
    back = isinstance(gather, Transposed)
    let, clause = gather.site.let, gather.site.clause
    slots = zip(let.axes, clause.slots, strict=True)
    axes = {slot.coordinate: axis for axis, slot in slots if isinstance(slot, ir.Coord)}
    asking, heard = (
        place_on(axes.get(c), c, gather.weights.span) for c in (asks, gather.coordinate)
    )
    return order(known, heard, asking) if back else order(known, asking, heard)


def query_of(view: View, gather: Use) -> frozenset[Coordinate]:
    """The query: what the query side of the scores varies with, and the key side does not. In a transpose,
    it must be summed over; none, where it is not."""
    found = view.comparisons(gather)
    query_side = varying(f for comparison in found for f in comparison.query_side)
    key_side = varying(f for comparison in found for f in comparison.key_side)
    query = gather.weight_coordinates & (query_side - key_side) if found else gather.asks
    # What a factor between the sides varies with, such as the projection of keys that have no name, is a head.
    query = query - frozenset().union(*(comparison.between for comparison in found)) or query
    if isinstance(gather, Transposed) and not query <= gather.summed:
        return frozenset()
    # Several may ask at once: what is said to be a head or a batch is that.
    named = frozenset(c for c in query if _said(view, gather, found, c) is None)
    return named or (frozenset() if isinstance(gather, Transposed) else query)


_SPACES = {"head": "head", "heads": "head", "batch": "batch", "batches": "batch", "example": "batch"}


def _is_head(view: View, gather: Use, found: list[Comparison], coordinate: Coordinate) -> bool:
    """A head is said to be one, or has parameters of its own, or is split off a feature, or is mixed."""
    said = _said(view, gather, found, coordinate)
    if said is not None:
        return said == "head"
    if coordinate in gather.site.product.bound and not isinstance(gather, Transposed):
        return True
    positions = gather.weight_coordinates - {coordinate} | {gather.coordinate}
    # What is read at another position, such as in a mean over all of them, is read at a position too.
    spaces = set(spaces_of(view, gather, gather.asks - {coordinate} | {gather.coordinate}))
    for read in _leaves(view, gather, found):
        if coordinate not in read.type.coordinates:
            continue
        if any(coordinate in i.type.coordinates and tied(i) is None for i in read.indices):
            return True
        along = {view.space_of(read.tensor, number) for number, _ in enumerate(read.indices)}
        if not positions & read.type.coordinates and not along & spaces:
            return True
    return False


def spaces_of(view: View, gather: Use, coordinates: frozenset[Coordinate]) -> Iterator[object]:
    """The spaces of the axes that some coordinates of a gather stand at."""
    for number, slot in enumerate(gather.site.clause.slots):
        if tied(slot) in coordinates:
            yield view.space_of(gather.name, number)
    sides = [f for comparison in view.comparisons(gather) for f in (*comparison.query_side, *comparison.key_side)]
    for factor in (*gather.site.product.factors, *sides):
        for part in walk(factor.expr):
            if isinstance(part, ir.Read):
                for number, index in enumerate(part.indices):
                    if tied(index) in coordinates:
                        yield view.space_of(part.tensor, number)


def _said(view: View, gather: Use, found: list[Comparison], coordinate: Coordinate) -> str | None:
    """Head or batch, where the program says so: by a contract, or by the name of the space."""
    if coordinate.space in _SPACES:
        return _SPACES[coordinate.space]
    claims = [claim for contract in view.program.contracts for claim in contract.roles if claim[0] in ("head", "batch")]
    names = _names(view, gather, found, frozenset((coordinate,))) if claims else frozenset()
    return next((role for role, name in claims if name in names), None)


def _leaves(view: View, gather: Use, found: list[Comparison]) -> list[ir.Read]:
    """The inputs that both sides of the comparison and the values are made of, at this gather's coordinates."""
    if (id(gather), len(found)) in view.leaves:
        return view.leaves[id(gather), len(found)]
    sides = [f for comparison in found for f in (*comparison.query_side, *comparison.key_side)]
    result = view.leaves[id(gather), len(found)] = []
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


def _carried(
    gather: Use, weights: frozenset[Coordinate], query: frozenset[Coordinate], values: list[Factor]
) -> frozenset[Coordinate]:
    """The value axes: the coordinates that the values bring and the weights do not have."""
    home = {slot.coordinate for slot in gather.site.clause.slots if isinstance(slot, ir.Coord)}
    where = query if isinstance(gather, Transposed) else {gather.coordinate}
    own = varying(f for f in values if where & f.coordinates) - weights - {gather.coordinate}
    brought = varying(values) - weights - {gather.coordinate}
    if isinstance(gather, Transposed):
        return own & home or brought & home
    mixed = weights & gather.site.product.bound
    return own & home or (own if mixed else brought & home) or own


def _names(view: View, gather: Use, found: list[Comparison], coordinates: frozenset[Coordinate]) -> frozenset[str]:
    """The names of some coordinates, here and in the homes of what is read at them: of the program's own
    definitions and inputs, not of what a function brought along."""
    slots = gather.site.survives
    names = {view.shown(c) for c in coordinates if not gather.site.let.hidden or c not in slots}
    names |= _outside(view, gather, coordinates)
    of_key = coordinates == {gather.coordinate}
    for name, index in _places(view, gather, found) if coordinates else ():
        place = _digit(index) if of_key else index
        if isinstance(place, ir.Coord) and place.coordinate in coordinates:
            names.add(name)
    if gather.weights.normalizer is not None and gather.coordinate in coordinates:
        names |= _written(view, gather.weights.normalizer)
    return frozenset(names)


def _places(view: View, gather: Use, found: list[Comparison]) -> list[tuple[str, ir.Expr]]:
    """The axes of the program's own definitions and inputs that both sides of the comparison, the values and what these
    are made of read: each by the name of its coordinate, with the index that stands there."""
    if (id(gather), len(found)) not in view.places:
        factors = [f for comparison in found for f in (*comparison.query_side, *comparison.key_side)]
        reads = [part for f in (*factors, *gather.values) for part in walk(f.expr) if isinstance(part, ir.Read)]
        pairs = [(view.program.tensors[read.tensor], read) for read in (*reads, *_leaves(view, gather, found))]
        view.places[id(gather), len(found)] = [
            (axis.coordinate.name, index)
            for tensor, read in pairs
            if not (isinstance(tensor, ir.Let) and tensor.hidden)
            for axis, index in zip(tensor.axes, read.indices, strict=True)
        ]
    return view.places[id(gather), len(found)]


def _digit(index: ir.Expr) -> ir.Expr:
    """The place that an index is a digit of: several coordinates that are heard together are read so."""
    while isinstance(index, ir.Map) and index.op in ("//", "%") and not index.arguments[1].type.coordinates:
        index = index.arguments[0]
    return index


def _outside(view: View, gather: Use, coordinates: frozenset[Coordinate]) -> set[str]:
    """The names of a gather's coordinates in the definitions that contracts speak of."""
    names: set[str] = set()
    for contract in view.program.contracts:
        for indices in view.read_as(view.lets[contract.name], gather.site.let):
            for slot, index in zip(gather.site.clause.slots, indices, strict=True):
                if slot.type.coordinates <= coordinates and slot.type.coordinates and isinstance(index, ir.Coord):
                    names.add(view.shown(index.coordinate))
    return names


def _written(view: View, normalizer: ir.Normalize) -> set[str]:
    """The names a normaliser's coordinate has in the text."""
    bodies = (clause.body for let in view.program.lets if not let.hidden for clause in let.clauses)
    written = (part for part in of_kinds(bodies, ir.Normalize) if part.span == normalizer.span)
    return {view.shown(part.coordinate) for part in islice(written, 1)}
