"""The bytes that a call holds, operation by operation, as its printed code makes and frees arrays.

An array is there from the operation that makes it until its last name is gone: a view keeps the array that it is a view
of. Eager libraries build every elementwise value, and some operations need room for themselves. Inputs belong to the
caller, and are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from ..ir import build, whole
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import substitute
from ..records import dataclass
from .dialects import dialect
from .layouts import layouts
from .ops import (
    Axis,
    Carried,
    Contract,
    Input,
    Iota,
    Library,
    Loop,
    Map,
    Normalize,
    Number,
    Opaque,
    Plan,
    Put,
    Read,
    Reduce,
    Result,
    Value,
    Write,
    operands,
)
from .order import expression, inlined, is_view, lifetimes, ordered, read_by_rows, roots_of, stepped_along
from .products import Product, copied, is_pair, product_of
from .show import statements
from .specialise import Sizes
from .workspace import MEMORY, Workspace

_WIDTH: Mapping[str, int] = {"bool": 1, "i8": 1, "u8": 1, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}
_WEAK = {"bool": "bool", "whole": "i64", "real": "f64"}
_NOTHING = Workspace()
_IN_PLACE = frozenset(("+", "-", "*", "/", "&&", "||"))
_COMMUTES = frozenset(("+", "*", "&&", "||"))


@dataclass(frozen=True, slots=True)
class Row:
    """An operation: the bytes of the array that it makes, those that it needs for itself, and those that are there in
    all while it runs."""

    value: Value
    made: int
    workspace: int
    held: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The operations of a call in the order in which they run, and the bytes of its results."""

    rows: tuple[Row, ...]
    results: int

    @property
    def peak(self) -> int:
        """The most bytes that are there at once."""
        return max((row.held for row in self.rows), default=0)

    @property
    def largest(self) -> Row | None:
        """The operation that runs while the most bytes are there."""
        return max(self.rows, key=lambda row: row.held, default=None)


def bytes_of(
    plan: Plan, sizes: Sizes, library: str, scalars: Mapping[str, int] | None = None, frees: bool = True
) -> Ledger:
    """The bytes that a call holds by a library, for these sizes and whole scalars. Names are kept to the end unless the
    printed code `frees` them."""
    return _Ledger(plan, Counted(sizes, scalars or {}), library, frees).ledger()


def _statements(plan: Plan, library: str, frees: bool) -> list[tuple[Value, list[Value]]]:
    """The statements of the printed function, each with the values that are let go after it. A kernel of the former
    printer has none of these: names are then let go as soon as they can be."""
    if not any(isinstance(one.op, Opaque) for one in ordered(plan)):
        return statements(plan, dialect(library), frees)
    inside = inlined(plan)
    gone = ((one, [part for part in freed if frees and part not in inside]) for one, freed in lifetimes(plan, inside))
    return [(one, freed) for one, freed in gone if one not in inside and not isinstance(one.op, Input | Number)]


class Counted:
    """Axes counted, for known sizes. The step of a loop counts as its last."""

    def __init__(self, sizes: Sizes, scalars: Mapping[str, int]) -> None:
        self.sizes, self.scalars = sizes, scalars
        self.steps: dict[Coordinate, ir.Expr] = {}
        self.known: dict[ir.Expr, int] = {}

    def extent(self, expr: ir.Expr) -> int:
        if expr not in self.known:
            self.known[expr] = max(0, whole.value(substitute(expr, self.steps), self._leaf))
        return self.known[expr]

    def _leaf(self, leaf: ir.Size | ir.Read) -> int:
        return self.sizes[leaf.coordinate] if isinstance(leaf, ir.Size) else self.scalars[leaf.tensor]

    def cells(self, axes: Iterable[Axis]) -> int:
        return prod(self.extent(axis.extent) for axis in axes)

    def bytes(self, one: Value) -> int:
        """The bytes of the array of a value, if it has one of its own."""
        return 0 if one.is_host else self.cells(one.axes) * _WIDTH[one.dtype or _WEAK[one.kind]]

    def enter(self, loop: Loop) -> None:
        """Count what varies with the steps of a loop, from now on."""
        count = loop.count.op
        assert isinstance(count, Number)
        self.steps[loop.symbol] = build.whole(max(0, self.extent(count.expr) - 1), count.expr.span)
        for item in loop.body:
            if isinstance(item, Loop):
                self.enter(item)


class _Ledger:
    """The arrays that are there while the operations run, one after another."""

    def __init__(self, plan: Plan, counted: Counted, library: str, frees: bool) -> None:
        self.plan, self.counted, self.memory = plan, counted, MEMORY[library]
        self.order = layouts(plan)
        self.by_rows = read_by_rows(plan)
        values = ordered(plan)
        for one in values:
            if isinstance(one.op, Result):
                counted.enter(one.op.loop)
        self.statements = _statements(plan, library, frees)
        leaves = {one for one in values if isinstance(one.op, Input | Number | Carried)}
        self.inside = frozenset(values) - leaves - {one for one, _ in self.statements}
        self.storage: dict[Value, Value] = {one: one for one in leaves}
        self.holders: Counter[Value] = Counter(leaves)
        self.size: dict[Value, int] = dict.fromkeys(leaves, 0)
        self.held = 0

    def ledger(self) -> Ledger:
        rows = []
        for statement, gone in self.statements:
            for one in expression(statement, self.inside):
                workspace = self._workspace(one)
                made = self._make(one)
                rows.append(Row(one, made, workspace, self.held + workspace))
                for part in dict.fromkeys(operands(one.op)):
                    if part in self.inside:
                        self._free(part)
            for part in gone:
                self._free(part)
        results = {self.storage[one] for one in roots_of(self.plan) if one in self.storage}
        return Ledger(tuple(rows), sum(self.size[one] for one in results))

    def _make(self, one: Value) -> int:
        """Count the array of a value: its own, or that of the operand that it is a view of or is written over."""
        shared = self._shared(one)
        root = one if shared is None else self.storage.get(shared, shared)
        self.storage[one] = root
        self.holders[root] += 1
        if root is one:
            self.size[one] = self._own_bytes(one)
            if isinstance(one.op, Read) and _is_affine(one):  # A view of its source with zeros around.
                self.size[one] = min(self.size[one], self.counted.bytes(one.op.source))
            self.held += self.size[one]
            return self.size[one]
        return 0

    def _own_bytes(self, one: Value) -> int:
        """The bytes of an array of its own. Of a recurrence that is read at single steps there are these rows, and the
        one before."""
        steps = self.by_rows.get(one)
        if steps is None:
            return self.counted.bytes(one)
        assert isinstance(one.op, Result | Opaque)
        count = max(1, self.counted.extent(one.extent(stepped_along(one.op)[0])))
        return self.counted.bytes(one) // count * min(count, len(steps) + 1)

    def _free(self, one: Value) -> None:
        root = self.storage.get(one, one)
        self.holders[root] -= 1
        if not self.holders[root]:
            self.held -= self.size.get(root, 0)

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
        is_own = isinstance(arg.op, Map | Reduce | Normalize) and self.storage.get(arg) is arg and arg in self.inside
        fits = _is_like(other, one) or (other.is_host and one.dtype in (None, "f64"))
        return is_own and fits and _is_like(arg, one) and self.counted.bytes(one) >= self.memory.reuses

    def _workspace(self, one: Value) -> int:
        """The bytes that an operation needs for itself."""
        if isinstance(one.op, Contract):
            return self._copies(one, one.op)
        if isinstance(one.op, Result) and self.memory.stacks and one not in self.by_rows:
            self.held += self.counted.bytes(one)  # The rows, which stay.
            return 0
        need = self.memory.workspace.get(_key(one), _NOTHING)
        largest = max((one, *operands(one.op)), key=self.counted.bytes)
        index = one.op.index if isinstance(one.op, Read) else ()
        places = max((self.counted.cells(at.axes) for _, at in index), default=0)
        more = need.times * self.counted.bytes(largest) + need.a_cell * self.counted.cells(largest.axes)
        return int(more + need.a_place * places)

    def _copies(self, one: Value, op: Contract) -> int:
        """The factors of a product that are copied to be matrices."""
        if not is_pair(op):
            return 0
        way = product_of(op, self.order, self.order[one])
        scattered = copied(way, self.order)
        sides = (way.left, way.right)
        found = {each for each in sides if each in scattered or _is_cut(each, way) or self._is_flattened(each, way)}
        return sum(map(self.counted.bytes, found))

    def _is_flattened(self, one: Value, way: Product) -> bool:
        """Whether several batch axes become one that do not lie side by side: the rows of a recurrence come first."""
        if isinstance(one.op, Read) and _is_affine(one):
            return self._is_flattened(one.op.source, way)
        if not self.memory.flattens or len(way.batch) < 2 or not isinstance(one.op, Result):
            return False
        steps = one.op.of.steps
        lies = (*steps, *(name for name in self.order[one] if name not in steps))
        return lies[: len(way.batch)] != way.batch


def _is_like(one: Value, other: Value) -> bool:
    return one.axes == other.axes and (one.dtype, one.kind) == (other.dtype, other.kind)


def _is_affine(one: Value) -> bool:
    """Whether a value is slices, strides or windows of another."""
    return isinstance(one.op, Read) and all(at.known.whole is not None for _, at in one.op.index)


def _is_cut(one: Value, way: Product) -> bool:
    """Whether axes that become one are parts of an array with more between them: a view by slices or windows."""
    if not isinstance(one.op, Read) or not _is_affine(one):
        return False
    places = [at for _, at in one.op.index if at.names and not isinstance(at.op, Iota)]
    reached = frozenset[Coordinate]().union(*(at.names for at in places))
    groups = [group for group in (way.rows, way.columns, way.over) if len(group) > 1 and group[0] in one.names]
    return any(not reached.isdisjoint(group[1:]) for group in groups)


def _key(one: Value) -> str:
    """The name of an operation in the table of workspaces."""
    match one.op:
        case Map(fn) | Normalize(fn) | Reduce(fn) | Library(fn):
            return fn
        case Write():
            return "scatter"
        case Read():
            return "" if _is_affine(one) or one.op.outside == "never" else "gather or zero"
    return ""


# ---------------------------------------------------------------------------- work


def multiplications(one: Value, counted: Counted) -> int:
    """The multiplications of a contraction; the cells that any other operation computes."""
    match one.op:
        case Contract(factors, over):
            return counted.cells(_all_axes((*factors, one), over)) * max(1, len(factors) - 1)
        case Reduce(source=source, over=over):
            return counted.cells(_all_axes((source,), over))
        case Map() | Normalize() | Write() | Library():
            return max(counted.cells(part.axes) for part in (one, *operands(one.op)))
    return 0


def moved(one: Value, counted: Counted) -> int:
    """The bytes that an operation reads and writes; a view moves none."""
    if isinstance(one.op, Put):
        return 2 * counted.bytes(one.op.values)
    if isinstance(one.op, Carried) or (is_view(one) and not isinstance(one.op, Iota)):
        return 0
    return counted.bytes(one) + sum(counted.bytes(part) for part in dict.fromkeys(operands(one.op)))


def _all_axes(values: Iterable[Value], over: Iterable[Axis]) -> list[Axis]:
    found = {axis.name: axis for one in values for axis in one.axes}
    return [*{**found, **{axis.name: axis for axis in over}}.values()]
