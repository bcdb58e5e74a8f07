"""Removal by guards: where a factor is 0 because of one, the product is 0 even if another factor is not finite."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.safety import infinities
from ..ir.removal import removal, removal_of
from ..ir.walk import at, renamed_apart, walk
from .base import Value
from .normalizers import Normalizer
from .scope import Scope


class Remover(Normalizer):
    """Conditions under which an expression is removed."""

    def removed(self, expr: ir.Expr, scope: Scope) -> Value | None:
        """The mask where an expression is 0 because a guard removed a point of it; None where none can."""
        condition = self.removal(expr)
        if condition is None:
            return None
        return self.value(renamed_apart(condition, {coordinate.name for coordinate in scope.places}), scope)

    def heard(self, factors: Sequence[ir.Expr], scope: Scope) -> list[Value]:
        """The factors of a product, each evaluated only where none of the others was removed: first those that may be
        removed, whose removal is then known."""
        removals = [self.removal(factor) for factor in factors]
        values: dict[int, Value] = {}
        for n in sorted(range(len(factors)), key=lambda n: removals[n] is None):
            inner = scope
            for other in (condition for m, condition in enumerate(removals) if m != n and condition is not None):
                inner = inner.where(renamed_apart(other, {c.name for c in scope.places}), False)
            values[n] = self.value(factors[n], inner)
        return [values[n] for n in range(len(factors))]

    def may_be_removed(self, expr: ir.Expr) -> bool:
        """Whether a guard could remove this at all."""
        match expr:
            case ir.Read(tensor) if tensor in self.lets:
                return self.may_remove(tensor)
            case ir.Normalize(op="softmax" | "cumsum", guard=guard):
                return guard is not None
            case ir.Map("*", arguments):
                return any(self.may_be_removed(argument) for argument in arguments)
            case ir.Map("/" | "neg", arguments):
                return self.may_be_removed(arguments[0])
            case ir.Select(_, then, otherwise):
                return self.may_be_removed(then) or self.may_be_removed(otherwise)
            case _:
                return False

    def may_remove(self, tensor: str) -> bool:
        """Whether some point of a definition may be removed."""
        if tensor not in self.removable:
            self.removable[tensor] = False
            clauses = self.lets[tensor].clauses
            self.removable[tensor] = any(c.guard is not None or self.may_be_removed(c.body) for c in clauses)
        return self.removable[tensor]

    def may_be_endless(self, expr: ir.Expr) -> bool:
        """Whether this may be infinite at points that a guard removed."""
        return bool(infinities(expr, self.lets, self.endless))

    def removal(self, expr: ir.Expr) -> ir.Expr | None:
        """The condition under which an expression is removed; None for never."""
        return removal(expr, self.removal_of_read)

    def removal_of_read(self, read: ir.Read) -> ir.Expr | None:
        """The guard of a definition and the removal of its body, at the indices of a read; where that cannot be
        written down, the mask that stands beside the definition, if there is one."""
        if not self.may_be_removed(read):
            return None
        let = self.lets[read.tensor]
        beside = mask_name(let.name)
        if beside in self.stored:
            return build.read(beside, read.indices, "bool", read.span)
        condition = None if let.name in self.recurrent else self.removal_of(let.clauses[0])
        if condition is None or not is_written(let, condition):
            return None
        return at(let.clauses[0], condition, read.indices)

    def removal_of(self, clause: ir.Clause) -> ir.Expr | None:
        """The condition under which a point of a clause is removed."""
        return removal_of(clause, self.removal_of_read)


def mask_name(tensor: str) -> str:
    """The name of the mask that stands beside a definition. No definition is called so."""
    return f"{tensor} removed"


def is_written(let: ir.Let, condition: ir.Expr | None) -> bool:
    """Whether the removal of a definition can be written down at any index: it has one clause, and no normaliser
    is in the way."""
    one = len(let.clauses) == 1 and all(isinstance(slot, ir.Coord) for slot in let.clauses[0].slots)
    return one and (condition is None or not any(isinstance(part, ir.Normalize) for part in walk(condition)))
