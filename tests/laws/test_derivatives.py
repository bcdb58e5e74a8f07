"""Derivatives agree with dual numbers over the exact field, on generated programs and on families of hard ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.laws.derivable import Derivable, directed, generated
from tests.laws.derivable_texts import FAMILIES
from tests.laws.differentiated import Differentiated, OutOfReach, flaws

# Each family with other names, offsets and guards, this many times.
TIMES = 4
GENERATED = range(230)


def check(case: Derivable) -> None:
    found = Differentiated(case).moving()
    if found is not None:
        words = "\n".join(found.differences())
        assert not words, f"{words}{case!r}\n\n{found.backward}\n{found.forward}"
        assert found.transposes()


def cases(name: str, times: int) -> Iterator[Derivable]:
    first = list(FAMILIES).index(name)
    for turn in range(times):
        yield directed(first + turn * len(FAMILIES))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_differentiated(name: str) -> None:
    for case in cases(name, TIMES):
        check(case)


@pytest.mark.parametrize("name", FAMILIES)
def test_its_derivatives_read_well(name: str) -> None:
    """They compile again, without warnings, and nobody would strike out a word."""
    for case in cases(name, 2):
        found = Differentiated(case).moving()
        if found is None:
            continue
        for program in (found.backward, found.forward):
            assert not flaws(program), f"{case!r}\n\n{program}"


@pytest.mark.parametrize("part", range(4))
def test_generated_programs_are_differentiated(part: int) -> None:
    differentiated = programs = 0
    for seed in GENERATED[part::4]:
        case = generated(seed)
        if case is None:
            continue
        programs += 1
        try:
            check(case)
            differentiated += 1
        except OutOfReach:
            pass
    assert differentiated > 0.85 * programs


@pytest.mark.parametrize("name", FAMILIES)
def test_a_jacobian_in_the_language(name: str) -> None:
    for case in cases(name, 1):
        found = Differentiated(case).moving()
        if found is None:
            continue
        words = "\n".join(found.jacobians())
        assert not words, f"{words}{case!r}"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_derivative_has_a_derivative(name: str) -> None:
    for case in cases(name, 1):
        found = Differentiated(case).moving()
        if found is None:
            continue
        words = "\n".join(found.second())
        assert not words, f"{words}{case!r}\n\n{found.backward}"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_jacobian_has_a_jacobian(name: str) -> None:
    for case in cases(name, 1):
        found = Differentiated(case).moving()
        if found is None:
            continue
        words = "\n".join(found.jacobians_of_jacobians())
        assert not words, f"{words}{case!r}"
