"""Inputs and definitions that no output needs."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...ir.walk import parts_of, walk
from ..view import View

CODE = "IX413"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    if not view.program.outputs:
        return
    needed = _needed(view)
    for tensor in view.program.inputs:
        if tensor.name not in needed:
            yield (
                None,
                Diagnostic(CODE, f"no output needs the input `{tensor.name}`", (Label(tensor.span),), (), "remove it"),
            )
    for let in view.program.lets:
        if let.name not in needed and not let.hidden:
            help = f"remove it, or make it an output: `output {let.name};`"
            yield None, Diagnostic(CODE, f"no output needs `{let.name}`", (Label(let.span),), (), help)


def _needed(view: View) -> set[str]:
    """The tensors that outputs, assertions, expectations and contracts are made of, bounds included."""
    program = view.program
    needed: set[str] = set()
    sizes: set[Coordinate] = set()
    waiting = [*program.outputs, *(contract.name for contract in program.contracts)]
    claims = [claim.condition for claim in program.asserts] + [claim.body for claim in program.expects]
    for claim in claims:
        waiting += _mentioned(claim, sizes)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            for part in parts_of(view.lets[name]) if name in view.lets else ():
                waiting += _mentioned(part, sizes)
            waiting += view.lets[name].derived if name in view.lets else ()
    return needed | _measured(program, needed, sizes)


def _measured(program: ir.Program, needed: set[str], sizes: set[Coordinate]) -> set[str]:
    """The inputs that are there for their size alone."""
    result = set()
    for size in sizes:
        owners = [t.name for t in program.inputs if any(axis.coordinate == size for axis in t.axes)]
        if owners and not needed.intersection(owners):
            result.add(owners[0])
    return result


def _mentioned(expr: ir.Expr, sizes: set[Coordinate]) -> list[str]:
    """The tensors that an expression reads; the sizes it asks for are added to `sizes`."""
    found = list(walk(expr))
    sizes |= {part.coordinate for part in found if isinstance(part, ir.Size)}
    return [part.tensor for part in found if isinstance(part, ir.Read)]
