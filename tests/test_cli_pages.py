"""`ix show` and `ix patterns` on the command line: what they write and print, exit with and refuse."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexical.cli import main

LESSONS = Path(__file__).resolve().parent.parent / "examples" / "lessons"
NAMED = str(LESSONS / "named_softmax.ix")

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder with a program, a lesson and some files that are no arrays."""
    monkeypatch.chdir(tmp_path)
    Path("double.ix").write_text("input x[i];\n\nlet y[i] = 2 * x[i];\n", encoding="utf-8")
    Path("triple.ix").write_text("input x[i];\n\nlet y[i] = 3 * x[i];\n", encoding="utf-8")
    Path("lesson.md").write_text("# A title\n\n```ix\nlet x = 1;\n```\n", encoding="utf-8")
    Path("junk.npy").write_bytes(b"\x93NUMPY junk")
    Path("junk.npz").write_bytes(b"PK\x03\x04junk")
    Path("empty.npy").write_bytes(b"")
    Path("list.json").write_text("[[1, 0], [0.5, 0.5]]", encoding="utf-8")


def page() -> dict[str, Any]:
    """The data of the page that was written."""
    text = Path("page.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert isinstance(data, dict)
    return data


def shown(*arguments: str) -> dict[str, Any]:
    """The first program of the page that `ix show` writes."""
    assert main(["show", *arguments, "-o", "page.html"]) == 0
    found = page()["blocks"][0]["pages"][0]
    assert isinstance(found, dict)
    return found


def exact(found: dict[str, Any], name: str) -> list[str]:
    (forms,) = [tensor["exact"] for tensor in found["tensors"] if tensor["name"] == name]
    assert isinstance(forms, list)
    return forms


# ------------------------------------------------------------------------ show


def test_show_writes_a_page_and_prints_nothing(capsys: Captured) -> None:
    found = shown(NAMED)
    assert found["title"] == "named_softmax"
    assert capsys.readouterr() == ("", "")
    before = Path("page.html").read_bytes()
    shown(NAMED)
    assert Path("page.html").read_bytes() == before


@pytest.mark.parametrize("file", sorted(LESSONS.glob("*.md")), ids=lambda file: file.stem)
def test_show_reads_lessons(file: Path, capsys: Captured) -> None:
    assert main(["show", str(file), "--output", "page.html"]) == 0
    assert capsys.readouterr() == ("", "")
    kinds = {block["kind"] for block in page()["blocks"]}
    assert kinds - {"words"} == {"prose", "program", "question"}


def test_show_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("let z[i] = [1, 2];"))
    assert exact(shown("-"), "z") == ["1", "2"]


def test_show_takes_values_as_they_are_written() -> None:
    assert exact(shown("double.ix", "--value", 'x=[0.1, "1/3", -2]'), "y") == ["1/5", "2/3", "-4"]


def test_show_takes_arrays() -> None:
    np.save("x.npy", np.array([1.0, 2.0]))
    np.savez("both.npz", x=np.array([3.0, 4.0]), other=np.eye(2))
    assert exact(shown("double.ix", "--input", "x=x.npy"), "y") == ["2", "4"]
    assert exact(shown("double.ix", "--input", "both.npz"), "y") == ["6", "8"]
    assert exact(shown("double.ix", "--input", "x=both.npz"), "y") == ["6", "8"]


def test_show_draws_inputs(capsys: Captured) -> None:
    found = shown("double.ix", "--random", "i=4")
    assert "floats of many digits" in found["whyNotExact"]
    assert [tensor["shape"] for tensor in found["tensors"]] == [[4], [4]]
    again, other = (shown("double.ix", "--random", "i=4", "--seed", seed)["tensors"] for seed in ("0", "1"))
    assert again == found["tensors"] != other
    assert capsys.readouterr() == ("", "")
    shown("double.ix", "--random")
    assert capsys.readouterr().err == "ix: sizes not given: i=3\n"


def test_show_draws_inputs_beside_values(capsys: Captured) -> None:
    Path("sum.ix").write_text("input x[i], z[i];\n\nlet y[i] = x[i] + z[i];\n", encoding="utf-8")
    found = shown("sum.ix", "--random", "--value", 'x=["1/3", 2]')
    assert [tensor["shape"] for tensor in found["tensors"]] == [[2], [2], [2]]
    assert capsys.readouterr() == ("", "")


def test_show_keeps_symbols() -> None:
    assert exact(shown("double.ix", "--sizes", "i=2"), "y") == ["2·x[0]", "2·x[1]"]


def test_show_puts_two_programs_side_by_side() -> None:
    shown("double.ix", "--beside", "triple.ix", "--value", "x=[1]")
    one, other = page()["blocks"][0]["pages"]
    assert (exact(one, "y"), exact(other, "y")) == (["2"], ["3"])
    assert page()["title"] == "double beside triple"


def test_show_has_a_title() -> None:
    shown("double.ix", "--title", "<b> & more")
    assert page()["title"] == "<b> & more"
    assert "<title>&lt;b&gt; &amp; more</title>" in Path("page.html").read_text(encoding="utf-8")


def test_show_gives_a_lesson_another_title() -> None:
    assert main(["show", "lesson.md", "-o", "page.html"]) == 0
    assert page()["title"] == "A title"
    assert main(["show", "lesson.md", "--title", "Another", "-o", "page.html"]) == 0
    assert page()["title"] == "Another"


def test_show_labels_points() -> None:
    found = shown("double.ix", "--value", "x=[1, 2]", "--labels", "i=one,two")
    assert found["labels"] == {"i": ["one", "two"]}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing.ix"], 1, "IX108"),
        (["nothing.md"], 1, "IX108"),
        (["."], 1, "IX108"),
        (["double.ix", "--beside", "nothing.ix"], 1, "IX108"),
        (["double.ix", "--value", "x=[1"], 2, "figures look like"),
        (["double.ix", "--value", "x"], 2, "figures look like"),
        (["double.ix", "--value", "z=[1]"], 1, "IX501"),
        (["double.ix", "--value", "x=[[1]]"], 1, "IX502"),
        (["double.ix", "--value", "x=[[1], [1, 2]]"], 1, "error"),
        (["double.ix", "--value", 'x=["one"]'], 1, "IX511"),
        (["double.ix", "--value", "x=[NaN]"], 1, "IX511"),
        (["double.ix", "--value", "x=[true]"], 1, "IX511"),
        (["double.ix", "--value", 'x={"a": 1}'], 1, "IX511"),
        (["double.ix", "--input", "nothing.npz"], 2, "cannot be loaded"),
        (["double.ix", "--input", "x=junk.npy"], 2, "cannot be loaded"),
        (["double.ix", "--input", "x=empty.npy"], 2, "cannot be loaded"),
        (["double.ix", "--input", "junk.npz"], 2, "cannot be loaded"),
        (["double.ix", "--random", "q=4"], 2, "no input has a coordinate `q`"),
        (["double.ix", "--random", "i=x"], 2, "sizes look like"),
        (["double.ix", "--random", "i=4", "--seed", "-1"], 2, "seed"),
        (["double.ix", "--random", "--value", 'x=["one"]'], 2, "one is no number"),
        (["double.ix", "--random", "--value", 'x=["1/0"]'], 2, "1/0 is no number"),
        (["double.ix", "--random", "--value", "x=[[1], [1, 2]]"], 1, "error"),
        (["double.ix", "--sizes", "q=3"], 1, "IX512"),
        (["double.ix", "--labels", "q=a,b"], 1, "IX515"),
        (["lesson.md", "--value", "x=1"], 2, "a lesson has its own"),
        (["lesson.md", "--input", "x=junk.npy"], 2, "a lesson has its own"),
        (["lesson.md", "--random"], 2, "a lesson has its own"),
        (["lesson.md", "--random", "i=2"], 2, "a lesson has its own"),
        (["lesson.md", "--sizes", "i=2"], 2, "a lesson has its own"),
        (["lesson.md", "--labels", "i=a,b"], 2, "a lesson has its own"),
        (["lesson.md", "--beside", "double.ix"], 2, "a lesson has its own"),
    ],
)
def test_show_has_one_clear_error(arguments: list[str], code: int, words: str, capsys: Captured) -> None:
    try:
        status: Any = main(["show", *arguments, "-o", "page.html"])
    except SystemExit as stop:
        status = stop.code
    assert status == code
    output = capsys.readouterr()
    assert output.out == ""
    assert words in output.err
    assert not Path("page.html").exists()


def test_show_says_what_is_wrong_in_a_lesson(capsys: Captured) -> None:
    Path("wrong.md").write_text("```ix broken.ix\nlet y = x;\n```\n", encoding="utf-8")
    assert main(["show", "wrong.md", "-o", "page.html"]) == 1
    assert "error[IX201]: nothing defines `x`" in capsys.readouterr().err
    Path("wrong.md").write_text("```ix\nlet y = 1;\n```\n\n```question\nq?\nanswer: z\n```\n", encoding="utf-8")
    assert main(["show", "wrong.md", "-o", "page.html"]) == 1
    assert "error[IX515]: wrong.md:6:" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["no/such/folder.html", "."])
def test_show_cannot_write_there(path: str, capsys: Captured) -> None:
    assert main(["show", NAMED, "-o", path]) == 2
    assert capsys.readouterr().err.startswith(f"ix: {path} cannot be written: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_show_may_not_write_there(capsys: Captured) -> None:
    Path("page.html").touch(mode=0o400)
    assert main(["show", NAMED, "-o", "page.html"]) == 2
    assert "Permission denied" in capsys.readouterr().err


def test_show_needs_somewhere_to_write(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["show", NAMED])
    assert stop.value.code == 2
    assert "-o" in capsys.readouterr().err


# -------------------------------------------------------------------- patterns


def save_weights() -> None:
    np.save("one.npy", np.eye(4, dtype=np.float16))
    np.save("row.npy", np.array([0.01, 0.95, 0.04]))
    np.save("heads.npy", np.stack([np.eye(4), np.full((4, 4), 0.25)]))
    np.save("many.npy", np.full((50, 2, 2), 0.5))
    np.savez("weights.npz", weights=np.eye(3), other=np.full((2, 2), 0.5))
    np.savez("alone.npz", only=np.eye(2))
    np.savez("two.npz", a=np.eye(2), b=np.full((2, 2), 0.5))
    np.savez("nothing_in_it.npz")
    np.save("text.npy", np.array(["a"]))
    np.save("complex.npy", np.eye(2) * 1j)
    np.save("number.npy", np.float64(1))
    np.save("pickled.npy", np.array([{}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["one.npy"], "1 head of 4 queries × 4 keys, float16"),
        (["row.npy"], "peaked"),
        (["row.npy", "--causal"], "previous-token"),
        (["heads.npy"], "2 heads of 4 queries"),
        (["many.npy"], "100 rows are not shown"),
        (["many.npy", "--rows"], "rows of head 49"),
        (["weights.npz"], "1 head of 3 queries"),
        (["weights.npz", "--name", "other"], "uniform"),
        (["alone.npz"], "1 head of 2 queries"),
        (["two.npz", "--name", "b"], "uniform"),
    ],
)
def test_patterns_print(arguments: list[str], words: str, capsys: Captured) -> None:
    save_weights()
    assert main(["patterns", *arguments]) == 0
    output = capsys.readouterr()
    assert words in output.out
    assert output.err == ""


def test_patterns_sort_heads(capsys: Captured) -> None:
    save_weights()
    assert main(["patterns", "heads.npy", "--sort", "entropy"]) == 0
    text = capsys.readouterr().out
    assert text.index("uniform") < text.index("peaked")


def test_patterns_as_json(capsys: Captured) -> None:
    save_weights()
    assert main(["patterns", "heads.npy", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [head["word"] for head in found["heads"]] == ["peaked", "uniform"]
    assert found["shape"] == [2, 4, 4]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing.npy"], 2, "cannot be loaded"),
        (["."], 2, "cannot be loaded"),
        (["junk.npy"], 2, "cannot be loaded"),
        (["junk.npz"], 2, "cannot be loaded"),
        (["empty.npy"], 2, "cannot be loaded"),
        (["list.json"], 2, "cannot be loaded"),
        (["pickled.npy"], 2, "cannot be loaded"),
        (["one.npy", "--name", "b"], 2, "has one array, without a name"),
        (["two.npz"], 2, "say which array with --name; it has a, b"),
        (["two.npz", "--name", "c"], 2, "it has a, b"),
        (["nothing_in_it.npz"], 2, "it has none"),
        (["text.npy"], 1, "IX504"),
        (["complex.npy"], 1, "IX504"),
        (["number.npy"], 1, "IX502"),
        (["one.npy", "--sort", "colour"], 2, "invalid choice"),
        ([], 2, "required"),
    ],
)
def test_patterns_have_one_clear_error(arguments: list[str], code: int, words: str, capsys: Captured) -> None:
    save_weights()
    try:
        status: Any = main(["patterns", *arguments])
    except SystemExit as stop:
        status = stop.code
    assert status == code
    output = capsys.readouterr()
    assert output.out == ""
    assert words in output.err


def test_a_page_of_weights_alone() -> None:
    weights = np.full((2, 3, 4, 4), 0.25)
    np.savez("w.npz", weights=weights, tokens=np.array(["a", "b", "c", "d"]))
    assert main(["show", "--weights", "w.npz", "-o", "page.html"]) == 0
    (block,) = page()["blocks"]
    assert (block["kind"], block["tokens"], len(block["heads"])) == ("heads", ["a", "b", "c", "d"], 6)
    assert block["heads"][0]["evidence"] == "uniform 4 of 4 rows"
    np.save("w.npy", weights)
    Path("tokens.json").write_text('["w", "x", "y", "z"]', encoding="utf-8")
    assert main(["show", "--weights", "w.npy", "--tokens", "tokens.json", "--layers", "1", "-o", "page.html"]) == 0
    (block,) = page()["blocks"]
    assert (block["shape"], block["tokens"]) == ([1, 3], ["w", "x", "y", "z"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["double.ix", "--weights", "w.npy"], "show takes one of these: a program or a lesson, --weights, --model"),
        ([], "show takes one of these: a program or a lesson, --weights, --model"),
        (["double.ix", "--tokens", "a,b"], "--tokens is for --weights and --model"),
        (["--weights", "w.npy", "--labels", "i=a"], "--labels is for programs"),
        (["--weights", "w.npy", "--layers", "7"], "no such points"),
        (["--weights", "w.npy", "--layers", "x"], "places look like 0,4-7"),
        (["--weights", "w.npy", "--tokens", "a,b"], "a token for each key: 4, and there are 2"),
        (["--weights", "w.npy", "--tokens", "list.txt"], "a token for each key: 4, and there are 1"),
        (["--weights", "empty.npy"], "no .npy or .npz file"),
        (["--model", "folder"], "--model needs something to read"),
        (["double.ix", "--text", "a"], "--text is for --model"),
        (["--model", "folder", "--text", "a", "--sizes", "i=3"], "--sizes is for programs"),
    ],
)
def test_weights_that_are_refused(arguments: list[str], said: str, capsys: Captured) -> None:
    np.save("w.npy", np.full((2, 4, 4), 0.25))
    assert main(["show", *arguments, "-o", "page.html"]) != 0
    assert said in capsys.readouterr().err
    assert not Path("page.html").exists()


def test_a_model_without_the_extra_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["show", "--model", "folder", "--text", "a", "-o", "page.html"]) == 1
    assert "pip install 'indexical[models]'" in capsys.readouterr().err
