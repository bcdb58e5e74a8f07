"""Removal: where an expression is 0 because a guard removed a point of it, so that its cofactors are not read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import build
from .conditions import fails
from .nodes import Clause, Coord, Expr, Let, Map, Normalize, Read, Select
from .walk import at


def removal(expr: Expr, of_read: Callable[[Read], Expr | None]) -> Expr | None:
    """The condition under which an expression is removed; None for never. `of_read` says it of a read."""
    match expr:
        case Read():
            return of_read(expr)
        case Normalize(op="softmax" | "cumsum", guard=guard) if guard is not None:
            return fails(guard)
        case Map("*", arguments):
            return either(*(removal(argument, of_read) for argument in arguments))
        case Map("/" | "neg", arguments):
            return removal(arguments[0], of_read)
        case Select(condition, then, otherwise):
            first, second = removal(then, of_read), removal(otherwise, of_read)
            return either(
                None if first is None else build.conjunction((condition, first)),
                None if second is None else build.conjunction((fails(condition), second)),
            )
    return None


def removal_of(clause: Clause, of_read: Callable[[Read], Expr | None]) -> Expr | None:
    """The condition under which a point of a clause is removed."""
    guard = None if clause.guard is None else fails(clause.guard)
    return either(guard, removal(clause.body, of_read))


def removal_through(
    lets: Mapping[str, Let], otherwise: Callable[[Read], Expr | None] = lambda read: None
) -> Callable[[Read], Expr | None]:
    """The removal of a read, definitions looked through; `otherwise` says it where that cannot be written down."""

    known: dict[str, Expr | None] = {}

    def of_read(read: Read) -> Expr | None:
        let = lets.get(read.tensor)
        if let is None:
            return None
        if len(let.clauses) != 1 or not all(isinstance(slot, Coord) for slot in let.clauses[0].slots):
            return otherwise(read)
        clause = let.clauses[0]
        if let.name not in known:
            known[let.name] = None  # A definition that reads itself is asked once.
            known[let.name] = removal_of(clause, of_read)
        condition = known[let.name]
        return None if condition is None else at(clause, condition, read.indices)

    return of_read


def either(*conditions: Expr | None) -> Expr | None:
    """One of these; None where there are none."""
    result: Expr | None = None
    for condition in conditions:
        if condition is not None:
            result = condition if result is None else build.apply("||", (result, condition), "bool", condition.span)
    return result
