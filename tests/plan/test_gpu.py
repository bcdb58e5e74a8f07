"""Attention on a GPU: which is a Triton kernel, and the reasons where it is none. No GPU is needed to plan for one."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest

import indexical as ix

torch = pytest.importorskip("torch")

from tests.backends.variants import DOT, SIZES, VARIANTS, attention  # noqa: E402

from indexical.backends.old.plan.choose import FUSED, STREAM, TILES  # noqa: E402
from indexical.backends.old.plan.few import SHORT_ROWS  # noqa: E402
from indexical.backends.old.plan.gpu import tables_of  # noqa: E402
from indexical.ir import nodes as ir  # noqa: E402
from indexical.plan.steps import Plan, Step  # noqa: E402
from indexical.plan.target import CHUNKS, TRITON  # noqa: E402
from indexical.run.emitting import emitted, parts_of  # noqa: E402
from indexical.run.kernel import Call, warn_of_slow_paths  # noqa: E402


def called(text: str, dtype: torch.dtype, sizes: dict[str, int] | None = None, **given: Any) -> Call:
    """A call of a program with arrays of this dtype, as if they were on a GPU."""
    program = ix.compile(text)
    known = {**SIZES, **(sizes or {})}
    drawn = {
        tensor.name: torch.zeros([known[axis.coordinate.name] for axis in tensor.axes], dtype=dtype)
        for tensor in program.ir.inputs
        if tensor.name not in given
    }
    return replace(program._engine.prepare({**drawn, **given}, "torch"), device="cuda")


def planned(call: Call) -> Plan:
    return emitted(call, ("out",), False, True)[0]


def step_of(text: str, dtype: torch.dtype = torch.bfloat16, **given: Any) -> Step:
    return next(step for step in planned(called(text, dtype, **given)).steps if step.definition == "out")


@pytest.mark.parametrize(
    ("score", "masked"),
    [(f"{DOT} / sqrt(i - j + 1)", True), (f"{DOT} * exp(j - i)", True), (f"tanh({DOT})", False), (DOT, False)],
)
def test_pairs_at_a_pole_are_left_out_of_the_gradients_of_queries_and_keys(score: str, masked: bool) -> None:
    """Else 0 times an infinite slope is NaN, and all tiles at the edge of the guard are computed a second time."""
    call = called(attention("j <= i, i - j < 5", score), torch.bfloat16)
    lines = emitted(call, ("out",), False, True)[1].linked().splitlines()
    products = [line for line in lines if line.strip().startswith(("d_q = with_product", "d_k = with_product"))]
    assert len(products) == 4  # In partial tiles and in full ones.
    assert sum("tl.where(allowed," in line for line in products) == (2 if masked else 0)


def test_plain_cases_stay_the_library_s() -> None:
    assert [step_of(VARIANTS[name].text).kernel for name in ("full", "causal")] == [FUSED, FUSED]


@pytest.mark.parametrize("name", ["window", "prefix", "sinks and window", "ALiBi", "soft cap", "relative bias", "bias"])
def test_every_other_guard_and_score_is_a_kernel(name: str) -> None:
    assert step_of(VARIANTS[name].text).kernel == TRITON


@pytest.mark.parametrize(
    "index",
    [
        *("abs(i - j)", "min(abs(i - j), 11)", "(i + j) % 12", "i * j % 12", "(i - j + size(j)) % 7"),
        *("(i - j) % 7 + 6", "clamp(p[i] - p[j], -5, 5) + 5"),
        "if j <= i { min((i - j) / 3, 5) } else { 6 + min((j - i) / 4, 5) }",
    ],
)
def test_a_table_is_read_at_any_function_of_both(index: str) -> None:
    """The emitted function asks whether sizes let it leave the table: no function here is below 0."""
    text = attention("", f"{DOT} + c[h, {index}]", ", c[h, r], p[i] : i64")
    call = called(text, torch.bfloat16, p=torch.zeros(9, dtype=torch.int64))
    plan, module = emitted(call, ("out",), False, True)
    assert TRITON in [step.kernel for step in plan.steps]
    asked = [line for line in module.linked().splitlines() if ">= 0" in line]
    assert not any("truncated(1 - n_i" in line or " -" in line for line in asked), asked


def test_causal_products_are_one_kernel_while_rows_are_short() -> None:
    """Above that they are chunks: the emitted function compares its sizes, and the plan says so."""
    text = """
    input Q[h, i, d], K[h, j, d], V[h, j, e], rate[h];
    let w[h, i, j]   = sum[d](Q[h, i, d] * K[h, j, d]) * exp(-rate[h] * (i - j)) where j <= i;
    let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
    """
    call = called(text, torch.bfloat16)
    plan, module = emitted(call, ("out",), False, True)
    step = next(step for step in plan.steps if step.chunks is not None)
    assert step.kernel == TRITON
    assert f"above {SHORT_ROWS[True]} positions of `i`: by {CHUNKS} in Triton kernels" in step.words
    source = module.linked()
    assert f"n_i <= {SHORT_ROWS[True]}" in source
    assert "kernels=chunk_kernels" in source
    for dtype in (torch.float16, torch.float32):  # f16 has not the range that states need.
        plan, module = emitted(called(text, dtype), ("out",), False, True)
        assert f"above {SHORT_ROWS[False]} positions of `i`: by {CHUNKS}" in plan.steps[-1].words
        assert "chunk_kernels" not in module.linked()
        assert (").to(torch.float16)" in module.linked()) == (dtype == torch.float16), "long rows have another dtype"
    on_cpu = emitted(replace(call, device="cpu"), ("out",), False, True)[0]
    assert [step.kernel for step in on_cpu.steps if step.chunks is not None] == [CHUNKS]


def test_kernels_for_chunks_take_what_the_plan_says() -> None:
    """A text that stands alone has these numbers for itself."""
    from indexical.backends.kernels import torch_chunks
    from indexical.backends.old.plan.wording import AT_ONCE
    from indexical.plan.target import WIDEST

    assert (torch_chunks.WIDEST, torch_chunks.AT_ONCE) == (WIDEST, AT_ONCE)


def test_chunks_in_double_precision_are_no_slow_path() -> None:
    """No kernel takes f64, and chunks of matrix products are as good."""
    text = """
    input Q[h, i, d], K[h, j, d], V[h, j, e];
    let out[h, i, e] = sum[j](sum[d](Q[h, i, d] * K[h, j, d]) * V[h, j, e] where j <= i);
    """
    plan, module = emitted(called(text, torch.float64), ("out",), False, True)
    assert [step.kernel for step in plan.steps] == [CHUNKS]
    assert not any(part.tiled for part in parts_of(plan, module))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("additive", "a factor of the score varies with query and key at once"),
        ("mean", "`mean` in the score is no dot product"),
        ("some features", "what is compared has a guard of its own"),
    ],
)
def test_others_are_refused_with_the_reason(name: str, reason: str) -> None:
    step = step_of(VARIANTS[name].text)
    assert step.kernel == STREAM
    assert [refusal.reason for refusal in step.refusals if refusal.way == TRITON] == [reason]


def test_double_precision_is_refused() -> None:
    step = step_of(VARIANTS["ALiBi"].text, torch.float64)
    assert step.kernel == TILES
    assert step.refusals[-1].reason == "matrix units have no f64"


def test_literals_do_not_make_it_double_precision() -> None:
    text = attention("j <= i", "sum[d](Q[b, h, i, d] * K[b, h, j, d]) - slope[h] * (i - j)")
    assert step_of(f"{text}let slope[h in 0..size(h)] = exp(-(h + 1) / 2.0);\n").kernel == TRITON


def test_plan_says_what_goes_another_way() -> None:
    for name, dtype in (("bias", torch.bfloat16), ("relative bias", torch.float32)):
        said = step_of(VARIANTS[name].text, dtype).words
        assert f"where a head is more than 256 wide: by {TILES}" in said
        assert not any("wants a gradient" in words for words in said)
    table = attention("j <= i", f"{DOT} + far[h, i + j]", ", far[h, r]")
    assert f"where `far` wants a gradient: by {TILES}" in step_of(table).words
    assert f"where sizes let `i + j` leave `far`: by {TILES}" in step_of(table).words


TWICE = f"{DOT} + sum[d](K[b, h, j, d] * K[b, h, i, d])"
GATED = f"{DOT} + log_sigmoid(g[b, h, i] + u[b, h, j])"


@pytest.mark.parametrize(
    ("text", "work"),
    [
        *(("prefix", "plain"), ("ALiBi", "slanted"), ("soft cap", "heavy"), ("soft cap in a window", "near, heavy")),
        *(("window", "near"), ("bias of a key", ""), ("relative bias", "paired")),
        (attention("j <= i", GATED, ", g[b, h, i], u[b, h, j]"), "heavy"),
        (attention("i - j < 9, j <= i", TWICE), "near, heavy"),
    ],
)
def test_tiles_are_chosen_by_the_kind_of_work(text: str, work: str) -> None:
    """Of scores that take many registers on the way back, tiles have few queries."""
    text = VARIANTS[text].text if text in VARIANTS else text
    source = emitted(called(text, torch.bfloat16), ("out",), False, True)[1].linked()
    assert f'work="{work}"' in source


def test_what_is_only_compared_has_no_gradient_and_keeps_no_kernel_away() -> None:
    text = attention("j <= i", f"if u[b, h, j] > 0 {{ {DOT} }} else {{ 1 }}", ", u[b, h, j]")
    source = emitted(called(text, torch.bfloat16), ("out",), False, True)[1].linked()
    assert "attend_out([Q, K, V, u.detach()]" in source
    assert "learns(u)" not in source


def test_a_refusal_is_a_warning_where_scores_are_many() -> None:
    text = VARIANTS["additive"].text
    many = called(text, torch.bfloat16, {"i": 4096, "j": 4096})
    with pytest.warns(ix.SlowPath, match="tile by tile, and not by a kernel of its own: a factor of the score"):
        warn_of_slow_paths(parts_of(*emitted(many, ("out",), False, True)), many.bound)
    few = called(text, torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_slow_paths(parts_of(*emitted(few, ("out",), False, True)), few.bound)


def test_plan_says_whom_nan_reaches() -> None:
    said = step_of(VARIANTS["window"].text).words
    assert "NaN and infinity reach only those who may hear them; a `j` that nobody hears is not read" in said


@pytest.mark.parametrize(
    ("index", "distinct"),
    [
        *(("i - j", True), ("j - i + size(j)", True), ("2 * (i - j)", True), ("min(i - j, 5)", False)),
        *(("(i - j) / 2", False), ("(i - j) % 4", False)),
    ],
)
def test_places_of_distances_are_distinct_where_they_move_with_each(index: str, distinct: bool) -> None:
    """Where several distances share a place, sums are added in an order; otherwise each is stored where it belongs."""
    text = attention("j <= i", f"{DOT} + bias[h, {index}]", ", bias[h, r]")
    source = " ".join(emitted(called(text, torch.bfloat16, {"r": 40}), ("out",), False, True)[1].linked().split())
    assert ('("distances",), (True,)' in source, '("table",), (True,)' in source) == (distinct, not distinct)


RULED = [
    *("i - j", "j - i + 40", "3 * (i - j) + size(j)", "min(i - j, 5)", "max(5, 9 - max(i - j, 3))"),
    *("-min(j - i, 4) + 4", "clamp(i - j, -3, 3) + 3", "7 - clamp(i - j, 0, 7)", "max(min(i - j, 2), 6)"),
    "min(max(i - j, 6), 2)",
    *("2 + min(size(j), max(j - i, 1) - 3)", "clamp(i - j, 5, 2)", "size(i) - min(i - j, size(j) - 2)"),
]
UNRULED = ["(i - j) / 2", "abs(i - j)", "min(i - j, 5) + max(i - j, 2)", "min(i - j, 5) * 2", "i + j"]


@pytest.mark.parametrize("index", [*RULED, *UNRULED])
def test_the_place_in_a_table_by_four_numbers(index: str) -> None:
    """The rule gives the number that the index is, at every pair."""
    program = ix.compile(f"input x[i], y[j], t[r]; let p[i, j] = x[i] * y[j] + t[{index}]; let at[i, j] = {index};").ir
    body = program.lets[0].clauses[0].body
    i, j = sorted(body.type.coordinates, key=str)
    (table,) = tables_of(body, i, j)
    rule = table.rule
    assert (rule is None) == (index in UNRULED)
    if rule is None:
        return
    for at in ({"i": a, "j": b} for a in range(9) for b in range(7)):
        place = rule.slope * (at["i"] - at["j"]) + evaluated(rule.offset)
        place = place if rule.least is None else max(place, evaluated(rule.least))
        place = place if rule.most is None else min(place, evaluated(rule.most))
        assert place == evaluated(table.index, **at), at


SIGNS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "neg": int.__neg__, "min": min, "max": max}
SIGNS |= {"clamp": lambda x, least, most: min(max(x, least), most)}


def evaluated(expr: ir.Expr, **at: int) -> int:
    """A whole number, for 9 queries and 7 keys."""
    match expr:
        case ir.Const(value):
            return int(value)
        case ir.Coord(coordinate):
            return at[coordinate.name]
        case ir.Size(coordinate):
            return {"i": 9, "j": 7}[coordinate.name]
        case ir.Map(op, arguments):
            return SIGNS[op](*(evaluated(argument, **at) for argument in arguments))
    raise AssertionError(expr)


def test_an_index_of_heads_is_left_to_another_kernel() -> None:
    text = attention("j <= i", f"{DOT} + bias[h, i - j + h]", ", bias[h, r]")
    step = step_of(text, sizes={"r": 64})
    assert step.kernel != TRITON
    assert any("depends on more than query and key" in refusal.reason for refusal in step.refusals)


def test_weights_with_the_sign_of_their_scores_are_no_kernel_for_few_queries() -> None:
    """Values times the sign are other ones for each query, and none is for one query of a batch."""
    program = ix.compile("""
        input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
        let s[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]);
        let w[b, h, i, j] = softmax[j](abs(s[b, h, i, j])) where j <= i;
        let out[b, h, i, e] = sum[j](w[b, h, i, j] * (if s[b, h, i, j] < 0 { -1.0 } else { 1.0 }) * V[b, h, j, e]);
    """)
    given = {name: torch.zeros(1, 2, 5, 4).numpy() for name in "QKV"}
    plan, text = program.imagine(given, "bf16", "torch", "cuda")
    assert "up to 16 queries" not in str(plan)
    compile(text, "emitted", "exec")
