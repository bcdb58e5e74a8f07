"""Verdicts on published figures, as text for a terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ..checker.names import counted
from ..numbers.claims import Cell, Claim
from ..numbers.digits import decimal
from ..numbers.interval import Interval
from ..numbers.results import Value
from ..numbers.tower import Number
from .numbers import LONGEST, length, readable, table, terminating

# Of more figures that fail, so many are shown.
MOST_ROWS = 40

_WORDS = {"holds": "holds", "rounding": "within rounding", "undecided": "undecided", "fails": "fails"}


def show_claims(claims: tuple[Claim, ...]) -> str:
    """Each claim with its verdict, then the cells that fail; a line at the end counts them."""
    if not claims:
        return "nothing is claimed: a program claims figures with `expect`"
    parts = ["\n".join(_claim_lines(claim)) for claim in claims]
    return "\n".join([*parts, "", summary(claims)])


def summary(claims: tuple[Claim, ...]) -> str:
    cells = [cell for claim in claims for cell in claim.cells]
    counts = {verdict: sum(cell.verdict == verdict for cell in cells) for verdict in _WORDS}
    words = {**_WORDS, "holds": "hold", "fails": "fail"}
    said = ", ".join(f"{count} {(_WORDS if count == 1 else words)[v]}" for v, count in counts.items() if count)
    return f"{counted(len(claims), 'claim')}, {counted(len(cells), 'figure')}: {said}"


def _claim_lines(claim: Claim) -> list[str]:
    text = claim.text.removeprefix("expect").strip().rstrip(";")
    text = text if len(text) <= 72 else f"{claim.left} == …"
    wrong = len(claim.failing)
    figures = counted(len(claim.cells), "figure")
    exactly = all(cell.exactly for cell in claim.cells)
    told = f"{wrong} of {figures}" if wrong else f"{'exactly' if exactly else 'to the last digit'}, {figures}"
    lines = [f"{_WORDS[claim.verdict]:<16} line {claim.line}: {text}  ({told})"]
    if not wrong:
        return lines
    rows = [["", "claimed", "exact", "off by", "in units of its last digit", "what rounding allows"]]
    rows += [_cell_row(claim, cell) for cell in claim.failing[:MOST_ROWS]]
    used = [column for column in range(6) if any(row[column] for row in rows[1:])]
    more = [f"    … and {wrong - MOST_ROWS:,} more; `--format json` has them all"] if wrong > MOST_ROWS else []
    return [*lines, *table([[row[column] for column in used] for row in rows], "    "), *more, *_explanation(claim)]


def _cell_row(claim: Claim, cell: Cell) -> list[str]:
    distance = "" if cell.distance is None else readable(cell.distance.number)
    units = "" if cell.units is None else _units(cell.units)
    return [_place(claim, cell), cell.claimed, show_exact(cell.value), distance, units, _bounds(cell.bounds)]


def _place(claim: Claim, cell: Cell) -> str:
    if not claim.coordinates:
        return claim.left if len(claim.left) <= 40 else "the left side"
    if claim.left.isidentifier():
        return f"{claim.left}[{', '.join(map(str, cell.place))}]"
    return ", ".join(f"{name} = {at}" for name, at in zip(claim.coordinates, cell.place, strict=True))


def show_exact(value: Value) -> str:
    """The exact value; a fraction with the decimal that it is."""
    if value.masked:
        return "masked"
    number = value.number
    if isinstance(number, bool | Number) or Fraction(number).denominator == 1:
        return readable(number)
    exact = terminating(Fraction(number))
    if exact:
        return f"{number} = {exact}"
    if length(number, LONGEST) <= LONGEST:
        return f"{number} ≈ {decimal(number, 6)}"
    return terminating(Fraction(number), 60) or f"≈ {decimal(number, 6)}"


def _units(units: Value) -> str:
    """A distance in units, to three digits. One barely over half a unit is written as such: the figure fails."""
    number = units.number
    exact = None if isinstance(number, Number) else terminating(Fraction(number), 2)
    near = decimal(number, 3)
    return exact or ("just over 0.5" if near == "0.500" else f"≈ {near}")


def _bounds(bounds: Interval | None) -> str:
    """From the lower to the upper end, each rounded outward to six places."""
    if bounds is None:
        return ""
    low, high = _outward(bounds.lower, math.floor), _outward(bounds.upper, math.ceil)
    return f"{terminating(low)} to {terminating(high)}"


def _outward(end: Fraction, direction: Callable[[Fraction], int]) -> Fraction:
    """To six places. An end that is a hair's breadth beyond such a decimal is that decimal, widened by arithmetic."""
    nearest = Fraction(round(end * 10**6), 10**6)
    return nearest if abs(nearest - end) < Fraction(1, 10**30) else Fraction(direction(end * 10**6), 10**6)


def _explanation(claim: Claim) -> list[str]:
    """Say whether rounding explains a failing claim; where figures differ in that, how many there are of each."""
    found = [(cell.depends, cell.explained) for cell in claim.failing if not cell.undecided]
    open_ended = ["    it is not known whether this holds: named terms are neither identical nor told apart"]
    open_ended = open_ended if len(found) < len(claim.failing) else []
    if len(set(found)) <= 1:
        return [*(f"    {_EXPLANATIONS[one]}" for one in set(found)), *open_ended]
    counts = {
        "could be explained by the rounding of the printed figures": found.count((True, True)),
        "cannot": found.count((True, False)) + found.count((False, False)),
        "cannot be told": found.count((True, None)),
    }
    said = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
    return [f"    of these, {said}", *open_ended]


_EXPLANATIONS = {
    (False, False): "rounding cannot explain this: no figure that it depends on is marked as printed",
    (True, False): "the rounding of the printed figures cannot explain this",
    (True, True): "the rounding of the printed figures could explain this",
    (True, None): "whether the rounding of the printed figures explains this cannot be told: a comparison, a quotient "
    "or a root hangs on it",
}


def claims_json(claims: tuple[Claim, ...]) -> dict[str, Any]:
    """Every figure with its verdict, as plain lists and strings."""
    return {
        "holds": all(claim.verdict == "holds" for claim in claims),
        "claims": [
            {
                "text": claim.text,
                "line": claim.line,
                "coordinates": list(claim.coordinates),
                "verdict": claim.verdict,
                "cells": [_cell_json(cell) for cell in claim.cells],
            }
            for claim in claims
        ],
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    bounds = cell.bounds and [decimal(cell.bounds.lower, 20), decimal(cell.bounds.upper, 20)]
    return {
        "place": list(cell.place),
        "claimed": cell.claimed,
        "exact": cell.value.canonical() if not cell.value.masked else "masked",
        "verdict": cell.verdict,
        "off_by": None if cell.distance is None else cell.distance.canonical(),
        "units_of_last_digit": None if cell.units is None else cell.units.canonical(),
        "depends_on_printed_figures": cell.depends,
        "rounding_explains": cell.explained,
        "rounding_allows": bounds,
    }
