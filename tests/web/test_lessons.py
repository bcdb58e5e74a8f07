"""Lessons in a real browser: prose that leads to cells, questions in any form of number, hints from the trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import Open

from indexical.pages import show_lesson

LESSONS = Path(__file__).resolve().parents[2] / "examples" / "lessons"


@pytest.fixture(scope="module")
def tab(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The first lesson, opened once for all."""
    file = show_lesson(LESSONS / "what_is_attention.md").save(tmp_path_factory.mktemp("lesson") / "page.html")
    problems: list[str] = []
    found = browser.new_page(viewport={"width": 1500, "height": 1000}, reduced_motion="reduce")
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("request", lambda request: problems.append(request.url) if request.url[:5] != "file:" else None)
    found.goto(file.as_uri())
    yield found
    found.close()
    assert problems == []


def chosen(tab: Any, number: int = 0) -> str:
    return str(
        tab.evaluate(f"(() => {{ const at = PAGES[{number}].path.at(-1); return label(at.name, at.place); }})()")
    )


def scene(tab: Any, number: int = 0) -> str:
    return str(tab.evaluate(f"PAGES[{number}].scene"))


def is_in_view(found: Any) -> bool:
    return bool(
        found.evaluate("(n) => { const b = n.getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight; }")
    )


@pytest.mark.sampled(0)
def test_an_element_in_the_prose_leads_to_its_cell_and_back(tab: Any) -> None:
    assert (scene(tab), chosen(tab)) == ("weights", "weights[3, 1]")  # As its block says.
    assert tab.evaluate("location.hash + scrollY") == "0"
    link = tab.get_by_role("link", name="scores[3, 1]")
    assert link.get_attribute("href") == "#cell=scores[3,1]"
    link.click()
    assert (scene(tab), chosen(tab)) == ("scores", "scores[3, 1]")
    assert is_in_view(tab.locator('.outcome [data-cell="scores[3, 1]"]'))
    tab.get_by_role("button", name="back to the text").click()
    assert is_in_view(link)
    assert link.evaluate("(n) => n === document.activeElement")
    tab.get_by_role("link", name="Q[3]").click()
    assert chosen(tab) == "Q[3, 0]"
    tab.get_by_role("link", name="K", exact=True).click()
    assert scene(tab) == "K"


def test_a_link_sets_numbers_and_takes_them_back(tab: Any) -> None:
    cell = tab.locator('.outcome [data-cell="weights[3, 1]"]')
    for words, share in [("Make the second word", 81), ("Six times", 99), ("Not at all", 17), ("Put it back", 61)]:
        tab.get_by_role("link", name=words).click()
        assert cell.inner_text() == f"{share}\u202f%", words
    assert tab.locator("#reset").is_disabled()


def test_the_readers_own_words(tab: Any) -> None:
    form = tab.locator("form.words")
    form.locator("input").fill("My dog")
    form.get_by_role("button").click()
    assert "places for 4 words, and this is 2" in form.inner_text()
    form.locator("input").fill("My dog <b>chased</b> it")
    form.get_by_role("button").click()
    assert tab.locator(".hero").inner_text().split()[4:10] == ["it", "takes", "61", "%", "from", "dog"]
    assert tab.locator(".hero b b").count() == 0
    form.locator("input").fill("")
    form.locator("input").press("Enter")
    assert tab.locator(".hero").inner_text().split()[4:10] == ["itself", "takes", "61", "%", "from", "cat"]


E_OF = "Math.E / (2 + Math.E)"
JUDGED = [
    ("e/(2+e)", E_OF, 4, "true"),
    ("e^2 / (e + e + e²)", E_OF, 4, "true"),
    ("exp(2)/(2exp(1)+exp(2))", E_OF, 4, "true"),
    ("0,5761", E_OF, 4, "true"),
    ("57.61 %", E_OF, 4, "true"),
    ("0.58", E_OF, 4, "near"),
    ("0.58", E_OF, 2, "true"),
    ("58 %", E_OF, 0, "true"),
    ("57 %", E_OF, 0, "false"),
    ("0.5762", E_OF, 0, "false"),
    ("1 / 3", "1 / 3", 0, "true"),
    ("0.333", "1 / 3", 0, "true"),
    ("½", "1 / 2", 0, "true"),
    ("−2", "-2", 0, "true"),
    ("-e^2", "-(Math.E ** 2)", 0, "true"),
    ("√2/2", "Math.SQRT1_2", 0, "true"),
    ("2", "2.2", 0, "false"),
    ("0,25 0,75", "[0.25, 0.75]", 0, "true"),
    ("0.25, 0.75", "[0.25, 0.75]", 0, "true"),
    ("0.25,0.75", "[0.25, 0.75]", 0, "true"),
    ("[1/4; 75 %]", "[0.25, 0.75]", 0, "true"),
    ("0.75 0.25", "[0.25, 0.75]", 0, "false"),
    ("0.25", "[0.25, 0.75]", 0, None),
    ("constructor", "1", 0, None),
    ("1/(", "1", 0, None),
    ("1/0", "1", 0, None),
    ("", "1", 0, None),
    ("(" * 300, "1", 0, None),
]


def test_numbers_are_read_in_any_form_and_judged_as_precisely_as_they_are_written(tab: Any) -> None:
    cases = ", ".join(f"[{text!r}, [{answer}].flat(), {places}]" for text, answer, places, _ in JUDGED)
    found = tab.evaluate(f"[{cases}].map(([text, answers, places]) => judged(text, answers, places))")
    for (text, answer, places, right), verdict in zip(JUDGED, found, strict=True):
        is_read = verdict["right"] != "false" or verdict["at"] is not None
        assert (verdict["right"] if is_read else None) == right, (text, answer, places)


HINTS = [
    (1, "0.9", "false", "Raise e to each of the 4 scores scores[i, j], and see which part of the sum is this one's. Start with scores[3, 3]."),
    # What the page prints is right, though 22 would be nearer: the row makes 100.
    (1, "23 %", "true", "Right: exactly e/(2+e+e^2), about 0.2245."),
    (1, "22 %", "true", "Right: exactly"),
    (1, "0.2", "near", "Right as far as it goes: 2 places, please."),
    (1, "1", "false", "That is its score. Raise e to it"),
    (1, "e", "false", "That is e to its score. It is still to be divided"),
    (1, "0.61", "false", "That is weights[0, 1], not weights[3, 3]."),
    (1, "22.5", "false", "That is the percentage: write it with a %"),
    (0, "7", "false", "Add up Q[i, d] * K[j, d] over d: 2 terms. The largest term reads"),
    (0, "many", "false", "That is no number to the page. It reads 0.25 or 0,25"),
]  # fmt: skip


def ask(tab: Any, number: int, typed: str) -> tuple[str, str]:
    form = tab.locator("form.question:not(.words)").nth(number)
    form.locator("input").fill(typed)
    form.locator("input").press("Enter")
    return form.get_attribute("data-right"), form.locator(".answer").inner_text()


def test_a_wrong_answer_gives_a_hint_from_the_trace(tab: Any) -> None:
    for number, typed, right, said in HINTS:
        verdict, text = ask(tab, number, typed)
        assert verdict == right, typed
        assert said in text, typed


def test_a_hint_says_which_term_and_a_second_try_gives_the_figures(opened: Open) -> None:
    tab = opened(show_lesson(LESSONS / "three_by_two.md"), reduced_motion="reduce")
    assert "Add up weighted[i, j, e] over j: 3 terms. The largest" in ask(tab, 0, "17")[1]
    assert "Work this out: 0.5 + 0.9 + 1." in ask(tab, 0, "18")[1]
    assert "That is the term at j = 1 alone. There are 3 to add up." in ask(tab, 0, "0.9")[1]
    assert "That leaves out the term at j = 1." in ask(tab, 0, "1.5")[1]
    assert "About out[1, 1]: That is out[1, 0], not" in ask(tab, 1, "3.2 3.2")[1]
    assert "It is weights[i, j] * V[j, e]. Look at weights[2, 2] and V[2, 0]." in ask(tab, 2, "7")[1]
    tab.locator("form.question").first.get_by_role("button", name="show how it comes about").click()
    assert chosen(tab) == "out[0, 0]"
    assert is_in_view(tab.locator('.outcome [data-cell="out[0, 0]"]'))
