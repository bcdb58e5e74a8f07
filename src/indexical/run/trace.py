"""The origin of one number: what it scanned, term by term, and where each factor came from.

It watches an evaluation that has been made, of any type of numbers, and computes nothing anew but what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..diagnostics import CallError, Diagnostic
from ..ir import nodes as ir
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import children
from ..records import dataclass
from .reference import Evaluation, Uncomputed
from .sentences import named, spoken_row, spoken_sum
from .wholes import Point
from .worked import pattern, written


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a tensor that was read: `weights[2, 0]`."""

    tensor: str
    place: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.tensor}[{', '.join(map(str, self.place))}]" if self.place else self.tensor


@dataclass(frozen=True, slots=True)
class Factor:
    """A part of a term. `pattern` is how the text writes it, with numbers for the coordinates that are not scanned;
    `element` says which one was read, if it is a read."""

    pattern: str
    value: Any
    element: Element | None
    reads: tuple[Element, ...]
    scans: tuple[Scan, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """One point that was scanned. `share` is its part in the sum, and that of a normaliser its value there."""

    point: tuple[tuple[str, int], ...]
    factors: tuple[Factor, ...]
    value: Any
    running: Any
    share: Any


@dataclass(frozen=True, slots=True)
class Silent:
    """A point of a reduction that adds nothing, and why: a factor of it is masked, or all was decided before."""

    place: tuple[int, ...]
    why: str
    element: Element | None


@dataclass(frozen=True, slots=True)
class Scan:
    """A reduction or a normaliser at one point: the coordinates it runs over, what a guard excluded, what added
    nothing, and its terms; together they are all points of the ranges.

    `op` is a reduction's or a normaliser's. The terms of a softmax are its scores; their shares are its weights. A
    `cumsum` runs up to its point. Of a point that the guard of a normaliser excludes, the row is not read: it is
    `outside`, and has no terms.
    """

    op: str
    text: str
    ranges: tuple[tuple[str, int, int], ...]
    guard: str | None
    excluded: tuple[tuple[int, ...], ...]
    silent: tuple[Silent, ...]
    terms: tuple[Term, ...]
    value: Any
    normalises: bool
    outside: bool = False
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A point of a definition, or of an input: its value, what survives, what was scanned. `why` says why it is masked;
    then nothing was scanned. `whole` says that it is its one scan, and nothing besides."""

    element: Element
    statement: str
    survives: tuple[tuple[str, int], ...]
    value: Any
    masked: bool
    why: str | None
    scans: tuple[Scan, ...]
    reads: tuple[Element, ...]
    kind: str
    whole: bool = False

    def sources(self) -> list[Element]:
        """Every element that this point read, each once, in the order in which they stand."""
        found: dict[Element, None] = {}
        for scan in self.scans:
            for element in elements_of(scan):
                found[element] = None
        found.update(dict.fromkeys(self.reads))
        return list(found)


def elements_of(scan: Scan) -> Iterator[Element]:
    """Yield the elements that the terms of a scan read, inner scans too, and the masked ones that removed a term."""
    for term in scan.terms:
        for factor in term.factors:
            yield from factor.reads
            for inner in factor.scans:
                yield from elements_of(inner)
    for silent in scan.silent:
        if silent.element is not None:
            yield silent.element


class Tracer:
    """Traces of an evaluation."""

    # The errors that a number type raises where there is no value, as for a symbol.
    unknown: tuple[type[Exception], ...] = ()

    def __init__(self, program: ir.Program, evaluation: Evaluation) -> None:
        self.program = program
        self.evaluation = evaluation
        self.numbers = evaluation.numbers
        self.lets = program.definitions
        self.inputs = {tensor.name: tensor for tensor in program.inputs}

    def at(self, element: Element) -> Trace:
        """The trace of one element. That of an input is its value."""
        table = self.evaluation.tensors[element.tensor]
        offset = table.offset(element.place)
        cell = table.cells[offset]
        if cell is Uncomputed:
            message = f"`{element}` does not exist: the statement around `{element.tensor}` has no such point"
            raise CallError([Diagnostic("IX515", message)])
        value = 0 if cell is None else cell
        if element.tensor in self.inputs:
            tensor = self.inputs[element.tensor]
            names = tuple(str(axis.coordinate) for axis in tensor.axes)
            survives = tuple(zip(names, element.place, strict=True))
            return Trace(element, "", survives, value, False, None, (), (), tensor.kind)
        let = self.lets[element.tensor]
        clause, point = clause_at(self.evaluation, let, element.place)
        survives = tuple((named(c), step) for c, step in point.items())
        text = statement(let, clause)
        if cell is None:
            assert clause.guard is not None
            return Trace(element, text, survives, value, True, _fails(clause.guard), (), (), let.kind)
        if offset in table.removed or self._is_left_out(clause.body, point):
            why, source = self.culprit(clause.body, point, frozenset())
            reads = () if source is None else (source,)
            return Trace(element, text, survives, value, True, why, (), reads, let.kind)
        scans = tuple(self.scans(clause.body, point))
        found = tuple(self.reads(clause.body, point))
        whole = isinstance(clause.body, ir.Reduce | ir.Normalize)
        return Trace(element, text, survives, value, False, None, scans, found, let.kind, whole)

    def _is_left_out(self, body: ir.Expr, point: Point) -> bool:
        """Whether a normaliser leaves this point out; that of a `log_softmax` is no 0, and masked all the same. In a
        ranking it has a place, the last."""
        if not isinstance(body, ir.Normalize) or body.guard is None or body.op == "rank":
            return False
        return not self.evaluation.value(body.guard, point)

    # -------------------------------------------------------- what is evaluated

    def parts(self, expr: ir.Expr, point: Point) -> Iterator[ir.Expr]:
        """The parts of an expression that its value asks for: one branch, and what `&&` and `||` do not leave out."""
        match expr:
            case ir.Select(condition, then, otherwise):
                yield condition
                yield then if self.evaluation.value(condition, point) else otherwise
            case ir.Map("&&" | "||" as op, (left, right)):
                yield left
                if bool(self.evaluation.value(left, point)) == (op == "&&"):
                    yield right
            case ir.Map("*" | "/") if self.evaluation.is_removed(expr, point):
                return
            case _:
                yield from children(expr)

    def scans(self, expr: ir.Expr, point: Point) -> Iterator[Scan]:
        """The outermost reductions and normalisers of an expression, as far as they were evaluated."""
        if isinstance(expr, ir.Reduce):
            yield self.reduction(expr, point)
        elif isinstance(expr, ir.Normalize):
            yield self.normaliser(expr, point)
        else:
            for child in self.parts(expr, point):
                yield from self.scans(child, point)

    def reads(self, expr: ir.Expr, point: Point) -> Iterator[Element]:
        """The elements that an expression read outside of its reductions and normalisers. Of a product with a masked
        factor that is this factor alone."""
        match expr:
            case ir.Reduce() | ir.Normalize():
                return
            case ir.Map("*" | "/") if self.evaluation.is_removed(expr, point):
                _, element = self.culprit(expr, point, frozenset())
                if element is not None:
                    yield element
            case _:
                if isinstance(expr, ir.Read):
                    yield self.element(expr, point)
                for child in self.parts(expr, point):
                    yield from self.reads(child, point)

    def element(self, expr: ir.Read, point: Point) -> Element:
        return Element(expr.tensor, tuple(self.evaluation.value(index, point) for index in expr.indices))

    def culprit(self, expr: ir.Expr, point: Point, scanned: frozenset[Coordinate]) -> tuple[str, Element | None]:
        """Why a value is removed: the guard of a normaliser, or an element that is masked itself."""
        match expr:
            case ir.Read():
                return f"`{pattern(self, expr, point, scanned)}` is masked", self.element(expr, point)
            case ir.Normalize(guard=guard) if guard is not None:
                return _fails(guard), None
            case ir.Select():
                return self.culprit(list(self.parts(expr, point))[1], point, scanned)
            case _:
                removed = (part for part in children(expr) if self.evaluation.is_removed(part, point))
                return self.culprit(next(removed), point, scanned)

    # ------------------------------------------------------------------ scans

    def reduction(self, expr: ir.Reduce, point: Point) -> Scan:
        names = [range.coordinate for range in expr.ranges]
        everywhere = list(self.evaluation.points(expr.ranges, point, {}))
        kept: list[Point] = []
        excluded, silent = [], []
        decided: str | None = None
        for inner in everywhere:
            place = tuple(inner[name] for name in names)
            if decided is not None:
                silent.append(Silent(place, decided, None))
            elif expr.guard is not None and not self.evaluation.value(expr.guard, inner):
                excluded.append(place)
            elif expr.op == "sum" and self.evaluation.is_removed(expr.body, inner):
                silent.append(Silent(place, *self.culprit(expr.body, inner, frozenset(names))))
            else:
                kept.append(inner)
                if expr.op in ("any", "all") and bool(self.evaluation.value(expr.body, inner)) == (expr.op == "any"):
                    decided = f"it was decided at {', '.join(f'{named(n)} = {inner[n]}' for n in names)}"
        terms = self._terms(expr, kept)
        value = self.evaluation.value(expr, point)
        guard = None if expr.guard is None else shown(expr.guard)
        sentences = tuple(spoken_sum(self, expr, point, kept, terms)) if expr.op == "sum" else ()
        ranges = self._ranges(expr, point, everywhere)
        return Scan(expr.op, shown(expr), ranges, guard, tuple(excluded), tuple(silent), terms, value, False, False,
                    sentences)  # fmt: skip

    def _ranges(self, expr: ir.Reduce, point: Point, everywhere: list[Point]) -> tuple[tuple[str, int, int], ...]:
        """The bounds of each coordinate; of one that depends on others, over all of these."""
        found = []
        for range in expr.ranges:
            steps = {inner[range.coordinate] for inner in everywhere}
            low, high = (min(steps), max(steps) + 1) if steps else (0, 0)
            if not steps and all(c in point for end in (range.lower, range.upper) for c in end.type.coordinates):
                low, high = (self.evaluation.value(end, point) for end in (range.lower, range.upper))
            found.append((named(range.coordinate), low, high))
        return tuple(found)

    def _terms(self, expr: ir.Reduce, kept: list[Point]) -> tuple[Term, ...]:
        names = frozenset(expr.coordinates)
        values = [self.evaluation.value(expr.body, inner) for inner in kept]
        shares = self._shares(values) if expr.op in ("sum", "mean") else None
        running: Any = None
        terms = []
        for number, (inner, value) in enumerate(zip(kept, values, strict=True)):
            running = self._joined(expr.op, running, value)
            place = tuple((named(range.coordinate), inner[range.coordinate]) for range in expr.ranges)
            factors = tuple(self.factors(expr.body, inner, names))
            terms.append(Term(place, factors, value, running, shares and shares[number]))
        return tuple(terms)

    def _joined(self, op: str, running: Any, value: Any) -> Any:
        join: dict[str, Callable[[Any, Any], Any]] = {
            "sum": lambda a, b: a + b,
            "mean": lambda a, b: a + b,
            "prod": lambda a, b: a * b,
            "max": self.numbers.functions["max"],
            "min": self.numbers.functions["min"],
        }
        if op not in join:
            return None
        return value if running is None else join[op](running, value)

    def _shares(self, values: list[Any]) -> list[Any] | None:
        """The part of each term in their sum; None where that is not to be had."""
        if any(isinstance(value, bool) for value in values):
            return None
        try:
            reals = [self.numbers.number(value) for value in values]
            whole = self.numbers.total(reals)
            if not (0 < whole < self.numbers.infinity or 0 > whole > -self.numbers.infinity):
                return None
            return [self.numbers.divide(real, whole) for real in reals]
        except self.unknown:
            return None

    def normaliser(self, expr: ir.Normalize, point: Point) -> Scan:
        name = expr.coordinate
        low, high = self.evaluation.ranges[name]
        running: Any = None
        if expr.op == "cumsum":
            high = point[name] + 1
        outside = expr.guard is not None and not self.evaluation.value(expr.guard, point)
        kept = [step for step in self.evaluation.kept(expr, point) if step < high]
        excluded = tuple((step,) for step in range(low, high) if step not in kept)
        value = self.evaluation.value(expr, point)
        terms = []
        for step in () if outside else kept:
            inner = {**point, name: step}
            score = self.evaluation.value(expr.body, inner)
            if expr.op == "cumsum":
                running = score if running is None else running + score
            share = None if expr.op == "cumsum" else self.evaluation.value(expr, inner)
            factors = tuple(self.factors(expr.body, inner, frozenset((name,))))
            terms.append(Term(((named(name), step),), factors, score, running, share))
        guard = None if expr.guard is None else shown(expr.guard)
        sentences = tuple(spoken_row(self, expr, point, terms)) if expr.op == "softmax" else ()
        return Scan(expr.op, shown(expr), ((named(name), low, high),), guard, excluded, (), tuple(terms), value, True,
                    outside, sentences)  # fmt: skip

    def factors(self, body: ir.Expr, point: Point, scanned: frozenset[Coordinate]) -> Iterator[Factor]:
        """The factors of a product; anything else is one factor, and so is a product that is masked."""
        if isinstance(body, ir.Map) and body.op == "*" and not self.evaluation.is_removed(body, point):
            for argument in body.arguments:
                yield from self.factors(argument, point, scanned)
            return
        element = self.element(body, point) if isinstance(body, ir.Read) else None
        value = self.evaluation.value(body, point)
        reads, scans = tuple(self.reads(body, point)), tuple(self.scans(body, point))
        yield Factor(pattern(self, body, point, scanned), value, element, reads, scans)

    # ------------------------------------------------------------------- text

    def arithmetic(self, element: Element, show: Callable[[Any], str]) -> str:
        """The definition of an element with values for what it reads: `(1·1 + 1·0)/√2`. An element of
        which `show` has only the digits goes by its name."""
        clause, point = clause_at(self.evaluation, self.lets[element.tensor], element.place)
        return written(self, clause.body, point, show)

    def approximate(self, weight: Any) -> float:
        return float(weight)

    def form(self, element: Element) -> str:
        """An element as its definition builds it; nothing where these numbers keep no form."""
        return ""

    def percent(self, weight: Any) -> str:
        """A weight as a percentage."""
        return f"{float(weight) * 100:.3g} %"


def _fails(guard: ir.Expr) -> str:
    return f"`{shown(guard)}` does not hold"


def statement(let: ir.Let, clause: ir.Clause) -> str:
    """The definition as it is, in one line."""
    inside = ", ".join(shown(slot) for slot in clause.slots)
    guard = "" if clause.guard is None else f" where {shown(clause.guard)}"
    begins = [f"`{a.coordinate} = {shown(a.origin)}` of the text is 0 here" for a in let.axes if a.origin is not None]
    behind = f"  ({', '.join(begins)})" if begins else ""
    left = f"{let.name}[{inside}]" if inside else let.name
    return f"{left} = {shown(clause.body)}{guard}{behind}"


def clause_at(evaluation: Evaluation, let: ir.Let, place: tuple[int, ...]) -> tuple[ir.Clause, Point]:
    """The clause that defines a point, and the values of its coordinates; their ranges are then in force."""
    for clause in let.clauses:
        pinned = evaluation.pinned(clause, dict(enumerate(place)))
        found = None if pinned is None else next(evaluation.points(clause.ranges, {}, pinned), None)
        if found is not None:
            return clause, dict(found)
    raise AssertionError(f"no clause of `{let.name}` has the point {place}")
