"""A mask written as a large negative number, where a guard is meant."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.algebra.predicates import exponential_of, is_exponential
from ...ir.walk import children, walk
from ..view import View

CODE = "IX411"

# What no score is, and every mask by number.
LARGE = 1_000


# A large negative number in a score, and the condition under which a point is kept, where one is written.
Mask = tuple[ir.Expr, ir.Expr | None]


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    known: dict[str, list[Mask]] = {}
    for let in view.program.lets:
        for clause in let.clauses:
            for expr in walk(clause.body):
                score = _exponentiated(expr)
                if score is not None:
                    for place, guard in _distinct(_masks(view, score, known)):
                        yield let, _report(place, guard, expr)


def _exponentiated(expr: ir.Expr) -> ir.Expr | None:
    if isinstance(expr, ir.Normalize):
        return expr.body if is_exponential(expr) else None
    found = exponential_of(expr)
    return None if found is None else found[1]


def _distinct(masks: Iterator[Mask]) -> list[Mask]:
    """Each place once, however many reads lead to it."""
    return list({place.span: (place, guard) for place, guard in masks}.values())


def _masks(view: View, score: ir.Expr, known: dict[str, list[Mask]]) -> Iterator[Mask]:
    """The large negative numbers in a score, each with the condition under which a point is kept. Those of a definition
    are `known` from its first read on: in a stack of layers, each score reads all layers before it."""
    match score:
        case ir.Read(tensor):
            if tensor not in known and (found := view.forms.opened(score)) is not None:
                known[tensor] = _distinct(_masks(view, found[0], known))
            yield from known.get(tensor, ())
        case ir.Select(condition, then, otherwise):
            if _is_large(view.forms.written_out(otherwise)):
                yield otherwise, condition
            elif _is_large(view.forms.written_out(then)):
                yield then, None
            yield from _masks(view, then, known)
            yield from _masks(view, otherwise, known)
        case ir.Map("+" | "-", arguments):
            for argument in arguments:
                inside = list(_masks(view, argument, known))
                yield from inside
                if not inside and argument.type.coordinates:
                    factors = [view.forms.written_out(factor.expr) for factor in view.forms.expand(argument).factors]
                    if any(_is_large(factor) or _is_large_positive(factor) for factor in factors):
                        yield argument, None
        case ir.Map() | ir.Reduce():
            for child in children(score):
                yield from _masks(view, child, known)
        case _:
            return


def _is_large(expr: ir.Expr) -> bool:
    match expr:
        case ir.Map("neg", (ir.Const(value),)):
            return value >= LARGE
        case ir.Const(value):
            return value <= -LARGE
        case _:
            return False


def _is_large_positive(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const) and not isinstance(expr.value, bool) and expr.value >= LARGE


def _report(place: ir.Expr, guard: ir.Expr | None, normaliser: ir.Expr) -> Diagnostic:
    shown = guard.span.text if guard is not None else "…"
    return Diagnostic(
        CODE,
        f"`{place.span.text}` stands in for a mask",
        (Label(place.span), Label(normaliser.span, "exponentiated here")),
        (
            "masked is absent, not very negative: a row with nothing left listens to everybody instead of nobody, "
            "and a score can outweigh the number",
        ),
        f"write the relation as a guard: `softmax[…](… where {shown})`",
    )
