"""The dtype of each definition, once the arrays are known. Literals, coordinates and sizes are weak."""

from __future__ import annotations

from collections.abc import Mapping

from . import nodes as ir
from .types import DEFAULT_DTYPE, Dtype, Kind, computed_in, widest
from .walk import children, walk


def definition_dtypes(program: ir.Program, inputs: Mapping[str, Dtype]) -> tuple[dict[str, Dtype], frozenset[str]]:
    """The dtype of every definition: the widest of its kind that it is made of, else f64 or i64. And the definitions of
    reals that are made of literals, coordinates and sizes alone: like these, they take the dtype of what they meet."""
    known = _known(program, inputs)
    dtypes = {let.name: known[let.name] or DEFAULT_DTYPE[let.kind] for let in program.lets}
    return dtypes, frozenset(let.name for let in program.lets if let.kind == "real" and known[let.name] is None)


def _known(program: ir.Program, inputs: Mapping[str, Dtype]) -> dict[str, Dtype | None]:
    known: dict[str, Dtype | None] = {name: computed_in(dtype) for name, dtype in inputs.items()}
    lets = program.definitions
    # A recurrence reads itself: two rounds are enough for every dtype in it to be promoted.
    for _ in range(2 if program.recurrent else 1):
        for let in _by_order(program, lets):
            found = [_of(clause.body, known, let.kind) for clause in let.clauses]
            known[let.name] = widest([known.get(let.name), *found])
    return known


def _by_order(program: ir.Program, lets: Mapping[str, ir.Let]) -> list[ir.Let]:
    names: list[str] = []
    waiting = list(reversed(program.order))
    while waiting:
        order = waiting.pop()
        if isinstance(order, ir.Once):
            names.append(order.name)
        else:
            waiting += reversed(order.body)
    return [lets[name] for name in names]


def real_dtype(expr: ir.Expr, dtypes: Mapping[str, Dtype], weak: frozenset[str]) -> Dtype | None:
    """The dtype of an expression of reals, where tensors have these; None where all that it is made of is weak."""
    read = {part.tensor for part in walk(expr) if isinstance(part, ir.Read)}
    known = {name: dtypes.get(name) for name in read - weak}
    return _of(expr, known, "real")


def _of(expr: ir.Expr, known: Mapping[str, Dtype | None], kind: Kind) -> Dtype | None:
    """The dtype of an expression; None where only weak things of this kind are in it."""
    found: dict[Dtype | None, None] = {}
    waiting = [expr]
    while waiting:
        expr = waiting.pop()
        if expr.type.kind != kind:
            continue
        match expr:
            case ir.Read(tensor):
                found[known.get(tensor)] = None
            case ir.Map(op) if op.startswith("as "):
                found[op[3:]] = None  # type: ignore[index]
            case ir.Map(arguments=arguments):
                waiting += arguments
            case ir.Select(_, then, otherwise):
                waiting += (then, otherwise)
            case ir.Reduce("argmax" | "argmin") | ir.Normalize("rank"):
                pass
            case ir.Reduce(body=body) | ir.Normalize(body=body):
                waiting.append(body)
            case _:
                waiting += children(expr)
    return widest(found)
