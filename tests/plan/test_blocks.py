"""Definitions that are computed for some rows after the other: what is as large as rows × keys is never there whole."""

from __future__ import annotations

import numpy as np
import pytest

import indexical as ix
from indexical.plan.target import GPU_POINTS, LEARNED, POINTS

torch = pytest.importorskip("torch")

from indexical.backends.kernels import torch_rows  # noqa: E402

SIDES = """space head(f, g, h), position(i, j, k, l), feature(d, e);
input Q[h, i, d], K[h, j, d], V[h, j, e]"""
SCORES = "let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));"

PROGRAMS = {
    "talking heads": f"""{SIDES}, A[h, g], B[g, h];
{SCORES}
let c[g, i, j] = sum[h](s[h, i, j] * A[h, g]);
let w[g, i, j] = softmax[j](c[g, i, j] where j <= i);
let m[h, i, j] = sum[g](w[g, i, j] * B[g, h]);
let out[h, i, e] = sum[j](m[h, i, j] * V[h, j, e]);""",
    "talking heads, all": f"""{SIDES}, A[h, g], B[g, h];
{SCORES}
let w[g, i, j] = softmax[j](sum[h](s[h, i, j] * A[h, g]));
let m[i, j, h] = sum[g](B[g, h] * w[g, i, j]);
let out[h, i, e] = sum[l](V[h, l, e] * m[i, l, h]);""",
    "sticks": f"""{SIDES};
{SCORES}
let p[h, i, j] = log_sigmoid(-s[h, i, j]) where j < i;
let r[h, i, j] = sum[k](p[h, i, k] where j < k < i);
let w[h, i, j] = exp(log_sigmoid(s[h, i, j]) + r[h, i, j]) where j < i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);""",
    "sticks, permuted": f"""{SIDES};
let p[i, k, h] = sum[d](K[h, k, d] * Q[h, i, d]) / sqrt(size(d));
let r[h, j, i] = sum[k](log(1 - sigmoid(p[i, k, h])) where k < i && j < k);
let out[h, i, e] = sum[l](sigmoid(p[i, l, h]) * exp(r[h, l, i]) * V[h, l, e] where l < i);""",
    "least": f"""{SIDES};
{SCORES}
let low[h, i] = min[k](s[h, i, k] where k <= i);
let w[h, i, j] = sqrt(s[h, i, j] - low[h, i] + 1) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]) / (1 + sum[j](w[h, i, j]));""",
}
ROOM = torch_rows.BLOCK_POINTS, torch_rows.GPU_BLOCK_POINTS, torch_rows.KEPT_POINTS
SIZES = {"h": 2, "i": 7, "j": 7, "d": 3, "e": 2, "g": 2}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two rows or so."""
    monkeypatch.setattr(torch_rows, "BLOCK_POINTS", 30)
    monkeypatch.setattr(torch_rows, "KEPT_POINTS", 0)


def tensors(name: str, learned: bool = True, **sizes: int) -> dict[str, object]:
    torch.manual_seed(0)
    here = {**SIZES, **sizes}
    shapes = {"Q": "hid", "K": "hjd", "V": "hje"} | ({"A": "hg", "B": "gh"} if "heads" in name else {})
    return {
        n: torch.randn([here[c] for c in axes], dtype=torch.float64, requires_grad=learned)
        for n, axes in shapes.items()
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_the_relation(name: str) -> None:
    given = tensors(name)
    compiled = ix.compile(PROGRAMS[name])
    assert "by blocks of `i`" in str(compiled.plan(**given))
    found, plain = compiled(**given), compiled(**given, isolate=True)
    assert torch.allclose(found, plain)
    flow = torch.randn_like(found)
    inputs = list(given.values())
    wanted = torch.autograd.grad(plain, inputs, flow, create_graph=True)
    for kept in (False, True):  # To be differentiated again, too.
        back = torch.autograd.grad(compiled(**given), inputs, flow, create_graph=kept)
        assert all(torch.allclose(one, other) for one, other in zip(back, wanted, strict=True))
    second = [torch.autograd.grad(sum((x**2).sum() for x in one), inputs) for one in (back, wanted)]
    assert all(torch.allclose(one, other) for one, other in zip(*second, strict=True))
    numpy = compiled(**{n: value.detach().numpy() for n, value in given.items()})
    assert np.allclose(numpy, plain.detach().numpy())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sizes", [{"i": 0}, {"j": 0}, {"i": 1, "j": 1}, {"i": 3}, {"j": 3}, {"h": 0}])
def test_no_points_and_few(sizes: dict[str, int]) -> None:
    compiled = ix.compile(PROGRAMS["sticks"])
    given = tensors("sticks", **sizes)
    found, plain = compiled(**given), compiled(**given, isolate=True)
    assert found.shape == plain.shape
    assert torch.allclose(found, plain)
    back = [torch.autograd.grad(one.sum(), list(given.values())) for one in (found, plain)]
    assert all(torch.allclose(one, other) for one, other in zip(*back, strict=True))


def test_a_derivative_is_the_same() -> None:
    given = tensors("sticks", i=4, j=4)
    total = ix.compile(f"{PROGRAMS['sticks']}\nlet loss = sum[h, i, e](out[h, i, e] ** 2);")
    (wanted,) = torch.autograd.grad(total(**given, outputs="loss"), given["K"])
    derived = ix.grad(total, "loss", "K")(**{n: v.detach().numpy() for n, v in given.items()})
    assert np.allclose(np.asarray(derived), wanted.numpy())


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_few_points_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tensors(name)
    compiled = ix.compile(PROGRAMS[name])
    found = []
    for most in (0, 1 << 23):
        monkeypatch.setattr(torch_rows, "KEPT_POINTS", most)
        found.append(torch.autograd.grad(compiled(**given).square().sum(), list(given.values())))
    assert all(torch.allclose(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["talking heads", "sticks"])
def test_nothing_as_large_as_the_weights_is_kept_for_the_way_back(name: str) -> None:
    given = tensors(name, i=48, j=48)
    kept: list[int] = []

    def pack(tensor):  # type: ignore[no-untyped-def]
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        ix.compile(PROGRAMS[name])(**given)
    assert max(kept) < 2 * 48 * 48


@pytest.mark.parametrize("name", ["talking heads", "sticks", "least"])
def test_keys_behind_the_last_row_are_not_read(name: str) -> None:
    clean = tensors(name, learned=False, i=3)
    given = {n: value.clone() for n, value in clean.items()}
    given["K"][:, 3:] = torch.nan
    given["V"][:, 3:] = torch.inf
    compiled = ix.compile(PROGRAMS[name])
    assert torch.equal(compiled(**given), compiled(**clean))


def test_keys_are_all_there_where_a_later_one_is_needed() -> None:
    source = PROGRAMS["least"].replace("min[k](s[h, i, k] where k <= i)", "min[k](s[h, i, k])")
    given = tensors("least")
    compiled = ix.compile(source)
    assert "by blocks of `i`" in str(compiled.plan(**given))
    assert torch.allclose(compiled(**given), compiled(**given, isolate=True))


@pytest.mark.parametrize("some", ["0..0", "0..1", "2..4", "0..7"])
def test_a_sum_over_some_keys_has_these_keys(some: str) -> None:
    text = f"""
        input Q[i, d], K[j, d], V[j, e];
        let scores[i, j] = sum[d](Q[i, d] * K[j, d]);
        let pass[i, j] = log_sigmoid(-scores[i, j]) where j < i;
        let left[i, j in 0..7] = sum[k in {some}](pass[i, k]);
        let weights[i, j] = exp(log_sigmoid(scores[i, j]) + left[i, j]) where j < i;
        let out[i, e] = sum[j](weights[i, j] * V[j, e]);
    """
    program = ix.compile(text)
    arrays = np.random.default_rng(0).normal(size=(3, 7, 4))
    expected = program(*arrays, backend="reference")
    np.testing.assert_allclose(program(*arrays, backend="numpy"), expected, atol=1e-12)


def test_weights_that_are_wanted_too_are_there() -> None:
    given = tensors("sticks")
    compiled = ix.compile(f"{PROGRAMS['sticks']}\noutput out, w;")
    for one, other in zip(compiled(**given), compiled(**given, isolate=True), strict=True):
        assert torch.allclose(one, other)


def test_the_plan_tells_of_as_many_rows_as_there_are() -> None:
    assert ROOM == (POINTS, GPU_POINTS, LEARNED)


def test_recompute_false_keeps_them() -> None:
    given = tensors("sticks")
    compiled = ix.compile(PROGRAMS["sticks"])
    assert "blocks" not in str(compiled.plan(**given, recompute=False))
    assert torch.allclose(compiled(**given, recompute=False), compiled(**given))


def test_transforms_read_through_blocks() -> None:
    compiled = ix.compile(PROGRAMS["sticks"])
    given = list(tensors("sticks", learned=False).values())

    def loss(q):  # type: ignore[no-untyped-def]
        return compiled(q, *given[1:]).sum()

    wanted = torch.autograd.grad(loss(q := given[0].clone().requires_grad_()), q)[0]
    assert torch.allclose(torch.func.grad(loss)(given[0]), wanted)
    several = torch.stack([given[0], -given[0]])
    mapped = torch.func.vmap(lambda q: compiled(q, *given[1:]))(several)
    assert torch.allclose(mapped, torch.stack([compiled(q, *given[1:]) for q in several]))


def test_numbers_labels_and_other_definitions_go_in() -> None:
    source = """space head(h), position(i, j, k), feature(d, e);
input X[h, i, d], V[h, j, e], doc[i]: i64, t, on: bool;
let q[h, i, d] = tanh(X[h, i, d]);
let s[h, i, j] = t * sum[d](q[h, i, d] * q[h, j, d]);
let p[h, i, j] = log_sigmoid(-s[h, i, j]) where j < i && doc[i] == doc[j];
let r[h, i, j] = sum[k](p[h, i, k] where j < k < i);
let w[h, i, j] = if on { sigmoid(s[h, i, j]) } else { 1.0 } where j < i;
let out[h, i, e] = sum[j](w[h, i, j] * exp(r[h, i, j]) * V[h, j, e] where j < i && doc[i] == doc[j]);"""
    compiled = ix.compile(source)
    torch.manual_seed(0)
    x, v = (torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    doc = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    for t in (torch.tensor(0.5, dtype=torch.float64, requires_grad=True), 0.5):
        assert "by blocks of `i`" in str(compiled.plan(x, v, doc, t, True))
        learned = [x, v, *([t] if isinstance(t, torch.Tensor) else [])]
        pairs = [compiled(x, v, doc, t, True, isolate=apart) for apart in (False, True)]
        assert torch.allclose(*pairs)
        back = [torch.autograd.grad(one.sum(), learned) for one in pairs]
        assert all(torch.allclose(one, other) for one, other in zip(*back, strict=True))
