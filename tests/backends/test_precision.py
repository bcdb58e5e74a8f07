"""How far results are from the exact ones: no further than the library's kernel with a mask that was built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.backends.drawing import as_numpy, compiled, distance, draw, gradients, grown, is_real, learning  # noqa: E402
from tests.backends.variants import VARIANTS  # noqa: E402

SCALED = "softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)))"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
HALF_UNIT = {"f32": 2.0**-24, "bf16": 2.0**-8}

# One for each way through the kernels; the library has the first ones itself.
NAMES = """full|causal|causal, three behind|window|prefix|sinks and window|documents, unsorted|documents for each batch
|lengths|key padding mask, causal|mask|mask for each head|ALiBi|relative bias|soft cap|soft cap under a mask|additive
|cosine|temperature of a query|hand-made, windowed|grouped|packed heads|one query|projected, with a residual""".replace(
    "\n", ""
).split("|")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def drawn(name: str, dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays of a dtype, and the same numbers in double precision."""
    sizes = {**grown(name, 40), "h": 4, **({} if name == "packed heads" else {"d": 8, "e": 8})}
    arrays = draw(name, DTYPES[dtype], **sizes)
    return arrays, {key: array.double() if is_real(array) else array for key, array in arrays.items()}


def library(name: str, arrays: dict[str, Any], exact: dict[str, Any]) -> Any:
    """The library's kernel with a mask that was built, where it has one; else the relation written out."""
    program = compiled(name)
    if SCALED not in VARIANTS[name].text or not {"Q", "K", "V"} <= arrays.keys():
        return program(**arrays, isolate=True)
    heard = program(**exact, outputs="weights") != 0
    return torch.nn.functional.scaled_dot_product_attention(*(arrays[key] for key in "QKV"), attn_mask=heard)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_error_is_at_most_twice_the_library_s(name: str, dtype: str) -> None:
    program, (arrays, exact) = compiled(name), drawn(name, dtype)
    right = program(**exact, isolate=True)
    out = program(**arrays)
    assert out.dtype == DTYPES[dtype]
    most = 2 * distance(library(name, arrays, exact).double(), right) + HALF_UNIT[dtype]
    assert distance(out.double(), right) <= most
    if dtype == "f32":
        found = program(**as_numpy(arrays))
        assert found.dtype == np.float32
        assert distance(found.astype(np.float64), right) <= 2 * most


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["causal", "window", "documents for each batch", "mask", "ALiBi", "soft cap"])
def test_error_of_a_gradient(name: str, dtype: str) -> None:
    program, (arrays, exact) = compiled(name), drawn(name, dtype)
    for given in (arrays, exact):
        for key in "QKV":
            given[key].requires_grad_()
    wanted, learned = ([given[key] for key in "QKV"] for given in (exact, arrays))
    right = gradients(program(**exact, isolate=True), wanted)
    found, peers = gradients(program(**arrays), learned), gradients(program(**arrays, isolate=True), learned)
    for ours, theirs, exactly in zip(found, peers, right, strict=True):
        assert ours.dtype == DTYPES[dtype]
        assert distance(ours.double(), exactly) <= 3 * distance(theirs.double(), exactly) + 2 * HALF_UNIT[dtype]


@pytest.mark.parametrize("name", ["causal", "window", "mask", "ALiBi", "soft cap", "hand-made"])
def test_large_scores_stay_finite(name: str) -> None:
    program, arrays = compiled(name), draw(name)
    arrays["Q"] *= 1e4
    for given in (arrays, as_numpy(arrays)):
        assert distance(program(**given), program(**given, isolate=True)) <= 1e-9
    learned = learning(arrays)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(program(**arrays), learned))


@pytest.mark.parametrize("name", ["causal", "window", "mask", "bias", "soft cap"])
def test_float16(name: str) -> None:
    arrays = draw(name, torch.float16)
    out = compiled(name)(**arrays)
    assert out.dtype == torch.float16
    exact = {key: array.double() if is_real(array) else array for key, array in arrays.items()}
    assert distance(out.double(), compiled(name)(**exact, isolate=True)) <= 2e-3
    learned = learning(arrays)
    assert all(gradient.dtype == torch.float16 for gradient in gradients(compiled(name)(**arrays), learned))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["causal", "window", "mask", "ALiBi", "soft cap", "grouped", "documents, unsorted"])
def test_16_bits_are_rounded_once_on_a_cpu(name: str, dtype: Any) -> None:
    """The library's kernel rounds the weights to 16 bits as well, which costs several units; ours widen."""
    program, sizes = compiled(name), {**grown(name, 24), "h": 4, "d": 8, "e": 8}
    arrays = draw(name, dtype, **sizes)
    exact = {key: array.double() if is_real(array) else array for key, array in arrays.items()}
    right = program(**exact, isolate=True)
    unit = 2.0 ** (torch.floor(torch.log2(right.abs())) - (7 if dtype == torch.bfloat16 else 10))
    off = (program(**arrays).double() - right).abs() / unit
    assert off[right != 0].mean() < 0.3
