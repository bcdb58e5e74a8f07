"""Layer normalisation, in any definition that spells it out: `(x - mean) * rsqrt(variance + eps) * gain + bias`; and
the one by the root of the mean square: `x * rsqrt(mean[m](x ** 2) + eps) * gain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.quotients import quotient_of
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, meaning, substitute
from ..records import dataclass

LAYER_NORM = "layer_norm"
RMS_NORM = "rms_norm"
Lets: TypeAlias = Mapping[str, ir.Let]


@dataclass(frozen=True, slots=True)
class Norm:
    """`x` less its mean over a coordinate, over the root of its variance and `eps`; times `gain`, plus `bias`, each of
    which may be missing and varies with that coordinate alone. Where it is not `centred` no mean is taken from it, its
    mean square is in place of its variance, and there is no bias."""

    x: ir.Expr
    coordinate: Coordinate
    eps: ir.Const
    gain: ir.Expr | None
    bias: ir.Expr | None
    centred: bool

    @property
    def kernel(self) -> str:
        """The name of the library's kernel."""
        return LAYER_NORM if self.centred else RMS_NORM

    @property
    def parts(self) -> tuple[ir.Expr, ...]:
        """The expressions that have to be evaluated."""
        return tuple(part for part in (self.x, self.gain, self.bias) if part is not None)


def find_norm(let: ir.Let, lets: Lets) -> Norm | None:
    """The normalisation that a definition is; None where it is anything else."""
    if let.kind != "real" or len(let.clauses) != 1 or let.clauses[0].guard is not None:
        return None
    clause = let.clauses[0]
    if not all(isinstance(slot, ir.Coord) for slot in clause.slots):
        return None
    for scaled, bias in _sums(clause.body):
        found = _normalised(scaled, clause, lets)
        if found is None:
            continue
        x, coordinate, eps, gain, centred = found
        own = frozenset((coordinate,))
        whole = x.type.coordinates == frozenset(range.coordinate for range in clause.ranges)
        alone = all(part is None or part.type.coordinates == own for part in (gain, bias))
        if whole and alone and (centred or bias is None):
            return Norm(x, coordinate, eps, gain, bias, centred)
    return None


def _sums(body: ir.Expr) -> Iterator[tuple[ir.Expr, ir.Expr | None]]:
    """A body as what is scaled and what is added to it."""
    if isinstance(body, ir.Map) and body.op == "+":
        left, right = body.arguments
        yield left, right
        yield right, left
    yield body, None


def _normalised(
    expr: ir.Expr, clause: ir.Clause, lets: Lets
) -> tuple[ir.Expr, Coordinate, ir.Const, ir.Expr | None, bool] | None:
    """Return the normalised expression, the coordinate, `eps`, the gain, and whether the mean is subtracted."""
    product = quotient_of(expr)
    if product.number != 1 or len(product.divisors) > 1:
        return None
    roots = [factor for factor in product.factors if isinstance(factor, ir.Map) and factor.op == "rsqrt"]
    roots += [factor for factor in product.divisors if isinstance(factor, ir.Map) and factor.op == "sqrt"]
    if len(roots) != 1 or (product.divisors and roots[0] not in product.divisors):
        return None
    match roots[0].arguments[0]:
        case ir.Map("+", (spread, ir.Const() as eps)) | ir.Map("+", (ir.Const() as eps, spread)):
            pass
        case _:
            return None
    others = [factor for factor in product.factors if factor is not roots[0]]
    for large in others:
        gains = [factor for factor in others if factor is not large]
        if len(gains) > 1:
            continue
        gain = gains[0] if gains else None
        if isinstance(large, ir.Map) and large.op == "-":
            over = _variance(spread, large, clause, lets)
            if over is not None:
                return large.arguments[0], over, eps, gain, True
        over = _mean_square(spread, large, clause, lets)
        if over is not None:
            return large, over, eps, gain, False
    return None


def _variance(spread: ir.Expr, centred: ir.Map, clause: ir.Clause, lets: Lets) -> Coordinate | None:
    """The coordinate over which this is the variance of what is centred about its mean."""
    x, centre = centred.arguments
    coordinate = _only(x.type.coordinates - centre.type.coordinates)
    if coordinate is None or _averaged(centre, coordinate, clause, lets) != x:
        return None
    base = _squared(_averaged(spread, coordinate, clause, lets))
    return coordinate if base is not None and _is_centred(base, x, coordinate, clause, lets) else None


def _mean_square(spread: ir.Expr, x: ir.Expr, clause: ir.Clause, lets: Lets) -> Coordinate | None:
    """The coordinate over which this is the mean of the square."""
    coordinate = _only(x.type.coordinates - spread.type.coordinates)
    if coordinate is None:
        return None
    return coordinate if _squared(_averaged(spread, coordinate, clause, lets)) == x else None


def _only(coordinates: frozenset[Coordinate]) -> Coordinate | None:
    return next(iter(coordinates)) if len(coordinates) == 1 else None


def _squared(expr: ir.Expr | None) -> ir.Expr | None:
    """The base of a square; None for anything else."""
    match expr:
        case ir.Map("**", (base, ir.Const(2))):
            return base
        case ir.Map("*", (base, other)) if base == other:
            return base
        case _:
            return None


def _is_centred(expr: ir.Expr, x: ir.Expr, coordinate: Coordinate, clause: ir.Clause, lets: Lets) -> bool:
    """Whether an expression is `x` less its mean, which may have a name or be written out."""
    if not isinstance(expr, ir.Map) or expr.op != "-":
        return False
    return expr.arguments[0] == x and _averaged(expr.arguments[1], coordinate, clause, lets) == x


def _averaged(expr: ir.Expr, coordinate: Coordinate, clause: ir.Clause, lets: Lets) -> ir.Expr | None:
    """The averaged expression, at this coordinate of the clause, where a mean runs over all of its points."""
    own = next((range for range in clause.ranges if range.coordinate == coordinate), None)
    match meaning(expr, lets) or expr:
        case ir.Reduce("mean", (range,), body, None) if own is not None:
            if (range.lower, range.upper) != (own.lower, own.upper):
                return None
            try:
                return substitute(body, {range.coordinate: build.coord(coordinate, expr.span)})
            except Inexpressible:
                return None
    return None
