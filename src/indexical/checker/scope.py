"""The meaning of names at a place of the text, and the statement in the making."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..diagnostics import Diagnostic, Fix, Label, Sink
from ..ir import nodes as ir
from ..ir.types import Coordinate, Kind
from ..ir.walk import fresh_name
from ..records import dataclass, field, replace
from ..source import Span
from ..syntax import tree
from .modules import Function


@dataclass(slots=True)
class Evidence:
    """An axis that a coordinate indexes bare. `extent` is None while a recurrence is being read; `origin` is None where
    it begins at 0."""

    extent: ir.Expr | None
    text: str
    span: Span
    origin: ir.Expr | None = None


@dataclass(slots=True, eq=False)
class Binding:
    """A coordinate that is bound. Its range is settled when its statement has been read; `broken` is True
    where a range was stated that cannot be used."""

    coordinate: Coordinate
    name: str
    span: Span
    stated: ir.Range | None = None
    broken: bool = False
    evidence: list[Evidence] = field(default_factory=list)
    range: ir.Range | None = None


@dataclass(slots=True, eq=False)
class RestBinding:
    """`..r` where it is bound: it stands for `parts` once something has been read with it."""

    name: str
    span: Span
    parts: list[Binding] | None = None
    resolved_by: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An input, a definition or a parameter. `captured` are coordinates of the statement around a
    local definition, which its reads carry along unseen. `kind` is None while it is not known."""

    name: str
    axes: tuple[ir.Axis, ...]
    kind: Kind | None
    span: Span
    captured: tuple[Binding, ...] = ()
    recursive: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A scalar parameter or a local scalar: what it stands for, and how many nodes that is."""

    expr: ir.Expr
    weight: int
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Abbreviated:
    """`where z = …`: replaced where it occurs, as text would be."""

    value: tree.Expr
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Poison:
    """Something whose mistake is reported already."""


Meaning: TypeAlias = Tensor | Value | Abbreviated | Binding | RestBinding | Poison


@dataclass(slots=True, eq=False)
class Frame:
    """One statement of the program in the making, with all that is inlined into it."""

    owner: str
    live: dict[str, Binding] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)
    asserts: list[ir.Assert] = field(default_factory=list)
    placeholders: dict[Coordinate, Binding] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Pending:
    """A local definition, to be finished when the ranges of what it captured are settled. A derivative `derives` one
    definition by another: it has no clauses until then, and knows nothing of how the tensors that are `held` are
    made."""

    name: str
    captured: tuple[Binding, ...]
    axes: tuple[ir.Axis, ...]
    kind: Kind
    clauses: tuple[ir.Clause, ...]
    hidden: bool
    span: Span
    call: Span | None = None
    derives: tuple[str, ...] = ()
    written: tree.Derivative | None = None
    held: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The names in force at a place; `leading` are the `..` among them. `sizes` and `rests` are those of the inputs, or
    in a function those of its parameters; `conditions` hold wherever this place is evaluated."""

    names: Mapping[str, Meaning]
    functions: Mapping[str, Function]
    spaces: Mapping[str, str]
    sizes: Mapping[str, ir.Expr]
    rests: Mapping[str, tuple[ir.Axis, ...]]
    frame: Frame
    conditions: tuple[ir.Expr, ...] = ()
    in_function: bool = False
    leading: Mapping[str, RestBinding] = field(default_factory=dict)

    def binding(self, names: Mapping[str, Meaning]) -> Scope:
        if not names:
            return self
        rests = {name: meaning for name, meaning in names.items() if isinstance(meaning, RestBinding)}
        leading = {**self.leading, **rests} if rests else self.leading
        return Scope(
            {**self.names, **names},
            self.functions,
            self.spaces,
            self.sizes,
            self.rests,
            self.frame,
            self.conditions,
            self.in_function,
            leading,
        )

    def given(self, condition: ir.Expr | None) -> Scope:
        return self if condition is None else replace(self, conditions=(*self.conditions, condition))


# `@of / @by` as definitions, from the inputs and definitions so far: of what, by what, the name of the result, the
# names that are taken, and the place in the text. The layer above knows how; one that cannot be taken is a `Refusal`.
Derive: TypeAlias = Callable[
    [tuple[ir.Input, ...], tuple[ir.Let, ...], str, str, str, set[str], Span], tuple[ir.Let, ...]
]


class Refusal(Exception):
    """A derivative that is not there, and why."""


@dataclass(slots=True)
class Unit:
    """A program in the making: what has been found so far."""

    sink: Sink
    broken: frozenset[str]
    taken: set[str]
    kinds: dict[str, tuple[Kind, Span]]
    lets: dict[str, ir.Let] = field(default_factory=dict)
    asserts: list[ir.Assert] = field(default_factory=list)
    bodies: dict[str, list[ir.Expr]] = field(default_factory=dict)
    untyped: set[str] = field(default_factory=set)
    demands: dict[str, tuple[Kind, Span]] = field(default_factory=dict)
    # The coordinates whose size was asked for and taken from a definition: from which, how many, and for whom.
    sized: dict[str, tuple[Tensor, ir.Expr, Span]] = field(default_factory=dict)
    disputed: set[str] = field(default_factory=set)
    attached: dict[int, list[tree.Guard]] = field(default_factory=dict)
    # What the definitions of a block, by its identity, mention of each other, their order, and those among them that a
    # derivative is of or by.
    orders: dict[int, tuple[Mapping[str, set[str]], list[list[str]], frozenset[str]]] = field(default_factory=dict)
    calls: list[tuple[Function, Span]] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    expanding: list[str] = field(default_factory=list)
    count: int = 0
    depth: int = 0
    overgrown: bool = False
    rehearsing: bool = False
    # Whether scans have been read that are written out where all ranges are known.
    scans: bool = False
    # The recurrences whose steps are being read.
    stepping: Mapping[str, Tensor] = field(default_factory=dict)
    # The right-hand side that is read.
    statement: tree.Expr | None = None
    inputs: tuple[ir.Input, ...] = ()
    derive: Derive | None = None

    def report(
        self,
        code: str,
        message: str,
        *labels: Label | Span,
        notes: tuple[str, ...] = (),
        help: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        """A finding; inside a function it also shows the call that led there."""
        places = [label if isinstance(label, Label) else Label(label) for label in labels]
        if self.calls and all(label.span.source is not self.calls[0][1].source for label in places):
            places.append(Label(self.calls[0][1], "in this call"))
        self.sink.add(Diagnostic(code, message, tuple(places), notes, help, fix))

    def constant(self, name: str) -> ir.Expr | None:
        """The value of a whole scalar definition, where it is made of literals, sizes and scalar inputs."""
        let = self.lets.get(name)
        if let is None or let.axes or let.kind != "whole" or len(let.clauses) != 1:
            return None
        body = let.clauses[0].body
        return body if is_closed(body, self) else None

    def fresh_name(self, base: str) -> str:
        name = fresh_name(base, self.taken)
        self.taken.add(name)
        return name


def is_closed(expr: ir.Expr, unit: Unit) -> bool:
    """Whether a bound may be made of this: literals, sizes, whole scalars, outer coordinates, and
    arithmetic on them. Data cannot decide how far a coordinate runs."""
    match expr:
        case ir.Const() | ir.Size() | ir.Coord():
            return True
        case ir.Read(tensor, ()):
            return tensor not in unit.lets or unit.constant(tensor) is not None
        case ir.Map(op, arguments) if op in ("+", "-", "*", "//", "%", "**", "neg", "max", "min", "abs"):
            return all(is_closed(argument, unit) for argument in arguments)
        case _:
            return False
