"""Figures that were given rounded: whether what was left out of them could explain a claim."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

from ...diagnostics import CallError
from ...ir import nodes as ir
from ...ir.walk import parts_in
from ...records import replace
from ...run.tables import Table
from ..interval import Interval, Unsettled
from ..ranges import Ranges, Rounded
from .example import Example, Figure, as_decimal

# Fewer figures than this, or shorter ones, look like what was chosen, and not like what was printed.
FEWEST, SHORTEST = 4, 2
# In units of its last digit: a claim that is further off, or bounds that are wider, say nothing.
WIDEST = 12


def rounded_figures(program: ir.Program, names: Iterable[str]) -> dict[str, ir.Let]:
    """The definitions among these whose figures look as if they were printed, with these marked as such."""
    found = {}
    for name in names:
        let = program.definitions.get(name)
        if let is None:
            continue
        arrays = [part for part in parts_in(let) if isinstance(part, ir.Array)]
        figures = [cell for array in arrays for cell in array.cells if _places(cell) >= SHORTEST]
        if len(figures) >= FEWEST and all(cell.rounding is None for cell in figures):
            clauses = tuple(replace(clause, body=_marked(clause.body)) for clause in let.clauses)
            found[name] = replace(let, clauses=clauses)
    return found


def _places(cell: ir.Const) -> int:
    text = cell.span.text
    return len(text.partition(".")[2]) if "e" not in text.lower() else 0


def _marked(body: ir.Expr) -> ir.Expr:
    """An array whose figures are marked as printed."""
    if not isinstance(body, ir.Array):
        return body
    half = Fraction(1, 2)
    cells = tuple(replace(cell, rounding=half / 10 ** _places(cell)) if _places(cell) else cell for cell in body.cells)
    return replace(body, cells=cells)


def within_rounding(example: Example, marked: dict[str, ir.Let], figures: list[Figure]) -> bool:
    """Whether all these figures could be right if the marked ones are anywhere within their rounding, and are not far
    off."""
    program = replace(example.program, lets=tuple(marked.get(let.name, let) for let in example.program.lets))
    numbers = Ranges(128, wide=True)
    tables = {}
    for tensor in program.inputs:
        table = example.evaluated.table(tensor.name)
        cells = [numbers.number(cell) if tensor.kind == "real" else cell for cell in table.cells]
        tables[tensor.name] = Table(table.shape, cells)
    evaluation = Rounded(program, tables, example.sizes, numbers)
    try:
        evaluation.compute(program, example.wanted)
        return all(_is_within(figure, evaluation.value(figure.expect.body, figure.point)) for figure in figures)
    except (Unsettled, OverflowError, ValueError, CallError):
        return False


def _is_within(figure: Figure, bounds: object) -> bool:
    if not isinstance(bounds, Interval) or figure.wanted is None:
        return False
    low, high = as_decimal(bounds.lower), as_decimal(bounds.upper)
    if (high - low) / figure.unit > WIDEST:
        return False
    return bool(low - figure.half <= figure.wanted <= high + figure.half) and figure.half > Decimal(0)
