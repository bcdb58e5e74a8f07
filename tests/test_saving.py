"""Files are written whole or stay as they were; what cannot be written is one line."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexical.cli import main
from indexical.saving import as_before, replacing, write_file

ROOT = Path(__file__).resolve().parent.parent
# More than fits below the limit that stands for a full disk.
LONG = "".join(f"let   a{n} = {n};\n" for n in range(1000))
MISSPELT = "input scores[i];\nlet y[i] = scroes[i];\n" + LONG
SMALL = "input x[i], tau;\nlet y[i] = x[i] * tau;\n"


def limited(*arguments: str, most: int = 2048) -> subprocess.CompletedProcess[str]:
    """A command that may write no file larger than `most` bytes."""
    code = f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))"
    code += "; from indexical.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        env={**os.environ, "IX_CACHE": "0"},
        capture_output=True,
        text=True,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fmt", "FILE"], LONG),
        (["check", "--fix", "FILE"], MISSPELT),
        (["run", "OTHER", "--random", "i=900", "--save", "FILE.npy"], "kept"),
        (["run", "OTHER", "--random", "i=900", "--save", "FILE.npz"], "kept"),
        (["show", "OTHER", "--random", "-o", "FILE"], "kept"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, arguments: list[str], text: str) -> None:
    other = tmp_path / "other.ix"
    other.write_text(SMALL)
    file = tmp_path / ("file.ix" + next((word[4:] for word in arguments if word.startswith("FILE.")), ""))
    file.write_text(text)
    places = {"FILE": str(file), "OTHER": str(other)}
    found = limited(*(str(file) if word.startswith("FILE") else places.get(word, word) for word in arguments))
    assert found.returncode == 2
    assert found.stderr.splitlines()[-1] == f"ix: {file} cannot be written: File too large"
    assert "Traceback" not in found.stderr
    assert file.read_text() == text
    assert sorted(tmp_path.iterdir()) == sorted([file, other])


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("missing/out.py", "there is no folder"),
        ("folder", "Is a directory"),
        ("loop", "Too many levels of symbolic links"),
        ("/dev/full", "No space left on device"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    tmp_path: Path, target: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.ix"
    program.write_text(SMALL)
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    assert main(["grad", str(program), "-o", str(tmp_path / target)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ix: {tmp_path / target} cannot be written: ")
    assert reason in line


def test_a_link_is_followed_and_permissions_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to("file")
    write_file(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with replacing(tmp_path / "file") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_an_error_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as found:
        write_file(tmp_path / "missing" / "file", "text")
    assert found.value.filename == str(tmp_path / "missing" / "file")


@given(st.lists(st.text("ab ", max_size=3)), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_line_ends_and_the_mark_are_kept(lines: list[str], end: str, marked: bool) -> None:
    mark = "\ufeff" if marked else ""
    before = mark + "".join(f"{line}{end}" for line in ["first", *lines])
    after = as_before("new\ntext\n", before)
    assert after == f"{mark}new{end}text{end}"


@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["explain", "IX403"], ["fmt", "-"]])
def test_an_output_that_takes_nothing_is_one_line(arguments: list[str]) -> None:
    code = "import sys; from indexical.cli import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-c", code, *arguments], stdout=full, stderr=subprocess.PIPE, input=LONG, text=True
        )
    assert found.returncode == 2
    assert found.stderr == "ix: standard output: No space left on device\n"


@pytest.mark.parametrize("arguments", [["explain"], ["completion", "bash"]])
def test_a_pipe_that_closes_early_is_no_error(arguments: list[str]) -> None:
    code = "import sys; from indexical.cli import main; sys.exit(main())"
    started = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    assert started.stderr.read() == b""
    started.stderr.close()
    assert started.wait() == 0
