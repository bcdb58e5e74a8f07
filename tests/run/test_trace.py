"""Traces against the evaluation that they watch: what they list is what was scanned, read, excluded and added up.

`python -m tests.run.test_trace` rewrites the traces in `tests/golden/` after a change that was meant.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.programs import random_case
from tests.laws.writing import text_of
from tests.run.tracing import check, elements

import indexical as ix
from indexical.readings import TraceSheet
from indexical.run.samples import random_arrays
from indexical.run.trace import Trace
from indexical.std.library import entries

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
LESSONS = sorted((ROOT / "examples" / "lessons").glob("*.ix"))

FIGURES = """let u[i] = [1, 0, -2]; let x[i] = [1, -2, 0.5, 3]; let p[i] = [2, 0, 3, 1];
let s[i, j] = [[1, 2, 0], [0, -1, 1], [2, 2, 1]];"""

# Each by what it is about; every definition of it is traced at every point.
PROGRAMS = {
    "sum": "let y = sum[i](x[i] * x[i]);",
    "excluded": "let y = sum[i](x[i] where x[i] > 0);",
    "max and min": "let y = max[i](x[i]) - min[i](x[i]);",
    "prod": "let y = prod[i](x[i]);",
    "mean": "let y = mean[i](x[i]) + mean[i](x[i] where i > 1);",
    "argmax": "let y = argmax[i](x[i]); let z = x[argmin[i](x[i])];",
    "any and all": "let y = any[i](x[i] < 0); let z = all[i](x[i] < 0); let w = any[i](x[p[i]] > 2 && i > 0);",
    "cumsum": "let y[i] = cumsum[i](x[i]); let z[i] = cumsum[i](x[i] where x[i] > 0);",
    "softmax": "let y[i, j] = softmax[j](s[i, j]) where j <= i; let z[i] = sum[j](y[i, j] * s[j, i]);",
    "log_softmax": "let y[i, j] = log_softmax[j](s[i, j] where j <= i); let z[i] = log_softmax[i](x[i]);",
    "softmax beside": "let y[i, j] = 1 + 2 * softmax[j](s[i, j] where j <= i);",
    "masked row": "let y[i, j] = softmax[j](s[i, j] where j < i); let z[i] = sum[j](y[i, j] * s[i, j]);",
    "guarded": "let y[i, j] = s[i, j] where j <= i; let z[i] = sum[j](y[i, j] * u[j]); let w[i, j] = -y[i, j] / 2;",
    "late guard": "let y[i, j] = softmax[j](s[i, j]) * u[j] where u[i] > 0;",
    "branches": "let y[i] = if x[i] > 0 { sqrt(x[i]) } else { sum[j](s[0, j]) };",
    "short circuit": "let y[i in 0..4] = if i > 0 && x[i - 1] > 0 { x[i - 1] } else { 0 };",
    "shielded": "let y[i in 0..4] = if i == 0 || x[i - 1] > 0 { 1 } else { 2 };",
    "gather": "let y[i] = x[p[i]] - x[p[p[i]]];",
    "one expression": "let y[i] = sum[j](softmax[j](sum[k](s[i, k] * s[j, k]) / sqrt(3) where j <= i) * u[j]);",
    "nested": "let y = sum[i](x[i] * max[j](s[0, j] * x[i]));",
    "dependent range": "let y = sum[i in 0..3, j in 0..=i](s[i, j]); let z[i in 0..3] = sum[j in 0..i](s[i, j]);",
    "nothing": "let y = sum[i in 2..2](x[i]); let z = max[i](x[i] where i > 9); let w = prod[i in 0..0](x[i]);",
    "several clauses": "let f[0] = 0; let f[1] = 1; let f[n in 2..9] = f[n - 1] + f[n - 2];",
    "backward": "let f[3] = 1; let f[t in 0..3] = f[t + 1] / 2 + x[t];",
    "functions": "fn unit(a[k]) -> [k] { let n = sqrt(sum[k](a[k] ** 2)); a[k] / n } let y = unit(x);",
    "elementwise": "let y[i] = exp(x[i]) + tanh(x[i]) - sigmoid(-x[i]) + clamp(x[i], -1, 1) ** 2 + max(x[i], i, 1);",
    "brackets": "let y[i] = (x[i] - 1) / (x[i] / 4 - 3) / (2 * 3) - (1 - (x[i] - 2)) * -x[i];",
    "powers": "let y[i] = (-x[i]) ** 2 - sqrt(x[i] ** 2 + 1) / 2 ** 0.5;",
    "whole": "let y[n in 0..7] = (n + 9) / 2 * 3 - n % 3; let z = sum[n in 0..7](y[n]); let b[n in 0..7] = y[n] > 9;",
    "cast": "let y[i] = (x[i] as i64) as f64 / 3 + (x[i] > 0) as f64;",
    "sums of sums": "let y[i, j] = sum[k](s[i, k] * s[k, j]) - 2; let z = sum[i, j](y[i, j] where i != j) / 7;",
    "shadowed": "let y[j] = sum[i](s[j, i] * u[j]) where j < 3;  // allow(IX105): meant",
    "constants": "let half = 1 / 2.0; let y[i] = half * x[i] * 1e-3;",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_trace_is_what_was_evaluated(name: str) -> None:
    program = ix.compile(f"{FIGURES}\n{PROGRAMS[name]}")
    evaluated = ix.exact(program, outputs=program.definitions).evaluated
    for element in elements(evaluated, 100):
        check(evaluated, element)


@pytest.mark.sampled(0)
def test_traces_of_generated_programs() -> None:
    traced, codes = 0, set()
    for seed in range(120):
        case = random_case(seed)
        program = ix.compile(text_of(case.program))
        arrays = {name: array for name, array in case.arrays.items() if np.asarray(array).size < 40}
        if len(arrays) < len(case.arrays) or not all(np.isfinite(array).all() for array in arrays.values()):
            continue
        if any(let.kind == "real" and len(let.clauses) > 1 for let in program.ir.lets):
            continue  # A recurrence of functions takes long, exactly; there are some by hand.
        try:
            evaluated = ix.exact(program, **arrays).evaluated
            for element in elements(evaluated, 3):
                check(evaluated, element)
                traced += 1
        except ix.Undecided:
            continue
        except ix.CallError as refused:
            codes |= {found.code for found in refused.diagnostics}
    assert traced > 100
    assert codes <= {"IX514"}


def small(arrays: dict[str, Any]) -> dict[str, Any]:
    """Exact numbers in place of drawn ones."""
    choices = (1, 0, "0.5", -1, 2, "1/3")
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype.kind == "f":
            cells = [choices[(7 * at + len(name)) % len(choices)] for at in range(array.size)]
            array = np.array(cells, dtype=object).reshape(array.shape)
        found[name] = array.tolist()
    return found


SCALARS = {"w": 2, "stride": 1, "width": 2, "eps": "0.001", "base": 100, "p": 1, "offset": 1, "n": 4, "h": 1, "cap": 2,
           "temperature": 2, "slope": "0.5", "i": 2, "j": 1, "s": 1, "here": 0, "there": 0, "m": 1, "x": 1, "limit": 8,
           "mix": "0.5"}  # fmt: skip
SLOW = {"gru", "lstm", "simple_rnn", "transformer_block", "gated_feed_forward", "multi_head_attention",
        "causal_multi_head_attention", "cross_attention", "guarded_sublayer", "causal_sublayer",
        "feed_forward", "online_attention"}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [name for name in entries() if name not in SLOW])
def test_traces_of_the_library(name: str) -> None:
    entry = entries()[name]
    declared = ", ".join(parameter.span.text for parameter in entry.fn.parameters)
    given = ", ".join(parameter.name for parameter in entry.fn.parameters)
    program = ix.compile(f"use std::{entry.module}::{{{name}}};\ninput {declared};\nlet result = {name}({given});\n")
    names = {axis.coordinate.name for tensor in program.ir.inputs for axis in tensor.axes}
    drawn = random_arrays(program.ir, {}, dict.fromkeys(names - {"r"}, 2), 0)[0].arrays
    scalars = {tensor.name: SCALARS[tensor.name] for tensor in program.ir.inputs if not tensor.axes}
    evaluated = ix.exact(program, **{**small(drawn), **scalars}).evaluated
    for element in elements(evaluated, 2):
        check(evaluated, element)


@pytest.mark.parametrize("file", LESSONS, ids=lambda file: file.stem)
def test_lesson_reads_as_it_was_reviewed(file: Path) -> None:
    assert golden_text(file) == golden_path(file).read_text("utf-8"), "python -m tests.run.test_trace rewrites it"


def golden_path(file: Path) -> Path:
    return GOLDEN / f"trace_{file.stem}.txt"


def golden_text(file: Path) -> str:
    return f"{ix.trace(ix.compile(file), at='out[2, 0]')}\n"


def traced(text: str, at: str, **given: Any) -> Trace:
    sheet = ix.trace(ix.compile(text), at=at, **given)
    assert isinstance(sheet, TraceSheet)
    return sheet.trace


def test_excluded_and_silent_points_are_told_apart() -> None:
    text = """space position(i, j);
    let s[i, j] = [[1, 2, 3], [1, 2, 3], [1, 2, 3]];
    let w[i, j] = softmax[j](s[i, j]) where j <= i;
    let y[i] = sum[j](w[i, j] * s[i, j]) where j != 0;"""
    (scan,) = traced(text, "y[1]").scans
    assert scan.excluded == ((0,),)
    assert [(silent.place, silent.why) for silent in scan.silent] == [((2,), "`w[1, j]` is masked")]
    assert [term.point for term in scan.terms] == [(("j", 1),)]
    assert traced(text, "w[1, 2]").why == "`j <= i` does not hold"


def test_sentence_names_spaces_and_never_capitalises_a_coordinate() -> None:
    text = "let w[j] = [0.5, 0.25, 0.25]; let V[j] = [1, 2, 3]; let y[i in 0..2] = sum[j](w[j] * V[j]);"
    assert traced(text, "y[1]").scans[0].sentences == (
        "whoever asks gives 50 % of its attention to `j = 0`, 25 % to `j = 1`, 25 % to `j = 2`",
    )
    spaced = """space head(h), position(i, j); let u[j] = [0.5, 0.25, 0.25]; let V[j] = [1, 2, 3];
    let w[h in 0..2, i in 0..2, j] = u[j]; let y[h in 0..2, i in 0..2] = sum[j](w[h, i, j] * V[j]);"""
    assert traced(spaced, "y[0, 1]").scans[0].sentences[0].startswith("in head 0, position 1 gives 50 % of its")


def test_values_that_sum_to_one_are_not_attention() -> None:
    text = """space position(i, j), feature(e);
    let w[i, j] = [[0.5, 0.6], [2, 1]]; let V[j, e] = [[0.5, 1], [0.5, 0]]; let y[i, e] = sum[j](w[i, j] * V[j, e]);"""
    (sentence,) = traced(text, "y[0, 0]").scans[0].sentences
    assert "attention" not in sentence
    assert "of the sum comes from position 0" in sentence


def test_terms_of_both_signs_have_shares_and_no_sentence() -> None:
    (scan,) = traced("let x[i] = [3, -1]; let y = sum[i](x[i]);", "y").scans
    assert [term.share for term in scan.terms] == [Fraction(3, 2), Fraction(-1, 2)]
    assert scan.sentences == ()
    (scan,) = traced("let x[i] = [1, -1]; let y = sum[i](x[i]);", "y").scans
    assert [term.share for term in scan.terms] == [None, None]


def test_symbols_and_unknown_sizes() -> None:
    text = "input x[i], V[i, e]; let y[e] = sum[i](x[i] * V[i, e]);"
    sheet = ix.trace(ix.compile(text), at="y[4]", x=["0.5", "0.5"])
    assert str(sheet).splitlines()[0] == "y[4] = 1/2·V[0, 4] + 1/2·V[1, 4]"
    assert "V  input, without values\n  V[0, 4], V[1, 4]" in str(sheet)
    assert "50 % of its attention" in str(sheet)


def test_large_scan_is_cut_and_says_so() -> None:
    text = "let y = sum[i in 0..300](z[i]); let z[i in 0..300] = i * 2;"
    shown = str(ix.trace(ix.compile(text), at="y"))
    assert len(shown.splitlines()) < 120
    assert "…  and 241 more elements, like z[59]: ask for it with `--at`" in shown


if __name__ == "__main__":
    for file in LESSONS:
        golden_path(file).write_text(golden_text(file), "utf-8")
