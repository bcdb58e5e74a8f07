"""The stage in a real browser: what it promises of any program, at the sizes of a laptop and of a phone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.web.conftest import Open

import indexical as ix
from indexical.pages import WebPage, show
from indexical.run.samples import random_arrays

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOKENS = ["The", "cat", "sat", "on", "it"]
LAPTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


@cache
def attention() -> WebPage:
    """Two heads over five words, as figures."""
    Q, K, V = np.round(np.random.default_rng(3).normal(size=(3, 1, 2, 5, 4)) * 2) / 2
    return show(EXAMPLES / "causal_attention.ix", Q, K, V[..., :3], labels={"position": TOKENS})


@cache
def example(name: str) -> WebPage:
    program = ix.compile(EXAMPLES / f"{name}.ix")
    sizes = {"rotary": {"d": 4}, "grouped_query": {"h": 4, "g": 2}}.get(name, {})
    return show(program, **random_arrays(program.ir, {}, sizes, 0)[0].arrays)


def laptop(opened: Open, page: WebPage, hash: str = "", **options: Any) -> Any:
    tab = opened(page, hash, **options)
    tab.set_viewport_size(LAPTOP)
    return tab


# Every step of a program: whether its parts are on the screen, without scrolling.
SEEN = """() => {
  const page = PAGES[0];
  scrollTo(0, 0);
  const isIn = (node) => { const box = node.getBoundingClientRect(); return box.width > 0 && box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight + 1 && box.right <= innerWidth; };
  return page.steps.flatMap((step) => {
    page.go(step.name);
    const lit = [...page.root.querySelectorAll(".line.now")];
    const card = page.source.getBoundingClientRect();
    const isLit = lit.some((line) => { const box = line.getBoundingClientRect(); return isIn(line) && box.top >= card.top - 1 && box.bottom <= card.bottom + 1; });
    const wrong = [...page.stage.querySelectorAll("figure.tensor table, .outcome .chosen, .caption, .work, .play")].filter((node) => !isIn(node)).map((node) => node.className);
    return isLit && wrong.length === 0 && scrollY === 0 && page.stage.querySelector(".outcome .chosen") ? [] : [[step.name, isLit, scrollY, ...wrong]];
  });
}"""


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.ix")), ids=lambda file: file.stem)
@pytest.mark.sampled(13)
def test_operands_working_result_and_line_are_in_view_in_every_step(opened: Open, file: Path) -> None:
    tab = laptop(opened, example(file.stem))
    assert tab.evaluate(SEEN) == []


def test_the_picture_comes_first_with_a_sentence_that_adds_up(opened: Open) -> None:
    tab = laptop(opened, attention())
    assert tab.locator(".hero").bounding_box()["y"] < tab.locator(".stage").bounding_box()["y"]
    assert tab.locator(".tokens .token").all_inner_texts() == TOKENS
    for query in range(5):
        tab.locator(".tokens .token").nth(query).click()
        said = tab.locator(".say").inner_text()
        assert said.startswith(f"{TOKENS[query]} takes ")
        shares = said.split("Together")[0].split(" %")[:-1]
        assert sum(int(share.split()[-1]) for share in shares) == 100
        row = tab.locator(".outcome tbody tr").nth(query).locator("td.cell:not(.masked)").all_inner_texts()
        assert sum(int(text.split("\u202f")[0]) for text in row) == 100


@pytest.mark.sampled(0)
def test_queries_keys_and_values_are_explained_where_they_stand(opened: Open) -> None:
    tab = laptop(opened, attention(), "#step=1")
    for name, start in (("Q", "A query is"), ("K", "A key is")):
        figure = tab.locator(f'figure[data-tensor="{name}"]')
        figure.locator(".why").click()
        assert figure.locator(".explained").inner_text().startswith(start)
    tab.get_by_label("notation").check()
    assert tab.locator(".why").count() == 0


def test_pointing_at_one_thing_lights_it_everywhere(opened: Open) -> None:
    tab = laptop(opened, attention())
    lit = lambda kind: set(tab.locator(f".stage td.{kind}").evaluate_all("cells => cells.map(cell => cell.dataset.cell)"))  # noqa: E731
    tab.locator('[data-cell="weights[0, 0, 3, 1]"]').hover()
    assert lit("hot") == {"weights[0, 0, 3, 1]", "scores[0, 0, 3, 1]"}
    assert "on takes" in tab.locator(".say").inner_text()
    assert tab.locator(".token.hot").count() == 1
    tab.locator(".tokens .token").nth(2).hover()
    assert {f"weights[0, 0, 2, {j}]" for j in range(5)} <= lit("warm")
    assert "weights[0, 0, 1, 1]" not in lit("warm")
    tab.locator(".panel .terms tbody tr").nth(0).hover()
    assert tab.locator(".work .box.hot").count() >= 2
    tab.locator('[data-cell="weights[0, 0, 4, 4]"]').focus()
    tab.keyboard.press("ArrowLeft")
    assert "weights[0, 0, 4, 3]" in lit("hot")
    # Pointing changes the sentence, never the choice.
    assert tab.locator(".outcome .chosen").get_attribute("data-cell") == "weights[0, 0, 4, 1]"


@pytest.mark.sampled(0)
def test_five_keys_from_the_top_to_any_cell(opened: Open) -> None:
    tab = laptop(opened, attention())
    rows = {0: ["PageUp"], 1: ["PageUp", "ArrowDown"], 2: ["ArrowUp", "ArrowUp"], 4: []}
    columns = {0: ["Home"], 3: ["End", "ArrowLeft"]}
    for row, down in rows.items():
        for column, across in columns.items():
            tab.evaluate("document.activeElement.blur(); PAGES[0].select('weights', [0, 0, 4, 1], true)")
            keys = ["g", *down, *across]
            assert len(keys) <= 5
            for key in keys:
                tab.keyboard.press(key)
            assert tab.evaluate("document.activeElement.dataset.cell") == f"weights[0, 0, {row}, {column}]"
    tab.reload()
    tab.keyboard.press("Tab")
    for _ in range(12):
        if tab.evaluate("document.activeElement.className") == "skip":
            break
        tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.dataset.cell") == "weights[0, 0, 4, 1]"


@pytest.mark.sampled(0)
def test_time_moves_by_keys_by_the_slider_and_by_playing(opened: Open) -> None:
    tab = laptop(opened, attention(), "#step=1")
    beats = tab.locator(".beats button").all_inner_texts()
    assert beats == ["line up", "multiply", "add up", "scale"]
    tab.keyboard.press("ArrowLeft")
    tab.wait_for_timeout(500)
    assert tab.locator(".beats .on").inner_text() == "add up"
    assert "waiting" in (tab.locator(".outcome .chosen").get_attribute("class") or "")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_timeout(300)
    assert tab.evaluate("PAGES[0].scene") in ("scores", "weights")
    tab.evaluate("PAGES[0].seek(0.1)")
    assert tab.locator(".ghost").count() >= 4
    tab.evaluate("PAGES[0].seek(2)")
    assert tab.evaluate("PAGES[0].scene") == "out"
    assert tab.locator(".ghost").count() == 0
    tab.locator('[data-cell="out[0, 0, 2, 1]"]').click()
    assert tab.evaluate("[PAGES[0].moving !== undefined, PAGES[0].beat < PAGES[0].beats().length]") == [True, True]
    tab.evaluate("PAGES[0].seek(1)")
    tab.keyboard.press("Space")
    assert tab.locator(".play").get_attribute("aria-label") == "pause"
    tab.wait_for_timeout(400)
    tab.keyboard.press("Space")
    assert tab.evaluate("PAGES[0].beat") > 0


@pytest.mark.sampled(0)
def test_motion_is_left_out_where_it_is_not_wanted(opened: Open) -> None:
    tab = laptop(opened, attention(), "#step=1", reduced_motion="reduce")
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate("[PAGES[0].beat, PAGES[0].moving]") == [3, None]
    tab.evaluate("PAGES[0].seek(0.1)")
    assert tab.locator(".ghost").count() == 0


@pytest.mark.sampled(0)
@pytest.mark.parametrize("name", ["attention", "lstm"])
def test_a_phone_has_everything_in_its_width(opened: Open, name: str) -> None:
    tab = opened(attention() if name == "attention" else example(name))
    tab.set_viewport_size(PHONE)
    for step in tab.evaluate("PAGES[0].steps.map((step) => step.name)"):
        tab.evaluate("name => PAGES[0].go(name)", step)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], step
    assert tab.locator(".line.now:visible").count() >= 1
    assert tab.locator(".line:not(.now):visible").count() == 0
    rail = tab.locator(".rail").bounding_box()
    assert rail["y"] + rail["height"] <= PHONE["height"] + 1
    tab.locator(".outcome td.cell:not(.masked)").first.click()
    tab.wait_for_timeout(700)
    sheet, chosen = tab.locator(".panel").bounding_box(), tab.locator(".outcome .chosen").bounding_box()
    assert chosen["y"] + chosen["height"] <= sheet["y"] + 1


@pytest.mark.sampled(0)
def test_a_changed_number_is_followed_shared_and_taken_back(opened: Open) -> None:
    program = ix.compile(EXAMPLES / "causal_attention.ix")
    tab = laptop(opened, attention(), "#step=1")
    tab.locator('[data-cell="Q[0, 0, 4, 0]"]').dblclick()
    field = tab.locator(".editor input")
    field.fill("2,5")
    field.press("Enter")
    Q, K, V = np.round(np.random.default_rng(3).normal(size=(3, 1, 2, 5, 4)) * 2) / 2
    Q[0, 0, 4, 0] = 2.5
    for name, expected in zip(("scores", "weights", "out"), program(Q, K, V[..., :3], outputs=("scores", "weights", "out")), strict=True):
        found = tab.evaluate("name => [...PAGES[0].tables.get(name).values]", name)
        assert np.allclose(np.reshape(found, expected.shape), expected)
    assert tab.evaluate("PAGES[0].tables.get('weights').isMasked([0, 0, 1, 2])") is True
    assert tab.locator("#reset").inner_text() == "Reset 1"
    assert "changed" in (tab.locator('[data-cell="Q[0, 0, 4, 0]"]').get_attribute("class") or "")
    assert "exactly" not in tab.locator(".panel").inner_text()
    link = tab.evaluate("location.hash")
    assert "set=Q[0,0,4,0]:2.5" in link
    other = laptop(opened, attention(), link)
    assert other.evaluate("PAGES[0].tables.get('scores').at([0, 0, 4, 1])") == tab.evaluate("PAGES[0].tables.get('scores').at([0, 0, 4, 1])")
    tab.locator("#reset").click()
    assert "set=" not in tab.evaluate("location.hash")
    assert tab.evaluate("PAGES[0].tables.get('Q').at([0, 0, 4, 0])") == 0.5
    assert tab.locator("#reset").is_disabled()
    cell = tab.locator('[data-cell="Q[0, 0, 4, 1]"]')
    box = cell.bounding_box()
    before = tab.evaluate("PAGES[0].tables.get('Q').at([0, 0, 4, 1])")
    tab.mouse.move(box["x"] + 10, box["y"] + 10)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 40, box["y"] + 10, steps=4)
    tab.mouse.up()
    assert tab.evaluate("PAGES[0].tables.get('Q').at([0, 0, 4, 1])") == pytest.approx(before + 0.5)


@pytest.mark.sampled(0)
def test_what_cannot_be_followed_is_said_and_taken_back(opened: Open) -> None:
    text = "input x[i, j], at[k]: i64; let y[k, j] = x[at[k], j]; let z[k] = x[0, at[k]];"
    tab = opened(show(text, [[1, 2], [3, 4]], np.array([1, 0])))
    tab.evaluate("PAGES[0].change('at', [1], 1)")
    assert tab.evaluate("[...PAGES[0].tables.get('y').values]") == [3, 4, 3, 4]
    tab.evaluate("PAGES[0].change('at', [0], 2)")
    assert "x[2, 0] would be read, and it has no such point" in tab.locator(".caption").inner_text()
    assert tab.evaluate("[...PAGES[0].tables.get('y').values]") == [3, 4, 1, 2]
    runaway = opened(show("let n = 3; let s = sum[k in 0..n](k * k);"))
    runaway.evaluate("PAGES[0].change('n', [], 4)")
    assert runaway.evaluate("PAGES[0].tables.get('s').values[0]") == 14
    runaway.evaluate("PAGES[0].relation.again = ((again) => function (names) { return again.call(this, names, 20); })(PAGES[0].relation.again); PAGES[0].change('n', [], 1e12)")
    assert "takes too long" in runaway.locator(".caption").inner_text()
    assert runaway.evaluate("PAGES[0].tables.get('s').values[0]") == 5
    tab.evaluate("PAGES[0].select('at', [0], true)")
    tab.locator(".editor input").fill("0.5")
    tab.locator(".editor input").press("Enter")
    assert "a whole number, please" in tab.locator(".editor").inner_text()
