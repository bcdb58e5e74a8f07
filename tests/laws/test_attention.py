"""One answer to what is an attention: facts and plan agree on it, in every spelling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.facts.rewrites import (
    permute_axes,
    rename_coordinates,
    rename_tensors,
    respell_guards,
    rewrite,
    shuffle_statements,
    swap_operands,
)
from tests.facts.shapes import SHAPES
from tests.facts.spelling import spell
from tests.laws.attended import (
    BASES,
    FREE,
    MASKED,
    NAMES,
    OTHERS,
    RAW,
    SCALES,
    SUNK,
    are_same,
    by_facts,
    by_plan,
    text,
)
from tests.plan.agreement import arrays_for, checked, program_of
from tests.plan.families import FAMILIES, Family
from tests.plan.rewrites import spelling

import indexical as ix
from indexical.api import compile_anyway
from indexical.backends.old.plan.recognize import recognize

pytestmark = pytest.mark.sampled(27)

REWRITES = (rename_coordinates, rename_tensors, permute_axes, shuffle_statements, swap_operands, respell_guards)


def check(written: str) -> None:
    """Facts and plan say the same of a program."""
    program = ix.compile(written).ir
    facts, (plan, reasons) = by_facts(program), by_plan(program)
    words = f"{written}\nfacts: {facts}\nplan: {plan}\n{reasons}"
    assert facts.roles, words
    if not plan.roles:  # Of weights over their sum, neither sum alone need say who hears whom.
        assert reasons or recognize(program, program.outputs).attentions, words
        return
    assert len(facts.roles) == len(plan.roles), words
    for one, other in zip(facts.roles, plan.roles, strict=True):
        assert are_same(one, other, MASKED not in facts.codes), words
    assert facts.codes & SCALES == plan.codes & SCALES, words


@pytest.mark.sampled(4)
@pytest.mark.parametrize("base", BASES)
def test_facts_and_plan_agree(base: str) -> None:
    family = BASES[base]
    (plain,) = by_facts(ix.compile(text(family, "softmax", True)).ir).roles
    for number, name in enumerate(NAMES):
        written = text(family, name, bool((number + len(base)) % 2))
        (found,) = by_facts(ix.compile(written).ir).roles
        assert are_same(found, plain), f"{written}\n{found}"
        check(written)


# Bases in which a guard says who hears whom.
GUARDED = [name for name, family in BASES.items() if any("i" in guard for guard in family.guard)]


@pytest.mark.parametrize("base", BASES)
def test_facts_and_plan_agree_beside_sinks_and_on_free_weights(base: str) -> None:
    family = BASES[base]
    (plain,) = by_facts(ix.compile(text(family, "softmax", True)).ir).roles
    for number, name in enumerate((*SUNK, *(FREE if base in GUARDED else ()))):
        written = text(family, name, bool((number + len(base)) % 2))
        (found,) = by_facts(ix.compile(written).ir).roles
        assert are_same(found, plain), f"{written}\n{found}"
        assert found.rows == ("at most 1" if name in SUNK else "free"), written
        check(written)
        assert recognize(program_of(written), ("out",)).attentions, written


@pytest.mark.parametrize("name", [*SUNK, *FREE])
def test_other_normalisers_are_computed_as_written_under_other_names_and_orders(name: str) -> None:
    claim = "at most 1" if name in SUNK else "free"
    for named in (False, True):
        written = text(BASES["causal"], name, named)
        ix.compile(f"{written}attention out(query i, key j, carry e, head h, batch b, causal, rows {claim});\n")
        again = rewrite(spell(written), Random(f"{name} {named}"), 4, REWRITES).text
        check(again)
        program = program_of(written)
        found = checked(program, arrays_for(program, BASES["causal"].sizes), ("out",))
        assert found.attentions, found.refusals


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("base", BASES)
def test_weights_that_are_no_exponentials_have_roles_and_are_streamed_or_have_a_reason(base: str, name: str) -> None:
    (plain,) = by_facts(ix.compile(text(BASES[base], "softmax", True)).ir).roles
    for named in (False, True):
        written = text(BASES[base], name, named)
        program = ix.compile(written).ir
        (found,) = by_facts(program).roles
        assert are_same(found, plain), f"{written}\n{found}"
        plan = recognize(program, program.outputs)
        reasons = [refusal.reason for refusal in plan.refusals]
        assert plan.attentions or any("no exponentials" in reason for reason in reasons), written


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["V[b, h, i - j, e]", "V[b, h, (j + 1) % size(j), e]"])
def test_values_read_at_a_distance_change_no_role(value: str, name: str) -> None:
    (plain,) = by_facts(ix.compile(text(BASES["causal"], "softmax", True)).ir).roles
    for named in (False, True):
        written = text(BASES["causal"], name, named, value=value)
        program = program_of(written)
        for reading in (by_facts(program), by_plan(program)[0]):
            (found,) = reading.roles
            assert are_same(found, plain), f"{written}\n{found}"
        if name not in RAW and name != "twice normalised":
            # There, a value is multiplied with 0 where it is out of bounds, and that is refused.
            assert checked(program, arrays_for(program, BASES["causal"].sizes), ("out",)).attentions


@pytest.mark.parametrize("score", ["sum[d](tanh(Q[b, h, i, d] + K[b, h, j, d]))", "-abs(i - j) * 1.0"])
def test_values_read_at_a_distance_from_who_asks_are_of_the_key(score: str) -> None:
    for name in NAMES:
        written = text(BASES["causal"], name, True, value="V[b, h, i - j, e]", score=score)
        (found,) = by_facts(program_of(written)).roles
        assert (found.query, found.key, found.carry) == (("i",), ("j",), ("e",)), f"{written}\n{found}"


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_computes_what_it_recognises(name: str) -> None:
    for named in (False, True):
        program = program_of(text(BASES["causal"], name, named))
        found = checked(program, arrays_for(program, BASES["causal"].sizes), ("out",))
        assert found.attentions, found.refusals


@pytest.mark.parametrize("base", BASES)
def test_facts_and_plan_agree_under_other_names_and_orders(base: str) -> None:
    for seed, name in enumerate((*NAMES, *OTHERS)):
        chance = Random(f"{base} {name}")
        check(rewrite(spell(text(BASES[base], name, bool(seed % 2))), chance, 4, REWRITES).text)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_facts_and_plan_agree_on_the_spellings_of_the_plan(family: Family) -> None:
    for seed in range(4):
        check(spelling(family, seed).text)


# A score less another, as one attention less another: in place, and by a name.
DIFFERENCES = {
    "in place": "let out[i, e] = sum[j]((softmax[j](s[i, j]) - 0.5 * softmax[j](t[i, j])) * V[j, e]);",
    "by name": (
        "let u[i, j] = softmax[j](s[i, j]); let w[i, j] = softmax[j](t[i, j]);\n"
        "let both[i, j] = u[i, j] - gain * w[i, j];\nlet out[i, e] = sum[j](both[i, j] * V[j, e]);"
    ),
    "by hand": (
        "let u[i, j] = exp(s[i, j]) / sum[k](exp(s[i, k])); let w[i, j] = 2 ** t[i, j] / sum[k](2 ** t[i, k]);\n"
        "let out[i, e] = sum[j](V[j, e] * (u[i, j] + w[i, j])) / 2;"
    ),
    "apart": "let out[i, e] = sum[j](softmax[j](s[i, j]) * V[j, e]) - gain * sum[j](softmax[j](t[i, j]) * V[j, e]);",
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_facts_and_plan_agree_on_a_difference_of_attentions(name: str) -> None:
    scores = "let s[i, j] = sum[d](Q[i, d] * K[j, d]); let t[i, j] = sum[d](R[i, d] * L[j, d]);\n"
    written = f"input Q[i, d], K[j, d], R[i, d], L[j, d], V[j, e], gain;\n{scores}{DIFFERENCES[name]}\noutput out;"
    check(written)
    assert len(by_plan(ix.compile(written).ir)[0].roles) == 2


# One example has two spaces confused, and is no program.
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.ix"))
PROGRAMS = {
    **{path.stem: path for path in EXAMPLES if "swapped" not in path.stem},
    **{name: shape.text for name, shape in SHAPES.items()},
    "the sum of all weights": "input s[i, j]; let out[i] = sum[j](softmax[j](s[i, j]));",
    "values at the query": "input s[i, j], V[i, e]; let out[i, e] = sum[j](softmax[j](s[i, j]) * V[i, e]);",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_facts_call_an_attention_the_plan_computes_or_gives_a_reason(name: str) -> None:
    program = compile_anyway(PROGRAMS[name]).ir
    found = recognize(program, tuple(let.name for let in program.lets))
    refused = {refusal.definition for refusal in found.refusals}
    for roles in by_facts(program).roles:
        made = [other for other in found.attentions if other.startswith(f"{roles.definition}_attention")]
        assert made or roles.definition in refused | found.attentions.keys(), roles


# ------------------------------------------------------------------------------- mistakes

PLAIN = BASES["plain"]


def scored(body: str) -> dict[str, str]:
    return {"score": body}


# A mistake in the plainest attention, as a change of how it is written.
MISTAKES: dict[str, dict[str, str]] = {
    "IX402": {"over": "i"},
    "IX403": {"value": "V[b, h, i, e]"},
    "IX404": {"value": "V[b, 0, j, e]"},
    "IX405": {"value": "V[b, h, j, e] * ((j <= i) as f64)"},
    "IX406": scored("sum[d](Q[b, h, i, d]) * sum[d](K[b, h, j, d]) / sqrt(size(d))"),
    "IX407": scored("sum[d in 0..2](Q[b, 0, i, h * 2 + d] * K[b, 0, j, d * size(h) + h])"),
    "IX408": scored("sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(e))"),
    "IX409": scored("sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) / sqrt(size(d))"),
    "IX410": scored("sum[d](Q[b, h, i, d] * K[b, h, j, d])"),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_is_named_in_every_spelling(code: str, name: str) -> None:
    family = PLAIN if code != "IX403" else replace(PLAIN, inputs=PLAIN.inputs.replace("V[b, h, j", "V[b, h, i"))
    if code == "IX410" and ("power" in name or "root" in name):
        pytest.skip("another base is a temperature, and that is the reader's")
    if code in ("IX402", "IX403") and name == "shifted above the line alone":
        pytest.skip("these weights sum to no 1, and nothing is said of that")
    for named in (False, True):
        written = text(family, name, named, **MISTAKES[code])
        found = [finding for finding in ix.compile(written).diagnostics if finding.code == code]
        assert found, written
        assert all(label.span.text.strip() in written for label in found[0].labels), f"{written}\n{found[0]}"


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("code", ["IX402", "IX403", "IX404", "IX405", "IX406", "IX407"])
def test_a_mistake_with_other_weights_is_named(code: str, name: str) -> None:
    test_a_mistake_is_named_in_every_spelling(code, name)


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_a_right_contract_is_accepted_in_every_spelling(name: str) -> None:
    # A value that is multiplied with 0 is heard, and so is a score that only cancels: these are not causal.
    causal = "" if name in RAW or name == "twice normalised" else ", causal"
    contract = f"attention out(query i, key j, compare d, carry e, head h, batch b{causal});\n"
    for named in (False, True):
        ix.compile(text(BASES["causal"], name, named) + contract)
