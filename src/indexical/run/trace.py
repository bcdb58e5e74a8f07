"""How one number came about: what it scanned, term by term, and where each factor came from.

It watches an evaluation that has been made, of any type of numbers, and computes nothing anew but what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..ir import nodes as ir
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, children, substitute
from .reference import Evaluation
from .wholes import Point

# A sum that is written out has at most so many parts.
LONGEST_SUM = 12
# Of more than that many keys, a sentence names so many.
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a tensor that was read: `weights[2, 0]`."""

    tensor: str
    place: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Factor:
    """A part of a term. `pattern` is how the text writes it; `element` says which one was read, if it is a read."""

    pattern: str
    value: Any
    element: Element | None
    reads: tuple[Element, ...]
    scans: tuple[Scan, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """One point that was scanned."""

    point: tuple[tuple[str, int], ...]
    factors: tuple[Factor, ...]
    value: Any
    running: Any
    share: Any


@dataclass(frozen=True, slots=True)
class Scan:
    """A reduction or a normaliser at one point: the coordinates it runs over, what a guard excluded, its terms.

    `op` is a reduction's or a normaliser's. The terms of a softmax are its scores; their shares are its weights.
    """

    op: str
    text: str
    ranges: tuple[tuple[str, int, int], ...]
    guard: str | None
    excluded: tuple[tuple[int, ...], ...]
    terms: tuple[Term, ...]
    value: Any
    normalises: bool
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A point of a definition, or of an input: its value, what survives, what was scanned. `whole` says that it is
    its one scan, and nothing besides."""

    element: Element
    statement: str
    survives: tuple[tuple[str, int], ...]
    value: Any
    masked: bool
    guard: str | None
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
    """What the terms of a scan read, inner scans included."""
    for term in scan.terms:
        for factor in term.factors:
            yield from factor.reads
            for inner in factor.scans:
                yield from elements_of(inner)


class Tracer:
    """Traces of an evaluation. `spaces` names coordinates in sentences."""

    def __init__(self, program: ir.Program, evaluation: Evaluation) -> None:
        self.program = program
        self.evaluation = evaluation
        self.numbers = evaluation.numbers
        self.lets = {let.name: let for let in program.lets}
        self.inputs = {tensor.name: tensor for tensor in program.inputs}

    def at(self, element: Element) -> Trace:
        """The trace of one element. That of an input is its value."""
        table = self.evaluation.tensors[element.tensor]
        offset = table.offset(element.place)
        cell = table.cells[offset]
        masked = cell is None or offset in table.removed
        value = 0 if cell is None else cell
        if element.tensor in self.inputs:
            tensor = self.inputs[element.tensor]
            names = tuple(str(axis.coordinate) for axis in tensor.axes)
            survives = tuple(zip(names, element.place, strict=True))
            return Trace(element, "", survives, value, False, None, (), (), tensor.kind)
        let = self.lets[element.tensor]
        clause, point = clause_at(self.evaluation, let, element.place)
        survives = tuple((_name(c), step) for c, step in point.items())
        guard = None if clause.guard is None else shown(clause.guard)
        text = statement(let, clause)
        if cell is None:
            return Trace(element, text, survives, value, True, guard, (), (), let.kind)
        scans = tuple(self.scans(clause.body, point))
        reads = tuple(self.reads(clause.body, point))
        whole = isinstance(clause.body, ir.Reduce | ir.Normalize)
        return Trace(element, text, survives, value, masked, guard, scans, reads, let.kind, whole)

    # ------------------------------------------------------------------ scans

    def scans(self, expr: ir.Expr, point: Point) -> Iterator[Scan]:
        """The outermost reductions and normalisers of an expression; of a branch, only the one that was taken."""
        if isinstance(expr, ir.Reduce):
            yield self.reduction(expr, point)
        elif isinstance(expr, ir.Normalize):
            yield self.normaliser(expr, point)
        elif isinstance(expr, ir.Select):
            yield from self.scans(expr.condition, point)
            yield from self.scans(self._taken(expr, point), point)
        elif isinstance(expr, ir.Map) and expr.op in ("*", "/") and self.evaluation.is_removed(expr, point):
            return
        else:
            for child in children(expr):
                yield from self.scans(child, point)

    def _taken(self, expr: ir.Select, point: Point) -> ir.Expr:
        return expr.then if self.evaluation.value(expr.condition, point) else expr.otherwise

    def reduction(self, expr: ir.Reduce, point: Point) -> Scan:
        everywhere = self.evaluation.points(expr.ranges, point, {})
        names = [range.coordinate for range in expr.ranges]
        kept, excluded = [], []
        for inner in everywhere:
            if expr.guard is None or self.evaluation.value(expr.guard, inner):
                kept.append(dict(inner))
            else:
                excluded.append(tuple(inner[name] for name in names))
        ranges = tuple((_name(name), *self.evaluation.ranges.get(name, (0, 0))) for name in names)
        terms = self._terms(expr, kept)
        value = self.evaluation.value(expr, point)
        guard = None if expr.guard is None else shown(expr.guard)
        sentences = tuple(self._sentences(expr, point, kept, terms)) if expr.op == "sum" else ()
        return Scan(expr.op, shown(expr), ranges, guard, tuple(excluded), terms, value, False, sentences)

    def _terms(self, expr: ir.Reduce, kept: list[Point]) -> tuple[Term, ...]:
        names = [range.coordinate for range in expr.ranges]
        values = [self.evaluation.value(expr.body, inner) for inner in kept]
        shares = self._shares(values) if expr.op in ("sum", "mean") and expr.body.type.kind != "bool" else None
        running: Any = None
        terms = []
        for number, (inner, value) in enumerate(zip(kept, values, strict=True)):
            running = value if running is None else self._joined(expr.op, running, value)
            place = tuple((_name(name), inner[name]) for name in names)
            factors = tuple(self.factors(expr.body, inner))
            terms.append(Term(place, factors, value, running, shares and shares[number]))
        return tuple(terms)

    def _joined(self, op: str, running: Any, value: Any) -> Any:
        match op:
            case "sum" | "mean":
                return running + value
            case "prod":
                return running * value
            case "max" | "min":
                return self.numbers.functions[op](running, value)
            case _:
                return None

    def _shares(self, values: list[Any]) -> list[Any] | None:
        """The part of each term in the sum of their sizes; None where that is not to be had."""
        try:
            sizes = [abs(value) for value in values]
            whole = self.numbers.total([self.numbers.number(size) for size in sizes])
            if not whole > 0:
                return None
            return [self.numbers.divide(self.numbers.number(size), whole) for size in sizes]
        except self.unknown:
            return None

    # What a number type raises where a value is not to be had: a symbol, say.
    unknown: tuple[type[Exception], ...] = ()

    def normaliser(self, expr: ir.Normalize, point: Point) -> Scan:
        name = expr.coordinate
        low, high = self.evaluation.ranges[name]
        kept = self.evaluation.kept(expr, point)
        excluded = tuple((step,) for step in range(low, high) if step not in kept)
        terms = []
        running: Any = None
        for step in kept:
            inner = {**point, name: step}
            value = self.evaluation.value(expr.body, inner)
            if expr.op == "cumsum" and step > point[name]:
                break
            running = value if running is None or expr.op != "cumsum" else running + value
            share = None if expr.op == "cumsum" else self.evaluation.value(expr, inner)
            factors = tuple(self.factors(expr.body, inner))
            terms.append(Term(((_name(name), step),), factors, value, running, share))
        guard = None if expr.guard is None else shown(expr.guard)
        value = self.evaluation.value(expr, point)
        ranges = ((_name(name), low, high),)
        return Scan(expr.op, shown(expr), ranges, guard, excluded, tuple(terms), value, True)

    def factors(self, body: ir.Expr, point: Point) -> Iterator[Factor]:
        """The factors of a product; anything else is one factor."""
        if isinstance(body, ir.Map) and body.op == "*":
            for argument in body.arguments:
                yield from self.factors(argument, point)
            return
        element = None
        if isinstance(body, ir.Read):
            element = Element(body.tensor, tuple(self.evaluation.value(index, point) for index in body.indices))
        value = self.evaluation.value(body, point)
        scans = tuple(self.scans(body, point))
        yield Factor(shown(body), value, element, tuple(self.reads(body, point)), scans)

    def reads(self, expr: ir.Expr, point: Point) -> Iterator[Element]:
        """The elements that an expression reads outside of its reductions and normalisers."""
        match expr:
            case ir.Reduce() | ir.Normalize():
                return
            case ir.Select():
                yield from self.reads(expr.condition, point)
                yield from self.reads(self._taken(expr, point), point)
            case ir.Map("*" | "/") if self.evaluation.is_removed(expr, point):
                return
            case ir.Read(tensor, indices):
                yield Element(tensor, tuple(self.evaluation.value(index, point) for index in indices))
                for index in indices:
                    yield from self.reads(index, point)
            case _:
                for child in children(expr):
                    yield from self.reads(child, point)

    # ------------------------------------------------------------- arithmetic

    def arithmetic(self, element: Element, show: Callable[[Any], str]) -> str:
        """The definition of an element with values for what it reads: `(1·1 + 1·0)/√2`."""
        clause, point = clause_at(self.evaluation, self.lets[element.tensor], element.place)
        return self._written(clause.body, point, show, 0)

    def _written(self, expr: ir.Expr, point: Point, show: Callable[[Any], str], level: int) -> str:
        match expr:
            case ir.Reduce("sum", body=body):
                parts = [self._written(body, inner, show, 1) for inner in self.evaluation.scanned(expr, point)]
                some = parts if len(parts) <= LONGEST_SUM else [*parts[: LONGEST_SUM - 1], "…", parts[-1]]
                return _bracketed(" + ".join(some) or "0", len(parts) > 1 and level > 0)
            case ir.Map("+" | "-" as op, (left, right)):
                text = f"{self._written(left, point, show, 0)} {op} {self._written(right, point, show, 1)}"
                return _bracketed(text, level > 0)
            case ir.Map("*" | "/" as op, (left, right)):
                first = self._written(left, point, show, 1)
                return _bracketed(
                    f"{first}{'·' if op == '*' else '/'}{self._written(right, point, show, 2)}", level > 1
                )
            case ir.Map("exp", (operand,)):
                inside = self._written(operand, point, show, 0)
                return f"e^{inside}" if inside.isalnum() else f"e^({inside})"
            case ir.Map(op, arguments) if op.isidentifier() and expr.type.kind == "real" and len(arguments) == 1:
                return f"{op}({self._written(arguments[0], point, show, 0)})"
            case ir.Select():
                return self._written(self._taken(expr, point), point, show, level)
            case _:
                text = show(self.evaluation.value(expr, point))
                return _bracketed(text, level > 0 and (" + " in text or " - " in text or text.startswith("-")))

    # -------------------------------------------------------------- sentences

    def _sentences(self, expr: ir.Reduce, point: Point, kept: list[Point], terms: tuple[Term, ...]) -> Iterator[str]:
        """Who gives how much of its attention to whom, where one factor is seen to be a distribution of it; else what
        part of the sum comes from whom."""
        if len(expr.ranges) != 1 or not kept:
            return
        key = expr.ranges[0].coordinate
        for factor in self._flat(expr.body):
            weights = self._distribution(factor, key, kept)
            if weights is not None:
                asks = sorted(c for c in factor.type.coordinates if c != key and c in point)
                who = " and ".join(f"{_spoken(c)} {point[c]}" for c in asks) or "the one who asks"
                yield f"{who} gives {self._listed(weights, key, kept, 'of its attention to', 'to')}"
                return
        shares = [term.share for term in terms]
        if len(shares) > 1 and all(share is not None for share in shares):
            yield self._listed(shares, key, kept, "of the sum comes from", "from")

    def _distribution(self, factor: ir.Expr, key: Coordinate, kept: list[Point]) -> list[Any] | None:
        """The values of a factor at the keys, if none is negative and they sum to 1."""
        if not isinstance(factor, ir.Read) or key not in factor.type.coordinates or factor.type.kind != "real":
            return None
        try:
            weights = [self.evaluation.value(factor, inner) for inner in kept]
            return weights if all(w >= 0 for w in weights) and self.numbers.total(weights) == 1 else None
        except self.unknown:
            return None

    def _listed(self, weights: list[Any], key: Coordinate, kept: list[Point], first: str, then: str) -> str:
        """`50 % of its attention to position 0, 30 % to position 1`; of many, the largest few."""
        pairs = [(weight, f"{_spoken(key)} {inner[key]}") for weight, inner in zip(weights, kept, strict=True)]
        rest = ""
        if len(pairs) > LONGEST_SUM:
            pairs = sorted(pairs, key=lambda pair: -float(self.approximate(pair[0])))[:MOST_NAMED]
            others = self.numbers.number(1) - self.numbers.total([weight for weight, _ in pairs])
            rest = f", and {self.percent(others)} {then} the other {len(weights) - MOST_NAMED}"
        words = [f"{self.percent(weight)} {then if n else first} {name}" for n, (weight, name) in enumerate(pairs)]
        return ", ".join(words) + rest

    def _flat(self, body: ir.Expr, depth: int = 3) -> list[ir.Expr]:
        """The factors of a product, also of one that has a name of its own."""
        if isinstance(body, ir.Map) and body.op == "*":
            return [factor for argument in body.arguments for factor in self._flat(argument, depth)]
        let = self.lets.get(body.tensor) if isinstance(body, ir.Read) else None
        if let is None or depth == 0 or len(let.clauses) > 1:
            return [body]
        clause = let.clauses[0]
        if clause.guard is not None or not isinstance(clause.body, ir.Map) or clause.body.op != "*":
            return [body]
        slots = [slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord)]
        try:
            inside = substitute(clause.body, dict(zip(slots, body.indices, strict=True)))  # type: ignore[union-attr]
        except Inexpressible:
            return [body]
        return self._flat(inside, depth - 1)

    def approximate(self, weight: Any) -> float:
        return float(weight)

    def form(self, element: Element) -> str:
        """An element as its definition builds it; nothing where these numbers keep no form."""
        return ""

    def percent(self, weight: Any) -> str:
        """A weight as a percentage."""
        return f"{float(weight) * 100:.3g} %"


def _bracketed(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


def _spoken(coordinate: Coordinate) -> str:
    """A coordinate in a sentence: by its space, if it has one."""
    return coordinate.space or _name(coordinate)


def _name(coordinate: Coordinate) -> str:
    return str(coordinate).rstrip("'")


def statement(let: ir.Let, clause: ir.Clause) -> str:
    """The definition as it is, in one line."""
    inside = ", ".join(shown(slot) for slot in clause.slots)
    guard = "" if clause.guard is None else f" where {shown(clause.guard)}"
    return (
        f"{let.name}[{inside}] = {shown(clause.body)}{guard}" if inside else f"{let.name} = {shown(clause.body)}{guard}"
    )


def clause_at(evaluation: Evaluation, let: ir.Let, place: tuple[int, ...]) -> tuple[ir.Clause, Point]:
    """The clause that defines a point, and the values of its coordinates; their ranges are then in force."""
    for clause in let.clauses:
        pinned = evaluation.pinned(clause, dict(enumerate(place)))
        found = None if pinned is None else next(evaluation.points(clause.ranges, {}, pinned), None)
        if found is not None:
            return clause, dict(found)
    raise AssertionError(f"no clause of `{let.name}` has the point {place}")
