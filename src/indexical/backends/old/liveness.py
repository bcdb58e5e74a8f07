"""Arrays that are not read any more, given back before a long function returns.

A deep stack of layers makes hundreds of arrays. Kept to the end, each lies in memory of its own that no cache holds:
the call takes as much room as all layers together, and up to twice the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...engine.show.lines import LONGEST
from .code import Attribute, Call, Name, Node, Number, String, Tuple, parts
from .layout import Statement

# A function with fewer arrays than this returns soon enough.
FEW = 24


def released(statements: list[Statement], few: int = FEW) -> list[Statement]:
    """The body of a function, with a `del` behind the paragraph that reads an array last, where there are not `few`.
    What a function inside reads is read wherever that one is called. One that makes blocks is called on the way back
    too: what it reads, and is not given, stays."""
    groups = list(groups_of(statements))
    made = _arrays(groups)
    if len(made) < few:
        return statements
    last: dict[str, int] = {}
    inside: dict[str, set[str]] = {}
    stays = read_later(statements)
    for number, group in enumerate(groups):
        names = {word for statement in group for word in (*statement.words, statement.target)}
        names = names.union(*(inside.get(name, ()) for name in names))
        last.update(dict.fromkeys(names, number))
        if group[0].kind == "def":
            inside[group[0].target] = names
    dead: dict[int, list[str]] = {}
    for name, first in made.items():
        end = _end_of_paragraph(groups, max(first, last[name]))
        if end is not None and name not in stays:
            dead.setdefault(end, []).append(name)
    result: list[Statement] = []
    for number, group in enumerate(groups):
        result += group
        result += _deletions(dead.get(number, []))
    return result


def read_later(statements: list[Statement]) -> set[str]:
    """The variables that functions among statements read on the way back, and are not given."""
    groups = list(groups_of(statements))
    again = {name for group in groups for name in _called_again(group)}
    found: set[str] = set()
    for group in groups:
        if group[0].kind == "def" and group[0].target in again:
            own = {*group[0].words, *(statement.target for statement in group)}
            found |= {word for statement in group for word in statement.words} - own
    return found


def _called_again(group: list[Statement]) -> set[str]:
    """The functions that may be called after the whole one has returned."""
    calls = [statement.code for statement in group if isinstance(statement.code, Call)]
    some = [code.arguments for code in calls if code.function == Name("in_blocks")]
    return {part.text for arguments in some for part in arguments if isinstance(part, Name)}


def groups_of(statements: list[Statement]) -> Iterator[list[Statement]]:
    """The outermost statements, each with all that stands further in, and an `if` with its `else`."""
    group: list[Statement] = []
    for statement in statements:
        if group and statement.indent == 1 and statement.kind not in ("elif", "else"):
            yield group
            group = []
        group.append(statement)
    if group:
        yield group


def _arrays(groups: list[list[Statement]]) -> dict[str, int]:
    """The names that are certain to have a value from some group on, and that are no number."""
    numbers: set[str] = set()
    found: dict[str, int] = {}
    for number, group in enumerate(groups):
        head = group[0]
        if head.kind in ("temporary", "assign") and head.code is not None and _is_number(head.code, numbers):
            numbers.add(head.target)
        for name in sorted(assigned_in(group) - numbers):
            found.setdefault(name, number)
    return {name: first for name, first in found.items() if name not in numbers}


def assigned_in(group: list[Statement]) -> set[str]:
    """The names that a group gives a value, whichever way it goes."""
    head = group[0]
    if head.kind in ("temporary", "assign"):
        return {head.target}
    if head.kind == "unpack" and isinstance(head.place, Tuple):
        return {part.text for part in head.place.items if isinstance(part, Name) and part.text != "_"}
    if head.kind != "if" or all(statement.kind != "else" or statement.indent > 1 for statement in group):
        return set()
    branches: list[set[str]] = []
    for statement in group:
        if statement.indent == 1:
            branches.append(set())
        elif statement.indent == 2 and statement.kind in ("temporary", "assign"):
            branches[-1].add(statement.target)
    return set.intersection(*branches)


def _is_number(code: Node, numbers: set[str]) -> bool:
    """Whether this is a number, a size or a device, and takes no room."""
    match code:
        case Attribute(_, "shape" | "device") | Number() | String():
            return True
        case Name(name):
            return name in numbers or name.startswith("math.")
        case Call(Name("int" | "max" | "min" | "abs"), arguments):
            return all(_is_number(argument, numbers) for argument in arguments)
        case _:
            inner = parts(code)
            return bool(inner) and all(_is_number(part, numbers) for part in inner)


def _end_of_paragraph(groups: list[list[Statement]], number: int) -> int | None:
    """The last group of the paragraph of another; None in the last paragraph, which returns."""
    for at in range(number + 1, len(groups)):
        if groups[at][0].kind == "blank":
            return at - 1
    return None


def _deletions(names: list[str]) -> Iterator[Statement]:
    """`del a, b`, on as many lines as it takes."""
    line: list[str] = []
    for name in names:
        if line and len(", ".join((*line, name))) > LONGEST - 8:
            yield Statement(1, 0, "del", code=Tuple(tuple(map(Name, line))))
            line = []
        line.append(name)
    if line:
        yield Statement(1, 0, "del", code=Tuple(tuple(map(Name, line))))
