"""Published figures, checked exactly: each holds, or fails with the exact value beside it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from ..diagnostics import CallError, Diagnostic, Label
from ..ir import nodes as ir
from ..ir.walk import parts_of, walk
from ..run.needs import needs
from ..run.reference import Table
from .evaluate import Evaluated, explained
from .interval import Interval, Unsettled
from .ranges import Ranges, Rounded
from .results import Value
from .tower import Special, divide

Verdict = Literal["holds", "rounding", "fails"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of a claim, at one point.

    `distance` is how far the exact value is from the figure, `units` the same in units of the figure's last digit.
    `explained` says whether the rounding of inputs that are marked as printed could account for it: None where no
    figure that it depends on is marked.
    """

    place: tuple[int, ...]
    claimed: str
    value: Value
    holds: bool
    distance: Value | None
    units: Value | None
    explained: bool | None
    bounds: Interval | None

    @property
    def verdict(self) -> Verdict:
        return "holds" if self.holds else "rounding" if self.explained else "fails"


@dataclass(frozen=True, slots=True)
class Claim:
    """One `expect`, with a cell for every point that it speaks of."""

    text: str
    left: str
    coordinates: tuple[str, ...]
    cells: tuple[Cell, ...]
    line: int

    @property
    def verdict(self) -> Verdict:
        verdicts = {cell.verdict for cell in self.cells}
        return "fails" if "fails" in verdicts else "rounding" if "rounding" in verdicts else "holds"

    @property
    def failing(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.verdict != "holds")


def claimed_names(program: ir.Program) -> tuple[str, ...]:
    """The definitions that the claims speak of."""
    lets = {let.name for let in program.lets}
    reads = [
        part.tensor
        for expect in program.expects
        for expr in (expect.body, *(bound for r in expect.ranges for bound in (r.lower, r.upper)))
        for part in walk(expr)
        if isinstance(part, ir.Read)
    ]
    return tuple(name for name in dict.fromkeys(reads) if name in lets)


def check_claims(evaluated: Evaluated) -> tuple[Claim, ...]:
    """Every `expect` of a program, cell by cell."""
    rounded = _Rounding(evaluated)
    return tuple(_claim(evaluated, expect, rounded) for expect in evaluated.program.expects)


def _claim(evaluated: Evaluated, expect: ir.Expect, rounded: _Rounding) -> Claim:
    evaluation = evaluated.evaluation
    cells = []
    with explained(evaluation):
        points = [dict(point) for point in evaluation.points(expect.ranges, {}, {})]
        _check_shape(evaluated, expect)
        for number, point in enumerate(points):
            at = number if expect.shape else 0
            cells.append(_cell(evaluated, expect, point, expect.figures[at], expect.digits[at], rounded))
    text = " ".join(expect.span.text.split())
    left = text.removeprefix("expect").rpartition("==")[0].strip()
    names = tuple(str(range.coordinate).rstrip("'") for range in expect.ranges)
    return Claim(text, left, names, tuple(cells), expect.span.line)


def _check_shape(evaluated: Evaluated, expect: ir.Expect) -> None:
    """As many figures as points."""
    if not expect.shape:
        return
    evaluation = evaluated.evaluation
    found = tuple(max(0, evaluation.value(r.upper, {}) - evaluation.value(r.lower, {})) for r in expect.ranges)
    if found != expect.shape:
        shown = " × ".join(map(str, found))
        message = f"the figures are {' × '.join(map(str, expect.shape))}, and the left side is {shown}"
        raise CallError([Diagnostic("IX304", message, (Label(expect.span),))])


def _cell(
    evaluated: Evaluated,
    expect: ir.Expect,
    point: dict[Any, int],
    figure: ir.Const | None,
    digits: int | None,
    rounded: _Rounding,
) -> Cell:
    place = tuple(point[range.coordinate] for range in expect.ranges)
    value = _value(evaluated, expect, point)
    if figure is None:
        return Cell(place, "masked", value, value.masked, None, None, None, None)
    claimed = figure.span.text
    if figure.type.kind == "bool" or isinstance(value.number, bool):
        holds = value.number is figure.value
        return Cell(place, claimed, value, holds, None, None, None, None)
    if isinstance(value.number, Special):
        return Cell(place, claimed, value, False, None, None, None, None)
    wanted = Fraction(figure.value)
    half = Fraction(1, 2) / Fraction(10) ** digits if digits is not None else Fraction(0)
    holds = wanted - half <= value <= wanted + half if half else value == wanted
    if holds:
        return Cell(place, claimed, value, True, None, None, None, None)
    distance = abs(value - wanted)
    units = None if digits is None else Value(divide(distance.number, 2 * half))
    bounds = rounded.bounds(expect, point)
    could = None if bounds is None else not (bounds.upper < wanted - half or bounds.lower > wanted + half)
    return Cell(place, claimed, value, False, distance, units, could, bounds)


def _value(evaluated: Evaluated, expect: ir.Expect, point: dict[Any, int]) -> Value:
    """The left side at a point. An element keeps its name, so that it can say how it was built."""
    evaluation = evaluated.evaluation
    body = expect.body
    if isinstance(body, ir.Read) and body.tensor in evaluation.lets:
        table = evaluation.tensors[body.tensor]
        offset = table.offset(tuple(evaluation.value(index, point) for index in body.indices))
        return Value(table.cells[offset], evaluated, body.tensor, offset)
    found = Value(evaluation.value(body, point))
    found.masked = evaluation.is_removed(body, point)
    return found


class _Rounding:
    """The program once more, with every figure that is marked as printed anywhere within its rounding."""

    def __init__(self, evaluated: Evaluated) -> None:
        self.evaluated = evaluated
        self.evaluation: Rounded | None = None
        self.marked = _marked(evaluated.program)

    def bounds(self, expect: ir.Expect, point: dict[Any, int]) -> Interval | None:
        """Where the left side can be. None where nothing that it depends on is marked, or nothing is certain."""
        reads = {part.tensor for part in walk(expect.body) if isinstance(part, ir.Read)}
        here = needs(self.evaluated.program, tuple(reads))
        if not here & self.marked:
            return None
        try:
            if self.evaluation is None:
                self.evaluation = self._run()
            found = self.evaluation.value(expect.body, point)
        except (Unsettled, OverflowError, ValueError):
            return None
        return found if isinstance(found, Interval) else None

    def _run(self) -> Rounded:
        numbers = Ranges(256, wide=True)
        evaluated = self.evaluated
        tables = {}
        for tensor in evaluated.program.inputs:
            table = evaluated.table(tensor.name)
            cells = [numbers.number(cell) if tensor.kind == "real" else cell for cell in table.cells]
            tables[tensor.name] = Table(table.shape, cells)
        evaluation = Rounded(evaluated.program, tables, evaluated.evaluation.sizes, numbers)
        evaluation.compute(evaluated.program, claimed_names(evaluated.program))
        return evaluation


def _marked(program: ir.Program) -> set[str]:
    """The definitions whose own text has figures that are marked as printed."""
    return {
        let.name
        for let in program.lets
        for expr in parts_of(let)
        for part in walk(expr)
        for cell in (part.cells if isinstance(part, ir.Array) else (part,))
        if isinstance(cell, ir.Const) and cell.rounding is not None
    }
