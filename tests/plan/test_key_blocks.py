"""Queries that select blocks of keys: in every spelling by just these, there and back, as the reference has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.pairs import called_few

import indexical as ix
from indexical.backends.kernels import torch_selected

ROWS, BLOCK = 12, 4
MEANS = "let mean_key[h, c in 0..size(j) / 4, d] = mean[t in 0..4](K[h, 4 * c + t, d]);"
RANKED = f"{MEANS} let r[h, i, c] = sum[d](Q[h, i, d] * mean_key[h, c, d]);"
SCORES = "let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));"
GIVEN = "input Q[h, i, d], K[h, j, d], V[h, j, e];"
OUT = "let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);"
SPELLED = {
    "all": f"""{GIVEN} {RANKED} {SCORES}
let chosen[h, i, c] = rank[c](r[h, i, c]) < 2;
let w[h, i, j] = softmax[j](s[h, i, j] where chosen[h, i, j / 4]); {OUT}""",
    "causal": f"""{GIVEN} {RANKED} {SCORES}
let chosen[h, i, c] = rank[c](r[h, i, c] where 4 * c <= i) < 2 && 4 * c <= i;
let w[h, i, j] = softmax[j](s[h, i, j] where chosen[h, i, j / 4], j <= i); {OUT}""",
    "inlined": """input Q[h, i, d], K[h, j, d], V[h, j, e];
let r[h, i, c in 0..size(j) / 4] = sum[d](Q[h, i, d] * mean[t in 0..4](K[h, 4 * c + t, d]));
let place[h, i, c] = rank[c](r[h, i, c]);
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]);
let out[h, i, e] = sum[j](softmax[j](s[h, i, j] where j <= i, 2 > place[h, i, j / 4]) * V[h, j, e]);
""",
    "a packed axis": """input Q[h, i, d], K[h, c, t, d], V[h, c, t, e];
let r[h, i, c] = sum[d](Q[h, i, d] * mean[t](K[h, c, t, d]));
let chosen[h, i, c] = rank[c](r[h, i, c] where c * size(t) <= i) < 2;
let s[h, i, c, t] = sum[d](Q[h, i, d] * K[h, c, t, d]);
let w[h, i, c, t] = softmax[c, t](s[h, i, c, t] where chosen[h, i, c], c * size(t) + t <= i);
let out[h, i, e] = sum[c, t](w[h, i, c, t] * V[h, c, t, e]);""",
    "for blocks of queries": """input Q[i, h, d], K[j, h, d], V[j, h, e];
let r[h, b in 0..size(i) / 4, c in 0..size(j) / 4] = sum[t in 0..4, d](Q[4 * b + t, h, d] * K[4 * c + t, h, d]);
let picked[h, b, c] = rank[c](r[h, b, c]) < 1 || b == c;
let w[h, i, j] = softmax[j](sum[d](Q[i, h, d] * K[j, h, d])) where picked[h, i / 4, j / 4], j <= i;
let out[i, h, e] = sum[j](w[h, i, j] * V[j, h, e]);""",
    "beside a sink": f"""{GIVEN} {RANKED} {SCORES}
let chosen[h, i, c] = rank[c](r[h, i, c]) < 1;
let share[h, i, j] = exp(s[h, i, j]) where chosen[h, i, j / 4];
let out[h, i, e] = sum[j](share[h, i, j] * V[h, j, e]) / (1 + sum[j](share[h, i, j]));""",
}


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The groups that were computed, however few their rows are."""
    seen: list[Any] = []
    usual = torch_selected._hear_groups

    def watched(groups: Any, *given: Any) -> Any:
        seen.extend(groups)
        return usual(groups, *given)

    monkeypatch.setattr(torch_selected, "_hear_groups", watched)
    monkeypatch.setattr(torch_selected, "PAIR_COST", 0)
    monkeypatch.setattr(torch_selected, "CALL_COST", 0)
    return seen


def drawn(form: str) -> dict[str, np.ndarray[Any, Any]]:
    noise = np.random.default_rng(len(form))
    shapes = {"Q": (2, ROWS, 3), "K": (2, ROWS, 3), "V": (2, ROWS, 2)}
    given = {name: noise.standard_normal(shape) for name, shape in shapes.items()}
    if form == "a packed axis":
        return given | {name: given[name].reshape(2, -1, BLOCK, given[name].shape[-1]) for name in "KV"}
    return {name: array.swapaxes(0, 1).copy() for name, array in given.items()} if "queries" in form else given


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", SPELLED)
def test_blocks_are_heard_by_those_who_select_them(form: str, groups: list[Any]) -> None:
    program, given = ix.compile(SPELLED[form]), drawn(form)
    wanted = program(**given, backend="reference", outputs="out")
    seeded = np.random.default_rng(1).standard_normal(wanted.shape)
    flowing = ix.grad(program, of="out", by=("Q", "K", "V"))(**given, d_out=seeded, backend="reference")
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in given.items()}
    with called_few(0):
        assert "keys with the queries that hear them" in str(program.plan(**tensors, outputs="out"))
        found = program(**tensors, outputs="out")
        derived = ix.grad(program, of="out", by=("Q", "K", "V"))(**given, d_out=seeded, backend="torch")
    assert groups
    assert sum(len(group.rows) for group in groups) < 2 * len(groups) * ROWS
    np.testing.assert_allclose(found.detach(), wanted, rtol=1e-9, atol=1e-12)
    (found * torch.tensor(seeded)).sum().backward()
    for name, want, other in zip("QKV", flowing, derived, strict=True):
        np.testing.assert_allclose(tensors[name].grad, want, rtol=1e-8, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(np.asarray(other), want, rtol=1e-8, atol=1e-10, err_msg=name)


def test_keys_that_nobody_hears_are_not_read(groups: list[Any]) -> None:
    program = ix.compile(
        "input Q[i, d], K[j, d], V[j, e], some[i, c] : bool;"
        "let s[i, j] = sum[d](Q[i, d] * K[j, d]);"
        "let out[i, e] = sum[j](softmax[j](s[i, j] where some[i, j / 4], j <= i + 1) * V[j, e]);"
    )
    noise = np.random.default_rng(0)
    given = [noise.standard_normal((8, 3)), noise.standard_normal((12, 3)), noise.standard_normal((12, 2))]
    some = np.ones((8, 3), bool)
    some[:, 0] = False
    wanted = program(*given, some, backend="reference")
    unheard = np.isin(np.arange(12), (0, 1, 2, 3, 9, 10, 11))[:, None]
    spoilt = [given[0], *(np.where(unheard, np.nan, array) for array in given[1:])]
    with called_few(0):
        found = program(*map(torch.tensor, spoilt), torch.tensor(some))
    assert groups
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_what_most_hear_is_heard_in_tiles(groups: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_selected, "PAIR_COST", 1.4)
    program, given = ix.compile(SPELLED["all"].replace("< 2", "< 3")), drawn("all")
    with called_few(0):
        found = program(**{name: torch.tensor(array) for name, array in given.items()})
    assert not groups
    np.testing.assert_allclose(found, program(**given, backend="reference"), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "guard", ["some[i, j / 4], other[i, j / 2]", "some[i, j / 4] || j == 1", "some[i, (j + 1) / 4]"]
)
def test_other_guards_are_no_blocks(guard: str) -> None:
    program = ix.compile(
        f"input s[i, j], V[j], some[i, c] : bool, other[i, f] : bool, Q[i, d], K[j, d];"
        f"let out[i] = sum[j](softmax[j](sum[d](Q[i, d] * K[j, d]) where {guard}) * V[j]);"
        f"let used[i] = any[f](other[i, f]) && s[i, 0] > 0;"
    )
    bools = torch.ones(8, 4, dtype=torch.bool)
    real = torch.ones(8, 8)
    plan = program.plan(real, real[0], bools, bools, real, real, outputs="out")
    assert "keys with the queries" not in str(plan)
