"""The plan for known sizes: extents and bounds are numbers, and what they decide is decided.

Comparisons that come out the same at all points are decided, and with them masks, guards and the choice of `where`;
reads that are proved in bounds lose their check, and sums of whole numbers that cannot overflow theirs. The plan takes
arrays of these sizes alone. Sizes that are not given stay as they are: of a step of decoding, the past grows. So does
that of the axes that an input may have in front, which become one in the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from ..ir import build
from ..ir import nodes as ir
from ..ir import whole as wholes
from ..ir.affine import Polynomial
from ..ir.conditions import OPPOSITE
from ..ir.types import Coordinate
from ..ir.walk import children, rebuild
from ..records import replace
from . import known, ops
from .arguments import ELSEWHERE
from .known import Bounds
from .ops import (
    Axis,
    Carried,
    Check,
    Contract,
    Definition,
    Either,
    Input,
    Iota,
    Join,
    Library,
    Loop,
    Map,
    Normalize,
    Number,
    Opaque,
    Plan,
    Put,
    Read,
    Reduce,
    Result,
    Table,
    Tiles,
    Value,
    Write,
    value,
    with_operands,
)
from .order import mapped, reachable, roots_of
from .points import points_of

Sizes = Mapping[Coordinate, int]

# Whether a comparison holds wherever one side less the other lies between these bounds; and what fails where it holds.
_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "<": lambda least, most: most < 0,
    "<=": lambda least, most: most <= 0,
    ">": lambda least, most: least > 0,
    ">=": lambda least, most: least >= 0,
    "==": lambda least, most: least == most == 0,
    "!=": lambda least, most: least > 0 or most < 0,
}


def specialise(
    plan: Plan, sizes: Sizes, scalars: Mapping[str, int] | None = None, memo: dict[Value, Value] | None = None
) -> Plan:
    """The plan for arrays of these sizes, and for these values of whole scalars. What each value became is written into
    `memo`."""
    pass_ = _Specialise(sizes, scalars or {})
    pass_.turns = pass_.turns_of(plan)
    new = mapped(plan, pass_.changed, memo)
    definitions = {name: pass_.definition(one) for name, one in new.definitions.items()}
    agreed = tuple((pass_.expr(one), pass_.expr(other)) for one, other in plan.agreed)
    checks = tuple(check for check in new.checks if pass_.decided(check.condition) is not True)
    agreed = tuple((one, other) for one, other in agreed if one != other)
    return replace(new, definitions=definitions, agreed=agreed, checks=checks)


def one_way(plan: Plan, sizes: Sizes, at_once: bool = True) -> Plan:
    """The plan for calls of known sizes, of which some have few pairs, and others not: without the other way. Calls of
    other sizes are refused by a check. What is not to be `at_once` is never taken as few pairs."""
    pass_ = _Specialise(sizes, {})
    checks = dict.fromkeys(plan.checks)

    def decided(one: Value) -> Value:
        if not isinstance(one.op, Either):
            return one
        if not at_once:
            return one.op.many
        test = one.op.test
        holds, span = pass_.expr(test), test.span
        if not isinstance(holds, ir.Const):
            return one
        few: Value = one.op.few.of(one.op.leaves)
        test = test if holds.value else build.apply("!", (test,), "bool", span)
        checks[Check(ops.host(test), ELSEWHERE, "this text is for calls of other sizes", span)] = None
        return few if holds.value else one.op.many

    found = mapped(plan, decided)
    return replace(found, checks=tuple(checks))


class _Specialise:
    """What is worked out once for all values: host numbers, and conditions that are decided."""

    def __init__(self, sizes: Sizes, scalars: Mapping[str, int]) -> None:
        self.sizes, self.scalars = sizes, scalars
        self.exprs: dict[ir.Expr, ir.Expr] = {}
        self.tests: dict[Value, bool | None] = {}
        self.turns: tuple[Axis, ...] = ()  # The steps of loops, with their numbers.

    def turns_of(self, plan: Plan) -> tuple[Axis, ...]:
        """The steps of all loops, each with its number of turns where all of its loops have one."""
        found: dict[Coordinate, set[ir.Expr]] = {}
        waiting = [one.op.loop for one in reachable(roots_of(plan)) if isinstance(one.op, Result)]
        for loop in waiting:
            waiting += (item for item in loop.body if isinstance(item, Loop))
            assert isinstance(loop.count.op, Number)
            found.setdefault(loop.symbol, set()).add(self.expr(loop.count.op.expr))
        return tuple(Axis(symbol, counts.pop()) for symbol, counts in found.items() if len(counts) == 1)

    # ------------------------------------------------------------- numbers of the host

    def expr(self, expr: ir.Expr) -> ir.Expr:
        """A number of the host with sizes put in, computed as far as it is whole or a condition; never recursive."""
        waiting = [expr]
        while waiting:
            one = waiting[-1]
            missing = [part for part in children(one) if part not in self.exprs]
            if missing and one not in self.exprs:
                waiting += missing
            else:
                waiting.pop()
                if one not in self.exprs:
                    self.exprs[one] = self._folded(one)
        return self.exprs[expr]

    def _folded(self, expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Size(coordinate) if coordinate in self.sizes and not coordinate.rest:
                return build.whole(self.sizes[coordinate], expr.span)
            case ir.Read(name, ()) if name in self.scalars:
                return build.whole(self.scalars[name], expr.span)
        new = rebuild(expr, self.exprs.__getitem__)
        match new:
            case ir.Map(op, (ir.Const(int(a)), ir.Const(int(b)))) if op in _HOLDS:
                return build.truth(_HOLDS[op](a - b, a - b), expr.span)
            case ir.Map("&&" | "||" as op, (one, other)):
                return _connected(op, one, other, new)
            case ir.Map("!", (ir.Const(bool(a)),)):
                return build.truth(not a, expr.span)
            case ir.Select(ir.Const(bool(a)), then, otherwise):
                chosen = then if a else otherwise
                return chosen if chosen.type == new.type else new
            case ir.Map(_, arguments) if new.type.kind == "whole" and all(isinstance(a, ir.Const) for a in arguments):
                return _computed(new)
        return new

    def axis(self, axis: Axis) -> Axis:
        extent = self.expr(axis.extent)
        return axis if extent is axis.extent else Axis(axis.name, extent)

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(self.axis(axis) for axis in axes)

    def word(self, word: Any) -> Any:
        """An argument of a kernel that is no array."""
        if isinstance(word, tuple):
            return tuple(map(self.word, word))
        return self.expr(word) if isinstance(word, ir.Expr) else word

    def definition(self, one: Definition) -> Definition:
        return replace(one, home=self.axes(one.home))

    # ------------------------------------------------------------------------ values

    def changed(self, one: Value) -> Value:
        """A value whose operands are specialised, for these sizes."""
        op: Any = one.op
        match op:
            case Number(expr):
                return ops.host(self.expr(expr))
            case Iota(axis):
                return value(Iota(self.axis(axis)))
            case Input() | Table() | Join() | Carried() | Opaque():
                return value(replace(op, home=self.axes(op.home)))
            case Library("only_heard", (array, allowed)):
                over = tuple(axis for axis in allowed.axes if axis.name not in array.names)
                is_heard = self.decided(value(Reduce("any", allowed, over)))
                return array if is_heard else value(replace(op, axes=self.axes(op.axes)))
            case Library():
                words = tuple((name, self.word(word)) for name, word in op.words)
                return value(replace(op, axes=self.axes(op.axes), words=words))
            case Contract():
                return value(replace(op, over=self.axes(op.over)))
            case Tiles():
                return self.tiles(op)
            case Either():
                return self.either(op)
            case Result(loop, of):
                return value(Result(loop, replace(of, home=self.axes(of.home))))
            case Map():
                return self.map(one, op)
            case Read():
                return self.read(op)
            case Put():
                return value(replace(op, gone=self.axes(op.gone)))
            case Write():
                index = tuple((self.axis(axis), place) for axis, place in op.index)
                written = replace(op, index=index, gone=self.axes(op.gone))
                return value(self.placed(written, [(place, axis.extent) for axis, place in index]))
            case Reduce():
                reduced = replace(op, over=self.axes(op.over), where=self.guard(op.where, op.source))
                return value(replace(reduced, checked=op.checked and not _sums_fit(reduced)))
            case Normalize():
                along = self.axis(op.along)
                return value(replace(op, along=along, where=self.guard(op.where, op.source)))
        raise TypeError(op)

    def tiles(self, op: Tiles) -> Value:
        """Loops over tiles of so many points."""
        turn = op.turn.changed(self.axis, self.inner)
        back = op.back.changed(self.axis, self.inner) if isinstance(op.back, type(op.turn)) else op.back
        homes = tuple((self.axes(home), dtype) for home, dtype in op.homes)
        return value(Tiles(turn, back, op.leaves, homes, op.part))

    def either(self, op: Either) -> Value:
        """All pairs at once where sizes say that these are few, or where they say that they are not the other way."""
        pairs, queries = self.expr(op.pairs), None if op.queries is None else self.expr(op.queries)
        if isinstance(queries, ir.Const):
            if queries.value == 1:
                return op.many
            queries = None
        if queries is not None or not isinstance(pairs, ir.Const):
            return value(replace(op, pairs=pairs, queries=queries, few=op.few.changed(self.inner)))
        if op.least <= pairs.value <= op.most:
            few: Value = op.few.changed(self.inner).of(op.leaves)
            return few
        return op.many

    def inner(self, one: Value) -> Value:
        """A value of the turn of a loop over tiles, which is none of the plan."""
        memo: dict[Value, Value] = {}
        for part in reachable([one]):
            new = with_operands(part, memo.__getitem__)
            memo[part] = self.changed(part if new is part.op else value(new))
        return memo[one]

    def map(self, one: Value, op: Map) -> Value:
        if op.fn == "where":
            test = self.decided(op.args[0])
            chosen = one if test is None else op.args[1 if test else 2]
            return chosen if _same_type(chosen, one) else one
        if op.fn.startswith("some ") and self.decided(op.args[1]) is True and _same_type(op.args[0], one):
            return op.args[0]
        if op.fn in ("&&", "||"):
            for side, other in (op.args, op.args[::-1]):
                if self.decided(side) is (op.fn == "&&") and _same_type(other, one):
                    return other
        if all(isinstance(arg.op, Number) for arg in op.args) and one.kind != "real" and not op.fn.startswith("as "):
            numbers = tuple(arg.op.expr for arg in op.args if isinstance(arg.op, Number))
            return ops.host(self.expr(build.apply(op.fn, numbers, one.kind, numbers[0].span)))
        return value(replace(op, checked=False)) if op.checked and _fits(one, op) else one

    def read(self, op: Read) -> Value:
        """A read that is proved in bounds is neither masked nor checked; one of a whole axis at itself is no read."""
        places = [(at, op.source.extent(name)) for name, at in op.index if name in op.source.names]
        new = self.placed(op, places)
        index = tuple((name, at) for name, at in op.index if not _is_whole_axis(at, name, op.source))
        return value(replace(new, index=index)) if index else op.source

    def placed(self, op: Any, places: list[tuple[Value, ir.Expr]]) -> Any:
        if op.outside != "never" and isinstance(op, Read) and all(self.is_inside(*place) for place in places):
            return replace(op, outside="never", under=None)
        if op.outside == "check":
            if self.decided(op.under) is False or all(self.is_inside(*place) for place in places):
                return replace(op, outside="masked", under=None)
            if self.decided(op.under) is True:
                return replace(op, under=None)
        return op

    def is_inside(self, at: Value, extent: ir.Expr) -> bool:
        """Whether a place is in bounds at every point, and in every turn of a loop."""
        found = None if at.known.whole is None else _extremes(at.known.whole, (*at.axes, *self.turns))
        least, most = at.known.bounds if found is None else found
        return isinstance(extent, ir.Const) and least >= 0 and most < int(extent.value)

    def guard(self, where: Value | None, source: Value) -> Value | None:
        """A guard that holds everywhere is none, where the source has its axes."""
        return None if self.decided(where) is True and where is not None and where.names <= source.names else where

    def decided(self, test: Value | None) -> bool | None:
        """Whether a condition holds at all points, or at none; None where that is not known, or of no condition."""
        if test is None:
            return None
        if test not in self.tests:
            found = self._decided(test)
            if found is None and (points := points_of(test)) is not None:
                found = True if points.all() else False if not points.any() else None
            self.tests[test] = found
        return self.tests[test]

    def _decided(self, test: Value) -> bool | None:
        match test.op:
            case Number(ir.Const(bool(holds))):
                return holds
            case Map("!", (one,)):
                found = self.decided(one)
                return None if found is None else not found
            case Map("&&" | "||" as fn, args):
                sides = [self.decided(arg) for arg in args]
                ends = fn == "||"  # One that is so decides; else all have to be known.
                return ends if ends in sides else None if None in sides else not ends
            case Map(fn, (left, right)) if fn in _HOLDS:
                bounds = _difference(left, right)
                return None if bounds is None else _compared(fn, *bounds)
        return None


# -------------------------------------------------------------------------- bounds


def bounds_of(one: Value) -> Bounds:
    """The least and the largest number of a whole value, as far as sizes tell."""
    found = None if one.known.whole is None else _extremes(one.known.whole, one.axes)
    return one.known.bounds if found is None else found


def _extremes(whole: Polynomial, axes: tuple[Axis, ...]) -> Bounds | None:
    """The extremes of a polynomial of axes of known lengths: exact where no axis occurs twice, never too narrow."""
    lengths = {axis.name: axis.extent.value for axis in axes if isinstance(axis.extent, ir.Const)}
    least = most = 0
    for monomial, factor in whole.terms.items():
        if not all(isinstance(atom, Coordinate) and lengths.get(atom, 0) > 0 for atom, _ in monomial):
            return None
        largest = prod(int(lengths[atom] - 1) ** power for atom, power in monomial if isinstance(atom, Coordinate))
        ends = (factor * largest, 0 if monomial else factor * largest)
        least, most = least + min(ends), most + max(ends)
    return least, most


def _difference(left: Value, right: Value) -> Bounds | None:
    """The bounds of one whole value less another."""
    if left.kind != "whole" or right.kind != "whole":
        return None
    if left.known.whole is not None and right.known.whole is not None:
        found = _extremes(left.known.whole - right.known.whole, ops.merged(left.axes, right.axes))
        if found is not None:
            return found
    return known.mapped("-", (bounds_of(left), bounds_of(right)))


def _compared(fn: str, least: int, most: int) -> bool | None:
    return True if _HOLDS[fn](least, most) else False if _HOLDS[OPPOSITE[fn]](least, most) else None


def _is_whole_axis(at: Value, name: Coordinate, source: Value) -> bool:
    return isinstance(at.op, Iota) and name in source.names and at.op.axis == source.axis(name)


def _fits(one: Value, op: Map) -> bool:
    """Whether a checked function of whole numbers never leaves its dtype, and never divides by 0."""
    sides = [bounds_of(arg) for arg in op.args]
    if op.fn in ("//", "%") and sides[1][0] <= 0 <= sides[1][1]:
        return False
    return one.kind == "whole" and known.fits(known.mapped(op.fn, sides), one.dtype or "i64")


def _sums_fit(op: Reduce) -> bool:
    """Whether a checked sum of whole numbers never leaves 64 bits."""
    lengths = [int(axis.extent.value) for axis in op.over if isinstance(axis.extent, ir.Const)]
    if op.fn != "sum" or len(lengths) < len(op.over):
        return False
    return all(abs(bound) * prod(lengths) < 2**63 for bound in bounds_of(op.source))


def _same_type(one: Value, other: Value) -> bool:
    return one.axes == other.axes and one.kind == other.kind and one.dtype == other.dtype


def _are_numbers(*exprs: ir.Expr) -> bool:
    return all(isinstance(expr, ir.Const) for expr in exprs)


def _connected(op: str, one: ir.Expr, other: ir.Expr, whole: ir.Expr) -> ir.Expr:
    """Two conditions of the host, of which one may be decided."""
    for side, rest in ((one, other), (other, one)):
        if isinstance(side, ir.Const):
            return rest if side.value is (op == "&&") else side
    return whole


def _computed(expr: ir.Expr) -> ir.Expr:
    """A whole expression of literals as a literal; itself where it has no value, as a quotient by 0 has none."""
    try:
        return build.whole(wholes.value(expr, lambda leaf: 0), expr.span)
    except wholes.Unknown:
        return expr
