"""PyTorch's tensors at the door: imported only where there are any."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic, Label, Sink
from ..ir import nodes as ir
from ..ir.types import DTYPES_BY_NAME, LIBRARY_NAMES, Dtype
from ..records import replace
from .tracing import transform_test

_STAND_INS = {"torch.bfloat16": "float32"}
_CONVERTED = frozenset(f"torch.{name}" for name in ("int16", "uint16", "uint32", "uint64"))
_COMPLEX = frozenset(f"torch.complex{bits}" for bits in (32, 64, 128))


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_dense(value: Any) -> bool:
    """Whether a value is no sparse and no nested tensor."""
    return not is_tensor(value) or (str(value.layout) == "torch.strided" and not value.is_nested)


def device_of(values: Mapping[str, Any]) -> Any:
    """The device of the first tensor."""
    return next((value.device for value in values.values() if is_tensor(value)), "cpu")


def merges(tensor: Any, groups: Iterable[Sequence[int]]) -> bool:
    """Whether groups of axes can become one axis each without a copy: each is a step over all of the next."""
    for group in groups:
        axes = [axis for axis in group if tensor.shape[axis] != 1]
        if any(tensor.stride(one) != tensor.stride(after) * tensor.shape[after] for one, after in pairwise(axes)):
            return False
    return True


def is_about_values(problem: Exception) -> bool:
    """Whether the error is that of `torch.func.vmap` for reading a value, which differs along the mapped axis."""
    return str(problem).startswith("vmap: It looks like")


def unmapped() -> CallError:
    message = "`torch.func.vmap` maps over an array whose values this program has to look at"
    help = "name what differs instead: `ix.batch(program, b=(…))` takes the inputs that vary with a new coordinate `b`"
    return CallError([Diagnostic("IX515", message, help=help)])


def dtype_of(tensor: Any) -> Dtype | None:
    """The dtype of a tensor in our words; None for one that converts."""
    return DTYPES_BY_NAME.get(str(tensor.dtype).removeprefix("torch."))


def load_torch() -> Any:
    """PyTorch, or a plain word where it is not there."""
    try:
        import torch
    except ImportError:
        help = 'install it with `pip install indexical[torch]`, or use `backend="numpy"`'
        raise CallError([Diagnostic("IX509", "PyTorch is not installed", help=help)]) from None
    return torch


# The kinds of devices that PyTorch knows; one that is only planned for need not be there.
_DEVICES = ("cpu", "cuda", "hpu", "mps", "mtia", "xla", "xpu")


def check_device_name(device: str) -> None:
    """A device by its kind, perhaps with a number: `cuda:1`."""
    kind, colon, number = device.partition(":")
    if kind not in _DEVICES or (colon and not number.isdigit()):
        help = f"choose from {', '.join(_DEVICES)}"
        raise CallError([Diagnostic("IX510", f"no device is called `{device}`", help=help)])


def check_dense(program: ir.Program, arguments: Mapping[str, Any], backend: str) -> None:
    """Refuse tensors whose numbers do not lie one beside the other, or are none that the program computes with."""
    sink = Sink()
    for tensor in program.inputs:
        value = arguments[tensor.name]
        if is_tensor(value):
            message, help = _unfit(tensor.name, value, backend)
            if message:
                sink.report("IX504", f"`{tensor.name}` {message}", Label(tensor.span), help=help)
    if sink.failed:
        raise CallError(sink)


def _unfit(name: str, value: Any, backend: str) -> tuple[str, str | None]:
    """Why a tensor cannot be an argument, and what to pass instead; nothing where it can."""
    torch = load_torch()
    known = dtype_of(value) is not None or str(value.dtype) in _CONVERTED | _COMPLEX
    if type(value).__name__ == "MaskedTensor":
        return "is a masked tensor, and its mask would be lost", "pass `get_data()`, and `get_mask()` for a guard"
    if value.is_nested:
        return "is a nested tensor", f"call `{name}.to_padded_tensor(0)`, and pass the lengths for a guard"
    if value.layout != torch.strided:
        return "is not a dense tensor", f"call `{name}.to_dense()`"
    if value.is_quantized:
        return "is a quantized tensor", f"call `{name}.dequantize()`"
    if not known:
        return f"is a tensor of {value.dtype}, which nothing is computed with", f"pass `{name}.to(torch.float32)`"
    if value.device.type == "meta" and backend != "torch":
        return "has no numbers: it is on the device `meta`", None
    return "", None


def on_one_device(program: ir.Program, arguments: Mapping[str, Any], device: str | None) -> dict[str, Any]:
    """Every argument as a tensor, all on one device; plain numbers stay what they are, for scalars."""
    torch = load_torch()
    sink = Sink()
    found: dict[Any, ir.Input] = {}
    for tensor in program.inputs:
        value = arguments[tensor.name]
        if is_tensor(value) and (value.ndim or value.device.type != "cpu"):
            found.setdefault(value.device, tensor)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        message = f"`{first.name}` is on {one} and `{second.name}` on {other}"
        help = f"move them together: `{second.name}.to({str(one)!r})`"
        sink.report("IX510", message, Label(second.span, str(other)), Label(first.span, str(one)), help=help)
    if sink.failed:
        raise CallError(sink)
    place = device or next(iter(found), "cpu")
    return {name: _on(torch, value, place) for name, value in arguments.items()}


def _on(torch: Any, value: Any, device: Any) -> Any:
    if is_tensor(value):
        return value if value.device == torch.device(device) else value.to(device)
    if isinstance(value, bool | int | float):
        return value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return value
    odd = array.dtype.kind not in "biuf" or array.dtype.name in ("uint16", "uint32", "uint64", "longdouble", "float128")
    return value if odd or np.ma.is_masked(value) else torch.as_tensor(_plain(array)).to(device)


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array as PyTorch takes it: in the machine's order of bytes, no axis backwards, and writable."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return array if array.flags.writeable and all(step >= 0 for step in array.strides) else array.copy()


def finished(value: Any, dtype: Dtype | None, device: Any) -> Any:
    """A value as the emitted function takes it: a tensor on its device, or a number without a dtype of its own."""
    value = _on(load_torch(), value, device)
    return value if is_tensor(value) or dtype is None else from_numpy(np.asarray(value), dtype, device)


def stand_in(value: Any) -> Any:
    """A NumPy array of a tensor's shape and dtype, for checks that ask no more; a whole scalar keeps its value."""
    if not is_tensor(value):
        return value
    if value.ndim == 0 and not value.is_floating_point():
        try:
            return np.asarray(value.item(), str(value.dtype).removeprefix("torch."))
        except RuntimeError as problem:
            raise (unmapped() if is_about_values(problem) else problem) from None
    name = _STAND_INS.get(str(value.dtype), str(value.dtype).removeprefix("torch."))
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    return np.broadcast_to(np.zeros((), dtype), tuple(value.shape))


def in_its_words(diagnostic: Diagnostic) -> Diagnostic:
    """Advice that was given for NumPy's arrays, for tensors."""
    if diagnostic.help is None:
        return diagnostic
    help = re.sub(r"astype\(np\.(\w+)\)", r"to(torch.\1)", diagnostic.help)
    return replace(diagnostic, help=help.replace("astype(bool)", "bool()").replace("astype(float)", "double()"))


def check_halves(program: ir.Program, given: Mapping[str, Dtype]) -> None:
    """PyTorch has bf16: a wider tensor is not rounded to it in silence."""
    sink = Sink()
    for tensor in program.inputs:
        if tensor.dtype == "bf16" and given.get(tensor.name, "bf16") not in ("bf16", "i8", "u8"):
            message = f"`{tensor.name}` takes bf16, and got a tensor of {given[tensor.name]}"
            help = f"pass `{tensor.name}.to(torch.bfloat16)` if rounding is meant"
            sink.report("IX503", message, Label(tensor.span), help=help)
    if sink.failed:
        raise CallError(sink)


def to_numpy(value: Any) -> Any:
    """A tensor's numbers as NumPy has them."""
    if not is_tensor(value):
        return value
    if transform_test()():
        return _listed(value)
    number = value.detach().cpu().resolve_conj().resolve_neg()
    return np.asarray(number.float() if dtype_of(value) == "bf16" else number)


def _listed(value: Any) -> np.ndarray[Any, Any]:
    """The numbers of a tensor while a transform of `torch.func` is active, which wraps whatever is made of it."""
    inside = load_torch()._C._functorch
    inner = value
    while inside.is_functorch_wrapped_tensor(inner):
        if inside.is_batchedtensor(inner):
            raise unmapped()
        inner = inside.get_unwrapped(inner)
    name = str(value.dtype)
    return np.array(value.tolist(), _STAND_INS.get(name, name.removeprefix("torch."))).reshape(value.shape)


def to_tensors(arrays: Mapping[str, Any], device: str | None) -> dict[str, Any]:
    """Arrays as tensors on a device; plain numbers stay what they are."""
    torch = load_torch()
    try:
        place = torch.device(device or "cpu")
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as problem:
        check_device_name(device or "cpu")
        first = str(problem).splitlines()[0]
        raise CallError([Diagnostic("IX510", f"the device `{device}` is not there: {first}")]) from None
    return {name: _on(torch, value, place) for name, value in arrays.items()}


def from_numpy(array: np.ndarray[Any, Any], dtype: Dtype, device: Any) -> Any:
    torch = load_torch()
    return torch.as_tensor(_plain(array)).to(device=device, dtype=getattr(torch, LIBRARY_NAMES[dtype]))
