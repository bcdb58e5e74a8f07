"""Values that a condition leaves at one point of an axis are stored there, in every spelling, and are 0 elsewhere."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

HEAD = "input x[i, n], w[i, m], v[i], p[i] : i64, q[i] : i32, t[b, i] : i64, z[n];"
SPELLINGS = {
    "a row": "let out[i, n] = v[i] where p[i] == n;",
    "turned round": "let out[i, n] = v[i] where n == p[i];",
    "the place first": "let out[n, i] = v[i] where n == p[i];",
    "renamed": "let out[r, k in 0..size(n)] = v[r] where p[r] == k;",
    "of its own": "let out[i, n] = x[i, n] where p[i] == n;",
    "with more axes": "let out[i, n, m] = w[i, m] where p[i] == n;",
    "in between": "let out[m, n, i] = w[i, m] where p[i] == n;",
    "of several": "let out[b, n, i] = v[i] where t[b, i] == n;",
    "two places": "let out[i, n, m] = v[i] where p[i] == n, q[i] == m;",
    "two places apart": "let out[m, i, n] = v[i] * w[i, m] where p[i] == n, m == q[i];",
    "some places": "let out[i, 0] = v[i]; let out[i, k in 1..4] = v[i] where p[i] == k;",
    "under one more": "let out[i, n] = v[i] where p[i] == n, i > 1, n < 4;",
    "before it": "let out[i, n] = v[i] where n < 4, v[i] > 0, p[i] == n;",
    "of every column": "let out[i, n, m] = w[i, m] where p[i] == n, m > 0, z[n] > 0;",
    "one after the other": "let out[i, n, m in 0..3] = v[i] where p[i] == n, m == n / 2 + q[i];",
    "before the first": "let out[i, n] = v[i - 1] where i > 0, p[i - 1] == n;",
    "read there": "let out[i, n] = v[i] * z[n] where p[i] == n;",
    "a choice": "let out[i, n] = 2 * (if p[i] == n { v[i] } else { 0 }) + z[n];",
    "the other choice": "let out[i, n] = if p[i] != n { 0 } else { v[i] };",
    "inlined": "let s[i] = p[i]; let a[i, n] = v[i] where s[i] == n; let out[i, n] = a[i, n] * z[n];",
    "whole": "let out[i, n] = i + 1 where p[i] == n;",
    "ones": "let out[i, n] = 1.0 where p[i] == n;",
    "a step further": "let out[i, n] = v[i] where n - p[i] == 1;",  # Refused where the difference overflows.
}
OTHERS = {
    "a view": "let out[i, n] = v[i] where i == n;",
    "many": "let out[i, n] = v[i] where p[i] <= n;",
    "not there": "let out[i, n] = v[i] where p[i] != n;",
    "one place": "let out[m, n] = w[0, m] where p[0] == n;",
    "another number": "let out[i, n] = if p[i] == n { v[i] } else { 1 };",
    "a normaliser": "let out[i, n] = softmax[n](x[i, n]) where p[i] == n;",
    "a sum": "let out[n] = sum[i](v[i] where p[i] == n);",
    "a sum of choices": "let out[n] = sum[i](if p[i] == n { v[i] } else { 0 });",
}


def arrays(absent: bool, rows: int = 6, places: int = 5) -> dict[str, torch.Tensor]:
    draw = np.random.default_rng(4)
    low, high = (-2, places + 3) if absent else (0, max(places, 1))
    shapes = {"x": (rows, places), "w": (rows, 3), "v": (rows,), "z": (places,)}
    reals = {name: torch.tensor(draw.normal(size=shape)) for name, shape in shapes.items()}
    p, t = draw.integers(low, high, rows), draw.integers(low, high, (2, rows))
    q = draw.integers(low, 4 if absent else 3, rows)
    return reals | {"p": torch.tensor(p), "q": torch.tensor(q, dtype=torch.int32), "t": torch.tensor(t)}


def compiled(name: str) -> ix.Program:
    return ix.compile(f"{HEAD} {(SPELLINGS | OTHERS)[name]} output out;")


def numbers(given: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in given.items()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("name", [*SPELLINGS, *OTHERS])
def test_values_and_gradients_are_those_of_the_relation(name: str, absent: bool) -> None:
    program, given = compiled(name), arrays(absent)
    operations = [operation.name for operation in program.plan(**given).operations]
    assert ("put" in operations) == (name in SPELLINGS)
    right = program(**numbers(given), backend="reference")
    np.testing.assert_allclose(program(**numbers(given), backend="numpy"), right, atol=1e-12)
    if absent and name in ("two places apart", "under one more") and importlib.util.find_spec("jax"):
        np.testing.assert_allclose(program(**numbers(given), backend="jax"), right, atol=1e-12)
    leaves = {name: a.clone().requires_grad_() if a.is_floating_point() else a for name, a in given.items()}
    derived: tuple[torch.Tensor, ...] = ()
    for isolate in (False, True):
        found = program(**leaves, isolate=isolate)
        np.testing.assert_allclose(found.detach(), right, atol=1e-12)
        if not found.requires_grad:
            assert name in ("whole", "ones")
            return
        wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        arriving = torch.cos(torch.arange(found.numel(), dtype=torch.float64)).reshape(found.shape)
        flows = torch.autograd.grad(found, list(wanted.values()), arriving, allow_unused=True)
        asked = tuple(name for name, flow in zip(wanted, flows, strict=True) if flow is not None)
        if not derived:
            given_back = ix.grad(program, by=asked)(**given, d_out=arriving)
            derived = given_back if isinstance(given_back, tuple) else (given_back,)
        for mine, flow in zip(derived, (flow for flow in flows if flow is not None), strict=True):
            torch.testing.assert_close(mine, flow)


@pytest.mark.parametrize("name", ["a row", "two places", "with more axes"])
@pytest.mark.parametrize(("rows", "places"), [(0, 5), (1, 5), (3, 0), (3, 1), (0, 0)])
def test_few_points(name: str, rows: int, places: int) -> None:
    program, given = compiled(name), arrays(True, rows, places)
    right = program(**numbers(given), backend="reference")
    np.testing.assert_allclose(program(**numbers(given), backend="numpy"), right)
    given["v"].requires_grad_()
    given["w"].requires_grad_()
    found = program(**given)
    assert found.requires_grad
    np.testing.assert_allclose(found.detach(), right)


def test_what_is_not_put_counts_for_nothing() -> None:
    program, given = compiled("under one more"), arrays(True)
    given["v"][:2] = torch.nan
    assert program(**given).isfinite().all()


def test_nothing_is_copied() -> None:
    program = ix.compile(f"{HEAD} let out[i, n] = v[i] where p[i] <= n; output out;")
    assert "clone" not in program.source(**arrays(False))


def test_it_is_mapped() -> None:
    program, given = compiled("a row"), arrays(True)
    many = torch.stack([given["v"], 2 * given["v"]])
    mapped = torch.func.vmap(lambda v: program(**{**given, "v": v}))(many)
    for v, found in zip(many, mapped, strict=True):
        torch.testing.assert_close(found, program(**{**given, "v": v}))


@pytest.mark.parametrize("place", [-1, 5])
def test_a_read_of_the_same_place_is_refused(place: int) -> None:
    """The way back leaves out what is not there; the way there does not."""
    program = ix.compile("input x[i, n], p[i] : i64; let y[i] = x[i, p[i]];")
    x, p = torch.randn(3, 5), torch.tensor([0, place, 1])
    with pytest.raises(ix.Error, match="out of bounds"):
        program(x, p)
    found = ix.grad(program)(x, p, torch.ones(3))
    assert found.tolist() == [[1, 0, 0, 0, 0], [0] * 5, [0, 1, 0, 0, 0]]


@pytest.mark.parametrize("guard", ["j < i", "j < i, i > 1", "i > 0", "i - j == 1"])
def test_a_place_is_asked_for_only_where_a_point_is(guard: str) -> None:
    """Of the first row no place is asked for: it has none."""
    text = "if j == argmax[k](x[i, k] where k < i) { y[i] } else { 0 }"
    program = ix.compile(f"input x[i, j], y[i]; let out[i, j] = {text} where {guard};")
    for count in (0, 1, 4):
        given = np.random.default_rng(0).normal(size=(count, count)), np.arange(1.0, count + 1)
        expected = program(*given, backend="reference")
        np.testing.assert_array_equal(program(*given, backend="numpy"), expected)
        np.testing.assert_array_equal(program(*map(torch.tensor, given)), expected)
