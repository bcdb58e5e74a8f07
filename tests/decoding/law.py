"""The law of decoding: positions taken in any pieces give what they give all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from indexical.decoder import Decoder


def pieces(length: int, seed: int) -> tuple[int, ...]:
    """Some pieces of a length, drawn: the first, which is prefilled, may be empty."""
    draw = np.random.default_rng(seed)
    cuts = sorted(draw.integers(0, length + 1, draw.integers(1, length + 2)))
    return tuple(int(n) for n in np.diff([0, *cuts, length])) if seed else (0, *[1] * length)


def check(
    decoder: Decoder, arrays: Mapping[str, Any], counts: Sequence[int], backend: str | None = None, close: float = 1e-9
) -> None:
    """Compare every output at every position with the pass over all of them."""
    split = decoder._split
    full = decoder.program(outputs=decoder._wanted, backend=backend, **arrays)
    for name, expected, rows in zip(decoder._wanted, full, in_pieces(decoder, arrays, counts, backend), strict=True):
        axis = split.axis[name] - len(split.program.tensors[name].axes)
        begin = 0
        for number, piece in enumerate(rows):
            found, whole = np.asarray(piece), np.asarray(expected)
            size = found.shape[axis]
            wanted = np.take(whole, range(begin, begin + size), axis)
            for other in (place - len(split.program.tensors[name].axes) for place in split.along[name]):
                if other != axis:
                    wanted = np.take(wanted, range(found.shape[other]), other)
            np.testing.assert_allclose(found, wanted, rtol=close, atol=close, err_msg=f"{name}, piece {number}")
            begin += size
        assert begin == np.shape(expected)[axis], name


def in_pieces(
    decoder: Decoder, arrays: Mapping[str, Any], counts: Sequence[int], backend: str | None
) -> Iterable[list[Any]]:
    """The outputs of each piece, by output."""
    found: list[list[Any]] = [[] for _ in decoder._wanted]
    at, state = 0, None
    fixed = {name: arrays[name] for name in decoder.fixed if name not in decoder._weights}
    for count in counts:
        new = {name: rows_of(decoder, name, arrays[name], at, count) for name in decoder.inputs}
        if state is None:
            state, out = decoder.prefill(**new, **fixed, backend=backend)
        else:
            state, out = decoder.step(**new, state=state)
        for values, value in zip(found, (out,) if decoder._alone else out, strict=True):
            values.append(value)
        at += count
        assert state.length == at
    return found


def rows_of(decoder: Decoder, name: str, array: Any, first: int, count: int) -> Any:
    behind = len(decoder._split.program.tensors[name].axes) - 1 - decoder._split.along[name][0]
    return array[(..., slice(first, first + count), *[slice(None)] * behind)]
