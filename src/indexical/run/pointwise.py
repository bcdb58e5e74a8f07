"""A program by the reference evaluator: slow, and right. What it refuses, it refuses at a point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic, Label
from ..ir import nodes as ir
from ..ir import whole
from ..ir.needs import members
from ..ir.needs import needed as needs
from ..ir.types import NUMPY_NAMES, Dtype
from ..ir.walk import children
from .bind import Bound, bind
from .floats import Floats, round_to
from .reference import Table, evaluate

# The reference evaluator visits at most this many points, and stores this many of a definition.
MAXIMUM_WORK = 1_000_000_000
MAXIMUM_POINTS = 50_000_000


def run(program: ir.Program, arguments: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, np.ndarray[Any, Any]]:
    """The wanted definitions as NumPy arrays."""
    return evaluate_bound(bind(program, arguments), wanted)


def evaluate_bound(bound: Bound, wanted: tuple[str, ...], most: int | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """The wanted definitions for arrays that fit; refused where that would take more than `most` steps."""
    program = bound.program
    check_work(bound, wanted, MAXIMUM_WORK if most is None else most)
    tables = evaluate(program, bound.tables, bound.sizes, Floats(), wanted)
    tensors = program.tensors
    return {name: _as_array(bound, tensors[name], table) for name, table in tables.items()}


def _as_array(bound: Bound, tensor: ir.Input | ir.Let, table: Table) -> np.ndarray[Any, Any]:
    """A table as an array of its dtype, with 0 at absent points and the axes of `..r` apart again."""
    dtype = bound.dtypes[tensor.name]
    cells = [0 if cell is None else cell for cell in table.cells]
    if dtype == "bf16":
        cells = [round_to(cell, dtype) for cell in cells]
    if dtype == "i32" and not all(-(2**31) <= cell < 2**31 for cell in cells):
        label = Label(tensor.span, "of dtype i32")
        raise CallError([Diagnostic("IX505", f"`{tensor.name}` has a number that does not fit in 32 bits", (label,))])
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(cells, dtype=_wide(dtype)).astype(NUMPY_NAMES[dtype])
    return array.reshape(bound.shape_of(tensor))


def _wide(dtype: Dtype) -> str:
    """Cells are Python numbers: they become the widest of their kind first."""
    return {"bool": "bool", "i32": "int64", "i64": "int64"}.get(dtype, "float64")


def check_work(bound: Bound, wanted: tuple[str, ...], most: int) -> None:
    """Refuse what would not end in reasonable time, before it starts."""
    lets = bound.program.definitions
    needed = needs(bound.program, wanted)
    for order in bound.program.order:
        for name in members(order) & needed:
            let = lets[name]
            points = math.prod(bound.extent(axis.extent) for axis in let.axes)
            work = work_of(bound, let)
            message = ""
            if points > MAXIMUM_POINTS:
                message = f"`{name}` would have {points:,} points, and at most {MAXIMUM_POINTS:,} are evaluated"
            elif work > most:
                message = f"`{name}` would take {work:,} steps, and at most {most:,} are taken"
            if message:
                help = "choose smaller sizes, or ask for fewer outputs"
                raise CallError([Diagnostic("IX507", message, (Label(let.span),), help=help)])


def work_of(bound: Bound, let: ir.Let) -> int:
    """About how many points the evaluation of a definition visits."""
    points = math.prod(bound.extent(axis.extent) for axis in let.axes)
    return points * sum(_work(bound, clause.body) for clause in let.clauses)


def _work(bound: Bound, expr: ir.Expr) -> int:
    """About how many points one evaluation of an expression visits."""
    inner = sum(_work(bound, child) for child in children(expr))
    if not isinstance(expr, ir.Reduce):
        return 1 + inner
    for range in expr.ranges:
        try:
            inner *= max(1, whole.value(range.upper, bound.lookup) - whole.value(range.lower, bound.lookup))
        except whole.Unknown:
            continue
    return 1 + inner
