"""How PyTorch spells things."""

from __future__ import annotations

from ..ir.types import Dtype
from .base import Text, Value

_FUNCTIONS = {
    "exp": "torch.exp",
    "log": "torch.log",
    "sqrt": "torch.sqrt",
    "rsqrt": "torch.rsqrt",
    "tanh": "torch.tanh",
    "sigmoid": "torch.sigmoid",
    "relu": "torch.relu",
    "gelu": "torch.nn.functional.gelu",
    "silu": "torch.nn.functional.silu",
    "abs": "torch.abs",
    "sin": "torch.sin",
    "cos": "torch.cos",
    "erf": "torch.erf",
    "floor": "torch.floor",
    "ceil": "torch.ceil",
    "round": "torch.round",
    "%": "torch.fmod",
}
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
    header = ("import torch",)

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

    def full(self, shape: str, text: str, dtype: Dtype) -> str:
        return f"torch.full({shape}, {text}, dtype={self.dtype(dtype)}, device=device)"

    def permute(self, text: str, order: tuple[int, ...]) -> str:
        return f"{text}.permute({', '.join(map(str, order))})"

    def function(self, op: str, arguments: list[Value], text: Text) -> str:
        shown = [argument.text for argument in arguments]
        match op:
            case "clamp":
                return self._extreme(
                    "min", [Value(self._extreme("max", arguments[:2]), (), "real", None), arguments[2]]
                )
            case "max" | "min":
                return self._extreme(op, arguments)
        return f"{_FUNCTIONS[op]}({', '.join(shown)})"

    def _extreme(self, op: str, arguments: list[Value]) -> str:
        """The largest or smallest: numbers bound an array, arrays meet one another."""
        first, *others = sorted(arguments, key=lambda value: value.python)
        result = first
        for other in others:
            if other.python:
                shown = (
                    f"{result.atom}.clamp({op}={other.text})" if op == "min" else f"{result.atom}.clamp({other.text})"
                )
                shown = shown.replace("clamp(min=", "clamp(max=")
            else:
                shown = f"torch.{op}imum({result.text}, {other.text})"
            result = Value(shown, (), first.kind, first.dtype)
        return result.text

    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text) -> str:
        match op:
            case "max" | "min" if value.kind == "real":
                return f"{text.helper('largest' if op == 'max' else 'smallest')}({value.text}, {_axes(axes)})"
            case "max" | "min":
                return f"{value.atom}.a{op}({_axes(axes)})"
            case "prod":
                result = value.atom
                for axis in sorted(axes, reverse=True):
                    result = f"{result}.prod({axis})"
                return result
        return f"{value.atom}.{op}({_axes(axes)})"

    def softmax(self, op: str, text: str, axis: int, source: Text) -> str:
        return f"torch.{op}({text}, {axis})"

    def quotient(self, a: Value, b: Value, text: Text) -> str:
        return f"{text.helper('quotient')}({a.text}, {b.text})"

    def stack(self, text: str, axis: int) -> str:
        return f"torch.stack({text}, {axis})"

    def copy(self, text: str) -> str:
        return f"{text}.clone()"

    def helper(self, name: str) -> str:
        return HELPERS[name]


def _axes(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"


HELPERS = {
    "quotient": '''
def quotient(a, b):
    """Whole division, truncated toward zero; 0 where it is divided by zero."""
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    by = torch.where(b == 0, 1, b).to(a.device)
    return torch.where(b == 0, 0, torch.div(a, by, rounding_mode="trunc"))
''',
    "power": '''
def power(a, b):
    """Whole powers; 0 for a negative exponent."""
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    return torch.where(b < 0, 0, torch.pow(a, b.clamp(0)))
''',
    "largest": '''
def largest(x, axes):
    """The maximum along some axes; -inf over no points."""
    if 0 in x.shape:
        kept = [n for axis, n in enumerate(x.shape) if axis not in (axes if isinstance(axes, tuple) else (axes,))]
        return x.new_full(kept, float("-inf"))
    return x.amax(axes)
''',
    "smallest": '''
def smallest(x, axes):
    """The minimum along some axes; inf over no points."""
    if 0 in x.shape:
        kept = [n for axis, n in enumerate(x.shape) if axis not in (axes if isinstance(axes, tuple) else (axes,))]
        return x.new_full(kept, float("inf"))
    return x.amin(axes)
''',
    "pad": '''
def pad(x, axis, before, after):
    """Zeros before and after along one axis."""
    if before <= 0 and after <= 0:
        return x
    return torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [max(0, before), max(0, after)])
''',
    "split": '''
def split(x, axis, outer, inner):
    """One axis as two."""
    return x.unflatten(axis, (outer, inner))
''',
    "windows": '''
def windows(x, axis, count, length, step):
    """So many windows of some length along one axis, each a step on; the places within go last."""
    if count == 0 or length == 0:
        return x.new_zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], length))
    return x.unfold(axis, length, step)
''',
    "pick": '''
def pick(x, *places):
    """x at these places. Those out of bounds give some number: a guard removes them."""
    for axis, n in enumerate(x.shape):
        if n == 0:
            x = torch.cat((x, x.new_zeros([1 if k == axis else m for k, m in enumerate(x.shape)])), axis)
    places = [torch.as_tensor(place, device=x.device) for place in places]
    return x[tuple(place.clamp(0, n - 1) for place, n in zip(places, x.shape))]
''',
    "best_max": '''
def best_max(x):
    """The largest along the last axis, which stays."""
    return x.amax(-1, keepdim=True) if x.shape[-1] else x
''',
    "best_min": '''
def best_min(x):
    """The smallest along the last axis, which stays."""
    return x.amin(-1, keepdim=True) if x.shape[-1] else x
''',
    "first": '''
def first(hit):
    """The first place along the last axis that is True; -1 where none is."""
    hit = torch.cat((hit, hit.new_ones((*hit.shape[:-1], 1))), -1)
    place = hit.to(torch.int8).argmax(-1)
    return torch.where(place == hit.shape[-1] - 1, -1, place)
''',
    "is_too_large": '''
def is_too_large(x, bits):
    """Whether a number, computed as a float beside the whole one, leaves the whole numbers of so many bits."""
    return torch.abs(x) >= 2.0 ** (bits - 1)
''',
}
