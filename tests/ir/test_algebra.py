"""The normal form: equal where two spellings are one value, and never another value than was written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.laws.agreement import is_within
from tests.laws.programs import Case, cases, random_case
from tests.plan.agreement import difference, program_of

import indexical as ix
from indexical.ir import nodes as ir
from indexical.ir.algebra.normal import TooLarge
from indexical.ir.algebra.normalize import Algebra
from indexical.ir.algebra.predicates import mentions
from indexical.ir.algebra.writing import named, written
from indexical.ir.verify import verify
from indexical.run import pointwise

HEAD = "input x[i], y[i], z[i], A[i, j], B[j, k], p[i] : i64, keep[i] : bool, c, n : i64;\n"


def are_one(left: str, right: str, home: str = "[i]") -> bool:
    algebra = Algebra(program_of(f"{HEAD}let one{home} = {left};\nlet other{home} = {right};\n"))
    one, other = algebra.definition("one"), algebra.definition("other")
    assert one is not None
    assert other is not None
    return one.key == other.key


SAME = [
    ("x[i] * y[i] / 2", "0.5 * y[i] * x[i]"),
    ("x[i] - y[i] - x[i]", "-y[i]"),
    ("2 * (x[i] + y[i])", "y[i] * 2 + x[i] + x[i]"),
    ("(x[i] + y[i]) * z[i]", "z[i] * (y[i] + x[i])"),
    ("(2 * x[i] + 2 * y[i]) * z[i]", "2 * z[i] * (y[i] + x[i])"),
    ("(x[i] + y[i]) * z[i] / z[i]", "y[i] + x[i]"),
    ("x[i] / (y[i] / z[i])", "x[i] * z[i] / y[i]"),
    ("x[i] ** 2 / x[i]", "x[i]"),
    ("sqrt(x[i]) * sqrt(x[i])", "x[i]"),
    ("x[i] * rsqrt(y[i])", "x[i] / sqrt(y[i])"),
    ("x[i] ** -0.5", "1 / x[i] ** 0.5"),
    ("x[i] / sqrt(64)", "0.125 * x[i]"),
    ("x[i] * sqrt(8)", "x[i] * 2 * sqrt(2)"),
    ("x[i] / sqrt(size(i))", "x[i] * size(i) ** -0.25 * rsqrt(sqrt(size(i)))"),
    ("exp(x[i]) * exp(y[i])", "exp(y[i] + x[i])"),
    ("exp(x[i] - y[i])", "exp(x[i]) / exp(y[i])"),
    ("sqrt(exp(x[i]))", "exp(x[i] / 2)"),
    ("sum[j](c * A[i, j])", "c * sum[k in 0..size(j)](A[i, k])"),
    ("sum[j](A[i, j] + B[j, 0])", "sum[j](A[i, j]) + sum[j](B[j, 0])"),
    ("sum[j](sum[k](B[j, k]) * x[i])", "x[i] * sum[k](sum[j](B[j, k]))"),
    ("sum[j, k](A[i, j] * B[j, k])", "sum[k, j](B[j, k] * A[i, j])"),
    ("sum[j](exp(A[i, j] + x[i]))", "exp(x[i]) * sum[j](exp(A[i, j]))"),
    ("if keep[i] { x[i] } else { 0.0 }", "if !keep[i] { 0.0 } else { x[i] }"),
    ("x[i] * (keep[i] as f64)", "if keep[i] { x[i] } else { 0.0 }"),
    ("if keep[i] { if i < 2 { x[i] } else { 0.0 } } else { 0.0 }", "if i <= 1 && keep[i] { x[i] } else { 0.0 }"),
    ("if i >= n { x[i] } else { y[i] }", "if n > i { y[i] } else { x[i] }"),
    ("tanh(x[i] + y[i])", "tanh(y[i] + x[i])"),
    ("max(x[i], y[i])", "max(y[i], x[i])"),
    ("x[i] * (i - 2 * p[i])", "-x[i] * (2 * p[i] - i)"),
    ("x[i] * abs(i - n)", "abs(n - i) * x[i]"),
    ("sum[j](exp(A[i, j])) ** -1 * exp(A[i, 0])", "exp(A[i, 0]) / sum[k in 0..size(j)](exp(A[i, k]))"),
    ("exp(log(sum[j](exp(A[i, j]))))", "sum[j](exp(A[i, j]))"),
    ("x[i] + 0 * y[i]", "x[i]"),
    ("(A[i, 0] * x[i]) ** 2", "x[i] ** 2 * A[i, 0] * A[i, 0]"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_two_spellings_of_one_value_are_one_form(left: str, right: str) -> None:
    assert are_one(left, right)


APART = [
    ("sqrt(x[i] ** 2)", "x[i]"),
    ("sqrt(x[i] * y[i])", "sqrt(x[i]) * sqrt(y[i])"),  # Both may be negative.
    ("x[i] * (i - n)", "x[i] * i - x[i] * n"),  # Digits would be lost.
    ("(x[i] + y[i]) * z[i]", "x[i] * z[i] + y[i] * z[i]"),  # Twice the work.
    ("if x[i] < y[i] { 1.0 } else { 0.0 }", "if x[i] >= y[i] { 0.0 } else { 1.0 }"),  # A NaN is neither.
    ("x[i] ** 3", "x[i] ** 2"),
    ("sum[j](A[i, j])", "sum[j in 0..2](A[i, j])"),
    ("sum[j](A[i, j] where j < i)", "sum[j](A[i, j] where j <= i)"),
]


@pytest.mark.parametrize(("left", "right"), APART)
def test_two_values_are_two_forms(left: str, right: str) -> None:
    assert not are_one(left, right)


@pytest.mark.parametrize(
    ("body", "copied"),
    [
        ("x[i]", True),
        ("2 * x[i] / sqrt(size(i))", True),
        ("x[i] + y[i] - y[i]", True),
        ("(x[i] * z[i] + x[i] * y[i]) / (z[i] + y[i])", False),
        ("x[i] + y[i]", False),
        ("(x[i] - y[i]) * c", False),
        ("tanh(x[i])", False),
    ],
)
def test_a_copy_in_any_spelling(body: str, copied: bool) -> None:
    algebra = Algebra(program_of(f"{HEAD}let one[i] = {body};\n"))
    assert algebra.is_copied("one") == algebra.is_opened("one") == copied


def test_a_copy_is_seen_through_and_a_projection_is_not() -> None:
    lets = "let half[i] = x[i] / 2;\nlet total[i] = sum[j](A[i, j]);\nlet mask[i] = if i < 2 { 1.0 } else { 0.0 };\n"
    algebra = Algebra(program_of(f"{HEAD}{lets}let seen[i] = half[i] * mask[i] * total[i];\n"))
    found = algebra.definition("seen")
    assert found is not None
    assert "half" not in found.key
    assert "mask" not in found.key
    assert "total[i]" in found.key


# ------------------------------------------------------------------------------- values


def check_values(case: Case) -> None:
    """Every definition, its body and guard put into normal form and written down again, has the same value."""
    program = ix.compile(case.text)
    algebra = Algebra(program.ir)
    lets = tuple(replace(let, clauses=tuple(again(c, algebra) for c in let.clauses)) for let in program.ir.lets)
    changed = replace(program.ir, lets=lets)
    assert verify(changed) == []
    if not is_within(case):
        return
    names = program.definitions
    before, after = (pointwise.run(p, case.arrays, names) for p in (program.ir, changed))
    for name in names:
        kept = before[name].astype(after[name].dtype)  # A condition that was cast to f32 no longer says so.
        assert difference(kept, after[name]) is None, f"{name}: {difference(kept, after[name])}"


def again(clause: ir.Clause, algebra: Algebra) -> ir.Clause:
    algebra.work = 0
    taken = [r.coordinate.name for r in clause.ranges]
    guard = None if clause.guard is None else named(algebra.canonical.condition(clause.guard), taken)
    try:
        return replace(clause, body=named(algebra.canonical.any(clause.body), taken), guard=guard)
    except TooLarge:
        return replace(clause, guard=guard)


@given(cases())
def test_the_normal_form_has_the_same_value(case: Case) -> None:
    check_values(case)


def test_the_normal_form_of_larger_programs_has_the_same_value() -> None:
    for seed in range(1000, 1025):
        check_values(random_case(seed))


def test_writing_down_and_reading_again_changes_nothing() -> None:
    for left, right in SAME:
        program = program_of(f"{HEAD}let one[i] = {left};\nlet other[i] = {right};\n")
        for let in program.lets:
            algebra = Algebra(program)
            once = algebra.plain(let.clauses[0].body)
            twice = algebra.plain(named(written(once, let.span), ("i",)))
            assert twice.key == once.key


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("x[i] * y[i]", "xy"),
        ("sum[j](A[i, j] * B[j, 0])", "AB"),
        ("sum[j in 0..n](A[i, j])", "An"),
        ("x[p[i]] / exp(z[i])", "xpz"),
        ("(x[i] + y[i]) * z[i]", "xyz"),
        ("if keep[i] { x[i] } else { 0 }", ("keep", "x")),
        ("max[j](A[i, j]) + c", "Ac"),
    ],
)
def test_a_form_mentions_what_it_reads(body: str, read: str | tuple[str, ...]) -> None:
    algebra = Algebra(program_of(f"{HEAD}let one[i] = {body};\n"))
    value = algebra.plain(algebra.lets["one"].clauses[0].body)
    names = ("x", "y", "z", "A", "B", "p", "keep", "c", "n")
    assert {name for name in names if mentions(value, name)} == set(read)
