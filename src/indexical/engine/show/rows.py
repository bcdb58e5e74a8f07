"""The rows of a recurrence as Python source, while a loop makes them and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import nodes as ir
from ...ir.affine import Polynomial, is_counted, of_atom, polynomial
from ...ir.types import Coordinate
from ...records import dataclass
from ..ops import Carried, Loop, Number, Outside, Result, Value, value
from .code import Code, indexed, method, tupled
from .numbers import extent, is_filled, number, settled

if TYPE_CHECKING:
    from .printer import Printer


@dataclass(slots=True)
class Rows:
    """A definition while a loop computes it: an array that is filled in, or a dictionary of rows by step.

    All rows before `until` are made, each in its own turn of the `loop`; None where that is not known. `kept` tells for
    how many turns a row is read where nobody reads it later. One that is `local` is read in its own turn alone, after
    it is made there: it is a variable of that turn.
    """

    of: Carried
    loop: Loop
    variable: str
    filled: bool
    until: Polynomial | None
    kept: int | None
    zero: str
    local: bool = False
    uses_zero: bool = False

    @property
    def stacks(self) -> bool:
        """Whether all rows are there after the loop, and some are."""
        steps = [axis for axis in self.of.home if axis.name in self.of.steps]
        return len(steps) == 1 and is_filled(steps[0]) and self.has(polynomial(steps[0].extent) - 1)

    def has(self, last: Polynomial) -> bool:
        """Whether all rows up to this one are made at some time."""
        return self.until is not None and is_counted(self.until - last - 1)

    def has_by_now(self, place: Value) -> bool:
        """Whether a row that is read in a turn has been made before, given that it is one of the definition's."""
        assert isinstance(place.op, Number)
        back = (of_atom(self.loop.symbol) - polynomial(place.op.expr)).constant
        if back is None or not (back > 0 if self.loop.forward else back < 0):
            return self.has(count_of(self.loop) - 1)
        return self.has(count_of(self.loop) - 1 - max(back, 0))


def so_far(p: Printer, op: Carried) -> Code:
    """All rows as one array; 0 for those that are not there yet."""
    rows = p.rows[op.name]
    if rows.filled:
        return Code(rows.variable)
    names = [axis.name for axis in op.home]
    places = [names.index(name) for name in op.steps]
    if rows.stacks and not p.steps:
        return p.d.stack(p, f"{rows.variable}[n] for n in range({extent(p, op.home[places[0]])})", places[0])
    rows.uses_zero = True
    lengths = tupled(extent(p, op.home[place]) for place in places)
    return p.call("stacked", rows.variable, lengths, tupled(places), rows.zero)


def in_rows(p: Printer, source: Value) -> Value | None:
    """The definition that a source has the rows of: one that is being computed, or one whose rows are not stacked."""
    op = source.op
    if isinstance(op, Result) and source in p.by_rows:
        p.code(source)
        return None if p.rows[op.of.name].filled else value(op.of)
    return source if isinstance(op, Carried) else None


def row_of(
    p: Printer, source: Value, index: dict[Coordinate, Value], outside: Outside
) -> tuple[Code, tuple[Coordinate, ...]]:
    """A row of a definition that is being computed, those along one of two steps, or all there are; the steps of a row
    are taken out of the index."""
    op = source.op
    assert isinstance(op, Carried)
    rows = p.rows[op.name]
    known = [name for name in op.steps if name in index and index[name].is_host]
    along = [name for name in op.steps if name not in known]
    if len(along) > 1 or (along and (rows.filled or not known)):
        return p.code(source), p.order_of(source)
    steps = [index.pop(name) for name in known]
    key = {name: number(p, expr_at(step)) for name, step in zip(known, steps, strict=True)}
    inner = tuple(axis.name for axis in op.home if axis.name not in known)
    if along:
        rows.uses_zero = True
        (axis,) = (axis for axis in op.home if axis.name in along)
        length = extent(p, axis)
        row = method(rows.variable, "get", tupled(key.get(name, "n") for name in op.steps), rows.zero)
        found = f"{{n: {row} for n in range({length})}}"
        return p.call("stacked", found, tupled([length]), tupled([inner.index(axis.name)]), rows.zero), inner
    if rows.local:
        return Code(rows.variable), inner
    if not rows.filled:
        if outside == "never" and len(steps) == 1 and rows.has_by_now(steps[0]):
            return indexed(rows.variable, list(key.values())), inner
        rows.uses_zero = True
        place = tupled(key.values()) if len(key) > 1 else next(iter(key.values()))
        return method(rows.variable, "get", place, rows.zero), inner
    if outside == "never":
        return indexed(rows.variable, [key.get(axis.name, ":") for axis in op.home]), inner
    code, left = Code(rows.variable), [axis.name for axis in op.home]
    for name, place in key.items():
        code = p.call("row", code, left.index(name), place)
        left.remove(name)
    return code, inner


def expr_at(one: Value) -> ir.Expr:
    assert isinstance(one.op, Number)
    return one.op.expr


def count_of(loop: Loop) -> Polynomial:
    """The number of turns of a loop."""
    return polynomial(settled(expr_at(loop.count)))
