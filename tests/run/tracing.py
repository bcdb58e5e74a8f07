"""A trace held against the evaluation that it watches."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import indexical as ix
from indexical.ir import nodes as ir
from indexical.ir.walk import walk
from indexical.numbers.evaluate import Evaluated, explained
from indexical.numbers.results import Value
from indexical.numbers.tower import Number, Special
from indexical.readings import ExactTracer, TraceSheet
from indexical.run.reference import Evaluation, Uncomputed
from indexical.run.trace import Element, Scan, Trace, clause_at
from indexical.run.wholes import Point
from indexical.views.numbers import short


def same(a: Any, b: Any) -> bool:
    """Whether two numbers are one; of infinities, the same, and of symbols, for all values."""
    if isinstance(a, Special) or isinstance(b, Special):
        return a is b
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    try:
        return bool(Value(a) == Value(b))
    except ix.Undecided:
        return True


# --------------------------------------------------------------------- reading


class Watching(Evaluation):
    """An evaluation that says which elements it read, and of which it asked whether they are masked. What guards and
    bounds read is left out."""

    def watch(self, program: ir.Program) -> None:
        self.seen: set[Element] = set()
        self.asked: set[Element] = set()
        self.quiet = 0
        expressions = [clause.body for let in program.lets for clause in let.clauses]
        self.apart: set[int] = set()
        for part in (part for expr in expressions for part in walk(expr)):
            if isinstance(part, ir.Reduce | ir.Normalize) and part.guard is not None:
                self.apart.add(id(part.guard))
            if isinstance(part, ir.Reduce):
                # A scalar that is a bound may stand in the body too, as the size of the coordinate: that is one node.
                ends = (end for range in part.ranges for end in (range.lower, range.upper))
                self.apart |= {id(end) for end in ends if not isinstance(end, ir.Read)}

    def compiled(self, expr: ir.Expr) -> Any:
        stage = super().compiled(expr)
        if id(expr) not in self.apart:
            return stage

        def quietly(point: Point) -> Any:
            self.quiet += 1
            try:
                return stage(point)
            finally:
                self.quiet -= 1

        return quietly

    def read(self, expr: ir.Read, point: Point) -> Any:
        if not self.quiet:
            self.seen.add(self.element(expr, point))
        return super().read(expr, point)

    def is_removed(self, expr: ir.Expr, point: Point) -> bool:
        if isinstance(expr, ir.Read):
            self.asked.add(self.element(expr, point))
        self.quiet += 1
        try:
            return super().is_removed(expr, point)
        finally:
            self.quiet -= 1

    def element(self, expr: ir.Read, point: Point) -> Element:
        return Element(expr.tensor, tuple(self.value(index, point) for index in expr.indices))


def check_reads(evaluated: Evaluated, trace: Trace) -> None:
    """Every source was really read or asked for, and all that was read is a source."""
    watching = Watching(evaluated.program, evaluated.evaluation.tensors, evaluated.evaluation.sizes,
                        evaluated.evaluation.numbers)  # fmt: skip
    watching.watch(evaluated.program)
    let = watching.lets[trace.element.tensor]
    clause, point = clause_at(watching, let, trace.element.place)
    watching.seen.clear()
    watching.value(clause.body, point)
    watching.is_removed(clause.body, point)
    sources = set(trace.sources())
    assert sources <= watching.seen | watching.asked
    if not trace.masked:
        scalars = {element for element in watching.seen if not element.place}
        assert watching.seen - scalars <= sources
    for element in sources:
        table = evaluated.table(element.tensor)
        assert len(element.place) == len(table.shape)
        assert all(0 <= at < size for at, size in zip(element.place, table.shape, strict=True))


# ----------------------------------------------------------------------- scans


def check_scan(evaluated: Evaluated, scan: Scan) -> None:
    """All points are there once; the terms make the value, and each its factors; the shares sum to 1."""
    numbers = evaluated.evaluation.numbers
    places = [tuple(at for _, at in term.point) for term in scan.terms]
    every = [*places, *scan.excluded, *(silent.place for silent in scan.silent)]
    assert len(set(every)) == len(every)
    for place in every:
        assert all(low <= at < high for at, (_, low, high) in zip(place, scan.ranges, strict=True))
    if len(scan.ranges) == 1 and not scan.outside:
        assert sorted(at for (at,) in every) == list(range(*scan.ranges[0][1:]))
    values = [term.value for term in scan.terms]
    for term in scan.terms:
        if len(term.factors) > 1:
            product: Any = 1
            for factor in term.factors:
                product = factor.value * product
            assert same(product, term.value)
        for factor in term.factors:
            for inner in factor.scans:
                check_scan(evaluated, inner)
    shares = [term.share for term in scan.terms]
    if scan.op in ("sum", "mean") and shares and shares[0] is not None:
        assert same(numbers.total(shares), 1)
    if scan.terms and scan.op in ("sum", "prod", "max", "min", "cumsum"):
        assert same(scan.terms[-1].running, scan.value)
        assert same(scan.terms[0].running, values[0])
    match scan.op:
        case "mean" if values:
            assert same(scan.value, numbers.divide(numbers.number(scan.terms[-1].running), len(values)))
        case "any":
            assert scan.value is any(values)
        case "all":
            assert scan.value is all(values)
        case "argmax" | "argmin" if values:
            best = [term.value for term in scan.terms if term.point[0][1] == scan.value]
            assert same(best[0], (numbers.functions["max" if scan.op == "argmax" else "min"])(*values, values[0]))
        case "softmax" if shares and not any(isinstance(share, Special) for share in shares):
            assert same(numbers.total(shares), 1)


# ------------------------------------------------------------------ arithmetic


def number(value: Any) -> float:
    return float(value) if not isinstance(value, Number) else float(Value(value))


FUNCTIONS = {
    "pi": math.pi,
    "sqrt": math.sqrt,
    "log": math.log,
    "tanh": math.tanh,
    "sin": math.sin,
    "cos": math.cos,
    "erf": math.erf,
    "floor": math.floor,
    "ceil": math.ceil,
    "abs": abs,
    "max": max,
    "min": min,
    "round": round,
    "e": math.e,
    "π": math.pi,
    "exp": math.exp,
    "relu": lambda x: max(x, 0.0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "clamp": lambda x, low, high: min(max(x, low), high),
}


def worked(text: str, evaluated: Evaluated) -> float:
    """The number that an arithmetic text comes to."""

    def element(found: re.Match[str]) -> str:
        place = tuple(int(at) for at in found[2].split(","))
        table = evaluated.table(found[1])
        return f"({number(table.cells[table.offset(place)])!r})"

    text = re.sub(r"(\w+)\[([\d, ]+)\]", element, text)
    text = re.sub(r"√(\d+)", r"√(\1)", text.replace("≈ ", ""))
    text = re.sub(r"(?<=\d)√", "*√", text).replace("√", "sqrt")
    return float(eval(text.replace("·", "*").replace("^", "**"), {"__builtins__": {}}, FUNCTIONS))


def check_arithmetic(tracer: ExactTracer, trace: Trace) -> None:
    """What is written out comes to the value."""
    if trace.kind == "bool" or isinstance(trace.value, Special):
        return
    text = tracer.arithmetic(trace.element, short)
    if any(step in text for step in ("floor", "ceil", "round")):
        return  # These may fall on the other side by the last digit of a float.
    if "…" in text or "∞" in text or "undefined" in text or getattr(trace.value, "symbols", ()):
        return
    found, true = worked(text, tracer.evaluated), number(trace.value)
    assert math.isclose(found, true, rel_tol=1e-2 if "≈" in text else 1e-9, abs_tol=1e-9), text


def check(evaluated: Evaluated, element: Element) -> Trace:
    """Everything about one trace; that it prints, too."""
    tracer = ExactTracer(evaluated)
    with explained():
        trace = tracer.at(element)
        table = evaluated.table(element.tensor)
        offset = table.offset(element.place)
        assert same(trace.value, 0 if table.cells[offset] is None else table.cells[offset])
        assert trace.masked is evaluated.is_masked(element.tensor, offset)
        if trace.masked:
            assert trace.why
            assert trace.why.endswith(("does not hold", "is masked"))
            assert not trace.scans
        for scan in trace.scans:
            check_scan(evaluated, scan)
        if trace.whole:
            assert same(trace.scans[0].value, trace.value)
        if table.cells[offset] is not None:
            check_reads(evaluated, trace)
        if not trace.masked:
            check_arithmetic(tracer, trace)
    sheet = TraceSheet(evaluated, element, 2)
    assert str(element) in str(sheet)
    found = json.loads(json.dumps(sheet.to_json()))
    linked = {source for entry in found["elements"].values() for source in entry["reads"]}
    assert linked <= found["elements"].keys() | set(found["left_out"])
    return trace


def elements(evaluated: Evaluated, most: int) -> Iterator[Element]:
    """So many points of every definition, spread over it."""
    for let in evaluated.computed():
        table = evaluated.table(let.name)
        for offset in range(0, len(table.cells), max(1, len(table.cells) // most)):
            if table.cells[offset] is not Uncomputed:
                yield Element(let.name, table.place(offset))
