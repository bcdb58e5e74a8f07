"""The command `ix`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .api import PlanSheet, Program, check, compile, read_source
from .diagnostics import CallError, Diagnostic, Error, Sink, render
from .numbers.results import MOST_DIGITS
from .readings import evaluated_exactly, traced, verify
from .run.kernel import BACKENDS
from .run.samples import Sample, random_arrays, stand_ins
from .run.tensors import to_numpy, to_tensors
from .syntax.format import format_source
from .syntax.parse import parse
from .views.exact import FORMS, show_results
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
        description="A language for attention, in named coordinates: check programs, run them, see how they are "
        "computed, write them as plain source, have their exact values, trace a number, verify published figures.",
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
    _add_input(running)
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
    _add_backend(running, "numpy")
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

    planning = commands.add_parser(
        "plan",
        help="how a program would be computed: which kernels, what is never built, what was refused",
        description="The plan for arrays of some sizes, without running anything.",
        epilog="example: ix plan attention.ix --sizes b=1,h=8,i=4096,j=4096,d=64,e=64 --backend torch",
    )
    _add_imagined(planning)
    _add_format(planning)
    planning.set_defaults(command=_plan, notes=False)

    emitting = commands.add_parser(
        "emit",
        help="write the program as plain NumPy or PyTorch source",
        description="Write the emitted module: one function `program`, which runs without Indexical.",
        epilog="example: ix emit attention.ix --backend torch -o attention.py",
    )
    _add_imagined(emitting)
    emitting.add_argument("-o", "--output", metavar="PATH", help="where to write it (default: standard output)")
    emitting.set_defaults(command=_emit, notes=False, format="text")

    _add_readings(commands)

    laying = commands.add_parser(
        "fmt", help="one canonical layout", description="Rewrite programs in the canonical layout; comments are kept."
    )
    laying.add_argument("files", nargs="+", metavar="FILE", help="programs; - reads standard input and prints")
    laying.add_argument("--check", action="store_true", help="change nothing; exit 1 if some file would change")
    _add_format(laying)
    laying.set_defaults(command=_format, notes=False)
    return parser


def _add_readings(commands: Any) -> None:
    """The commands that read a program exactly."""
    exactly = commands.add_parser(
        "exact",
        help="the values as exact numbers, or as decimals of which every digit is proven",
        description="The values of a program as exact numbers: fractions, square roots, and softmax as named "
        "exponentials. An input that is not given is a symbol.",
        epilog="example: ix exact examples/lessons/named_softmax.ix",
    )
    _add_exact(exactly)
    exactly.add_argument("--digits", type=int, metavar="N", help="decimals of N significant digits, each proven")
    exactly.add_argument("--outputs", metavar="NAMES", help="definitions to print, like weights,out (default: all)")
    exactly.add_argument(
        "--form",
        choices=FORMS,
        default="structural",
        help="as the definition builds it (structural), by its value (canonical), with what it reads by name (named) "
        "or spelled out (spelled)",
    )
    _add_format(exactly)
    exactly.set_defaults(command=_exact, notes=False)

    tracing = commands.add_parser(
        "trace",
        help="what one number scanned, term by term, and where each term came from",
        description="How a number came about. Without --at: every definition, in the order a person would compute "
        "them.",
        epilog="example: ix trace examples/lessons/three_by_two.ix --at 'out[2, 0]'",
    )
    _add_exact(tracing)
    tracing.add_argument("--at", metavar="POINT", help="the number to trace, like 'out[2, 0]'")
    tracing.add_argument("--depth", type=int, default=8, metavar="N", help="how far down to follow it (default: 8)")
    _add_format(tracing)
    tracing.set_defaults(command=_trace, notes=False)

    verifying = commands.add_parser(
        "verify",
        help="every published figure: it holds, or it fails with the exact value beside it",
        description="Check every `expect` of programs, exactly and figure by figure.",
        epilog="Exits 1 where a figure fails that the rounding of printed inputs does not explain (with --strict, also "
        "where it does).",
    )
    verifying.add_argument("files", nargs="+", metavar="FILE", help="programs; - reads standard input")
    verifying.add_argument("--strict", action="store_true", help="what rounding explains fails too")
    _add_input(verifying)
    verifying.add_argument("--sizes", metavar="SIZES", default="", help="sizes like e=3, for inputs without values")
    _add_format(verifying)
    verifying.set_defaults(command=_verify, notes=False)


def _add_exact(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    _add_input(parser)
    parser.add_argument("--sizes", metavar="SIZES", default="", help="sizes like e=3, for inputs without values")


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]PATH",
        help="NAME=x.npy binds one input; x.npz binds every input it has an array for; may be repeated",
    )


def _add_backend(parser: argparse.ArgumentParser, usual: str) -> None:
    parser.add_argument("--backend", choices=BACKENDS, default=usual, help=f"what computes (default: {usual})")
    parser.add_argument("--device", metavar="NAME", help="of the torch backend: cpu, cuda, … (default: cpu)")


def _add_imagined(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a program; - reads standard input")
    parser.add_argument("--sizes", metavar="SIZES", default="", help="sizes like i=4096,d=64 (others: 3)")
    parser.add_argument("--outputs", metavar="NAMES", help="definitions to compute, like weights,out")
    parser.add_argument("--backend", choices=("numpy", "torch"), default="torch", help="what computes (default: torch)")
    parser.add_argument("--device", default="cpu", help="of the torch backend: cpu, cuda, … (default: cpu)")
    parser.add_argument("--dtype", choices=("f16", "bf16", "f32", "f64"), default="f32", help="of reals (default: f32)")
    parser.add_argument("--isolate", action="store_true", help="keep NaN and infinity from those who may not hear them")


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
    wanted = _names(options.outputs) or program.outputs
    if options.backend == "torch":
        arrays = to_tensors(program.ir, arrays, options.device)
    elif options.device:
        raise Usage(f"--device {options.device}: only the torch backend has devices; add --backend torch")
    values = program(outputs=wanted, backend=options.backend, **arrays)
    found = {name: to_numpy(value) for name, value in zip(wanted, values, strict=True)}
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


def _plan(options: argparse.Namespace) -> int:
    plan, _ = _imagined(options)
    print(json.dumps(plan.to_json()) if options.format == "json" else plan)
    return 0


def _emit(options: argparse.Namespace) -> int:
    _, text = _imagined(options)
    if options.output is None:
        sys.stdout.write(text)
        return 0
    try:
        Path(options.output).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise Usage(f"{options.output} cannot be written: {problem.strerror}") from None
    return 0


def _imagined(options: argparse.Namespace) -> tuple[PlanSheet, str]:
    """The plan and the module for sizes that are only named."""
    program = compile(_text(options.file))
    sizes = _sizes(options.sizes, "--sizes")
    arrays, _ = stand_ins(program.ir, sizes, options.dtype)
    _check_names(sizes, arrays, "--sizes")
    device = options.device if options.backend == "torch" else "cpu"
    return program.imagine(
        arrays.arrays, options.dtype, options.backend, device, _names(options.outputs), options.isolate
    )


def _exact(options: argparse.Namespace) -> int:
    if options.digits is not None and not 1 <= options.digits <= MOST_DIGITS:
        raise Usage(f"--digits {options.digits}: ask for 1 to {MOST_DIGITS:,}")
    program = compile(_text(options.file))
    results = evaluated_exactly(program, _tell(options), _read_exactly(program, options), _names(options.outputs))
    if options.format == "json":
        print(json.dumps(results.to_json(options.digits)))
    else:
        print(show_results(results, results.shown, options.digits, options.form))
    return 0


def _trace(options: argparse.Namespace) -> int:
    if options.depth < 0:
        raise Usage(f"--depth {options.depth}: how far down, 0 or more")
    program = compile(_text(options.file))
    arrays, sizes = _read_exactly(program, options)
    found = traced(program, _tell(options), (), options.at, options.depth, sizes, arrays)
    print(json.dumps(found.to_json()) if options.format == "json" else found)
    return 0


def _verify(options: argparse.Namespace) -> int:
    failed = False
    reports: list[dict[str, Any]] = []
    for file in options.files:
        program = compile(_text(file))
        arrays, sizes = _read_exactly(program, options)
        found = verify(program, sizes=sizes, **arrays)
        failed |= bool(found.failing) or (options.strict and not found)
        if options.format == "json":
            reports.append({"file": file, **found.to_json()})
            continue
        if len(options.files) > 1:
            print(f"{file}\n")
        print(found, end="\n" if file == options.files[-1] else "\n\n")
    if options.format == "json":
        print(json.dumps(reports))
    return int(failed)


def _read_exactly(program: Program, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, int]]:
    """The inputs that were given, and the sizes of the others."""
    return _given(program, options.input), _sizes(options.sizes, "--sizes")


def _tell(options: argparse.Namespace) -> Callable[[str], None]:
    """On a terminal, what is computed now, on a line that is written over."""
    if not sys.stderr.isatty() or options.format == "json":
        return lambda name: None
    started = time.monotonic()

    def tell(name: str) -> None:
        if time.monotonic() - started > 1:
            print(f"\r\x1b[Kix: computing {name}", end="\r", file=sys.stderr, flush=True)

    return tell


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None


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
    _check_names(sizes, drawn, "--random")
    if assumed:
        shown = ", ".join(f"{name}={size}" for name, size in assumed.items())
        print(f"ix: sizes not given: {shown}", file=sys.stderr)
    return drawn.arrays


def _check_names(sizes: dict[str, int], sample: Sample, option: str) -> None:
    unknown = [name for name in sizes if name not in sample.coordinates]
    if unknown:
        known = f"they have {', '.join(sample.coordinates)}" if sample.coordinates else "there are none"
        raise Usage(f"{option}: no input has a coordinate `{unknown[0]}`; {known}")


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
