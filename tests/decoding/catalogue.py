"""The programs of `examples/` along their positions: arrays for each, and why some cannot be taken so."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.variants import roster

import indexical as ix
from indexical.decoder import Decoder
from indexical.run.samples import random_arrays

ROOT = Path(__file__).resolve().parents[2] / "examples"

# What a position of each would need that is not there yet.
AFTER = "which comes after it"
PAIRS = "is given for pairs of positions"
ALL = "made of all positions"
COUNTED = "depends on how many positions there are"
NONE = "no coordinate and no space is called"
REFUSED = {
    "attention_free": PAIRS,
    "axial": NONE,
    "bigbird": AFTER,
    "class_attention": NONE,
    "compressed_blocks": ALL,
    "cosformer": COUNTED,
    "cosine": AFTER,
    "cross_covariance": ALL,
    "deberta": AFTER,
    "dilated_window": "nothing proves that this does not come after its own position",
    "distance": AFTER,
    "dot_product": AFTER,
    "efficient": ALL,
    "graph": PAIRS,
    "induced_points": ALL,
    "interpolated_rotary": COUNTED,
    "lambda_layer": PAIRS,
    "linformer": ALL,
    "longformer": AFTER,
    "memory_compressed": ALL,
    "multi_head": AFTER,
    "multi_token": "a value for each two positions",
    "neighbourhood": NONE,
    "nystrom": ALL,
    "paged_decode": NONE,
    "pair_bias": PAIRS,
    "perceiver": NONE,
    "performer": ALL,
    "persistent_memory": ALL,
    "prefix_lm": AFTER,
    "query_key_norm": AFTER,
    "relu": AFTER,
    "rotary_image": AFTER,
    "selective": "a value for each two positions",
    "shaw": AFTER,
    "sigmoid": COUNTED,
    "simplicial": "takes all positions, and nothing proves",
    "slots": NONE,
    "softmax_off_by_one": AFTER,
    "softpick": AFTER,
    "swin": NONE,
    "tree": PAIRS,
    "untied_positions": AFTER,
}
# Examples that go along a coordinate, with sizes that their own sentences ask for.
EXAMPLES = {
    "alibi": {},
    "causal_attention": {},
    "decoder": {"m": 3, "n": 3},
    "documents": {"d": 4},
    "gated_recurrence": {},
    "grouped_query": {"h": 4, "g": 2},
    "lstm": {"n": 3, "p": 3, "m": 2},
    "multi_head_sublayer": {},
    "rotary": {"d": 4},
    "sliding_window": {},
    "transformer_block": {},
}
DOCUMENTS = {"document": np.array([[0, 0, 3, 3, 1], [0, 1, 1, 1, 1]])}
LENGTH = 5


def file_of(name: str, variant: bool) -> Path:
    return ROOT / "variants" / f"{name}.ix" if variant else ROOT / f"{name}.ix"


@lru_cache(maxsize=2)  # Cases of one program stand behind each other.
def compiled(name: str, variant: bool) -> tuple[ix.Program, str, list[str]]:
    """A program, the coordinate of its positions, and its definitions that have positions."""
    program = ix.compile(file_of(name, variant))
    decoder = ix.incremental(program, along(program))
    return program, along(program), [name for name in program.definitions if decoder._split.along[name]]


def along(program: ix.Program) -> str:
    """The coordinate of the positions: queries, or steps."""
    letters = {axis.coordinate.name for tensor in program.ir.inputs for axis in tensor.axes}
    return "t" if "t" in letters and "i" not in letters else "i"


def arrays(name: str, variant: bool, decoder: Decoder) -> tuple[dict[str, Any], int]:
    """An array for every input, and how many positions they have."""
    program, split = decoder.program, decoder._split
    given = dict(roster.GIVEN.get(name, {})) if variant else DOCUMENTS if name == "documents" else {}
    sizes = roster.sizes_of(name) if variant else {**roster.USUAL, "b": 2, **EXAMPLES[name]}
    lengths = [np.shape(value)[split.along[key][0]] for key, value in given.items() if split.along[key]]
    length = lengths[0] if lengths else LENGTH
    for tensor in program.ir.inputs:
        for number in split.along[tensor.name]:
            sizes[tensor.axes[number].coordinate.name] = length
    known = {axis.coordinate.name for tensor in program.ir.inputs for axis in tensor.axes}
    chosen = {letter: sizes.get(letter, 2) for letter in known}
    sample, _ = random_arrays(program.ir, given, chosen, seed=0)
    return {**sample.arrays, **given}, length
