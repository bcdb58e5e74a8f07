"""What a printer asks of an array library: facts, and the spelling of each operation.

A dialect is a table. One that has NumPy's functions by NumPy's names says what its module is called and where it
differs; no other file asks which library it prints for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ...ir.functions import FUNCTIONS
from ...ir.operations import Function, Spelling
from ...ir.types import NUMPY_NAMES, Dtype, Kind
from ..ops import Value
from ..show.code import CHOICE, Code, closed, indexed, infix, method
from ..show.imports import Import
from ..workspace import Memory

if TYPE_CHECKING:
    from ..show.printer import Printer


class Dialect:
    """A library that has NumPy's functions by NumPy's names."""

    name: ClassVar[str]
    module: ClassVar[str]
    imports: ClassVar[Mapping[str, Import]]  # By the names of modules.
    decorators: ClassVar[Mapping[str, str]] = {}  # Lines above the function, each with the helper or module it names.
    helpers: ClassVar[Mapping[str, str]]  # Small functions by name, which go above what calls them.
    rounds_once: ClassVar[frozenset[str]] = frozenset()  # Done of 16 bits in 32, and rounded once, there and back.
    kernels: ClassVar[Mapping[str, str]] = {}  # The functions that kernels are called by, of the library or helpers.
    memory: ClassVar[Memory]  # What operations need while they run, and how arrays are made.
    # Its sums of an array and a product, which are one call, by how many axes batch, rows and columns have; that of an
    # elementwise product by ().
    added: ClassVar[Mapping[tuple[int, ...], str]] = {}
    view: ClassVar[str] = ""  # The method that makes a view by its shape, where that is quicker than new axes.
    again: ClassVar[tuple[str, tuple[str, ...]]]  # The file and the name of the kernel that computes again.

    may_wait: ClassVar[bool] = True  # A call may be traced, or run later: no number of an array is known.
    mixes_widths: ClassVar[bool] = False  # An array of 16 bits beside one of 32 is widened as it is read.
    updates_in_place: ClassVar[bool] = True  # `x[0] = y`; without it, a store makes a new array.
    fills_rows: ClassVar[bool] = False  # The rows of a recurrence go into one array: no gradient goes through it.
    takes_rows_apart: ClassVar[bool] = False  # In a loop, rows come from a list: a slice has a gradient of its own.
    differentiates: ClassVar[bool] = True  # A gradient may be asked for.
    learns_what_is_read: ClassVar[bool] = False  # What a result does not read has no gradient, and not one of 0.
    flips_by_copying: ClassVar[bool] = True  # An array is never another one's memory from its end to its beginning.
    has_bfloat16: ClassVar[bool] = True  # Without it, such an array has 32 bits, and is rounded.
    tiles_folds: ClassVar[bool] = False  # Sums over keys with normalised weights are loops over tiles.
    tile: ClassVar[tuple[str, str]] = "524288", "512"  # The pairs of a tile over all batches, about, and its keys.
    # The file and the name of what makes a function that has a gradient of the loops of a fold; "" where these stand
    # where they are read.
    folding_file: ClassVar[str] = ""
    folding: ClassVar[str] = ""
    overwriting: ClassVar[Mapping[str, str]] = {}  # Templates by function that write the result over an array.
    folds_rows: ClassVar[bool] = True  # A stack of matrices by one matrix is one product.

    @property
    def reserved(self) -> frozenset[str]:
        """Names that mean something else in its modules."""
        return frozenset(("np", "torch", "jax", "jnp", "functools"))

    def call(self, p: Printer, name: str, *arguments: object, **named: object) -> Code:
        return p.call(f"{self.module}.{name}", *arguments, **named)

    def spelling(self, row: Function) -> Spelling:
        """The column of this library in the table of functions."""
        raise NotImplementedError

    def dtype(self, p: Printer, dtype: Dtype) -> str:
        return "bool" if dtype == "bool" else p.helper(f"{self.module}.{NUMPY_NAMES[dtype]}")

    # -------------------------------------------------------------- making arrays

    def arange(self, p: Printer, count: str) -> Code:
        return self.call(p, "arange", count)

    def array(self, p: Printer, cells: str, dtype: Dtype) -> Code:
        """An array literal, or an array of one number."""
        return self.call(p, "array", cells, self.dtype(p, dtype))

    def zeros(self, p: Printer, shape: str, dtype: Dtype) -> Code:
        return self.call(p, "zeros", shape, self.dtype(p, dtype))

    def full(self, p: Printer, shape: str, number: str, dtype: Dtype) -> Code:
        return self.call(p, "full", shape, number, self.dtype(p, dtype))

    def taken_scalar(self, p: Printer, name: str, dtype: Dtype | None, kind: Kind) -> Code:
        """A scalar that comes as a number or as an array."""
        if dtype is not None:
            return self.call(p, "asarray", name, self.dtype(p, dtype))
        return p.call("as_whole" if kind == "whole" else "bool" if kind == "bool" else "float", name)

    # -------------------------------------------------------------- axes and copies

    def permute(self, code: str, order: tuple[int, ...]) -> Code:
        if order == (1, 0):
            return Code(f"{closed(code)}.T")
        return method(code, "transpose", *order)

    def flip(self, p: Printer, code: str, axis: int) -> Code:
        return indexed(code, [*[":"] * axis, "::-1"])

    def expand(self, p: Printer, code: str, shape: str) -> Code:
        """The array with all axes of a shape, not to be written to."""
        return self.call(p, "broadcast_to", code, shape)

    def copy(self, code: str) -> Code:
        return method(code, "copy")

    def cast(self, p: Printer, code: str, dtype: Dtype, is_array: bool) -> Code:
        return method(code, "astype", self.dtype(p, dtype)) if is_array else self.array(p, code, dtype)

    def scalar(self, p: Printer, code: str) -> Code:
        """A result without axes as an array."""
        return self.call(p, "asarray", code)

    def stack(self, p: Printer, rows: str, axis: int) -> Code:
        return self.call(p, "stack", f"[{rows}]", *([axis] if axis else []))

    def concatenate(self, p: Printer, parts: Sequence[str], axis: int) -> Code:
        """Arrays one behind the other along an axis."""
        return self.call(p, "concatenate", f"({', '.join(parts)})", *([axis] if axis else []))

    def unbind(self, code: str, axis: int) -> Code:
        """The rows of an array along an axis, in a list."""
        raise NotImplementedError

    def store(self, name: str, index: str, code: str) -> str:
        """The line that stores an array in a part of another."""
        return f"{name}[{index}] = {code}"

    def like(self, p: Printer, first: str, shape: str, dtype: Dtype | None) -> Code:
        """An array of any numbers, beside the first of others."""
        return method(first, "new_empty", shape, dtype=self.dtype(p, dtype or "f64"))

    def number_of(self, p: Printer, code: str, unseen: str) -> str:
        """The number in an array without axes, or another one where nobody may look at it."""
        return f"int({code})"

    # ------------------------------------------------------------------- elementwise

    def where(self, p: Printer, codes: Sequence[str], one: Value) -> Code:
        return self.call(p, "where", *codes)

    def branch(self, p: Printer, test: Value, condition: str, yes: str, no: str) -> Code:
        """One of two arrays, by a number of the host."""
        first, test_code, second = (closed(part, CHOICE - 1) for part in (yes, condition, no))
        return Code(f"{first} if {test_code} else {second}", CHOICE)

    def function(self, p: Printer, fn: str, codes: Sequence[str], args: Sequence[Value]) -> Code:
        """A function of the table."""
        return p.template(self.spelling(FUNCTIONS[fn]).call, codes)

    def remainder(self, p: Printer, codes: Sequence[str], args: Sequence[Value]) -> Code:
        return self.call(p, "fmod", *codes)

    def divide(self, p: Printer, fn: str, codes: Sequence[str], args: Sequence[Value]) -> Code:
        """A whole quotient or remainder, truncated toward zero; by 0 it is some number, which a guard removes."""
        return self.call(p, "fmod", *codes) if fn == "%" else p.call("quotient", *codes)

    # -------------------------------------------------------------------- reductions

    def reduce(self, p: Printer, fn: str, code: str, dims: tuple[int, ...], source: Value, some: bool) -> Code:
        """A reduction over some axes; `some` tells that there are points."""
        axis: object = dims[0] if len(dims) == 1 else dims
        if fn in ("argmax", "argmin") and not some:
            return p.call(fn, code, axis)
        if fn in ("max", "min") and not some:
            return method(code, fn, axis, initial=self.least(p, fn, source))
        return method(code, fn, axis)

    def least(self, p: Printer, fn: str, source: Value) -> str:
        """The largest or the smallest of no numbers."""
        if source.kind == "real":
            return f"{'-' if fn == 'max' else ''}{p.helper(f'{self.module}.inf')}"
        bounds = self.call(p, "iinfo", self.dtype(p, source.dtype or "i64"))
        return f"{bounds}.{'min' if fn == 'max' else 'max'}"

    def normalize(self, p: Printer, fn: str, code: str, axis: int) -> Code:
        return method(code, fn, axis) if fn in ("cumsum", "cumprod") else p.call(fn, code, axis)

    def unsqueeze(self, code: str, axis: int) -> Code:
        """The array with a last axis of one point, or with a last but one."""
        return Code(f"{closed(code)}[..., {'None' if axis == -1 else 'None, :'}]")

    def squeeze(self, code: str, axis: int) -> Code:
        """The array without its last axis, or without its last but one, of one point."""
        return Code(f"{closed(code)}[..., {'0' if axis == -1 else '0, :'}]")

    def matmul(self, left: str, right: str) -> Code:
        return infix("@", left, right)

    def bmm(self, p: Printer, left: str, right: str) -> Code:
        """A product of two batches of matrices."""
        return infix("@", left, right)

    def linear(self, p: Printer, rows: str, weights: str, addend: str | None = None) -> Code:
        """Rows by the rows of a matrix; where the library adds products, a vector is added to each."""
        return infix("@", rows, Code(f"{closed(weights)}.T"))

    # ----------------------------------------------------------------------- gathers

    def take(self, p: Printer, code: str, axis: int, place: str, outside: bool) -> Code:
        """An array at places along one axis; where they may be `outside`, 0 there."""
        if outside:
            return p.call("take_or_zero", code, axis, place)
        return indexed(code, [*[":"] * axis, place])

    def along(self, p: Printer, code: str, axis: int, place: str, outside: bool) -> Code | None:
        """An array at a place along one axis for each point of the others; None where that is no quicker call."""
        return None

    def take_checked(self, p: Printer, code: str, axis: int, place: str, message: str) -> Code:
        """The same, refused where there is no such place."""
        self.check_places(p, place, f"{closed(code)}.shape[{axis}]", message)
        return self.take(p, code, axis, place, False)

    def pick(self, p: Printer, code: str, places: Sequence[str | None], outside: bool) -> Code:
        """An array at places along several axes, None for all; where they may be `outside`, 0 there."""
        if outside:
            return p.call("pick_or_zero", code, *map(str, places))
        return indexed(code, [":" if place is None else place for place in places])

    def check_places(self, p: Printer, place: str, count: str, message: str) -> None:
        """Refuse a place that is not one of so many."""
        p.check(f"({place} < 0) | ({place} >= {count})", "IX305", message)

