"""Arrays that grow along an axis: rows of them, and room behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from . import jax_arrays, tensors

# The rows that an array has room for at least, when it is first made.
_LEAST_ROOM = 64


def _index(axis: int, first: int, beyond: int) -> tuple[Any, ...]:
    """Some rows along an axis, which is counted from the end."""
    return (..., slice(first, beyond), *[slice(None)] * (-1 - axis))


def rows_of(array: Any, axis: int, first: int, beyond: int) -> Any:
    """Some rows of an array, without copying."""
    if tensors.is_tensor(array):
        return array.narrow(axis, first, beyond - first)
    return array[_index(axis, first, beyond)]


def with_room(array: Any, axis: int, rows: int, room: int) -> Any:
    """An array with the first rows of another, and room for more."""
    shape = list(array.shape)
    shape[axis] = max(_LEAST_ROOM, rows, room)
    if jax_arrays.is_jax(array):
        array = array[_index(axis, 0, rows)]
        import jax.numpy as jnp

        return jnp.pad(array, [(0, shape[n] - size) for n, size in enumerate(array.shape)])
    new = array.new_zeros(shape) if tensors.is_tensor(array) else np.zeros(shape, array.dtype)
    new[_index(axis, 0, rows)] = array[_index(axis, 0, rows)]
    return new


def written(array: Any, rows: Any, axis: int, first: int, beyond: int) -> Any:
    """An array in which these rows stand behind the first ones."""
    place = _index(axis, first, beyond)
    if jax_arrays.is_jax(array):
        return array.at[place].set(rows)
    array[place] = rows
    return array


def shares(array: Any, own: Any) -> bool:
    """Whether an array is another one, or some first rows of it."""
    if tensors.is_tensor(array):
        return bool(tensors.is_tensor(own) and array.data_ptr() == own.data_ptr())
    return isinstance(array, np.ndarray) and isinstance(own, np.ndarray) and np.may_share_memory(array, own)


def last_rows(array: Any, axis: int, rows: int, count: int) -> Any:
    """The last rows of so many; zeros stand for those before the first, which nothing reads."""
    there = array[_index(axis, max(0, rows - count), rows)]
    lacking = count - there.shape[axis]
    if not lacking:
        return there
    return joined((beside(there, axis, lacking), there), axis)


def beside(array: Any, axis: int, count: int) -> Any:
    """So many rows of zeros, to be joined with an array along an axis."""
    shape = list(array.shape)
    shape[axis] = count
    if tensors.is_tensor(array):
        return array.new_zeros(shape)
    if jax_arrays.is_jax(array):
        import jax.numpy as jnp

        return jnp.zeros(shape, array.dtype)
    return np.zeros(shape, array.dtype)


def joined(arrays: tuple[Any, ...], axis: int) -> Any:
    """Arrays as one, along an axis."""
    if tensors.is_tensor(arrays[0]):
        return tensors.load_torch().cat(arrays, axis)
    if jax_arrays.is_jax(arrays[0]):
        import jax.numpy as jnp

        return jnp.concatenate(arrays, axis)
    return np.concatenate(arrays, axis)


def taken(array: Any, axis: int, indices: Sequence[int]) -> Any:
    """The rows at these indices, in their order."""
    if tensors.is_tensor(array):
        places = tensors.load_torch().tensor(list(indices), device=array.device)
        return array.index_select(axis, places)
    return array[(..., np.array(indices, int), *[slice(None)] * (-1 - axis))]


def rounded(array: Any, keep: str | None) -> list[Any]:
    """An array as it is kept: as it is, in 16 bits, or in 8 bits with a factor for each row along the last axis."""
    if keep is None:
        return [array]
    if keep == "bf16":
        if tensors.is_tensor(array):
            return [array.to(tensors.load_torch().bfloat16)]
        if jax_arrays.is_jax(array):
            return [array.astype("bfloat16")]
        message = "NumPy has no numbers of 16 bits with the range of others"
        raise CallError([Diagnostic("IX515", message, help="give arrays of PyTorch or JAX, or keep them as `i8`")])
    if tensors.is_tensor(array):
        scale = array.abs().amax(-1) / 127 if array.numel() else array.sum(-1)
        return [(array / scale.clamp(min=1e-30)[..., None]).round().to(tensors.load_torch().int8), scale]
    scale = abs(array).max(-1) / 127 if array.size else array.sum(-1)
    return [(array / scale.clip(1e-30)[..., None]).round().astype("int8"), scale]
