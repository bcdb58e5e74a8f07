"""A causal contract is accepted where nothing reads the future, and refuted where something does.

The truth is what the reference evaluator reads.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.facts.test_dependence import Recording, arrays_for, cells

import indexical as ix

pytestmark = pytest.mark.sampled(4)

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


# ------------------------------------------------------------------------- tables in spaces of their own


ATTENTION = """input Q[i, d, h], K[j, d, h], V[j, e, h]{inputs};
{before}
let w[h, i, j] = softmax[j](sum[d](Q[i, d, h] * {key}) / sqrt(size(d)) + {bias}) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * {value}){after};
attention out(query i, key j, causal);
"""
PLAIN = {"inputs": "", "before": "", "key": "K[j, d, h]", "bias": "0.0", "value": "V[j, e, h]", "after": ""}
SPACES = "space position(i, j), head(h), feature(d, e);\n"
TABLE = ", table[r, h]"
APART: dict[str, dict[str, str]] = {
    "the nearest": {"inputs": TABLE, "bias": "table[min(i - j, 7), h]"},
    "turned": {"inputs": ", table[h, r]", "bias": "table[h, clamp(i - j, 0, 31)]"},
    "shifted": {"inputs": TABLE, "bias": "table[i - j + size(i), h]"},
    "the other way": {"inputs": TABLE, "bias": "table[clamp(j - i + 7, 0, 14), h]"},
    "reversed": {"inputs": ", table[r]", "bias": "table[size(j) - 1 - j]"},
    "buckets": {"inputs": ", b[r], bucket[s] : i64", "bias": "b[bucket[min(i - j, 9)] + 1]"},
    "tokens": {"inputs": ", emb[v], tok[j] : i64", "bias": "emb[tok[j]]"},
    "tokens as values": {"inputs": ", emb[v, e], tok[j] : i64", "value": "emb[min(tok[j], 7), e]"},
    "relative values": {"inputs": ", R[r, e]", "value": "(V[j, e, h] + R[clamp(i - j, 0, 7), e])"},
    "relative keys": {"inputs": ", R[r, d]", "key": "(K[j, d, h] + R[clamp(i - j, 0, 7), d])"},
    "compared apart": {"inputs": ", R[r, d]", "bias": "sum[d](Q[i, d, h] * R[min(i - j, 7), d])"},
    "named": {
        "inputs": TABLE,
        "before": "let rel[i in 0..size(i), j in 0..size(j)] = clamp(i - j, 0, 7);",
        "bias": "table[rel[i, j], h]",
    },
    "split": {
        "inputs": TABLE,
        "before": "let b[i, j, h] = table[min(i - j, 7), h] where j <= i;",
        "bias": "b[i, j, h]",
    },
    "inlined": {
        "inputs": TABLE,
        "before": "fn near(t[r, h], a, b) -> [h] { t[clamp(a - b, 0, 7), h] }",
        "bias": "near(table, i, j)[h]",
    },
    "added later": {"inputs": ", R[r, e]", "after": " + R[min(i, 7), e]"},
}


@pytest.mark.parametrize("spaces", ["", SPACES, SPACES.replace(";", ", distance(r, s, v);")])
@pytest.mark.parametrize("name", APART)
def test_an_axis_that_nothing_ties_to_positions_says_nothing_of_the_future(name: str, spaces: str) -> None:
    text = spaces + ATTENTION.format(**{**PLAIN, **APART[name]})
    assert [str(one) for one in ix.check(text) if one.severity == "error"] == []


LEAKS: dict[str, dict[str, str]] = {
    "looked up": {"inputs": ", p[j] : i64", "value": "V[p[j], e, h]"},
    "the next": {"value": "V[min(j + 1, size(j) - 1), e, h]"},
    "the next of a table": {"inputs": ", R[p]", "bias": "R[min(j + 1, size(j) - 1)] + R[j]"},
    "the next token": {"inputs": ", emb[v, e], tok[j] : i64", "value": "emb[tok[min(j + 1, size(j) - 1)], e]"},
    "a table of positions": {"inputs": ", R[i, h]", "bias": "R[min(i - j + 2, size(i) - 1), h]"},
    "reversed": {"value": "V[size(j) - 1 - j, e, h]"},
    "reversed, of its own name": {"inputs": ", U[p, e]", "value": "(V[j, e, h] + U[size(j) - 1 - j, e])"},
    "split": {"before": "let W[j, e, h] = V[min(j + 1, size(j) - 1), e, h];", "value": "W[j, e, h]"},
    "inlined": {
        "before": "fn later(x[j, e, h], a) -> [e, h] { x[min(a + 1, size(j) - 1), e, h] }",
        "value": "later(V, j)[e, h]",
    },
}


@pytest.mark.parametrize("spaces", ["", SPACES])
@pytest.mark.parametrize("name", LEAKS)
def test_an_axis_of_positions_is_read_up_to_the_query_alone(name: str, spaces: str) -> None:
    text = spaces + ATTENTION.format(**{**PLAIN, **LEAKS[name]})
    assert [one.code for one in ix.check(text) if one.severity == "error"] == ["IX423"], text


@pytest.mark.parametrize("of", ["table", "V"])
def test_a_derivative_says_which_way_it_goes_beside_a_table(of: str) -> None:
    text = ATTENTION.format(**{**PLAIN, **APART["the nearest"]})
    program = ix.compile(text[: text.index("attention")])
    ways = {one.verdict: one for one in program.facts["out"].directions}
    assert set(ways["causal"].inputs) >= {"K", "V"}
    assert "table" not in ways["causal"].otherwise
    back = ix.grad(program, of="out", by=(of,))
    assert all("table" not in one.otherwise for one in back.facts[f"d_{of}"].directions)
