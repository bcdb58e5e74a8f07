"""Scans → one call: what a recurrence starts with, what it multiplies by, what it adds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate, Dtype, Kind
from ..plan.linear import Linear
from ..plan.scans import Scan
from .base import Value
from .code import ALL, NONE, ZERO, Dict, Index, Name, Node, Slice, Tuple, call, method, node
from .rows import Rows
from .state import Stored
from .values import sliced


@dataclass
class Scanner(Rows):
    """Recurrences that only multiply and add."""

    kernels: dict[str, set[str]] = field(default_factory=dict)

    def scan(self, let: ir.Let, scan: Scan) -> None:
        """One definition, all its steps at once."""
        self.begin(let)
        variable = self.text.fresh(let.name)
        shares = self.shares(let, scan)
        found = self.filled_operands(let, scan) if shares is None else self.parted(let, scan, shares)
        start, times, plus, heard = found
        last = self.kept(let) is not None
        if scan.is_sum and shares is not None:
            code = self.running_sum(start, plus, scan, last)
        else:
            name = "last_of_scan" if last else "scan"
            self.text.dialect.scan(name, self.kernels, self.text)
            axis = [scan.axis] if scan.axis else []
            listening = {} if heard is None else {"heard": heard}
            way = {} if scan.forward else {"backward": True}
            code = call(name, start, times, plus, *axis, **listening, **way)
        dtype = self.dtypes[let.name]
        axes = tuple(axis.coordinate for axis in let.axes)
        value = self.cast_to(Value(code, axes, "real", self.compute), dtype)
        if not last:
            self.text.assign(variable, value)
            self.stored[let.name] = Stored(variable, dtype)
            return
        rows = self.text.fresh(f"{let.name}_rows")
        extent = let.axes[scan.axis].extent
        end = self.number(build.apply("-", (extent, build.whole(1, let.span)), "whole", let.span))
        self.text.update(rows, Dict(((end if scan.forward else ZERO, value.code),)))
        self.stored[let.name] = Stored(rows, dtype, rows=(scan.axis,))

    def running_sum(self, start: Node, plus: Node, scan: Scan, last: bool) -> Node:
        """Steps that are only added up, all of them or the last."""
        axis = scan.axis
        parts = (start, plus) if scan.forward else (plus, start)
        code: Node = self.text.dialect.concatenate(parts, axis)
        if last:
            return method(code, "sum", axis)
        if scan.forward:
            return method(code, "cumsum", axis)
        flip = self.text.dialect.flip
        return flip(method(flip(code, axis), "cumsum", axis), axis)

    # ----------------------------------------------------------------- operands

    def parted(self, let: ir.Let, scan: Scan, shares: tuple[int, ...]) -> tuple[Node, Node, Node, Node | None]:
        """The steps it starts with; then, for all others, the factor, what is added, and where it listens at all."""
        *first, rest = shares
        clause, part = scan.clauses[rest], scan.parts[rest]
        start = self.beginning(let, scan, first)
        times = self.factor_of(let, clause, part.times or build.whole(0, clause.span), "real")
        heard = None if part.heard is None else self.factor_of(let, clause, part.heard, "bool")
        return start, times, self.computed_part(let, clause, part.plus).code, heard

    def shares(self, let: ir.Let, scan: Scan) -> tuple[int, ...] | None:
        """Base cases that are one point each, in order, then one rule for all other steps: their numbers. None where
        the clauses lie in another way."""
        if any(self.is_partial(let, clause, (scan.axis,)) for clause in scan.clauses):
            return None
        if scan.divided:
            return (0, 1)
        first: dict[int, int] = {}
        rest: list[int] = []
        for number, clause in enumerate(scan.clauses):
            begins, ends = self.reach_of(let, clause, scan)
            # A clause for one point has no axis for its step, one for a range has.
            ranges = isinstance(clause.slots[scan.axis], ir.Coord)
            if begins == scan.offset and ends is None and ranges:
                rest.append(number)
            elif begins is not None and ends == begins + 1 and not ranges and scan.parts[number].times is None:
                first[begins] = number
            else:
                return None
        if sorted(first) != list(range(scan.offset)) or len(rest) != 1:
            return None
        order = [first[step] for step in range(scan.offset)]
        return (*(order if scan.forward else reversed(order)), rest[0])

    def reach_of(self, let: ir.Let, clause: ir.Clause, scan: Scan) -> tuple[int | None, int | None]:
        """From which step to which a clause goes, counted from where the scan starts; None for the end, and for what
        is not known."""
        extent = self.prover.polynomial(let.axes[scan.axis].extent)
        slot = clause.slots[scan.axis]
        if isinstance(slot, ir.Coord):
            own = next(r for r in clause.ranges if r.coordinate == slot.coordinate)
            lower, upper = self.prover.polynomial(own.lower), self.prover.polynomial(own.upper)
        else:
            lower = self.prover.polynomial(slot)
            upper = lower + 1
        begins, ends = (lower, upper) if scan.forward else (extent - upper, extent - lower)
        return begins.constant, None if (
            extent - ends
        ).constant == 0 else -1 if ends.constant is None else ends.constant

    def is_partial(self, let: ir.Let, clause: ir.Clause, stepped: Collection[int]) -> bool:
        """Whether a clause fills only a part of its row."""
        raise NotImplementedError

    def beginning(self, let: ir.Let, scan: Scan, first: Sequence[int]) -> Node:
        """The steps that base cases say."""
        if scan.divided:
            return self.computed_part(let, scan.clauses[first[0]], scan.parts[first[0]].plus).code
        rows = tuple(self.computed_part(let, scan.clauses[n], scan.parts[n].plus).code for n in first)
        if len(rows) == 1:
            return Index(rows[0], (*[ALL] * scan.axis, NONE))
        return self.text.dialect.stack(Tuple(rows), scan.axis)

    def computed_part(self, let: ir.Let, clause: ir.Clause, expr: ir.Expr | None) -> Value:
        """A part of a clause at all its points, in the dtype that is computed in."""
        scope = self.scope_of(clause, {})
        axes = scope.sort(scope.places)
        value = None if expr is None else self.part_value(let, clause, expr, "real")
        if value is None or value.python:
            number = ZERO if value is None else value.code
            return Value(
                self.text.dialect.full(self.shape(axes, scope), number, self.compute), axes, "real", self.compute
            )
        return self.text.short(self.spread(self.turned(value, axes), axes, scope), let.name)

    def factor_of(self, let: ir.Let, clause: ir.Clause, expr: ir.Expr, kind: Kind) -> Node:
        """A factor or a condition, 1 long along axes that it does not vary with; a number where it varies with none."""
        value = self.part_value(let, clause, expr, kind)
        if value.python and kind == "real":
            return value.code
        return self.among(self.text.short(self.strong(value), let.name), clause)

    def part_value(self, let: ir.Let, clause: ir.Clause, expr: ir.Expr, kind: Kind) -> Value:
        part = replace(clause, body=expr, guard=None)
        home = let if kind == "real" else replace(let, kind="bool")
        value = self.clause_value(home, part, {})
        if kind == "bool" or value.python or value.dtype == self.compute:
            return value
        return self.cast_to(value, self.compute)

    # ------------------------------------------------------------------- filled in

    def filled_operands(self, let: ir.Let, scan: Scan) -> tuple[Node, Node, Node, Node | None]:
        """The same for clauses of any shape: each put in its place in arrays of zeros."""
        plus = self.put_together(let, scan, "plus", [part.plus for part in scan.parts])
        times = self.put_together(let, scan, "times", [part.times for part in scan.parts])
        asks = [_asked(part, let) for part in scan.parts] if any(part.heard for part in scan.parts) else None
        heard = None if asks is None else self.put_together(let, scan, "heard", asks)
        edge = node(scan.offset if scan.forward else -scan.offset)
        front, back = Slice(None, edge), Slice(edge, None)
        first, rest = ((*[ALL] * scan.axis, end) for end in ((front, back) if scan.forward else (back, front)))
        return Index(plus, first), Index(times, rest), Index(plus, rest), None if heard is None else Index(heard, rest)

    def put_together(self, let: ir.Let, scan: Scan, label: str, parts: Sequence[ir.Expr | None]) -> Name:
        """One part of every clause, in an array of its own; 0 where a clause has none."""
        kind: Kind = "bool" if label == "heard" else "real"
        variable = self.text.fresh(f"{let.name}_{label}")
        dtype: Dtype = "bool" if kind == "bool" else self.compute
        self.text.assign(variable, self.text.dialect.full(self.home(let, ()), ZERO, dtype))
        for clause, part in zip(scan.clauses, parts, strict=True):
            if part is None:
                continue
            value = self.part_value(let, clause, part, kind)
            code = value.code if value.python else self.among(value, clause)
            self.text.store(variable, self.slots(let, clause, ()), code)
        return Name(variable)

    def among(self, value: Value, clause: ir.Clause) -> Node:
        """A value as it is put into the slots of a clause."""
        scope = self.scope_of(clause, {})
        axes = scope.sort(scope.places)
        return placed_among(self.turned(value, axes), axes)


def _asked(part: Linear, let: ir.Let) -> ir.Expr | None:
    if part.times is None:
        return None
    return part.heard or build.truth(True, let.span)


def placed_among(value: Value, axes: tuple[Coordinate, ...]) -> Node:
    """The value with a place for every one of these axes."""
    return sliced(value.code, [ALL if axis in value.axes else NONE for axis in axes])
