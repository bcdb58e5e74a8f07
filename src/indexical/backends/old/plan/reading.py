"""The tensors that are read on the way to a definition, by kernels, which leave out inputs that cancel, and by all
else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ....ir import nodes as ir
from ....ir.needs import asserted, reached, read_in
from ....ir.walk import reads_of
from ....plan.steps import Attention, Step
from ....plan.target import FUSED
from .gradients import Derived
from .totals import Totals

# For each definition that a kernel computes, the tensors in the expressions that it evaluates.
Reading: TypeAlias = Mapping[str, Sequence[str]]


def read_by_kernels(fused: Mapping[str, Attention], derived: Derived, totals: Totals) -> dict[str, Sequence[str]]:
    """The tensors that kernels of attentions, of totals beside them and of gradients read, by definition."""
    reading: dict[str, Sequence[str]] = {name: read_in(*_parts(attention)) for name, attention in fused.items()}
    for owner, beside in totals.items():
        reading |= {name: reading[owner] for name, _ in beside}
    for gradient in derived.gradients:
        read = read_in(*_parts(gradient.attend.attention), gradient.arriving)
        reading |= dict.fromkeys(gradient.definitions, read)
    return reading


def _parts(attention: Attention) -> tuple[ir.Expr, ...]:
    """Everything that a kernel for an attention evaluates."""
    key = attention.key
    sink = () if attention.sink is None else (attention.sink,)
    return (key.lower, key.upper, attention.score, *attention.guard, attention.value, *sink)


def needed_by(program: ir.Program, wanted: tuple[str, ...], reading: Reading) -> set[str]:
    """The definitions that are computed: those asked for, those asserted, and what they read; of those that a kernel
    computes, only what it is `reading`."""
    lets = program.definitions
    return lets.keys() & reached((*wanted, *asserted(program)), lambda name: _reads(name, lets, reading))


def _reads(name: str, lets: Mapping[str, ir.Let], reading: Reading) -> list[str]:
    """The tensors that are read to compute a definition, none for an input."""
    if name not in reading:
        return [read.tensor for read in reads_of(lets[name])] if name in lets else []
    return [*reading[name], *read_in(*(axis.extent for axis in lets[name].axes))]


def handed(steps: Iterable[Step]) -> set[str]:
    """The tensors that are handed as arrays to kernels which compute scores by themselves."""
    scored = [step.attend.attention for step in steps if step.attend is not None and step.kernel != FUSED]
    return set(read_in(*(part for one in scored for part in (one.score, *one.guard))))


def covered(names: tuple[str, ...], lets: Mapping[str, ir.Let], needed: set[str]) -> tuple[str, ...]:
    """The definitions that a kernel computes on the way, in the order of the text."""

    def step(name: str) -> list[str]:
        reads = [read.tensor for read in reads_of(lets[name])] if name in lets else []
        return [tensor for tensor in reads if tensor not in needed]

    found = set(reached(names, step)).difference(names)
    return tuple(name for name in lets if name in found)
