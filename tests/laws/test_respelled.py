"""Laws of copies: a program means the same when its tensors go through a function that gives several, when they
begin above 0, and when they are defined by cases."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.laws import respelled
from tests.laws.agreement import call, difference, is_within
from tests.laws.programs import Case, cases
from tests.laws.test_backends import BACKENDS, Call, check
from tests.profiles import examples

import indexical as ix

WAYS: dict[str, Callable[..., str | None]] = {
    "together": respelled.together,
    "begun": respelled.begun,
    "by cases": respelled.by_cases,
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("way", WAYS)
@examples(0.6)
@given(cases(), st.data())
def test_a_copy_of_a_tensor_serves_as_well(way: str, case: Case, data: st.DataObject) -> None:
    assume(is_within(case))
    values = call(case.text, case.arrays)
    text = WAYS[way](case, values, lambda n: data.draw(st.integers(0, n - 1)))
    assume(text is not None)
    assert text is not None
    try:
        again = call(text, case.arrays)
    except ix.CompileError as refusal:
        # What one guard said of all points, cases say of some: then a read may not be proved to be there.
        if {found.code for found in refusal.diagnostics} != {"IX309"}:
            raise
        assume(False)
    for name, value in values.items():
        problem = difference(case, name, again[name], value)
        assert problem is None, f"{problem}\n{text}"
    emitted = Call(text, case.arrays)
    for backend in BACKENDS:
        check(emitted, backend, isolate=emitted.is_loud)
