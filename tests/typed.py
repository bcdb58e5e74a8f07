"""What a type checker sees of programs. `tests/test_house.py` has mypy read it: an error that is not expected fails,
and so does an expected one that is not there."""

from __future__ import annotations

from typing import Annotated, Any, assert_type

import numpy as np
from numpy.typing import NDArray

import indexical as ix

Array = NDArray[np.float64]
Query = Annotated[Array, "i d"]


@ix.program
def attention(Q: Query, K: Annotated[Array, "j d"], V: Annotated[Array, "j e"], *, window: int = 256) -> Any:
    """
    let w[i, j]   = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where i - window < j <= i;
    let out[i, e] = sum[j](w[i, j] * V[j, e]);
    """


@ix.program()
def doubled(x: Annotated[Array, "i"]) -> Array:
    """let y[i] = 2 * x[i];"""
    raise NotImplementedError


def calls(x: Array) -> None:
    attention(x, x, x)
    attention(x, x, V=x, window=3)
    attention(x, x, x, outputs="w")
    attention(x, x, x, window=3, backend="reference")
    attention.facts  # noqa: B018
    assert_type(doubled(x), Array)
    attention(x, x)  # type: ignore[call-overload]
    attention(x, x, x, 3)  # type: ignore[call-overload]
    attention(x, x, x, window="wide")  # type: ignore[call-overload]
    attention(x, x, x, windows=3)  # type: ignore[call-overload]
    plain: ix.Program = attention
    plain(x)
