"""A causal contract is accepted where nothing reads the future, and refuted where something does.

The truth is what the reference evaluator reads.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.facts.test_dependence import Recording, arrays_for, cells

import indexical as ix

TEXT = """{spaces}input Q[i, d], K[i, d], V[i, e], X[i, e];
{function}let allowed[i, j in 0..size(i)] = {named};
let keys[j, d] = {keys};
let values[j in 0..size(i), e] = {values};
let weights[i, j] = softmax[j](sum[d](Q[i, d] * keys[j, d]) / sqrt(size(d)) where {guard});
let heard[i, e] = sum[j](weights[i, j] * {read}{late});
let out[i, e] = {residual};
attention out(query i, key j, compare d, carry e, causal);
"""
GUARDS = (
    ("j <= i", 8),
    ("i >= j", 2),
    ("!(j > i)", 2),
    ("i - j >= 0", 2),
    ("j < i", 2),
    ("j < i + 1", 2),
    ("i - 3 < j <= i", 2),
    ("j <= i, (i - j) % 2 == 0", 2),
    ("allowed[i, j]", 3),
    ("near(i, j)", 2),
    ("j >= i", 1),
    ("j <= i + 1", 1),
    ("near(j, i)", 1),
    ("abs(i - j) < 2", 1),
    ("j < 2 || j <= i", 1),
    ("j <= i && j < 2", 1),
    ("(j < 2 || i - j < 2) && j <= i", 1),
    ("i / 2 == j / 2", 1),
    ("i / 2 > j / 2 || i == j", 1),
    ("j <= i - 1 || j == i", 1),
    ("2 * j <= 2 * i", 1),
    ("j + 2 <= i + 2", 1),
    ("j * 2 <= i", 1),
)
READS = (
    ("values[j, e]", 12),
    ("values[size(i) - 1 - j, e]", 1),
    ("values[j / 2, e]", 1),
    ("values[min(j + 1, size(i) - 1), e]", 1),
    ("(if j >= 1 { values[j - 1, e] } else { 0.0 })", 1),
    ("(if j + 1 < size(i) { values[j + 1, e] } else { 0.0 })", 1),
    ("(values[j, e] + values[i, e])", 1),
)
LATE = (("", 8), (" where j <= i", 1), (" where j != 1", 1))
RESIDUALS = (
    ("heard[i, e]", 4),
    ("X[i, e] + heard[i, e]", 4),
    ("heard[i, e] * X[i, e]", 1),
    ("heard[i, e] + (if i >= 1 { heard[i - 1, e] } else { 0.0 })", 1),
    ("heard[i, e] + (if i + 1 < size(i) { heard[i + 1, e] } else { 0.0 })", 1),
)
KEYS = (("K[j, d]", 8), ("K[j, d] / (1.0 + sum[f](K[j, f] ** 2))", 1), ("K[j, d] - mean[k](K[k, d])", 1))
VALUES = (
    ("V[j, e]", 8),
    ("V[j, e] + X[j, e]", 1),
    ("sum[k in 0..=j](V[k, e])", 1),
    ("cumsum[j](V[j, e])", 1),
    ("softmax[j](V[j, e])", 1),
    ("sum[k](V[k, e] where k <= j)", 1),
)
NAMED = (("j <= i", 2), ("j <= i && i - j < 2", 1), ("j >= i", 1), ("(j < 2 || j <= i)", 1))
FUNCTION = "fn near(a, c) {\n    c <= a && a - c < 3\n}\n"


def draw(seed: int) -> str:
    chance = Random(seed)

    def pick(among: tuple[tuple[str, int], ...]) -> str:
        return chance.choices([text for text, _ in among], [weight for _, weight in among])[0]

    return TEXT.format(
        spaces="space position(i, j, k), feature(d, e, f);\n" if chance.random() < 0.5 else "",
        function=FUNCTION,
        named=pick(NAMED),
        keys=pick(KEYS),
        values=pick(VALUES),
        guard=pick(GUARDS),
        read=pick(READS),
        late=pick(LATE),
        residual=pick(RESIDUALS),
    )


def is_causal(text: str) -> bool:
    """Whether no cell of `out` reads a later position of any input."""
    program = ix.compile(text)
    recording = Recording(program.ir, arrays_for(program, 0, {"i": 5, "d": 1, "e": 1})).compute()
    return all(
        place[0] <= cell[0]
        for cell in cells(recording.tensors["out"])
        for _, place in recording.seen["out", cell]
        if place
    )


@pytest.mark.parametrize("seed", range(150))
def test_causal_is_accepted_exactly_where_it_is_true(seed: int) -> None:
    text = draw(seed)
    found = [one for one in ix.check(text) if one.severity == "error"]
    if is_causal(text[: text.index("attention")]):
        assert [str(one) for one in found] == [], text
    else:
        assert [one.code for one in found] == ["IX423"], text
