"""Communication: for every gather, the weight each query gives each key, and the values that are gathered with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..facts.roles import Roles
from ..facts.summary import Facts
from ..ir import nodes as ir
from ..ir.walk import Inexpressible, substitute
from ..records import replace
from .relation import expression_json

Arrays: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


def communication_json(program: ir.Program, facts: Facts, arrays: Arrays) -> list[dict[str, Any]]:
    """The gathers of a program, as expressions that a page evaluates at a query and a key."""
    known = {roles.definition: roles for roles in facts.roles if roles.kind == "attention"}
    backward = {roles.definition for roles in facts.roles if "transpose" in roles.kind or roles.kind == "change"}
    result = []
    for let in program.lets:
        whole = let.clauses[0].body
        body = whole.arguments[0] if isinstance(whole, ir.Map) and whole.op == "/" else whole
        if len(let.clauses) > 1 or not isinstance(body, ir.Reduce) or body.op != "sum" or len(body.ranges) != 1:
            continue
        if let.name in known:
            found = _gather(program, facts, let, body, known[let.name])
        else:
            is_other = let.hidden or let.name in backward or body is not whole
            found = None if is_other else _given(program, let, body, arrays)
        if found is not None:
            result.append(found)
    return result


def _gather(program: ir.Program, facts: Facts, let: ir.Let, body: ir.Reduce, roles: Roles) -> dict[str, Any] | None:
    """A definition that is a sum over its key of weights times values, or such a sum divided by what they make. The
    weight is a distribution; without one, the only factor that knows both the query and the key."""
    factors = list(_factors(program, body.body))
    key = body.ranges[0].coordinate
    home = [str(axis.coordinate) for axis in let.axes]
    query = [name for name in home if name in roles.query]
    weights = [factor for factor in factors if _is_weight(facts, factor, key)]
    if not weights and len(query) == 1:
        weights = [factor for factor in factors if {query[0], str(key)} <= set(map(str, factor.type.coordinates))]
    if len(weights) != 1 or len(query) != 1:
        return None
    apart = [name for name in home if name not in query and name not in roles.carry]
    return {**_described(program, let, body, weights[0], factors, query[0], apart), "compare": list(roles.compare)}


def _given(program: ir.Program, let: ir.Let, body: ir.Reduce, arrays: Arrays) -> dict[str, Any] | None:
    """The same with weights that are only given: none is negative, and query and key are points of one space."""
    key = body.ranges[0].coordinate
    factors = list(_factors(program, body.body))
    spaces = {str(axis.coordinate): axis.coordinate.space for axis in let.axes}
    for weight in factors:
        if not isinstance(weight, ir.Read) or not _is_sayable(weight) or not _is_plain(arrays.get(weight.tensor)):
            continue
        read = {str(c) for c in weight.type.coordinates}
        others = {str(c) for factor in factors if factor is not weight for c in factor.type.coordinates}
        query = [name for name, space in spaces.items() if space == key.space is not None and name not in others]
        if str(key) in read & others and len(query) == 1:
            apart = [name for name in spaces if name in read and name not in query]
            return _described(program, let, body, weight, factors, query[0], apart)
    return None


def _is_plain(array: np.ndarray[Any, Any] | None) -> bool:
    """Whether these could be weights: they are numbers, and none of them is negative."""
    return array is not None and array.dtype.kind in "fiu" and bool((array >= 0).all() and (array > 0).any())


def _is_sayable(read: ir.Read) -> bool:
    return all(isinstance(index, ir.Coord) for index in read.indices)


def _described(
    program: ir.Program,
    let: ir.Let,
    body: ir.Reduce,
    weight: ir.Expr,
    factors: list[ir.Expr],
    query: str,
    apart: list[str],
) -> dict[str, Any]:
    """A gather as a page takes it: `weight` and `values` are evaluated at a query, a key and the carried axes."""
    home = [str(axis.coordinate) for axis in let.axes]
    key = body.ranges[0].coordinate
    where = let.clauses[0].guard
    whole = let.clauses[0].body
    divided = replace(whole, arguments=(weight, *whole.arguments[1:])) if isinstance(whole, ir.Map) else weight
    return {
        "definition": let.name,
        "query": query,
        "key": str(key),
        "keys": [expression_json(body.ranges[0].lower), expression_json(body.ranges[0].upper)],
        "guard": None if body.guard is None else expression_json(body.guard),
        "where": None if where is None else expression_json(where),
        "carry": [name for name in home if name != query and name not in apart],
        "apart": apart,
        "home": home,
        "weight": expression_json(divided),
        "tensor": _tensor_of(divided, query, key),
        "values": [expression_json(factor) for factor in factors if factor is not weight],
        "after": _projection(program, let),
        "compare": [],
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
    """Return the product that a read definition stands for; None for anything else."""
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


def _tensor_of(weight: ir.Expr, query: str, key: str) -> dict[str, Any] | None:
    """The tensor that holds the weights, with the axes of the query and the key; None where no definition does."""
    if not isinstance(weight, ir.Read) or not _is_sayable(weight):
        return None
    names = [str(index.coordinate) for index in weight.indices if isinstance(index, ir.Coord)]
    if query not in names or key not in names or len(set(names)) < len(names):
        return None
    return {"name": weight.tensor, "coordinates": names, "query": names.index(query), "key": names.index(key)}


def _projecting(expr: ir.Expr) -> ir.Reduce | None:
    """A sum, alone or beside a residual that is added to it."""
    if isinstance(expr, ir.Reduce):
        return expr if expr.op == "sum" else None
    if isinstance(expr, ir.Map) and expr.op == "+":
        found = [part for part in map(_projecting, expr.arguments) if part is not None]
        return found[0] if len(found) == 1 else None
    return None


def _projection(program: ir.Program, gather: ir.Let) -> dict[str, Any] | None:
    """`sum[h, e](out[…, h, …, e] * W_O[h, e, m])`: the definition that takes what was gathered on, with its matrix."""
    for let in program.lets:
        body = _projecting(let.clauses[0].body) if len(let.clauses) == 1 else None
        if body is None or not (isinstance(body.body, ir.Map) and body.body.op == "*"):
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
