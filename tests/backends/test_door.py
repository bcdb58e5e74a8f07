"""The printer of kernels is reached by its door alone."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "indexical"
# The printer itself, facts about libraries and about calls, the notes it leaves; and texts of kernels, which emitted
# source calls.
DOORS = {"former", "base", "lowering", "settled", "kernels"}


def test_other_rooms_import_nothing_but_the_door() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if "backends" in path.relative_to(PACKAGE).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            if "backends" in module:
                rest = module[module.index("backends") + 1 :]
                found |= {rest[0]} if rest else {alias.name for alias in node.names}  # type: ignore[attr-defined]
    assert found <= DOORS
