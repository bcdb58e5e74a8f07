"""Triton's interpreter, quicker: what it does anew at every call of a function in a kernel is done once. And one mend:
a comparison of two numbers of a program, which it takes for a float where it meets a tile, is a truth value there.
"""

from __future__ import annotations

from dataclasses import replace
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
    # Sums are computed a second time in 64 bits for an assertion that is left out anyway, unless kernels are debugged.
    builder = interpreter.interpreter_builder
    assert not builder.options.debug
    builder.options = replace(builder.options, sanitize_overflow=False)
    remember_types()


def remember_types() -> None:
    """Make each type of a tile once, and what all tiles of one type share; and look up NumPy's dtypes by name."""
    tile, tensor, numpy_of = tl.core.block_type, tl.core.tensor, interpreter._get_np_dtype
    make_type, make_tensor = tile.__init__, tensor.__init__
    types: dict[tuple[Any, ...], Any] = {}
    dtypes: dict[str, Any] = {}

    def new_type(cls: Any, element_ty: Any, shape: Any) -> Any:
        sizes = (size.value if isinstance(size, tl.constexpr) else size for size in shape)
        key = (element_ty.name, getattr(element_ty, "address_space", ""), *sizes)
        if key not in types:
            types[key] = object.__new__(cls)
            make_type(types[key], element_ty, shape)
        return types[key]

    def new_tensor(self: Any, handle: Any, type: Any) -> None:
        if "shared" not in type.__dict__:
            make_tensor(self, handle, type)
            type.shared = self.shape, self.numel
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = type.shared

    def numpy_dtype(of: Any) -> Any:
        name = of.scalar.name
        if name not in dtypes:
            dtypes[name] = numpy_of(of)
        return dtypes[name]

    tile.__new__, tile.__init__, tensor.__init__ = new_type, lambda *_: None, new_tensor
    interpreter._get_np_dtype = numpy_dtype
