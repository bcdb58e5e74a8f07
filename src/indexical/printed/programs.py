"""The programs of a page, and the verdicts on the figures that are tied to them."""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from .. import api
from ..diagnostics import CallError, CompileError, Diagnostic, Fix, Label
from ..numbers.causes.cause import Cause
from ..numbers.claims import Cell, Claim
from ..numbers.results import Value
from ..readings import ExactResults, Undecided, exact, verify
from ..records import dataclass, replace
from ..source import Origin, Source, Span
from ..views.markdown import Block
from ..views.plain import QUOTED
from ..views.spellings import Figure, respelled
from ..views.verdicts import ROUNDED, cause_json, cause_lines, show_exact

if TYPE_CHECKING:
    from .tying import Page


@dataclass(frozen=True, slots=True)
class Checked:
    """A figure of a page: its place, the element that it is printed for, the verdict, the exact value, and the cause
    where it fails and has one."""

    span: Span
    reference: str
    verdict: str
    value: Value
    finding: Diagnostic | None
    cause: Cause | None = None

    def to_json(self) -> dict[str, Any]:
        line, column = self.span.source.position(self.span.start)
        cell = self.span.source.name.partition(", cell ")[2]
        return {
            **({"cell": f"cell {cell}"} if cell else {}),
            "line": line,
            "column": column,
            "end_column": column + self.span.end - self.span.start,
            "figure": self.span.text,
            "reference": self.reference,
            "verdict": self.verdict,
            "exact": "masked" if self.value.masked else self.value.canonical(),
            "should_be": None if self.finding is None or self.finding.fix is None else self.finding.fix.replacement,
            "cause": cause_json(self.cause),
        }


@dataclass(frozen=True, slots=True)
class Tied:
    """Figures of one comment and the elements that they are printed for, in their order."""

    figures: tuple[Figure, ...]
    references: tuple[str, ...]
    # What they are together, `weights` or `weights[2, j]`; "" where they are only some of it.
    together: str = ""
    shape: tuple[int, ...] = ()


class Program:
    """A program of a page, compiled and evaluated when a figure first asks for it."""

    def __init__(self, page: Page, block: Block) -> None:
        self.page, self.block = page, block
        self.tied: list[Tied] = []
        self._results: ExactResults | None = None
        self._source: Source | None = None

    @property
    def source(self) -> Source:
        """The text, with its places on the page."""
        if self._source is None:
            self._source = self._read()
        return self._source

    def _read(self) -> Source:
        if self.block.text.strip():
            origin = Origin(self.page.source, self.block.places)
            return Source(self.page.source.name, self.block.text, origin)
        path = self.page.file.parent / self.block.name
        try:
            return Source(str(path), path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            place = Span(self.page.source, self.block.start, self.block.start)
            named = f"names `{self.block.name}`, which cannot be read" if self.block.name else "has no program in it"
            raise CallError([Diagnostic("IX517", f"this block {named}", (Label(place),))]) from None

    @property
    def results(self) -> ExactResults:
        if self._results is None:
            # What is read as printed may be printed on the page alone.
            program = api.compile_source(self.source, despite=frozenset({"IX219"}))
            self._results = exact(program, outputs=program.definitions, **self.inputs(program))
        return self._results

    def inputs(self, program: api.Program) -> dict[str, Any]:
        return {name: value for name, value in self.page.named.items() if name in program.inputs}

    @property
    def names(self) -> list[str]:
        return [*self.results, *(tensor.name for tensor in self.results.evaluated.program.inputs)]

    def origins(self, tensor: str) -> tuple[int, ...]:
        """The number of the first point of each axis, as the program counts."""
        evaluated = self.results.evaluated
        axes = evaluated.program.tensors[tensor].axes
        return tuple(0 if axis.origin is None else int(evaluated.evaluation.value(axis.origin, {})) for axis in axes)

    # ------------------------------------------------------------------ claims

    def judged(self) -> Iterator[Checked]:
        """The figures as claims of the program, each tensor in one where all of it is printed. What is printed as a
        bound is compared."""
        for tied in self.tied:
            for figure, reference in zip(tied.figures, tied.references, strict=True):
                if figure.relation and (figure.relation not in _LENIENT or self.goes_on(figure, reference)):
                    yield self.compared(figure, reference)
        claims = list(self.stated())
        found = self.verified(claims)
        own = len(found) - len(claims)
        self.page.findings += self.failing([claim for claim in found[:own] if claim.verdict == "fails"])
        for (_, pairs), claim in zip(claims, found[own:], strict=True):
            for (figure, reference), cell in zip(pairs, claim.cells, strict=True):
                yield self.checked(figure, reference, claim, cell)

    def stated(self) -> Iterator[tuple[str, list[tuple[Figure, str]]]]:
        """The claims, as they are written below the program, each with its figures."""
        for tied in self.tied:
            pairs = list(zip(tied.figures, tied.references, strict=True))
            plain = all(not figure.relation and "±" not in figure.claim for figure in tied.figures)
            if tied.together and plain:
                claims = _nested([_literal(figure) for figure in tied.figures], tied.shape)
                yield f"expect {tied.together} == {claims};", pairs
                continue
            for figure, reference in pairs:
                if not figure.relation or (figure.relation in _LENIENT and not self.goes_on(figure, reference)):
                    yield f"expect {reference} == {_literal(figure)};", [(figure, reference)]

    def verified(self, claims: list[tuple[str, list[tuple[Figure, str]]]]) -> tuple[Claim, ...]:
        """The verdicts on the claims of the program and on these. An error in one of these is shown at its figure."""
        source = self.source
        text, starts = f"{source.text.rstrip()}\n", []
        for claim, _ in claims:
            starts.append(len(text))
            text += f"{claim}\n"
        origin = source.origin and Origin(source.origin.file, source.origin.places[: len(source.text.rstrip())])
        whole = Source(source.name, text, origin)
        try:
            program = api.compile_source(whole)
            return verify(program, **self.inputs(program)).claims
        except (CompileError, CallError) as problem:
            found = []
            for each in problem.diagnostics:
                labels = []
                for label in each.labels:
                    if label.span.source is whole and starts and label.span.start >= starts[0]:
                        figure = claims[bisect_right(starts, label.span.start) - 1][1][0][0]
                        label = Label(Span(self.page.source, figure.start, figure.end))
                    labels.append(label)
                found.append(replace(each, labels=tuple(dict.fromkeys(labels)), fix=None))
            raise CallError(found) from None

    def goes_on(self, figure: Figure, reference: str) -> bool:
        """Whether `0.666…` has the first digits of a value, or a number that is quoted is below it."""
        assert figure.spelling is not None
        low, unit = Fraction(figure.spelling.number), Fraction(figure.spelling.unit)
        value = self.element(reference)
        if not _is_number(value):
            return False
        try:
            if figure.relation == QUOTED:
                return bool(value > low)
            negative = figure.spelling.number.is_signed()
            return bool(low - unit < value <= low) if negative else bool(low <= value < low + unit)
        except Undecided:
            return False

    def compared(self, figure: Figure, reference: str) -> Checked:
        """A figure that is a bound."""
        value, span = self.element(reference), Span(self.page.source, figure.start, figure.end)
        assert figure.spelling is not None
        bound = Fraction(figure.spelling.number)
        if figure.relation in _LENIENT:
            return Checked(span, reference, "holds", value, None)
        try:
            good = _is_number(value) and bool(_RELATIONS[figure.relation](value, bound))
        except Undecided:
            message = f"it is not known whether `{reference}` is {figure.relation} {span.text}"
            return Checked(span, reference, "undecided", value, Diagnostic("IX516", message, (Label(span),)))
        if good:
            return Checked(span, reference, "holds", value, None)
        shown = show_exact(value, figure.spelling.places)
        message = f"`{reference}` is {shown}, and {figure.relation} {span.text} is printed"
        return Checked(span, reference, "fails", value, Diagnostic("IX516", message, (Label(span),)))

    def element(self, reference: str) -> Value:
        """The exact value of an element, as the program counts its places."""
        name, place = split(reference)
        found = self.results[name]
        if place:
            found = found[tuple(at - first for at, first in zip(place, self.origins(name), strict=True))]
        value: Value = found
        return value

    def failing(self, claims: list[Claim]) -> Iterator[Diagnostic]:
        """Report claims of the program that fail, unless the page says above the block that some do."""
        fails = self.block.start in self.page.failing
        shown = self.page.source if self.source.origin is not None else self.source
        for claim in claims if not fails else []:
            where = shown.line_starts[claim.line - 1]
            place = Span(shown, where, where + len(shown.line(claim.line)))
            help = "if that is what the page is about, put <!-- ix: claims fail --> above the block"
            notes = tuple(line.strip() for line in cause_lines(claim))
            yield Diagnostic("IX516", "a claim of this program fails", (Label(place),), notes, help)
        if fails and not claims:
            place = Span(self.page.source, self.page.failing[self.block.start], self.page.failing[self.block.start] + 4)
            yield Diagnostic("IX517", "this says that claims fail, and none does", (Label(place),))

    def checked(self, figure: Figure, reference: str, claim: Claim, cell: Cell) -> Checked:
        """A figure as it was judged in a claim."""
        span = Span(self.page.source, figure.start, figure.end)
        if cell.verdict == "holds" or (cell.verdict == "rounding" and not self.page.strict):
            return Checked(span, reference, "holds", cell.value, None)
        printed = " ".join(span.text.split())
        if cell.verdict == "undecided":
            message = f"it is not known whether `{reference}`, which is {show_exact(cell.value)}, is {printed}"
            return Checked(span, reference, "undecided", cell.value, Diagnostic("IX516", message, (Label(span),)))
        if self.has_a_comma(figure, cell.value):
            exact = show_exact(cell.value, 3)
            message = f"`{reference}` is {exact}, and {printed} may be that, with a comma for its point"
            finding = Diagnostic("IX516", message, (Label(span),), (), f"write {printed.replace(',', '.')}")
            return Checked(span, reference, "undecided", cell.value, finding)
        should = respelled(figure, cell.value, span.text, figure.start)
        places = None if figure.spelling is None else min(30, max(0, figure.spelling.places - figure.spelling.shift))
        message = f"`{reference}` is {show_exact(cell.value, places)}, and {printed} is printed"
        lines = cause_lines(claim, cell) if cell.verdict == "fails" else [ROUNDED]
        notes = tuple(line.strip() for line in lines)
        help = f"print {should}" if should else None
        fix = Fix(span, should) if should else None
        finding = Diagnostic("IX516", message, (Label(span),), notes, help, fix)
        return Checked(span, reference, "fails", cell.value, finding, cell.cause)

    def has_a_comma(self, figure: Figure, value: Value) -> bool:
        """Whether `1,750`, which is read as 1750, holds as 1.750."""
        spelling = figure.spelling
        if spelling is None or spelling.grouping != "," or spelling.places or spelling.shift or not _is_number(value):
            return False
        number = Fraction(spelling.number) / 1000
        try:
            return bool(abs(spelling.number) < 10**6 and abs(value - number) <= Fraction(1, 2000))
        except Undecided:
            return False


# What may be meant as a plain figure too.
_LENIENT = ("…", QUOTED)
_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "≥": operator.ge, "≤": operator.le,
    # About as much, or more; about as much, or less.
    "≳": operator.ge, "≲": operator.le,
}


def _is_number(value: Value) -> bool:
    return not value.symbols and not isinstance(value.number, bool)


def _literal(figure: Figure) -> str:
    """What a figure claims, with a digit behind each point: libraries print `1.` for 1.0."""
    return re.sub(r"(?<=[0-9])\.(?![0-9])", ".0", figure.claim)


def _nested(claims: list[str], shape: tuple[int, ...]) -> str:
    """Claims as a list of lists."""
    if not shape:
        return claims[0]
    size = len(claims) // shape[0]
    return f"[{', '.join(_nested(claims[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0]))}]"


def split(text: str) -> tuple[str, tuple[int, ...] | None]:
    """`out[2, 0]` as a name and a place; None for a place that is none."""
    name, bracket, rest = text.partition("[")
    parts = [part.strip() for part in rest.rstrip().removesuffix("]").split(",")] if bracket else []
    if not name.strip().isidentifier() or not all(part.isdecimal() and part.isascii() for part in parts):
        return name.strip(), None
    return name.strip(), tuple(map(int, parts))
