"""What a module holds, kept before foreign code runs it, so that afterwards it is what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Undo = Callable[[], None]
_DEEP = 4  # Objects inside objects are followed so far: a config, a helper with tables, a cache of tables.


def kept(module: Any) -> Undo:
    """Return what makes a module again what it is now: its attributes, its modes, its hooks, its parameters and
    buffers, tables that it keeps in attributes, in containers and in plain objects, and the numbers in all of them."""
    undo: list[Undo] = []
    seen: set[int] = set()
    for part in module.modules():
        _keep(part, undo, seen, _DEEP)

    def restore() -> None:
        for step in undo:
            step()

    return restore


def _keep(value: Any, undo: list[Undo], seen: set[int], depth: int) -> None:
    """Keep what a value holds, itself and inside."""
    import torch

    if id(value) in seen or depth < 0 or (isinstance(value, torch.nn.Module) and depth < _DEEP):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        undo.append(_numbers(value))
    elif isinstance(value, dict):
        undo.append(_mapping(value, dict(value)))
        for each in list(value.values()):
            _keep(each, undo, seen, depth - 1)
    elif isinstance(value, list):
        undo.append(_sequence(value, list(value)))
        for each in value:
            _keep(each, undo, seen, depth - 1)
    elif isinstance(value, set):
        undo.append(_members(value, set(value)))
    elif isinstance(value, tuple):
        for each in value:
            _keep(each, undo, seen, depth - 1)
    elif _is_plain(value):
        _keep(vars(value), undo, seen, depth)


def _is_plain(value: Any) -> bool:
    """Whether a value is an object with attributes, and neither a class, a function nor of Python's own making."""
    if isinstance(value, type) or (callable(value) and not hasattr(value, "forward")):
        return False
    return isinstance(getattr(value, "__dict__", None), dict) and type(value).__module__ not in ("builtins", "torch")


def _numbers(tensor: Any) -> Undo:
    """A tensor may be written to in place, or be given other numbers of another kind; parameters are not written to."""
    import torch

    data, version = tensor.data, tensor._version
    copy = None if isinstance(tensor, torch.nn.Parameter) or tensor.is_meta else data.clone()

    def restore() -> None:
        if tensor.data_ptr() != data.data_ptr() or tensor.dtype != data.dtype or tensor.shape != data.shape:
            tensor.data = data
        if copy is not None and (tensor._version != version or not _equal(tensor.data, copy)):
            tensor.data.copy_(copy)

    return restore


def _equal(one: Any, other: Any) -> bool:
    return bool((one == other).all()) if one.dtype == other.dtype and one.shape == other.shape else False


def _mapping(value: dict[Any, Any], was: dict[Any, Any]) -> Undo:
    def restore() -> None:
        if list(value) != list(was) or any(value[key] is not was[key] for key in was):
            value.clear()
            value.update(was)

    return restore


def _sequence(value: list[Any], was: list[Any]) -> Undo:
    def restore() -> None:
        if len(value) != len(was) or any(one is not other for one, other in zip(value, was, strict=True)):
            value[:] = was

    return restore


def _members(value: set[Any], was: set[Any]) -> Undo:
    def restore() -> None:
        if value != was:
            value.clear()
            value.update(was)

    return restore
