"""Which definitions are needed for what is asked."""

from __future__ import annotations

from ..ir import nodes as ir
from ..ir.walk import reads_of, walk


def members(order: ir.Order) -> set[str]:
    """The definitions that are computed together."""
    return {order.name} if isinstance(order, ir.Once) else {name for name, _ in order.axes}


def needs(program: ir.Program, wanted: tuple[str, ...]) -> set[str]:
    """The definitions that some definitions, and all assertions, are made of."""
    lets = {let.name: let for let in program.lets}
    needed: set[str] = set()
    waiting = [name for name in wanted if name in lets]
    waiting += [p.tensor for claim in program.asserts for p in walk(claim.condition) if isinstance(p, ir.Read)]
    while waiting:
        name = waiting.pop()
        if name in needed or name not in lets:
            continue
        needed.add(name)
        waiting += [read.tensor for read in reads_of(lets[name])]
    return needed
