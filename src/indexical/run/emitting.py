"""Planning a call: its plan, its text, and its parts. Only a call without a cached text comes here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import partial

from ..backends.opaque import Former, kernels_of, planned_kernels, target_of
from ..engine.arguments import Argument, Case
from ..engine.constants import POINTS, Facts, apart
from ..engine.dialects import dialect
from ..engine.listing import Operation, kernel_of, operations_of
from ..engine.lower import lower
from ..engine.ops import Plan as ArrayProgram
from ..engine.order import ordered
from ..engine.rules import optimise
from ..engine.show import Module, emit, emit_sized
from ..engine.show.once import Groups
from ..engine.skew import skew
from ..engine.specialise import Sizes, one_way, specialise
from ..engine.trace import traced
from ..ir import nodes as ir
from ..ir.constants import in_digits
from ..ir.context import agreeing
from ..ir.types import Coordinate
from ..plan.diagonals import by_diagonals
from ..plan.steps import WIDTH, Note, Plan, Refusal, Step
from ..plan.target import ARRAYS, CHUNKS, TRITON
from ..records import replace
from .kernel import Call, is_dumped
from .parts import Array, Part
from .tensors import merges


def emitted(
    call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool, case: Case | None = None
) -> tuple[Plan, Module]:
    """The plan and the text for calls like this one; for those of a `case` alone, without what these never come to."""
    plan = planned(call, wanted, isolate, recompute)
    assert plan.arrays is not None
    if is_dumped():
        print(passes(plan), file=sys.stderr)
    arrays = plan.arrays if case is None else one_way(plan.arrays, case.sizes)
    return plan, emit(arrays, dialect(plan.backend), call.arguments, Former(plan, case=case))


def planned(call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool) -> Plan:
    """The plan for calls like this one: kernels for attentions and recurrences, operations for all else."""
    program = in_digits(call.program)
    dtypes = call.bound.dtypes
    plan = planned_kernels(program, wanted, dtypes, call.backend, call.device, isolate, recompute)
    kernels, unskewed = kernels_of(plan), plan.program
    plan = plan if isolate else by_diagonals(plan, skew(unskewed, kernels))
    given = {tensor.name: dtypes[tensor.name] for tensor in plan.program.inputs if tensor.name in dtypes}
    spelling = dialect(plan.backend)
    numbers = [name for name, argument in call.arguments.items() if argument.dtype is None]
    arrays = [name for name in call.arguments if spelling.may_wait and name not in numbers]

    def lowered(one: ir.Program) -> ArrayProgram:
        agreed = agreeing(one, plan.agreed)
        differentiates = spelling.differentiates
        found = lower(agreed, given, wanted, isolate, differentiates, numbers, arrays, kernels, declared=plan.dtypes)
        return replace(found, written=program)

    first = lowered(plan.program)
    before = None if plan.program is unskewed else partial(lowered, unskewed)
    found = replace(plan, arrays=optimise(first, target_of(plan)), lowered=first, unskewed=before)
    return _computed(found, program)


def _computed(plan: Plan, written: ir.Program) -> Plan:
    """The plan with a step for each definition that is there in the end: rules leave out some, and one that is only
    another name is the array that has it. What one kernel of the library computes has its name."""
    assert plan.arrays is not None
    made, definitions = set(ordered(plan.arrays)), plan.arrays.definitions
    stepped = (step.definition for step in plan.steps if step.kernel == ARRAYS)
    values = {name: definitions[name].value for name in stepped if name in definitions}
    firsts = {one: name for name, one in reversed(values.items())}
    gone = {name for name, one in values.items() if one not in made or name not in {firsts[one], *plan.wanted}}
    steps = tuple(
        replace(step, kernel=kernel_of(values[step.definition]) or ARRAYS) if step.definition in values else step
        for step in plan.steps
        if step.definition not in gone
    )
    unbuilt = {*plan.unbuilt, *gone}
    names = (let.name for let in written.lets if let.name in unbuilt and let.axes and not let.hidden)
    return replace(plan, steps=steps, unbuilt=tuple(names))


def sized(
    plan: Plan,
    arguments: Mapping[str, Argument],
    sizes: Mapping[Coordinate, int],
    held: Iterable[str],
    facts: Facts,
    above: str,
) -> Module:
    """The text of a plan for arrays of known sizes, of which some facts are known; `held` inputs are the same arrays in
    all calls. It does what the plan does, and no rule is tried again: a call gives the same numbers as those before.
    What the text `above` has, which is that for any sizes, is used from there."""
    assert plan.arrays is not None
    names = frozenset(held)
    case = Case(sizes, facts.learns) if plan.device == "cpu" else None
    two = apart(specialise(plan.arrays, sizes), names, POINTS if facts.keeps else 0)

    def is_held(name: str, groups: Groups) -> bool:
        """Whether this is a view, which has the numbers of its array also after these were changed."""
        return name in names and name in facts.arrays and merges(facts.arrays[name], groups)

    held_views = is_held if names else None
    return emit_sized(
        two, dialect(plan.backend), arguments, Former(plan, facts, case=case), held_views, facts.keeps, above
    )


def passes(plan: Plan, sizes: Sizes | None = None, scalars: Mapping[str, int] | None = None) -> str:
    """The operations of a plan as they are lowered, every rule with the lines that it changed, and the end; for known
    sizes with what each operation costs."""
    if plan.lowered is None:
        return ""
    unskewed = None if plan.unskewed is None else plan.unskewed()
    return str(traced(plan.lowered, target_of(plan), sizes, scalars, plan.backend, unskewed))


def described(call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool) -> tuple[Plan, Module]:
    """The same, the plan with its operations and with what was decided while it was lowered."""
    return noted(*emitted(call, wanted, isolate, recompute))


def noted(plan: Plan, module: Module) -> tuple[Plan, Module]:
    """A plan with its operations, and with what was decided while its kernels were printed."""
    assert plan.arrays is not None
    again = () if plan.budget is None else plan.budget.again
    lasts = [part.definitions[-1] for part in again]
    parts = [Operation(name, "segment", "again", name, None, None) for name in lasts]
    return plan.noted(_notes(plan, module), [*operations_of(plan.arrays, module.inside), *parts]), module


def _notes(plan: Plan, module: Module) -> dict[str, list[Note]]:
    """What is said of each definition that has a step: by the printer of its kernel, and by the rules of its
    operations. What has none is a part of the next that has one."""
    assert plan.arrays is not None
    notes: dict[str, list[Note]] = {name: list(said) for name, said in module.notes.items()}
    homes = _homes(plan)
    for applied in plan.arrays.applied:
        if applied.words and applied.definition in homes:
            notes.setdefault(homes[applied.definition], []).append(applied.words)
    for refused in plan.arrays.refused:
        if refused.way and refused.definition in homes:
            home = homes[refused.definition]
            notes.setdefault(home, []).append(Refusal(home, refused.way, refused.reason))
    return {name: list(dict.fromkeys(said)) for name, said in notes.items()}


def _homes(plan: Plan) -> dict[str, str]:
    """The definition with a step that each definition is a part of."""
    stepped = {name for step in plan.steps for name in step.definitions}
    homes: dict[str, str] = {}
    home = ""
    for let in reversed(plan.program.lets):
        home = let.name if let.name in stepped else home
        if home:
            homes[let.name] = home
    return homes


def parts_of(plan: Plan, module: Module) -> tuple[Part, ...]:
    """The parts of a plan and of its module, in the plan's order."""
    lets = plan.program.definitions
    return tuple(_part(step, lets, plan, module) for step in plan.steps)


def _part(step: Step, lets: dict[str, ir.Let], plan: Plan, module: Module) -> Part:
    def array(name: str) -> Array:
        return Array(name, WIDTH[plan.dtypes[name]], tuple(axis.extent for axis in lets[name].axes))

    kept = step.refusals[0].reason if step.kernel == ARRAYS and step.refusals else ""
    covers = tuple(array(name) for name in step.covers if name in lets)
    reasons = (refusal.reason for refusal in step.refusals if refusal.way == TRITON and step.kernel != CHUNKS)
    tiled = next(reasons, "")
    flags = step.attend is not None, step.gradient is not None
    return Part(array(step.definition), covers, *flags, kept, tiled, module.wide, module.for_some)
