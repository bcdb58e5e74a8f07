"""`use`: functions from the standard library, or from a file beside the program."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from ..diagnostics import Sink
from ..records import dataclass, field, replace
from ..source import Source
from ..syntax import tree
from ..syntax.parse import parse
from .names import Declarations, collect, suggest

if TYPE_CHECKING:
    from pathlib import Path


@cache
def standard_folder() -> Path:
    """The folder of the standard library. Few programs look there, and the others need no paths."""
    from pathlib import Path

    return Path(__file__).resolve().parent.parent / "std"


@dataclass(frozen=True, eq=False)
class Function:
    """A function and what its own file lets it call."""

    tree: tree.Fn
    functions: Mapping[str, Function] = field(repr=False)

    @property
    def name(self) -> str:
        return self.tree.name


def functions_of(
    file: tree.File, declared: Declarations, sink: Sink, loading: tuple[Path, ...] = ()
) -> dict[str, Function]:
    """The functions that a file may call: its own and those it uses."""
    functions: dict[str, Function] = {}
    for use in declared.uses:
        found = _used(file, use, sink, loading)
        functions.update(found)
        declared.broken |= {name.name for name in use.names} - found.keys()
    for name, fn in declared.functions.items():
        functions[name] = Function(fn, functions)
    return functions


def sources_of(functions: Mapping[str, Function]) -> tuple[Source, ...]:
    """The files that functions are taken from, directly or by what they call; the standard library is left out."""
    found: dict[int, Source] = {}
    seen: set[int] = set()
    waiting = [*functions.values()]
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        source = function.tree.span.source
        if not source.name.startswith("std/"):
            found.setdefault(id(source), source)
            waiting += function.functions.values()
    return tuple(sorted(found.values(), key=lambda source: source.name))


def used_function(file: tree.File, use: tree.Use, name: str) -> Function | None:
    """The function of that name that a `use` fetches, with its place in the file it is from."""
    wanted = replace(use, names=tuple(item for item in use.names if item.name == name))
    return _used(file, wanted, Sink(), ()).get(name)


def _used(file: tree.File, use: tree.Use, sink: Sink, loading: tuple[Path, ...]) -> dict[str, Function]:
    path = _locate(file.source, use)
    if path is None or not path.is_file():
        known = ["std::" + module.stem for module in sorted(standard_folder().glob("*.ix"))]
        called = "::".join(use.path)
        help, fix = suggest(called, known, use.path_span, sink)
        sink.report("IX207", f"there is no module `{called}`", use.path_span, help=help or _where(use), fix=fix)
        return {}
    if path in loading:
        sink.report("IX207", f"`{'::'.join(use.path)}` uses itself", use.path_span)
        return {}
    available = standard(path.stem) if path.parent == standard_folder() else _load(path, sink, (*loading, path))
    found = {}
    for name in use.names:
        if name.name in available:
            found[name.name] = available[name.name]
        else:
            help, fix = suggest(name.name, available, name.span, sink)
            message = f"`{'::'.join(use.path)}` has no function `{name.name}`"
            sink.report("IX207", message, name.span, help=help, fix=fix)
    return found


def _where(use: tree.Use) -> str:
    if use.path[0] == "std":
        names = ", ".join(f"std::{module.stem}" for module in sorted(standard_folder().glob("*.ix")))
        return f"the standard library has {names}"
    return "a module is a file `name.ix` beside the program, or one of the standard library, `std::…`"


def _locate(source: Source, use: tree.Use) -> Path | None:
    if use.path[0] == "std":
        return standard_folder() / f"{use.path[1]}.ix" if len(use.path) == 2 else None
    from pathlib import Path

    beside = Path(source.name)
    if beside.suffix != ".ix" and source.origin is None:
        return None
    return beside.resolve().parent.joinpath(*use.path[:-1], f"{use.path[-1]}.ix")


@cache
def standard(name: str) -> Mapping[str, Function]:
    """A module of the standard library. It is ours, and has no mistakes."""
    sink = Sink()
    path = standard_folder() / f"{name}.ix"
    functions = _load(path, sink, (path,))
    assert not len(sink), "\n".join(map(str, sink))
    return functions


def _load(path: Path, sink: Sink, loading: tuple[Path, ...]) -> Mapping[str, Function]:
    standard_path = path.parent == standard_folder()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        sink.report("IX108", f"`{path.name}` cannot be read: {problem}")
        return {}
    source = Source(f"std/{path.name}" if standard_path else str(path), text)
    file = parse(source, sink)
    return functions_of(file, collect(file, sink), sink, loading)
