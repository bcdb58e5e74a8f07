"""The spelling of operations in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ...ir.functions import FUNCTIONS
from ...ir.operations import Function, Spelling
from ...ir.types import LIBRARY_NAMES, Dtype, Kind
from ..ops import Value
from ..show.code import Code, closed, infix, method, quoted
from ..workspace import TORCH
from .base import Dialect
from .torch_helpers import HELPERS
from .torch_kernels import KERNELS, TEXTS

if TYPE_CHECKING:
    from ..show.printer import Printer

_DTYPES: dict[Kind, Dtype] = {"real": "f64", "whole": "i64", "bool": "bool"}


class Torch(Dialect):
    """Arrays are `torch.Tensor`s, all on one device."""

    name = "torch"
    module = "torch"
    imports: ClassVar = {
        "torch": ("torch", ""),
        "triton": ("triton", ""),
        "tl": ("triton.language as tl", ""),
    }
    helpers: ClassVar = {**HELPERS, **TEXTS}
    kernels = KERNELS
    memory = TORCH
    added: ClassVar = {(0, 1, 0): "addmv", (0, 1, 1): "addmm", (1, 1, 1): "baddbmm", (): "addcmul"}
    view = "view"
    again = "torch_again", ("again",)
    rounds_once = frozenset((*"+-*/", "contract", *(name for name, row in FUNCTIONS.items() if row.torch.once)))

    learns_what_is_read = True
    tiles_folds = True
    folding_file, folding = "torch_fold", "folded"
    overwriting: ClassVar = {
        "+": "{0}.add_({1})",
        "-": "{0}.sub_({1})",
        "*": "{0}.mul_({1})",
        "/": "{0}.div_({1})",
        "neg": "{0}.neg_()",
        "exp": f"{{0}}.mul_({math.log2(math.e)}).exp2_()",  # `exp_` is slow on a CPU where it underflows.
    }
    takes_rows_apart = True
    mixes_widths = True

    def spelling(self, row: Function) -> Spelling:
        return row.torch

    def dtype(self, p: Printer, dtype: Dtype) -> str:
        return p.helper(f"torch.{LIBRARY_NAMES[dtype]}")

    def arange(self, p: Printer, count: str) -> Code:
        return p.call("torch.arange", count, device=p.device())

    def array(self, p: Printer, cells: str, dtype: Dtype) -> Code:
        if not cells.startswith("["):  # A number is made where it is: a copy to a GPU cannot be part of a CUDA graph.
            return p.call("torch.full", "()", cells, dtype=self.dtype(p, dtype), device=p.device())
        return p.call("torch.tensor", cells, dtype=self.dtype(p, dtype), device=p.device())

    def zeros(self, p: Printer, shape: str, dtype: Dtype) -> Code:
        return p.call("torch.zeros", shape, dtype=self.dtype(p, dtype), device=p.device())

    def full(self, p: Printer, shape: str, number: str, dtype: Dtype) -> Code:
        return p.call("torch.full", shape, number, dtype=self.dtype(p, dtype), device=p.device())

    def taken_scalar(self, p: Printer, name: str, dtype: Dtype | None, kind: Kind) -> Code:
        if dtype is None:
            return super().taken_scalar(p, name, dtype, kind)
        return p.call("as_scalar", name, self.dtype(p, dtype), p.device())

    def permute(self, code: str, order: tuple[int, ...]) -> Code:
        return Code(f"{closed(code)}.T") if order == (1, 0) else method(code, "permute", *order)

    def flip(self, p: Printer, code: str, axis: int) -> Code:
        return method(code, "flip", axis)

    def expand(self, p: Printer, code: str, shape: str) -> Code:
        return method(code, "expand", shape)

    def copy(self, code: str) -> Code:
        return method(code, "clone")

    def cast(self, p: Printer, code: str, dtype: Dtype, is_array: bool) -> Code:
        return method(code, "to", self.dtype(p, dtype)) if is_array else self.array(p, code, dtype)

    def scalar(self, p: Printer, code: str) -> Code:
        return Code(code)

    def number_of(self, p: Printer, code: str, unseen: str) -> str:
        p.files.setdefault(self.folding_file, set()).add("number_of")
        return f"number_of({code}, {unseen})"

    def concatenate(self, p: Printer, parts: Sequence[str], axis: int) -> Code:
        return p.call("torch.cat", f"({', '.join(parts)})", *([axis] if axis else []))

    def unbind(self, code: str, axis: int) -> Code:
        return method(code, "unbind", axis)

    def where(self, p: Printer, codes: Sequence[str], one: Value) -> Code:
        condition, *others = codes
        args = one.op.args[1:]  # type: ignore[union-attr]
        if all(map(p.is_number, args)) and (one.kind == "real" or one.dtype not in (None, "i64")):
            # Two numbers have no dtype: the library would take its own.
            others[0] = self.array(p, others[0], one.dtype or _DTYPES[one.kind])
        return p.call("torch.where", condition, *others)

    def function(self, p: Printer, fn: str, codes: Sequence[str], args: Sequence[Value]) -> Code:
        match fn:
            case "max" | "min":
                return self._extreme(p, fn, (codes[0], args[0].is_host), (codes[1], args[1].is_host))
            case "clamp":
                above = self._extreme(p, "max", (codes[0], args[0].is_host), (codes[1], args[1].is_host))
                return self._extreme(p, "min", (above, False), (codes[2], args[2].is_host))
        return p.template(FUNCTIONS[fn].torch.call, codes)

    def _extreme(self, p: Printer, fn: str, one: tuple[str, bool], other: tuple[str, bool]) -> Code:
        """The larger or the smaller: a number bounds an array, arrays meet one another."""
        (array, _), (bound, is_number) = sorted((one, other), key=lambda part: part[1])
        if not is_number:
            return p.call(f"torch.{fn}imum", array, bound)
        return method(array, "clamp", bound) if fn == "max" else method(array, "clamp", max=bound)

    def remainder(self, p: Printer, codes: Sequence[str], args: Sequence[Value]) -> Code:
        first = codes[0]
        if args[0].is_host:
            first = p.call("torch.as_tensor", first, dtype=f"{closed(codes[1])}.dtype", device=p.device())
        return p.call("torch.fmod", first, codes[1])

    def divide(self, p: Printer, fn: str, codes: Sequence[str], args: Sequence[Value]) -> Code:
        first, by = codes
        if args[0].is_host:
            first = self.array(p, first, "i64")
        if not args[1].is_host:
            by = p.call("torch.where", infix("==", by, "0"), 1, by)
        elif not (args[1].known.whole is not None and args[1].known.whole.constant):
            by = Code(f"({by} or 1)")
        return p.call("torch.fmod", first, by) if fn == "%" else p.call("torch.div", first, by, rounding_mode='"trunc"')

    def reduce(self, p: Printer, fn: str, code: str, dims: tuple[int, ...], source: Value, some: bool) -> Code:
        axis: object = dims[0] if len(dims) == 1 else dims
        match fn:
            case "max" | "min" if some:
                return method(code, f"a{fn}", axis)
            case "max" | "min":
                return p.call("largest" if fn == "max" else "smallest", code, dims)
            case "prod":
                for dim in sorted(dims, reverse=True):
                    code = method(code, "prod", dim)
                return Code(code)
        return super().reduce(p, fn, code, dims, source, some)

    def normalize(self, p: Printer, fn: str, code: str, axis: int) -> Code:
        match fn:
            case "softmax" | "log_softmax":
                return p.call(f"torch.{fn}", code, axis)
            case "cumsum" | "cumprod" if axis != -1:
                # Rows that lie apart are run along up to 160 times slower on a GPU, and up to 6 times on a CPU.
                turned = super().normalize(p, fn, method(code, "transpose", axis, -1), -1)
                return method(turned, "transpose", axis, -1)
        return super().normalize(p, fn, code, axis)

    def take(self, p: Printer, code: str, axis: int, place: str, outside: bool) -> Code:
        if outside:
            return p.call("take_or_zero", code, axis, place)
        return p.call("take", code, axis, place)

    def along(self, p: Printer, code: str, axis: int, place: str, outside: bool) -> Code | None:
        return p.call("along_or_zero" if outside else "along", code, axis, place)

    def take_checked(self, p: Printer, code: str, axis: int, place: str, message: str) -> Code:
        return p.call("take_checked", code, axis, place, quoted(message))

    def pick(self, p: Printer, code: str, places: Sequence[str | None], outside: bool) -> Code:
        return p.call("pick_or_zero" if outside else "pick", code, *map(str, places))

    def bmm(self, p: Printer, left: str, right: str) -> Code:
        return p.call("torch.bmm", left, right)

    def linear(self, p: Printer, rows: str, weights: str, addend: str | None = None) -> Code:
        return p.call("torch.nn.functional.linear", rows, weights, *([] if addend is None else [addend]))

    def unsqueeze(self, code: str, axis: int) -> Code:
        return method(code, "unsqueeze", axis)

    def squeeze(self, code: str, axis: int) -> Code:
        return method(code, "squeeze", axis)

    def check_places(self, p: Printer, place: str, count: str, message: str) -> None:
        line = str(p.call("check_places", place, count, quoted(message)))
        if line not in p.refused:
            p.refused.add(line)
            p.add(line)


DIALECT = Torch()
