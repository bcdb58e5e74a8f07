"""What a program says, whatever its coordinates and the definitions it brought along are called."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias, assert_never

from indexical.ir import nodes as ir
from indexical.ir.affine import polynomial
from indexical.ir.context import constants_of
from indexical.ir.types import Coordinate
from indexical.views.arrangement import arranged
from indexical.views.inference import short_index, simplified

# The coordinates in force, numbered as they are bound.
Bound: TypeAlias = Mapping[Coordinate, int]


def structure(program: ir.Program) -> object:
    """Two programs that have the same one say the same, in the same order.

    A real constant without a fraction is as good as a whole one, and an array literal as good as its name.
    """
    return _Structure(arranged(program)).all()


class _Structure:
    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.lets = {let.name: let for let in program.lets}
        self.literals = {let.name: found for let in program.lets if (found := _literal(let)) is not None}
        self.plain = [let for let in program.lets if let.name not in self.literals]
        self.names = {let.name: number for number, let in enumerate(self.plain)}

    def all(self) -> object:
        program = self.program
        return (
            [(t.name, t.kind, [self.bound(axis.extent, {}) for axis in t.axes]) for t in program.inputs],
            [(let.kind, [self.clause(clause) for clause in let.clauses]) for let in self.plain],
            program.outputs,
            [
                (c.name, c.roles, [(flag, size and self.bound(size, {})) for flag, size in c.flags])
                for c in program.contracts
            ],
            [(self.of(claim.condition, {}), claim.message) for claim in program.asserts],
        )

    def clause(self, clause: ir.Clause) -> object:
        order = [slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord)]
        ranges = sorted(clause.ranges, key=lambda range: order.index(range.coordinate))
        names = {range.coordinate: number for number, range in enumerate(ranges)}
        return (
            [self.of(slot, names) for slot in clause.slots],
            [(self.bound(range.lower, {}), self.bound(range.upper, {})) for range in ranges],
            clause.guard and self.conditions(clause.guard, names),
            self.of(clause.body, names),
        )

    def bound(self, expr: ir.Expr, names: Bound) -> object:
        found = polynomial(simplified(expr), constants_of(self.lets))
        terms = []
        for monomial, factor in found.terms.items():
            atoms = [(str(names[a] if isinstance(a, Coordinate) else self.of(a, names)), n) for a, n in monomial]
            terms.append((sorted(atoms), factor))
        return sorted(terms)

    def conditions(self, expr: ir.Expr, names: Bound) -> list[object]:
        if isinstance(expr, ir.Map) and expr.op == "&&":
            return [part for argument in expr.arguments for part in self.conditions(argument, names)]
        return [self.of(expr, names)]

    def of(self, expr: ir.Expr, names: Bound) -> Any:
        kind = expr.type.kind
        match expr:
            case ir.Const(value, rounding=rounding):
                return value if isinstance(value, bool) else (Fraction(value), rounding)
            case ir.Map("neg", (ir.Const(value),)):
                return Fraction(-value), None
            case ir.Coord(coordinate):
                return "coordinate", names[coordinate]
            case ir.Size(coordinate):
                return "size", str(coordinate)
            case ir.Read(tensor, indices) if tensor in self.literals:
                return self.figures(self.literals[tensor], indices, names)
            case ir.Read(tensor, indices):
                return self.names.get(tensor, tensor), [self.of(short_index(index), names) for index in indices]
            case ir.Array(indices=indices):
                return self.figures(expr, indices, names)
            case ir.Map("&&"):
                return "&&", self.conditions(expr, names)
            case ir.Map(op, arguments):
                return op, kind, [self.of(argument, names) for argument in arguments]
            case ir.Select(condition, then, otherwise):
                return "if", kind, [self.of(part, names) for part in (condition, then, otherwise)]
            case ir.Reduce(op, ranges, body, guard):
                bounds = []
                for range in sorted(ranges, key=lambda range: not range.coordinate.rest):
                    bounds.append((self.bound(range.lower, names), self.bound(range.upper, names)))
                    names = {**names, range.coordinate: len(names)}
                return op, kind, bounds, self.of(body, names), guard and self.conditions(guard, names)
            case ir.Normalize(op, coordinate, body, guard):
                return op, kind, names[coordinate], self.of(body, names), guard and self.conditions(guard, names)
            case _:
                assert_never(expr)

    def figures(self, figures: ir.Array, indices: tuple[ir.Expr, ...], names: Bound) -> object:
        return (
            figures.shape,
            [self.of(cell, {}) for cell in figures.cells],
            [self.of(short_index(index), names) for index in indices],
        )


def _literal(let: ir.Let) -> ir.Array | None:
    clause = let.clauses[0]
    if len(let.clauses) > 1 or clause.guard is not None or not isinstance(clause.body, ir.Array):
        return None
    return clause.body if clause.body.indices == clause.slots else None
