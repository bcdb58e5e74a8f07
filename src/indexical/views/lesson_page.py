"""The blocks of a lesson as a page holds them: what its prose and its questions speak of is found in its programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .document import Shown, document_json
from .lesson import Block, Node, ProgramText, Prose, Question, Words, inline

_ELEMENT = re.compile(r"(\w+)\s*(?:\[([0-9,\s]*)\])?")
_CHANGE = re.compile(r"([^:]+):(-?[0-9.]+(?:e-?[0-9]+)?)")


class Wrong(Exception):
    """A mistake in a lesson, and its line; `within` is the address of a link, where the line is not known."""

    def __init__(self, line: int, message: str, help: str | None = None, within: str = "") -> None:
        self.line, self.message, self.help, self.within = line, message, help, within
        super().__init__(message)


def lesson_json(parts: Sequence[Block], shown: Mapping[int, Shown]) -> list[dict[str, Any]]:
    """The blocks of a lesson; `shown` has the programs among its parts, by their number."""
    documents = [document_json(found) for found in shown.values()]
    programs = list(shown.values())
    before = 0
    blocks: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        near = _near(before, len(documents))
        match part:
            case Prose(nodes):
                leads = number + 1 in shown
                blocks.append({"kind": "prose", "nodes": list(_sections(nodes, documents, near, leads))})
            case ProgramText():
                blocks.append(
                    {"kind": "program", "pages": [documents[before]], "opening": _opening(part, documents[before])}
                )
                before += 1
            case Question():
                reveal = [_linked(node, documents, near) for node in part.reveal]
                asked = {"program": before - 1, "prompt": _prompt(part, documents, near), "reveal": reveal}
                blocks.append({**_question(part, programs[:before]), **asked})
            case Words():
                asked = {"program": before - 1, "prompt": _prompt(part, documents, near)}
                blocks.append({**_words(part, documents[:before]), **asked})
    return blocks


def _near(before: int, count: int) -> list[int]:
    """The programs that a text may speak of: the last one before it, else the next."""
    return [n for n in (before - 1, before) if 0 <= n < count]


# ---------------------------------------------------------------------- places


def _element(text: str, document: dict[str, Any], whole: bool = False) -> tuple[str, list[int]] | None:
    """The tensor and the place that `weights[2, 2]` names; with `whole`, only an element and no row of them."""
    match = _ELEMENT.fullmatch(text.strip())
    tensor = None if match is None else _tensor(match[1], document)
    if match is None or tensor is None:
        return None
    place = [int(part) for part in (match[2] or "").split(",") if part.strip()]
    shape = tensor["shape"]
    inside = len(place) <= len(shape) and all(at < size for at, size in zip(place, shape, strict=False))
    return (match[1], place) if inside and (len(place) == len(shape) or not whole) else None


def _tensor(name: str, document: dict[str, Any]) -> dict[str, Any] | None:
    return next((found for found in document["tensors"] if found["name"] == name and not found["hidden"]), None)


def _sections(nodes: Sequence[Node], documents: list[dict[str, Any]], near: list[int], leads: bool) -> Iterator[Node]:
    """Prose with its links; under a heading that leads to a program, it speaks of that one first."""
    for node in nodes:
        if leads and node[0] in ("h1", "h2", "h3"):
            near = sorted(near, reverse=True)
        yield _linked(node, documents, near)


def _linked(node: Node, documents: list[dict[str, Any]], near: list[int], elements: bool = True) -> Node:
    """A text in which elements and tensors are links, and links know their program."""
    if isinstance(node, str) or node[0] == "pre":
        return node
    if node[0] == "a":
        return ["a", _target(node[1], documents, near), node[1], *node[2:]]
    if node[0] == "code":
        if not elements:
            return node
        found = ((n, _element(node[1], documents[n])) for n in near)
        n, element = next(((n, element) for n, element in found if element is not None), (0, None))
        return node if element is None else ["cell", n, element[0], element[1], node[1]]
    return [node[0], *(_linked(inside, documents, near, elements) for inside in node[1:])]


def _target(address: str, documents: list[dict[str, Any]], near: list[int]) -> int:
    """The program that a link is about: the one that it names, else the first near it that has all it speaks of."""
    fields = _fields(address)
    named = [value for key, value in fields if key == "program"]
    if named:
        near = [int(named[0]) - 1] if re.fullmatch("[1-9][0-9]?", named[0]) and int(named[0]) <= len(documents) else []
    problems = [_problem(fields, documents[n]) for n in near]
    if "" in problems:
        return near[problems.index("")]
    reason = problems[0] if problems else "there is no such program"
    raise Wrong(0, f"the link `#{address}` leads nowhere: {reason}", within=address)


def _fields(address: str) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (part.partition("=") for part in address.split("&"))]


def _problem(fields: list[tuple[str, str]], document: dict[str, Any]) -> str:
    """Return why a program has no such place; nothing where it has."""
    steps = [step for step in document["steps"] if step["inside"] is None]
    for key, value in fields:
        if key == "step" and not (re.fullmatch("[1-9][0-9]{0,3}", value) and int(value) <= len(steps)):
            return f"there are {len(steps)} steps, and no step `{value}`"
        if key == "cell" and _element(value, document, whole=True) is None:
            return f"no program near it has an element `{value}`"
        if key == "term" and not re.fullmatch("[1-9][0-9]{0,3}", value):
            return "terms are counted from 1"
        if key == "set":
            change = _CHANGE.fullmatch(value)
            element = None if change is None else _element(change[1], document, whole=True)
            tensor = None if element is None else _tensor(element[0], document)
            if tensor is None or tensor["role"] == "definition" or tensor["kind"] == "bool":
                return f"`{value}` does not set a number that is given, like `Q[0,1]:2.5`"
        if key not in ("program", "step", "cell", "term", "set", "reset", "labels"):
            return f"`{key}` is none of `program`, `step`, `cell`, `term`, `set` and `reset`"
    return ""


def opening_labels(block: ProgramText) -> dict[str, list[str]]:
    """The labels that the block of a program gives, by the names of coordinates and spaces."""
    given = [value.partition(":") for key, value in _fields(block.opening) if key == "labels"]
    return {name: [word.strip() for word in words.split(",")] for name, _, words in given}


def _opening(block: ProgramText, document: dict[str, Any]) -> str:
    reason = _problem(_fields(block.opening), document) if block.opening else ""
    if reason:
        raise Wrong(block.line - 1, f"the program cannot open at `#{block.opening}`: {reason}")
    return "&".join(f"{key}={value}" for key, value in _fields(block.opening) if key not in ("labels", ""))


# ------------------------------------------------------------------- questions


def _prompt(block: Question | Words, documents: list[dict[str, Any]], near: list[int]) -> list[Node]:
    """The prompt of a question; an element in it is no link, since it may be the answer."""
    return [_linked(node, documents, near, elements=False) for node in inline(block.prompt)]


def _question(block: Question, shown: Sequence[Shown]) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": "question", "places": block.places}
    if not block.prompt:
        raise Wrong(block.line, "this question asks nothing")
    if block.answer is None:
        if not block.reveal:
            raise Wrong(block.line, "this question has no answer", "add `answer: out[2, 0]`, or `reveal:` with words")
        return {**entry, "answer": None}
    match = _ELEMENT.fullmatch(block.answer)
    array = shown[-1].arrays.get(match[1]) if match and shown else None
    if match is None or array is None:
        message = f"no program before this question has an element `{block.answer}`"
        raise Wrong(block.line, message, "an answer names an element, like `out[2, 0]`, or a tensor")
    place = [int(part) for part in (match[2] or "").split(",") if part.strip()]
    try:
        answers = np.asarray(array[tuple(place)], dtype=float).reshape(-1)
        masked = shown[-1].masked.get(match[1], np.zeros(array.shape, bool))[tuple(place)]
    except IndexError:
        raise Wrong(block.line, f"`{match[1]}` has no point `{block.answer}`") from None
    if np.any(masked) or not np.isfinite(answers).all() or not answers.size:
        raise Wrong(block.line, f"`{block.answer}` has no number to type: it is masked, infinite or a symbol")
    first = [*place, *([0] * (array.ndim - len(place)))]
    return {**entry, "answer": answers.tolist(), "name": match[1], "place": first}


def _words(block: Words, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A field for as many words as a coordinate, or all coordinates of a space, have points."""
    known = documents[-1]["coordinates"] if documents else []
    names = [entry["name"] for entry in known if block.name and block.name in (entry["name"], entry["space"])]
    counts = {
        size
        for tensor in (documents[-1]["tensors"] if documents else ())
        for name, size in zip(tensor["coordinates"], tensor["shape"], strict=True)
        if name in names
    }
    if len(counts) != 1:
        message = f"no program before this block has a coordinate or a space `{block.name}` of one size"
        raise Wrong(block.line - 1, message, "name one after the word: ```words position")
    if not block.prompt:
        raise Wrong(block.line - 1, "this block asks for nothing", "write what the words are for in it")
    return {"kind": "words", "names": names, "count": counts.pop()}
