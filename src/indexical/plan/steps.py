"""What a plan is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ..ir import nodes as ir
from ..ir import whole
from ..ir.domain import Domain, Slice
from ..ir.pairs import Pairs
from ..ir.types import Coordinate, Dtype
from ..source import Span
from .norms import Norm
from .scans import Recurrence

# What a row is that hears nobody: 0, as of a softmax, or NaN, as of a quotient. One that is keyless is NaN too, and
# there is one only where there are no keys at all.
Empty: TypeAlias = Literal["zero", "nan", "keyless"]


@dataclass(frozen=True, slots=True)
class Attention:
    """`sum[key](softmax[key](score where guard) * value)`, for every point of the other coordinates.

    Score, guard and value are in normal form, so that every spelling of one attention is one value. `guard`
    holds the conditions that must all hold. Over no keys it is what `empty` says.
    """

    key: ir.Range
    score: ir.Expr
    guard: tuple[ir.Expr, ...]
    value: ir.Expr
    empty: Empty

    @property
    def coordinate(self) -> Coordinate:
        return self.key.coordinate


@dataclass(frozen=True, slots=True)
class Refusal:
    """A better way that was not taken, and why."""

    definition: str
    way: str
    reason: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Recognized:
    """A program in which every attention is a definition of its own, and what each of them is.

    The program says the same as the one it was made from; definitions that nothing reads any more are still
    in it.
    """

    program: ir.Program
    attentions: Mapping[str, Attention]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Dot:
    """`scale · sum[compared](query · key)`: the query's factors are free of the key, the key's of the query."""

    compared: tuple[ir.Range, ...]
    query: ir.Expr
    key: ir.Expr
    scale: ir.Expr | None


@dataclass(frozen=True, slots=True)
class Layout:
    """How the coordinates of an attention lie: `batch` keep everything apart, `rows` ask, `carry` come home."""

    batch: tuple[Coordinate, ...]
    rows: tuple[Coordinate, ...]
    carry: tuple[Coordinate, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """A score as a dot product plus a bias; without a dot it is all bias, and `reason` says why."""

    dot: Dot | None
    bias: ir.Expr | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Attend:
    """An attention with all that a kernel wants to know of it: the `domain` of who hears whom, and the keys of a query,
    seen from it. `shape` is `full` or `causal` where that is all there is to its guard."""

    attention: Attention
    layout: Layout
    scores: Scores
    domain: Domain
    keys: tuple[Slice, ...]
    shape: str | None

    @property
    def row(self) -> Coordinate | None:
        """The coordinate of the queries: the last that a guard mentions, or the last of all; None where none asks."""
        guarded = [c for c in self.layout.rows if any(c in guard.type.coordinates for guard in self.attention.guard)]
        asking = guarded or list(self.layout.rows)
        return asking[-1] if asking else None

    @property
    def pairs(self) -> Pairs | None:
        """The keys of each query, from which those of a tile are found, and the queries of a tile of keys; None where
        no coordinate asks."""
        row = self.row
        if row is None:
            return None
        others = tuple(c for c in self.layout.rows if c != row)
        return Pairs(self.domain, row, self.attention.coordinate, others)


@dataclass(frozen=True, slots=True)
class Target:
    """A definition that is a gradient: `order` says which axis of the gradient each of its axes is."""

    definition: str
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gradient:
    """What flows back through an attention, where `arriving` arrives at its result: to the query's side of its scores
    (what keeps apart, the row, what is compared), to the key's side (what keeps apart, the key, what is compared) and
    to what is gathered (what keeps apart, the key, what is carried); None for what nobody wants.

    `forward` is the definition that the attention would be. Nothing computes it.
    """

    weights: str
    forward: str
    attend: Attend
    kernel: str
    words: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    arriving: ir.Expr
    query: Target | None
    key: Target | None
    value: Target | None

    @property
    def definitions(self) -> tuple[str, ...]:
        return tuple(target.definition for target in (self.query, self.key, self.value) if target is not None)

    def only(self, names: Collection[str]) -> Gradient:
        """The same, of which just these are wanted."""
        query, key, value = (
            target if target is not None and target.definition in names else None
            for target in (self.query, self.key, self.value)
        )
        return replace(self, query=query, key=key, value=value)


@dataclass(frozen=True, slots=True)
class Block:
    """Definitions that are computed together, for some points of `row` after the other; `rows` is how many there are.

    `inner` are computed for these points alone, each with the axis that has them; of these `kept` are put together,
    and `large` are as large as rows × keys. `totals` are sums over all rows.
    """

    weights: str
    row: Coordinate
    rows: ir.Expr
    inner: tuple[tuple[str, int], ...]
    kept: tuple[str, ...]
    totals: tuple[str, ...]
    large: tuple[str, ...]

    @property
    def definitions(self) -> tuple[str, ...]:
        """What is there in the end."""
        return (*self.kept, *self.totals)


@dataclass(frozen=True, slots=True)
class Step:
    """How one definition is computed: by which kernel, what is said of it, and which better ways were refused.

    `covers` are definitions that its kernel computes on the way, and never builds. `recurrence` says how it
    goes, where it reads itself.
    """

    definition: str
    kernel: str
    words: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    attend: Attend | None = None
    covers: tuple[str, ...] = ()
    recurrence: Recurrence | None = None
    gradient: Gradient | None = None
    block: Block | None = None
    beside: tuple[str, ...] = ()
    norm: Norm | None = None


@dataclass(frozen=True)
class Plan:
    """How a program is computed, for arrays of some dtypes on some device.

    `unbuilt` are definitions that were asked for on the way and never exist; `weak` ones take the dtype of what
    they meet. Where it may not `recompute`, the way back finds all that it reads in memory. `agreed` are pairs of
    extents that the program as it was written takes to be equal.
    """

    program: ir.Program
    wanted: tuple[str, ...]
    dtypes: Mapping[str, Dtype]
    backend: str
    device: str
    isolate: bool
    steps: tuple[Step, ...]
    unbuilt: tuple[str, ...]
    weak: frozenset[str]
    recompute: bool = True
    agreed: tuple[tuple[ir.Expr, ir.Expr], ...] = ()


# How many bytes a point has.
WIDTH: dict[Dtype, int] = {"bool": 1, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def size_of(let: ir.Let, plan: Plan, sizes: Mapping[Coordinate, int]) -> int | None:
    """How many bytes a definition has; None where its sizes are not known."""
    total = WIDTH[plan.dtypes[let.name]]
    for axis in let.axes:
        extent = extent_of(axis, sizes)
        if extent is None:
            return None
        total *= extent
    return total


def extent_of(axis: ir.Axis, sizes: Mapping[Coordinate, int]) -> int | None:
    """How many points an axis has; None where that is not known."""

    def lookup(leaf: ir.Size | ir.Read) -> int:
        if isinstance(leaf, ir.Read) or leaf.coordinate not in sizes:
            raise whole.Unknown
        return sizes[leaf.coordinate]

    try:
        return max(0, whole.value(axis.extent, lookup))
    except whole.Unknown:
        return None
