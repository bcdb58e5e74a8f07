"""The house rules: style, types, the order of the layers, and one test command written in two places."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeGuard

import pytest

import indexical

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(sysconfig.get_path("scripts"))

CHECKS = {
    "style": [sys.executable, "-m", "ruff", "check"],
    "types": [sys.executable, "-m", "mypy"],
    "layers": [str(SCRIPTS / "lint-imports"), "--no-cache", "--no-logo"],
}


# From nothing, types take longer than all else here: CI looks at them in a job of its own.
SLOW = {"types": pytest.mark.long}


@pytest.mark.parametrize("check", [pytest.param(check, marks=SLOW.get(check, ())) for check in CHECKS])
def test_check_finds_nothing(check: str) -> None:
    plain = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    result = subprocess.run(CHECKS[check], cwd=ROOT, env=plain, capture_output=True, encoding="utf-8")
    if result.returncode != 0:
        pytest.fail(f"{check}: exit status {result.returncode}\n{result.stdout}{result.stderr}", pytrace=False)


def test_modules_of_the_backends_import_one_way() -> None:
    """What computes one kind of node reaches the others through the table of rules, not by importing in circles."""
    room = ROOT / "src" / "indexical" / "backends"
    above: dict[str, set[str]] = {}
    for path in room.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if is_from_the_same_room(node)]
        above[path.stem] = {node.module or alias.name for node in imports for alias in node.names}
    TopologicalSorter(above).prepare()  # Raises for a circle, and names it.


def is_from_the_same_room(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom) and node.level == 1


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_importing_a_test_changes_no_other_module(folder: str) -> None:
    """All tests are collected in one process: what one of them sets in a module at its import, all others meet."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
        found += [f"{path.relative_to(ROOT)}:{at.lineno}" for at in targets if isinstance(at, ast.Attribute)]
    assert not found


def test_readme_gives_the_command_that_ci_runs() -> None:
    (command,) = lines_with_pytest(ROOT / ".ci" / "run")
    assert lines_with_pytest(ROOT / "README.md") == [command]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def lines_with_pytest(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if "-m pytest" in line]


def test_constraints_pin_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    strange = [line for line in lines if line and not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)]
    assert strange == []


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert indexical.__version__ == project["version"]
