"""The spelling of operations in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.functions import FUNCTIONS
from ...ir.types import LIBRARY_NAMES, Dtype
from ...plan.target import (
    BACKWARD,
    CHUNKS,
    FUSED,
    INTERVALS,
    STREAM,
    TILES,
    TOTALS,
    TRITON,
    Target,
)
from .base import Text, Value
from .code import ZERO, Name, Node, Number, Part, Tuple, call, fill, infix, method, spelled
from .torch_helpers import HELPERS


class Torch:
    """Arrays are `torch.Tensor`s, all on one device."""

    target = Target(
        "torch",
        frozenset((FUSED, INTERVALS, TILES, STREAM, CHUNKS, TRITON, TOTALS, BACKWARD)),
    )
    module = "torch"
    helpers: Mapping[str, str] = HELPERS

    has_bfloat16 = True
    rounds_once = frozenset((*"+-*/", *(name for name, row in FUNCTIONS.items() if row.torch.once)))
    updates_in_place = True
    differentiates = True
    checks_in_graphs = True
    branches_on_scalars = False
    numbers_are_f64 = False
    scalars_are_weak = True
    wholes_take_reals = True
    takes_numbers_first = False
    refuses_falling_ranges = True
    reads_scalar_indices = True
    gathers_along_one_axis = True
    flips_by_copying = True
    contracts_by_copying = True
    adds_products = True
    attention: Name | None = Name("torch.nn.functional.scaled_dot_product_attention")

    def dtype(self, dtype: Dtype) -> Node:
        return Name(f"torch.{LIBRARY_NAMES[dtype]}")

    def arange(self, start: Node, stop: Node) -> Node:
        bounds = (stop,) if start == ZERO else (start, stop)
        return call("torch.arange", *bounds, device="device")

    def where(self, condition: Value, then: Node, otherwise: Node) -> Node:
        return call("torch.where", self.truth(condition), then, otherwise)

    def truth(self, condition: Value) -> Node:
        """A condition as a tensor."""
        return call("torch.tensor", condition.code, device="device") if condition.python else condition.code

    def cast(self, value: Value, dtype: Dtype) -> Value:
        code = self.constant(value.code, dtype) if value.python else self.narrow(value.code, dtype)
        return Value(code, value.axes, value.kind, dtype)

    def narrow(self, code: Node, dtype: Dtype) -> Node:
        return method(code, "to", self.dtype(dtype))

    def constant(self, code: Node, dtype: Dtype) -> Node:
        """A number as a tensor, made where it is: a copy to a GPU cannot be part of a CUDA graph."""
        return call("torch.full", Tuple(()), code, dtype=self.dtype(dtype), device="device")

    def array(self, code: Node, dtype: Dtype) -> Node:
        return call("torch.tensor", code, dtype=self.dtype(dtype), device="device")

    def full(self, shape: Node, code: Node, dtype: Dtype) -> Node:
        if code in ZEROS:
            return call("torch.zeros", shape, dtype=self.dtype(dtype), device="device")
        return call("torch.full", shape, code, dtype=self.dtype(dtype), device="device")

    def permute(self, code: Node, order: tuple[int, ...]) -> Node:
        return method(code, "permute", *order)

    def flip(self, code: Node, axis: int) -> Node:
        return method(code, "flip", axis)

    def tensordot(self, left: Node, right: Node, axes: tuple[tuple[int, ...], tuple[int, ...]]) -> Node:
        return call("torch.tensordot", left, right, tuple(list(side) for side in axes))

    def function(self, op: str, arguments: list[Value], text: Text) -> Node:
        codes = [argument.code for argument in arguments]
        match op:
            case "clamp":
                above = self._extreme("max", arguments[:2])
                return self._extreme("min", [arguments[0].but(above), arguments[2]])
            case "max" | "min":
                return self._extreme(op, arguments)
            case "root":
                return call("torch.rsqrt", codes[0])
            case "%":
                return call("torch.fmod", *codes)
        row = FUNCTIONS[op]
        if row.torch.helper:
            text.helper(op)
        return spelled(row.torch.call, *codes)

    def _extreme(self, op: str, arguments: list[Value]) -> Node:
        """The largest or smallest: numbers bound an array, arrays meet one another."""
        first, *others = sorted(arguments, key=lambda value: value.python)
        result = first.code
        for other in others:
            if not other.python:
                result = call(f"torch.{op}imum", result, other.code)
            elif op == "max":
                result = method(result, "clamp", other.code)
            else:
                result = method(result, "clamp", max=other.code)
        return result

    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text, empty: bool = True) -> Node:
        where = one_or_all(axes if axes != (len(value.axes) - 1,) else (-1,))
        match op:
            case "max" | "min" if empty:
                return call(text.helper("largest" if op == "max" else "smallest"), value.code, axes)
            case "max" | "min":
                return method(value.code, f"a{op}", where)
            case "prod":
                result = value.code
                for axis in sorted(axes, reverse=True):
                    result = method(result, "prod", axis)
                return result
        return method(value.code, op, where)

    def divide(self, op: str, a: Value, b: Value, safe: bool, text: Text) -> Node:
        """Whole division, truncated toward zero. Where it is not safe, a guard removes what is divided by zero."""
        by = b.code if safe else call("torch.where", infix("==", b.code, 0), 1, b.code)
        if op == "%":
            return call("torch.fmod", a.code, by)
        return fill("torch.div({a}, {by}, rounding_mode='trunc')", a=a.code, by=by)

    def stack(self, rows: Node, axis: int) -> Node:
        return call("torch.stack", rows) if axis == 0 else call("torch.stack", rows, axis)

    def concatenate(self, parts: tuple[Node, ...], axis: int) -> Node:
        return call("torch.cat", parts, *([axis] if axis else []))

    def flatten(self, code: Node, first: int, last: int) -> Node:
        return method(code, "flatten", first, *([last] if last != -1 else []))

    def unflatten(self, code: Node, axis: int, shape: Node, text: Text) -> Node:
        return method(code, "unflatten", axis, shape)

    def store(self, array: Node, slots: tuple[Node, ...], code: Node) -> Node:
        raise AssertionError("tensors are updated in place")

    def scan(self, name: str, kernels: dict[str, set[str]], text: Text) -> None:
        kernels.setdefault("torch_scan", set()).add(name)

    def blocks(self, kernels: dict[str, set[str]], text: Text) -> str:
        kernels.setdefault("torch_rows", set()).add("in_blocks")
        return "in_blocks"

    def copy(self, code: Node) -> Node:
        return method(code, "clone")


DIALECT = Torch()


ZEROS = (ZERO, Number("0.0"), Name("False"))


def one_or_all(axes: tuple[int, ...]) -> Part:
    """An axis by its number, several as a tuple."""
    return axes[0] if len(axes) == 1 else axes
