"""Derivatives agree with dual numbers over the exact field, on generated programs and on families of hard ones."""

from __future__ import annotations

from functools import cache

import pytest
from tests.laws.derivable import directed, generated, held
from tests.laws.derivable_texts import FAMILIES
from tests.laws.differentiated import Differentiated, OutOfReach, flaws

import indexical as ix

pytestmark = pytest.mark.sampled(18)

# Each family with other names, offsets and guards, this many times.
TIMES = 2
GENERATED = range(110)
# What is refused in words.
REFUSED = "has no name to be told by"


@cache
def differentiated(name: str, turn: int) -> Differentiated | None:
    """A program of a family by those of its inputs that flow; None where none does."""
    return Differentiated(directed(list(FAMILIES).index(name) + turn * len(FAMILIES))).moving()


def check(found: Differentiated | None) -> None:
    if found is not None:
        words = "\n".join(found.differences())
        assert not words, f"{words}{found.case!r}\n\n{found.backward}\n{found.forward}"
        assert found.transposes()


@pytest.mark.parametrize("turn", range(TIMES))
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_differentiated(name: str, turn: int) -> None:
    check(differentiated(name, turn))


@pytest.mark.parametrize("name", FAMILIES)
def test_definitions_are_held_independent(name: str) -> None:
    whole = differentiated(name, 1)
    if whole is not None:
        lets = [let.name for let in whole.program.ir.lets if let.kind == "real" and not let.hidden]
        for definition in [name for name in lets if name != whole.case.of][:1]:
            check(Differentiated(held(whole.case, definition), whole.program).moving())


@pytest.mark.parametrize("name", FAMILIES)
def test_its_derivatives_read_well(name: str) -> None:
    """They compile again, without warnings, and nobody would strike out a word."""
    found = differentiated(name, 0)
    if found is not None:
        for program in (found.backward, found.forward):
            assert not flaws(program), f"{found.case!r}\n\n{program}"


@pytest.mark.parametrize("part", range(4))
def test_generated_programs_are_differentiated(part: int) -> None:
    done = programs = 0
    for seed in GENERATED[part::4]:
        case = generated(seed)
        if case is None:
            continue
        programs += 1
        try:
            check(Differentiated(case).moving())
            done += 1
        except OutOfReach:
            pass
        except ix.CallError as refusal:
            if REFUSED not in str(refusal):
                raise
    assert done > 0.75 * programs


@pytest.mark.parametrize("name", FAMILIES)
def test_a_jacobian_in_the_language(name: str) -> None:
    found = differentiated(name, 0)
    words = "\n".join(found.jacobians() if found else ())
    assert not words, f"{words}{found and found.case!r}"


@pytest.mark.parametrize("name", list(FAMILIES)[::2])
def test_a_jacobian_has_a_jacobian(name: str) -> None:
    found = differentiated(name, 0)
    words = "\n".join(found.jacobians_of_jacobians() if found else ())
    assert not words, f"{words}{found and found.case!r}"


@pytest.mark.parametrize("name", list(FAMILIES)[1::2])
def test_a_derivative_has_a_derivative(name: str) -> None:
    found = differentiated(name, 0)
    words = "\n".join(found.second() if found else ())
    assert not words, f"{words}{found and found.case!r}\n\n{found and found.backward}"
