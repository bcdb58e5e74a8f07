"""The former emitter is reached by its door alone."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from indexical.engine.listing import kind_of
from indexical.engine.ops import OPAQUE, Opaque, value

PACKAGE = Path(__file__).parents[2] / "src" / "indexical"
OLD = ("backends", "old")


def test_nothing_but_the_door_imports_the_former_emitter() -> None:
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    found = {file.as_posix() for file in files if file.parts[:2] != OLD and any(_imports_old(file))}
    assert found == {"backends/opaque.py"}


def test_other_rooms_import_the_door_and_texts_of_kernels_alone() -> None:
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    rooms = [module for file in files if file.parts[0] != "backends" for module in _imported(file)]
    assert {module[1] for module in rooms if module[0] == "backends" and module[1:]} == {"opaque", "kernels"}


# Whoever adds a kind here has to say why operations cannot compute it.
ALLOWED = {"attend", "attend_backward", "blocks", "chunks", "scan"}


def test_only_these_kinds_are_opaque() -> None:
    assert set(OPAQUE) == ALLOWED
    for kind in ALLOWED:
        assert kind_of(value(_opaque(kind))) == kind
    with pytest.raises(AssertionError, match="of no kind that the former printer may print"):
        _opaque("norm")


def _opaque(kind: str) -> Opaque:
    return Opaque("y", "kernel", SimpleNamespace(kind=kind), (), (), "real", "f32")


def _imports_old(file: Path) -> list[tuple[str, ...]]:
    return [module for module in _imported(file) if module[:2] == OLD]


def _imported(file: Path) -> list[tuple[str, ...]]:
    """The modules and names of this package that a file imports."""
    found = []
    for node in ast.walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            words = (node.module or "").split(".") if node.module else []
            home = file.parts[: len(file.parts) - node.level] if node.level else ()
            found += [(*home, *words, alias.name) for alias in node.names if node.level]
            found += [(*words[1:], alias.name) for alias in node.names if not node.level and words[0] == "indexical"]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found += [tuple(name[1:]) for name in names if name[0] == "indexical"]
    return found
