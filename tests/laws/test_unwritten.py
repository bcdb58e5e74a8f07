"""A derivative runs without its text: what the text says when it is made, read again, is what ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from tests.laws.derivable import Derivable, directed, generated
from tests.laws.derivable_texts import FAMILIES

import indexical as ix
from indexical.run.samples import random_arrays
from indexical.views.source import spelled

pytestmark = pytest.mark.sampled(12)


def derivatives(case: Derivable) -> Iterator[ix.Program]:
    """Both derivatives of a program and a batch of it, those of them that there are."""
    program = ix.compile(case.text)
    real = tuple(tensor.name for tensor in program.ir.inputs if tensor.kind == "real")
    for make in (
        lambda: ix.grad(program, of=case.of, by=case.by),
        lambda: ix.jvp(program, of=case.of, by=case.by),
        lambda: ix.batch(program, several=real),
    ):
        try:
            yield make()
        except ix.CallError:
            continue


def plan(program: ix.Program, given: Mapping[str, Any]) -> list[tuple[object, ...]]:
    """Each step of a plan: its definition, its kernel and what that covers. Figures that stand in the midst of a text
    have another name in it."""
    steps = [step for step in program.plan(**given).steps if step.definition in program.definitions]
    return [(step.definition, step.kernel, step.covers) for step in steps]


def values(program: ix.Program, given: Mapping[str, Any]) -> list[Any]:
    """The value of every output; or the words of a refusal, and the places in the text of the program that it shows."""
    try:
        found = program(**given)
    except ix.CallError as refusal:
        shown = [(each.message, *(label.span.text for label in each.labels)) for each in refusal.diagnostics]
        return [word for words in shown for word in words]
    return list(found) if len(program.outputs) > 1 else [found]


def check(case: Derivable) -> tuple[int, int]:
    """Return how many derived programs there are, and how many calls of them gave arrays."""
    done = called = 0
    for derived in derivatives(case):
        read = ix.compile(derived.source_text)
        assert spelled(derived._program) == spelled(read.ir), derived.source_text
        assert (derived.inputs, derived.outputs, derived.definitions) == (read.inputs, read.outputs, read.definitions)
        done += 1
        if not case.arrays.keys() < set(derived.inputs):
            continue
        given = {**random_arrays(read.ir, case.arrays, {}, 0)[0].arrays, **case.arrays}
        ran, wanted = values(derived, given), values(read, given)
        if isinstance(wanted[0], str) or isinstance(ran[0], str):
            assert ran == wanted, derived.source_text
            continue
        for one, other in zip(ran, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12, err_msg=derived.source_text)
        assert plan(derived, given) == plan(read, given), derived.source_text
        called += 1
    return done, called


@pytest.mark.sampled(25)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(name: str) -> None:
    check(directed(list(FAMILIES).index(name)))


def test_generated_programs() -> None:
    cases = [case for seed in range(6) if (case := generated(seed)) is not None]
    done, called = map(sum, zip(*map(check, cases), strict=True))
    assert done > len(cases)
    assert called > 0.5 * len(cases)
