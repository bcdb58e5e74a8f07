"""Figures on Markdown pages, held against the programs that stand there."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

from .api import Program, compile_source
from .checker.names import counted, suggest
from .diagnostics import CallError, CompileError, Diagnostic, Fix, Label, render
from .numbers.results import Value
from .readings import ExactResults, exact, verify
from .records import dataclass
from .source import Source, Span
from .views.fragment import Sheet
from .views.markdown import (
    Block,
    Cell,
    Figure,
    Mark,
    Misspelt,
    Unclosed,
    figure_after,
    figure_in,
    figures_before,
    read_page,
)
from .views.verdicts import show_exact


@dataclass(frozen=True, slots=True)
class Checked:
    """A figure of a page: its place, the element that it is printed for, the verdict, and the exact value."""

    span: Span
    reference: str
    verdict: str
    value: Value
    finding: Diagnostic | None

    def to_json(self) -> dict[str, Any]:
        line, column = self.span.source.position(self.span.start)
        return {
            "line": line,
            "column": column,
            "end_column": column + self.span.end - self.span.start,
            "figure": self.span.text,
            "reference": self.reference,
            "verdict": self.verdict,
            "exact": "masked" if self.value.masked else self.value.canonical(),
            "should_be": None if self.finding is None or self.finding.fix is None else self.finding.fix.replacement,
        }


class PageVerification(Sheet):
    """The verdict on every figure of a page that a comment ties to a program. It is true where all hold."""

    def __init__(self, file: str, figures: tuple[Checked, ...], findings: tuple[Diagnostic, ...]) -> None:
        self.file, self.figures, self.findings = file, figures, findings

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything that is wrong: comments that name nothing, claims of programs, then figures, in their order."""
        return (*self.findings, *(figure.finding for figure in self.figures if figure.finding is not None))

    def __bool__(self) -> bool:
        return not self.diagnostics

    def __str__(self) -> str:
        return "\n\n".join([*map(render, self.diagnostics), self.summary])

    @property
    def summary(self) -> str:
        if not self.figures and not self.findings:
            return f"{self.file}: no figure is tied to a program; a comment does: <!-- ix: out[0, 1] -->"
        failing = sum(figure.finding is not None for figure in self.figures)
        good = len(self.figures) - failing
        parts = [f"{good} {'holds' if good == 1 else 'hold'}"] if good else []
        parts += [f"{failing} {'does' if failing == 1 else 'do'} not"] if failing else []
        parts += [f"{counted(len(self.findings), 'other finding')}"] if self.findings else []
        return f"{self.file}: {counted(len(self.figures), 'figure')}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "holds": bool(self),
            "figures": [figure.to_json() for figure in self.figures],
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
        }


def verify_page(path: str | os.PathLike[str], /, strict: bool = False, **named: Any) -> PageVerification:
    """Every figure of a Markdown page that a comment ties to a program of the page, checked as `expect` would be.

    `named` are inputs that programs of the page leave open; with `strict`, what rounding explains fails too.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise CallError([Diagnostic("IX108", f"`{file}` cannot be read: {reason}")]) from None
    return _Page(file, Source(str(file), text), named, strict).verified()


class _Program:
    """A program of a page, compiled and evaluated when a figure first asks for it."""

    def __init__(self, page: _Page, block: Block) -> None:
        self.page, self.block = page, block
        self.claims: list[tuple[Figure, str, Span]] = []
        self._results: ExactResults | None = None

    @property
    def source(self) -> Source:
        """The text at its lines of the page, so that what is found in it points there."""
        if self.block.text.strip():
            return Source(str(self.page.file), "\n" * (self.block.line - 1) + self.block.text)
        path = self.page.file.parent / self.block.name
        try:
            return Source(str(path), path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError):
            place = Span(self.page.source, self.block.start, self.block.start)
            message = f"this block names `{self.block.name}`, which cannot be read"
            raise CallError([Diagnostic("IX517", message, (Label(place),))]) from None

    @property
    def results(self) -> ExactResults:
        if self._results is None:
            program = compile_source(self.source)
            self._results = exact(program, outputs=program.definitions, **self.inputs(program))
        return self._results

    def inputs(self, program: Program) -> dict[str, Any]:
        return {name: value for name, value in self.page.named.items() if name in program.inputs}

    @property
    def names(self) -> list[str]:
        return [*self.results, *(tensor.name for tensor in self.results.evaluated.program.inputs)]

    def judged(self) -> Iterator[Checked]:
        """The claims of figures, as `expect` states them, and exact forms by equality."""
        source = self.source
        lines = [source.text.rstrip("\n")]
        for number, (figure, reference, _) in enumerate(self.claims):
            lines.append(f"let ix_form_{number} = {figure.claim};" if figure.exact else
                         f"expect {reference} == {figure.claim};")  # fmt: skip
        program = compile_source(Source(source.name, "\n".join(lines) + "\n"))
        inputs = self.inputs(program)
        claims = verify(program, **inputs).claims
        own = len(claims) - sum(not figure.exact for figure, _, _ in self.claims)
        self.page.findings += self.failing(source, [claim.line for claim in claims[:own] if claim.verdict == "fails"])
        left = iter(claims[own:])
        for number, (figure, reference, span) in enumerate(self.claims):
            if figure.exact:
                element = _element(self.results, reference)
                whole = exact(program, outputs=f"ix_form_{number}", **inputs)
                yield self.page.checked(figure, reference, span, element, element == whole[f"ix_form_{number}"])
                continue
            (cell,) = next(left).cells
            good = cell.verdict == "holds" or (cell.verdict == "rounding" and not self.page.strict)
            yield self.page.checked(figure, reference, span, cell.value, good)

    def failing(self, source: Source, lines: list[int]) -> Iterator[Diagnostic]:
        """Report claims of the program that fail, unless the page says above the block that some do."""
        fails = self.block.start in self.page.failing
        for line in lines if not fails else []:
            where = source.line_starts[line - 1]
            place = Span(source, where, where + len(source.line(line)))
            help = "if that is what the page is about, put <!-- ix: claims fail --> above the block"
            yield Diagnostic("IX516", "a claim of this program fails", (Label(place),), help=help)
        if fails and not lines:
            place = Span(self.page.source, self.page.failing[self.block.start], self.page.failing[self.block.start] + 4)
            yield Diagnostic("IX517", "this says that claims fail, and none does", (Label(place),))


class _Page:
    """A page that is verified."""

    def __init__(self, file: Path, source: Source, named: Mapping[str, Any], strict: bool) -> None:
        self.file, self.source, self.named, self.strict = file, source, named, strict
        self.findings: list[Diagnostic] = []
        try:
            blocks, self.marks = read_page(source.text)
        except Unclosed as problem:
            place = Span(source, problem.start, source.text.find("\n", problem.start))
            raise CallError([Diagnostic("IX517", "this block is not closed", (Label(place),))]) from None
        except Misspelt as problem:
            place = Span(source, problem.start, problem.end)
            raise CallError([Diagnostic("IX517", str(problem), (Label(place),))]) from None
        self.programs = [_Program(self, block) for block in blocks]
        # Blocks whose claims may fail, by their start: those under such a comment.
        said = [mark.start for mark in self.marks if [name.text for name in mark.names] == ["claims fail"]]
        after = {at: next((block.start for block in blocks if block.start > at), None) for at in said}
        self.failing = {block: at for at, block in after.items() if block is not None}
        self.marks = [mark for mark in self.marks if mark.start not in said]

    def verified(self) -> PageVerification:
        for mark in self.marks:
            try:
                self.claim(mark)
            except _Wrong as problem:
                self.findings.append(problem.diagnostic)
            except (CompileError, CallError) as problem:
                self.findings += [found for found in problem.diagnostics if found not in self.findings]
        figures: list[Checked] = []
        for program in self.programs:
            if program.claims:
                figures += program.judged()
        figures.sort(key=lambda figure: figure.span.start)
        return PageVerification(str(self.file), tuple(figures), tuple(self.findings))

    def claim(self, mark: Mark) -> None:
        """Tie the figures of a comment to elements."""
        if not mark.names:
            raise self.wrong(Cell(" ", mark.start), "this comment names no element", "write <!-- ix: out[0, 1] -->")
        if mark.table:
            self.claim_table(mark)
            return
        if len(mark.names) > 1:
            raise self.wrong(mark.names[1], "beside a figure a comment names one element, or one row", None)
        program = self.program_of(mark, mark.names[0])
        elements = list(self.elements(program, mark.names[0]))
        found = figures_before(mark.before, len(elements))
        if not found and len(elements) == 1:
            found = figure_after(mark.after)
        if len(found) != len(elements):
            several = "a figure" if len(elements) == 1 else f"{len(elements)} figures"
            stands = f"{counted(len(found), 'figure')} stand" if found else "none stands"
            message = f"`{mark.names[0].text}` is {several}, and {stands} beside this comment"
            help = "put it right behind the figure, 0.58 <!-- ix: weights[2, 2] -->, or on a line above a table"
            raise self.wrong(mark.names[0], message, help)
        self.add(program, found, elements)

    def add(self, program: _Program, figures: list[Figure], elements: list[str]) -> None:
        for figure, element in zip(figures, elements, strict=True):
            program.claims.append((figure, element, Span(self.source, figure.start, figure.end)))

    # ------------------------------------------------------------------- names

    def program_of(self, mark: Mark, name: Cell) -> _Program:
        """The program that a comment speaks of: the one it names, or the nearest before it that has the tensor, or the
        first after it."""
        known = [p for p in self.programs if not mark.file or p.block.name == mark.file]
        if not known:
            files = [program.block.name for program in self.programs if program.block.name]
            message = f"no program of this page is called `{mark.file}`" if mark.file else "this page has no program"
            help, _ = suggest(mark.file, files, Span(self.source, 0, 0))
            raise self.wrong(name, message, help or "a block that begins with ```ix is one")
        before = [program for program in known if program.block.start < mark.start]
        order = [*reversed(before), *(program for program in known if program not in before)]
        tensor = _split(name.text)[0]
        broken: list[Diagnostic] = []
        names: dict[str, None] = {}
        for program in order:
            try:
                if tensor in program.names:
                    return program
                names.update(dict.fromkeys(program.names))
            except (CompileError, CallError) as problem:
                broken += problem.diagnostics
        if broken:
            raise CallError(broken)
        help, _ = suggest(tensor, names, Span(self.source, 0, 0))
        raise self.wrong(name, f"no program of this page has a `{tensor}`", help or f"there are {', '.join(names)}")

    def elements(self, program: _Program, name: Cell) -> Iterator[str]:
        """The elements that a name stands for: one, or all of a row or a tensor."""
        tensor, place = _split(name.text)
        if place is None:
            help = "an element looks like `out[2, 0]`, a row like `out[2]`"
            raise self.wrong(name, f"`{name.text}` is no element", help)
        axes = program.results.tensor(tensor).coordinates
        shape = program.results.tensor(tensor).shape
        if len(place) > len(shape):
            home = f"`{tensor}[{', '.join(axes)}]`" if axes else f"the scalar `{tensor}`"
            raise self.wrong(name, f"`{name.text}` has {len(place)} places, and there is {home}", None)
        for at, size, axis in zip(place, shape, axes, strict=False):
            if not isinstance(size, int) or at >= size:
                raise self.wrong(name, f"`{name.text}` does not exist: `{axis}` has {size} points, from 0", None)
        rest = shape[len(place) :]
        if any(not isinstance(size, int) for size in rest):
            raise self.wrong(name, f"`{name.text}` has no values: an input of its program has none", None)
        for tail in itertools.product(*(range(int(size)) for size in rest)):
            inside = ", ".join(map(str, (*place, *tail)))
            yield f"{tensor}[{inside}]" if inside else tensor

    # ------------------------------------------------------------------ tables

    def claim_table(self, mark: Mark) -> None:
        headings, *rows = mark.table
        if len(mark.names) > 1:
            for number, name in enumerate(mark.names):
                heads = [n for n, head in enumerate(headings) if head.text.strip("`*_ ") == name.text]
                column = heads[0] if heads else len(headings) - len(mark.names) + number
                self.claim_rows(mark, name, [], [row[column : column + 1] for row in rows], rows)
            return
        (name,) = mark.names
        program = self.program_of(mark, name)
        tensor, place = _split(name.text)
        shape = program.results.tensor(tensor).shape[len(place or ()) :]
        count = len(headings) - 1 if _is_labelled(rows, headings, shape) else len(headings)
        self.claim_rows(mark, name, list(headings[-count:]) if count else [], [row[-count:] for row in rows], rows)

    def claim_rows(
        self,
        mark: Mark,
        name: Cell,
        headings: list[Cell],
        cells: list[tuple[Cell, ...]],
        rows: list[tuple[Cell, ...]],
    ) -> None:
        """The figures of a table: rows and columns that are numbered say where they belong."""
        program = self.program_of(mark, name)
        elements = list(self.elements(program, name))
        tensor, place = _split(name.text)
        shape = tuple(map(int, program.results.tensor(tensor).shape[len(place or ()) :]))
        wide = len(cells[0]) if cells else 0
        if not shape:
            shape = (1, 1)
        elif len(shape) == 1:
            across = wide == shape[0] and len(cells) == 1
            shape = (1, shape[0]) if across else (shape[0], 1)
        if len(shape) != 2:
            help = f"name a part of it with two: <!-- ix: {tensor}[0] -->" if len(shape) > 2 else None
            raise self.wrong(name, f"`{name.text}` has {counted(len(shape), 'coordinate')}, and a table has two", help)
        labelled = [row[0] for row in rows] if rows and len(rows[0]) > wide else []
        down = self.numbered(labelled, len(cells), shape[0])
        right = self.numbered(headings if wide > 1 else [], wide, shape[1])
        if down is None or right is None:
            has = f"the table under this has {len(cells)} × {wide} figures"
            message = f"`{name.text}` is {shape[0]} × {shape[1]}, and {has}"
            raise self.wrong(name, message, "number its rows and columns from 0 if they are only some")
        for row, line in zip(down, cells, strict=True):
            if len(line) != wide:
                raise self.wrong(line[-1] if line else name, "this row has fewer cells than the headings", None)
            for column, cell in zip(right, line, strict=True):
                figure = figure_in(cell)
                if figure is not None:
                    self.add(program, [figure], [elements[row * shape[1] + column]])
                elif cell.text.strip("*_` –—-·"):
                    raise self.wrong(cell, f"`{cell.text}` is no figure", "leave a cell empty, or write `masked`")

    def numbered(self, labels: list[Cell], count: int, size: int) -> list[int] | None:
        """The places that labels give, or all in order; None where there are not as many."""
        plain = [label.text.strip("`*_ ").rpartition("=")[2].strip() for label in labels]
        if plain and all(label.isdigit() for label in plain) and all(int(label) < size for label in plain):
            return [int(label) for label in plain]
        return list(range(size)) if count == size else None

    # ---------------------------------------------------------------- findings

    def wrong(self, cell: Cell, message: str, help: str | None) -> _Wrong:
        place = Span(self.source, cell.start, cell.start + max(1, len(cell.text)))
        return _Wrong(Diagnostic("IX517", message, (Label(place),), help=help))

    def checked(self, figure: Figure, reference: str, span: Span, value: Value, good: bool) -> Checked:
        if good:
            return Checked(span, reference, "holds", value, None)
        should = _printed(value, figure)
        message = f"`{reference}` is {show_exact(value)}, and {figure.text} is printed"
        help = f"print {should}" if should else None
        fix = Fix(span, should) if should else None
        return Checked(span, reference, "fails", value, Diagnostic("IX516", message, (Label(span),), (), help, fix))


class _Wrong(Exception):
    """A comment that names nothing, or stands beside nothing."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(diagnostic.message)


def _split(text: str) -> tuple[str, tuple[int, ...] | None]:
    """`out[2, 0]` as a name and a place; None for a place that is none."""
    name, bracket, rest = text.partition("[")
    parts = [part.strip() for part in rest.rstrip().removesuffix("]").split(",")] if bracket else []
    if not name.strip().isidentifier() or not all(part.isdigit() for part in parts):
        return name.strip(), None
    return name.strip(), tuple(map(int, parts))


def _element(results: ExactResults, reference: str) -> Value:
    name, place = _split(reference)
    found = results[name]
    value: Value = found[place] if place else found
    return value


def _is_labelled(rows: list[tuple[Cell, ...]], headings: tuple[Cell, ...], shape: tuple[int | str, ...]) -> bool:
    """Whether the first column of a table has labels and no figures."""
    if len(shape) == 1:
        across = len(rows) == 1 and len(headings) == shape[0]
        return (len(headings) == 2 and not across) or (len(rows) == 1 and len(headings) - 1 == shape[0])
    if len(shape) == 2 and isinstance(shape[1], int):
        return len(headings) == shape[1] + 1 or (len(headings) <= shape[1] and not headings[0].text.strip("`*_ "))
    return len(headings) == 2


def _printed(value: Value, figure: Figure) -> str | None:
    """The value as the figure should have it: as many places, a percentage where it is one."""
    if value.masked:
        return "masked"
    if figure.exact or value.symbols or isinstance(value.number, bool):
        return None if isinstance(value.number, bool) else str(value.canonical())
    if "e" in figure.claim.lower() or figure.claim == "masked":
        return None
    places = len(figure.claim.partition(".")[2])
    near = Decimal(value.decimal(30 + places))
    if not places and near != near.to_integral_value():
        return None
    rounded = near.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
    if not figure.hundredfold:
        return str(rounded)
    return f"{rounded.scaleb(2)}{figure.text[len(figure.text.rstrip(' %')) :]}"
