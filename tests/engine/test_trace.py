"""A plan in words, and on its way through the passes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engine import door
from tests.engine.test_order import EXAMPLES
from tests.engine.test_specialise import lowered, sizes

import indexical as ix
from indexical.engine import rules, skew
from indexical.engine.constants import apart
from indexical.engine.describe import costed, operation_lines, size_text
from indexical.engine.ledger import bytes_of
from indexical.engine.show import emit_sized
from indexical.engine.specialise import specialise
from indexical.engine.trace import traced

MATMUL = "input A[i, k], B[k, j]; let C[i, j] = sum[k](A[i, k] * B[k, j])"
CHAIN = """input x[i]; let a[i, j in 0..64] = exp(x[i] * j); let b[i, j in 0..64] = tanh(a[i, j]) + x[i];
let c[i, j in 0..64] = exp(b[i, j]) * b[i, j]; let y[i] = sum[j](c[i, j] + c[i, j] ** 3) + 1;"""
SHAW = """input Q[i, d], K[j, d], R[r, d]; let c = (size(r) - 1) / 2;
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) + sum[d](Q[i, d] * R[clamp(j - i, -c, c) + c, d]);"""


def test_a_plan_is_a_list_of_operations() -> None:
    plan = rules.optimise(lowered(f"{MATMUL} / 2;"), rules.Target())
    assert list(map(str, operation_lines(plan))) == [
        "input A[i, k]  f32",
        "input B[k, j]  f32",
        "C[i, j]  f32 = contract[k] (A / 2) × B",
    ]


def test_costs_are_told_where_sizes_are_known() -> None:
    plan = rules.optimise(lowered(f"{MATMUL};"), rules.Target())
    [*_, line, last] = costed(plan, sizes(i=64, j=32, k=16), "numpy", {}, {})
    assert line.split()[:3] == ["32,768", "14.0", "KiB"]
    assert line.endswith("C[i, j]  f32 = contract[k] A × B")
    assert last == "8.0 KiB at once, 8.0 KiB of them results"


def test_bytes_are_those_of_a_call_and_not_of_one_that_lets_go() -> None:
    """Few arrays are not let go: a call returns soon enough."""
    plan = rules.optimise(lowered(CHAIN), rules.Target())
    held = [f"{size_text(bytes_of(plan, sizes(i=64), 'numpy', frees=frees).peak)} at once" for frees in (False, True)]
    [*_, last] = costed(plan, sizes(i=64), "numpy", {}, {})
    assert held[0] != held[1]
    assert last.startswith(held[0])


def test_refusals_have_their_reason() -> None:
    text = "input w[i, j], R[r, e]; let y[i, e] = sum[j](w[i, j] * R[clamp(j - i, -2, 2) + 2, e]);"
    plan = rules.optimise(lowered(text), rules.Target())
    assert plan.refused
    lines = str(traced(lowered(text), rules.Target())).partition("refused")[2].splitlines()
    assert all(any(line.endswith(f": {one.reason}") for line in lines) for one in plan.refused)


def test_every_rule_is_shown_with_its_law_and_what_it_changed() -> None:
    trace = traced(lowered(SHAW), rules.Target(), sizes(i=4, j=4, d=8, r=5))
    names = [one.name for one in trace.passed]
    assert "contract before the read" in names
    assert names[-2:] == ["specialise", "keep constants"]
    assert all(one.changes and one.before != one.after for one in trace.passed)
    text = str(trace)
    assert text.startswith("lowered\n")
    assert all(f". {rule.name}: {rule.law}" in text for rule in rules.RULES if rule.name in names)
    assert " at once, " in text.partition("in the end")[2]


def test_a_table_is_shown_as_it_is_written_and_then_by_diagonals() -> None:
    text = """input x[i, j];
    let g[i, j] = x[i, j] + (if i > 0 { g[i - 1, j] } else { 0 }) + (if j > 0 { tanh(g[i, j - 1]) } else { 0 });"""
    shown = str(ix.compile(text).plan(x=np.ones((3, 4)), backend="numpy").passes())
    lowered, first = shown.split("\n\n")[:2]
    assert "for i_step in " in lowered
    assert "diagonal" not in lowered
    assert first.startswith(f"1. {skew.NAME}: {skew.LAW}\n")
    assert "\n  + for diagonal_step in " in first


def test_a_program_that_no_rule_changes_says_so() -> None:
    assert str(traced(lowered("input x[i]; let y[i] = x[i] + 1;"), rules.Target())).endswith("no rule changes it")


@pytest.mark.sampled(0)
def test_the_end_of_a_trace_is_the_plan() -> None:
    for path in EXAMPLES[::9]:
        plan = lowered(str(path))
        trace = traced(plan, rules.Target())
        expected = rules.optimise(plan, rules.Target())
        assert {n: d.value for n, d in trace.plan.definitions.items()} == {
            n: d.value for n, d in expected.definitions.items()
        }


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_sources_for_known_sizes_compare_no_sizes(library: str) -> None:
    plan = lowered("input x[i, j]; let y[i, j] = if j <= i { x[i, j] } else { 0 };")
    two = apart(specialise(rules.optimise(plan, rules.Target()), sizes(i=3, j=3)))
    kept, found = emit_sized(two, door.DIALECTS[library]()).text.split("def program")
    assert "shape" not in kept + found
    assert "arange" in kept
    assert "arange" not in found
    assert found.count("kept_") == 1


def test_bytes_in_units() -> None:
    assert [size_text(n) for n in (0, 1023, 1024, 3 << 20)] == ["0 B", "1023 B", "1.0 KiB", "3.0 MiB"]
