"""The error of computed numbers against the true ones, in units in the last place."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics import CallError, Diagnostic, Label
from ..ir import nodes as ir
from ..ir.needs import needed
from ..ir.types import Dtype
from ..records import dataclass, replace
from ..run.bind import Bound, bind
from ..run.pointwise import work_of
from ..run.reference import Table
from .arrays import Arrays, by_arrays
from .balls import Ball, Unfit, exactly
from .digits import ends
from .evaluate import MOST_STEPS, evaluate
from .inputs import Given, read_inputs
from .interval import Interval, Unsettled
from .ranges import Enclosed, Ranges
from .suppositions import FORMATS, units
from .tower import Special, enclose
from .truth import Pointwise, Spent

if TYPE_CHECKING:
    from .reasons import Reason

# What intervals of so many bits leave open is computed by exact numbers, which are slower.
_MOST_BITS = 1024

# A call of fewer steps is enclosed point by point, all of it. Of a larger one so many are taken for single points.
FEW_STEPS = 400_000
SPOT_STEPS = 1_000_000

# Beside its error, a true value is known this well at least: so many times better than a unit, or than the error.
SHARPER = 1024


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
    dtype. `measured` is how many of the `points` were looked at: all, unless the call is too large for that. All but
    `missed` of them are proved to be the nearest number of the dtype. `reasons` say why it is off, each tested.
    """

    name: str
    coordinates: tuple[str, ...]
    dtype: Dtype
    points: int
    worst: Worst | None
    mean: Fraction
    wrong: int
    first_wrong: Worst | None
    measured: int = 0
    missed: int = 0
    reasons: tuple[Reason, ...] = ()


Computed = dict[str, tuple[np.ndarray[Any, Any], Dtype]]


def measure(program: ir.Program, arguments: dict[str, Any], computed: Computed) -> tuple[Accuracy, ...]:
    """The errors of computed outputs, for inputs that are taken bit for bit."""
    wanted = tuple(computed)
    bound = bind(program, arguments)
    if any(array.dtype.kind == "f" and np.isnan(array).any() for array in bound.arrays.values()):
        read_inputs(program, arguments, {})  # Says which input it is.
    found: tuple[Accuracy, ...] | None = None
    if _work(bound, wanted) > FEW_STEPS:
        found = _by_arrays(program, bound, computed)
    if found is None:
        found = _by_points(program, bound, arguments, computed)
    return tuple(_with_reasons(program, bound, output, *computed[output.name]) for output in found)


def _with_reasons(
    program: ir.Program, bound: Bound, output: Accuracy, array: np.ndarray[Any, Any], dtype: Dtype
) -> Accuracy:
    if dtype not in FORMATS or (output.worst is None and not output.wrong):
        return output
    from .reasons import find_reasons  # Of a kernel that is right, nobody asks.

    worst = output.worst or output.first_wrong
    assert worst is not None
    error = None if output.worst is None or output.wrong else output.worst.error
    found = find_reasons(program, bound, output.name, array, dtype, worst.place, error, output.missed, output.measured)
    return replace(output, reasons=found)


# ------------------------------------------------------------------ all at once


def _by_arrays(program: ir.Program, bound: Bound, computed: Computed) -> tuple[Accuracy, ...] | None:
    """All points within radii of 64 bits, and by intervals where that is not sharp enough; None where it is not the
    way: a recurrence, for one, or 64 bits that were computed."""
    if any(dtype == "f64" for _, dtype in computed.values()):
        return None
    try:
        tables = by_arrays(program, bound, tuple(computed))
    except Unfit:
        return None
    results = []
    for name, (array, dtype) in computed.items():
        errors, open_ended = _errors(tables[name], array, dtype)
        spots = np.flatnonzero(open_ended)
        at_worst = np.argmax(np.where(open_ended, -1.0, errors)) if errors.size else 0
        first = sorted({int(at_worst), *map(int, spots)}, key=lambda at: at != at_worst) if errors.size else []
        sharp = _at_points(program, bound, name, array, dtype, first)
        if len(sharp) < len(first):
            return None
        proved = _are_nearest(tables[name], array, dtype)
        results.append(_gathered(program.tensors[name], array, dtype, sharp, errors, proved))
    return tuple(results)


def _errors(table: Any, array: np.ndarray[Any, Any], dtype: Dtype) -> tuple[Any, Any]:
    """The errors in units, flat, and where they are not known well enough: not finite, or within too large a radius."""
    found = array.reshape(-1).astype(np.float64)
    if dtype not in FORMATS:
        flat = np.broadcast_to(np.asarray(table), table.shape).reshape(-1)
        return np.abs(flat.astype(np.float64) - found), np.zeros(found.shape, bool)
    ball = (table if isinstance(table, Ball) else exactly(table, True)).spread_out()
    middle, radius = (np.asarray(part).reshape(-1) for part in (ball.middle, ball.radius))
    with np.errstate(all="ignore"):
        unit = units(np.abs(middle) + radius, dtype)
        off = np.abs(found - middle)
        sharp = (radius * SHARPER <= unit) | (radius * SHARPER <= off)
        return off / unit, ~(sharp & np.isfinite(off))


def _are_nearest(table: Any, array: np.ndarray[Any, Any], dtype: Dtype) -> Any:
    """Whether each number is proved to be the nearest to the true one, flat: no further than half way to the next."""
    numbers = array.reshape(-1).astype(np.float64)
    if dtype not in FORMATS:
        return np.ones(numbers.shape, bool)
    ball = (table if isinstance(table, Ball) else exactly(table, True)).spread_out()
    middle, radius = (np.asarray(part).reshape(-1) for part in (ball.middle, ball.radius))
    with np.errstate(all="ignore"):
        size = np.abs(numbers)
        outward = np.copysign(1.0, numbers) * (middle - numbers)
        # Toward 0 the next number is nearer where this one is a power of 2.
        away, back = units(size, dtype) / 2, units(size * (1 - 2.0**-52), dtype) / 2
        margin = radius + np.abs(middle) * 2.0**-51
        return (outward + margin <= away) & (-outward + margin <= back)


def _is_nearest(true: Any, found: float, dtype: Dtype) -> bool:
    """Whether a number is proved to be the nearest to the true one."""
    if dtype not in FORMATS or not isinstance(true, Interval) or not np.isfinite(found):
        return True
    size, sign = Fraction(abs(found)), -1 if found < 0 else 1
    lower, upper = sorted((sign * true.lower, sign * true.upper))
    back = _unit_of(size * (1 - Fraction(1, 2**60)), dtype)
    return upper - size <= _unit_of(size, dtype) / 2 and size - lower <= back / 2


def _gathered(
    tensor: ir.Let | ir.Input,
    array: np.ndarray[Any, Any],
    dtype: Dtype,
    sharp: dict[int, Point],
    errors: Any,
    proved: Any = None,
) -> Accuracy:
    """One output: errors of all points from arrays, and of some from intervals, which count before them. `proved` are
    the points that are known to be the nearest numbers; without it, only those that are `sharp` were looked at."""
    flat = array.reshape(-1)
    nearest = np.ones(flat.shape, bool) if proved is None else proved
    for at, point in sharp.items():
        nearest[at] = _is_nearest(point.true, flat[at].item(), dtype)
    missing = [at for at, point in sharp.items() if point.error is None]
    for at, point in sharp.items():
        errors[at] = 0.0 if point.error is None else float(min(point.error, Fraction(10**300)))
    worst = max((at for at in sharp if at not in missing), key=lambda at: sharp[at].error or 0, default=None)
    total = Fraction(float(errors.sum())) / max(1, array.size - len(missing)) if errors.size else Fraction(0)
    return Accuracy(
        tensor.name,
        tuple(str(axis.coordinate) for axis in tensor.axes),
        dtype,
        array.size,
        None if worst is None else sharp[worst].shown(array),
        total,
        len(missing),
        sharp[min(missing)].shown(array) if missing else None,
        array.size,
        int((~nearest).sum()),
    )


# --------------------------------------------------------------- point by point


@dataclass(frozen=True, slots=True)
class Point:
    """A point by its offset: the true value, and the error."""

    offset: int
    true: Any
    error: Fraction | None

    def shown(self, array: np.ndarray[Any, Any]) -> Worst:
        place = tuple(map(int, np.unravel_index(self.offset, array.shape))) if array.ndim else ()
        return Worst(place, array.reshape(-1)[self.offset].item(), _shown(self.true), self.error)


def _at_points(
    program: ir.Program, bound: Bound, name: str, array: np.ndarray[Any, Any], dtype: Dtype, offsets: list[int]
) -> dict[int, Point]:
    """The errors at some points, in this order, as far as the steps last."""
    found: dict[int, Point] = {}
    flat = array.reshape(-1)
    bits, steps = 128, SPOT_STEPS
    while bits <= _MOST_BITS and len(found) < len(offsets):
        try:
            evaluation = Pointwise(program, bound, bits, (name,), steps)
            for offset in offsets:
                if offset not in found:
                    true = _real(evaluation.tensors[name].cells[offset], dtype)
                    found[offset] = Point(offset, true, _error(true, flat[offset].item(), dtype))
        except Unsettled:
            bits *= 2
            continue
        except Spent:
            break
    return found


def _by_points(
    program: ir.Program, bound: Bound, arguments: dict[str, Any], computed: Computed
) -> tuple[Accuracy, ...]:
    """By intervals: all points, or those for which the steps last, spread over the output."""
    wanted = tuple(computed)
    if _work(bound, wanted) <= FEW_STEPS:
        return _all_points(program, arguments, computed)
    _check_recurrences(program, bound, wanted)
    results = []
    for name, (array, dtype) in computed.items():
        order = [*dict.fromkeys([*_likely(program, bound, name, array), *_spread(array.size)])]
        sharp = _at_points(program, bound, name, array, dtype, order)
        if order and not sharp:
            message = f"no point of `{name}` is enclosed in {SPOT_STEPS:,} steps"
            raise CallError([Diagnostic("IX507", message, help="choose smaller sizes, or ask for fewer outputs")])
        kept = [at for at in order if at in sharp]
        part = _gathered(program.tensors[name], array, dtype, sharp, np.zeros(array.size))
        counted = max(1, len(kept) - part.wrong)
        results.append(replace(part, mean=part.mean * max(1, array.size - part.wrong) / counted, measured=len(kept)))
    return tuple(results)


def _work(bound: Bound, wanted: tuple[str, ...]) -> int:
    """About how many points all that is wanted visits."""
    names = needed(bound.program, wanted)
    return sum(work_of(bound, let) for let in bound.program.lets if let.name in names)


def _check_recurrences(program: ir.Program, bound: Bound, wanted: tuple[str, ...]) -> None:
    """Refuse a recurrence that would not end in reasonable time: all of it is needed for any point."""
    names = needed(program, wanted) & program.recurrent
    for let in program.lets:
        if let.name in names and work_of(bound, let) > MOST_STEPS:
            message = f"`{let.name}` would take {work_of(bound, let):,} steps, and at most {MOST_STEPS:,} are taken"
            help = "choose smaller sizes, or ask for fewer outputs"
            raise CallError([Diagnostic("IX507", message, (Label(let.span),), help=help)])


def _likely(program: ir.Program, bound: Bound, name: str, array: np.ndarray[Any, Any]) -> list[int]:
    """The points that differ the most from what plain floats of 64 bits make of them."""
    try:
        found = Arrays(program, bound, False).compute((name,))[name]
    except Unfit:
        return []
    middle = np.broadcast_to(found.middle if isinstance(found, Ball) else found, found.shape).reshape(-1)
    with np.errstate(all="ignore"):
        off = np.nan_to_num(np.abs(array.reshape(-1) - middle) / np.maximum(np.abs(middle), 2.0**-1000))
    return [int(at) for at in np.argsort(-off)[:4]]


def _spread(count: int) -> list[int]:
    """All places from 0 up to a number, so that the first ones of them lie far apart: by the golden section."""
    return sorted(range(count), key=lambda n: n * 0.6180339887498949 % 1)


def _all_points(program: ir.Program, arguments: dict[str, Any], computed: Computed) -> tuple[Accuracy, ...]:
    given = read_inputs(program, arguments, {})
    wanted, bits = tuple(computed), 128
    while bits <= _MOST_BITS:
        with suppress(Unsettled):
            return _compared_all(program, _enclosed(program, given, wanted, bits).tensors, computed)
        bits *= 2
    try:
        return _compared_all(program, _exactly(program, arguments, wanted, bits), computed)
    except Unsettled:
        raise _undecided() from None


def _undecided() -> CallError:
    message = "some output cannot be enclosed: a comparison, a root or a quotient lies too near its edge"
    return CallError([Diagnostic("IX513", message)])


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


def _compared_all(program: ir.Program, tables: dict[str, Table], computed: Computed) -> tuple[Accuracy, ...]:
    results = []
    for name, (array, dtype) in computed.items():
        flat = array.reshape(-1).tolist()
        trues = [_real(true, dtype) for true in tables[name].cells]
        found = {n: Point(n, true, _error(true, flat[n], dtype)) for n, true in enumerate(trues)}
        output = _gathered(program.tensors[name], array, dtype, found, np.zeros(array.size))
        exact = sum((point.error for point in found.values() if point.error is not None), Fraction(0))
        results.append(replace(output, mean=exact / max(1, array.size - output.wrong)))
    return tuple(results)


def _real(true: Any, dtype: Dtype) -> Any:
    """An interval where the dtype is one of reals: a branch may give a whole number where another gives a real one."""
    return Interval.of(true, 128) if dtype in FORMATS and isinstance(true, int) else true


def _error(true: Any, found: Any, dtype: Dtype) -> Fraction | None:
    """The distance in units in the last place; None where one of the two is not finite and they differ."""
    if dtype not in FORMATS:
        return Fraction(abs(int(true or 0) - int(found)))
    if true is None:
        true = Interval.of(0, 64)
    if isinstance(true, Special) or not np.isfinite(found) or _overflow(true, dtype) is not None:
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
    precision, least = FORMATS[dtype]
    edge = Fraction(2) ** (2 - least) * (1 - Fraction(1, 2 ** (precision + 1)))
    if abs(true).lower < edge <= abs(true).upper:
        raise Unsettled
    return true.sign() if abs(true).lower >= edge else None


def _unit(true: Interval, dtype: Dtype) -> Fraction:
    """The distance of neighbouring numbers of the dtype, where the true one lies."""
    return _unit_of(max(abs(true.lower), abs(true.upper)), dtype)


def _unit_of(size: Fraction, dtype: Dtype) -> Fraction:
    precision, least = FORMATS[dtype]
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
    low, high = ends(true, 20)
    return low if low == high else ends(true, 17)[0]
