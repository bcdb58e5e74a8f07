"""The tree: what the text says, nothing decided yet.

Every node knows its span, which takes no part in comparison: the same words elsewhere are the same tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

from ..records import dataclass, field, names_of
from ..source import Source, Span
from .tokens import Comment

# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    text: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Masked:
    """The word `masked`, or `-inf`: in an expectation, the claim that a point is absent."""

    span: Span = field(compare=False, repr=False)
    text: str = "masked"


@dataclass(frozen=True, slots=True)
class ArrayLiteral:
    """`[[1, 2], [3, 4]]`. Its items are literals or rows; the parser made sure they are rectangular."""

    items: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Printed:
    """`~literal`: figures that were rounded when they were printed."""

    literal: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pasted:
    """`tensor([[0.5000, 1.0000]])`: figures as a library printed them, all to as many places as the longest."""

    word: str
    literal: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rest:
    """`..r`, at the head of a bracket."""

    name: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Index:
    """`base[i, j + 1]`: a read."""

    base: Expr
    indices: tuple[Expr | Rest, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`exp(x)`, `max(a, b)`, `size(i)`, or a function of the program's."""

    function: str
    function_span: Span = field(compare=False, repr=False)
    arguments: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `!x`."""

    operator: str
    operand: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, `&&` and `||`."""

    operator: str
    left: Expr
    right: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`a <= b < c`: a chain; one operator fewer than operands."""

    operands: tuple[Expr, ...]
    operators: tuple[str, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """`x as f32`."""

    operand: Expr
    dtype: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class If:
    """`if c { a } else { b }`; each branch is a block."""

    condition: Expr
    then: Block
    otherwise: Block
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Block:
    """`{ let …; expr where … }`."""

    lets: tuple[Let, ...]
    body: Expr
    where: tuple[Clause, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Paren:
    """`(x)`. Kept, because a guard attaches at its own bracket depth."""

    inner: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Tuple:
    """`(a, b)`: the value of a function that gives several tensors."""

    items: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Derivative:
    """`@y / @x`."""

    of: Name
    by: Name
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Range:
    """`lower..upper`, or `lower..=upper` where `inclusive`."""

    lower: Expr
    upper: Expr
    inclusive: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binder:
    """A coordinate where it is bound: `j`, `j in 0..n`, `..r` (`rest`)."""

    name: str
    range: Range | None
    rest: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Guard:
    condition: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Abbreviation:
    """`where z = expr`."""

    name: str
    value: Expr
    span: Span = field(compare=False, repr=False)


Clause: TypeAlias = Guard | Abbreviation


@dataclass(frozen=True, slots=True)
class Reduction:
    """`sum[j](body where …)`, and the normalisers, which are written the same way."""

    operator: str
    operator_span: Span = field(compare=False, repr=False)
    binders: tuple[Binder, ...]
    body: Expr
    where: tuple[Clause, ...]
    span: Span = field(compare=False, repr=False)


Expr: TypeAlias = (
    Number
    | Bool
    | Masked
    | ArrayLiteral
    | Printed
    | Pasted
    | Name
    | Index
    | Call
    | Unary
    | Binary
    | Comparison
    | Cast
    | If
    | Block
    | Paren
    | Tuple
    | Derivative
    | Reduction
)

# ----------------------------------------------------------------- statements

Slot: TypeAlias = Binder | Expr


@dataclass(frozen=True, slots=True)
class SpaceItem:
    name: str
    coordinates: tuple[Name, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Space:
    """`space position(i, j), feature(d);`"""

    items: tuple[SpaceItem, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InputItem:
    """One input. `slots` is None for a scalar written without a bracket."""

    name: str
    name_span: Span = field(compare=False, repr=False)
    slots: tuple[Slot, ...] | None
    dtype: str | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Input:
    items: tuple[InputItem, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Let:
    """One clause of a definition. `slots` is None where no bracket was written.

    `names` are all that `let (a, b) = …;` binds together, `name` then being the first; else there are none. `printed`
    is True where later steps read its figures `as printed`.
    """

    name: str
    name_span: Span = field(compare=False, repr=False)
    slots: tuple[Slot, ...] | None
    body: Expr
    where: tuple[Clause, ...]
    span: Span = field(compare=False, repr=False)
    names: tuple[Name, ...] = ()
    printed: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    names: tuple[Name, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """`x[i, d]` takes a tensor, `s` a scalar expression."""

    name: str
    slots: tuple[Slot, ...] | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Home:
    """The coordinates of a tensor that a function gives: `[i, j]`."""

    slots: tuple[Slot, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fn:
    """`results` has what stands behind the arrow, several in parentheses; it is empty where there is none: a scalar."""

    name: str
    name_span: Span = field(compare=False, repr=False)
    parameters: tuple[Parameter, ...]
    results: tuple[Home, ...]
    body: Block
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Use:
    """`use std::norms::{layer_norm};`"""

    path: tuple[str, ...]
    path_span: Span = field(compare=False, repr=False)
    names: tuple[Name, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RoleItem:
    """`query i`."""

    role: str
    coordinate: Name
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FlagItem:
    """`causal`, `rows at most 1`, or `groups contiguous 4`."""

    flag: str
    argument: Expr | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Contract:
    """`attention out(query i, key j, causal);`"""

    name: Name
    items: tuple[RoleItem | FlagItem, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Assert:
    condition: Expr
    message: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Expect:
    """`expect left == literal;`, with `± tolerance` and `as printed` behind it. The right side may be any expression,
    or an array of them."""

    left: Expr
    literal: Expr
    span: Span = field(compare=False, repr=False)
    tolerance: Number | None = None
    printed: bool = False


Statement: TypeAlias = Space | Input | Let | Output | Fn | Use | Contract | Assert | Expect
Node: TypeAlias = (
    Expr | Statement | Rest | Range | Binder | Clause | SpaceItem | InputItem | Parameter | Home | RoleItem | FlagItem
)


@dataclass(frozen=True, slots=True)
class File:
    """A whole text. `broken` has the words of statements that could not be read."""

    statements: tuple[Statement, ...]
    comments: tuple[Comment, ...] = field(compare=False)
    broken: frozenset[str] = field(compare=False)
    source: Source = field(compare=False)


# ------------------------------------------------------------------ traversal


# How fields are declared that hold no nodes.
_WORDS = frozenset(("str", "str | None", "bool", "tuple[str, ...]"))


@cache
def _parts(kind: type) -> tuple[str, ...]:
    """The fields of a kind of node that hold nodes."""
    return tuple(name for name in names_of(kind, compared=True) if kind.__annotations__[name] not in _WORDS)


def children(node: Node) -> list[Node]:
    """The nodes directly inside a node, in the order of the text."""
    kind: type = type(node)
    found: list[Node] = []
    for part in _parts(kind):
        value = getattr(node, part)
        if type(value) is tuple:
            found += value
        elif value is not None:
            found.append(value)
    return found


def walk(node: Node) -> Iterator[Node]:
    """The node and everything inside it, each before what is inside it; never recursive."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += children(node)[::-1]


def height(node: Node) -> int:
    """The depth of the tree: the number of nodes on its longest path down."""
    tallest = 0
    waiting = [(node, 1)]
    while waiting:
        node, level = waiting.pop()
        tallest = max(tallest, level)
        waiting.extend((child, level + 1) for child in children(node))
    return tallest
