"""`cumprod` and `cummax`: reductions up to a point, in every way that a program is computed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix

HEAD = "input x[b, i], n[b, i] : i64, ok[i] : bool, s; let used[b] = sum[i](x[b, i] * n[b, i] * s where ok[i]);\n"
REDUCTIONS = {"cumprod": "prod", "cummax": "max"}
BODIES = ("x[b, i]", "x[b, i] * s + i", "n[b, i]", "n[b, i] as f32", "softmax[i](x[b, i])")
GUARDS = ("", "ok[i]", "i != 1", "ok[i] && x[b, i] > 0")


def arrays(seed: int, points: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    x = draw.integers(-3, 4, (2, points)) / 2
    whole = draw.integers(-3, 4, (2, points))
    return {"x": x, "n": whole, "ok": draw.random(points) < 0.6, "s": np.float64(0.5)}


def computed(program: ix.Program, given: dict[str, Any], **options: Any) -> Any:
    try:
        return np.asarray(program(**given, outputs="y", **options))
    except ix.Error as error:
        return error.diagnostics[0].code


def check(found: Any, wanted: Any, told: object) -> None:
    if isinstance(wanted, str) or isinstance(found, str):
        assert found == wanted, told
    else:
        assert found.dtype == wanted.dtype, told
        np.testing.assert_allclose(found, wanted, err_msg=str(told))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("scan", REDUCTIONS)
def test_a_scan_is_the_reduction_up_to_its_point(scan: str, body: str, guard: str) -> None:
    where = f" where {guard}" if guard else ""
    sugar = ix.compile(f"{HEAD}let y[b, i] = {scan}[i]({body}{where}); output y, used;")
    there = "".join(f" && {g}" for g in (guard.replace("i]", "k]").replace("i !", "k !"), guard) if g)
    # The body has a name, so that what is normalised in it runs over all points.
    spelled = ix.compile(
        f"{HEAD}let body[b, i] = {body}; let y[b, i] = {REDUCTIONS[scan]}[k](body[b, k] where k <= i{there});"
        " output y, used;"
    )
    for points in (0, 1, 5):
        given = arrays(points, points)
        if points == 5:
            given["x"][0, 2] = np.nan
        wanted = computed(spelled, given, backend="reference")
        ways: list[dict[str, Any]] = [{"backend": "reference"}, {"backend": "numpy"}, {"backend": "torch"}]
        for way in (*ways, {"backend": "torch", "isolate": True}):
            check(computed(sugar, given, **way), wanted, (way, points))


@pytest.mark.parametrize("scan", REDUCTIONS)
def test_16_bits_are_computed_in_32(scan: str) -> None:
    program = ix.compile(f"input x[i] : bf16; let y[i] = {scan}[i](x[i]);")
    x = (1 + torch.rand(40, generator=torch.Generator().manual_seed(0)) / 8).bfloat16()
    wanted = torch.cumprod(x.float(), 0) if scan == "cumprod" else torch.cummax(x.float(), 0).values
    torch.testing.assert_close(program(x), wanted.bfloat16(), rtol=0, atol=0)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("guard", ["", " where ok[i]", " where i != 1"])
@pytest.mark.parametrize(
    ("scan", "zeros"),
    [
        *(("cumprod[i](x[i] * s)", zeros) for zeros in ((), (0,), (2,), (0, 3))),
        ("cumprod[i](tanh(x[i]) + 1)", ()),
        *(("cummax[i](sin(x[i]))", zeros) for zeros in ((), (2,))),
    ],
    ids=str,
)
def test_derivatives_are_those_of_differences(scan: str, guard: str, zeros: tuple[int, ...]) -> None:
    check_derivatives(f"{scan[:-1]}{guard})", zeros)


@pytest.mark.parametrize("order", ["k <= i + 1", "k < i", "k >= i - 1", "k > i + 1", "k < i + 2 && ok[k]"])
def test_products_may_be_shifted(order: str) -> None:
    check_derivatives(f"prod[k](x[k] * s where {order})", (2,))


def check_derivatives(scan: str, zeros: tuple[int, ...]) -> None:
    text = f"input x[i], s, ok[i] : bool; let all_[i] = {scan}; let y[i] = if ok[i] {{ all_[i] * i }}"
    program = ix.compile(f"{text} else {{ x[i] * s }};")
    x, d_y = np.random.default_rng(len(zeros)).standard_normal((2, 5))
    x[list(zeros)] = 0
    given: dict[str, Any] = {"x": x, "s": np.float64(0.7), "ok": np.array([True, False, True, True, True])}

    def weighed(x: Any) -> Any:
        return (program(**{**given, "x": x}, backend="reference") * d_y).sum()

    steps = np.eye(5) * 1e-6
    wanted = np.array([(weighed(x + step) - weighed(x - step)) / 2e-6 for step in steps])
    derived = ix.grad(program, of="y", by="x")
    for way in ({"backend": "reference"}, {"backend": "numpy"}, {"backend": "torch", "isolate": True}):
        found = np.asarray(derived(**given, d_y=d_y, **way))
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8, err_msg=str(way))
    tensor = torch.tensor(x, requires_grad=True)
    others = {name: torch.tensor(array) for name, array in given.items() if name != "x"}
    (program(x=tensor, **others) * torch.tensor(d_y)).sum().backward()
    np.testing.assert_allclose(tensor.grad, wanted, rtol=1e-6, atol=1e-8)
    pushed = ix.jvp(program, by="x", of="y")
    for backend in ("reference", "numpy"):
        np.testing.assert_allclose(
            [pushed(**given, dot_x=e, backend=backend) @ d_y for e in np.eye(5)], wanted, rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("scan", ["cumprod[i](x[i])", "cummax[i](x[i])", "prod[k](x[k] where k >= i)"])
def test_a_derivative_takes_a_step_a_point(scan: str) -> None:
    program = ix.compile(f"input x[i]; let y[i] = {scan};")
    x, d_y = torch.rand(2, 50_000) / 4 + 0.9
    began = time.process_time()
    found = ix.grad(program, of="y", by="x")(x=x, d_y=d_y)
    assert time.process_time() - began < 5
    assert found.shape == x.shape


def test_what_is_asserted_and_expected_may_scan() -> None:
    text = """let x[i] = [2, 1, 3];
output y, z;
expect cumprod[i](x[i]) == [2, 2, 6];
expect max[i](cummax[i](x[i]) - x[i]) == 1;
assert sum[i](cummax[i](x[i])) == 7, "a staircase";
fn top(a[t]) -> [t] { let m[t] = cummax[t](a[t]); m[t] }
let y = top(x);
let z[i] = { let s = cumprod[i](x[i]); s * s };"""
    program = ix.compile(text)
    found = ix.verify(program)
    assert len(found.claims) == 2
    assert not found.failing
    assert program(outputs="y").tolist() == [2, 2, 3]
    assert program(outputs="z").tolist() == [4, 4, 36]


def test_no_whole_number_is_the_largest_of_none() -> None:
    program = ix.compile("input n[i] : i64; let y[i] = cummax[i](n[i]) where n[i] > 0;")
    for backend in ("reference", "numpy", "torch"):
        with pytest.raises(ix.Error, match="IX310"):
            program(np.array([1, 0]), backend=backend)
