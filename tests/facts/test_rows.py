"""What the weights of a query sum to: found in every spelling, and claimed by contracts."""

from __future__ import annotations

import pytest
from tests.plan.test_sinks import GUARDS, SPELLINGS, program

import indexical as ix

HEAD = """input Q[i, d], K[j, d], P[i, d], R[j, d], V[j, e], X[i, e], c;
let s[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let r[i, j] = sum[d](P[i, d] * R[j, d]) / sqrt(size(d));
"""
# What the rows come to, and programs in which they do.
ROWS = {
    "sum to 1": (
        "let out[i, e] = sum[j](softmax[j](s[i, j]) * V[j, e]);",
        "let out[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / sum[j](exp(s[i, j])) + X[i, e];",
        "let out[i, e] = sum[j]((softmax[j](s[i, j]) + softmax[j](r[i, j])) / 2 * V[j, e]);",
        "let a[i, e] = sum[j](softmax[j](s[i, j]) * V[j, e]);\nlet out[i, e] = a[i, e] + a[size(i) - 1 - i, e];",
    ),
    "at most 1": (
        "let out[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / (1 + sum[j](exp(s[i, j])));",
        "let out[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / (exp(c) + 2 * sum[j](exp(s[i, j])));",
        "let out[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / (size(j) + sum[j](exp(s[i, j])));",
        "let out[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / (exp(c) + 1 + sum[j](exp(s[i, j])));",
    ),
    "signed": (
        "let out[i, e] = sum[j]((softmax[j](s[i, j]) - c * softmax[j](r[i, j])) * V[j, e]);",
        "let w[i, j] = softmax[j](s[i, j]) - softmax[j](r[i, j]) * c;\nlet out[i, e] = sum[j](w[i, j] * V[j, e]);",
        "let out[i, e] = sum[j](softmax[j](s[i, j]) * V[j, e]) - c * sum[j](softmax[j](r[i, j]) * V[j, e]);",
        "let a[i, e] = sum[j](softmax[j](s[i, j]) * V[j, e]);\nlet b[i, e] = sum[j](softmax[j](r[i, j]) * V[j, e]);\n"
        "let out[i, e] = a[i, e] - c * b[i, e];",
    ),
    "free": ("let out[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / (c + sum[j](exp(s[i, j])));",),
}
CASES = [(rows, body) for rows, bodies in ROWS.items() for body in bodies]
CLAIMS = {"sum to 1": "", "at most 1": ", rows at most 1", "signed": ", rows signed", "free": ", rows free"}


def codes(text: str) -> list[str]:
    return [found.code for found in ix.check(text) if found.code.startswith("IX42")]


@pytest.mark.parametrize(("rows", "body"), CASES)
def test_claims_hold_from_what_was_found_on(rows: str, body: str) -> None:
    order = list(CLAIMS)
    for claimed, words in CLAIMS.items():
        text = f"{HEAD}{body}\nattention out(query i, key j, compare d, carry e{words});"
        assert codes(text) == ([] if order.index(rows) <= order.index(claimed) else ["IX426"]), (claimed, text)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_sinks_are_found_in_every_spelling(spelling: str) -> None:
    for guard in GUARDS:
        text = program(spelling, guard)
        (found,) = ix.compile(text).roles
        key = "k" if spelling == "permuted" else "j"
        assert (found.query, found.key, found.rows) == (("i",), (key,), "at most 1")
        claim = f"attention out(query i, key {key}, compare d, carry e, head h, batch b"
        assert codes(f"{text}{claim}, rows at most 1);") == []
        assert codes(f"{text}{claim});") == ["IX426"]


def test_a_refuted_claim_says_why_and_what_to_say() -> None:
    text = f"{HEAD}{ROWS['at most 1'][0]}\nattention out(query i, key j);"
    (found,) = [d for d in ix.check(text) if d.code == "IX426"]
    assert "sum to less than 1" in found.message
    assert "rows at most 1" in str(found.help)
    assert "at most 1" in str(ix.compile(f"{HEAD}{ROWS['at most 1'][0]}").facts)


OFFSETS = {
    ("j <= i + n", "causal offset n"): True,
    ("j < i + n", "causal offset n"): True,
    ("j <= i", "causal offset n"): True,
    ("j <= i + 2", "causal offset 2"): True,
    ("j <= i + size(j) - size(i)", "causal offset size(j) - size(i)"): True,
    ("j <= i + n && i + n - j < 8", "causal offset n"): True,
    ("j <= i + n + 1", "causal offset n"): False,
    ("j <= i + 2", "causal offset 1"): False,
    ("j <= i + n", "causal"): False,
    ("j <= i + n || j < 1", "causal offset n"): False,
    ("j < i", "causal offset -1"): True,
    ("j <= i", "causal offset -1"): False,
    ("j <= i - 2", "causal offset 1 - 3"): True,
    ("j < i", "causal offset 1 - 3"): False,
}


@pytest.mark.parametrize(("guard", "claim"), OFFSETS)
def test_causal_with_an_offset(guard: str, claim: str) -> None:
    text = f"""input Q[i, d], K[j, d], V[j, e], n : i64;
let s[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let out[i, e] = sum[j](softmax[j](s[i, j] where {guard}) * V[j, e]);
attention out(query i, key j, {claim});"""
    assert codes(text) == ([] if OFFSETS[guard, claim] else ["IX423"])


# Guards under which every query keeps a key, and others.
KEPT = {
    "j <= i && (pad[j] || j == 0)": True,
    "j <= i && !(pad[j] && j != i)": True,
    "j <= i && (if j == i { true } else { pad[j] })": True,
    "pad[j] || j == i": True,
    "(j <= i && pad[j]) || j < 1": True,
    "j <= i && (doc[i] == doc[j] || j == 0)": True,
    "j <= i && pad[j]": False,
    "j < i && (pad[j] || j == 0)": False,
    "j <= i && (pad[j] || j == 1)": False,
}


@pytest.mark.parametrize("guard", KEPT)
def test_a_note_of_empty_rows_only_where_there_may_be_one(guard: str) -> None:
    text = f"""input Q[i, d], pad[i] : bool, doc[i] : i64;
let w[i, j in 0..size(i)] = softmax[j](sum[d](Q[i, d] * Q[j, d]) / sqrt(size(d)) where {guard});"""
    assert ("IX415" not in [found.code for found in ix.check(text)]) == KEPT[guard]


FEATURES = """input Q[i, d], K[j, d], V[j, e];
let f[i, d] = relu(Q[i, d]) + 1;
let g[j, d] = relu(K[j, d]) + 1;
let heard[i, e] = sum[j](sum[d](f[i, d] * g[j, d]) * V[j, e] where j <= i);
let total[i] = TOTAL;
let out[i, e] = heard[i, e] / total[i];
attention out(query i, key j, compare d, carry e, causal);
"""


@pytest.mark.parametrize(
    ("total", "claimed"),
    [
        ("sum[j](sum[d](f[i, d] * g[j, d]) where j <= i)", True),
        ("sum[j, d](g[j, d] * f[i, d] where j <= i)", True),
        ("sum[d](f[i, d] * sum[k](g[k, d] where k <= i))", True),
        ("sum[d](f[i, d] * sum[k](g[k, d]))", False),
        ("sum[d](f[i, d] * sum[k](g[k, d] where k <= i)) + 1", False),
        ("sum[d](f[i, d])", False),
    ],
)
def test_products_of_features_that_are_divided_by_their_sum(total: str, claimed: bool) -> None:
    text = FEATURES.replace("TOTAL", total)
    divided = "V[j, e] where j <= i) / total[i];"
    lines = text.replace("let heard[i, e]", "let out[i, e]").replace("V[j, e] where j <= i);", divided)
    inside = lines.replace("let out[i, e] = heard[i, e] / total[i];\n", "")
    for spelling in (text, inside):
        assert ([found for found in ix.check(spelling) if found.severity == "error"] == []) == claimed


def test_layers_behind_each_other_are_no_sum_of_weights() -> None:
    head = """input X[i, d], lam;
    let a[i, j] = softmax[j](sum[d](X[j, d] * X[i, d]) / sqrt(size(d)) where j <= i);
    let b[i, j] = softmax[j](sum[d](X[j, d] * X[i, d]) / size(d) where j <= i);
    let w[i, k] = softmax[k](sum[d](X[k, d] * X[i, d]) / sqrt(size(d)) where k <= i);"""
    chain = "sum[j](a[k, j] * X[j, d])"
    for inner, rows in ((chain, "sum to 1"), (f"({chain} - lam * sum[j](b[k, j] * X[j, d]))", "signed")):
        program = ix.compile(f"{head} let out[i, d] = sum[k](w[i, k] * {inner});")
        assert {found.rows for found in program.roles if found.definition == "out"} == {rows}
