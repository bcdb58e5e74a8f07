"""The state that all parts of one emitted function share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from ..ir import nodes as ir
from ..ir.algebra.safety import Sides
from ..ir.types import Coordinate, Dtype
from ..plan.steps import Refusal
from .base import Text, Value
from .layout import Block
from .proofs import Prover
from .scope import Scope

# A note of the plan about a definition: how it is computed, or which better way was not taken.
Note: TypeAlias = str | Refusal


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that is there: its variable. `starts` say where its axes begin, where that is not at 0.

    While a recurrence computes it, it is `growing`; where `rows` are given, these axes are stepped, and the variable
    is a dictionary of what is there so far, by step. Before the first of them so many are of zeros (`before`).
    """

    variable: str
    dtype: Dtype | None
    python: bool = False
    rows: tuple[int, ...] = ()
    starts: tuple[ir.Expr, ...] = ()
    growing: bool = False
    before: int = 0


@dataclass
class State:
    """The text that grows, and what is known of its variables.

    `known` are the values that have a name already, `hoisted` those before the loops. `leans` counts the values that
    were computed under a guard and are valid only where it holds. While a guard itself is evaluated (`asking`), nothing
    is checked, and every read is safe. `notes` are those of the plan about definitions.
    """

    text: Text
    program: ir.Program
    stored: dict[str, Stored] = field(default_factory=dict)
    sizes: dict[Coordinate, str] = field(default_factory=dict)
    compute: Dtype = "f64"
    known: dict[object, Value] = field(default_factory=dict)
    isolate: bool = False
    label: str = "x"
    leads: dict[Coordinate, str] = field(default_factory=dict)
    unpacked: set[str] = field(default_factory=set)
    leans: int = 0
    magnitudes: dict[str, int] = field(default_factory=dict)
    hoisted: dict[object, Value] = field(default_factory=dict)
    removable: dict[str, bool] = field(default_factory=dict)
    endless: dict[str, Sides] = field(default_factory=dict)
    naming: bool = True
    asking: bool = False
    notes: dict[str, dict[Note, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tensors: Mapping[str, ir.Input | ir.Let] = self.program.tensors
        self.lets = self.program.definitions
        self.prover = Prover(self.lets)
        loops = [order for order in self.program.order if isinstance(order, ir.Stepwise)]
        self.recurrent = {name for order in loops for name, _ in order.axes}

    @contextmanager
    def block(self) -> Iterator[None]:
        """An indented block: what is computed in it is not known after it."""
        known = dict(self.known)
        with self.text.indented():
            yield
        self.known = {**known, **self.hoisted}

    @contextmanager
    def outside_loops(self) -> Iterator[Block]:
        """Emit before the loops, with only the values that are known there."""
        inside, self.known = self.known, dict(self.hoisted)
        with self.text.ahead() as ahead:
            yield ahead
        self.hoisted = self.known
        self.known = {**inside, **self.hoisted}

    @contextmanager
    def labelled(self, label: str) -> Iterator[None]:
        """Steps are called this."""
        outer, self.label = self.label, label
        yield
        self.label = outer

    def tell(self, words: str) -> None:
        """Say in the plan how a part of the definition is computed."""
        self._note(words)

    def decline(self, way: str, reason: str) -> None:
        """Say in the plan why a part of the definition is not computed some better way."""
        self._note(Refusal(self.text.subject, way, reason))

    def _note(self, note: Note) -> None:
        if not self.asking:
            self.notes.setdefault(self.text.subject, {})[note] = None

    def value(self, expr: ir.Expr, scope: Scope) -> Value:
        """An expression over all points of the coordinates it varies over."""
        raise NotImplementedError
