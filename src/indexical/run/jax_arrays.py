"""JAX's arrays at the door: imported only where there are any, or where the backend is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic, Label, Sink
from ..ir import nodes as ir
from ..ir.needs import read_in
from ..ir.types import DTYPES_BY_NAME, LIBRARY_NAMES, Dtype, widest


def is_jax(value: Any) -> bool:
    """Whether a value is an array of JAX's, or stands for one while a call is traced."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def load_jax() -> Any:
    """JAX, or a plain word where it is not there."""
    try:
        return import_module("jax")
    except ImportError:
        help = 'install it with `pip install indexical[jax]`, or use `backend="numpy"`'
        raise CallError([Diagnostic("IX509", "JAX is not installed", help=help)]) from None


def dtype_of(array: Any) -> Dtype | None:
    """The dtype of an array in our words; None for one that converts."""
    return DTYPES_BY_NAME.get(array.dtype.name)


def is_traced(value: Any) -> bool:
    """Whether an array stands for another: `jax.jit`, `jax.grad` or `jax.vmap` traces the call."""
    return is_jax(value) and isinstance(value, sys.modules["jax"].core.Tracer)


def check_read(program: ir.Program, values: Mapping[str, Any]) -> None:
    """Refuse a whole number that a size depends on while the call is traced: a size has to be known by then."""
    sink = Sink()
    bounds = [axis.extent for tensor in program.tensors.values() for axis in tensor.axes]
    for let in program.lets:
        for clause in let.clauses:
            bounds += [end for range in clause.ranges for end in (range.lower, range.upper)]
    measuring = set(read_in(*bounds))
    for tensor in program.inputs:
        if tensor.name in measuring and is_traced(values[tensor.name]):
            message = f"`{tensor.name}` decides a size, which has to be known while `jax.jit` traces a call"
            help = f"pass it as a static argument: `jax.jit(…, static_argnames={tensor.name!r})`"
            sink.report("IX515", message, Label(tensor.span), help=help)
    if sink.failed:
        raise CallError(sink)


def stand_in(value: Any) -> Any:
    """A NumPy array of an array's shape and dtype, for checks that ask no more; a whole scalar keeps its value, where
    it has one."""
    if not is_jax(value):
        return value
    name = "float32" if value.dtype.name == "bfloat16" else value.dtype.name
    if value.ndim == 0 and value.dtype.kind in "iu" and not is_traced(value):
        return np.asarray(value)
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    return np.broadcast_to(np.zeros((), dtype), tuple(value.shape))


def strengthened(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a call. A Python number that `jax.jit` made an array of takes the dtype of the others, as it would
    as a number."""
    firm = [dtype_of(v) for v in values.values() if is_jax(v) and not v.weak_type and v.dtype.kind not in "biu"]
    return {name: _strong(value, firm) if is_jax(value) else value for name, value in values.items()}


def _strong(value: Any, firm: list[Dtype | None]) -> Any:
    if not value.weak_type:
        return value
    dtype = widest(firm) if value.dtype.kind not in "biu" else None
    with load_jax().enable_x64(True):
        return value.astype(LIBRARY_NAMES[dtype] if dtype else value.dtype)


def finished(value: Any, dtype: Dtype | None) -> Any:
    """A value as the emitted function takes it: an array of its dtype, or a number without one of its own."""
    if dtype is None:
        return np.asarray(value).item()
    with load_jax().enable_x64(True):
        return load_jax().numpy.asarray(value, LIBRARY_NAMES[dtype])


def to_numpy(value: Any) -> Any:
    """An array's numbers as NumPy has them."""
    if not is_jax(value):
        return value
    return np.asarray(value.astype("float32") if value.dtype.name == "bfloat16" else value)


def explained(function: Callable[..., Any], wide: bool) -> Callable[..., Any]:
    """The emitted function, with a plain word where it has to look at a value while JAX traces it, or where it is
    `wide`: it computes with 64 bits, of which JAX would cut off a half."""
    jax = load_jax()
    unknown = jax.errors.ConcretizationTypeError

    @wraps(function)
    def called(*values: Any) -> Any:
        if wide and not jax.config.jax_enable_x64 and any(map(is_traced, values)):
            message = "whole numbers and float64 have 64 bits, and JAX cuts them down to 32 while it traces a call"
            help = 'say `jax.config.update("jax_enable_x64", True)` first; float32 arrays stay what they are'
            raise CallError([Diagnostic("IX515", message, help=help)])
        try:
            return function(*values)
        except unknown:
            message = "`jax.jit` or `jax.vmap` traces an array whose values this program has to look at"
            help = "bounds of a range come from its values: state a size, and say the rest in a guard"
            raise CallError([Diagnostic("IX515", message, help=help)]) from None

    return called
