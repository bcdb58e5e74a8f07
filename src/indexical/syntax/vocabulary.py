"""The words that the language gives a meaning to."""

from __future__ import annotations

REDUCTIONS = ("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin")
NORMALISERS = ("softmax", "log_softmax", "cumsum")

# Elementwise functions and how many arguments they take; None: two or more.
FUNCTIONS: dict[str, int | None] = {
    **dict.fromkeys(
        "exp log sqrt rsqrt tanh sigmoid relu gelu silu abs sin cos erf floor ceil round".split(), 1
    ),
    "clamp": 3,
    "max": None,
    "min": None,
}

DTYPES = ("bool", "i32", "i64", "f16", "bf16", "f32", "f64")

ROLES = ("query", "key", "compare", "carry", "head", "batch")
FLAGS = ("causal",)
GROUPINGS = ("contiguous", "interleaved")

# Words that a program cannot give a new meaning, beside the keywords.
RESERVED = frozenset((*REDUCTIONS, *NORMALISERS, *FUNCTIONS, "size", "masked"))

# Brackets may stand this deep in one another, and this many nodes in one another.
MAXIMUM_DEPTH = 100
# A tensor may have this many axes.
MAXIMUM_RANK = 32
