"""The operations in the bodies of definitions. Many ask for them, and no body is walked twice."""

from __future__ import annotations

from typing import TypeAlias

from ....ir import nodes as ir
from ....ir.walk import walk

Operation: TypeAlias = ir.Map | ir.Select | ir.Reduce | ir.Normalize

_OPERATIONS = (ir.Map, ir.Select, ir.Reduce, ir.Normalize)


class Contents:
    """The operations of definitions that were asked about. A definition in another form is another one."""

    def __init__(self) -> None:
        # With the definition itself: while it is there, no other one has its place.
        self._known: dict[int, tuple[ir.Let, tuple[Operation, ...]]] = {}

    def of(self, let: ir.Let) -> tuple[Operation, ...]:
        """The operations in the bodies of a definition, in the order of `walk`."""
        known = self._known.get(id(let))
        if known is None:
            parts = (part for clause in let.clauses for part in walk(clause.body))
            known = self._known[id(let)] = let, tuple(part for part in parts if isinstance(part, _OPERATIONS))
        return known[1]
