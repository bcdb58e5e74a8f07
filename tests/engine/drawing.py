"""Programs with the arrays of one call, by the name of a generator and a seed: all generators of the laws."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given
from tests.laws import decays, derivable, guarded, mixing, normalised, poles, programs, scalars, shifted
from tests.laws.agreement import is_within
from tests.profiles import examples

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """A program and the arrays of one call. It shows itself as its text."""

    text: str
    arrays: Mapping[str, Array]
    generator: str
    seed: int

    def __repr__(self) -> str:
        shown = [f"{name} = {array.dtype} {array.tolist()}" for name, array in self.arrays.items() if array.size < 60]
        return "\n".join([f"{self.generator} {self.seed}", self.text, *shown])


def _whole_language(seed: int) -> tuple[str, Mapping[str, Any]] | None:
    case = programs.random_case(seed)
    return (case.text, case.arrays) if is_within(case) else None


def _derivable(seed: int) -> tuple[str, Mapping[str, Any]] | None:
    case = derivable.directed(seed)
    return case.text, case.arrays


def _with_text(make: Callable[[int], Any]) -> Callable[[int], tuple[str, Mapping[str, Any]]]:
    return lambda seed: ((case := make(seed)).text, case.arrays)


@cache
def _with_scalars() -> tuple[scalars.Case, ...]:
    """Programs with scalars, which only Hypothesis draws: the same ones every time."""
    found: list[scalars.Case] = []
    quiet = examples(
        4,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @quiet
    @given(scalars.cases())
    def keep(case: scalars.Case) -> None:
        found.append(case)

    keep()
    return tuple(found)


def _scalar(seed: int) -> tuple[str, Mapping[str, Any]]:
    cases = _with_scalars()
    case = cases[seed % len(cases)]
    dtypes = {name: np.int64 if name in scalars.WHOLES else np.float64 for name in case.scalars}
    return case.text, {**case.arrays, **{name: dtypes[name](number) for name, number in case.scalars.items()}}


GENERATORS: dict[str, Callable[[int], tuple[str, Mapping[str, Any]] | None]] = {
    "programs": _whole_language,
    "guarded": _with_text(guarded.guarded_case),
    "derivable": _derivable,
    "mixing": _with_text(mixing.mixing_case),
    "poles": _with_text(poles.pole_case),
    "decays": _with_text(decays.decay_case),
    "normalised": _with_text(normalised.normalised_case),
    "shifted": _with_text(shifted.shifted_case),
    "scalars": _scalar,
}


def draw(generator: str, seed: int) -> Drawn | None:
    """The program of a generator and a seed; None where the laws do not speak of it."""
    found = GENERATORS[generator](seed)
    if found is None:
        return None
    text, arrays = found
    return Drawn(text, {name: np.asarray(array) for name, array in arrays.items()}, generator, seed)


def spoilt(case: Drawn, seed: int) -> Drawn:
    """The same program, some of its numbers NaN or infinite."""
    noise = np.random.default_rng(seed)
    found = {}
    for name, array in case.arrays.items():
        found[name] = array.copy()
        if array.dtype.kind == "f":
            chosen = noise.random(array.shape) < 0.2
            found[name][chosen] = noise.choice([np.nan, np.inf, -np.inf], int(chosen.sum()))
    return Drawn(case.text, found, f"{case.generator}, spoilt", case.seed)


def emptied(case: Drawn) -> Iterator[Drawn]:
    """The same program with arrays of no points along a coordinate, one coordinate after another."""
    homes = {name: home.split(", ") for name, home in re.findall(r"(\w+)\[([\w, ]+)\]", case.text.split(";")[0])}
    homes = {name: home for name, home in homes.items() if name in case.arrays and len(home) == case.arrays[name].ndim}
    for letter in sorted({letter for home in homes.values() for letter in home}):
        found = dict(case.arrays)
        for name, home in homes.items():
            cut = tuple(slice(0) if axis == letter else slice(None) for axis in home)
            found[name] = case.arrays[name][cut]
        yield Drawn(case.text, found, f"{case.generator}, empty {letter}", case.seed)


def misplaced(case: Drawn, seed: int) -> Drawn:
    """The same program, some of its whole numbers out of bounds of whatever they index, or too large."""
    noise = np.random.default_rng(seed)
    found = {}
    for name, array in case.arrays.items():
        found[name] = array.copy()
        if array.dtype.kind == "i" and array.ndim:
            chosen = noise.random(array.shape) < 0.25
            found[name][chosen] = noise.choice([-1, -3, 0, 4, 99], int(chosen.sum()))
    return Drawn(case.text, found, f"{case.generator}, misplaced", case.seed)
