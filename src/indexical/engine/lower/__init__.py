"""A Program as an array program: every expression becomes a value, in the scope where it is asked.

`scope` has what is in force at an expression, `lowering` what the whole pass knows. The other files have one function
for each kind of expression: `expressions` chooses among them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...ir import nodes as ir
from ...ir.needs import measuring
from ...ir.types import Dtype
from ..ops import Plan
from . import expressions
from .definitions import planned
from .lowering import Kernel, Lowering, Unsupported

__all__ = ["Kernel", "Unsupported", "lower"]


def lower(
    program: ir.Program,
    dtypes: Mapping[str, Dtype],
    wanted: tuple[str, ...] | None = None,
    isolate: bool = False,
    differentiable: bool = True,
    numbers: Collection[str] = (),
    arrays: Collection[str] = (),
    kernels: Mapping[str, Kernel] | None = None,
    facts: tuple[ir.Expr, ...] = (),
    declared: Mapping[str, Dtype] | None = None,
) -> Plan:
    """The array program of the wanted definitions and all that they need, for inputs of these dtypes.

    With `isolate` a product is 0 where a guard removed a factor, even where another is NaN. What is `differentiable`
    has finite slopes behind guards, which takes some more operations. Scalars among `numbers` are numbers of the host,
    and no arrays; whole ones among `arrays` are arrays, unless a length is made of them. Definitions that `kernels` of
    the former emitter compute are opaque. `facts` are conditions of numbers that hold in every call. `declared` are
    dtypes of definitions, where the program was written in another way that reads less.
    """
    low = Lowering(program, dtypes, expressions.value, isolate, differentiable)
    low.numbers = frozenset(numbers)
    low.arrays = _arrays(program, arrays)
    low.kernels = kernels or {}
    low.facts = facts
    low.dtypes |= {name: dtype for name, dtype in (declared or {}).items() if name in low.dtypes}
    return planned(low, wanted or program.outputs)


def _arrays(program: ir.Program, arrays: Collection[str]) -> frozenset[str]:
    """The whole scalars among some inputs of which no length is made."""
    found = frozenset(one.name for one in program.inputs if one.name in arrays and one.kind == "whole" and not one.axes)
    return found.difference(measuring(program)) if found else found
