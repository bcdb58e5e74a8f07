"""Planning a call: its plan, its text, and its parts. Only a call without a cached text comes here."""

from __future__ import annotations

from ..backends.operations import operations_of
from ..backends.source import Module, dialect_of, emit
from ..ir import nodes as ir
from ..ir.constants import in_digits
from ..plan.choose import ARRAYS, choose
from ..plan.steps import WIDTH, Plan, Step
from ..plan.target import CHUNKS, TRITON
from .kernel import Call
from .parts import Array, Part


def emitted(call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool) -> tuple[Plan, Module]:
    """The plan and the text for calls like this one."""
    target = dialect_of(call.backend).target
    program = in_digits(call.program)
    plan = choose(program, wanted, call.bound.dtypes, target, call.device, isolate, recompute)
    return plan, emit(plan, call.arguments)


def described(call: Call, wanted: tuple[str, ...], isolate: bool, recompute: bool) -> tuple[Plan, Module]:
    """The same, the plan with its operations and with what was decided while it was lowered."""
    return noted(*emitted(call, wanted, isolate, recompute))


def noted(plan: Plan, module: Module) -> tuple[Plan, Module]:
    """A plan with the operations of its text, and with what was decided while it was lowered."""
    return plan.noted(module.notes, operations_of(module.body)), module


def parts_of(plan: Plan) -> tuple[Part, ...]:
    """The parts of a plan, in its order."""
    lets = plan.program.definitions
    return tuple(_part(step, lets, plan) for step in plan.steps)


def _part(step: Step, lets: dict[str, ir.Let], plan: Plan) -> Part:
    def array(name: str) -> Array:
        return Array(name, WIDTH[plan.dtypes[name]], tuple(axis.extent for axis in lets[name].axes))

    kept = step.refusals[0].reason if step.kernel == ARRAYS and step.refusals else ""
    covers = tuple(array(name) for name in step.covers if name in lets)
    reasons = (refusal.reason for refusal in step.refusals if refusal.way == TRITON and step.kernel != CHUNKS)
    tiled = next(reasons, "")
    return Part(array(step.definition), covers, step.attend is not None, step.gradient is not None, kept, tiled)
