"""Models from a file or a folder on this disk."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from ..api import Program, compile
from .binding import Progress, bind
from .families import FAMILIES, family_of
from .files import Checkpoint, missing_library, open_checkpoint, unreadable
from .model import Model
from .tokenizing import Words, words_of


def program_file(family: str) -> Path:
    """The file with the program of a family: it is installed with the package, and in a copy of the repository among
    the examples."""
    here = Path(__file__).resolve().parent
    installed = here / "programs" / f"{family}.ix"
    return installed if installed.is_file() else here.parents[2] / "examples" / "models" / f"{family}.ix"


@cache
def program(family: str) -> Program:
    """The program of a family: `llama`, `gpt2` or `bert`."""
    if family not in {each.program for each in FAMILIES.values()}:
        known = ", ".join(sorted({each.program for each in FAMILIES.values()}))
        raise unreadable(f"there is no program for the family `{family}`", f"there are programs for {known}")
    return compile(program_file(family))


def load(place: str | os.PathLike[str], progress: Progress = lambda done, total: None) -> Model:
    """The model in a GGUF file, or in a folder with `config.json`, safetensors and a tokenizer.

    Its weights are bound to the inputs of the program of its family by name, in float32; all that does not fit is said
    at once. `progress` is told how many weights of how many are read.
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise missing_library("torch") from None
    given: Any = place  # Whatever was passed, not only what may be.
    if not isinstance(given, str | os.PathLike):
        raise unreadable(f"a model is read from a path, and {given!r:.40} is none")
    checkpoint = open_checkpoint(Path(place))
    family_of(checkpoint)  # A model of another family is refused as such, whatever its tokenizer is.
    return assemble(checkpoint, words_of(checkpoint), progress)


def assemble(checkpoint: Checkpoint, words: Words, progress: Progress = lambda done, total: None) -> Model:
    """The model of some weights, wherever they are from."""
    family, settings = family_of(checkpoint)
    sizes, numbers = family.sizes_of(settings), family.numbers_of(settings)
    relation = program(family.program)
    axes = {tensor.name: tuple(axis.coordinate.name for axis in tensor.axes) for tensor in relation.ir.inputs}
    weights = {**bind(checkpoint, family, sizes, axes, progress), **numbers, **family.made(settings, sizes)}
    context = settings.whole(family.context) if settings.get(family.context) is not None else None
    return Model(checkpoint.place.stem, family.program, relation, sizes, weights, words, context)
