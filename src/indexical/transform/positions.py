"""The positions of a program along a coordinate or a space: one size counts them all."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..diagnostics import Label
from ..facts.positions import Positions
from ..facts.view import View
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.context import Agreement, constants_of
from ..ir.scans import as_reductions
from ..ir.types import Coordinate
from ..ir.walk import changed, parts_in, rebuild, rewritten, walk
from ..records import replace
from ..syntax.vocabulary import SCANS

COMPARISONS = ("<", "<=", ">", ">=")


class Unsplit(Exception):
    """A program whose positions cannot be taken one after another: what is in the way, where, and what would help."""

    def __init__(self, message: str, *labels: Label, help: str | None = None) -> None:
        super().__init__(message)
        self.labels, self.help = labels, help


def along_one_size(
    program: ir.Program, along: str, fixed: Collection[str]
) -> tuple[ir.Program, Coordinate, dict[str, tuple[int, ...]]]:
    """The program in which one size counts all positions; that coordinate, and the axes that have positions."""
    view = View(program)
    positions = Positions(view)
    named = [
        (tensor, number)
        for tensor in program.tensors.values()
        for number, axis in enumerate(tensor.axes)
        if axis.coordinate.name == along or axis.coordinate.space == along
    ]
    if not named:
        known = sorted({axis.coordinate.name for tensor in program.inputs for axis in tensor.axes})
        help = f"the inputs have {', '.join(known) or 'none'}"
        raise Unsplit(f"no coordinate and no space is called `{along}`", help=help)
    of_inputs = [place for place in named if isinstance(place[0], ir.Input)] or named
    groups = {positions.group(view.space_of(tensor.name, number)) for tensor, number in of_inputs}
    counted = [
        (tensor, number, axis)
        for tensor in program.inputs
        if tensor.name not in fixed
        for number, axis in enumerate(tensor.axes)
        if positions.group(view.space_of(tensor.name, number)) in groups and isinstance(axis.extent, ir.Size)
    ]
    if not counted:
        raise Unsplit(f"no input has positions along `{along}`: there is nothing to take one after another")
    counted.sort(key=lambda place: place[2].coordinate.name != along)
    row = counted[0][2].coordinate
    counted += _as_long(program, row, fixed)
    lengths = {axis.coordinate for _, _, axis in counted}
    program = _with_one_size(program, row, lengths, {(tensor.name, number) for tensor, number, _ in counted})
    constants = constants_of(program.definitions)
    length = polynomial(build.size(row, program.inputs[0].span))
    axes: dict[str, tuple[int, ...]] = {}
    for tensor in program.tensors.values():
        places = [
            number
            for number, axis in enumerate(tensor.axes)
            if tensor.name not in fixed
            and positions.group(view.space_of(tensor.name, number)) in groups
            and (polynomial(axis.extent, constants) - length).constant is not None
        ]
        axes[tensor.name] = tuple(places)
    return program, row, axes


def _as_long(
    program: ir.Program, row: Coordinate, fixed: Collection[str]
) -> list[tuple[ir.Input, int, ir.Axis]]:
    """The axes of fixed inputs that one coordinate indexes together with one of positions: they are as long."""
    agreement, length = Agreement(program), build.size(row, program.inputs[0].span)
    return [
        (tensor, number, axis)
        for tensor in program.inputs
        if tensor.name in fixed
        for number, axis in enumerate(tensor.axes)
        if isinstance(axis.extent, ir.Size) and agreement.holds(axis.extent, length)
    ]


def without_scans(program: ir.Program) -> ir.Program:
    """The program with running sums as sums up to a point."""
    parts = (part for let in program.lets for part in parts_in(let))
    if not any(isinstance(part, ir.Normalize) and part.op in SCANS for part in parts):
        return program

    def whole(clause: ir.Clause) -> ir.Clause:
        ranges = {range.coordinate: range for range in clause.ranges}
        return changed(clause, lambda expr: as_reductions(expr, ranges, SCANS))

    lets = tuple(replace(let, clauses=tuple(map(whole, let.clauses))) for let in program.lets)
    return replace(program, lets=lets)


def _with_one_size(
    program: ir.Program, row: Coordinate, lengths: set[Coordinate], places: set[tuple[str, int]]
) -> ir.Program:
    """The program in which these axes of inputs have the size of `row`."""

    def change(expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Size):
            return build.size(row, expr.span) if expr.coordinate in lengths else expr
        return rebuild(expr, change)

    def named(tensor: ir.Input) -> ir.Input:
        taken = {axis.coordinate for axis in tensor.axes}
        here = {number for number in range(len(tensor.axes)) if (tensor.name, number) in places and row not in taken}
        axes = (replace(a, coordinate=row) if n in here else a for n, a in enumerate(tensor.axes))
        return replace(tensor, axes=tuple(axes))

    program = rewritten(program, change)
    return replace(program, inputs=tuple(map(named, program.inputs)))


def check_input(tensor: ir.Input, row: Coordinate, along: tuple[int, ...]) -> None:
    """Refuse an input that has more for a further position than one row."""
    if len(along) > 1:
        words = "every pair of positions has a value of its own"
        help = f"if it is known as a whole, give it as a weight: `{tensor.name}=…`"
        raise Unsplit(f"`{tensor.name}` is given for pairs of positions", Label(tensor.span, words), help=help)
    for number, axis in enumerate(tensor.axes):
        if number not in along and row in sizes_in(axis.extent):
            words = f"`{axis.coordinate.name}` has more points the more positions there are"
            message = f"`{tensor.name}` grows with the positions, but not by one for each"
            raise Unsplit(message, Label(tensor.span, words))


def exprs_of(clause: ir.Clause) -> Iterator[ir.Expr]:
    """Every expression of a clause but its slots."""
    yield clause.body
    if clause.guard is not None:
        yield clause.guard
    for range in clause.ranges:
        yield range.lower
        yield range.upper


def sizes_in(expr: ir.Expr) -> set[Coordinate]:
    return {part.coordinate for part in walk(expr) if isinstance(part, ir.Size)}
