"""Calls of the modules inside a model, told as they begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Begin = Callable[[str, Any, tuple[Any, ...], dict[str, Any]], None]  # A name, a module, and its arguments.
End = Callable[[str, Any], None]  # A name, and what was returned.


@contextmanager
def told_of_calls(model: Any, begin: Begin, end: End) -> Iterator[None]:
    """A context in which each call of a module of a model is told, the model itself included."""

    def before(name: str) -> Callable[..., None]:
        return lambda module, arguments, named: begin(name, module, arguments, named)

    def after(name: str) -> Callable[..., None]:
        return lambda module, arguments, named, returned: end(name, returned)

    with ExitStack() as stack:
        for name, module in model.named_modules():
            stack.callback(module.register_forward_pre_hook(before(name), with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(after(name), with_kwargs=True).remove)
        yield
