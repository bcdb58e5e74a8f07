"""Names for parts of definitions that a derivative would repeat.

A normaliser in the middle of an expression, the argument of a function that scans, the other factor of a product
of sums: each becomes a definition of its own, so that it is computed once and its cotangent has a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.conditions import negated
from ..ir.functions import operation
from ..ir.prove import Assumptions
from ..ir.types import Coordinate
from ..ir.walk import fresh, rebuild, walk
from ..records import dataclass, replace
from .reverse import count, runs_over_rest
from .slopes import is_flat, is_said_by_value

_LINEAR = frozenset(("+", "-", "neg"))


def name_parts(program: ir.Program, counts: Callable[[ir.Expr], bool], reserved: Iterable[str] = ()) -> ir.Program:
    """The program with such parts as definitions, each before the one that it was taken from. `counts` tells whether an
    expression depends on what is differentiated; the names `reserved` are not given."""
    taken = {*program.tensors, *reserved}
    lets: list[ir.Let] = []
    for let in program.lets:
        if let.kind == "real" and any(counts(clause.body) for clause in let.clauses):
            parts = _Parts(let, counts, taken, lets, program.lets)
            let = replace(let, clauses=tuple(parts.clause(clause) for clause in let.clauses))
        lets.append(let)
    return replace(program, lets=tuple(lets), order=())


@dataclass(frozen=True, slots=True)
class _Place:
    """The ranges and guards in whose scope an expression is."""

    ranges: tuple[ir.Range, ...]
    guards: tuple[ir.Expr, ...]

    def within(self, ranges: tuple[ir.Range, ...], guard: ir.Expr | None) -> _Place:
        return _Place((*self.ranges, *ranges), self.guards).given(guard)

    def given(self, guard: ir.Expr | None) -> _Place:
        return self if guard is None else _Place(self.ranges, (*self.guards, guard))

    def range_of(self, coordinate: Coordinate) -> ir.Range:
        return next(range for range in reversed(self.ranges) if range.coordinate == coordinate)

    def widened(self, coordinate: Coordinate) -> _Place:
        """The same with a coordinate that begins at 0 and of which nothing holds."""
        zero = build.whole(0, self.range_of(coordinate).span)
        ranges = tuple(replace(r, lower=zero) if r.coordinate == coordinate else r for r in self.ranges)
        return _Place(ranges, self.guards).normalising(coordinate)

    def normalising(self, coordinate: Coordinate) -> _Place:
        """Inside a normaliser its coordinate runs over all its points, whatever holds of it outside."""
        kept = tuple(guard for guard in self.guards if coordinate not in guard.type.coordinates)
        return _Place(self.ranges, kept)


def _bounds(range: ir.Range) -> tuple[ir.Expr | None, ir.Expr | None]:
    """The condition that a stated range puts on its coordinate; None where it puts none."""
    here = build.coord(range.coordinate, range.span)
    lower = None if range.from_zero else build.apply("<=", (range.lower, here), "bool", range.span)
    upper = build.apply("<", (here, range.upper), "bool", range.span) if range.stated else None
    return lower, upper


def _bounded(expr: ir.Expr, place: _Place) -> ir.Expr:
    """The expression with normalisers guarded by the stated ranges of their coordinates."""
    if not any(isinstance(part, ir.Normalize) for part in walk(expr)):
        return expr
    inner = place.within(expr.ranges, None) if isinstance(expr, ir.Reduce) else place
    changed = rebuild(expr, lambda child: _bounded(child, inner))
    if isinstance(changed, ir.Normalize):
        lower, upper = _bounds(place.range_of(changed.coordinate))
        return _guarded(changed, (lower, upper, changed.guard))
    return changed


def _guarded(expr: ir.Normalize, guards: tuple[ir.Expr | None, ...]) -> ir.Expr:
    return build.normalize(expr.op, expr.coordinate, expr.body, build.conjunction(guards), expr.type.kind, expr.span)


def scans(expr: ir.Expr) -> bool:
    return any(isinstance(part, ir.Reduce | ir.Normalize) for part in walk(expr))


@dataclass(slots=True)
class _Parts:
    let: ir.Let
    counts: Callable[[ir.Expr], bool]
    taken: set[str]
    found: list[ir.Let]
    others: tuple[ir.Let, ...]

    def clause(self, clause: ir.Clause) -> ir.Clause:
        place = _Place(clause.ranges, ()).given(clause.guard)
        return replace(clause, body=self.visit(clause.body, place, root=True))

    def visit(self, expr: ir.Expr, place: _Place, root: bool = False) -> ir.Expr:
        """The expression with its parts named. `root` is True for what the definition itself is called."""
        if not self.counts(expr) or not scans(expr):
            return _bounded(expr, place)
        match expr:
            case ir.Map():
                return self.map(expr, place, root)
            case ir.Select(condition, then, otherwise):
                if scans(condition):
                    condition = self.name(condition, "if", place)
                then = self.visit(then, place.given(condition))
                otherwise = self.visit(otherwise, place.given(negated(condition)))
                return build.select(condition, then, otherwise, expr.span)
            case ir.Reduce():
                return self.reduction(expr, place)
            case ir.Normalize():
                return self.normalizer(expr, place, root)
            case _:
                return expr

    def normalizer(self, expr: ir.Normalize, place: _Place, root: bool) -> ir.Expr:
        coordinate, guard = expr.coordinate, expr.guard
        inner = place.normalising(coordinate).given(guard)
        body = self.visit(expr.body, inner)
        if expr.op != "cumsum" and scans(body):
            body = self.name(body, "scores", inner)
        hidden = any(coordinate in outer.type.coordinates for outer in place.guards)
        if root and not hidden:
            return build.normalize(expr.op, coordinate, body, guard, "real", expr.span)
        # Elsewhere its coordinate may run further: then a guard keeps it in the range that it had.
        range = place.range_of(coordinate)
        lower, upper = _bounds(range)
        wide = build.normalize(expr.op, coordinate, body, build.conjunction((lower, guard)), "real", expr.span)
        if lower is None or Assumptions().entails(polynomial(range.lower)):
            found = self.name(wide, "weights" if expr.op == "softmax" else expr.op, place.widened(coordinate))
            if isinstance(found, ir.Read):
                return found
        return _guarded(wide, (lower, upper, guard))

    def map(self, expr: ir.Map, place: _Place, root: bool) -> ir.Expr:
        if is_flat(expr):
            return expr
        arguments = [self.visit(argument, place) for argument in expr.arguments]
        if expr.op in _LINEAR or expr.op.startswith("as "):
            pass
        elif expr.op == "*":
            if all(map(scans, arguments)) and any(map(self.counts, arguments)):
                second = 1 if self.counts(arguments[0]) else 0
                arguments[second] = self.name(arguments[second], "factor", place)
        elif expr.op == "/":
            if scans(arguments[1]) and (self.counts(arguments[1]) or scans(arguments[0])):
                arguments[1] = self.name(arguments[1], "divisor", place)
        elif not (root and is_said_by_value(expr)):
            arguments = [self.name(a, "in", place) if scans(a) else a for a in arguments]
        return build.apply(expr.op, tuple(arguments), "real", expr.span)

    def reduction(self, expr: ir.Reduce, place: _Place) -> ir.Expr:
        inner = place.within(expr.ranges, expr.guard)
        body = self.visit(expr.body, inner)
        if expr.op == "mean" and (expr.guard is not None or runs_over_rest(expr)):
            summed = build.reduce("sum", expr.ranges, body, expr.guard, "real", expr.span)
            return build.apply("/", (summed, self.name(count(expr), "count", place)), "real", expr.span)
        if expr.op in ("prod", "max", "min") and scans(body):
            body = self.name(body, "in", inner)
        return build.reduce(expr.op, expr.ranges, body, expr.guard, expr.type.kind, expr.span)

    def name(self, expr: ir.Expr, ending: str, place: _Place) -> ir.Expr:
        """A read of the expression as a definition; the expression itself where it cannot be one."""
        if isinstance(expr, ir.Read):
            return expr
        own = [range for range in place.ranges if range.coordinate in expr.type.coordinates]
        guards = _guards(own, place, self.is_total(expr))
        if guards is None:
            return expr
        plain = ending in ("weights", "scores") and ending not in self.taken
        name = ending if plain else fresh(Coordinate(f"{self.let.name}_{ending}"), self.taken).name
        let = _definition(name, own, guards, expr)
        known = next((other for other in (*self.others, *self.found) if other.clauses == let.clauses), None)
        if known is None:
            self.taken.add(let.name)
            self.found.append(let)
            known = let
        indices = tuple(build.coord(range.coordinate, expr.span) for range in own)
        return build.read(known.name, indices, expr.type.kind, expr.span)

    def is_total(self, expr: ir.Expr) -> bool:
        """Whether an expression can be evaluated anywhere: plain reads of what is never absent, and no poles."""
        guarded = {let.name for let in self.others if any(clause.guard is not None for clause in let.clauses)}
        for part in walk(expr):
            match part:
                case ir.Read(tensor, indices):
                    if tensor in guarded or not all(isinstance(index, ir.Coord) for index in indices):
                        return False
                case ir.Map(op):
                    if not operation(op).total:
                        return False
                case ir.Reduce(op, ranges):
                    if op != "sum" or any(range.stated for range in ranges):
                        return False
                case ir.Const() | ir.Coord() | ir.Size() | ir.Normalize(op="softmax", guard=None):
                    pass
                case _:
                    return False
        return True


def _guards(own: list[ir.Range], place: _Place, total: bool) -> list[ir.Expr] | None:
    """The guards under which a part is defined; None where it would be evaluated at points where it cannot be. One that
    is `total` needs none of those that have other coordinates too."""
    mine = {range.coordinate for range in own}
    if any(range.depends_on for range in own):
        return None
    if not all(Assumptions().entails(polynomial(range.lower)) for range in own):
        return None
    guards: list[ir.Expr] = []
    for range in own:
        if not range.from_zero:
            sides = (range.lower, build.coord(range.coordinate, range.span))
            guards.append(build.apply("<=", sides, "bool", range.span))
    for guard in place.guards:
        if guard.type.coordinates <= mine:
            guards.append(guard)
        elif not total:
            return None
    return guards


def _definition(name: str, own: list[ir.Range], guards: list[ir.Expr], expr: ir.Expr) -> ir.Let:
    zero = build.whole(0, expr.span)
    ranges = tuple(replace(range, lower=zero) for range in own)
    slots = tuple(build.coord(range.coordinate, expr.span) for range in own)
    axes = tuple(ir.Axis(range.coordinate, range.upper) for range in own)
    clause = ir.Clause(slots, ranges, expr, build.conjunction(guards), expr.span)
    return ir.Let(name, axes, expr.type.kind, (clause,), False, expr.span)
