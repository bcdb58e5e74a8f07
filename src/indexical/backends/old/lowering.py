"""The state that all functions of one lowering share, and the table of rules through which they reach each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from ...engine.arguments import ELSEWHERE, Case
from ...ir import nodes as ir
from ...ir.poles import Poles
from ...ir.types import Coordinate, Dtype
from ...plan.steps import Note, Refusal
from ...records import dataclass, field
from .base import Text, Value
from .code import Call, Name, Node, Prefix, names, rebuilt
from .evaluated import CONSTANTS, evaluated
from .proofs import Prover, WindowProver
from .scope import Place, Scope

# A rule gives the value of one kind of node, over all points of the coordinates that it varies over.
Rule: TypeAlias = "Callable[[Lowering, ir.Expr, Scope], Value]"


@dataclass(frozen=True, slots=True)
class Rules:
    """The table: `value` finds a value that is there already or has it computed, by the rule for its kind of node among
    `nodes`."""

    value: Rule
    nodes: Mapping[type[ir.Expr], Rule]


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that is there: its variable, which is a number where it is one of `python`."""

    variable: str
    dtype: Dtype | None
    python: bool = False


@dataclass
class Lowering:
    """The text of one function as it grows, and what is known of its variables.

    Values: `known` are those that have a name already. `guarded` counts the values that were computed under a guard and
    are valid only where it holds. While a guard itself is evaluated (`in_guard`),
    nothing is checked, and every read is safe. Reals are computed in the dtype `compute`; tensors that are `weak` take
    the dtype of what they are combined with.

    Definitions: `notes` are what the plan is told about each.

    Tiles: where `unbounded` is given, some coordinates run over a window of their points, and these are their whole
    ranges. Arrays that are `pretended` have just the points of their windows. One that `widens` computes in f32 what
    is stored in 16 bits.

    `folded` are definitions of which some calls are operations, each with the tensors that these read.

    The module around: `functions` are those of tiles, `modules` those that they and the statements name a part of,
    `kernels` the names that are used of each file of kernels. What calls of a `case` never come to is not written; the
    text is `for_some` calls alone where that left out something.
    """

    text: Text
    program: ir.Program
    rules: Rules
    stored: dict[str, Stored] = field(default_factory=dict)
    sizes: dict[Coordinate, str] = field(default_factory=dict)
    compute: Dtype = "f64"
    known: dict[object, Value] = field(default_factory=dict)
    label: str = "x"
    guarded: int = 0
    magnitudes: dict[str, int] = field(default_factory=dict)
    removable: dict[str, bool] = field(default_factory=dict)
    asked: Mapping[str, Sequence[ir.Expr]] = field(default_factory=dict)
    naming: bool = True
    in_guard: bool = False
    notes: dict[str, dict[Note, None]] = field(default_factory=dict)
    weak: frozenset[str] = frozenset()
    dtypes: dict[str, Dtype] = field(default_factory=dict)
    unbounded: dict[Coordinate, Place] | None = None
    pretended: dict[str, tuple[Coordinate, ...]] = field(default_factory=dict)
    widens: bool = False
    functions: list[str] = field(default_factory=list)
    modules: dict[str, None] = field(default_factory=dict)
    kernels: dict[str, set[str]] = field(default_factory=dict)
    case: Case | None = None
    for_some: bool = False
    folded: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tensors: Mapping[str, ir.Input | ir.Let] = self.program.tensors
        self.lets = {let.name: let for let in self.program.lets}
        self.poles = Poles(self.lets)
        self.prover = Prover(self.lets) if self.unbounded is None else WindowProver(self.lets, self.unbounded)
        loops = [order for order in self.program.order if isinstance(order, ir.Stepwise)]
        self.recurrent = {name for order in loops for name, _ in order.axes}

    # -------------------------------------------------------------------- the rules

    def value(self, expr: ir.Expr, scope: Scope) -> Value:
        """An expression over all points of the coordinates it varies over."""
        return self.rules.value(self, expr, scope)

    def lower(self, expr: ir.Expr, scope: Scope) -> Value:
        """The same, computed here, by the rule for its kind of node."""
        return self.rules.nodes[type(expr)](self, expr, scope)

    # ------------------------------------------------------------ where it is written

    @contextmanager
    def block(self) -> Iterator[None]:
        """An indented block: what is computed in it is not known after it."""
        known = dict(self.known)
        with self.text.indented():
            yield
        self.known = known

    def branch(self, test: Node, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Two ways to compute something, by a test. Where the text is for some calls alone, and sizes decide it for
        these, one of them is a refusal."""
        holds = self.holds(test)
        if holds is None:
            self.text.add("if", test)
            with self.block():
                then()
            self.text.add("else")
            with self.block():
                otherwise()
        else:
            fails = Prefix("not ", test) if holds else test
            self.for_some = True
            self.text.refuse(fails, ELSEWHERE, "this text is for calls of other sizes, or without gradients")
            (then if holds else otherwise)()

    def holds(self, test: Node) -> bool | None:
        """Whether a test holds for all calls of the case; None where it asks for more than sizes and gradients."""
        if self.case is None:
            return None
        if self.case.learns and "learns" in names(test):
            return None

        def known(part: Node) -> Node:
            is_asked = isinstance(part, Call) and part.function == Name("learns")
            return Name("False") if is_asked else rebuilt(part, known)

        sizes = {self.sizes[one]: size for one, size in self.case.sizes.items() if one in self.sizes}
        try:
            return bool(evaluated(known(test), {**CONSTANTS, **sizes}))
        except (LookupError, ZeroDivisionError):
            return None

    @contextmanager
    def labelled(self, label: str) -> Iterator[None]:
        """Steps are called this."""
        outer, self.label = self.label, label
        yield
        self.label = outer

    # --------------------------------------------------------------- what the plan says

    def tell(self, words: str) -> None:
        """Say in the plan how a part of the definition is computed."""
        self._note(words)

    def decline(self, way: str, reason: str) -> None:
        """Say in the plan why a part of the definition is not computed some better way."""
        self._note(Refusal(self.text.subject, way, reason))

    def _note(self, note: Note) -> None:
        if not self.in_guard:
            self.notes.setdefault(self.text.subject, {})[note] = None
