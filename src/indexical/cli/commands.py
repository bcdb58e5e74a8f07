"""Commands that run programs, and say what is known of them and how they are computed."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from ..api import compile
from ..run.jax_arrays import to_numpy as array_of
from ..run.samples import stand_ins
from ..run.tensors import to_numpy, to_tensors
from ..views.facts import facts_json, show_facts
from ..views.text import show_json, show_output
from .findings import print_diagnostics
from .inputs import check_names, drawn_arrays, given_arrays, rounded_values, save
from .words import Usage, check_device, check_memory, names_in, sizes_in, text_of, write

if TYPE_CHECKING:
    from ..views.plan import PlanSheet


def run_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    warnings = [diagnostic for diagnostic in program.diagnostics if diagnostic.severity == "warning"]
    if options.format == "text":
        print_diagnostics(warnings, options)
    arrays = {**given_arrays(program, options.input), **rounded_values(options.value)}
    if options.random is not None:
        arrays.update(drawn_arrays(program, arrays, options))
    if options.precision < 0:
        raise Usage(f"--precision {options.precision}: a number of digits is 0 or more")
    wanted = names_in(options.outputs) or program.outputs
    check_device(options)
    check_memory(options)
    if options.backend == "torch":
        arrays = to_tensors(arrays, options.device)
    values = program(outputs=wanted, backend=options.backend, memory=options.memory, **arrays)
    found = {name: to_numpy(array_of(value)) for name, value in zip(wanted, values, strict=True)}
    if options.save:
        save(found, options.save)
        return 0
    lets = program.ir.definitions
    if options.format == "json":
        print(json.dumps([show_json(lets[name], array) for name, array in found.items()]))
    else:
        print("\n\n".join(show_output(lets[name], array, options.precision) for name, array in found.items()))
    return 0


def facts_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    cost = program.facts.cost(sizes_in(options.sizes, "--sizes"))
    if options.format == "json":
        print(json.dumps(facts_json(program.facts, cost)))
    else:
        print(show_facts(program.facts, cost))
    return 0


def plan_command(options: Namespace) -> int:
    if options.passes and options.format == "json":
        raise Usage("--passes is text: it has no JSON")
    plan, _ = _imagined(options)
    if options.passes:
        print(plan.passes(bool(options.sizes)))
    else:
        print(json.dumps(plan.to_json()) if options.format == "json" else plan)
    return 0


def emit_command(options: Namespace) -> int:
    _, text = _imagined(options)
    write(text, options.output)
    return 0


def _imagined(options: Namespace) -> tuple[PlanSheet, str]:
    """The plan and the module for sizes that are only named."""
    program = compile(text_of(options.file))
    check_device(options)
    check_memory(options)
    sizes = sizes_in(options.sizes, "--sizes")
    arrays, _ = stand_ins(program.ir, sizes, options.dtype)
    check_names(sizes, arrays, "--sizes")
    wanted, recompute = names_in(options.outputs), not options.keep
    device = options.device or "cpu"
    return program.imagine(
        arrays.arrays, options.dtype, options.backend, device, wanted, options.isolate, recompute, options.memory
    )
