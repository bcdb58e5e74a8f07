"""Derivatives by dual numbers, point by point: what every other derivative is compared with.

A `Dual` is `value + Σ part · ε`, with as many infinitesimals as there are cells to differentiate by, whose products
are 0. `Duals` are such numbers over any others that the reference evaluator computes with: exact ones, floats, or
duals again, for second derivatives. The rules are written out for themselves, and share nothing with the compiler's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import indexical as ix
from indexical.ir import nodes as ir
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.inputs import read_inputs
from indexical.numbers.tower import Special, budget
from indexical.run.reference import Evaluation
from indexical.run.tables import Numbers, Table

# An infinitesimal: the tensor and the offset of the cell that moves.
Seed = tuple[str, int]

HALF = Fraction(1, 2)
# 2 / √π and 1 / √(2 π), which no exact number is.
TWO_OVER_ROOT_PI = Fraction("1.12837916709551257389615890312154517168810125865799771368817144")
ONE_OVER_ROOT_TWO_PI = Fraction("0.39894228040143267793994605993438186847585863116493465766592583")


class Dual:
    """`value + Σ part · ε`. An infinitesimal that is not named has the part 0. It compares by its value alone."""

    __slots__ = ("parts", "value")

    def __init__(self, value: Any, parts: Mapping[Hashable, Any] | None = None) -> None:
        self.value = value
        self.parts = parts or {}

    def __repr__(self) -> str:
        return f"{self.value} + {self.parts}"

    def __add__(self, other: Any) -> Dual:
        other = dual(other)
        return Dual(self.value + other.value, _added(self.parts, other.parts))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dual:
        return self + -dual(other)

    def __rsub__(self, other: Any) -> Dual:
        return -self + other

    def __neg__(self) -> Dual:
        return Dual(-self.value, {key: -part for key, part in self.parts.items()})

    def __mul__(self, other: Any) -> Dual:
        other = dual(other)
        parts = _added(scaled(self.parts, other.value), scaled(other.parts, self.value))
        return Dual(self.value * other.value, parts)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return bool(self.value == _plain(other))

    def __ne__(self, other: object) -> bool:
        return bool(self.value != _plain(other))

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < _plain(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= _plain(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > _plain(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= _plain(other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __int__(self) -> int:
        return int(self.value)


def dual(number: Any) -> Dual:
    """A whole number, as a branch of an `if` may give one beside reals, does not move."""
    return number if isinstance(number, Dual) else Dual(number)


def _plain(other: Any) -> Any:
    """What is compared with: a whole number stays one."""
    return other.value if isinstance(other, Dual) else other


def _added(a: Mapping[Hashable, Any], b: Mapping[Hashable, Any]) -> Mapping[Hashable, Any]:
    if not a or not b:
        return a or b
    result = dict(a)
    for key, part in b.items():
        result[key] = result[key] + part if key in result else part
    return result


def scaled(parts: Mapping[Hashable, Any], factor: Any) -> dict[Hashable, Any]:
    return {key: part * factor for key, part in parts.items()}


def is_bounded(number: Any) -> bool:
    """Whether it is a number through and through: no infinity, nothing undefined."""
    if isinstance(number, Dual):
        return is_bounded(number.value) and all(map(is_bounded, number.parts.values()))
    return math.isfinite(number) if isinstance(number, float) else not isinstance(number, Special)


class Duals:
    """Dual numbers over others, for the evaluator.

    `unbounded` becomes True where something on the way is no number: a derivative there may be anything, for 0 times
    infinity is not 0 for a program that multiplies.
    """

    def __init__(self, base: Numbers) -> None:
        self.base = base
        self.unbounded = False
        self.one, self.half = base.number(1), base.number(HALF)
        self.functions: Mapping[str, Callable[..., Any]] = {
            **{name: self._elementwise(name, rule) for name, rule in self._rules().items()},
            "relu": lambda x: x if x.value > base.number(0) else Dual(base.number(0), scaled(x.parts, base.number(0))),
            "abs": self._magnitude,
            "max": lambda *several: self._first(several, lambda new, best: new > best),
            "min": lambda *several: self._first(several, lambda new, best: new < best),
            "clamp": self._clamp,
            "floor": self._flat("floor"),
            "ceil": self._flat("ceil"),
            "round": self._flat("round"),
        }

    @property
    def infinity(self) -> Dual:
        return Dual(self.base.infinity)

    @property
    def nan(self) -> Dual:
        return Dual(self.base.nan)

    @property
    def pi(self) -> Dual:
        return Dual(self.base.pi)

    def number(self, value: Any) -> Dual:
        return value if isinstance(value, Dual) else Dual(self.base.number(value))

    # ------------------------------------------------------------------ functions of one argument

    def _rules(self) -> dict[str, Callable[[Any, Any], Any]]:
        """The derivative of each function at `x`, where it is `y`."""
        base, one, half = self.base, self.one, self.half

        def gate(x: Any) -> Any:
            return base.functions["sigmoid"](x)

        def bell(x: Any, factor: Fraction, over: Any) -> Any:
            return base.number(factor) * base.functions["exp"](-(x * x * over))

        return {
            "exp": lambda x, y: y,
            "log": lambda x, y: base.divide(one, x),
            "sqrt": lambda x, y: base.divide(half, y),
            "rsqrt": lambda x, y: -(half * y * y * y),
            "tanh": lambda x, y: one - y * y,
            "sigmoid": lambda x, y: y * (one - y),
            "silu": lambda x, y: gate(x) + y * (one - gate(x)),
            "sin": lambda x, y: base.functions["cos"](x),
            "cos": lambda x, y: -base.functions["sin"](x),
            "erf": lambda x, y: bell(x, TWO_OVER_ROOT_PI, one),
            "gelu": lambda x, y: (
                half * (one + base.functions["erf"](x * base.functions["sqrt"](half)))
                + x * bell(x, ONE_OVER_ROOT_TWO_PI, half)
            ),
        }

    def _elementwise(self, name: str, rule: Callable[[Any, Any], Any]) -> Callable[[Dual], Dual]:
        def apply(x: Dual) -> Dual:
            value = self.base.functions[name](x.value)
            return self._checked(Dual(value, scaled(x.parts, rule(x.value, value)) if x.parts else None))

        return apply

    def _flat(self, name: str) -> Callable[[Dual], Dual]:
        return lambda x: Dual(self.base.functions[name](x.value))

    def _magnitude(self, x: Dual) -> Dual:
        """At 0 it stays, and is seen to: what divides by it is then found to be unbounded."""
        zero = self.base.number(0)
        if x.value == zero:
            return Dual(zero, scaled(x.parts, zero))
        return -x if x.value < zero else x

    def _checked(self, found: Dual) -> Dual:
        if not is_bounded(found):
            self.unbounded = True
        return found

    # ------------------------------------------------------------------------ of several arguments

    def _first(self, several: Sequence[Any], better: Callable[[Any, Any], bool]) -> Any:
        """The best, the first of those that are equal; whole numbers come here too."""
        best = several[0]
        for value in several:
            if value != value:
                self.unbounded = True
                return self.nan
            best = value if better(value, best) else best
        # Those that lose stay, and are seen to: a slope without bound that meets them is found.
        lost = {key: self.base.number(0) for value in map(dual, several) for key in value.parts}
        return Dual(best.value, {**lost, **best.parts}) if isinstance(best, Dual) else best

    def _clamp(self, x: Dual, low: Dual, high: Dual) -> Dual:
        """The smaller of `high` and the larger of the other two: at an end, that of the inside."""
        return self.functions["min"](self.functions["max"](x, low), high)  # type: ignore[no-any-return]

    def divide(self, a: Dual, b: Dual) -> Dual:
        value = self.base.divide(a.value, b.value)
        parts: Mapping[Hashable, Any] = {}
        if a.parts or b.parts:
            over = self.base.divide(self.one, b.value)
            parts = _added(scaled(a.parts, over), scaled(b.parts, -(value * over)) if b.parts else {})
        return self._checked(Dual(value, parts))

    def remainder(self, a: Dual, b: Dual) -> Dual:
        """`a - b · n`, for the whole number `n` of times that `b` goes into `a`."""
        value = self.base.remainder(a.value, b.value)
        if not is_bounded(value):
            self.unbounded = True
            return Dual(value)
        times = self.base.number(int(self.base.divide(a.value, b.value)))
        return Dual(value, _added(a.parts, scaled(b.parts, -times)))

    def power(self, a: Dual, b: Dual) -> Dual:
        """The 0th power is 1 wherever; 0 to what is positive is 0 however large that is."""
        base, zero = self.base, self.base.number(0)
        value = base.power(a.value, b.value)
        parts: Mapping[Hashable, Any] = {}
        if a.parts and b.value != zero:
            parts = scaled(a.parts, b.value * base.power(a.value, b.value - self.one))
        if b.parts and not (a.value == zero and b.value > zero):
            parts = _added(parts, scaled(b.parts, value * base.functions["log"](a.value)))
        return self._checked(Dual(value, parts))

    def cast(self, value: Dual, dtype: str) -> Dual:
        return Dual(self.base.cast(value.value, dtype), value.parts)

    def total(self, values: Iterable[Dual]) -> Dual:
        values = list(map(dual, values))
        parts: dict[Hashable, list[Any]] = {}
        for value in values:
            for key, part in value.parts.items():
                parts.setdefault(key, []).append(part)
        total = self.base.total([value.value for value in values])
        return Dual(total, {key: self.base.total(several) for key, several in parts.items()})

    # -------------------------------------------------------------------------------- normalisers

    def softmax(self, scores: list[Dual]) -> list[Dual]:
        values = self.base.softmax([score.value for score in scores])
        centred = self._centred(scores, values)
        return [self._checked(Dual(v, scaled(parts, v))) for v, parts in zip(values, centred, strict=True)]

    def log_softmax(self, scores: list[Dual]) -> list[Dual]:
        plain = [score.value for score in scores]
        values = self.base.log_softmax(plain)
        centred = self._centred(scores, self.base.softmax(plain))
        return [self._checked(Dual(v, parts)) for v, parts in zip(values, centred, strict=True)]

    def _centred(self, scores: list[Dual], weights: list[Any]) -> list[Mapping[Hashable, Any]]:
        """The parts of the scores, less their mean by the weights."""
        each = [Dual(self.one, scaled(score.parts, weight)) for score, weight in zip(scores, weights, strict=True)]
        mean = self.total(each).parts
        away = {key: -part for key, part in mean.items()}
        return [_added(score.parts, away) for score in scores]


# ------------------------------------------------------------------------- derivatives of programs


@dataclass
class Jacobian:
    """The cells of a definition in row-major order, each with its parts. One that is absent is 0."""

    cells: list[Dual]
    # How many cells each tensor has that it was differentiated by.
    by: dict[str, int]
    bounded: bool
    zero: Any = 0

    def entry(self, offset: int, seed: Seed) -> Any:
        return self.cells[offset].parts.get(seed, self.zero)

    def pull(self, cotangent: Sequence[Any], name: str) -> list[Any]:
        """`Σ cotangent · ∂cell / ∂x` for each cell `x` of a tensor."""
        return [
            sum((c * self.entry(n, (name, at)) for n, c in enumerate(cotangent)), self.zero)
            for at in range(self.by[name])
        ]

    def push(self, tangents: Mapping[str, Sequence[Any]]) -> list[Any]:
        """`Σ ∂cell / ∂x · tangent` for each cell."""
        return [
            sum((part * tangents[name][at] for (name, at), part in cell.parts.items()), self.zero)  # type: ignore[misc]
            for cell in self.cells
        ]


class _Independent(Evaluation):
    """An evaluation in which some definitions, once computed, move by infinitesimals of their own and no others.

    A weight that is 0 because of a guard moves too; a point that is absent does not."""

    held: frozenset[str] = frozenset()

    def fill(self, table: Table, let: ir.Let, clause: ir.Clause, pinned: Any) -> None:
        before = {n for n, cell in enumerate(table.cells) if isinstance(cell, Dual)} if let.name in self.held else set()
        super().fill(table, let, clause, pinned)
        if let.name in self.held:
            for offset, cell in enumerate(table.cells):
                if isinstance(cell, Dual) and offset not in before:
                    table.removed.discard(offset)
                    table.cells[offset] = Dual(cell.value, {(let.name, offset): self.numbers.one})  # type: ignore[attr-defined]


def evaluate(
    program: ix.Program, arrays: Mapping[str, Any], of: str, numbers: Duals, seeded: Callable[[str, int, Any], Any]
) -> dict[str, Table]:
    """A definition with all that it needs, its real inputs as `seeded` makes them of name, offset and number."""
    given = read_inputs(program.ir, arrays, {})
    tables = dict(given.tables)
    for tensor in program.ir.inputs:
        if tensor.kind == "real":
            table = tables[tensor.name]
            cells = [seeded(tensor.name, offset, cell) for offset, cell in enumerate(table.cells)]
            tables[tensor.name] = Table(table.shape, cells)
    evaluation = _Independent(program.ir, tables, given.bound.sizes, numbers)
    evaluation.held = frozenset(getattr(seeded, "held", ()))
    evaluation.compute(program.ir, (of, *evaluation.held))
    for table in evaluation.tensors.values():
        moving = (cell for cell in table.cells if isinstance(cell, Dual))
        numbers.unbounded |= not all(is_bounded(part) for cell in moving for part in cell.parts.values())
    return evaluation.tensors


def jacobian(
    program: ix.Program,
    arrays: Mapping[str, Any],
    of: str,
    by: Sequence[str],
    base: Numbers | None = None,
    terms: float = math.inf,
) -> Jacobian:
    """The derivative of a definition by every cell of some tensors, all in one evaluation.

    A definition in `by` is held independent.
    """
    numbers = Duals(base or ExactNumbers())
    sought = frozenset(by)

    def seeded(name: str, offset: int, cell: Any) -> Dual:
        return Dual(numbers.base.number(cell), {(name, offset): numbers.one} if name in sought else None)

    seeded.held = sought - {tensor.name for tensor in program.ir.inputs}  # type: ignore[attr-defined]
    with budget(terms):
        tables = evaluate(program, arrays, of, numbers, seeded)
    table = tables[of]
    cells = [numbers.number(cell or 0) if not isinstance(cell, Dual) else cell for cell in table.cells]
    bounded = not numbers.unbounded and all(map(is_bounded, cells))
    sizes = {name: len(tables[name].cells) for name in by}
    return Jacobian(cells, sizes, bounded, numbers.base.number(0))


def hessian(
    program: ix.Program, arrays: Mapping[str, Any], of: str, base: Numbers | None = None, terms: float = math.inf
) -> tuple[list[dict[tuple[Seed, Seed], Any]], bool]:
    """For each cell of a definition its second derivatives by all pairs of cells of real inputs, where they are not
    0 by their form; and whether all is bounded on the way."""
    inner = Duals(base or ExactNumbers())
    outer = Duals(inner)

    def seeded(name: str, offset: int, cell: Any) -> Dual:
        moved = Dual(inner.base.number(cell), {(name, offset): inner.one})
        return Dual(moved, {(name, offset): outer.one})

    with budget(terms):
        table = evaluate(program, arrays, of, outer, seeded)[of]
    cells = [outer.number(cell or 0) if not isinstance(cell, Dual) else cell for cell in table.cells]
    bounded = not inner.unbounded and not outer.unbounded and all(map(is_bounded, cells))
    found = [{(a, b): v for a, part in cell.parts.items() for b, v in part.parts.items()} for cell in cells]
    return found, bounded  # type: ignore[return-value]
