"""Arrays of every make: the right answer or a plain word, also beside arrays of the other library, and again."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import indexical as ix

torch = pytest.importorskip("torch")

TEXT = "input x[i, j], y[j]; let z[i] = sum[j](x[i, j] * y[j]) + 1;"
X = np.arange(12.0).reshape(3, 4) / 8
Y = np.array([1.0, -1.0, 0.5, 2.0])


def frozen(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.setflags(write=False)
    return array


GOOD: dict[str, Any] = {
    "rows backwards": X[::-1].copy()[::-1],
    "columns backwards": X[:, ::-1].copy()[:, ::-1],
    "bytes the other way": X.astype(">f8"),
    "narrow bytes the other way": X.astype(">f4"),
    "read-only": frozen(X),
    "broadcast": np.broadcast_to(X, (3, 4)),
    "Fortran's order": np.asfortranarray(X),
    "every other column": np.repeat(X, 2, 1)[:, ::2],
    "a subclass": X.view(type("Rows", (np.ndarray,), {})),
    "nothing masked": np.ma.array(X),
    "lists": X.tolist(),
    "a tensor": torch.tensor(X),
    "a tensor turned": torch.tensor(X.T.copy()).T,
    "a tensor of steps": torch.tensor(np.repeat(X, 2, 1))[:, ::2],
    "a tensor negated": torch._neg_view(torch.tensor(-X)),
    "a parameter": torch.nn.Parameter(torch.tensor(X)),
}


def the_bad() -> dict[str, Any]:
    """Made where they are used: some of them warn."""
    tensor = torch.tensor(X)
    return {
        "masked": np.ma.array(X, mask=X > 1),
        "ragged": [[1.0, 2.0], [3.0]],
        "complex": X.astype(complex),
        "text": X.astype(str),
        "sparse": tensor.to_sparse(),
        "compressed": tensor.to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
        "nested": torch.nested.nested_tensor([tensor[0], tensor[1]]),
        "jagged": torch.nested.nested_tensor([tensor[0], tensor[1]], layout=torch.jagged),
        "complex tensor": tensor.to(torch.complex64).conj(),
        "eight bits": tensor.to(torch.float8_e5m2),
    }


@pytest.mark.sampled(5)
@pytest.mark.parametrize("backend", [None, "numpy", "torch", "reference"])
@pytest.mark.parametrize("beside", [Y, torch.tensor(Y), Y.tolist()], ids=["array", "tensor", "list"])
@pytest.mark.parametrize("make", GOOD)
def test_an_array_of_any_make(make: str, beside: Any, backend: str | None) -> None:
    program = ix.compile(TEXT)
    for _ in range(2):
        found = program(GOOD[make], beside, backend=backend)
        found = found.detach() if isinstance(found, torch.Tensor) else found
        np.testing.assert_allclose(found, X @ Y + 1)


def test_no_array_that_is_only_read_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ix.compile(TEXT)(frozen(X), torch.tensor(Y))


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_dense_array_of_numbers_is_refused() -> None:
    program = ix.compile(TEXT)
    bad = the_bad()
    for beside in (Y, torch.tensor(Y)):
        program(X, Y)
        program(torch.tensor(X), torch.tensor(Y))
        program(torch.tensor(X).float(), torch.tensor(Y))
        for array in bad.values():
            for backend in (None, "numpy", "torch", "reference"):
                with pytest.raises(ix.CallError, match="IX50"):
                    program(array, beside, backend=backend)


def test_a_tensor_without_numbers() -> None:
    program = ix.compile(TEXT)
    arrays = torch.empty(3, 4, device="meta"), torch.empty(4, device="meta")
    assert program(*arrays).shape == (3,)
    with pytest.raises(ix.CallError, match="no numbers"):
        program(*arrays, backend="numpy")
