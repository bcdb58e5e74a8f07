"""Programs to differentiate, with small rational inputs: those of the generator, and families of what is hard.

The texts of the families are in `derivable_texts`; here they are drawn, renamed and put in another order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from tests.laws import derivable_reads, derivable_steps  # noqa: F401  (they add their families)
from tests.laws.derivable_texts import FAMILIES, Draw
from tests.laws.programs import random_case

import indexical as ix

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Derivable:
    """A program, the arrays of one call, and what is differentiated by what. It shows itself as its text."""

    text: str
    arrays: Mapping[str, Array]
    of: str
    by: tuple[str, ...]

    def __repr__(self) -> str:
        shown = [f"{name} = {array.tolist()}" for name, array in self.arrays.items()]
        return "\n".join(["", self.text, *shown, f"of={self.of!r}, by={self.by!r}"])


def generated(seed: int) -> Derivable | None:
    """A program of the generator; None where it has nothing to differentiate, or its exact values would not be ours,
    or, seldom, where it is refused: for an argmax over no points."""
    case = random_case(seed)
    try:
        program = ix.compile(case.text)
    except ix.CompileError:
        return None
    draw = Random(seed)
    arrays = {}
    for tensor in program.ir.inputs:
        given = case.arrays[tensor.name]
        arrays[tensor.name] = rationals(draw, given.shape) if tensor.kind == "real" else given
    reals = [let.name for let in program.ir.lets if let.kind == "real" and not let.hidden]
    moving = [tensor.name for tensor in program.ir.inputs if tensor.kind == "real"]
    if not reals or not moving or re.search(r"\bas (f32|f16|bf16)\b", case.text):
        return None
    shown = [name for name in reals if name in program.outputs]
    of = draw.choice(shown if shown and draw.random() < 0.7 else reals)
    count = draw.randrange(1, len(moving) + 1) if draw.random() < 0.5 else len(moving)
    return Derivable(case.text, arrays, of, tuple(draw.sample(moving, count)))


def directed(seed: int) -> Derivable:
    """One of the families, under other names and in another order."""
    draw = Draw(Random(seed))
    names = list(FAMILIES)
    text, arrays, of = FAMILIES[names[seed % len(names)]](draw)
    text = shuffled(draw, text.strip())
    moving = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    by = list(moving)
    draw.random.shuffle(by)
    renaming = renamed(draw, text, arrays, of)
    text = substituted(text, renaming)
    found = {renaming.get(name, name): array for name, array in arrays.items()}
    return Derivable(text, found, renaming.get(of, of), tuple(renaming.get(name, name) for name in by))


def held(case: Derivable, definition: str) -> Derivable:
    """The same, by one of its definitions and by one of its inputs."""
    return replace(case, by=(definition, case.by[0]))


def family(seed: int) -> str:
    return list(FAMILIES)[seed % len(FAMILIES)]


def rationals(draw: Random, shape: tuple[int, ...]) -> Array:
    """Halves from -2 to 2, exact as floats: zeros and ties are among them."""
    count = int(np.prod(shape))
    return np.array([draw.randrange(-4, 5) / 2 for _ in range(count)], float).reshape(shape)


# ------------------------------------------------------------------------------- other names, another order


def shuffled(draw: Draw, text: str) -> str:
    """Statements may stand in any order. Functions, which are several lines, stay where they are."""
    lines = text.split("\n")
    if "fn " in text or "use " in text or draw.chance(50):
        return text
    draw.random.shuffle(lines)
    return "\n".join(lines)


# What a coordinate may be called: as it is, as another, as what a renaming would call it, or in words.
_LETTERS = "bcdefghijkmnpqrt"
_WORDS = "batch channel depth edge field group head index key lag mode node part query row time".split()


def renamed(draw: Draw, text: str, arrays: Mapping[str, Array], of: str) -> dict[str, str]:
    """Coordinates and tensors under names that a careless derivative would capture."""
    style = draw.pick(("same", "same", "shuffled", "numbered", "words"))
    used = [letter for letter in _LETTERS if re.search(rf"\b{letter}\b", text)]
    result: dict[str, str] = {}
    if style == "shuffled":
        result.update(zip(used, draw.random.sample(_LETTERS, len(used)), strict=True))
    elif style == "numbered":
        root = draw.pick(("i", "j", "d"))
        result.update({letter: f"{root}_{number}" if number else root for number, letter in enumerate(used)})
    elif style == "words":
        result.update({letter: _WORDS[_LETTERS.index(letter)] for letter in used})
    defined = [name for name in re.findall(r"^let (\w+)", text, re.MULTILINE) if len(name) > 1 and name != of]
    if defined and draw.chance(25):
        # A definition that is called as the derivative of an input, or of the result, would be.
        result[draw.pick(defined)] = draw.pick((f"d_{next(iter(arrays))}", f"d_{of}", f"dot_{of}"))
    return result


def substituted(text: str, renaming: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: renaming.get(found[0], found[0]), text)
