"""Index arithmetic: extents and indices as polynomials, with quotients and remainders that are taken apart.

Splitting an axis and merging it again gives the index back: `(h * D + d) / D` is `h` where `d` stays below `D`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from ..ir.affine import ONE, Monomial, Polynomial, number, of_atom

Index: TypeAlias = Polynomial


@dataclass(frozen=True, slots=True)
class Extent:
    """A number of points that differs from call to call; `sizes` are those of the runs that were recorded. It is `free`
    unless it is made of others."""

    sizes: tuple[int, ...]
    free: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A coordinate without a name yet."""

    extent: Polynomial


@dataclass(frozen=True, slots=True)
class Quotient:
    of: Polynomial
    by: Polynomial


@dataclass(frozen=True, slots=True)
class Remainder:
    of: Polynomial
    by: Polynomial


@dataclass(frozen=True, slots=True)
class Looked:
    """A whole number that is read from a tensor."""

    value: Any = field()


def atom(of: Extent | Axis | Quotient | Remainder | Looked) -> Polynomial:
    return of_atom(cast(Any, of))


def parts_of(index: Polynomial) -> set[Any]:
    """The atoms of an index as they stand in it."""
    return cast(set[Any], index.atoms)


def atoms_in(index: Polynomial) -> set[Any]:
    """The atoms of an index, those inside quotients and remainders too."""
    found: set[Any] = set()
    for part in parts_of(index):
        found.add(part)
        if isinstance(part, Quotient | Remainder):
            found |= atoms_in(part.of)
    return found


def product(extents: Iterable[Polynomial]) -> Polynomial:
    total = number(1)
    for extent in extents:
        total = total * extent
    return total


def divided(left: Polynomial, right: Polynomial) -> Polynomial | None:
    """The quotient of two polynomials where `right` has one term and divides every term of `left`."""
    if len(right.terms) != 1:
        return number(1) if left == right else None
    [(monomial, factor)] = right.terms.items()
    terms: dict[Monomial, int] = {}
    for other, times in left.terms.items():
        rest = _less(other, monomial)
        if rest is None or times % factor:
            return None
        terms[rest] = times // factor
    return Polynomial(terms)


def _less(monomial: Monomial, taken: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for part, power in taken:
        left = powers.get(part, 0) - power
        if left < 0:
            return None
        if left:
            powers[part] = left
        else:
            del powers[part]
    return frozenset(powers.items())


def bounds(index: Polynomial) -> tuple[Polynomial, Polynomial] | None:
    """The least and the greatest value of an index, in sizes; None where that is not known."""
    low = high = number(0)
    for monomial, factor in index.terms.items():
        extents: Any = [(a, p) for a, p in cast(Any, monomial) if isinstance(a, Extent)]
        moving = [(a, p) for a, p in cast(Any, monomial) if not isinstance(a, Extent)]
        scale = Polynomial({frozenset(extents): factor})
        if not moving:
            low, high = low + scale, high + scale
            continue
        if len(moving) > 1 or moving[0][1] > 1:
            return None
        ends = _ends(moving[0][0])
        if ends is None:
            return None
        first, last = (ends[0], ends[1]) if factor > 0 else (ends[1], ends[0])
        low, high = low + scale * first, high + scale * last
    return low, high


def _ends(part: Any) -> tuple[Polynomial, Polynomial] | None:
    match part:
        case Axis(extent):
            return number(0), extent - 1
        case Remainder(of, by):
            inner = bounds(of)
            return None if inner is None or not is_natural(inner[0]) else (number(0), by - 1)
        case Quotient(of, by):
            inner = bounds(of)
            if inner is None or not is_natural(inner[0]):
                return None
            last = divided(inner[1] + 1, by)
            return None if last is None else (number(0), last - 1)
    return None


def is_natural(value: Polynomial) -> bool:
    """Whether a polynomial of sizes is proved to be at least 0; every size is at least 1."""
    shifted = number(0)
    for monomial, factor in value.terms.items():
        term = number(factor)
        for part, power in cast(Any, monomial):
            if not isinstance(part, Extent):
                return False
            for _ in range(power):
                term = term * (atom(part) + 1)
        shifted = shifted + term
    return all(factor >= 0 for factor in shifted.terms.values())


def within(index: Polynomial, extent: Polynomial) -> bool:
    """Whether an index is proved to be from 0 up to, not including, the extent."""
    ends = bounds(index)
    return ends is not None and is_natural(ends[0]) and is_natural(extent - 1 - ends[1])


def split(index: Polynomial, by: Polynomial) -> tuple[Polynomial, Polynomial]:
    """The quotient and the remainder of an index, taken apart where that is proved."""
    if by.constant == 1:
        return index, number(0)
    if within(index, by):
        return number(0), index
    for unit in _units(index, by):
        whole, rest = _apart(index, unit)
        if rest.terms and not within(rest, unit):
            continue
        groups = divided(by, unit)
        if groups is None:
            continue
        if groups.constant == 1:
            return whole, rest
        if unit.constant != 1:
            quotient, remainder = split(whole, groups)
            return quotient, remainder * unit + rest
    whole, rest = _apart(index, by)
    if whole.terms and rest.terms and (ends := bounds(rest)) is not None and is_natural(ends[0]):
        quotient, remainder = split(rest, by)
        return whole + quotient, remainder
    return atom(Quotient(index, by)), atom(Remainder(index, by))


def _units(index: Polynomial, by: Polynomial) -> list[Polynomial]:
    """The steps in which an index may be taken apart: `by` itself, then the largest coefficients that divide it."""
    found = [by]
    for monomial, factor in index.terms.items():
        extents: Any = frozenset((a, p) for a, p in cast(Any, monomial) if isinstance(a, Extent))
        unit = Polynomial({extents: abs(factor)})
        if unit.terms != {ONE: 1} and unit not in found and divided(by, unit) is not None:
            found.append(unit)
    return found


def _apart(index: Polynomial, unit: Polynomial) -> tuple[Polynomial, Polynomial]:
    whole = rest = number(0)
    for monomial, factor in index.terms.items():
        term = Polynomial({monomial: factor})
        part = divided(term, unit)
        if part is None:
            rest = rest + term
        else:
            whole = whole + part
    return whole, rest


def substitute(index: Polynomial, change: Callable[[Any], Polynomial | None]) -> Polynomial:
    """The index with atoms replaced; quotients and remainders are taken apart anew."""
    total = number(0)
    for monomial, factor in index.terms.items():
        term = number(factor)
        for part, power in cast(Any, monomial):
            value = change(part)
            if value is None:
                match part:
                    case Quotient(of, by):
                        value = split(substitute(of, change), by)[0]
                    case Remainder(of, by):
                        value = split(substitute(of, change), by)[1]
                    case _:
                        value = atom(part)
            for _ in range(power):
                term = term * value
        total = total + term
    return total


def reshaped(
    indices: Sequence[Polynomial], shape: Sequence[Polynomial], source: Sequence[Polynomial]
) -> tuple[Polynomial, ...]:
    """The indices into a tensor of shape `source` of the point that lies at `indices` in the shape it was given."""
    result: list[Polynomial] = []
    at = 0
    place = 0
    while place < len(source):
        inner, outer = source[place], number(1)
        first, start = place, at
        place += 1
        while inner != outer:
            # The side that is shorter so far takes its next axis; sizes of a run decide which one that is.
            if at < len(shape) and (place == len(source) or _measure(outer) <= _measure(inner)):
                outer = outer * shape[at]
                at += 1
            elif place < len(source):
                inner = inner * source[place]
                place += 1
            else:
                break
        flat = number(0)
        for index, extent in zip(indices[start:at], shape[start:at], strict=True):
            flat = flat * extent + index
        rest: list[Polynomial] = []
        for extent in reversed(source[first + 1 : place]):
            flat, remainder = split(flat, extent)
            rest.append(remainder)
        result += (flat, *reversed(rest))
    return tuple(number(0) if extent.constant == 1 else i for i, extent in zip(result, source, strict=True))


def _measure(extent: Polynomial) -> int:
    return measured(extent)[0]


def measured(value: Polynomial) -> tuple[int, ...]:
    """The value of a polynomial of sizes in each recorded run."""
    runs = max((len(a.sizes) for a in cast(set[Any], value.atoms) if isinstance(a, Extent)), default=1)
    result = []
    for run in range(runs):
        total = 0
        for monomial, factor in value.terms.items():
            for part, power in cast(Any, monomial):
                factor *= part.sizes[run] ** power
            total += factor
        result.append(total)
    return tuple(result)
