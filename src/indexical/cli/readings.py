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
from ..numbers.patience import MOST_DIGITS
from ..readings import accuracy, evaluated_exactly, traced, verify
from ..run.tensors import to_tensors
from ..views.exact import show_results
from .inputs import drawn_arrays, given_arrays, load
from .words import Usage, names_in, sizes_in, text_of


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


def read_exactly(program: Program, options: Namespace) -> tuple[dict[str, Any], dict[str, int]]:
    """The inputs that were given, and the sizes of the others."""
    arrays = given_arrays(program, options.input)
    for specification in options.value:
        name, _, figures = specification.partition("=")
        try:
            arrays[name.strip()] = json.loads(figures, parse_float=str, parse_int=str, parse_constant=str)
        except ValueError:
            raise Usage(
                f'--value {specification}: figures look like Q=[[1, 0.5], [0, 1]], fractions like "1/3"'
            ) from None
    return arrays, sizes_in(options.sizes, "--sizes")


def _tell(options: Namespace) -> Callable[[str], None]:
    """On a terminal, what is computed now, on a line that is written over."""
    if not sys.stderr.isatty() or options.format == "json":
        return lambda name: None
    started = time.monotonic()

    def tell(name: str) -> None:
        if time.monotonic() - started > 1:
            print(f"\r\x1b[Kix: computing {name}", end="\r", file=sys.stderr, flush=True)

    return tell
