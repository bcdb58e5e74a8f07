"""Arrays that grow along an axis: rows of them, and room behind."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    shape = list(there.shape)
    shape[axis] = lacking
    if tensors.is_tensor(there):
        return tensors.load_torch().cat((there.new_zeros(shape), there), axis)
    if jax_arrays.is_jax(there):
        import jax.numpy as jnp

        return jnp.concatenate((jnp.zeros(shape, there.dtype), there), axis)
    return np.concatenate((np.zeros(shape, there.dtype), there), axis)
