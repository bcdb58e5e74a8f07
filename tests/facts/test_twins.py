"""Right programs that look like mistakes are left alone in every spelling, and the mistakes beside them are named."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.facts import twins
from tests.facts.rewrites import rewrite
from tests.facts.spelling import spell

import indexical as ix

RIGHT = {
    "IX402": twins.RENORMALISED,
    "IX408": twins.MEANS,
    "IX404": twins.OWN_HEADS,
    "IX421": twins.COMPARED,
    "IX403": {**twins.HEARD_AT_KEY, **twins.BRANCHES_AT_KEY},
}
WRONG = {
    "IX402": twins.NOT_RENORMALISED,
    "IX408": twins.WRONG_SCALES,
    "IX404": twins.OTHER_HEADS,
    "IX421": twins.NOT_COMPARED,
    "IX403": {**twins.HEARD_AT_QUERY, **twins.BRANCHES_AT_QUERY},
}


def loud(text: str) -> list[ix.Diagnostic]:
    """The findings beside notes and beside inputs that only some spellings use."""
    return [found for found in ix.check(text) if found.severity != "note" and found.code != "IX413"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("code", "name"), [(code, name) for code, texts in RIGHT.items() for name in texts])
def test_right_program_is_left_alone(code: str, name: str) -> None:
    text = RIGHT[code][name]
    assert [str(found) for found in loud(text)] == [], text


@pytest.mark.parametrize(("code", "name"), [(code, name) for code, texts in WRONG.items() for name in texts])
def test_wrong_program_is_named(code: str, name: str) -> None:
    text = WRONG[code][name]
    assert code in {found.code for found in loud(text)}, text


@pytest.mark.parametrize("name", [*twins.HEARD_AT_QUERY, *twins.BRANCHES_AT_QUERY])
def test_the_value_is_named_and_not_a_gate(name: str) -> None:
    text = WRONG["IX403"][name]
    found = [each for each in loud(text) if each.code == "IX403"]
    assert found, text
    for each in found:
        assert each.labels[0].span.text.startswith(("V[h, i", "X[h, i")), each
        assert "[h, i, e]` is read at `i`, who asks" in each.message, each


def respelled(text: str, seed: int) -> str:
    chance = Random(seed)
    return rewrite(spell(text), chance, chance.randint(1, 5)).text


@given(st.data(), st.integers(0, 10**6))
def test_twins_are_told_apart_in_other_spellings(data: st.DataObject, seed: int) -> None:
    """The letters of a function may be those of a contract by chance: of roles only what is right is respelled."""
    code = data.draw(st.sampled_from(sorted(RIGHT)))
    right = respelled(RIGHT[code][data.draw(st.sampled_from(sorted(RIGHT[code])))], seed)
    assert not {found.code for found in loud(right)} & {*RIGHT, "IX406", "IX405"}, right
    if code != "IX421":
        wrong = respelled(WRONG[code][data.draw(st.sampled_from(sorted(WRONG[code])))], seed)
        assert code in {found.code for found in loud(wrong)}, wrong
