"""A sink that is no sink to all: it is masked, or scaled like a comparison, or it carries a value home.

A sink is a score of its own beside those of the keys. It is added to their total, or stands in one row with them:
`if j < n { scores[i, j] } else { sink }`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.affine import Polynomial, polynomial
from ...ir.algebra.normal import Leaf
from ...ir.conditions import fails
from ...ir.context import constants_of
from ...ir.prove import inequalities
from ...ir.types import Coordinate
from ...ir.walk import walk
from ...records import dataclass
from ...source import Span
from ..attention import Gather, Ungathered
from ..roles import query_of
from ..view import View
from .scale import power_of

CODE = "IX435"

# So many parts of a score are looked at.
_MOST = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A sink among the scores of the keys: where it stands, under which condition, and what scales it there."""

    sink: ir.Expr
    condition: ir.Expr
    holds: bool
    scale: tuple[tuple[ir.Expr, bool], ...]

    @property
    def at(self) -> ir.Expr:
        """The condition on a key that is the sink."""
        return self.condition if self.holds else fails(self.condition)

    def is_at(self, view: View, condition: ir.Expr) -> bool:
        """Whether a condition holds of the sink, and of no key."""
        return view.forms.algebra.conditions(condition).keys() == view.forms.algebra.conditions(self.at).keys()

    def is_elsewhere(self, view: View, condition: ir.Expr) -> bool:
        """Whether a condition holds of all keys, and not of the sink."""
        return self.is_at(view, fails(condition))


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.scored:
        let, score = gather.site.let, gather.weights.score
        if _is_scaled_total(view, gather):
            yield let, _report_scaled(gather.weights.span)
        for place in sinks(view, score, gather.coordinate):
            guard = _masked(view, gather, place)
            if guard is not None:
                yield let, _report_masked(view, gather, place, guard)
            if any(_is_root(view, expr, inverse, gather) for expr, inverse in place.scale):
                yield let, _report_scaled(place.sink.span)
            value = _carried(view, gather, place)
            if value is not None:
                yield let, _report_carried(view, gather, place, value)


def sinks(view: View, score: ir.Expr | None, key: Coordinate) -> Iterator[Place]:
    """The sinks in a score that stand in one row with those of the keys."""
    waiting: list[tuple[ir.Expr, tuple[tuple[ir.Expr, bool], ...]]] = [] if score is None else [(score, ())]
    seen = 0
    while waiting and seen < _MOST:
        expr, scale = waiting.pop()
        seen += 1
        match expr:
            case ir.Read() if (found := view.forms.opened(expr)) is not None:
                waiting.append((found[0], scale))
            case ir.Map("*" | "/" as op, (left, right)) if key not in right.type.coordinates:
                waiting.append((left, (*scale, (right, op == "/"))))
            case ir.Map("*", (left, right)) if key not in left.type.coordinates:
                waiting.append((right, (*scale, (left, False))))
            case ir.Map("neg", (inner,)):
                waiting.append((inner, scale))
            case ir.Select(condition, then, otherwise) if condition.type.coordinates == {key}:
                for sink, scores, holds in ((then, otherwise, True), (otherwise, then, False)):
                    alone = key not in sink.type.coordinates and key in scores.type.coordinates
                    if alone and isinstance(sink, ir.Read) and view.forms.seen_through(sink).tensor not in view.lets:
                        yield Place(sink, condition, holds, scale)


def _masked(view: View, gather: Gather | Ungathered, place: Place) -> ir.Expr | None:
    """The guard that a sink is not always heard under: of those that compare the place of a key with who asks."""
    asks = query_of(view, gather)
    # What is gathered may leave the sink out: the key is bounded by where it is normalised.
    ranges = [step.range for step in gather.site.product.summed if step.coordinate != gather.coordinate]
    known = view.assume(gather.site.clause, *ranges, place.at)
    for guard in gather.weights.kept:
        for fact in view.forms.algebra.conditions(guard).values():
            fact = view.in_full(fact)
            both = gather.coordinate in fact.type.coordinates and bool(asks & fact.type.coordinates)
            if both and inequalities(fact, constants_of(view.lets)) and not known.proves(fact):
                return guard
    return None


def _carried(view: View, gather: Gather | Ungathered, place: Place) -> ir.Expr | None:
    """The value of a key that a sink carries home: one that is read where the sink is, by the same name."""
    key = gather.coordinate
    for factor in gather.values:
        value = view.forms.written_out(factor.expr)
        match value:
            case ir.Select(condition, then, otherwise):
                here = place.is_at(view, condition)
                there, other = (then, otherwise) if here else (otherwise, then)
                same = here or place.is_elsewhere(view, condition)
                if same and _read_in(view, there) & _read_in(view, other):
                    return there
            case ir.Read(_, indices) if any(key in i.type.coordinates and _is_held(i) for i in indices):
                return value
    return None


def _is_held(index: ir.Expr) -> bool:
    """Whether an index is kept in bounds by force, where there is no such point."""
    return isinstance(index, ir.Map) and index.op in ("min", "max", "clamp", "%")


def _read_in(view: View, expr: ir.Expr) -> set[str]:
    return {view.forms.seen_through(part).tensor for part in walk(expr) if isinstance(part, ir.Read) and part.indices}


# --------------------------------------------------------------------- scaled


def _compared(view: View, gather: Gather | Ungathered) -> set[Polynomial]:
    """The numbers of compared features."""
    constants = constants_of(view.lets)
    found = view.comparisons(gather)
    steps = [
        step for comparison in found for step in comparison.product.summed if step.coordinate in comparison.compared
    ]
    return {polynomial(step.range.upper, constants) for step in steps}


def _is_root(view: View, expr: ir.Expr, inverse: bool, gather: Gather | Ungathered) -> bool:
    power = power_of(view, expr, Fraction(-1 if inverse else 1))
    return power is not None and power[1] == Fraction(-1, 2) and power[0] in _compared(view, gather)


def _is_scaled_total(view: View, gather: Gather | Ungathered) -> bool:
    """Whether what is added to a total is e to an input over the root of a compared size: it compares nothing."""
    for _, term in gather.weights.sink.terms:
        for _, part in () if term.exponent is None else term.exponent.terms:
            leaves = [(atom.expr, power) for atom, power in part.factors if isinstance(atom, Leaf)]
            given = [expr for expr, power in leaves if isinstance(expr, ir.Read) and power == 1]
            sizes = [
                polynomial(expr) for expr, power in leaves if isinstance(expr, ir.Size) and power == Fraction(-1, 2)
            ]
            if len(leaves) == len(part.factors) == 2 and given and set(sizes) & _compared(view, gather):
                return True
    return False


# --------------------------------------------------------------------- reports


def _report_scaled(span: Span) -> Diagnostic:
    return Diagnostic(
        CODE,
        "this sink is scaled like a score, and compares nothing",
        (Label(span, "the sink is here"),),
        ("a root of the size keeps sums of products in bounds: a score that is given has the size that it should",),
        "scale the comparison alone, and let the sink stand as it is",
    )


def _report_masked(view: View, gather: Gather | Ungathered, place: Place, guard: ir.Expr) -> Diagnostic:
    key = view.shown(gather.coordinate)
    return Diagnostic(
        CODE,
        "this guard may take the sink away with the keys",
        (Label(guard.span, f"asked of every `{key}`"), Label(place.sink.span, "the sink is one of them")),
        ("whoever does not hear the sink must share everything out among the keys",),
        f"keep it for all: `… || {place.at.span.text}`" if place.holds else "keep the sink for all, with `||`",
    )


def _report_carried(view: View, gather: Gather | Ungathered, place: Place, value: ir.Expr) -> Diagnostic:
    return Diagnostic(
        CODE,
        "the sink carries a value home that belongs to a key",
        (Label(value.span, "read for the sink too"), Label(place.sink.span, "the sink")),
        ("what the sink takes is not lost, as it should be: it is heard as that value",),
        "gather over the keys alone, or give the sink a value of 0",
    )
