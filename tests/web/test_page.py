"""The page in a real browser: what can be asked of it, on the published lessons and on programs of other kinds."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.web.conftest import Open

import indexical as ix
from indexical.pages import WebPage, show, show_lesson

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "examples" / "lessons").glob("*.ix"))


@cache
def lesson(name: str) -> WebPage:
    return show(ROOT / "examples" / "lessons" / f"{name}.ix")


def cell(tab: Any, name: str) -> Any:
    return tab.locator(f'[data-cell="{name}"]')


def classes(found: Any) -> set[str]:
    return set((found.get_attribute("class") or "").split())


def scene(tab: Any, name: str) -> None:
    tab.evaluate("name => PAGES[0].go(name)", name)


def figure(tab: Any) -> str:
    """What the panel says: its subject and its number."""
    return str(tab.locator(".panel h2.value").inner_text())


# ------------------------------------------------------------------- program


@pytest.mark.sampled(0)
def test_a_coordinate_has_one_colour_and_tells_its_story(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    letters = tab.locator('[data-coordinate="j"]')
    assert letters.count() > 10
    assert len({tuple(sorted(c for c in classes(letters.nth(n)) if re.fullmatch(r"c\d", c))) for n in range(5)}) == 1
    tab.locator('.source [data-coordinate="j"]').first.hover()
    assert "lit" in classes(tab.locator('figure[data-tensor="weights"] [data-coordinate="j"]').first)
    story = tab.locator(".story")
    assert "is a position" in story.inner_text()
    assert "weights: kept, shared out to 100 %" in story.inner_text()
    tab.get_by_label("notation").check()
    tab.locator('.chip[data-coordinate="j"]').focus()
    assert "weights: survives, normalised by softmax" in story.inner_text()
    assert "out: consumed by sum" in story.inner_text()


def test_findings_sit_under_their_line(opened: Open) -> None:
    text = "input Q[i, d], K[j, d], V[j, e];\nlet w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]));\n"
    text += "let out[i, e] = sum[j](w[i, j] * V[i, e]);\n"
    tab = opened(show(text, [[1]], [[1]], [[1]]))
    finding = tab.locator(".line[data-line='3'] + .finding")
    assert "IX403" in finding.inner_text()


# ------------------------------------------------------------------- numbers


@pytest.mark.sampled(0)
def test_masked_cells_are_absent(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    masked = cell(tab, "weights[0, 2]")
    assert masked.inner_text().strip() == ""
    assert "masked" in classes(masked)
    assert "repeating-linear-gradient" in masked.evaluate("node => getComputedStyle(node).backgroundImage")
    assert cell(tab, "weights[2, 0]").inner_text() == "21\u202f%"
    assert cell(tab, "weights[2, 0]").get_attribute("aria-label") == "weights[2, 0] = 21\u202f% (0.2119)"
    tab.get_by_label("notation").check()
    assert cell(tab, "weights[2, 0]").inner_text() == "0.21"


@pytest.mark.sampled(0)
def test_leading_coordinates_are_small_pictures(opened: Open) -> None:
    arrays = np.arange(2 * 3 * 4 * 2).reshape(2, 3, 4, 2) % 5
    tab = opened(show(ROOT / "examples" / "causal_attention.ix", arrays, arrays, arrays))
    assert cell(tab, "weights[0, 0, 1, 0]").count() == 1
    turn = tab.locator('.outcome [data-turn="h"][data-at="2"]')
    assert turn.locator("canvas").count() == 1
    turn.click()
    assert cell(tab, "weights[0, 2, 1, 0]").count() == cell(tab, "scores[0, 2, 1, 0]").count() == 1
    assert cell(tab, "weights[0, 0, 1, 0]").count() == 0
    assert tab.locator('.outcome [data-turn="h"][data-at="2"]').get_attribute("aria-pressed") == "true"
    assert tab.locator(".head-card[aria-pressed=true]").inner_text().startswith("batch 0, head 2")
    tab.locator(".head-card").nth(4).click()
    assert cell(tab, "weights[1, 1, 1, 0]").count() == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["convolution", "fibonacci", "heat_equation", "lstm", "smith_waterman", "rotary"])
def test_programs_of_other_kinds_are_staged_step_by_step(opened: Open, name: str) -> None:
    from indexical.run.samples import random_arrays

    program = ix.compile(ROOT / "examples" / f"{name}.ix")
    sample, _ = random_arrays(program.ir, {}, {"d": 4} if name == "rotary" else {}, 0)
    tab = opened(show(program, **sample.arrays))
    assert tab.locator(".picture .token.on").count() == 1
    seen = tab.evaluate(
        """() => PAGES[0].steps.map((step) => {
          PAGES[0].go(step.name);
          const text = PAGES[0].root.innerText;
          if (PAGES[0].gather === undefined && step.inside === null && !PAGES[0].sayLine.innerText.startsWith(step.name)) return [step.name];
          return [step.name, PAGES[0].stage.querySelector(".chosen") !== null, /undefined|\\[object|NaN/.test(text), PAGES[0].work.childElementCount > 0];
        })"""
    )
    assert [entry for entry in seen if entry[1:] != [True, False, True]] == []
    last = tab.locator(".outcome td.cell:not(.masked)").last
    name = last.get_attribute("data-cell")
    last.click()
    assert tab.locator(".crumbs").inner_text() == name


@pytest.mark.sampled(0)
def test_large_matrices_are_colours_around_a_few_numbers(opened: Open) -> None:
    generator = np.random.default_rng(0)
    program = ix.compile(ROOT / "examples" / "causal_attention.ix")
    arrays = generator.standard_normal((3, 1, 8, 256, 8)).astype(np.float32)
    tab = opened(show(program, *arrays))
    canvas = tab.locator(".outcome canvas.heat")
    assert canvas.count() == 1
    box = canvas.bounding_box()
    canvas.hover(position={"x": 1, "y": box["height"] * 0.75})
    told = tab.locator(".outcome .told")
    match = re.fullmatch(r"weights\[0, 0, (\d+), (\d+)\] = (.*)", told.inner_text())
    assert match is not None
    weights = program(*arrays, outputs="weights")
    assert float(match[3]) == pytest.approx(weights[0, 0, int(match[1]), int(match[2])], rel=1e-5)
    canvas.hover(position={"x": box["width"] - 2, "y": 1})
    assert "is masked" in told.inner_text()
    tab.locator(".head-card").nth(5).click()
    canvas.click(position={"x": 1, "y": box["height"] - 2})
    assert tab.locator(".crumbs").inner_text().startswith("weights[0, 5, ")
    assert "too large for exact numbers" in tab.locator(".why-not-exact").inner_text()
    tab.evaluate("PAGES[0].select('weights', [0, 5, 255, 3], true)")
    assert "terms 1 to 64 of 256" in tab.locator(".panel").inner_text()
    assert cell(tab, "scores[0, 5, 255, 3]").count() == 1
    # Of many terms the largest are shown, and the others as one, so that the sum closes.
    assert tab.locator(".work .columns").first.locator(".head").last.inner_text() == "+251"
    assert "from 252 others" in tab.locator(".say").inner_text()
    canvas.focus()
    tab.keyboard.press("ArrowUp")
    assert told.inner_text().startswith("weights[0, 5, ")


# ---------------------------------------------------------------------- cells


@pytest.mark.sampled(0)
def test_a_cell_leads_down_to_the_inputs_and_up_again(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    scene(tab, "out")
    cell(tab, "out[2, 0]").click()
    assert "chosen" in classes(cell(tab, "out[2, 0]"))
    for j in range(3):
        assert "part" in classes(cell(tab, f"weights[2, {j}]"))
    assert "part" not in classes(cell(tab, "weights[1, 0]"))
    tab.locator(".terms tbody tr").nth(2).locator("button.down").first.click()
    assert tab.locator(".crumbs li").all_inner_texts() == ["out[2, 0]", "weights[2, 2]"]
    assert "shared out so that the row makes 100" in tab.locator(".panel").inner_text()
    assert tab.evaluate("PAGES[0].scene") == "out"
    tab.locator(".terms tbody tr").nth(0).locator("button.down").first.click()
    assert tab.evaluate("PAGES[0].scene") == "scores"
    assert "part" in classes(cell(tab, "Q[2, 0]"))
    assert tab.evaluate("location.hash") == "#step=1&cell=scores[2,0]"
    tab.locator(".terms button.down").first.click()
    assert "This is an input" not in tab.locator(".panel").inner_text()
    tab.locator(".crumbs button").first.click()
    assert tab.locator(".crumbs li").all_inner_texts() == ["out[2, 0]"]
    cell(tab, "weights[2, 1]").click()
    assert "Goes on into out[2, 0]" in tab.locator(".panel").inner_text()


@pytest.mark.sampled(0)
def test_what_a_guard_left_out_is_said_and_not_counted(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    cell(tab, "weights[1, 0]").click()
    assert "j = 2 left out: j <= i does not hold" in tab.locator(".panel").inner_text()
    tab.get_by_label("notation").check()
    text = tab.locator(".panel").inner_text()
    assert "j = 2 excluded by j <= i" in text
    assert "2 of 3 points" in text
    cell(tab, "scores[0, 2]").click()
    assert "masked" in figure(tab)
    scene(tab, "out")
    cell(tab, "out[1, 0]").click()
    assert tab.locator(".panel .terms tbody tr:not(.total)").count() == 2
    assert "2 of 3 points" in tab.locator(".panel").inner_text()


@pytest.mark.sampled(0)
def test_the_arithmetic_is_written_out_in_the_chosen_form(opened: Open) -> None:
    text = "space position(i, j), feature(e); let w[i, j] = [[0.5, 0.3, 0.2]]; let V[j, e] = [[1], [3], [5]];"
    tab = opened(show(f"{text} let out[i, e] = sum[j](w[i, j] * V[j, e]);"))
    cell(tab, "out[0, 0]").click()
    line = tab.locator(".arithmetic")
    assert line.inner_text() == "out[0, 0] = 0.5·1 + 0.3·3 + 0.2·5 = 2.4"
    tab.get_by_label("exact").check()
    assert line.inner_text() == "out[0, 0] = 1/2·1 + 3/10·3 + 1/5·5 = 12/5"
    assert tab.locator(".panel .terms tbody tr").nth(1).inner_text().split() == ["1", "3/10", "3", "9/10", "37", "%"]
    said = tab.locator(".say").inner_text().replace("\n", " ").replace("\u00a0", " ")
    assert said == "position 0 takes 50 % from position 0 and 30 % from position 1 and 20 % from position 2. Together, 100 %."


@pytest.mark.sampled(0)
def test_symbols_are_never_called_undefined(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    scene(tab, "out")
    assert "undefined" not in tab.locator("main").inner_text()
    assert "NaN" not in tab.locator("main").inner_text()
    assert tab.locator(".arithmetic").inner_text().startswith("out[2, 0] = 0.2119·V[0] + 0.2119·V[1] + 0.5761·V[2]")
    assert tab.locator(".panel .terms tbody tr").first.inner_text().split()[-1] == "0.2119·V[0]"
    # A weight that is a symbol gives a line that is not known, not a missing one.
    text = "space p(i, j); input s[i, j], V[j, e]; let w[i, j] = softmax[j](s[i, j]); let o[i, e] = sum[j](w[i, j] * V[j, e]);"
    tab = opened(show(text, V=[[1], [2]], sizes={"i": 2}))
    assert tab.locator(".arc.unknown").count() == 4
    assert "not known" in tab.locator(".say").inner_text()


@pytest.mark.sampled(0)
def test_forms_are_switched(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    tab.get_by_label("structural").check()
    assert figure(tab).endswith("e^2/(e^1+e^1+e^2)")
    assert "approximate" in classes(cell(tab, "weights[2, 0]"))
    tab.get_by_label("exact").check()
    assert cell(tab, "weights[2, 0]").inner_text() == "1/(2+e)"
    tab.get_by_label("decimal").check()
    assert cell(tab, "weights[2, 0]").inner_text() == "21\u202f%"
    assert "exactly e/(2+e)" in tab.locator(".panel .other-form").inner_text()


def test_the_boundary_of_exactness_is_drawn(opened: Open) -> None:
    tab = opened(show("input x[i]; let a[i] = exp(x[i]); let b[i] = log(1 + a[i]); let c[i] = 2 * b[i];", [0, 1]))
    assert "exactness ends here: log" in tab.locator('figure[data-tensor="b"] .boundary').inner_text()
    assert "outside" in classes(cell(tab, "c[1]"))
    scene(tab, "b")
    assert tab.locator('figure[data-tensor="a"] .boundary').count() == 0
    assert "outside" not in classes(cell(tab, "a[1]"))


# -------------------------------------------------------------- communication


@pytest.mark.sampled(0)
def test_lines_are_as_thick_as_the_weights(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    lines = tab.locator("svg.arcs path.arc")
    found = {
        (lines.nth(n).get_attribute("data-query"), lines.nth(n).get_attribute("data-key")): lines.nth(n)
        for n in range(lines.count())
    }
    assert set(found) == {("0", "0"), ("1", "0"), ("1", "1"), ("2", "0"), ("2", "1"), ("2", "2")}
    assert float(found["2", "2"].get_attribute("data-strength")) == pytest.approx(0.5761168847658291)
    thick, thin = (float(found[pair].get_attribute("stroke-width")) for pair in (("2", "2"), ("2", "0")))
    assert thick > thin


def test_lines_by_what_is_carried_and_after_the_projection(opened: Open) -> None:
    text = """
    space head(h), position(i, j), feature(d, e), model(m);
    input Q[h, i, d], K[h, j, d], V[h, j, e], W_O[h, e, m];
    let weights[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d)));
    let out[h, i, e]     = sum[j](weights[h, i, j] * V[h, j, e]);
    let Y[i, m]          = sum[h, e](out[h, i, e] * W_O[h, e, m]);
    """
    generator = np.random.default_rng(0)
    Q, K, V = generator.standard_normal((3, 2, 4, 3))
    W = generator.standard_normal((2, 3, 5))
    program = ix.compile(text)
    weights = program(Q, K, V, W, outputs="weights")
    tab = opened(show(program, Q, K, V, W))
    tab.locator(".head-card").nth(1).click()
    tab.get_by_label("what arrives").check(force=True)
    expected = weights[1, 2, 3] * np.linalg.norm(V[1, 3])
    line = 'path.arc[data-query="2"][data-key="3"]'
    assert float(tab.locator(line).get_attribute("data-strength")) == pytest.approx(expected)
    tab.get_by_label("after W_O").check(force=True)
    expected = weights[1, 2, 3] * np.linalg.norm(V[1, 3] @ W[1])
    assert float(tab.locator(line).get_attribute("data-strength")) == pytest.approx(expected)


# --------------------------------------------------------- claims, questions


@pytest.mark.sampled(0)
def test_verdicts_sit_on_the_cells_they_speak_of(opened: Open) -> None:
    tab = opened(lesson("three_by_two"))
    assert {"verdict", "fails"} <= classes(cell(tab, "out[0, 0]"))
    assert cell(tab, "out[0, 0]").get_attribute("title") == (
        "claimed 2.4; exactly 12/5 = 2.4\nclaimed 2.2000; exactly 12/5 = 2.4; off by 1/5"
    )
    cell(tab, "out[0, 0]").click()
    assert "claimed 2.2000: fails; exactly 12/5 = 2.4, off by 1/5" in tab.locator(".verdict-line.fails").inner_text()
    assert "claimed 2.4: holds" in tab.locator(".verdict-line.holds").inner_text()
    assert tab.locator(".claim.fails").count() == 1
    tab.locator(".claim.fails button.down").nth(2).click()
    assert tab.locator(".crumbs").inner_text() == "out[1, 0]"
    tab.evaluate("PAGES[0].select('weighted', [0, 1, 1], true)")
    assert {"verdict", "holds"} <= classes(cell(tab, "weighted[0, 1, 1]"))


LESSON = """# Who is heard

Some *words* and `code`.

```ix lesson.ix
let weights[j] = [0.1, 0.6, 0.3];
let V[j, e] = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]];
let out[e] = sum[j](weights[j] * V[j, e]);
expect out == [0.25, 0.75];
```

```question
What arrives in feature 0?
answer: out[0]
```

```question
And in both?
answer: out
reveal: Both of *them*.
```

```question
Why?
reveal: Because **weights** sum to 1.
```
"""


def test_questions_are_asked_and_checked(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "lesson.md").write_text(LESSON, encoding="utf-8")
    tab = opened(show_lesson(tmp_path / "lesson.md"))
    assert tab.title() == "Who is heard"
    first = tab.locator("form.question").first
    for typed, right in [
        ("0.24", "false"),
        ("x", "false"),
        ("", "false"),
        ("0.25", "true"),
        ("1/4", "true"),
        ("0.3", "true"),
    ]:
        first.locator("input").fill(typed)
        first.locator("input").press("Enter")
        assert first.get_attribute("data-right") == right, typed
    first.get_by_role("button", name="show how it comes about").click()
    assert tab.locator(".crumbs").inner_text() == "out[0]"
    assert figure(tab).split()[-1] == "0.25"
    second = tab.locator("form.question").nth(1)
    assert second.locator(".prose").is_hidden()
    second.locator("input").fill("0.25, 0.75")
    second.get_by_role("button", name="check").click()
    assert second.get_attribute("data-right") == "true"
    assert second.locator(".prose").inner_text() == "Both of them."
    tab.locator("details.question summary").click()
    assert "Because weights sum to 1." in tab.locator("details.question").inner_text()


# --------------------------------------------------------------------- beside


@pytest.mark.sampled(0)
def test_broken_beside_right(opened: Open) -> None:
    right = "input Q[i, d], K[j, d], V[j, e]; let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])); let out[i, e] = sum[j](w[i, j] * V[j, e]);"
    broken = right.replace("V[j, e]);", "V[i, e]);")
    values = [[1, 2], [3, 5]], [[1, 0], [0, 1]], [[1, 2], [3, 4]]
    tab = opened(show(right, *values, beside=broken))
    halves = [tab.locator(".half").nth(n) for n in (0, 1)]
    text = tab.locator(".differences").inner_text()
    assert re.search(r"w\s+the same", text)
    assert re.search(r"out\s+4 of 4 differ,\s+first at out\[0, 0\]", text)
    # The first difference is on both stages, row beside row, without scrolling.
    chosen = [half.locator(".outcome .chosen") for half in halves]
    assert [found.get_attribute("data-cell") for found in chosen] == ["out[0, 0]", "out[0, 0]"]
    assert all("differs" in classes(found) for found in chosen)
    boxes = [found.bounding_box() for found in chosen]
    assert abs(boxes[0]["y"] - boxes[1]["y"]) < 2
    assert boxes[0]["y"] + boxes[0]["height"] <= 1000
    halves[0].locator('[data-cell="out[1, 1]"]').click()
    assert [half.locator(".crumbs").inner_text() for half in halves] == ["out[1, 1]", "out[1, 1]"]
    halves[0].locator('.scene[data-scene="w"]').click()
    assert [half.locator(".scene[aria-current]").get_attribute("data-scene") for half in halves] == ["w", "w"]
    assert "differs" in classes(halves[0].locator(".line[data-line='1']"))


@pytest.mark.sampled(0)
def test_a_broken_contract_is_shown_beside_the_mend(opened: Open) -> None:
    broken = ROOT / "examples" / "broken" / "guard_reversed.ix"
    values = np.arange(12).reshape(1, 1, 6, 2) % 5
    page = show(broken, values, values, values, beside=broken.with_name("guard_reversed_mended.ix"))
    tab = opened(page)
    assert "error[IX423]: not causal" in tab.locator(".finding.error").inner_text()


# ------------------------------------------------------------- for everybody


@pytest.mark.sampled(0)
@pytest.mark.parametrize("file", LESSONS, ids=lambda file: file.stem)
def test_the_published_lessons_step_and_click_through(opened: Open, file: Path) -> None:
    page = lesson(file.stem)
    assert len(page.html) < 1_000_000
    schemes = (("light", "rgb(251, 251, 249)"), ("dark", "rgb(18, 19, 22)"))
    tabs = [opened(page, color_scheme=scheme) for scheme, _ in schemes]
    for tab, (_, paper) in zip(tabs, schemes, strict=True):
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == paper
    # A scheme changes colours alone: a cell is clicked in one of the two.
    steps = tabs[0].evaluate("PAGES[0].steps.map((step) => step.name)")
    for number, name in enumerate(steps):
        tab = tabs[number % 2]
        tab.keyboard.press(str(number + 1))
        assert tab.evaluate("PAGES[0].scene") == name
        for at in range(0, tab.locator(".outcome td.cell").count(), 7):
            clicked = tab.locator(".outcome td.cell").nth(at)
            clicked.click()
            assert tab.locator(".crumbs").inner_text() == clicked.get_attribute("data-cell")


def test_a_matrix_is_a_grid_with_one_stop_for_the_tab_key(opened: Open) -> None:
    arrays = np.arange(1 * 2 * 3 * 2).reshape(1, 2, 3, 2) % 5
    tab = opened(show(ROOT / "examples" / "causal_attention.ix", arrays, arrays, arrays))
    assert tab.locator('.outcome td.cell[tabindex="0"]').count() == 1
    grid = tab.locator(".outcome figure").aria_snapshot()
    for part in ("grid", "columnheader", "rowheader", "gridcell"):
        assert part in grid
    assert "button" not in grid.split("grid", 1)[1]
    assert tab.locator(".source [tabindex='0']").count() == 0
    assert tab.locator("button:not([aria-label])").evaluate_all("nodes => nodes.filter(node => !node.textContent.trim()).length") == 0
    ids = tab.locator("[id]").evaluate_all("nodes => nodes.map(node => node.id)")
    assert len(ids) == len(set(ids))
    names = tab.locator("section, [role=region]").evaluate_all("nodes => nodes.map(node => node.ariaLabel)")
    named = [name for name in names if name]
    assert len(named) == len(set(named))
    assert tab.locator("th").evaluate_all("nodes => nodes.filter(node => !node.textContent.trim()).length") == 0


@pytest.mark.sampled(0)
def test_the_focus_is_not_lost_on_the_way_down(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    scene(tab, "out")
    cell(tab, "out[1, 0]").focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.dataset.cell") == "out[1, 0]"
    tab.locator(".panel .terms button.down").first.focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.className") == "value"
    assert tab.locator(".crumbs li").last.inner_text() == "weights[1, 0]"


@pytest.mark.sampled(0)
def test_readable_at_twice_the_size_and_in_print(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    tab.set_viewport_size({"width": 750, "height": 500})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 750
    cell(tab, "weights[2, 0]").click()
    tab.wait_for_timeout(300)
    box = tab.locator(".panel").bounding_box()
    assert 150 < box["y"] < box["y"] + box["height"] <= 501
    tab.emulate_media(media="print", color_scheme="dark")
    tab.evaluate("layOut()")
    assert tab.locator(".sheet h2 code").all_inner_texts() == ["scores", "weights", "out"]
    assert tab.locator(".sheet .outcome .chosen:visible").count() == 3
    assert tab.locator("#export").is_hidden()
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.sampled(0)
def test_long_forms_stay_in_their_place(opened: Open) -> None:
    arrays = (np.arange(1 * 1 * 8 * 2).reshape(1, 1, 8, 2) * 7 % 11) / 4
    tab = opened(show(ROOT / "examples" / "causal_attention.ix", arrays, arrays[..., ::-1], arrays))
    tab.get_by_label("exact").check()
    scene(tab, "out")
    cell(tab, "out[0, 0, 7, 0]").click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1500
    assert "approximate" in classes(cell(tab, "out[0, 0, 7, 0]"))
    assert "…" not in tab.locator(".panel .other-form").inner_text()


def test_what_functions_brought_along_is_on_the_strip(opened: Open) -> None:
    from indexical.run.samples import random_arrays

    program = ix.compile(ROOT / "examples" / "transformer_block.ix")
    tab = opened(show(program, **random_arrays(program.ir, {}, {}, 2)[0].arrays))
    inside = tab.locator(".scene.inside")
    assert inside.count() > 5
    assert tab.locator('.scene[data-scene="heard_weights"]').get_attribute("aria-current") == "step"
    assert "now" in classes(tab.locator(".line[data-line='12']"))
    tab.keyboard.press("1")
    assert tab.evaluate("PAGES[0].scene") == "heard"
    assert tab.locator('.operands figure[data-tensor="heard_merge_heads"] .part').count() > 0


@pytest.mark.sampled(0)
def test_links_lead_to_their_program_step_and_cell(opened: Open, tmp_path: Path) -> None:
    tab = opened(lesson("three_by_two"), "#step=2&cell=out[2,0]&term=3")
    assert tab.evaluate("PAGES[0].scene") == "out"
    assert "chosen" in classes(cell(tab, "out[2, 0]"))
    assert "term-row" in classes(tab.locator(".panel .terms tbody tr").nth(2))
    text = "```ix\nlet x[i] = [1, 2];\nlet y[i] = 2 * x[i];\n```\n\nand\n\n```ix\nlet x[i] = [3, 4];\nlet y = sum[i](x[i]);\n```\n"
    (tmp_path / "two.md").write_text(text, encoding="utf-8")
    tab = opened(show_lesson(tmp_path / "two.md"), "#program=2&step=1&cell=y&term=2")
    assert tab.locator(".figure").all_inner_texts()[1] == "7"
    tab.wait_for_timeout(600)
    assert tab.evaluate("document.querySelectorAll('.stage')[1].getBoundingClientRect().top < innerHeight")
    tab.keyboard.press("Shift+T")
    assert tab.evaluate("location.hash") == "#program=2&step=1&cell=y&term=1"
    cell(tab, "y[1]").click()
    assert tab.evaluate("location.hash") == "#step=1&cell=y[1]"
    for broken in ("#program=9&step=1", "#program=<script>&step=1", "#step=-4&cell=%00", "#step=99", "#cell=y[9,9]&step=x&set=y[0]:<b>"):
        tab.evaluate("hash => { location.hash = hash; }", broken)
    assert tab.locator(".stage").count() == 2


@pytest.mark.sampled(0)
def test_colours_have_contrast(opened: Open) -> None:
    for scheme in ("light", "dark"):
        tab = opened(lesson("named_softmax"), color_scheme=scheme)
        worst = tab.evaluate(
            """() => {
              const style = getComputedStyle(document.documentElement);
              const light = (text) => {
                const parts = rgb(text).map((part) => part / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
                return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
              };
              const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
              const of = (name) => light(style.getPropertyValue(name));
              const keys = ["--ink", "--ink2", "--ink3", "--now", "--good", "--bad", "--warn", ...Array.from({ length: 8 }, (_, n) => `--c${n}`)];
              return Math.min(...["--bg", "--surface", "--sunken", "--now-soft"].flatMap((paper) => keys.map((key) => contrast(of(key), of(paper)))));
            }"""
        )
        assert worst >= 4.5, scheme


def test_the_picture_is_saved_as_svg(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    cell(tab, "weights[2, 0]").click()
    with tab.expect_download() as download:
        tab.locator("#export").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == "indexical.svg"
    assert text.startswith("<svg")
    assert "weights[i, j]" in text
    assert "21\u202f%" in text
    assert "position 2 takes 21 % from position 0" in text
    assert text.count("<path") == 6
    assert "var(" not in text
    with tab.expect_download() as download:
        tab.locator("#points").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"


@pytest.mark.sampled(0)
def test_text_never_becomes_markup(opened: Open, tmp_path: Path) -> None:
    source = (
        f'// {EVIL}\nlet x[i] = [1, 2]; // </script>{EVIL}\nassert sum[i](x[i]) > 0, "{EVIL.replace(chr(34), "")}";\n'
    )
    source += "let y[i] = 2 * x[i]; let unused[i] = x[i]; output y;\nexpect y == [2, 5];\n"
    page = show(source, title=EVIL)
    tab = opened(page)
    assert tab.evaluate("window.evil") is None
    assert EVIL in tab.locator(".source").inner_text()
    assert tab.title() == EVIL
    lesson_text = f"# {EVIL}\n\n{EVIL} `{EVIL}` **{EVIL}**\n\n- {EVIL}\n\n```ix {EVIL}.ix\n{source}```\n\n```question\n{EVIL}\nanswer: y[0]\n```\n"
    lesson_text += f"\n```question\nwhy\nreveal: {EVIL}\n```\n\n```\n{EVIL}\n```\n"
    (tmp_path / "evil.md").write_text(lesson_text, encoding="utf-8")
    tab = opened(show_lesson(tmp_path / "evil.md"))
    tab.locator("form.question input").fill(EVIL)
    tab.locator("form.question input").press("Enter")
    tab.locator("details.question summary").click()
    tab.evaluate("PAGES[0].select('y', [0], true)")
    assert tab.evaluate("window.evil") is None
    assert tab.locator("img").count() == 0
    odd = "</script><!--<script>]]>\u2028\u2029\"'`&lt;"
    labelled = show("space p(i); let x[i] = [1, 2]; let y[i] = 2 * x[i];", labels={"p": [odd, EVIL]}, title=odd)
    tab = opened(labelled)
    assert odd[:20] in tab.locator('figure[data-tensor="x"] th.axis').first.inner_text()
    assert tab.evaluate("window.evil") is None
    assert tab.locator("script").count() == 2
