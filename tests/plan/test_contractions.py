"""Scores at distances are contracted first, in every spelling, and mean the same."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402
from indexical.backends.old.plan.choose import choose  # noqa: E402
from indexical.backends.old.plan.contractions import CONTRACTED  # noqa: E402
from indexical.backends.old.torch_ import DIALECT  # noqa: E402
from indexical.ir import whole  # noqa: E402

pytestmark = pytest.mark.sampled(4)

INPUTS = {
    "Q": "Q[h, i, d]", "K": "K[h, j, d]", "V": "V[h, j, e]", "R": "R[h, p, d]", "T": "T[q, d]", "u": "u[h, d]",
    "v": "v[h, d]", "near": "near[i, j] : i64",
}  # fmt: skip
TAIL = """
    let w[h, i, j] = softmax[j](s[h, i, j]) where {guard};
    let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
"""
QK = "sum[d](Q[h, i, d] * K[h, j, d])"
SPELLINGS = {
    "Transformer-XL": """
        let s[h, i, j] = (sum[d]((Q[h, i, d] + u[h, d]) * K[h, j, d])
            + sum[d]((Q[h, i, d] + v[h, d]) * R[h, i - j, d])) / sqrt(size(d)) where j <= i;""",
    "all four terms": f"""
        let s[h, i, j] = ({QK} + sum[d](u[h, d] * K[h, j, d]) + sum[d](Q[h, i, d] * R[h, i - j, d])
            + sum[d](v[h, d] * R[h, i - j, d])) / sqrt(size(d)) where j <= i;""",
    "one sum": """
        let s[h, i, j] = sum[d]((Q[h, i, d] + u[h, d]) * K[h, j, d] + (Q[h, i, d] + v[h, d]) * R[h, i - j, d])
            where j <= i;""",
    "added to the key": "let s[h, i, j] = sum[d](Q[h, i, d] * (K[h, j, d] + R[h, i - j, d])) where j <= i;",
    "taken from the key": "let s[h, i, j] = sum[d]((K[h, j, d] - R[h, i - j, d]) * Q[h, i, d]) where j <= i;",
    "by a name": f"""
        let far[h, i, j, d] = R[h, i - j, d] where j <= i;
        let s[h, i, j] = {QK} + sum[d](Q[h, i, d] * far[h, i, j, d]);""",
    "added by a name": """
        let far[h, i, j, d] = K[h, j, d] + R[h, i - j, d] where j <= i;
        let s[h, i, j] = sum[d](Q[h, i, d] * far[h, i, j, d]) where j <= i;""",
    "clipped": f"let s[h, i, j] = {QK} + sum[d](Q[h, i, d] * T[clamp(i - j, -2, 2) + 2, d]);",
    "clipped by a name": f"""
        let apart[i, j] = min(max(j - i, -2), 2) + 2;
        let s[h, i, j] = {QK} - sum[d](Q[h, i, d] * T[apart[i, j], d]) / 2;""",
    "both ways": f"""
        let s[h, i, j] = {QK} + sum[d](Q[h, i, d] * T[clamp(i - j, -2, 2) + 2, d])
            + sum[d](K[h, j, d] * T[clamp(j - i, -2, 2) + 2, d]);""",
    "a few of them": f"""
        let s[h, i, j] = {QK} + (if i - j < 5 {{ sum[d](Q[h, i, d] * T[i - j, d]) }} else {{ 0 }}) where j <= i;""",
    "under a function": """
        let s[h, i, j] = 3 * tanh(sum[d](Q[h, i, d] * (K[h, j, d] + R[h, i - j, d])) / 3) where j <= i;""",
    "every second": f"let s[h, i, j] = {QK} + sum[d](Q[h, i, d] * R[h, (i - j) / 2, d]) where j <= i;",
}
GUARDS = ("j <= i", "i - 3 < j <= i", "j <= i && j % 2 == 0", "j < i")
OTHERS = {
    "far from data": (
        f"let s[h, i, j] = {QK} + sum[d](Q[h, i, d] * T[near[i, j], d]);",
        "how far `T` is read is known only from data",
    ),
    "three at once": (
        f"let s[h, i, j] = {QK} + sum[d](Q[h, i, d] * K[h, j, d] * R[h, i - j, d]) where j <= i;",
        "what is compared varies with query and key already",
    ),
    "two tables": (
        f"let s[h, i, j] = {QK} + sum[d](Q[h, i, d] * R[h, i - j, d] * R[h, i - j, d]) where j <= i;",
        "more than one factor is read at a place of query and key",
    ),
}


def written(score: str, guard: str = "j <= i") -> str:
    inputs = [slot for name, slot in INPUTS.items() if name == "V" or f"{name}[" in score]
    return f"input {', '.join(inputs)};{score}{TAIL.format(guard=guard)}"


def drawn(program: ix.Program, points: int, **more: int) -> list[Any]:
    generator = torch.Generator().manual_seed(points)
    sizes = {"h": 2, "d": 3, "e": 4, "q": 5, "i": points, "j": points, "p": points, **more}
    shapes = [[sizes[axis.coordinate] for axis in tensor.axes] for tensor in program.ir.inputs]
    return [
        torch.randn(shape, dtype=torch.float64, generator=generator)
        if tensor.kind == "real"
        else torch.randint(5, shape, generator=generator)
        for tensor, shape in zip(program.ir.inputs, shapes, strict=True)
    ]


def with_gradients(program: ix.Program, arrays: list[Any], **options: Any) -> list[Any]:
    leaves = [array.clone().requires_grad_(array.is_floating_point()) for array in arrays]
    out = program(*leaves, **options)
    arriving = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    real = [leaf for leaf in leaves if leaf.requires_grad]
    return [out.detach(), *torch.autograd.grad(out, real, arriving, allow_unused=True, materialize_grads=True)]


def planned(program: ix.Program, dtype: str = "f32") -> Any:
    dtypes = {tensor.name: dtype if tensor.kind == "real" else "i64" for tensor in program.ir.inputs}
    return choose(program.ir, ("out",), dtypes, DIALECT.target, "cpu", False)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SPELLINGS)
def test_scores_at_distances_are_products_of_matrices(name: str) -> None:
    program = ix.compile(written(SPELLINGS[name]))
    plan = planned(program)
    *before, last = plan.steps
    lets = {let.name: let for let in plan.program.lets}
    tables = [lets[step.definition] for step in before if step.kernel == "arrays"]
    assert any(let.axes[-1].coordinate.name in ("p", "q") for let in tables)
    assert all(refusal.way != CONTRACTED for refusal in last.refusals)
    assert "sum[d]" not in "".join(word for word in last.words if "added" in word)


@pytest.mark.parametrize(
    ("name", "guard"),
    [*product(SPELLINGS, GUARDS[:1]), *product(("Transformer-XL", "added to the key", "clipped"), GUARDS[1:])],
)
def test_they_are_what_is_written(name: str, guard: str) -> None:
    program = ix.compile(written(SPELLINGS[name], guard))
    for points in (0, 1, 2, 7):
        arrays = drawn(program, points)
        found = with_gradients(program, arrays)
        plain = with_gradients(program, arrays, isolate=True)
        reference = program(*(array.numpy() for array in arrays), backend="reference")
        for value in (found[0], program(*(array.numpy() for array in arrays)), program(*arrays)):
            np.testing.assert_allclose(value, reference, rtol=1e-9, atol=1e-9)
        for mine, right in zip(found, plain, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not_and_say_why(name: str) -> None:
    score, reason = OTHERS[name]
    program = ix.compile(written(score))
    refusals = [refusal for step in planned(program).steps for refusal in step.refusals]
    assert (CONTRACTED, reason) in [(refusal.way, refusal.reason) for refusal in refusals]
    arrays = drawn(program, 5)
    for mine, right in zip(with_gradients(program, arrays), with_gradients(program, arrays, isolate=True), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)


def test_sixteen_bits_are_not_rounded_once_more() -> None:
    program = ix.compile(written(SPELLINGS["Transformer-XL"]))
    assert len(planned(program, "bf16").steps) == 1


def test_a_table_may_be_longer_and_what_is_beyond_is_not_read() -> None:
    program = ix.compile(written(SPELLINGS["Transformer-XL"]))
    arrays = drawn(program, 6, p=9)
    arrays[3][:, 6:] = torch.nan
    for mine, right in zip(with_gradients(program, arrays), with_gradients(program, arrays, isolate=True), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)


def test_a_table_may_be_as_short_as_a_guard_says() -> None:
    program = ix.compile(
        written(SPELLINGS["Transformer-XL"], "i - 3 < j <= i").replace("where j <= i;", "where i - 3 < j <= i;", 1)
    )
    arrays = drawn(program, 6, p=3)
    for mine, right in zip(with_gradients(program, arrays), with_gradients(program, arrays, isolate=True), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("guard", ["i - 3 < j <= i", "j <= i && i - j < -2", "2 <= i - j < 4"])
def test_no_more_is_contracted_than_a_guard_keeps(guard: str) -> None:
    score = f"let s[h, i, j] = {QK} + sum[d](Q[h, i, d] * R[h, i - j, d]) where {guard};"
    program = ix.compile(written(score, guard))
    table = next(let for let in planned(program).program.lets if let.name == "out_R")
    extent = whole.value(table.axes[-1].extent, lambda leaf: 9)
    assert extent == {"i - 3 < j <= i": 3, "j <= i && i - j < -2": 0, "2 <= i - j < 4": 4}[guard]
    for points in (0, 1, 2, 6):
        arrays = drawn(program, points)
        plain = with_gradients(program, arrays, isolate=True)
        for mine, right in zip(with_gradients(program, arrays), plain, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)


def test_a_table_that_is_too_short_is_named() -> None:
    program = ix.compile(written(SPELLINGS["Transformer-XL"]))
    with pytest.raises(ix.Error, match="index 5 is out of bounds for axis 1 of `R`"):
        program(*drawn(program, 6, p=5))
