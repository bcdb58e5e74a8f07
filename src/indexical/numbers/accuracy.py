"""How far computed numbers are from the true ones, in units in the last place."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from ..ir import nodes as ir
from ..ir.types import Dtype
from ..run.pointwise import check_work
from ..run.reference import Evaluation, Table
from .digits import decimal
from .evaluate import MOST_STEPS
from .inputs import Given, read_inputs
from .interval import Interval, Unsettled
from .ranges import Ranges
from .tower import Special

# Significant bits, and the exponent of the smallest number that has them all.
_FORMATS: dict[str, tuple[int, int]] = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126), "f64": (53, -1022)}


@dataclass(frozen=True, slots=True)
class Worst:
    """The point of an output with the largest error: what was computed there, and what is true."""

    place: tuple[int, ...]
    computed: float
    true: str
    error: Fraction


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The errors of one output, in units in the last place of its dtype; `wrong` counts values that are not finite
    where the true one is, or the reverse."""

    name: str
    coordinates: tuple[str, ...]
    dtype: Dtype
    points: int
    worst: Worst | None
    mean: Fraction
    wrong: int


def measure(
    program: ir.Program, arguments: dict[str, Any], computed: dict[str, tuple[np.ndarray[Any, Any], Dtype]]
) -> tuple[Accuracy, ...]:
    """The errors of computed outputs, for inputs that are taken bit for bit."""
    given = read_inputs(program, arguments, {})
    wanted = tuple(computed)
    check_work(given.bound, wanted, MOST_STEPS)
    bits = 128
    while True:
        try:
            return _measured(program, given, computed, bits)
        except Unsettled:
            bits *= 2
        if bits > 2048:
            message = "some output cannot be enclosed: a comparison, a root or a quotient lies too near its edge"
            raise CallError([Diagnostic("IX513", message)])


def _measured(
    program: ir.Program, given: Given, computed: dict[str, tuple[np.ndarray[Any, Any], Dtype]], bits: int
) -> tuple[Accuracy, ...]:
    numbers = Ranges(bits)
    kinds = {tensor.name: tensor.kind for tensor in program.inputs}
    tables = {
        name: Table(table.shape, [numbers.number(c) if kinds[name] == "real" else c for c in table.cells])
        for name, table in given.tables.items()
    }
    evaluation = Evaluation(program, tables, given.bound.sizes, numbers)
    evaluation.compute(program, tuple(computed))
    return tuple(
        _compared(program.tensors[name], evaluation.tensors[name], array, dtype)
        for name, (array, dtype) in computed.items()
    )


def _compared(tensor: ir.Let | ir.Input, table: Table, array: np.ndarray[Any, Any], dtype: Dtype) -> Accuracy:
    worst: Worst | None = None
    total, wrong = Fraction(0), 0
    for offset, found in enumerate(array.reshape(-1).tolist()):
        true = table.cells[offset]
        error = _error(true, found, dtype)
        if error is None:
            wrong += 1
            continue
        total += error
        if worst is None or error > worst.error:
            worst = Worst(table.place(offset), found, _shown(true), error)
    names = tuple(str(axis.coordinate) for axis in tensor.axes)
    counted = max(1, array.size - wrong)
    return Accuracy(tensor.name, names, dtype, array.size, worst, total / counted, wrong)


def _error(true: Any, found: Any, dtype: Dtype) -> Fraction | None:
    """The distance in units in the last place; None where one of the two is not finite and they differ."""
    if dtype not in _FORMATS:
        return Fraction(int(true or 0) != int(found))
    if true is None:
        true = Interval.of(0, 64)
    if isinstance(true, Special) or not np.isfinite(found):
        same = isinstance(true, Special) and (np.isnan(found) if not true.side else found == true.side * np.inf)
        return Fraction(0) if same else None
    unit = _unit(true, dtype)
    if true.width > unit / 1024:
        raise Unsettled
    middle = (true.lower + true.upper) / 2
    return Fraction(abs(Fraction(found) - middle) / unit)


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
    if true is None:
        return "0"
    low, high = decimal(true.lower, 20), decimal(true.upper, 20)
    return low if low == high else decimal((true.lower + true.upper) / 2, 17)
