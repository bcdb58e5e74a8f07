"""Pages that are run: every fenced block of the README, of `docs/` and of `tests/book/`.

A page is run from top to bottom, in an empty folder that has a copy of `examples/`. What a block is called says what is
done with it.

`ix` or `ix NAME.ix`
    A program. It is written to `NAME.ix` (by default `program.ix`) and checked. Directly before an `output` block, it
    prints exactly that when `ix check` reads it; otherwise it has no errors and no warnings.
`console`
    Each line that starts with `$ ix` is run; the lines up to the next one are exactly what it prints, but that `...`
    stands for any text: figures of rounding differ between processors.
`python NAME.py`
    A file with programs in it, which is written and checked as an `ix` block is, and not run.
`python`
    With `>>>`, a doctest, in which `...` stands for any text. Otherwise statements: directly before an `output`
    block they print exactly that, the last lines of an error that was raised included; otherwise they print nothing.
    The blocks of a page share their names.
`output` or `text`
    What the block before it prints.
`sh`
    Commands for a person. Not run, but each also stands in `.ci/run`, or in the README (where the parts that are `ix …`
    are run as well).
`yaml`
    Settings of other tools. Every `ix …` that they run is run, and succeeds; `*` stands for files, `>` leads nowhere.
`ebnf`, `md`, and what other tools read: `bash`, `elisp`, `ipython`, `json`, `lua`, `toml`
    Shown, not run. (`tests/test_notebook_cells.py` runs cells of a notebook.)

`python -m tests.docs.running` runs all pages, or those that are named, and says what differs;
`python -m tests.docs.running --update` writes what is printed now into the pages. Read the difference before it is
committed.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import glob
import io
import itertools
import os
import re
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexical.cli import main

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
CI = ROOT / ".ci" / "run"

RUN = frozenset(("ix", "console", "python"))
PRINTED = frozenset(("output", "text"))
SHOWN = frozenset(("ebnf", "md", "bash", "elisp", "ipython", "json", "lua", "toml"))


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: `count` lines of text, the first of them being line `first` of the page, counted from 1."""

    language: str
    name: str
    text: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a block; where `actual` is not None, putting that in its place would mend it."""

    block: Block
    problem: str
    actual: str | None = None


def pages() -> list[Path]:
    """Every page that is run, each under the root of the repository."""
    return [README, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "tests" / "book").glob("*.md"))]


def title(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page. A fence that is not closed, or is indented, is an error."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = re.fullmatch(r"(\s*)(`{3,})\s*(.*)", lines[number])
        number += 1
        if opening is None:
            continue
        indentation, fence, words = opening.groups()
        if indentation:
            raise ValueError(f"{title(page)}:{number}: a fence starts its line")
        start = number
        while number < len(lines) and lines[number] != fence:
            number += 1
        if number == len(lines):
            raise ValueError(f"{title(page)}:{start}: this block is not closed")
        language, _, name = words.strip().partition(" ")
        found.append(Block(language, name.strip(), "\n".join(lines[start:number]), start + 1, number - start))
        number += 1
    return found


def following(page: Path, found: list[Block]) -> dict[Block, Block]:
    """The block of output that stands directly after each block, with nothing but empty lines between."""
    lines = page.read_text(encoding="utf-8").splitlines()
    result = {}
    for block, after in itertools.pairwise(found):
        between = lines[block.first + block.count : after.first - 2]
        if after.language in PRINTED and not any(line.strip() for line in between):
            result[block] = after
    return result


# ------------------------------------------------------------------------ running


def run(page: Path) -> list[Fault]:
    """Run a page from top to bottom; everything in it that is not as it says."""
    found = blocks(page)
    outputs = following(page, found)
    expected = set(outputs.values())
    faults: list[Fault] = []
    with _folder():
        names: dict[str, Any] = {"__name__": "__main__"}
        for block in found:
            try:
                faults += _run_block(page, block, outputs.get(block), names)
            except Exception:
                faults.append(Fault(block, f"a bug of ours, not of the page:\n{traceback.format_exc()}"))
            if block.language in PRINTED and block not in expected:
                faults.append(Fault(block, "this output does not directly follow what prints it"))
    return faults


def _run_block(page: Path, block: Block, output: Block | None, names: dict[str, Any]) -> list[Fault]:
    match block.language:
        case "ix":
            return _run_program(block, output)
        case "console":
            return _run_console(block)
        case "python" if block.name:
            return _run_program(block, output)
        case "python":
            return _run_python(block, output, names)
        case "yaml":
            return _run_settings(block)
        case "sh":
            return _check_commands(block, page)
        case language if language in PRINTED | SHOWN:
            return []
        case language:
            return [Fault(block, f"nothing is known of blocks called `{language}`")]


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    """An empty folder with the examples in it; terminals are 80 columns wide and have no colours."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(ROOT / "examples", "examples")
        os.environ.update(COLUMNS="80", NO_COLOR="1")
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _run_program(block: Block, output: Block | None) -> list[Fault]:
    name = block.name or "program.ix"
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(block.text + "\n", encoding="utf-8")
    printed, status = command(["check", name])
    if output is not None:
        return _compare(output, printed)
    if status or printed:
        return [Fault(block, f"this program is not clean:\n{printed}")]
    return []


def _run_console(block: Block) -> list[Fault]:
    actual: list[str] = []
    for line in block.text.split("\n"):
        if line.startswith("$ "):
            words = shlex.split(line[2:])
            if words[0] != "ix":
                return [Fault(block, f"only `ix` can be run here: {line}")]
            actual.append(line)
            printed, _ = command(words[1:])
            actual += printed.split("\n") if printed else []
        elif not actual:
            return [Fault(block, "a console block starts with `$ ix …`")]
    return _compare(block, "\n".join(actual))


def command(arguments: list[str]) -> tuple[str, int]:
    """What `ix` prints on both of its streams, without empty lines at the end, and its exit status."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = main(arguments)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
    return printed.getvalue().rstrip("\n"), status


def _run_python(block: Block, output: Block | None, names: dict[str, Any]) -> list[Fault]:
    if any(line.startswith(">>>") for line in block.text.split("\n")):
        return _run_doctest(block, names)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, f"<line {block.first}>", "exec"), names)
    except Exception as problem:
        printed.write("".join(traceback.format_exception_only(problem)))
    text = printed.getvalue().rstrip("\n")
    if output is not None:
        return _compare(output, text)
    return [Fault(block, f"this printed something, or failed:\n{text}")] if text else []


class _Runner(doctest.DocTestRunner):
    """Remembers what each example printed where it differs from what is written."""

    def __init__(self) -> None:
        super().__init__(verbose=False, optionflags=doctest.ELLIPSIS)
        self.got: dict[int, str] = {}

    def report_failure(self, out: Any, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        self.got[example.lineno] = got
        super().report_failure(out, test, example, got)

    def report_unexpected_exception(self, out: Any, test: doctest.DocTest, example: doctest.Example, info: Any) -> None:
        last = "".join(traceback.format_exception_only(info[1]))
        self.got[example.lineno] = f"Traceback (most recent call last):\n  ...\n{last}"
        super().report_unexpected_exception(out, test, example, info)


def _run_doctest(block: Block, names: dict[str, Any]) -> list[Fault]:
    test = doctest.DocTestParser().get_doctest(block.text + "\n", names, "page", "page", block.first)
    runner = _Runner()
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    if not runner.got:
        return []
    lines = block.text.split("\n")
    for example in reversed(test.examples):
        if example.lineno in runner.got:
            start = example.lineno + len(example.source.splitlines())
            end = start + len(example.want.splitlines())
            lines[start:end] = [line or "<BLANKLINE>" for line in runner.got[example.lineno].splitlines()]
    return [Fault(block, "".join(report), "\n".join(lines))]


def _check_commands(block: Block, page: Path) -> list[Fault]:
    known = set(CI.read_text(encoding="utf-8").splitlines())
    if page != README:
        known |= {line for other in blocks(README) if other.language == "sh" for line in other.text.split("\n")}
    faults = []
    for line in filter(None, block.text.split("\n")):
        parts = [part.strip() for part in line.split("&&")]
        ours = [shlex.split(part) for part in parts if part.startswith("ix ")]
        if line not in known and page != README:
            faults.append(Fault(block, f"this command stands neither in the README nor in .ci/run: {line}"))
        faults += [Fault(block, f"this command fails: {line}") for words in ours if command(words[1:])[1]]
    return faults


def _run_settings(block: Block) -> list[Fault]:
    """Run what another tool would: the commands behind `run:`, and those behind `entry:` with every program."""
    faults = []
    for key, line in re.findall(r"(run|entry): (ix [^>\n]*)", block.text):
        words = [*shlex.split(line)[1:], *(["programs/*.ix"] if key == "entry" else [])]
        files = [name for word in words for name in (sorted(glob.glob(word)) if "*" in word else [word])]
        printed, status = command(files)
        if status:
            faults.append(Fault(block, f"this command fails: {line}\n{printed}"))
    return faults


def _compare(block: Block, actual: str) -> list[Fault]:
    differ = doctest.OutputChecker()
    if block.text == actual or differ.check_output(block.text, actual, doctest.ELLIPSIS):
        return []
    example = doctest.Example("", block.text + "\n")
    return [Fault(block, differ.output_difference(example, actual + "\n", doctest.REPORT_NDIFF), actual)]


# ----------------------------------------------------------------------- updating


def update(page: Path, faults: list[Fault]) -> int:
    """Put what is printed now into a page; how many blocks changed."""
    lines = page.read_text(encoding="utf-8").split("\n")
    mended = [fault for fault in faults if fault.actual is not None]
    for fault in sorted(mended, key=lambda fault: -fault.block.first):
        assert fault.actual is not None
        start = fault.block.first - 1
        lines[start : start + fault.block.count] = fault.actual.split("\n") if fault.actual else []
    page.write_text("\n".join(lines), encoding="utf-8")
    return len(mended)


def describe(page: Path, faults: list[Fault]) -> str:
    return "\n".join(f"{title(page)}:{fault.block.first}: {fault.problem}" for fault in faults)


def start(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.docs.running", description="Run the pages.")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    parser.add_argument("--update", action="store_true", help="write what is printed now into the pages")
    options = parser.parse_args(arguments)
    os.environ["IX_CACHE"] = "0"  # as in the tests
    left = 0
    for page in [page.resolve() for page in options.pages] or pages():
        faults = run(page)
        if options.update and (changed := update(page, faults)):
            print(f"{title(page)}: {changed} blocks updated")
            faults = run(page)
        if faults:
            print(describe(page, faults))
        left += len(faults)
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(start())
