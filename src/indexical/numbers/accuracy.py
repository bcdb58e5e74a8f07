"""The error of computed numbers against the true ones, in units in the last place."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from ..ir import nodes as ir
from ..ir.types import Dtype
from ..records import dataclass
from ..run.pointwise import check_work
from ..run.reference import Table
from .digits import decimal
from .evaluate import MOST_STEPS, evaluate
from .inputs import Given, read_inputs
from .interval import Interval, Unsettled
from .ranges import Enclosed, Ranges
from .tower import Special, enclose

# Significant bits, and the exponent of the smallest number that has them all; 1 less it is that of the largest.
_FORMATS: dict[str, tuple[int, int]] = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126), "f64": (53, -1022)}

# What intervals of so many bits leave open is computed by exact numbers, which are slower.
_MOST_BITS = 1024


@dataclass(frozen=True, slots=True)
class Worst:
    """The point of an output with the largest error: what was computed there, and what is true."""

    place: tuple[int, ...]
    computed: float
    true: str
    error: Fraction | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The errors of one output, in units in the last place of its dtype; of whole numbers and Booleans, the unit is 1.

    `wrong` counts values that are infinite or NaN where the true one, rounded to the dtype, is not, or the reverse;
    they have no error, and `first_wrong` is the first of them. An overflow is right where the true value is beyond the
    dtype.
    """

    name: str
    coordinates: tuple[str, ...]
    dtype: Dtype
    points: int
    worst: Worst | None
    mean: Fraction
    wrong: int
    first_wrong: Worst | None


def measure(
    program: ir.Program, arguments: dict[str, Any], computed: dict[str, tuple[np.ndarray[Any, Any], Dtype]]
) -> tuple[Accuracy, ...]:
    """The errors of computed outputs, for inputs that are taken bit for bit."""
    given = read_inputs(program, arguments, {})
    wanted = tuple(computed)
    check_work(given.bound, wanted, MOST_STEPS)
    bits = 128
    while bits <= _MOST_BITS:
        with suppress(Unsettled):
            return _compared_all(program, _enclosed(program, given, wanted, bits).tensors, computed)
        bits *= 2
    try:
        return _compared_all(program, _exactly(program, arguments, wanted, bits), computed)
    except Unsettled:
        message = "some output cannot be enclosed: a comparison, a root or a quotient lies too near its edge"
        raise CallError([Diagnostic("IX513", message)]) from None


def _enclosed(program: ir.Program, given: Given, wanted: tuple[str, ...], bits: int) -> Enclosed:
    """The wanted definitions by intervals."""
    numbers = Ranges(bits)
    kinds = {tensor.name: tensor.kind for tensor in program.inputs}
    tables = {
        name: Table(table.shape, [numbers.number(c) if kinds[name] == "real" else c for c in table.cells])
        for name, table in given.tables.items()
    }
    evaluation = Enclosed(program, tables, given.bound.sizes, numbers)
    evaluation.compute(program, wanted)
    return evaluation


def _exactly(program: ir.Program, arguments: dict[str, Any], wanted: tuple[str, ...], bits: int) -> dict[str, Table]:
    """The same by exact numbers, each then enclosed."""
    evaluation = evaluate(program, arguments, {}, wanted).evaluation
    found = {}
    for name in wanted:
        table, real = evaluation.tensors[name], program.tensors[name].kind == "real"
        cells = [c if c is None or not real or isinstance(c, Special) else enclose(c, bits) for c in table.cells]
        found[name] = Table(table.shape, cells)
    return found


def _compared_all(
    program: ir.Program, tables: dict[str, Table], computed: dict[str, tuple[np.ndarray[Any, Any], Dtype]]
) -> tuple[Accuracy, ...]:
    return tuple(
        _compared(program.tensors[name], tables[name], array, dtype) for name, (array, dtype) in computed.items()
    )


def _compared(tensor: ir.Let | ir.Input, table: Table, array: np.ndarray[Any, Any], dtype: Dtype) -> Accuracy:
    worst: Worst | None = None
    first_wrong: Worst | None = None
    total, wrong = Fraction(0), 0
    for offset, found in enumerate(array.reshape(-1).tolist()):
        true = table.cells[offset]
        if dtype in _FORMATS and isinstance(true, int):
            # A branch may give a whole number where another gives a real one.
            true = Interval.of(true, 128)
        error = _error(true, found, dtype)
        if error is None:
            wrong += 1
            first_wrong = first_wrong or Worst(table.place(offset), found, _shown(true), None)
            continue
        total += error
        if worst is None or worst.error is None or error > worst.error:
            worst = Worst(table.place(offset), found, _shown(true), error)
    names = tuple(str(axis.coordinate) for axis in tensor.axes)
    counted = max(1, array.size - wrong)
    return Accuracy(tensor.name, names, dtype, array.size, worst, total / counted, wrong, first_wrong)


def _error(true: Any, found: Any, dtype: Dtype) -> Fraction | None:
    """The distance in units in the last place; None where one of the two is not finite and they differ."""
    if dtype not in _FORMATS:
        return Fraction(abs(int(true or 0) - int(found)))
    if true is None:
        true = Interval.of(0, 64)
    if isinstance(true, Special) or not np.isfinite(found):
        side = true.side if isinstance(true, Special) else _overflow(true, dtype)
        same = side is not None and (np.isnan(found) if not side else found == side * np.inf)
        return Fraction(0) if same else None
    unit = _unit(true, dtype)
    if true.width > unit / 1024:
        raise Unsettled
    middle = (true.lower + true.upper) / 2
    return Fraction(abs(Fraction(found) - middle) / unit)


def _overflow(true: Interval, dtype: Dtype) -> int | None:
    """The side of the infinity to which a dtype rounds a number; None where it does not."""
    precision, least = _FORMATS[dtype]
    edge = Fraction(2) ** (2 - least) * (1 - Fraction(1, 2 ** (precision + 1)))
    if abs(true).lower < edge <= abs(true).upper:
        raise Unsettled
    return true.sign() if abs(true).lower >= edge else None


def _unit(true: Interval, dtype: Dtype) -> Fraction:
    """The distance of neighbouring numbers of the dtype, where the true one lies."""
    precision, least = _FORMATS[dtype]
    size = max(abs(true.lower), abs(true.upper))
    exponent = least
    if size:
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if Fraction(2) ** exponent > size:
            exponent -= 1
    return Fraction(2) ** (max(exponent, least) - precision + 1)


def _shown(true: Any) -> str:
    """The true value, to more digits than any dtype has."""
    if isinstance(true, Special):
        return repr(true)
    if not isinstance(true, Interval):
        return str(true).lower() if isinstance(true, bool) else str(true or 0)
    low, high = decimal(true.lower, 20), decimal(true.upper, 20)
    return low if low == high else decimal((true.lower + true.upper) / 2, 17)
