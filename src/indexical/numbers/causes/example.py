"""A worked example: a program with its figures, to be computed once more in other ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ...diagnostics import CallError
from ...ir import nodes as ir
from ...ir.needs import members, needed
from ...ir.types import Kind
from ...ir.walk import reads_of
from ...records import dataclass, field, replace
from ...run.tables import Numbers, Table, Uncomputed
from ...run.wholes import Point
from ..claims import Cell, Claim, claimed_names
from ..evaluate import Evaluated
from ..printed import AsPrinted, figures_as_printed
from ..terms import Polynomial
from .decimals import Decimals, decimal

# What a changed program may come to: an index out of bounds, no value.
IMPOSSIBLE = (CallError, ArithmeticError, ValueError)


@dataclass(frozen=True, slots=True)
class Figure:
    """One published figure, at its point. `wanted` is None where the point is claimed to be absent; `unit` is that of
    its last digit, and `half` how far from the value it may be."""

    claim: int
    cell: int
    expect: ir.Expect
    point: Point
    place: tuple[int, ...]
    text: str
    wanted: Decimal | None
    half: Decimal
    unit: Decimal
    digits: int | None
    fails: bool


@dataclass(frozen=True, slots=True)
class Prediction:
    """The value that a figure would have been computed as."""

    value: Decimal
    removed: bool

    def fits(self, figure: Figure) -> bool:
        if figure.wanted is None:
            return self.removed
        return self.value.is_finite() and abs(self.value - figure.wanted) <= figure.half


@dataclass(frozen=True, slots=True)
class Changes:
    """Another way of computing an example: definitions, and left sides of claims, that are changed, and the figures
    from which later steps go on: elements of definitions by their offsets, and expressions that are claimed."""

    lets: Mapping[str, ir.Let] = field(default_factory=dict)
    bodies: Mapping[int, ir.Expr] = field(default_factory=dict)
    printed: Mapping[str, Mapping[int, Decimal | int]] = field(default_factory=dict)


class Trial(AsPrinted):
    """An evaluation by which figures are predicted."""

    changes = Changes()

    def prediction(self, figure: Figure) -> Prediction | None:
        """The left side of a claim at a point; None where it has no value."""
        body = self.changes.bodies.get(figure.claim, figure.expect.body)
        try:
            if isinstance(body, ir.Read) and body.tensor in self.lets:
                offset, cell = self.found(body, figure.point)
                removed = cell is None or offset in self.tensors[body.tensor].removed
            else:
                cell, removed = self.value(body, figure.point), self.is_removed(body, figure.point)
        except IMPOSSIBLE:
            return None
        return None if cell is Uncomputed else Prediction(as_decimal(0 if cell is None else cell), removed)


def as_decimal(value: Any) -> Decimal:
    """A number of any kind that a trial computes with."""
    if isinstance(value, Decimal):
        return value
    return decimal(value) if isinstance(value, int | Fraction) else Decimal(float(value))


class Example:
    """A program with its figures, and its values in decimals. `steps` is about what one evaluation takes."""

    def __init__(self, evaluated: Evaluated, claims: tuple[Claim, ...]) -> None:
        self.evaluated = evaluated
        self.program = evaluated.program
        self.claims = claims
        self.wanted = claimed_names(self.program)
        self.needed = needed(self.program, self.wanted)
        self.inputs = {one.name: _table(evaluated.table(one.name), one.kind) for one in self.program.inputs}
        self.figures = list(self._figures())
        self.sizes = evaluated.evaluation.sizes

    def _figures(self) -> Iterator[Figure]:
        evaluation = self.evaluated.evaluation
        for number, (claim, expect) in enumerate(zip(self.claims, self.program.expects, strict=True)):
            points = evaluation.points(expect.ranges, {}, {})
            for at, (cell, point) in enumerate(zip(claim.cells, points, strict=True)):
                found = _figure(expect, cell, at if expect.shape else 0)
                if found is not None:
                    yield replace(found, claim=number, cell=at, point=dict(point))

    def printed(self) -> dict[str, dict[int, Decimal | int]]:
        """The figures that stand for elements of definitions; the first, where there are several for one."""
        found: dict[str, dict[int, Decimal | int]] = {}
        evaluation = self.evaluated.evaluation
        for figure in self.figures:
            body = figure.expect.body
            let = evaluation.lets.get(body.tensor) if isinstance(body, ir.Read) else None
            if not isinstance(body, ir.Read) or let is None or let.kind == "bool" or figure.wanted is None:
                continue
            value: Decimal | int = figure.wanted if let.kind == "real" else int(figure.wanted)
            # A whole number that is printed as none cannot be read as printed.
            if value == figure.wanted:
                found.setdefault(body.tensor, {}).setdefault(evaluation.offset(body, figure.point), value)
        return found

    def element(self, name: str, offset: int) -> str:
        """An element by the name that the text has for it: the first point of an axis need not be 0."""
        evaluation = self.evaluated.evaluation
        axes = self.program.tensors[name].axes
        place = evaluation.tensors[name].place(offset)
        first = [0 if axis.origin is None else evaluation.value(axis.origin, {}) for axis in axes]
        return f"{name}[{', '.join(str(at + more) for at, more in zip(place, first, strict=True))}]" if place else name

    def reached(self, base: Trial, changes: Changes) -> set[str]:
        """The definitions that changes reach, beside those of `base`."""
        return affected(self.program, _differing(changes, base))

    def trial(
        self, base: Trial | None = None, changes: Changes | None = None, numbers: Numbers | None = None
    ) -> Trial | None:
        """The program with some definitions changed, or read as printed. What that does not reach is taken from
        `base`. None where it cannot be computed."""
        changes = changes or Changes()
        program = self.program
        if changes.lets:
            program = replace(program, lets=tuple(changes.lets.get(let.name, let) for let in program.lets))
        reached = self.reached(base, changes) if base else set(program.definitions)
        tables = {name: table for name, table in base.tensors.items() if name not in reached} if base else self.inputs
        if numbers is not None:
            tables = {name: Table(table.shape, _turned(table, numbers)) for name, table in self.inputs.items()}
        found = Trial(program, tables, self.sizes, numbers or Decimals())
        found.changes = changes
        own = figures_as_printed(found, program)
        printed = changes.printed
        found.printed = {name: {**own.get(name, {}), **printed.get(name, {})} for name in {*own, *printed}}
        if base is not None:
            found.computed = {key: cell for key, cell in base.computed.items() if key[0] not in reached}
        try:
            for order in program.order:
                if members(order) & reached & self.needed:
                    found.run(order, {})
        except IMPOSSIBLE:
            return None
        return found


def _differing(changes: Changes, base: Trial) -> set[str]:
    """The definitions that are not as they were."""
    lets = {name for name, let in changes.lets.items() if base.lets[name] is not let}
    new, old = changes.printed, base.changes.printed
    printed = {name for name in {*new, *old} if new.get(name) != old.get(name)}
    return lets | printed | (base.changes.lets.keys() - changes.lets.keys())


def _figure(expect: ir.Expect, cell: Cell, at: int) -> Figure | None:
    """A figure that is a number, or the claim that there is none."""
    figure, digits = expect.figures[at], expect.digits[at]
    blank = Figure(0, 0, expect, {}, cell.place, cell.claimed, None, Decimal(0), Decimal(1), digits, _fails(cell))
    if figure is None:
        return blank
    if not isinstance(figure, ir.Const) or figure.type.kind == "bool" or isinstance(cell.value.number, bool):
        return None
    if isinstance(cell.value.number, Polynomial) and cell.value.number.symbols:
        return None
    unit = Decimal(1).scaleb(-(digits or 0))
    wanted = decimal(Fraction(figure.value))
    half = unit / 2 if digits is not None else Decimal(0)
    if expect.tolerance:
        half = unit = decimal(expect.tolerance)
        return replace(blank, wanted=wanted, unit=unit, half=half, digits=None)
    if digits is not None and digits > 0:
        wanted = wanted.quantize(unit)
    return replace(blank, wanted=wanted, unit=unit, half=half)


def _fails(cell: Cell) -> bool:
    return cell.verdict == "fails"


def _table(table: Table, kind: Kind) -> Table:
    """The values of an input: reals in decimals, symbols as what has no value."""
    if kind != "real":
        return table
    cells = [decimal(cell) if isinstance(cell, int | Fraction) else Decimal("NaN") for cell in table.cells]
    return Table(table.shape, cells, table.removed)


def _turned(table: Table, numbers: Numbers) -> list[Any]:
    return [
        cell if not isinstance(cell, Decimal) else numbers.number(Fraction(cell)) if cell.is_finite() else numbers.nan
        for cell in table.cells
    ]


def affected(program: ir.Program, names: set[str]) -> set[str]:
    """The definitions that some are a part of, with these."""
    found = set(names)
    lets = program.definitions
    for order in program.order:
        together = members(order)
        if any(name in found or any(read.tensor in found for read in reads_of(lets[name])) for name in together):
            found |= together
    return found
