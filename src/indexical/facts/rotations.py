"""Rotations: by which angles the features of a side of a comparison turn, in any spelling.

A side turns where its features are multiplied by the cosine and, elsewhere in the same sum, by the sine of an angle
that varies with the position and with the compared feature.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import nodes as ir
from ..ir.affine import Polynomial, of_atom, polynomial
from ..ir.algebra.factors import Factor, Forms, varying
from ..ir.context import constants_of
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..records import dataclass
from .attention import Comparison, Gather, Ungathered
from .figures import figure
from .roles import query_of
from .view import View

# Frequencies are compared where every coordinate has so many points.
_SIZE = 16
# So many products of a side are looked at.
_MOST = 200

_Product = tuple[list[ir.Expr], tuple[tuple[ir.Expr, bool], ...]]


@dataclass(frozen=True, slots=True)
class Turn:
    """An angle: the factors that vary with the position, the others, and the conditions under which it is taken."""

    position: tuple[Factor, ...]
    rate: tuple[Factor, ...]
    conditions: tuple[tuple[ir.Expr, bool], ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: its position, the features that are compared, and how it turns. It is `plain` where
    nothing that varies with both is multiplied with another that does, and no sine stands in what it is made of.
    `still` are the parts of it, at some positions, that do not turn where others do; `again` is a part that is turned
    twice."""

    factor: Factor
    at: Coordinate
    over: ir.Range
    turns: tuple[Turn, ...]
    plain: bool
    inputs: frozenset[str]
    still: tuple[ir.Expr, ...] = ()
    again: ir.Expr | None = None

    def rates(self, view: View) -> list[float | None] | None:
        """For each compared feature, how fast it turns; None for one that does not turn. None for all where that
        is not known."""
        result: list[float | None] = []
        first, end = (figure(view.forms, bound, {}, _SIZE) for bound in (self.over.lower, self.over.upper))
        if first is None or end is None:
            return None
        for number in range(first, min(end, first + _SIZE)):
            found = [_rate(view.forms, turn, {self.over.coordinate: number}) for turn in self.turns]
            if any(rate is None for rate in found):
                return None
            taken = [rate for rate in found if isinstance(rate, float)]
            if taken and max(taken) - min(taken) > 1e-9 * max(map(abs, taken)):
                return None
            result.append(taken[0] if taken else None)
        return result

    def offset(self, view: View) -> Polynomial | None:
        """By how much the positions are ahead of the coordinate; None where they are not counted by it."""
        found = self.offsets(view)
        return found[0] if len(found) == 1 else None

    def offsets(self, view: View) -> list[Polynomial]:
        """As `offset`, where parts of a side may have other ones; none where one of them is not known."""
        constants = constants_of(view.lets)
        found: dict[Polynomial, None] = {}
        for turn in self.turns:
            if len(turn.position) != 1 or turn.position[0].inverse:
                return []
            ahead = polynomial(_uncast(turn.position[0].expr), constants) - of_atom(self.at)
            if any(isinstance(atom, Coordinate) or atom.type.coordinates for atom in ahead.atoms):
                return []
            found[ahead] = None
        return list(found)


def sides(view: View, gather: Gather | Ungathered) -> Iterator[tuple[Comparison, Side, Side]]:
    """The comparisons of a gather between a query and a key that have one position each, each with its two sides."""
    asks = query_of(view, gather)
    if len(asks) != 1:
        return
    (ask,) = asks
    for comparison in view.comparisons(gather):
        compared = [step.range for step in comparison.product.summed if step.coordinate in comparison.compared]
        mine, theirs = (
            [range for range in compared if range.coordinate in varying(side)]
            for side in (comparison.query_side, comparison.key_side)
        )
        if len(mine) != 1 or len(theirs) != 1 or len(compared) != (2 if comparison.bridged else 1):
            continue
        query = _side(view, comparison.query_side, ask, gather.coordinate, mine[0])
        key = _side(view, comparison.key_side, gather.coordinate, ask, theirs[0])
        # Through a factor between them, such as the projection of what does not turn, features do not meet themselves.
        if query is not None and key is not None and (not comparison.bridged or bool(query.turns) != bool(key.turns)):
            yield comparison, query, key


def _side(view: View, factors: tuple[Factor, ...], at: Coordinate, other: Coordinate, over: ir.Range) -> Side | None:
    """A side that is one factor with the position and the feature, whatever else scales it."""
    both = frozenset((at, over.coordinate))
    own = [factor for factor in factors if both <= factor.coordinates]
    if len(own) != 1 or other in own[0].coordinates:
        return None
    (whole,) = own
    products = _products(view.forms, whole.expr)
    again = None if products is None else _turned_again(view.forms, products, at, over.coordinate)
    turns = None if products is None else () if again is not None else _turns(view.forms, products, at, over.coordinate)
    if products is None or turns is None:
        return None
    plain = all(sum(both <= part.type.coordinates for part in parts) <= 1 for parts, _ in products)
    parts = list(walk(whole.expr))
    names = view.made_of(*(part.tensor for part in parts if isinstance(part, ir.Read)))
    parts += [part for name in names if name in view.lets for c in view.lets[name].clauses for part in walk(c.body)]
    waves = any(isinstance(part, ir.Map) and part.op in ("sin", "cos") for part in parts)
    inputs = frozenset(name for name in names if name not in view.lets)
    still = tuple(_still(products, at, over.coordinate)) if turns else ()
    return Side(whole, at, over, turns, plain and not waves, inputs, still, again)


def _still(products: list[_Product], at: Coordinate, over: Coordinate) -> Iterator[ir.Expr]:
    """The parts of a side that do not turn, at positions that conditions on them tell from those that do."""
    both = frozenset((at, over))
    places: dict[tuple[tuple[ir.Expr, bool], ...], list[_Product]] = {}
    for product in products:
        place = tuple(c for c in product[1] if at in c[0].type.coordinates and over not in c[0].type.coordinates)
        places.setdefault(place, []).append(product)
    for there in places.values():
        if not any(_is_wave(part, both) for parts, _ in there for part in parts):
            yield from (part for parts, _ in there for part in parts if both <= part.type.coordinates)


def _is_wave(part: ir.Expr, both: frozenset[Coordinate]) -> bool:
    return isinstance(part, ir.Map) and part.op in ("sin", "cos") and both <= part.type.coordinates


def _turned_again(forms: Forms, products: list[_Product], at: Coordinate, over: Coordinate) -> ir.Expr | None:
    """The part of a side that is turned twice by its own place: by angles that are counted from it."""
    both = frozenset((at, over))
    for parts, _ in products:
        waves = [part for part in parts if isinstance(part, ir.Map) and _is_wave(part, both)]
        factors = [factor for wave in waves for factor in forms.expand(wave.arguments[0]).factors]
        places = [_uncast(factor.expr) for factor in factors if at in factor.coordinates]
        counted = all(polynomial(place).terms.get(frozenset(((at, 1),))) == 1 for place in places)
        others = [part for part in parts if part not in waves and both <= part.type.coordinates]
        if len(waves) == len(places) == 2 and counted and len(others) == 1:
            return others[0]
    return None


def _turns(forms: Forms, products: list[_Product], at: Coordinate, over: Coordinate) -> tuple[Turn, ...] | None:
    """The angles of a side; None where it has sines that turn nothing."""
    both = frozenset((at, over))
    found: dict[str, list[Turn]] = {"sin": [], "cos": []}
    for parts, conditions in products:
        waves = [part for part in parts if isinstance(part, ir.Map) and part.op in found]
        if not any(both <= wave.type.coordinates for wave in waves):
            continue
        others = [part for part in parts if part not in waves and both <= part.type.coordinates]
        if len(waves) != 1 or not others:
            return None
        wave = waves[0]
        assert isinstance(wave, ir.Map)
        factors = forms.expand(wave.arguments[0]).factors
        position = tuple(factor for factor in factors if at in factor.coordinates)
        rate = tuple(factor for factor in factors if at not in factor.coordinates)
        if any(over in factor.coordinates for factor in position):
            return None
        found[wave.op].append(Turn(position, rate, conditions))
    if bool(found["sin"]) != bool(found["cos"]):
        return None
    return (*found["cos"], *found["sin"])

def _products(forms: Forms, expr: ir.Expr) -> list[_Product] | None:
    """An expression as the products that it adds up, each with the conditions on it; definitions are written out.
    None where these are too many."""
    match expr:
        case ir.Read() if (found := forms.opened(expr)) is not None:
            inner = _products(forms, found[0])
            return inner if found[1] is None else _held(inner, found[1], True)
        case ir.Map("+" | "-", (left, right)) if expr.type.kind == "real":
            return _limited(_products(forms, left), _products(forms, right), lambda one, other: one + other)
        case ir.Map("*", (left, right)) if expr.type.kind == "real":
            return _limited(_products(forms, left), _products(forms, right), _multiplied)
        case ir.Map("/", (left, _)) if expr.type.kind == "real":
            return _products(forms, left)
        case ir.Map("neg", (inner_expr,)):
            return _products(forms, inner_expr)
        case ir.Map(op, (inner_expr,)) if op.startswith("as "):
            return _products(forms, inner_expr)
        case ir.Select(condition, then, otherwise):
            held = _held(_products(forms, then), condition, True)
            return _limited(held, _held(_products(forms, otherwise), condition, False), lambda one, other: one + other)
        case _:
            return [([expr], ())]


def _multiplied(one: list[_Product], other: list[_Product]) -> list[_Product]:
    return [(left + right, held + more) for left, held in one for right, more in other]


def _limited(one: list[_Product] | None, other: list[_Product] | None, join: object) -> list[_Product] | None:
    assert callable(join)
    if one is None or other is None or len(one) * len(other) > _MOST:
        return None
    return list(join(one, other))


def _held(products: list[_Product] | None, condition: ir.Expr, holds: bool) -> list[_Product] | None:
    return None if products is None else [(parts, (*held, (condition, holds))) for parts, held in products]


def _rate(forms: Forms, turn: Turn, point: dict[Coordinate, int]) -> float | bool | None:
    """How fast an angle grows with the position; False where it is not taken at this point, None where that is not
    known."""
    for condition, holds in turn.conditions:
        value = figure(forms, condition, point, _SIZE)
        if value is None:
            return None
        if bool(value) != holds:
            return False
    result = 1.0
    for factor in turn.rate:
        value = figure(forms, factor.expr, point, _SIZE)
        if not value:
            return None
        result = result / value if factor.inverse else result * value
    return result


def _uncast(expr: ir.Expr) -> ir.Expr:
    while isinstance(expr, ir.Map) and expr.op.startswith("as "):
        (expr,) = expr.arguments
    return expr
