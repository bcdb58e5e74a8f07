"""Errors of float kernels in units in the last place, against mpmath and by hand."""

from __future__ import annotations

import json
from contextlib import suppress
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.laws.programs import random_case

import indexical as ix
from indexical.numbers.accuracy import Accuracy
from indexical.readings import AccuracySheet

ATTENTION = """input Q[i, d], K[j, d], V[j, e];
let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);"""

SPACING = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126), "f64": (53, -1022)}


def measured(text: str, *arrays: Any, **options: Any) -> AccuracySheet:
    sheet = ix.accuracy(ix.compile(text), *arrays, **options)
    json.dumps(sheet.to_json(), allow_nan=False)
    assert str(sheet)
    return sheet


def worst(text: str, *arrays: Any, **options: Any) -> Accuracy:
    (found,) = measured(text, *arrays, **options).outputs
    return found


def ulps(computed: Any, true: Any, dtype: str) -> Any:
    """The distance in units in the last place, by mpmath."""
    precision, least = SPACING[dtype]
    exponent = least if true == 0 else max(least, int(mpmath.floor(mpmath.log(abs(true), 2))))
    return abs(mpmath.mpf(computed) - true) / mpmath.mpf(2) ** (exponent - precision + 1)


def true_attention(Q: Any, K: Any, V: Any) -> list[list[Any]]:
    rows = []
    for i in range(len(Q)):
        scores = [mpmath.fdot(zip(map(mpmath.mpf, Q[i]), map(mpmath.mpf, K[j]), strict=True)) for j in range(i + 1)]
        raised = [mpmath.exp(score / mpmath.sqrt(len(Q[i]))) for score in scores]
        weights = [part / mpmath.fsum(raised) for part in raised]
        rows.append([mpmath.fsum(w * mpmath.mpf(V[j][e]) for j, w in enumerate(weights)) for e in range(len(V[0]))])
    return rows


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_attention_against_mpmath(dtype: str) -> None:
    numpy_dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    Q, K, V = np.random.default_rng(1).standard_normal((3, 4, 2)).astype(numpy_dtype)
    found = worst(ATTENTION, Q, K, V)
    computed = ix.compile(ATTENTION)(Q, K, V).tolist()
    with mpmath.workdps(60):
        true = true_attention(Q.tolist(), K.tolist(), V.tolist())
        errors = {(i, e): ulps(computed[i][e], true[i][e], dtype) for i in range(4) for e in range(2)}
        assert found.worst is not None
        assert found.worst.error is not None
        assert found.worst.place == max(errors, key=lambda place: errors[place])
        for error, expected in ((found.worst.error, max(errors.values())), (found.mean, sum(errors.values()) / 8)):
            assert abs(mpmath.mpf(error.numerator) / error.denominator - expected) < 1e-2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    Q, K, V = torch.randn(3, 4, 2).to(getattr(torch, dtype))
    sheet = measured(ATTENTION, Q, K, V, outputs=["weights", "out"])
    assert sheet.backend == "torch"
    assert sheet["out"].dtype == {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}[dtype]
    assert sheet["weights"].wrong == 0
    assert sheet["weights"].mean < 2


def test_an_error_that_is_known() -> None:
    """Half a subnormal rounds to even; one third is a third of a unit off; a cast to f16 costs what it costs."""
    halved = worst("input x[j]; let y[j] = x[j] * 0.5;", np.array([2.0**-149, 2.0**-148, 0], "f4"))
    assert halved.worst is not None
    assert (halved.worst.place, halved.worst.error) == ((0,), Fraction(1, 2))
    third = worst("let y = 1 / 3.0;")
    assert third.worst is not None
    assert third.worst.error is not None
    assert abs(float(third.worst.error) - 1 / 3) < 1e-12
    cast = worst("input x[i]; let y[i] = (x[i] as f16) as f32;", np.array([1 / 3], "f4"))
    assert cast.worst is not None
    assert float(cast.worst.error or 0) > 2000


def test_far_tails_of_softmax() -> None:
    found = worst("input x[j]; let w[j] = softmax[j](x[j]);", np.array([0, -700, -740, -745, -746, -2000.0]))
    assert found.wrong == 0
    assert found.worst is not None
    assert (found.worst.error or 0) < 2


def test_infinities_and_what_is_undefined() -> None:
    right = worst("input x[j]; let y[j] = log(x[j]) + sqrt(x[j]);", np.array([0.0, 1, -1.0]))
    assert (right.wrong, right.mean) == (0, 0)
    over = worst("input x[j]; let y[j] = exp(x[j]);", np.array([89, 1000, 88], "f4"))
    assert over.wrong == 0
    wrong = worst("input x[j]; let y[j] = x[j] * x[j] / x[j];", np.array([1e30, 2], "f4"))
    assert wrong.wrong == 1
    assert wrong.first_wrong is not None
    assert wrong.first_wrong.place == (0,)
    assert "1 of 2 values are infinite or NaN where the true ones are not" in str(
        measured("input x[j]; let y[j] = x[j] * x[j] / x[j];", np.array([1e30, 2], "f4"))
    )


def test_an_error_larger_than_any_float() -> None:
    text = "input x[j]; let y[j] = (x[j] + 1e308 - 1e308) * 1e300;"
    found = measured(text, np.array([1e-320]))
    assert "computed" in str(found)


def test_whole_numbers_booleans_masked_and_empty() -> None:
    text = "input x[j] : i64; let y[j] = x[j] * 2; let b[j] = x[j] > 1; let a = argmax[j](x[j]); output y, b, a;"
    sheet = measured(text, np.array([1, 2]))
    assert [(output.dtype, output.mean) for output in sheet.outputs] == [("i64", 0), ("bool", 0), ("i64", 0)]
    rows = "input x[i, j]; let w[i, j] = softmax[j](x[i, j] where j < i); let y[i] = x[i, 0] where i > 0; output w, y;"
    for output in measured(rows, np.eye(3, dtype="f4")).outputs:
        assert output.wrong == 0
    assert worst("input x[i]; let y[i] = exp(x[i]);", np.zeros(0, "f4")).worst is None


def test_what_intervals_leave_open_is_settled_exactly() -> None:
    text = "input x[i]; let y[i] = if sqrt(x[i]) * sqrt(x[i]) > x[i] { 1.0 } else { 2.0 };"
    found = worst(text, np.array([2.0]))
    assert found.worst is not None
    assert found.worst.true.startswith("2.000")


@pytest.mark.parametrize(
    ("arrays", "code"),
    [((), "IX501"), ((None,), "IX504"), ((np.array([np.nan]),), "IX511"), ((np.ones((2, 2)),), "IX502")],
)
def test_inputs_that_do_not_do(arrays: tuple[Any, ...], code: str) -> None:
    with pytest.raises(ix.CallError) as caught:
        measured("input x[i]; let y[i] = exp(x[i]);", *arrays)
    assert caught.value.diagnostics[0].code == code


def test_a_large_recurrence_is_refused() -> None:
    text = "input x[t, k]; let y[0, k] = x[0, k]; let y[t in 1..size(t), k] = 0.5 * y[t - 1, k] + x[t, k];"
    with pytest.raises(ix.CallError, match="steps, and at most"):
        measured(text, np.ones((4000, 2000), np.float32))


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("rsqrt(x[i])", [-1.0, 4.0, 0.0]),
        ("sqrt(x[i])", [-1.0, 2.0]),
        ("x[i] ** 0.5", [-1.0, 2.0]),
        ("if x[i] > 0 { x[i] } else { 0 }", [0.0, -1.0, 2.0]),
        ("if x[i] > 0 { 1 / x[i] } else { 2 }", [0.0, 3.0]),
    ],
)
def test_branches_and_what_is_undefined(body: str, values: list[float]) -> None:
    with np.errstate(all="ignore"):
        (found,) = ix.accuracy(f"input x[i]; let y[i] = {body};", np.array(values)).outputs
    assert found.wrong == 0
    assert found.worst is not None
    assert found.worst.error is not None
    assert found.worst.error <= 1


def test_a_row_that_hears_nobody() -> None:
    text = "input s[i, j]; let w[i, j] = softmax[j](s[i, j]) where j < i;"
    (found,) = ix.accuracy(text, np.array([[0.1, 0.2], [0.3, 0.4]])).outputs
    assert found.wrong == 0


@pytest.mark.parametrize(
    "text",
    [
        "input x[i]; let n = max[i](min(i, 3)); let y[i] = x[i] * n;",
        "input x[i]; let y[i] = if x[i] > max[k in 0..0](x[k]) { x[i] } else { 0.0 };",
        "input x[i]; let y[i] = if max[k in 0..0](x[k]) >= x[i] { 0.0 } else { x[i] };",
    ],
)
def test_whole_numbers_and_infinities_beside_intervals(text: str) -> None:
    (found,) = ix.accuracy(text, np.array([0.1, 0.2, 0.3]), outputs="y").outputs
    assert found.wrong == 0
    assert found.worst is not None
    assert found.worst.error is not None
    assert found.worst.error < 1


def test_generated_programs_have_an_accuracy_or_one_clear_error() -> None:
    measured = 0
    for seed in (*range(5000, 5040), 5617, 5888):
        case = random_case(seed)
        with suppress(ix.Error), np.errstate(all="ignore"):
            measured += bool(str(ix.accuracy(case.text, **case.arrays)))
    assert measured > 20
