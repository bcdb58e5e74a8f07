"""Values with named axes, and the emitted function as it grows."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

from ...engine.kernel_texts import called_in
from ...engine.show.number_helpers import REFUSED
from ...ir.types import Coordinate, Dtype, Kind
from ...plan.target import Target
from ...records import dataclass, field
from .code import Index, Name, Node, Part, String, Tuple, call, node, show
from .layout import Block, Statement, flattened, used
from .layout import Kind as StatementKind

WIDEST = 96


@dataclass(frozen=True, slots=True)
class Value:
    """An array as code: `axes` name its axes in order. `python` marks a plain Python number, which is weak: it has no
    dtype, and takes that of the array it meets. `turned` is the value from before its axes were put in another order,
    where nothing else was done to it; `product` are the sign of a product and its two factors (`scale` where both are
    stored in fewer bits, and were widened); `narrow` is the value as it is stored in fewer bits, where it was only
    widened, and `once` the value rounded to fewer bits by the operation that it comes from."""

    code: Node
    axes: tuple[Coordinate, ...]
    kind: Kind
    dtype: Dtype | None
    python: bool = False
    turned: Value | None = None
    product: tuple[str, Value, Value] | None = None
    narrow: Value | None = None
    once: Value | None = None

    def but(self, code: Node, **changes: Any) -> Value:
        """The value with another code, and whatever else changes with it."""
        if not changes:
            return Value(code, self.axes, self.kind, self.dtype, self.python)
        own: dict[str, Any] = {"axes": self.axes, "kind": self.kind, "dtype": self.dtype, "python": self.python}
        return Value(code, **(own | changes))

    @property
    def is_named(self) -> bool:
        """Whether this is a variable."""
        return isinstance(self.code, Name)


def as_code(value: Value | Part) -> Part:
    """A value as a part of code."""
    return value.code if isinstance(value, Value) else value


def plain(code: Part, kind: Kind = "whole") -> Value:
    """A plain number of the emitted code."""
    return Value(node(code), (), kind, None, True)


class Dialect(Protocol):
    """The spelling of operations in an array library, and the answers to what rules ask about it.

    No rule asks what a library is called. One that wants to know something new of it asks for a new line here.
    """

    target: Target  # Its name, and the kernels that a plan may choose.
    module: str
    helpers: Mapping[str, str]  # Small functions by name, which go above what calls them.

    has_bfloat16: bool
    rounds_once: frozenset[str]  # Operations on arrays of 16 bits that are done in 32 and rounded once, there and back.
    updates_in_place: bool  # `x[0] = y`; without it, a store makes a new array.
    differentiates: bool  # A value that a guard removes still has a derivative, which has to be finite.
    checks_in_graphs: bool  # A test of an array may be part of a graph: it goes through the helper `check`.
    branches_on_scalars: bool  # An array without axes may decide an `if`.
    numbers_are_f64: bool  # Arrays that are made of Python's numbers are f64, as they are.
    scalars_are_weak: bool  # An array without axes takes the dtype of others.
    wholes_take_reals: bool  # A whole array among reals takes their dtype, however narrow that is.
    takes_numbers_first: bool  # A function of several arguments may have an array anywhere.
    refuses_falling_ranges: bool  # `arange(2, 1)` is an error.
    reads_scalar_indices: bool  # An index that is an array without axes is read, which ends a graph.
    gathers_along_one_axis: bool  # An index for several axes is slow: they are made one.
    flips_by_copying: bool
    contracts_by_copying: bool  # `tensordot` over several axes copies what a product of matrices reads as it lies.
    adds_products: bool  # `addmm`, `addmv`, `addcmul`.
    streams_blocks: bool  # Attention is blocks of rows against blocks of keys, in functions inside the emitted one.
    attention: Name | None  # The kernel for queries, keys and values of four axes, contiguous and of equal width.

    def arange(self, start: Node, stop: Node) -> Node: ...
    def where(self, condition: Value, then: Node, otherwise: Node) -> Node: ...
    def cast(self, value: Value, dtype: Dtype) -> Value: ...
    def constant(self, code: Node, dtype: Dtype) -> Node: ...
    def array(self, code: Node, dtype: Dtype) -> Node: ...
    def full(self, shape: Node, code: Node, dtype: Dtype) -> Node: ...
    def permute(self, code: Node, order: tuple[int, ...]) -> Node: ...
    def flip(self, code: Node, axis: int) -> Node: ...
    def tensordot(self, left: Node, right: Node, axes: tuple[tuple[int, ...], tuple[int, ...]]) -> Node: ...
    def function(self, op: str, arguments: list[Value], text: Text) -> Node: ...
    def reduction(self, op: str, value: Value, axes: tuple[int, ...], text: Text, empty: bool = True) -> Node: ...
    def divide(self, op: str, a: Value, b: Value, safe: bool, text: Text) -> Node: ...
    def dtype(self, dtype: Dtype) -> Node: ...
    def stack(self, rows: Node, axis: int) -> Node: ...
    def concatenate(self, parts: tuple[Node, ...], axis: int) -> Node: ...
    def flatten(self, code: Node, first: int, last: int) -> Node: ...
    def unflatten(self, code: Node, axis: int, shape: Node, text: Text) -> Node: ...
    def store(self, array: Node, slots: tuple[Node, ...], code: Node) -> Node: ...
    def scan(self, name: str, kernels: dict[str, set[str]], text: Text) -> None: ...
    def blocks(self, kernels: dict[str, set[str]], text: Text) -> str: ...
    def copy(self, code: Node) -> Node: ...
    def narrow(self, code: Node, dtype: Dtype) -> Node: ...


def dialect_of(backend: str) -> Dialect:
    """The spelling of a backend's library: `DIALECT` of the file here that is called like it."""
    found: Dialect = import_module(f"{__package__}.{backend}_").DIALECT
    return found


@dataclass
class Text:
    """The emitted function as it grows: its statements, the names in use, the small functions it needs above it.
    `last` has, for a name, the last number that was put behind it: those before it are in use."""

    dialect: Dialect
    taken: set[str] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()
    helpers: dict[str, str] = field(default_factory=dict)
    indent: int = 1
    checks: bool = True
    statements: Block = field(default_factory=list)
    block: int = 0
    blocks: int = 0
    subject: str = ""

    @property
    def needed(self) -> list[Statement]:
        """The statements of the function without what is not used."""
        return used(flattened(self.statements))

    @property
    def used(self) -> set[str]:
        """The names that the body of the function mentions: none from outside comes or goes as it is laid out."""
        return {word for statement in self.needed for word in statement.words}

    def add(self, kind: StatementKind, code: Node | None = None, target: str = "", place: Node | None = None) -> None:
        self.statements.append(Statement(self.indent, self.block, kind, target, code, place, self.subject))

    def assign(self, variable: str, value: Value | Part) -> None:
        """`variable = value`, left out where it is never read."""
        self.name("assign", variable, value if isinstance(value, Value) else None, node(as_code(value)))

    def name(self, kind: StatementKind, variable: str, value: Value | None, code: Node) -> None:
        """A name for an array, of which the axes are remembered."""
        if value is None or value.python:
            self.add(kind, code, variable)
        else:
            made = Statement(self.indent, self.block, kind, variable, code, None, self.subject, value.axes, value.dtype)
            self.statements.append(made)

    def unpack(self, variables: list[str], code: Part) -> None:
        """`a, b = code`."""
        self.add("unpack", node(code), place=Tuple(tuple(map(Name, variables))))

    def update(self, variable: str, code: Part) -> None:
        """`variable = code`, of a variable that is there already, or that something else than what follows reads."""
        self.add("store", node(code), variable, Name(variable))

    def do(self, code: Node) -> None:
        """A call for its effect."""
        self.add("do", code)

    def give(self, *values: Part) -> None:
        """`return values`."""
        self.add("return", node(values[0]) if len(values) == 1 else node(values))

    def blank(self) -> None:
        self.add("blank")

    def comment(self, text: str) -> None:
        for line in text.splitlines():
            self.add("comment", target=line)

    @contextmanager
    def indented(self) -> Iterator[None]:
        outer = self.block
        self.blocks += 1
        self.indent, self.block = self.indent + 1, self.blocks
        yield
        self.indent, self.block = self.indent - 1, outer

    @contextmanager
    def inside(self, statements: Block, block: int) -> Iterator[None]:
        """Emit statements into a block that is put in its place later."""
        outside = self.statements, self.indent, self.block
        self.statements, self.indent, self.block = statements, self.indent + 1, block
        yield
        self.statements, self.indent, self.block = outside

    def fresh(self, name: str, step: bool = False) -> str:
        """A variable that nothing else is called, and that the emitted code has no other use for. Two underscores in a
        row are a mark of steps, which no other variable has."""
        name = re.sub(r"\W|__+", "_", name)
        if name in RESERVED or name in self.reserved or not name.isidentifier():
            name = f"{name.rstrip('_') or 'blank'}_"
        name += "__1" if step else ""
        number = self.last.get(name, 1)
        result = name if number == 1 else f"{name}_{number}"
        while result in self.taken:
            number += 1
            result = f"{name}_{number}"
        self.taken.add(result)
        self.last[name] = number
        return result

    def keep(self, value: Value, name: str) -> Value:
        """The value under a name of its own, where its code is more than a name. Used once, it goes back to where it
        is used."""
        if value.is_named or (value.python and len(show(value.code)) < 20):
            return value
        # A step is later called by this name alone where it can be.
        variable = self.fresh("part" if name in RESERVED else name, step=True)
        self.name("temporary", variable, value, value.code)
        return value.but(Name(variable), product=value.product)

    def named(self, value: Value, name: str) -> Value:
        """The value under a name that it keeps."""
        variable = self.fresh(name)
        self.assign(variable, value)
        return value.but(Name(variable))

    def short(self, value: Value, name: str) -> Value:
        """The value, under a name of its own where its code grew too long to read."""
        return self.keep(value, name) if len(show(value.code)) > WIDEST - 24 else value

    def store(self, variable: str, slots: tuple[Node, ...], code: Part, row: tuple[Node, ...] = ()) -> None:
        """`variable[slots] = code`, or the same as a new array of that name; the array may be a `row` of several."""
        array = Index(Name(variable), row) if row else Name(variable)
        if self.dialect.updates_in_place:
            self.add("store", node(code), variable, Index(array, slots))
        else:
            self.add("store", self.dialect.store(array, slots, node(code)), variable, array)

    def helper(self, name: str) -> str:
        """A small function that stands above the emitted one."""
        if name not in self.helpers:
            self.helpers[name] = self.dialect.helpers[name]
            for other in called_in(self.helpers[name]):
                if other in self.dialect.helpers:
                    self.helper(other)
        return name

    def refuse(self, condition: Node, code: str, message: str) -> None:
        """Raise where a check fails. A call from Indexical adds the place in the program's text."""
        self.add("if", condition)
        with self.indented():
            self.add("raise", call(self.helper(REFUSED), String(code), String(message)))


# Words of Python, and the names that emitted code gives a meaning of its own. Those of the kernels that it calls and
# of its helpers are added in `source.py`.
RESERVED = frozenset(
    (
        *(*keyword.kwlist, *dir(builtins), "_"),
        *("np", "torch", "jax", "jnp", "math", "functools", "triton", "tl"),
        *("device", REFUSED, "program", "Fraction"),
    )
)
