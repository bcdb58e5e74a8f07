"""The door to the former emitter: attention, its gradients, scans and chunked recurrences, until they are operations.

`planned_kernels` finds in a program what such kernels compute. `Former` prints them:
the printer of operations hands over the names of what a kernel reads, and gets back the statements that compute its
definitions. No other file imports from `old/`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..engine.arguments import Case
from ..engine.constants import Facts
from ..engine.dialects import dialect
from ..engine.kernel_texts import reserved
from ..engine.lower import lower
from ..engine.lower.folds import Found
from ..engine.ops import OpaqueKind
from ..engine.ops import Plan as ArrayProgram
from ..engine.rules import Target, optimise
from ..engine.show.blocks import Turns
from ..engine.specialise import specialise
from ..ir import nodes as ir
from ..ir.asked import asked_where
from ..ir.graph import reached
from ..ir.needs import read_in
from ..ir.types import Coordinate, Dtype
from ..ir.walk import reads_of, walk
from ..plan.steps import Attention, Note, Plan, Step
from ..plan.target import TRITON
from ..records import dataclass, replace
from .old import attention
from .old.base import dialect_of
from .old.code import Name, Node, Number
from .old.folds import few_of, fold_of, found_of
from .old.layout import Statement, arranged, flattened, modules_of, written
from .old.liveness import groups_of, read_later, released
from .old.lowering import Lowering, Stored
from .old.operands import frame_of
from .old.plan.choose import choose
from .old.plan.operands import with_operands
from .old.plan.recognize import recognize as recognize  # Sharding asks what an attention is.
from .old.plan.turns import as_fold, as_written, is_number, turn_of
from .old.rules import RULES
from .old.settled import Settling
from .old.tiles import TILED, Checked


@dataclass(frozen=True, slots=True)
class Kernel:
    """Definitions that a kernel computes together, and the tensors that it reads. With `last` it gives its last step
    alone, by the number of that. It is a `fold`, or one of `few` pairs in such calls."""

    step: Step
    definitions: tuple[str, ...]
    reads: tuple[str, ...]
    last: bool = False
    fold: Found | None = None
    few: Found | None = None

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
    def kind(self) -> OpaqueKind:
        """What kind of operation it is, in one word."""
        return next(kind for part, kind in _KINDS if getattr(self.step, part) is not None)


# The part of a step that makes it a kernel, and the kind that it then is; of several the first.
_KINDS: tuple[tuple[str, OpaqueKind], ...] = (
    ("gradient", "attend_backward"),
    ("block", "blocks"),
    ("chunks", "chunks"),
    ("recurrence", "scan"),
    ("attend", "attend"),
)


def planned_kernels(
    program: ir.Program,
    wanted: tuple[str, ...],
    dtypes: Mapping[str, Dtype],
    backend: str,
    device: str,
    isolate: bool,
    recompute: bool,
) -> Plan:
    """The plan of a call: what is needed, every attention and every scan by the best kernel that takes it."""
    target = dialect_of(backend).target
    return with_operands(choose(program, wanted, dtypes, target, device, isolate, recompute), dtypes)


def kernels_of(plan: Plan) -> dict[str, Kernel]:
    """The kernels of a plan, by the definitions that they compute."""
    lets = plan.program.definitions
    library = dialect(plan.backend)
    found: dict[str, Kernel] = {}
    for step in plan.steps:
        names = _computed(step)
        if names:
            found_ = fold_of(step, lets, library), few_of(step, lets)
            kernel = Kernel(step, names, _read(step, names, lets), False, *found_)
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
    elif step.recurrence is not None and step.recurrence.scan is not None:
        parts = step.recurrence.scan.parts
        exprs += [part for one in parts for part in (one.times, one.plus, one.read_where) if part is not None]
        exprs += _bounds(lets[name] for name in names)
        exprs += [slot for clause in step.recurrence.scan.clauses for slot in clause.slots]
    found = [*read_in(*exprs), *(read.tensor for name in inner for read in reads_of(lets[name]))]
    if step.block is not None or step.gradient is not None:
        found = reached(found, lambda name: _counted_by(name, lets))
    return tuple(name for name in dict.fromkeys(found) if name not in inner and name not in names)


def _counted_by(name: str, lets: Mapping[str, ir.Let]) -> list[str]:
    """The tensors that a number is made of; none of any other tensor."""
    return [read.tensor for read in reads_of(lets[name])] if name in lets and is_number(lets[name]) else []


def _parts(attention: Attention) -> list[ir.Expr]:
    return [attention.key.lower, attention.key.upper, *attention.parts, attention.value]


def _bounds(lets: Iterable[ir.Let]) -> list[ir.Expr]:
    """The ranges and guards of definitions."""
    clauses = [clause for let in lets for clause in let.clauses]
    guards = [clause.guard for clause in clauses if clause.guard is not None]
    return [*guards, *(bound for clause in clauses for r in clause.ranges for bound in (r.lower, r.upper))]


def target_of(plan: Plan) -> Target:
    """What the operations of a plan are rewritten for."""
    spelling = dialect(plan.backend)
    return Target(frozenset(spelling.kernels), plan.isolate, spelling.rounds_once, bool(spelling.folding))


class Former:
    """The former printer for the kernels of one plan: `low` is the state of its lowering. Where `facts` are known of
    the arrays of its calls, kernels do only what these do not decide; they do only what calls of a `case` come to.
    Blocks of rows have `room` for so many points, unless that is 0."""

    def __init__(self, plan: Plan, facts: Facts | None = None, room: int = 0, case: Case | None = None) -> None:
        text = Checked(dialect_of(plan.backend))
        self._reserved = reserved(plan.backend) | text.dialect.helpers.keys()
        if any(step.attend is not None or step.gradient is not None for step in plan.steps):
            text.reserved = TILED
        if any(step.kernel == TRITON or (step.attend is not None and step.attend.decodes) for step in plan.steps):
            self._reserved |= reserved("triton")
        low = Lowering(text, plan.program, RULES, dtypes=dict(plan.dtypes), weak=plan.weak, case=case)
        low.prover.agreed = plan.agreed
        low.asked = asked_where(plan.program, plan.wanted) if text.dialect.differentiates else {}
        self.low, self._plan, self._room = low, plan, room
        self._read: set[str] = set()
        self._inside: set[str] = set()
        self._stays: set[str] = set()
        self._facts = facts
        self._numbers: dict[str, Node] = {}
        self._lengths: dict[Coordinate, int] = {}
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
        return self.low.text.helpers

    def modules(self) -> dict[str, None]:
        """The modules that statements and functions name."""
        return self.low.modules

    def functions(self) -> list[str]:
        """The functions of tiles."""
        return list(self.low.functions)

    def files(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The names that are used of each file of kernels."""
        return tuple((file, tuple(sorted(names))) for file, names in self.low.kernels.items())

    def is_for_some(self) -> bool:
        """Whether kernels refuse calls that another text takes."""
        return self.low.for_some

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
            self._lengths[coordinate] = length

    def write(self, kernel: Kernel) -> tuple[list[str], list[str], dict[str, str]]:
        """The comments above the lines that compute the definitions of a kernel, these lines, and their variables."""
        low = self.low
        low.text.statements = []
        # These names are kept for what is written here, but for those of functions.
        low.text.taken.difference_update({*kernel.definitions} - self._reserved - low.text.reserved)
        low.text.last.clear()
        low.known = {}
        low.folded[kernel.step.definition] = kernel.reads
        attention.define(low, kernel.step, kernel.last)
        variables = {name: low.stored[name].variable for name in kernel.definitions}
        low.text.give(*map(Name, variables.values()))
        *body, _ = released(arranged(self._settled(list(flattened(low.text.statements))), low.text.taken))
        self._note(body)
        if self._facts is not None:  # What is kept has a name that none of these variables has.
            low.text.taken.update(statement.target for statement in body)
        head = next(n for n, statement in enumerate(body) if statement.kind not in ("blank", "comment"))
        return written(body[:head]), written(body[head:]), variables

    def _settled(self, statements: list[Statement]) -> list[Statement]:
        """The statements of a kernel without what facts decide; what they keep is noted."""
        if self._facts is None:
            return statements
        settling = Settling(self._facts, self.low.text.taken, self._arrays, dict(self._numbers), points=self._points)
        found = settling.block(statements)
        *making, _ = arranged(settling.keeping(), set())
        self.low.modules |= modules_of(making)
        self._keeping += written(making)
        self._kept |= dict.fromkeys(settling.kept)
        self._points = settling.points
        return found

    def kept(self) -> tuple[list[str], tuple[str, ...]]:
        """The lines that make what kernels keep, and the names of that."""
        return self._keeping, tuple(self._kept)

    def turns(self, kernel: Kernel, wanted: Collection[str]) -> Turns | None:
        """A kernel that is operations for some rows after the other, of which these definitions are wanted."""
        block = kernel.step.block
        if block is None:
            return None
        turn = turn_of(self._plan, block, wanted)
        lets = [let for let in turn.program.lets if not let.hidden or let.name in block.totals]
        texts = tuple(clause.span.text for let in lets for clause in let.clauses)
        function = self.low.text.dialect.blocks(self.low.kernels, self.low.text)
        plans = self._lowered(turn.program, turn.facts), self._lowered(turn.counts)
        self._tell(plans[0])
        return Turns(*plans, turn.first, turn.count, turn.axes, turn.wide, function, block.weights, texts, self._room)

    def folds(self, kernel: Kernel) -> ArrayProgram:
        """An attention as operations, for calls that its kernel leaves to these, and where it gives totals these."""
        attend, name = kernel.step.attend, kernel.step.definition
        assert attend is not None
        frame = frame_of(self._plan.program.definitions[name], attend)
        rows = (*frame.batch, *(() if frame.row is None else (frame.row,)))
        program, total = as_fold(self._plan, kernel.step, attend, rows)
        found = found_of(kernel.step, replace(attend, totals=((total, rows),)), self._plan.program.definitions)
        kernel = replace(kernel, fold=replace(found, texts=(), few=None))
        return self._lowered(program, kernels=dict.fromkeys(program.outputs, kernel))

    def as_written(self, kernel: Kernel) -> tuple[ArrayProgram, list[str]] | None:
        """The gradients of an attention as operations, for where the arrays that are named are to be differentiated
        again: a kernel has no second derivative."""
        gradient = kernel.step.gradient
        if gradient is None:
            return None
        attention = gradient.attend.attention
        parts = (attention.score, attention.value, gradient.arriving)
        reads = [read for part in parts for read in walk(part) if isinstance(read, ir.Read)]
        names = dict.fromkeys(read.tensor for read in reads if read.type.kind == "real")
        learned = [self.low.stored[name].variable for name in names if not self.low.stored[name].python]
        return (self._lowered(as_written(self._plan, kernel.step, gradient)), learned) if learned else None

    def _lowered(
        self, program: ir.Program, facts: tuple[ir.Expr, ...] = (), kernels: Mapping[str, Kernel] | None = None
    ) -> ArrayProgram:
        """Definitions as operations, over tensors that are there."""
        given = {one.name: self.low.stored[one.name] for one in program.inputs if one.name in self.low.stored}
        strong = {name: one.dtype for name, one in given.items() if one.dtype and name not in self._plan.weak}
        numbers = [name for name, one in given.items() if one.python]
        arrays = [name for name, one in given.items() if not one.python]
        spelling = dialect(self._plan.backend)
        how = self._plan.isolate, spelling.differentiates, numbers, arrays, kernels
        lowered = lower(program, strong, program.outputs, *how, facts=facts)
        found = optimise(lowered, target_of(self._plan))
        return specialise(found, self._lengths) if self._lengths else found

    def _tell(self, plan: ArrayProgram) -> None:
        """Let the plan say what rules made of definitions."""
        for applied in plan.applied:
            if applied.words:
                self.low.notes.setdefault(applied.definition, {})[applied.words] = None

    def _note(self, body: list[Statement]) -> None:
        """Note what statements read, the modules that they name, and what is read by functions among them."""
        self.low.modules |= modules_of(body)
        self._read |= {word for statement in body for word in statement.words}
        for group in groups_of(body):
            if group[0].kind == "def":
                own = {*group[0].words, *(statement.target for statement in group)}
                self._inside |= {word for statement in group for word in statement.words} - own
        self._stays |= read_later(body)
