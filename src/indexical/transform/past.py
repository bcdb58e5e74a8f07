"""Positions taken one after another: which definitions read only their own position, and which are read from later
ones, so that they are kept; or why a position cannot be computed before those after it are there.

A definition has a row for every position. Row `r` of it belongs to position `r - offset`: an axis of `size(i) + 1`
points has a row before the first position. One that is made of no position's data, such as a mask, is computed again
where it is read elsewhere than at its own position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace

from ..diagnostics import Label
from ..facts.positions import Positions
from ..facts.view import View
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.context import constants_of
from ..ir.types import Coordinate
from ..ir.walk import fresh, parts_in, rebuild, substitute, walk
from ..records import dataclass

COMPARISONS = ("<", "<=", ">", ">=")


class Unsplit(Exception):
    """A program whose positions cannot be taken one after another: what is in the way, where, and what would help."""

    def __init__(self, message: str, *labels: Label, help: str | None = None) -> None:
        super().__init__(message)
        self.labels, self.help = labels, help


@dataclass(frozen=True)
class Split:
    """A program along positions, of which there are `size(row)`.

    `axis` is where a tensor has its rows, one for each position after the first `offset`. Those that are `kept` are
    read from later positions: at most so many rows back as `reach` says, where it does; `taken` says how far the
    reductions of a definition go back. Those that are done `again` are made of no data, and read from anywhere.
    """

    program: ir.Program
    row: Coordinate
    along: Mapping[str, tuple[int, ...]]
    axis: Mapping[str, int]
    offset: Mapping[str, int]
    kept: tuple[str, ...]
    again: tuple[str, ...]
    reach: Mapping[str, ir.Expr | None] = field(default_factory=dict)
    taken: Mapping[str, ir.Expr | None] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[str, ...]:
        """The definitions that are computed for new positions, in the order of the text."""
        return tuple(let.name for let in self.program.lets if let.name in self.axis)

    @property
    def least(self) -> int:
        """The number of positions that must be there for all cases that stand at one of them."""
        found = [0]
        for let in (self.program.definitions[name] for name in self.rows):
            slots = [clause.slots[self.axis[let.name]] for clause in let.clauses]
            fixed = [int(slot.value) for slot in slots if isinstance(slot, ir.Const)]
            found += [row + 1 - self.offset[let.name] for row in fixed]
        return max(found)

    def steps(self, name: str) -> bool:
        """Whether a definition is made of itself at earlier positions."""
        orders = [order for order in self.program.order if isinstance(order, ir.Stepwise)]
        return any(name == member and axis == self.axis.get(name) for order in orders for member, axis in order.axes)

    def is_local(self, read: ir.Read, let: ir.Let, slot: ir.Expr) -> bool:
        """Whether a read of a row is of the position that its reader has."""
        if read.tensor not in self.axis:
            return False
        index = read.indices[self.axis[read.tensor]]
        return _is_beside(index, slot, self.offset[read.tensor] - self.offset[let.name])


def found(program: ir.Program, along: str, fixed: Collection[str], outputs: Sequence[str]) -> Split:
    """The rows that outputs are made of along the positions of a coordinate or space, and which of them are kept.

    Inputs that are `fixed` are there as a whole. That no position reads one after it is not proved here.
    """
    program, row, axes = _renamed(_without_scans(program), along, fixed)
    for tensor in program.inputs:
        if tensor.name not in fixed:
            _check_input(tensor, row, axes[tensor.name])
    finder = _Finder(View(program), row, axes, frozenset(fixed))
    for name in sorted(outputs, key=lambda name: len(axes[name])):
        finder.ask(name)
    return finder.result()


# --------------------------------------------------------------------------- the positions


def _renamed(
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


def _without_scans(program: ir.Program) -> ir.Program:
    """The program with cumulative sums as sums up to a point."""

    def change(expr: ir.Expr, ranges: Mapping[Coordinate, ir.Range]) -> ir.Expr:
        inner = {**ranges, **{r.coordinate: r for r in expr.ranges}} if isinstance(expr, ir.Reduce) else ranges
        expr = rebuild(expr, lambda child: change(child, inner))
        if not isinstance(expr, ir.Normalize) or expr.op != "cumsum" or expr.coordinate not in ranges:
            return expr
        outer = ranges[expr.coordinate]
        taken = {c.name for c in expr.type.coordinates} | {
            c.name for part in walk(expr) if isinstance(part, ir.Reduce) for c in part.coordinates
        }
        running = build.coord(fresh(expr.coordinate, taken), expr.span)
        earlier = build.apply("<=", (running, build.coord(expr.coordinate, expr.span)), "bool", expr.span)
        values: dict[Coordinate, ir.Expr] = {expr.coordinate: running}
        guard = None if expr.guard is None else substitute(expr.guard, values)
        range = replace(outer, coordinate=running.coordinate)
        body, guard = substitute(expr.body, values), build.conjunction((earlier, guard))
        return build.reduce("sum", (range,), body, guard, expr.type.kind, expr.span)

    def whole(clause: ir.Clause) -> ir.Clause:
        ranges = {range.coordinate: range for range in clause.ranges}
        return changed(clause, lambda expr: change(expr, ranges))

    parts = (part for let in program.lets for part in parts_in(let))
    if not any(isinstance(part, ir.Normalize) and part.op == "cumsum" for part in parts):
        return program
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

    def axis(tensor: ir.Input, number: int, axis: ir.Axis) -> ir.Axis:
        taken = {other.coordinate for other in tensor.axes}
        named = row if (tensor.name, number) in places and row not in taken else axis.coordinate
        return ir.Axis(named, change(axis.extent), axis.origin)

    inputs = tuple(
        replace(tensor, axes=tuple(axis(tensor, number, one) for number, one in enumerate(tensor.axes)))
        for tensor in program.inputs
    )
    lets = tuple(
        replace(
            let,
            axes=tuple(ir.Axis(axis.coordinate, change(axis.extent), axis.origin) for axis in let.axes),
            clauses=tuple(changed(clause, change) for clause in let.clauses),
        )
        for let in program.lets
    )
    return replace(program, inputs=inputs, lets=lets)


def changed(clause: ir.Clause, change: Callable[[ir.Expr], ir.Expr]) -> ir.Clause:
    """The clause with every expression of it changed."""
    return ir.Clause(
        tuple(map(change, clause.slots)),
        tuple(replace(range, lower=change(range.lower), upper=change(range.upper)) for range in clause.ranges),
        change(clause.body),
        None if clause.guard is None else change(clause.guard),
        clause.span,
    )


def _is_beside(index: ir.Expr, slot: ir.Expr, distance: int) -> bool:
    return (polynomial(index) - polynomial(slot)).constant == distance


def _check_input(tensor: ir.Input, row: Coordinate, along: tuple[int, ...]) -> None:
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


# ------------------------------------------------------------------------- who reads whom


class _Finder:
    """The rows that outputs are made of, found from reader to read."""

    def __init__(
        self, view: View, row: Coordinate, along: Mapping[str, tuple[int, ...]], fixed: frozenset[str]
    ) -> None:
        self.view, self.row, self.along = view, row, along
        self.tensors = view.program.tensors
        self.lets = view.program.definitions
        self.constants = constants_of(self.lets)
        self.length = polynomial(build.size(row, view.program.inputs[0].span))
        self.given = frozenset(t.name for t in view.program.inputs if along[t.name]) - fixed
        self.axis: dict[str, int] = {}
        self.offset: dict[str, int] = {}
        self.kept: dict[str, None] = {}
        self.again: dict[str, None] = {}

    def result(self) -> Split:
        order = list(self.tensors)
        kept = tuple(sorted(self.kept, key=order.index))
        again = tuple(sorted(self.again, key=order.index))
        return Split(self.view.program, self.row, self.along, self.axis, self.offset, kept, again)

    def is_made_of_data(self, name: str) -> bool:
        return not self.given.isdisjoint(self.view.made_of(name))

    def ask(self, name: str) -> None:
        """An output: it has a position, or is made of none."""
        let = self.tensors[name]
        if self.along[name]:
            self.take(name, self.along[name][0])
        elif not self.is_made_of_data(name):
            self.compute_again(name)
        else:
            raise Unsplit(
                f"`{name}` has no position: it is made of all of them",
                Label(let.span, "it is known only when the last position is"),
                help="ask for definitions that have a position: `outputs=…`",
            )

    def take(self, name: str, axis: int) -> None:
        """Compute the rows of a tensor, which has them on this axis."""
        if name in self.axis:
            return
        tensor = self.tensors[name]
        self.axis[name] = axis
        extent = polynomial(tensor.axes[axis].extent, self.constants) - self.length
        self.offset[name] = extent.constant or 0
        if self.offset[name] < 0:
            raise Unsplit(f"the first positions have no row in `{name}`", Label(tensor.span, "it begins later"))
        if isinstance(tensor, ir.Input):
            return
        for clause in tensor.clauses:
            slot = clause.slots[axis]
            if self.row in sizes_in(slot):
                words = "which row this is depends on how many positions there are"
                raise Unsplit(f"`{name}` has a case for the last positions", Label(slot.span, words))
            for part in (part for expr in exprs_of(clause) for part in walk(expr)):
                if isinstance(part, ir.Read):
                    self.follow(part, tensor, slot)

    def follow(self, read: ir.Read, let: ir.Let, slot: ir.Expr) -> None:
        """A read by a row: of its own position, or of another one, so that it is kept."""
        name = read.tensor
        if not self.along[name]:
            if name in self.lets:
                if self.is_made_of_data(name):
                    message = f"`{let.name}` reads `{name}`, which is made of all positions"
                    raise Unsplit(message, Label(read.span, f"`{name}` has no position of its own"))
                self.compute_again(name)
            return
        for axis in self.along[name] if name not in self.axis else (self.axis[name],):
            extent = polynomial(self.tensors[name].axes[axis].extent, self.constants) - self.length
            if _is_beside(read.indices[axis], slot, (extent.constant or 0) - self.offset[let.name]):
                self.take(name, axis)
                return
        if not self.is_made_of_data(name):
            self.compute_again(name)
            return
        if len(self.along[name]) > 1:
            message = f"`{let.name}` reads `{name}` at another position, and it has a value for each two positions"
            raise Unsplit(message, Label(read.span, "all pairs would have to be kept"))
        self.kept[name] = None
        self.take(name, self.along[name][0])

    def compute_again(self, name: str) -> None:
        """Compute a definition that is made of no data for all positions, and whatever it reads that has positions."""
        self.again |= dict.fromkeys(other for other in self.view.made_of(name) if self.along[other])


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
