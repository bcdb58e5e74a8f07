"""Expressions without a slope: steps, whole numbers, truth values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ..ir import nodes as ir
from .gradient import reached_from
from .slopes import is_flat

Step: TypeAlias = ir.Map | ir.Reduce | ir.Normalize


def flat_parts(program: ir.Program, of: Sequence[str], by: Sequence[str]) -> Iterator[tuple[str, Step]]:
    """The tensors of `by` from which every path to `of` leads through a flat function, each with that function. A
    tensor with another path, or with none, is left out.

    A condition or a guard is no step: what it chooses between has slopes of its own.
    """
    reached = reached_from(program, of)
    for name in by:
        found = None if name in reached else _flat_part(program, of, name)
        if found is not None:
            yield name, found


def _flat_part(program: ir.Program, of: Sequence[str], by: str) -> Step | None:
    """The flat function through which every path from `by` to `of` leads."""
    lets = program.definitions
    dependent = {by}
    for _ in program.lets:
        more = {name for name, let in lets.items() if any(_names(c.body) & dependent for c in let.clauses)}
        if more <= dependent:
            break
        dependent |= more
    if not dependent & set(of):
        return None
    for name in lets:
        if name in dependent:
            for clause in lets[name].clauses:
                for part in _values(clause.body):
                    if isinstance(part, Step) and _is_step(part) and _names(part) & dependent:
                        return part
    return None


def _is_step(part: Step) -> bool:
    if isinstance(part, ir.Reduce | ir.Normalize):
        return part.op in ("argmax", "argmin", "rank")
    takes_reals = any(argument.type.kind == "real" for argument in part.arguments)
    return takes_reals and is_flat(part) and part.type.kind != "bool"


def _names(expr: ir.Expr) -> set[str]:
    return {part.tensor for part in _values(expr) if isinstance(part, ir.Read)}


def _values(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The parts of an expression, without its conditions, guards and indices."""
    waiting = [expr]
    while waiting:
        expr = waiting.pop()
        yield expr
        match expr:
            case ir.Map(_, inner) if expr.type.kind != "bool":
                waiting += inner
            case ir.Select(_, then, otherwise):
                waiting += (then, otherwise)
            case ir.Reduce(body=body) | ir.Normalize(body=body):
                waiting.append(body)
            case _:
                pass
