"""A lesson made of a program: its steps in the order of a person, its figures, and questions about them.

Every figure is taken from the exact values of the program that stands in the lesson, and is tied to it by a comment, so
that `ix verify` can check the page again after somebody has written in it.
"""

from __future__ import annotations

import itertools
import math
import os
import textwrap
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from .api import Program, compile, compile_source
from .diagnostics import CallError, Diagnostic, Label, Sink
from .ir import nodes as ir
from .ir.text import shown
from .ir.walk import children
from .numbers.evaluate import evaluate
from .numbers.results import Tensor, Value
from .numbers.steps import Step, figures, steps
from .numbers.tower import Number, Special
from .readings import ExactResults, ExactTracer
from .run.jax_arrays import to_numpy as array_of
from .run.tensors import to_numpy
from .run.trace import Element, Trace
from .saving import write_file
from .source import Source
from .syntax import tree
from .syntax.parse import parse
from .views.numbers import length, short, terminating
from .views.source import laid_out
from .views.trace import LONGEST_LINE, LONGEST_NUMBER

# A table has at most so many rows and columns, and a tensor so many tables.
WIDEST, MOST_TABLES = 9, 4
# The numbers of all inputs together: what nobody can follow by hand is no lesson.
MOST_NUMBERS = 400
# Nor does it take longer than a few seconds.
MOST_TERMS = 500_000
# Digits behind the point of what has no short form.
PLACES = 3


class Lesson:
    """A lesson in Markdown. `ix show` makes a live page of it, and `ix verify` checks its figures."""

    def __init__(self, title: str, text: str) -> None:
        self.title, self.text = title, text

    def __str__(self) -> str:
        return self.text

    def save(self, path: str | os.PathLike[str]) -> Path:
        target = Path(path)
        write_file(target, self.text)
        return target

    def __repr__(self) -> str:
        return f"<indexical lesson `{self.title}`, {len(self.text.splitlines())} lines; .save(PATH) writes it>"


def lesson(
    program: Program | str | os.PathLike[str], /, *arrays: Any, title: str | None = None, **named: Any
) -> Lesson:
    """A lesson on a program with these inputs: what is given, the steps with their figures, questions.

    Inputs are written into the program as they are, floats with as many digits as tell them apart.
    """
    found = program if isinstance(program, Program) else compile(program)
    given = found.arguments(arrays, named)
    text = laid_out(with_figures(found, given))
    name = Path(found.ir.source.name).stem if found.ir.source.name.endswith(".ix") else "program"
    filled = compile_source(Source(f"{name}.ix", text))
    results = ExactResults(evaluate(filled.ir, {}, {}, filled.definitions, terms=MOST_TERMS))
    heading = title or name.replace("_", " ").capitalize()
    return Lesson(heading, _Writer(heading, f"{name}.ix", text, filled, results).page())


# ------------------------------------------------------------------------- inputs


def with_figures(program: Program, given: Mapping[str, Any]) -> str:
    """The text of a program with each input as a definition by figures."""
    source = program.ir.source
    kinds = {tensor.name: tensor for tensor in program.ir.inputs}
    pieces, at = [], 0
    total = 0
    for statement in parse(source, Sink()).statements:
        if not isinstance(statement, tree.Input):
            continue
        lines = []
        for item in statement.items:
            tensor = kinds[item.name]
            array = np.asarray(array_of(to_numpy(given[item.name])))
            total += array.size
            _check(tensor, array, total)
            home = source.text[item.name_span.start : item.span.end].partition(":")[0].strip()
            lines.append(f"let {home} = {_literal(array, tensor.kind == 'real')};")
        pieces += [source.text[at : statement.span.start], "\n".join(lines)]
        at = statement.span.end
    return "".join([*pieces, source.text[at:]]).strip() + "\n"


def _check(tensor: ir.Input, array: np.ndarray[Any, Any], total: int) -> None:
    """Refuse an input that cannot stand in a lesson."""
    message, help = "", None
    if tensor.axes and tensor.axes[0].coordinate.rest:
        message, help = f"`{tensor.name}` has axes without names, `..r`", "name them: a lesson speaks of coordinates"
    elif array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        message, help = f"`{tensor.name}` has something in it that is no number", "a lesson needs finite numbers"
    elif array.ndim != len(tensor.axes):
        message = f"`{tensor.name}` has {len(tensor.axes)} axes, and {array.ndim} were given"
    elif total > MOST_NUMBERS:
        message, help = f"these inputs have more than {MOST_NUMBERS} numbers", "choose a smaller example"
    elif array.size == 0:
        message, help = f"`{tensor.name}` has no points", "a lesson needs some"
    if message:
        raise CallError([Diagnostic("IX515", message, (Label(tensor.span),), help=help)])


def _literal(array: np.ndarray[Any, Any], real: bool) -> str:
    if array.ndim:
        return f"[{', '.join(_literal(part, real) for part in array)}]"
    value = array.item()
    if isinstance(value, bool):
        return str(value).lower()
    if not real:
        return str(int(value))
    if isinstance(value, int):
        return f"{value}.0"
    number: Any = array[()]
    text = np.format_float_positional(number, unique=True, trim="0")
    return text if len(text) <= 24 else np.format_float_scientific(number, unique=True, trim="0")


# -------------------------------------------------------------------------- prose


class _Writer:
    """Writes a lesson, part by part."""

    def __init__(self, title: str, name: str, text: str, program: Program, results: ExactResults) -> None:
        self.title, self.name, self.text = title, name, text
        self.program, self.results = program, results
        self.evaluated = results.evaluated
        self.tracer = ExactTracer(self.evaluated)
        self.steps = steps(self.evaluated)
        known = figures(program.ir)
        self.given = [let.name for let in self.evaluated.computed() if let.name in known and not let.hidden]
        self.said: set[str] = set()
        self.lets = program.ir.definitions

    def page(self) -> str:
        parts = [f"# {self.title}", self.opening(), self.block(), *self.givens()]
        for step in self.steps:
            parts += self.step(step)
        parts += self.end()
        return "\n\n".join(part for part in parts if part) + "\n"

    def opening(self) -> str:
        outputs = [name for name in self.program.outputs if name not in self.given]
        many = {1: "One step leads", 2: "Two steps lead", 3: "Three steps lead", 4: "Four steps lead"}
        count = many.get(len(self.steps), f"{len(self.steps)} steps lead")
        source = f"from {_listed(self.given)} " if self.given else ""
        return _filled(
            f"{count} {source}to {_listed(outputs)}. Each number can be worked out with pencil and paper. Read a step, "
            "answer its question, then look."
        )

    def block(self) -> str:
        last = self.steps[-1].name if self.steps else self.given[-1]
        place = self.chosen(last)
        opens = "" if place is None else f" #cell={str(Element(last, place)).replace(' ', '')}"
        fence = "```"
        return f"{fence}ix {self.name}{opens}\n{self.text}{fence}"

    def givens(self) -> list[str]:
        if not self.given:
            return []
        parts = ["## What is given"]
        for name in self.given:
            axes = self.results.tensor(name).coordinates
            if axes:
                parts += [f"`{name}` has a number for every {_every(axes)}:", *self.tables(name)]
            else:
                parts.append(f"`{name}` is {_cell(self.results[name])}{self.tied(name)}.")
        return parts

    # -------------------------------------------------------------------- steps

    def step(self, step: Step) -> list[str]:
        let = self.lets[step.name]
        parts = [f"## Step {step.number}: {step.name}"]
        parts.append("\n".join(f"    {statement}" for statement in step.statements))
        parts.append(_filled(" ".join(self.told(step, let))))
        if self.results.tensor(step.name).shape:
            parts += self.tables(step.name)
        place = self.chosen(step.name)
        if place is not None:
            parts.append(self.worked(Element(step.name, place)))
        parts += self.questions(let, place)
        return parts

    def told(self, step: Step, let: ir.Let) -> Iterator[str]:
        """A few sentences about a step."""
        clause = let.clauses[-1]
        body = clause.body
        axes = self.results.tensor(step.name).coordinates
        for_each = f"For every {_every(axes)}, " if axes else ""
        normaliser = next((part for part in _outer(body) if isinstance(part, ir.Normalize)), None)
        if step.name in self.program.ir.recurrent:
            along = next((axes[n] for n in self._running(step.name)), axes[0] if axes else "")
            yield f"Every `{along}` is made of the one before it, so this goes one after the other, from the first on."
        if normaliser is not None and normaliser.op == "softmax":
            over = normaliser.coordinate
            yield "Softmax turns scores into shares: e is raised to each, and what comes out is divided by its sum"
            yield f"over `{over}`."
            yield f"So the shares over `{over}` sum to 1, and a larger score gets a larger share."
            if normaliser.guard is not None:
                yield f"Only points {_where(normaliser.guard)} take part: the others are masked, which is not 0 but"
                yield "nothing at all."
        else:
            sums = [part for part in _outer(body) if isinstance(part, ir.Reduce)]
            yield _capital(f"{for_each}{_acts(sums, body)}.")
            consumed = list(dict.fromkeys(_plain(range) for part in sums for range in part.ranges))
            if consumed:
                yield f"{_listed(consumed)} {'is' if len(consumed) == 1 else 'are'} gone afterwards."
        if clause.guard is not None:
            yield f"There is a number only {_where(clause.guard)}."
        if step.reads:
            yield f"It reads {_listed(list(step.reads))}."

    def _running(self, name: str) -> list[int]:
        """The axes along which a recurrence runs."""
        orders = [order for order in self.program.ir.order if isinstance(order, ir.Stepwise)]
        return [axis for order in orders for tensor, axis in order.axes if tensor == name]

    def tied(self, name: str) -> str:
        """The comment behind a figure; none behind what is no number."""
        odd = isinstance(self.results[name].number, bool | Special)
        return "" if odd else f" <!-- ix: {name} -->"

    def worked(self, element: Element) -> str:
        """One element with its arithmetic, and what a sum of weights says in words; of a long one, its digits."""
        value = self.value(element)
        text, near = _shown(value)
        if _is_long(value):
            return f"`{element}` ≈ {text} <!-- ix: {element} -->: too long to be written out."
        trace: Trace = self.tracer.at(element)
        working = self.tracer.arithmetic(element, short)
        if "≈" in working or working in ("", str(element), short(value.number)) or len(working) > LONGEST_LINE:
            working = str(value) if len(str(value)) <= 80 and str(value) != text else ""
            working = f"`{working}`" if working else ""
        equal = "≈" if near else "="
        line = f"Take `{element}`: {working} {equal} {text}" if working else f"`{element}` {equal} {text}"
        line += f" <!-- ix: {element} -->."
        sums = [scan for scan in trace.scans if trace.whole and scan.op == "sum"]
        sentences = [f"{_capital(words)}." for scan in sums for words in scan.sentences if words not in self.said]
        self.said.update(words for scan in sums for words in scan.sentences)
        return f"{_filled(line)}\n\n> {sentences[0]}" if sentences else _filled(line)

    # ---------------------------------------------------------------- questions

    def questions(self, let: ir.Let, taken: tuple[int, ...] | None) -> Iterator[str]:
        """A number to work out, other than the one that was, and what can be asked of its rows."""
        other = next((place for place in self.places(let.name) if place != taken), None)
        if other is not None:
            element = Element(let.name, other)
            value = self.value(element)
            long = _shown(value)[1]
            ask = f"To {_NUMERALS[PLACES]} places, what is `{element}`?" if long else f"What is `{element}`?"
            yield _question(ask, f"answer: {element}", f"places: {PLACES}" if long else "")
        if let.name in self.program.ir.recurrent:
            ask = f"Somebody changes a number that the first element of `{let.name}` is made of. What else moves?"
            yield _question(ask, "reveal: Whatever comes after it may move: each one is made of the one before.")
        masked = self.masked(let.name)
        if masked is not None:
            why = self.tracer.at(masked).why or "a guard removed it"
            reveal = f"reveal: {_capital(why)}. It is masked, and not 0."
            yield _question(f"Why is there no number at `{masked}`?", reveal)
        weights = next((part for part in _outer(let.clauses[-1].body) if isinstance(part, ir.Normalize)), None)
        if weights is not None and weights.op == "softmax":
            ask = f"What do the numbers of `{let.name}` sum to over `{weights.coordinate}`?"
            yield _question(ask, "reveal: To 1, exactly. Rounded to a few places they may miss it by a little.")
        elif taken is not None:
            yield from self.largest(Element(let.name, taken))

    def largest(self, element: Element) -> Iterator[str]:
        """Ask which term of a sum is the largest, where one is."""
        if _is_long(self.value(element)):
            return
        trace: Trace = self.tracer.at(element)
        terms = trace.scans[0].terms if trace.whole and trace.scans[0].op == "sum" else ()
        values = [Value(term.value) for term in terms]
        if len(values) < 3 or any(value.symbols or not value > 0 for value in values):
            return
        first = max(range(len(values)), key=lambda n: float(values[n]))
        text, near = _shown(values[first])
        if sum(value == values[first] for value in values) == 1:
            point = ", ".join(f"{name} = {at}" for name, at in terms[first].point)
            ask = f"Which term adds the most to `{element}`?"
            yield _question(ask, f"reveal: That at `{point}`: it adds {'about ' if near else ''}{text}.")

    def end(self) -> list[str]:
        outputs = [name for name in self.program.outputs if name not in self.given]
        if not outputs or not self.steps:
            return []
        said = f"That is {_listed(outputs)}. Change a number that is given, and see which of these figures move."
        return ["## Look back", said]

    # ------------------------------------------------------------------- values

    def value(self, element: Element) -> Value:
        found = self.results[element.tensor]
        value: Value = found[element.place] if element.place else found
        return value

    def places(self, name: str) -> Iterator[tuple[int, ...]]:
        """The places of a definition that have a number that can be asked for, the last first."""
        shape = self.results.tensor(name).shape
        for place in itertools.product(*(reversed(range(int(size))) for size in shape)):
            value = self.value(Element(name, place))
            if not value.masked and not isinstance(value.number, bool | Special):
                yield place

    def chosen(self, name: str) -> tuple[int, ...] | None:
        """The last place with a number that is not 0."""
        places = list(itertools.islice(self.places(name), 60))
        values = {place: self.value(Element(name, place)) for place in places}
        return next((p for p, value in values.items() if _is_long(value) or value != 0), places[0] if places else None)

    def masked(self, name: str) -> Element | None:
        shape = self.results.tensor(name).shape
        places = itertools.product(*(range(int(size)) for size in shape))
        return next((Element(name, p) for p in places if self.value(Element(name, p)).masked), None)

    def tables(self, name: str) -> Iterator[str]:
        """The numbers of a tensor, each table under a comment that names it."""
        tensor = self.results.tensor(name)
        shape = tuple(map(int, tensor.shape))
        values = list(tensor.values()) if shape else [self.results[name]]
        odd = any(isinstance(value.number, bool | Special) for value in values)
        if max(shape[-2:], default=0) > WIDEST or math.prod(shape[:-2]) > MOST_TABLES:
            yield f"({' × '.join(map(str, shape))} numbers: the page above has them all.)"
            return
        for lead in itertools.product(*(range(size) for size in shape[:-2])):
            part: Any = tensor[lead] if lead else tensor
            if lead:
                yield f"{', '.join(f'{c} = {n}' for c, n in zip(tensor.coordinates, lead, strict=False))}:"
            reference = f"{name}[{', '.join(map(str, lead))}]" if lead else name
            mark = [] if odd else [f"<!-- ix: {reference} -->"]
            yield "\n".join([*mark, *_table(part, tensor.coordinates[len(lead) :], shape[len(lead) :])])


_NUMERALS = {1: "one", 2: "two", 3: "three", 4: "four"}


def _table(part: Any, axes: tuple[str, ...], shape: tuple[int, ...]) -> list[str]:
    """A table in Markdown; the corner names the two coordinates."""
    if not shape:
        return ["| value |", "| --- |", f"| {_cell(part.item() if isinstance(part, Tensor) else part)} |"]
    if len(shape) == 1:
        rows = [[_cell(value) for value in part]]
        heads, labels = [f"{axes[0]} = {n}" for n in range(shape[0])], [""]
    else:
        rows = [[_cell(value) for value in row] for row in part]
        heads = [f"{axes[1]} = {n}" for n in range(shape[1])]
        labels = [f"{axes[0]} = {n}" for n in range(shape[0])]
    lead = [] if len(shape) == 1 else [""]
    lines = [[*lead, *heads], ["---"] * len([*lead, *heads])]
    lines += [[*([label] if lead else []), *row] for label, row in zip(labels, rows, strict=True)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(value: Value) -> str:
    if value.masked:
        return "masked"
    if isinstance(value.number, bool | Special):
        return str(value)
    return _shown(value)[0]


def _shown(value: Value) -> tuple[str, bool]:
    """A number as it is printed, and whether digits were left out."""
    number = value.number
    if not isinstance(number, Number):
        exactly = terminating(Fraction(number), PLACES + 1)
        if exactly is not None:
            return exactly, False
    digits = Decimal(value.decimal(18))
    places = PLACES if abs(digits) >= Decimal("0.01") or not digits else PLACES - digits.adjusted() - 1
    return f"{digits.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN):f}", True


def _is_long(value: Value) -> bool:
    """Whether the exact form is longer than anybody would read, and arithmetic with it slow."""
    return length(value.number, LONGEST_NUMBER) > LONGEST_NUMBER


def _question(prompt: str, *lines: str) -> str:
    inside = [textwrap.fill(prompt, 118), *(textwrap.fill(line, 118) for line in lines if line)]
    return "\n".join(["```question", *inside, "```"])


def _outer(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The reductions and normalisers that a value is made of, the outermost first."""
    if isinstance(expr, ir.Reduce | ir.Normalize):
        yield expr
    for child in children(expr):
        yield from _outer(child)


_DEEDS = {
    "sum": "add up",
    "mean": "take the mean of",
    "prod": "multiply together",
    "max": "take the largest of",
    "min": "take the smallest of",
    "argmax": "find the place of the largest of",
    "argmin": "find the place of the smallest of",
    "any": "ask whether any is true of",
    "all": "ask whether all are true of",
}


def _acts(sums: list[ir.Reduce], body: ir.Expr) -> str:
    """The verb for a definition, and the coordinates that it runs over."""
    if not sums:
        return f"{'take' if isinstance(body, ir.Read) else 'work out'} `{shown(body)}`"
    first = sums[0]
    over = " and ".join(f"`{_plain(range)}`" for range in first.ranges)
    where = f", {_where(first.guard)}" if first.guard is not None else ""
    match first.body:
        case ir.Map("*", (left, right)) if first.op == "sum":
            act = f"multiply `{shown(left)}` by `{shown(right)}`, and add up over {over}{where}"
        case inner:
            act = f"{_DEEDS[first.op]} `{shown(inner)}` over {over}{where}"
    match body:
        case _ if body is first:
            return act
        case ir.Map("/", (left, right)) if left is first:
            return f"{act}; then divide by `{shown(right)}`"
        case ir.Map("*", (left, right)) if left is first or right is first:
            return f"{act}; then multiply by `{shown(right if left is first else left)}`"
        case _:
            return f"{act}; from that comes `{shown(body)}`"


def _plain(range: ir.Range) -> str:
    """The name of a coordinate that is bound inside, as the text has it."""
    return str(range.coordinate).rstrip("'")


def _where(guard: ir.Expr) -> str:
    return f"where `{shown(guard)}`"


def _every(axes: tuple[str, ...]) -> str:
    return " and every ".join(f"`{axis}`" for axis in axes)


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}" if quoted else ""


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}" if text else text


def _filled(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)
