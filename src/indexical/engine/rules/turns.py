"""What a turn of a loop adds: first what it finds there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from ..ops import Map, Value
from .patterns import Found, Target
from .terms import applied

# A term of a sum, after whether it is subtracted.
Term: TypeAlias = tuple[bool, Value]


def add_first_what_stays(one: Value, found: Found, target: Target) -> Value | None:
    """A sum in a turn of a loop, of which terms are not made of what the loop computes: these are added to each other,
    so that hoisting takes them out. Whole numbers stay as they are: they may be checked."""
    if not one.carried or one.kind != "real":
        return None
    terms = list(_terms(one, one, set()))
    stay = sorted((term for term in terms if not term[1].carried), key=lambda term: term[0])
    if len(stay) < 2:
        return None
    first = _sum(stay)
    if not first.is_host and first.dtype != one.dtype:
        return None  # It would be rounded otherwise.
    return _sum([(False, first), *(term for term in terms if term[1].carried)])


def _terms(whole: Value, one: Value, seen: set[Value], less: bool = False) -> Iterator[Term]:
    """The terms of a sum, those of sums in it that are rounded as it is; one that is met again is a term."""
    match one.op:
        case Map("+" | "-" as fn, (left, right)) if one.carried and one.dtype == whole.dtype and one not in seen:
            seen.add(one)
            yield from _terms(whole, left, seen, less)
            yield from _terms(whole, right, seen, less != (fn == "-"))
        case _:
            yield less, one


def _sum(terms: list[Term]) -> Value:
    (less, result), *rest = terms
    result = applied("neg", result) if less else result
    for less, term in rest:
        result = applied("-" if less else "+", result, term)
    return result
