"""Inputs, guards and indices for programs whose reads are in range only where a guard holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from tests.laws.draws import Choose, Draws
from tests.laws.guarded_grids import (
    Array,
    Grid,
    Whole,
    clamped,
    compare,
    either,
    greatest,
    least,
    magnitude,
)

# What a table may hold where no read that survives goes through it.
WILD = (-1, 99, 10**12, 2**63 - 1, -(2**63))
# Few points; in a family that asks for it, as many as the kernels take at once, and one more or less.
FEW = (3, 2, 4, 1, 5, 0, 7)
TILES = (15, 16, 17, 31, 32, 33, 47, 48, 49, 191, 192, 193)


@dataclass
class Table:
    """An input one of whose axes is as long as its indices need."""

    name: str
    axes: list[str]
    place: str
    reads: list[tuple[Grid, Whole]]
    size: int | None = None


@dataclass
class Gather:
    """An input of whole numbers that index something: wild where no surviving point reads it."""

    name: str
    names: tuple[str, ...]
    grid: Grid
    cells: Array = field(repr=False)


class Tables(Draws):
    """Draws inputs, and indices of them that stay in range under the guards of a grid.

    `loose` now and then forgets a guard: then the reference refuses the call, and everyone has to.
    """

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        self.declared: dict[str, str] = {}
        self.arrays: dict[str, Array] = {}
        self.lines: list[str] = []
        self.sizes: dict[str, int] = {}
        self.tables: list[Table] = []
        self.gathers: list[Gather] = []
        self.few: Sequence[int] = FEW
        self.noise = np.random.default_rng(0)
        self.loose = False

    # ---------------------------------------------------------------------------------------- inputs

    def points(self) -> int:
        return self.pick(self.few)

    def order(self, names: Sequence[str]) -> list[str]:
        """Axes as they are named, or in another order."""
        return self.shuffled(list(names)) if self.chance(25) else list(names)

    def input(self, name: str, axes: Sequence[str], dtype: str = "") -> Callable[..., str]:
        """Declare an input of reals; the result writes a read of it, with other indices for some axes."""
        ordered = self.order(axes)
        self.declare(name, ordered, dtype)
        if not dtype:
            self.arrays[name] = self.reals(*(self.sizes[axis] for axis in ordered))
        return partial(read, name, ordered)

    def declare(self, name: str, axes: Sequence[str], dtype: str = "") -> None:
        self.declared[name] = f"{name}{bracket(axes)}" + (f" : {dtype}" if dtype else "")

    def reals(self, *shape: int) -> Array:
        return np.asarray(self.noise.standard_normal(shape))

    def table(self, grid: Grid, index: Whole, axes: Sequence[str] = (), stem: str = "R") -> str:
        """A read of a new table at an index, and at other axes by their names."""
        name, place = self.fresh(stem), self.fresh("r")
        index = self.fitted(grid, index)
        found = Table(name, self.order((place, *axes)), place, [(grid, index)])
        if grid.open and self.chance(15):
            # The guard speaks of the size of the table itself.
            found.size = self.pick((2, 1, 3))
            length = Whole(f"size({place})", np.int64(found.size))  # type: ignore[arg-type]
            grid.require(compare(0, "<=", index, "<", length) if self.chance(50) else compare(index, "<", length))
        self.tables.append(found)
        self.declare(name, found.axes)
        return read(name, found.axes, **{place: index.text})

    def finish(self) -> None:
        """Make every table as long as it has to be, and spoil what nobody reads."""
        for table in self.tables:
            reached = [bounds for grid, index in table.reads if (bounds := grid.reached(index)) is not None]
            size = max([0, *(high + 1 for _, high in reached)])
            if not reached and self.chance(50):
                size = self.choose(3)
            if self.loose and size and self.chance(50):
                size -= 1
            if table.size is not None:
                size = table.size
            shape = [size if axis == table.place else self.sizes[axis] for axis in table.axes]
            self.arrays[table.name] = self.reals(*shape)
        for gather in self.gathers:
            cells = gather.cells.copy()
            lost = ~gather.grid.survives(*gather.names)
            cells[lost] = self.noise.choice(np.array(WILD), int(lost.sum()))
            self.arrays[gather.name] = cells

    # --------------------------------------------------------------------------------------- indices

    def index(self, grid: Grid, a: str, b: str) -> Whole:
        """A whole expression of one or two coordinates, not bare: it is as large as it is."""
        i, j = grid.at[a], grid.at[b]
        options: list[Callable[[], Whole]] = [
            lambda: i - j,
            lambda: j + self.pick((1, 2)),
            lambda: i - j + self.pick((1, 3)),
            lambda: i - j + grid.size(b) - 1,
            lambda: least(i - j, self.pick((2, 1, 7))),
            lambda: clamped(i - j, -self.pick((1, 2)), self.pick((2, 3))) + 2,
            lambda: magnitude(i - j),
            lambda: greatest(i - j, 0),
            lambda: j - i,
            lambda: j - self.pick((1, 2)),
            lambda: i + j,
            lambda: (i - j) // 2,
            lambda: j // 2,
            lambda: (i - j) % 3,
            lambda: i * 2 + j,
            lambda: j * 2 + 1,
            lambda: (i - j) * 2,
            lambda: grid.size(b) - 1 - j,
            lambda: i - j * 2,
            lambda: self.gathered(grid, (b,)),
            lambda: self.gathered(grid, (a, b)),
            lambda: self.gathered(grid, (b,)) + 1,
            lambda: self.gathered_at(grid, i - j),
            lambda: self.gathered_at(grid, j + 1),
            lambda: i - self.gathered(grid, (b,)),
        ]
        return self.pick(options)()

    def gathered(self, grid: Grid, names: tuple[str, ...]) -> Whole:
        """`p[j]`, with numbers out of range wherever no point survives."""
        name = self.fresh("p")
        shape = tuple(grid.sizes[axis] for axis in names)
        cells = self.noise.integers(0, 3, shape)
        self.declare(name, names, "i64")
        self.gathers.append(Gather(name, names, grid, cells))
        return Whole(f"{name}[{', '.join(names)}]", grid.spread(cells, *names))

    def gathered_at(self, grid: Grid, index: Whole) -> Whole:
        """`p[i - j]`: a table of indices that is itself read under the guard."""
        index = self.fitted(grid, index)
        bounds = grid.reached(index)
        name, place = self.fresh("p"), self.fresh("r")
        cells = self.noise.integers(0, 3, bounds[1] + 1 if bounds else 1)
        self.declare(name, (place,), "i64")
        self.arrays[name] = cells
        return Whole(f"{name}[{index.text}]", cells[np.clip(index.cells, 0, len(cells) - 1)])

    def fitted(self, grid: Grid, index: Whole) -> Whole:
        """The index, not below 0 where the guards hold: they are made stricter, or it is moved."""
        bounds = grid.reached(index)
        if bounds is None or bounds[0] >= 0:
            return index
        if grid.open and self.chance(50):
            grid.require(compare(0, "<=", index) if self.chance(50) else compare(index, ">=", 0))
            return index
        return index + -bounds[0]

    # ---------------------------------------------------------------------------------------- guards

    def guard(self, grid: Grid, a: str, b: str) -> None:
        """One or two clauses about two coordinates, or none."""
        for _ in range(self.weighted((6, 1), (3, 2), (1, 0))):
            grid.require(self.clause(grid, a, b))

    def clause(self, grid: Grid, a: str, b: str) -> Whole:
        i, j = grid.at[a], grid.at[b]
        options: list[Callable[[], Whole]] = [
            lambda: compare(j, "<=", i),
            lambda: compare(j, "<", i),
            lambda: compare(i - self.pick((4, 2)), "<", j, "<=", i),
            lambda: compare(0, "<=", i - j, "<", self.pick((3, 2))),
            lambda: compare(i, ">=", j),
            lambda: compare(j + 1, "<", grid.size(b)),
            lambda: compare(j, "<", grid.size(b) - 1),
            lambda: compare(magnitude(i - j), "<=", self.pick((2, 1))),
            lambda: compare(j, ">=", i),
            lambda: compare(j, ">", i),
            lambda: compare(j, "<=", i + 1),
            lambda: compare(j, "<=", i - 2),
            lambda: compare((i - j) % 2, "==", 0),
            lambda: compare(j, "!=", i),
            lambda: compare(j // 2, "==", i // 2),
            lambda: compare(j // 2, "<", i // 2),
            lambda: either(compare(j, "<=", i), compare(j, "<", 2)),
            lambda: either(compare(i - j, ">", 2), compare(j, "==", i)),
            lambda: compare(j, "<", self.length(grid, b)),
            lambda: compare(j + self.length(grid, b), ">=", grid.size(b)),
            lambda: self.truths(grid, (b,)),
            lambda: self.truths(grid, (a, b)),
            lambda: self.truths(grid, (b, a)),
            lambda: compare(self.label(grid, b), "==", self.label(grid, a)),
            lambda: compare(i - j, "<", self.label(grid, a)),
        ]
        return self.pick(options)()

    def length(self, grid: Grid, name: str) -> Whole:
        """How many points are valid, as data: one number, or one for each of a batch."""
        tensor, size = self.fresh("n"), grid.sizes[name]
        if "b" in grid.sizes and self.chance(50):
            cells = self.noise.integers(0, size + 1, grid.sizes["b"])
            self.declare(tensor, ("b",), "i64")
            self.arrays[tensor] = cells
            return Whole(f"{tensor}[b]", grid.spread(cells, "b"))
        self.declare(tensor, (), "i64")
        self.arrays[tensor] = np.asarray(self.noise.integers(0, size + 1))
        return Whole(tensor, self.arrays[tensor])

    def truths(self, grid: Grid, names: tuple[str, ...]) -> Whole:
        if "b" in grid.sizes and self.chance(30):
            names = ("b", *names)
        tensor = self.fresh("m")
        cells = self.noise.random(tuple(grid.sizes[name] for name in names)) < 0.6
        self.declare(tensor, names, "bool")
        self.arrays[tensor] = cells
        return Whole(f"{tensor}[{', '.join(names)}]", grid.spread(cells, *names))

    def label(self, grid: Grid, name: str) -> Whole:
        tensor = self.fresh("c")
        cells = self.noise.integers(0, 3, grid.sizes[name])
        dtype = self.pick(("i64", "i32"))
        self.declare(tensor, (name,), dtype)
        self.arrays[tensor] = cells.astype(np.int32 if dtype == "i32" else np.int64)
        return Whole(f"{tensor}[{name}]", grid.spread(cells, name))

    def where(self, grid: Grid, named: bool = False) -> str:
        """The guards of a grid after `where`; by one name where they were defined so."""
        if not grid.clauses:
            return ""
        if named:
            text = " && ".join(clause.text for clause in grid.clauses)
            names = [name for name in grid.sizes if re.search(rf"\b{name}\b", text)]
            reads = f"allowed[{', '.join(self.order(names))}]"
            self.lines.append(f"let {reads} = {text};")
            return f" where {reads}"
        return " where " + self.pick((", ", " && ")).join(clause.text for clause in grid.clauses)

    def whole(self, text: str) -> str:
        """The program, its inputs first."""
        return "\n".join([f"input {', '.join(self.declared.values())};", *self.lines, text])


def bracket(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]" if names else ""


def read(name: str, axes: Sequence[str], **indices: str) -> str:
    """A read at the coordinates of the same names, or at other indices."""
    return f"{name}{bracket([indices.get(axis, axis) for axis in axes])}"
