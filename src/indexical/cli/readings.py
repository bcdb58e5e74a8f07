"""Commands that read a program exactly."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np

from ..api import Program, compile
from ..lessons import lesson
from ..numbers.patience import MOST_DIGITS
from ..printed import is_page, verify_page
from ..readings import accuracy, evaluated_exactly, traced, verify
from ..run.tensors import to_tensors
from ..views.exact import show_results
from .inputs import as_numbers, drawn_arrays, given_arrays, load, written
from .words import Usage, check_device, is_screen, names_in, sizes_in, text_of, write


def exact_command(options: Namespace) -> int:
    if options.digits is not None and not 1 <= options.digits <= MOST_DIGITS:
        raise Usage(f"--digits {options.digits}: ask for 1 to {MOST_DIGITS:,}")
    program = compile(text_of(options.file))
    results = evaluated_exactly(program, _tell(options), read_exactly(program, options), names_in(options.outputs))
    if options.format == "json":
        print(json.dumps(results.to_json(options.digits)))
    else:
        print(show_results(results, results.shown, options.digits, options.form))
    return 0


def trace_command(options: Namespace) -> int:
    if options.depth < 0:
        raise Usage(f"--depth {options.depth}: how far down, 0 or more")
    program = compile(text_of(options.file))
    arrays, sizes = read_exactly(program, options)
    found = traced(program, _tell(options), (), options.at, options.depth, sizes, arrays)
    print(json.dumps(found.to_json()) if options.format == "json" else found)
    return 0


def verify_command(options: Namespace) -> int:
    failed = False
    reports: list[dict[str, Any]] = []
    for file in options.files:
        if is_page(file):
            arrays = {**given_arrays(None, options.input), **written(options.value)}
            page = verify_page(file, options.strict, **arrays)
            failed |= not page
            if options.format == "json":
                reports.append(page.to_json())
            else:
                print(page, end="\n" if file == options.files[-1] else "\n\n")
            continue
        program = compile(text_of(file))
        arrays, sizes = read_exactly(program, options)
        found = verify(program, sizes=sizes, strict=options.strict, **arrays)
        failed |= not found
        if options.format == "json":
            reports.append({"file": file, **found.to_json()})
            continue
        if len(options.files) > 1:
            print(f"{file}\n")
        print(found, end="\n" if file == options.files[-1] else "\n\n")
    if options.format == "json":
        print(json.dumps(reports))
    return int(failed)


def accuracy_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    arrays = given_arrays(program, options.input)
    if options.random is not None:
        drawn = drawn_arrays(program, arrays, options)
        arrays.update({name: a.astype(np.float32) if a.dtype == np.float64 else a for name, a in drawn.items()})
    if options.computed is None:
        if options.dtype:
            raise Usage("--dtype says what numbers --computed has")
        check_device(options)
        given = to_tensors(arrays, options.device) if options.backend == "torch" else arrays
        found = accuracy(program, backend=options.backend, outputs=options.output, **given)
    else:
        loaded = load(options.computed)
        one = options.output
        if isinstance(loaded, dict) and one is not None:
            if one not in loaded:
                raise Usage(f"--output {one}: {options.computed} has no such array; it has {', '.join(loaded)}")
            loaded = loaded[one]
        found = accuracy(program, computed=loaded, dtype=options.dtype, outputs=one, **arrays)
    print(json.dumps(found.to_json()) if options.format == "json" else found)
    return int(options.most is not None and not found.within(options.most))


def lesson_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    arrays, _ = read_exactly(program, options)
    given = {name: as_numbers(value, _decimal) for name, value in arrays.items()}
    if options.random is not None:
        drawn = drawn_arrays(program, given, options)
        given.update({name: a.round(1) + 0.0 if a.dtype.kind == "f" else a for name, a in drawn.items()})
    write(str(lesson(program, title=options.title, **given)), options.output)
    return 0


def _decimal(figure: str) -> int | float:
    try:
        return int(figure) if figure.lstrip("-").isdigit() else float(figure)
    except ValueError:
        raise Usage(f"--value: {figure} is no decimal, and a lesson states its figures as decimals") from None


def read_exactly(program: Program, options: Namespace) -> tuple[dict[str, Any], dict[str, int]]:
    """The inputs that were given, and the sizes of the others."""
    return {**given_arrays(program, options.input), **written(options.value)}, sizes_in(options.sizes, "--sizes")


def _tell(options: Namespace) -> Callable[[str], None]:
    """On a terminal, what is computed now, on a line that is written over."""
    if not is_screen(sys.stderr) or options.format == "json":
        return lambda name: None
    started = time.monotonic()

    def tell(name: str) -> None:
        if time.monotonic() - started > 1:
            print(f"\r\x1b[Kix: computing {name}", end="\r", file=sys.stderr, flush=True)

    return tell
