"""Queries that count for nothing: a guard on the query alone goes into the kernel, in any spelling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import indexical as ix

torch = pytest.importorskip("torch")

from tests.backends.variants import DOT, SIZES  # noqa: E402
from tests.plan.test_gpu import called  # noqa: E402

from indexical.ir.text import shown  # noqa: E402
from indexical.ir.verify import verify  # noqa: E402
from indexical.plan.steps import Step  # noqa: E402
from indexical.plan.target import FUSED, INTERVALS, TRITON  # noqa: E402
from indexical.run import pointwise  # noqa: E402
from indexical.run.emitting import emitted  # noqa: E402

CONFINED = "NaN and infinity reach only those who may hear them; a `j` that nobody hears is not read"


def attended(guard: str = "", weights: str = "", out: str = "", last: str = "") -> str:
    where = ", ".join(filter(None, (weights, guard)))
    return f"""input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], ask[b, i] : bool, n[b] : i64, on[e] : bool;
    let weights[b, h, i, j] = softmax[j]({DOT}) where {where};
    let {"full" if last else "out"}[b, h, i, e] = {out or "sum[j](weights[b, h, i, j] * V[b, h, j, e])"};
    {last and f"let out[b, h, i, e] = {last};"}"""


WINDOW = "i - j < 4, j <= i"
PRODUCT = "weights[b, h, i, j] * V[b, h, j, e]"
SPELLINGS = {
    "of the weights": attended(WINDOW, weights="ask[b, i]"),
    "of a sum": attended(WINDOW, out=f"sum[j]({PRODUCT} where ask[b, i])"),
    "of the result": attended(WINDOW, out=f"sum[j]({PRODUCT}) where ask[b, i]"),
    "of what reads it": attended(WINDOW, last="full[b, h, i, e] where ask[b, i]"),
    "as a choice": attended(WINDOW, last="if ask[b, i] { 2 * full[b, h, i, e] } else { 0 }"),
    "twice": attended(WINDOW, last="if ask[b, i] { full[b, h, i, e] * full[b, h, i, e] } else { 1 }"),
    "of a length": attended(WINDOW, weights="i < n[b]"),
    "of what is not so": attended(WINDOW, last="if ask[b, i] { 0 } else { full[b, h, i, e] }"),
}
OTHERWISE = {
    "also read elsewhere": attended(
        WINDOW, last="(if ask[b, i] { full[b, h, i, e] } else { 0 }) + full[b, h, size(i) - 1 - i, e]"
    ),
    "of what is carried": attended(WINDOW, last="full[b, h, i, e] where on[e]"),
    "at another place": attended(WINDOW, last="full[b, h, i, e] where ask[b, size(i) - 1 - i]"),
    "of the result itself": attended(WINDOW, last="full[b, h, i, e] where full[b, h, i, e] > 0"),
}


# Spellings in which something else is computed of what counts.
CHOOSING = ("as a choice", "twice", "of what is not so")
MASKS = {
    "ask": torch.arange(SIZES["b"] * SIZES["i"]).reshape(SIZES["b"], -1) % 3 < 2,
    "n": torch.arange(SIZES["b"]) * 3 + 2,
    "on": torch.arange(SIZES["e"]) % 2 == 0,
}
SHAPES = {"Q": "bhid", "K": "bhjd", "V": "bhje", "d_out": "bhie"}


def kernel_step(text: str, wanted: tuple[str, ...] = ("out",)) -> Step:
    plan = emitted(called(text, torch.bfloat16, **MASKS), wanted, False, True)[0]
    (step,) = (step for step in plan.steps if step.attend is not None)
    return step


def guards_of(step: Step) -> set[str]:
    assert step.attend is not None
    return set(map(shown, step.attend.attention.guard))


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_guard_on_queries_is_the_kernel_s(name: str) -> None:
    step = kernel_step(SPELLINGS[name])
    asked = {"of a length": "i < n[b]", "of what is not so": "!ask[b, i]"}.get(name, "ask[b, i]")
    assert (step.kernel, CONFINED in step.words) == (TRITON, True)
    assert asked in guards_of(step)
    assert any(f"`{asked} && i - 3 <= j < i + 1`" in words for words in step.words), step.words


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_plan_says_where_queries_are_computed_that_do_not_count(name: str) -> None:
    step = kernel_step(OTHERWISE[name])
    assert (step.kernel, CONFINED in step.words) == (TRITON, False)
    assert len(guards_of(step)) == 2


@pytest.mark.parametrize("name", [*SPELLINGS, *OTHERWISE])
def test_the_program_of_a_plan_says_the_same(name: str) -> None:
    text = (SPELLINGS | OTHERWISE)[name]
    program = ix.compile(text)
    given = {n: torch.randn([SIZES[a] for a in axes]) for n, axes in SHAPES.items() if n != "d_out"} | MASKS
    plan = emitted(replace(program._engine.prepare(given, "torch"), device="cuda"), ("out",), False, True)[0]
    assert verify(plan.program) == []
    arrays = {n: array.double().numpy() if array.is_floating_point() else array.numpy() for n, array in given.items()}
    before, after = (pointwise.run(p, arrays, ("out",))["out"] for p in (program.ir, plan.program))
    np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in SPELLINGS if name not in CHOOSING])
def test_nothing_is_chosen_around_the_kernel(name: str) -> None:
    source = emitted(called(SPELLINGS[name], torch.bfloat16, **MASKS), ("out",), False, True)[1].linked()
    assert "torch.where(ask[:, None" not in source


def test_what_is_wanted_itself_counts_everywhere() -> None:
    assert len(guards_of(kernel_step(SPELLINGS["of what reads it"], ("full", "out")))) == 2


def test_a_shorter_mask_is_not_read_beyond_its_end() -> None:
    text = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], ask[k] : bool;
    let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d])) where i - j < 4, j <= i;
    let full[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    let out[b, h, i in 0..size(k), e] = full[b, h, i, e] where ask[i];"""
    call = called(text, torch.bfloat16, {"k": 3}, ask=torch.ones(3, dtype=torch.bool))
    (step,) = (step for step in emitted(call, ("out",), False, True)[0].steps if step.attend is not None)
    assert len(guards_of(step)) == 2


def test_the_library_s_kernel_keeps_the_guard_outside() -> None:
    assert kernel_step(attended("j <= i", weights="ask[b, i]")).kernel == FUSED


@pytest.mark.parametrize(
    ("where", "taken"), [("ask[b, i]", True), ("on[e]", False), ("ask[b, i], on[e]", True), ("ask[b, n[b]]", False)]
)
def test_what_arrives_at_some_queries_is_asked_in_the_kernel(where: str, taken: bool) -> None:
    """A condition on what is carried, or one that reads at a place of its own, stays outside."""
    text = attended(WINDOW, out=f"sum[j]({PRODUCT}) where {where}")
    program = ix.grad(ix.compile(text), "out", ["Q", "K", "V"])
    call = called(text, torch.bfloat16, **MASKS)
    given = {**call.values, "d_out": torch.zeros([SIZES[a] for a in SHAPES["d_out"]], dtype=torch.bfloat16)}
    call = replace(program._engine.prepare(given, "torch"), device="cuda")
    (step,) = (step for step in emitted(call, program.wanted(None), False, True)[0].steps if step.gradient is not None)
    assert step.gradient is not None
    assert step.kernel == f"the backward of {TRITON}"
    assert (len(step.gradient.attend.attention.guard) == 3) == taken
    assert (CONFINED in step.words) == (where == "ask[b, i]")


@pytest.mark.parametrize("asked", ["ask[b, i]", "i < n[b]", "ask[b, i], i < n[b]"])
@pytest.mark.parametrize("guard", ["j <= i", "i - j < 3, j <= i"])
def test_derivatives_of_some_queries_are_the_backward_of_a_kernel(asked: str, guard: str) -> None:
    program = ix.grad(ix.compile(attended(guard, weights=asked)), "out", ["Q", "K", "V"])
    given = {n: torch.randn([SIZES[a] for a in axes], dtype=torch.float64) for n, axes in SHAPES.items()} | MASKS
    (step,) = (step for step in program.plan(**given).steps if step.gradient is not None)
    assert step.kernel == f"the backward of {INTERVALS}"
    plain = {name: array.numpy() for name, array in given.items()}
    for found, right in zip(program(**given), program(**plain, backend="reference"), strict=True):
        torch.testing.assert_close(found, torch.as_tensor(right), rtol=1e-9, atol=1e-11)
