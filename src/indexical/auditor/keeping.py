"""What an audit leaves as it was: the modules of a callable, what they keep from call to call, and global tables."""

from __future__ import annotations

import inspect
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

_DEEP = 4  # How far objects are looked into.
_MANY = 4000  # Entries of a container that are looked at.
_LARGE = 10**7  # Numbers of a tensor, beyond which it is not copied.
_Cached = type(lru_cache(len))
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.FunctionType)


def keep(target: Callable[..., Any]) -> Callable[[], None]:
    """Return what makes the modules of a callable, and the tables that it knows, again what they are now."""
    memory = _Memory()
    for owner in _owners(target):
        memory.keep(owner, 0)
    return memory.restore


@contextmanager
def kept(target: Callable[..., Any]) -> Iterator[None]:
    """A context after which the modules of a callable, and the tables that it knows, are what they were before."""
    restore = keep(target)
    try:
        yield
    finally:
        restore()


def _owners(target: Any) -> Iterator[Any]:
    """A module or object itself; what a function closes over; the modules and tables that its file has by name."""
    while isinstance(target, partial):
        yield from (*target.args, *target.keywords.values())
        target = target.func
    if isinstance(target, types.MethodType):
        yield target.__self__
        target = target.__func__
    if not isinstance(target, types.FunctionType):
        yield target
    functions = [target] if isinstance(target, types.FunctionType) else []
    parts = target.modules() if _is_module(target) else [] if functions else [target]
    functions += [inspect.unwrap(code) for part in parts if (code := _code(part)) is not None]
    for function in functions:
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # It is not filled yet.
                continue
        for name, value in list(function.__globals__.items()):
            if not name.startswith("__") and (isinstance(value, dict | _Cached) or _is_module(value)):
                yield value


def _code(part: Any) -> Any:
    code = getattr(type(part), "forward", None) or vars(type(part)).get("__call__")
    return code if isinstance(code, types.FunctionType) else None


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class _Memory:
    """What was seen, and how it is put back."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.undo: list[Callable[[], None]] = []

    def keep(self, value: Any, depth: int) -> None:
        if isinstance(value, _PLAIN) or id(value) in self.seen or depth > _DEEP:
            return
        self.seen.add(id(value))
        if _is_tensor(value):
            self._keep_tensor(value)
        elif isinstance(value, _Cached):
            size = value.cache_info().currsize
            self.undo.append(lambda: None if value.cache_info().currsize == size else value.cache_clear())
        elif type(value) in (dict, OrderedDict, defaultdict):
            self._keep_dict(value, depth)
        elif isinstance(value, dict):  # One of another kind may make what it is asked for.
            return
        elif type(value) is list and len(value) <= _MANY:
            items = list(value)
            self.undo.append(lambda: None if _are(value, items) else value.__setitem__(slice(None), items))
            for item in items:
                self.keep(item, depth + 1)
        elif isinstance(value, set):
            members = set(value)

            def refill() -> None:
                value.intersection_update(members)
                value.update(members)

            self.undo.append(refill)
        elif isinstance(value, tuple) and len(value) <= _MANY:
            for item in value:
                self.keep(item, depth + 1)
        elif isinstance(getattr(value, "__dict__", None), dict):
            # Modules lie in modules to any depth; other objects are followed for a few steps.
            self._keep_dict(vars(value), 0 if _is_module(value) else depth)

    def _keep_dict(self, value: dict[Any, Any], depth: int) -> None:
        if len(value) > _MANY:
            return
        items = dict(dict.items(value))  # A subclass may make something of what is looked up.

        def restore() -> None:
            now = dict(dict.items(value))
            if not (now.keys() == items.keys() and all(now[key] is item for key, item in items.items())):
                value.clear()
                value.update(items)

        self.undo.append(restore)
        for item in items.values():
            self.keep(item, depth + 1)

    def _keep_tensor(self, tensor: Any) -> None:
        import torch

        data, grad, needs = tensor.data, tensor.grad if tensor.is_leaf else None, tensor.requires_grad
        fixed = isinstance(tensor, torch.nn.Parameter) or tensor.numel() > _LARGE or tensor.is_meta
        copy = None if fixed else data.clone()

        def restore() -> None:
            with torch.no_grad():
                if copy is not None and not torch.equal(data, copy):
                    data.copy_(copy)
            if tensor.dtype != data.dtype or tensor.data_ptr() != data.data_ptr():
                tensor.data = data
            if tensor.is_leaf and tensor.requires_grad != needs:
                tensor.requires_grad_(needs)
            if tensor.is_leaf and tensor.grad is not grad:
                tensor.grad = grad

        self.undo.append(restore)

    def restore(self) -> None:
        for undo in reversed(self.undo):
            undo()


def _are(value: list[Any], items: list[Any]) -> bool:
    return len(value) == len(items) and all(one is other for one, other in zip(value, items, strict=True))
