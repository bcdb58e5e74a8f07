"""Notebooks: `%load_ext indexical`, then `%%ix name` makes a program of a cell.

A mistake in a cell is a finding, with a caret under its place, and no traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import linecache
import shlex
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from .api import Program, compile_source
from .checker.names import suggest
from .diagnostics import CallError, Diagnostic, Error, render
from .run.asked import Face
from .source import Origin, Source, Span


def load_ipython_extension(shell: Any) -> None:
    """Register the magics: called by `%load_ext indexical`."""
    shell.register_magic_function(_Magic(shell), "line_cell", "ix")
    shell.set_custom_exc((Error,), _show_error)


def unload_ipython_extension(shell: Any) -> None:
    shell.magics_manager.magics["line"].pop("ix", None)
    shell.magics_manager.magics["cell"].pop("ix", None)
    shell.set_custom_exc((), None)


class Findings:
    """Findings that display themselves."""

    def __init__(self, found: Sequence[Diagnostic]) -> None:
        self.found = tuple(found)

    def __repr__(self) -> str:
        return "\n\n".join(map(render, self.found))

    def _repr_html_(self) -> str:
        from .views.findings import to_html

        return to_html(self.found)


def _show_error(shell: Any, kind: type, error: Error, trace: Any, tb_offset: int | None = None) -> list[str]:
    """Show findings, and below them the line of the notebook that they came from."""
    from IPython.display import display

    display(Findings(error.diagnostics))
    told = [f"{kind.__name__}: {_headline(diagnostic)}" for diagnostic in error.diagnostics]
    for frame in traceback.extract_tb(trace):
        line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
        named = shell.compile.format_code_name(frame.filename)
        if named is not None and not line.startswith("get_ipython()"):
            told.append(f"{' '.join(named)}, line {frame.lineno}: {line}")
    shell._showtraceback(kind, error, told)
    return told


def _headline(diagnostic: Diagnostic) -> str:
    place = f" ({diagnostic.labels[0].span})" if diagnostic.labels else ""
    return f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}{place}"


# ----------------------------------------------------------------------- magic


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        from IPython.core.error import UsageError

        raise UsageError(f"{message}\n{self.format_usage()}")


def _arguments() -> _Arguments:
    parser = _Arguments(prog="%%ix", add_help=False)
    parser.add_argument("name", nargs="?", help="the variable that the program becomes")
    parser.add_argument("--inputs", nargs="*", metavar="NAME[=EXPR]", help="call it at once, with these arrays")
    parser.add_argument("--outputs", metavar="NAMES", help="call it at once, for these definitions, like weights,out")
    parser.add_argument("--quiet", action="store_true", help="show findings alone, and not the program")
    return parser


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as problem:
        _arguments().error(str(problem).lower())


class _Magic:
    """The magic `%%ix`, and `%ix` for commands."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.__doc__ = f"""Make a program of a cell: `%%ix name`. `%ix check FILE` runs a command as in a terminal.

{_arguments().format_help()}
`--inputs Q K V` takes the variables of these names, `--inputs Q=queries` another one, and `--inputs` alone all that
the program takes. With `--inputs` or `--outputs` the value of the cell is what the program gives, else the program."""

    def __call__(self, line: str, cell: str | None = None) -> Any:
        if cell is None:
            from .cli import main

            with contextlib.suppress(SystemExit):  # What argparse had to say, it has said.
                main(_words(line))
            return None
        options = _arguments().parse_args(_words(line))
        if options.name is not None and not options.name.isidentifier():
            _arguments().error(f"`{options.name}` is no name for a variable")
        program = compile_source(self._source(line, cell), face=Face(options.name or "", "__main__"))
        if options.name is not None:
            self.shell.user_ns[options.name] = program
        warnings = [each for each in program.diagnostics if each.severity == "warning"]
        if warnings:
            from IPython.display import display

            display(Findings(warnings))
        if options.inputs is None and options.outputs is None:
            return None if options.quiet else program
        wanted = None if options.outputs is None else [name.strip() for name in options.outputs.split(",")]
        outputs = wanted[0] if wanted is not None and len(wanted) == 1 else wanted
        return program(outputs=outputs, **self._arrays(program, options.inputs or []))

    def _source(self, line: str, cell: str) -> Source:
        """The cell as the file that findings point into, with the line of the magic in front."""
        head = f"%%ix {line}\n"
        files = [frame.f_code.co_filename for frame, _ in traceback.walk_stack(None)]
        named = next(filter(None, map(self.shell.compile.format_code_name, files)), ("<cell>",))
        file = Source(" ".join(named), head + cell)
        return Source(file.name, cell, Origin(file, tuple(range(len(head), len(file.text) + 1))))

    def _arrays(self, program: Program, given: list[str]) -> dict[str, Any]:
        """The arrays that the inputs are called with: variables of their names, or what an expression gives."""
        words = [word for each in given for word in ([each] if "=" in each else each.split(",")) if word]
        pairs = [word.partition("=")[::2] for word in words or program.inputs]
        return {name: self._value(name, text or name) for name, text in pairs}

    def _value(self, name: str, text: str) -> Any:
        known = self.shell.user_ns
        if text in known or not text.isidentifier():
            return self.shell.ev(text)
        nowhere = Span(Source("", ""), 0, 0)
        help, _ = suggest(text, [each for each in known if not each.startswith("_")], nowhere)
        message = f"the notebook has no variable `{text}` for the input `{name}`"
        raise CallError([Diagnostic("IX501", message, help=help or f"define it, or say `--inputs {name}=…`")])
