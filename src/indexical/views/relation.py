"""A Program as plain lists and strings, for a page that evaluates it at a point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, assert_never

from ..checker.numerals import beyond_floats
from ..diagnostics import CallError
from ..ir import nodes as ir
from ..ir.text import shown
from ..ir.types import Coordinate


def relation_json(program: ir.Program) -> dict[str, Any]:
    """Every definition by its name: its coordinates and clauses."""
    if beyond := beyond_floats(program):
        raise CallError(beyond)  # A page computes in floats.
    return {
        let.name: {
            "coordinates": [_name(axis.coordinate) for axis in let.axes],
            "clauses": [clause_json(clause) for clause in let.clauses],
            "hidden": let.hidden,
        }
        for let in program.lets
    }


def clause_json(clause: ir.Clause) -> dict[str, Any]:
    return {
        "slots": [expression_json(slot) for slot in clause.slots],
        "ranges": [_range(range) for range in clause.ranges],
        "body": expression_json(clause.body),
        "guard": None if clause.guard is None else expression_json(clause.guard),
        "guardText": None if clause.guard is None else shown(clause.guard),
        "text": shown(clause.body),
    }


def sizes_json(sizes: Mapping[Coordinate, int]) -> dict[str, int]:
    return {_name(coordinate): size for coordinate, size in sizes.items()}


def _range(range: ir.Range) -> list[Any]:
    return [_name(range.coordinate), expression_json(range.lower), expression_json(range.upper)]


def _name(coordinate: Coordinate) -> str:
    return str(coordinate)


def expression_json(expr: ir.Expr) -> Any:
    """A list that starts with what it is."""
    match expr:
        case ir.Const(value):
            return ["const", value if isinstance(value, bool | int) else float(value)]
        case ir.Coord(coordinate):
            return ["coord", _name(coordinate)]
        case ir.Size(coordinate):
            return ["size", _name(coordinate)]
        case ir.Read(tensor, indices):
            return ["read", tensor, [expression_json(index) for index in indices], shown(expr)]
        case ir.Map("pi"):
            return ["const", math.pi]
        case ir.Map(op, arguments):
            whole = expr.type.kind == "whole"
            return ["map", op, [expression_json(argument) for argument in arguments], shown(expr), whole]
        case ir.Select(condition, then, otherwise):
            return ["if", expression_json(condition), expression_json(then), expression_json(otherwise)]
        case ir.Reduce(op, ranges, body, guard):
            test = None if guard is None else expression_json(guard)
            text = None if guard is None else shown(guard)
            return ["reduce", op, [_range(r) for r in ranges], expression_json(body), test, text, shown(expr)]
        case ir.Normalize(op, coordinate, body, guard):
            test = None if guard is None else expression_json(guard)
            text = None if guard is None else shown(guard)
            return ["normalize", op, _name(coordinate), expression_json(body), test, text, shown(expr)]
        case ir.Array(shape, cells, indices):
            values = [cell.value if isinstance(cell.value, bool | int) else float(cell.value) for cell in cells]
            return ["array", list(shape), values, [expression_json(index) for index in indices], shown(expr)]
        case _:
            assert_never(expr)
