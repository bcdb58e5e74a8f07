"""The logarithm of what weights are divided by, in every spelling: streamed beside its attention or alone, with its
gradient; and two shards merged by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import indexical as ix

torch = pytest.importorskip("torch")

HEAD = """input Q[h, i, d], K[h, j, d], V[h, j, e], slope[h];
let s[h, i, j] = {score};
let out[h, i, e] = sum[j](softmax[j](s[h, i, j]{where_j}) * V[h, j, e]);
"""
DOT = "sum[d](Q[h, i, d] * K[h, j, d]) / 2.0"
SCORES = {
    "plain": DOT,
    "bias": f"{DOT} - slope[h] * (i - j)",
    "cap": f"3.0 * tanh({DOT})",
}
GUARDS = {"all": "", "causal": "{k} <= i", "strict": "{k} < i", "window": "i - 3 < {k} && {k} <= i"}
SPELLINGS = {
    "plain": "let lse[h, i] = log(sum[k](exp(s[h, i, k]){where}));",
    "total": "let z[h, i] = sum[k](exp(s[h, i, k]){where});\nlet lse[h, i] = log(z[h, i]);",
    "shifted": """let top[h, i] = max[k](s[h, i, k]{where});
let lse[h, i] = top[h, i] + log(sum[k](exp(s[h, i, k] - top[h, i]){where}));""",
    "weights": """let w[h, i, j] = exp(s[h, i, j]){where_j};
let lse[h, i] = log(sum[j](w[h, i, j]));""",
    "permuted": "let r[i, h, j] = s[h, i, j];\nlet lse[i, h] = log(sum[l](exp(r[i, h, l]){where_l}));",
    "doubled": "let lse[h, i] = log(3 * sum[k](exp(s[h, i, k] + slope[h]){where})) - slope[h] - log(3.0);",
    "beside one": "let lse[h, i] = log(1 + sum[k](exp(s[h, i, k]){where}));",
}
LARGE = ("s[", "w[", "r[")
SHAPES = {"Q": (2, 6, 3), "K": (2, 6, 3), "V": (2, 6, 4), "slope": (2,)}


def guarded(text: str, guard: str) -> str:
    for mark, name in (("{where_j}", "j"), ("{where_l}", "l"), ("{where}", "k")):
        condition = GUARDS[guard].format(k=name)
        text = text.replace(mark, f" where {condition}" if condition else "")
    return text


def written(spelling: str, score: str = "plain", guard: str = "causal", more: str = "") -> ix.Program:
    return ix.compile(guarded(HEAD, guard).format(score=SCORES[score]) + guarded(SPELLINGS[spelling], guard) + more)


def drawn(program: ix.Program, learned: bool = True) -> dict[str, Any]:
    torch.manual_seed(0)
    found = {name: torch.randn(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    return {tensor.name: found[tensor.name].requires_grad_(learned) for tensor in program.ir.inputs}


def built(program: ix.Program, outputs: list[str] | None = None) -> list[str]:
    """What the plan builds of that which is as large as the scores."""
    lines = str(program.plan(**drawn(program, False), outputs=outputs)).split("never built")[0].splitlines()
    return [line for line in lines if line.startswith(LARGE)]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("guard", GUARDS)
def test_every_spelling_is_streamed_and_right(spelling: str, score: str, guard: str) -> None:
    program = written(spelling, score, guard)
    # As it is written, -inf is taken from -inf where nobody is heard: a NaN on the way back.
    plainly = written("plain" if spelling == "shifted" else spelling, score, guard)
    given = drawn(program)
    for outputs in (["out", "lse"], ["lse"]):
        assert built(program, outputs) == []
        found = program(**given, outputs=outputs)
        plain = {name: array.detach().numpy() for name, array in given.items()}
        right = program(**plain, outputs=outputs, backend="reference")
        for one, other in zip(found, right, strict=True):
            np.testing.assert_allclose(one.detach().numpy(), other, rtol=1e-12, atol=1e-12)
        exact = plainly(**given, outputs=outputs, isolate=True)
        flows = [torch.randn_like(x) for x in found]
        back, expected = (
            torch.autograd.grad(
                sum((x * f)[x.isfinite()].sum() for x, f in zip(results, flows, strict=True)),
                [given[name] for name in ("Q", "K", "slope")],
                allow_unused=True,
            )
            for results in (found, exact)
        )
        for one, other in zip(back, expected, strict=True):
            some = one if other is None else other
            if some is not None:  # What cancels has no gradient, or one of rounding errors.
                torch.testing.assert_close(*(torch.zeros_like(some) if x is None else x for x in (one, other)))


LOSS = """
let loss = sum[h, i](lse[h, i] * lse[h, i]) + sum[h, i, e](out[h, i, e] * out[h, i, e] * lse[h, i]);
"""


@pytest.mark.parametrize(("score", "guard"), [("bias", "causal"), ("cap", "all")])
def test_three_ways_to_a_gradient_agree(score: str, guard: str) -> None:
    program = written("shifted", score, guard, LOSS)
    given = drawn(program)
    names = ["Q", "K", "V"]
    found = torch.autograd.grad(program(**given, outputs=["loss"])[0], [given[name] for name in names])
    derived = ix.grad(program, "loss", names)(**{name: array.detach() for name, array in given.items()})
    for one, other in zip(found, derived, strict=True):
        torch.testing.assert_close(one, other)
    for name, gradient in zip(names, found, strict=True):
        step = torch.randn_like(gradient)
        moved = [{**given, name: given[name] + sign * 1e-6 * step} for sign in (1, -1)]
        ends = [program(**arrays, outputs=["loss"])[0].detach() for arrays in moved]
        assert float((ends[0] - ends[1]) / 2e-6) == pytest.approx(float((gradient * step).sum()), rel=1e-6)


@pytest.mark.parametrize("text", ["", "let both = sum[h, i](lse[h, i]);"])
def test_who_hears_nobody_is_minus_infinity_without_a_gradient(text: str) -> None:
    program = written("plain", "plain", "strict", text)
    given = drawn(program)
    (found,) = program(**given, outputs=["lse"])
    assert torch.equal(found[:, 0], torch.full((2,), -torch.inf, dtype=torch.float64))
    assert found[:, 1:].isfinite().all()
    for gradient in torch.autograd.grad(found[:, 0].sum(), [given["Q"], given["K"]]):
        assert not gradient.any()


def test_totals_that_others_are_made_of_come_first() -> None:
    """Values that are made of the totals cannot come beside them."""
    program = ix.compile(
        f"""input Q[h, i, d], K[h, j, d], V[h, j, e], slope[h];
let s[h, i, j] = {DOT};
let lse[h, i] = log(sum[j](exp(s[h, i, j]) where j <= i));
let W[h, j, e] = V[h, j, e] * tanh(lse[h, j]);
let out[h, i, e] = sum[j](softmax[j](s[h, i, j] where j <= i) * W[h, j, e]);
"""
    )
    given = drawn(program)
    assert built(program) == []
    found, right = program(**given), program(**given, isolate=True)
    torch.testing.assert_close(found, right)


def test_scores_that_are_built_anyway_serve_the_totals() -> None:
    program = written("plain", more="output s, lse;")
    assert "not by stream: `s` is built in any case" in str(program.plan(**drawn(program, False)))


MERGED = """input Q[h, i, d], K[h, j, d], V[h, j, e], L[h, l, d], W[h, l, e];
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / 2.0;
let r[h, i, l] = sum[d](Q[h, i, d] * L[h, l, d]) / 2.0;
let near[h, i, e] = sum[j](softmax[j](s[h, i, j] where j <= i) * V[h, j, e]);
let far[h, i, e] = sum[l](softmax[l](r[h, i, l]) * W[h, l, e]);
let near_total[h, i] = log(sum[j](exp(s[h, i, j]) where j <= i));
let far_total[h, i] = log(sum[l](exp(r[h, i, l])));
let share[h, i] = sigmoid(near_total[h, i] - far_total[h, i]);
let out[h, i, e] = share[h, i] * near[h, i, e] + (1 - share[h, i]) * far[h, i, e];
"""


def test_two_shards_merged_by_their_totals_are_one_attention() -> None:
    torch.manual_seed(0)
    shapes = ((2, 7, 3), (2, 7, 3), (2, 7, 4), (2, 5, 3), (2, 5, 4))
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    query, key, value, more_keys, more_values = given
    program = ix.compile(MERGED)
    plan = str(program.plan(*given)).split("never built")[0]
    assert "s[h, i, j]" not in plan
    assert "r[h, i, l]" not in plan
    (found,) = program(*given, outputs=["out"])
    scores = query @ torch.cat([more_keys, key], 1).mT / 2
    later = torch.ones(7, 12, dtype=torch.bool).triu(5 + 1)
    wanted = torch.softmax(scores.masked_fill(later, -torch.inf), -1) @ torch.cat([more_values, value], 1)
    torch.testing.assert_close(found, wanted)
    flow = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad((found * flow).sum(), given), torch.autograd.grad((wanted * flow).sum(), given), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("score", ["plain", "cap"])
def test_transforms_see_the_gradient_of_totals(score: str) -> None:
    program = written("plain", score)
    given = drawn(program, False)

    def loss(query: Any, **options: Any) -> Any:
        out, lse = program(**{**given, "Q": query}, outputs=["out", "lse"], **options)
        return (out.sum(-1) * lse).sum()

    expected = torch.func.grad(lambda query: loss(query, isolate=True))(given["Q"])
    torch.testing.assert_close(torch.func.grad(loss)(given["Q"]), expected)
    several = torch.stack([given["Q"], 2 * given["Q"]])
    mapped = torch.func.vmap(torch.func.grad(loss))(several)
    torch.testing.assert_close(mapped[0], expected)
