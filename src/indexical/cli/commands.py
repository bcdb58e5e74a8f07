"""Commands that check programs, run them, and say how they are computed."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from ..api import PlanSheet, check, compile, read_source
from ..diagnostics import CallError, Diagnostic, Sink
from ..run.samples import stand_ins
from ..run.tensors import to_numpy, to_tensors
from ..syntax.format import format_source
from ..syntax.parse import parse
from ..views.facts import facts_json, show_facts
from ..views.text import show_json, show_output
from .findings import print_diagnostics
from .inputs import Usage, check_names, drawn_arrays, given_arrays, names_in, save, sizes_in, text_of, write


def check_command(options: Namespace) -> int:
    found: list[Diagnostic] = []
    for file in options.files:
        found += check(text_of(file))
    shown = [diagnostic for diagnostic in found if options.notes or diagnostic.severity != "note"]
    print_diagnostics(shown, options)
    severities = {diagnostic.severity for diagnostic in found}
    return int("error" in severities or (options.strict and "warning" in severities))


def run_command(options: Namespace) -> int:
    program = compile(text_of(options.file))
    warnings = [diagnostic for diagnostic in program.diagnostics if diagnostic.severity == "warning"]
    if options.format == "text":
        print_diagnostics(warnings, options)
    arrays = given_arrays(program, options.input)
    if options.random is not None:
        arrays.update(drawn_arrays(program, arrays, options))
    wanted = names_in(options.outputs) or program.outputs
    if options.backend == "torch":
        arrays = to_tensors(program.ir, arrays, options.device)
    elif options.device:
        raise Usage(f"--device {options.device}: only the torch backend has devices; add --backend torch")
    values = program(outputs=wanted, backend=options.backend, **arrays)
    found = {name: to_numpy(value) for name, value in zip(wanted, values, strict=True)}
    if options.save:
        save(found, options.save)
        return 0
    lets = {let.name: let for let in program.ir.lets}
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
    plan, _ = _imagined(options)
    print(json.dumps(plan.to_json()) if options.format == "json" else plan)
    return 0


def emit_command(options: Namespace) -> int:
    _, text = _imagined(options)
    write(text, options.output)
    return 0


def _imagined(options: Namespace) -> tuple[PlanSheet, str]:
    """The plan and the module for sizes that are only named."""
    program = compile(text_of(options.file))
    sizes = sizes_in(options.sizes, "--sizes")
    arrays, _ = stand_ins(program.ir, sizes, options.dtype)
    check_names(sizes, arrays, "--sizes")
    device = options.device if options.backend == "torch" else "cpu"
    wanted, recompute = names_in(options.outputs), not options.keep
    return program.imagine(arrays.arrays, options.dtype, options.backend, device, wanted, options.isolate, recompute)


def format_command(options: Namespace) -> int:
    changed = []
    for file in options.files:
        sink = Sink()
        source = read_source(text_of(file), sink)
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
