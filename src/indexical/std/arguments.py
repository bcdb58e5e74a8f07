"""Arguments of a call as inputs of a program: their axes, their dtypes, and the text that declares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from ..api import compile
from ..diagnostics import CallError, Diagnostic
from ..records import dataclass

program = lru_cache(maxsize=256)(compile)


@dataclass(frozen=True, slots=True)
class Argument:
    """An input: its name, the coordinates it has, its dtype where that is said, and what is given for it."""

    name: str
    axes: tuple[str, ...]
    dtype: str
    value: Any

    @property
    def read(self) -> str:
        """The input, read at its own coordinates."""
        return f"{self.name}[{', '.join(self.axes)}]" if self.axes else self.name

    @property
    def declaration(self) -> str:
        return f"{self.read} : {self.dtype}" if self.dtype else self.read


def declare(arguments: Iterable[Argument]) -> str:
    """The statement that declares these inputs."""
    return f"input {', '.join(argument.declaration for argument in arguments)};"


def refuse(message: str, help: str | None = None) -> NoReturn:
    """A call that cannot be made."""
    raise CallError([Diagnostic("IX501", message, help=help)])


def shaped(name: str, value: Any) -> Any:
    """The value itself where it has a shape and a dtype (an array of any library), else a NumPy array of it."""
    if all(hasattr(value, part) for part in ("shape", "dtype", "reshape")):
        return value
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as problem:
        first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise CallError([Diagnostic("IX504", f"`{name}` cannot be made an array: {first}")]) from None


def dtype_name(array: Any) -> str:
    """`float32` for NumPy's float32 and for PyTorch's."""
    return str(array.dtype).removeprefix("torch.")


def scalar(name: str, value: Any) -> Argument:
    """One number, of the kind that it is: a whole number is one also where the function would take a real."""
    kind = dtype_name(shaped(name, value))
    return Argument(name, (), "bool" if kind == "bool" else "i64" if kind.startswith(("int", "uint")) else "", value)


def spread(arrays: Mapping[str, Any], homes: Mapping[str, Sequence[str]]) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Arrays that broadcast against each other, as NumPy would have it, each with the coordinates that it varies over.

    An array's axes are matched with its home from the last. Nothing is copied: an array does not mention a
    coordinate that it has only one point of where others have more.
    """
    sizes: dict[str, tuple[int, str]] = {}
    axes = {name: tuple(homes[name])[len(homes[name]) - len(array.shape) :] for name, array in arrays.items()}
    for name, array in arrays.items():
        for coordinate, size in zip(axes[name], array.shape, strict=True):
            known, other = sizes.setdefault(coordinate, (size, name))
            if known == 1:
                sizes[coordinate] = (size, name)
            elif size not in (1, known):
                shown = f"`{other}` {tuple(arrays[other].shape)} and `{name}` {tuple(array.shape)}"
                refuse(f"these shapes do not fit: {shown}", "axes are matched from the last; 1 fits any size")
    found = {}
    for name, array in arrays.items():
        kept = [(c, size) for c, size in zip(axes[name], array.shape, strict=True) if size == sizes[c][0]]
        value = array if len(kept) == len(array.shape) else array.reshape(tuple(size for _, size in kept))
        found[name] = (tuple(coordinate for coordinate, _ in kept), value)
    return found
