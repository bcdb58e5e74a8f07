"""Programs written as source: the text means what the Program says, and reads as if a person had written it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.programs import random_case
from tests.views.structure import structure

import indexical as ix
from indexical.diagnostics import Sink
from indexical.run.samples import random_arrays
from indexical.source import Source, Span
from indexical.std.library import entries
from indexical.syntax.format import format_source
from indexical.syntax.parse import parse
from indexical.views.source import written

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted([*(ROOT / "examples").glob("*.ix"), *(ROOT / "examples" / "lessons").glob("*.ix")])
NOWHERE = Span(Source("<test>", ""), 0, 0)

# ------------------------------------------------------------------------ the law


def check_written(program: ix.Program, arrays: Mapping[str, Any] | None = None) -> str:
    """The text of a program compiles to the same program, warns of nothing new, is laid out, and stays as it is."""
    text = written(program.ir)
    again = ix.compile(text)
    assert codes(again) <= codes(program), text
    assert again.outputs == program.outputs, text
    assert [(t.name, t.dtype) for t in again.ir.inputs] == [(t.name, t.dtype) for t in program.ir.inputs], text
    assert structure(again.ir) == structure(program.ir), text
    assert format_source(parse(Source("<text>", text), Sink())) == text
    assert written(again.ir) == text
    if arrays is not None:
        names = [name for name in program.definitions if name in again.definitions]
        assert answer(program, arrays, names) == answer(again, arrays, names), text
    return text


def codes(program: ix.Program) -> set[str]:
    return {found.code for found in program.diagnostics if found.severity == "warning"}


def answer(program: ix.Program, arrays: Mapping[str, Any], names: list[str]) -> list[object]:
    """What a program gives, to the last bit; where it fails, how."""
    try:
        values = program(**arrays, outputs=names, backend="reference")
    except ix.Error as problem:
        return [found.code for found in problem.diagnostics]
    found = [np.asarray(value) for value in (values if len(names) > 1 else [values])]
    return [(value.dtype, value.shape, value.tobytes()) for value in found]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples(file: Path) -> None:
    program = ix.compile(file)
    sample, _ = random_arrays(program.ir, {}, {"h": 4, "g": 2, "d": 4, "t": 3, "y": 5, "x": 6}, 0)
    check_written(program, sample.arrays)


@pytest.mark.parametrize("name", entries())
def test_functions_of_the_library(name: str) -> None:
    entry = entries()[name]
    declared = ", ".join(p.span.text for p in entry.fn.parameters)
    given = ", ".join(p.name for p in entry.fn.parameters)
    check_written(
        ix.compile(f"use std::{entry.module}::{{{name}}};\ninput {declared};\nlet result = {name}({given});\n")
    )


@pytest.mark.parametrize("tens", range(30))
def test_generated_programs(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        case = random_case(seed)
        try:
            program = ix.compile(case.text)
        except ix.Error:
            continue
        check_written(program, case.arrays)
