"""Definitions that a kernel of the former printer computes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ...ir.types import Coordinate, Dtype
from ...records import replace
from ..ops import Opaque, Plan, Value
from ..order import stepped_along
from .blocks import Turns, either, in_blocks, inside
from .code import Code

if TYPE_CHECKING:
    from .printer import Printer


# How a function is called whose call is replaced by operations, before the name of a definition.
FOLDED = "tiles_of_"
_CALL = re.compile(rf"( *)(.+) = {FOLDED}\w+\(")


class Kernels(Protocol):
    """What prints kernels: it is told the variables of sizes and of the tensors that a kernel reads, and writes the
    lines that compute its definitions, below what is told of them. A kernel may be operations for some rows after the
    other, operations where some of its arrays learn, or for calls that it leaves to these."""

    def begin(self, taken: set[str]) -> None: ...
    def helpers(self) -> dict[str, str]: ...
    def modules(self) -> dict[str, None]: ...
    def functions(self) -> list[str]: ...
    def files(self) -> tuple[tuple[str, tuple[str, ...]], ...]: ...
    def reads(self) -> set[str]: ...
    def reads_inside(self) -> set[str]: ...
    def reads_later(self) -> set[str]: ...
    def is_for_some(self) -> bool: ...
    def notes(self) -> Mapping[str, Iterable[object]]: ...
    def size(self, coordinate: Coordinate, variable: str, length: int | None = None) -> None: ...
    def take(self, name: str, variable: str, dtype: Dtype | None, is_number: bool) -> None: ...
    def write(self, kernel: Any) -> tuple[list[str], list[str], dict[str, str]]: ...
    def kept(self) -> tuple[list[str], tuple[str, ...]]: ...
    def turns(self, kernel: Any, wanted: Collection[str]) -> Turns | None: ...
    def folds(self, kernel: Any) -> Plan: ...
    def as_written(self, kernel: Any) -> tuple[Plan, list[str]] | None: ...


class Unwritten:
    """No kernels at all: their definitions have names, for whoever asks for statements and no text."""

    def begin(self, taken: set[str]) -> None:
        pass

    def helpers(self) -> dict[str, str]:
        return {}

    def modules(self) -> dict[str, None]:
        return {}

    def functions(self) -> list[str]:
        return []

    def files(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return ()

    def reads(self) -> set[str]:
        return set()

    reads_inside = reads_later = reads

    def is_for_some(self) -> bool:
        return False

    def notes(self) -> Mapping[str, Iterable[object]]:
        return {}

    def size(self, coordinate: Coordinate, variable: str, length: int | None = None) -> None:
        pass

    def take(self, name: str, variable: str, dtype: Dtype | None, is_number: bool) -> None:
        pass

    def write(self, kernel: Any) -> tuple[list[str], list[str], dict[str, str]]:
        return [], [""], {name: name for name in kernel.definitions}

    def kept(self) -> tuple[list[str], tuple[str, ...]]:
        return [], ()

    def turns(self, kernel: Any, wanted: Collection[str]) -> None:
        return None

    def folds(self, kernel: Any) -> Plan:
        raise AssertionError("there are no lines in which anything could be folded")

    def as_written(self, kernel: Any) -> None:
        return None


def opaque(p: Printer, one: Value) -> Code:
    """The definition, and all others of the same kernel, which are named at once."""
    op = one.op
    assert isinstance(op, Opaque)
    assert p.kernels is not None
    given = dict(_taken(p, op))
    names = [name for name, one in p.plan.definitions.items() if _is_of(one.value, op)]
    turns = p.kernels.turns(op.step, names)
    if turns is not None:
        p.inside[one] = turns.plan
        variables = in_blocks(p, turns, given, [p.plan.definitions[name] for name in turns.plan.wanted])
    else:
        last = one in p.by_rows
        from .tiles import joined

        before, p.nested = p.nested, []
        variables = _written(p, replace(op.step, last=last), given)
        if p.nested:
            p.inside[one] = joined(p.nested)
        p.nested = before + p.nested
        if last:
            p.apart[one, stepped_along(op)[0]] = variables[op.name]
    p.told |= variables.keys()
    for name, variable in variables.items():
        if name in p.plan.definitions:
            p.names[p.plan.definitions[name].value] = variable
    return Code(variables[op.name])


def _is_of(one: Value, op: Opaque) -> bool:
    """Whether a value is of the same kernel."""
    return isinstance(one.op, Opaque) and one.op.step is op.step


def _written(p: Printer, kernel: Any, given: Mapping[str, str]) -> dict[str, str]:
    """The lines of a kernel; where it has no second derivative, beside those that are to be differentiated again."""
    assert p.kernels is not None
    comments, lines, variables = p.kernels.write(kernel)
    lines = list(_folded(p, kernel, iter(_deeper(p, lines)), given))
    again = p.kernels.as_written(kernel)
    if again is not None:
        plan, learned = again
        lines = either(p, p.call("learns", *learned), plan, given, lines, variables)
    lines = [*(() if p.is_told else _deeper(p, comments)), *lines]
    p.lines += lines[1:] if p.lines and not p.lines[-1] and not lines[0] else lines
    return variables


def _folded(p: Printer, kernel: Any, lines: Iterator[str], given: Mapping[str, str]) -> Iterator[str]:
    """The lines of a kernel, with operations in the place of calls that stand for them."""
    assert p.kernels is not None
    for line in lines:
        found = _CALL.match(line)
        if found is None:
            yield line
            continue
        while not line.endswith(")"):  # A call may be broken over several lines.
            line = next(lines)
        plan = p.kernels.folds(kernel)
        own, codes, _ = inside(p, plan, given, len(found[1]) // 4 - p.depth)
        yield from (one for one in own if one)
        yield f"{found[1]}{found[2]} = {', '.join(codes)}"


def _deeper(p: Printer, lines: list[str]) -> list[str]:
    """Lines of a function, as far in as the printer is."""
    return ["    " * (p.depth - 1) + line if line else "" for line in lines]


def _taken(p: Printer, op: Opaque) -> Iterator[tuple[str, str]]:
    """The variables of what a kernel reads, of which its printer is told."""
    from .outputs import output

    assert p.kernels is not None
    for name, value in op.operands:
        definition = p.plan.definitions.get(name)
        is_host = value.is_host and (definition is None or not definition.home)
        if is_host or definition is None:
            code, dtype = p.code(value), None if is_host else value.dtype
            is_named = not is_host or code.isidentifier() or code.isdigit()
        else:
            code, dtype = output(p, definition), definition.dtype
            is_named = code.isidentifier()
        if not is_named:
            variable = p.fresh(name)
            p.add(f"{variable} = {code}")
            code = Code(variable)
        p.kernels.take(name, str(code), dtype, is_host)
        yield name, str(code)
