"""Arrays that are not read any more, given back before a long function returns.

A deep stack of layers makes hundreds of arrays. Kept to the end, each lies in memory of its own that no cache holds:
the call takes as much room as all layers together, and up to twice the time.
"""

from __future__ import annotations

import ast

# A function with fewer assignments than this returns soon enough.
FEW = 24
LONGEST = 110


def released(lines: list[str]) -> list[str]:
    """The lines of a function's body, with a `del` behind the paragraph that reads an array last. What a function
    inside reads is read wherever that one is called."""
    body = _parsed(lines)
    made = _arrays(body)
    if len(made) < FEW:
        return lines
    last: dict[str, int] = {}
    inside: dict[str, set[str]] = {}
    captured: set[str] = set()
    for number, statement in enumerate(body):
        parts = list(ast.walk(statement))
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        names = names.union(*(inside.get(name, ()) for name in names))
        last.update(dict.fromkeys(names, number))
        if isinstance(statement, ast.FunctionDef):
            inside[statement.name] = names
        elif any(isinstance(part, ast.Lambda | ast.FunctionDef) for part in parts):
            captured |= names  # Nobody knows when such a function is called.
    ends = _paragraph_ends(body, lines)
    dead: dict[int, list[str]] = {}
    for name, first in made.items():
        end = ends[max(first, last[name])]
        if end is not None and name not in captured:
            dead.setdefault(end, []).append(name)
    result = list(lines)
    for end in sorted(dead, reverse=True):
        result[end:end] = _deletions(dead[end])
    return result


def _parsed(lines: list[str]) -> list[ast.stmt]:
    (function,) = ast.parse("\n".join(("def program():", *lines))).body
    assert isinstance(function, ast.FunctionDef)
    return function.body


def _arrays(body: list[ast.stmt]) -> dict[str, int]:
    """The names that are certain to have a value from some statement on, and that are no number."""
    numbers: set[str] = set()
    found: dict[str, int] = {}
    for number, statement in enumerate(body):
        assigned = _assigned(statement)
        if isinstance(statement, ast.Assign) and _is_number(statement.value, numbers):
            numbers |= assigned
        for name in sorted(assigned - numbers):
            found.setdefault(name, number)
    return {name: first for name, first in found.items() if name not in numbers}


def _assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value, whichever way it goes."""
    match statement:
        case ast.Assign(targets=targets):
            names = [name for target in targets for name in ast.walk(target)]
            return {name.id for name in names if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
        case ast.If(body=body, orelse=orelse) if orelse:
            return set().union(*map(_assigned, body)) & set().union(*map(_assigned, orelse))
        case _:
            return set()


def _is_number(expr: ast.expr, numbers: set[str]) -> bool:
    """Whether an expression is a number, a size or a device, and takes no room."""
    match expr:
        case ast.Attribute(attr="shape" | "device"):
            return True
        case ast.Name(id=name):
            return name in numbers or name == "math"
        case _:
            inner = [part for part in ast.iter_child_nodes(expr) if isinstance(part, ast.expr)]
            return isinstance(expr, ast.Constant) or (bool(inner) and all(_is_number(part, numbers) for part in inner))


def _paragraph_ends(body: list[ast.stmt], lines: list[str]) -> list[int | None]:
    """For each statement the number of the lines up to the end of its paragraph; None for the last one, which
    returns."""
    ends: list[int | None] = [None] * len(body)
    end: int | None = None
    for number in reversed(range(len(body) - 1)):
        here, following = body[number].end_lineno or 0, body[number + 1].lineno
        # A line of the body is one further up than in the function that was parsed.
        if any(not line.strip() for line in lines[here - 1 : following - 1]):
            end = here - 1
        ends[number] = end
    return ends


def _deletions(names: list[str]) -> list[str]:
    lines = [f"    del {names[0]}"]
    for name in names[1:]:
        if len(lines[-1]) + len(name) + 2 <= LONGEST:
            lines[-1] += f", {name}"
        else:
            lines.append(f"    del {name}")
    return lines
