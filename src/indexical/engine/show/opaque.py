"""Definitions that a kernel of the former printer computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ...ir.types import Coordinate, Dtype
from ..ops import Opaque, Value
from ..order import stepped_along
from .code import Code

if TYPE_CHECKING:
    from .printer import Printer


class Kernels(Protocol):
    """What prints kernels: it is told the variables of sizes and of the tensors that a kernel reads, and writes the
    lines that compute its definitions."""

    def begin(self, taken: set[str]) -> None: ...
    def helpers(self) -> dict[str, str]: ...
    def functions(self) -> list[str]: ...
    def files(self) -> tuple[tuple[str, tuple[str, ...]], ...]: ...
    def reads(self) -> set[str]: ...
    def reads_inside(self) -> set[str]: ...
    def reads_later(self) -> set[str]: ...
    def notes(self) -> Mapping[str, Iterable[object]]: ...
    def size(self, coordinate: Coordinate, variable: str, length: int | None = None) -> None: ...
    def take(self, name: str, variable: str, dtype: Dtype | None, is_number: bool) -> None: ...
    def write(self, kernel: Any) -> tuple[list[str], dict[str, str]]: ...
    def kept(self) -> tuple[list[str], tuple[str, ...]]: ...


class Unwritten:
    """No kernels at all: their definitions have names, for whoever asks for statements and no text."""

    def begin(self, taken: set[str]) -> None:
        pass

    def helpers(self) -> dict[str, str]:
        return {}

    def functions(self) -> list[str]:
        return []

    def files(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return ()

    def reads(self) -> set[str]:
        return set()

    reads_inside = reads_later = reads

    def notes(self) -> Mapping[str, Iterable[object]]:
        return {}

    def size(self, coordinate: Coordinate, variable: str, length: int | None = None) -> None:
        pass

    def take(self, name: str, variable: str, dtype: Dtype | None, is_number: bool) -> None:
        pass

    def write(self, kernel: Any) -> tuple[list[str], dict[str, str]]:
        return [""], {name: name for name in kernel.definitions}

    def kept(self) -> tuple[list[str], tuple[str, ...]]:
        return [], ()


def opaque(p: Printer, one: Value) -> Code:
    """The definition, and all others of the same kernel, which are named at once."""
    from .outputs import output

    op = one.op
    assert isinstance(op, Opaque)
    assert p.kernels is not None
    for name, value in op.operands:
        definition = p.plan.definitions.get(name)
        if value.is_host:
            code = p.code(value)
            if not (code.isidentifier() or code.isdigit()):
                variable = p.fresh(name)
                p.add(f"{variable} = {code}")
                code = Code(variable)
            p.kernels.take(name, str(code), None, True)
        elif definition is None:
            p.kernels.take(name, str(p.code(value)), value.dtype, False)
        else:
            code = output(p, definition)
            if not code.isidentifier():
                variable = p.fresh(name)
                p.add(f"{variable} = {code}")
                code = Code(variable)
            p.kernels.take(name, str(code), definition.dtype, False)
    last = one in p.by_rows
    lines, variables = p.kernels.write(replace(op.step, last=last))
    if last:
        p.apart[one, stepped_along(op)[0]] = variables[op.name]
    lines = lines[1:] if p.lines and not p.lines[-1] and not lines[0] else lines
    p.lines += ["    " * (p.depth - 1) + line if line else "" for line in lines]
    p.told |= variables.keys()
    for name, variable in variables.items():
        if name in p.plan.definitions:
            p.names[p.plan.definitions[name].value] = variable
    return Code(variables[op.name])
