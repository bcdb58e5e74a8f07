"""The Program, on one page.

Axis order exists only at the boundaries: in the axes of inputs and definitions, and in the
indices of a read. Everywhere else there are sets of coordinates.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias

from ..records import Hashed, dataclass, field
from ..source import Source, Span
from .types import Coordinate, Dtype, Kind, Type


def _span() -> Span:
    return field(compare=False, repr=False)  # type: ignore[no-any-return]


def _type() -> Type:
    """The type follows from the other fields nearly always: a hash need not read it."""
    return field(hash=False)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Const:
    """A number as written, exactly. `rounding` is half a unit of the last digit of a `~` figure."""

    value: bool | int | Fraction
    type: Type = _type()
    span: Span = _span()
    rounding: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Array(Hashed):
    """An array literal, read at `indices`. `cells` run in row-major order."""

    shape: tuple[int, ...]
    cells: tuple[Const, ...]
    indices: tuple[Expr, ...]
    type: Type = _type()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Coord:
    """The value of a coordinate: its integer."""

    coordinate: Coordinate
    type: Type = _type()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Size:
    """The number of points of the inputs' coordinate of this name: a variable of the whole program."""

    coordinate: Coordinate
    type: Type = _type()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Read(Hashed):
    """One element of an input or of a definition; a scalar has no indices."""

    tensor: str
    indices: tuple[Expr, ...]
    type: Type = _type()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Map(Hashed):
    """An elementwise function. Operators go by their sign (`//` is the whole quotient, `neg` the
    unary minus), casts as `as f32`, all others by their name."""

    op: str
    arguments: tuple[Expr, ...]
    type: Type = _type()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Select(Hashed):
    """`then` where `condition` holds, else `otherwise`; only the branch taken is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr
    type: Type = _type()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Range(Hashed):
    """A bound coordinate runs from `lower` up to, not including, `upper`.

    `stated` is False where the size was taken from the axes that the coordinate indexes bare: these
    must then agree.
    """

    coordinate: Coordinate
    lower: Expr
    upper: Expr
    stated: bool
    span: Span = _span()
    # Found once, by `prove`: the polynomials that are at least 0 in it.
    inside: tuple[Any, ...] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def from_zero(self) -> bool:
        """Whether the first point is 0, as it is written."""
        return isinstance(self.lower, Const) and self.lower.value == 0

    @property
    def is_counted(self) -> bool:
        """Whether it runs from 0 up to a number that does not vary."""
        return self.from_zero and not self.upper.type.coordinates

    @property
    def depends_on(self) -> frozenset[Coordinate]:
        """The coordinates that the bounds vary with."""
        return self.lower.type.coordinates | self.upper.type.coordinates


@dataclass(frozen=True, slots=True)
class Reduce(Hashed):
    """`op` over the points of `ranges` at which `guard` holds.

    Over no points it is the identity of `op`: 0 for sum, -inf for max.
    """

    op: str
    ranges: tuple[Range, ...]
    body: Expr
    guard: Expr | None
    type: Type = _type()
    span: Span = _span()

    @property
    def coordinates(self) -> frozenset[Coordinate]:
        return frozenset(range.coordinate for range in self.ranges)


@dataclass(frozen=True, slots=True)
class Normalize(Hashed):
    """`op` over a coordinate that survives. Points that `guard` removes get 0 (log_softmax: -inf, rank: the number of
    points that are left).

    `coordinate` is bound outside, where its range is; inside the body it runs over all its points.
    """

    op: str
    coordinate: Coordinate
    body: Expr
    guard: Expr | None
    type: Type = _type()
    span: Span = _span()


Expr: TypeAlias = Const | Array | Coord | Size | Read | Map | Select | Reduce | Normalize

# The facts at a place, outermost first: a coordinate in its range, a condition and whether it holds.
Trail: TypeAlias = "tuple[Range | tuple[Expr, bool], ...]"
Place: TypeAlias = tuple[Expr, Trail]

# ----------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a tensor's home: the coordinate it was declared with, and its extent.

    In the Program every axis begins at 0. `origin` is where the text has it begin, if that is elsewhere: `x[t in 1..n]`
    is an axis of `n - 1` points, whose first the text calls 1.
    """

    coordinate: Coordinate
    extent: Expr
    origin: Expr | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Input:
    """`dtype` is None where none was declared: any of its kind will do. An array that is `owned` is one of ours: it may
    be written to, where a definition puts new rows behind those that it has, or at places; these are there, each once,
    and so are places that it names. One that `counts` has numbers of points of an axis."""

    name: str
    axes: tuple[Axis, ...]
    kind: Kind
    dtype: Dtype | None
    span: Span = _span()
    owned: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Clause:
    """One `let` of a definition. A slot is a coordinate of `ranges`, or the place of a base case.

    The points at which `guard` fails are absent.
    """

    slots: tuple[Expr, ...]
    ranges: tuple[Range, ...]
    body: Expr
    guard: Expr | None
    span: Span = _span()
    # Found once, by `context.places_of`.
    places: tuple[Place, ...] | None = field(default=None, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Let:
    """A definition: its home, and the clauses that together cover it.

    `hidden` is True for what a function or a block brought along; `call` is then the call in the program's
    own text that did, and the first `captured` axes are coordinates of the statement around it, of which
    it has only those points that this statement has. `derived` are the two names of the `@y / @x` that it belongs to.
    """

    name: str
    axes: tuple[Axis, ...]
    kind: Kind
    clauses: tuple[Clause, ...]
    hidden: bool
    span: Span = _span()
    call: Span | None = field(default=None, compare=False, repr=False)
    captured: int = 0
    derived: tuple[str, ...] = field(default=(), compare=False, repr=False)
    # Each found once, by `walk.parts_in`, `walk.reads_of`, `walk.functions_of` and `transform.gradient`.
    parts: tuple[Expr, ...] | None = field(default=None, init=False, compare=False, repr=False)
    reads: tuple[Read, ...] | None = field(default=None, init=False, compare=False, repr=False)
    functions: frozenset[str] | None = field(default=None, init=False, compare=False, repr=False)
    slopes: frozenset[str] | None = field(default=None, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """The claims of a program about an attention: roles as (role, coordinate name), flags with their size."""

    name: str
    roles: tuple[tuple[str, str], ...]
    flags: tuple[tuple[str, Expr | None], ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Assert:
    condition: Expr
    message: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Expect:
    """A published figure for every point of `ranges`, in their order.

    `figures` has one cell for every point, or one for all (`shape` is then empty); a None is the
    claim that the point is absent. `digits` says to how many decimal places each was printed. What is no number as
    written is computed. `tolerance` is how far each may be off, where that was said; `printed` says that later steps
    read the figures, and not what they stand for.
    """

    ranges: tuple[Range, ...]
    body: Expr
    shape: tuple[int, ...]
    figures: tuple[Expr | None, ...]
    digits: tuple[int | None, ...]
    span: Span = _span()
    tolerance: Fraction | None = None
    printed: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions of it that are computed: the left side, and what is claimed, where that is no number as
        written."""
        return (self.body, *(figure for figure in self.figures if figure is not None and not isinstance(figure, Const)))


@dataclass(frozen=True, slots=True)
class Once:
    """Every point of this definition, in any order."""

    name: str


@dataclass(frozen=True, slots=True)
class Stepwise:
    """A recurrence: `body` in order, for one point after the other of one axis of each definition. Those that are
    `later` by `n` have their point `p` in step `p + n`; all others in step `p`."""

    axes: tuple[tuple[str, int], ...]
    forward: bool
    body: tuple[Order, ...]
    later: tuple[tuple[str, int], ...] = ()


Order: TypeAlias = Once | Stepwise


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program. `order` has every definition after all that it reads; `modules` are files of the user's that
    functions were taken from."""

    source: Source
    inputs: tuple[Input, ...]
    lets: tuple[Let, ...]
    outputs: tuple[str, ...]
    order: tuple[Order, ...]
    contracts: tuple[Contract, ...]
    asserts: tuple[Assert, ...]
    expects: tuple[Expect, ...]
    modules: tuple[Source, ...] = field(default=(), compare=False, repr=False)
    # Found once, by `checker.spaces`.
    classes: Any = field(default=None, init=False, compare=False, repr=False)
    # Found once, by `context.agreed`.
    same: tuple[tuple[Expr, Expr], ...] | None = field(default=None, init=False, compare=False, repr=False)
    # Made when they are first asked for.
    _tensors: dict[str, Input | Let] | None = field(default=None, init=False, compare=False, repr=False)
    _definitions: dict[str, Let] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def tensors(self) -> dict[str, Input | Let]:
        """Every input and definition by its name: to be read, as it is found once."""
        if self._tensors is None:
            inputs: dict[str, Input | Let] = {tensor.name: tensor for tensor in self.inputs}
            object.__setattr__(self, "_tensors", inputs | self.definitions)
            assert self._tensors is not None
        return self._tensors

    @property
    def definitions(self) -> dict[str, Let]:
        """Every definition by its name, likewise."""
        if self._definitions is None:
            object.__setattr__(self, "_definitions", {let.name: let for let in self.lets})
            assert self._definitions is not None
        return self._definitions

    @property
    def recurrent(self) -> frozenset[str]:
        """The definitions that are made of themselves."""
        return frozenset(name for item in self.order if isinstance(item, Stepwise) for name, _ in item.axes)
