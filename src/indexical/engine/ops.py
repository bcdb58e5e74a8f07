"""The array program: frozen operations on interned values with named axes, then how they are walked and made.

A value is its operation: two that are made alike are one object, so that common subexpressions cost nothing to find.
Axes are a set of names; their order in memory is a pass of its own. A value has no domain and no origin, because either
would tell equal cells apart. A guard stands in the operation where it changes what runs: in `Read.under`,
`Write.under`, `Reduce.where`, `Normalize.where` and in a `where`. The step of a loop is a number of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, fields
from functools import cache
from threading import Lock
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import SHORT, Coordinate, Dtype, Kind
from ..records import Hashed, dataclass
from ..source import Span
from .known import Known

# Where an index may leave its source: at no point; only where the guard removes it; perhaps where it is asked for.
Outside: TypeAlias = Literal["never", "masked", "check"]
OUTSIDE: tuple[Outside, ...] = ("never", "masked", "check")
# What the former printer still prints: folds like a softmax and their gradients, also for some rows after the other;
# recurrences, also of chunks of their steps.
OpaqueKind: TypeAlias = Literal["attend", "attend_backward", "blocks", "chunks", "scan"]
OPAQUE: tuple[OpaqueKind, ...] = ("attend", "attend_backward", "blocks", "chunks", "scan")


# The axes that stand for one axis of an array, for each of its axes.
Layout: TypeAlias = tuple[tuple[Coordinate, ...], ...]


@dataclass(frozen=True, slots=True)
class Axis(Hashed):
    """A name, and the number of its points: a whole number of the host, made of sizes, whole scalars and steps."""

    name: Coordinate
    extent: ir.Expr


# ------------------------------------------------------------------------- leaves


@dataclass(frozen=True, slots=True)
class Input(Hashed):
    """An array that is given, with its axes in order; a real scalar is one without axes. One that is `owned` was given
    away: it may be written to. One that `counts` has numbers of points of an axis."""

    name: str
    home: tuple[Axis, ...]
    kind: Kind
    dtype: Dtype | None
    owned: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True)
class Number(Hashed):
    """A number of the host: a literal, a size, a bound, the step of a loop. It is weak: it takes the dtype it meets."""

    expr: ir.Expr


@dataclass(frozen=True, slots=True)
class Table(Hashed):
    """An array literal; its cells run in row-major order."""

    home: tuple[Axis, ...]
    cells: tuple[ir.Const, ...]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Iota(Hashed):
    """The points of an axis: 0, 1, and so on."""

    axis: Axis


# --------------------------------------------------------------------- operations


@dataclass(frozen=True, slots=True)
class Map(Hashed):
    """An elementwise function of the table, an operator, a cast (`as f32`, or `as real`, which stays weak), or `where`;
    axes meet by name. `as wide` is `as f32` of 16 bits that the text does not ask for: it is how these are computed. A
    `checked` one of whole numbers is refused where it leaves its dtype or divides by 0.

    `some max`, and likewise of `min`, `mean`, `argmax` and `argmin`, is its first argument, a reduction, refused where
    the second one fails: there it is over no points. What guards remove never makes a check fail: its operands are
    harmless there.
    """

    fn: str
    args: tuple[Value, ...]
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Read(Hashed):
    """out[axes] = source[index]: slice, stride, window, flip, diagonal, renaming and gather are one map.

    `index` has a whole value for axes of the source, by name and in the order of names; an axis that it does not
    mention stays. Places outside the source read 0, and are refused where `outside` is `check` and `under` holds.
    """

    source: Value
    index: tuple[tuple[Coordinate, Value], ...]
    outside: Outside = "never"
    under: Value | None = None


@dataclass(frozen=True, slots=True)
class Write(Hashed):
    """The transpose of a read: out[.., p] combines values[.., gone] at the points whose place is p. `index` has new
    axes, in the order of names, and the place along each. Places outside are left out, and are refused where `outside`
    is `check` and `under` holds."""

    values: Value
    index: tuple[tuple[Axis, Value], ...]
    gone: tuple[Axis, ...]
    combine: Literal["add", "set"] = "add"
    outside: Outside = "masked"
    under: Value | None = None


@dataclass(frozen=True, slots=True)
class Put(Hashed):
    """`into`, in which values[.., gone] are stored where `index` is: it has a whole value for some axes of `into`, by
    name and in the order of names. No two points have one place. It is made only of an array that the caller gave away,
    and is then written to: nothing else of it is touched or copied."""

    into: Value
    index: tuple[tuple[Coordinate, Value], ...]
    values: Value
    gone: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Reduce(Hashed):
    """sum, prod, max, min, mean, any, all, argmax, argmin over axes, at the points where `where` holds. A `checked` sum
    or product of whole numbers is refused where it leaves 64 bits."""

    fn: str
    source: Value
    over: tuple[Axis, ...]
    where: Value | None = None
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Contract(Hashed):
    """A product of arrays, summed over axes."""

    factors: tuple[Value, ...]
    over: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Normalize(Hashed):
    """softmax, log_softmax, cumsum, cumprod, cummax, rank and their like along an axis that stays."""

    fn: str
    source: Value
    along: Axis
    where: Value | None = None
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Library(Hashed):
    """A kernel of the library by its name, of ordinary operands: what a rule puts in the place of several operations.

    `layouts` are the name and the layout of each argument, "" for one without a name: a layout has the axes that
    the kernel takes as one, in a group for each axis of the array that it is given; a group without axes has one point.
    `result` is the layout of what it returns, `axes` are its axes. `words` are the other arguments by name: numbers,
    extents, texts, and tuples of these."""

    kernel: str
    args: tuple[Value, ...]
    layouts: tuple[tuple[str, Layout], ...]
    axes: tuple[Axis, ...]
    result: Layout
    words: tuple[tuple[str, Any], ...] = ()
    kind: Kind = "real"
    dtype: Dtype | None = None


@dataclass(frozen=True, slots=True)
class Join(Hashed):
    """Clauses put together: zeros of `home`, and each part stored at its slots, which are host numbers, or an axis plus
    a host number."""

    home: tuple[Axis, ...]
    parts: tuple[tuple[tuple[Value, ...], Value], ...]
    kind: Kind
    dtype: Dtype | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A definition that a kernel of the former printer computes: a softmax-like fold or a recurrence, of one of the
    kinds that it may still be. Definitions of one `step` are computed together. Its operands are ordinary values, by
    the names that the kernel knows them by."""

    name: str
    kernel: str
    step: Any
    operands: tuple[tuple[str, Value], ...]
    home: tuple[Axis, ...]
    kind: Kind
    dtype: Dtype | None

    def __post_init__(self) -> None:
        assert self.step.kind in OPAQUE, f"`{self.name}` is of no kind that the former printer may print"

    def __hash__(self) -> int:
        return hash((self.name, self.kernel, id(self.step), self.operands))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self._key == other._key

    @property
    def _key(self) -> tuple[object, ...]:
        return (self.name, self.kernel, id(self.step), self.operands, self.home, self.kind, self.dtype)


# -------------------------------------------------------------------------- folds


@dataclass(frozen=True, slots=True)
class Fold:
    """For each query, a sum over the points of `key` of weights times `value`: the weights are what a `normaliser` of
    the table in `folds.py` makes of the `score` of a query and a key, at the pairs where the guard `where` holds.

    `row` is the axis of queries. They hear keys from `low` up to `beyond`, where these are not None: all of them where
    it `is_interval`, else those where the guard holds. `more` is what the normaliser takes beside the score, `given`
    are definitions that all this is made of. The result is a quotient, NaN over no keys, where it `divides`; else it is
    0 there. The `part` "logarithm" is that of what the weights are divided by. Over at most so many pairs as `few`
    says all of them are computed at once, and always where that is said (`at_once`). Where there are as many
    queries as keys, and each hears the key at its own place, it `hears_itself`. `texts` are the lines of the relation
    that it computes.
    """

    normaliser: str
    score: Value
    value: Value
    key: Axis
    row: Coordinate | None
    where: Value | None = None
    low: Value | None = None
    beyond: Value | None = None
    more: tuple[Value, ...] = ()
    given: tuple[Value, ...] = ()
    divides: bool = False
    is_interval: bool = False
    part: str = "result"
    few: int | None = None
    at_once: bool = False
    hears_itself: bool = False
    texts: tuple[str, ...] = ()

    @property
    def pairs(self) -> ir.Expr:
        """How many scores of a query and a key there are, each with the features that it is made of one by one."""
        parts = {self.score} if self.where is None else {self.score, self.where}
        waiting, factors = [self.score], [self.value]
        while factors:  # Of values that are products, each factor is there by itself.
            one = factors.pop()
            is_product = isinstance(one.op, Map) and (one.op.fn == "*" or one.op.fn.startswith("as "))
            (factors if is_product else waiting).extend(one.parts if is_product else (one,))
        pair = {self.row, self.key.name}
        while waiting:
            one = waiting.pop()
            if pair <= one.names and (one not in parts or one is self.score):
                parts.add(one)
                waiting += () if isinstance(one.op, Contract) else one.parts
        found: ir.Expr = build.whole(1, self.key.extent.span)
        for axis in (*axes_of(*parts, without=(self.key,)), self.key):
            found = build.apply("*", (found, axis.extent), "whole", found.span)
        return found


@dataclass(frozen=True, slots=True)
class Tiles:
    """A fold as loops over tiles of queries and keys: nothing is as large as all pairs. `leaves` are the arrays that
    are read; the `turn` of the loops (`tiles.py`) is made of their parts, and of no other values of the plan. So is the
    one of their way `back`; a text says why there is none. They give several arrays, each with its home and its dtype,
    of which this is the one at `part`."""

    turn: Any
    back: Any
    leaves: tuple[Value, ...]
    homes: tuple[tuple[tuple[Axis, ...], Dtype | None], ...]
    part: int = 0

    @property
    def home(self) -> tuple[Axis, ...]:
        return self.homes[self.part][0]

    @property
    def dtype(self) -> Dtype | None:
        return self.homes[self.part][1]


@dataclass(frozen=True, slots=True)
class Either:
    """An array in one of two ways: `many` computes some pairs of a query and a key after the others; where there are at
    `least` so many `pairs`, and at `most`, all are computed at once. Until folds are taken apart that is a `fold`. Then
    it is `few` (`tiles.py`), which is made of `leaves` and of no other values of the plan. `texts` are the lines of the
    relation that it computes. Where a number of `queries` is given, a single one of them takes the other way."""

    pairs: ir.Expr
    least: int
    most: int
    many: Value
    texts: tuple[str, ...]
    queries: ir.Expr | None = None
    fold: tuple[Value, ...] = ()
    few: Any = None
    leaves: tuple[Value, ...] = ()

    @property
    def home(self) -> tuple[Axis, ...]:
        return self.many.op.home  # type: ignore[union-attr]

    @property
    def test(self) -> ir.Expr:
        """Whether pairs are few."""
        span = self.pairs.span
        found = build.apply("<=", (self.pairs, build.whole(self.most, span)), "bool", span)
        if self.least:
            least = build.apply("<=", (build.whole(self.least, span), self.pairs), "bool", span)
            found = build.apply("&&", (least, found), "bool", span)
        if self.queries is not None:
            several = build.apply("!=", (self.queries, build.whole(1, span)), "bool", span)
            found = build.apply("&&", (several, found), "bool", span)
        return found


# -------------------------------------------------------------------- recurrences


@dataclass(frozen=True, slots=True)
class Carried:
    """A definition of a recurrence, as far as it is computed; 0 where it is not there yet. `steps` are the axes that
    the loops step, `symbols` the coordinates of these steps. It is `finite` where no function in the
    recurrence has a pole."""

    name: str
    home: tuple[Axis, ...]
    steps: tuple[Coordinate, ...]
    symbols: frozenset[Coordinate]
    kind: Kind
    dtype: Dtype | None
    finite: bool = True


@dataclass(frozen=True, slots=True)
class Store:
    """One clause of a definition in a turn: under all `tests`, the row at `steps` gets `value`, at the `slots` of its
    other axes where these are given."""

    name: str
    tests: tuple[Value, ...]
    steps: tuple[Value, ...]
    slots: tuple[tuple[Coordinate, Value], ...]
    value: Value


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for every step of `symbol`, from 0 up to `count`, or down."""

    symbol: Coordinate
    count: Value
    forward: bool
    body: tuple[Loop | Store, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A definition after its loop."""

    loop: Loop
    of: Carried


Op: TypeAlias = (
    Input | Number | Table | Iota | Map | Read | Write | Put | Reduce | Contract | Normalize | Library | Join | Opaque
    | Fold | Tiles | Either | Carried | Result
)  # fmt: skip


# -------------------------------------------------------------------------- values


class Value:
    """The array that an operation makes. All of it follows from the operation: its axes, sorted by name; its kind and
    dtype (None: weak); the steps of loops that it varies with, in its extents too; what is known of its numbers; its
    `parts`, the operands; and whether it is `carried`: made of what a loop computes, inside of that."""

    __slots__ = ("__weakref__", "axes", "carried", "dtype", "kind", "known", "names", "op", "parts", "symbols")

    def __init__(
        self,
        op: Op,
        axes: tuple[Axis, ...],
        kind: Kind,
        dtype: Dtype | None,
        symbols: frozenset[Coordinate],
        known: Known,
        parts: tuple[Value, ...],
    ) -> None:
        self.op, self.axes, self.kind, self.dtype, self.symbols, self.known = op, axes, kind, dtype, symbols, known
        self.names = frozenset([axis.name for axis in axes])
        self.parts = parts
        self.carried: bool = isinstance(op, Carried) or (
            not isinstance(op, Result) and any(part.carried for part in parts)
        )

    @property
    def is_host(self) -> bool:
        """Whether it is a number of the host, and no array."""
        return isinstance(self.op, Number)

    def axis(self, name: Coordinate) -> Axis:
        return next(axis for axis in self.axes if axis.name == name)

    def extent(self, name: Coordinate) -> ir.Expr:
        return self.axis(name).extent

    def __repr__(self) -> str:
        from .words import brief

        return brief(self)


_VALUES: WeakValueDictionary[Op, Value] = WeakValueDictionary()
_MAKING = Lock()


def value(op: Op) -> Value:
    """The one value of an operation. A function of host numbers alone is a host number, unless it is a cast or checked:
    that makes an array."""
    found = _VALUES.get(op)
    if found is None:
        made = _typer()(op)
        number = _as_number(op, made.kind)
        if number is not None:
            return value(number)
        with _MAKING:
            found = _VALUES.setdefault(op, made)
    return found


@cache
def _typer() -> Callable[[Op], Value]:
    from .typed import typed

    return typed


def _as_number(op: Op, kind: Kind) -> Number | None:
    if not isinstance(op, Map) or not op.args or op.checked or op.fn.startswith(("as ", "some ")):
        return None
    numbers = tuple(arg.op.expr for arg in op.args if isinstance(arg.op, Number))
    if len(numbers) < len(op.args):
        return None
    match op.fn, numbers:
        case "where", (test, then, otherwise):
            return Number(build.select(test, then, otherwise, test.span))
    return Number(build.apply(op.fn, numbers, kind, numbers[0].span))


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition of the program: its value, which may have fewer axes than its home, and the order of these."""

    name: str
    home: tuple[Axis, ...]
    value: Value
    kind: Kind
    dtype: Dtype
    let: ir.Let


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of the whole call that must hold: an assertion, or one on sizes. Else the call is refused with a code
    and a message."""

    condition: Value
    code: str
    message: str
    span: Span


@dataclass(frozen=True, slots=True)
class Applied:
    """A rule that was applied: for which definition, to which operation, and what the plan says of it, if anything."""

    definition: str
    where: str
    rule: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A rule that matched and was not applied: for which definition, to which operation, and why. `way` is what the
    plan calls it, where somebody who reads the plan can do something about it."""

    definition: str
    where: str
    rule: str
    reason: str
    way: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """An array program: definitions in the order of the text, and those that are wanted.

    `agreed` are pairs of extents that the program takes to be equal, `checks` conditions of the whole call. `applied`
    are the rules that were applied, each with the operation that it was applied to; `refused` those that were not.
    `spans` say where in the text a value comes from, the first place where several do. `written` is the program as it
    was written, where kernels compute another one, which may read less.
    """

    program: ir.Program
    inputs: tuple[Value, ...]
    definitions: dict[str, Definition]
    wanted: tuple[str, ...]
    agreed: tuple[tuple[ir.Expr, ir.Expr], ...] = ()
    checks: tuple[Check, ...] = ()
    applied: tuple[Applied, ...] = ()
    refused: tuple[Refused, ...] = ()
    spans: dict[Value, Span] = field(default_factory=dict, compare=False, repr=False)
    written: ir.Program | None = field(default=None, compare=False, repr=False)


# ---------------------------------------------------------------------- traversal


_PLAIN = frozenset(
    "home axes over along axis gone kind dtype fn outside combine checked layouts result words kernel name step "
    "owned counts key row normaliser divides is_interval part few at_once hears_itself texts turn back homes pairs "
    "least most queries".split()
)


@cache
def _fields_of(of: type) -> tuple[tuple[str, bool], ...]:
    """The fields of an operation, or of a part of one, each with whether it may have values in it."""
    return tuple((one.name, of in (Loop, Store) or one.name not in _PLAIN) for one in fields(of))


def operands(op: Op) -> tuple[Value, ...]:
    """The values that an operation reads, those of a loop's body included."""
    match op:
        case Map(_, args):
            return args
        case Input() | Number() | Table() | Iota() | Carried():
            return ()
    found: list[Value] = []
    _take_fields(op, found)
    return tuple(found)


def _take(part: object, found: list[Value]) -> None:
    if isinstance(part, Value):
        found.append(part)
    elif isinstance(part, tuple):
        for one in part:
            _take(one, found)
    elif isinstance(part, Loop | Store):
        _take_fields(part, found)


def _take_fields(part: object, found: list[Value]) -> None:
    for one, may_have in _fields(part):
        if may_have:
            _take(one, found)


def _fields(part: Any) -> list[tuple[Any, bool]]:
    return [(getattr(part, name), may_have) for name, may_have in _fields_of(type(part))]  # type: ignore[arg-type]


def with_operands(one: Value, change: Callable[[Value], Value]) -> Op:
    """The operation of a value with changed operands; itself, where none changed."""
    if all(change(part) is part for part in one.parts):
        return one.op
    return _changed_fields(one.op, change)  # type: ignore[no-any-return]


def _changed(part: Any, change: Callable[[Value], Value]) -> Any:
    if isinstance(part, Value):
        return change(part)
    if isinstance(part, tuple):
        new = tuple(_changed(one, change) for one in part)
        return part if all(one is other for one, other in zip(new, part, strict=True)) else new
    return _changed_fields(part, change) if isinstance(part, Loop | Store) else part


def _changed_fields(part: Any, change: Callable[[Value], Value]) -> Any:
    old = _fields(part)
    new = [_changed(one, change) if may_have else one for one, may_have in old]
    return part if all(one is other for one, (other, _) in zip(new, old, strict=True)) else type(part)(*new)


# ----------------------------------------------------------------------- builders


def apply(fn: str, *args: Value, checked: bool = False) -> Value:
    """An elementwise function of values."""
    return value(Map(fn, args, checked))


def cast(one: Value, dtype: str) -> Value:
    """A value in a dtype that the text does not ask for."""
    return apply("as wide" if one.dtype in SHORT and dtype == "f32" else f"as {dtype}", one)


def host(expr: ir.Expr) -> Value:
    return value(Number(expr))


def whole(number: int, span: Span) -> Value:
    return host(build.whole(number, span))


def all_of(*conditions: Value | None) -> Value | None:
    """All of these conditions; None where there are none."""
    result: Value | None = None
    for one in conditions:
        if one is not None and one is not result:
            result = one if result is None else apply("&&", result, one)
    return result


def conjuncts(condition: Value | None) -> list[Value]:
    """The conditions that must all hold."""
    if condition is None:
        return []
    if isinstance(condition.op, Map) and condition.op.fn == "&&":
        return [part for arg in condition.op.args for part in conjuncts(arg)]
    return [condition]


def merged(*groups: Iterable[Axis]) -> tuple[Axis, ...]:
    """All of these axes, sorted by name; of two of one name the first."""
    found: dict[Coordinate, Axis] = {}
    for group in groups:
        for axis in group:
            found.setdefault(axis.name, axis)
    return tuple(found[name] for name in sorted(found))


def axes_of(*values: Value, without: Iterable[Axis] = ()) -> tuple[Axis, ...]:
    """The axes of any of these values, but some."""
    gone = {axis.name for axis in without}
    return tuple(axis for axis in merged(*(one.axes for one in values)) if axis.name not in gone)
