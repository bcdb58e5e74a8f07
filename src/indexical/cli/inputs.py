"""The arrays that a command is given, or draws, and those that it saves."""

from __future__ import annotations

import json
import sys
import zlib
from argparse import Namespace
from collections.abc import Callable
from fractions import Fraction
from tokenize import TokenError
from types import SimpleNamespace
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..api import Program
from ..run.samples import Sample, random_arrays
from ..saving import replacing
from .words import Usage, beside, meant, sizes_in


def given_arrays(program: Program | None, specifications: list[str]) -> dict[str, Any]:
    """The arrays of `--input`; of a file with several, those that the program takes, or all."""
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
            taken = entries if program is None else (*program.inputs, name)
            arrays.update({key: array for key, array in entries.items() if key in taken})
        else:
            arrays[name] = loaded
    return arrays


def written(specifications: list[str]) -> dict[str, Any]:
    """The inputs of `--value`: their figures as they are written, in text."""
    arrays: dict[str, Any] = {}
    for specification in specifications:
        name, _, figures = specification.partition("=")
        try:
            arrays[name.strip()] = json.loads(figures, parse_float=str, parse_int=str, parse_constant=str)
        except ValueError:
            raise Usage(
                f'--value {specification}: figures look like Q=[[1, 0.5], [0, 1]], fractions like "1/3"'
            ) from None
        except RecursionError:
            raise Usage(f"--value {name}: its lists stand too deep in each other") from None
    return arrays


def rounded_values(specifications: list[str]) -> dict[str, Any]:
    """The inputs of `--value` as numbers."""
    return {name: as_numbers(value, rounded) for name, value in written(specifications).items()}


def as_numbers(value: Any, number: Callable[[str], int | float]) -> Any:
    """The figures of `--value`, which are text, as numbers."""
    if isinstance(value, list):
        return [as_numbers(item, number) for item in value]
    return number(value) if isinstance(value, str) else value


def rounded(figure: str) -> int | float:
    """A figure as the number that is nearest to it, where no exact form is kept."""
    try:
        if figure.lstrip("-") in ("Infinity", "NaN"):
            return float(figure)
        exact = Fraction(figure)
        number = float(exact)
        return exact.numerator if exact.denominator == 1 and abs(number) < 2**63 else number
    except OverflowError:
        raise Usage(f"--value: {figure} is larger than any float") from None
    except (ValueError, ZeroDivisionError):
        raise Usage(f"--value: {figure} is no number") from None


def load(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.lib.npyio.NpzFile):
                entries: dict[str, Any] = dict(loaded)  # what is no array in the archive is bytes
                return {name: entry for name, entry in entries.items() if isinstance(entry, np.ndarray)}
            return loaded
    except OSError as problem:
        raise Usage(f"{path} cannot be loaded: {problem.strerror or problem}{beside(path)}") from None
    except MemoryError:
        raise Usage(f"{path} cannot be loaded: it declares more numbers than fit into memory") from None
    except (ValueError, EOFError, BadZipFile, RuntimeError, SyntaxError, TokenError, zlib.error):
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
    scalars = {name: array.tolist() for name, array in drawn.arrays.items() if array.ndim == 0}
    if scalars:
        shown = ", ".join(f"{name}={json.dumps(value)}" for name, value in scalars.items())
        print(f"ix: scalars drawn: {shown}", file=sys.stderr)
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
