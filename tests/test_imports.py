"""What an import costs: NumPy, and little beyond it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import indexical

# What `import indexical` may take from the standard library beyond what NumPy has already loaded, each with what it
# brings along. A name that is added here is paid for by everyone who imports the package.
ALLOWED = {
    *("bisect", "copy", "dataclasses", "difflib", "heapq", "importlib", "unicodedata"),
    *("fractions", "decimal"),
    *("pathlib", "errno", "fnmatch", "glob", "ipaddress", "ntpath", "urllib"),
}

# Doors to the outside: each is opened by the person who wants it, never by `import indexical`.
DOORS = {
    "indexical.cli",
    "indexical.nn",
    "indexical.notebook",
    "indexical.server",
    "indexical.watching",
    "indexical.web",
}

# An isolated interpreter has no PYTHONPATH: the copy that is tested is named.
HOME = f"import sys; sys.path.insert(0, {str(Path(indexical.__file__).parents[1])!r})"
BEFORE = f"{HOME}; import numpy; before = set(sys.modules)"
AFTER = "print(*sorted(set(sys.modules) - before))"
EVERY_ROOM = """
import importlib, pkgutil
import indexical
for room in pkgutil.walk_packages(indexical.__path__, "indexical."):
    extra = room.name in ("indexical.nn", "indexical.watching.models", "indexical.watching.capture")
    extra = extra or room.name in ("indexical.lexer", "indexical.server.actions")
    extra = extra or room.name in ("indexical.server.convert", "indexical.server.protocol")
    extra = extra or ".kernels.torch_" in room.name or ".kernels.triton_" in room.name
    extra = extra or room.name == "indexical.pytest_plugin"
    parts = ("calling", "pieces", "rings", "running", "states", "totals")
    extra = extra or room.name in [f"indexical.sharding.{part}" for part in parts]
    if not extra and not room.name.endswith(".__main__"):
        importlib.import_module(room.name)
"""


def modules_added(statements: str) -> list[str]:
    """The modules that the statements load into a fresh interpreter in which NumPy is loaded."""
    program = "\n".join([BEFORE, statements, AFTER])
    result = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def foreign(modules: list[str]) -> list[str]:
    """The modules that are neither ours, nor NumPy's, nor the standard library's."""
    at_home = {*sys.stdlib_module_names, "numpy", "indexical"}
    return [name for name in modules if name.partition(".")[0] not in at_home]


def test_import_loads_nothing_foreign() -> None:
    added = modules_added("import indexical")
    assert {"torch", "jax"}.isdisjoint(added)
    assert foreign(added) == []


def test_import_loads_little() -> None:
    added = modules_added("import indexical")
    packages = {name.partition(".")[0] for name in added} - {"indexical", "numpy"}
    surplus = sorted(name for name in packages - ALLOWED if not name.startswith("_"))
    assert surplus == []
    assert DOORS.isdisjoint(added)


def test_every_room_but_those_of_torch_loads_without_its_extra() -> None:
    assert foreign(modules_added(EVERY_ROOM)) == []


# ------------------------------------------------------------------------------------- what a task needs

ATTENTION = """
space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e];
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
attention out(query i, key j, compare d, carry e, causal);
"""
# What each task has to do without: whole rooms, and modules of others.
TASKS = {
    "ix --version": ("checker", "syntax", "ir", "facts", "plan", "backends", "numbers", "api"),
    "ix --help": ("checker", "syntax", "ir", "facts", "plan", "backends", "numbers", "api"),
    "ix fmt --check FILE": ("checker", "ir.nodes", "facts", "transform", "plan", "backends", "numbers", "api"),
    "ix check FILE": ("transform", "plan", "backends", "numbers", "readings", "run.bind", "run.reference"),
    "compile FILE": ("transform", "plan", "backends", "numbers", "readings", "cli", "run.bind", "run.reference"),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_loads_what_it_needs(task: str, tmp_path: Path) -> None:
    file = tmp_path / "attention.ix"
    file.write_text(ATTENTION.lstrip("\n"), encoding="utf-8")
    program, *words = task.replace("FILE", str(file)).split()
    if program == "ix":
        statement = f"from indexical.cli import main\ntry: main({words!r})\nexcept SystemExit: pass"
    else:
        statement = f"import indexical; indexical.compile({words[0]!r})"
    program = "\n".join([HOME, statement, "print(*sorted(sys.modules))"])
    result = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, encoding="utf-8", check=True)
    loaded = result.stdout.splitlines()[-1].split()
    ours = [name for name in loaded if name.partition(".")[0] == "indexical"]
    assert "numpy" not in loaded
    assert not [name for name in ours if name.removeprefix("indexical.").startswith(TASKS[task])]
    assert len(ours) > 3
