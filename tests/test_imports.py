"""What an import costs: NumPy, and little beyond it."""

from __future__ import annotations

import subprocess
import sys

# What `import indexical` may take from the standard library beyond what NumPy has already loaded, each with what it
# brings along. A name that is added here is paid for by everyone who imports the package.
ALLOWED = {
    *("bisect", "copy", "dataclasses", "difflib", "heapq", "importlib", "unicodedata"),
    *("fractions", "decimal"),
    *("pathlib", "errno", "fnmatch", "glob", "ipaddress", "ntpath", "urllib"),
}

# Doors to the outside: each is opened by the person who wants it, never by `import indexical`.
DOORS = {"indexical.cli", "indexical.nn", "indexical.notebook", "indexical.web"}

BEFORE = "import sys, numpy; before = set(sys.modules)"
AFTER = "print(*sorted(set(sys.modules) - before))"
EVERY_ROOM = """
import importlib, pkgutil
import indexical
for room in pkgutil.walk_packages(indexical.__path__, "indexical."):
    if room.name != "indexical.nn" and ".kernels.torch_" not in room.name and not room.name.endswith(".__main__"):
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
    assert "torch" not in added
    assert foreign(added) == []


def test_import_loads_little() -> None:
    added = modules_added("import indexical")
    packages = {name.partition(".")[0] for name in added} - {"indexical", "numpy"}
    surplus = sorted(name for name in packages - ALLOWED if not name.startswith("_"))
    assert surplus == []
    assert DOORS.isdisjoint(added)


def test_every_room_but_those_of_torch_loads_without_its_extra() -> None:
    assert foreign(modules_added(EVERY_ROOM)) == []
