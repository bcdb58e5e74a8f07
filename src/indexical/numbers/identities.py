"""Laws that the terms of a number do not show: angle sums, and how near to 0 an algebraic number can be.

`sin` and `cos` are exponentials of imaginary arguments. Multiplied out as such, a sum in which every coefficient is 0
is 0. A number made of roots and rationals is algebraic, and one that is not 0 is no nearer to 0 than a bound that its
radicals give: an enclosure within the bound shows that it is 0.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

from .interval import Interval, Unsettled
from .products import products_cancel
from .surds import Surd
from .terms import ENCLOSURES, Monomial, Polynomial, Symbol, Term, settled, total
from .tower import Number, TooManyTerms, budget, enclose, spend

# Each law multiplies and adds at most so many terms: some seconds.
_MOST_WORK = 1_500_000
# Waves are multiplied out into at most so many exponentials.
_MOST_WAVES = 20_000
# In bits: a bound below 2^-this is not gone to.
_FINEST = 1 << 14

# An exponential e^(real + i·angle) with the two parts of its coefficient.
_Waves = dict[tuple[Any, Any], tuple[Any, Any]]


def vanishes(value: Any, depth: int = 0) -> bool:
    """Whether a number is 0 by the laws of `exp`, `sin` and `cos`, or by its bound; False where that is not seen. It is
    asked of exponents too, at some `depth`."""
    if not isinstance(value, Polynomial):
        return not value
    for law in (_is_within_bound, _waves_cancel, partial(products_cancel, depth=depth)):
        try:
            with budget(_MOST_WORK):
                if law(value):
                    return True
        except (TooManyTerms, Unsettled):
            continue
    return False


# ---------------------------------------------------------------------- waves


def _waves_cancel(value: Polynomial) -> bool:
    """Whether the sum, as one of exponentials with imaginary exponents too, has no term left."""
    least: dict[Any, int] = {}
    for monomial in value.terms:
        for atom, power in monomial:
            least[atom] = min(least.get(atom, 0), power)
    if not any(isinstance(atom, Term) and atom.function in ("sin", "cos") for atom in least):
        return False
    # Multiplied by what it is divided by, which is not 0.
    raised = {
        frozenset((atom, power) for atom, low in least.items() if (power := dict(monomial).get(atom, 0) - low)): c
        for monomial, c in value.terms.items()
    }
    for atom in least:
        if isinstance(atom, Term) and atom.function == "sin":
            raised = _on_the_circle(raised, atom)
    found: _Waves = {}
    powers: _Powers = {}
    for monomial, coefficient in raised.items():
        for key, part in _product(dict(monomial), powers).items():
            _add(found, key, (part[0] * coefficient, part[1] * coefficient))
    return all(_is_nothing(part) for pair in found.values() for part in pair)


def _on_the_circle(terms: dict[Monomial, Any], sine: Term) -> dict[Monomial, Any]:
    """A sum with `1 - cos²` for the square of a sine, from its highest power down: so a high power of `sin² + cos²`
    is 1 before its waves are multiplied out."""
    by_power: dict[int, dict[Monomial, Any]] = {}
    for monomial, coefficient in terms.items():
        power = dict(monomial).get(sine, 0)
        by_power.setdefault(power, {})[monomial - {(sine, power)}] = coefficient
    cosine = Term("cos", sine.arguments)
    result: dict[Monomial, Any] = {}
    for odd in (0, 1):
        found: dict[Monomial, Any] = {}
        for power in range(max(by_power, default=0) // 2 * 2 + odd, -1, -2):
            spend(10 * len(found))
            for monomial, coefficient in list(found.items()):
                times = dict(monomial).get(cosine, 0)
                _add_term(found, monomial - {(cosine, times)} | {(cosine, times + 2)}, -coefficient)
            for monomial, coefficient in by_power.get(power, {}).items():
                _add_term(found, monomial, coefficient)
        result |= {monomial | {(sine, 1)} if odd else monomial: c for monomial, c in found.items()}
    return result


def shortened(value: Polynomial) -> Any:
    """A sum with `1 - cos²` for the squares of its sines, where it has fewer terms then."""
    found = value.terms
    for atom in {atom for monomial in found for atom, _ in monomial}:
        if isinstance(atom, Term) and atom.function == "sin" and not any(p < 0 for m in found for _, p in m):
            found = _on_the_circle(found, atom)
    return settled(found) if len(found) < len(value.terms) else value


def _add_term(terms: dict[Monomial, Any], monomial: Monomial, coefficient: Any) -> None:
    total = terms.pop(monomial, 0) + coefficient
    if not _is_nothing(total):
        terms[monomial] = total


def _is_nothing(value: Any) -> bool:
    return value.is_zero() is True if isinstance(value, Number) else value == 0


# The powers of each wave that are multiplied out, from the power 0 on.
_Powers = dict[Any, list[_Waves]]


def _product(powers: dict[Any, int], known: _Powers) -> _Waves:
    """A product of powers of atoms, none of them negative."""
    result: _Waves = {(0, 0): (1, 0)}
    for atom, power in powers.items():
        if power == 0:
            continue
        function = atom.function if isinstance(atom, Term) else ""
        if function not in ("sin", "cos"):
            inside = Polynomial({frozenset(((atom, power),)): 1})
            result = {key: (re * inside, im * inside) for key, (re, im) in result.items()}
            continue
        raised = known.setdefault(atom, [{(0, 0): (1, 0)}])
        while len(raised) <= power:
            raised.append(_times(raised[-1], _wave(function, atom.arguments[0])))
        result = _times(result, raised[power])
    return result


def _wave(function: str, angle: Any) -> _Waves:
    """cos = (e^ia + e^-ia)/2, or sin = (-i·e^ia + i·e^-ia)/2."""
    half = Fraction(1, 2)
    result: _Waves = {}
    for side in (1, -1):
        (re, im), key = _turned(angle * side)
        _add(result, (0, key), (re * half, im * half) if function == "cos" else (im * half * side, re * half * -side))
    return result


def _times(one: _Waves, other: _Waves) -> _Waves:
    """The product of two sums of waves."""
    spend(50 * len(one) * len(other))
    result: _Waves = {}
    for (real, angle), (re, im) in one.items():
        for (real2, angle2), (re2, im2) in other.items():
            (re3, im3), key = _turned(angle + angle2)
            re4, im4 = re * re2 - im * im2, re * im2 + im * re2
            _add(result, (real + real2, key), (re4 * re3 - im4 * im3, re4 * im3 + im4 * re3))
    if len(result) > _MOST_WAVES:
        raise TooManyTerms("its angles have too many sums")
    return result


def _turned(angle: Any) -> tuple[tuple[Any, Any], Any]:
    """`e^(i·angle)` as a number times another one: the multiples of pi that have a known sine come out."""
    from .functions import PI, cos_of_turn

    if isinstance(angle, Polynomial):
        (of_pi,) = PI.terms
        turn = angle.terms.get(of_pi)
        if isinstance(turn, int | Fraction):
            known = Fraction(round(12 * Fraction(turn)), 12)
            rest = total([angle, Polynomial({of_pi: -known})]) if known else angle
            return (cos_of_turn(known), cos_of_turn(Fraction(1, 2) - known)), rest
    return (1, 0), angle


def _add(waves: _Waves, key: tuple[Any, Any], part: tuple[Any, Any]) -> None:
    found = waves.get(key)
    waves[key] = part if found is None else (found[0] + part[0], found[1] + part[1])


# ---------------------------------------------------------------------- roots


def _is_within_bound(value: Polynomial) -> bool:
    """Whether an algebraic number is nearer to 0 than it could be if it were not 0."""
    radicals: dict[Any, int] = {}
    sizes = _sizes(value, radicals)
    if sizes is None:
        return False
    degree = 1
    for index in radicals.values():
        degree *= index
    above, below = sizes
    bits = below + (degree - 1) * max(0, above) + 1
    if bits > _FINEST:
        return False
    found = enclose(value, bits + 64)
    size = max(abs(found.low), abs(found.high))
    return size.bit_length() + found.exponent < -bits


def _sizes(value: Any, radicals: dict[Any, int]) -> tuple[int, int] | None:
    """Bounds, in bits, for all conjugates of `above` and `below`, algebraic integers whose quotient is the number.

    None where the number is not seen to be algebraic. The radicals in it are collected, each with its index. (The
    bound is that of Burnikel, Funke, Mehlhorn, Schirra and Schmitt.)
    """
    if isinstance(value, int | Fraction):
        return abs(value.numerator).bit_length(), value.denominator.bit_length()
    if isinstance(value, Surd):
        parts = []
        for key, coefficient in value.terms.items():
            if key != 1:
                radicals[key] = 2
            above = abs(coefficient.numerator).bit_length() + key.bit_length()
            parts.append((above, coefficient.denominator.bit_length()))
        return _summed(parts)
    if not isinstance(value, Polynomial):
        return None
    parts = []
    for monomial, coefficient in value.terms.items():
        found = _sizes(coefficient, radicals)
        for atom, power in monomial:
            part = _size_of_atom(atom, radicals)
            if part is None or found is None:
                return None
            part = part if power > 0 else part[::-1]
            found = found[0] + abs(power) * part[0], found[1] + abs(power) * part[1]
        if found is None:
            return None
        parts.append(found)
    return _summed(parts)


def _size_of_atom(atom: Any, radicals: dict[Any, int]) -> tuple[int, int] | None:
    if isinstance(atom, Symbol):
        return None
    if atom.function == "cos" and (turn := _turn(atom.arguments[0])) is not None:
        # Twice a cosine of a rational part of a turn is an algebraic integer between -2 and 2; all with one denominator
        # are in one field, of a degree that is at most the denominator.
        radicals["cos", turn.denominator] = turn.denominator
        return 1, 1
    if atom.function not in ("sqrt", "power", "inverse"):
        return None
    found = _sizes(atom.arguments[0], radicals)
    if found is None or atom.function == "inverse":
        return found and found[::-1]
    exponent = Fraction(1, 2) if atom.function == "sqrt" else atom.arguments[1]
    if not isinstance(exponent, Fraction):
        return None
    radicals[atom] = index = exponent.denominator
    found = found if exponent > 0 else found[::-1]
    above, below = (abs(exponent.numerator) * part for part in found)
    # The root of a/b is that of a·b^(index - 1), over b.
    return -(-(above + (index - 1) * below) // index), below


def _turn(angle: Any) -> Fraction | None:
    from .functions import half_turns

    return half_turns(angle)


def _summed(parts: list[tuple[int, int]]) -> tuple[int, int]:
    below = sum(part[1] for part in parts)
    above = max(part[0] + below - part[1] for part in parts)
    return above + len(parts).bit_length(), below


def differs_somewhere(value: Polynomial) -> bool:
    """Whether a sum with symbols is certainly not 0 at some point, and so not for all their values."""
    for step in range(1, 4):
        places = {
            symbol: Fraction(7 * step + 5 * number + 3, 11 + 2 * number)
            for number, symbol in enumerate(sorted(value.symbols, key=str))
        }
        try:
            if at_point(value, places).sign() in (1, -1):
                return True
        except (Unsettled, ValueError, OverflowError):
            continue
    return False


def at_point(value: Any, places: dict[Symbol, Fraction]) -> Any:
    """An enclosure of a number with symbols, where these have values."""
    bits = 128
    if not isinstance(value, Polynomial):
        return enclose(value, bits)
    result = Interval.of(0, bits)
    for monomial, coefficient in value.terms.items():
        part = enclose(coefficient, bits)
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                found = Interval.of(places[atom], bits)
            elif atom.arguments:
                found = ENCLOSURES[atom.function](*(at_point(inside, places) for inside in atom.arguments))
            else:
                found = atom.enclose(bits)
            part = part * found ** abs(power) if power > 0 else part / found ** abs(power)
        result = result + part
    return result
