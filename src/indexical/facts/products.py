"""Sums of products: the normal form in which a gather is the same in every spelling.

`sum[j](w[i, j] * V[j, e])`, the same split over three definitions, wrapped in a function or written the
other way round are one `Product`: coordinates that are summed, conditions that hold, factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Atom, Polynomial, no_constants, polynomial
from ..ir.algebra.normalize import Algebra
from ..ir.context import look_through
from ..ir.prove import conjuncts, inequalities
from ..ir.types import Coordinate
from ..ir.walk import at, fresh, substitute


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor, or with `inverse` a divisor. `local` is False for one that stands in another definition."""

    expr: ir.Expr
    inverse: bool = False
    local: bool = True

    @property
    def coordinates(self) -> frozenset[Coordinate]:
        return self.expr.type.coordinates


@dataclass(frozen=True, slots=True)
class Summed:
    """A coordinate that is summed over, and the reduction that does it."""

    range: ir.Range
    reduce: ir.Reduce
    local: bool

    @property
    def coordinate(self) -> Coordinate:
        return self.range.coordinate


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for the product to count. `local` as for factors."""

    expr: ir.Expr
    local: bool


@dataclass(frozen=True, slots=True)
class Product:
    """The sum over `summed` of the product of `factors`, where all `conditions` hold."""

    summed: tuple[Summed, ...] = ()
    conditions: tuple[Condition, ...] = ()
    factors: tuple[Factor, ...] = ()

    @property
    def bound(self) -> frozenset[Coordinate]:
        return frozenset(step.coordinate for step in self.summed)

    def times(self, other: Product) -> Product:
        return Product(self.summed + other.summed, self.conditions + other.conditions, self.factors + other.factors)


# Whether a definition is written out where it is read.
Opens: TypeAlias = Callable[[ir.Read], bool]


def _everything(read: ir.Read) -> bool:
    return True


def _nothing(read: ir.Read) -> bool:
    return False


# So many parts of one expression are written out to compare it; from then on, definitions go by their names. Layer upon
# layer, what is written out would double with each.
_MOST = 400


@dataclass(slots=True)
class _Expansion:
    taken: set[str]
    opens: Opens


@dataclass
class Forms:
    """The normal forms of one program's expressions, and which definitions may contain weights, exponentiate
    something, or gather under weights."""

    program: ir.Program
    keys: dict[tuple[int, str], str] = field(default_factory=dict)
    kept: list[ir.Expr] = field(default_factory=list)
    holding_weights: dict[str, bool] = field(default_factory=dict)
    exponential: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    gathering: set[str] = field(default_factory=set)
    depth: int = 0
    left: int = 0

    @cached_property
    def lets(self) -> dict[str, ir.Let]:
        return {let.name: let for let in self.program.lets}

    @cached_property
    def recurrent(self) -> frozenset[str]:
        """Definitions that are made of themselves: these are never written out."""
        return frozenset(
            name for order in self.program.order if isinstance(order, ir.Stepwise) for name, _ in order.axes
        )

    @cached_property
    def algebra(self) -> Algebra:
        """The normal forms of the program's real expressions. An attention is not written out where it is read."""
        return Algebra(self.program, self.gathering)

    def opened(self, read: ir.Read) -> tuple[ir.Expr, ir.Expr | None] | None:
        """What a definition says at these indices, and its guard there; None where it has several clauses,
        refers to itself, or is an input."""
        let = self.lets.get(read.tensor)
        if let is None or len(let.clauses) != 1 or let.name in self.recurrent:
            return None
        clause = let.clauses[0]
        if isinstance(clause.body, ir.Array):
            return None
        body = at(clause, clause.body, read.indices)
        guard = None if clause.guard is None else at(clause, clause.guard, read.indices)
        if body is None or (clause.guard is not None and guard is None):
            return None
        return body, guard

    def seen_through(self, read: ir.Read, visible: bool = False) -> ir.Read:
        """A read, past definitions that only read on; with `visible`, the last that a reader can see."""
        seen = read
        while (found := self.opened(read)) is not None and found[1] is None and isinstance(found[0], ir.Read):
            read = found[0]
            let = self.lets.get(read.tensor)
            if not visible or let is None or not let.hidden:
                seen = read
        return seen

    def expand(
        self, expr: ir.Expr, taken: Iterable[Coordinate] = (), opens: Opens | None = None, local: bool = True
    ) -> Product:
        """An expression as a sum of products. Coordinates that are summed inside get names of their own.
        Definitions are written out where `opens` says so, by default all."""
        names = {coordinate.name for coordinate in (*expr.type.coordinates, *taken)}
        return self._expand(expr, _Expansion(names, opens or _everything), local)

    def _expand(self, expr: ir.Expr, names: _Expansion, local: bool) -> Product:
        match expr:
            case ir.Map("*", (left, right)):
                return self._expand(left, names, local).times(self._expand(right, names, local))
            case ir.Map("/", (left, right)):
                over = self._expand(left, names, local)
                return over.times(self._invert(right, names, local))
            case ir.Map("neg", (operand,)):
                minus = Factor(build.whole(-1, expr.span), False, local)
                return Product(factors=(minus,)).times(self._expand(operand, names, local))
            case ir.Select(condition, then, ir.Const(value)) if value == 0:
                held = Product(conditions=(Condition(condition, local),))
                return held.times(self._expand(then, names, local))
            case ir.Select(condition, ir.Const(value), otherwise) if value == 0:
                opposite = build.apply("!", (condition,), "bool", condition.span)
                held = Product(conditions=(Condition(opposite, local),))
                return held.times(self._expand(otherwise, names, local))
            case ir.Reduce("sum"):
                return self._expand_sum(expr, names, local)
            case ir.Reduce("mean") if expr.guard is None:
                return self._expand_mean(expr, names, local)
            case ir.Read():
                found = self.opened(expr) if names.opens(expr) else None
                if found is None:
                    return Product(factors=(Factor(expr, False, local),))
                body, guard = found
                inner = self._expand(body, names, False)
                return inner if guard is None else Product(conditions=(Condition(guard, False),)).times(inner)
            case _:
                return Product(factors=(Factor(expr, False, local),))

    def _invert(self, expr: ir.Expr, names: _Expansion, local: bool) -> Product:
        """One over an expression: factor by factor where it is a plain product."""
        inner = self._expand(expr, _Expansion(set(names.taken), names.opens), local)
        if inner.summed or inner.conditions:
            return Product(factors=(Factor(expr, True, local),))
        return Product(factors=tuple(replace(factor, inverse=not factor.inverse) for factor in inner.factors))

    def _expand_mean(self, expr: ir.Reduce, names: _Expansion, local: bool) -> Product:
        """A mean is a sum, divided by how many points it has."""
        total = build.reduce("sum", expr.ranges, expr.body, None, expr.type.kind, expr.span)
        counts = tuple(Factor(range.upper, True, local) for range in expr.ranges)
        return self._expand_sum(total, names, local).times(Product(factors=counts))

    def _expand_sum(self, expr: ir.Reduce, names: _Expansion, local: bool) -> Product:
        body, guard = expr.body, expr.guard
        summed = []
        for range in expr.ranges:
            coordinate = fresh(range.coordinate, names.taken)
            names.taken.add(coordinate.name)
            if coordinate != range.coordinate:
                new = {range.coordinate: build.coord(coordinate, range.span)}
                body, guard = substitute(body, new), guard and substitute(guard, new)
                range = replace(range, coordinate=coordinate)
            summed.append(Summed(range, expr, local))
        conditions = () if guard is None else (Condition(guard, local),)
        return Product(tuple(summed), conditions).times(self._expand(body, names, local))

    # ------------------------------------------------------------------- equality

    def key(self, expr: ir.Expr, names: Mapping[Coordinate, str] | None = None) -> str:
        """A text that two expressions share only if they are the same, up to the order of factors and
        terms, the names of what they bind, and which definitions they are split over."""
        names = names or {}
        shown = ",".join(f"{c}={names[c]}" for c in sorted(expr.type.coordinates, key=str) if c in names)
        cache = (id(expr), shown)
        if cache not in self.keys:
            self.kept.append(expr)
            outermost = self.depth == 0
            self.left = _MOST if outermost else self.left - 1
            self.depth += 1
            self.keys[cache] = self._key(expr, names)
            self.depth -= 1
        return self.keys[cache]

    def are_same(self, one: ir.Expr, other: ir.Expr) -> bool:
        """Whether two expressions share their key, which is made only where nothing simpler tells them apart."""
        if one == other:
            return True
        mine, theirs = self.expand(one), self.expand(other)
        if (len(mine.summed), len(mine.factors)) != (len(theirs.summed), len(theirs.factors)):
            return False
        return self.key(one) == self.key(other)

    def _key(self, expr: ir.Expr, names: Mapping[Coordinate, str]) -> str:
        match expr:
            case ir.Const(value):
                return str(value)
            case ir.Coord(coordinate):
                return names.get(coordinate, str(coordinate))
            case ir.Size(coordinate):
                return f"size({coordinate})"
            case ir.Map() | ir.Read() if expr.type.kind == "bool":
                return self._condition_key(expr, names)
            case ir.Map("*" | "/" | "neg") | ir.Reduce("sum") | ir.Read():
                if expr.type.kind == "whole" and isinstance(expr, ir.Map):
                    return self._whole_key(expr, names)
                return self.product_key(self.expand(expr, names, _everything if self.left > 0 else _nothing), names)
            case ir.Array(shape, cells, indices):
                inner = " ".join(self.key(index, names) for index in indices)
                return f"(array {shape} {[str(cell.value) for cell in cells]} {inner})"
            case ir.Map("+" | "-") if expr.type.kind == "whole":
                return self._whole_key(expr, names)
            case ir.Map(op):
                parts = [self.key(argument, names) for argument in _terms(expr)]
                if op in ("+", "&&", "||", "max", "min", "==", "!="):
                    parts.sort()
                if op in (">", ">="):
                    op, parts = op.replace(">", "<"), parts[::-1]
                return f"({op} {' '.join(parts)})"
            case ir.Select(condition, then, otherwise):
                return f"(if {self.key(condition, names)} {self.key(then, names)} {self.key(otherwise, names)})"
            case ir.Reduce(op, ranges, body, guard):
                return self._bound_key(op, ranges, (body, guard), names)
            case ir.Normalize(op, coordinate, body, guard):
                outside = names.get(coordinate, str(coordinate))
                inner_names = {**names, coordinate: f"'{_level(names)}"}
                parts = [self.key(part, inner_names) for part in (body, guard) if part is not None]
                return f"({op} {outside} {' '.join(parts)})"

    def _condition_key(self, expr: ir.Map | ir.Read, names: Mapping[Coordinate, str]) -> str:
        """A condition by what it says: `j <= i`, `i >= j` and `!(j > i)` are one, and so is a name for it."""
        facts = conjuncts(expr, True, look_through(self.lets))
        if facts == [expr]:
            rows = inequalities(expr, no_constants)
            if rows is not None:
                return " && ".join(sorted(f"{self._polynomial_key(row, expr, names)} >= 0" for row in rows))
            if isinstance(expr, ir.Read):
                return self.factor_key(Factor(expr), names)
            parts = sorted(self.key(argument, names) for argument in _terms(expr))
            return f"({expr.op} {' '.join(parts)})"
        return " && ".join(sorted({self.key(fact, names) for fact in facts}))

    def _whole_key(self, expr: ir.Map, names: Mapping[Coordinate, str]) -> str:
        """Whole arithmetic by its polynomial, so that `h * 4 + d` is `d + 4 * h`."""
        return self._polynomial_key(polynomial(expr), expr, names)

    def _polynomial_key(self, value: Polynomial, expr: ir.Expr, names: Mapping[Coordinate, str]) -> str:
        terms = []
        for monomial, factor in value.terms.items():
            atoms = sorted(f"{self._atom_key(atom, expr, names)}^{power}" for atom, power in monomial)
            terms.append(f"{factor}·{'·'.join(atoms)}")
        return "{" + " + ".join(sorted(terms)) + "}"

    def _atom_key(self, atom: Atom, expr: ir.Expr, names: Mapping[Coordinate, str]) -> str:
        if isinstance(atom, Coordinate):
            return names.get(atom, str(atom))
        if atom == expr and isinstance(atom, ir.Map):
            return f"({atom.op} {' '.join(self.key(argument, names) for argument in atom.arguments)})"
        return self.key(atom, names)

    def _bound_key(
        self, op: str, ranges: tuple[ir.Range, ...], parts: tuple[ir.Expr | None, ...], names: Mapping[Coordinate, str]
    ) -> str:
        inner = {**names, **{range.coordinate: f"'{_level(names) + n}" for n, range in enumerate(ranges)}}
        limits = [f"{self.key(r.lower, names)}..{self.key(r.upper, names)}" for r in ranges]
        shown = [self.key(part, inner) for part in parts if part is not None]
        return f"({op} {' '.join(limits)} {' '.join(shown)})"

    def product_key(self, product: Product, names: Mapping[Coordinate, str]) -> str:
        """As `key`. What is summed is named by where it occurs, so that its order does not matter."""
        if len(product.factors) == 1 and not product.summed and not product.conditions:
            factor = product.factors[0]
            if isinstance(factor.expr, ir.Read):
                return self.factor_key(factor, names)
            if not factor.inverse and not isinstance(factor.expr, ir.Map | ir.Reduce):
                return self.key(factor.expr, names)
        order = sorted(product.summed, key=lambda step: self._occurrences(product, step, names))
        level = _level(names)
        inner = {**names, **{step.coordinate: f"'{level + n}" for n, step in enumerate(order)}}
        limits = [f"{self.key(s.range.lower, names)}..{self.key(s.range.upper, names)}" for s in order]
        shown = sorted(self.factor_key(factor, inner) for factor in product.factors)
        held = sorted(self.key(condition.expr, inner) for condition in product.conditions)
        return f"(sum {' '.join(limits)} | {' '.join(held)} | {' '.join(shown)})"

    def factor_key(self, factor: Factor, names: Mapping[Coordinate, str]) -> str:
        mark = "1/" if factor.inverse else ""
        if isinstance(factor.expr, ir.Read):
            inner = " ".join(self.key(index, names) for index in factor.expr.indices)
            return f"{mark}{factor.expr.tensor}[{inner}]"
        return mark + self.key(factor.expr, names)

    def _occurrences(self, product: Product, step: Summed, names: Mapping[Coordinate, str]) -> str:
        """A description of a summed coordinate that does not depend on any summed coordinate's name."""
        blind = dict(names)
        blind.update({other.coordinate: "?" for other in product.summed})
        blind[step.coordinate] = "!"
        touched = [f for f in product.factors if step.coordinate in f.coordinates]
        held = [c.expr for c in product.conditions if step.coordinate in c.expr.type.coordinates]
        return " ".join(sorted([self.factor_key(f, blind) for f in touched] + [self.key(expr, blind) for expr in held]))


def _level(names: Mapping[Coordinate, str]) -> int:
    """The first number that no bound coordinate around goes by."""
    return 1 + max((int(name[1:]) for name in names.values() if name.startswith("'")), default=-1)


def _terms(expr: ir.Map) -> list[ir.Expr]:
    """The arguments of an operation, those of nested sums and conjunctions side by side."""
    if expr.op not in ("+", "&&", "||"):
        return list(expr.arguments)
    result: list[ir.Expr] = []
    for argument in expr.arguments:
        same = isinstance(argument, ir.Map) and argument.op == expr.op
        result += _terms(argument) if same and isinstance(argument, ir.Map) else [argument]
    return result
