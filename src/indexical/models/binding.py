"""Weights bound to the inputs of a program by name, or a list of all that does not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass, field
from .families import Family
from .files import Checkpoint
from .settings import Sizes

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight of a file: its name, with `{}` for the layer, and its axes, each of several coordinates or parts."""

    name: str
    axes: tuple[tuple[str, ...], ...]

    @staticmethod
    def parsed(text: str) -> Weight:
        name, _, axes = text.partition(" ")
        groups = re.findall(r"\(([^)]*)\)|(\S+)", axes)
        return Weight(name, tuple(tuple((inner or one).split()) for inner, one in groups))

    @property
    def is_layered(self) -> bool:
        return "{}" in self.name

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(math.prod(_length(part, sizes) for part in axis) for axis in self.axes)


def _length(part: str, sizes: Sizes) -> int:
    return int(part.partition("/")[2]) if "/" in part else sizes[part]


@dataclass
class Mismatches:
    """All that does not fit, layers together."""

    missing: dict[str, list[int | None]] = field(default_factory=dict)
    shapes: dict[tuple[str, tuple[int, ...], str], list[int | None]] = field(default_factory=dict)
    unused: dict[str, list[int | None]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        found = [f"missing: {_named(name, layers)}" for name, layers in self.missing.items()]
        for (name, shape, wanted), layers in self.shapes.items():
            found.append(f"another shape: {_named(name, layers)} is {_by(shape)}, and {wanted}")
        return found + [f"not used by the program: {_named(name, layers)}" for name, layers in self.unused.items()]


def bind(
    checkpoint: Checkpoint, family: Family, sizes: Sizes, axes: Mapping[str, tuple[str, ...]], progress: Progress
) -> dict[str, Any]:
    """The inputs of the program that are weights. `axes` are the coordinates of each input; every mismatch is said at
    once."""
    weights = {name: Weight.parsed(text) for name, text in family.weights.items()}
    names = _resolved(checkpoint, family)
    untied = checkpoint.settings.get("tie_word_embeddings") is False
    for name, other in family.tied.items():
        if weights[name].name not in names and not untied:
            del weights[name]
            weights[name] = weights[other]
    _check(checkpoint, family, weights, names, sizes)
    total = sum(sizes["l"] if weight.is_layered else 1 for weight in weights.values())
    done = 0
    found: dict[str, Any] = {}
    for name, weight in weights.items():
        shared = family.tied.get(name)
        if shared in found and weight is weights[shared]:
            found[name] = found[shared]
            done += 1
            continue
        layers = []
        for layer in range(sizes["l"]) if weight.is_layered else (None,):
            stored = checkpoint.read(names[_at(weight.name, layer)])
            layers.append(_arranged(stored, weight, sizes, axes[name], name in family.paired))
            done += 1
            progress(done, total)
        found[name] = _stacked(layers) if weight.is_layered else layers[0].contiguous()
    return found


def _stacked(layers: list[Any]) -> Any:
    import torch

    return torch.stack(layers)


def _at(name: str, layer: int | None) -> str:
    return name if layer is None else name.replace("{}", str(layer))


def _resolved(checkpoint: Checkpoint, family: Family) -> dict[str, str]:
    """The names of the file by those of the table, which lead with no prefix."""
    found = {}
    for name in checkpoint.shapes:
        known = name.removeprefix(family.prefix)
        for old, new in family.renamed.items():
            known = known.replace(old, new)
        found[known] = name
    return found


def _check(
    checkpoint: Checkpoint, family: Family, weights: Mapping[str, Weight], names: Mapping[str, str], sizes: Sizes
) -> None:
    found = Mismatches()
    used: set[str] = set()
    for input, weight in weights.items():
        for layer in range(sizes["l"]) if weight.is_layered else (None,):
            name = _at(weight.name, layer)
            used.add(name)
            if name not in names:
                _add(found.missing, weight.name, layer)
                continue
            shape, wanted = checkpoint.shapes[names[name]], weight.shape(sizes)
            if shape != wanted:
                axes = " × ".join("·".join(axis) for axis in weight.axes)
                said = f"`{input}` takes {axes}, {_by(wanted)}"
                _add(found.shapes, (weight.name, shape, said), layer)
    ignored = [_pattern(name) for name in family.ignored]
    for name in names.keys() - used:
        if not any(pattern.fullmatch(name) for pattern in ignored):
            number = re.search(r"\.(\d+)\.", name)
            template = name if number is None else f"{name[: number.start(1)]}{{}}{name[number.end(1) :]}"
            _add(found.unused, template, None if number is None else int(number[1]))
    notes = found.notes()
    if notes:
        message = f"the weights of `{checkpoint.place}` do not fit the program `{family.program}`"
        help = "the sizes are those of its settings: a weight that is not used would change what the model computes"
        raise CallError([Diagnostic("IX541", message, (), tuple(notes), help)])


def _add(found: dict[Any, list[int | None]], key: Any, layer: int | None) -> None:
    found.setdefault(key, []).append(layer)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(re.escape("{}"), r"\d+").replace(re.escape("*"), ".*"))


def _named(name: str, layers: Iterable[int | None]) -> str:
    numbers = sorted(layer for layer in layers if layer is not None)
    if not numbers:
        return f"`{name}`"
    if len(numbers) == 1:
        return f"`{_at(name, numbers[0])}`"
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    shown = f"{numbers[0]} to {numbers[-1]}" if whole else ", ".join(map(str, numbers))
    return f"`{_at(name, None).replace('{}', 'N')}` for N = {shown}"


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _arranged(stored: Any, weight: Weight, sizes: Sizes, axes: tuple[str, ...], paired: bool) -> Any:
    """A weight with an axis for each coordinate, in the order of the program's input."""
    parts = [part for axis in weight.axes for part in axis]
    array = stored.reshape([_length(part, sizes) for part in parts])
    for place, part in reversed(list(enumerate(parts))):
        if "/" in part:
            array = array.select(place, int(part.partition("/")[0]))
    parts = [part for part in parts if "/" not in part]
    if paired:
        # The file has feature 2 k + t where the program has k + t * size(d) / 2.
        place = parts.index("d")
        array = array.unflatten(place, (-1, 2)).transpose(place, place + 1).flatten(place, place + 1)
    return array.permute([parts.index(axis) for axis in axes if axis != "l"])
