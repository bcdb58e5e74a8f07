"""The page in a real browser: every interaction, on the published lessons and on programs of other kinds."""

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


# ------------------------------------------------------------------- program


def test_a_coordinate_has_one_colour_and_tells_its_story(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    letters = tab.locator('[data-coordinate="j"]')
    assert letters.count() > 10
    assert len({tuple(sorted(c for c in classes(letters.nth(n)) if re.fullmatch(r"c\d", c))) for n in range(5)}) == 1
    tab.locator('.source [data-coordinate="j"]').first.hover()
    assert "lit" in classes(tab.locator('figure[data-tensor="weights"] [data-coordinate="j"]').first)
    story = tab.locator(".story").inner_text()
    assert "is a position" in story
    assert "weights: survives, normalised by softmax" in story
    assert "out: consumed by sum" in story
    tab.locator('.source [data-coordinate="d"]').first.focus()
    assert "scores: consumed by sum" in tab.locator(".story").inner_text()


def test_findings_sit_under_their_line(opened: Open) -> None:
    text = "input Q[i, d], K[j, d], V[j, e];\nlet w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]));\n"
    text += "let out[i, e] = sum[j](w[i, j] * V[i, e]);\n"
    tab = opened(show(text, [[1]], [[1]], [[1]]))
    finding = tab.locator(".line[data-line='3'] + .finding")
    assert "IX403" in finding.inner_text()


# ------------------------------------------------------------------ matrices


def test_masked_cells_are_absent(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    masked = cell(tab, "weights[0, 2]")
    assert masked.inner_text().strip() == ""
    assert "masked" in classes(masked)
    assert "repeating-linear-gradient" in masked.evaluate("node => getComputedStyle(node).backgroundImage")
    assert cell(tab, "weights[2, 0]").inner_text() == "0.2119"
    assert cell(tab, "weights[2, 0]").get_attribute("aria-label") == "weights[2, 0] = 0.2119"


def test_leading_coordinates_are_tabs(opened: Open) -> None:
    arrays = np.arange(2 * 3 * 4 * 2).reshape(2, 3, 4, 2) % 5
    tab = opened(show(ROOT / "examples" / "causal_attention.ix", arrays, arrays, arrays))
    figure = tab.locator('figure[data-tensor="weights"]')
    assert cell(tab, "weights[0, 0, 1, 0]").count() == 1
    figure.locator('[role=tab][data-axis="1"][data-at="2"]').click()
    assert cell(tab, "weights[0, 2, 1, 0]").count() == 1
    assert cell(tab, "weights[0, 0, 1, 0]").count() == 0
    assert figure.locator('[role=tab][data-axis="1"][data-at="2"]').get_attribute("aria-selected") == "true"


@pytest.mark.parametrize("name", ["convolution", "fibonacci", "heat_equation", "lstm", "smith_waterman", "rotary"])
def test_programs_of_other_kinds_draw(opened: Open, name: str) -> None:
    from indexical.run.samples import random_arrays

    program = ix.compile(ROOT / "examples" / f"{name}.ix")
    sample, _ = random_arrays(program.ir, {}, {"d": 4} if name == "rotary" else {}, 0)
    tab = opened(show(program, **sample.arrays))
    drawn = tab.locator("figure.tensor")
    assert drawn.count() >= len(program.outputs)
    last = tab.locator(f'figure[data-tensor="{program.outputs[0]}"] td.cell:not(.masked)').last
    last.click()
    assert tab.locator(".working h2.value").inner_text().startswith(program.outputs[0])


def test_large_matrices_are_drawn_on_a_canvas_and_read_by_pointing(opened: Open) -> None:
    generator = np.random.default_rng(0)
    program = ix.compile(ROOT / "examples" / "causal_attention.ix")
    arrays = generator.standard_normal((3, 1, 8, 512, 8)).astype(np.float32)
    tab = opened(show(program, *arrays))
    canvas = tab.locator('figure[data-tensor="weights"] canvas.heat')
    assert canvas.count() == 1
    canvas.scroll_into_view_if_needed()
    canvas.hover(position={"x": 3, "y": 300})
    told = tab.locator('figure[data-tensor="weights"] .told').inner_text()
    match = re.fullmatch(r"weights\[0, 0, (\d+), (\d+)\] = (.*)", told)
    assert match is not None
    weights = program(*arrays, outputs="weights")
    assert float(match[3]) == pytest.approx(weights[0, 0, int(match[1]), int(match[2])], rel=1e-5)
    canvas.hover(position={"x": 300, "y": 3})
    assert "is masked" in tab.locator('figure[data-tensor="weights"] .told').inner_text()
    tab.evaluate("PAGES[0].setLead('weights', 1, 5)")
    assert tab.evaluate("PAGES[0].lead.get('Q')[1]") == 5
    canvas.click(position={"x": 3, "y": 100})
    assert tab.locator(".working h2.value").inner_text().startswith("weights[0, 5, ")
    assert "too large for exact numbers" in tab.locator(".why-not-exact").inner_text()
    marks = """name => { const canvas = document.querySelector(`figure[data-tensor=${name}] canvas.marks`);
      return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(part => part > 0); }"""
    assert tab.evaluate(marks, "scores")
    assert not tab.evaluate(marks, "out")
    tab.evaluate("PAGES[0].select('weights', [0, 5, 511, 3], true)")
    assert "terms 1 to 200 of 512" in tab.locator(".working").inner_text()
    assert tab.locator(".heads .thumbnail").count() == 8
    canvas.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    assert tab.locator('figure[data-tensor="weights"] .told').inner_text().startswith("weights[0, 5, 1, 1] = ")
    tab.keyboard.press("Enter")
    assert tab.locator(".working h2.value").inner_text().startswith("weights[0, 5, 1, 1]")


# --------------------------------------------------------------------- steps


def test_steps_by_button_and_by_key(opened: Open) -> None:
    tab = opened(lesson("five_by_three"))
    assert tab.locator(".steps .words code").first.inner_text() == "i"
    tab.get_by_role("button", name="next definition").click()
    assert "step 1 of 2: weighted is computed now" in tab.locator(".step-status").inner_text()
    assert "now" in classes(tab.locator('figure[data-tensor="weighted"]'))
    assert "read" in classes(tab.locator('figure[data-tensor="weights"]'))
    assert "later" in classes(tab.locator('figure[data-tensor="out"]'))
    assert "now" in classes(tab.locator(".line[data-line='14']"))
    tab.keyboard.press("ArrowRight")
    assert "step 2 of 2" in tab.locator(".step-status").inner_text()
    assert tab.evaluate("location.hash") == "#step=2"
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    assert "term-cell" in classes(cell(tab, "weighted[0, 1, 0]"))
    assert "term-cell" not in classes(cell(tab, "weighted[0, 0, 0]"))
    assert tab.locator("tr.term-row th").inner_text() == "1"
    tab.keyboard.press("ArrowUp")
    assert "term-cell" in classes(cell(tab, "weighted[0, 0, 0]"))
    tab.keyboard.press("ArrowLeft")
    assert "step 1 of 2" in tab.locator(".step-status").inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator(".step-status").inner_text() == "the whole program"


def test_a_link_leads_to_its_step_and_cell(opened: Open) -> None:
    tab = opened(lesson("three_by_two"), "#step=2&cell=out[2,0]&term=3")
    assert "step 2 of 2" in tab.locator(".step-status").inner_text()
    assert "now-cell" in classes(cell(tab, "out[2, 0]"))
    assert "term-cell" in classes(cell(tab, "weighted[2, 2, 0]"))
    for broken in ("#step=99", "#cell=nothing[1]", "#cell=out[9,9]&step=x", "#cell=out[<script>]"):
        other = opened(lesson("three_by_two"), broken)
        assert other.locator("figure.tensor").count() == 4


# ---------------------------------------------------------------------- cells


def test_a_cell_lights_up_what_it_scanned_and_leads_down(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    cell(tab, "out[2, 0]").click()
    assert "now-cell" in classes(cell(tab, "out[2, 0]"))
    for j in range(3):
        assert "read-cell" in classes(cell(tab, f"weights[2, {j}]"))
    assert "read-cell" not in classes(cell(tab, "weights[1, 0]"))
    tab.locator(".terms tbody tr").nth(2).locator("button.down").first.click()
    assert tab.locator(".crumbs li").all_inner_texts() == ["out[2, 0]", "weights[2, 2]"]
    assert "normalises j by softmax: 3 of 3 points" in tab.locator(".working").inner_text()
    tab.locator(".terms tbody tr").nth(0).locator("button.down").first.click()
    assert "scores[2, 0] = 1" in tab.locator(".working h2.value").inner_text()
    assert "read-cell" in classes(cell(tab, "Q[2, 0]"))
    assert tab.evaluate("location.hash") == "#cell=scores[2,0]"
    tab.locator(".crumbs button").first.click()
    assert tab.locator(".crumbs li").all_inner_texts() == ["out[2, 0]"]


def test_what_a_guard_excluded_is_said(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    cell(tab, "weights[1, 0]").click()
    text = tab.locator(".working").inner_text()
    assert "j = 2 excluded by j <= i" in text
    assert "2 of 3 points" in text
    cell(tab, "scores[0, 2]").click()
    assert "is masked" in tab.locator(".working h2.value").inner_text()


def test_the_arithmetic_is_written_out_in_the_chosen_form(opened: Open) -> None:
    text = "space position(i, j), feature(e); let w[i, j] = [[0.5, 0.3, 0.2]]; let V[j, e] = [[1], [3], [5]];"
    tab = opened(show(f"{text} let out[i, e] = sum[j](w[i, j] * V[j, e]);"))
    cell(tab, "out[0, 0]").click()
    line = tab.locator(".arithmetic")
    assert line.inner_text() == "out[0, 0] = 0.5·1 + 0.3·3 + 0.2·5 = 2.4"
    tab.get_by_label("exact").check()
    assert line.inner_text() == "out[0, 0] = 1/2·1 + 3/10·3 + 1/5·5 = 12/5"
    assert tab.locator(".terms tbody tr").nth(1).inner_text().split() == ["1", "3/10", "3", "9/10", "7/5", "38", "%"]
    expected = "position 0 gives 50 % of its attention to position 0, 30 % to position 1 and 20 % to position 2."
    assert tab.locator(".working .sentence").inner_text() == expected


def test_symbols_are_never_called_undefined(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    cell(tab, "out[2, 0]").click()
    assert "undefined" not in tab.locator(".working").inner_text()
    assert tab.locator(".arithmetic").inner_text().startswith("out[2, 0] = 0.2119·V[0] + 0.2119·V[1] + 0.5761·V[2]")
    assert tab.locator(".terms tbody tr").first.inner_text().split()[-1] == "0.2119·V[0]"


def test_forms_are_switched(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    tab.get_by_label("structural").check()
    assert cell(tab, "weights[2, 0]").inner_text() == "e^1/(e^1+e^1+e^2)"
    assert cell(tab, "out[1, 0]").inner_text() == "weights[1, 0]·V[0] + weights[1, 1]·V[1]"
    tab.get_by_label("exact").check()
    assert cell(tab, "weights[2, 0]").inner_text() == "1/(2+e)"
    tab.get_by_label("decimal").check()
    assert cell(tab, "weights[2, 0]").inner_text() == "0.2119"


def test_the_boundary_of_exactness_is_drawn(opened: Open) -> None:
    tab = opened(show("input x[i]; let a[i] = exp(x[i]); let b[i] = log(1 + a[i]); let c[i] = 2 * b[i];", [0, 1]))
    assert "exactness ends here: log" in tab.locator('figure[data-tensor="b"] .boundary').inner_text()
    assert tab.locator('figure[data-tensor="a"] .boundary').count() == 0
    assert "outside" in classes(cell(tab, "c[1]"))
    assert "outside" not in classes(cell(tab, "a[1]"))


# -------------------------------------------------------------- communication


def test_lines_are_as_thick_as_the_weights(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    lines = tab.locator("svg.lines line")
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
    tab.locator(".talk select[aria-label=h]").select_option("1")
    tab.get_by_label("by what is carried").check()
    expected = weights[1, 2, 3] * np.linalg.norm(V[1, 3])
    line = 'svg.lines line[data-query="2"][data-key="3"]'
    assert float(tab.locator(line).get_attribute("data-strength")) == pytest.approx(expected)
    tab.get_by_label("after W_O").check()
    expected = weights[1, 2, 3] * np.linalg.norm(V[1, 3] @ W[1])
    assert float(tab.locator(line).get_attribute("data-strength")) == pytest.approx(expected)


# --------------------------------------------------------- claims, questions


def test_verdicts_sit_on_the_cells_they_speak_of(opened: Open) -> None:
    tab = opened(lesson("three_by_two"))
    assert {"verdict", "fails"} <= classes(cell(tab, "out[0, 0]"))
    assert cell(tab, "out[0, 0]").get_attribute("title") == (
        "claimed 2.4; exactly 12/5 = 2.4\nclaimed 2.2000; exactly 12/5 = 2.4; off by 1/5"
    )
    assert {"verdict", "holds"} <= classes(cell(tab, "weighted[0, 1, 1]"))
    cell(tab, "out[0, 0]").click()
    assert "claimed 2.2000: fails; exactly 12/5 = 2.4, off by 1/5" in tab.locator(".verdict-line.fails").inner_text()
    assert "claimed 2.4: holds" in tab.locator(".verdict-line.holds").inner_text()
    assert tab.locator(".claim.fails").count() == 1
    tab.locator(".claim.fails button.down").nth(2).click()
    assert tab.locator(".working h2.value").inner_text().startswith("out[1, 0]")


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
    assert tab.locator(".working h2.value").inner_text() == "out[0] = 0.25"
    second = tab.locator("form.question").nth(1)
    assert second.locator(".prose").is_hidden()
    second.locator("input").fill("0.25, 0.75")
    second.get_by_role("button", name="check").click()
    assert second.get_attribute("data-right") == "true"
    assert second.locator(".prose").inner_text() == "Both of them."
    tab.locator("details.question summary").click()
    assert "Because weights sum to 1." in tab.locator("details.question").inner_text()


# --------------------------------------------------------------------- beside


def test_broken_beside_right(opened: Open) -> None:
    right = "input Q[i, d], K[j, d], V[j, e]; let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])); let out[i, e] = sum[j](w[i, j] * V[j, e]);"
    broken = right.replace("V[j, e]);", "V[i, e]);")
    values = [[1, 2], [3, 5]], [[1, 0], [0, 1]], [[1, 2], [3, 4]]
    tab = opened(show(right, *values, beside=broken))
    assert tab.locator(".side").count() == 2
    text = tab.locator(".differences").inner_text()
    assert re.search(r"w\s+the same", text)
    assert re.search(r"out\s+4 of 4 differ\s+first at out\[0, 0\]", text)
    one = tab.locator('.side:nth-of-type(1) [data-cell="out[0, 0]"], .side >> nth=0 >> [data-cell="out[0, 0]"]').first
    assert "differs" in classes(one)
    one.click()
    values = tab.locator(".working h2.value").all_inner_texts()
    assert len(values) == 2
    assert all(value.startswith("out[0, 0]") for value in values)
    tab.get_by_role("button", name="next definition").first.click()
    assert ["step 1 of 2" in text for text in tab.locator(".step-status").all_inner_texts()] == [True, True]
    assert "differs" in classes(tab.locator(".side >> nth=0 >> .line[data-line='1']"))


def test_a_broken_contract_is_shown_beside_the_mend(opened: Open) -> None:
    broken = ROOT / "examples" / "broken" / "guard_reversed.ix"
    values = np.arange(12).reshape(1, 1, 6, 2) % 5
    page = show(broken, values, values, values, beside=broken.with_name("guard_reversed_mended.ix"))
    tab = opened(page)
    assert "error[IX423]: not causal" in tab.locator(".finding.error").inner_text()


# ------------------------------------------------------------- for everybody


@pytest.mark.parametrize("file", LESSONS, ids=lambda file: file.stem)
def test_the_published_lessons_step_and_click_through(opened: Open, file: Path) -> None:
    page = lesson(file.stem)
    assert len(page.html) < 1_000_000
    schemes = (("light", "rgb(255, 255, 255)"), ("dark", "rgb(22, 22, 26)"))
    tabs = [opened(page, color_scheme=scheme) for scheme, _ in schemes]
    for tab, (_, paper) in zip(tabs, schemes, strict=True):
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        for number in range(1, tab.locator(".steps li").count() + 1):
            tab.keyboard.press("ArrowRight")
            assert f"step {number} of" in tab.locator(".step-status").inner_text()
        tab.keyboard.press("Escape")
    # A scheme changes colours alone: a cell is clicked in one of the two. Every third is clicked.
    for number in range(0, tabs[0].locator("figure.tensor td.cell").count(), 3):
        tab = tabs[number % 2]
        clicked = tab.locator("figure.tensor td.cell").nth(number)
        clicked.click()
        name = clicked.get_attribute("data-cell")
        assert tab.locator(".working h2.value").inner_text().startswith(name)


def test_a_matrix_is_a_grid_with_one_stop_for_the_tab_key(opened: Open) -> None:
    arrays = np.arange(1 * 2 * 3 * 2).reshape(1, 2, 3, 2) % 5
    tab = opened(show(ROOT / "examples" / "causal_attention.ix", arrays, arrays, arrays))
    tab.locator('figure[data-tensor="weights"] [role=tab][data-axis="1"][data-at="0"]').focus()
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.dataset.at") == "1"
    assert cell(tab, "scores[0, 1, 0, 0]").count() == 1
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.dataset.cell") == "weights[0, 1, 0, 0]"
    assert tab.locator('figure[data-tensor="weights"] td.cell[tabindex="0"]').count() == 1
    grid = tab.locator('figure[data-tensor="weights"]').aria_snapshot()
    for part in ("grid", "columnheader", "rowheader", "gridcell"):
        assert part in grid
    assert "button" not in grid.split("grid", 1)[1]
    assert tab.locator(".source [tabindex='0']").count() == 0


def test_the_focus_is_not_lost_on_the_way_down(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    cell(tab, "out[2, 0]").focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.dataset.cell") == "out[2, 0]"
    tab.locator(".terms button.down").first.focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.textContent").startswith("weights[2, 0]")
    tab.keyboard.press("Escape")
    assert tab.locator(".working .hint").count() == 1


def test_by_keyboard_alone(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    cell(tab, "weights[0, 0]").focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert tab.locator(".working h2.value").inner_text().startswith("weights[2, 1]")
    assert tab.locator("figure.tensor table caption").first.inner_text().startswith("values of")
    assert tab.locator('figure[data-tensor="weights"] th[scope=col]').count() == 3


def test_readable_at_twice_the_size_and_in_print(opened: Open) -> None:
    tab = opened(lesson("named_softmax"))
    tab.set_viewport_size({"width": 750, "height": 500})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 760
    cell(tab, "weights[2, 0]").click()
    box = tab.locator(".working").bounding_box()
    assert 250 < box["y"] < box["y"] + box["height"] <= 501
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.locator("#export").is_hidden()
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_long_forms_stay_in_their_place(opened: Open) -> None:
    arrays = (np.arange(1 * 1 * 8 * 2).reshape(1, 1, 8, 2) * 7 % 11) / 4
    tab = opened(show(ROOT / "examples" / "causal_attention.ix", arrays, arrays[..., ::-1], arrays))
    tab.get_by_label("exact").check()
    cell(tab, "out[0, 0, 7, 0]").click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1500
    assert cell(tab, "out[0, 0, 7, 0]").inner_text().endswith("…")
    assert "…" not in tab.locator(".working h2.value").inner_text()


def test_what_functions_brought_along_can_be_opened(opened: Open) -> None:
    from indexical.run.samples import random_arrays

    program = ix.compile(ROOT / "examples" / "transformer_block.ix")
    tab = opened(show(program, **random_arrays(program.ir, {}, {}, 2)[0].arrays))
    before = tab.locator("figure.tensor").count()
    tab.locator(".inside summary").click()
    tab.wait_for_function("document.querySelectorAll('.inside figure').length > 0")
    assert tab.locator("figure.tensor").count() > before
    cell(tab, "heard[0, 0, 0]").click()
    assert tab.locator(".inside .read-cell").count() > 0


def test_a_link_leads_to_the_program_it_names(opened: Open, tmp_path: Path) -> None:
    text = "```ix\nlet x[i] = [1, 2];\nlet y[i] = 2 * x[i];\n```\n\nand\n\n```ix\nlet x[i] = [3, 4];\nlet y = sum[i](x[i]);\n```\n"
    (tmp_path / "two.md").write_text(text, encoding="utf-8")
    page = show_lesson(tmp_path / "two.md")
    tab = opened(page, "#program=2&step=1&cell=y&term=2")
    assert tab.locator(".working h2.value").all_inner_texts() == ["y = 7"]
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate("location.hash") == "#program=2&step=1&cell=y&term=1"
    cell(tab, "y[1]").click()
    assert tab.evaluate("location.hash") == "#cell=y[1]"
    for broken in ("#program=9&step=1", "#program=<script>&step=1", "#step=-4&cell=%00"):
        tab.evaluate("hash => { location.hash = hash; }", broken)


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
              const paper = light(style.getPropertyValue("--paper"));
              const keys = ["--ink", "--soft", "--good", "--bad", "--warn", ...Array.from({ length: 8 }, (_, n) => `--c${n}`)];
              return Math.min(...keys.map((key) => {
                const ink = light(style.getPropertyValue(key));
                return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
              }));
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
    assert "0.2119" in text


def test_the_picture_has_axes_and_lines(opened: Open) -> None:
    tab = opened(lesson("three_by_two"))
    text = tab.evaluate("new XMLSerializer().serializeToString(pictureOf(PAGES[0]))")
    assert text.count("<line") == 9
    assert text.count(">i asks<") == 1
    assert len(re.findall(r"<svg[^>]*>", text)) == 2


EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"


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
    cell(tab, "y[0]").click()
    assert tab.evaluate("window.evil") is None
    assert tab.locator("img").count() == 0
    odd = "</script><!--<script>]]>\u2028\u2029\"'`&lt;"
    labelled = show("space p(i); let x[i] = [1, 2]; let y[i] = 2 * x[i];", labels={"p": [odd, EVIL]}, title=odd)
    tab = opened(labelled)
    assert odd[:20] in tab.locator('figure[data-tensor="x"] th').first.inner_text()
    assert tab.evaluate("window.evil") is None
    assert tab.locator("script").count() == 2
