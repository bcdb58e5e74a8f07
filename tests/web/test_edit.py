"""The text of a program, changed in the page: everything follows, mistakes are said, links and files carry it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from tests.web.conftest import Open

import indexical as ix
from indexical.pages import WebPage, show

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXT = """space position(i, j), feature(d, e);

input Q[i, d], K[j, d], V[j, e], heat;

let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) / heat;
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);
"""


@cache
def attention() -> WebPage:
    Q, K, V = np.round(np.random.default_rng(1).normal(size=(3, 3, 2)) * 2) / 2
    return show(TEXT, Q=Q, K=K, V=V, heat=2, labels={"position": ["The", "cat", "sat"]})


def write(tab: Any, text: str) -> None:
    """Type a text into the desk, and have it followed at once."""
    if tab.get_attribute(".pens button", "aria-expanded") == "false":
        tab.click(".pens button")
    tab.fill(".writing", text)
    tab.press(".writing", "Control+Enter")


def values(tab: Any, name: str) -> Any:
    found = tab.evaluate("(name) => { const t = PAGES[0].tables.get(name); return [t.shape, [...t.values]]; }", name)
    return np.array(found[1], dtype=float).reshape(found[0])


def test_the_page_follows_the_text(opened: Open) -> None:
    tab = opened(attention())
    before = tab.inner_text(".say")
    assert "\n".join(TEXT.splitlines()) == tab.evaluate("PAGES[0].baseText()")
    changed = TEXT.replace("/ heat", "* 3").replace("weights[i, j] * V", "far[i, j] * V")
    changed += "let far[i, j] = weights[i, j] * (i - j) where j <= i;\n"
    write(tab, changed)
    arrays = {name: values(tab, name) for name in ("Q", "K", "V")}
    wanted = ix.compile(changed)(outputs=("out", "far"), heat=2.0, **arrays)
    for name, array in zip(("out", "far"), wanted, strict=True):
        assert np.allclose(values(tab, name), array)
    assert tab.query_selector('[data-scene="far"]') is not None
    assert [line.inner_text() for line in tab.query_selector_all(".line .text")][-1].startswith("let far[i, j]")
    assert tab.inner_text(".say") != before
    assert tab.inner_text("#reset") == "Reset 1"
    assert "ix exact" in tab.inner_text(".mistake")
    assert tab.is_disabled("#forms input[value=exact]")
    tab.press(".writing", "Escape")
    assert tab.evaluate("document.activeElement.textContent") == "Edit"
    assert tab.is_hidden(".writing")
    tab.click("#reset")
    assert tab.inner_text(".say") == before
    assert tab.evaluate("PAGES[0].text") is None
    assert "text=" not in tab.evaluate("location.hash")


@pytest.mark.sampled(0)
def test_the_keyboard_alone_changes_a_program(opened: Open) -> None:
    tab = opened(attention())
    for _ in range(60):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.textContent") == "Edit":
            break
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.value.slice(document.activeElement.selectionStart)").startswith("let w")
    tab.keyboard.press("Control+End")
    tab.keyboard.type("\nlet more[i] = sum[e](out[i, e]);")
    tab.wait_for_selector('[data-scene="more"]')
    assert tab.evaluate("document.activeElement.tagName") == "TEXTAREA"
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.textContent") == "Edit"


MISTAKES = [
    ("scores[i, j])", "score[i, j])", 6, "nothing defines `score`"),
    ("Q[i, d] * K", "Q[i] * K", 5, "`Q` has 2 coordinates and is read with 1"),
    ("sum[d](Q", "sum[e](Q", 5, "nothing binds the coordinate `d` here"),
    ("K[j, d])", "K[d, j])", 5, "is of the space"),
    ("let out[i, e]     =", "let out[i, e] = out[i, e] +", 7, "needed for itself"),
    ("softmax[j](", "softmax(", 6, "expected `[`"),
    ("/ heat", "/ exp(heat, 2)", 5, "`exp` takes 1 argument"),
    ("V[j, e], heat", "V[j, e], heat, cold", 3, "the page has no numbers for `cold`"),
    ("softmax[j](scores[i, j])", "exp(cut[i, j]); let cut[i, j] = scores[i, j]", 6, "is absent at some points"),
    ("V[j, e]);", "V[j + 1, e]);", 7, "has no such point"),
    ("input Q[i, d]", "input Q[i, d, e]", 3, "the page's array has 2"),
    ("sum[d](Q", "sum[d in 0..900000000](Q", 5, "would look at more than"),
    ("let out[i, e]", "let huge[a in 0..90000, b in 0..90000] = 1.0; let out[i, e]", 7, "8,100,000,000 numbers"),
    ("let out[i, e]", "let out[i]", 7, "nothing binds the coordinate `e` here"),
    ("sum[j](w", "use std::norms::{nothing}; let z = 1; let out2[i, e] = sum[j](w", 7, "expected an expression"),
]


@pytest.mark.sampled(0)
def test_a_mistake_is_said_with_its_place_and_the_last_good_state_stays(opened: Open) -> None:
    tab = opened(attention())
    before = tab.inner_text(".say"), values(tab, "out").tolist()
    for old, new, line, said in MISTAKES:
        write(tab, TEXT.replace(old, new))
        found = tab.inner_text(".mistake")
        assert found.startswith(f"Line {line}: "), found
        assert said.replace("`", "") in found, found
        assert set(found.splitlines()[3].strip()) == {"^"}
        assert tab.get_attribute(".writing", "aria-invalid") == "true"
        assert tab.inner_text(".gutter .wrong").split() == ["✗", str(line)]
        assert (tab.inner_text(".say"), values(tab, "out").tolist()) == before
        assert "text=" not in tab.evaluate("location.hash")
        tab.click(".mistake button")
        assert tab.input_value(".writing").strip() == TEXT.strip()
        assert tab.inner_text(".mistake") == ""


@pytest.mark.sampled(0)
def test_a_link_carries_the_text_and_the_numbers(opened: Open) -> None:
    tab = opened(attention())
    write(tab, TEXT.replace("/ heat", "* heat;  // <b>&\"'+%#"))
    tab.evaluate("PAGES[0].change('Q', [0, 1], 4)")
    tab.evaluate("PAGES[0].change('heat', [], 0.5)")
    hash, wanted = tab.evaluate("location.hash"), values(tab, "out")
    again = opened(attention(), hash)
    assert np.array_equal(values(again, "out"), wanted)
    assert again.inner_text("#reset") == "Reset 3"
    assert again.evaluate("PAGES[0].text") == tab.evaluate("PAGES[0].text")
    again.click("#reset")
    assert np.array_equal(values(again, "out"), values(opened(attention()), "out"))


@pytest.mark.sampled(0)
def test_a_saved_file_opens_to_the_change(opened: Open, browser: Any, tmp_path: Path) -> None:
    tab = opened(attention())
    write(tab, TEXT.replace("/ heat", "* heat; // </script><script>alert(1)</script>"))
    tab.evaluate("PAGES[0].change('Q', [0, 1], 4)")
    with tab.expect_download() as saved:
        tab.click(".pens button:nth-child(2)")
    file = tmp_path / "saved.html"
    saved.value.save_as(file)
    assert saved.value.suggested_filename == "a_program.html"
    again = browser.new_page()
    problems: list[str] = []
    again.on("pageerror", lambda error: problems.append(str(error)))
    again.on("dialog", lambda dialog: problems.append(dialog.message))
    again.goto(file.as_uri())
    assert np.array_equal(values(again, "out"), values(tab, "out"))
    again.click("#reset")
    assert np.array_equal(values(again, "out"), values(opened(attention()), "out"))
    # Once more: what is saved is a page like the first.
    with again.expect_download() as twice:
        again.click(".pens button:nth-child(2)")
    twice.value.save_as(tmp_path / "twice.html")
    html = (tmp_path / "twice.html").read_text("utf-8")
    assert html.count("<script") == attention().html.count("<script")
    assert len(html) < 1.02 * len(attention().html)
    again.close()
    assert problems == []


HOSTILE = [
    "let constructor[i in 0..2] = i; let toString = constructor[1]; let hasOwnProperty = toString;",
    "let __proto__ = 1;",
    "let x[__proto__ in 0..3] = 1;",
    "let a = 1; fn f(x) { f(x) } let b = f(a);",
    "let a = " + "(" * 3000 + "1" + ")" * 3000 + ";",
    "let a[i in 0..3000, j in 0..3000, k in 0..3000, l in 0..3000] = 1;",
    "let a = sum[i in 0..40000, j in 0..40000](1.0);",
    "let a = sum[i in 0..9000](sum[j in 0..i](exp(i * 0.1 - j)));",
    "let a[0] = 1.0; let a[i in 1..90000] = a[i - 1] + 1.0;",
    "let a[i in 0..20000] = if i < 19999 { a[i + 1] + 1 } else { 0 };",
    "let a[i in 0..10] = a[i] + 1;",
    "let a = 1 / 0; let b = [1, 2][7];",
    "".join(f"fn f{n + 1}(x) {{ f{n}(x) + f{n}(x) }} " for n in range(20)) + "fn f0(x) { x * 2 } let a = f20(1.5);",
    "<img src=x onerror=alert(1)>",
    "let a = 1; // <img src=x onerror=alert(1)>",
    "let a = 1;" * 8000,
    "".join(f"let a{n + 1} = a{n} + 1;" for n in range(1500)) + "let a0 = 1;",
    "\u0000\ud800 let",
]


TIMED = "(text) => { const start = performance.now(); PAGES[0].write(text); return performance.now() - start; }"


@pytest.mark.sampled(0)
def test_a_strangers_text_is_read_and_never_run(opened: Open) -> None:
    """Followed or refused within seconds; the page stays as it was, and can be used."""
    tab = opened(attention())
    tab.evaluate("longestWork = 300")
    for text in HOSTILE:
        took = tab.evaluate(TIMED, text)
        assert took < 8_000, text[:80]
        assert tab.query_selector("img, #page script") is None
    for text in HOSTILE[13:15]:
        other = opened(attention(), f"#text={quote(text)}")
        assert other.query_selector("img") is None
        assert other.query_selector(".stage .outcome") is not None
    policy = tab.get_attribute("meta[http-equiv]", "content")
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "connect-src" not in policy
    tab.evaluate("PAGES[0].reset()")
    tab.evaluate("PAGES[0].go('scores')")
    assert "scores" in tab.inner_text(".outcome")


def test_a_number_that_stands_alone_has_a_slider_also_after_a_change(opened: Open) -> None:
    tab = opened(attention())
    write(tab, TEXT.replace("where j <= i", "where i - window < j <= i") + "let window = 2;\n")
    for name, key, changes in (("heat", "End", "scores"), ("window", "Home", "weights")):
        before = values(tab, changes)
        tab.evaluate("(name) => PAGES[0].select(name, [], true)", name)
        tab.focus(".dial")
        tab.press(".dial", key)
        assert not np.array_equal(values(tab, changes), before), name
    assert tab.inner_text("#reset") == "Reset 3"


@pytest.mark.sampled(0)
def test_sizes_follow_a_number_that_ranges_are_made_of(opened: Open) -> None:
    tab = opened(show("let n = 4; let x[0] = 1; let x[t in 1..n] = 2 * x[t - 1];"))
    tab.evaluate("PAGES[0].change('n', [], 6)")
    assert values(tab, "x").tolist() == [1, 2, 4, 8, 16, 32]
    assert "let n = 6;" in tab.inner_text(".source")
    tab.click("#reset")
    assert values(tab, "x").tolist() == [1, 2, 4, 8]


def test_cells_of_a_literal_are_computed_in_the_page(opened: Open) -> None:
    text = "let q[i, k] = [[1 / 2.0, -1 / 6.0], [sqrt(2) / 2, 2 ** 0.5]]; let y[i, k] = 2 * q[i, k] * pi;"
    tab = opened(show(text))
    assert np.allclose(values(tab, "y"), ix.compile(text)())
    changed = text.replace("2 ** 0.5", "max(3, pi)")
    write(tab, changed)
    assert np.allclose(values(tab, "y"), ix.compile(changed)())
    write(tab, text.replace("2 ** 0.5", "y[0, 0]"))
    assert "not constant" in tab.inner_text(".mistake")


def test_heads_get_their_words_again(opened: Open) -> None:
    text = "space head(h), position(i, j); input s[h, i, j], v[h, j, e];\n"
    text += "let w[h, i, j] = softmax[j](s[h, i, j]) where j <= i; let out[h, i, e] = sum[j](w[h, i, j] * v[h, j, e]);"
    page = show(text, s=np.zeros((2, 4, 4)), v=np.ones((2, 4, 1)))
    tab = opened(page)
    cards = [card.inner_text().splitlines() for card in tab.query_selector_all(".head-card em")]
    # Two words are equally common after the first: both are said.
    assert [sorted(card) for card in cards] == [["causal-average: 2 of 4", "peaked: 1 of 4", "uniform: 1 of 4"]] * 2
    for i in range(1, 4):
        tab.evaluate("(i) => PAGES[0].change('s', [1, i, i - 1], 9)", i)
    assert "previous-token: 3 of 4" in tab.inner_text(".head-card:nth-child(2) em")
    write(tab, text.replace("s[h, i, j])", "9 * s[h, i, j] * 0 - 9 * j)"))
    assert "first-token sink: 2 of 4" in tab.inner_text(".head-card:nth-child(1) em")


@pytest.mark.sampled(0)
def test_all_programs_of_a_page_are_in_its_link(opened: Open, tmp_path: Path) -> None:
    lesson = "# Two\n\n```ix\nlet x[i] = [1, 2]; let y = sum[i](x[i]);\n```\n\n```ix\nlet z = 3; let w = z * z;\n```\n"
    (tmp_path / "two.md").write_text(lesson, "utf-8")
    page = ix.pages.show_lesson(tmp_path / "two.md")
    tab = opened(page)
    tab.evaluate("PAGES[0].write('let x[i] = [1, 2]; let y = prod[i](x[i] + 1);'); PAGES[1].change('z', [], 5);")
    again = opened(page, tab.evaluate("location.hash"))
    numbers = "[PAGES[0].tables.get('y').values[0], PAGES[1].tables.get('w').values[0]]"
    assert again.evaluate(numbers) == tab.evaluate(numbers) == [6, 25]
    again.click("#reset")
    assert again.evaluate(numbers) == [3, 9]


@pytest.mark.sampled(0)
def test_two_programs_beside_each_other_are_compared_again(opened: Open) -> None:
    one = "input x[i]; let y[i] = 2 * x[i]; let z = sum[i](y[i]);"
    tab = opened(show(one, [1, 2], beside=one.replace("2 * x", "3 * x")))
    assert "2 of 2 differ" in tab.inner_text(".differences")
    tab.evaluate("PAGES[1].write(PAGES[0].baseText())")
    assert "differ," not in tab.inner_text(".differences")
    assert "the same" in tab.inner_text(".differences")
    assert tab.query_selector(".line.differs") is None


@pytest.mark.sampled(0)
def test_words_of_ones_own_are_in_the_link(opened: Open) -> None:
    page = ix.pages.show_lesson(EXAMPLES / "lessons" / "what_is_attention.md")
    tab = opened(page)
    count = tab.evaluate("DATA.blocks.find((block) => block.kind === 'words').count")
    words = [f"w{n}<b>" for n in range(count)]
    tab.fill(".words input", " ".join(words))
    tab.click(".words button")
    hash = tab.evaluate("location.hash")
    again = opened(page, hash)
    assert words[0] in again.inner_text(".picture")
    assert again.input_value(".words input") == " ".join(words)
    assert again.inner_text("#reset") == "Reset 1"
    again.click("#reset")
    assert words[0] not in again.inner_text(".picture")
