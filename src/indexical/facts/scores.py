"""The score of some weights: what is exponentiated, as it is written, and whether something is subtracted first."""

from __future__ import annotations

from collections.abc import Callable

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Forms
from ..ir.algebra.normal import Form, TooLarge, form, plus
from ..ir.algebra.predicates import exponential_of
from ..ir.algebra.sums import split
from ..ir.algebra.weights import inlined
from ..ir.algebra.writing import named, written
from ..ir.types import NOWHERE, Coordinate
from ..records import dataclass, replace
from ..source import Span


@dataclass(frozen=True, slots=True)
class Score:
    """The expression that is exponentiated, and the normaliser that does it, where there is one."""

    expr: ir.Expr
    normalizer: ir.Normalize | None = None


def score_of(forms: Forms, expr: ir.Expr, key: Coordinate) -> Score | None:
    """The score in an expression, as it is written and without a shift."""
    match expr:
        case ir.Read() if (found := forms.opened(expr)) is not None:
            return score_of(forms, found[0], key)
        case ir.Normalize("softmax", _, body):
            return Score(body, expr)
        case ir.Map() if (power := exponential_of(expr)) is not None:
            base, exponent = power
            inside = _unshifted(forms, exponent, key)
            if base is None:
                return inside
            rate = build.apply("log", (base,), "real", base.span)
            return replace(inside, expr=build.apply("*", (inside.expr, rate), "real", inside.expr.span))
        case _:
            return None


def _unshifted(forms: Forms, exponent: ir.Expr, key: Coordinate) -> Score:
    """The score in `score - max` and in `log_softmax`: less what does not vary along the keys."""
    exponent = forms.written_out(exponent)
    match exponent:
        case ir.Normalize("log_softmax", _, body):
            return Score(body, exponent)
        case ir.Map("-", (score, shift)) if key not in shift.type.coordinates:
            return Score(score)
        case _:
            return Score(exponent)


def _is_shift(forms: Forms, expr: ir.Expr, key: Coordinate) -> bool:
    """Whether a definition is a score less something, or reads on to one."""
    match forms.written_out(expr):
        case ir.Normalize("log_softmax"):
            return True
        case ir.Map("-", (_, shift)):
            return key not in shift.type.coordinates
        case _:
            return False


def is_exponent(forms: Forms, score: ir.Expr, exponent: Form, key: Coordinate) -> bool:
    """Whether a score is what is exponentiated, but for what does not vary along the keys."""
    algebra = forms.algebra
    algebra.work = algebra.depth = 0
    try:
        above, below = inlined(algebra, exponent, algebra.plain(score), key, NOWHERE)
    except TooLarge:
        return False
    return key not in plus(above, below, -1).coordinates


def in_words(exponent: Form, key: Coordinate, span: Span) -> ir.Expr:
    """The part of an exponent that varies along the keys, as an expression that stands at the weights."""
    score, _ = split(exponent, frozenset((key,)))
    value = written(form(()) if score is None else score, span)
    return named(value, (coordinate.name for coordinate in value.type.coordinates))


def is_shifted(forms: Forms, expr: ir.Expr, raises: Callable[[str], bool]) -> bool:
    """Whether all exponentials that are summed in an expression have something subtracted first. `raises` says of a
    definition whether something is exponentiated in it."""
    waiting: list[tuple[ir.Expr, frozenset[Coordinate]]] = [(expr, frozenset())]
    seen: set[str] = set()
    while waiting:
        part, summed = waiting.pop()
        match part:
            case ir.Read(tensor) if tensor not in seen and raises(tensor):
                seen.add(tensor)
                found = forms.opened(part)
                waiting += [] if found is None else [(found[0], summed)]
            case ir.Map() if (power := exponential_of(part)) is not None and summed & power[1].type.coordinates:
                if not any(_is_shift(forms, power[1], key) for key in summed):
                    return False
            case ir.Reduce("sum"):
                waiting.append((part.body, summed | part.coordinates))
            case ir.Map(arguments=arguments):
                waiting += [(argument, summed) for argument in arguments]
            case ir.Select(_, then, otherwise):
                waiting += [(then, summed), (otherwise, summed)]
    return True
