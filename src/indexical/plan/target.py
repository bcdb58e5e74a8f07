"""The array library that a plan is for: a rule asks which kernels it has, never what it is called."""

from __future__ import annotations

from ..records import dataclass

# What no kernel takes: operations.
ARRAYS = "arrays"
# Attention: the library's own kernel, and ours.
FUSED = "scaled_dot_product_attention"
INTERVALS = "key intervals"
TILES = "key intervals, tile by tile"
STREAM = "stream"
# Attention printed as a kernel of its own, for a GPU.
TRITON = "Triton kernel"
# The widest head that such a kernel takes.
WIDEST = 256
# A causal product of two sides, its earlier part carried in a state.
CHUNKS = "chunks of matrix products"
# Attention that hands out the logarithm of what its weights are divided by, with a gradient.
TOTALS = "totals"
# The gradients of an attention from recomputed weights.
BACKWARD = "backward"
# The number of points of a block of rows, about: on a GPU, where a small one leaves most of it idle, it is larger.
POINTS, GPU_POINTS = 1 << 20, 1 << 25
# Scores of all batches and heads that are built where a gradient is wanted, of which some copies are kept for it: a
# stream computes all of them once more.
LEARNED = 1 << 23


@dataclass(frozen=True, slots=True)
class Target:
    """A library by its name, and the kernels that it has; what none of them takes is computed with arrays."""

    name: str
    kernels: frozenset[str]
    builds_scores: bool = False  # Its own attention has all scores in memory.

# What the plan says of scores that are few.
WHOLE = "all at once, in memory"
