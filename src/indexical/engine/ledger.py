"""The bytes that a call holds, operation by operation, as its printed code makes and frees arrays.

An array is there from the operation that makes it until its last name is gone: a view keeps the array that it is a view
of. Eager libraries build every elementwise value, and some operations need room for themselves. Inputs belong to the
caller, and are not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from ..ir.types import Coordinate
from ..records import dataclass, field
from .counted import Counted
from .dialects import dialect
from .layouts import layouts
from .ops import (
    Carried,
    Contract,
    Input,
    Iota,
    Library,
    Map,
    Normalize,
    Number,
    Opaque,
    Plan,
    Put,
    Read,
    Reduce,
    Result,
    Tiles,
    Value,
    Write,
)
from .order import expression, is_view, ordered, read_by_rows, roots_of, stepped_along
from .products import Product, copied, is_pair, product_of
from .show import Statements, statements
from .specialise import Sizes
from .workspace import Workspace

Found = TypeVar("Found")

_NOTHING = Workspace()
# Arrays of the pairs of a tile that are there at once in a loop over tiles, and on its way back.
TILED, TILED_BACK = 4, 8
_IN_PLACE = frozenset(("+", "-", "*", "/", "&&", "||"))
_COMMUTES = frozenset(("+", "*", "&&", "||"))


@dataclass(frozen=True, slots=True)
class Row:
    """An operation: the bytes of the array that it makes, those that it needs for itself, those that are kept of it for
    the way back and of no other operation before it, and those that are there in all while it runs."""

    value: Value
    made: int
    workspace: int
    kept: int
    held: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The operations of a call in the order in which they run, there and on the way back, and the bytes of its results.
    Those that are kept between the two are told by what made them (`kept`), and by the first operation that keeps them
    (`keepers`)."""

    rows: tuple[Row, ...]
    results: int
    kept: Mapping[Value, int] = field(default_factory=dict)
    keepers: Mapping[Value, int] = field(default_factory=dict)

    @property
    def peak(self) -> int:
        """The most bytes that are there at once."""
        return max((row.held for row in self.rows), default=0)

    @property
    def largest(self) -> Row | None:
        """The operation that runs while the most bytes are there."""
        return max(self.rows, key=lambda row: row.held, default=None)


def bytes_of(
    plan: Plan, sizes: Sizes, library: str, scalars: Mapping[str, int] | None = None, frees: bool = False
) -> Ledger:
    """The bytes that a call holds by a library, for these sizes and whole scalars. Printed code with few names keeps
    them to the end unless it `frees` them, as it does under a budget."""
    text = statements(plan, dialect(library), frees)
    there = There(plan, Counted(sizes, scalars or {}), library, text)
    there.run(0, len(text.values))
    return there.ledger()


class Pool:
    """Arrays by number, each with its bytes and its users: it is gone with the last of them."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.users: list[int] = []
        self.live = 0

    def new(self, size: int) -> int:
        self.sizes.append(size)
        self.users.append(1)
        self.live += size
        return len(self.sizes) - 1

    def hold(self, array: int) -> int:
        self.users[array] += 1
        return array

    def drop(self, array: int) -> None:
        self.users[array] -= 1
        if not self.users[array]:
            self.live -= self.sizes[array]


class There:
    """The arrays that are there while operations run, one after another."""

    def __init__(self, plan: Plan, counted: Counted, library: str, text: Statements) -> None:
        self.plan, self.counted, self.memory, self.text = plan, counted, dialect(library).memory, text
        self.order = layouts(plan)
        self.by_rows = read_by_rows(plan)
        values = ordered(plan)
        for one in values:
            if isinstance(one.op, Result):
                counted.enter(one.op.loop)
        leaves = {one for one in values if isinstance(one.op, Input | Number | Carried)}
        named = {one for one in values if isinstance(one.op, Opaque)}  # A kernel names all its definitions at once.
        self.inside = frozenset(values) - leaves - named - {one for one, _ in text.values}
        self.leaves = leaves
        self.facts: dict[tuple[str, Value], Any] = {}
        self.begin()

    def begin(self) -> None:
        """Forget all arrays but those that are given."""
        self.pool = Pool()
        self.storage = {one: self.pool.new(0) for one in self.leaves}
        self.own: dict[int, Value] = {}
        self.stacked: list[int] = []
        self.rows: list[Row] = []

    def once(self, of: Callable[[Value], Found], one: Value) -> Found:
        """What is found of a value, which is the same whatever is there."""
        key = of.__name__, one
        if key not in self.facts:
            self.facts[key] = of(one)
        return self.facts[key]  # type: ignore[no-any-return]

    def expression(self, one: Value) -> list[Value]:
        """A value after all that stands inside its expression."""
        return expression(one, self.inside)

    def parts(self, one: Value) -> tuple[Value, ...]:
        """The operands of a value, each once."""
        return tuple(dict.fromkeys(one.parts))

    def run(self, start: int, stop: int) -> None:
        """The statements from one up to another. What was there before them stays."""
        before = self.storage.keys() - self.inside
        for statement, gone in self.text.values[start:stop]:
            for one in self.once(self.expression, statement):
                workspace = self.workspace(one)
                made = self._make(one)
                kept = self.keep(one)
                self.look(one, made, workspace, kept)
                for part in self.once(self.parts, one):
                    if part in self.inside:
                        self.free(part)
            for part in gone:
                self.let_go(part, before)

    def look(self, one: Value, made: int, workspace: int, kept: int = 0) -> None:
        """Note what is there."""
        self.rows.append(Row(one, made, workspace, kept, self.pool.live + workspace))

    def keep(self, one: Value) -> int:
        """Keep what the way back reads of an operation; here is none."""
        return 0

    def let_go(self, one: Value, before: Collection[Value]) -> None:
        """A name is gone."""
        self.free(one)

    def ledger(self) -> Ledger:
        results = {self.storage[one] for one in roots_of(self.plan) if one in self.storage}
        return Ledger(tuple(self.rows), sum(self.pool.sizes[one] for one in results))

    def _make(self, one: Value) -> int:
        """Count the array of a value: its own, or that of the operand that it is a view of or is written over."""
        if one in self.storage and one not in self.inside:
            return 0  # A kernel has made it with another definition.
        shared = self._shared(one)
        if shared is not None and shared in self.storage:
            self.storage[one] = self.pool.hold(self.storage[shared])
            return 0
        if isinstance(one.op, Opaque):
            return sum(map(self._new, self.made_with(one)))
        return self._new(one)

    def made_with(self, one: Value) -> list[Value]:
        """The definitions that a kernel makes at once."""
        values = [each.value for each in self.plan.definitions.values()]
        step = one.op.step  # type: ignore[union-attr]
        return [one, *(v for v in values if isinstance(v.op, Opaque) and v.op.step is step and v is not one)]

    def _new(self, one: Value) -> int:
        size = 0 if one in self.text.absorbed or isinstance(one.op, Iota) else self._own_bytes(one)
        if isinstance(one.op, Read) and is_affine(one):  # A view of its source with zeros around.
            size = min(size, self.counted.bytes(one.op.source))
        self.storage[one] = self.pool.new(size)
        self.own[self.storage[one]] = one
        return size

    def _own_bytes(self, one: Value) -> int:
        """The bytes of an array of its own. Of a recurrence that is read at single steps there are these rows, and the
        one before."""
        steps = self.by_rows.get(one)
        if steps is None:
            return self.counted.bytes(one)
        assert isinstance(one.op, Result | Opaque)
        count = max(1, self.counted.extent(one.extent(stepped_along(one.op)[0])))
        return self.counted.bytes(one) // count * min(count, len(steps) + 1)

    def free(self, one: Value) -> None:
        if one in self.storage and not isinstance(one.op, Input | Number | Carried):
            self.pool.drop(self.storage.pop(one))

    def _shared(self, one: Value) -> Value | None:
        match one.op:
            case Read(source) if is_view(one):
                return source
            case Put(into=into):
                return into
            case Map(fn, (source,)) if fn.startswith("as ") and self.memory.casts_in_place and not source.is_host:
                return source if source.dtype == one.dtype and source.kind == one.kind else None
            case Map(fn, (left, right)) if self.memory.reuses and fn in _IN_PLACE:
                if self._is_written_over(left, right, one):
                    return left
                return right if fn in _COMMUTES and self._is_written_over(right, left, one) else None
        return None

    def _is_written_over(self, arg: Value, other: Value, one: Value) -> bool:
        """Whether a library writes the result of an infix operation over an operand that has no name. The other one has
        to be an array like it, or a number that its dtype holds."""
        is_own = isinstance(arg.op, Map | Reduce | Normalize) and arg in self.inside and self._is_made(arg)
        fits = _is_like(other, one) or (other.is_host and one.dtype in (None, "f64"))
        return is_own and fits and _is_like(arg, one) and self.counted.bytes(one) >= self.memory.reuses

    def rows_beside(self, one: Value) -> int:
        """The bytes of the rows of a recurrence, which stay until the call returns."""
        return self.counted.bytes(one)

    def _is_made(self, one: Value) -> bool:
        """Whether an array is a value's own, and no view."""
        return one in self.storage and self.own.get(self.storage[one]) is one

    def workspace(self, one: Value) -> int:
        """The bytes that an operation needs for itself."""
        if isinstance(one.op, Contract):
            return sum(map(self.counted.bytes, self.once(self.copied, one)))
        if isinstance(one.op, Tiles):
            return tile_bytes(one, self.counted, TILED)
        if isinstance(one.op, Result) and self.memory.stacks and one not in self.by_rows:
            self.stacked.append(self.pool.new(self.rows_beside(one)))
            return 0
        return self.once(self._needed, one)

    def _needed(self, one: Value) -> int:
        need = self.memory.workspace.get(key_of(one), _NOTHING)
        largest = max((one, *one.parts), key=self.counted.bytes)
        index = one.op.index if isinstance(one.op, Read) else ()
        places = max((self.counted.cells(at.axes) for _, at in index), default=0)
        more = need.times * self.counted.bytes(largest) + need.a_cell * self.counted.cells(largest.axes)
        return int(more + need.a_place * places)

    def way(self, one: Value) -> Product:
        """How a contraction of two arrays is computed."""
        assert isinstance(one.op, Contract)
        return product_of(one.op, self.order, self.order[one])

    def copied(self, one: Value) -> set[Value]:
        """The factors of a product that are copied to be matrices."""
        if not isinstance(one.op, Contract) or not is_pair(one.op):
            return set()
        way = self.way(one)
        scattered = copied(way, self.order)
        sides = (way.left, way.right)
        return {each for each in sides if each in scattered or _is_cut(each, way) or self._is_flattened(each, way)}

    def _is_flattened(self, one: Value, way: Product) -> bool:
        """Whether several batch axes become one that do not lie side by side: the rows of a recurrence come first."""
        if isinstance(one.op, Read) and is_affine(one):
            return self._is_flattened(one.op.source, way)
        if not self.memory.flattens or len(way.batch) < 2 or not isinstance(one.op, Result):
            return False
        steps = one.op.of.steps
        lies = (*steps, *(name for name in self.order[one] if name not in steps))
        return lies[: len(way.batch)] != way.batch


def _is_like(one: Value, other: Value) -> bool:
    return one.axes == other.axes and (one.dtype, one.kind) == (other.dtype, other.kind)


def is_affine(one: Value) -> bool:
    """Whether a value is slices, strides or windows of another."""
    return isinstance(one.op, Read) and all(at.known.whole is not None for _, at in one.op.index)


def _is_cut(one: Value, way: Product) -> bool:
    """Whether axes that become one are parts of an array with more between them: a view by slices or windows."""
    if not isinstance(one.op, Read) or not is_affine(one):
        return False
    places = [at for _, at in one.op.index if at.names and not isinstance(at.op, Iota)]
    reached = frozenset[Coordinate]().union(*(at.names for at in places))
    groups = [group for group in (way.rows, way.columns, way.over) if len(group) > 1 and group[0] in one.names]
    return any(not reached.isdisjoint(group[1:]) for group in groups)


def tile_bytes(one: Value, counted: Counted, arrays: int) -> int:
    """The bytes of so many arrays of the pairs of a tile, of a fold that is loops over tiles."""
    op = one.op
    assert isinstance(op, Tiles)
    score = next(value for name, value in op.turn.names if name == "score")
    sides = [axis for axis in (op.turn.row, op.turn.key) if axis is not None]
    batch = [axis for axis in score.axes if axis.name not in {side.name for side in sides}]
    torch = sys.modules.get("torch")
    threads: int = 2 if torch is None else torch.get_num_threads()
    pairs = min(counted.cells((*batch, *sides)), max(2, min(threads, 16)) << 16)
    return arrays * pairs * (8 if one.dtype == "f64" else 4)


def key_of(one: Value) -> str:
    """The name of an operation in the table of workspaces."""
    match one.op:
        case Map(fn) | Normalize(fn) | Reduce(fn) | Library(fn):
            return fn
        case Write():
            return "scatter"
        case Read():
            return "" if is_affine(one) or one.op.outside == "never" else "gather or zero"
    return ""
