"""Formulas that lose digits are computed in a form that does not, in every spelling, with the right gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import indexical as ix

X = np.array([-800.0, -120.0, -40.0, -3.0, 1e-4, 0.3, 50.0, 900.0], np.float32)


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0, -x.astype(np.float64))


def one_less_cosine(x: np.ndarray) -> np.ndarray:
    return 2 * np.sin(x.astype(np.float64) / 2) ** 2


FORMULAS = {
    "log(sigmoid({x}))": log_sigmoid,
    "log(1 - sigmoid(-{x}))": log_sigmoid,
    "log(-sigmoid(-{x}) + 1.0)": log_sigmoid,
    "-log(1 + exp(-{x}))": log_sigmoid,
    "-log(exp(-{x}) + 1)": log_sigmoid,
    "log(1 / (1 + exp(-{x})))": log_sigmoid,
    "log(1 - 1 / (1 + exp({x})))": log_sigmoid,
    "1 - cos({x})": one_less_cosine,
    "cos({x}) - 1": lambda x: -one_less_cosine(x),
}
SPELLINGS = {
    "at once": "let y[i] = {formula};",
    "guarded": "let y[i] = {formula} where i >= 0;",
    "in a function": "fn f(a) {{ {inner} }} let y[i] = f(x[i]);",
    "under another name": "let z = x; let y[i] = {named};",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula(formula: str, spelling: str) -> None:
    text = SPELLINGS[spelling].format(
        formula=formula.format(x="x[i]"), inner=formula.format(x="a"), named=formula.format(x="z[i]")
    )
    check(f"input x[i]; {text} output y;", FORMULAS[formula])


@pytest.mark.parametrize(
    "text",
    [
        "let p[i] = sigmoid(x[i]); let y[i] = log(p[i]);",
        "fn p(x[i]) -> [i] { sigmoid(x[i]) } let y[i] = log(p(x)[i]);",
        "let p = { let q[i] = sigmoid(-x[i]); q[0] }; let q[i] = sigmoid(-x[i]); let y[i] = log(1 - q[i]) + 0 * p;",
        "let q[i] = sigmoid(-x[i]); let p[i] = 1 - q[i]; let y[j] = log(p[j]);",
        "let e[i] = exp(-x[i]); let z[i] = 1 + e[i]; let y[i] = -log(z[i]);",
        "let e[i] = exp(-x[i]); let y[i] = -log1p(e[i]);",
        "let y[i] = log1p(-sigmoid(-x[i]));",
        "let p[i] = sigmoid(sum[k in 0..4](x[i] * 0.25)); let y[i] = log(p[i]);",
        "fn both(x[i]) -> ([i], [i]) { let p[i] = sigmoid(x[i]); (p, log(p[i])) } let (p, y) = both(x);",
    ],
)
def test_through_definitions(text: str) -> None:
    check(f"input x[i]; {text} output y;", log_sigmoid)


def check(text: str, wanted: object) -> None:
    program = ix.compile(text)
    assert callable(wanted)
    expected = wanted(X)
    for backend in ("reference", "numpy", "torch", "jax"):
        found = np.asarray(program(X, backend=backend))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=4e-6)
    step = 1e-3
    slope = (wanted(X.astype(float) + step) - wanted(X.astype(float) - step)) / (2 * step)
    tensor = torch.tensor(X, requires_grad=True)
    program(tensor).sum().backward()
    derived = ix.grad(program, of="y", by="x")(x=X, d_y=np.ones_like(X))
    pushed = ix.jvp(program, of="y", by="x")(x=X, dot_x=np.ones_like(X))
    for gradient in (tensor.grad, derived, pushed):
        np.testing.assert_allclose(np.asarray(gradient), slope, rtol=1e-3, atol=1e-6)


S = np.array([[-120.0, -800, 0.3], [50, 900, -40], [100, 100, 100], [-np.inf, 2, np.inf], [-np.inf] * 3], np.float32)


@pytest.mark.parametrize("guard", ["", " where j <= i"])
@pytest.mark.parametrize(
    "text",
    [
        "let y[i] = log(sum[j](exp(s[i, j]){guard}));",
        "let z[i] = sum[j](exp(s[i, j]){guard}); let y[i] = log(z[i]);",
        "let e[i, j] = exp(s[i, j]); let z[i] = sum[j](e[i, j]{guard}); let y[k] = 1 + log(z[k]) - 1;",
        "fn lse(x[a, b]) -> [a] {{ let t = 0; log(sum[b](exp(x[a, b]) where b <= a || {all})) }} let y = lse(s);",
    ],
)
def test_the_log_of_a_sum_of_exponentials(text: str, guard: str) -> None:
    program = ix.compile(f"input s[i, j]; {text.format(guard=guard, all=str(not guard).lower())} output y;")
    kept = np.tril(np.ones(S.shape, bool)) if guard else np.ones(S.shape, bool)
    wanted = np.logaddexp.reduce(np.where(kept, S, -np.inf).astype(float), 1)
    for backend in ("reference", "numpy", "torch", "jax"):
        np.testing.assert_allclose(np.asarray(program(S, backend=backend)), wanted, rtol=1e-6, atol=1e-7)
    finite, mask = S[:3], kept[:3]
    weights = np.exp(np.where(mask, finite, -np.inf) - wanted[:3, None])
    tensor = torch.tensor(finite, requires_grad=True)
    program(tensor).sum().backward()
    derived = ix.grad(program, of="y", by="s")(s=finite, d_y=np.ones(3, np.float32))
    for gradient in (tensor.grad, derived):
        np.testing.assert_allclose(np.asarray(gradient), weights, atol=1e-5)


T = np.array([3.0, -900, 95, 1, -np.inf], np.float32)


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("let y[i] = log(1 + sum[j](exp(s[i, j])));", np.zeros(5)),
        ("let z[i] = sum[j](exp(s[i, j])); let y[k] = log1p(z[k]);", np.zeros(5)),
        ("let y[i] = log(sum[j](exp(s[i, j])) + exp(t[i]));", T),
        ("let e[i, j] = exp(s[i, j]); let y[i] = log(exp(t[i]) + sum[j](e[i, j]));", T),
        ("let y[i] = log(mean[j](exp(s[i, j]))) + log(size(j));", None),
    ],
)
def test_the_log_of_more_than_a_sum_of_exponentials(text: str, beside: np.ndarray | None) -> None:
    program = ix.compile(f"input s[i, j], t[i]; {text} output y;")
    every = S if beside is None else np.concatenate((S, beside[:, None]), 1)
    wanted = np.logaddexp.reduce(every.astype(float), 1)
    given = {"s": S, "t": T}
    for backend in ("reference", "numpy", "torch", "jax"):
        np.testing.assert_allclose(np.asarray(program(**given, backend=backend)), wanted, rtol=1e-6, atol=1e-7)
    weights = np.exp(every[:3] - wanted[:3, None])
    tensors = {name: torch.tensor(array[:3], requires_grad=True) for name, array in given.items()}
    program(**tensors).sum().backward()
    derived = ix.grad(program, of="y", by="s")(**{n: a[:3] for n, a in given.items()}, d_y=np.ones(3, np.float32))
    for gradient in (tensors["s"].grad, derived):
        np.testing.assert_allclose(np.asarray(gradient), weights[:, :3], atol=1e-5)


def test_a_small_total_beside_one_keeps_its_digits() -> None:
    small = np.array([[-40.0, -41, -80]], np.float32)
    for text in ("log1p(sum[j](exp(s[i, j])))", "log(1 + sum[j](exp(s[i, j])))"):
        found = ix.compile(f"input s[i, j]; let y[i] = {text};")(small)
        np.testing.assert_allclose(found, np.exp(small.astype(float)).sum(1), rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "let y[i] = log(x[i] + 1);",
        "let p[i] = sigmoid(x[i]) where i > 0; let y[i] = log(p[i]) where i > 0;",
        "let t = max[i](x[i]); let y = t + log(sum[i](exp(x[i] - t)));",
        "let y[i] = exp(x[i] - log(sum[j](exp(x[j]))));",
    ],
)
def test_what_has_no_such_form_stays(text: str) -> None:
    program = ix.compile(f"input x[i]; {text} output y;")
    assert program._engine.program is program.ir


def test_a_definition_that_is_held_independent_is_not_looked_through() -> None:
    program = ix.compile("input x[i]; let p[i] = sigmoid(x[i]); let y[i] = log(p[i]); output y;")
    found = ix.grad(program, of="y", by="p")(x=np.zeros(2), d_y=np.ones(2))
    np.testing.assert_allclose(found, [2, 2])


def test_exact_numbers_keep_the_relation() -> None:
    assert "log(" in str(ix.exact("let y = log(1 + exp(2));"))


def test_whole_scores_over_no_points_have_a_logarithm() -> None:
    """What is taken from exponents is a real number, also of whole scores, and there the largest of none is -inf."""
    program = ix.compile("input s[i, j] : i64; let y[i] = log(sum[j](exp(s[i, j]) where j > i));")
    s = np.arange(9).reshape(3, 3)
    wanted = [np.log(np.exp(1) + np.exp(2)), 5, -np.inf]
    for backend in ("reference", "numpy", "torch"):
        np.testing.assert_allclose(program(s, backend=backend), wanted)
