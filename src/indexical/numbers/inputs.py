"""Exact inputs: whole numbers, fractions, decimals as written, arrays bit for bit; without a value, symbols."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from ..diagnostics import CallError, Label, Sink
from ..ir import nodes as ir
from ..ir import whole
from ..ir.context import bound_by, visit_clause
from ..ir.types import DEFAULT_DTYPE, NUMPY_NAMES, Coordinate
from ..records import dataclass
from ..run.bind import Bound, bind, flat_shape
from ..run.reference import Table
from ..run.tensors import to_numpy
from .terms import symbol
from .tower import INFINITY


@dataclass(frozen=True, slots=True)
class Given:
    """Inputs that fit a program. `rows` are coordinates whose size nothing says: one point stands for all of them."""

    bound: Bound
    tables: dict[str, Table]
    rows: frozenset[Coordinate]


@dataclass(frozen=True, slots=True)
class Cells:
    """The numbers of an input in row-major order."""

    shape: tuple[int, ...]
    numbers: list[Any]


# An input without values has at most so many symbols.
MOST_SYMBOLS = 100_000


class _Unreadable(Exception):
    """Something that is no exact number, and why."""


def read_inputs(program: ir.Program, arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> Given:
    """The inputs of a call. One that is missing or None is a symbol, sized by what it meets and by `sizes`."""
    sink = Sink()
    _check_sizes(sizes, sink)
    cells: dict[str, Cells] = {}
    for tensor in program.inputs:
        value = arguments.get(tensor.name)
        if value is None:
            if tensor.kind != "real":
                kind = "whole numbers" if tensor.kind == "whole" else "true or false"
                message = f"`{tensor.name}` needs values: it is {kind}, and these decide what is read"
                sink.report("IX512", message, Label(tensor.span))
            continue
        try:
            cells[tensor.name] = _read(tensor, value)
        except _Unreadable as problem:
            sink.report("IX511", f"`{tensor.name}` cannot be read exactly: {problem}", Label(tensor.span))
    if sink.failed:
        raise CallError(sink)
    return _fitted(program, cells, sizes)


def _check_sizes(sizes: Any, sink: Sink) -> None:
    """Sizes are whole numbers by the names of coordinates."""
    good = isinstance(sizes, Mapping) and all(type(size) is int and size >= 0 for size in sizes.values())
    if not good:
        message = f"sizes are whole numbers by the names of coordinates, and not {_shown(sizes)}"
        sink.report("IX515", message, help="pass `sizes={'e': 3}`")
        raise CallError(sink)


# -------------------------------------------------------------------- numbers


def _read(tensor: ir.Input, value: Any) -> Cells:
    if hasattr(value, "detach") or (hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)):
        value = to_numpy(value)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise _Unreadable("it has a NaN, which is no number")
        shape, found = array.shape, array.reshape(-1).tolist()
    else:
        shape, found = _flattened(value)
    return Cells(shape, [_number(tensor, item) for item in found])


def _flattened(value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Nested lists as a shape and what is in them."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return (), [value]
    parts = [_flattened(item) for item in value]
    if not parts:
        return (0,), []
    if any(shape != parts[0][0] for shape, _ in parts):
        raise _Unreadable("its rows differ in length")
    return (len(parts), *parts[0][0]), [item for _, items in parts for item in items]


def _number(tensor: ir.Input, item: Any) -> Any:
    if tensor.kind == "bool":
        if not isinstance(item, bool):
            raise _Unreadable(f"it takes true or false, and got {_shown(item)}")
        return item
    if isinstance(item, bool):
        raise _Unreadable(f"it takes numbers, and got {item}")
    number = item if type(item) is int else _real(item)
    if tensor.kind == "whole" and not isinstance(number, int):
        raise _Unreadable(f"it takes whole numbers, and got {_shown(item)}")
    return number


def _real(item: Any) -> Any:
    """A rational or an infinity, which masks are made of."""
    item = item.strip() if isinstance(item, str) else item.item() if isinstance(item, np.generic) else item
    found = _INFINITIES.get(str(item).lower()) if isinstance(item, str | float | Decimal) else None
    found = rational(item) if found is None else found
    if found is None:
        raise _Unreadable(f"{_shown(item)} is no number")
    return found


_INFINITIES = {
    sign + word: side
    for sign, side in (("", INFINITY), ("+", INFINITY), ("-", -INFINITY))
    for word in ("inf", "infinity", "∞")
}


def rational(item: Any) -> int | Fraction | None:
    """A whole number, fraction, decimal or float as it stands; None for anything else, NaN and infinities too."""
    if isinstance(item, np.generic):
        item = item.item()
    if not isinstance(item, str | int | float | Fraction | Decimal):
        return None
    try:
        number = Fraction(item)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return number.numerator if number.denominator == 1 else number


def _shown(item: Any) -> str:
    text = f"`{item}`" if isinstance(item, str) else str(item)
    return text if len(text) <= 40 else f"{text[:40]}…"


# ---------------------------------------------------------------------- sizes


def _fitted(program: ir.Program, cells: dict[str, Cells], chosen: Mapping[str, int]) -> Given:
    sizes, rests = _sizes_given(program, cells, chosen)
    if len(cells) < len(program.inputs):
        _infer(program, sizes, cells)
    rows: set[Coordinate] = set()
    tables: dict[str, Table] = {}
    stand_ins: dict[str, Any] = {}
    for tensor in program.inputs:
        if tensor.name not in cells:
            cells[tensor.name] = _symbols(tensor, sizes, rests, rows, cells)
        found = cells[tensor.name]
        stand_ins[tensor.name] = _stand_in(tensor, found)
        if len(found.shape) >= len(tensor.axes) - 1:
            tables[tensor.name] = Table(flat_shape(tensor.axes, found.shape), found.numbers)
    _check_rows(program, frozenset(rows))
    return Given(bind(program, stand_ins), tables, frozenset(rows))


def _stand_in(tensor: ir.Input, found: Cells) -> np.ndarray[Any, Any]:
    """An array of the same shape, whose values matter for whole numbers and Booleans alone."""
    if tensor.kind == "real":
        return np.broadcast_to(np.zeros((), NUMPY_NAMES[tensor.dtype or "f64"]), found.shape)
    try:
        dtype = NUMPY_NAMES[tensor.dtype or DEFAULT_DTYPE[tensor.kind]]
        return np.array(found.numbers, dtype=dtype).reshape(found.shape)
    except OverflowError:
        sink = Sink()
        sink.report("IX511", f"`{tensor.name}` has a whole number that does not fit", Label(tensor.span))
        raise CallError(sink) from None


def _sizes_given(
    program: ir.Program, cells: Mapping[str, Cells], chosen: Mapping[str, int]
) -> tuple[dict[Coordinate, int], dict[str, tuple[int, ...]]]:
    """Return the sizes that follow from the values and from what the caller chose."""
    sizes: dict[Coordinate, int] = {}
    rests: dict[str, tuple[int, ...]] = {}
    known = {axis.coordinate.name: axis for tensor in program.inputs for axis in tensor.axes}
    for name, size in chosen.items():
        if name not in known:
            names = ", ".join(known) or "none"
            sink = Sink()
            sink.report("IX512", f"no input has a coordinate `{name}`", help=f"they have {names}")
            raise CallError(sink)
        sizes[known[name].coordinate] = size
    for tensor in program.inputs:
        if tensor.name in cells:
            shape = cells[tensor.name].shape
            for axis, length in zip(reversed(tensor.axes), reversed(shape), strict=False):
                if axis.coordinate.rest:
                    rests[axis.coordinate.name] = shape[: len(shape) - len(tensor.axes) + 1]
                elif isinstance(axis.extent, ir.Size):
                    said = chosen.get(axis.coordinate.name, length)
                    if said != length:
                        message = (
                            f"`{axis.coordinate}` has {length} points in `{tensor.name}`, and {said} are asked for"
                        )
                        sink = Sink()
                        sink.report("IX304", message, Label(tensor.span))
                        raise CallError(sink)
                    sizes.setdefault(axis.extent.coordinate, length)
    return sizes, rests


def _infer(program: ir.Program, sizes: dict[Coordinate, int], cells: Mapping[str, Cells]) -> None:
    """A coordinate has the size of every axis that it indexes bare: this sizes symbols by what they meet."""
    tensors = program.tensors
    pairs = [
        (tensors[expr.tensor].axes[number].extent, range.upper)
        for let in program.lets
        for clause in let.clauses
        for expr, trail in visit_clause(clause)
        if isinstance(expr, ir.Read)
        for number, index in enumerate(expr.indices)
        if isinstance(index, ir.Coord) and not (range := bound_by(index.coordinate, trail)).stated
    ]
    changed = True
    while changed:
        changed = False
        for pair in pairs:
            for open_end, other in (pair, pair[::-1]):
                if isinstance(open_end, ir.Size) and open_end.coordinate not in sizes:
                    found = _size(other, sizes, cells)
                    if found is not None:
                        sizes[open_end.coordinate] = found
                        changed = True


def _size(expr: ir.Expr, sizes: Mapping[Coordinate, int], cells: Mapping[str, Cells]) -> int | None:
    def lookup(leaf: ir.Size | ir.Read) -> int:
        if isinstance(leaf, ir.Size) and leaf.coordinate in sizes:
            return sizes[leaf.coordinate]
        if isinstance(leaf, ir.Read) and leaf.tensor in cells and not cells[leaf.tensor].shape:
            return int(cells[leaf.tensor].numbers[0])
        raise whole.Unknown

    try:
        return max(0, whole.value(expr, lookup))
    except whole.Unknown:
        return None


def _symbols(
    tensor: ir.Input,
    sizes: dict[Coordinate, int],
    rests: Mapping[str, tuple[int, ...]],
    rows: set[Coordinate],
    cells: Mapping[str, Cells],
) -> Cells:
    """An input without values: one symbol for each of its points."""
    steps: list[Sequence[int | str]] = []
    shape: list[int] = []
    for axis in tensor.axes:
        if axis.coordinate.rest:
            lengths = rests.get(axis.coordinate.name, ())
            steps += [range(length) for length in lengths]
            shape += lengths
            continue
        size = _size(axis.extent, sizes, cells)
        if size is None:
            assert isinstance(axis.extent, ir.Size)
            rows.add(axis.extent.coordinate)
        open_end = isinstance(axis.extent, ir.Size) and axis.extent.coordinate in rows
        steps.append([axis.coordinate.name] if open_end or size is None else range(size))
        shape.append(1 if size is None or open_end else size)
    if math.prod(shape) > MOST_SYMBOLS:
        sink = Sink()
        message = f"`{tensor.name}` would be {math.prod(shape):,} symbols, and at most {MOST_SYMBOLS:,} are made"
        sink.report("IX507", message, Label(tensor.span), help="give it values, or smaller sizes")
        raise CallError(sink)
    return Cells(tuple(shape), [symbol(tensor.name, place) for place in itertools.product(*steps)])


# ----------------------------------------------------------------------- rows


def _check_rows(program: ir.Program, rows: frozenset[Coordinate]) -> None:
    """Check that coordinates of unknown size are only batch axes: each definition has them once and reads no value."""
    if not rows:
        return
    sink = Sink()
    for let in program.lets:
        for clause in let.clauses:
            _check_clause(let, clause, rows, program.tensors, sink)
    if sink.failed:
        # One finding for each coordinate: the first place says it.
        first = {found.help: found for found in reversed(list(sink))}
        raise CallError(reversed(first.values()))


def _check_clause(
    let: ir.Let,
    clause: ir.Clause,
    rows: frozenset[Coordinate],
    tensors: Mapping[str, ir.Input | ir.Let],
    sink: Sink,
) -> None:
    carried = [range for range in clause.ranges if isinstance(range.upper, ir.Size) and range.upper.coordinate in rows]
    names = {range.coordinate for range in carried}
    if len({range.upper for range in carried}) < len(carried):
        _refuse(carried[0].upper, "stands twice in one definition", let.span, sink)
    bare: set[int] = set()
    for expr, _ in visit_clause(clause):
        if isinstance(expr, ir.Read):
            bare |= {id(index) for index in expr.indices if isinstance(index, ir.Coord)}
            for axis, index in zip(tensors[expr.tensor].axes, expr.indices, strict=True):
                is_row = isinstance(axis.extent, ir.Size) and axis.extent.coordinate in rows
                if is_row and not (isinstance(index, ir.Coord) and index.coordinate in names):
                    _refuse(axis.extent, "is needed here", expr.span, sink)
    for expr, _ in visit_clause(clause):
        if isinstance(expr, ir.Size) and expr.coordinate in rows:
            _refuse(expr, "is needed here", expr.span, sink)
        elif isinstance(expr, ir.Normalize) and expr.coordinate in names:
            _refuse(_upper(carried, expr.coordinate), "is normalised", expr.span, sink)
        elif isinstance(expr, ir.Coord) and expr.coordinate in names and id(expr) not in bare:
            _refuse(_upper(carried, expr.coordinate), "is looked at", expr.span, sink)


def _upper(ranges: list[ir.Range], coordinate: Coordinate) -> ir.Expr:
    return next(range.upper for range in ranges if range.coordinate == coordinate)


def _refuse(size: ir.Expr, words: str, span: Any, sink: Sink) -> None:
    assert isinstance(size, ir.Size)
    name = size.coordinate.name
    message = f"`{name}` {words}, and nothing says how many points it has"
    sink.report(
        "IX512", message, Label(span), help=f"give values, or a size: `sizes={{'{name}': 3}}`, `--sizes {name}=3`"
    )
