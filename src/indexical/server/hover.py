"""Facts about the name under the pointer: facts of a definition, the story of a coordinate, what a word does."""

from __future__ import annotations

from collections.abc import Iterator

from ..api import Program
from ..facts.coordinates import Story
from ..facts.roles import ROLES, Roles
from ..source import Span
from ..std.library import entries
from ..syntax.vocabulary import FUNCTIONS, NORMALISERS, REDUCTIONS
from ..views.facts import show_roles, show_story
from .analysis import Analysis, Document
from .symbols import Occurrence

_SCANS = {
    "sum": "the sum over the coordinates in the bracket, of the points that its guard keeps",
    "prod": "the product over the coordinates in the bracket",
    "max": "the largest over the coordinates in the bracket",
    "min": "the smallest over the coordinates in the bracket",
    "mean": "the mean over the coordinates in the bracket, of the points that its guard keeps",
    "any": "whether it holds somewhere along the coordinates in the bracket",
    "all": "whether it holds everywhere along the coordinates in the bracket",
    "argmax": "the place of the largest along the coordinate in the bracket",
    "argmin": "the place of the smallest along the coordinate in the bracket",
    "softmax": "shared out over the coordinate in the bracket, so that the points that the guard keeps sum to 1",
    "log_softmax": "the logarithm of softmax over the coordinate in the bracket",
    "cumsum": "the sum of all points up to this one, along the coordinate in the bracket",
    "cumprod": "the product of all points up to this one, along the coordinate in the bracket",
    "cummax": "the largest of all points up to this one, along the coordinate in the bracket",
    "rank": "how many points are larger than this one, along the coordinate in the bracket",
}
_QUESTIONS = {
    "query": "asks",
    "key": "answers",
    "compare": "is compared",
    "carry": "is carried",
    "head": "a head",
    "batch": "the batch",
}


def hover(document: Document, offset: int) -> tuple[str, Span] | None:
    """Markdown about the name at an offset, and where that name stands."""
    named = document.name_at(offset)
    if named is None:
        return None
    analysis, found = named
    parts = [part for part in _parts(document, analysis, found) if part]
    return ("\n\n".join(parts), found.span.shown) if parts else None


def _parts(document: Document, analysis: Analysis, found: Occurrence) -> Iterator[str]:
    name = found.symbol.name
    program = document.known(analysis)
    match found.symbol.kind:
        case "coordinate":
            yield _coordinate(analysis, program, found)
        case "input" | "definition":
            yield from _tensor(analysis, program, found)
        case "function":
            yield _function(analysis, found)
        case "local" | "parameter":
            statement = analysis.statement_at(found.span.start)
            place = "an abbreviation or a local definition" if found.symbol.kind == "local" else "a parameter"
            yield f"`{name}`: {place}" + (f" of `{getattr(statement, 'name', '')}`" if statement else "")
        case "space":
            members = [c for c in analysis.symbols.coordinates() if _space(program, c) == name]
            yield f"space `{name}`" + (f" of the coordinates {_code(members)}" if members else "")
        case "word":
            yield _word(name)
    if program is not None and analysis.program is None and found.symbol.kind != "word":
        yield "*as of the last version without errors*"


def _word(name: str) -> str:
    if name in (*REDUCTIONS, *NORMALISERS):
        two = f"\n\n`{name}(x, y)` is elementwise" if name in FUNCTIONS else ""
        return f"```ix\n{name}[j](x[i, j])\n```\n{_SCANS[name]}{two}"
    if name in FUNCTIONS:
        count = FUNCTIONS[name]
        given = "x, y, …" if count is None else ", ".join(("x", "y", "z")[:count])
        return f"```ix\n{name}({given})\n```\nelementwise"
    if name == "size":
        return "```ix\nsize(d)\n```\nthe number of points of a coordinate"
    if name == "pi":
        return "`pi`: exact in `ix exact`, 3.14159… in floats"
    return ""


def _function(analysis: Analysis, found: Occurrence) -> str:
    entry = entries().get(found.symbol.name)
    own = found.symbol.definitions[0]
    statement = analysis.statement_at(own.start)
    if type(statement).__name__ == "Fn":
        head, _, _ = own.source.text[own.start : statement.span.end if statement else own.end].partition("{")
        return f"```ix\nfn {' '.join(head.split())}\n```"
    return "" if entry is None else f"```ix\nfn {entry.header}\n```\n{entry.doc}\n\n`std::{entry.module}`"


# -------------------------------------------------------------------- tensors


def _tensor(analysis: Analysis, program: Program | None, found: Occurrence) -> Iterator[str]:
    name = found.symbol.name
    if program is None:
        statement = analysis.statement_at(found.symbol.definitions[0].start)
        yield f"```ix\n{statement.span.text if statement else name}\n```"
        return
    if found.symbol.kind == "input":
        tensor = next((tensor for tensor in program.ir.inputs if tensor.name == name), None)
        if tensor is not None:
            axes = ", ".join(str(axis.coordinate) for axis in tensor.axes)
            yield f"```ix\ninput {name}{f'[{axes}]' if axes else ''} : {tensor.dtype or tensor.kind}\n```"
            yield _roles_of_input(program, name)
        return
    facts = program.facts
    story = next((story for story in facts.definitions if story.name == name), None)
    if story is None:
        return
    for roles in facts.roles:
        if roles.definition == name:
            yield f"```text\n{show_roles(roles, facts)}\n```"
    yield f"```text\n{show_story(story)}\n```"
    yield _cost(program, story)
    yield _kernel(analysis, name)


def _roles_of_input(program: Program, name: str) -> str:
    """In which attentions an input carries what."""
    found = [f"its values are gathered in `{r.definition}`" for r in program.facts.roles if name in r.values]
    return "; ".join(found)


def _cost(program: Program, story: Story) -> str:
    figure = program.cost()[story.name]
    shape = " × ".join(figure.shape) or "one number"
    return f"shape {shape}; {figure.multiply_adds} multiply-adds ({figure.stage})"


def _kernel(analysis: Analysis, name: str) -> str:
    """How a definition is computed, in a call with PyTorch on the CPU."""
    plan = analysis.plan
    if plan is None:
        return ""
    kernel = next((step.kernel for step in plan.steps if name in step.definitions), None)
    if name in plan.unbuilt:
        return f"never built{f', inside {kernel}' if kernel else ''} (PyTorch, CPU)"
    return "" if kernel is None else f"computed by {kernel} (PyTorch, CPU)"


# ---------------------------------------------------------------- coordinates


def _space(program: Program | None, coordinate: str) -> str | None:
    if program is None:
        return None
    axes = (axis for tensor in program.ir.tensors.values() for axis in tensor.axes)
    return next((a.coordinate.space for a in axes if a.coordinate.name == coordinate and a.coordinate.space), None)


def _coordinate(analysis: Analysis, program: Program | None, found: Occurrence) -> str:
    """The origin of a coordinate, its roles, and its fate in each definition."""
    name = found.symbol.name
    space = _space(program, name)
    lines = [f"coordinate `{name}`" + (f" of space `{space}`" if space else "")]
    if program is None or analysis.symbols.unit_at(found.span.start) is not analysis.symbols.unit:
        return lines[0]
    inputs = [t.name for t in program.ir.inputs if any(axis.coordinate.name == name for axis in t.axes)]
    if inputs:
        lines.append(f"- as long as an axis of {_code(inputs)}")
    for roles in program.facts.roles:
        lines += [f"- in `{roles.definition}`: {part}" for part in part_of(roles, name)]
    lines += [f"- `{story.name}`: {words}" for story in program.facts.definitions if (words := _fate(story, name))]
    return "\n".join(lines)


def part_of(roles: Roles, coordinate: str) -> list[str]:
    """The roles of a coordinate in an attention: it asks, answers, is compared, …"""
    return [_QUESTIONS[role] for role in ROLES if coordinate in roles.of(role)]


def _fate(story: Story, name: str) -> str:
    """The fate of a coordinate in a definition."""
    found = [f"consumed by {op}" for coordinate, op in story.consumed if coordinate == name]
    found += [f"normalised by {entry.by}" for entry in story.normalised if name in entry.coordinate.split(", ")]
    found += ["step by step"] if name in story.stepped else []
    found += ["kept"] if name in story.survives and not found else []
    return ", ".join(found)


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
