"""The commands around programs: codes explained, findings in every format, folders, watching, completion."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import indexical as ix
from indexical.cli import checking, main
from indexical.codes import CODES, page_file, page_of

ROOT = Path(__file__).resolve().parent.parent
WRONG = """\
input Q[i, d], K[j, d], V[j, e];
let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
let out[i, e] = sum[j](w[i, j] * V[j, e]) ÷ 2;
let more[i] = W[i, 0]; // 100%, one: two
"""
PYTHON = '''import indexical as ix
@ix.program
def double(x: "i"):
    """
    let y[i] = 2 × X[i];
    """
text = ix.compile("input x[i]; let y[i] = x[i] \\u00d7 2;")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.ix").write_text(WRONG, encoding="utf-8")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        status = main(words)
    except SystemExit as stop:
        status = int(stop.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


# ----------------------------------------------------------------------------------------- explain


@pytest.mark.parametrize("word", ["IX403", "ix403", "403", "Ix403"])
def test_the_page_of_a_code(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = printed(capsys, "explain", word)
    assert status == 0
    assert out.startswith("IX403: a value that is not read at the key\n\n    input Q[i, d]")
    assert "\nThe mend\n" in out
    assert "```" not in out
    assert ".md)" not in out
    assert "`V[i, e]` is the same for every `j`" in out


def test_all_codes_are_listed_and_have_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(printed(capsys, "explain")[1].splitlines()) == len(CODES)
    entries = json.loads(printed(capsys, "explain", "--format", "json")[1])
    assert [entry["code"] for entry in entries] == list(CODES)
    assert all(entry["page"].startswith(f"# {entry['code']}: {entry['title']}\n") for entry in entries)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert shipped == {"docs/codes": "indexical/explained", "examples/models": "indexical/models/programs"}
    assert page_of("IX101") == page_file("IX101").as_uri()


def test_an_unknown_code_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "explain", "IX4033")[::2] == (
        2,
        "ix: there is no code IX4033; did you mean IX433, IX403, IX603?\n",
    )
    assert printed(capsys, "explain", "attention")[::2] == (
        2,
        "ix: there is no code attention; `ix explain` lists all\n",
    )


# ----------------------------------------------------------------------------------------- formats


def test_findings_as_json_link_to_their_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = printed(capsys, "check", "wrong.ix", "--format", "json")
    found = json.loads(out)
    assert (status, err, [each["code"] for each in found]) == (1, "", ["IX103", "IX201"])
    assert all(each["url"] == page_of(each["code"]) for each in found)


def test_findings_as_sarif(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = printed(capsys, "check", "wrong.ix", "--format", "sarif")
    (run,) = json.loads(out)["runs"]
    assert status == 1
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["IX103", "IX201"]
    assert run["tool"]["driver"]["rules"][0]["help"]["markdown"].startswith("# IX103")
    first = run["results"][0]
    assert first["level"] == "error"
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "wrong.ix"}
    assert place["region"] == {"startLine": 3, "startColumn": 43, "endLine": 3, "endColumn": 44}
    (change,) = first["fixes"][0]["artifactChanges"]
    assert change["replacements"][0]["insertedContent"] == {"text": "/"}


def test_findings_as_remarks_on_github(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = printed(capsys, "check", "wrong.ix", "--format", "github")
    first, second = out.splitlines()
    assert first.startswith(
        "::error file=wrong.ix,line=3,endLine=3,title=IX103%3A a character that means nothing here,"
    )
    assert first.endswith("col=43,endColumn=44::`÷` means nothing here%0Awrite `/`")
    assert "line=4" in second
    assert "::nothing defines `W`%0A" in second


def test_silence_is_an_empty_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fine.ix").write_text("let y = 1;\n")
    assert printed(capsys, "check", "fine.ix", "--format", "github") == (0, "", "")
    assert json.loads(printed(capsys, "check", "fine.ix", "--format", "sarif")[1])["runs"][0]["results"] == []
    assert printed(capsys, "check", "fine.ix", "--format", "json") == (0, "[]\n", "")


# ------------------------------------------------------------------------------- files and folders


def test_python_files_and_pages_are_checked_and_mended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(PYTHON, encoding="utf-8")
    page = "# One\n\n```ix\nlet y = 2 × 3;\n```\n\n```python\nlet z = 2 × 3;\n```\n\n```ix other.ix\n```\n"
    (folder / "page.md").write_text(page, encoding="utf-8")
    _, _, err = printed(capsys, "check", "model.py", "page.md")
    assert [line.split()[-1] for line in err.splitlines() if "-->" in line] == [
        "model.py:5:18",
        "model.py:7:48",
        "page.md:4:11",
    ]
    status, out, _ = printed(capsys, "check", "--diff", "model.py", "page.md")
    assert status == 1
    assert "-    let y[i] = 2 × X[i];\n+    let y[i] = 2 * x[i];\n" in out
    assert "-let y = 2 × 3;\n+let y = 2 * 3;" in out
    assert (folder / "model.py").read_text(encoding="utf-8") == PYTHON
    # An escape is no place for a mend: it is left.
    assert printed(capsys, "check", "--fix", "model.py", "page.md")[0] == 1
    assert (folder / "model.py").read_text(encoding="utf-8") == PYTHON.replace("2 × X[i]", "2 * x[i]")
    assert (folder / "page.md").read_text(encoding="utf-8") == page.replace("×", "*", 1)


def test_a_diff_of_what_is_well_is_empty(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "fine.ix").write_text("let y = 1;\n")
    assert printed(capsys, "check", "--diff", "fine.ix") == (0, "", "")
    (folder / "warned.ix").write_text("input x[i];\nlet y[i] = x[i] as float32;\n")
    assert printed(capsys, "check", "--diff", "warned.ix")[0] == 1


def test_folders_are_walked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("inner/a.ix", ".hidden/b.ix", "env/c.ix", "inner/d.py", "inner/e.py", "notes.txt"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("import indexical as ix\n" if name.endswith("d.py") else "let y = 1;\n")
    (folder / "env" / "pyvenv.cfg").touch()
    assert list(checking.files_in(["."])) == ["./wrong.ix", "./inner/a.ix", "./inner/d.py"]
    assert printed(capsys, "check", "inner") == (0, "", "")


def test_what_is_not_python_is_said_at_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "half.py").write_text("import indexical\ndef f(:\n")
    status, _, err = printed(capsys, "check", "half.py")
    assert status == 1
    assert "half.py:2:7" in err


def test_watching_checks_again(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pause is one change of a file, by whoever edits it; the last one is Ctrl-C."""
    texts = iter(["let y = 1;\n", "let y = 1;\n", None])

    def pause(_: float) -> None:
        text = next(texts)
        if text is None:
            raise KeyboardInterrupt
        if (folder / "wrong.ix").read_text(encoding="utf-8") != text:
            (folder / "wrong.ix").write_text(text)

    monkeypatch.setattr(time, "sleep", pause)
    status, _, err = printed(capsys, "check", "--watch", "wrong.ix")
    assert status == 0
    assert [line.split(" ", 1)[1] for line in err.splitlines() if " checked " in line] == [
        "checked 1 file: found something",
        "checked 1 file: all is well",
    ]
    assert printed(capsys, "check", "--watch", "-")[0] == 2


# -------------------------------------------------------------------------------------- suggestions


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["chek", "wrong.ix"], "did you mean `check`?"),
        (["check", "wrong.ix", "--strct"], "did you mean `--strict`?"),
        (["plan", "wrong.ix", "--backend", "torhc"], "did you mean `torch`?"),
        (["check", "wrng.ix"], "did you mean `wrong.ix`?"),
        (["run", "lengths.ix", "--input", "x=aray.npy"], "did you mean `array.npy`?"),
        (["run", "lengths.ix", "--input", "xs=arrays.npz"], "did you mean `x`?"),
        (["run", "lengths.ix", "--random", "rwo=2"], "did you mean `row`?"),
        (["run", "lengths.ix", "--random", "row=2", "--outputs", "lenght"], "did you mean `length`?"),
        (["plan", "lengths.ix", "--sizes", "rows=3"], "did you mean `row`?"),
        (["exact", "lengths.ix", "--value", "X=[[1]]"], "did you mean `x`?"),
        (["trace", "lengths.ix", "--at", "lengt[0]"], "did you mean `length`?"),
        (["grad", "lengths.ix", "--by", "X"], "did you mean `x`?"),
        (["batch", "lengths.ix", "--over", "b=X"], "did you mean `x`?"),
        (["show", "lengts.ix", "-o", "page.html"], "did you mean `lengths.ix`?"),
    ],
)
def test_names_that_are_not_there_are_suggested(
    words: list[str], meant: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    (folder / "lengths.ix").write_text("input x[row, d];\nlet length[row] = sqrt(sum[d](x[row, d] ** 2));\n")
    np.save(folder / "array.npy", np.ones((2, 2)))
    np.savez(folder / "arrays.npz", x=np.ones((2, 2)))
    status, _, err = printed(capsys, *words)
    assert status in (1, 2)
    assert meant in err


def test_a_file_is_not_suggested_for_its_ending(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean" not in printed(capsys, "check", "nope.ix")[2]


def test_a_folder_without_programs_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "inner").mkdir()
    status, out, err = printed(capsys, "check", "inner")
    assert (status, out) == (0, "")
    assert "nothing to check" in err


MISSPELT: dict[str, Callable[[], object]] = {
    "did you mean `softmax`?": lambda: ix.compile("input x[row]; let y[row] = sofmax[row](x[row]);"),
    "did you mean `sum`?": lambda: ix.compile("input x[row]; let y = summ[row](x[row]);"),
    "did you mean `sqrt`?": lambda: ix.compile("input x[row]; let y[row] = sqr(x[row]);"),
    "did you mean `column`?": lambda: ix.compile("input x[row, column]; let y[row] = sum[colum](x[row, column]);"),
    "did you mean `rows`?": lambda: ix.compile("input x[rows]; let y[rows] = x[rows] / size(row);"),
    "did you mean `lengths`?": lambda: PROGRAM.facts["length"],
    "did you mean `outputs`?": lambda: PROGRAM([[1.0]], output="lengths"),
    "did you mean `reference`?": lambda: PROGRAM([[1.0]], backend="referenc"),
    "did you mean `total`?": lambda: PROGRAM.cost()["totl"],
    "did you mean `tot`?": lambda: ix.exact("let tot = 1;")["tott"],
    "did you mean `d1`?": lambda: PROGRAM.cost(dd1=3),
    "`row` is a coordinate": lambda: PROGRAM.plan(row=3),
    "did you mean `row`?": lambda: ix.show(PROGRAM, [[1.0]], labels={"rwo": ["a"]}),
}
PROGRAM = ix.compile(
    "input x[row, d1]; let lengths[row] = sqrt(sum[d1](x[row, d1] ** 2)); let total = sum[row](lengths[row]);"
)


@pytest.mark.parametrize("meant", MISSPELT)
def test_names_in_python_and_in_programs_are_suggested(meant: str) -> None:
    with pytest.raises(ix.Error) as caught:
        MISSPELT[meant]()
    assert meant in str(caught.value)


def test_what_is_no_reduction_is_no_misspelt_one() -> None:
    assert [found.code for found in ix.check("input x[i]; let y[i] = x[i](2);")] == ["IX101"]


# --------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ix che", ["check"]),
        ("ix check --wa", ["--watch"]),
        ("ix check --format gi", ["github"]),
        ("ix explain IX40", ["IX402", "IX403", "IX404", "IX405", "IX406", "IX407", "IX408", "IX409"]),
        ("ix completion ", ["bash", "zsh", "fish"]),
        ("ix check wr", ["wrong.ix"]),
        ("ix run --backend ref", ["reference"]),
    ],
)
def test_bash_completes(line: str, expected: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    script = printed(capsys, "completion", "bash")[1]
    words = line.split(" ")
    asked = (
        f'COMP_WORDS=({" ".join(words[:-1])} "{words[-1]}"); COMP_CWORD={len(words) - 1}; _ix; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run([bash, "--norc", "-c", f"{script}\n{asked}"], capture_output=True, encoding="utf-8")
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, script, _ = printed(capsys, "completion", shell)
    assert {"explain", "IX403", "watch", "github"} <= set(
        script.replace("'", " ").replace("--", " ").replace("[", " ").replace("(", " ").replace(")", " ").split()
    )
    found = shutil.which(shell)
    if found is not None:
        done = subprocess.run([found, "-n"], input=script, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "indexical", "explain", "999"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no code 999" in done.stderr


def test_exit_codes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Exits 0 where all is well, 1 where" in " ".join(printed(capsys, "--help")[1].split())
