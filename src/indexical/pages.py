"""A program as a page: one file for a browser, with every matrix, every step and the arithmetic of every cell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import readings
from .api import Program, compile, compile_anyway, compile_source
from .checker.names import suggest
from .diagnostics import CallError, Diagnostic, Error
from .facts.summary import Facts
from .ir import nodes as ir
from .ir.types import Coordinate
from .numbers.claims import Claim, check_claims
from .numbers.evaluate import Evaluated, evaluate
from .numbers.results import Results, nearest_float
from .numbers.terms import Polynomial
from .numbers.tower import Special
from .readings import StepList, TraceSheet, arguments_of
from .records import replace
from .run.removed import from_zero, removed_points
from .run.samples import random_arrays
from .run.tables import Uncomputed
from .run.tensors import to_numpy
from .saving import write_file
from .source import Source, Span
from .views.document import Shown, document_json
from .views.extent import check_extent, check_page
from .views.fragment import text_html
from .views.lesson import ProgramText, Unclosed, read_lesson, title_of
from .views.lesson_page import Wrong, lesson_json, opening_labels
from .views.static import page_fragment, program_html, results_html
from .views.text import show_output
from .views.webpage import page_html

# More cells than this in all are shown by floats alone.
MOST_EXACT = 20_000
# Nor do exact numbers take longer than a few seconds for a page.
MOST_TERMS = 500_000
# A program whose text has a longer coordinate shows no page by itself.
MOST_DRAWN = 256


class WebPage:
    """A page for a browser. `save` writes it; in a notebook it shows its matrices as plain tables."""

    def __init__(
        self, title: str, blocks: list[dict[str, Any]], tables: str = "", attached: Mapping[str, str] | None = None
    ) -> None:
        self.title = title
        self.html = page_html(title, blocks, attached)
        check_page(self.html)
        self._blocks = blocks
        self._tables = tables

    def _repr_html_(self) -> str:
        return page_fragment(self.html, self._tables)

    def opening_at(self, point: str | None) -> WebPage:
        """The page, opened at an element such as `out[2, 0]`; None is where it opens by itself."""
        if point is None:
            return self
        first, *others = self._blocks
        opens = f"cell={point.replace(' ', '')}"
        return WebPage(self.title, [{**first, "opens": opens}, *others], self._tables)

    def save(self, path: str | os.PathLike[str]) -> Path:
        target = Path(path)
        write_file(target, self.html)
        return target

    def __repr__(self) -> str:
        return f"<indexical page `{self.title}`, {len(self.html) // 1024 + 1} KiB; .save(PATH) writes it>"


def show(
    program: Program | str | os.PathLike[str],
    /,
    *arrays: Any,
    beside: Program | str | os.PathLike[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    title: str | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    **named: Any,
) -> WebPage:
    """A page of a program on these inputs; with `beside`, of two programs on the same inputs, differences marked.

    A program that breaks its contract is shown with the error under its line. Values are exact where that is in reason,
    and floats where it is not; the page says which. `labels` names the points of a coordinate or of a space:
    `{"position": ["The", "cat", "sat"]}`.
    """
    programs = [_compiled(program), *([] if beside is None else [_compiled(beside)])]
    shown = [replace(gather(found, arrays, named, sizes), labels=_checked(labels, found)) for found in programs]
    check_extent(shown)
    documents = [document_json(found) for found in shown]
    heading = str(title) if title else " beside ".join(document["title"] for document in documents)
    return WebPage(heading, [{"kind": "program", "pages": documents}], "".join(map(_tables, shown)))


def drawn_page(program: Program) -> str:
    """A program without numbers for a notebook: its page on a few that are drawn, to be changed there, and under it
    its text in colours. What has no such page is its text alone."""
    text = program_html(program.ir.source, program.ir)
    extents = [axis.extent for let in program.ir.lets for axis in let.axes]
    if any(isinstance(extent, ir.Const) and extent.value > MOST_DRAWN for extent in extents):
        return text
    try:
        sample, _ = random_arrays(program.ir, {}, {}, seed=0)
        arrays = {name: _tenths(array) for name, array in sample.arrays.items()}
        note = ", on numbers that are drawn" if arrays else ""
        page = show(program, title=f"{_title(program)}{note}", **arrays)
    except Error:
        return text
    return page_fragment(page.html, text, "as text")


def _tenths(array: Any) -> Any:
    """Real numbers as tenths, which are short; as floats they have no exact forms, for which nobody asked."""
    found = np.asarray(array)
    return np.round(found, 1) if found.dtype.kind == "f" else array


def trace(
    program: Program | str | os.PathLike[str],
    /,
    *arrays: Any,
    at: str | None = None,
    depth: int = 8,
    sizes: Mapping[str, int] | None = None,
    **named: Any,
) -> TraceSheet | StepList:
    """The origin of the number `at` (`"out[2, 0]"`): what it scanned, term by term, and so on down, `depth` times.

    Without `at`: every definition in the order in which a person would compute them. In a notebook, either is the page
    of the program, opened there, with the text under it.
    """
    found = readings.trace(program, *arrays, at=at, depth=depth, sizes=sizes, **named)

    def framed(point: str | None, text: str) -> str:
        try:
            page = show(program, *arrays, sizes=sizes, **named)
        except Error:  # What has a trace need not have a page: it may be too large.
            return text
        return page_fragment(page.opening_at(point).html, text, "as text")

    found.framed = framed
    return found


def _checked(labels: Mapping[str, Sequence[str]] | None, program: Program) -> Mapping[str, Sequence[str]]:
    """Labels of coordinates or spaces that there are."""
    if labels is not None and not isinstance(labels, Mapping):
        message = "labels are lists of texts by the names of coordinates or spaces"
        raise CallError([Diagnostic("IX515", message, help='pass `labels={"position": ["The", "cat", "sat"]}`')])
    known: dict[str, None] = {}
    for tensor in program.ir.tensors.values():
        for axis in () if isinstance(tensor, ir.Let) and tensor.hidden else tensor.axes:
            known.update(dict.fromkeys(filter(None, (axis.coordinate.name, axis.coordinate.space))))
    for name, given in (labels or {}).items():
        if name not in known:
            message = f"labels are for coordinates and spaces, and `{name}` is none"
            help, _ = suggest(str(name), known, Span(program.ir.source, 0, 0))
            raise CallError([Diagnostic("IX515", message, help=help or f"there are {', '.join(known)}")])
        if isinstance(given, str) or not isinstance(given, Sequence):
            message = f"the labels of `{name}` are a list of texts, one for each point"
            raise CallError([Diagnostic("IX515", message)])
    return labels or {}


def _tables(found: Shown) -> str:
    """The matrices as plain tables."""
    names = [
        name for name, tensor in found.program.tensors.items() if not (isinstance(tensor, ir.Let) and tensor.hidden)
    ]
    if found.evaluated is not None:
        return results_html(Results(found.evaluated), [name for name in names if name in found.arrays])
    outputs = {let.name: let for let in found.program.lets if let.name in found.program.outputs}
    return text_html("\n\n".join(show_output(let, found.arrays[name]) for name, let in outputs.items()))


def show_lesson(path: str | os.PathLike[str], title: str | None = None) -> WebPage:
    """A lesson, read from Markdown: prose, programs with their claims verified, questions that are checked."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as problem:
        raise _unreadable(file, f"it is not UTF-8 text (byte {problem.start})") from None
    except (OSError, ValueError) as problem:
        raise _unreadable(file, getattr(problem, "strerror", None) or str(problem)) from None
    try:
        parts = read_lesson(text)
    except Unclosed as problem:
        raise _lesson_error(file, problem.line, "this block is not closed") from None
    try:
        shown = {n: _lesson_program(part, file) for n, part in enumerate(parts) if isinstance(part, ProgramText)}
        blocks = lesson_json(parts, shown)
    except Wrong as problem:
        line = problem.line or _line_of(problem.within, text)
        raise _lesson_error(file, line, problem.message, problem.help) from None
    return WebPage(title or title_of(parts) or file.stem, blocks, "".join(map(_tables, shown.values())))


def _unreadable(file: Path, reason: str) -> CallError:
    return CallError([Diagnostic("IX108", f"`{file}` cannot be read: {reason}")])


def _program_of(block: ProgramText, file: Path) -> Program:
    """The program in a block; one without lines stands in the file that the block names, beside the lesson."""
    if block.text.strip():
        name = block.name or f"{file} (line {block.line})"
        return compile_source(Source(name, block.text))
    if not block.name:
        raise _lesson_error(file, block.line, "this block is empty", "write a program, or name a file: ```ix name.ix")
    return compile(file.parent / block.name)


def _lesson_program(block: ProgramText, file: Path) -> Shown:
    """A program of a lesson with all its values, and the labels that its block gives."""
    program = _program_of(block, file)
    labels = opening_labels(block)
    try:
        known = _checked(labels, program)
    except CallError as problem:
        raise Wrong(block.line - 1, problem.diagnostics[0].message, problem.diagnostics[0].help) from None
    return replace(gather(program, (), {}, None), labels=known)


def _line_of(address: str, text: str) -> int:
    """The first line of a lesson that has a link to an address; 1 where the address goes over a line's end."""
    return text.count("\n", 0, max(0, text.find(f"(#{address})"))) + 1


def _lesson_error(file: Path, line: int, message: str, help: str | None = None) -> CallError:
    return CallError([Diagnostic("IX515", f"{file}:{line}: {message}", help=help)])


def _compiled(program: Program | str | os.PathLike[str]) -> Program:
    return program if isinstance(program, Program) else compile_anyway(program)


def gather(
    program: Program, arrays: tuple[Any, ...], named: Mapping[str, Any], sizes: Mapping[str, int] | None
) -> Shown:
    """A program with all its values."""
    arguments = arguments_of(program, arrays, named)
    wanted = tuple(let.name for let in program.ir.lets)
    reason = _why_not_exact(arguments)
    if not reason:
        try:
            evaluated = evaluate(program.ir, arguments, sizes or {}, wanted, terms=MOST_TERMS)
            return _exactly(program, evaluated)
        except CallError as problem:
            codes = {found.code for found in problem.diagnostics}
            if not codes <= {"IX507", "IX513", "IX514"} or any(value is None for value in arguments.values()):
                raise
            reason = problem.diagnostics[0].message
    missing = [name for name, value in arguments.items() if value is None]
    if missing:
        message = f"`{missing[0]}` has no values, and there are no symbols here: {reason}"
        raise CallError([Diagnostic("IX512", message, help=f"give `{missing[0]}` values, or the others as fractions")])
    return _by_floats(program, arguments, wanted, reason)


def _why_not_exact(arguments: Mapping[str, Any]) -> str:
    """Why a page would rather show floats; nothing where exact numbers are in reason."""
    arrays = [_as_array(to_numpy(value)) for value in arguments.values() if value is not None]
    if sum(array.size for array in arrays) > MOST_EXACT:
        return "the matrices are too large for exact numbers"
    if all(array.dtype.kind != "f" or _is_short(array) for array in arrays):
        return ""
    return "the inputs are floats of many digits; whole numbers, fractions and decimals in quotes have exact forms"


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    """The NumPy array of an input; of rows that differ in length, one of None: the exact reader reports them."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.asarray(None)


def _is_short(array: np.ndarray[Any, Any]) -> bool:
    """Whether floats are small multiples of 1/1024, as figures in an example are."""
    scaled = array.astype(float) * 1024
    return bool(np.isfinite(scaled).all() and (np.abs(scaled) < 2**20).all() and (scaled == np.rint(scaled)).all())


def _exactly(program: Program, evaluated: Evaluated) -> Shown:
    arrays: dict[str, Any] = {}
    masked: dict[str, Any] = {}
    for name, table in evaluated.evaluation.tensors.items():
        # A definition inside a step has no points before the first step.
        table.cells[:] = [None if cell is Uncomputed else cell for cell in table.cells]
        arrays[name] = np.array([_float(cell) for cell in table.cells], dtype=float).reshape(table.shape)
        flags = [evaluated.is_masked(name, offset) for offset in range(len(table.cells))]
        masked[name] = np.array(flags, dtype=bool).reshape(table.shape)
    claims: tuple[Claim, ...] = check_claims(evaluated)
    return _shown(program, dict(evaluated.evaluation.sizes), arrays, masked, evaluated, claims, "")


def _float(cell: Any) -> float:
    """For the eye; NaN for a symbol."""
    if cell is None:
        return 0.0
    if isinstance(cell, Special):
        return {1: float("inf"), -1: float("-inf")}.get(cell.side, float("nan"))
    if isinstance(cell, Polynomial) and cell.symbols:
        return float("nan")
    return nearest_float(cell)


def _by_floats(program: Program, arguments: dict[str, Any], wanted: tuple[str, ...], reason: str) -> Shown:
    given = {name: np.asarray(to_numpy(value)) for name, value in arguments.items()}
    # What is not finite is shown where it is heard, and nowhere else.
    odd = any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in given.values())
    found = program(outputs=wanted, isolate=odd, **arguments)
    arrays = {name: np.asarray(to_numpy(value)) for name, value in zip(wanted, found, strict=True)}
    arrays.update(given)
    sizes = {
        axis.extent.coordinate: length
        for tensor in program.ir.inputs
        for axis, length in zip(reversed(tensor.axes), reversed(arrays[tensor.name].shape), strict=False)
        if isinstance(axis.extent, ir.Size)
    }
    for let in program.ir.lets:
        if let.hidden and let.name in arrays:
            arrays[let.name] = from_zero(let, arrays, sizes)
    return _shown(program, sizes, arrays, removed_points(program.ir, arrays, sizes), None, (), reason)


def _title(program: Program) -> str:
    name = program.ir.source.name
    return Path(name).stem if name.endswith(".ix") else "a program"


def _shown(
    program: Program,
    sizes: dict[Coordinate, int],
    arrays: dict[str, Any],
    masked: dict[str, Any],
    evaluated: Evaluated | None,
    claims: tuple[Claim, ...],
    reason: str,
) -> Shown:
    program = program.as_read
    source = program.ir.source
    title = _title(program)
    facts: Facts = program.facts
    return Shown(
        title, source, program.ir, program.diagnostics, facts, sizes, arrays, masked, evaluated, claims, reason
    )
