"""Comments of a page, and the figures that each of them ties to elements of a program."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..checker.names import counted, suggest
from ..diagnostics import CallError, CompileError, Diagnostic, Fix, Label
from ..ir import nodes as ir
from ..records import replace
from ..source import Source, Span
from ..views.cells import Part
from ..views.markdown import Block, Mark, Table
from ..views.plain import CODE, END, MARK, MATH, Cell, Plain
from ..views.rows import figures_in
from ..views.spellings import AROUND, Figure, Item, Listed, Odd, one_in
from .programs import Checked, Program, Tied, split
from .tables import columns_of, is_labelled, label_of, numbered, places_of


class Page:
    """A page that is verified."""

    source: Source

    def __init__(self, file: Path, named: Mapping[str, Any], strict: bool) -> None:
        self.file, self.named, self.strict = file, named, strict
        self.findings: list[Diagnostic] = []
        self.parts: list[Part] = []
        self.programs: list[Program] = []
        self.failing: dict[int, int] = {}

    def verified(self, source: Source, blocks: list[Block], marks: list[Mark]) -> list[Checked]:
        """The figures of a page, each with its verdict; what else is wrong is in `findings`."""
        self.source = source
        self.programs = [Program(self, block) for block in blocks]
        # Blocks whose claims may fail, by their start: those under such a comment.
        said = [mark.start for mark in marks if [name.text for name in mark.names] == ["claims fail"]]
        after = {at: next((block.start for block in blocks if block.start > at), None) for at in said}
        self.failing = {block: at for at, block in after.items() if block is not None}
        for mark in marks:
            if mark.start not in said:
                self.collect(partial(self.claim, mark))
        figures: list[Checked] = []
        for program in self.programs:
            if program.tied:
                self.collect(partial(self.judge, program, figures))
        self.findings = list(map(self.moved, self.findings))
        figures.sort(key=lambda figure: figure.span.start)
        return [
            replace(figure, span=self.placed(figure.span), finding=figure.finding and self.moved(figure.finding))
            for figure in figures
        ]

    def judge(self, program: Program, figures: list[Checked]) -> None:
        figures += program.judged()

    def collect(self, work: Callable[[], None]) -> None:
        """Do a part of the work; what is found wrong in it is kept."""
        try:
            work()
        except Wrong as problem:
            self.findings.append(problem.diagnostic)
        except (CompileError, CallError) as problem:
            self.findings += [found for found in problem.diagnostics if found not in self.findings]

    def placed(self, span: Span) -> Span:
        """The same place in its cell, where the page is a notebook."""
        span = span.shown
        if not self.parts or span.source.name != str(self.file):
            return span
        part = self.parts[bisect_right([part.start for part in self.parts], span.start) - 1]
        source = Source(f"{self.file}, {part.name}", part.text)
        return Span(source, span.start - part.start, min(span.end - part.start, len(part.text)))

    def moved(self, found: Diagnostic) -> Diagnostic:
        labels = tuple(Label(self.placed(label.span), label.text) for label in found.labels)
        fix = found.fix and Fix(self.placed(found.fix.span), found.fix.replacement)
        return replace(found, labels=labels, fix=fix)

    def claim(self, mark: Mark) -> None:
        """Tie the figures of a comment to elements."""
        if not mark.names:
            raise self.wrong(Cell(" ", mark.start), "this comment names no element", "write <!-- ix: out[0, 1] -->")
        if mark.table is not None:
            self.claim_table(mark, mark.table)
            return
        if mark.under is not None and not self.is_behind(mark):
            self.claim_under(mark, mark.under)
            return
        if len(mark.names) > 1:
            raise self.wrong(mark.names[1], "beside a figure a comment names one element, or one row", _ABOVE)
        program = self.program_of(mark, mark.names[0])
        elements = self.elements(program, mark.names[0])
        found = self.beside(mark, len(elements), self.shape(program, mark.names[0]))
        self.tie(program, mark.names[0], found, elements)

    def tie(self, program: Program, name: Cell, found: list[Figure | None], elements: list[str]) -> None:
        """Tie figures to elements, in their order; None claims nothing."""
        pairs = [(figure, element) for figure, element in zip(found, elements, strict=True) if figure is not None]
        figures, references = tuple(self.whole_of(figure) for figure, _ in pairs), tuple(each for _, each in pairs)
        together, shape = "", self.shape(program, name)
        if references == tuple(self.elements(program, name)) and shape:
            together = self.whole(program, name)
        program.tied.append(Tied(figures, references, together, shape))

    def whole_of(self, figure: Figure) -> Figure:
        """A figure with all of its groups, where a formula has some: `\\mathrm{e}^{2}`, and not `e}^{2}`."""
        start, end, text = figure.start, figure.end, self.source.text
        while text[start:end].count("{") > text[start:end].count("}") and text.startswith("}", end):
            end += 1
        if text[start:end].count("}") > text[start:end].count("{"):
            opened = re.search(r"(?:\\[A-Za-z]+\s*)?\{$", text[:start])
            start = opened.start() if opened is not None else start
        return replace(figure, start=start, end=end) if figure.is_formula else figure

    def shape(self, program: Program, name: Cell) -> tuple[int, ...]:
        """The sizes of what a name leaves open."""
        tensor, place = split(name.text)
        return tuple(map(int, program.results.tensor(tensor).shape[len(place or ()) :]))

    def whole(self, program: Program, name: Cell) -> str:
        """A tensor or a row of one as the left side of a claim; "" where the language has no words for it."""
        tensor, place = split(name.text)
        axes = program.results.tensor(tensor).coordinates[len(place or ()) :]
        if not isinstance(program.results.evaluated.program.tensors[tensor], ir.Let):
            return ""
        if not place:
            return tensor
        plain = len(set(axes)) == len(axes) and all(axis.isidentifier() and axis not in program.names for axis in axes)
        return f"{tensor}[{', '.join([*map(str, place), *axes])}]" if plain else ""

    # --------------------------------------------------------------- the text

    def beside(self, mark: Mark, count: int, shape: tuple[int, ...]) -> list[Figure | None]:
        """So many figures that stand right before a comment, or right behind it."""
        items = figures_in(mark.before)
        name = mark.names[0]
        if items and not _rest(mark.before, _reach(mark.before, items[-1])[1]):
            if count == 1 and _is_reference(mark.before, items):
                items.pop()
            last = items[-1]
            if isinstance(last, Listed):
                return self.cells_of(last, name, count, shape if len(_long(last.shape or ())) > 1 else None)
            if isinstance(last, Odd):
                raise self.odd(last)
            return self.in_a_row(mark, items, count)
        items = figures_in(mark.after)
        if items and not _rest(mark.after, None, _reach(mark.after, items[0])[0]):
            first = items[0]
            if isinstance(first, Listed):
                return self.cells_of(first, name, count, shape if len(_long(first.shape or ())) > 1 else None)
            if isinstance(first, Odd) and first.digits:
                raise self.odd(first)
            if isinstance(first, Figure) and count == 1:
                return [first]
        raise self.none_beside(mark, count)

    def is_behind(self, mark: Mark) -> bool:
        """Whether a comment that something stands under is about figures before it all the same: `Here are 3:` is
        not."""
        items = figures_in(mark.before)
        if not items or len(mark.names) > 1 or mark.before.text.rstrip().endswith(":"):
            return False
        count = len(self.elements(self.program_of(mark, mark.names[0]), mark.names[0]))
        known = count if isinstance(items[-1], Listed) else sum(isinstance(item, Figure) for item in items)
        return known >= count and not _rest(mark.before, _reach(mark.before, items[-1])[1])

    def in_a_row(self, mark: Mark, items: list[Item], count: int) -> list[Figure | None]:
        """The last so many figures of a text."""
        wanted: list[Item] = []
        for item in reversed(items):
            if len(wanted) == count or isinstance(item, Listed):
                break
            if isinstance(item, Odd) and item.digits:
                raise self.odd(item)
            if isinstance(item, Figure):
                wanted.insert(0, item)
        if len(wanted) < count:
            stand = f"{counted(len(wanted), 'figure')} stand beside this comment"
            message = f"`{mark.names[0].text}` is {count} figures, and {stand}"
            raise self.wrong(mark.names[0], message, _BESIDE)
        more = [item for item in items if mark.since <= item.start < wanted[0].start]
        if count > 1 and more and not _between(mark.before, more[-1].end, wanted[0].start):
            message = f"`{mark.names[0].text}` is {count} figures, and more stand in a row before this comment"
            raise self.wrong(mark.names[0], message, "a comment stands behind as many figures as it names")
        return [item for item in wanted if isinstance(item, Figure)]

    def none_beside(self, mark: Mark, count: int) -> Wrong:
        items = [item for item in figures_in(mark.before) if item.start >= mark.since]
        several = "a figure" if count == 1 else f"{count} figures"
        message = f"`{mark.names[0].text}` is {several}, and none stands beside this comment"
        help = _BESIDE
        rest = _rest(mark.before, _reach(mark.before, items[-1])[1] if items else mark.since)
        if items or MARK in rest:
            if MARK in rest:
                help = "a formula is read where it is written in LaTeX"
            elif len(rest) <= 24:
                help = f"`{rest}` stands between the last figure and this: put the comment right behind the figure"
        return self.wrong(mark.names[0], message, help)

    def cells_of(
        self, found: Listed, name: Cell, count: int, shape: tuple[int, ...] | None = None
    ) -> list[Figure | None]:
        """The figures of a list, of which there have to be as many, in the same rows."""
        place = Cell(self.source.text[found.start : found.end], found.start)
        if found.shape is None:
            raise self.wrong(place, "the rows of this list have different lengths", None)
        if len(found.cells) != count or (shape and _long(shape) != _long(found.shape)):
            has = " × ".join(map(str, found.shape))
            wanted = " × ".join(map(str, shape)) if shape else str(count)
            raise self.wrong(place, f"`{name.text}` is {wanted}, and this list has {has} figures", None)
        return [self.readable(cell) for cell in found.cells]

    def readable(self, found: Figure | Odd | None) -> Figure | None:
        if isinstance(found, Odd):
            raise self.odd(found)
        return found

    # ------------------------------------------------------- formulas and code

    def claim_under(self, mark: Mark, under: Plain) -> None:
        """The figures of what stands under a comment: names take them in their order, and leave none over."""
        items = figures_in(under)
        plain = under.text.strip(" \n.,;:")
        whole = plain.startswith((CODE, MATH)) and plain.endswith(END)
        taken = 0
        for name in mark.names:
            program = self.program_of(mark, name)
            elements = self.elements(program, name)
            shape = self.shape(program, name)
            cells: list[Figure | None] = []
            while len(cells) < len(elements) and taken < len(items):
                item = items[taken]
                taken += 1
                if isinstance(item, Listed) and self.is_shared(mark, item, shape):
                    items[taken - 1 : taken] = [cell for cell in item.cells if cell is not None]
                    taken -= 1
                elif isinstance(item, Listed):
                    alone = not cells and len(item.cells) >= len(elements)
                    row = shape if alone else shape[-1:]
                    cells += self.cells_of(item, name, len(elements) if alone else shape[-1] if shape else 1, row)
                elif isinstance(item, Figure):
                    cells.append(item)
                elif item.digits or item.reason:
                    raise self.odd(item)
            if len(cells) != len(elements):
                has = f"{len(cells) or 'none'} {'stands' if len(cells) < 2 else 'stand'} under this comment"
                several = "a figure" if len(elements) == 1 else f"{len(elements)} figures"
                raise self.wrong(name, f"`{name.text}` is {several}, and {has}", _BESIDE)
            self.tie(program, name, cells, elements)
        left = [item for item in items[taken:] if not isinstance(item, Odd)]
        if whole and left:
            place = Cell(self.source.text[left[0].start : left[0].end], left[0].start)
            raise self.wrong(place, "no name of the comment is left for this figure", "name all, in their order")

    def is_shared(self, mark: Mark, item: Listed, shape: tuple[int, ...]) -> bool:
        """Whether a list is one of numbers, each with a name of its own: `print(a, b)`."""
        return not shape and len(mark.names) >= len(item.cells) > 1 and item.shape == (len(item.cells),)

    # ------------------------------------------------------------------- names

    def program_of(self, mark: Mark, name: Cell) -> Program:
        """The program that a comment speaks of: the one it names, or the nearest before it that has the tensor, or the
        first after it."""
        known = [p for p in self.programs if mark.file in ("", p.block.name, p.block.name.removesuffix(".ix"))]
        if not known:
            files = [program.block.name for program in self.programs if program.block.name]
            message = f"no program of this page is called `{mark.file}`" if mark.file else "this page has no program"
            help, _ = suggest(mark.file, files, Span(self.source, 0, 0))
            raise self.wrong(name, message, help or "a block that begins with ```ix is one")
        before = [program for program in known if program.block.start < mark.start]
        order = [*reversed(before), *(program for program in known if program not in before)]
        tensor = split(name.text)[0]
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

    def elements(self, program: Program, name: Cell) -> list[str]:
        """The elements that a name stands for: one, or all of a row or a tensor."""
        tensor, place = split(name.text)
        if place is None:
            help = "an element looks like `out[2, 0]`, a row like `out[2]`"
            raise self.wrong(name, f"`{name.text}` is no element", help)
        found = program.results.tensor(tensor)
        axes, shape, origins = found.coordinates, found.shape, program.origins(tensor)
        if len(place) > len(shape):
            home = f"`{tensor}[{', '.join(axes)}]`" if axes else f"the scalar `{tensor}`"
            raise self.wrong(name, f"`{name.text}` has {len(place)} places, and there is {home}", None)
        for at, size, axis, first in zip(place, shape, axes, origins, strict=False):
            if not isinstance(size, int) or not first <= at < first + size:
                message = f"`{name.text}` does not exist: `{axis}` has {size} points, from {first}"
                raise self.wrong(name, message, None)
        rest = shape[len(place) :]
        if any(not isinstance(size, int) for size in rest):
            raise self.wrong(name, f"`{name.text}` has no values: an input of its program has none", None)
        ranges = [range(first, first + int(size)) for first, size in zip(origins[len(place) :], rest, strict=True)]
        inside = [", ".join(map(str, (*place, *tail))) for tail in itertools.product(*ranges)]
        return [f"{tensor}[{each}]" if each else tensor for each in inside]

    # ------------------------------------------------------------------ tables

    def claim_table(self, mark: Mark, table: Table) -> None:
        headings, rows = table.headings, table.rows
        if not rows:
            raise self.wrong(mark.names[0], "the table under this comment has no rows", None)
        wide = len(headings or rows[0])
        name = mark.names[0]
        program = self.program_of(mark, name)
        self.elements(program, name)
        shape = self.shape(program, name)
        is_column = len(shape) == 1 and wide > 2 and len(rows) > 1 and name.text in map(label_of, headings)
        if len(mark.names) > 1 or is_column:
            columns = columns_of([each.text for each in mark.names], headings, wide)
            if columns is None:
                has = counted(wide, "column")
                raise self.wrong(name, f"the table under this has {has}, and each name takes one", None)
            for each, column in zip(mark.names, columns, strict=True):
                self.claim_rows(mark, each, [], [row[column : column + 1] for row in rows], rows)
            return
        first = program.origins(split(name.text)[0])[-1] if shape else 0
        numbered = len(rows) == 1 and len(shape) == 1 and places_of(headings, shape[0], first) is not None
        count = wide - 1 if not numbered and is_labelled(rows, headings, wide, shape) else wide
        self.claim_rows(mark, name, list(headings[-count:]) if count else [], [row[-count:] for row in rows], rows)

    def claim_rows(
        self,
        mark: Mark,
        name: Cell,
        headings: list[Plain],
        cells: list[tuple[Plain, ...]],
        rows: tuple[tuple[Plain, ...], ...],
    ) -> None:
        """The figures of a table: rows and columns that are numbered say where they belong."""
        program = self.program_of(mark, name)
        elements = self.elements(program, name)
        tensor, place = split(name.text)
        shape = self.shape(program, name)
        origins = program.origins(tensor)[len(place or ()) :]
        wide = len(headings) or max(map(len, cells), default=0)
        is_matrix = len(shape) == 2
        if not shape:
            shape, origins = (1, 1), (0, 0)
        elif len(shape) == 1:
            across = len(cells) == 1 and (wide == shape[0] or places_of(headings, shape[0], origins[0]) is not None)
            shape, origins = ((1, *shape), (0, *origins)) if across else ((*shape, 1), (*origins, 0))
        if len(shape) != 2:
            help = f"name a part of it with two: <!-- ix: {tensor}[0] -->" if len(shape) > 2 else None
            raise self.wrong(name, f"`{name.text}` has {counted(len(shape), 'coordinate')}, and a table has two", help)
        labelled = [row[0] for row in rows] if rows and len(rows[0]) > wide else []
        down = numbered(labelled, len(cells), shape[0], origins[0])
        right = numbered(headings if wide > 1 or is_matrix else [], wide, shape[1], origins[1])
        if down is None or right is None:
            has = f"the table under this has {len(cells)} × {wide} figures"
            message = f"`{name.text}` is {shape[0]} × {shape[1]}, and {has}"
            help = f"number its rows and columns from {origins[0]} if they are only some"
            raise self.wrong(name, message, help)
        found: dict[int, Figure] = {}
        for row, line in zip(down, cells, strict=True):
            if len(line) != wide:
                raise self.wrong(_cell(line[-1]) if line else name, "this row has fewer cells than the headings", None)
            for column, cell in zip(right, line, strict=True):
                figure = self.readable(one_in(cell, words=True))
                if figure is not None:
                    found[row * shape[1] + column] = figure
        self.tie(program, name, [found.get(at) for at in range(len(elements))], elements)

    # ---------------------------------------------------------------- findings

    def odd(self, found: Odd) -> Wrong:
        cell = Cell(self.source.text[found.start : found.end], found.start)
        help = found.reason or "leave a cell empty, write `masked`, or put words apart from the figure"
        return self.wrong(cell, f"`{' '.join(cell.text.split())}` is no figure that can be read", help)

    def wrong(self, cell: Cell, message: str, help: str | None) -> Wrong:
        place = Span(self.source, cell.start, cell.start + max(1, len(cell.text)))
        return Wrong(Diagnostic("IX517", message, (Label(place),), help=help))


_ABOVE = "with several names it stands on a line above a table, a formula or a block of code"
_BESIDE = "put it right behind the figure, 0.58 <!-- ix: weights[2, 2] -->, or on a line above a table"


class Wrong(Exception):
    """A comment that names nothing, or stands beside nothing."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(diagnostic.message)


def _reach(plain: Plain, item: Item) -> tuple[int, int]:
    """From where to where a figure reaches, with the code or the formula that it stands in."""
    first = next((at for at, start in enumerate(plain.starts) if start >= item.start), 0)
    opened = max(plain.text.rfind(CODE, 0, first + 1), plain.text.rfind(MATH, 0, first + 1))
    closed = plain.text.find(END, opened)
    if opened < 0 or closed < first:
        return item.start, item.end
    return plain.starts[opened], plain.ends[closed]


def _rest(plain: Plain, start: int | None, end: int | None = None) -> str:
    """The text from one place of the page, or up to one, without signs that say nothing."""
    kept = [
        sign
        for sign, first in zip(plain.text, plain.starts, strict=True)
        if (start is None or first >= start) and (end is None or first < end)
    ]
    if start is not None:
        return "".join(kept).strip(AROUND)
    # A figure behind a comment is one with it: the end of a sentence, or of a part of one, does not come between.
    return "".join(kept).strip("".join(sign for sign in f"{AROUND}<>≤≥" if sign not in ",;.:!?)]}"))


def _is_reference(plain: Plain, items: list[Item]) -> bool:
    """Whether the last item is `[3]` behind a figure: a note, or a reference to what is cited."""
    *_, before, last = [None, *items]
    if not isinstance(last, Listed) or not isinstance(before, Figure) or len(last.cells) != 1:
        return False
    (cell,) = last.cells
    whole = isinstance(cell, Figure) and cell.spelling is not None and cell.claim.isdecimal()
    return whole and not _between(plain, before.end, last.start)


def _between(plain: Plain, start: int, end: int) -> str:
    """The words between two figures, but for those that join them."""
    kept = "".join(s for s, first in zip(plain.text, plain.starts, strict=True) if start <= first < end)
    words = kept.translate({ord(sign): " " for sign in f"{AROUND}|&/"}).split()
    return " ".join(word for word in words if word not in ("and", "or", "und", "et", "y", "then"))


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _cell(plain: Plain) -> Cell:
    start, end = plain.span
    return Cell(" " * (end - start), start)
