"""Positions taken one after another: which definitions read only their own position, and which are read from later
ones, so that they are kept; or why a position cannot be computed before those after it are there.

A definition has a row for every position. Row `r` of it belongs to position `r - offset`: an axis of `size(i) + 1`
points has a row before the first position. One that is made of no position's data, such as a mask, is computed again
where it is read elsewhere than at its own position.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..diagnostics import Label
from ..facts.view import View
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.context import constants_of
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..records import dataclass, field, replace
from .positions import Unsplit, along_one_size, check_input, exprs_of, sizes_in, without_scans
from .totals import with_totals


@dataclass(frozen=True)
class Split:
    """A program along positions, of which there are `size(row)`.

    `axis` is where a tensor has its rows, one for each position after the first `offset`. Those that are `kept` are
    read from later positions: at most so many rows back as `reach` says, where it does; `taken` says how far the
    reductions of a definition go back. Those that are done `again` are made of no data, and read from anywhere.
    Of totals, whose last row is all that is kept, `ends` are definitions of that row, in the `plain` program.
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
    plain: ir.Program | None = None
    ends: Mapping[str, ir.Let] = field(default_factory=dict)

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
    plain, row, axes = along_one_size(without_scans(program), along, fixed)
    for tensor in plain.inputs:
        if tensor.name not in fixed:
            check_input(tensor, row, axes[tensor.name])
    totals = with_totals(plain, row, axes)
    result = _rows(totals.program, row, {**axes, **totals.along}, fixed, outputs)
    if not totals.ends:
        return result
    # Where the first positions may be made up, a total over all of them is none.
    return _rows(plain, row, axes, fixed, outputs) if result.least else replace(result, plain=plain, ends=totals.ends)


def _rows(
    program: ir.Program,
    row: Coordinate,
    along: Mapping[str, tuple[int, ...]],
    fixed: Collection[str],
    outputs: Sequence[str],
) -> Split:
    finder = _Finder(View(program), row, along, frozenset(fixed))
    for name in sorted(outputs, key=lambda name: len(along[name])):
        finder.ask(name)
    return finder.result()


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


def _is_beside(index: ir.Expr, slot: ir.Expr, distance: int) -> bool:
    return (polynomial(index) - polynomial(slot)).constant == distance
