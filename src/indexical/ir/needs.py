"""The definitions that others are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import nodes as ir
from .graph import components
from .graph import reached as reached
from .walk import of_kinds, parts_in, reads_of, walk


def members(order: ir.Order) -> set[str]:
    """The definitions that are computed together."""
    return {order.name} if isinstance(order, ir.Once) else {name for name, _ in order.axes}


def read_in(*exprs: ir.Expr) -> list[str]:
    """The tensors that expressions read, in order."""
    return [read.tensor for read in of_kinds(exprs, ir.Read)]


def asserted(program: ir.Program) -> list[str]:
    """The tensors that assertions read."""
    return read_in(*(claim.condition for claim in program.asserts))


def made_of(names: Iterable[str], lets: Mapping[str, ir.Let]) -> list[str]:
    """Tensors and all that these are made of, inputs included, the nearest first."""
    return reached(names, lambda name: [read.tensor for read in reads_of(lets[name])] if name in lets else ())


def measuring(program: ir.Program) -> set[str]:
    """The tensors that lengths, ranges and the places of clauses are made of: all these are known before an array is
    read."""
    clauses = [clause for let in program.lets for clause in let.clauses]
    reductions = of_kinds((claim.condition for claim in program.asserts), ir.Reduce)
    reductions += [part for let in program.lets for part in parts_in(let) if isinstance(part, ir.Reduce)]
    ranges = [range for reduction in reductions for range in reduction.ranges]
    ranges += [range for clause in clauses for range in clause.ranges]
    exprs = [axis.extent for tensor in program.tensors.values() for axis in tensor.axes]
    exprs += [slot for clause in clauses for slot in clause.slots]
    exprs += [bound for range in ranges for bound in (range.lower, range.upper)]
    return set(made_of(read_in(*exprs), program.definitions))


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


def endless(program: ir.Program) -> frozenset[str]:
    """The definitions that cannot be written out in those that read them: that would have no end. On a cycle through
    a base case it is those with a base case alone: a layer's queries and keys end at what enters the layer."""
    lets = program.definitions
    found: set[str] = set()
    for order in program.order:
        if isinstance(order, ir.Stepwise):
            group = members(order)
            single = [name for name in group if len(lets[name].clauses) == 1]
            edges = {name: [read.tensor for read in reads_of(lets[name]) if read.tensor in single] for name in single}
            loops = any(len(part) > 1 or part[0] in edges[part[0]] for part in components(edges))
            found |= group if loops else group - edges.keys()
    return frozenset(found)
