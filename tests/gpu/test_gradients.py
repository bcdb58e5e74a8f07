"""Derivatives of attention on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

from tests.backends.drawing import distance, is_real  # noqa: E402
from tests.backends.test_gradients import derived, given, right, several  # noqa: E402

NAMES = ["full", "causal", "window", "documents, sorted", "mask", "ALiBi", "soft cap", "grouped"]


def moved(arrays: dict[str, Any], dtype: torch.dtype | None) -> dict[str, Any]:
    return {
        key: array.to("cuda", dtype if is_real(array) else None) if isinstance(array, torch.Tensor) else array
        for key, array in arrays.items()
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_processor(name: str, dtype: torch.dtype) -> None:
    arrays = given(name)
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 8e-2}[dtype]
    found = several(derived(name)(**moved(arrays, dtype)))
    expected = right(name, arrays)
    assert all(distance(a.double().cpu(), b) < tolerance for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("sizes", [(3, 7), (7, 3), (300, 128), (128, 300)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_queries_than_keys_and_more_keys_than_queries(sizes: tuple[int, int], dtype: torch.dtype) -> None:
    rows, keys = sizes
    generator = torch.Generator().manual_seed(0)
    shapes = {"Q": (1, 2, rows, 20), "K": (1, 2, keys, 20), "V": (1, 2, keys, 12), "d_out": (1, 2, rows, 12)}
    arrays = {key: torch.randn(shape, dtype=torch.float64, generator=generator) for key, shape in shapes.items()}
    expected = several(derived("causal")(**arrays))
    found = several(derived("causal")(**moved(arrays, dtype)))
    tolerance = 1e-4 if dtype == torch.float32 else 8e-2
    assert all(distance(a.double().cpu(), b) < tolerance for a, b in zip(found, expected, strict=True))
