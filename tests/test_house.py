"""The house rules: style, types, the order of the layers, and one test command written in two places."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from functools import cache
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


# From nothing, types take longer than all else here.
SLOW = {"types": pytest.mark.sampled(0)}


@pytest.mark.parametrize("check", [pytest.param(check, marks=SLOW.get(check, ())) for check in CHECKS])
def test_check_finds_nothing(check: str) -> None:
    plain = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}
    result = subprocess.run(CHECKS[check], cwd=ROOT, env=plain, capture_output=True, encoding="utf-8")
    if result.returncode != 0:
        pytest.fail(f"{check}: exit status {result.returncode}\n{result.stdout}{result.stderr}", pytrace=False)


def test_modules_of_the_backends_import_one_way() -> None:
    """What computes one kind of node reaches the others through the table of rules, not by importing in circles."""
    room = ROOT / "src" / "indexical" / "backends" / "old"
    above: dict[str, set[str]] = {}
    for path in room.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if is_from_the_same_room(node)]
        above[path.stem] = {node.module or alias.name for node in imports for alias in node.names}
    TopologicalSorter(above).prepare()  # Raises for a circle, and names it.


def is_from_the_same_room(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    return isinstance(node, ast.ImportFrom) and node.level == 1


@cache
def trees(folder: str) -> dict[Path, ast.Module]:
    """The files of a folder, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / folder).rglob("*.py"))}


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_importing_a_test_changes_no_other_module(folder: str) -> None:
    """All tests are collected in one process: what one of them sets in a module at its import, all others meet."""
    found = []
    for path, tree in trees(folder).items():
        targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
        found += [f"{path.relative_to(ROOT)}:{at.lineno}" for at in targets if isinstance(at, ast.Attribute)]
    assert not found


def test_readme_gives_the_command_that_ci_runs() -> None:
    """And CI then runs all that this leaves out."""
    quick, rest = lines_with_pytest(ROOT / ".ci" / "run")
    assert lines_with_pytest(ROOT / "README.md") == [quick]
    assert rest == "python -m pytest -n 2 --part=rest"
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


# ------------------------------------------------------------------------------- the parts of the suite


def test_no_law_names_a_number_of_examples() -> None:
    """A profile that draws more draws more of every law: `tests.profiles.examples` takes a factor."""
    found = []
    for path, tree in trees("tests").items():
        words = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "max_examples"]
        found += [f"{path.relative_to(ROOT)}:{word.lineno}" for word in words]
    assert {place.partition(":")[0] for place in found} == {"tests/profiles.py"}, found


def test_the_two_parts_are_all_that_is_collected() -> None:
    """Of a file that has laws, tests with cases, some of them sampled, and tests without."""
    quick, rest, whole = (collected(part) for part in ("quick", "rest", "all"))
    assert quick | rest == whole
    assert quick < whole
    assert rest < whole
    both = {case.partition("[")[0] for case in quick & rest}
    assert both, "laws are drawn in both"
    for case in both:
        path, _, name = case.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"@given\([^@]*def {name}\(", text), f"{case} is in both parts, and no law"


def collected(part: str) -> set[str]:
    words = ["--collect-only", "-q", f"--part={part}", "tests/numbers/test_enclosure.py"]
    command = [sys.executable, "-m", "pytest", *words]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    return {line for line in result.stdout.splitlines() if "::" in line}


def test_no_test_asks_for_the_profile() -> None:
    """A profile, or the environment, says how many examples are drawn, and never which tests there are."""
    found = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_house.py"]
    assert [path for path in found if "HYPOTHESIS_PROFILE" in path.read_text(encoding="utf-8")] == []
