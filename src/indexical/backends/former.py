"""Kernels of the former printer: attention, its gradients, scans and chunked recurrences, until they are operations.

The printer of operations hands over the names of what such a kernel reads, and gets back the statements that compute
its definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..engine.kernel_texts import reserved
from ..ir import nodes as ir
from ..ir.asked import asked_where
from ..ir.needs import members, read_in
from ..ir.types import Coordinate, Dtype
from ..ir.walk import reads_of
from ..plan.steps import Attention, Plan, Step
from ..plan.target import TRITON
from ..records import dataclass
from . import definitions
from .code import Name, Node, Number
from .layout import Statement, arranged, flattened, written
from .liveness import groups_of, read_later, released
from .lowering import Lowering, Note, Stored
from .rules import RULES
from .settled import Facts, Settling
from .source import dialect_of
from .tiles import TILED, Checked


@dataclass(frozen=True, slots=True)
class Kernel:
    """Definitions that a kernel computes together, and the tensors that it reads. With `last` it gives its last step
    alone, by the number of that."""

    step: Step
    definitions: tuple[str, ...]
    reads: tuple[str, ...]
    last: bool = False

    @property
    def end(self) -> tuple[int, bool] | None:
        """The axis of which it can give the last step alone, and whether that has the largest number; None for none."""
        recurrence = self.step.recurrence
        if recurrence is None or recurrence.scan is None or recurrence.kept is None:
            return None
        return recurrence.scan.axis, recurrence.scan.forward

    @property
    def label(self) -> str:
        """What the plan calls it."""
        return self.step.kernel

    @property
    def kind(self) -> str:
        """What kind of operation it is, in one word."""
        if self.step.gradient is not None:
            return "attend_backward"
        if self.step.block is not None:
            return "blocks"
        if self.step.chunks is not None:
            return "chunks"
        return "scan" if self.step.recurrence is not None else "attend"


def kernels_of(plan: Plan) -> dict[str, Kernel]:
    """The kernels of a plan, by the definitions that they compute."""
    lets = plan.program.definitions
    found: dict[str, Kernel] = {}
    for step in plan.steps:
        names = _computed(step)
        if names:
            kernel = Kernel(step, names, _read(step, names, lets))
            found |= dict.fromkeys(names, kernel)
    return found


def _computed(step: Step) -> tuple[str, ...]:
    """The definitions that a kernel gives; none where the step is no kernel."""
    if step.attend is not None:
        beside = (name for name, _ in step.attend.totals)
        own = () if step.attend.attention.total else (step.definition,)
        return tuple(dict.fromkeys((*own, *beside)))
    if step.gradient is not None:
        return step.gradient.definitions
    if step.block is not None:
        return step.block.definitions
    if step.chunks is not None or (step.recurrence is not None and step.recurrence.scan is not None):
        return (step.definition,)
    return ()


def _read(step: Step, names: tuple[str, ...], lets: Mapping[str, ir.Let]) -> tuple[str, ...]:
    """The tensors that a kernel reads."""
    exprs: list[ir.Expr] = [axis.extent for name in names for axis in lets[name].axes]
    inner: tuple[str, ...] = ()
    if step.attend is not None:
        exprs += _parts(step.attend.attention)
        exprs += _bounds(lets[name] for name in names)
    if step.chunks is not None:
        exprs += [*step.chunks.parts, *_bounds([lets[step.definition]])]
    if step.gradient is not None:
        exprs += [*_parts(step.gradient.attend.attention), step.gradient.arriving]
        exprs += _bounds(lets[name] for name in names)
    if step.block is not None:
        inner = tuple(dict.fromkeys((*dict(step.block.inner), *step.block.totals)))
        exprs += [step.block.rows, step.block.keys]
    elif step.recurrence is not None:
        inner = names
    found = [*read_in(*exprs), *(read.tensor for name in inner for read in reads_of(lets[name]))]
    return tuple(name for name in dict.fromkeys(found) if name not in inner and name not in names)


def _parts(attention: Attention) -> list[ir.Expr]:
    return [attention.key.lower, attention.key.upper, *attention.parts, attention.value]


def _bounds(lets: Iterable[ir.Let]) -> list[ir.Expr]:
    """The ranges and guards of definitions."""
    clauses = [clause for let in lets for clause in let.clauses]
    guards = [clause.guard for clause in clauses if clause.guard is not None]
    return [*guards, *(bound for clause in clauses for r in clause.ranges for bound in (r.lower, r.upper))]


class Former:
    """The former printer for the kernels of one plan: `low` is the state of its lowering. Where `facts` are known of
    the arrays of its calls, kernels do only what these do not decide. Blocks of rows have `room` for so many points,
    unless that is 0."""

    def __init__(self, plan: Plan, facts: Facts | None = None, room: int = 0) -> None:
        text = Checked(dialect_of(plan.backend))
        self._reserved = reserved(plan.backend) | text.dialect.helpers.keys()
        if any(step.attend is not None or step.gradient is not None for step in plan.steps):
            text.reserved = TILED
        if any(step.kernel == TRITON or (step.attend is not None and step.attend.decodes) for step in plan.steps):
            self._reserved |= reserved("triton")
        steps = {step.definition: step for step in plan.steps}
        low = Lowering(text, plan.program, RULES, dtypes=dict(plan.dtypes), steps=steps, weak=plan.weak, room=room)
        low.prover.agreed = plan.agreed
        low.handed_out = frozenset(plan.wanted)
        low.asked = asked_where(plan.program, plan.wanted) if text.dialect.differentiates else {}
        found = {name: s.recurrence for name, s in steps.items() if s.recurrence is not None}
        low.recurrences = {name: replace(one, kept=None) for name, one in found.items()}
        self.low = low
        self._read: set[str] = set()
        self._inside: set[str] = set()
        self._stays: set[str] = set()
        self._orders = {name: order for order in plan.program.order for name in members(order)}
        self._facts = facts
        self._numbers: dict[str, Node] = {}
        self._arrays: dict[str, str] = {}
        self._kept: dict[str, None] = {}
        self._keeping: list[str] = []
        self._points = 0

    def begin(self, taken: set[str]) -> None:
        """Share the names that are in use with the printer of operations."""
        taken |= self._reserved | self.low.text.reserved
        self.low.text.taken = taken

    def helpers(self) -> dict[str, str]:
        """The small functions that stand above the emitted one, by name."""
        return {name: text for name, text in self.low.text.helpers.items() if text}

    def functions(self) -> list[str]:
        """The functions of tiles."""
        return list(self.low.functions)

    def files(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The names that are used of each file of kernels."""
        return tuple((file, tuple(sorted(names))) for file, names in self.low.kernels.items())

    def notes(self) -> Mapping[str, Iterable[Note]]:
        """What was decided while kernels were written."""
        return self.low.notes

    def reads(self) -> set[str]:
        """The variables that kernels read."""
        return self._read

    def reads_inside(self) -> set[str]:
        """Those that functions inside of the emitted one read, wherever they are called."""
        return self._inside

    def reads_later(self) -> set[str]:
        """Those that are read on the way back."""
        return self._stays

    def take(self, name: str, variable: str, dtype: Dtype | None, is_number: bool) -> None:
        """Let a tensor that is there be known by the variable that has it: a number of the host, or an array with all
        axes of its home in order."""
        self.low.stored[name] = Stored(variable, dtype, is_number)
        if self._facts is not None and name in self._facts.arrays:
            self._arrays.setdefault(variable, name)

    def size(self, coordinate: Coordinate, variable: str, length: int | None = None) -> None:
        """Let the size of a coordinate be known by its variable, and by its number where that is known."""
        self.low.sizes[coordinate] = variable
        if length is not None:
            self._numbers[variable] = Number(str(length))

    def write(self, kernel: Kernel) -> tuple[list[str], dict[str, str]]:
        """The lines that compute the definitions of a kernel, and their variables."""
        low = self.low
        low.text.statements = []
        low.text.taken.difference_update(kernel.definitions)  # These names are kept for what is written here.
        low.text.last.clear()
        low.known, low.hoisted = {}, {}
        if kernel.last and kernel.step.recurrence is not None:
            low.recurrences[kernel.step.definition] = kernel.step.recurrence
        definitions.run(low, self._orders[kernel.step.definition], {kernel.step.definition})
        variables = {name: low.stored[name].variable for name in kernel.definitions}
        low.text.give(*map(Name, variables.values()))
        *body, _ = released(arranged(self._settled(list(flattened(low.text.statements))), low.text.taken))
        self._note(body)
        if self._facts is not None:  # What is kept has a name that none of these variables has.
            low.text.taken.update(statement.target for statement in body)
        return written(body), variables

    def _settled(self, statements: list[Statement]) -> list[Statement]:
        """The statements of a kernel without what facts decide; what they keep is noted."""
        if self._facts is None:
            return statements
        settling = Settling(self._facts, self.low.text.taken, self._arrays, dict(self._numbers), points=self._points)
        found = settling.block(statements)
        *making, _ = arranged(settling.keeping(), set())
        self._keeping += written(making)
        self._kept |= dict.fromkeys(settling.kept)
        self._points = settling.points
        return found

    def kept(self) -> tuple[list[str], tuple[str, ...]]:
        """The lines that make what kernels keep, and the names of that."""
        return self._keeping, tuple(self._kept)

    def _note(self, body: list[Statement]) -> None:
        """Note what statements read, and what is read by functions among them."""
        self._read |= {word for statement in body for word in statement.words}
        for group in groups_of(body):
            if group[0].kind == "def":
                own = {*group[0].words, *(statement.target for statement in group)}
                self._inside |= {word for statement in group for word in statement.words} - own
        self._stays |= read_later(body)
