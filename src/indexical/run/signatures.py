"""A program as Python's tools show it: its signature and its words."""

from __future__ import annotations

from inspect import Parameter, Signature
from keyword import iskeyword
from typing import Any

from ..ir import nodes as ir
from .asked import Face

# The options of every call.
_OPTIONS: tuple[tuple[str, str, Any], ...] = (
    ("outputs", "str | Iterable[str] | None", None),
    ("backend", "str | None", None),
    ("isolate", "bool", False),
    ("recompute", "bool", True),
    ("memory", "str | int | None", None),
)
_TYPES: dict[str, type] = {"bool": bool, "whole": int, "real": float}


def signature_of(program: ir.Program, face: Face) -> Signature:
    """The inputs, each with its axes, then the options of every call. What Python cannot call by name, because it is a
    word of Python's or an option, is given by place, with all before it."""
    found: list[Parameter] = []
    for tensor in program.inputs:
        kind: Any = Parameter.KEYWORD_ONLY if tensor.name in face.by_name else Parameter.POSITIONAL_OR_KEYWORD
        name = tensor.name
        if iskeyword(name) or name in {option for option, _, _ in _OPTIONS}:
            name, kind = f"{name}_", Parameter.POSITIONAL_ONLY
            found = [each.replace(kind=kind) for each in found]
        default = face.defaults.get(tensor.name, Parameter.empty)
        found.append(Parameter(name, kind, default=default, annotation=annotation_of(tensor)))
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in _OPTIONS
    ]
    return Signature([*found, *options])


def annotation_of(tensor: ir.Input) -> Any:
    """The axes of an input and its dtype, as `@ix.program` takes them; of a scalar without a dtype Python's type."""
    axes = " ".join(str(axis.coordinate) for axis in tensor.axes)
    if not axes and tensor.dtype in (None, "i64", "bool"):
        return _TYPES[tensor.kind]
    return axes if tensor.dtype is None else f"{axes} : {tensor.dtype}".strip()


def described(program: ir.Program, face: Face, name: str, text: str) -> str:
    """How a program is called and what it gives in one line, then its text."""
    taken = []
    for tensor in program.inputs:
        if tensor.name in face.by_name and "*" not in taken:
            taken.append("*")
        default = f" = {face.defaults[tensor.name]!r}" if tensor.name in face.defaults else ""
        taken.append(_home(tensor) + default)
    given = ", ".join(_home(program.tensors[each]) for each in program.outputs)
    return f"{name}({', '.join(taken)}) -> {given or 'nothing'}\n\n{text.strip()}\n"


def _home(tensor: ir.Input | ir.Let) -> str:
    axes = ", ".join(str(axis.coordinate) for axis in tensor.axes)
    return f"{tensor.name}[{axes}]" if axes else tensor.name
