"""A mask written as a large negative number, where a guard is meant."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.walk import children, walk
from ..view import View

CODE = "IX411"

# What no score is, and every mask by number.
LARGE = 1_000


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for let in view.program.lets:
        for clause in let.clauses:
            for expr in walk(clause.body):
                score = _exponentiated(expr)
                if score is not None:
                    for place, guard in _masks(view, score, set()):
                        yield let, _report(place, guard, expr)


def _exponentiated(expr: ir.Expr) -> ir.Expr | None:
    match expr:
        case ir.Normalize("softmax" | "log_softmax", _, body) | ir.Map("exp", (body,)):
            return body
        case _:
            return None


def _masks(view: View, score: ir.Expr, seen: set[str]) -> Iterator[tuple[ir.Expr, ir.Expr | None]]:
    """The large negative numbers in a score, each with the condition under which a point is kept. Definitions that
    were `seen` are not looked into again."""
    match score:
        case ir.Read(tensor):
            found = view.forms.opened(score)
            if found is not None and tensor not in seen:
                seen.add(tensor)
                yield from _masks(view, found[0], seen)
        case ir.Select(condition, then, otherwise):
            if _is_large(_named(view, otherwise)):
                yield otherwise, condition
            elif _is_large(_named(view, then)):
                yield then, None
            yield from _masks(view, then, seen)
            yield from _masks(view, otherwise, seen)
        case ir.Map("+" | "-", arguments):
            for argument in arguments:
                inside = list(_masks(view, argument, seen))
                yield from inside
                if not inside and argument.type.coordinates:
                    factors = [_named(view, factor.expr) for factor in view.forms.expand(argument).factors]
                    if any(_is_large(factor) or _is_large_positive(factor) for factor in factors):
                        yield argument, None
        case ir.Map() | ir.Reduce():
            for child in children(score):
                yield from _masks(view, child, seen)
        case _:
            return


def _named(view: View, expr: ir.Expr) -> ir.Expr:
    """A number by its name, as the number."""
    while isinstance(expr, ir.Read) and not expr.indices and (found := view.forms.opened(expr)) is not None:
        expr = found[0]
    return expr


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
