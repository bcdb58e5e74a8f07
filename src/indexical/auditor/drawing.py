"""Inputs for a comparison: an example and others like it, with padding, at several lengths."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..diagnostics import Error
from .calling import Foreign, Unusable, _plain
from .inputs import inputs_of
from .layout import infer_sizes, parse_axes

_MASK = "attention_mask"


@dataclass(frozen=True)
class Case:
    """The arguments of a run, in words too; `rows` are the positions that are no padding."""

    words: str
    arrays: Mapping[str, Any]
    rows: Any = None


def drawn_example(module: Any) -> dict[str, Any]:
    """Inputs on which a module runs, with a mask that keeps every token where it takes one; LookupError where there are
    none."""
    import torch

    kind, inputs = inputs_of(module, length=7, rows=2)
    takes = inspect.signature(module.forward).parameters
    if kind == "tokens" and _MASK in takes and _MASK not in inputs:
        inputs = {**inputs, _MASK: torch.ones(next(iter(inputs.values())).shape[:2], dtype=torch.long)}
    return inputs


def cases_of(foreign: Foreign, axes: Any) -> list[Case]:
    given = {name: _plain(value) for name, value in foreign.example.items()}
    cases = [Case("the example", given)]
    for seed in (1, 2):
        arrays = {name: _drawn(value, np.shape(value), seed) for name, value in given.items()}
        cases.append(Case(f"draw {seed}", arrays))
    more = [*_padded(given), *_shortened(given), *(() if axes is None else _other_lengths(given, axes))]
    return [*cases, *(case for case in more if _runs(foreign, case))]


def _runs(foreign: Foreign, case: Case) -> bool:
    try:
        foreign(case.arrays)
    except Unusable:
        return False
    return True


def _padded(given: Mapping[str, Any]) -> Iterator[Case]:
    """Two positions of the second example are padding, on either side."""
    mask: Any = given.get(_MASK)
    if np.ndim(mask) != 2 or len(mask) < 2 or mask.shape[1] < 4 or not (mask == 1).all():
        return
    for side, cut in (("right", slice(-2, None)), ("left", slice(None, 2))):
        padded = mask.copy()
        padded[1, cut] = 0
        yield Case(f"two tokens of padding on the {side}", {**given, _MASK: padded}, padded.astype(bool))


def _shortened(given: Mapping[str, Any]) -> Iterator[Case]:
    """The first positions alone of inputs that all have the same."""
    lengths = {value.shape[1] for value in given.values() if getattr(value, "ndim", 0) in (2, 3)}
    if len(lengths) == 1 and min(lengths) > 4 and all(getattr(value, "ndim", 0) in (2, 3) for value in given.values()):
        yield Case("3 positions", {name: value[:, :3] for name, value in given.items()})


def _drawn(value: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Other numbers of that size; of what is no such number, and of masks, the same ones as far as they go."""
    if not hasattr(value, "dtype"):
        return value
    rng = np.random.default_rng(seed)
    if value.dtype.kind == "f" and np.isfinite(value).all() and np.abs(value).max(initial=0.0) < 1e4 and _varies(value):
        return rng.normal(value.mean(), value.std(), shape)
    if value.dtype.kind == "i" and value.ndim and value.shape == shape and (np.diff(value) < 0).any():
        return rng.permuted(value, axis=-1)  # Tokens; positions come in order.
    for axis, size in enumerate(shape):
        value = np.take(value, np.arange(size), axis, mode="wrap")
    return value


def _varies(value: Any) -> bool:
    """Whether an array has more than a few different numbers, as no mask has."""
    return bool(np.unique(value).size > min(4, value.size - 1))


def _other_lengths(given: Mapping[str, Any], axes: Any) -> Iterator[Case]:
    """Cases with more and fewer positions, as the axes tell where those are."""
    layouts = parse_axes(axes)
    shapes = {name: np.shape(value) for name, value in given.items() if name in layouts}
    try:
        sizes = infer_sizes({name: layouts[name] for name in shapes}, shapes, {})
    except Error:
        return
    for change in (-2, 4):
        longer = {name: max(size + change, 2) if name in ("i", "j") else size for name, size in sizes.items()}
        try:
            arrays = {
                name: _drawn(value, layouts[name].shape(longer), 3) if name in layouts else value
                for name, value in given.items()
            }
        except KeyError:
            continue
        yield Case(f"{longer.get('i', longer.get('j'))} positions", arrays)
