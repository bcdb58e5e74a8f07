"""`ix read`: the relation that a callable of PyTorch or JAX computes."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any

from ..lift.proving import proved
from ..lift.reading import reader
from .findings import print_diagnostics
from .inputs import load
from .targets import arrays_for, built, load_target
from .words import Usage, write


def read_command(options: Namespace) -> int:
    function = built(load_target(options.target))
    if hasattr(function, "eval") and hasattr(function, "parameters"):
        function = function.eval()
    arrays = load(options.example)
    if not isinstance(arrays, dict):
        raise Usage(f"--example {options.example}: it takes a .npz file, with the arrays by the names of the arguments")
    arrays = _fitting(function, arrays_for(function, arrays, options.library))
    axes = _axes(options.axes)
    program = reader(function, (), arrays, axes).program()
    found = proved(program, axes, {"causal": options.causal})
    shown = [finding for finding in found if options.notes or finding.severity != "note"]
    if options.format == "json":
        listed = [finding.to_json() for finding in shown]
        told = {"program": str(program), "inputs": program.inputs, "outputs": program.outputs, "findings": listed}
        write(json.dumps(told) + "\n", options.output)
    else:
        write(str(program).rstrip("\n") + "\n", options.output)
        print_diagnostics(shown, options)
    return int(any(finding.severity == "error" for finding in shown))


def _fitting(function: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays in the dtype of a module's parameters, as it takes no other."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(function, torch.nn.Module):
        for parameter in function.parameters():
            return {n: t.to(parameter.dtype) if t.is_floating_point() else t for n, t in arrays.items()}
    return arrays


def _axes(text: str | None) -> dict[str, str]:
    """`q=b h i d, k=b h j d` as a table."""
    found: dict[str, str] = {}
    for part in (text or "").split(","):
        name, equals, letters = part.partition("=")
        if not part.strip():
            continue
        if not equals or not letters.strip():
            raise Usage(f"--axes {part.strip()}: an argument and its axes, like q=b h i d")
        found[name.strip()] = letters.strip()
    return found
