"""A program said again: other definitions read a copy of one of its tensors, made with some construct of the language.

The copy is the same tensor, point by point, so that every other definition means what it meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tests.laws.numerics import Array
from tests.laws.programs import Case

import indexical as ix
from indexical.diagnostics import Sink
from indexical.ir import nodes
from indexical.ir.walk import reads_of
from indexical.source import Source
from indexical.syntax import tree
from indexical.syntax.parse import parse

Choose = Callable[[int], int]


def candidates(case: Case, values: dict[str, Array]) -> list[str]:
    """The tensors that may be copied: with axes that are known, none of them empty, and not made of themselves."""
    program = ix.compile(case.text)
    lets = {let.name: let for let in program.ir.lets if not let.hidden}
    return [
        name
        for name, let in lets.items()
        if let.axes and name not in program.ir.recurrent and values[name].size
        if not any(axis.coordinate.rest for axis in let.axes)
    ]


def reading_copies(case: Case, copies: dict[str, str], added: Iterable[str]) -> str:
    """The text of the program in which all others read the copies of these tensors."""
    source = Source("test", case.text)
    file = parse(source, Sink())
    makers = set(copies)
    said = [*added]
    for statement in file.statements:
        text = statement.span.text
        if isinstance(statement, tree.Let) and statement.name not in makers:
            for name, copy in copies.items():
                text = re.sub(rf"\b{name}\b", copy, text)
        said.append(text)
    return "\n".join(said) + "\n"


def dependent(case: Case, first: str, second: str) -> bool:
    """Whether either of two definitions is made of the other."""
    lets = ix.compile(case.text).ir.definitions
    return any(_reaches(lets, one, other, set()) for one, other in ((first, second), (second, first)))


def _reaches(lets: dict[str, nodes.Let], name: str, target: str, seen: set[str]) -> bool:
    if name in seen or name not in lets:
        return False
    seen.add(name)
    return any(read.tensor == target or _reaches(lets, read.tensor, target, seen) for read in reads_of(lets[name]))


def letters(stem: str, array: Array) -> list[str]:
    return [f"{stem}_{number}" for number in range(array.ndim)]


def together(case: Case, values: dict[str, Array], choose: Choose) -> str | None:
    """Two tensors, or one twice, through a function that gives both."""
    names = candidates(case, values)
    if not names:
        return None
    first, second = names[choose(len(names))], names[choose(len(names))]
    if first != second and dependent(case, first, second):
        second = first
    one, other = (", ".join(letters(stem, values[name])) for stem, name in (("u", first), ("v", second)))
    copies = {second: "copy_of_second", first: "copy_of_first"}
    function = (
        f"fn both(one[{one}], other[{other}]) -> ([{other}], [{one}]) "
        f"{{ let kept[{one}] = one[{one}]; (other, kept[{one}]) }}"
    )
    return reading_copies(case, copies, (function, f"let (copy_of_second, copy_of_first) = both({first}, {second});"))


GUARDS = (
    ("{u} % 2 == 0", "{u} % 2 != 0"),
    ("{u} < 1", "{u} >= 1"),
    ("{u} < {v}", "{u} == {v}", "{u} > {v}"),
    ("{u} <= {v} && {u} != 1", "{u} > {v} || {u} == 1"),
    ("{u} == 0", "{u} != 0 && {v} < 2", "{u} > 0 && !({v} <= 1)"),
    ("{read} > 0", "!({read} > 0)"),
)


def by_cases(case: Case, values: dict[str, Array], choose: Choose) -> str | None:
    """A tensor as several clauses with guards, one of which holds at every point."""
    names = candidates(case, values)
    if not names:
        return None
    name = names[choose(len(names))]
    axes = letters("u", values[name])
    home = ", ".join(f"{u} in 0..{n}" for u, n in zip(axes, values[name].shape, strict=True))
    read = f"{name}[{', '.join(axes)}]"
    u, v = axes[choose(len(axes))], axes[choose(len(axes))]
    real = values[name].dtype.kind == "f" and name not in guarded(case)
    guards = GUARDS[choose(len(GUARDS) if real else len(GUARDS) - 1)]
    added = [f"let copy[{home}] = {read} where {guard.format(u=u, v=v, read=read)};" for guard in guards]
    return reading_copies(case, {name: "copy"}, added)


def guarded(case: Case) -> set[str]:
    """The definitions that may be absent somewhere, and so may not be compared."""
    lets = ix.compile(case.text).ir.definitions
    return {name for name in lets if _may_be_absent(lets, name, set())}


def _may_be_absent(lets: dict[str, nodes.Let], name: str, seen: set[str]) -> bool:
    if name not in lets or name in seen:
        return False
    seen.add(name)
    own = any(clause.guard is not None for clause in lets[name].clauses)
    return own or any(_may_be_absent(lets, read.tensor, seen) for read in reads_of(lets[name]))


def begun(case: Case, values: dict[str, Array], choose: Choose) -> str | None:
    """A tensor that begins above 0 along some axes, and back again."""
    names = candidates(case, values)
    if not names:
        return None
    name = names[choose(len(names))]
    axes = letters("u", values[name])
    first = [choose(3) for _ in axes]
    ranges = [f"{u} in {k}..{k + n}" for u, k, n in zip(axes, first, values[name].shape, strict=True)]
    below = [f"{u} - {k}" if k else u for u, k in zip(axes, first, strict=True)]
    above = [f"{u} + {k}" if k else u for u, k in zip(axes, first, strict=True)]
    whole = [f"{u} in 0..{n}" for u, n in zip(axes, values[name].shape, strict=True)]
    home = ", ".join(axes)
    added = (
        f"let later[{', '.join(ranges)}] = {name}[{', '.join(below)}];",
        f"let again[{home}] = later[{home}];" if choose(2) else "let again = later;",
        f"let copy[{', '.join(whole)}] = again[{', '.join(above)}];",
    )
    return reading_copies(case, {name: "copy"}, added)
