"""Numbers of extreme size and length: masks as people write them, powers, very many digits."""

from __future__ import annotations

import random
from fractions import Fraction
from time import process_time
from typing import Any

import mpmath
import numpy as np
import pytest

import indexical as ix
from indexical.numbers import series
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.interval import Interval
from indexical.numbers.patience import most_digits
from indexical.numbers.results import Value
from indexical.numbers.tower import sign

EXACT = ExactNumbers()
MASKED = "input s[i, j], mask[i, j]; let w[i, j] = softmax[j](s[i, j] + mask[i, j]);"
MASKS = [-1e9, -1e30, float(np.finfo(np.float32).min), float(np.finfo(np.float64).min), -np.inf]


def scores(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((4, 4)).round(3)


@pytest.mark.parametrize("value", MASKS)
def test_a_mask_is_answered_as_the_rest(value: float) -> None:
    """The weights are those of the kept keys, to all digits that differ from 0 in floats; those behind are tiny."""
    kept = np.tril(np.ones((4, 4), dtype=bool))
    found = ix.exact(MASKED, scores(1), np.where(kept, 0, value))["w"]
    guarded = ix.exact("input s[i, j]; let w[i, j] = softmax[j](s[i, j] where j <= i);", scores(1))["w"]
    for i in range(4):
        for j in range(4):
            assert float(found[i, j]) == float(guarded[i, j])
            if kept[i, j] and i < 3:
                # Behind a finite mask something is left, so that it is taken from the others.
                assert (found[i, j] < guarded[i, j]) == np.isfinite(value)
            if not kept[i, j]:
                assert (found[i, j] > 0) == np.isfinite(value)


@pytest.mark.parametrize("value", ["-1e9", "-1e30", "-3.4028234663852886e38", "-1.7976931348623157e308"])
def test_masks_in_the_text_are_verified(value: str) -> None:
    text = f"""
        let s[i, j] = [[1.0, 2.0], [0.5, 1.5]];
        let m[i, j] = if j <= i {{ s[i, j] }} else {{ {value} }};
        let w[i, j] = softmax[j](m[i, j]);
        expect w[0, 0] == 1.00;
        expect w[0, 1] == 0.000;
        expect w[1, 1] == 0.73;
        expect w[0, 0] == 1;
    """
    assert [claim.verdict for claim in ix.verify(text).claims] == ["holds", "holds", "holds", "fails"]


@pytest.mark.parametrize("value", MASKS[:3] + MASKS[4:])
def test_accuracy_under_masks(value: float) -> None:
    mask = np.where(np.tril(np.ones((4, 4), dtype=bool)), 0, value).astype(np.float32)
    found = ix.accuracy(MASKED, scores(2).astype(np.float32), mask, backend="numpy")["w"]
    assert found.wrong == 0
    assert found.worst is not None
    assert found.worst.error is not None
    assert found.worst.error < 8


@pytest.mark.parametrize("exponent", [-(10**9), -(10**30), -(10**300), 10**9, 10**30, Fraction(-(10**40), 7)])
def test_digits_of_exponentials_of_extreme_size(exponent: Any) -> None:
    x = EXACT.functions["exp"](exponent)
    with mpmath.workdps(360):
        logarithm = mpmath.mpf(Fraction(exponent).numerator) / Fraction(exponent).denominator / mpmath.log(10)
        place = int(mpmath.floor(logarithm))
        leading = mpmath.nstr(mpmath.mpf(10) ** (logarithm - place), 12)
    assert Value(x).decimal(12) == f"{leading}e{place:+d}"
    assert float(Value(x)) == (0.0 if exponent < 0 else np.inf)
    assert sign(x - x * x) == (1 if exponent < 0 else -1)


def test_accuracy_of_what_is_beyond_every_dtype() -> None:
    found = ix.accuracy("input x; let y = exp(x);", np.float32(1e9), backend="numpy")["y"]
    assert (found.wrong, found.points) == (0, 1)
    assert found.worst is not None
    assert found.worst.true.endswith("e+434294481")


def test_ends_of_tiny_numbers_are_rounded_outward() -> None:
    for low, high in ((1, 2), (-2, -1), (-1, 1)):
        x = Interval(low, high, -(10**30), 64)
        assert -1 < x.lower <= 0 <= x.upper < 1
        assert x.width > 0
    with pytest.raises(OverflowError):
        _ = Interval(1, 1, 10**30, 64).upper


def test_powers_and_digits_come_in_time_or_are_refused() -> None:
    start = process_time()
    long = ix.exact("let x = 2.0 ** 1e6;")["x"]
    assert (len(str(long)), long.decimal(5), float(long)) == (301030, "9.9007e+301029", np.inf)
    with pytest.raises(ix.CallError, match="IX514"):
        ix.exact("let x = 2.0 ** 1e9;")
    for text in ("sin(1.0)", "erf(1.0)", "exp(sqrt(2.0))"):
        with pytest.raises(ix.CallError, match=r"IX515.*(\n.*)*ask for at most"):
            ix.exact(f"let x = {text};")["x"].decimal(100_000)
    assert process_time() - start < 10


def test_refusals_know_how_much_there_is_to_do() -> None:
    roots = EXACT.functions["sqrt"](2)
    few, many = EXACT.functions["exp"](1), sum((EXACT.functions["exp"](n) for n in range(1, 40)), 0)
    assert most_digits(Fraction(1, 7)) == most_digits(few) == most_digits(roots) == 100_000
    assert 1_000 < most_digits(many) < 50_000


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long division from few bits on."""
    monkeypatch.setattr(series, "_LONG", 200)


def test_long_division(short: None) -> None:
    generator = random.Random(1)
    for _ in range(1_000):
        above = generator.getrandbits(generator.randint(1, 6_000)) * generator.choice([1, -1])
        below = generator.getrandbits(generator.randint(1, 3_000)) + 1
        assert series.divided(above, below) == above // below
    for bits in range(190, 900, 7):
        below = (1 << bits) - 1
        for above in ((below << bits) - 1, below << bits, below * below):
            assert series.divided(above, below) == above // below


@pytest.mark.parametrize("bits", [60, 900, 5_000])
def test_series_hold_the_truth(bits: int) -> None:
    generator = random.Random(bits)
    exponents = [Fraction(generator.randint(-(10**6), 10**6), generator.randint(16_000, 10**6)) for _ in range(12)]
    with mpmath.workprec(bits + 200):
        pairs = [(series.pi(bits), +mpmath.pi)]
        pairs += [(series.exp_of(x, bits), mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)) for x in exponents]
        for found, truth in pairs:
            assert mpmath.ldexp(found.low, found.exponent) <= truth <= mpmath.ldexp(found.high, found.exponent)
            assert (found.high - found.low).bit_length() + bits <= found.low.bit_length() + 3
