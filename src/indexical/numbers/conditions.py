"""The values for which an equality of symbols holds: those values of which everything that it was made of has a
value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from ..diagnostics import Diagnostic
from ..ir import nodes as ir
from ..ir.functions import FUNCTIONS
from ..ir.operations import REALS
from ..records import dataclass
from ..run.reference import Evaluation
from ..run.trace import clause_at
from ..run.wholes import Point
from .functions import ExactNumbers, log, power, sqrt
from .notation import text_of
from .terms import NOTHING, Atom, Polynomial, Symbol, Term
from .tower import Number, Special, sign

if TYPE_CHECKING:
    from .evaluate import Evaluated

Relation = Literal["!=", ">=", ">"]
_FLIPPED = {"!=": "!=", ">=": "<=", ">": "<"}


@dataclass(frozen=True, slots=True)
class Condition:
    """`number relation 0`, of a number with symbols."""

    number: Polynomial
    relation: Relation

    def __str__(self) -> str:
        """Solved for a symbol where that is plain: `x != 1`; else with what is subtracted on the right."""
        terms = dict(self.number.terms)
        if len(terms) - (NOTHING in terms) == 1:
            shift = terms.pop(NOTHING, 0)
            ((monomial, factor),) = terms.items()
            if isinstance(factor, int | Fraction) and isinstance(shift, int | Fraction):
                relation = self.relation if factor > 0 else _FLIPPED[self.relation]
                return f"{text_of(Polynomial({monomial: 1}))} {relation} {text_of(Fraction(-shift) / factor)}"
        below = {m: -c for m, c in terms.items() if isinstance(c, int | Fraction) and c < 0}
        above = {m: c for m, c in terms.items() if m not in below}
        if not above:
            return f"{_text(below)} {_FLIPPED[self.relation]} 0"
        return f"{_text(above)} {self.relation} {_text(below) if below else '0'}"


def _text(terms: dict[Any, Any]) -> str:
    return text_of(terms[NOTHING] if terms.keys() == {NOTHING} else Polynomial(terms))


@dataclass(frozen=True, slots=True)
class Conditional:
    """An equality that holds under conditions, and is neither plainly true nor false."""

    conditions: frozenset[Condition]

    def __str__(self) -> str:
        return f"true for {told(self.conditions)}"

    __repr__ = __str__

    def __bool__(self) -> bool:
        from .evaluate import Undecided

        message = f"these are equal for {told(self.conditions)}, and not for all values"
        help = "`str(a == b)` tells the condition; give the inputs values to decide it"
        raise Undecided([Diagnostic("IX513", message, help=help)])


def told(conditions: Iterable[Condition]) -> str:
    """Conditions in words; one that another includes is left out."""
    by_number: dict[Polynomial, set[str]] = {}
    for condition in conditions:
        by_number.setdefault(condition.number, set()).add(condition.relation)
    strongest = [
        Condition(number, ">=" if found == {">="} else "!=" if found == {"!="} else ">")
        for number, found in by_number.items()
    ]
    signed = {found.number for found in strongest if found.relation != "!="}
    return " and ".join(sorted(str(found) for found in strongest if not _follows(found.number, signed)))


def _follows(number: Polynomial, signed: set[Polynomial]) -> bool:
    """Whether this is a product of several symbols, each of which is known not to be negative."""
    ((monomial, _), *more) = number.terms.items()
    alone = [Polynomial({frozenset(((atom, 1),)): 1}) for atom, _ in monomial]
    return not more and len(alone) > 1 and all(part in signed for part in alone)


# -------------------------------------------------------------------- requirements


def required(number: Any, relation: Relation) -> set[Condition]:
    """The conditions that a relation to 0 puts on the symbols; nothing where it holds anyway."""
    if not isinstance(number, Polynomial) or not number.symbols:
        return set()
    side = _side(number)
    if side == ">" or (side == ">=" and relation == ">="):
        return set()
    if side == ">=":
        relation = "!="
    if len(number.terms) == 1:
        ((monomial, factor),) = number.terms.items()
        if relation == "!=":
            return {found for atom, _ in monomial for found in _nonzero(atom)}
        if len(monomial) == 1 and not isinstance(factor, Polynomial) and sign(factor) > 0:
            ((atom, times),) = monomial
            relation = ">" if times < 0 else relation
            return {Condition(Polynomial({frozenset(((atom, 1),)): 1}), relation)}
    return {Condition(_primitive(number), relation)}


def _nonzero(atom: Atom) -> set[Condition]:
    if isinstance(atom, Symbol):
        return {Condition(Polynomial({frozenset(((atom, 1),)): 1}), "!=")}
    if atom.function in ("sqrt", "power"):
        return required(atom.arguments[0], "!=")
    if atom.function in ("exp", "inverse"):
        return set()
    return {Condition(Polynomial({frozenset(((atom, 1),)): 1}), "!=")}


def _primitive(number: Polynomial) -> Polynomial:
    """Divided by the magnitude of its first factor, so that one condition is written in one way."""
    first = next(iter(number.terms.values()))
    return number.scaled(abs(1 / Fraction(first))) if isinstance(first, int | Fraction) else number


def _side(number: Any) -> Literal[">", ">="] | None:
    """Whether a number is positive, or not negative, for all values of its symbols, as far as its terms show it."""
    if not isinstance(number, Polynomial):
        return {1: ">", 0: ">="}.get(sign(number))  # type: ignore[return-value]
    sides = [_side_of_term(monomial, coefficient) for monomial, coefficient in number.terms.items()]
    if None in sides:
        return None
    return ">" if ">" in sides else ">="


def _side_of_term(monomial: frozenset[tuple[Atom, int]], coefficient: Any) -> Literal[">", ">="] | None:
    if isinstance(coefficient, Polynomial) or sign(coefficient) < 0:
        return None
    strict = True
    for atom, times in monomial:
        inner = _side_of_atom(atom)
        if inner is None and times % 2:
            return None
        strict &= inner == ">"
    return ">" if strict else ">="


def _side_of_atom(atom: Atom) -> Literal[">", ">="] | None:
    if isinstance(atom, Symbol):
        return None
    if atom.function == "exp":
        return ">"
    if atom.function == "inverse":
        return ">" if _side(atom.arguments[0]) == ">" else None
    return ">=" if atom.function in ("sqrt", "power") else None


class Conditioned(ExactNumbers):
    """Exact numbers that remember what they ask of the symbols in them."""

    def __init__(self) -> None:
        self.found: set[Condition] = set()
        self.functions: Mapping[str, Callable[..., Any]] = {
            name: self._watched(name, function) for name, function in ExactNumbers.functions.items()
        }

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        row = FUNCTIONS[name]
        if row.domain == REALS:
            return function
        lowest = Fraction(row.domain[0])
        # Where it has no finite value at its lowest point, that is left out: `log(0)`.
        relation: Relation = ">=" if name == "sqrt" or (lowest == 0 and not row.undefined) else ">"

        def watched(x: Any) -> Any:
            self.found |= required(x - lowest if lowest else x, relation)
            return function(x)

        return watched

    def divide(self, a: Any, b: Any) -> Any:
        self.found |= required(b, "!=")
        return super().divide(a, b)

    def power(self, a: Any, b: Any) -> Any:
        if not isinstance(b, int | Fraction):
            self.found |= required(a, ">")
        elif Fraction(b).denominator > 1:
            self.found |= required(a, ">=" if b > 0 else ">")
        elif b < 0:
            self.found |= required(a, "!=")
        return super().power(a, b)


class _Watched(Evaluation):
    """An evaluation that remembers which cells it reads."""

    def __init__(self, evaluated: Evaluated, numbers: Conditioned) -> None:
        super().__init__(evaluated.program, evaluated.evaluation.tensors, evaluated.evaluation.sizes, numbers)
        self.seen: set[tuple[str, int]] = set()

    def read(self, expr: ir.Read, point: Point) -> Any:
        if expr.tensor in self.lets:
            place = tuple(self.value(index, point) for index in expr.indices)
            self.seen.add((expr.tensor, self.tensors[expr.tensor].offset(place)))
        return super().read(expr, point)


def conditions_at(evaluated: Evaluated, name: str, offset: int) -> frozenset[Condition]:
    """The conditions that an element puts on the symbols, with all that it is made of."""
    return _gathered(evaluated, {(name, offset)}, set())


def conditions_of(evaluated: Evaluated, expr: ir.Expr, point: Point) -> frozenset[Condition]:
    """The same for an expression."""
    if not evaluated.has_symbols:
        return frozenset()
    numbers = Conditioned()
    watched = _Watched(evaluated, numbers)
    watched.ranges.update(evaluated.evaluation.ranges)
    watched.value(expr, point)
    return _gathered(evaluated, watched.seen, numbers.found)


def _gathered(evaluated: Evaluated, cells: set[tuple[str, int]], found: set[Condition]) -> frozenset[Condition]:
    """The conditions of cells, and all that they were made of."""
    if not evaluated.has_symbols:
        return frozenset()
    seen: set[tuple[str, int]] = set()
    waiting = list(cells)
    while waiting:
        cell = waiting.pop()
        if cell in seen:
            continue
        seen.add(cell)
        if cell not in evaluated.asked:
            evaluated.asked[cell] = _asked(evaluated, *cell)
        own, reads = evaluated.asked[cell]
        found |= own
        waiting += reads
    return frozenset(found)


def _asked(evaluated: Evaluated, name: str, offset: int) -> tuple[frozenset[Any], frozenset[tuple[str, int]]]:
    """The conditions of one cell by itself, and the cells that it reads."""
    let = evaluated.evaluation.lets.get(name)
    if let is None or let.kind != "real" or evaluated.table(name).cells[offset] is None:
        return frozenset(), frozenset()
    numbers = Conditioned()
    watched = _Watched(evaluated, numbers)
    clause, point = clause_at(watched, let, evaluated.table(name).place(offset))
    watched.value(clause.body, point)
    return frozenset(numbers.found), frozenset(watched.seen)


# ------------------------------------------------------------ of positive symbols


def for_positive(number: Any) -> tuple[Any, set[Condition]]:
    """A number with roots, logarithms and powers of products taken apart, as for symbols that are not negative; and
    which of them must not be."""
    if not isinstance(number, Polynomial):
        return number, set()
    asked: set[Condition] = set()
    result: Any = 0
    for monomial, coefficient in number.terms.items():
        product = coefficient
        for atom, times in monomial:
            part, more = _apart(atom)
            asked |= more
            if isinstance(atom, Term) and atom.function == "sqrt":
                # Of a root to any power, at most the root itself is left.
                product = product * power(atom.arguments[0], times // 2)
                times %= 2
            product = product * power(part, times)
        result = result + product
    return result, asked


def _apart(atom: Atom) -> tuple[Any, set[Condition]]:
    plain = Polynomial({frozenset(((atom, 1),)): 1})
    if isinstance(atom, Symbol) or not isinstance(atom.arguments[0], Polynomial):
        return plain, set()
    inside, asked = for_positive(atom.arguments[0])
    if not isinstance(inside, Polynomial) or len(inside.terms) != 1:
        return plain, set()
    ((monomial, factor),) = inside.terms.items()
    raised = [(a.arguments[0], times) for a, times in monomial if isinstance(a, Term) and a.function == "exp"]
    symbols = [(Polynomial({frozenset(((a, 1),)): 1}), times) for a, times in monomial if isinstance(a, Symbol)]
    if isinstance(factor, Number | Special) or factor <= 0 or len(raised) + len(symbols) < len(monomial):
        return plain, set()
    relation: Relation = ">" if atom.function == "log" else ">="
    asked |= {Condition(symbol, relation) for symbol, _ in symbols}
    if atom.function == "log":
        exponent: Any = sum((inside * times for inside, times in raised), log(factor))
        return sum((log(symbol) * times for symbol, times in symbols), exponent), asked
    if raised:
        return plain, set()
    if atom.function == "sqrt" or (atom.function == "power" and isinstance(atom.arguments[1], int | Fraction)):
        exponent = Fraction(1, 2) if atom.function == "sqrt" else Fraction(atom.arguments[1])
        result: Any = sqrt(factor) if atom.function == "sqrt" else power(factor, exponent)
        for symbol, times in symbols:
            result = result * power(symbol, times * exponent)
        return result, asked
    return plain, set()
