"""The spelling of operations in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from ...ir.functions import FUNCTIONS
from ...ir.operations import Function, Spelling
from ...ir.types import NUMPY_NAMES, Dtype
from ...plan.target import CHUNKS, STREAM, Target
from ...records import replace
from .base import Text, Value
from .code import ALL, ZERO, Attribute, Name, Node, Part, Slice, call, index, infix, method, negative, spelled
from .numpy_helpers import HELPERS
from .torch_ import ZEROS, one_or_all


class NumPy:
    """Arrays are `numpy.ndarray`s. What is spelled with `self.module` is the same in JAX."""

    target = Target("numpy", frozenset((STREAM, CHUNKS)))
    module = "np"
    helpers: Mapping[str, str] = HELPERS

    has_bfloat16 = False
    rounds_once: frozenset[str] = frozenset()
    updates_in_place = True
    differentiates = False
    checks_in_graphs = False
    branches_on_scalars = True
    numbers_are_f64 = True
    scalars_are_weak = False
    wholes_take_reals = False
    takes_numbers_first = True
    refuses_falling_ranges = False
    reads_scalar_indices = False
    gathers_along_one_axis = False
    flips_by_copying = False
    contracts_by_copying = False
    adds_products = False
    attention: Name | None = None

    def call(self, name: str, *arguments: Part, **keywords: Part) -> Node:
        """A call of a function that the library has by NumPy's name."""
        return call(f"{self.module}.{name}", *arguments, **keywords)

    def spelling(self, row: Function) -> Spelling:
        """The column of this library in the table of functions."""
        return row.numpy

    def dtype(self, dtype: Dtype) -> Node:
        return Name(f"np.{NUMPY_NAMES[dtype]}" if dtype != "bool" else "bool")

    def arange(self, start: Node, stop: Node) -> Node:
        return call("np.arange", stop) if start == ZERO else call("np.arange", start, stop)

    def where(self, condition: Value, then: Node, otherwise: Node) -> Node:
        return self.call("where", condition.code, then, otherwise)

    def cast(self, value: Value, dtype: Dtype) -> Value:
        if value.python:
            return Value(call(self.dtype(dtype), value.code), value.axes, value.kind, dtype)
        if value.dtype == "bf16" and dtype == "f32":
            return replace(value, dtype=dtype, turned=None)
        return Value(self.narrow(value.code, dtype), value.axes, value.kind, dtype)

    def narrow(self, code: Node, dtype: Dtype) -> Node:
        return method(code, "astype", self.dtype(dtype))

    def constant(self, code: Node, dtype: Dtype) -> Node:
        return call(self.dtype(dtype) if dtype != "bool" else "np.bool_", code)

    def array(self, code: Node, dtype: Dtype) -> Node:
        return call("np.array", code, self.dtype(dtype))

    def full(self, shape: Node, code: Node, dtype: Dtype) -> Node:
        if code in ZEROS:
            return self.call("zeros", shape, self.dtype(dtype))
        return self.call("full", shape, code, self.dtype(dtype))

    def permute(self, code: Node, order: tuple[int, ...]) -> Node:
        return method(code, "transpose", *order)

    def flip(self, code: Node, axis: int) -> Node:
        return index(code, *[ALL] * axis, Slice(step=negative(1)))

    def tensordot(self, left: Node, right: Node, axes: tuple[tuple[int, ...], tuple[int, ...]]) -> Node:
        return self.call("tensordot", left, right, tuple(one_or_all(side) for side in axes))

    def function(self, op: str, arguments: list[Value], text: Text) -> Node:
        codes = [argument.code for argument in arguments]
        match op:
            case "root":
                return infix("/", 1, self.call("sqrt", codes[0]))
            case "%":
                return self.call("fmod", *codes)
        row = FUNCTIONS[op]
        spelling = self.spelling(row)
        if spelling.helper:
            text.helper(op)
        if row.arity is not None:
            return spelled(spelling.call, *codes)
        return reduce(lambda left, right: spelled(spelling.call, left, right), codes)

    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text, empty: bool = True) -> Node:
        where = one_or_all(axes if axes != (len(value.axes) - 1,) else (-1,))
        if op in ("max", "min") and empty:
            return method(value.code, op, where, initial=self._least(op, value))
        return method(value.code, op, where)

    def _least(self, op: str, value: Value) -> Node:
        """The largest or smallest of no numbers."""
        if value.kind == "real":
            return negative(f"{self.module}.inf") if op == "max" else Name(f"{self.module}.inf")
        info = self.call("iinfo", self.dtype(value.dtype or "i64"))
        return Attribute(info, "min" if op == "max" else "max")

    def divide(self, op: str, a: Value, b: Value, safe: bool, text: Text) -> Node:
        """Whole division, truncated toward zero. Where it is not safe, a guard removes what is divided by zero."""
        return call(f"{self.module}.fmod" if op == "%" else text.helper("quotient"), a.code, b.code)

    def stack(self, rows: Node, axis: int) -> Node:
        return self.call("stack", rows, *([axis] if axis else []))

    def concatenate(self, parts: tuple[Node, ...], axis: int) -> Node:
        return self.call("concatenate", parts, *([axis] if axis else []))

    def flatten(self, code: Node, first: int, last: int) -> Node:
        raise AssertionError("kernels take arrays as they are")

    def unflatten(self, code: Node, axis: int, shape: Node, text: Text) -> Node:
        raise AssertionError("kernels take arrays as they are")

    def store(self, array: Node, slots: tuple[Node, ...], code: Node) -> Node:
        raise AssertionError("arrays are updated in place")

    def scan(self, name: str, kernels: dict[str, set[str]], text: Text) -> None:
        kernels.setdefault("numpy_scan", set()).add(name)

    def blocks(self, kernels: dict[str, set[str]], text: Text) -> str:
        return text.helper("in_blocks")

    def copy(self, code: Node) -> Node:
        return method(code, "copy")


DIALECT = NumPy()
