"""Published figures: what holds, what fails, by how much, and whether rounding could explain it."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import indexical as ix
from indexical.numbers.claims import Cell, Claim


def claims(text: str, **given: Any) -> tuple[Claim, ...]:
    found = ix.verify(ix.compile(text), **given)
    json.dumps(found.to_json(), allow_nan=False)
    assert str(found)
    return found.claims


def cell(text: str, **given: Any) -> Cell:
    """The last cell of the last claim."""
    return claims(text, **given)[-1].cells[-1]


@pytest.mark.parametrize(
    ("value", "figure", "verdict"),
    [
        ("2.25", "2.2", "holds"),
        ("2.25", "2.3", "holds"),
        ("2.25", "2", "fails"),
        ("2.25", "2.250", "holds"),
        ("2.2500000000000000000000000000000000000001", "2.2", "fails"),
        ("2.2500000000000000000000000000000000000001", "2.3", "holds"),
        ("2.1499999999999999999999999999999999999999", "2.2", "fails"),
        ("-2.25", "-2.2", "holds"),
        ("-2.25", "-2.3", "holds"),
        ("-2.2500000000000000000000000000000000000001", "-2.2", "fails"),
        ("0.00149", "1.5e-3", "holds"),
        ("0.00149", "1.4e-3", "fails"),
        ("7", "7", "holds"),
        ("7", "7.0", "holds"),
        ("7", "7.4", "fails"),
        ("1 / 3.0", "0.33", "holds"),
        ("1 / 3.0", "0.34", "fails"),
        ("exp(1)", "2.718281828459045235360287471352662497757", "holds"),
        ("exp(1)", "2.718281828459045235360287471352662497758", "fails"),
        ("sqrt(2)", "1.41421356237309504880168872420969807857", "holds"),
        ("1 / 0.0", "1", "fails"),
        ("0.0 / 0.0", "0.0", "fails"),
        ("1 > 2", "false", "holds"),
        ("1 > 2", "true", "fails"),
    ],
)
def test_half_a_unit_holds_and_a_hair_beyond_fails(value: str, figure: str, verdict: str) -> None:
    found = cell(f"let x = {value}; expect x == {figure};")
    assert found.verdict == verdict
    assert not found.depends


def test_distance_and_units() -> None:
    found = cell("let x = 12 / 5.0; expect x == 2.2000;")
    assert found.distance is not None
    assert found.distance.number == Fraction(1, 5)
    assert found.units is not None
    assert found.units.number == 2000
    assert cell("let x = 1; expect x == 2;").units is None


def test_a_hair_over_half_a_unit_is_said_to_be() -> None:
    shown = str(ix.verify(ix.compile("let x = 2.2500000000000000000000000000000000000001; expect x == 2.2;")))
    assert "just over 0.5" in shown
    assert "2.2500000000000000000000000000000000000001" in shown


def test_arrays_masked_and_free_coordinates() -> None:
    text = "let u[i] = [1, 2, 3]; let x[i] = u[i] where i > 0;"
    found = claims(
        f"""{text} expect x == [masked, 2, 3]; expect x == [0, 2, 3]; expect x == [masked, masked, 3];
        expect u[i] * 2 == [2, 4, 6]; expect u[i] == 1; expect (u[i] > 1) == [false, true, true]; expect x == masked;"""
    )
    assert [[c.verdict == "holds" for c in claim.cells] for claim in found] == [
        [True, True, True],
        [True, True, True],
        [True, False, True],
        [True, True, True],
        [True, False, False],
        [True, True, True],
        [True, False, False],
    ]
    assert found[4].failing[0].place == (1,)


def test_shapes_row_sums_signs_and_dominance_are_claims() -> None:
    text = """let w[i, j] = [[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]];
    expect size(i) == 2; expect size(j) == 3; expect sum[j](w[i, j]) == 1; expect all[i, j](w[i, j] >= 0) == true;
    expect argmax[j](w[1, j]) == 1; expect size(j) == 5;"""
    assert [claim.verdict for claim in claims(text)] == ["holds"] * 5 + ["fails"]


# -------------------------------------------------------------------- rounding


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("let x = ~0.5 * 2; expect x == 1.1;", True),
        ("let x = ~0.5 * 2; expect x == 1.3;", False),
        ("let x = ~1.2e3; expect x == 1240.0;", True),
        ("let x = ~1.2e3; expect x == 1260.0;", False),
        ("let s[j] = ~[0.0, 1.0]; let w[j] = softmax[j](s[j]); expect w == [0.28, 0.72];", True),
        ("let s[j] = ~[0.0, 1.0]; let w[j] = softmax[j](s[j]); expect w == [0.1, 0.9];", False),
        ("let a = ~0.5; let x = 1 / a; expect x == 2.2;", True),
        ("let a = ~0.5; let x = 1 / a; expect x == 2.4;", False),
        ("let a = ~0.0; let x = 1 / (a + 0.01); expect x == 50;", None),
        ("let a = ~0.0; let x = sqrt(a); expect x == 0.1;", None),
        ("let a = ~0.5; let x = if a > 0.52 { 1 } else { 2 }; expect x == 1;", None),
        ("let a = ~0.5; let x = if a > 0.90 { 1 } else { 2 }; expect x == 1;", False),
        ("let a = ~0.5; expect (a > 0.52) == true;", None),
        ("let a = ~0.5; expect (a > 0.90) == true;", False),
        ("let s[j] = ~[0.50, 0.501]; let k = argmax[j](s[j]); expect k == 0;", None),
        ("let s[j] = ~[0.1, 0.9]; let k = argmax[j](s[j]); expect k == 0;", False),
        ("let a = ~1.5; let n = (a * 10) as i64; expect n == 14;", None),
        ("let a = ~1.5; let n = a as i64; expect n == 2;", False),
        ("let a[i] = ~[0.1, 0.9]; let x[i] = a[i] where a[i] > 0.12; expect x == [masked, masked];", None),
        ("let a[i] = ~[0.1, 0.9]; let x[i] = a[i] where a[i] > 0.5; expect x == [masked, masked];", False),
        ("let a = 0.5; expect a + ~0.1 == 0.65;", True),
        ("input x; let y = x * ~0.5; expect y == 1.1;", True),
        ("let a = ~0.5; let x = 1 / 0.0; let y = x * (a - 0.5); expect y == 1;", None),
        ("let a = ~0.5; let x = 1 / 0.0; let y = 3 / x + a; expect y == 0.6;", True),
        ("let a = ~2.5; expect a ** 0.5 + a % 2 + round(a) == 4.2;", True),
    ],
)
def test_what_rounding_explains(text: str, explained: bool | None) -> None:
    found = cell(text, **({"x": 2} if text.startswith("input") else {}))
    assert (found.depends, found.explained) == (True, explained)
    assert found.verdict == ("rounding" if explained else "fails")
    shown = str(ix.verify(ix.compile(text), **({"x": 2} if text.startswith("input") else {})))
    assert "no figure" not in shown
    assert ("cannot be told" in shown) is (explained is None)
    assert ("cannot explain" in shown) is (explained is False)


def test_without_marks_nothing_is_said_of_rounding() -> None:
    shown = str(ix.verify(ix.compile("let a = ~0.5; let x = 1; expect x == 2; expect a == 0.5;")))
    assert "rounding" not in shown
    assert "cause: unknown" in shown


def test_one_figure_that_hangs_on_rounding_leaves_the_others_alone() -> None:
    text = "let a = ~0.5; let x = if a > 0.52 { 1 } else { 2 }; let y = a * 2; expect x == 1; expect y == 1.1;"
    assert [claim.cells[0].explained for claim in claims(text)] == [None, True]


def test_mixed_explanations_are_counted() -> None:
    shown = str(ix.verify(ix.compile("let w[i] = ~[0.12, 0.34]; expect w == [0.125, 0.9];")))
    assert "of these, 1 could be explained by the rounding of the printed figures, 1 cannot" in shown


def test_bounds_are_those_of_the_marked_figures_alone() -> None:
    found = cell("let a = ~0.5; let b = 0.25; expect a + b == 0.9;")
    assert found.bounds is not None
    assert abs(found.bounds.lower - Fraction("0.7")) < Fraction(1, 10**40)
    assert abs(found.bounds.upper - Fraction("0.8")) < Fraction(1, 10**40)


# ---------------------------------------------------------------------- errors


def test_what_cannot_be_compared_is_an_error_at_the_claim() -> None:
    with pytest.raises(ix.CallError, match=r"depends on `x`(.|\n)*expect y == 1") as caught:
        claims("input x; let y = x + 1; expect y - x == 1; expect y == 1;")
    assert caught.value.diagnostics[0].code == "IX512"


def test_what_named_terms_leave_open_is_a_verdict_of_its_own() -> None:
    text = "let y = exp(sin(1) ** 2) * exp(cos(1) ** 2 - 1); expect y == 1.0; expect y == 1; expect y == 2;"
    assert [claim.verdict for claim in claims(text)] == ["holds", "undecided", "fails"]
    found = ix.verify(text)
    assert len(found.failing) == 2
    assert "it is not known whether this holds" in str(found)
    assert "3 claims, 3 figures: 1 holds, 1 undecided, 1 fails" in str(found)


def test_figures_of_another_shape_are_an_error() -> None:
    with pytest.raises(ix.CallError, match="the figures are 2, and the left side is 3"):
        claims("input u[i]; expect u == [1, 2];", u=[1, 2, 3])


def test_no_claims_and_many() -> None:
    assert "nothing is claimed" in str(ix.verify(ix.compile("let x = 1;")))
    shown = str(ix.verify(ix.compile("let x[i in 0..300] = i * 1.0; expect x == 5;")))
    assert "… and 259 more" in shown
    assert len(shown.splitlines()) < 60


@pytest.mark.parametrize("text", ["exp(-1e300)", "exp(exp(exp(5.0)))", "exp(1e400)"])
def test_a_value_of_any_size_is_told_beside_the_figure(text: str) -> None:
    found = str(ix.verify(f"let x = {text}; expect x == 0;"))
    assert "fails" in found
    assert "≈" in found


def test_what_a_library_printed_claims_the_places_of_its_longest_figure() -> None:
    text = "let w[j] = [0.09, 0.24, 0.67];"
    printed = ("[0.1 0.2 0.7]", "array([0.1, 0.2, 0.7])", "[0.1 0.24 0.7]", "[0. 0.2 0.7]")
    found = [claims(f"{text} expect w == {each};")[0].verdict for each in printed]
    assert found == ["holds", "holds", "fails", "fails"]
