"""Programs as trees of the laws' own. They share nothing with the compiler's tree, its checker or its Program.

`text_of` writes a program down. What it means is for `grids` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

Kind = Literal["bool", "whole", "real"]

# ----------------------------------------------------------------------- what there is to name


@dataclass(eq=False)
class Dim:
    """A number of points; axes that must agree have the same one. Inside a function the caller decides it.

    `words` are terms that say the size, `parts` the dimensions it is made of. `space` is the dimension whose space this
    one is of. `stated` says that the program fixes the size by a literal.
    """

    size: int | None
    words: tuple[Term, ...] = ()
    space: Dim | None = None
    stated: bool = False
    parts: tuple[Dim, ...] = ()


@dataclass(eq=False)
class Coordinate:
    """A bound coordinate. `dim` is there if it runs over all points of a dimension, from 0; `count` is how many it has
    where these are only some.
    """

    name: str
    dim: Dim | None = None
    dependent: bool = False
    count: Dim | None = None


@dataclass(frozen=True, eq=False)
class Rest:
    """`..name` in one statement, and the coordinates it stands for. `flat`: those that the inputs lead with."""

    name: str
    coordinates: tuple[Coordinate, ...]
    flat: bool = False


@dataclass(eq=False)
class Tensor:
    """Whatever can be read: an input, a definition, a parameter. `open` counts the axes that `..r` leads with.

    `leaky` is True if some point is absent, or made of absent ones. `guard` is what a reader may repeat. `below` says
    that the values index a dimension, `counts` that a scalar is the size of one, `given` that the caller provides it.
    """

    name: str
    axes: tuple[Dim, ...]
    kind: Kind
    leaky: bool = False
    open: int | None = None
    below: Dim | None = None
    counts: Dim | None = None
    given: bool = False
    guard: tuple[tuple[Coordinate, ...], Term] | None = None


# -------------------------------------------------------------------------------------- terms


@dataclass(frozen=True, eq=False)
class Number:
    """As it is written: with a point it is real. `~` marks a figure that was rounded."""

    text: str
    printed: bool = False

    @property
    def kind(self) -> Kind:
        return "whole" if self.text.isdigit() and not self.printed else "real"


@dataclass(frozen=True, eq=False)
class Truth:
    value: bool
    kind: Kind = "bool"


@dataclass(frozen=True, eq=False)
class Place:
    """The value of a coordinate."""

    coordinate: Coordinate
    kind: Kind = "whole"


@dataclass(frozen=True, eq=False)
class Size:
    """`size(c)`, of a coordinate in scope or, by its name, of the inputs'."""

    of: Coordinate | str
    dim: Dim
    kind: Kind = "whole"


@dataclass(frozen=True, eq=False)
class Read:
    """A tensor at indices; the first ones may be written as `..r`."""

    tensor: Tensor
    indices: tuple[Term, ...] = ()
    rest: Rest | None = None

    @property
    def kind(self) -> Kind:
        return self.tensor.kind


@dataclass(frozen=True, eq=False)
class Cells:
    """An array literal, read at indices where it stands in a term."""

    cells: Any
    kind: Kind
    axes: tuple[Dim, ...]
    indices: tuple[Term, ...] = ()
    printed: bool = False


@dataclass(frozen=True, eq=False)
class Op:
    """An operator: `-` and `!` with one term, a chain of comparisons with more than two."""

    ops: tuple[str, ...]
    terms: tuple[Term, ...]
    kind: Kind


@dataclass(frozen=True, eq=False)
class Function:
    """An elementwise function."""

    name: str
    terms: tuple[Term, ...]
    kind: Kind


@dataclass(frozen=True, eq=False)
class Cast:
    term: Term
    dtype: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class If:
    condition: Term
    then: Term
    otherwise: Term
    kind: Kind


@dataclass(frozen=True, eq=False)
class Binder:
    """A coordinate with its range, if one is stated."""

    coordinate: Coordinate
    lower: Term | None = None
    upper: Term | None = None
    inclusive: bool = False


@dataclass(frozen=True, eq=False)
class Reduce:
    """`after` says that the guard is written at the end of the statement; `shorts` are abbreviated inside."""

    op: str
    binders: tuple[Binder | Rest, ...]
    body: Term
    guard: Term | None
    kind: Kind
    after: bool = False
    shorts: tuple[Short, ...] = ()


@dataclass(frozen=True, eq=False)
class Scan:
    """A normaliser: `softmax`, `log_softmax`, a scan or `rank` along a coordinate that survives."""

    op: str
    coordinate: Coordinate
    body: Term
    guard: Term | None
    kind: Kind
    after: bool = False


@dataclass(frozen=True, eq=False)
class Short:
    """A name that `where name = term` abbreviates, where it is used."""

    name: str
    term: Term

    @property
    def kind(self) -> Kind:
        return self.term.kind


@dataclass(frozen=True, eq=False)
class Paren:
    term: Term

    @property
    def kind(self) -> Kind:
        return self.term.kind


@dataclass(frozen=True, eq=False)
class Block:
    lets: tuple[Let, ...]
    body: Term

    @property
    def kind(self) -> Kind:
        return self.body.kind


@dataclass(frozen=True, eq=False)
class Apply:
    """A call. `indices` read a result that is a tensor; `axes` are its dimensions at this call."""

    fn: Fn
    arguments: tuple[Tensor | Apply | Cells | Term, ...]
    indices: tuple[Term, ...] = ()
    axes: tuple[Dim, ...] = ()

    @property
    def kind(self) -> Kind:
        return self.fn.body.kind


Term: TypeAlias = (
    Number
    | Truth
    | Place
    | Size
    | Read
    | Cells
    | Op
    | Function
    | Cast
    | If
    | Reduce
    | Scan
    | Short
    | Paren
    | Block
    | Apply
)

# --------------------------------------------------------------------------------- statements


@dataclass(frozen=True, eq=False)
class Clause:
    """One `let`. `inside` says that the guard is written at the end of the block that is its body."""

    slots: tuple[Binder | Rest | Term, ...]
    body: Term
    guard: Term | None = None
    inside: bool = False
    shorts: tuple[Short, ...] = ()


@dataclass(frozen=True, eq=False)
class Let:
    """A definition: clauses, or a whole tensor under a name of its own. `scalar` has no bracket."""

    tensor: Tensor
    clauses: tuple[Clause, ...] = ()
    whole: Tensor | Apply | Cells | None = None


@dataclass(frozen=True, eq=False)
class Fn:
    """`homes` are the coordinates of each parameter, None for a scalar. `result` is None for a scalar result."""

    name: str
    parameters: tuple[Tensor, ...]
    homes: tuple[tuple[str, ...] | None, ...]
    lets: tuple[Let, ...]
    result: tuple[Binder, ...] | None
    body: Term
    guard: Term | None = None


@dataclass(frozen=True, eq=False)
class Input:
    """`home` names the axes behind those that `..r` leads with; `stated` are the ranges among them."""

    tensor: Tensor
    home: tuple[str, ...]
    dtype: str | None
    stated: Mapping[str, Term] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Program:
    """`groups` are definitions, each after all that it reads; those that read each other stand together.

    `order` is how the statements are written down: inputs first, then functions, then the clauses of all groups.
    """

    inputs: tuple[Input, ...]
    functions: tuple[Fn, ...]
    groups: tuple[tuple[Let, ...], ...]
    spaces: Mapping[str, tuple[str, ...]]
    outputs: tuple[str, ...] = ()
    order: tuple[int, ...] = ()
    lead: str = "r"

    @property
    def lets(self) -> tuple[Let, ...]:
        return tuple(let for group in self.groups for let in group)


# ---------------------------------------------------------------------------------- traversal

_NODES = (Number, Truth, Place, Size, Read, Cells, Op, Function, Cast, If, Reduce, Scan, Short, Paren, Block, Apply)
_PARTS = (*_NODES, Binder, Rest, Clause, Let, Fn)


def parts(node: Any) -> Iterator[Any]:
    """What a node is made of; neither tensors, nor coordinates, nor the function that is called."""
    for place in fields(node):
        value = getattr(node, place.name)
        if isinstance(node, Apply) and place.name == "fn":
            continue
        if isinstance(value, _PARTS):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, _PARTS))


def walk(node: Any) -> Iterator[Any]:
    """The node and everything inside it."""
    yield node
    for part in parts(node):
        yield from walk(part)


def change(node: Any, step: Any) -> Any:
    """The node with `step` done to each of its parts."""
    changed: dict[str, Any] = {}
    for place in fields(node):
        value = getattr(node, place.name)
        if isinstance(node, Apply) and place.name == "fn":
            continue
        if isinstance(value, _PARTS):
            changed[place.name] = step(value)
        elif isinstance(value, tuple):
            changed[place.name] = tuple(step(item) if isinstance(item, _PARTS) else item for item in value)
    different = {name: value for name, value in changed.items() if not _same(getattr(node, name), value)}
    return replace(node, **different) if different else node


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
    return old is new


def tensors_in(node: Any) -> set[Tensor]:
    """The tensors that a node reads, or hands over whole."""
    found: set[Tensor] = set()
    for part in walk(node):
        match part:
            case Read(tensor):
                found.add(tensor)
            case Apply(arguments=arguments):
                found.update(argument for argument in arguments if isinstance(argument, Tensor))
            case Let(whole=Tensor() as tensor):
                found.add(tensor)
    return found


def bound_in(node: Any) -> set[Coordinate]:
    """The coordinates that something inside binds."""
    found: set[Coordinate] = set()
    for part in walk(node):
        if isinstance(part, Binder):
            found.add(part.coordinate)
        elif isinstance(part, Rest):
            found.update(part.coordinates)
    return found


def mentioned(node: Any) -> dict[Coordinate, None]:
    """The coordinates that a node mentions, sizes and normalisers included, in the order of the text."""
    found: dict[Coordinate, None] = {}
    for part in walk(node):
        match part:
            case Place(coordinate) | Scan(coordinate=coordinate):
                found.setdefault(coordinate)
            case Size(Coordinate() as coordinate):
                found.setdefault(coordinate)
            case Read(rest=Rest(coordinates=coordinates)):
                found.update(dict.fromkeys(coordinates))
    return found


def free_in(node: Any) -> dict[Coordinate, None]:
    """The coordinates of the surroundings that a node mentions."""
    bound = bound_in(node)
    return {coordinate: None for coordinate in mentioned(node) if coordinate not in bound}


def bare_axes(node: Any, coordinate: Coordinate) -> list[Dim]:
    """The dimensions of the axes that a coordinate indexes by itself."""
    found: list[Dim] = []
    for part in walk(node):
        if isinstance(part, Read | Cells | Apply) and part.indices:
            axes = part.tensor.axes if isinstance(part, Read) else part.axes
            for index, dim in zip(part.indices, axes, strict=True):
                if isinstance(index, Place) and index.coordinate is coordinate:
                    found.append(dim)
    return found
