"""The library's own files: silent, canonical, each function with its comment and its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import indexical as ix
from indexical.cli import main
from indexical.std.library import DEFAULTS, entries

FILES = sorted((Path(ix.__file__).parent / "std").glob("*.ix"))
MODULES = "attention convolution layers losses masks norms positions recurrence softmax".split()


def test_modules() -> None:
    assert [file.stem for file in FILES] == MODULES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_silent(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--strict", str(file)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_canonical(file: Path) -> None:
    assert main(["fmt", "--check", str(file)]) == 0


def test_names_are_unique_across_modules() -> None:
    names = [name for file in FILES for name in re.findall(r"^fn (\w+)", file.read_text("utf-8"), re.MULTILINE)]
    assert sorted(names) == sorted(entries())
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", entries())
def test_function_says_what_is_true_then_the_edge_case(name: str) -> None:
    lines = entries()[name].doc.splitlines()
    assert len(lines) >= 2
    assert all(len(line) <= 117 for line in lines)
    assert lines[-1].endswith(".")


@pytest.mark.parametrize("name", entries())
def test_function_compiles_silently_from_its_face(name: str) -> None:
    """The smallest program around each function has no warning either; a note may say what a guard leaves out."""
    entry = entries()[name]
    declared = ", ".join(p.span.text for p in entry.fn.parameters)
    given = ", ".join(p.name for p in entry.fn.parameters)
    text = f"use std::{entry.module}::{{{name}}};\ninput {declared};\nlet result = {name}({given});\n"
    assert [str(found) for found in ix.compile(text).diagnostics if found.severity != "note"] == []


def test_every_function_is_tested() -> None:
    tests = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    untested = [name for name in entries() if f"ix.std.{name}(" not in tests and f"ix.std.{name})" not in tests]
    assert untested == []


def test_every_default_is_used() -> None:
    parameters = {p.name for entry in entries().values() for p in entry.fn.parameters if p.slots is None}
    assert set(DEFAULTS) <= parameters
