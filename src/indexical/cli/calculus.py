"""Commands that make programs of programs: derivatives, batches."""

from __future__ import annotations

import json
from argparse import Namespace

from ..api import Program, compile
from ..calculus import batch, grad, jvp
from .inputs import Usage, names_in, text_of, write


def grad_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    return _print(grad(program, names_in(options.of) or None, names_in(options.by) or None), options)


def jvp_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    return _print(jvp(program, names_in(options.by) or None, names_in(options.of) or None), options)


def batch_command(options: Namespace) -> int:
    coordinate, _, given = options.over.partition("=")
    names = names_in(given)
    if not names:
        raise Usage(f"--over {options.over}: a coordinate and its inputs, like b=Q,K,V")
    program = compile(text_of(options.file))
    return _print(batch(program, **{coordinate.strip(): names}), options)


def _print(program: Program, options: Namespace) -> int:
    if options.format == "json":
        found = {"program": str(program), "inputs": program.inputs, "outputs": program.outputs}
        write(json.dumps(found) + "\n", options.output)
    else:
        write(str(program).rstrip("\n") + "\n", options.output)
    return 0
