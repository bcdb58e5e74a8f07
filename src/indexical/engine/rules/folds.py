"""Normalisers as data: what each sums over the keys of a query, and what it makes of these sums.

Weights count from a level, which rises with the largest score; what a normaliser makes of its sums must not depend on
it. That law is what makes it right to take keys tile by tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ...records import dataclass
from ..ops import Value
from .terms import applied, infinity, promoted, real, where

# A weight, of a score and a level.
Weight: TypeAlias = Callable[[Value, Value], Value]
# What a row is divided by, of its sums by name, its level, its largest score and what the normaliser takes beside.
Divisor: TypeAlias = Callable[[Mapping[str, Value], Value, Value, tuple[Value, ...]], Value]


@dataclass(frozen=True, slots=True)
class Normaliser:
    """`sums` are over weights, of which the one called `gathered` is of weights times values; the result is this one
    over the `divisor`, where there is one. Without a `level` weights are made of the score alone. Else it is the level
    of a row whose largest score so far is this, and `before` the level that earlier sums have; sums and divisor are in
    units of e to the level. Where a pair is masked by a score of -inf, it `masks_scores`. Where the divisor is 0, no
    sum was over any key."""

    sums: Mapping[str, Weight]
    divisor: Divisor | None
    level: Callable[[Value], Value] | None = None
    before: Callable[[Value], Value] | None = None
    masks_scores: bool = False

    def result(self, sums: Mapping[str, Value], level: Value, peak: Value, more: tuple[Value, ...]) -> Value:
        """What a row is, of its sums."""
        if self.divisor is None:
            return sums[GATHERED]
        return applied("/", *promoted((sums[GATHERED], self.divisor(sums, level, peak, more))))


GATHERED = "gathered"


def exp_less(one: Value, other: Value) -> Value:
    """e to a difference."""
    return applied("exp", applied("-", *promoted((one, other))))


def _raised(sums: Mapping[str, Value], more: Value) -> Value:
    """What is divided by, and something that no key has."""
    return applied("+", *promoted((sums["total"], more)))


def _finite(peak: Value) -> Value:
    return where(applied("==", peak, infinity(-1)), real(0), peak)


def _at_least_0(peak: Value) -> Value:
    return applied("max", peak, real(0))


def _picked(score: Value, level: Value) -> Value:
    return applied("-", *promoted((exp_less(score, level), applied("exp", applied("neg", level)))))


def _softmax(divisor: Divisor) -> Normaliser:
    sums: dict[str, Weight] = {GATHERED: exp_less, "total": exp_less}
    return Normaliser(sums, divisor, _finite, lambda peak: peak, True)


def _softpick(divisor: Divisor) -> Normaliser:
    sums: dict[str, Weight] = {
        GATHERED: lambda score, level: applied("max", _picked(score, level), real(0)),
        "total": lambda score, level: applied("abs", _picked(score, level)),
    }
    return Normaliser(sums, divisor, _at_least_0, _at_least_0)


def _sunk(sink: Value, origin: Value, level: Value) -> Value:
    """e to a sink that counts from some score."""
    return exp_less(applied("+", *promoted((sink, origin))), level)


# A sink is the score of a further key that carries 0; that of softpick counts from 0, from the level, or from the
# largest score.
NORMALISERS: Mapping[str, Normaliser] = {
    "softmax": _softmax(lambda sums, level, peak, more: sums["total"]),
    "softmax with a sink": _softmax(lambda sums, level, peak, more: _raised(sums, exp_less(more[0], level))),
    "softpick from zero": _softpick(lambda sums, level, peak, more: _raised(sums, exp_less(more[0], level))),
    "softpick from floor": _softpick(
        lambda sums, level, peak, more: _raised(sums, _sunk(more[0], _at_least_0(peak), level))
    ),
    "softpick from peak": _softpick(
        lambda sums, level, peak, more: _raised(sums, _sunk(more[0], _finite(peak), level))
    ),
    "free": Normaliser({GATHERED: lambda score, level: score}, None),
}
