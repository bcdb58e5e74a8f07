"""`ix read`: the relation that a PyTorch callable computes."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from ..lift import findings, read
from .findings import print_diagnostics
from .inputs import load
from .words import Usage, write


def read_command(options: Namespace) -> int:
    function = _target(options.target)
    arrays = load(options.example)
    if not isinstance(arrays, dict):
        raise Usage(f"--example {options.example}: it takes a .npz file, with the arrays by the names of the arguments")
    arrays = _fitting(function, arrays)
    program = read(function, **arrays)
    axes = _axes(options.axes)
    found = findings(function, arrays, axes, {"causal": options.causal})
    shown = [finding for finding in found if options.notes or finding.severity != "note"]
    if options.format == "json":
        listed = [finding.to_json() for finding in shown]
        told = {"program": str(program), "inputs": program.inputs, "outputs": program.outputs, "findings": listed}
        write(json.dumps(told) + "\n", options.output)
    else:
        write(str(program).rstrip("\n") + "\n", options.output)
        print_diagnostics(shown, options)
    return int(any(finding.severity == "error" for finding in shown))


def _target(words: str) -> Any:
    """The callable that `package.module:name` or `file.py:name` names; a class is made without arguments."""
    home, colon, name = words.rpartition(":")
    if not colon or not home or not name:
        raise Usage(f"{words}: a callable is named like package.module:function or model.py:Module")
    sys.path.insert(0, os.getcwd())
    try:
        module = _file(home) if home.endswith(".py") else importlib.import_module(home)
    except ImportError as problem:
        raise Usage(f"{words}: {problem}") from None
    finally:
        sys.path.remove(os.getcwd())
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise Usage(f"{words}: {home} has no `{part}`")
        found = getattr(found, part)
    if isinstance(found, type):
        try:
            found = found()
        except TypeError as problem:
            raise Usage(f"{words}: it cannot be made without arguments: {problem}; name a ready one") from None
    return found.eval() if hasattr(found, "eval") and hasattr(found, "parameters") else found


def _file(path: str) -> Any:
    if not Path(path).is_file():
        raise Usage(f"{path} cannot be loaded: there is no such file")
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules.setdefault(module.__name__, module)
    specification.loader.exec_module(module)
    return module


def _fitting(function: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays in the dtype of a module's parameters, as it takes no other."""
    import torch

    tensors = {name: torch.as_tensor(array) for name, array in arrays.items()}
    if isinstance(function, torch.nn.Module):
        for parameter in function.parameters():
            return {n: t.to(parameter.dtype) if t.is_floating_point() else t for n, t in tensors.items()}
    return tensors


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
