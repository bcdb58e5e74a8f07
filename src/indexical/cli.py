"""The command `ix`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .api import Program, check, compile, read_source
from .diagnostics import CallError, Diagnostic, Error, Sink, render
from .run.samples import random_arrays
from .syntax.format import format_source
from .syntax.parse import parse
from .views.facts import facts_json, show_facts
from .views.text import show_json, show_output


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 where all is well, 1 where the program is at fault, 2 where the command is."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "command"):
        parser.print_help()
        return 2
    try:
        return int(options.command(options))
    except Error as error:
        _print_diagnostics(error.diagnostics, options)
        return 1
    except Usage as problem:
        print(f"ix: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is left of it goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("ix: interrupted", file=sys.stderr)
        return 130


class Usage(Exception):
    """The command line is at fault."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ix",
        description="A language for attention, in named coordinates: check programs, run them, lay them out.",
        epilog="ix COMMAND --help says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"indexical {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    checking = commands.add_parser(
        "check",
        help="every mistake at once, a caret under each",
        description="Report every mistake in programs, without running them. Silent where all is well.",
        epilog="Exits 1 where there is an error (with --strict, also where there is a warning).",
    )
    checking.add_argument("files", nargs="+", metavar="FILE", help="programs; - reads standard input")
    checking.add_argument("--strict", action="store_true", help="warnings fail too")
    checking.add_argument("--notes", action="store_true", help="print notes as well")
    _add_format(checking)
    checking.set_defaults(command=_check)

    running = commands.add_parser(
        "run",
        help="evaluate a program and print or save its outputs",
        description="Evaluate a program. Inputs come from files or are drawn at random; figures in the file need none.",
        epilog="example: ix run attention.ix --random i=6,d=4 --seed 0 --outputs weights",
    )
    running.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    running.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]PATH",
        help="NAME=x.npy binds one input; x.npz binds every input it has an array for; may be repeated",
    )
    running.add_argument(
        "--random",
        nargs="?",
        const="",
        metavar="SIZES",
        help="draw the inputs that are not given, with sizes like i=6,d=4 (others: as one of their space, else 3)",
    )
    running.add_argument("--seed", type=int, default=0, help="of the random inputs (default: 0)")
    running.add_argument("--outputs", metavar="NAMES", help="definitions to compute, like weights,out")
    running.add_argument("--save", metavar="PATH", help="write the outputs to a .npz (or, for one, a .npy) file")
    running.add_argument("--precision", type=int, default=4, help="digits to print (default: 4)")
    _add_format(running)
    running.set_defaults(command=_run, notes=False)

    telling = commands.add_parser(
        "facts",
        help="who asks, who answers, what is scanned, what it costs",
        description="What is true of a program, found without running it.",
        epilog="example: ix facts attention.ix --sizes b=1,h=8,i=4096,j=4096,d=64,e=64",
    )
    telling.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    telling.add_argument("--sizes", metavar="SIZES", default="", help="sizes like i=4096,d=64, for figures of the cost")
    _add_format(telling)
    telling.set_defaults(command=_facts, notes=False)

    laying = commands.add_parser(
        "fmt", help="one canonical layout", description="Rewrite programs in the canonical layout; comments are kept."
    )
    laying.add_argument("files", nargs="+", metavar="FILE", help="programs; - reads standard input and prints")
    laying.add_argument("--check", action="store_true", help="change nothing; exit 1 if some file would change")
    _add_format(laying)
    laying.set_defaults(command=_format, notes=False)
    return parser


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="for people, or for editors and CI")


# ------------------------------------------------------------------- commands


def _check(options: argparse.Namespace) -> int:
    found: list[Diagnostic] = []
    for file in options.files:
        found += check(_text(file))
    shown = [diagnostic for diagnostic in found if options.notes or diagnostic.severity != "note"]
    _print_diagnostics(shown, options)
    severities = {diagnostic.severity for diagnostic in found}
    return int("error" in severities or (options.strict and "warning" in severities))


def _run(options: argparse.Namespace) -> int:
    program = compile(_text(options.file))
    warnings = [diagnostic for diagnostic in program.diagnostics if diagnostic.severity == "warning"]
    if options.format == "text":
        _print_diagnostics(warnings, options)
    arrays = _given(program, options.input)
    if options.random is not None:
        arrays.update(_drawn(program, arrays, options))
    wanted = tuple(name.strip() for name in options.outputs.split(",")) if options.outputs else program.outputs
    values = program(outputs=wanted, **arrays)
    found = dict(zip(wanted, values, strict=True))
    if options.save:
        _save(found, options.save)
        return 0
    lets = {let.name: let for let in program.ir.lets}
    if options.format == "json":
        print(json.dumps([show_json(lets[name], array) for name, array in found.items()]))
    else:
        print("\n\n".join(show_output(lets[name], array, options.precision) for name, array in found.items()))
    return 0


def _facts(options: argparse.Namespace) -> int:
    program = compile(_text(options.file))
    cost = program.facts.cost(_sizes(options.sizes, "--sizes"))
    if options.format == "json":
        print(json.dumps(facts_json(program.facts, cost)))
    else:
        print(show_facts(program.facts, cost))
    return 0


def _sizes(text: str, option: str) -> dict[str, int]:
    """`i=6,d=4` as sizes."""
    sizes: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if not value.strip().isdigit():
            raise Usage(f"{option} {part}: sizes look like i=6,d=4")
        sizes[name.strip()] = int(value)
    return sizes


def _format(options: argparse.Namespace) -> int:
    changed = []
    for file in options.files:
        sink = Sink()
        source = read_source(_text(file), sink)
        tree = None if source is None else parse(source, sink)
        if source is None or tree is None or sink.failed:
            raise CallError(sink)
        text = format_source(tree)
        if file == "-" and not options.check:
            sys.stdout.write(text)
        elif text != source.text:
            changed.append(file)
            if not options.check:
                Path(file).write_text(text, encoding="utf-8")
    for file in changed:
        print(f"{'would change' if options.check else 'changed'} {file}", file=sys.stderr)
    return int(options.check and bool(changed))


# ---------------------------------------------------------------------- parts


def _text(file: str) -> str | Path:
    """A file to read, or what stands on standard input."""
    if file != "-":
        return Path(file)
    return sys.stdin.read() + "\n"


def _print_diagnostics(found: Sequence[Diagnostic], options: argparse.Namespace) -> None:
    if getattr(options, "format", "text") == "json":
        print(json.dumps([diagnostic.to_json() for diagnostic in found]))
        return
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    for diagnostic in found:
        print(render(diagnostic, colour), end="\n\n", file=sys.stderr)


def _given(program: Program, specifications: list[str]) -> dict[str, Any]:
    """The arrays of `--input`."""
    arrays: dict[str, Any] = {}
    for specification in specifications:
        name, _, path = specification.rpartition("=")
        loaded = _load(path)
        if not name and not isinstance(loaded, dict):
            raise Usage(f"--input {path}: say which input it is: NAME={path}")
        if isinstance(loaded, dict):
            entries = {name: loaded[name]} if name and name in loaded else loaded
            if name and name not in loaded:
                raise Usage(f"--input {specification}: {path} has no array `{name}`; it has {', '.join(loaded)}")
            arrays.update({key: array for key, array in entries.items() if key in program.inputs or key == name})
        else:
            arrays[name] = loaded
    return arrays


def _load(path: str) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise Usage(f"{path} cannot be loaded: {problem}") from None
    return dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded


def _drawn(program: Program, arrays: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    sizes = _sizes(options.random, "--random")
    drawn, assumed = random_arrays(program.ir, arrays, sizes, options.seed)
    unknown = [name for name in sizes if name not in drawn.coordinates]
    if unknown:
        known = f"they have {', '.join(drawn.coordinates)}" if drawn.coordinates else "there are none"
        raise Usage(f"--random: no input has a coordinate `{unknown[0]}`; {known}")
    if assumed:
        shown = ", ".join(f"{name}={size}" for name, size in assumed.items())
        print(f"ix: sizes not given: {shown}", file=sys.stderr)
    return drawn.arrays


def _save(found: dict[str, Any], path: str) -> None:
    try:
        if path.endswith(".npy"):
            if len(found) != 1:
                raise Usage(f"--save {path}: several outputs go to a .npz file")
            np.save(path, next(iter(found.values())))
        else:
            np.savez(path, **found)
    except OSError as problem:
        raise Usage(f"{path} cannot be written: {problem.strerror}") from None
