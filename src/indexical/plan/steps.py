"""The parts of a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal, TypeAlias

from ..engine.budget import Budget
from ..engine.listing import Operation
from ..engine.ops import Axis
from ..engine.ops import Plan as ArrayProgram
from ..ir import nodes as ir
from ..ir import whole
from ..ir.domain import Domain, Slice
from ..ir.pairs import Pairs
from ..ir.types import Coordinate, Dtype
from ..records import dataclass, field, replace
from ..source import Span
from .scans import Recurrence

# The value of a row without keys: 0, as of a softmax, or NaN, as of a quotient. A keyless row is NaN too, and exists
# only where there are no keys at all.
Empty: TypeAlias = Literal["zero", "nan", "keyless"]


@dataclass(frozen=True, slots=True)
class Softmax:
    """Weights that are e to a score, over the sum of what that is for all keys and e to the `sink`, which no key has;
    without one they sum to 1."""

    sink: ir.Expr | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """Weights that are the score itself: nothing is divided."""


# What the sink of picked weights counts from: from 0, from the largest score or 0, from the largest score.
Origin: TypeAlias = Literal["zero", "floor", "peak"]


@dataclass(frozen=True, slots=True)
class Softpick:
    """Weights that are what e to a score is above 1, or 0, over the sum of how far that is from 1 for all keys and e to
    the `sink`, which counts from the `origin`."""

    sink: ir.Expr
    origin: Origin


Normaliser: TypeAlias = Softmax | Softpick | Free


@dataclass(frozen=True, slots=True)
class Attention:
    """`sum[key](weights * value)`, for every point of the other coordinates, with the weights that the `normaliser`
    makes of the score, where the guard holds: `softmax[key](score where guard)`, if nothing else is said.

    Score, guard and value are in normal form, so that every spelling of one attention is one value. `guard`
    holds the conditions that must all hold. Over no keys it is what `empty` says. A `total` gathers nothing: it is the
    logarithm of what the weights are divided by, -inf over no keys.
    """

    key: ir.Range
    score: ir.Expr
    guard: tuple[ir.Expr, ...]
    value: ir.Expr
    empty: Empty
    normaliser: Normaliser = Softmax()
    total: bool = False

    @property
    def coordinate(self) -> Coordinate:
        return self.key.coordinate

    @property
    def sink(self) -> ir.Expr | None:
        """The logarithm of what is added to the sum of the exponentials; None for nothing."""
        return None if isinstance(self.normaliser, Free) else self.normaliser.sink

    @property
    def parts(self) -> tuple[ir.Expr, ...]:
        """All that its weights are made of: the score, the guard, and the sink if there is one."""
        return (self.score, *self.guard, *(() if self.sink is None else (self.sink,)))

    @property
    def asked(self) -> frozenset[Coordinate]:
        """The coordinates of its weights, the key among them."""
        return frozenset().union(*(part.type.coordinates for part in self.parts))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A better way that was not taken, and why."""

    definition: str
    way: str
    reason: str
    span: Span | None = field(default=None, compare=False, repr=False)


# A note of the plan about a definition: how it is computed, or which better way was not taken.
Note: TypeAlias = str | Refusal


@dataclass(frozen=True, slots=True)
class Gathering:
    """A definition that gathers over a key, for each of some queries, with weights that are built."""

    definition: str
    key: ir.Range
    queries: frozenset[Coordinate]


@dataclass(frozen=True, slots=True)
class Recognized:
    """A program in which every attention is a definition of its own, and what each of them is; and what gathers
    with weights of which a kernel makes nothing.

    The program says the same as the one it was made from; definitions that nothing reads any more are still
    in it.
    """

    program: ir.Program
    attentions: Mapping[str, Attention]
    refusals: tuple[Refusal, ...]
    gatherings: tuple[Gathering, ...] = ()


@dataclass(frozen=True, slots=True)
class Dot:
    """`scale · sum[compared](query · key)`: the query's factors are free of the key, the key's of the query."""

    compared: tuple[ir.Range, ...]
    query: ir.Expr
    key: ir.Expr
    scale: ir.Expr | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of an attention: `batch` axes, `rows` of queries, and the axes that values `carry` into the result."""

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
class Chunks:
    """`sum[key]((sum[features](query · answer)) · decay · value)` over the keys up to the `row`, those before it where
    it is `strict`, those from it on where it goes `backward`: the product of answer and value is carried in a state.

    The decay is e to `rate` for every step from key to row, times e to the difference of `levels` between the two,
    times the product of `times` over these steps; None is no decay. All of them may vary with the features. Levels are
    at the row, or at the key where it goes backward; rate and `times` vary with the row where each step has its own.

    Where a step `asks`, it first adds to the value what the state before it has for that: the sum over the features of
    `asks` times the state. With `kernels` it is computed by Triton kernels and not by the array library.
    """

    row: Coordinate
    key: ir.Range
    features: tuple[ir.Range, ...]
    query: ir.Expr
    answer: ir.Expr
    value: ir.Expr
    rate: ir.Expr | None = None
    levels: ir.Expr | None = None
    times: ir.Expr | None = None
    strict: bool = False
    backward: bool = False
    asks: ir.Expr | None = None
    kernels: bool = False

    @property
    def fades_by_feature(self) -> bool:
        """Whether features decay each by itself."""
        features = {range.coordinate for range in self.features}
        decays = (self.rate, self.levels, self.times)
        return any(part is not None and part.type.coordinates & features for part in decays)

    @property
    def parts(self) -> tuple[ir.Expr, ...]:
        """The expressions that have to be evaluated."""
        bounds = [bound for range in (self.key, *self.features) for bound in (range.lower, range.upper)]
        given = (self.query, self.answer, self.value, self.rate, self.levels, self.times, self.asks)
        return (*bounds, *(part for part in given if part is not None))


@dataclass(frozen=True, slots=True)
class Attend:
    """An attention with all that a kernel needs: the `domain` of its pairs of query and key, and the keys of each
    query. `shape` is `full` or `causal` where its guard says no more than that; up to so `few` pairs are computed
    at once. `otherwise` is the kernel of calls that a better one does not take for their sizes. Calls of at
    least so many queries as it `decodes`, and of few, have a kernel that splits the keys; 0 for none. `totals` are
    definitions that are the logarithm of what its weights are divided by, each with its axes in coordinates of this."""

    attention: Attention
    layout: Layout
    scores: Scores
    domain: Domain
    keys: tuple[Slice, ...]
    shape: str | None
    few: int | None = None
    otherwise: str | None = None
    decodes: int = 0
    totals: tuple[tuple[str, tuple[Coordinate, ...]], ...] = ()

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
class Receiver:
    """A definition that is a gradient: `order` says which axis of the gradient each of its axes is."""

    definition: str
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradients of an attention, where `arriving` is the cotangent of its result: of the query's side of its scores
    (batch, row, compared axes), of the key's side (batch, key, compared axes) and of the values (batch, key, carried
    axes); None for those that are not wanted.

    `forward` is the definition that the attention would be. Nothing computes it.
    """

    weights: str
    forward: str
    attend: Attend
    kernel: str
    words: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    arriving: ir.Expr
    query: Receiver | None
    key: Receiver | None
    value: Receiver | None

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
    and `large` are as large as rows × keys. `totals` are sums over all rows. There are so many `keys`; where no row
    needs one behind itself, `early` are their coordinates in each definition.
    """

    weights: str
    row: Coordinate
    rows: ir.Expr
    inner: tuple[tuple[str, int], ...]
    kept: tuple[str, ...]
    totals: tuple[str, ...]
    large: tuple[str, ...]
    keys: ir.Expr
    early: Mapping[str, frozenset[Coordinate]] | None = None

    @property
    def definitions(self) -> tuple[str, ...]:
        """The definitions that are there in the end."""
        return (*self.kept, *self.totals)


@dataclass(frozen=True, slots=True)
class Step:
    """The way one definition is computed: its kernel, the notes about it, and the better ways that were refused.

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
    chunks: Chunks | None = None

    @property
    def definitions(self) -> tuple[str, ...]:
        """The definitions that it computes, on the way too."""
        inner = () if self.block is None else tuple(name for name, _ in self.block.inner)
        return tuple(dict.fromkeys((self.definition, *self.beside, *self.covers, *inner)))

    def noted(self, notes: Iterable[str | Refusal]) -> Step:
        """The step with what is said of it while it is lowered."""
        words, refused = (tuple(n for n in notes if isinstance(n, kind)) for kind in (str, Refusal))
        return replace(self, words=(*self.words, *words), refusals=(*self.refusals, *refused))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Plan:
    """The way a program is computed, for arrays of some dtypes on some device.

    `unbuilt` are definitions that were asked for on the way and never exist; `weak` ones take the dtype of what
    they meet. Without `recompute`, all that the backward pass reads is kept in memory. `agreed` are pairs of extents
    that the program as it was written takes to be equal. `arrays` is the program of operations that runs, `lowered` the
    one before any rule, and `operations` lists them; `unskewed` makes that of the program before it went along
    diagonals. `budget` is its memory, where that was limited.
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
    arrays: ArrayProgram | None = None
    lowered: ArrayProgram | None = field(default=None, compare=False, repr=False)
    unskewed: Callable[[], ArrayProgram] | None = field(default=None, compare=False, repr=False)
    operations: tuple[Operation, ...] = ()
    budget: Budget | None = None

    def noted(self, notes: Mapping[str, Iterable[str | Refusal]], operations: Iterable[Operation]) -> Plan:
        """The plan with what was decided while it was lowered: its operations, and what is said of definitions."""
        steps = tuple(
            step.noted([note for name in step.definitions for note in notes.get(name, ())]) for step in self.steps
        )
        return replace(self, steps=steps, operations=tuple(operations))


# The bytes of a point.
WIDTH: dict[Dtype, int] = {"bool": 1, "i8": 1, "u8": 1, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def size_of(let: ir.Let, plan: Plan, sizes: Mapping[Coordinate, int]) -> int | None:
    """The size of a definition in bytes; None where its extents are not known."""
    total = WIDTH[plan.dtypes[let.name]]
    for axis in let.axes:
        extent = extent_of(axis, sizes)
        if extent is None:
            return None
        total *= extent
    return total


def extent_of(axis: ir.Axis | Axis, sizes: Mapping[Coordinate, int]) -> int | None:
    """The number of points of an axis; None where that is not known."""

    def lookup(leaf: ir.Size | ir.Read) -> int:
        if isinstance(leaf, ir.Read) or leaf.coordinate not in sizes:
            raise whole.Unknown
        return sizes[leaf.coordinate]

    try:
        return max(0, whole.value(axis.extent, lookup))
    except whole.Unknown:
        return None
