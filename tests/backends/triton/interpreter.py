"""Triton's interpreter, quicker: what it does anew at every call of a function in a kernel is done once. And one mend:
a comparison of two numbers of a program, which it takes for a float where it meets a tile, is a truth value there.
"""

from __future__ import annotations

from typing import Any

from triton import language as tl
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
    splat = interpreter.InterpreterBuilder.create_splat

    def create_splat(self: Any, shape: Any, value: Any) -> Any:
        is_truth = value.data.dtype == bool
        return splat(self, shape, interpreter.TensorHandle(value.data, tl.int1) if is_truth else value)

    interpreter.InterpreterBuilder.create_splat = create_splat
