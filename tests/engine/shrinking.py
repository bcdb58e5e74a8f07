"""Programs made smaller while they keep a fault: statements are left out, and expressions give way to their parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.engine.drawing import Drawn

import indexical as ix
from indexical.ir import nodes as ir
from indexical.ir.walk import children, walk

# What may stand for an expression of a kind.
_PLAIN = {"real": ("1.0",), "whole": ("0", "1"), "bool": ("0 < 1",)}


def shrunk(case: Drawn, is_faulty: Callable[[Drawn], bool], tries: int = 150) -> Drawn:
    """The smallest program that is found in so many tries, with the same fault."""
    left = tries
    changed = True
    while changed and left > 0:
        changed = False
        for smaller in _smaller(case):
            left -= 1
            if left <= 0:
                break
            if len(smaller.text) < len(case.text) and is_faulty(smaller):
                case, changed = smaller, True
                break
    return case


def _smaller(case: Drawn) -> Iterator[Drawn]:
    """Programs with less in them, those with much less first."""
    for text in (*_without_statements(case.text), *_with_parts(case.text)):
        names = set(re.findall(r"\w+", text))
        yield replace(case, text=text, arrays={name: array for name, array in case.arrays.items() if name in names})


def _without_statements(text: str) -> Iterator[str]:
    parts = [part for part in re.split(r"(?<=;)\s*", text) if part.strip()]
    for n in range(len(parts)):
        if not parts[n].startswith("input"):
            yield "\n".join(parts[:n] + parts[n + 1 :])
    for found in re.finditer(r"(\w+)(\[[^\]]*\])?(\s*:\s*\w+)?,?", parts[0]):
        name = found[1]
        if name != "input" and not re.search(rf"\b{name}\b", "\n".join(parts[1:])):
            yield "\n".join([(parts[0][: found.start()] + parts[0][found.end() :]).replace(", ;", ";"), *parts[1:]])


def _with_parts(text: str) -> Iterator[str]:
    """One expression of the text replaced by a part of it, or by a number."""
    try:
        program = ix.compile(text).ir
    except ix.Error:
        return
    found: dict[tuple[int, int], list[str]] = {}
    for let in program.lets:
        for clause in let.clauses:
            whole: tuple[ir.Expr, ...] = (clause.body, *(() if clause.guard is None else (clause.guard,)))
            for expr in (part for one in whole for part in walk(one)):
                span = expr.span
                if span.source is not program.source or span.end - span.start < 2:
                    continue
                options = found.setdefault((span.start, span.end), [])
                options += [f"({part.span.text})" for part in children(expr) if part.type.kind == expr.type.kind]
                options += _PLAIN[expr.type.kind]
    for (start, end), options in sorted(found.items(), key=lambda item: item[0][0] - item[0][1]):
        for option in dict.fromkeys(options):
            if len(option) < end - start:
                yield text[:start] + option + text[end:]
