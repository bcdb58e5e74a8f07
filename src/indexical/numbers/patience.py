"""How many digits of a number can be had in reason, told before the work starts."""

from __future__ import annotations

from typing import Any

from .exponentials import Quotient, is_short
from .surds import Surd
from .terms import Polynomial, Term

# More digits than this are asked of no number.
MOST_DIGITS = 100_000
# So many digits are always given.
_FEW = 1_000
# More seconds than this, as estimated here, are not spent on one number.
_LONGEST = 5.0
# Seconds for ten thousand digits; twice as many take four times as long.
_SLOW = {"sin": 0.8, "cos": 0.8, "erf": 4.0, "erfc": 4.0, "pi": 0.0, "inverse": 0.0, "sqrt": 0.1}
_OTHERWISE = 0.4
# Seconds for a hundred thousand digits of a series that is split in halves, or of a root.
_QUICK = 1.0


def most_digits(value: Any) -> int:
    """The most digits of a number that are computed."""
    if not isinstance(value, Surd | Quotient | Polynomial):
        return MOST_DIGITS
    quick, slow = _parts(value)
    digits = MOST_DIGITS
    while digits > _FEW and quick * (digits / 1e5) ** 1.6 + slow * (digits / 1e4) ** 2 > _LONGEST:
        digits = digits * 9 // 10
    # A round number, to be told.
    unit: int = 10 ** (len(str(digits)) - 2)
    return max(_FEW, digits // unit * unit)


def _parts(value: Any) -> tuple[float, float]:
    """The seconds that the quick parts of a number take for many digits, and the slow ones for fewer."""
    if isinstance(value, Surd):
        return _QUICK * len(value.terms), 0.0
    if isinstance(value, Quotient):
        exponents = {a for part in (value.top, *value.factors) for a in part.terms if a}
        short = sum(is_short(a) for a in exponents)
        return _QUICK * short, _OTHERWISE * (len(exponents) - short)
    if isinstance(value, Polynomial):
        quick, slow = _summed(value.terms.values())
        for atom in value.atoms:
            if isinstance(atom, Term):
                inner = _summed(a for a in atom.arguments if not isinstance(a, Polynomial))
                quick += inner[0] + (_QUICK if atom.function == "pi" else 0)
                slow += inner[1] + _SLOW.get(atom.function, _OTHERWISE)
        return quick, slow
    return 0.0, 0.0


def _summed(values: Any) -> tuple[float, float]:
    found = [_parts(value) for value in values]
    return sum(quick for quick, _ in found), sum(slow for _, slow in found)
