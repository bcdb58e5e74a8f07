"""Laws of saying: a program means the same in other names, in another order, cut up differently and laid out anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.laws import rewrites
from tests.laws.agreement import call, difference, is_within
from tests.laws.numerics import Array
from tests.laws.programs import Case, cases
from tests.laws.writing import text_of
from tests.profiles import examples

import indexical as ix
from indexical.diagnostics import Sink
from indexical.source import Source
from indexical.syntax.format import format_source
from indexical.syntax.parse import parse


def check_same(case: Case, text: str, arrays: Mapping[str, Array] | None = None) -> None:
    """Another text gives the definitions of this one the same values, but where last digits decide."""
    one = call(case.text, case.arrays)
    other = call(text, case.arrays if arrays is None else arrays)
    for name, value in one.items():
        problem = difference(case, name, other[name], value)
        assert problem is None, f"{problem}\n{text}"


def choices(data: st.DataObject) -> Callable[[int], int]:
    return lambda n: data.draw(st.integers(0, n - 1)) if n > 1 else 0


@given(cases(), st.booleans())
def test_renaming_every_coordinate(case: Case, among_themselves: bool) -> None:
    names = rewrites.coordinate_names(case.program)
    tensors = {tensor.tensor.name for tensor in (*case.program.inputs, *case.program.lets)}
    assume(is_within(case) and names)
    if among_themselves and not tensors & set(names):
        others = names[1:] + names[:1]
    else:
        others = [f"other_{number}" for number, _ in enumerate(names)]
    check_same(case, text_of(case.program, dict(zip(names, others, strict=True))))


@given(cases(), st.randoms(use_true_random=False))
def test_permuting_the_statements(case: Case, random: Any) -> None:
    assume(is_within(case))
    order = list(range(60))
    random.shuffle(order)
    check_same(case, text_of(case.program, order=tuple(order)))


def check_rewrite(case: Case, data: st.DataObject, rewrite: Callable[..., Case | None]) -> None:
    assume(is_within(case))
    found = rewrite(case, choices(data))
    assume(found is not None)
    assert found is not None
    check_same(case, found.text, found.arrays)


@given(cases(), st.data())
def test_permuting_the_axes_of_an_input(case: Case, data: st.DataObject) -> None:
    check_rewrite(case, data, rewrites.permute_axes)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(cases(reuse=95), st.data())
def test_writing_a_definition_out_where_it_is_read(case: Case, data: st.DataObject) -> None:
    check_rewrite(case, data, rewrites.inline)


@given(cases(), st.data())
def test_making_a_part_a_definition_of_its_own(case: Case, data: st.DataObject) -> None:
    check_rewrite(case, data, rewrites.split)


@given(cases(), st.data())
def test_making_a_part_a_function(case: Case, data: st.DataObject) -> None:
    check_rewrite(case, data, rewrites.wrap)


@given(cases())
def test_a_program_is_its_own_text(case: Case) -> None:
    assume(is_within(case))
    program = ix.compile(case.text)
    assert str(program) == case.text
    check_same(case, str(ix.compile(str(program))))


@examples(1.4)
@given(cases())
def test_laying_it_out_anew(case: Case) -> None:
    assume(is_within(case))
    sink = Sink()
    formatted = format_source(parse(Source("test", case.text), sink))
    assert not sink.failed
    check_same(case, formatted)
