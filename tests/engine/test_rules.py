"""Each rule fires on its minimal program and changes no number; and fires in the examples and in drawn programs.

NaN and infinity stand in cells that guards remove, where code is isolated from them, and a check that stands in a value
before it is rewritten stands in it afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.decoding import drawn as causal
from tests.engine import door, drawing
from tests.engine.drawing import Drawn
from tests.engine.judging import Judged

import indexical as ix
from indexical.engine.dialects.torch_ import Torch
from indexical.engine.dialects.torch_kernels import KERNELS
from indexical.engine.lower import lower
from indexical.engine.ops import Plan, Read, Write
from indexical.engine.order import reachable, roots_of
from indexical.engine.rules import FIRST, LEGAL, RULES, STORES, Rule, Target, optimise, rewrite
from indexical.engine.rules.cost import elements, normalized, products
from indexical.engine.rules.norms import negated_twice
from indexical.engine.rules.patterns import Pattern, always
from indexical.ir import nodes as ir
from indexical.ir.types import Dtype, Kind
from indexical.run.samples import random_arrays
from indexical.transform.stable import stable_program

TABLES = (FIRST, RULES, STORES, LEGAL)
EXAMPLES = Path(__file__).parents[2] / "examples"

# A program for each rule that it fires on.
MINIMAL = {
    "name alike what is reduced": "input x[i, m]; let y[i, m] = x[i, m] / sum[m](abs(x[i, m]) + 1.0);",
    "a choice that is decided": "input x[i]; let y[i] = sum[k](x[k] ** (i - k) where k <= i);",
    "a check that holds": "input x[t, n]; let y[t, n] = mean[s in 0..=t](x[s, n]) + x[2, n];",
    "a mean is a sum": "input a[i, k], b[k, j]; let y[i, j] = mean[k](a[i, k] * b[k, j]);",
    "a choice of 0 is a guard": "input x[i, k]; let y[i] = sum[k](if k <= i { x[i, k] } else { 0.0 });",
    "a factor of 1 or 0 is a guard": """
        input c[n, e]: i64, v[i]: i64; let y[i, e] = sum[n]((c[n, e] as f64) * (if n == v[i] { 1.0 } else { 0.0 }));""",
    "multiply by places": """
        input a[t, n], b[t, m], p[t]: i64; let y[k in 0..3, n, m] = sum[t](a[t, n] * b[t, m] where p[t] == k);""",
    "take a condition out": "input x[i, k]; let y[i, j in 0..4] = sum[k](x[i, k] where j < i);",
    "padding for a guard": """
        input x[b, t, c], w[k in 0..3, o, c]; let y[b, t, o] = sum[k, c](x[b, t - k, c] * w[k, o, c] where k <= t);""",
    "read through a one-hot sum": "input x[n, e], v[i]: i64; let y[i, e] = sum[n](x[n, e] where n == v[i]);",
    "decay": """
        input x[t, n], g[n]; let y[t, n] = sum[s in 0..size(t)](exp(-(t - s) * g[n]) * x[s, n] where s <= t);""",
    "decay by steps": """
        input x[t, n], g[t], b[t];
        let y[t, n] =
            sum[s in 0..size(t)](b[t] * prod[m in 0..size(t)](g[m] where s < m && m <= t) * x[s, n] where s <= t);
        let z[t, n] =
            sum[s in 0..size(t)](prod[m in 0..size(t)](g[m] where t < m && m <= s) * x[s, n] where s >= t);""",
    "put rows behind": """
        input given_away[i, e], x[m, e];
        let y[i, e] = if i >= size(i) - size(m) { x[i - size(i) + size(m), e] } else { given_away[i, e] };""",
    "put rows at places": """
        input given_away[n, e], x[c, e]; let p[c] = rank[c](x[c, 0]) + 1;
        let y[n, e] = if any[c](p[c] == n) { sum[c](x[c, e] where p[c] == n) } else { given_away[n, e] };""",
    "run along": "input x[t, n]; let y[t, n] = sum[s in 0..size(t)](x[s, n] where s <= t);",
    "some point": """
        input x[n, e], v[i]: i64, w[i]; let y[i, k in 0..9] = any[n](x[n, 0] > w[i] where n == v[i]);""",
    "some pair": """
        input x[t, n], g[n]; let y[t, n] = sum[s in 0..size(t)](g[n] ** (t - s) * x[s, n] where s <= t);""",
    "sum by remainder": """
        input x[i], w[k], z[n];
        let y[n] = sum[k](x[(n - k + 1) / 2] * w[k] where (n - k + 1) % 2 == 0, 0 <= (n - k + 1) / 2 < size(i));""",
    "sum groups": "input x[h, t]; let y[g in 0..2, t] = sum[h](x[h, t] where h / 3 == g);",
    "write at places": "input x[i, e], v[i]: i64; let y[n in 0..5, e] = sum[i](x[i, e] where v[i] == n);",
    "merge views": """
        input x[i]; let z[i in 0..size(i) - 1] = x[i + 1]; let y[i in 0..size(i) - 2] = z[i + 1] * 2.0;""",
    "join sums": "input a[i, c, k], b[j, c, k]; let y[i, j] = sum[c](sum[k](a[i, c, k] * b[j, c, k]));",
    "take a sign out": "input a[i, k], b[j, k]; let y[i, j] = sum[k](-(a[i, k] * b[j, k]));",
    "split a sum": """
        input a[i, k], b[j, k], c[i, k], d[j, k]; let y[i, j] = sum[k](a[i, k] * b[j, k] - c[i, k] * d[j, k]);""",
    "take a factor out": "input x[i, k], s[i]; let y[i] = sum[k](s[i] * exp(x[i, k]));",
    "scale a factor": "input a[i, k], b[j, k]; let y[i, j] = sum[k](a[i, k] * b[j, k]) / sqrt(8.0);",
    "scale by a factor": "input a[i, k], b[j, k]; let y[i, j] = 0.5 * sum[k](a[i, k] * b[j, k]);",
    "multiply out": """
        input w[i, j], v[j, e], r[p in 0..7, e];
        let y[i, e] = sum[j](w[i, j] * (v[j, e] + r[clamp(i - j, -3, 3) + 3, e]));""",
    "contract": "input a[i, k], b[k, j]; let y[i, j] = sum[k](a[i, k] * b[k, j] where k <= i);",
    "less twice": "input x[i]; let z[i] = -x[i]; let y[i] = -z[i];",
    "normalise by a kernel": "input x[i, m]; let y[i, m] = x[i, m] * rsqrt(mean[m](x[i, m] ** 2) + 0.001);",
    "weigh in the norm": "input x[i, m], g[m]; let y[i, m] = x[i, m] * rsqrt(mean[m](x[i, m] ** 2) + 0.001) * g[m];",
    "add in the norm": """
        input x[i, m], b[m]; let a[i] = mean[m](x[i, m]); let v[i] = mean[m]((x[i, m] - a[i]) ** 2);
        let y[i, m] = (x[i, m] - a[i]) / sqrt(v[i] + 0.001) + b[m];""",
    "cross-entropy by a kernel": """
        input x[i, c], t[i]: i64; let p[i, c] = log_softmax[c](x[i, c]); let y = sum[i](-p[i, t[i]]);""",
    "cross-entropy of a total": """
        input x[i, c], t[i]: i64; let m[i] = max[c](x[i, c]);
        let z[i] = m[i] + log(sum[c](exp(x[i, c] - m[i]))); let y = sum[i](z[i] - x[i, t[i]]);""",
    "add up in the loss": """
        input x[i, c], t[i]: i64; let p[i, c] = log_softmax[c](x[i, c]); let y = mean[i](-p[i, t[i]]);""",
    "add up less the loss": """
        input x[i, c], t[i]: i64; let p[i, c] = log_softmax[c](x[i, c]); let y = -mean[i](p[i, t[i]]);""",
    "select the first": "input x[i, e]; let y[i, e] = if rank[e](x[i, e]) < 2 { x[i, e] } else { 0.0 };",
    "choose matrices": "input w[e, n, m], x[t, m], p[t]: i64; let y[t, n] = sum[m](w[p[t], n, m] * x[t, m]);",
    "contract 16 bits": """
        input a[i, k], b[k, j]; let c[i, k] = a[i, k] as f16; let d[k, j] = b[k, j] as f16;
        let y[i, j] = tanh(sum[k](c[i, k] * d[k, j]));""",
    "join sums of 16 bits": """
        input a[i, c, k], b[j, c, k]; let d[i, c, k] = a[i, c, k] as f16; let e[j, c, k] = b[j, c, k] as f16;
        let y[i, j] = sum[c](sum[k](d[i, c, k] * e[j, c, k]));""",
    "round what was widened": """
        input a[i, k], b[k, j]; let c[i, k] = a[i, k] as f16; let d[k, j] = b[k, j] as f16;
        let y[i, j] = sum[k](c[i, k] * d[k, j]);""",
    "round a norm once": """
        input x[i, m]; let h[i, m] = x[i, m] as f16; let y[i, m] = h[i, m] * rsqrt(mean[m](h[i, m] ** 2) + 0.001);""",
    "round once": "input x[i]; let h[i] = x[i] as f16; let y[i] = ((h[i] as f32) * 2.0) as f16;",
    "count from the end": """
        input x[n], w[k]; let y[n] = sum[k](x[n - k] * w[k] where k <= n);""",
    "convolve": """
        input x[b, c, t], w[o, c, k in 0..3];
        let y[b, o, i in 0..size(t) - 2] = sum[c, k](x[b, c, i + k] * w[o, c, k]);""",
    "contract before the read": """
        input a[i, d], r[p in 0..7, d];
        let y[i, j in 0..size(i)] = sum[d](a[i, d] * r[clamp(i - j, -3, 3) + 3, d]);""",
    "add what stays first": """
        input x[t, n], b[n], c[n]; let y[0, n] = x[0, n];
        let y[t in 1..size(t), n] = b[n] - tanh(y[t - 1, n]) + c[n] - x[t, n];""",
    "add to all rows": """
        input x[t, m], w[n, m], b[n]; let y[0, n] = 0.0;
        let y[t in 1..size(t), n] = tanh(sum[m](w[n, m] * x[t, m]) + b[n]) * y[t - 1, n] + 1.0;""",
    "gather the first": """
        input x[i, j], v[j]; let y[i] = sum[j](v[j] where j != i, rank[j](x[i, j] where j != i) < 2);""",
    "store at places": "input v[i], z[n], p[i]: i64; let y[i, n] = v[i] * z[n] where p[i] == n && n > 1;",
    "write before the contraction": """
        input w[i, j], r[p in 0..7, e]; let y[i, e] = sum[j](w[i, j] * r[clamp(i - j, -3, 3) + 3, e]);""",
    "sort": "input x[i, e]; let y[i, e] = rank[e](x[i, e] where e <= i);",
    "add up what is the same": "input x[i]; let y[i] = sum[k in 0..4](log(x[i]));",
    "contract pair by pair": """
        input a[i, k], b[k, j], c[j, n]; let y[i, n] = sum[k, j](a[i, k] * b[k, j] * c[j, n] where k < 3);""",
    "mask a reduction": "input x[i, k]; let y[i] = max[k](x[i, k] where k <= i);",
    "mask scores": "input x[i, k]; let y[i, k] = softmax[k](x[i, k] where k <= i);",
}
SIZES = {"i": 6, "j": 6, "k": 5, "h": 6, "t": 6, "e": 4, "n": 5, "m": 4, "c": 3, "d": 3, "o": 2, "b": 2, "p": 7}
# A guard for the sums of these, and the arrays whose cells it removes.
GUARDED = {
    "contract": "input a[i, k], b[k, j]; let y[i, j] = sum[k](a[i, k] * b[k, j] where k < 3);",
    "split a sum": "input a[i, k], b[k, j], c[i, k]; let y[i, j] = sum[k](a[i, k] * b[k, j] + c[i, k] where k < 3);",
    "multiply out": "input a[i, k], b[k, j], c[i, j]; let y[i, j] = sum[k](a[i, k] * (b[k, j] + c[i, j]) where k < 3);",
    "a mean is a sum": "input a[i, k], b[k, j]; let y[i, j] = mean[k](a[i, k] * b[k, j] where k < 3);",
    "run along": "input x[k, n]; let y[k, n] = sum[s in 0..size(k)](x[s, n] where s <= k && s < 3);",
    "take a factor out": "input x[i, k], s[i]; let y[i] = sum[k](s[i] * x[i, k] where k < 3);",
    "write at places": "input x[k, e]; let y[n in 0..3, e] = sum[k](x[k, e] where k / 2 == n && k < 3);",
}


def drawn(text: str, seed: int = 1) -> Drawn:
    """A program with random arrays; places are those of its arrays."""
    program = ix.compile(text).ir
    arrays = dict(random_arrays(program, {}, SIZES, seed)[0].arrays)
    return Drawn(text, arrays, "minimal", seed)


def check(case: Drawn, isolates: tuple[bool, ...] = (False, True)) -> None:
    judged = Judged(case)
    for library in ("numpy", "torch"):
        for isolate in isolates:
            for plainly in (False, True):
                fault = judged.fault(library, isolate, plainly)
                assert fault is None, f"{case!r}\n{fault}"


def plan_of(case: Drawn, isolate: bool = False) -> Plan:
    """The plan of what a program gives out, for PyTorch."""
    judged = Judged(case)
    dtypes = {one.name: judged.bound.dtypes[one.name] for one in judged.program.ir.inputs}
    return door.build(judged.program.ir, dtypes, "torch", judged.program.ir.outputs, isolate).plan


def fired(plan: Plan) -> set[str]:
    return {one.rule for one in plan.applied}


def checks_of(plan: Plan) -> set[str]:
    """What is read or written at places that are refused where they are outside."""
    values = reachable(roots_of(plan))
    return {str(one.op.under) for one in values if isinstance(one.op, Read | Write) and one.op.outside == "check"}


def test_every_rule_has_a_program_a_law_and_a_name_of_its_own() -> None:
    every = dict.fromkeys(rule for table in TABLES for rule in table)
    assert len({rule.name for rule in every}) == len(every)
    assert all(any(sign in rule.law for sign in ("=", "is", "grouped", "few")) for rule in every)
    assert {rule.name for rule in every} == MINIMAL.keys()


def test_every_rule_says_what_it_costs() -> None:
    """By a cost that is compared, or by `always`; a rule that says nothing is none."""
    every = dict.fromkeys(rule for table in TABLES for rule in table)
    assert {rule.cost for rule in every} <= {always, elements, normalized, products}
    with pytest.raises(TypeError, match="cost"):
        Rule("less", Pattern(), negated_twice, "x = x")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", MINIMAL)
def test_a_rule_fires_and_changes_no_number(name: str) -> None:
    case = drawn(MINIMAL[name])
    program = door.giving_away(ix.compile(case.text).ir)
    lowered = lower(program, {one.name: DTYPES[one.kind] for one in program.inputs}, program.outputs)
    assert name in fired(rewritten(lowered, Target(frozenset(KERNELS), False, Torch.rounds_once)))
    check(case)


@pytest.mark.parametrize("name", MINIMAL)
def test_a_check_survives_its_rule(name: str) -> None:
    judged = Judged(drawn(MINIMAL[name]))
    plain = checks_of(judged.built("torch", isolate=False, plainly=True).plan)
    assert bool(plain) == bool(checks_of(judged.built("torch", isolate=False).plan))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_what_a_guard_removes_is_not_heard(name: str, odd: float) -> None:
    case = drawn(GUARDED[name])
    for array in case.arrays.values():
        rows = [n for n, length in enumerate(array.shape) if length == SIZES["k"]]
        for axis in rows if array.dtype.kind == "f" else ():
            np.moveaxis(array, axis, 0)[3:] = odd
    check(case, (True,))


def test_a_factor_that_may_be_infinite_stays_behind_its_guard() -> None:
    """Off the guard `log(0)` is infinite, and the factor lacks an axis of the guard: it cannot be made 0 there."""
    case = drawn("input a[i, k], b[k, j]; let y[i, j] = sum[k](a[i, k] * log(b[k, j]) where k <= i && k < 3);")
    case.arrays["b"][:3] = 1 + np.abs(case.arrays["b"][:3])
    case.arrays["b"][3:] = 0
    check(case)
    plan = plan_of(case)
    assert "contract" not in fired(plan)
    assert [one.reason for one in plan.refused if one.rule == "contract"]


@pytest.mark.parametrize("scale", ["size(k) ** -0.25", "1.0 / size(k)", "rsqrt(size(k))", "log(size(k))"])
def test_a_number_that_is_infinite_of_an_empty_axis_stays_in_its_sum(scale: str) -> None:
    """Of an axis without points the sum is 0, and 0 times one over its size is not."""
    program = ix.compile(f"input a[i, k], b[k, j]; let y[i, j] = sum[k](a[i, k] * ({scale}) * b[k, j]);")
    assert not program(np.ones((2, 0)), np.ones((0, 3))).any()


@pytest.mark.parametrize("scale", ["sqrt(size(i) - 4.0)", "2.0 ** 5000.0", "1e308 * 10.0", "sqrt(0.0 - 1.0)"])
def test_a_number_that_is_not_finite_stays_in_a_sum_that_may_be_empty(scale: str) -> None:
    program = ix.compile(f"input x[i, k]; let y[i] = sum[k](exp(x[i, k]) * ({scale}) where k < i);")
    x = np.ones((3, 2))
    expected = program(x, backend="reference")
    assert expected[0] == 0
    np.testing.assert_array_equal(program(x), expected)
    np.testing.assert_array_equal(program(torch.from_numpy(x)), expected)


@pytest.mark.parametrize("shape", [(1, 3), (4, 0), (3, 2)])
def test_what_stays_is_added_first_however_few_steps_and_points_there_are(shape: tuple[int, int]) -> None:
    program = ix.compile(MINIMAL["add what stays first"])
    numbers = np.random.default_rng(0)
    x, b, c = (numbers.normal(size=size) for size in (shape, shape[1:], shape[1:]))
    np.testing.assert_allclose(program(x, b, c), program(x, b, c, backend="reference"), atol=1e-12)


def test_what_stays_is_added_first_wherever_it_stands() -> None:
    """Terms that stay are one, and one that stays alone is left where it is."""
    text = """input x[t, n], b[n], c[n]; let y[0, n] = x[0, n];
    let y[t in 1..size(t), n] = (tanh(y[t - 1, n]) + b[n]) + (exp(y[t - 1, n]) - c[n]) + sin(y[t - 1, n]);"""
    assert "add what stays first" in fired(plan_of(drawn(text)))
    assert "add what stays first" not in fired(plan_of(drawn(text.replace("- c[n]", ""))))


def test_blocks_of_an_axis_are_not_multiplied_out() -> None:
    """No contraction comes before the read of a view: the product of all terms would be computed twice."""
    text = "input x[j, d], p[k, d], w[k]; let y[g in 0..size(j) / size(k), d] = "
    plan = plan_of(drawn(text + "sum[k](w[k] * (x[g * size(k) + k, d] + p[k, d]));"))
    assert "contract" in fired(plan)
    assert "multiply out" not in fired(plan)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("odd", [0.0, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("guard", ["j >= i", "j > i + 2", "j >= 1 && j <= i + 1"])
@pytest.mark.parametrize(
    "left",
    [
        *(f"y[i] = {fn}[j](x[i, j]" for fn in ("sum", "prod", "max", "min", "argmax", "argmin", "mean")),
        *(f"y[i] = {fn}[j](x[i, j] > 0.0" for fn in ("any", "all")),
        *(f"y[i, j] = {fn}[j](x[i, j]" for fn in ("softmax", "log_softmax", "cumsum", "cumprod", "cummax", "rank")),
    ],
)
def test_guards_of_reductions_and_normalisers(left: str, guard: str, odd: float) -> None:
    """Ties at -inf, rows of which nothing is left, and NaN among what is kept and what is not."""
    case = drawn(f"input x[i, j]; let {left} where {guard});")
    case.arrays["x"][:, ::2] = odd
    case.arrays["x"][3] = odd
    check(case)


@pytest.mark.parametrize("count", ["0", "2", "i", "size(i) - 6"])
@pytest.mark.parametrize("odd", [1.0, np.inf, np.nan])
def test_reductions_over_axes_that_the_source_lacks(count: str, odd: float) -> None:
    sums = ("y[i] = sum", "z[i] = prod", "v[i] = any", "w[i] = all")
    text = "".join(f"let {head}[k in 0..{count}](x[i]{' > 0.0' * (n > 1)});" for n, head in enumerate(sums))
    case = drawn(f"input x[i]; {text}")
    case.arrays["x"][::2] = odd
    check(case)


@pytest.mark.parametrize(
    "body",
    [
        "a[i, d] * b[j, d] + c[i, d] * e[j, d]",
        "(a[i, d] * b[j, d] - c[i, d] * e[j, d]) / 3.0",
        "2.0 * (a[i, d] * b[j, d] + (c[i, d] - 1.0) * e[j, d])",
        "if d < 2 { a[i, d] * b[j, d] + c[i, d] * e[j, d] } else { 0.0 }",
        "-(a[i, d] * (b[j, d] + e[j, d]) - c[i, d] * e[j, d])",
    ],
)
def test_sums_of_products_never_have_an_axis_for_every_pair_and_term(body: str) -> None:
    text = f"input a[i, d], b[j, d], c[i, d], e[j, d]; let y[i, j] = exp(sum[d]({body}) / sqrt(size(d)));"
    case = drawn(text)
    check(case)
    values = reachable(roots_of(plan_of(case)))
    assert max(len(one.axes) for one in values) == 2


@pytest.mark.sampled(0)
def test_rewriting_is_linear_and_needs_no_deep_stack() -> None:
    """A sum of 90 products, and a chain of 600 definitions."""
    terms = " + ".join(f"a[i, k] * b[j, k] * {n}.0" for n in range(90))
    chain = "".join(f"let x{n + 1}[i] = sum[k](a[i, k] * b[i, k] * x{n}[i]);" for n in range(600))
    text = f"input a[i, k], b[j, k], x0[i]; let y[i, j] = sum[k]({terms});"
    assert "contract" in fired(plan_of(drawn(text)))
    deep = "input a[i, k], b[i, k], x0[i];" + chain
    program = ix.compile(deep).ir
    lowered = lower(program, dict.fromkeys(("a", "b", "x0"), "f32"), ("x600",))
    plan = optimise(lowered, Target())
    assert sum(one.rule == "take a factor out" for one in plan.applied) > 0


# -------------------------------------------------------------------------- firings


GUARDS = ("", " where d < 2", " where j <= i", " where d <= i && j < 3", " where d == g[j]", " where d <= p")
LEAVES = ("a[i, d]", "b[j, d]", "c[i, d]", "e[j, d]", "u[d]", "s[i]", "r[clamp(i - j, -2, 2) + 2, d]", "1.5", "w[i, j]")
SUMMED = ("+", "-", "*")


def random_sum(seed: int) -> Drawn:
    """A sum of sums and products of arrays with some of three axes, under a guard."""
    chosen = np.random.default_rng(seed)

    def term(depth: int) -> str:
        if depth == 1 and chosen.random() < 0.7:
            return " * ".join(chosen.choice(LEAVES[:4], 2))
        if depth == 0 or chosen.random() < 0.2:
            return str(chosen.choice(LEAVES))
        match chosen.integers(6):
            case 0:
                return f"(-{term(depth - 1)})"
            case 1:
                return f"({term(depth - 1)} / 3.0)"
            case 2:
                return f"(if d < 2 {{ {term(depth - 1)} }} else {{ 0.0 }})"
        return f"({term(depth - 1)} {chosen.choice(SUMMED)} {term(depth - 1)})"

    inputs = "a[i, d], b[j, d], c[i, d], e[j, d], u[d], s[i], r[q in 0..5, d], w[i, j], g[j]: i64, v[p]"
    guard = chosen.choice(GUARDS)
    head, over = ("i, j", "d") if chosen.random() < 0.7 else ("i", "j, d")
    head += ", p in 0..size(d)" if guard.endswith("p") else ""
    scale = chosen.choice(("", " / sqrt(size(d))", " * v[0]"))
    return drawn(f"input {inputs}; let y[{head}] = sum[{over}]({term(3)}{guard}){scale};", seed)


LAYERS = (
    "input x[i, n]; let y[i, n] = sum[s in 0..size(i)](0.{k} ** (i - s) * {f}(x[s, n]) where s <= i);",
    "input a[t, n], b[t, m], p[t]: i64; let y[k in 0..3, n, m] = sum[t](a[t, n] * {f}(b[t, m]) where p[t] == k);",
    "input c[n, e]: i64, t[i]: i64; let y[i, e] = sum[n]((({n_is_t}) as f64) * (c[n, e] as f64));",
    "input a[i, c, k], b[j, c, k]; let y[i, j] = sum[c](sum[k]({f}(a[i, c, k]) * b[j, c, k])) * {k}.5;",
    "input x[i, e], t[i]: i64; let y[n in 0..{k}, e] = sum[i]({f}(x[i, e]) where t[i] == n);",
    "input x[i, m], b[m]; let a[i] = mean[m](x[i, m]); let v[i] = mean[m]((x[i, m] - a[i]) ** 2);"
    "let y[i, m] = b[m] + (x[i, m] - a[i]) * rsqrt(v[i] + 0.01);",
    "input x[n, e], t[i]: i64; let y[i, e] = sum[n]({f}(x[n, e]) * (if {n_is_t} {{ 1.0 }} else {{ 0.0 }}));",
    "input x[n, e], t[i]: i64; let y[i, e] = sum[n]({f}(x[n, e]) where {n_is_t});",
    "input x[h, m]; let y[g in 0..{k}, m] = sum[h]({f}(x[h, m]) where h / {w} == g);",
    "input x[i, m], g[m]; let y[i, m] = {f}(x[i, m]) * rsqrt(mean[m]({f}(x[i, m]) ** 2) + 0.01) * g[m];",
    "input x[i, c], t[i]: i64; let p[i, c] = log_softmax[c]({f}(x[i, c])); let y[i] = -p[i, t[i]];",
    "input x[i, c], t[i]: i64; let p[i, c] = log_softmax[c]({f}(x[i, c])); let y = -mean[i](p[i, t[i]]) * {k}.0;",
    "input x[i, c], t[i]: i64; let m[i] = max[c](x[i, c]);"
    "let y[i] = m[i] + log(sum[c](exp(x[i, c] - m[i]))) - x[i, t[i]];",
    "input x[i, e]; let y[i, e] = softmax[e]({f}(x[i, e]) where rank[e](x[i, e]) < {k});",
    "input x[i, m], u[e, n, m], t[i]: i64; let y[i, n] = sum[m](u[t[i], n, m] * {f}(x[i, m]));",
    "input a[i, k], b[k, j]; let c[i, k] = a[i, k] as f16; let d[k, j] = b[k, j] as f16;"
    "let y[i, j] = sum[k]((c[i, k] as f32) * (d[k, j] as f32)) as f16;",
    "input a[i, k]; let c[i, k] = a[i, k] as f16; let y[i, k] = ((c[i, k] as f32) * {k}.0) as f16;",
    "input x[b, c, t], w[o, c, k in 0..{k}];"
    "let y[b, o, t] = sum[c, k](x[b, c, t - {w} * k] * w[o, c, k] where {w} * k <= t);",
    "input x[i], w[k], z[n];"
    "let y[n] = sum[k](x[(n - k + 1) / 2] * {f}(w[k]) where (n - k + 1) % 2 == 0, 0 <= (n - k + 1) / 2 < size(i));",
    "input x[i, j], v[j]; let y[i] = sum[j]({f}(v[j]) where j != i, rank[j](x[i, j] where j != i) < {k});",
    "input x[t, m], w[n, m], b[n]; let y[0, n] = 0.0;"
    "let y[t in 1..size(t), n] = tanh(sum[m](w[n, m] * {f}(x[t, m])) + b[n]) * y[t - 1, n] + {k}.0;",
    "input a[i, c, k], b[j, c, k]; let p[i, c, k] = {f}(a[i, c, k]) as f16; let q[j, c, k] = b[j, c, k] as f16;"
    "let y[i, j] = sum[c](sum[k](p[i, c, k] * q[j, c, k]));",
    "input x[i, m]; let h[i, m] = {f}(x[i, m]) as f16;"
    "let y[i, m] = h[i, m] * rsqrt(mean[m](h[i, m] ** 2) + 0.00{k});",
    "input x[t, n], b[n], c[n]; let y[0, n] = x[0, n];"
    "let y[t in 1..size(t), n] = b[n] - tanh(y[t - 1, n]) + {f}(c[n]) - x[t, n] / {k}.0;",
    "input x[n, e], v[i]: i64; let y[i] = any[n]({f}(x[n, 0]) > 0.{k} where {n_is_v});",
)


def random_layer(seed: int) -> Drawn:
    """A layer that rules have kernels for, in one of its spellings."""
    chosen = np.random.default_rng(seed)
    words = {
        "f": str(chosen.choice(("", "tanh", "exp"))),
        "n_is_t": str(chosen.choice(("n == t[i]", "t[i] == n"))),
        "n_is_v": str(chosen.choice(("n == v[i]", "v[i] == n"))),
        "k": int(chosen.integers(1, 4)),
        "w": int(chosen.integers(1, 4)),
    }
    return drawn(LAYERS[seed % len(LAYERS)].format(**words), seed)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("start", range(0, 60, 10))
def test_rewritten_sums_are_those_of_the_reference(start: int) -> None:
    for seed in range(start, start + 10):
        check(random_sum(seed))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(4 * len(LAYERS)))
def test_layers_by_kernels_are_those_of_the_reference(seed: int) -> None:
    check(random_layer(seed))


DTYPES: dict[Kind, Dtype] = {"real": "f32", "whole": "i64", "bool": "bool"}


def rewritten(plan: Plan, target: Target) -> Plan:
    """A plan by all tables of rules, with all that was applied and refused."""
    return reduce(lambda so_far, table: rewrite(so_far, table, target), TABLES, plan)


def compiled(texts: Iterable[str]) -> Iterator[ir.Program]:
    """The programs that compile, in the forms that a call takes."""
    for text in texts:
        with suppress(ix.CompileError):
            yield stable_program(ix.compile(text).ir)


def steps(texts: Iterable[str], along: str) -> Iterator[ir.Program]:
    """The steps of decoders: as what they keep grows, and in pages."""
    for text in texts:
        for pages in (None, 4):
            with suppress(ix.CallError):
                yield ix.incremental(text, along, pages=pages)._step._program


def firings(programs: Iterable[ir.Program]) -> Counter[str]:
    """How many programs each rule fires on."""
    found = Counter[str]()
    for program in programs:
        lowered = lower(program, {one.name: DTYPES[one.kind] for one in program.inputs}, program.outputs)
        target = Target(frozenset(KERNELS), False, Torch.rounds_once)
        found.update(fired(rewritten(lowered, target)))
    return found


@pytest.mark.sampled(0)
def test_every_rule_fires_somewhere() -> None:
    """In an example and in a drawn program. The table of firings is printed with `-s`."""
    texts = [path.read_text() for path in sorted(EXAMPLES.rglob("*.ix")) if "broken" not in path.parts]
    decoded = ((EXAMPLES / f"{name}.ix").read_text() for name in ("causal_attention", "decoder"))
    examples = firings(compiled(texts)) + firings(steps(decoded, "i"))
    cases = (drawing.draw(name, seed) for name in drawing.GENERATORS for seed in range(25))
    sums = (random_sum(seed) for seed in range(60))
    layers = (random_layer(seed) for seed in range(4 * len(LAYERS)))
    drawn_ones = firings(compiled(case.text for case in (*cases, *sums, *layers) if case is not None))
    drawn_ones += firings(steps(map(causal.drawn, range(12)), "position"))
    rules = dict.fromkeys(rule for table in TABLES for rule in table)
    for rule in rules:
        print(f"{rule.name:32} {examples[rule.name]:5} examples {drawn_ones[rule.name]:5} drawn   {rule.law}")
    assert not [rule.name for rule in rules if not examples[rule.name] or not drawn_ones[rule.name]]


@pytest.mark.parametrize("said", ["false", "1 > 2", "i > 2", "k > 1 && 2 > 1"])
def test_whether_there_are_points_hears_all_conditions(said: str) -> None:
    check(drawn(f"input x[i, k]; let y[i] = any[s in 0..size(k)](s <= i && {said.replace('k', 's')});"))
