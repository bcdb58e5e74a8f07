"""Programs evaluated exactly: forms, decided equality, symbols, inputs, and where exactness ends."""

from __future__ import annotations

import itertools
import json
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.numbers.evaluate import evaluate

ROOT = Path(__file__).resolve().parents[2]
LESSON = ROOT / "examples" / "lessons" / "named_softmax.ix"

ATTENTION = """
input Q[i, d], K[j, d], V[j, e];
let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) where j <= i;
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);
"""
SQUARE = [[1, 0], [0, 1], [1, 1]]


def fractions(generator: random.Random, *shape: int) -> Any:
    if not shape:
        return Fraction(generator.randint(-40, 40), generator.randint(1, 12))
    return [fractions(generator, *shape[1:]) for _ in range(shape[0])]


def texts(tensor: Any) -> list[list[str]]:
    return [[str(value) for value in row] for row in tensor]


# ---------------------------------------------------------------------- forms


def test_the_first_lesson_prints_its_forms() -> None:
    found = ix.exact(ix.compile(LESSON))
    assert texts(found["scores"]) == [["1", "masked", "masked"], ["0", "1", "masked"], ["1", "1", "2"]]
    assert texts(found["weights"]) == [
        ["1", "masked", "masked"],
        ["e^0/(e^0+e^1)", "e^1/(e^0+e^1)", "masked"],
        ["e^1/(e^1+e^1+e^2)", "e^1/(e^1+e^1+e^2)", "e^2/(e^1+e^1+e^2)"],
    ]
    assert [str(row) for row in found["out"]] == [
        "V[0]",
        "weights[1, 0]·V[0] + weights[1, 1]·V[1]",
        "weights[2, 0]·V[0] + weights[2, 1]·V[1] + weights[2, 2]·V[2]",
    ]
    assert "." not in str(found)


def test_a_row_of_weights_sums_to_exactly_one() -> None:
    weights = ix.exact(ATTENTION, SQUARE, SQUARE)["weights"]
    assert weights[2, 0] + weights[2, 1] + weights[2, 2] == 1
    assert weights[2, 0] + weights[2, 1] != 1
    assert weights[2, 0] == weights[2, 1] < weights[2, 2]
    assert weights[2, 0].canonical() == "1/(2+e)"
    assert weights[2, 0].decimal(30) == "0.211941557617085445070840538181"
    assert weights[0, 2].masked
    assert weights[0, 2] == 0
    assert not weights[0, 0].masked


def test_named_and_spelled_out() -> None:
    out = ix.exact(ATTENTION, SQUARE, SQUARE, [[1, 3], ["0.1", 0], ["1/3", 0]])["out"]
    assert out[1, 0].named() == "weights[1, 0] + 1/10·weights[1, 1]"
    assert out[1, 0].spelled() == "e^0/(e^0+e^1) + 1/10·e^1/(e^0+e^1)"
    assert str(out[1, 0]) == out[1, 0].spelled()
    assert out[1, 0].canonical() == "(10+e)/(10·(1+e))"
    assert str(out[0, 1]) == "3"


def test_a_long_form_goes_by_names() -> None:
    scores = "input s[j]; let w[j] = softmax[j](s[j]); let out = sum[j](w[j] * s[j]);"
    out = ix.exact(scores, list(range(40)))["out"]
    assert str(out).startswith("w[1] + 2·w[2] + 3·w[3]")


def test_what_a_function_brought_along_is_spelled_out() -> None:
    text = "fn soft(x[j]) -> [j] { let z = sum[j](exp(x[j])); exp(x[j]) / z } input s[j]; let w[j] = soft(s)[j];"
    assert str(ix.exact(text, [0, 1])["w"][1]) == "e^1/(e^0+e^1)"


# ------------------------------------------------------------------- equality

FOUR_WAYS = """
input s[j], V[j];
let x[j]    = s[j] / sqrt(2);
let naive   = sum[j](exp(x[j]) * V[j]) / sum[j](exp(x[j]));
let top     = max[j](x[j]);
let shifted = sum[j](exp(x[j] - top) * V[j]) / sum[j](exp(x[j] - top));

let m[0]               = x[0];
let m[t in 1..size(j)] = max(m[t - 1], x[t]);
let l[0]               = 1.0;
let l[t in 1..size(j)] = l[t - 1] * exp(m[t - 1] - m[t]) + exp(x[t] - m[t]);
let o[0]               = V[0];
let o[t in 1..size(j)] = o[t - 1] * exp(m[t - 1] - m[t]) + exp(x[t] - m[t]) * V[t];
let online             = o[size(j) - 1] / l[size(j) - 1];

let block_top[c in 0..size(j) / 4] = max[k in 0..4](x[4 * c + k]);
let block_sum[c in 0..size(j) / 4] = sum[k in 0..4](exp(x[4 * c + k] - block_top[c]));
let block_out[c in 0..size(j) / 4] = sum[k in 0..4](exp(x[4 * c + k] - block_top[c]) * V[4 * c + k]);
let all_top = max[c](block_top[c]);
let blocked = sum[c](block_out[c] * exp(block_top[c] - all_top)) / sum[c](block_sum[c] * exp(block_top[c] - all_top));
let wrong   = sum[c](block_out[c] * exp(block_top[c] - all_top)) / sum[c](block_sum[c] * exp(all_top - block_top[c]));
let built   = sum[j](softmax[j](x[j]) * V[j]);
output naive, shifted, online, blocked, wrong;
"""


@pytest.mark.parametrize("seed", range(5))
def test_four_ways_to_softmax_are_one_and_a_wrong_sign_is_not(seed: int) -> None:
    generator = random.Random(seed)
    text = FOUR_WAYS.replace("let built   = sum[j](softmax[j](x[j]) * V[j]);\n", "")
    found = ix.exact(text, fractions(generator, 16), fractions(generator, 16))
    for one, other in itertools.combinations(("naive", "shifted", "online", "blocked"), 2):
        assert found[one] == found[other]
    assert found["wrong"] != found["naive"]
    assert found["wrong"].is_exact


def test_a_difference_far_below_any_float_is_seen() -> None:
    found = ix.exact("input x, y; let a = exp(x); let b = exp(y);", "1", Fraction(1) + Fraction(1, 10**60))
    assert found["a"] != found["b"]
    assert found["a"] < found["b"]


def test_heads_positions_and_features_at_full_size() -> None:
    generator = np.random.default_rng(0)
    program = ix.compile(ROOT / "examples" / "causal_attention.ix")
    arrays = generator.integers(-3, 4, (3, 1, 8, 16, 8))
    found = ix.exact(program, *arrays)
    expected = program(*arrays.astype(float))
    values = np.array([float(value) for value in found["out"].values()]).reshape(expected.shape)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    weights = found["weights"][0, 3, 15]
    assert sum(weights, start=Fraction(0)) == 1


def test_numbers_compute_and_compare() -> None:
    found = ix.exact("input x; let a = sqrt(x); let b = exp(x);", 2)
    a, b = found["a"], found["b"]
    assert a * a == 2
    assert (a + b) - b == a
    assert 1 / a == a / 2
    assert -a < 0 < a
    assert abs(-a) == a
    assert a >= Fraction(7, 5)
    assert b / b == 1
    assert 2 - a == 4 - a - 2
    assert float(a) == 2**0.5
    assert not a - a
    with pytest.raises(TypeError):
        _ = a < "x"
    assert a != "x"


# -------------------------------------------------------------------- symbols


def test_an_input_without_values_stays_a_symbol_row_by_row() -> None:
    out = ix.exact(ATTENTION, SQUARE, SQUARE)["out"]
    assert out.shape == (3, "e")
    assert out[2].canonical() == "1/(2+e)·V[0] + 1/(2+e)·V[1] + e/(2+e)·V[2]"
    assert str(out[2, 1]) == "weights[2, 0]·V[0, 1] + weights[2, 1]·V[1, 1] + weights[2, 2]·V[2, 1]"
    assert out[2].spelled().startswith("e^1/(e^1+e^1+e^2)·V[0] + ")
    assert out[2].symbols == ("V[0]", "V[1]", "V[2]")
    assert out[2] == out[2]
    assert out[2] != out[1]


def test_symbols_have_the_sizes_they_are_given() -> None:
    out = ix.exact(ATTENTION, SQUARE, SQUARE, sizes={"e": 2})["out"]
    assert out.shape == (3, 2)
    assert str(out[0, 1]) == "V[0, 1]"


def test_symbolic_weights_sum_to_one_for_all_values() -> None:
    weights = ix.exact("input s[j]; let w[j] = softmax[j](s[j]);", sizes={"j": 3})["w"]
    assert weights[0] + weights[1] + weights[2] == 1
    assert str(weights[0]) == "e^s[0]/(e^s[0]+e^s[1]+e^s[2])"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("input x[i]; let y[i] = 2 * x[i] where x[i] > 0;", "IX512"),
        ("input x[i]; let y = max[i](x[i]);", "IX512"),
        ("input x[i]; let y[i] = floor(x[i]);", "IX512"),
        ("input x[i]; let y[i] = if x[i] == 1 { 2.0 } else { 3.0 };", "IX512"),
        ("input p[i]: i64, x[j]; let y[i] = x[p[i]];", "IX512"),
        ("input keep[i]: bool, x[i]; let y[i] = x[i] where keep[i];", "IX512"),
    ],
)
def test_a_symbol_decides_nothing(text: str, code: str) -> None:
    with pytest.raises(ix.CallError) as caught:
        ix.exact(text, sizes={"i": 2})
    assert {found.code for found in caught.value.diagnostics} == {code}


@pytest.mark.parametrize(
    "text",
    [
        "input x[i]; let y = sum[i](x[i]);",
        "input x[i]; let y[i] = x[i] / size(i);",
        "input x[i]; let y[i] = x[i] * i;",
        "input x[i]; let y[i, j] = x[i] * x[j];",
        "input x[i]; let y[i] = softmax[i](x[i]);",
    ],
)
def test_a_coordinate_of_unknown_size_is_only_carried_along(text: str) -> None:
    with pytest.raises(ix.CallError) as caught:
        ix.exact(text)
    assert {found.code for found in caught.value.diagnostics} == {"IX512"}
    assert "sizes=" in str(caught.value)
    ix.exact(text, sizes={"i": 2})


# --------------------------------------------------------------------- inputs


def test_inputs_are_taken_as_they_are_written() -> None:
    text = "input x[i]; let y[i] = 10 * x[i];"
    assert texts([ix.exact(text, [1, "0.1", Fraction(1, 3), Decimal("0.25"), "2/7", " 1e-2 "])["y"]]) == [
        ["10", "1", "10/3", "5/2", "20/7", "1/10"]
    ]
    floats = ix.exact(text, np.array([0.1]))["y"]
    assert floats[0] == 10 * Fraction(0.1)
    assert floats[0] != 1
    assert ix.exact(text, np.array([0.5], np.float32))["y"][0] == 5


def test_tensors_are_taken_bit_for_bit() -> None:
    torch = pytest.importorskip("torch")
    y = ix.exact("input x[i]; let y[i] = x[i] * x[i];", torch.tensor([0.1], dtype=torch.bfloat16))["y"]
    assert y[0] == Fraction(float(torch.tensor(0.1, dtype=torch.bfloat16))) ** 2


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (np.array([np.nan]), "IX511"),
        ([float("nan")], "IX511"),
        (["nan"], "IX511"),
        (["one"], "IX511"),
        (["1/0"], "IX511"),
        ([1j], "IX511"),
        ([True], "IX511"),
        ([None], "IX511"),
        ([[1], [2, 3]], "IX511"),
        ([[1]], "IX502"),
        (1, "IX502"),
        (object(), "IX511"),
    ],
)
def test_what_is_no_exact_number_is_refused(value: Any, code: str) -> None:
    with pytest.raises(ix.CallError) as caught:
        ix.exact("input x[i]; let y[i] = x[i];", value)
    assert {found.code for found in caught.value.diagnostics} == {code}


def test_whole_inputs_are_whole() -> None:
    text = "input p[i]: i64, x[j]; let y[i] = x[p[i]];"
    assert texts([ix.exact(text, [1, "0"], ["0.5", 2])["y"]]) == [["2", "1/2"]]
    for wrong in (["0.5"], [2**80]):
        with pytest.raises(ix.CallError, match="IX511"):
            ix.exact(text, wrong, [1, 2])


# ------------------------------------------------------------------- boundary


def test_where_exactness_ends_is_said() -> None:
    text = "input x; let a = exp(x); let b = log(1 + a); let c = b * 2; let d = sqrt(x);"
    found = ix.exact(text, 1)
    assert found.ended == ("b",)
    assert not found["c"].is_exact
    assert found["a"].is_exact
    assert found["d"].is_exact
    assert "exactness ends at `b`: `log` is a named term" in str(found)
    assert str(found["b"]) == "log(1 + e^1)"
    assert found["c"].decimal(20) == "2.6265233750364456681"
    assert found["c"] == found["b"] + found["b"]
    assert found["c"] > found["b"]


def test_what_is_not_known_is_not_guessed() -> None:
    found = ix.exact("input x; let a = exp(sin(x) ** 2) * exp(cos(x) ** 2 - 1); let b = 1.0;", 1)
    with pytest.raises(ix.Undecided) as caught:
        _ = found["a"] == found["b"]
    assert caught.value.diagnostics[0].code == "IX513"
    assert isinstance(caught.value, ix.Error)


def test_logarithms_return_to_the_field() -> None:
    text = "input s[j]; let a[j] = log_softmax[j](s[j]); let b[j] = exp(a[j]); let c[j] = softmax[j](s[j]);"
    found = ix.exact(text, [1, 2, "1/2"])
    assert found.ended == ("a",)
    for j in range(3):
        assert found["b"][j] == found["c"][j]
        assert found["b"][j].is_exact


def test_infinities_and_what_is_undefined() -> None:
    text = "input x; let a = log(x); let b = exp(a); let c = a - a; let d = 1 / x; let f = max(a, 1.0);"
    found = ix.exact(text, 0)
    assert [str(found[name]) for name in "abcdf"] == ["-∞", "0", "undefined", "∞", "1"]
    assert found["a"] < 0
    assert found["c"] != found["c"] + 0


def test_growth_ends_in_a_clear_error() -> None:
    text = "input x[i], p[k]; let a[i] = 1 / sum[k](sqrt(x[i] * p[k]));"
    with pytest.raises(ix.CallError) as caught:
        ix.exact(text, [1], [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41])
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "IX514"
    assert diagnostic.labels[0].text == "in `a`"
    assert diagnostic.notes == ("at `i = 0`",)


def test_too_much_work_is_refused_before_it_starts() -> None:
    with pytest.raises(ix.CallError, match="IX507"):
        ix.exact("input x[i]; let y[i, j, k] = x[i] * x[j] * x[k];", [1] * 400)


# ------------------------------------------------------------------- the face


@pytest.mark.parametrize("digits", [0, -1, 2.5, "3", True, 10**9])
def test_digits_that_cannot_be_asked_for(digits: Any) -> None:
    with pytest.raises(ix.CallError, match="IX515"):
        ix.exact("let x = 1 / 3.0;")["x"].decimal(digits)


@pytest.mark.parametrize("place", [(3, 0), (-1, 0), (0, 0, 0), ("a", 0), (slice(None), 0), (True, 0)])
def test_points_that_do_not_exist(place: Any) -> None:
    with pytest.raises(ix.CallError, match="IX515"):
        _ = ix.exact(ATTENTION, SQUARE, SQUARE)["weights"][place]


def test_results_go_to_json() -> None:
    found = ix.exact(ATTENTION, SQUARE, SQUARE)
    plain = json.loads(json.dumps(found.to_json(digits=10)))
    weights = next(entry for entry in plain["definitions"] if entry["name"] == "weights")
    assert weights["coordinates"] == ["i", "j"]
    assert weights["values"][0][1] == {"masked": True, "structural": "masked", "canonical": "0"}
    assert weights["values"][1][0] == {
        "structural": "e^0/(e^0+e^1)",
        "canonical": "1/(1+e)",
        "exact": True,
        "decimal": "0.2689414214",
    }
    assert plain["exactness_ends_at"] == []


def test_outputs_are_asked_for_by_name() -> None:
    found = ix.exact(ATTENTION, SQUARE, SQUARE, outputs="weights")
    assert list(found) == ["scores", "weights"]
    assert str(found).startswith("weights[i, j]")
    with pytest.raises(ix.CallError, match="IX508"):
        _ = found["out"]
    with pytest.raises(ix.CallError, match="IX508"):
        ix.exact(ATTENTION, SQUARE, SQUARE, outputs="nothing")
    with pytest.raises(ix.CallError, match="IX501"):
        ix.exact(ATTENTION, SQUARE, W=SQUARE)


def test_a_cast_to_a_real_dtype_does_not_round() -> None:
    assert ix.exact("input x; let y = (x as f16) * 3;", "1/3")["y"] == 1


@pytest.mark.parametrize("sizes", [{"e": -1}, {"e": "x"}, {"e": 2.5}, {"e": True}, "abc", 3])
def test_sizes_that_are_none(sizes: Any) -> None:
    with pytest.raises(ix.CallError, match="IX515"):
        ix.exact(ATTENTION, SQUARE, SQUARE, sizes=sizes)


def test_a_size_that_contradicts_the_values() -> None:
    with pytest.raises(ix.CallError, match="IX304"):
        ix.exact(ATTENTION, SQUARE, SQUARE, sizes={"i": 2})


def test_a_fraction_that_doubles_its_length_at_every_step_ends_in_a_clear_error() -> None:
    text = "input x; let h[0] = x; let h[t in 1..60] = h[t - 1] * h[t - 1] + x;"
    with pytest.raises(ix.CallError, match="IX514") as caught:
        ix.exact(text, "1/3")
    assert "bits" in str(caught.value)


def test_an_evaluation_has_a_budget_of_terms() -> None:
    program = ix.compile(ATTENTION)
    arguments = {"Q": SQUARE, "K": SQUARE, "V": SQUARE}
    evaluate(program.ir, arguments, {}, ("out",), terms=1000)
    with pytest.raises(ix.CallError, match="IX514"):
        evaluate(program.ir, arguments, {}, ("out",), terms=5)
    # The budget ends with its evaluation.
    assert ix.exact(ATTENTION, SQUARE, SQUARE, SQUARE)["out"][0, 0] == 1


def test_one_finding_for_each_coordinate_without_a_size() -> None:
    with pytest.raises(ix.CallError) as caught:
        ix.exact(ROOT / "examples" / "causal_attention.ix")
    assert sorted(found.message[1] for found in caught.value.diagnostics) == ["d", "i", "j"]
