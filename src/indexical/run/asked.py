"""The words of a call: which definitions it asks for, and which array is which input."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from ..checker.names import counted, suggest
from ..diagnostics import CallError, Diagnostic, Label, Sink
from ..ir import nodes as ir
from ..records import dataclass, field
from ..source import Source, Span
from ..syntax.vocabulary import OPTIONS


@dataclass(frozen=True, slots=True)
class Face:
    """The facts that a Python function states beside the program that it declares: its name, the inputs that are
    given by name alone, and the values of scalars that are not given."""

    name: str = ""
    module: str = ""
    qualname: str = ""
    by_name: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


PLAIN = Face()


def name_of(source: Source) -> str:
    """The name of a program that no function declares: as its file is."""
    stem = source.name.replace("\\", "/").rpartition("/")[2].removesuffix(".ix")
    return stem if source.name.endswith(".ix") and stem.isidentifier() else "program"


def filled(program: ir.Program, face: Face, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arrays that are given by name, and the defaults of scalars that are not given."""
    by_place = len(program.inputs) - len(face.by_name)
    if len(arrays) > by_place:
        shown = ", ".join(f"`{name}`" for name in face.by_name)
        help = f"give {shown} by name: `{face.by_name[0]}=…`" if face.by_name else None
        raise CallError([Diagnostic("IX501", f"{len(arrays)} arrays for {counted(by_place, 'input')}", help=help)])
    given = {tensor.name for tensor in program.inputs[: len(arrays)]}
    return {**{name: value for name, value in face.defaults.items() if name not in given}, **named}


def definitions(program: ir.Program) -> tuple[str, ...]:
    """The names that `outputs=` may ask for."""
    return tuple(let.name for let in program.lets if not let.hidden)


# So many inputs are listed where one is asked for that is none of them.
_MOST_LISTED = 40


def wanted_of(program: ir.Program, outputs: str | Iterable[str] | None) -> tuple[str, ...]:
    """The definitions that `outputs` asks for, by name; all outputs for None."""
    asked: Any = program.outputs if outputs is None else (outputs,) if isinstance(outputs, str) else outputs
    names = tuple(asked) if isinstance(asked, Iterable) else (asked,)
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        examples = 'pass `outputs="out"` or `outputs=("weights", "out")`'
        raise _error("IX508", f"outputs are asked for by name, and `{str(odd[0])[:40]}` is none", examples)
    if not names:
        raise _error("IX508", "this program has no output", "define something with `let`")
    known = {let.name for let in program.lets}
    for name in names:
        if name not in known:
            help, _ = suggest(str(name), definitions(program), _start(program))
            shown = ", ".join(definitions(program)) or "nothing"
            raise _error("IX508", f"no definition is called `{name}`", help or f"it defines {shown}")
    return tuple(dict.fromkeys(names))


def arguments_of(program: ir.Program, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Each input with its array; one error says all that is missing or too many."""
    inputs = {tensor.name: tensor for tensor in program.inputs}
    signature = ", ".join(islice(inputs, _MOST_LISTED)) + (", …" if len(inputs) > _MOST_LISTED else "") or "no inputs"
    coordinates = {axis.coordinate.name for tensor in program.inputs for axis in tensor.axes}
    if len(arrays) > len(inputs):
        raise _error("IX501", f"{len(arrays)} arrays for {len(inputs)} inputs", f"this program takes {signature}")
    found = dict(zip(inputs, arrays, strict=False))
    sink = Sink()
    for name, value in named.items():
        if name not in inputs:
            help, _ = suggest(name, (*inputs, *OPTIONS), _start(program), sink)
            if name in coordinates:
                help = f"`{name}` is a coordinate, and has the size of the arrays: pass {signature}"
            sink.report("IX501", f"no input is called `{name}`", help=help or f"this program takes {signature}")
        elif name in found:
            sink.report("IX501", f"`{name}` is given twice, by place and by name")
        else:
            found[name] = value
    for tensor in program.inputs:
        if tensor.name not in found:
            sink.report("IX501", f"the input `{tensor.name}` is missing", Label(tensor.span))
    if sink.failed:
        raise CallError(sink)
    return found


def check_backend(backend: str | None, known: tuple[str, ...]) -> None:
    """Refuse a backend that is none of these."""
    if backend is not None and backend not in known:
        from difflib import get_close_matches  # Few calls need it.

        close = get_close_matches(str(backend), known, 1)
        help = f"did you mean `{close[0]}`?" if close else f"choose from {', '.join(known)}"
        raise _error("IX509", f"there is no backend `{backend}` here", help)


def packed(wanted: tuple[str, ...]) -> Any:
    """Several outputs, by name."""
    return namedtuple("Outputs", wanted, rename=True)


def _start(program: ir.Program) -> Span:
    return Span(program.source, 0, 0)


def _error(code: str, message: str, help: str) -> CallError:
    return CallError([Diagnostic(code, message, help=help)])
