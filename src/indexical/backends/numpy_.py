"""How NumPy spells things."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from ..ir.functions import FUNCTIONS
from ..ir.types import Dtype
from .base import Text, Value
from .numpy_helpers import HELPERS

_NAMES: dict[Dtype, str] = {
    "bool": "bool",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "float32",
    "f32": "float32",
    "f64": "float64",
}
_LEAST = {
    ("max", "real"): "-np.inf",
    ("min", "real"): "np.inf",
    ("max", "whole"): "np.iinfo({}).min",
    ("min", "whole"): "np.iinfo({}).max",
}


class NumPy:
    """Arrays are `numpy.ndarray`s."""

    name = "numpy"
    module = "np"
    header: tuple[str, ...] = ("import numpy as np",)

    def dtype(self, dtype: Dtype) -> str:
        return f"np.{_NAMES[dtype]}" if dtype != "bool" else "bool"

    def arange(self, start: str, stop: str) -> str:
        return f"np.arange({stop})" if start == "0" else f"np.arange({start}, {stop})"

    def where(self, condition: Value, then: str, otherwise: str) -> str:
        return f"np.where({condition.text}, {then}, {otherwise})"

    def cast(self, value: Value, dtype: Dtype) -> Value:
        if value.python:
            return Value(f"{self.dtype(dtype)}({value.text})", value.axes, value.kind, dtype)
        if value.dtype == "bf16" and dtype == "f32":
            return replace(value, dtype=dtype, turned=None)
        return Value(f"{value.atom}.astype({self.dtype(dtype)})", value.axes, value.kind, dtype)

    def constant(self, text: str, dtype: Dtype) -> str:
        return f"{self.dtype(dtype)}({text})" if dtype != "bool" else f"np.bool_({text})"

    def array(self, text: str, dtype: Dtype) -> str:
        return f"np.array({text}, {self.dtype(dtype)})"

    def full(self, shape: str, text: str, dtype: Dtype) -> str:
        if text in ("0", "0.0", "False"):
            return f"np.zeros({shape}, {self.dtype(dtype)})"
        return f"np.full({shape}, {text}, {self.dtype(dtype)})"

    def permute(self, text: str, order: tuple[int, ...]) -> str:
        return f"{text}.transpose({', '.join(map(str, order))})"

    def flip(self, text: str, axis: int) -> str:
        return f"{text}[{', '.join([':'] * axis + ['::-1'])}]"

    def tensordot(self, left: str, right: str, axes: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
        places = ", ".join(_axes(side) for side in axes)
        return f"np.tensordot({left}, {right}, ({places}))"

    def function(self, op: str, arguments: list[Value], text: Text) -> str:
        shown = [argument.text for argument in arguments]
        match op:
            case "root":
                return f"1 / np.sqrt({shown[0]})"
            case "%":
                return f"np.fmod({shown[0]}, {shown[1]})"
        row = FUNCTIONS[op]
        if row.numpy.helper:
            text.helper(op)
        if row.arity is not None:
            return row.numpy.spelled(*shown)
        return reduce(row.numpy.spelled, shown)

    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text, empty: bool = True) -> str:
        where = _axes(axes if axes != (len(value.axes) - 1,) else (-1,))
        if op in ("max", "min") and empty:
            least = _LEAST[op, value.kind].format(self.dtype(value.dtype or "i64"))
            return f"{value.atom}.{op}({where}, initial={least})"
        return f"{value.atom}.{op}({where})"

    def softmax(self, op: str, text: str, axis: int, source: Text) -> str:
        return f"{source.helper(op)}({text}, {axis})"

    def divide(self, op: str, a: Value, b: Value, safe: bool, text: Text) -> str:
        """Whole division, truncated toward zero. Where it is not safe, a guard removes what is divided by zero."""
        return f"np.fmod({a.text}, {b.text})" if op == "%" else f"{text.helper('quotient')}({a.text}, {b.text})"

    def stack(self, text: str, axis: int) -> str:
        return f"np.stack({text})" if axis == 0 else f"np.stack({text}, {axis})"

    def copy(self, text: str) -> str:
        return f"{text}.copy()"

    def helper(self, name: str) -> str:
        return HELPERS[name]


def _axes(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"
