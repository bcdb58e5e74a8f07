"""Arrays that grow along an axis: rows of them, and room behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def copied(array: Any) -> Any:
    """An array with the same numbers, in memory of its own."""
    if tensors.is_tensor(array):
        return array.detach().clone()
    return array if jax_arrays.is_jax(array) else np.array(array)


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


def put_rows(array: Any, axis: int, first: Any, count: int, rows: Any) -> Any:
    """An array in which these rows, so many, stand from a place on that is data: one for all, or with its axes."""
    if tensors.is_tensor(array):
        torch = tensors.load_torch()
        steps = torch.arange(count, device=array.device).reshape(-1, *[1] * (-1 - axis))
        return array.scatter_(axis, (first + steps).expand(rows.shape), rows)
    if jax_arrays.is_jax(array):
        import jax.numpy as jnp

        places = jnp.broadcast_to(first + jnp.arange(count).reshape(-1, *[1] * (-1 - axis)), rows.shape)
        return jnp.put_along_axis(array, places, rows, axis, inplace=False)
    steps = np.arange(count).reshape(-1, *[1] * (-1 - axis))
    np.put_along_axis(array, np.broadcast_to(first + steps, rows.shape), rows, axis)
    return array


def wholes_like(numbers: Any, arrays: Iterable[Any]) -> Any:
    """Whole numbers, in the library and on the device of these arrays."""
    wholes = np.array(numbers, np.int64)
    for array in arrays:
        if tensors.is_tensor(array):
            return tensors.load_torch().as_tensor(wholes, device=array.device)
        if jax_arrays.is_jax(array):
            import jax.numpy as jnp

            return jnp.asarray(wholes)
    return wholes


def filled(array: Any, shape: Sequence[int], value: float) -> Any:
    """An array of this shape with one number everywhere, in the library, on the device and in the dtype of another."""
    if tensors.is_tensor(array):
        return array.new_full(shape, value)
    if jax_arrays.is_jax(array):
        import jax.numpy as jnp

        return jnp.full(shape, value, array.dtype)
    return np.full(shape, value, array.dtype)


def shares(array: Any, own: Any) -> bool:
    """Whether an array is another one, or some first rows of it."""
    if tensors.is_tensor(array):
        return bool(tensors.is_tensor(own) and array.data_ptr() == own.data_ptr())
    return isinstance(array, np.ndarray) and isinstance(own, np.ndarray) and np.may_share_memory(array, own)


def last_rows(array: Any, axis: int, lengths: Sequence[int], count: int, batch: int | None = None) -> Any:
    """The last rows of so many; zeros stand for those before the first, which nothing reads. Sequences along an axis
    may have their own."""
    if batch is not None and len({*lengths}) > 1:
        return _last_rows_of_each(array, batch, axis, lengths, count)
    rows = max(lengths, default=0)
    there = array[_index(axis, max(0, rows - count), rows)]
    lacking = count - there.shape[axis]
    if not lacking:
        return there
    return joined((beside(there, axis, lacking), there), axis)


def _last_rows_of_each(array: Any, batch: int, axis: int, rows: Sequence[int], count: int) -> Any:
    """The last of so many rows of each sequence along an axis; zeros stand for those before the first."""
    if not array.shape[axis]:
        return beside(array, axis, count)
    places = np.array(rows, int)[:, None] - count + np.arange(count)
    return only_where(_along(array, batch, axis, places.clip(0)), batch, axis, places >= 0)


def with_last_repeated(array: Any, batch: int, axis: int, rows: Sequence[int]) -> Any:
    """An array in which each sequence has its first rows, so many, and the last of them again behind these."""
    places = np.minimum(np.arange(array.shape[axis]), np.array(rows, int)[:, None] - 1)
    if not places.size:
        return array
    return only_where(_along(array, batch, axis, places.clip(0)), batch, axis, places >= 0)


def first_rows_of_each(array: Any, batch: int, axis: int, rows: Sequence[int]) -> Any:
    """An array in which each sequence has its first rows, so many, and zeros behind them."""
    return only_where(array, batch, axis, np.arange(array.shape[axis]) < np.array(rows, int)[:, None])


def only_where(array: Any, batch: int, axis: int, kept: Any, value: float = 0) -> Any:
    """An array with 0, or another number, but at the rows that are kept of each sequence."""
    if kept.all():
        return array
    kept = _spread(kept, array, batch, axis)
    if tensors.is_tensor(array):
        return array.masked_fill(tensors.load_torch().tensor(~kept, device=array.device), value)
    if jax_arrays.is_jax(array):
        import jax.numpy as jnp

        return jnp.where(kept, array, jnp.asarray(value, array.dtype))
    return np.where(kept, array, np.asarray(value, array.dtype))


def _along(array: Any, batch: int, axis: int, places: Any) -> Any:
    """The rows of each sequence at places of its own."""
    index = _spread(places, array, batch, axis)
    if tensors.is_tensor(array):
        torch = tensors.load_torch()
        return torch.take_along_dim(array, torch.tensor(index, device=array.device), axis)
    if jax_arrays.is_jax(array):
        import jax.numpy as jnp

        return jnp.take_along_axis(array, index, axis)
    return np.take_along_axis(array, index, axis)


def _spread(table: Any, array: Any, batch: int, axis: int) -> Any:
    """An array that varies with sequences and rows, with the axes of an array."""
    shape = [1] * array.ndim
    shape[batch], shape[axis] = table.shape
    return (table if batch < axis else table.T).reshape(shape)


def beside(array: Any, axis: int, count: int, value: float = 0) -> Any:
    """Rows of zeros, or of another number, so many, to be joined with an array along an axis."""
    shape = list(array.shape)
    shape[axis] = count
    return filled(array, shape, value)


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


def filling(array: Any) -> int:
    """The number that stands for those that are not there. They are computed with, and then left out: of ones, more is
    finite than of zeros."""
    kind = "f" if tensors.is_tensor(array) and array.is_floating_point() else getattr(array.dtype, "kind", "")
    return int(kind in ("f", "V"))  # JAX has numbers of 16 bits as its own kind.
