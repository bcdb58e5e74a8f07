"""Binding: arrays to inputs. Ranks, dtypes and sizes are checked, with the same carets as the text."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ..checker.names import counted
from ..checker.recurrence import check_boxes, is_plain, report_cover
from ..checker.reporting import report_all
from ..diagnostics import CallError, Label, Sink
from ..faults import deep
from ..ir import nodes as ir
from ..ir import whole
from ..ir.context import agreed, measuring, visit_clause
from ..ir.dtypes import definition_dtypes
from ..ir.types import BOUNDS, DTYPES_BY_NAME, NUMPY_NAMES, Coordinate, Dtype
from ..records import dataclass
from ..source import Span
from .floats import round_to
from .tables import Table

_EXACT_IN: dict[str, frozenset[str]] = {
    "f64": frozenset(("f16", "bf16", "f32", "f64")),
    "f32": frozenset(("f16", "bf16", "f32")),
    "f16": frozenset(("f16",)),
    "bf16": frozenset(("bf16", "f32")),
}


@dataclass(frozen=True)
class Bound:
    """A call whose arrays fit: sizes known, one table an input."""

    program: ir.Program
    arrays: Mapping[str, np.ndarray[Any, Any]]
    sizes: Mapping[Coordinate, int]
    rests: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, Dtype]

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The inputs' cells, leading `..r` axes as one."""
        result = {}
        for tensor in self.program.inputs:
            array = self.arrays[tensor.name]
            shape = flat_shape(tensor.axes, array.shape)
            cells = array.reshape(-1).tolist()
            if tensor.kind == "real" and array.dtype.kind in "iu":
                cells = [float(cell) for cell in cells]
            result[tensor.name] = Table(shape, cells)
        return result

    @property
    def scalars(self) -> dict[str, int]:
        """The whole scalars of this call."""
        names = (tensor.name for tensor in self.program.inputs if tensor.kind == "whole" and not tensor.axes)
        return {name: int(self.arrays[name]) for name in names}

    def lookup(self, leaf: ir.Size | ir.Read) -> int:
        """A size, or a whole scalar, of this call."""
        if isinstance(leaf, ir.Size):
            return self.sizes[leaf.coordinate]
        if leaf.tensor in self.arrays:
            return int(self.arrays[leaf.tensor])
        let = next(let for let in self.program.lets if let.name == leaf.tensor)
        return whole.value(let.clauses[0].body, self.lookup)

    @deep
    def extent(self, expr: ir.Expr) -> int:
        return max(0, whole.value(expr, self.lookup))

    def shape_of(self, tensor: ir.Input | ir.Let) -> tuple[int, ...]:
        """The lengths of a tensor's axes, each of a leading `..r`."""
        result: list[int] = []
        for axis in tensor.axes:
            if axis.coordinate.rest and isinstance(axis.extent, ir.Size):
                result += self.rests[axis.extent.coordinate.name]
            else:
                result.append(self.extent(axis.extent))
        return tuple(result)


def flat_shape(axes: tuple[ir.Axis, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with the axes of a leading `..r` as one."""
    if not axes or not axes[0].coordinate.rest:
        return shape
    lead = len(shape) - len(axes) + 1
    return (math.prod(shape[:lead]), *shape[lead:])


def bind(program: ir.Program, arguments: Mapping[str, Any], given: Mapping[str, Dtype] | None = None) -> Bound:
    """The arrays of a call, or one error with everything that is wrong with them.

    A plain Python number for a scalar is weak, like a literal: it has no dtype to say. `given` are dtypes
    that NumPy has no word for: those of arrays that stand for others.
    """
    sink = Sink()
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    dtypes: dict[str, Dtype] = {}
    for tensor in program.inputs:
        array = _as_array(tensor, arguments[tensor.name], sink)
        if array is None:
            continue
        dtype = _check_dtype(tensor, array, arguments[tensor.name], sink)
        if given is not None and tensor.dtype is None and dtype is not None:
            dtype = given.get(tensor.name, dtype)
        if dtype is not None and _check_rank(tensor, array, sink):
            arrays[tensor.name] = array if given is not None else rounded(array, dtype)
            if tensor.axes or tensor.dtype is not None or hasattr(arguments[tensor.name], "dtype"):
                dtypes[tensor.name] = dtype
    _stop(sink)
    sizes, rests = _solve(program, arrays, sink)
    _stop(sink)
    bound = Bound(program, arrays, sizes, rests, {**dtypes, **definition_dtypes(program, dtypes)[0]})
    try:
        _check_stated(bound, sink)
        _check_agreement(bound, sink)
        _check_definitions(bound, sink)
    except whole.Unknown:
        sink.report("IX505", "a size cannot be computed from these arrays: it divides by zero or grows too large")
    _stop(sink)
    return bound


def _stop(sink: Sink) -> None:
    if sink.failed:
        raise CallError(sink)


# --------------------------------------------------------------------- arrays


def _as_array(tensor: ir.Input, value: Any, sink: Sink) -> np.ndarray[Any, Any] | None:
    """Anything that NumPy can make an array of: lists, scalars, what speaks `__array__` or DLPack."""
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            array = np.from_dlpack(value)
        else:
            array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as problem:
        first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        sink.report("IX504", f"`{tensor.name}` cannot be made an array: {first}", Label(tensor.span))
        return None
    if "numpy.ma" in sys.modules and np.ma.is_masked(value):  # Its import takes longer than a small call.
        message = f"`{tensor.name}` is a masked array, and its mask would be lost"
        help = f"pass `{tensor.name}.filled(0)`, and the mask as a Boolean input for a guard"
        sink.report("IX504", message, Label(tensor.span), help=help)
        return None
    if array.dtype.kind not in "biuf":
        objects = "an array of Python objects" if hasattr(value, "dtype") else type(value).__name__
        kinds = {"O": objects, "U": "text", "S": "text", "c": "complex numbers"}
        shown = kinds.get(array.dtype.kind, f"an array of {array.dtype}")
        sink.report("IX504", f"`{tensor.name}` needs an array of numbers, and got {shown}", Label(tensor.span))
        return None
    return array


def _check_dtype(tensor: ir.Input, array: np.ndarray[Any, Any], value: Any, sink: Sink) -> Dtype | None:
    """The dtype that the input has in this call. What can lose nothing is converted, all else refused."""
    plain = not hasattr(value, "dtype")
    match tensor.kind, array.dtype.kind:
        case "bool", "b":
            return "bool"
        case "bool", _:
            wanted, help = "true or false", f"pass `{tensor.name}.astype(bool)`, or compare it: `{tensor.name} != 0`"
        case "whole", "i" | "u":
            return _check_whole(tensor, array, plain, sink)
        case "whole", _:
            wanted, help = "whole numbers", f"pass `{tensor.name}.astype(np.int64)` if they are whole"
        case "real", "b":
            wanted, help = "real numbers", f"pass `{tensor.name}.astype(float)` if 1 and 0 are meant"
        case "real", "i" | "u":
            return tensor.dtype or "f64"
        case _:
            return _check_real(tensor, array, plain, sink)
    _refuse(tensor, array, sink, wanted, help)
    return None


def _check_real(tensor: ir.Input, array: np.ndarray[Any, Any], plain: bool, sink: Sink) -> Dtype | None:
    given = DTYPES_BY_NAME.get(array.dtype.name) if array.dtype.kind == "f" else None
    if given is None:
        _refuse(tensor, array, sink, "real numbers of at most 64 bits", f"pass `{tensor.name}.astype(np.float64)`")
        return None
    if tensor.dtype is None or plain:
        return tensor.dtype or given
    if given in _EXACT_IN[tensor.dtype] and (tensor.dtype != "bf16" or np.array_equal(rounded(array, "bf16"), array)):
        return tensor.dtype
    help = f"pass `{tensor.name}.astype(np.{NUMPY_NAMES[tensor.dtype]})` if rounding is meant"
    if tensor.dtype == "bf16":
        help = "NumPy has no bf16: pass float32 numbers that it holds exactly, those with 8 significant bits"
    _refuse(tensor, array, sink, tensor.dtype, help)
    return None


def rounded(array: np.ndarray[Any, Any], dtype: Dtype) -> np.ndarray[Any, Any]:
    """Figures without a dtype of their own, as the dtype of their input has them."""
    stored = NUMPY_NAMES[dtype]
    if array.dtype.kind != "f" or dtype not in ("f16", "bf16", "f32") or array.dtype.name == stored != "float32":
        return array
    if dtype == "bf16":
        return np.array([round_to(cell, dtype) for cell in array.reshape(-1).tolist()]).reshape(array.shape)
    with np.errstate(over="ignore"):
        return array.astype(stored, copy=False)


def _check_whole(tensor: ir.Input, array: np.ndarray[Any, Any], plain: bool, sink: Sink) -> Dtype | None:
    wanted = tensor.dtype or ("i32" if array.dtype.name == "int32" else "i64")
    least, most = BOUNDS[wanted]
    if array.size and (int(array.max()) > most or int(array.min()) < least):
        _refuse(tensor, array, sink, f"{wanted}, and some number does not fit", "use a wider dtype")
        return None
    if not plain and wanted != "i64" and not np.can_cast(array.dtype, NUMPY_NAMES[wanted]):
        _refuse(tensor, array, sink, wanted, f"pass `{tensor.name}.astype(np.{NUMPY_NAMES[wanted]})`")
        return None
    return wanted


def _refuse(tensor: ir.Input, array: np.ndarray[Any, Any], sink: Sink, wanted: str, help: str) -> None:
    message = f"`{tensor.name}` takes {wanted}, and got an array of {array.dtype}"
    sink.report("IX503", message, Label(tensor.span), help=help)


def _check_rank(tensor: ir.Input, array: np.ndarray[Any, Any], sink: Sink) -> bool:
    axes = tensor.axes
    open_ended = bool(axes) and axes[0].coordinate.rest
    if array.ndim == len(axes) or (open_ended and array.ndim >= len(axes) - 1):
        return True
    home = ", ".join(str(axis.coordinate) for axis in axes)
    least = f"at least {counted(len(axes) - 1, 'axis')}" if open_ended else counted(len(axes), "axis")
    sink.report(
        "IX502",
        f"`{tensor.name}` has {least}, and the array has {array.ndim}",
        Label(tensor.span, f"`[{home}]`" if axes else "a scalar"),
        notes=(f"the array's shape is {array.shape}",),
    )
    return False


# ---------------------------------------------------------------------- sizes


def _solve(
    program: ir.Program, arrays: Mapping[str, np.ndarray[Any, Any]], sink: Sink
) -> tuple[dict[Coordinate, int], dict[str, tuple[int, ...]]]:
    """Return the size of each coordinate of the inputs: those that share a name share a size."""
    sizes: dict[Coordinate, int] = {}
    rests: dict[str, tuple[int, ...]] = {}
    places: dict[Coordinate, tuple[Span, str]] = {}
    rest_places: dict[str, Span] = {}
    for tensor in program.inputs:
        shape = arrays[tensor.name].shape
        lead = len(shape) - len(tensor.axes)
        for number, axis in enumerate(tensor.axes):
            if axis.coordinate.rest:
                leading = shape[: lead + 1]
                if rests.setdefault(axis.coordinate.name, leading) != leading:
                    first, place = rests[axis.coordinate.name], rest_places[axis.coordinate.name]
                    message = f"`{axis.coordinate}` is {leading} here and {first} there"
                    sink.report("IX304", message, Label(tensor.span, f"{leading}"), Label(place, f"{first}"))
                rest_places.setdefault(axis.coordinate.name, tensor.span)
                sizes[axis.coordinate] = math.prod(leading)
                continue
            actual = shape[number + (lead if tensor.axes[0].coordinate.rest else 0)]
            if not isinstance(axis.extent, ir.Size):
                continue
            words = f"{actual}, from `{tensor.name}`'s axis {number + max(0, lead)}"
            known = sizes.setdefault(axis.extent.coordinate, actual)
            place, first_words = places.setdefault(axis.extent.coordinate, (axis.extent.span, words))
            if known != actual:
                sink.report(
                    "IX304",
                    f"`{axis.coordinate}` has {actual} points here and {known} there",
                    Label(axis.extent.span, words),
                    Label(place, first_words),
                    help="inputs that share a coordinate name share its size; if these are two coordinates, rename one",
                )
    return sizes, rests


def _check_stated(bound: Bound, sink: Sink) -> None:
    """The axes of inputs whose size the program states."""
    for tensor in bound.program.inputs:
        shape = flat_shape(tensor.axes, bound.arrays[tensor.name].shape)
        for number, (axis, actual) in enumerate(zip(tensor.axes, shape, strict=True)):
            if isinstance(axis.extent, ir.Size):
                continue
            stated = bound.extent(axis.extent)
            if stated != actual:
                sink.report(
                    "IX304",
                    f"`{axis.coordinate}` has {actual} points here, and {stated} are stated",
                    Label(tensor.span, f"{actual}, from `{tensor.name}`'s axis {number}"),
                    Label(axis.extent.span, str(stated)),
                )


def _check_agreement(bound: Bound, sink: Sink) -> None:
    """A coordinate has the size of every axis that it indexes bare: those that only the arrays decide."""
    if all(bound.extent(one) == bound.extent(other) for one, other in agreed(bound.program)):
        return
    tensors = bound.program.tensors
    for let in bound.program.lets:
        found = Sink()
        for clause in let.clauses:
            for one in measuring(visit_clause(clause), tensors):
                words = f"`{one.tensor}`'s axis {one.axis}"
                _compare(bound, one.range, one.extent, words, one.span, found)
        report_all(found, let, bound.program, sink)


def _compare(bound: Bound, range: ir.Range, extent: ir.Expr, axis: str, span: Span, sink: Sink) -> None:
    here, there = bound.extent(extent), bound.extent(range.upper)
    if here != there:
        name = str(range.coordinate).rstrip("'")
        sink.report(
            "IX304",
            f"`{name}` has {here} points here and {there} there",
            Label(span, f"{here}, from {axis}"),
            Label(range.span, f"{there}, from another axis that `{name}` indexes"),
            help="if these are two coordinates, give one another name",
        )


def _check_definitions(bound: Bound, sink: Sink) -> None:
    """Clauses cover their box."""
    for let in bound.program.lets:
        if not is_plain(let):
            fault = check_boxes(let, bound.lookup, tuple(bound.extent(axis.extent) for axis in let.axes))
            if fault is not None:
                report_cover(let, fault, sink)
