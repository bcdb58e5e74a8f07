"""The definitions that others are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import nodes as ir
from .graph import reached as reached
from .walk import reads_of, walk


def members(order: ir.Order) -> set[str]:
    """The definitions that are computed together."""
    return {order.name} if isinstance(order, ir.Once) else {name for name, _ in order.axes}


def read_in(*exprs: ir.Expr) -> list[str]:
    """The tensors that expressions read, in order."""
    return [part.tensor for expr in exprs for part in walk(expr) if isinstance(part, ir.Read)]


def asserted(program: ir.Program) -> list[str]:
    """The tensors that assertions read."""
    return read_in(*(claim.condition for claim in program.asserts))


def made_of(names: Iterable[str], lets: Mapping[str, ir.Let]) -> list[str]:
    """Tensors and all that these are made of, inputs included, the nearest first."""
    return reached(names, lambda name: [read.tensor for read in reads_of(lets[name])] if name in lets else ())


def depends_on_data(expr: ir.Expr, lets: Mapping[str, ir.Let]) -> bool:
    """Whether an expression depends on an input or on figures, through definitions too."""
    waiting, seen = [expr], set[str]()
    while waiting:
        for part in walk(waiting.pop()):
            if isinstance(part, ir.Array) or (isinstance(part, ir.Read) and part.tensor not in lets):
                return True
            if isinstance(part, ir.Read) and part.tensor not in seen:
                seen.add(part.tensor)
                waiting += [e for c in lets[part.tensor].clauses for e in (c.body, c.guard) if e is not None]
    return False


def needed(program: ir.Program, wanted: Iterable[str]) -> set[str]:
    """The definitions that some definitions, and all assertions, are made of."""
    lets = program.definitions
    return lets.keys() & made_of((*wanted, *asserted(program)), lets)
