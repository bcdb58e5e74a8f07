"""No text breaks the compiler: whatever it reads becomes a program or an `ix.Error`, and soon."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.laws.damage import KINDS, PATIENCE, TOKENS, Edit, as_text, corpus, damaged, examine
from tests.laws.programs import Case, cases
from tests.laws.programs_text import CHARACTERS
from tests.profiles import examples

import indexical as ix

numbers = st.integers(0, 1 << 16)
edits = st.lists(st.builds(Edit, st.sampled_from(KINDS), numbers, numbers, numbers), min_size=1, max_size=4)


def check(text: str) -> None:
    report = examine(text)
    if report.seconds >= PATIENCE:
        report = examine(text)  # a collection of the whole test process's garbage may have fallen into the first
    assert report.seconds < PATIENCE
    event("an error" if not report.compiled else "called" if report.called else "not called")


@examples(4)
@given(st.binary(max_size=120))
def test_bytes(noise: bytes) -> None:
    check(as_text(noise))


@examples(4)
@given(st.text(CHARACTERS, max_size=60))
def test_characters(text: str) -> None:
    check(text)


@examples(4)
@given(st.lists(st.sampled_from(TOKENS), max_size=50), st.sampled_from((" ", "", "\n")))
def test_words_in_no_order(words: list[str], between: str) -> None:
    check(between.join(words))


@examples(4)
@given(st.sampled_from(corpus()), edits)
def test_damaged_programs(text: str, changes: list[Edit]) -> None:
    check(damaged(text, changes))


@examples(5)
@given(cases(), edits)
def test_damaged_programs_that_use_everything(case: Case, changes: list[Edit]) -> None:
    check(damaged(case.text, changes))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", [text for text in corpus() if "IX" not in text], ids=lambda text: text[:30])
def test_the_programs_to_damage_are_sound(text: str) -> None:
    """Damage to what is broken anyhow would show little."""
    assert [str(found) for found in ix.check(text) if found.severity == "error"] == []
