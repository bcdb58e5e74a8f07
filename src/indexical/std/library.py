"""Functions of the library as Python functions: each call is a small program around one function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from ..checker.modules import standard, standard_folder
from ..records import dataclass, replace
from ..syntax import tree
from .arguments import Argument, declare, program, refuse, scalar, shaped, spread

# The defaults of scalar parameters. The language itself has none.
DEFAULTS: dict[str, float] = {"eps": 1e-5, "base": 10000.0, "offset": 0, "stride": 1, "limit": 128}


@dataclass(frozen=True, eq=False)
class Entry:
    """A function of the library and the module that it is in."""

    module: str
    fn: tree.Fn

    @property
    def header(self) -> str:
        """The signature between `fn` and its body, on one line."""
        parameters = ", ".join(_joined(parameter.span.text) for parameter in self.fn.parameters)
        given = [f"[{', '.join(_joined(slot.span.text) for slot in home.slots)}]" for home in self.fn.results]
        arrow = f" -> ({', '.join(given)})" if len(given) > 1 else "".join(f" -> {home}" for home in given)
        return f"{self.fn.name}({parameters}){arrow}"

    @property
    def doc(self) -> str:
        """The comment above the function."""
        source = self.fn.span.source
        lines: list[str] = []
        line = self.fn.span.line - 1
        while line > 0 and source.line(line).startswith("//"):
            lines.insert(0, source.line(line).removeprefix("//").strip())
            line -= 1
        return "\n".join(lines)

    @property
    def elementwise(self) -> bool:
        """Whether it is made of scalars alone: then a call may give arrays, and is broadcast over them."""
        return not self.fn.results and all(parameter.slots is None for parameter in self.fn.parameters)


def _joined(text: str) -> str:
    return " ".join(text.split())


@cache
def entries() -> Mapping[str, Entry]:
    """Every function of the library by its name, modules in the order of the alphabet."""
    found: dict[str, Entry] = {}
    for path in sorted(standard_folder().glob("*.ix")):
        for name, function in standard(path.stem).items():
            if function.tree.span.source.name == f"std/{path.name}":
                found[name] = Entry(path.stem, function.tree)
    return found


@cache
def face(name: str) -> Callable[..., Any]:
    """The function of that name, as a Python function."""
    entry = entries()[name]

    def function(*arguments: Any, **named: Any) -> Any:
        return call(entry, arguments, named)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __package__
    function.__doc__ = f"{entry.doc}\n\nIn the language: `use std::{entry.module}::{{{name}}};`\n\n    {entry.header}\n"
    function.__signature__ = signature(entry)  # type: ignore[attr-defined]
    return function


@cache
def signature(entry: Entry) -> inspect.Signature:
    """The parameters in order. Only at the end of the row may one be left out."""
    parameters: list[inspect.Parameter] = []
    optional = True
    for parameter in reversed(entry.fn.parameters):
        optional = optional and parameter.slots is None and parameter.name in DEFAULTS
        default = DEFAULTS[parameter.name] if optional else inspect.Parameter.empty
        place = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.insert(0, inspect.Parameter(parameter.name, place, default=default))
    return inspect.Signature(parameters)


# ----------------------------------------------------------------------- calls


def call(entry: Entry, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The value of a library function at these arguments."""
    values = _bind(entry, positional, named)
    arguments = _elementwise(values) if entry.elementwise else _whole(entry, values)
    text = _text(entry, arguments)
    return program(text)(*(argument.value for argument in arguments))


def _bind(entry: Entry, positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Each parameter with its value; one error says what is wrong with the call."""
    wanted = signature(entry)
    shown = f"it is `{entry.fn.name}{wanted}`"
    names = list(wanted.parameters)
    if len(positional) > len(names):
        refuse(f"`{entry.fn.name}` takes {_count(len(names))}, and {len(positional)} are given", shown)
    values = dict(zip(names, positional, strict=False))
    for name, value in named.items():
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean `{close[0]}`?" if close else shown
            refuse(f"`{entry.fn.name}` has no parameter `{name}`", hint)
        if name in values:
            refuse(f"`{name}` is given twice to `{entry.fn.name}`, by place and by name", shown)
        values[name] = value
    for name, parameter in wanted.parameters.items():
        if name not in values and parameter.default is not inspect.Parameter.empty:
            values[name] = parameter.default
    missing = [name for name in names if name not in values]
    if missing:
        refuse(f"`{entry.fn.name}` needs {', '.join(f'`{name}`' for name in missing)} as well", shown)
    return {name: values[name] for name in names}


def _count(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"


def _whole(entry: Entry, values: Mapping[str, Any]) -> list[Argument]:
    """Tensors as they are, scalars as one number each."""
    found = []
    for parameter in entry.fn.parameters:
        value = values[parameter.name]
        if parameter.slots is None:
            found.append(scalar(parameter.name, value))
        else:
            home = tuple(slot.span.text for slot in parameter.slots)
            found.append(Argument(parameter.name, home, "", value))
    return found


def _elementwise(values: Mapping[str, Any]) -> list[Argument]:
    """Scalars that may be arrays, each with the coordinates that it varies over."""
    arrays = {name: shaped(name, value) for name, value in values.items()}
    rank = max((len(array.shape) for array in arrays.values()), default=0)
    home = [f"axis_{number}" for number in range(rank)]
    apart = spread(arrays, dict.fromkeys(arrays, home))
    found = []
    for name, (axes, array) in apart.items():
        argument = scalar(name, values[name])
        # A number stays the plain number that it was given as, and so without a dtype.
        found.append(replace(argument, axes=axes, value=array) if arrays[name].shape else argument)
    return found


def _text(entry: Entry, arguments: list[Argument]) -> str:
    """A program whose one output is the function's value."""
    name = entry.fn.name
    if entry.elementwise:
        axes = sorted({axis for argument in arguments for axis in argument.axes}, key=lambda axis: (len(axis), axis))
        left = f"result[{', '.join(axes)}]" if axes else "result"
        given = ", ".join(argument.read for argument in arguments)
    else:
        count = len(entry.fn.results)
        left = f"({', '.join(f'result_{number}' for number in range(count))})" if count > 1 else "result"
        given = ", ".join(argument.name for argument in arguments)
    return f"use std::{entry.module}::{{{name}}};\n{declare(arguments)}\nlet {left} = {name}({given});\n"
