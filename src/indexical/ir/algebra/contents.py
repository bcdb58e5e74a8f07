"""What stands in the bodies of definitions. Many ask for it, and no body is walked twice."""

from __future__ import annotations

from typing import TypeAlias

from .. import nodes as ir
from ..walk import walk

Operation: TypeAlias = ir.Map | ir.Select | ir.Reduce | ir.Normalize

_OPERATIONS = (ir.Map, ir.Select, ir.Reduce, ir.Normalize)


class Contents:
    """The operations and the reads of definitions that were asked about. A definition in another form is another
    one."""

    def __init__(self) -> None:
        # With the definition itself: while it is there, no other one has its place.
        self._known: dict[int, tuple[ir.Let, tuple[Operation, ...], frozenset[str]]] = {}

    def operations(self, let: ir.Let) -> tuple[Operation, ...]:
        """The operations in the bodies of a definition, in the order of `walk`."""
        return self._found(let)[1]

    def reads(self, let: ir.Let) -> frozenset[str]:
        """The tensors that the bodies of a definition read."""
        return self._found(let)[2]

    def _found(self, let: ir.Let) -> tuple[ir.Let, tuple[Operation, ...], frozenset[str]]:
        known = self._known.get(id(let))
        if known is None:
            operations: list[Operation] = []
            reads: set[str] = set()
            for clause in let.clauses:
                for part in walk(clause.body):
                    if isinstance(part, _OPERATIONS):
                        operations.append(part)
                    elif isinstance(part, ir.Read):
                        reads.add(part.tensor)
            known = self._known[id(let)] = let, tuple(operations), frozenset(reads)
        return known
