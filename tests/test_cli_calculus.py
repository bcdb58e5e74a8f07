"""`ix grad`, `ix jvp` and `ix batch` on the command line: what they print, write, exit with and refuse."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

import indexical as ix
from indexical.cli import main

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CAUSAL = str(EXAMPLES / "causal_attention.ix")
TWO = "input x[i], w;\nlet a[i] = x[i] * w;\nlet b = sum[i](x[i] ** 2);\n"

# Each command, on a program with the inputs Q, K, V.
COMMANDS = (("grad",), ("jvp",), ("batch", "--over", "n=Q"))

Captured = pytest.CaptureFixture[str]


def give(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program on standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


# ------------------------------------------------------------------- what is printed


def test_grad_prints_the_derivative_of_attention(capsys: Captured) -> None:
    assert main(["grad", CAUSAL]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1] == "output d_Q, d_K, d_V;"
    gather = "let d_V[b, h, j, e] = sum[i](weights[b, h, i, j] * d_out[b, h, i, e]);"
    assert f"{gather} // allow(IX402): transpose of the gather" in lines
    assert "let d_weights[b, h, i, j] = sum[e](d_out[b, h, i, e] * V[b, h, j, e]);" in lines
    assert "let d_Q[b, h, i, d] = sum[j](d_scores[b, h, i, j] * K[b, h, j, d]) / sqrt(size(d));" in lines
    assert "where j <= i;" in lines


def test_by_says_what_comes_out_and_in_which_order(capsys: Captured) -> None:
    assert main(["grad", CAUSAL, "--by", "V, Q"]) == 0
    assert capsys.readouterr().out.endswith("\noutput d_V, d_Q;\n")
    assert main(["grad", CAUSAL, "--by", "scores"]) == 0
    assert capsys.readouterr().out.endswith("\noutput d_scores;\n")


def test_jvp_prints_tangents_of_all_outputs(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "two.ix"
    file.write_text(TWO)
    assert main(["jvp", str(file)]) == 0
    assert capsys.readouterr().out.endswith("\noutput dot_a, dot_b;\n")
    assert main(["jvp", str(file), "--by", "w", "--of", "a"]) == 0
    shown = capsys.readouterr().out
    assert "input x[i], w, dot_w;" in shown
    assert shown.endswith("\noutput dot_a;\n")


def test_batch_prints_what_depends_on_it_with_one_more_coordinate(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "two.ix"
    file.write_text(TWO)
    assert main(["batch", str(file), "--over", "n=w"]) == 0
    assert capsys.readouterr().out == (
        "input x[i], w[n];\n\nlet a[n, i] = x[i] * w[n];\nlet b       = sum[i](x[i] ** 2);\n\noutput a, b;\n"
    )
    assert main(["batch", str(file), "--over", "n = x, w"]) == 0
    assert "let b[n]" in capsys.readouterr().out
    assert main(["batch", str(file), "--over", "n=w", "--over", "m=x"]) == 0
    assert "input x[m, i], w[n];" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_what_is_printed_is_what_python_gives_and_is_clean(
    command: tuple[str, ...], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([command[0], CAUSAL, *command[1:]]) == 0
    shown = capsys.readouterr().out
    program = ix.compile(CAUSAL)
    expected = {"grad": ix.grad(program), "jvp": ix.jvp(program), "batch": ix.batch(program, n="Q")}[command[0]]
    assert shown == str(expected)
    give(shown, monkeypatch)
    assert main(["check", "--strict", "-"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_standard_input_is_read(command: tuple[str, ...], capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([command[0], CAUSAL, *command[1:]]) == 0
    expected = capsys.readouterr().out
    give(Path(CAUSAL).read_text(encoding="utf-8"), monkeypatch)
    assert main([command[0], "-", *command[1:]]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_as_json(command: tuple[str, ...], capsys: Captured) -> None:
    assert main([command[0], CAUSAL, *command[1:], "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    program = ix.compile(found["program"])
    assert found["inputs"] == list(program.inputs)
    assert found["outputs"] == list(program.outputs)


# ------------------------------------------------------------------- what is written


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", "causal_attention convolution documents heat_equation lstm multi_head_sublayer".split()
)
def test_a_written_derivative_is_checked_and_run(name: str, tmp_path: Path, capsys: Captured) -> None:
    file = str(tmp_path / "derived.ix")
    for command in ("grad", "jvp"):
        assert main([command, str(EXAMPLES / f"{name}.ix"), "-o", file]) == 0
        assert main(["check", "--strict", file]) == 0
        assert capsys.readouterr() == ("", "")
        assert main(["run", file, "--random", "", "--save", str(tmp_path / "found.npz")]) == 0
        capsys.readouterr()
        found = np.load(tmp_path / "found.npz")
        assert set(found) == set(ix.compile(Path(file)).outputs)
        assert all(np.isfinite(found[output]).all() for output in found)


def test_a_derivative_of_a_derivative(tmp_path: Path, capsys: Captured) -> None:
    first, second = str(tmp_path / "first.ix"), str(tmp_path / "second.ix")
    assert main(["grad", CAUSAL, "-o", first]) == 0
    assert main(["grad", first, "--of", "d_Q", "--by", "Q", "-o", second]) == 0
    assert main(["check", "--strict", second]) == 0
    assert ix.compile(Path(second)).outputs == ("d_Q_1",)
    assert capsys.readouterr() == ("", "")


def test_a_path_that_cannot_be_written(tmp_path: Path, capsys: Captured) -> None:
    assert main(["grad", CAUSAL, "-o", str(tmp_path / "nowhere" / "g.ix")]) == 2
    assert "cannot be written" in capsys.readouterr().err


# ------------------------------------------------------------------- what is refused


def refusal(arguments: list[str], capsys: Captured) -> str:
    """What is said of a program at fault. Nothing is printed beside it."""
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize("command", ["grad", "jvp"])
def test_names_that_are_none(command: str, capsys: Captured) -> None:
    said = refusal([command, CAUSAL, "--by", "Z"], capsys)
    assert "error[IX501]: no input or definition is called `Z`" in said
    assert "this program takes Q, K, V, and defines scores, weights, out" in said
    assert "did you mean `weights`?" in refusal([command, CAUSAL, "--by", "weight"], capsys)
    assert "error[IX508]: no definition is called `outt`" in refusal([command, CAUSAL, "--of", "outt"], capsys)
    assert "`Q` is an input" in refusal([command, CAUSAL, "--of", "Q"], capsys)


def test_batches_that_are_none(tmp_path: Path, capsys: Captured) -> None:
    assert "no input is called `Z`" in refusal(["batch", CAUSAL, "--over", "n=Z"], capsys)
    assert "an input has a coordinate `b` already" in refusal(["batch", CAUSAL, "--over", "b=Q"], capsys)
    assert "`out` is a tensor of this program" in refusal(["batch", CAUSAL, "--over", "out=Q"], capsys)
    for word in ("let", "sum", "1b", "b c", "size"):
        assert f"`{word}` is no name for a coordinate" in refusal(["batch", CAUSAL, "--over", f"{word}=Q"], capsys)
    file = tmp_path / "range.ix"
    file.write_text("input n : i64;\nlet y[k in 0..n] = k * 2;\n")
    assert "`n` says how far a coordinate of `y` runs" in refusal(["batch", str(file), "--over", "b=n"], capsys)


def test_kinds_that_have_no_derivative(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "kinds.ix"
    file.write_text("input x[i], n[i] : i64;\nlet y[i] = x[i] * n[i];\nlet z[i] = argmax[j](x[j] * x[i]);\n")
    for command in ("grad", "jvp"):
        said = refusal([command, str(file), "--of", "z"], capsys)
        assert "error[IX218]: `z` is whole: it has no derivative" in said
        assert f"{file}:3:5" in said
        assert "`n` is whole" in refusal([command, str(file), "--of", "y", "--by", "n"], capsys)
    assert main(["grad", str(file), "--of", "y"]) == 0
    assert capsys.readouterr().out.endswith("\noutput d_x;\n")


def test_what_is_flat_says_what_to_leave_out(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "flat.ix"
    file.write_text("input x[i], w;\nlet y[i] = floor(x[i]) * w;\n")
    said = refusal(["grad", str(file)], capsys)
    assert "nothing flows from `x` to `y`: `floor` is flat" in said
    assert "leave `x` out of `by`" in said
    assert "leave" not in refusal(["grad", str(file), "--by", "x"], capsys)
    assert main(["grad", str(file), "--by", "w"]) == 0


def test_several_outputs_ask_for_one(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "two.ix"
    file.write_text(TWO)
    said = refusal(["grad", str(file)], capsys)
    assert "error[IX515]: this program has several outputs: `a`, `b`" in said
    assert "on the command line `--of a`" in said
    assert main(["grad", str(file), "--of", "a,b"]) == 0
    assert "input x[i], w, d_a[i];" in capsys.readouterr().out


def test_programs_without_reals_to_move(capsys: Captured) -> None:
    said = refusal(["grad", str(EXAMPLES / "lessons" / "three_by_two.ix")], capsys)
    assert "no input of this program is real" in said
    assert '`by="weights"`' in said
    assert main(["grad", str(EXAMPLES / "lessons" / "three_by_two.ix"), "--by", "weights"]) == 0
    assert capsys.readouterr().out.endswith("\noutput d_weights;\n")
    assert "`fibonacci` is whole" in refusal(["grad", str(EXAMPLES / "fibonacci.ix"), "--by", "fibonacci"], capsys)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("text", ["", "let y = ;", "junk", "\0", "input x[i]; let y = x[i];", "🙂", "output y;"])
def test_junk_is_reported_like_anywhere(
    command: tuple[str, ...], text: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(text, monkeypatch)
    assert refusal([command[0], "-", *command[1:]], capsys).startswith("error[IX")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_refusals_as_json(command: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    assert main([command[0], str(tmp_path / "missing.ix"), *command[1:], "--format", "json"]) == 1
    assert [found["code"] for found in json.loads(capsys.readouterr().out)] == ["IX108"]


@pytest.mark.parametrize(
    "words",
    [
        ("grad", CAUSAL, "--by", ","),
        ("grad", CAUSAL, "--by", ""),
        ("grad", CAUSAL, "--of", "out,"),
        ("jvp", CAUSAL, "--by", "Q,,K"),
        ("batch", CAUSAL, "--over", "n"),
        ("batch", CAUSAL, "--over", "n="),
        ("batch", CAUSAL, "--over", "=Q"),
        ("batch", CAUSAL, "--over", "n=Q,,K"),
        ("batch", CAUSAL, "--over", "n=Q", "--over", "n=K"),
    ],
    ids=lambda words: " ".join((words[0], *words[2:])),
)
def test_a_command_line_at_fault(words: tuple[str, ...], capsys: Captured) -> None:
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"ix: {words[2]} ")
    assert "like" in err


@pytest.mark.parametrize("words", [("grad",), ("batch", CAUSAL), ("jvp", CAUSAL, "--format", "svg")])
def test_a_command_line_that_is_none(words: tuple[str, ...], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as problem:
        main(list(words))
    assert problem.value.code == 2
    assert "usage: ix" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["grad", "jvp", "batch"])
def test_help_says_what_is_taken_and_given(command: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as problem:
        main([command, "--help"])
    assert problem.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    words = {
        "grad": ("d_OUT", "d_X for every X of --by"),
        "jvp": ("dot_X", "dot_OUT"),
        "batch": ("shared by the whole",),
    }
    assert all(word in shown for word in words[command])
    assert f"example: ix {command}" in shown


def test_a_plan_says_what_keeping_the_weights_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "back.ix"
    assert main(["grad", CAUSAL, "-o", str(path)]) == 0
    plan = ["plan", str(path), "--sizes", "b=1,h=2,i=64,j=64,d=8,e=8"]
    assert main(plan) == 0
    assert "`recompute=False` keeps all of it" in capsys.readouterr().out
    assert main([*plan, "--keep"]) == 0
    assert "never built" not in capsys.readouterr().out
