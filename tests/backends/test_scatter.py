"""Sums whose conditions say where each point goes: added there, one by one, and never masked."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import indexical as ix

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.sampled(6)

BACKENDS = ("numpy", "torch")


def tensors(arrays: Mapping[str, Any], backend: str) -> dict[str, Any]:
    return {name: torch.from_numpy(np.array(a)) if backend == "torch" else a for name, a in arrays.items()}


def several(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def agrees(text: str, arrays: Mapping[str, Any], isolate: bool = False) -> None:
    """Both backends give what the reference gives, or refuse what it refuses."""
    program = ix.compile(text)
    try:
        wanted = program(**arrays, backend="reference")
    except ix.Error:
        wanted = None
    for backend in BACKENDS:
        given = tensors(arrays, backend)
        if wanted is None:
            with pytest.raises(ix.Error):
                program(**given, backend=backend, isolate=isolate)
            continue
        results = program(**given, backend=backend, isolate=isolate)
        for found, right in zip(several(results), several(wanted), strict=True):
            assert np.shape(found) == np.shape(right), text
            np.testing.assert_allclose(found, right, rtol=1e-10, atol=1e-12, err_msg=f"{backend}: {text}")


def emitted(text: str, arrays: Mapping[str, Any], backend: str = "torch") -> str:
    """The emitted function without its comments."""
    source = ix.compile(text).source(**tensors(arrays, backend), backend=backend)
    lines = source[source.index("def program") :].splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith("#"))


def reals(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def places(count: int, *shape: int, seed: int = 0) -> Any:
    """Whole numbers around 0..count, some of them out of range, with duplicates."""
    return np.random.default_rng(seed).integers(-2, count + 2, size=shape)


# ------------------------------------------------------------------------------------- what is emitted

TRANSPOSED = "input E[n, m], p[i] : i64, d_y[i, m]; let d_E[n, m] = sum[i](d_y[i, m] where p[i] == n);"
SHAPES = [
    (TRANSPOSED, "scattered(d_y, (p,), (n_n,))"),
    (TRANSPOSED.replace("p[i] == n", "n == p[i]"), "scattered(d_y, (p,), (n_n,))"),
    (TRANSPOSED.replace("where p[i] == n", "where i > 1, p[i] == n"), "d_y, 0.0), (p,), (n_n,))"),
    (TRANSPOSED.replace("d_y[i, m] where", "d_y[i, m] * E[n, m] where"), "scattered(d_y, (p,), (n_n,)) * E"),
    (
        "input E[n, k], p[i] : i64, q[i] : i64, v[i]; let d[n, k] = sum[i](v[i] where p[i] == n, q[i] == k);",
        "scattered(v, (p, q), (n_n, n_k))",
    ),
    (
        "input E[n], p[b, i] : i64, v[b, i]; let d[b, n] = sum[i](v[b, i] where p[b, i] == n);",
        "scattered(v, (b[:, None], p), (n_b, n_n))",
    ),
    ("input E[n], x[i, j]; let d[n] = sum[i](x[i, 0] where argmax[j](x[i, j]) == n);", "(n_n,))"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("text", "shown"), SHAPES)
def test_points_are_added_where_they_go(text: str, shown: str, backend: str) -> None:
    program = ix.compile(text)
    sizes = {"n": 4, "m": 3, "i": 5, "k": 3, "b": 2, "j": 3}
    arrays: dict[str, Any] = {}
    for tensor in program.ir.inputs:
        shape = [sizes[axis.coordinate] for axis in tensor.axes]
        arrays[tensor.name] = places(4, *shape) if tensor.name in ("p", "q") else reals(*shape)
    assert shown in emitted(text, arrays, backend)
    agrees(text, arrays)


@pytest.mark.parametrize("op", ["/", "%"])
@pytest.mark.parametrize(("heads", "groups"), [(8, 2), (8, 4), (7, 3), (3, 5), (0, 2), (4, 0), (1, 1)])
def test_groups_are_put_side_by_side(op: str, heads: int, groups: int) -> None:
    text = f"input K[g, e], w[h, j], o[h, e]; let d[g, j, e] = sum[h](w[h, j] * o[h, e] where h {op} 4 == g);"
    arrays = {"K": reals(groups, 2), "w": reals(heads, 3), "o": reals(heads, 2)}
    agrees(text, arrays)
    agrees(text, arrays, isolate=True)
    assert "scattered" not in emitted(text, arrays)


def test_rows_are_computed_before_they_are_added() -> None:
    text = """input E[n], A[i, d], C[d, m], p[i] : i64;
    let d[n, m] = sum[i, d](A[i, d] * C[d, m] where d <= i, p[i] == n);"""
    arrays = {"E": reals(4), "A": reals(6, 3), "C": reals(3, 2), "p": places(4, 6)}
    assert " @ " in emitted(text, arrays)
    agrees(text, arrays)


# --------------------------------------------------------------------------------------- at the edges

EDGES = {
    "an index of another array, in bounds where it is looked at": """input E[n], s[a], x[i], p[i] : i64;
    let d[n] = sum[i](x[i] * s[p[i]] where p[i] == n) where n < 3;""",
    "a condition before the index that keeps it in bounds": """input E[n], r[a] : i64, x[i], p[i] : i64;
    let d[n] = sum[i](x[i] where 0 <= p[i] < size(a), r[p[i]] == n);""",
    "a condition after it": """input E[n], s[n], x[i], p[i] : i64;
    let d[n] = sum[i](x[i] where p[i] == n, s[p[i]] > 0);""",
    "one place twice": "input E[n], x[i], p[i] : i64; let d[n] = sum[i](x[i] where p[i] == n, p[i] / 2 == n);",
    "a place for two coordinates": """input E[n, k], x[i], p[i] : i64;
    let d[n, k] = sum[i](x[i] where p[i] == n, p[i] + n == k);""",
    "two that wait for each other": """input E[n, k], x[i], p[i] : i64;
    let d[n, k] = sum[i](x[i] where p[i] + k == n, p[i] == k);""",
    "one place for two coordinates": """input x[i], p[i] : i64;
    let d[n in 0..3, k in 0..3] = sum[i](x[i] where p[i] == n, p[i] == k);""",
    "an offset": "input E[n], x[i], p[i] : i64; let d[n] = sum[i](x[i] where p[i] + 1 == n - 2);",
    "a coordinate counted down": "input E[n], x[i], p[i] : i64; let d[n] = sum[i](x[i] where p[i] + n == 3);",
    "a range that depends on the row": """input E[n], x[i, k], p[i] : i64;
    let d[n] = sum[i, k in 0..min(i, size(k))](x[i, k] where p[i] == n);""",
    "a range that depends on the place": """input E[n], x[i, k], p[i] : i64;
    let d[n] = sum[i, k in 0..min(n, size(k))](x[i, k] where p[i] == n);""",
    "wholes": "input E[n], c[i] : i32, p[i] : i32; let d[n] = sum[i](c[i] where p[i] == n);",
    "a count": "input E[n], p[i] : i64; let d[n] = sum[i](1 where p[i] == n);",
    "an absent value": """input E[n], x[i], p[i] : i64;
    let y[i] = x[i] where i > 0; let d[n] = sum[i](y[i] where p[i] == n);""",
    "a quotient of what may be 0": """input E[n], x[i], p[i] : i64;
    let d[n] = sum[i](x[i] / E[n] where p[i] == n, E[n] > 0);""",
    "inside another sum": """input E[n], w[n, m], x[i], p[i] : i64;
    let d[m] = sum[n](w[n, m] * sum[i](x[i] where p[i] == n));""",
    "inside a branch": """input E[n], x[i], p[i] : i64;
    let d[n] = if E[n] > 0 { sum[i](x[i] where p[i] == n) } else { 1 };""",
    "whole arithmetic": "input x[i]; let d[n in 0..4] = sum[i](x[i] where i * 3 % 5 == n);",
    "an argmax of nothing": """input E[n], x[i, k];
    let d[n] = sum[i](x[i, k_0] where k_0 = 0, argmax[k](x[i, k] where x[i, k] > 1) == n);""",
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("name", EDGES)
def test_the_edges_agree_with_the_reference(name: str, isolate: bool) -> None:
    for n, i, seed in ((5, 7, 0), (5, 7, 1), (1, 3, 2), (3, 1, 3), (0, 4, 4), (4, 0, 5), (0, 0, 6)):
        sizes = {"n": n, "i": i, "k": 3, "m": 2, "a": 3}
        program = ix.compile(EDGES[name])
        arrays: dict[str, Any] = {}
        for tensor in program.ir.inputs:
            shape = [sizes[axis.coordinate] for axis in tensor.axes]
            whole = tensor.name in ("p", "r", "c")
            dtype = np.int32 if tensor.dtype == "i32" else np.int64
            arrays[tensor.name] = places(n, *shape, seed=seed).astype(dtype) if whole else reals(*shape, seed=seed)
        agrees(EDGES[name], arrays, isolate)


def drawn(seed: int) -> tuple[str, dict[str, Any]]:
    """A transpose of a gather, drawn at random: its places, conditions, factors and sizes."""
    draw = random.Random(seed)
    sizes = {c: draw.choice((0, 1, 2, 3, 4, 5)) for c in ("n", "k", "i", "j", "b", "m")}
    index = draw.choice((("i",), ("b", "i"), ("i", "j")))
    bracket = ", ".join(index)
    targets = draw.choice((("n",), ("n", "k")))
    around = draw.sample([c for c in ("b", "m") if c not in index or c == "b"], draw.randint(0, 2))
    if "b" in index and "b" not in around:
        around.append("b")
    left = [*targets, *around]
    draw.shuffle(left)
    bound = [c for c in ("i", "j") if c in index or draw.random() < 0.4]
    conditions = []
    for target, tensor in zip(targets, ("p", "q"), strict=False):
        place = f"{tensor}[{bracket}]"
        place = draw.choice((place, place, f"{place} + 1", f"{place} / 2", f"2 * {place} - 1"))
        conditions.append(f"{place} == {target}" if draw.random() < 0.5 else f"{target} == {place}")
    conditions += draw.sample([f"{bound[0]} > 0", f"g[{bracket}] > 0", f"s[{targets[0]}] > 0"], draw.randint(0, 2))
    draw.shuffle(conditions)
    values = draw.sample([*bound, *around], draw.randint(1, len(bound) + len(around)))
    factors = [f"v[{', '.join(values)}]", *draw.sample([f"s[{targets[0]}]", "2", f"g[{bracket}]"], draw.randint(0, 2))]
    draw.shuffle(factors)
    guard = f" where {targets[0]} != 1" if draw.random() < 0.3 else ""
    home = ", ".join(c for c in sizes)
    text = f"""input sized[{home}], p[{bracket}] : i64, q[{bracket}] : i64, g[{bracket}], s[n], v[{", ".join(values)}];
    let d[{", ".join(left)}] = sum[{", ".join(bound)}]({" * ".join(factors)} where {", ".join(conditions)}){guard};"""
    shapes = {"p": index, "q": index, "g": index, "s": ("n",), "v": values, "sized": tuple(sizes)}
    arrays: dict[str, Any] = {}
    for name, home_of in shapes.items():
        shape = [sizes[c] for c in home_of]
        counted = sizes["n" if name == "p" else "k"]
        arrays[name] = places(counted, *shape, seed=seed) if name in "pq" else reals(*shape, seed=seed)
    return text, arrays


@pytest.mark.sampled(19)
@pytest.mark.parametrize("start", range(0, 200, 20))
def test_drawn_transposes_agree_with_the_reference(start: int) -> None:
    for seed in range(start, start + 20):
        agrees(*drawn(seed), isolate=seed % 4 == 0)


def test_what_is_left_out_is_not_heard() -> None:
    arrays = {"E": reals(3, 2), "p": np.array([0, 3, -1, 2]), "d_y": reals(4, 2)}
    arrays["d_y"][1:3] = np.nan
    agrees(TRANSPOSED, arrays)
    for backend in BACKENDS:
        assert np.isfinite(np.asarray(ix.compile(TRANSPOSED)(**tensors(arrays, backend), backend=backend))).all()


def test_narrow_numbers_are_added_as_wide_ones() -> None:
    """Adding 1 to 256 in eight bits of precision stays 256."""
    program = ix.compile(TRANSPOSED)
    given = torch.zeros(1, 1).bfloat16(), torch.zeros(1000, dtype=torch.int64), torch.ones(1000, 1).bfloat16()
    found = program(*given)
    assert found.dtype == torch.bfloat16
    assert found.item() == 1000


# ------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("text", [text for text, _ in SHAPES[:6]])
def test_gradients_flow_through(text: str) -> None:
    program = ix.compile(text)
    sizes = {"n": 4, "m": 2, "i": 5, "k": 3, "b": 2}
    fixed, learned = {}, {}
    for tensor in program.ir.inputs:
        shape = [sizes[axis.coordinate] for axis in tensor.axes]
        if tensor.name in ("p", "q"):
            fixed[tensor.name] = torch.from_numpy(places(4, *shape))
        else:
            learned[tensor.name] = torch.from_numpy(reals(*shape)).requires_grad_()

    def function(*values: Any) -> Any:
        return program(**fixed, **dict(zip(learned, values, strict=True)))

    assert torch.autograd.gradcheck(function, tuple(learned.values()))
    assert torch.autograd.gradgradcheck(function, tuple(learned.values()))


def test_the_gradient_of_a_gather_is_that_of_pytorch() -> None:
    forward = ix.compile("input E[n, m], p[i]; let y[i, m] = E[p[i], m] ** 2;")
    backward = ix.grad(forward, by="E")
    E, p = torch.from_numpy(reals(5, 3)).requires_grad_(), torch.tensor([0, 4, 4, 2, 4, 0])
    arriving = torch.from_numpy(reals(6, 3, seed=1))
    (wanted,) = torch.autograd.grad(torch.nn.functional.embedding(p, E) ** 2, E, arriving)
    torch.testing.assert_close(backward(E, p, arriving), wanted)


def test_functions_of_pytorch_go_through() -> None:
    program = ix.compile(TRANSPOSED)
    E, p, d_y = torch.zeros(4, 2).double(), torch.from_numpy(places(4, 5)), torch.from_numpy(reals(3, 5, 2))
    several = torch.func.vmap(lambda value: program(E, p, value))(d_y)
    torch.testing.assert_close(several, torch.stack([program(E, p, value) for value in d_y]))


# --------------------------------------------------------------------------------------------- plans


def test_the_plan_says_what_was_chosen() -> None:
    arrays = {"E": reals(4, 3), "p": places(4, 5), "d_y": reals(5, 3)}
    assert "scatter-add over `i` by `p[i]`" in str(ix.compile(TRANSPOSED).plan(**arrays))


def test_a_range_that_depends_on_the_place_is_asked_there() -> None:
    arrays = {"E": reals(4), "x": reals(5, 3), "p": places(4, 5)}
    text = EDGES["a range that depends on the place"]
    assert "scatter-add over `i` by `p[i]`" in str(ix.compile(text).plan(**arrays))


SPELLINGS = {
    "an offset": "`p[i] + 1 == n - 2`",
    "a coordinate counted down": "`p[i] + n == 3`",
    "one place twice": "`p[i]`",
    "one place for two coordinates": "`p[i]`, `p[i]`",
    "two that wait for each other": "`p[i]`, `p[i] + k == n`",
    "wholes": "`p[i]`",
    "a count": "`p[i]`",
    "a quotient of what may be 0": "`p[i]`",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_place_is_found_however_it_is_spelled(name: str) -> None:
    program = ix.compile(EDGES[name])
    sizes = {"n": 4, "i": 5, "k": 3}
    arrays = {}
    for tensor in program.ir.inputs:
        shape = [sizes[axis.coordinate] for axis in tensor.axes]
        width = np.int32 if tensor.dtype == "i32" else np.int64
        arrays[tensor.name] = places(4, *shape).astype(width) if tensor.dtype else reals(*shape)
    assert f"scatter-add over `i` by {SPELLINGS[name]}" in str(program.plan(**arrays))


def test_the_plan_says_why_not() -> None:
    arrays = {"E": reals(4), "c": places(9, 5), "p": places(4, 5).astype(np.int32)}
    text = EDGES["wholes"].replace("c[i] : i32", "c[i] : i64")
    assert "not by scatter-add: whole sums are checked for overflow" in str(ix.compile(text).plan(**arrays))
