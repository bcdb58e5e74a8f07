"""Verdicts on published figures, as text for a terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ..checker.names import counted
from ..numbers.causes.cause import Cause
from ..numbers.claims import Cell, Claim
from ..numbers.digits import decimal
from ..numbers.interval import Interval
from ..numbers.results import Value
from ..numbers.terms import Polynomial
from ..numbers.tower import Number, Special
from .numbers import LONGEST, length, readable, table, terminating

# A distance in units is written in full up to so many signs.
LONGEST_UNITS = 12
# Of more figures that fail, so many are shown.
MOST_ROWS = 40

_WORDS = {"holds": "holds", "rounding": "within rounding", "undecided": "undecided", "fails": "fails"}

# A number that has more digits before the places of a claim is told by its first ones.
_MOST_DIGITS = 60


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
    nearly = "within the tolerance" if claim.tolerant else "to the last digit"
    told = f"{wrong} of {figures}" if wrong else f"{'exactly' if exactly else nearly}, {figures}"
    conditions = sorted({cell.condition for cell in claim.cells if cell.condition})
    told += "".join(f", for {condition}" for condition in conditions)
    lines = [f"{_WORDS[claim.verdict]:<16} line {claim.line}: {text}  ({told})"]
    if not wrong:
        return lines
    rows = [["", "claimed", "exact", "off by", "in units of its last digit", "rounding allows at most"]]
    rows += [_cell_row(claim, cell) for cell in claim.failing[:MOST_ROWS]]
    used = [column for column in range(6) if any(row[column] for row in rows[1:])]
    more = [f"    … and {wrong - MOST_ROWS:,} more; `--format json` has them all"] if wrong > MOST_ROWS else []
    return [*lines, *table([[row[column] for column in used] for row in rows], "    "), *more, *_explanation(claim)]


def _cell_row(claim: Claim, cell: Cell) -> list[str]:
    distance = "" if cell.distance is None else readable(cell.distance.number)
    units = "" if cell.units is None else _units(cell.units)
    exact = show_exact(cell.value, cell.digits)
    return [_place(claim, cell), cell.claimed, exact, distance, units, _bounds(cell.bounds)]


def _place(claim: Claim, cell: Cell) -> str:
    if not claim.coordinates:
        return claim.left if len(claim.left) <= 40 else "the left side"
    if claim.left.isidentifier():
        return f"{claim.left}[{', '.join(map(str, cell.place))}]"
    return ", ".join(f"{name} = {at}" for name, at in zip(claim.coordinates, cell.place, strict=True))


def show_exact(value: Value, places: int | None = None) -> str:
    """The exact value; a fraction with the decimal that it is. Its digits go on for two places more than `places`."""
    if value.masked:
        return "masked"
    number = value.number
    if isinstance(number, bool | Number) or Fraction(number).denominator == 1:
        return readable(number, _digits(number, places, 4))
    exact = terminating(Fraction(number))
    if exact:
        return f"{number} = {exact}"
    if length(number, LONGEST) <= LONGEST:
        return f"{number} ≈ {decimal(number, _digits(number, places, 6))}"
    return terminating(Fraction(number), 60) or f"≈ {decimal(number, _digits(number, places, 6))}"


def _digits(number: Any, places: int | None, least: int) -> int:
    """How many digits reach two places beyond those of a claim."""
    if isinstance(number, bool | Special) or not number or (isinstance(number, Polynomial) and number.symbols):
        return least
    near = decimal(number, 1)
    exponent = near.partition("e")[2]  # of more digits than a `Decimal` has, it may be
    leading = int(exponent) if exponent else Decimal(near).adjusted()
    wanted = leading + 1 + (places or 0) + 2
    return least if wanted > _MOST_DIGITS else max(least, wanted)


def _units(units: Value) -> str:
    """A distance in units, to three digits. One barely over half a unit is written as such: the figure fails."""
    number = units.number
    exact = None if isinstance(number, Number) else terminating(Fraction(number), 2)
    if exact and len(exact) <= LONGEST_UNITS:
        return exact
    near = decimal(number, 3)
    return "just over 0.5" if near == "0.500" else f"≈ {near}"


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
    """Say whether rounding explains a claim with failing figures, and what does where it does not."""
    known = [cell for cell in claim.failing if not cell.undecided]
    found = [(cell.depends, cell.explained) for cell in known if cell.depends]
    open_ended = ["    it is not known whether this holds: named terms are neither identical nor told apart"]
    lines = open_ended if len(known) < len(claim.failing) else []
    if len(set(found)) == 1 and len(found) == len(known):
        lines = [f"    {_EXPLANATIONS[found[0]]}", *lines]
    elif found:
        counts = {
            "could be explained by the rounding of the printed figures": found.count((True, True)),
            "cannot": found.count((True, False)),
            "cannot be told": found.count((True, None)),
            "depend on no printed figure": len(known) - len(found),
        }
        said = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        lines = [f"    of these, {said}", *lines]
    return [*lines, *cause_lines(claim)]


ROUNDED = "the rounding of the printed figures could explain this"
_EXPLANATIONS = {
    (True, False): "the rounding of the printed figures cannot explain this",
    (True, True): ROUNDED,
    (True, None): "whether the rounding of the printed figures explains this cannot be told: a comparison, a quotient "
    "or a root hangs on it",
}


def cause_lines(claim: Claim, alone: Cell | None = None) -> list[str]:
    """The causes of the figures that fail, each with the figures that it explains, where it does not explain all; or
    that of one figure `alone`."""
    wrong = [cell for cell in claim.cells if cell.verdict == "fails"] if alone is None else [alone]
    groups: dict[Cause | None, list[Cell]] = {}
    for cell in wrong:
        groups.setdefault(cell.cause, []).append(cell)
    lines = []
    for cause, cells in groups.items():
        places = ", ".join(_place(claim, cell) for cell in cells[:3]) + (", …" if len(cells) > 3 else "")
        where = f" of {places}" if len(groups) > 1 else ""
        if cause is None:
            lines.append(f"    cause{where}: unknown; {_unknown(claim, len(cells))}")
            continue
        others = cause.figures - len(cells)
        figures = counted(others, "failing figure" if alone is None else "other figure")
        more = f"; it explains {figures}{' of other claims' if alone is None else ''} too" if others else ""
        lines.append(f"    cause{where}: {cause.text}")
        lines.append(f"    evidence: {cause.evidence}{more}")
    return lines


def _unknown(claim: Claim, cells: int) -> str:
    """What is said where no cause is named."""
    if not claim.searched:
        return "not all usual mistakes were tried"
    them = "it" if cells == 1 else "them"
    if not claim.near:
        return f"no usual mistake explains {them}"
    close = "it is" if cells == 1 else "they are"
    hint = "" if claim.hint is None else f"; it {claim.hint.text}, but {claim.hint.evidence}"
    return f"{close} close, and nothing tried explains {them} better than chance{hint}"


def claims_json(claims: tuple[Claim, ...], holds: bool) -> dict[str, Any]:
    """Every figure with its verdict, as plain lists and strings."""
    return {
        "holds": holds,
        "claims": [
            {
                "text": claim.text,
                "line": claim.line,
                "coordinates": list(claim.coordinates),
                "verdict": claim.verdict,
                "cause": cause_json(claim.cause),
                "all_causes_tried": claim.searched,
                "close": claim.near,
                "hint": cause_json(claim.hint),
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
        "cause": cause_json(cell.cause),
        "condition": cell.condition or None,
    }


def cause_json(cause: Cause | None) -> dict[str, Any] | None:
    if cause is None:
        return None
    said = {"kind": cause.kind, "text": cause.text, "figures": cause.figures, "chance": cause.chance}
    return {**said, "evidence": cause.evidence}
