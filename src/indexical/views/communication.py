"""Who talks to whom: for every gather, the weight a query gives a key, and what is carried home from there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..facts.roles import Roles
from ..facts.summary import Facts
from ..ir import nodes as ir
from ..ir.walk import Inexpressible, substitute
from .relation import expression_json


def communication_json(program: ir.Program, facts: Facts) -> list[dict[str, Any]]:
    """The gathers of a program, as expressions that a page evaluates at a query and a key."""
    result = []
    for roles in facts.roles:
        let = next((let for let in program.lets if let.name == roles.definition), None)
        found = None if let is None or len(let.clauses) > 1 else _gather(program, facts, let, roles)
        if found is not None:
            result.append(found)
    return result


def _gather(program: ir.Program, facts: Facts, let: ir.Let, roles: Roles) -> dict[str, Any] | None:
    """A definition that is a sum over its key of weights times values."""
    clause = let.clauses[0]
    body = clause.body
    if not isinstance(body, ir.Reduce) or body.op != "sum" or len(body.ranges) != 1:
        return None
    key = body.ranges[0].coordinate
    factors = list(_factors(program, body.body))
    weights = [factor for factor in factors if _is_weight(facts, factor, key)]
    home = [str(axis.coordinate) for axis in let.axes]
    query = [name for name in home if name in roles.query]
    if len(weights) != 1 or len(query) != 1:
        return None
    carry = [name for name in home if name in roles.carry]
    apart = [name for name in home if name not in query and name not in carry]
    values = [factor for factor in factors if factor is not weights[0]]
    return {
        "definition": let.name,
        "query": query[0],
        "key": str(key),
        "keys": [expression_json(body.ranges[0].lower), expression_json(body.ranges[0].upper)],
        "guard": None if body.guard is None else expression_json(body.guard),
        "carry": carry,
        "apart": apart,
        "home": home,
        "weight": expression_json(weights[0]),
        "values": [expression_json(value) for value in values],
        "after": _projection(program, let),
    }


def _factors(program: ir.Program, expr: ir.Expr, depth: int = 3) -> Iterator[ir.Expr]:
    """The factors of a product, also of one that has a name of its own."""
    if isinstance(expr, ir.Map) and expr.op == "*":
        for argument in expr.arguments:
            yield from _factors(program, argument, depth)
        return
    inside = _opened(program, expr) if depth else None
    if inside is None:
        yield expr
    else:
        yield from _factors(program, inside, depth - 1)


def _opened(program: ir.Program, expr: ir.Expr) -> ir.Expr | None:
    """What a definition that is a product stands for; None for anything else."""
    let = program.tensors.get(expr.tensor) if isinstance(expr, ir.Read) else None
    if not isinstance(let, ir.Let) or not isinstance(expr, ir.Read) or len(let.clauses) > 1:
        return None
    clause = let.clauses[0]
    slots = [slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord)]
    if clause.guard is not None or not (isinstance(clause.body, ir.Map) and clause.body.op == "*"):
        return None
    try:
        return substitute(clause.body, dict(zip(slots, expr.indices, strict=True)))
    except Inexpressible:
        return None


def _is_weight(facts: Facts, factor: ir.Expr, key: str) -> bool:
    """Whether a factor is a distribution over the key: it is a softmax, or a definition that is one."""
    if isinstance(factor, ir.Normalize):
        return factor.op == "softmax" and factor.coordinate == key
    if not isinstance(factor, ir.Read):
        return False
    at = [n for n, index in enumerate(factor.indices) if isinstance(index, ir.Coord) and index.coordinate == key]
    story = next((story for story in facts.definitions if story.name == factor.tensor), None)
    if story is None or len(at) != 1:
        return False
    return story.survives[at[0]] in {found.over for found in story.distribution}


def _projection(program: ir.Program, gather: ir.Let) -> dict[str, Any] | None:
    """`sum[h, e](out[…, h, …, e] * W_O[h, e, m])`: the definition that takes what was gathered on, with its matrix."""
    for let in program.lets:
        if len(let.clauses) > 1 or not isinstance(let.clauses[0].body, ir.Reduce):
            continue
        body = let.clauses[0].body
        if body.op != "sum" or not (isinstance(body.body, ir.Map) and body.body.op == "*"):
            continue
        parts = list(_factors(program, body.body, 0))
        taken = [part for part in parts if isinstance(part, ir.Read) and part.tensor == gather.name]
        rest = [part for part in parts if part not in taken]
        if len(taken) == 1 and len(rest) == 1 and all(isinstance(index, ir.Coord) for index in taken[0].indices):
            names = [str(index.coordinate) for index in taken[0].indices if isinstance(index, ir.Coord)]
            bound = {str(range.coordinate) for range in body.ranges}
            free = [str(c) for c in sorted(rest[0].type.coordinates) if str(c) not in bound]
            return {"definition": let.name, "home": names, "matrix": expression_json(rest[0]), "features": free}
    return None
