"""The setting of numbers in tables: as they are where that is short, else with proven digits beside them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from ..numbers.digits import decimal
from ..numbers.exponentials import Quotient
from ..numbers.notation import canonical, write
from ..numbers.surds import Surd
from ..numbers.terms import Polynomial, Term
from ..numbers.tower import Number, Special

# A form that is longer is left to its digits.
LONGEST = 32


def readable(value: Any, digits: int = 4) -> str:
    """A number for a person: `0.4`, `1/3`, `1/(2+e) ≈ 0.2119`. A decimal without `≈` is the whole number."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Special) or (isinstance(value, Polynomial) and value.symbols):
        return write(canonical(value))
    if length(value, LONGEST) > LONGEST:
        return f"≈ {decimal(value, digits)}"
    if not isinstance(value, Number):
        return terminating(Fraction(value)) or str(value)
    text = write(canonical(value))
    near = f"≈ {decimal(value, digits)}"
    return f"{text} {near}" if len(text) <= LONGEST else near


def length(value: Any, most: int) -> int:
    """The least number of characters that the form of a number has, or any count over `most`: to write what is long,
    only to throw it away, may take minutes."""
    match value:
        case bool() | Special():
            return 1
        case int() | Fraction():
            return (value.numerator.bit_length() + value.denominator.bit_length() - 1) * 3 // 10
        case Polynomial():
            parts: Iterator[Any] = (part for m, c in value.terms.items() for part in (c, *(atom for atom, _ in m)))
        case Quotient():
            parts = (part for terms in (value.top, *value.factors) for part in terms.terms)
        case Surd():
            parts = iter(value.terms)
        case Term(arguments=arguments):
            parts = iter(arguments)
        case _:
            return 1
    found = 0
    for part in parts:
        found += max(1, length(part, most - found))
        if found > most:
            break
    return found


def short(value: Any, digits: int = 4) -> str:
    """The same in fewer characters: the form, or else the digits."""
    text = readable(value, digits)
    form, _, near = text.partition(" ≈ ")
    return form if not near or len(form) <= LONGEST // 2 else f"≈ {near}"


def terminating(value: Fraction, places: int = 6) -> str | None:
    """A fraction as the decimal that it is; None where it has none, or a long one."""
    if value.denominator == 1:
        return str(value)
    if 10**places % value.denominator:
        return None
    sign = "-" if value < 0 else ""
    whole, part = divmod(abs(value) * 10**places, 10**places)
    return f"{sign}{whole}.{int(part):0{places}d}".rstrip("0")


def percent(value: Any) -> str:
    """A share: `50 %`, or `about 21.2 %` where more digits follow."""
    hundredfold = value * 100
    if not isinstance(hundredfold, Number):
        exact = terminating(Fraction(hundredfold), 1)
        if exact is not None:
            return f"{exact} %"
    digits = decimal(hundredfold, 3)
    return f"about {digits} %"


def table(rows: list[list[str]], indent: str = "  ") -> list[str]:
    """Columns under each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [f"{indent}{line}".rstrip() for line in lines]
