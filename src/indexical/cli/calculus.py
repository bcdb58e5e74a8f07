"""Commands that make programs of programs: derivatives, batches."""

from __future__ import annotations

import json
from argparse import Namespace

from ..api import Program, compile
from ..calculus import batch, grad, jvp
from .words import Usage, names_in, text_of, write


def grad_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    return _print(grad(program, _names(options.of, "--of"), _names(options.by, "--by")), options)


def jvp_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    return _print(jvp(program, _names(options.by, "--by"), _names(options.of, "--of")), options)


def batch_command(options: Namespace) -> int:
    coordinates: dict[str, tuple[str, ...]] = {}
    for over in options.over:
        name, _, given = (part.strip() for part in over.partition("="))
        inputs = names_in(given) or ()
        if not name or not all(inputs) or not inputs:
            raise Usage(f"--over {over}: a coordinate and its inputs, like b=Q,K,V")
        if name in coordinates:
            raise Usage(f"--over {over}: `{name}` is given twice; put its inputs together, like {name}=Q,K")
        coordinates[name] = inputs
    program = compile(text_of(options.file))
    return _print(batch(program, **coordinates), options)


def _names(text: str | None, option: str) -> tuple[str, ...] | None:
    """The names that an option gives, None where it is not there; an empty one is a slip and not a default."""
    if text is None:
        return None
    names = names_in(text) or ("",)
    if not all(names):
        raise Usage(f"{option} {text}: names with a comma between them, like Q,K")
    return names


def _print(program: Program, options: Namespace) -> int:
    if options.format == "json":
        found = {"program": str(program), "inputs": program.inputs, "outputs": program.outputs}
        write(json.dumps(found) + "\n", options.output)
    else:
        write(str(program).rstrip("\n") + "\n", options.output)
    return 0
