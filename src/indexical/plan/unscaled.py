"""Scores that are ranked, and read where they were selected: a scale, `x[i, j] / sqrt(size(d))`, is left to the few
that are read, since an order does not change with it.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.needs import asserted, needed
from ..ir.types import Coordinate
from ..ir.walk import fresh_name, reads_of, rebuild
from .ordering import definition, preceded


def leave_scales(program: ir.Program, wanted: tuple[str, ...], by_places: set[str]) -> ir.Program:
    """The program with scores of no scale that definitions `by_places` read, where nothing else reads these."""
    used = needed(program, wanted)
    readers: dict[str, set[str]] = {}
    for let in program.lets:
        for read in reads_of(let) if let.name in used else ():
            readers.setdefault(read.tensor, set()).add(let.name)
    lets = program.definitions
    kept = {*wanted, *asserted(program)}
    changed: dict[str, ir.Let] = {}
    before: dict[str, list[ir.Let]] = {}
    for name in sorted(used - kept):
        found = _scaled(lets[name])
        if found is None or not readers.get(name) or not readers[name] <= by_places:
            continue
        clause = lets[name].clauses[0]
        plain = definition(fresh_name(f"{name}_unscaled", program.tensors), clause.ranges, found.arguments[0])
        before[name] = [replace(plain, axes=lets[name].axes)]
        for reader in readers[name]:
            changed[reader] = _reading(changed.get(reader, lets[reader]), name, plain.name, found)
    return preceded(program, before, changed) if changed else program


def _scaled(let: ir.Let) -> ir.Map | None:
    """The sum times a positive number, or divided by one, that a definition is."""
    clause, *more = let.clauses
    if more or clause.guard is not None or not all(isinstance(slot, ir.Coord) for slot in clause.slots):
        return None
    match clause.body:
        case ir.Map("/" | "*", (ir.Reduce("sum") as total, scale)) as body:
            inside = {*clause.body.type.coordinates, *total.coordinates}
            return body if body.type.kind == "real" and _is_positive(scale, inside) else None
    return None


def _is_positive(expr: ir.Expr, inside: set[Coordinate]) -> bool:
    """Whether a number is positive wherever there is something to be scaled."""
    match expr:
        case ir.Const(value):
            return value > 0
        case ir.Size(coordinate):
            return coordinate in inside
        case ir.Map("sqrt" | "*" | "/", arguments):
            return all(_is_positive(argument, inside) for argument in arguments)
    return False


def _reading(let: ir.Let, scores: str, plain: str, scaled: ir.Map) -> ir.Let:
    """A definition that reads plain scores: ranks them as they are, and scales what else it reads."""

    def changed(expr: ir.Expr, ranked: bool = False) -> ir.Expr:
        if isinstance(expr, ir.Read) and expr.tensor == scores:
            found = build.read(plain, tuple(map(changed, expr.indices)), "real", expr.span)
            return found if ranked else build.apply(scaled.op, (found, scaled.arguments[1]), "real", expr.span)
        if isinstance(expr, ir.Normalize) and expr.op == "rank" and isinstance(expr.body, ir.Read):
            guard = None if expr.guard is None else changed(expr.guard)
            body = changed(expr.body, True)
            return build.normalize("rank", expr.coordinate, body, guard, expr.type.kind, expr.span)
        return rebuild(expr, changed)

    clauses = tuple(
        replace(clause, body=changed(clause.body), guard=None if clause.guard is None else changed(clause.guard))
        for clause in let.clauses
    )
    return replace(let, clauses=clauses)
