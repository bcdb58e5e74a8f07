"""Attention is recognised in every spelling, and recognition changes no value."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from tests.facts.rewrites import rewrite
from tests.facts.shapes import SHAPES
from tests.facts.spelling import spell
from tests.laws.agreement import is_within
from tests.laws.programs import Case, cases, random_case
from tests.plan.agreement import arrays_for, checked, program_of
from tests.plan.families import FAMILIES, Family, base
from tests.plan.rewrites import Spelling, spelling

import indexical as ix
from indexical.backends.old.plan.recognize import recognize
from indexical.ir import nodes as ir
from indexical.ir.algebra.canonical import text
from indexical.ir.walk import walk
from indexical.plan.steps import Attention

pytestmark = pytest.mark.sampled(3)

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.ix"))

# How many spellings of each family are compared, and how many of these are evaluated.
SPELLINGS, EVALUATED = 10, 1


def the_attention(source: str, name: str = "out") -> Attention:
    program = program_of(source)
    return recognize(program, (name,)).attentions[name]


def shown(attention: Attention) -> str:
    guard = " && ".join(map(text, attention.guard))
    return f"{text(attention.score)} | {guard} | {text(attention.value)} | {attention.empty}"


# ------------------------------------------------------------------------------ spellings


def expected(written: Spelling, plain: Attention) -> Attention:
    """The attention of a family. A row without keys may be 0 / 0 where the division is made by hand."""
    return replace(plain, empty="nan") if written.divides and not written.family.certain else plain


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_spelling_is_one_attention(family: Family) -> None:
    plain = the_attention(base(family))
    for seed in range(SPELLINGS):
        written = spelling(family, seed)
        program = program_of(written.text)
        arrays = arrays_for(program, family.sizes, seed) if seed < EVALUATED else None
        found = checked(program, arrays, ("out",))
        words = f"{written.text}{written.ways}\n{found.refusals}"
        attentions = [replace(a, empty="zero") if a.empty == "keyless" else a for a in found.attentions.values()]
        assert attentions == [expected(written, plain)], words
        assert ("out" in found.attentions) == written.same, words


def test_the_spellings_differ() -> None:
    """Otherwise the law would say less than it seems to."""
    written = {spelling(family, seed).text for family in FAMILIES for seed in range(SPELLINGS)}
    ways = {way for family in FAMILIES for seed in range(SPELLINGS) for way in spelling(family, seed).ways}
    assert len(written) > 0.95 * len(FAMILIES) * SPELLINGS
    assert len(ways) > 50


@pytest.mark.parametrize("name", SHAPES)
def test_cutting_renaming_and_wrapping_hide_no_attention(name: str) -> None:
    """Rewrites of whole programs: other names, other axes, definitions inlined, extracted, in blocks and functions."""
    plain = program_of(SHAPES[name].text)
    count = len(recognize(plain, plain.outputs).attentions)
    assert count == 1
    for seed in range(4):
        written = rewrite(spell(SHAPES[name].text, plain.outputs), Random(f"{name} {seed}"), 6)
        program = program_of(written.text)
        found = checked(program, None, program.outputs)
        assert len(found.attentions) == count, f"{written.text}{written.done}\n{found.refusals}"


# ------------------------------------------------------------------------------- programs


@given(cases())
def test_no_program_changes_its_value(case: Case) -> None:
    program = ix.compile(case.text)
    checked(program.ir, case.arrays if is_within(case) else None, program.definitions)


def test_no_larger_program_changes_its_value() -> None:
    found = 0
    for seed in range(40):
        case = random_case(seed)
        program = ix.compile(case.text)
        found += len(checked(program.ir, case.arrays if is_within(case) else None, program.definitions).attentions)
    assert found > 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_attention_of_the_examples_is_recognised(path: Path) -> None:
    program = ix.compile(path).ir
    found = checked(program, None, program.outputs)
    gathers = any(getattr(part, "op", "") == "softmax" for let in program.lets for part in walk(let.clauses[0].body))
    assert bool(found.attentions) == (gathers and path.stem not in ("online_softmax", "decoder"))


STANDARD = {
    "std::attention": [
        "dot_product_attention(Q, K, V)",
        "guarded_attention(Q, K, V, allowed)",
        "causal_attention(Q, K, V)",
        "window_attention(Q, K, V, 2)",
        "prefix_attention(Q, K, V, 2)",
        "document_attention(Q, K, V, document)",
        "decoding_attention(Q, K, V, 1)",
        "biased_attention(Q, K, V, bias, allowed)",
        "alibi_attention(Q, K, V)",
        "capped_attention(Q, K, V, 5.0, allowed)",
        "grouped_query_attention(Q, K, V)",
        "causal_grouped_query_attention(Q, K, V)",
    ],
    "std::layers": [
        "multi_head_attention(X, A, B, C, D)",
        "causal_multi_head_attention(X, A, B, C, D)",
        "cross_attention(X, Y, A, B, C, D)",
        "causal_sublayer(X, A, B, C, D)",
    ],
}
CALLS = [(module, call) for module, calls in STANDARD.items() for call in calls]


@pytest.mark.parametrize(("module", "call"), CALLS, ids=lambda text: text.split("(")[0])
def test_every_attention_of_the_library_is_recognised(module: str, call: str) -> None:
    name = call.split("(")[0]
    source = (
        f"use {module}::{{{name}}};\n"
        "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], allowed[i, j] : bool, bias[b, h, i, j];\n"
        "input document[b, i] : i64, X[b, i, m], Y[b, j, m], A[h, m, d], B[h, m, d], C[h, m, e], D[h, e, m];\n"
        f"let out = {call};\noutput out;\n"
    )
    program = program_of(source)
    sizes = {"b": 1, "h": 2, "i": 3, "j": 3, "d": 2, "e": 2, "m": 2}
    assert len(checked(program, arrays_for(program, sizes), ("out",)).attentions) == 1


# ---------------------------------------------------------------------------- where it is

HEAD = """
input Q[i, d], K[i, d], V[i, e], W[e, m], R[i], lam;
let s[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let w[i, j] = softmax[j](s[i, j]) where j <= i;
"""
SIZES = {"i": 3, "d": 2, "e": 2, "m": 2}

PLACES = {
    "in a sum": ("out[i, e] = V[i, e] + sum[j](w[i, j] * V[j, e])", 1),
    "in a function": ("out[i, e] = relu(sum[j](w[i, j] * V[j, e]) - 0.1)", 1),
    "times what does not vary": ("out[i, e] = sum[j](R[i] * w[i, j] * V[j, e])", 1),
    "projected": ("out[i, m] = sum[e](W[e, m] * sum[j](w[i, j] * V[j, e]))", 1),
    "projected in one sum": ("out[i, m] = sum[e, j](W[e, m] * w[i, j] * V[j, e])", 1),
    "in a softmax": ("out[i, e] = softmax[e](sum[j](w[i, j] * V[j, e]))", 1),
    "in a maximum": ("out[i] = max[e](sum[j](w[i, j] * V[j, e]))", 1),
    "twice": ("out[i, e] = sum[j](w[i, j] * V[j, e]) * sum[j](w[i, j] * V[j, e] ** 2)", 2),
    "as a difference of weights": (
        "out[i, e] = sum[j]((w[i, j] - lam * softmax[j](s[i, j])) * V[j, e])",
        2,
    ),
    "beside another sum": ("out[i, e] = sum[j](w[i, j] * V[j, e] + V[j, e])", 1),
    "under a guard": ("out[i, e] = (sum[j](w[i, j] * V[j, e]) * V[i - 1, e]) where i > 0", 1),
    "in a branch": ("out[i, e] = if i > 0 { sum[j](w[i, j] * V[j, e] * V[i - 1, e]) } else { 2.0 }", 1),
    "around a branch": ("out[i, e] = sum[j](if i > 0 { w[i, j] * V[j, e] * V[i - 1, e] } else { 0.0 })", 1),
    "around a guarded read": ("out[i, e] = sum[j](if i > j { w[i, j] * V[i - j - 1, e] } else { 0.0 })", 1),
    "in a guarded sum": ("out[e] = sum[i](sum[j](w[i, j] * V[j, e]) * V[i - 1, e] where i > 0)", 1),
    "with values of the query": ("out[i, e] = sum[j](w[i, j] * (V[j, e] - V[i, e]))", 1),
    "with a mean": ("out[i, e] = mean[j](w[i, j] * V[j, e])", 1),
    "over a range of its own": (
        "out[i, e] = sum[j in 0..=i](exp(s[i, j]) * V[j, e]) / sum[j in 0..=i](exp(s[i, j]))",
        1,
    ),
    "guarded late": ("out[i, e] = sum[j](softmax[j](s[i, j]) * V[j, e] where j <= i)", 1),
    "with its entropy": ("out[i] = -sum[j](softmax[j](s[i, j]) * log(softmax[j](s[i, j])))", 1),
}


@pytest.mark.parametrize("place", PLACES)
def test_it_is_found_where_it_stands(place: str) -> None:
    statement, count = PLACES[place]
    program = program_of(f"{HEAD}let {statement};\noutput out;\n")
    assert len(checked(program, arrays_for(program, SIZES), ("out",)).attentions) == count


def test_clauses_are_gone_through_one_by_one() -> None:
    rule = "let out[i in 1..size(i), e] = sum[j](w[i, j] * V[j, e]);"
    program = program_of(f"{HEAD}let out[0, e] = V[0, e];\n{rule}\noutput out;\n")
    assert list(checked(program, arrays_for(program, SIZES), ("out",)).attentions) == ["out_attention"]


def test_its_coordinates_are_in_order() -> None:
    source = """
    input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], W[h, e, m];
    let w[i, h, b, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]));
    let out[m, b, i] = sum[h, e](W[h, e, m] * sum[j](w[i, h, b, j] * V[b, h, j, e]));
    """
    program = program_of(source)
    home = checked(program, None, ("out",)).program.tensors["out_attention"]
    assert [str(axis.coordinate) for axis in home.axes] == ["b", "h", "i", "e"]


def test_a_guarded_definition_keeps_its_guard() -> None:
    source = f"{HEAD}let out[i, e] = (sum[j](w[i, j] * V[j, e])) where i > 0;\noutput out;\n"
    program = program_of(source)
    found = checked(program, arrays_for(program, SIZES), ("out",))
    assert list(found.attentions) == ["out"]
    before, after = (p.tensors["out"].clauses[0] for p in (program, found.program))  # type: ignore[union-attr]
    assert before.guard == after.guard


def test_only_what_is_wanted_is_gone_through() -> None:
    program = program_of(f"{HEAD}let out[i, e] = sum[j](w[i, j] * V[j, e]);\n")
    assert recognize(program, ("w",)).attentions == {}
    assert recognize(program, ("w",)).program is program


# -------------------------------------------------------------------------------- digits


def test_differences_are_not_taken_apart() -> None:
    """What is large and nearly cancels stays together: its digits would be lost."""
    for bias in ("lam * (j - i)", "R[i] - R[j]", "lam * j - lam * i", "(1.0 - R[j]) * -10000.0"):
        source = f"{HEAD}let out[i, e] = sum[j](softmax[j](s[i, j] + {bias}) * V[j, e]);\noutput out;\n"
        assert "(- " in text(the_attention(source).score), bias


def test_what_does_not_vary_with_the_key_is_left_out() -> None:
    source = f"{HEAD}let out[i, e] = sum[j](softmax[j](s[i, j] + R[i] + 7.0) * V[j, e]);\noutput out;\n"
    assert "R[" not in text(the_attention(source).score)


# ------------------------------------------------------------------------------ refusals

REFUSED = {
    "several coordinates at once": "out[e] = sum[i, j](exp(s[i, j]) * V[j, e]) / sum[i, j](exp(s[i, j]))",
    "other points": "out[i, e] = sum[j in 0..2](w[i, j] * V[j, e])",
    "may be negative": "out[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / (sum[j](exp(s[i, j])) - 1.0)",
    "differ": "out[i, e] = sum[j](exp(2.0 * s[i, j]) * V[j, e]) / sum[j](exp(s[i, j]))",
    "more than exponentials": "out[i, e] = sum[j](R[j] * exp(s[i, j]) * V[j, e]) / sum[j](R[j] * exp(s[i, j]))",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_refusal_says_why(words: str) -> None:
    program = program_of(f"{HEAD}let out[i, e] = {REFUSED[words]};\noutput out;\n".replace("out[i, e] = out", "out"))
    found = checked(program, None, ("out",))
    assert found.attentions == {}
    assert any(words in refusal.reason and refusal.definition == "out" for refusal in found.refusals)


def test_a_recurrence_is_left_alone() -> None:
    source = """
    use std::recurrence::{online_attention};
    input Q[i, d], K[j, d], V[j, e];
    let out = online_attention(Q, K, V);
    """
    found = checked(program_of(source), None, ("out",))
    assert found.attentions == {}
    assert any("made of itself" in refusal.reason for refusal in found.refusals)


@pytest.mark.parametrize(
    ("score", "guarded"),
    [
        ("if j <= i { s[i, j] } else { -1e9 }", True),
        ("s[i, j] + (if j <= i { 0.0 } else { -1e9 })", True),
        ("if j < i { s[i, j] } else { -1e9 }", False),  # The first row would keep no key, and listens to all.
        ("if j <= i { s[i, j] } else { -1e4 }", False),  # A score may be as low.
    ],
)
def test_a_large_negative_number_is_a_guard_where_every_row_keeps_a_key(score: str, guarded: bool) -> None:
    source = f"{HEAD}let out[i, e] = sum[j](softmax[j]({score}) * V[j, e]);\noutput out;\n"
    program = program_of(source)
    found = checked(program, arrays_for(program, SIZES), ("out",))
    assert bool(found.attentions["out"].guard) == guarded


# ---------------------------------------------------------------------------------- time


def test_a_plain_attention_takes_a_few_milliseconds() -> None:
    program = program_of(base(FAMILIES[1]))
    assert min(elapsed(program, "out") for _ in range(5)) < 0.02


CHAINS = {
    "copies": ("Q[i, 0] * K[j, 0]", "2.0 * {y}[i, j]", True),
    "functions": ("Q[i, 0] * K[j, 0]", "tanh({y}[i, j])", True),
    "squares": ("Q[i, 0] * K[j, 0]", "{y}[i, j] * {y}[j, i]", True),
    "weights of weights": ("Q[i, 0] * K[j, 0]", "softmax[j]({y}[i, j])", True),
    "exponentials": ("exp(Q[i, 0] * K[j, 0])", "{y}[i, j] * exp(Q[i, {n}] * K[j, 1])", True),
    "products of sums": ("exp(Q[i, 0] * K[j, 0])", "{y}[i, j] * ({y}[j, i] + exp(Q[i, {n}] * K[j, 1]))", True),
    "sums of products": ("exp(Q[i, 0] * K[j, 0])", "sum[k]({y}[i, k] * {y}[k, j])", True),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_long_chain_of_definitions_is_not_waited_for(chain: str) -> None:
    first, step, found = CHAINS[chain]
    lets = [f"let y0[i, j] = {first};"]
    lets += [f"let y{n + 1}[i, j] = {step.format(y=f'y{n}', n=n)};" for n in range(120)]
    gather = "let out[i, e] = sum[j](softmax[j](y120[i, j]) * V[j, e]);"
    program = program_of("input Q[i, d], K[i, d], V[i, e];\n" + "\n".join(lets) + gather)
    assert elapsed(program, "out") < 2
    assert ("out" in recognize(program, ("out",)).attentions) == found


def elapsed(program: ir.Program, name: str) -> float:
    start = time.process_time()
    recognize(program, (name,))
    return time.process_time() - start


def test_a_total_that_varies_with_the_key_makes_no_weights() -> None:
    """Each edge is divided by the total of its own target: this is no softmax over all edges."""
    program = ix.compile("""
        input e[m], x[m], target[m]: i64;
        let w[m] = exp(e[m]);
        let total[v in 0..3] = sum[m](w[m] where target[m] == v);
        let out[v in 0..3] = sum[m](w[m] / total[target[m]] * x[m] where target[m] == v);""")
    given = np.array([0.1, 0.5, -0.3, 0.7]), np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 2, 0, 2])
    np.testing.assert_allclose(program(*given), program(*given, backend="reference"))


def test_a_product_of_softmaxes_under_a_sum_over_several_coordinates() -> None:
    program = ix.compile("""
        input a[i], b[j];
        let y = sum[i, j, k in 0..2](prod[n in 0..2](softmax[i](a[i] * b[j] + k + n)) * a[i]);""")
    given = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    np.testing.assert_allclose(program(*given), program(*given, backend="reference"))
