"""Lines of a Triton kernel that compute values of its tiles, each where it varies with no more than is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .code import Call, Name, Node, Number, Slice, index, names, rebuilt, show
from .triton_score import PAIR, ROW, Axis, Cell, Operand


class Printer:
    """Lines of one kernel: `outer` before its loops, `inner` in them. A kernel loops over the tiles of the axes
    `inside`; its tiles lie `flipped` where keys come first. `banks` have the loads of tables that come as tiles.
    `moving` are names that change from turn to turn."""

    def __init__(self, inside: frozenset[Axis], flipped: bool, taken: set[str]) -> None:
        self.inside, self.flipped, self.taken = inside, flipped, taken
        self.names: dict[Cell, str] = {}
        self.uses: Counter[Cell] = Counter()
        self.outer: list[tuple[str, Node]] = []
        self.inner: list[tuple[str, Node]] = []
        self.own: set[str] = set()
        self.looped: set[str] = set()
        self.moving = {"k0"}
        self.masked = False
        self.banks: dict[Operand, Node] = {}

    def count(self, roots: Iterable[Cell]) -> None:
        """Take note of what the roots use, before any of them is written."""
        waiting = list(roots)
        self.uses.update(waiting)
        while waiting:
            for part in waiting.pop().parts:
                if not self.uses[part]:
                    waiting.append(part)
                self.uses[part] += 1

    def begin(self) -> None:
        """Begin the body of another loop."""
        self.names = {cell: name for cell, name in self.names.items() if name not in self.moving}
        self.inner = []
        self.own = set(self.names.values())

    def written(self, cell: Cell, axes: frozenset[Axis] | None = None, longest: int = 80) -> Node:
        """The code of a cell, for use beside values with these axes; a name where it is longer."""
        axes = cell.axes if axes is None else axes
        if cell in self.names:
            return self._aligned(Name(self.names[cell]), cell.axes, axes)
        if cell.operand is not None and cell.operand in self.banks:
            code = self.banks[cell.operand]
        else:
            code = cell.make(*(self.written(part, cell.axes) for part in cell.parts))
            if self.masked and cell.operand is not None and cell.operand.table is not None:
                code = _masked(code)
        alone = cell.axes == axes and self.uses[cell] <= 1
        if isinstance(code, Name | Number) or (alone and len(show(code)) < longest):
            return self._aligned(code, cell.axes, axes)
        return self._aligned(Name(self.name(cell, code)), cell.axes, axes)

    def name(self, cell: Cell, code: Node) -> str:
        """Give a cell a name, at the place where it varies with no more than is there. What is put before the loops
        has a name that none of them gives, also those that are written."""
        is_inner = bool(self.inside & cell.axes) or not self.moving.isdisjoint(names(code))
        taken = (self.own, self.taken) if is_inner else (self.own, self.taken, self.looped)
        name, number = cell.name, 1
        while any(name in names for names in taken):
            number += 1
            name = f"{cell.name}_{number}"
        self.names[cell] = name
        self.own.add(name)
        if is_inner:
            self.looped.add(name)
            self.moving.add(name)
        (self.inner if is_inner else self.outer).append((name, code))
        return name

    def _aligned(self, code: Node, own: frozenset[Axis], axes: frozenset[Axis]) -> Node:
        if axes != PAIR or not own or own == PAIR:
            return code
        first = (own == ROW) != self.flipped
        return index(code, Slice(), None) if first else index(code, None, Slice())


def _masked(code: Node) -> Node:
    """A load that reads nothing where a pair is not allowed."""
    if isinstance(code, Call) and code.function == Name("tl.load"):
        return Call(code.function, code.arguments, (("mask", Name("allowed")), ("other", Number("0.0"))))
    return rebuilt(code, _masked)
