"""Recurrences that go along diagonals, as steps of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..engine.skew import Skewed
from ..ir import nodes as ir
from ..records import replace
from .scans import Recurrence
from .steps import Plan, Refusal, Step
from .target import ARRAYS

DIAGONALS = "diagonals"


def by_diagonals(plan: Plan, found: Skewed) -> Plan:
    """The plan of a program in which recurrences go along diagonals: a step for the diagonals of each definition, which
    is then read from them; for all others of several coordinates the reason why they do not."""
    dtypes = {new: plan.dtypes[name] for name, new in found.names.items() if name in plan.dtypes}
    weak = frozenset(new for name, new in found.names.items() if name in plan.weak)
    loops = [item for item in found.program.order if isinstance(item, ir.Stepwise)] if found.names else []
    axes = {name: axis for item in loops for name, axis in item.axes}
    steps = tuple(part for step in plan.steps for part in _steps(step, found, axes))
    return replace(plan, program=found.program, dtypes={**plan.dtypes, **dtypes}, weak=plan.weak | weak, steps=steps)


def _steps(step: Step, found: Skewed, axes: Mapping[str, int]) -> Iterator[Step]:
    name = step.definition
    if name in found.names:
        diagonals = found.names[name]
        yield Step(diagonals, DIAGONALS, recurrence=Recurrence((axes[diagonals],)))
        yield replace(step, kernel=ARRAYS, recurrence=None)
    elif name in found.refused:
        yield replace(step, refusals=(*step.refusals, Refusal(name, DIAGONALS, found.refused[name])))
    else:
        yield step
