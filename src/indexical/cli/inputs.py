"""The arrays that a command is given, or draws, and those that it saves."""

from __future__ import annotations

import sys
from argparse import Namespace
from types import SimpleNamespace
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..api import Program
from ..run.samples import Sample, random_arrays
from ..saving import replacing
from .words import Usage, beside, meant, sizes_in


def given_arrays(program: Program, specifications: list[str]) -> dict[str, Any]:
    """The arrays of `--input`."""
    arrays: dict[str, Any] = {}
    for specification in specifications:
        name, _, path = specification.rpartition("=")
        loaded = load(path)
        if not name and not isinstance(loaded, dict):
            raise Usage(f"--input {path}: say which input it is: NAME={path}")
        if isinstance(loaded, dict):
            entries = {name: loaded[name]} if name and name in loaded else loaded
            if name and name not in loaded:
                known = meant(name, loaded) or f"; it has {', '.join(loaded)}"
                raise Usage(f"--input {specification}: {path} has no array `{name}`{known}")
            arrays.update({key: array for key, array in entries.items() if key in program.inputs or key == name})
        else:
            arrays[name] = loaded
    return arrays


def load(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
    except OSError as problem:
        raise Usage(f"{path} cannot be loaded: {problem.strerror or problem}{beside(path)}") from None
    except (ValueError, EOFError, BadZipFile):
        raise Usage(f"{path} cannot be loaded: it is no .npy or .npz file of numbers") from None


def drawn_arrays(program: Program, arrays: dict[str, Any], options: Namespace) -> dict[str, Any]:
    if options.seed < 0:
        raise Usage(f"--seed {options.seed}: a seed is 0 or more")
    sizes = sizes_in(options.random, "--random")
    drawn, assumed = random_arrays(program.ir, arrays, sizes, options.seed)
    check_names(sizes, drawn, "--random")
    if assumed:
        shown = ", ".join(f"{name}={size}" for name, size in assumed.items())
        print(f"ix: sizes not given: {shown}", file=sys.stderr)
    return drawn.arrays


def check_names(sizes: dict[str, int], sample: Sample, option: str) -> None:
    unknown = [name for name in sizes if name not in sample.coordinates]
    if unknown:
        known = f"they have {', '.join(sample.coordinates)}" if sample.coordinates else "there are none"
        close = meant(unknown[0], sample.coordinates) if len(unknown[0]) > 1 else ""
        raise Usage(f"{option}: no input has a coordinate `{unknown[0]}`; {known}{close}")


def save(found: dict[str, Any], path: str) -> None:
    if not path.endswith((".npy", ".npz")):
        raise Usage(f"--save {path}: it ends in .npz, or for one array in .npy")
    if path.endswith(".npy") and len(found) != 1:
        raise Usage(f"--save {path}: several outputs go to a .npz file")
    with replacing(path) as file:
        if path.endswith(".npy"):
            # To what is no file for it, NumPy writes in pieces, of which a failure has its reason.
            np.save(SimpleNamespace(write=file.write), next(iter(found.values())))
        else:
            np.savez(file, **found)
