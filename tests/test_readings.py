"""The exact readings from Python: every example, every page, and what they refuse."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.readings import StepList, TraceSheet

ROOT = Path(__file__).resolve().parent.parent
SMALL = "causal_attention convolution fibonacci sliding_window smith_waterman documents alibi".split()
GIVEN = {"b": 1, "h": 1, "i": 3, "j": 3, "d": 2, "e": 2, "c": 1, "y": 3, "x": 3, "o": 1, "g": 1, "m": 2, "n": 2}


def arrays(program: ix.Program) -> dict[str, Any]:
    """Small whole numbers for every input."""
    found: dict[str, Any] = {}
    for tensor in program.ir.inputs:
        shape = tuple(GIVEN.get(axis.coordinate.name, 3) for axis in tensor.axes)
        cells = (np.arange(int(np.prod(shape))) * 5 % 3).reshape(shape)
        found[tensor.name] = cells.astype(bool) if tensor.kind == "bool" else cells
    return found


@pytest.mark.parametrize("name", SMALL)
def test_every_reading_of_an_example(name: str) -> None:
    program = ix.compile(ROOT / "examples" / f"{name}.ix")
    given = arrays(program)
    results = ix.exact(program, **given)
    steps = ix.trace(program, **given)
    assert isinstance(steps, StepList)
    assert [step.name for step in steps.steps] == results.shown
    assert str(results)
    assert str(steps)
    assert str(ix.verify(program, **given))
    json.dumps([results.to_json(5), steps.to_json()], allow_nan=False)
    floats = program(**{key: value.astype("f8") if value.dtype.kind == "i" and program.ir.tensors[key].kind == "real"
                        else value for key, value in given.items()}, outputs=list(results))  # fmt: skip
    for key, array in zip(results, floats, strict=True):
        values = results.tensor(key).values()
        assert np.allclose([float(value) for value in values], np.asarray(array, "f8").reshape(-1))


def test_steps_come_in_the_order_of_a_person() -> None:
    steps = ix.trace(ix.compile(ROOT / "examples" / "lessons" / "three_by_two.ix"))
    assert isinstance(steps, StepList)
    assert [(step.number, step.name) for step in steps.steps] == [(1, "weighted"), (2, "out")]
    assert "step 1 of 2: weighted" in str(steps)
    assert "▸ weighted[i, j, e]" in str(steps)


def test_trace_goes_on_to_another_element() -> None:
    sheet = ix.trace(ix.compile(ROOT / "examples" / "lessons" / "three_by_two.ix"), at="out[0, 0]")
    assert isinstance(sheet, TraceSheet)
    assert sheet.value == Fraction(12, 5)
    below = sheet.at("weighted[0, 1, 0]")
    assert below.value == Fraction(9, 10)
    assert "weighted[0, 1, 0] = 0.3·3 = 0.9" in str(below)
    found = sheet.to_json()
    assert found["at"] == "out[0, 0]"
    linked = found["elements"]["out[0, 0]"]["scans"][0]["terms"][0]["factors"][0]["element"]
    assert linked == "weighted[0, 0, 0]"
    assert linked in found["elements"]
    assert found["elements"]["out[0, 0]"]["scans"][0]["sentences"][0].startswith("position 0 gives 50 %")


def test_depth() -> None:
    program = ix.compile(ROOT / "examples" / "lessons" / "three_by_two.ix")
    shown = [str(ix.trace(program, at="out[0, 0]", depth=depth)) for depth in (0, 1, 2)]
    assert "weighted  by" not in shown[0]
    assert "weighted  by" in shown[1]
    assert "V  given" not in shown[1]
    assert "V  given" in shown[2]


@pytest.mark.parametrize(
    "point", ["out[", "out[2]", "out[9, 9]", "nope[0]", "out[-1, 0]", "", "öut[0]", "out[²,0]", "out[,]", "out", "⊥"]
)
def test_points_that_are_none(point: str) -> None:
    program = ix.compile(ROOT / "examples" / "lessons" / "three_by_two.ix")
    with pytest.raises(ix.CallError) as caught:
        ix.trace(program, at=point)
    assert [found.code for found in caught.value.diagnostics] == ["IX515"]
    sheet = ix.trace(program, at="out[0, 0]")
    assert isinstance(sheet, TraceSheet)
    with pytest.raises(ix.CallError):
        sheet.at(point)


@pytest.mark.parametrize(
    "value",
    [[1, float("nan")], [[1], [1, 2]], ["a", "b"], [1j, 2], [True, False], np.array(["1", "x"]),
     "12 monkeys", [None, 1], np.array([1 + 2j, 1]), [[1, 2]], 3, {"a": 1}, object()],
)  # fmt: skip
def test_values_that_are_none(value: Any) -> None:
    program = ix.compile("input x[i]; let y = sum[i](x[i]); expect y == 3;")
    for reading in (ix.exact, ix.trace, ix.verify):
        with pytest.raises(ix.CallError) as caught:
            reading(program, value)
        assert len(caught.value.diagnostics) == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("input x[i]; let y[i] = x[i] where x[i] > 0;", "IX512"),
        ("input x[i]; let y = sum[i](x[i]);", "IX512"),
        ("input x[i], p[k] : i64; let y[k] = x[p[k]];", "IX512"),
        ("input b[i]; let y[i in 0..3] = 1 where b[i];", "IX512"),
        ("input x; let y = if x > 0 { 1 } else { 2 };", "IX512"),
        ("input x[i in 0..2]; let y = max[i](x[i]);", "IX512"),
    ],
)
def test_symbols_that_would_have_to_be_known(text: str, code: str) -> None:
    with pytest.raises(ix.CallError) as caught:
        ix.exact(ix.compile(text))
    assert {found.code for found in caught.value.diagnostics} == {code}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("page", sorted(file.name for file in ROOT.glob("docs/*.md")))
def test_programs_on_pages_have_exact_readings(page: str) -> None:
    """Without inputs they print, or say in one error what is missing."""
    for found in re.finditer(r"```ix[^\n]*\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL):
        with suppress(ix.CompileError, ix.CallError):
            program = ix.compile(found[1])
            assert str(ix.verify(program))
            steps = ix.trace(program)
            assert str(steps)
            assert json.dumps(steps.to_json())


@pytest.mark.parametrize("depth", [-1, "x", 1.5, True])
def test_a_depth_that_is_none(depth: Any) -> None:
    with pytest.raises(ix.CallError, match="IX515"):
        ix.trace("let y = 1;", at="y", depth=depth)


def test_a_point_is_a_text() -> None:
    with pytest.raises(ix.CallError, match="IX515"):
        ix.trace("let y = 1;", at=5)  # type: ignore[arg-type]
