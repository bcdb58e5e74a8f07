"""Pages from Python: what they hold, what they refuse, how a lesson is read, and that no text becomes markup."""

from __future__ import annotations

import inspect
import json
import math
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.diagnostics import Sink
from indexical.pages import MOST_EXACT, WebPage, gather, show, show_lesson
from indexical.source import Source
from indexical.syntax.format import format_source
from indexical.syntax.parse import parse
from indexical.views.document import MOST_LISTED
from indexical.views.lesson import ProgramText, Prose, Question, Unclosed, read_lesson, title_of
from indexical.views.webpage import embedded
from indexical.weights import PatternSheet, patterns

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "examples" / "lessons"
DOUBLE = "input x[i]; let y[i] = 2 * x[i];"
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\u2028\u2029"


def text_of(page: WebPage) -> str:
    """What stands inside the data element, as it is written."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.html, re.DOTALL)
    assert isinstance(found, str)
    return found


def data_of(page: WebPage) -> dict[str, Any]:
    found = json.loads(text_of(page))
    assert isinstance(found, dict)
    return found


def document(page: WebPage, block: int = 0, side: int = 0) -> dict[str, Any]:
    found = data_of(page)["blocks"][block]["pages"][side]
    assert isinstance(found, dict)
    return found


def tensor(page: WebPage, name: str, side: int = 0) -> dict[str, Any]:
    (found,) = [entry for entry in document(page, 0, side)["tensors"] if entry["name"] == name]
    assert isinstance(found, dict)
    return found


def code_of(problem: pytest.ExceptionInfo[ix.Error]) -> str:
    return problem.value.diagnostics[0].code


# ----------------------------------------------------------------------- pages


@pytest.mark.parametrize("file", sorted(LESSONS.glob("*.ix")), ids=lambda file: file.stem)
def test_the_same_input_gives_the_same_bytes(file: Path) -> None:
    assert show(file).html == show(ix.compile(file)).html


def test_a_page_is_one_file_with_its_title(tmp_path: Path) -> None:
    page = show(LESSONS / "named_softmax.ix")
    assert page.title == "named_softmax"
    assert "`named_softmax`" in repr(page)
    saved = page.save(tmp_path / "page.html")
    assert saved.read_text(encoding="utf-8") == page.html
    assert page.html.startswith("<!doctype html>")
    for outside in ("http:", "https:", "<link", " src=", "@import", "url("):
        assert outside not in page.html.replace("http://www.w3.org/2000/svg", "").replace("url(#", ""), outside
    assert len(page.html) < 400_000
    assert show("let x = 1;").title == "a program"
    assert show("let x = 1;", title="One").title == "One"


def test_a_page_holds_the_program_and_its_values() -> None:
    page = show(LESSONS / "named_softmax.ix")
    found = document(page)
    assert "".join(text for line in found["lines"] for text, _ in line).startswith("// Three positions")
    assert [step["name"] for step in found["steps"]] == ["scores", "weights", "out"]
    assert found["coordinates"][0]["story"]
    assert {claim["verdict"] for claim in found["claims"]} == {"holds"}
    assert [entry["definition"] for entry in found["communication"]] == ["out"]
    weights = tensor(page, "weights")
    assert weights["masked"] == [1, 2, 5]
    assert weights["exact"][6] == "1/(2+e)"
    assert weights["structural"][6] == "e^1/(e^1+e^1+e^2)"
    assert weights["values"][6] == pytest.approx(1 / (2 + math.e), rel=1e-15)
    assert tensor(page, "out")["exact"][0] == "V[0]"
    assert data_of(page)["exact"] is True


def test_a_finding_travels_with_its_line() -> None:
    source = "input Q[i, d], K[j, d], V[j, e];\nlet w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]));\n"
    page = show(source + "let out[i, e] = sum[j](w[i, j] * V[i, e]);\n", [[1]], [[1]], [[1]])
    found = {entry["code"]: entry for entry in document(page)["diagnostics"]}
    assert found["IX403"]["line"] == 3
    assert found["IX403"]["severity"] == "warning"


def test_a_gradient_gathers_by_the_transpose() -> None:
    """What is gathered back is called so, and nobody listens in it."""
    program = ix.grad(ix.compile(LESSONS.parent / "causal_attention.ix"), "out")
    arrays = np.arange(4 * 3 * 2).reshape(4, 1, 1, 3, 2) % 5
    found = document(show(program, **dict(zip(("Q", "K", "V", "d_out"), arrays, strict=True))))
    assert found["kinds"] == {"d_V": "transpose", "d_Q": "change", "d_K": "transposed change"}
    assert found["communication"] == []


def test_what_a_function_brought_along_is_a_step_of_its_call() -> None:
    text = "fn twice(x[i]) -> [i] { let half[i] = x[i] + 0; half[i] * 2 }\ninput x[i];\nlet y = twice(x);\n"
    steps = document(show(text, [1, 2]))["steps"]
    assert [(step["name"], step["inside"], step["lines"]) for step in steps] == [
        ("y_half", "y", [[1, 1], [3, 3]]),
        ("y", None, [[1, 1], [3, 3]]),
    ]


def test_the_boundary_of_exactness() -> None:
    page = show("input x[i]; let a[i] = exp(x[i]); let b[i] = log(1 + a[i]); let c[i] = 2 * b[i];", [0, 1])
    assert document(page)["ended"] == {"b": ["log"]}
    assert tensor(page, "a")["named"] == []
    assert tensor(page, "c")["named"] == [0, 1]


def test_infinities_are_text() -> None:
    page = show("let x = 1.0; let y = 1 / (x - 1); let z = y - y;")
    assert tensor(page, "y")["values"] == ["inf"]
    assert tensor(page, "z")["values"] == ["nan"]
    assert tensor(page, "y")["exact"] == ["∞"]


def test_nothing_to_draw_is_a_page_too() -> None:
    assert document(show(DOUBLE, []))["tensors"][1]["shape"] == [0]
    assert document(show(""))["tensors"] == []


# ------------------------------------------------------------ exact, or floats


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        ([1, 2], ["2", "4"]),
        ((1, 2), ["2", "4"]),
        (["0.1", "1/3"], ["1/5", "2/3"]),
        ([Fraction(1, 3), Decimal("0.1")], ["2/3", "1/5"]),
        ([0.5, 0.25], ["1", "1/2"]),
        (np.array([1, 2], dtype=np.int32), ["2", "4"]),
        (np.array([0.5, 1.5], dtype=np.float16), ["1", "3"]),
    ],
)
def test_figures_are_exact(given: Any, exact: list[str]) -> None:
    page = show(DOUBLE, given)
    assert document(page)["whyNotExact"] == ""
    assert tensor(page, "y")["exact"] == exact
    assert tensor(show(DOUBLE, x=given), "y") == tensor(page, "y")


@pytest.mark.parametrize("given", [[0.1, 0.2], np.array([0.1], dtype=np.float32), [math.nan], [math.inf], [1e9 + 0.5]])
def test_long_floats_stay_floats(given: Any) -> None:
    page = show(DOUBLE, given)
    assert "floats of many digits" in document(page)["whyNotExact"]
    assert "exact" not in tensor(page, "y")
    assert data_of(page)["exact"] is False
    expected = [2 * value for value in np.asarray(given).tolist()]
    assert [float(value) for value in tensor(page, "y")["values"]] == pytest.approx(expected, nan_ok=True)


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    assert tensor(show(DOUBLE, torch.tensor([1, 2])), "y")["exact"] == ["2", "4"]
    assert tensor(show(DOUBLE, torch.tensor([0.5], dtype=torch.bfloat16)), "y")["exact"] == ["1"]
    page = show(DOUBLE, torch.tensor([0.1], dtype=torch.float64, requires_grad=True))
    assert tensor(page, "y")["values"] == [0.2]


def test_large_inputs_are_floats_and_travel_as_bytes() -> None:
    page = show(DOUBLE, np.arange(MOST_EXACT + 1))
    assert "too large" in document(page)["whyNotExact"]
    found = tensor(page, "y")
    assert found["shape"] == [MOST_EXACT + 1]
    assert "values" not in found
    assert isinstance(found["bytes"], str)
    assert "values" in tensor(show(DOUBLE, np.arange(MOST_LISTED)), "y")
    assert "bytes" in tensor(show(DOUBLE, np.arange(MOST_LISTED + 1)), "y")


def test_what_is_not_decided_is_shown_by_floats() -> None:
    page = show("let one = exp(sin(1.0) ** 2) * exp(cos(1.0) ** 2 - 1); let z = if one == 1 { 1 } else { 0 };")
    assert "it is not known whether" in document(page)["whyNotExact"]
    assert tensor(page, "one")["values"] == pytest.approx([1.0])


def test_a_guard_hatches_by_floats_as_well() -> None:
    source = "input x[i, j]; let y[i, j] = x[i, j] where j <= i; let w[i, j] = softmax[j](x[i, j]) where j <= i;"
    page = show(source, np.full((3, 3), 0.1))
    assert document(page)["whyNotExact"]
    assert tensor(page, "y")["masked"] == tensor(page, "w")["masked"] == [1, 2, 5]
    assert tensor(page, "x")["masked"] == []


def test_inputs_without_values_are_symbols() -> None:
    page = show(DOUBLE, sizes={"i": 2})
    assert tensor(page, "y")["exact"] == ["2·x[0]", "2·x[1]"]
    assert tensor(page, "y")["values"] == ["nan", "nan"]
    assert tensor(show(DOUBLE), "y")["shape"] == [1]


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arrays", "named", "code"),
    [
        ((), {"z": [1]}, "IX501"),
        (([1], [2]), {}, "IX501"),
        (([1],), {"x": [1]}, "IX501"),
        (([[1]],), {}, "IX502"),
        ((["hello"],), {}, "IX511"),
        (([1j],), {}, "IX511"),
        (([object()],), {}, "IX511"),
        (({"a": 1},), {}, "IX511"),
        ((), {"sizes": {"q": 3}}, "IX512"),
    ],
)
def test_what_cannot_be_shown(arrays: tuple[Any, ...], named: dict[str, Any], code: str) -> None:
    with pytest.raises(ix.Error) as problem:
        show(DOUBLE, *arrays, **named)
    assert code_of(problem) == code


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ix.Error):
        show(DOUBLE, [[1], [1, 2]])


def test_symbols_and_long_floats_do_not_go_together() -> None:
    with pytest.raises(ix.Error) as problem:
        show("input x[i], y[i]; let z[i] = x[i] * y[i];", [0.1, 0.2])
    assert code_of(problem) == "IX512"


def test_a_symbol_has_no_largest() -> None:
    with pytest.raises(ix.Error) as problem:
        show("input x[i]; let z = max[i](x[i]);", sizes={"i": 2})
    assert code_of(problem) == "IX512"


def test_a_number_that_no_float_holds() -> None:
    page = show("input x; let y = exp(x);", 1000)
    assert tensor(page, "y")["exact"] == ["e^1000"]
    assert tensor(show("input x; let y = exp(x);", -1000), "y")["exact"] == ["e^-1000"]


def test_what_does_not_compile_is_the_compilers_error(tmp_path: Path) -> None:
    with pytest.raises(ix.CompileError) as problem:
        show("let y = x;")
    assert code_of(problem) == "IX201"
    with pytest.raises(ix.Error) as missing:
        show(tmp_path / "nothing.ix")
    assert code_of(missing) == "IX108"


# ---------------------------------------------------------------------- beside


def test_two_programs_on_the_same_inputs() -> None:
    page = show(DOUBLE, [1, 2], beside=DOUBLE.replace("2 *", "3 *"))
    assert page.title == "a program beside a program"
    assert tensor(page, "y", 0)["exact"] == ["2", "4"]
    assert tensor(page, "y", 1)["exact"] == ["3", "6"]
    named = show(LESSONS / "named_softmax.ix", beside=ix.compile(LESSONS / "named_softmax.ix"), V=[[1], [2], [3]])
    assert named.title == "named_softmax beside named_softmax"
    assert document(named, 0, 0) == document(named, 0, 1)


def test_two_programs_with_other_inputs() -> None:
    with pytest.raises(ix.Error) as problem:
        show(DOUBLE, [1, 2], beside="input x[i], w[i]; let y[i] = x[i] * w[i];", z=[1])
    assert code_of(problem) == "IX501"
    with pytest.raises(ix.CompileError):
        show(DOUBLE, [1], beside="let y = ;")


# ---------------------------------------------------------------------- lesson


def prose(text: str) -> list[Any]:
    blocks = read_lesson(text)
    assert all(isinstance(block, Prose) for block in blocks)
    return [node for block in blocks if isinstance(block, Prose) for node in block.nodes]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("# One", [["h1", "One"]]),
        ("## Two `c`\n### Three", [["h2", "Two ", ["code", "c"]], ["h3", "Three"]]),
        ("a\nb\n\nc", [["p", "a b"], ["p", "c"]]),
        ("*a* **b** `*c*`", [["p", ["em", "a"], " ", ["strong", "b"], " ", ["code", "*c*"]]]),
        ("- a\n- b\n  more\n* c", [["ul", ["li", "a"], ["li", "b more"], ["li", "c"]]]),
        ("1. a\n2) b", [["ol", ["li", "a"], ["li", "b"]]]),
        ("words\n- a", [["p", "words"], ["ul", ["li", "a"]]]),
        ("> a\n> b", [["quote", ["p", "a b"]]]),
        ("see [the *words*](http://elsewhere)!", [["p", "see ", "the ", ["em", "words"], "!"]]),
        ("```\n# not a heading\n```", [["pre", "# not a heading"]]),
        ("```python\nx = 1\n```\nafter", [["pre", "x = 1"], ["p", "after"]]),
        ("#### Four", [["h3", "Four"]]),
        ("#Nothing", [["p", "#Nothing"]]),
        ("- a\n\n- b\n\nc", [["ul", ["li", "a"], ["li", "b"]], ["p", "c"]]),
        ("1. a\n\n2. b", [["ol", ["li", "a"], ["li", "b"]]]),
        ("2 * 3 * 4", [["p", "2 * 3 * 4"]]),
        ("**a *b* c**", [["p", ["strong", "a ", ["em", "b"], " c"]]]),
        ("<b>x</b> & <script>", [["p", "<b>x</b> & <script>"]]),
        ("an *unclosed", [["p", "an *unclosed"]]),
        ("a [*b*](#step=1)", [["p", "a ", ["a", "step=1", ["em", "b"]]]]),
        ("a lone ` and [half](", [["p", "a lone ` and [half]("]]),
    ],
)
def test_markdown_becomes_a_tree(text: str, nodes: list[Any]) -> None:
    assert prose(text) == nodes
    assert prose(text.replace("\n", "\r\n")) == nodes


def test_programs_and_questions_are_found() -> None:
    text = "# A *lesson*\n\n```ix one.ix\nlet x = 1;\n```\n\n```question\nWhat\nis it?\nanswer: x\n```\n\n"
    text += "```question\nWhy?\nreveal: Because\nof this.\n\n- that\n```\nThe end.\n"
    heading, program, typed, thought, ending = read_lesson(text)
    assert isinstance(heading, Prose)
    assert program == ProgramText("one.ix", "let x = 1;\n", 4)
    assert typed == Question("What is it?", "x", (), 8)
    assert isinstance(thought, Question)
    assert (thought.prompt, thought.answer) == ("Why?", None)
    assert thought.reveal == (["p", "Because of this."], ["ul", ["li", "that"]])
    assert ending == Prose((["p", "The end."],))
    assert title_of([heading, program]) == "A lesson"
    assert title_of([program]) is None


def test_a_fence_inside_a_longer_fence_is_text() -> None:
    text = "````md\n```ix\nlet x = 1;\n```\n````\n\nafter\n"
    assert prose(text) == [["pre", "```ix\nlet x = 1;\n```"], ["p", "after"]]
    text = "````ix\nlet x = 1; // ```\n````\n"
    assert read_lesson(text) == [ProgramText("", "let x = 1; // ```\n", 2)]


@pytest.mark.parametrize("word", ["ixx", "python", "questions", "Ix"])
def test_other_blocks_are_shown(word: str) -> None:
    assert prose(f"```{word}\nlet x = 1;\n```") == [["pre", "let x = 1;"]]


@pytest.mark.parametrize("text", ["", "\n\n", "   \n"])
def test_nothing_is_nothing(text: str) -> None:
    assert read_lesson(text) == []


@pytest.mark.parametrize(
    "text", ["*" * 5000, "**a " * 2000, "*a" * 2000, "[" * 5000, "a" + "`" * 5001, "**" + "a*" * 2000, "> " * 3000]
)
def test_marks_without_end_are_read_in_time(text: str) -> None:
    assert prose(text)


@pytest.mark.parametrize("word", ["", "ix", "question", "python"])
def test_a_block_is_closed(tmp_path: Path, word: str) -> None:
    text = f"# T\n\n```{word}\nlet x = 1;\n````\n"
    with pytest.raises(Unclosed) as stopped:
        read_lesson(text)
    assert stopped.value.line == 3
    with pytest.raises(ix.Error) as problem:
        show_lesson(write(tmp_path, text))
    assert code_of(problem) == "IX515"
    assert "lesson.md:3: this block is not closed" in problem.value.diagnostics[0].message


def write(folder: Path, text: str | bytes) -> Path:
    file = folder / "lesson.md"
    if isinstance(text, bytes):
        file.write_bytes(text)
    else:
        file.write_text(text, encoding="utf-8")
    return file


def asking(program: str, question: str) -> str:
    return f"# T\n\n```ix\n{program}\n```\n\n```question\n{question}\n```\n"


def test_a_lesson_becomes_a_page(tmp_path: Path) -> None:
    (tmp_path / "other.ix").write_text("let z[i] = [1, 2];\n", encoding="utf-8")
    text = (
        asking("let x[i] = [1, 2];", "q?\nanswer: x[1]") + "\n```ix other.ix\n```\n\n```question\nr?\nanswer: z\n```\n"
    )
    page = show_lesson(write(tmp_path, text))
    assert page.title == "T"
    kinds = [block["kind"] for block in data_of(page)["blocks"]]
    assert kinds == ["prose", "program", "question", "program", "question"]
    first, second = (block for block in data_of(page)["blocks"] if block["kind"] == "question")
    assert (first["program"], first["answer"], first["name"], first["place"]) == (0, [2.0], "x", [1])
    assert (second["program"], second["answer"], second["place"]) == (1, [1.0, 2.0], [0])
    assert show_lesson(write(tmp_path, text)).html == page.html
    assert show_lesson(str(tmp_path / "lesson.md")).html == page.html
    assert show_lesson(tmp_path / "lesson.md", title="Another").title == "Another"


def test_a_lesson_without_a_heading_has_the_name_of_its_file(tmp_path: Path) -> None:
    assert show_lesson(write(tmp_path, "")).title == "lesson"
    assert show_lesson(write(tmp_path, "words\n")).title == "lesson"


@pytest.mark.parametrize(
    "answer", ["x[2]", "x[-1]", "x[0, 0]", "nope", "x[1", "x + 1", "", "x[٣]", "x[99999999999999999999]"]
)
def test_an_answer_that_names_nothing(tmp_path: Path, answer: str) -> None:
    with pytest.raises(ix.Error) as problem:
        show_lesson(write(tmp_path, asking("let x[i] = [1, 2];", f"q?\nanswer: {answer}")))
    assert code_of(problem) == "IX515"
    assert "lesson.md:8" in problem.value.diagnostics[0].message


def test_an_answer_before_its_program(tmp_path: Path) -> None:
    with pytest.raises(ix.Error) as problem:
        show_lesson(write(tmp_path, "```question\nq?\nanswer: x\n```\n\n```ix\nlet x = 1;\n```\n"))
    assert code_of(problem) == "IX515"


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("let x = 1.0; let y = 1 / (x - 1);", "y"),
        ("let x = 1.0; let y = 0 / (x - 1);", "y"),
        ("input V[j]; let y[j] = 2 * V[j];", "y[0]"),
        ("let x[i] = [1, 2]; let y[i] = x[i] where i == 1;", "y[0]"),
    ],
)
def test_an_answer_that_is_no_number(tmp_path: Path, program: str, answer: str) -> None:
    with pytest.raises(ix.Error) as problem:
        show_lesson(write(tmp_path, asking(program, f"q?\nanswer: {answer}")))
    assert code_of(problem) == "IX515"


def test_a_question_to_think_about(tmp_path: Path) -> None:
    page = show_lesson(write(tmp_path, asking("let x = 1;", "Why?\nreveal: *So.*")))
    (found,) = [block for block in data_of(page)["blocks"] if block["kind"] == "question"]
    assert found["answer"] is None
    assert found["reveal"] == [["p", ["em", "So."]]]


def test_a_question_may_have_both(tmp_path: Path) -> None:
    page = show_lesson(write(tmp_path, asking("let x = 1;", "How much?\nanswer: x\nreveal: Just that.")))
    (found,) = [block for block in data_of(page)["blocks"] if block["kind"] == "question"]
    assert (found["answer"], found["reveal"]) == ([1.0], [["p", "Just that."]])


@pytest.mark.parametrize("question", ["Why?", "answer: x", "reveal: So.", ""])
def test_half_a_question(tmp_path: Path, question: str) -> None:
    with pytest.raises(ix.Error) as problem:
        show_lesson(write(tmp_path, asking("let x = 1;", question)))
    assert code_of(problem) == "IX515"
    assert "lesson.md:8: this question" in problem.value.diagnostics[0].message


LINKED = """# T

```ix one.ix #cell=y[1]&set=x[0]:5&labels=i:a,b
let x[i] = [1, 2];
let y[i] = 2 * x[i];
```

Of `y[1]`, `x`, `y[7]`, `z` and `[i]`; [there](#step=1&set=x[1]:3), [back](#reset), [out](https://elsewhere).

```words i
Two *words*, or [none](#reset).
```

## Next

On `y`.

```ix two.ix
let y = 3;
let z[k] = [1];
```
"""


def test_what_a_lesson_speaks_of_is_found_in_its_programs(tmp_path: Path) -> None:
    _, first, prose, words, ahead, _ = data_of(show_lesson(write(tmp_path, LINKED)))["blocks"]
    assert first["opening"] == "cell=y[1]&set=x[0]:5"
    assert first["pages"][0]["labels"] == {"i": ["a", "b"]}
    assert prose["nodes"][0][1:] == [
        "Of ", ["cell", 0, "y", [1], "y[1]"], ", ", ["cell", 0, "x", [], "x"], ", ", ["code", "y[7]"], ", ",
        ["cell", 1, "z", [], "z"], " and ", ["code", "[i]"], "; ", ["a", 0, "step=1&set=x[1]:3", "there"], ", ",
        ["a", 0, "reset", "back"], ", ", "out", ".",
    ]  # fmt: skip
    assert (words["names"], words["count"], words["program"]) == (["i"], 2, 0)
    assert words["prompt"][-2:] == [["a", 0, "reset", "none"], "."]
    assert ahead["nodes"][1] == ["p", "On ", ["cell", 1, "y", [], "y"], "."]  # A heading leads to the next program.


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        ("(#reset)", "(#step=2)", 8, "there are 1 steps, and no step `2`"),
        ("(#reset)", "(#cell=y)", 8, "no program near it has an element `y`"),
        ("(#reset)", "(#set=y[0]:1)", 8, "`y[0]:1` does not set a number that is given"),
        ("(#reset)", "(#set=x[0]:one)", 8, "`x[0]:one` does not set a number"),
        ("(#reset)", "(#program=3&step=1)", 8, "there is no such program"),
        ("(#reset)", "(#elsewhere)", 8, "`elsewhere` is none of `program`, `step`"),
        ("#cell=y[1]", "#cell=y[2]", 3, "no program near it has an element `y[2]`"),
        ("labels=i:", "labels=q:", 3, "labels are for coordinates and spaces, and `q` is none"),
        ("words i", "words q", 10, "no program before this block has a coordinate or a space `q`"),
        ("Two *words*, or [none](#reset).", "", 10, "this block asks for nothing"),
    ],
)
def test_a_lesson_that_speaks_of_nothing(tmp_path: Path, before: str, after: str, line: int, message: str) -> None:
    text = LINKED.replace("two.ix\nlet y = 3;", "two.ix\nlet w = 3;").replace(before, after)
    with pytest.raises(ix.Error) as problem:
        show_lesson(write(tmp_path, text))
    assert code_of(problem) == "IX515"
    assert f"lesson.md:{line}: " in problem.value.diagnostics[0].message
    assert message in problem.value.diagnostics[0].message


def test_an_empty_block_names_a_file(tmp_path: Path) -> None:
    with pytest.raises(ix.Error) as problem:
        show_lesson(write(tmp_path, "```ix\n```\n"))
    assert code_of(problem) == "IX515"
    assert "this block is empty" in problem.value.diagnostics[0].message


def test_a_program_that_does_not_compile_is_the_compilers_error(tmp_path: Path) -> None:
    with pytest.raises(ix.CompileError) as problem:
        show_lesson(write(tmp_path, "```ix wrong.ix\nlet y = x;\n```\n"))
    assert code_of(problem) == "IX201"
    assert "wrong.ix:1:9" in str(problem.value)
    with pytest.raises(ix.CompileError) as unnamed:
        show_lesson(write(tmp_path, "# T\n\n```ix\nlet y = x;\n```\n"))
    assert "lesson.md (line 4):1:9" in str(unnamed.value)
    with pytest.raises(ix.Error) as missing:
        show_lesson(write(tmp_path, "```ix nothing.ix\n```\n"))
    assert code_of(missing) == "IX108"


@pytest.mark.parametrize("junk", [b"\xff\xfe\x00", b"# ok\n\x80"])
def test_junk_is_refused(tmp_path: Path, junk: bytes) -> None:
    with pytest.raises(ix.Error) as problem:
        show_lesson(write(tmp_path, junk))
    assert code_of(problem) == "IX108"
    assert "UTF-8" in problem.value.diagnostics[0].message


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.md", tmp_path, "a\0b"):
        with pytest.raises(ix.Error) as problem:
            show_lesson(path)
        assert code_of(problem) == "IX108"


def test_a_mark_of_byte_order_is_no_text(tmp_path: Path) -> None:
    assert show_lesson(write(tmp_path, b"\xef\xbb\xbf# Title\n")).title == "Title"


# --------------------------------------------------------- the lessons we have


@pytest.mark.parametrize("file", sorted(LESSONS.glob("*.md")), ids=lambda file: file.stem)
def test_our_lessons(file: Path) -> None:
    page = show_lesson(file)
    assert len(page.html.encode()) < 1_000_000
    blocks = read_lesson(file.read_text(encoding="utf-8"))
    assert next(block.name for block in blocks if isinstance(block, ProgramText)) == f"{file.stem}.ix"
    questions = [block for block in blocks if isinstance(block, Question)]
    assert any(question.answer for question in questions)
    assert any(question.reveal for question in questions)
    assert all(question.prompt and (question.answer or question.reveal) for question in questions)
    for block in blocks:
        if isinstance(block, ProgramText) and block.text.strip():
            tree = parse(Source(block.name, block.text), Sink())
            assert tree is not None
            assert format_source(tree) == block.text
            assert [found.code for found in ix.check(block.text) if found.severity != "note"] == []


def test_every_published_program_has_its_lesson() -> None:
    assert {file.stem for file in LESSONS.glob("*.md")} == {file.stem for file in LESSONS.glob("*.ix")}


# ---------------------------------------------------------------------- markup


def test_no_text_can_end_the_data() -> None:
    written = embedded({"a": EVIL, "b": [1.5, None, True]})
    assert not set(written) & set("<>&\u2028\u2029")
    assert json.loads(written) == {"a": EVIL, "b": [1.5, None, True]}
    with pytest.raises(ValueError, match="JSON"):
        embedded([math.nan])


def test_text_of_a_program_stays_data(tmp_path: Path) -> None:
    source = f'// {EVIL}\nlet x[i] = [1, 2];\nassert sum[i](x[i]) > 0, "{EVIL}";\nexpect x == [1, 3]; // {EVIL}\n'
    source = source.replace("\u2028", " ").replace("\u2029", " ")
    page = show(source, title=EVIL)
    assert "<" not in text_of(page)
    assert data_of(page)["title"] == EVIL
    assert page.html.count("</script>") == 2
    assert "<img" not in page.html
    evil = EVIL.replace("\u2028", "").replace("\u2029", "")
    lesson = f"# {evil}\n\n{evil} `{evil}`\n\n- {evil}\n\n> {evil}\n\n```\n{evil}\n```\n\n"
    lesson += f"```ix {evil}.ix\nlet x = 1; // {evil}\n```\n\n"
    lesson += f"```question\n{evil}\nanswer: x\n```\n\n```question\n{evil}\nreveal: {evil}\n```\n"
    page = show_lesson(write(tmp_path, lesson))
    assert "<" not in text_of(page)
    assert page.html.count("</script>") == 2
    assert "<img" not in page.html


# -------------------------------------------------------------------- patterns


def test_patterns_take_lists_arrays_and_tensors() -> None:
    rows = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.1, 0.8]]
    found = patterns(rows)
    assert isinstance(found, PatternSheet)
    assert inspect.unwrap(ix.patterns) is patterns
    assert str(found) == repr(found) == found.text()
    assert patterns(np.array(rows)).to_json() == found.to_json()
    assert (
        patterns(ix.compile("let w[i, j] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.1, 0.8]];")()).to_json()
        == found.to_json()
    )
    torch = pytest.importorskip("torch")
    assert patterns(torch.tensor(rows, dtype=torch.float64)).to_json() == found.to_json()
    assert json.loads(json.dumps(found.to_json())) == found.to_json()


def test_patterns_of_heads() -> None:
    heads = np.stack([np.eye(4), np.full((4, 4), 0.25)])
    found = patterns(heads)
    assert [head.word for head in found.heads] == ["peaked", "uniform"]
    assert found.text(sort_by="entropy").index("uniform") < found.text(sort_by="entropy").index("peaked")
    assert "rows of head 1" in found.text(rows=True)
    assert patterns([[0.01, 0.95, 0.04]], causal=True).heads[0].word == "previous-token"


@pytest.mark.parametrize(
    ("weights", "code"), [(1.0, "IX502"), (["a"], "IX504"), ([[1], [1, 2]], None), (np.eye(2) * 1j, "IX504")]
)
def test_what_are_no_weights(weights: Any, code: str | None) -> None:
    with pytest.raises(ix.Error) as problem:
        patterns(weights)
    assert code is None or code_of(problem) == code


def test_an_order_that_there_is_not() -> None:
    with pytest.raises(ix.Error) as problem:
        patterns(np.eye(2)).text(sort_by="colour")
    assert code_of(problem) == "IX515"


# ---------------------------------------------------------------------- labels


def test_labels_stand_for_a_coordinate_or_a_space() -> None:
    page = show(LESSONS / "named_softmax.ix", labels={"position": ["The", "cat", "<sat>"]})
    assert document(page)["labels"]["i"] == document(page)["labels"]["j"] == ["The", "cat", "<sat>"]
    assert "<sat>" not in page.html
    page = show(LESSONS / "named_softmax.ix", labels={"j": ["a", "b", "c"]})
    assert set(document(page)["labels"]) == {"j"}
    for wrong in ({"word": ["a"]}, {"i": "abc"}):
        with pytest.raises(ix.Error) as problem:
            show(LESSONS / "named_softmax.ix", labels=wrong)
        assert code_of(problem) == "IX515"


def test_a_claim_that_is_not_decided_is_shown_as_that() -> None:
    page = show("let y = exp(sin(1) ** 2) * exp(cos(1) ** 2 - 1); expect y == 1.0; expect y == 1;")
    assert '"verdict":"undecided"' in page.html


def test_a_program_that_breaks_its_contract_is_shown_with_the_error() -> None:
    broken = Path(__file__).parent.parent / "examples" / "broken" / "guard_reversed.ix"
    values = np.ones((1, 1, 3, 2))
    assert '"code":"IX423"' in show(broken, values, values, values).html
    with pytest.raises(ix.CompileError):
        ix.compile(broken)


@pytest.mark.parametrize(
    ("guard", "given"),
    [("allowed[i, j]", "allowed[i, j]: bool"), ("doc[i] == doc[j]", "doc[i]: i64"), ("j <= i", "unused[i]")],
)
def test_masked_points_of_a_page_of_floats_are_absent(guard: str, given: str) -> None:
    text = f"input s[i, j in 0..size(i)], {given}; let w[i, j] = softmax[j](s[i, j]) where {guard};"
    text += "" if "unused" not in given else " let u[i] = unused[i];"
    scores = np.array([[0.1, 0.2], [0.3, 0.4]])
    by_name = {"allowed": np.array([[True, False], [True, True]]), "doc": np.array([0, 1]), "unused": np.ones(2)}
    name = given.partition("[")[0]
    found = gather(ix.compile(text), (scores, by_name[name]), {}, None)
    assert found.evaluated is None
    expected = {"allowed": [[0, 1], [0, 0]], "doc": [[0, 1], [1, 0]], "unused": [[0, 1], [0, 0]]}[name]
    assert found.masked["w"].tolist() == np.array(expected, bool).tolist()


def test_labels_are_lists_by_name() -> None:
    for labels in (5, {"i": "ab"}, {"nothing": ["a"]}):
        with pytest.raises(ix.CallError, match="IX515"):
            show("input x[i]; let y[i] = x[i];", [1, 2], labels=labels)  # type: ignore[arg-type]


def test_a_page_that_would_be_too_large_is_refused_with_what_to_leave_out() -> None:
    with pytest.raises(ix.CallError) as found:
        show(DOUBLE, np.zeros(3_000_000))
    text = str(found.value)
    assert "the page would have 31 MiB, and a page has at most 25 MiB" in text
    assert "` alone, 3,000,000 numbers, has 15 MiB" in text
    assert "leave out positions" in text
    with pytest.raises(ix.CallError, match="the page would have 26 MiB, and a page has at most 25"):
        WebPage("much prose", [{"kind": "prose", "nodes": [["p", "x" * (26 * 2**20)]]}])
