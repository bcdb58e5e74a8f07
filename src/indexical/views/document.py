"""The content of a page, as plain lists and strings: the program, its matrices, its steps, its weights."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..checker.names import counted
from ..diagnostics import Diagnostic, Sink
from ..facts.summary import Facts
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import reads_of, walk
from ..numbers.claims import Claim
from ..numbers.evaluate import Evaluated, ordered
from ..numbers.results import Tensor
from ..numbers.steps import describe, figures
from ..records import dataclass, field, replace
from ..run.patterns import find_patterns
from ..source import Source, Span
from ..syntax.tokens import tokenize
from .communication import communication_json
from .editing import modules_json
from .exact import show_value
from .relation import relation_json, sizes_json
from .verdicts import show_exact

# Gathers of a gradient, which a page calls by their name.
_BACKWARD = ("transpose", "change", "transposed change")
# Tables with more cells than this are drawn on a canvas, and travel as bytes.
MOST_LISTED = 4_096


@dataclass(frozen=True, slots=True)
class Shown:
    """A program with its values, by exact numbers where `evaluated` is there, else as arrays alone."""

    title: str
    source: Source
    program: ir.Program
    diagnostics: tuple[Diagnostic, ...]
    facts: Facts
    sizes: dict[Coordinate, int]
    arrays: dict[str, np.ndarray[Any, Any]]
    masked: dict[str, np.ndarray[Any, Any]]
    evaluated: Evaluated | None
    claims: tuple[Claim, ...]
    why_not_exact: str = ""
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)


def document_json(found: Shown) -> dict[str, Any]:
    """Everything that a page needs of a program."""
    found = _merged(found)
    given = figures(found.program)
    hidden = {let.name for let in found.program.lets if let.hidden}
    names = [name for name in found.program.tensors if name in found.arrays]
    ended = {} if found.evaluated is None else {let.name: sorted(f) for let, f in found.evaluated.ended()}
    return {
        "title": found.title,
        "lines": lines_json(found.source, found.program),
        "diagnostics": [_diagnostic(diagnostic, found.source) for diagnostic in found.diagnostics],
        "coordinates": coordinates_json(found),
        "tensors": [_tensor(found, name, given, hidden) for name in names],
        "relation": relation_json(found.program),
        "sizes": sizes_json(found.sizes),
        "steps": _steps(found, given, hidden),
        "communication": [
            _with_patterns(entry, found)
            for entry in communication_json(found.program, found.facts, found.arrays)
            if entry["definition"] in found.arrays
        ],
        "kinds": {roles.definition: roles.kind for roles in found.facts.roles if roles.kind in _BACKWARD},
        "labels": labels_json(found),
        "claims": _claims(found),
        "ended": ended,
        "whyNotExact": found.why_not_exact,
        "outputs": list(found.program.outputs),
        "modules": modules_json(found.program),
    }


def _merged(found: Shown) -> Shown:
    """All that `..r` stands for as one axis, as in the program, however many arrived."""
    arrays, masked, sizes = dict(found.arrays), dict(found.masked), dict(found.sizes)
    for name, tensor in found.program.tensors.items():
        array = arrays.get(name)
        if array is None or not tensor.axes or not tensor.axes[0].coordinate.rest:
            continue
        kept = array.shape[array.ndim - len(tensor.axes) + 1 :]
        count = math.prod(array.shape[: array.ndim - len(kept)])
        arrays[name] = array.reshape(count, *kept)
        sizes[tensor.axes[0].coordinate] = count
        if name in masked:
            masked[name] = masked[name].reshape(count, *kept)
    return replace(found, arrays=arrays, masked=masked, sizes=sizes)


def _with_patterns(gather: dict[str, Any], found: Shown) -> dict[str, Any]:
    """A gather with a word for every row and head of its weights, where a definition holds them."""
    tensor = gather["tensor"]
    array = None if tensor is None else found.arrays.get(tensor["name"])
    if tensor is None or array is None or not np.isfinite(array).all():
        return {**gather, "heads": [], "words": {}}
    turned = np.moveaxis(array, (tensor["query"], tensor["key"]), (-2, -1))
    sums = turned.sum(-1)
    if not (np.isclose(sums, 1, atol=1e-3) | np.isclose(sums, 0)).all():
        return {**gather, "heads": [], "words": {}}
    patterns = find_patterns(turned)
    apart = [name for n, name in enumerate(tensor["coordinates"]) if n not in (tensor["query"], tensor["key"])]
    heads = [
        {
            "at": dict(zip(apart, head.index, strict=True)),
            "word": head.word,
            "entropy": _plain(head.entropy),
            "keys": _plain(head.effective_keys),
            "self": _plain(head.on_self),
            "previous": _plain(head.on_previous),
            "first": _plain(head.on_first),
            "distance": _plain(head.distance),
        }
        for head in patterns.heads
    ]
    return {**gather, "heads": heads, "words": patterns.words.tolist()}


def labels_json(found: Shown) -> dict[str, list[str]]:
    """Return the labels of the points of each coordinate, given for it or for its space."""
    result: dict[str, list[str]] = {}
    for tensor in found.program.tensors.values():
        for axis in tensor.axes:
            name, space = axis.coordinate.name, axis.coordinate.space
            given = found.labels.get(name) or (found.labels.get(space) if space else None)
            if given is not None:
                result[name] = [str(label) for label in given]
    return result


# -------------------------------------------------------------------- program


def lines_json(source: Source, program: ir.Program) -> list[list[list[str]]]:
    """The text line by line, as words with what they are: a coordinate, a tensor, a keyword, a comment."""
    tokens, comments = tokenize(source, Sink())
    tensors = set(program.tensors)
    coordinates = set(_coordinates(program))
    marks: list[tuple[int, int, str]] = [(c.start, c.end, "comment") for c in comments]
    for token in tokens:
        kind: str = token.kind
        if kind == "name":
            kind = "tensor" if token.text in tensors else "coordinate" if token.text in coordinates else "name"
        if kind in ("coordinate", "tensor", "keyword", "number"):
            marks.append((token.start, token.end, kind))
    pieces: list[list[str]] = []
    at = 0
    for start, end, word in sorted(marks):
        pieces += [[source.text[at:start], ""], [source.text[start:end], word]]
        at = end
    pieces.append([source.text[at:], ""])
    lines: list[list[list[str]]] = [[]]
    for text, word in pieces:
        for number, part in enumerate(text.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append([part, word])
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _coordinates(program: ir.Program) -> list[str]:
    """Every coordinate by name, in the order of appearance."""
    found: dict[str, None] = {}
    for tensor in program.tensors.values():
        if isinstance(tensor, ir.Let) and tensor.hidden:
            continue
        found.update(dict.fromkeys(axis.coordinate.name for axis in tensor.axes))
    tokens, _ = tokenize(program.source, Sink())
    bound = {r.coordinate.name.rstrip("'") for let in program.lets for r in _ranges(let)}
    found.update(dict.fromkeys(token.text for token in tokens if token.kind == "name" and token.text in bound))
    return list(found)


def _ranges(let: ir.Let) -> list[ir.Range]:
    inner = [r for c in let.clauses for part in walk(c.body) if isinstance(part, ir.Reduce) for r in part.ranges]
    return [*(r for c in let.clauses for r in c.ranges), *inner]


def coordinates_json(found: Shown) -> list[dict[str, Any]]:
    """Each coordinate with its colour and what happens to it, definition by definition."""
    axes = [axis.coordinate for tensor in found.program.tensors.values() for axis in tensor.axes]
    spaces = {axis.name: axis.space for axis in axes if axis.space is not None}
    result = []
    for number, name in enumerate(_coordinates(found.program)):
        story = []
        for entry in found.facts.definitions:
            if entry.hidden:
                continue
            words = ["survives"] if name in entry.survives else []
            words += [f"consumed by {op}" for coordinate, op in entry.consumed if coordinate == name]
            words += [f"normalised by {n.by}" for n in entry.normalised if n.coordinate == name]
            story += [[entry.name, ", ".join(words)]] if words else []
        result.append({"name": name, "colour": number, "space": spaces.get(name), "story": story})
    return result


def _diagnostic(diagnostic: Diagnostic, source: Source) -> dict[str, Any]:
    label = next((label for label in diagnostic.labels if label.span.source is source), None)
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "line": None if label is None else label.span.line,
        "notes": list(diagnostic.notes),
        "help": diagnostic.help,
    }


# -------------------------------------------------------------------- tensors


def _tensor(found: Shown, name: str, given: set[str], hidden: set[str]) -> dict[str, Any]:
    tensor = found.program.tensors[name]
    array = found.arrays[name]
    role = "input" if isinstance(tensor, ir.Input) else "given" if name in given else "definition"
    small = array.size <= MOST_LISTED
    mask = found.masked.get(name)
    entry: dict[str, Any] = {
        "name": name,
        "role": role,
        "hidden": name in hidden,
        "kind": tensor.kind,
        "coordinates": [str(axis.coordinate) for axis in tensor.axes],
        "shape": list(array.shape),
        "masked": [] if mask is None else np.flatnonzero(mask).tolist() if small else _packed_bits(mask),
    }
    if small:
        plain = _PLAIN[tensor.kind]
        entry["values"] = [plain(value) for value in array.reshape(-1).tolist()]
    else:
        wide = tensor.kind == "whole" and bool((np.abs(array) >= 2**24).any())
        entry["bytes"] = base64.b64encode(np.ascontiguousarray(array, "<f8" if wide else "<f4").tobytes()).decode(
            "ascii"
        )
        entry["wide"] = wide
    if found.evaluated is not None and small:
        entry.update(_forms(found.evaluated, name))
    return entry


def _packed_bits(mask: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(np.packbits(mask.reshape(-1)).tobytes()).decode("ascii")


def _plain(value: Any) -> Any:
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


_PLAIN: dict[str, Callable[[Any], Any]] = {"bool": bool, "whole": int, "real": _plain}


def _forms(evaluated: Evaluated, name: str) -> dict[str, Any]:
    """Every number of a tensor in its exact and its structural form; equal texts are written once."""
    if name not in evaluated.evaluation.tensors:
        return {}
    values = list(Tensor(evaluated, name).values())
    exact = [show_value(value, None, "canonical") for value in values]
    built = [show_value(value, None, "structural") for value in values]
    named = [index for index, value in enumerate(values) if not value.is_exact]
    return {"exact": exact, "structural": built if built != exact else None, "named": named}


def _steps(found: Shown, given: set[str], hidden: set[str]) -> list[dict[str, Any]]:
    """Every definition that is computed, in order; `inside` names the one that a function's own belongs to."""
    lets = [let for let in ordered(found.program) if let.name in found.arrays and let.name not in given]
    owners = _owners(lets)
    result = []
    for step, let in zip(describe(found.program, lets), lets, strict=True):
        entry = {
            "name": step.name,
            "inside": owners.get(let.name) if let.name in hidden else None,
            "words": step.words,
            "reads": list(step.reads),
            "lines": _statement_lines(let, found.source),
        }
        result.append(entry)
    return result


def _owners(lets: list[ir.Let]) -> dict[str, str]:
    """For each hidden definition, the first one in the program's own text that reads it, directly or not."""
    readers: dict[str, str] = {}
    for let in reversed(lets):
        owner = readers.get(let.name, let.name) if let.hidden else let.name
        for read in reads_of(let):
            readers[read.tensor] = owner
    return {let.name: readers.get(let.name, let.name) for let in lets if let.hidden}


def _statement_lines(let: ir.Let, source: Source) -> list[list[int]]:
    """The lines of a definition that stand in this text; of what a function brought along, those of the call too."""
    spans = [*(clause.span for clause in let.clauses), let.span, let.call]
    lines: list[list[int]] = []
    for span in spans:
        if span is None or span.source is not source:
            continue
        first, last = _lines(span)
        if not any(low <= first and last <= high for low, high in lines):
            lines.append([first, last])
    return lines


def _lines(span: Span) -> list[int]:
    """The first and the last line of a statement."""
    return [span.line, span.line + span.text.count("\n")]


def _claims(found: Shown) -> list[dict[str, Any]]:
    if found.evaluated is None:
        return []
    return [
        _claim(claim, expect, found.evaluated)
        for claim, expect in zip(found.claims, found.program.expects, strict=True)
    ]


def _claim(claim: Claim, expect: ir.Expect, evaluated: Evaluated) -> dict[str, Any]:
    """The verdict, and which tensor's cells it speaks of: those that its left side is."""
    read = expect.body if isinstance(expect.body, ir.Read) else None
    return {
        "text": claim.text,
        "line": claim.line,
        "verdict": claim.verdict,
        "target": None if read is None else read.tensor,
        "coordinates": list(claim.coordinates),
        "counted": counted(len(claim.cells), "figure"),
        "cells": [
            {
                "place": list(cell.place),
                "at": None if read is None else _element(read, expect, cell.place, evaluated),
                "claimed": cell.claimed,
                "exact": show_exact(cell.value, cell.digits),
                "off": None if cell.distance is None or cell.holds else cell.distance.canonical(),
                "units": None if cell.units is None or cell.holds else cell.units.decimal(3),
                "verdict": cell.verdict,
                "cause": None if cell.cause is None else cell.cause.text,
            }
            for cell in claim.cells
        ],
    }


def _element(read: ir.Read, expect: ir.Expect, place: tuple[int, ...], evaluated: Evaluated) -> list[int]:
    """Return the element that is read at a point of a claim."""
    point = {range.coordinate: at for range, at in zip(expect.ranges, place, strict=True)}
    return [evaluated.evaluation.value(index, point) for index in read.indices]
