"""Options: which one was meant, colours, values, folders, and libraries that are not installed."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexical as ix
from indexical.cli import main
from indexical.cli.parser import Parser, build_parser
from indexical.cli.words import in_colour
from indexical.run.samples import random_arrays

SCALED = "input x[i], tau, n: i64, flipped: bool;\nlet y[i] = (if flipped { -x[i] } else { x[i] }) * tau + n;\n"


def parsers() -> dict[str, Parser]:
    parser = build_parser()
    assert isinstance(parser, Parser)
    assert parser.commands is not None
    return parser.commands


COMMANDS = parsers()


@given(st.data())
def test_an_unknown_option_is_answered_with_one_of_the_command(data: st.DataObject) -> None:
    """A misspelt option, and one of another command: never itself, and what is suggested exists."""
    command = data.draw(st.sampled_from(sorted(COMMANDS)))
    own = set(COMMANDS[command]._option_string_actions)
    foreign = {name for parser in COMMANDS.values() for name in parser._option_string_actions}
    name = data.draw(st.sampled_from(sorted(foreign)).map(lambda name: name.removeprefix("-").removeprefix("-")))
    at = data.draw(st.integers(0, len(name) - 1))
    misspelt = data.draw(
        st.sampled_from(["--" + name, f"--{name[:at]}{name[at + 1 :]}q", f"--{name[:at]}z{name[at:]}"])
    )
    if any(option.startswith(misspelt) for option in own):
        return
    said = COMMANDS[command].refusal(misspelt)
    meant = re.search(r"did you mean `(--?[\w-]+)", said)
    assert said.startswith(f"there is no option {misspelt}")
    assert meant is None or (meant[1] in own and meant[1] != misspelt)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "FILE", "--stric"], None),
        (["check", "--strcit", "FILE"], "no option --strcit; did you mean `--strict`?"),
        (["fmt", "FILE", "--strict"], "no option --strict; `ix fmt --help`"),
        (["show", "--ouput", "x.html", "FILE"], "no option --ouput; did you mean `--output`?"),
        (["run", "FILE", "--json"], "no option --json; did you mean `--format json`?"),
        (["trace", "FILE", "--outputs=y"], "no option --outputs; did you mean `--inputs`?"),
        (["--strict", "check", "FILE"], "no option --strict before the command"),
        (["emit", "FILE", "-x"], "no option -x;"),
        (["chek", "FILE"], "did you mean `check`?"),
    ],
)
def test_which_option_was_meant(
    tmp_path: Path, arguments: list[str], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.ix"
    file.write_text(SCALED)
    words = [str(file) if word == "FILE" else word for word in arguments]
    if said is None:
        assert main(words) == 0
        return
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


class Terminal:
    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("color", ["auto", "always", "never"])
@pytest.mark.parametrize("no_color", [None, "", "1"])
@pytest.mark.parametrize("force", [None, "", "0", "1"])
@pytest.mark.parametrize("term", [None, "dumb", "xterm"])
def test_colour(
    terminal: bool, color: str, no_color: str | None, force: str | None, term: str | None, monkeypatch: Any
) -> None:
    for name, value in (("NO_COLOR", no_color), ("FORCE_COLOR", force), ("TERM", term)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    found = in_colour(Terminal(terminal), Namespace(color=color))  # type: ignore[arg-type]
    if color != "auto":
        assert found == (color == "always")
    elif no_color:
        assert not found
    else:
        assert found == (force == "1" or (terminal and term != "dumb"))


def test_colours_of_each_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.ix"
    broken.write_text("let a = b;\n")
    assert main(["check", str(broken), "--color", "always"]) == 1
    assert "\x1b[" in capsys.readouterr().err
    assert main(["explain", "IX201", "--color", "always"]) == 0
    assert "\x1b[" in capsys.readouterr().out
    assert main(["check", str(broken)]) == 1
    assert "\x1b[" not in capsys.readouterr().err


def test_values_and_drawn_scalars(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `--random` says it drew gives the same numbers as `--value`."""
    file, first, second = tmp_path / "a.ix", tmp_path / "first.npy", tmp_path / "second.npy"
    file.write_text(SCALED)
    assert main(["run", str(file), "--random", "i=4", "--seed", "3", "--save", str(first)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ix: scalars drawn: tau=")
    scalars = line.removeprefix("ix: scalars drawn: ").split(", ")
    assert [scalar.partition("=")[0] for scalar in scalars] == ["tau", "n", "flipped"]
    drawn, _ = random_arrays(ix.compile(SCALED).ir, {}, {"i": 4}, 3)
    values = [f"x={drawn.arrays['x'].tolist()}", *scalars]
    given = [word for value in values for word in ("--value", value)]
    assert main(["run", str(file), *given, "--save", str(second)]) == 0
    assert np.array_equal(np.load(first), np.load(second))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("tau", "figures look like"),
        ("tau=1e999", "larger than any float"),
        ('tau="a"', "is no number"),
        ("tau=" + "[" * 9999, "too deep"),
    ],
    ids=["no number", "large", "word", "deep"],
)
def test_values_that_are_none(tmp_path: Path, value: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.ix"
    file.write_text(SCALED)
    assert main(["run", str(file), "--random", "--value", value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_layout_of_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "rough.ix").write_bytes(b"let  a=1;\r\nlet bc = 2;\r\n")
    (tmp_path / "other.py").write_text("import indexical\n")
    (tmp_path / "broken.ix").write_text("let a = ;\n")
    (tmp_path / "rough.ix").write_text("let  a=1;\n")
    assert main(["fmt", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.count("changed") == 2
    assert "broken.ix" in said
    assert (inner / "rough.ix").read_bytes() == b"let a  = 1;\r\nlet bc = 2;\r\n"
    assert (tmp_path / "other.py").read_text() == "import indexical\n"
    assert main(["fmt", str(tmp_path / "rough.ix"), str(tmp_path / "other.py")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("other.py is no program: `ix fmt` lays out .ix files, and folders of them")


def npy(shape: str, body: bytes = b"") -> bytes:
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body


@pytest.mark.parametrize(
    "content",
    [
        npy("(2000000, 4000000)"),
        npy("(-1, 3)"),
        npy("(3, 3)", b"12345678"),
        npy("(" * 100),
        b"",
        b"text",
        b"PK\x03\x04",
    ],
    ids=["58 TiB", "negative", "cut off", "nested", "empty", "text", "no archive"],
)
def test_arrays_that_cannot_be_loaded(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    file, array = tmp_path / "a.ix", tmp_path / "x.npy"
    file.write_text(SCALED)
    array.write_bytes(content)
    assert main(["run", str(file), "--random", "--input", f"x={array}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ix: {array} cannot be loaded: ")


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jax", "triton", "transformers", "safetensors", "gguf", "pygls"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import indexical as ix
from indexical.cli import main
file, weights = sys.argv[1:]
for words in ("run --random --backend torch", "run --random --backend jax", "accuracy --random --backend torch",
              "emit --memory 1GiB"):
    assert main([*words.split(), file]) == 1, words
assert main(["lsp"]) == 2
for words in ("generate FOLDER hello", "embed FOLDER hello", "perplexity FOLDER hello"):
    assert main([weights if word == "FOLDER" else word for word in words.split()]) == 1, words
for use in (lambda: ix.nn.Module, lambda: ix.watch, lambda: ix.read(len, [1.0]), lambda: ix.models.load(weights)):
    try:
        use()
    except ix.Error as problem:
        print(problem, file=sys.stderr)
"""


def test_libraries_that_are_not_installed(tmp_path: Path) -> None:
    file, weights = tmp_path / "a.ix", tmp_path / "weights"
    file.write_text(SCALED)
    weights.mkdir()
    (weights / "config.json").write_text('{"model_type": "llama"}')
    found = subprocess.run([sys.executable, "-c", BLOCKED, file, weights], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert len(re.findall(r"pip install '?indexical\[\w+\]", found.stderr)) == 12
    assert "ModuleNotFoundError" not in found.stderr


def texts(count: int) -> dict[str, str]:
    numbers = range(count)
    return {
        "names": "input x[i];\n" + "".join(f"let a{n}[i] = x[i] + unknown_{n};\n" for n in numbers),
        "coordinates": "input x[i];\n" + "".join(f"let a{n}[i] = x[i] + x[point_{n}];\n" for n in numbers),
        "functions": "input x[i];\n" + "".join(f"let a{n}[i] = fun_{n}(x[i]);\n" for n in numbers),
        "one line": "input x[i];" + "".join(f"let a{n}[i] = x[i] + unknown_{n};" for n in numbers),
        "inputs": "".join(f"input x{n}[i];\nlet y{n}[i] = x{n}[i];\n" for n in numbers),
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", texts(0))
def test_time_grows_with_the_text(kind: str) -> None:
    """Four times the text takes some four times as long, and not sixteen."""

    def seconds(count: int) -> float:
        text = texts(count)[kind]
        started = time.process_time()
        for finding in ix.check(text):
            str(finding)
        return time.process_time() - started

    seconds(10)
    assert seconds(1200) < 9 * max(seconds(300), 0.05)


def test_unknown_inputs_of_a_call_are_listed_briefly() -> None:
    program = ix.compile("".join(f"input x{n};\n" for n in range(800)) + "let y = x0;\n")
    with pytest.raises(ix.CallError) as found:
        program(**{f"unknown_{n}": 1.0 for n in range(800)})
    assert len(found.value.diagnostics) == 1600
    assert len(str(found.value)) < 600 * 1600
