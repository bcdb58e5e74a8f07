"""The spelling of operations in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...ir.operations import Function, Spelling
from ...ir.types import Dtype, Kind
from ..ops import Value
from ..show.code import Code
from ..workspace import NUMPY
from .base import Dialect
from .numpy_helpers import HELPERS, KERNELS

if TYPE_CHECKING:
    from ..show.printer import Printer


class NumPy(Dialect):
    """Arrays are `numpy.ndarray`s. A bfloat16 is a float32 of eight significant bits."""

    name = "numpy"
    module = "np"
    imports: ClassVar = {"np": ("numpy as np", "")}
    decorators: ClassVar = {'@np.errstate(all="ignore")': "np"}
    helpers = HELPERS
    kernels = KERNELS
    memory = NUMPY

    fills_rows = True
    differentiates = False
    may_wait = False
    flips_by_copying = False
    has_bfloat16 = False
    tiles_folds = True
    folds_rows = False

    def spelling(self, row: Function) -> Spelling:
        return row.numpy

    def taken_scalar(self, p: Printer, name: str, dtype: Dtype | None, kind: Kind) -> Code:
        found = super().taken_scalar(p, name, dtype, kind)
        return p.call("round_bf16", found) if dtype == "bf16" else found

    def cast(self, p: Printer, code: str, dtype: Dtype, is_array: bool) -> Code:
        if dtype == "bf16":
            return p.call("round_bf16", code)
        return super().cast(p, code, dtype, is_array)

    def reduce(self, p: Printer, fn: str, code: str, dims: tuple[int, ...], source: Value, some: bool) -> Code:
        if fn == "mean" and not some:
            return p.call("mean", code, dims[0] if len(dims) == 1 else dims)
        return super().reduce(p, fn, code, dims, source, some)


DIALECT = NumPy()
