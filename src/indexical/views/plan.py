"""A plan as text for a terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields

from ..engine.listing import Operation
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..plan.scans import steps_of
from ..plan.steps import WIDTH, Plan, Step, extent_of, size_of
from .fragment import Sheet
from .rooms import budget_json, kept_for_the_way_back, show_budget, show_bytes, way_back


def show_plan(plan: Plan, sizes: Mapping[Coordinate, int]) -> str:
    """Per definition: the kernel, what is said of it, what was refused and why; then what is never built."""
    lets = plan.program.definitions
    kept_whole = "" if plan.recompute else ", nothing made again for the way back"
    isolated = ", non-finite values isolated" if plan.isolate else ""
    lines = [f"{plan.backend} on {plan.device}{isolated}{kept_whole}"]
    for step in plan.steps:
        let = lets[step.definition]
        several = [lets[name] for name in (step.definition, *step.beside)]
        several = [other for other in several if not other.hidden] or several
        lines.append("")
        lines += [f"{_home(let)}  {plan.dtypes[let.name]}{_room(let, plan, sizes)}" for let in several]
        lines.append(f"  by {step.kernel}{_told(step, plan)}")
        lines += [f"  {words}" for words in _words(step, let, plan, sizes)]
        lines += [f"  not by {refusal.way}: {refusal.reason}" for refusal in step.refusals]
    if plan.unbuilt:
        lines += ["", "never built"]
        lines += [f"  {_home(lets[name])}{_room(lets[name], plan, sizes)}" for name in plan.unbuilt]
    if plan.budget is not None:
        return "\n".join([*lines, "", *show_budget(plan.budget)])
    kept = kept_for_the_way_back(plan)
    if kept:
        lines += ["", "kept for the way back"]
        lines += [f"  {_home(lets[name])}{_room(lets[name], plan, sizes)}" for name in kept]
    return "\n".join(lines)


# Operations that the plan names in its text; all others only move or read arrays.
_TOLD = frozenset(("reduce", "normalize", "sort", "contract", "gather", "scatter", "put", "convolve", "scan", "pad"))


def _told(step: Step, plan: Plan) -> str:
    """The operations of a step that is computed with arrays, each named once."""
    if step.kernel != "arrays":
        return ""
    names = dict.fromkeys(operation.name for operation in _operations(step, plan) if operation.name in _TOLD)
    return f": {', '.join(names)}" if names else ""


def plan_json(plan: Plan, sizes: Mapping[Coordinate, int]) -> dict[str, object]:
    lets = plan.program.definitions
    return {
        "backend": plan.backend,
        "device": plan.device,
        "isolate": plan.isolate,
        "steps": [_step_json(step, plan, lets[step.definition], sizes) for step in plan.steps],
        "recompute": plan.recompute,
        "memory": None if plan.budget is None else budget_json(plan.budget),
        "never_built": [{"name": name, "bytes": size_of(lets[name], plan, sizes)} for name in plan.unbuilt],
        "kept_for_the_way_back": [
            {"name": name, "bytes": size_of(lets[name], plan, sizes)} for name in kept_for_the_way_back(plan)
        ],
    }


def _step_json(step: Step, plan: Plan, let: ir.Let, sizes: Mapping[Coordinate, int]) -> dict[str, object]:
    return {
        "name": step.definition,
        "coordinates": [str(axis.coordinate) for axis in let.axes],
        "dtype": plan.dtypes[let.name],
        "kernel": step.kernel,
        "beside": list(step.beside),
        "words": _words(step, let, plan, sizes),
        "refused": [{"kernel": refusal.way, "reason": refusal.reason} for refusal in step.refusals],
        "bytes": size_of(let, plan, sizes),
        "operations": [_operation_json(operation, sizes) for operation in _operations(step, plan)],
    }


def _operations(step: Step, plan: Plan) -> list[Operation]:
    """The operations of the emitted function that are there for a step."""
    return [operation for operation in plan.operations if operation.definition in step.definitions]


def _operation_json(operation: Operation, sizes: Mapping[Coordinate, int]) -> dict[str, object]:
    """An operation, with the axes of the array that it goes into, how long they are, and how many bytes it has; None
    for what is not known before the call."""
    axes = operation.axes
    shape = None if axes is None else [extent_of(axis, sizes) for axis in axes]
    known = shape is not None and operation.dtype is not None and None not in shape
    return {
        "operation": operation.name,
        "call": operation.call,
        "result": operation.result,
        "axes": None if axes is None else [str(axis.name) for axis in axes],
        "shape": shape,
        "dtype": operation.dtype,
        "bytes": math.prod(n or 0 for n in shape) * WIDTH[operation.dtype]
        if known and shape and operation.dtype
        else None,
    }


def _words(step: Step, let: ir.Let, plan: Plan, sizes: Mapping[Coordinate, int]) -> list[str]:
    return [*way_back(step, plan, sizes), *step.words, *_pace(step, let, plan, sizes)]


def _pace(step: Step, let: ir.Let, plan: Plan, sizes: Mapping[Coordinate, int]) -> list[str]:
    """Say how many steps a recurrence takes one after the other, and how many of them are kept."""
    if step.recurrence is None:
        return []
    names = [f"`{let.axes[axis].coordinate}`" for axis in step.recurrence.axes]
    counts = [extent_of(let.axes[axis], sizes) for axis in step.recurrence.axes]
    scan, count = step.recurrence.scan, counts[0]
    if scan is None:
        steps = "" if None in counts else f": {math.prod(n or 0 for n in counts):,} steps"
        lines = [f"one step after the other along {' and '.join(names)}{steps}"]
    elif scan.is_sum:
        lines = [f"a running sum along {names[0]}"]
    else:
        steps = "in about 3 √n steps" if count is None else f"in {steps_of(count, scan):,} steps, not {count:,}"
        lines = [f"along {names[0]} {steps}", "where a step is not finite: one step after the other"]
    kept = step.recurrence.kept
    if kept is not None:
        whole = size_of(let, plan, sizes)
        room = ""
        if whole is not None and count:
            room = f", {show_bytes(min(whole, whole * kept // count))} and not {show_bytes(whole)}"
        number = "one step is" if kept == 1 else f"{kept} steps are"
        lines.append(f"no step but the last is read: {number} kept at a time{room}; for gradients all are")
    return lines


def _home(let: ir.Let) -> str:
    inside = ", ".join(str(axis.coordinate) for axis in let.axes)
    return f"{let.name}[{inside}]" if let.axes else let.name


def _room(let: ir.Let, plan: Plan, sizes: Mapping[Coordinate, int]) -> str:
    count = size_of(let, plan, sizes)
    return "" if count is None else f"  {show_bytes(count)}"


class PlanSheet(Sheet, Plan):
    """A plan, readable as it stands."""

    sizes: Mapping[Coordinate, int]
    scalars: Mapping[str, int]

    @classmethod
    def of(cls, plan: Plan, sizes: Mapping[Coordinate, int], scalars: Mapping[str, int]) -> PlanSheet:
        """A plan with the sizes and the whole scalars of a call."""
        sheet = cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})
        object.__setattr__(sheet, "sizes", sizes)
        object.__setattr__(sheet, "scalars", scalars)
        return sheet

    def __str__(self) -> str:
        return show_plan(self, self.sizes)

    def to_json(self) -> dict[str, object]:
        return plan_json(self, self.sizes)

    def passes(self, sized: bool = False) -> str:
        """The program on its way: its operations as they are lowered, every rule that was applied with its law and the
        lines that it changed, and what runs in the end; `sized`, by calls of these sizes alone, with what each
        operation costs."""
        from ..run.emitting import passes

        return passes(self, self.sizes, self.scalars) if sized else passes(self)
