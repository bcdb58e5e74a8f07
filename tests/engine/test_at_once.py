"""Folds of few pairs, all computed at once: they say what loops over tiles say, and what nobody hears stays out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.pairs import ALL, called_few  # noqa: E402

import indexical as ix  # noqa: E402

GIVEN = "input Q[i, d], K[j, d], V[j, e], sink, n : i64; let s[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));"
HERE = "(i + size(j) - size(i))"
GUARDS = {
    "window at the end": f"{HERE} - 3 < j <= {HERE}",
    "window ahead": "i + 2 <= j < i + 5",
    "keys beyond": "j < n",
    "queries beyond": "i < n",
    "strictly causal": "j < i",
    "apart": f"abs({HERE} - j) <= 1",
}
WEIGHTS = {
    "softmax": "let w[i, j] = softmax[j](s[i, j]) where {0}; let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "cap": "let w[i, j] = softmax[j](3 * tanh(s[i, j])) where {0}; let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "sink": "let w[i, j] = exp(s[i, j]) where {0};"
    "let out[i, e] = sum[j](w[i, j] * V[j, e]) / (exp(sink) + sum[j](w[i, j]));",
    "one more": "let w[i, j] = exp(s[i, j]) where {0};"
    "let out[i, e] = sum[j](w[i, j] * V[j, e]) / (1 + sum[j](w[i, j]));",
    "sigmoid": "let w[i, j] = sigmoid(s[i, j]) where {0}, j < 10 + i; let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "signs": "let w[i, j] = softmax[j](abs(s[i, j])) where {0};"
    "let out[i, e] = sum[j](w[i, j] * (if s[i, j] < 0 {{ -1.0 }} else {{ 1.0 }}) * V[j, e]);",
    "log-sum-exp": "let w[i, j] = softmax[j](s[i, j]) where {0}; let out[i, e] = sum[j](w[i, j] * V[j, e]);"
    "let level[i] = log(sum[j](exp(s[i, j]) where {0})); output out, level;",
}


def drawn(rows: int = 4, keys: int = 9) -> list[Any]:
    torch.manual_seed(rows)
    shapes = (rows, 3), (keys, 3), (keys, 2), ()
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]


def results(program: ix.Program, arrays: list[Any], **flags: Any) -> list[Any]:
    found = program(*arrays, 2, **flags)
    found = list(found) if isinstance(found, tuple) else [found]
    total = sum(one[one.isfinite()].square().sum() for one in found)
    return [*found, *torch.autograd.grad(total, arrays, materialize_grads=True)]


@pytest.mark.parametrize("rows", [4, 9])
@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_it_says_what_tiles_say(weights: str, guard: str, rows: int) -> None:
    text, arrays = GIVEN + WEIGHTS[weights].format(GUARDS[guard]), drawn(rows)
    found = []
    for pairs in (0, ALL):
        with called_few(pairs):
            program = ix.compile(text)
            first = results(program, arrays)
            for _ in range(40):  # A text for these sizes takes its place.
                later = results(program, arrays)
            found += [first, later]
    found.append(results(ix.compile(text), arrays, isolate=True))
    for one in found[1:]:
        for ours, other in zip(one, found[0], strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("weights", ["softmax", "cap", "sink", "one more", "signs", "log-sum-exp"])
@pytest.mark.parametrize("guard", ["window at the end", "window ahead", "keys beyond", "strictly causal", "apart"])
def test_keys_that_nobody_hears_may_be_anything(guard: str, weights: str, bad: float) -> None:
    text, arrays = GIVEN + WEIGHTS[weights].format(GUARDS[guard]), drawn()
    said = GUARDS[guard].replace(HERE, "(i + 5)")
    hears = [[eval(said, {"i": i, "j": j, "n": 2}) for j in range(9)] for i in range(4)]
    unheard = ~torch.tensor(hears).any(0)
    assert unheard.any()
    spoiled = [x.detach().clone() for x in arrays]
    spoiled[1][unheard] = spoiled[2][unheard] = bad
    with called_few(ALL):
        program = ix.compile(text)
        for _ in range(40):
            found = results(program, [x.requires_grad_() for x in spoiled])
        for ours, clean in zip(found, results(program, arrays), strict=True):
            torch.testing.assert_close(ours, clean, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_a_guard_of_queries_alone_keeps_out_all_keys() -> None:
    text, arrays = GIVEN + WEIGHTS["one more"].format("i < n"), [x.detach() for x in drawn()]
    arrays[1][:], arrays[2][:] = float("nan"), float("nan")
    assert not ix.compile(text)(*arrays, 0).any()


def test_a_pair_that_does_not_count_may_overflow() -> None:
    program = ix.compile(GIVEN + WEIGHTS["softmax"].format("j == i || j == i - 2"))
    q, k, v = (torch.zeros(4, 2) for _ in range(3))
    q[0, 0] = k[3, 0] = 1e25
    v += torch.arange(4.0)[:, None]
    found = program(q, k, v, torch.tensor(0.0), 2)
    assert found.isfinite().all()
    torch.testing.assert_close(found[0], v[0])


def test_an_exponential_in_a_score_has_a_gradient() -> None:
    program = ix.compile(
        "input A[i], B[j], V[j, e]; let w[i, j] = softmax[j](exp(100 * (B[j] - A[i]))) where j <= i;"
        "let out[i, e] = sum[j](w[i, j] * V[j, e]);"
    )
    a, b = (torch.arange(-6.0, 0.0).requires_grad_() for _ in range(2))
    out = program(a, b, torch.randn(6, 3))
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.square().sum(), (a, b)))


def test_an_infinite_sink_takes_all_weight() -> None:
    program = ix.compile(GIVEN + WEIGHTS["sink"].format("j <= i"))
    arrays = [x.detach() for x in drawn(9)]
    arrays[3] = torch.tensor(float("inf"), dtype=torch.float64)
    assert not program(*arrays, 2).any()


def test_a_budget_that_is_too_small_has_loops() -> None:
    program = ix.compile(GIVEN + WEIGHTS["cap"].format("j <= i"))
    arrays = [x.detach() for x in drawn(1024, 1024)]
    plain = program(*arrays, 2)
    plans = [str(program.plan(*arrays, 2, memory=limit)) for limit in ("6 MB", "60 MB")]
    assert ["all at once" in plan for plan in plans] == [False, True]
    torch.testing.assert_close(program(*arrays, 2, memory="6 MB"), plain, rtol=1e-9, atol=1e-9)


def test_numbers_change_from_call_to_call() -> None:
    """Texts for known sizes take plain numbers, whichever they are."""
    program = ix.compile(GIVEN + WEIGHTS["cap"].format("j < n"))
    arrays = [x.detach() for x in drawn(9)[:3]]
    for turn in range(60):
        given = (*arrays, 0.5, turn % 11)
        expected = program(*(np.asarray(x) for x in given), backend="reference")
        np.testing.assert_allclose(program(*given), expected, rtol=1e-9, atol=1e-9)


def test_a_choice_of_numbers_at_a_fixed_place() -> None:
    program = ix.compile(
        "input x[i], y[j]; let out[i] = sum[j](x[i] + y[j] where j == 0 && (if j > 1 { 2 } else { 3 }) >= i);"
    )
    x, y = np.arange(5.0), np.arange(3.0)
    np.testing.assert_array_equal(program(x, y), program(x, y, backend="reference"))


def test_an_array_that_is_read_at_other_places_is_whole() -> None:
    """Its axis may be called as that of the keys: what no query hears there is read at a place all the same."""
    for size in (5, 9):
        for guard in (f"{HERE} - 2 < j <= {HERE}", "i + 2 <= j"):
            program = ix.compile(
                "input Q[i, d], K[j, d], V[j, e], T[j], p[i, j] : i64;"
                f"let w[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) + T[p[i, j]] + 0.5 * T[j]) where {guard};"
                "let out[i, e] = sum[j](w[i, j] * V[j, e]);"
            )
            rng = np.random.default_rng(size)
            shapes = (4, 3), (size, 3), (size, 2), (size,)
            arrays = [rng.normal(size=shape) for shape in shapes] + [rng.integers(0, size, (4, size))]
            expected = program(*arrays, backend="reference")
            given = [torch.from_numpy(x) for x in arrays]
            for _ in range(40):
                np.testing.assert_allclose(program(*given), expected, rtol=1e-9, atol=1e-9)
