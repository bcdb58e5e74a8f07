"""Values at distances are gathered with weights by place, in every spelling, and mean the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

INPUTS = ("Q[h, i, d]", "K[h, j, d]", "V[h, j, e]", "R[p, e]", "S[h, p, e]", "T[q, e]", "A[h, i, j]", "g[p]")
WEIGHTS = "let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d])) where {guard};"
CAUSAL, EVERY, WINDOW = (WEIGHTS.format(guard=guard) for guard in ("j <= i", "j >= 0", "i - 3 < j <= i"))
SPELLINGS = {
    "alone": f"{CAUSAL} let out[h, i, e] = sum[j](w[h, i, j] * R[i - j, e] where j <= i);",
    "where there are weights": f"{CAUSAL} let out[h, i, e] = sum[j](w[h, i, j] * R[i - j, e]);",
    "beside values": f"""{CAUSAL}
        let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]) + sum[j](w[h, i, j] * R[i - j, e] where j <= i);""",
    "added to values": f"""{CAUSAL}
        let out[h, i, e] = sum[j](w[h, i, j] * (V[h, j, e] + R[i - j, e]) where j <= i);""",
    "taken from values": f"""{CAUSAL}
        let out[h, i, e] = sum[j]((V[h, j, e] - R[i - j, e] / 2) * w[h, i, j] where j <= i);""",
    "other names": f"""{CAUSAL}
        let out[g, n, c] = 2 * sum[m](S[g, n - m, c] * w[g, n, m] where m <= n);""",
    "by head": f"{CAUSAL} let out[h, e, i] = sum[j](w[h, i, j] * S[h, i - j, e] where j <= i);",
    "a window": f"{WINDOW} let out[h, i, e] = sum[j](w[h, i, j] * R[i - j, e] where i - 3 < j <= i);",
    "clipped": f"{EVERY} let out[h, i, e] = sum[j](w[h, i, j] * T[clamp(i - j, -2, 2) + 2, e]);",
    "clipped, causal": f"{CAUSAL} let out[h, i, e] = sum[j](w[h, i, j] * T[min(i - j, 4), e] where j <= i);",
    "from the last": f"{CAUSAL} let out[h, i, e] = sum[j](w[h, i, j] * R[size(i) - 1 - i + j, e] where j <= i);",
    "no softmax": "let out[h, i, e] = sum[j](A[h, i, j] * R[i - j, e] where j <= i);",
    "two of them": """
        let out[h, i, e] = sum[j](A[h, i, j] * A[h, i, j] * R[i - j, e] where j <= i)
            + sum[j](A[h, i, j] * S[h, i - j, e] where j < i);""",
}
PLAIN = {
    "a convolution": "let out[i in 0..size(p), e] = sum[j](g[j] * R[i - j, e] where j <= i);",
    "under a condition": f"""{CAUSAL}
        let out[h, i, e] = if i > 0 {{ sum[j](w[h, i, j] * R[i - j, e] where j <= i) }} else {{ 0 }};""",
    "a guard with a coordinate that survives": """
        let out[n in 0..3, e] = sum[i, j](A[0, i, j] * R[i - j, e] where j <= i, j == n);""",
    "a gate": f"{CAUSAL} let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e] * g[i - j] where j <= i);",
}


def compiled(body: str) -> ix.Program:
    inputs = [slot for slot in INPUTS if re.search(rf"\b{re.escape(slot.split('[')[0])}\[", body)]
    return ix.compile(f"input {', '.join(inputs)}; {body}")


def drawn(program: ix.Program, points: int, **more: int) -> list[Any]:
    generator = torch.Generator().manual_seed(points)
    sizes = {"h": 2, "d": 3, "e": 4, "q": 5, "i": points, "j": points, "p": points, **more}
    shapes = [[sizes[axis.coordinate] for axis in tensor.axes] for tensor in program.ir.inputs]
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


def with_gradients(program: ix.Program, arrays: list[Any], **options: Any) -> list[Any]:
    leaves = [array.clone().requires_grad_() for array in arrays]
    out = program(*leaves, **options)
    arriving = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    return [out.detach(), *torch.autograd.grad(out, leaves, arriving, allow_unused=True, materialize_grads=True)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*SPELLINGS, *PLAIN])
def test_it_is_what_is_written(name: str) -> None:
    program = compiled({**SPELLINGS, **PLAIN}[name])
    backward = ix.grad(program)
    for points in (0, 1, 2, 6):
        arrays = drawn(program, points)
        found, plain = with_gradients(program, arrays), with_gradients(program, arrays, isolate=True)
        reference = program(*(array.numpy() for array in arrays), backend="reference")
        for value in (found[0], program(*(array.numpy() for array in arrays))):
            np.testing.assert_allclose(value, reference, rtol=1e-9, atol=1e-9)
        arriving = torch.randn(found[0].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        for mine, right, derived in zip(found, plain, (found[0], *backward(*arrays, arriving)), strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)
            torch.testing.assert_close(derived, right, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_values_are_one_matrix(name: str) -> None:
    program = compiled(SPELLINGS[name])
    source = program.source(*drawn(program, 4))
    body = source[source.index("def program") :]
    # The weights by place are a matrix, read off windows of the weights: a diagonal of these, before it is turned.
    assert "weights are added up for each place" in str(program.plan(*drawn(program, 4)))
    assert ("scattered(" in body) == name.startswith("clipped")
    assert not re.search(r"\.flip\(\d\)\.diagonal", body)
    assert not re.search(r"windows\((padded\()?[RST]\b", body)


def test_a_table_may_be_longer_and_what_is_beyond_is_not_read() -> None:
    program = compiled(SPELLINGS["beside values"])
    arrays = drawn(program, 5, p=8)
    arrays[3][5:] = torch.nan
    for mine, right in zip(with_gradients(program, arrays), with_gradients(program, arrays, isolate=True), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)


def test_a_table_may_be_as_short_as_a_guard_says() -> None:
    program = compiled(SPELLINGS["a window"])
    arrays = drawn(program, 6, p=3)
    for mine, right in zip(with_gradients(program, arrays), with_gradients(program, arrays, isolate=True), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("name", "short"), [("beside values", {"p": 4}), ("clipped", {"q": 4})])
def test_a_table_that_is_too_short_is_named(name: str, short: dict[str, int]) -> None:
    program = compiled(SPELLINGS[name])
    with pytest.raises(ix.Error, match=r"index 4 is out of bounds for axis 0 of `[RT]`"):
        program(*drawn(program, 5, **short))
