"""The spelling of operations in JAX: NumPy's names, but for these.

Arrays are not changed in place, and a call may be traced by `jax.jit`, `jax.grad` or `jax.vmap`: a store makes a new
array, no condition asks an array for its value, and values are checked where there are values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ...ir import nodes as ir
from ...ir.functions import FUNCTIONS
from ...ir.operations import Function, Spelling
from ...ir.types import LIBRARY_NAMES, Dtype, Kind, widest
from ...ir.walk import walk
from ..ops import Number, Value
from ..order import reachable
from ..show.code import Code
from ..workspace import JAX
from .base import Dialect
from .numpy_helpers import KERNELS, SHARED

if TYPE_CHECKING:
    from ..show.printer import Printer

HELPERS = {
    **{name: text.replace("np.", "jnp.") for name, text in SHARED.items()},
    **{name: row.jax.helper for name, row in FUNCTIONS.items() if row.jax.helper},
    "in_64_bits": '''
def in_64_bits(function):
    """Nothing is cut down to 32 bits here, whatever `jax_enable_x64` says. What is traced and has 64 bits needs it."""

    @functools.wraps(function)
    def wide(*arrays):
        with jax.enable_x64(True):
            return function(*arrays)

    return wide
''',
    "counted": '''
def counted(number):
    """A whole number as Python has it; the array that stands for it while `jax.jit` traces a call."""
    return number if isinstance(number, jax.core.Tracer) else int(number)
''',
    "check": '''
def check(failed, code, message):
    """Refuse where a test fails somewhere. While a call is traced there are no values to test."""
    failed = jnp.any(failed)
    if not isinstance(failed, jax.core.Tracer) and failed:
        raise Refused(code, message)
''',
    "rank": '''
def rank(x, kept=None):
    """The place of each number that is kept among those that are along the last axis, in decreasing order, the first of
    equal ones first and NaN last, by a stable sort; how many are kept for all others."""
    order = jnp.argsort(-x if jnp.issubdtype(x.dtype, jnp.floating) else ~x, -1, stable=True)
    if kept is None:
        return jnp.argsort(order, -1).astype(jnp.int64)
    kept = jnp.take_along_axis(kept, order, -1)
    places = jnp.where(kept, kept.astype(jnp.int64).cumsum(-1) - 1, kept.sum(-1, keepdims=True))
    return jnp.take_along_axis(places, jnp.argsort(order, -1), -1).astype(jnp.int64)
''',
    "windows": '''
def windows(x, axis, count, length, step, dilation=1):
    """So many windows of some length along one axis, each a step on; the places within go last, some way apart."""
    if count == 0 or length == 0:
        return jnp.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], length), x.dtype)
    places = np.arange(count)[:, None] * step + np.arange(length) * dilation
    return jnp.moveaxis(jnp.take(x, places, axis), axis + 1, -1)
''',
    "leaning": '''
def leaning(x, axis, length, first, lean, dilation=1):
    """For each point of an axis a window of the next one, some way on from that of the point before; its places go
    last, some way apart."""
    count, step, reach = x.shape[axis], max(1, x.shape[axis + 1] + lean), (length - 1) * dilation + 1
    step = step if count > 1 else max(step, reach)
    x = jnp.moveaxis(x, (axis, axis + 1), (-2, -1))
    if count == 0 or length == 0:
        return jnp.moveaxis(jnp.zeros((*x.shape[:-1], length), x.dtype), -2, axis)
    x = x.reshape(*x.shape[:-2], -1)[..., first : first + count * step]
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, max(0, count * step - x.shape[-1]))])
    found = x.reshape(*x.shape[:-1], count, step)[..., :reach:dilation]
    return jnp.moveaxis(found, -2, axis)
''',
    "stacked": '''
def stacked(rows, counts, axes, empty):
    """The rows of a recurrence as one array, their steps as these axes; `empty` stands for what is not there."""
    steps = [step if len(counts) > 1 else step[0] for step in np.ndindex(*counts)]
    found = [rows.get(step, empty) for step in steps]
    whole = jnp.stack(found) if found else jnp.zeros((0, *empty.shape), empty.dtype)
    return jnp.moveaxis(whole.reshape(*counts, *empty.shape), tuple(range(len(counts))), axes)
''',
    "scattered": '''
def scattered(x, places, counts):
    """x added up at places along its first axes, in zeros; what has a place that is not there is added to a row that
    is then cut off."""
    at, kept = 0, True
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    rows, rest = math.prod(counts), x.shape[at.ndim :]
    at = jnp.where(kept, at, rows).ravel()
    flat = x.reshape(at.size, math.prod(rest))
    total = jnp.zeros((rows + 1, flat.shape[1]), x.dtype).at[at].add(flat)
    return total[:rows].reshape(*counts, *rest)
''',
    "stored": '''
def stored(x, places, counts):
    """x stored at places along its first axes, in zeros; what has a place that is not there is stored in a row that is
    then cut off."""
    at, kept = 0, True
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    rows, rest = math.prod(counts), x.shape[at.ndim :]
    at = jnp.where(kept, at, rows).ravel()
    total = jnp.zeros((rows + 1, *rest), x.dtype).at[at].set(x.reshape(at.size, *rest))
    return total[:rows].reshape(*counts, *rest)
''',
    "with_part": '''
def with_part(row, slots, part):
    """A row with a part of it stored."""
    return row.at[slots].set(part)
''',
}


class Jax(Dialect):
    """Arrays are `jax.Array`s, perhaps while they are traced."""

    name = "jax"
    module = "jnp"
    imports: ClassVar = {"jax": ("jax", ""), "jnp": ("jax.numpy as jnp", ""), "np": ("numpy as np", "")}
    decorators: ClassVar = {"@in_64_bits": "in_64_bits"}
    helpers = HELPERS
    kernels = KERNELS
    memory = JAX

    updates_in_place = False

    def spelling(self, row: Function) -> Spelling:
        return row.jax

    def dtype(self, p: Printer, dtype: Dtype) -> str:
        return p.helper("jnp.bool_" if dtype == "bool" else f"jnp.{LIBRARY_NAMES[dtype]}")

    def arange(self, p: Printer, count: str) -> Code:
        return p.call("jnp.arange", count, dtype=self.dtype(p, "i64"))

    def taken_scalar(self, p: Printer, name: str, dtype: Dtype | None, kind: Kind) -> Code:
        if dtype is None and kind == "whole":
            return p.call("counted", name)
        return super().taken_scalar(p, name, dtype, kind)

    def flip(self, p: Printer, code: str, axis: int) -> Code:
        return p.call("jnp.flip", code, axis)

    def branch(self, p: Printer, test: Value, condition: str, yes: str, no: str) -> Code:
        """A number that is made of a scalar of the call may be traced: then both are computed."""
        numbers = [one.op.expr for one in reachable([test]) if isinstance(one.op, Number)]
        if any(isinstance(part, ir.Read) for expr in numbers for part in walk(expr)):
            return p.call("jnp.where", condition, yes, no)
        return super().branch(p, test, condition, yes, no)

    def divide(self, p: Printer, fn: str, codes: Sequence[str], args: Sequence[Value]) -> Code:
        """Both are truncated toward zero."""
        if fn == "%":
            return p.call("jnp.fmod", *codes)
        if widest(arg.dtype for arg in args) == "i32":  # Here a number does not take the dtype that it meets.
            codes = [p.call("jnp.int32", code) if arg.is_host else code for code, arg in zip(codes, args, strict=True)]
        return p.call("jax.lax.div", f"*{p.call('jnp.broadcast_arrays', *codes)}")

    def normalize(self, p: Printer, fn: str, code: str, axis: int) -> Code:
        match fn:
            case "cummax" | "cummin":
                larger = p.helper("jnp.maximum" if fn == "cummax" else "jnp.minimum")
                return p.call("jax.lax.associative_scan", larger, code, axis=axis)
            case "softmax" | "log_softmax":
                return p.call(f"jax.nn.{fn}", code, axis)
        return super().normalize(p, fn, code, axis)

    def store(self, name: str, index: str, code: str) -> str:
        return f"{name} = {name}.at[{index}].set({code})"


DIALECT = Jax()
