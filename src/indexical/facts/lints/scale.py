"""The scale of a score: from the number of compared features, once."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.affine import Polynomial, number, of_atom, polynomial
from ...ir.algebra.factors import Factor
from ...ir.context import Agreement, constants_of
from ...ir.types import Coordinate
from ...ir.walk import children, walk
from ..attention import Comparison, Gather, Ungathered
from ..view import View

WRONG, TWICE, MISSING, NO_ROOT = "IX408", "IX409", "IX410", "IX430"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.scored:
        found = [comparison for comparison in view.comparisons(gather) if comparison.compared]
        if len(found) != 1 or gather.weights.score is None:
            continue
        comparison = found[0]
        powers, unknown = _powers(view, gather, comparison)
        compared = _summed_apart_from_means(view, comparison, powers)
        expected = _expected(view, comparison, compared, powers)
        yield from _judge(view, gather, comparison, compared, powers, unknown, expected)


def _sizes(view: View, comparison: Comparison) -> dict[Coordinate, Polynomial]:
    constants = constants_of(view.lets)
    return {s.coordinate: polynomial(s.range.upper, constants) for s in comparison.product.summed}


def _summed_apart_from_means(view: View, comparison: Comparison, powers: Powers) -> frozenset[Coordinate]:
    """The compared features whose number the scale is taken from: not those whose mean is taken, which divides by their
    number itself, unless the mean is all there is. Roots of several sizes are one root of their product."""
    sizes = _sizes(view, comparison)
    compared = comparison.compared
    own = {c: powers[sizes[c]] for c in compared if sizes[c] in powers}
    means = {c for c, (power, _, _) in own.items() if power == -1}
    if len(compared) < 2 or means == compared:
        return compared
    for coordinate in means:
        powers.pop(sizes[coordinate], None)
    rest = compared - means
    if len(rest) > 1 and all(c in own and own[c][0] == Fraction(-1, 2) for c in rest):
        entries = [powers.pop(sizes[c]) for c in sorted(rest, key=str) if sizes[c] in powers]
        total = number(1)
        for coordinate in rest:
            total = total * sizes[coordinate]
        powers[total] = entries[0]
    return rest


def _expected(
    view: View, comparison: Comparison, compared: frozenset[Coordinate], powers: Powers
) -> Polynomial:
    """The number of compared features. Across a bridge, those of either side will do."""
    sizes = _sizes(view, comparison)
    for coordinate in sorted(comparison.bridged, key=str):
        if sizes[coordinate] in powers:
            return sizes[coordinate]
    expected = number(1)
    for coordinate in compared:
        expected = expected * sizes[coordinate]
    agreement = Agreement(view.program)
    return next((size for size in powers if _agree(agreement, size, expected)), expected)


def _agree(agreement: Agreement, one: Polynomial, other: Polynomial) -> bool:
    """Whether two sizes are one in every call, by being lengths of one coordinate."""
    left, right = _sole(one), _sole(other)
    return one == other or (left is not None and right is not None and agreement.holds(left, right))


def _sole(size: Polynomial) -> ir.Expr | None:
    """The size itself, where it is no sum and no product."""
    atom = next(iter(size.atoms), None)
    return atom if isinstance(atom, ir.Size) and size == of_atom(atom) else None


Powers = dict[Polynomial, tuple[Fraction, ir.Expr, int]]


def _judge(
    view: View,
    gather: Gather | Ungathered,
    comparison: Comparison,
    compared: frozenset[Coordinate],
    powers: Powers,
    unknown: bool,
    expected: Polynomial,
) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    let = gather.site.let
    shown = ", ".join(f"`{view.shown(c)}`" for c in sorted(compared, key=str))
    right = powers.pop(expected, None)
    constants = [size for size in powers if size.constant is not None]
    for size in constants:
        # A plain number may be the scale, worked out by hand, or a temperature: it is the reader's.
        unknown = True
        del powers[size]
    for size in [size for size in powers if _is_multiple(size, expected)]:
        # So is a multiple of the right size, as where several scores are added and scaled together.
        unknown = True
        del powers[size]
    first = " * ".join(f"size({view.shown(c)})" for c in sorted(compared, key=str))
    summed = Label(comparison.expr.span, f"sums over {shown}")
    other = next((place for power, place, _ in powers.values() if power == Fraction(-1, 2)), None)
    if right is None and other is not None:
        message = f"this scale is not taken from the compared {shown}"
        note = "the scores have another spread than 1: the softmax is too flat or too sharp"
        help = f"divide by `sqrt({first})`, the root of the number of compared features"
        yield let, Diagnostic(WRONG, message, (Label(other.span, "of another size"), summed), (note,), help)
    elif right is not None and right[0] == -1 and right[2] > 1:
        note = "the scores are divided by the size itself, not by its root: the softmax is too flat"
        help = f"scale once, by `sqrt({first})`"
        yield let, Diagnostic(TWICE, "the scale is applied twice", (Label(right[1].span), summed), (note,), help)
    elif right is not None and right[0] == -1 and not powers and not unknown and not _has_mean(comparison.expr):
        note = "the spread of the scores falls with the root of that size: the softmax is flatter, the more there are"
        help = f"divide by `sqrt({first})`, unless queries and keys are meant to point the same way"
        labels = (Label(right[1].span), summed)
        yield let, Diagnostic(NO_ROOT, f"these scores are divided by the number of {shown}", labels, (note,), help)
    elif right is None and not powers and not unknown and isinstance(gather, Gather):
        # What nothing is gathered with may be the probabilities of classes, and these are not scaled.
        help = f"divide by `sqrt({first})`"
        yield let, Diagnostic(MISSING, "these scores are not scaled", (summed,), (), help)


def _has_mean(expr: ir.Expr) -> bool:
    return any(isinstance(part, ir.Reduce) and part.op == "mean" for part in walk(expr))


def _is_multiple(size: Polynomial, expected: Polynomial) -> bool:
    """Whether a size is a plain number times another."""
    ratios = {Fraction(factor) / expected.terms.get(term, 1) for term, factor in size.terms.items()}
    return size.terms.keys() == expected.terms.keys() and len(ratios) == 1


def _powers(view: View, gather: Gather | Ungathered, comparison: Comparison) -> tuple[Powers, bool]:
    """Every size that scales the score, with its power; and whether there is a factor that is no size."""
    powers: Powers = {}
    unknown = False
    for factor in scaling(view, gather, comparison):
        if factor.coordinates:
            # One of its own for each head, query or key may be the scale.
            unknown = True
            continue
        found = power_of(view, factor.expr, Fraction(-1 if factor.inverse else 1))
        if found is None:
            unknown = unknown or not _is_sign(factor.expr)
            continue
        size, power = found
        earlier = powers.get(size, (Fraction(0), factor.expr, 0))
        powers[size] = (earlier[0] + power, factor.expr, earlier[2] + 1)
    return {size: entry for size, entry in powers.items() if entry[0]}, unknown


def _is_sign(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const) and expr.value in (1, -1)


def scaling(view: View, gather: Gather | Ungathered, comparison: Comparison) -> list[Factor]:
    """The factors on the way from the score down to the comparison that do not vary along the keys, and those of the
    comparison itself that are not compared; those inside the definitions of both sides that vary with nothing."""
    result: list[Factor] = [f for f in comparison.product.factors if not f.coordinates & comparison.compared]
    for factor in (*comparison.query_side, *comparison.key_side):
        if isinstance(factor.expr, ir.Read):
            inner = view.forms.expand(factor.expr)
            result += [f for f in inner.factors if not f.coordinates]
    score = gather.weights.score
    assert score is not None
    # Each part with the factors on the way to it: what other parts of the score are scaled by does not count.
    waiting: list[tuple[ir.Expr, list[Factor]]] = [(score, result)]
    passed = list(result)
    while waiting:
        expr, way = waiting.pop()
        if isinstance(expr, ir.Read):
            found = view.forms.opened(expr)
            waiting += [] if found is None else [(found[0], way)]
            continue
        product = view.forms.expand(expr, opens=lambda read: False)
        if expr == comparison.expr:
            return way
        key = gather.weights.coordinate
        own = [f for f in product.factors if key not in f.coordinates]
        way, passed = way + own, passed + own
        for factor in product.factors:
            if key in factor.coordinates and factor.expr is not expr:
                waiting.append((factor.expr, way))
            elif key in factor.coordinates and isinstance(factor.expr, ir.Map | ir.Select):
                waiting += [(part, way) for part in children(factor.expr) if key in part.type.coordinates]
    return passed


def power_of(view: View, expr: ir.Expr, times: Fraction) -> tuple[Polynomial, Fraction] | None:
    """`sqrt(size(d))` as a size and a power; None for anything that is not made so."""
    match expr:
        case ir.Map("sqrt", (inner,)):
            return power_of(view, inner, times / 2)
        case ir.Map("rsqrt", (inner,)):
            return power_of(view, inner, -times / 2)
        case ir.Map("**", (inner, exponent)):
            value = _number(exponent)
            return None if value is None else power_of(view, inner, times * value)
        case ir.Map(op, (inner,)) if op.startswith("as "):
            return power_of(view, inner, times)
        case ir.Read(indices=()):
            found = view.forms.opened(expr)
            return (polynomial(expr), times) if found is None else power_of(view, found[0], times)
        case ir.Size():
            return polynomial(expr), times
        case ir.Const(value) if not isinstance(value, bool):
            return (number(int(value)), times) if Fraction(value).denominator == 1 and abs(value) != 1 else None
        case ir.Map("*" | "//" | "+" | "-") if expr.type.kind == "whole":
            return polynomial(expr, constants_of(view.lets)), times
        case _:
            return None


def _number(expr: ir.Expr) -> Fraction | None:
    match expr:
        case ir.Const(value):
            return Fraction(value)
        case ir.Map("neg", (ir.Const(value),)):
            return -Fraction(value)
        case ir.Map("/" | "//", (left, right)):
            over, under = _number(left), _number(right)
            return None if over is None or not under else over / under
        case _:
            return None
