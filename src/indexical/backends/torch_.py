"""How PyTorch spells things."""

from __future__ import annotations

from ..ir.functions import FUNCTIONS
from ..ir.types import Dtype
from .base import COMPARISON, Text, Value
from .torch_helpers import HELPERS

_NAMES: dict[Dtype, str] = {
    "bool": "bool",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}


class Torch:
    """Arrays are `torch.Tensor`s, all on one device."""

    name = "torch"
    module = "torch"
    header: tuple[str, ...] = ("import torch",)

    def dtype(self, dtype: Dtype) -> str:
        return f"torch.{_NAMES[dtype]}"

    def arange(self, start: str, stop: str) -> str:
        bounds = stop if start == "0" else f"{start}, {stop}"
        return f"torch.arange({bounds}, device=device)"

    def where(self, condition: Value, then: str, otherwise: str) -> str:
        return f"torch.where({self.truth(condition)}, {then}, {otherwise})"

    def truth(self, condition: Value) -> str:
        """A condition as a tensor."""
        return f"torch.tensor({condition.text}, device=device)" if condition.python else condition.text

    def cast(self, value: Value, dtype: Dtype) -> Value:
        if value.python:
            return Value(self.constant(value.text, dtype), value.axes, value.kind, dtype)
        return Value(f"{value.atom}.to({self.dtype(dtype)})", value.axes, value.kind, dtype)

    def constant(self, text: str, dtype: Dtype) -> str:
        return f"torch.tensor({text}, dtype={self.dtype(dtype)}, device=device)"

    def array(self, text: str, dtype: Dtype) -> str:
        return self.constant(text, dtype)

    def full(self, shape: str, text: str, dtype: Dtype) -> str:
        if text in ("0", "0.0", "False"):
            return f"torch.zeros({shape}, dtype={self.dtype(dtype)}, device=device)"
        return f"torch.full({shape}, {text}, dtype={self.dtype(dtype)}, device=device)"

    def permute(self, text: str, order: tuple[int, ...]) -> str:
        return f"{text}.permute({', '.join(map(str, order))})"

    def flip(self, text: str, axis: int) -> str:
        return f"{text}.flip({axis})"

    def tensordot(self, left: str, right: str, axes: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
        places = ", ".join(f"[{', '.join(map(str, side))}]" for side in axes)
        return f"torch.tensordot({left}, {right}, ({places}))"

    def function(self, op: str, arguments: list[Value], text: Text) -> str:
        shown = [argument.text for argument in arguments]
        match op:
            case "clamp":
                above = Value(self._extreme("max", arguments[:2]), (), arguments[0].kind, arguments[0].dtype)
                return self._extreme("min", [above, arguments[2]])
            case "max" | "min":
                return self._extreme(op, arguments)
            case "root":
                return f"torch.rsqrt({shown[0]})"
            case "%":
                return f"torch.fmod({shown[0]}, {shown[1]})"
        row = FUNCTIONS[op]
        if row.torch.helper:
            text.helper(op)
        return row.torch.spelled(*shown)

    def _extreme(self, op: str, arguments: list[Value]) -> str:
        """The largest or smallest: numbers bound an array, arrays meet one another."""
        result, *others = sorted(arguments, key=lambda value: value.python)
        for other in others:
            if other.python:
                bound = other.text if op == "max" else f"max={other.text}"
                shown = f"{result.atom}.clamp({bound})"
            else:
                shown = f"torch.{op}imum({result.text}, {other.text})"
            result = Value(shown, (), result.kind, result.dtype)
        return result.text

    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text, empty: bool = True) -> str:
        where = _axes(axes if axes != (len(value.axes) - 1,) else (-1,))
        match op:
            case "max" | "min" if empty:
                helper = text.helper("largest" if op == "max" else "smallest")
                return f"{helper}({value.text}, ({', '.join(map(str, axes))}{',' if len(axes) == 1 else ''}))"
            case "max" | "min":
                return f"{value.atom}.a{op}({where})"
            case "prod":
                result = value.atom
                for axis in sorted(axes, reverse=True):
                    result = f"{result}.prod({axis})"
                return result
        return f"{value.atom}.{op}({where})"

    def softmax(self, op: str, text: str, axis: int, source: Text) -> str:
        return f"torch.{op}({text}, {axis})"

    def divide(self, op: str, a: Value, b: Value, safe: bool, text: Text) -> str:
        """Whole division, truncated toward zero. Where it is not safe, a guard removes what is divided by zero."""
        by = b.text if safe else f"torch.where({b.within(COMPARISON + 1)} == 0, 1, {b.text})"
        return f"torch.fmod({a.text}, {by})" if op == "%" else f'torch.div({a.text}, {by}, rounding_mode="trunc")'

    def stack(self, text: str, axis: int) -> str:
        return f"torch.stack({text})" if axis == 0 else f"torch.stack({text}, {axis})"

    def copy(self, text: str) -> str:
        return f"{text}.clone()"

    def helper(self, name: str) -> str:
        return HELPERS[name]


def _axes(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"
