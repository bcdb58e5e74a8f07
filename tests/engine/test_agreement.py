"""Every library computes what the reference says, in value, dtype and shape, and refuses what it refuses, by its code.

Programs are drawn by all generators of the laws. Code is emitted with and without `isolate`, once for every definition
of a program, once for its outputs alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from tests.engine import door, drawing
from tests.engine.drawing import Drawn
from tests.engine.judging import Judged

import indexical as ix

pytestmark = pytest.mark.sampled(40)

SEEDS, EACH = 250, 10
ODD = 50


def faults(cases: Iterable[Drawn | None], libraries: Iterable[str], isolates: Iterable[bool]) -> Iterator[str]:
    """What is wrong with the programs that compile and whose arrays fit."""
    for case in cases:
        for isolate in isolates if case is not None else ():
            assert case is not None
            try:
                judged = Judged(case, outputs_alone=isolate == bool(case.seed % 2))
            except ix.Error:
                break
            for library in libraries:
                fault = judged.fault(library, isolate)
                if fault is not None:
                    yield f"{case!r}\nof {', '.join(judged.names)}\n{fault}"


def check(
    cases: Iterable[Drawn | None],
    libraries: Iterable[str] = ("numpy", "torch"),
    isolates: Iterable[bool] = (False, True),
) -> None:
    found = list(faults(cases, libraries, isolates))
    assert not found, f"{len(found)} faults, the first of which:\n{found[0]}"


@pytest.mark.parametrize("start", range(0, SEEDS, EACH))
@pytest.mark.parametrize("generator", drawing.GENERATORS)
def test_values_are_those_of_the_reference(generator: str, start: int) -> None:
    check(drawing.draw(generator, seed) for seed in range(start, start + EACH))


@pytest.mark.skipif("jax" not in door.LIBRARIES, reason="JAX is not there")
@pytest.mark.parametrize("generator", drawing.GENERATORS)
def test_values_by_jax_are_those_of_the_reference(generator: str) -> None:
    for isolate in (False, True):
        check((drawing.draw(generator, seed) for seed in range(1000 + isolate, 1004, 2)), ("jax",), (isolate,))


@pytest.mark.parametrize("start", range(0, ODD, EACH))
@pytest.mark.parametrize("generator", ["programs", "guarded", "mixing", "poles"])
def test_isolated_code_hears_nothing_that_a_guard_removed(generator: str, start: int) -> None:
    cases = (drawing.draw(generator, seed) for seed in range(300 + start, 300 + start + EACH))
    check(None if case is None else drawing.spoilt(case, case.seed) for case in cases)


@pytest.mark.parametrize("start", range(0, ODD, EACH))
@pytest.mark.parametrize("generator", ["programs", "guarded"])
def test_what_the_reference_refuses_is_refused_under_its_code(generator: str, start: int) -> None:
    cases = (drawing.draw(generator, seed) for seed in range(400 + start, 400 + start + EACH))
    check(None if case is None else drawing.misplaced(case, case.seed) for case in cases)


@pytest.mark.parametrize("start", range(500, 515, 3))
@pytest.mark.parametrize("generator", ["guarded", "derivable", "normalised"])
def test_axes_without_points(generator: str, start: int) -> None:
    cases = (drawing.draw(generator, seed) for seed in range(start, start + 3))
    check(empty for case in cases if case is not None for empty in drawing.emptied(case))


@pytest.mark.sampled(1)
def test_some_programs_are_refused_and_most_are_not() -> None:
    """The laws would say little of programs that are all refused, or never."""
    cases = [drawing.draw("guarded", seed) for seed in range(60)]
    refused = [Judged(drawing.misplaced(case, case.seed)).wanted is None for case in cases if case is not None]
    assert 3 <= sum(refused) < len(refused) / 2
