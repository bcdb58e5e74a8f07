"""Programs whose reads only a guard keeps in range mean the same on every backend, in every layout, and backwards.

`--hypothesis-profile=search` draws thousands of each; `guarded_hunt` sorts what fails by kind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.laws.guarded import Guarded, guarded_case, guarded_cases, recorded, replayed
from tests.laws.guarded_tables import FEW, TILES
from tests.profiles import examples

pytest.importorskip("torch")

from tests.laws.guarded_hunt import shrunk
from tests.laws.guarded_laws import Checked

import indexical as ix


def drawn(factor: float) -> settings:
    """Fewer examples than others have: each of these is large."""
    return examples(factor, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def checked(case: Guarded) -> Checked:
    """The case, compiled. One whose guard was forgotten may be refused at once, where that can be known."""
    try:
        return Checked(case)
    except ix.CompileError:
        assume(False)
        raise


@given(guarded_cases())
@drawn(0.5)
def test_every_backend_says_what_the_reference_says(case: Guarded) -> None:
    checked(case).values()


@given(guarded_cases())
@drawn(0.4)
def test_how_arrays_lie_in_memory_does_not_matter(case: Guarded) -> None:
    checked(case).layouts()


@given(guarded_cases())
@drawn(0.5)
def test_all_ways_to_a_gradient_agree(case: Guarded) -> None:
    checked(case).gradients()


@given(guarded_cases(few=TILES))
@drawn(0.2)
def test_as_many_points_as_kernels_take_at_once(case: Guarded) -> None:
    checked(case).tiles()


@pytest.mark.parametrize("seed", [25, 42])
def test_a_call_is_compiled_in_one_graph(seed: int) -> None:
    checked(guarded_case(seed)).compiled()


# --------------------------------------------------------------------------------------------- the generator


def test_what_is_drawn_compiles_and_has_a_value() -> None:
    """The laws would say little of programs that are refused; of some, the refusal itself is compared."""
    cases = [guarded_case(seed) for seed in range(200)]
    refused = discarded = 0
    for case in cases:
        try:
            refused += isinstance(Checked(case).value, str)
        except ix.CompileError:
            discarded += 1
    assert discarded <= 4
    assert 1 <= refused <= 20
    assert len({case.family for case in cases}) == 8


@pytest.mark.sampled(0)
def test_a_table_is_no_longer_than_its_guard_needs() -> None:
    """One point less, and the reference refuses: for most tables, since a guard may speak of their own size."""
    tight = tables = 0
    for seed in range(120):
        case = guarded_case(seed)
        for name, array in case.arrays.items():
            if name[:1] in "RBV" and name[1:].isdigit() and not isinstance(Checked(case).value, str):
                axis = case.text.split(f"{name}[", 1)[1].split("]", 1)[0].split(", ")
                place = next(n for n, letter in enumerate(axis) if letter.startswith("r"))
                if array.shape[place] and array.size:
                    shorter = {**case.arrays, name: array.take(range(array.shape[place] - 1), place)}
                    tables += 1
                    tight += isinstance(Checked(case).reference(shorter), str)
    assert tables > 60
    assert tight > 0.6 * tables


def test_a_program_is_made_again_from_its_choices() -> None:
    for seed in range(10):
        assert replayed(recorded(seed)).text == guarded_case(seed).text


def test_choices_are_made_smaller() -> None:
    seed = next(seed for seed in range(100) if len(guarded_case(seed).text) > 300)
    small = shrunk(recorded(seed), lambda case: "sum" in case.text, tries=2000)
    assert "sum" in replayed(small).text
    assert len(replayed(small).text) < len(guarded_case(seed).text)
    assert sum(map(bool, small)) <= 4


def test_a_slow_path_is_noted() -> None:
    case = guarded_case(0)
    checked = Checked(case)
    program = checked.program
    kernel = program._engine.kernel

    def refusing(call: Any, wanted: Any, isolate: bool, *others: Any) -> Any:
        found = kernel(call, wanted, isolate, *others)
        return found if isolate else replace(found, function=refuse(found.refused))

    program._engine.kernel = refusing  # type: ignore[method-assign]
    checked.values(("torch",))
    assert any("a kernel refused this call (out of bounds)" in words for words in checked.slow)


def refuse(refused: type[Exception]) -> Any:
    def function(*arrays: Any) -> Any:
        raise refused("IX305", "out of bounds")

    return function


def test_few_points_are_drawn_and_none() -> None:
    sizes = {size for seed in range(80) for array in guarded_case(seed).arrays.values() for size in array.shape}
    assert set(FEW) <= sizes
