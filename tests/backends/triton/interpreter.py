"""Triton's interpreter, quicker: what it does anew at every call of a function in a kernel is done once."""

from __future__ import annotations

from typing import Any

from triton.runtime import interpreter


def patch_once() -> None:
    """Put the names of the language in their place once for each module whose functions kernels call, and not at every
    call. For a process that does nothing but interpret."""
    patched: set[int] = set()

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self.fn.__globals__) not in patched:
            patched.add(id(self.fn.__globals__))
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **kwargs)

    interpreter.InterpretedFunction.__call__ = called
