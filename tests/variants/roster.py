"""The variants of `examples/variants/`: for each its plain implementation, its sizes and what is not simply drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import torch
from tests.variants import classic, layouts, linear, masks, positions, weights

import indexical as ix
from indexical.run.samples import random_arrays

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "examples" / "variants").glob("*.ix"))
NAMES = [file.stem for file in FILES]
MODULES: tuple[ModuleType, ...] = (classic, masks, positions, weights, linear, layouts)

# No two coordinates of a program have the same size, so that none can stand for another.
USUAL = {
    "h": 2,
    "d": 3,
    "e": 4,
    "i": 5,
    "m": 6,
    "j": 7,
    "n": 8,
    "a": 9,
    "k": 10,
    "r": 11,
    "c": 12,
    "t": 6,
    "p": 13,
}
SIZES: Mapping[str, Mapping[str, int]] = {
    "alibi": {"h": 3, "d": 2},
    "axial": {"y": 5, "x": 6},
    "bigbird": {"i": 13, "j": 14, "p": 5, "q": 5},
    "block_local": {"i": 10, "j": 11},
    "compressed_blocks": {"i": 8, "j": 11, "k": 3, "d": 5},
    "cosformer": {"i": 8},
    "contextual_positions": {"p": 4, "d": 3, "e": 6},
    "deberta": {"r": 6},
    "delta_rule": {"d": 3, "e": 4},
    "dilated_segments": {"i": 14, "j": 13},
    "dilated_window": {"i": 9, "j": 11},
    "documents": {"i": 9},
    "fixed_sparse": {"i": 10, "j": 11},
    "graph": {"j": 5},
    "grouped_query": {"h": 6, "g": 3, "d": 2},
    "hashed_buckets": {"i": 9},
    "induced_points": {"i": 7, "p": 3, "d": 4, "f": 5, "g": 6},
    "interpolated_rotary": {"d": 6},
    "latent": {"d": 3, "p": 8},
    "linformer": {"k": 3, "d": 6},
    "log_sparse": {"i": 11, "j": 12},
    "longformer": {"i": 9, "j": 11},
    "memory_compressed": {"j": 11, "c": 3, "d": 3, "e": 3},
    "multi_token": {"p": 3, "q": 4, "d": 6, "e": 8},
    "neighbourhood": {"y": 5, "x": 6},
    "nystrom": {"i": 13, "j": 14},
    "pair_bias": {"j": 5},
    "paged_decode": {"b": 5, "g": 6, "s": 7, "n": 8},
    "partial_rotary": {"d": 6},
    "perceiver": {"a": 5},
    "performer": {"r": 6},
    "persistent_memory": {"n": 6},
    "predictive_local": {"i": 6, "j": 11},
    "prefix_lm": {"i": 6, "j": 8},
    "quantised_cache": {},
    "reduced_keys": {"i": 8, "y": 5, "x": 7, "c": 6},
    "rotary_cache": {"d": 6},
    "rotary_halves": {"d": 6},
    "rotary_image": {"d": 6},
    "rotary_pairs": {"d": 6},
    "shaw": {"r": 9},
    "sliding_window": {"i": 9, "j": 10},
    "simplicial": {"k": 6},
    "slots": {"s": 3, "d": 5},
    "streaming": {"i": 11, "j": 12},
    "strided_sparse": {"i": 12, "j": 13},
    "swin": {"y": 7, "x": 6},
    "t5_bias": {"i": 10, "j": 9, "k": 6},
    "talking_heads": {"h": 2, "g": 6, "f": 8},
    "transformer_xl": {"r": 9},
    "tree": {},
    "xpos": {"d": 6},
}
GIVEN: Mapping[str, Mapping[str, Any]] = {
    "bigbird": {"drawn": np.eye(5, k=3, dtype=bool)},
    "dilated_window": {"w": 2},
    "documents": {"document": np.array([0, 0, 0, 3, 3, 1, 1, 1, 1])},
    "fire": {"c": 0.7, "limit": 2.5},
    "hashed_buckets": {"bucket": np.array([[0, 1, 0, 2, 1, 1, 0, 2, 0], [1, 1, 2, 2, 1, 0, 2, 1, 0]])},
    "longformer": {"w": 2, "g": 1},
    "paged_decode": {
        "table": np.array([[3, 0, 5, 1, 2, 4, 0, 0], [1, 4, 2, 2, 0, 5, 3, 1]] * 2 + [[5, 4, 3, 2, 1, 0, 0, 0]]),
        "length": np.array([9, 56, 1, 30, 17]),
    },
    "pointer": {"seen": np.eye(5, 7, k=1, dtype=bool)},
    "predictive_local": {"w": 3},
    "prefix_lm": {"p": 3},
    "sliding_window": {"w": 4},
    "streaming": {"w": 4, "s": 2},
    "transformer_xl": {},
    "tree": {
        "ancestor": np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]) == 1
    },
}


@cache
def compiled(name: str) -> ix.Program:
    return ix.compile(ROOT / "examples" / "variants" / f"{name}.ix")


def plain(name: str) -> Callable[..., torch.Tensor]:
    (found,) = [getattr(module, name) for module in MODULES if callable(getattr(module, name, None))]
    return found  # type: ignore[no-any-return]


def sizes_of(name: str) -> dict[str, int]:
    known = {axis.coordinate.name for tensor in compiled(name).ir.inputs for axis in tensor.axes}
    return {letter: size for letter, size in {**USUAL, **SIZES.get(name, {})}.items() if letter in known}


def arrays(name: str, sizes: Mapping[str, int] = MappingProxyType({})) -> dict[str, torch.Tensor]:
    """An array for each input of a variant; real ones ask for a gradient. `sizes` differ from those of the roster."""
    given = dict(GIVEN.get(name, {}))
    known = sizes_of(name)
    chosen = {letter: sizes.get(letter, size) for letter, size in known.items()}
    sample, _ = random_arrays(compiled(name).ir, given, chosen, seed=0)
    found = {key: torch.as_tensor(np.asarray(value)) for key, value in {**sample.arrays, **given}.items()}
    return {key: x.requires_grad_() if x.is_floating_point() else x for key, x in found.items()}
