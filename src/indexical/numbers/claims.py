"""Published figures, checked exactly: each holds, or fails with the exact value beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Literal

from ..diagnostics import CallError, Diagnostic, Label
from ..ir import nodes as ir
from ..ir.needs import needed, read_in
from ..ir.walk import parts_of, walk
from ..records import dataclass, replace
from ..run.reference import Table
from .causes.cause import Cause
from .conditions import Conditional, conditions_of, told
from .evaluate import Evaluated, Undecided, explained
from .interval import Interval, Unsettled
from .printed import AsPrinted, figures_as_printed
from .ranges import Ranges, Rounded
from .results import Value
from .tower import INFINITY, Special, divide

Verdict = Literal["holds", "rounding", "undecided", "fails"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of a claim, at one point.

    `distance` is how far the exact value is from the figure, `units` the same in units of the figure's last digit;
    both are None where it is the figure itself. `undecided` says that named terms leave open whether it holds.
    `explained` says whether the rounding of figures that are marked as printed could account for it: None where that
    cannot be told, because a comparison or a quotient hangs on it. `depends` says whether there are any. `cause` is
    what explains a figure that fails, where something does. `digits` says to how many places it was
    written, and `condition` for which values of the symbols it holds, where that is not for all.
    """

    place: tuple[int, ...]
    claimed: str
    value: Value
    holds: bool
    distance: Value | None = None
    units: Value | None = None
    explained: bool | None = False
    bounds: Interval | None = None
    depends: bool = False
    undecided: bool = False
    cause: Cause | None = None
    digits: int | None = None
    condition: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.undecided:
            return "undecided"
        return "holds" if self.holds else "rounding" if self.explained else "fails"

    @property
    def exactly(self) -> bool:
        """Whether the value is the figure itself."""
        return self.holds and self.distance is None


@dataclass(frozen=True, slots=True)
class Claim:
    """One `expect`, with a cell for every point that it speaks of. `tolerant` says that it gives a tolerance,
    `searched` that all usual causes were tried, `near` that all figures that fail are off by little. `hint` is what
    would explain these, where that may be an accident."""

    text: str
    left: str
    coordinates: tuple[str, ...]
    cells: tuple[Cell, ...]
    line: int
    tolerant: bool = False
    searched: bool = True
    near: bool = False
    hint: Cause | None = None

    @property
    def verdict(self) -> Verdict:
        verdicts = {cell.verdict for cell in self.cells}
        worst: tuple[Verdict, ...] = ("fails", "undecided", "rounding", "holds")
        return next((verdict for verdict in worst if verdict in verdicts), "holds")

    @property
    def failing(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.verdict != "holds")

    @property
    def cause(self) -> Cause | None:
        """The one cause of all figures that fail; None where there is none, or more than one."""
        causes = {cell.cause for cell in self.cells if cell.verdict == "fails"}
        return causes.pop() if len(causes) == 1 else None


def claimed_names(program: ir.Program) -> tuple[str, ...]:
    """The definitions that the claims speak of."""
    lets = {let.name for let in program.lets}
    reads = [
        part.tensor
        for expect in program.expects
        for expr in (*expect.expressions, *(bound for r in expect.ranges for bound in (r.lower, r.upper)))
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
    with _placed(expect), explained(evaluation):
        points = [dict(point) for point in evaluation.points(expect.ranges, {}, {})]
        _check_shape(evaluated, expect)
        for number, point in enumerate(points):
            at = number if expect.shape else 0
            cells.append(_cell(evaluated, expect, point, expect.figures[at], expect.digits[at], rounded))
    text = " ".join(expect.span.text.split())
    left = _left(text.removeprefix("expect")).strip()
    names = tuple(str(range.coordinate).rstrip("'") for range in expect.ranges)
    return Claim(text, left, names, tuple(cells), expect.span.shown.line, expect.tolerance is not None)


def _left(text: str) -> str:
    """The text before the `==` of a claim, which is the first outside of brackets."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if not depth and text.startswith("==", at):
            return text[:at]
    return text


@contextmanager
def _placed(expect: ir.Expect) -> Iterator[None]:
    """Point an error in evaluating a claim at the claim, unless it already points elsewhere."""
    try:
        yield
    except CallError as problem:
        found = [d if d.labels else replace(d, labels=(Label(expect.span),)) for d in problem.diagnostics]
        raise type(problem)(found) from None


def _check_shape(evaluated: Evaluated, expect: ir.Expect) -> None:
    """Check that there are as many figures as points."""
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
    figure: ir.Expr | None,
    digits: int | None,
    rounded: _Rounding,
) -> Cell:
    place = tuple(point[range.coordinate] for range in expect.ranges)
    value = _value(evaluated, expect.body, point)
    if figure is None:
        cell = Cell(place, "masked", value, value.masked or value.number is -INFINITY)
        return cell if cell.holds else rounded.judged(expect, point, cell)
    claimed = " ".join(figure.span.text.split())
    wanted = _value(evaluated, figure, point)
    if not isinstance(figure, ir.Const) and not wanted.symbols and not isinstance(wanted.number, bool):
        claimed = f"{claimed} ≈ {wanted.decimal(6)}" if len(claimed) <= 32 else f"≈ {wanted.decimal(6)}"
    if any(isinstance(side.number, bool | Special) for side in (value, wanted)):
        cell = Cell(place, claimed, value, value.number is wanted.number)
        return cell if cell.holds else rounded.judged(expect, point, cell)
    half = Fraction(1, 2) / Fraction(10) ** digits if digits is not None else Fraction(0)
    if expect.tolerance is not None:
        half, digits = expect.tolerance, None
    cell = _compared(place, claimed, value, wanted, half, digits)
    if cell.holds or cell.undecided or not isinstance(figure, ir.Const):
        return cell
    return rounded.judged(expect, point, cell, Fraction(figure.value) - half, Fraction(figure.value) + half)


def _compared(
    place: tuple[int, ...], claimed: str, value: Value, wanted: Value, half: Fraction, digits: int | None
) -> Cell:
    """A value beside what is claimed of it, which may be off by `half`."""
    symbols = bool(wanted.symbols)
    inside = _known(lambda: wanted - half <= value <= wanted + half) if half and not symbols else None
    equal = False if inside is False else _known(lambda: value == wanted)
    if equal is True or isinstance(equal, Conditional):
        conditions = equal.conditions if isinstance(equal, Conditional) else ()
        return Cell(place, claimed, value, True, condition=told(conditions))
    if symbols:
        return Cell(place, claimed, value, False, undecided=equal is None)
    if inside is None and (half or equal is None):
        return Cell(place, claimed, value, False, undecided=True)
    gap = value - wanted if equal is None else abs(value - wanted)
    units = None if digits is None else Value(divide(gap.number, Fraction(1) / Fraction(10) ** digits))
    return Cell(place, claimed, value, inside is True, gap, units, digits=digits)


def _known(question: Callable[[], Any]) -> Any:
    """The answer; None where named terms leave it open."""
    try:
        return question()
    except Undecided:
        return None


def _value(evaluated: Evaluated, expr: ir.Expr, point: dict[Any, int]) -> Value:
    """A side of a claim at a point. An element keeps its name, so that it can say how it was built."""
    evaluation = evaluated.evaluation
    if isinstance(expr, ir.Read) and expr.tensor in evaluation.lets:
        offset, cell = evaluation.found(expr, point)
        found = Value(cell, evaluated, expr.tensor, offset)
        found.masked = found.masked or cell is None
        return found
    found = Value(evaluation.value(expr, point), conditions=conditions_of(evaluated, expr, point))
    found.masked = evaluation.is_removed(expr, point)
    return found


class _RoundedAsPrinted(AsPrinted, Rounded):
    """Figures within their rounding, in steps that go on from printed ones."""

    def judged(self, expr: ir.Expr, point: dict[Any, int]) -> Any:
        """The left side of a claim, as it was computed."""
        is_element = isinstance(expr, ir.Read) and (expr.tensor, self.offset(expr, point)) in self.computed
        return self.found(expr, point)[1] if is_element else self.value(expr, point)  # type: ignore[arg-type]


class _Rounding:
    """The program once more, with every figure that is marked as printed anywhere within its rounding."""

    def __init__(self, evaluated: Evaluated) -> None:
        self.evaluated = evaluated
        self.evaluations: dict[frozenset[str], _RoundedAsPrinted | None] = {}
        self.marked = _marked(evaluated.program)

    def judged(
        self,
        expect: ir.Expect,
        point: dict[Any, int],
        cell: Cell,
        low: Fraction | None = None,
        high: Fraction | None = None,
    ) -> Cell:
        """A cell that fails, and whether the left side can be between `low` and `high` all the same. Where it is no
        real number and comes out certain, it is what it is exactly, which explains nothing."""
        reads = frozenset(read_in(expect.body))
        if not needed(self.evaluated.program, tuple(reads)) & self.marked and not _is_marked(expect.body):
            return cell
        evaluation = self._evaluation(reads & {let.name for let in self.evaluated.program.lets})
        if evaluation is None:
            return replace(cell, explained=None, depends=True)
        try:
            found = evaluation.judged(expect.body, point)
            could = isinstance(found, Interval) and low is not None and high is not None
            could = could and not (found.upper < low or found.lower > high)
        except _UNKNOWN:
            return replace(cell, explained=None, depends=True)
        if not isinstance(found, Interval) or low is None or high is None:
            return replace(cell, explained=False, depends=True)
        return replace(cell, explained=could, depends=True, bounds=found)

    def _evaluation(self, names: frozenset[str]) -> _RoundedAsPrinted | None:
        """These definitions, within rounding; None where something in them hangs on it. One such does not keep the
        others from being known."""
        if names not in self.evaluations:
            numbers = Ranges(256, wide=True)
            evaluated = self.evaluated
            tables = {}
            for tensor in evaluated.program.inputs:
                table = evaluated.table(tensor.name)
                cells = [numbers.number(cell) if tensor.kind == "real" else cell for cell in table.cells]
                tables[tensor.name] = Table(table.shape, cells)
            evaluation = _RoundedAsPrinted(evaluated.program, tables, evaluated.evaluation.sizes, numbers)
            evaluation.printed = figures_as_printed(evaluation, evaluated.program)
            try:
                evaluation.compute(evaluated.program, tuple(names))
                self.evaluations[names] = evaluation
            except _UNKNOWN:
                self.evaluations[names] = None
        return self.evaluations[names]


# What arithmetic within bounds raises where nothing is certain: a guard, an index, a divisor that may be 0, a symbol.
_UNKNOWN = (Unsettled, OverflowError, ValueError, CallError)


def _marked(program: ir.Program) -> set[str]:
    """The definitions whose own text has figures that are marked as printed."""
    return {let.name for let in program.lets for expr in parts_of(let) if _is_marked(expr)}


def _is_marked(expr: ir.Expr) -> bool:
    return any(
        isinstance(cell, ir.Const) and cell.rounding is not None
        for part in walk(expr)
        for cell in (part.cells if isinstance(part, ir.Array) else (part,))
    )
