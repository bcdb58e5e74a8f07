"""How NumPy spells things."""

from __future__ import annotations

from ..ir.types import Dtype
from .base import Text, Value

_FUNCTIONS = {
    "exp": "np.exp",
    "log": "np.log",
    "sqrt": "np.sqrt",
    "tanh": "np.tanh",
    "abs": "np.abs",
    "sin": "np.sin",
    "cos": "np.cos",
    "floor": "np.floor",
    "ceil": "np.ceil",
    "round": "np.round",
    "%": "np.fmod",
}
_HELPED = frozenset(("sigmoid", "gelu", "silu", "erf"))
_NAMES: dict[Dtype, str] = {
    "bool": "bool",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "float32",
    "f32": "float32",
    "f64": "float64",
}
_NEUTRAL = {"max": "-np.inf", "min": "np.inf"}


class NumPy:
    """Arrays are `numpy.ndarray`s."""

    name = "numpy"
    module = "np"
    header = ("import numpy as np",)

    def dtype(self, dtype: Dtype) -> str:
        return f"np.{_NAMES[dtype]}" if dtype != "bool" else "bool"

    def arange(self, start: str, stop: str) -> str:
        return f"np.arange({stop})" if start == "0" else f"np.arange({start}, {stop})"

    def where(self, condition: Value, then: str, otherwise: str) -> str:
        return f"np.where({condition.text}, {then}, {otherwise})"

    def cast(self, value: Value, dtype: Dtype) -> Value:
        if value.python:
            return Value(f"{self.dtype(dtype)}({value.text})", value.axes, value.kind, dtype)
        return Value(f"{value.atom}.astype({self.dtype(dtype)})", value.axes, value.kind, dtype)

    def constant(self, text: str, dtype: Dtype) -> str:
        return f"np.bool_({text})" if dtype == "bool" else f"{self.dtype(dtype)}({text})"

    def full(self, shape: str, text: str, dtype: Dtype) -> str:
        return f"np.full({shape}, {text}, {self.dtype(dtype)})"

    def permute(self, text: str, order: tuple[int, ...]) -> str:
        return f"{text}.transpose({', '.join(map(str, order))})"

    def function(self, op: str, arguments: list[Value], text: Text) -> str:
        shown = [argument.text for argument in arguments]
        match op:
            case "rsqrt":
                return f"1 / np.sqrt({shown[0]})"
            case "relu":
                return f"np.maximum({shown[0]}, 0)"
            case "clamp":
                return f"np.minimum(np.maximum({shown[0]}, {shown[1]}), {shown[2]})"
            case "max" | "min":
                result = shown[0]
                for other in shown[1:]:
                    result = f"np.{op}imum({result}, {other})"
                return result
        if op in _HELPED:
            return f"{text.helper(op)}({shown[0]})"
        return f"{_FUNCTIONS[op]}({', '.join(shown)})"

    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text) -> str:
        where = _axes(axes)
        if op in _NEUTRAL and value.kind == "real":
            return f"{value.atom}.{op}({where}, initial={_NEUTRAL[op]})"
        return f"{value.atom}.{op}({where})"

    def softmax(self, op: str, text: str, axis: int, source: Text) -> str:
        return f"{source.helper(op)}({text}, {axis})"

    def quotient(self, a: Value, b: Value, text: Text) -> str:
        return f"{text.helper('quotient')}({a.text}, {b.text})"

    def stack(self, text: str, axis: int) -> str:
        return f"np.stack({text}, {axis})"

    def copy(self, text: str) -> str:
        return f"{text}.copy()"

    def helper(self, name: str) -> str:
        return HELPERS[name]


def _axes(axes: tuple[int, ...]) -> str:
    return str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"


HELPERS = {
    "quotient": '''
def quotient(a, b):
    """Whole division, truncated toward zero; 0 where it is divided by zero."""
    by = np.where(b == 0, 1, b)
    return np.where(b == 0, 0, np.sign(a) * np.sign(by) * (np.abs(a) // np.abs(by)))
''',
    "power": '''
def power(a, b):
    """Whole powers; 0 for a negative exponent."""
    return np.where(b < 0, 0, np.power(a, np.maximum(b, 0)))
''',
    "sigmoid": '''
def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)
''',
    "silu": '''
def silu(x):
    """x · sigmoid(x)."""
    small = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1, small) / (1 + small)
''',
    "erf": '''
def erf(x):
    """The error function. NumPy has none, so it goes number by number."""
    x = np.asarray(x)
    return np.vectorize(math.erf, otypes=[float])(x).astype(x.dtype)
''',
    "gelu": '''
def gelu(x):
    """x · Φ(x). NumPy has no error function, so it goes number by number."""
    x = np.asarray(x)
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)).astype(x.dtype))
''',
    "softmax": '''
def softmax(x, axis):
    """Along one axis, shifted by the largest, which changes nothing and never overflows."""
    top = x.max(axis, keepdims=True, initial=-np.inf)
    part = np.exp(x - top)
    return part / part.sum(axis, keepdims=True)
''',
    "log_softmax": '''
def log_softmax(x, axis):
    """Along one axis, shifted by the largest, which changes nothing and never overflows."""
    x = x - x.max(axis, keepdims=True, initial=-np.inf)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))
''',
    "pad": '''
def pad(x, axis, before, after):
    """Zeros before and after along one axis."""
    if before <= 0 and after <= 0:
        return x
    return np.pad(x, [(max(0, before), max(0, after)) if n == axis else (0, 0) for n in range(x.ndim)])
''',
    "split": '''
def split(x, axis, outer, inner):
    """One axis as two."""
    return x.reshape(*x.shape[:axis], outer, inner, *x.shape[axis + 1 :])
''',
    "windows": '''
def windows(x, axis, count, length, step):
    """So many windows of some length along one axis, each a step on; the places within go last."""
    if count == 0 or length == 0:
        return np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], length), x.dtype)
    return np.lib.stride_tricks.sliding_window_view(x, length, axis)[(slice(None),) * axis + (slice(None, None, step),)]
''',
    "pick": '''
def pick(x, *places):
    """x at these places. Those out of bounds give some number: a guard removes them."""
    x = np.pad(x, [(0, int(n == 0)) for n in x.shape])
    return x[tuple(np.clip(place, 0, n - 1) for place, n in zip(places, x.shape))]
''',
    "best_max": '''
def best_max(x):
    """The largest along the last axis, which stays."""
    return x.max(-1, keepdims=True) if x.shape[-1] else x
''',
    "best_min": '''
def best_min(x):
    """The smallest along the last axis, which stays."""
    return x.min(-1, keepdims=True) if x.shape[-1] else x
''',
    "first": '''
def first(hit):
    """The first place along the last axis that is True; -1 where none is."""
    hit = np.concatenate((hit, np.ones((*hit.shape[:-1], 1), bool)), -1)
    place = hit.argmax(-1)
    return np.where(place == hit.shape[-1] - 1, -1, place)
''',
    "is_too_large": '''
def is_too_large(x, bits):
    """Whether a number, computed as a float beside the whole one, leaves the whole numbers of so many bits."""
    return np.abs(x) >= 2.0 ** (bits - 1)
''',
    "round_bf16": '''
def round_bf16(x):
    """To the nearest number of eight significant bits, in a float32. NumPy has no bfloat16."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    near = ((bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isfinite(x), near, x)
''',
}
