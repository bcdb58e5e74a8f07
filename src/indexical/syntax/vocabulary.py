"""The words that the language gives a meaning to."""

from __future__ import annotations

from ..ir.functions import FUNCTIONS as ROWS

REDUCTIONS = ("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin")
# Normalisers that are reductions up to a point.
SCANS = {"cumsum": "sum", "cumprod": "prod", "cummax": "max"}
NORMALISERS = ("softmax", "log_softmax", *SCANS, "rank")

# Elementwise functions and how many arguments they take; None: two or more.
FUNCTIONS: dict[str, int | None] = {name: row.arity for name, row in ROWS.items()}

DTYPES = ("bool", "i32", "i64", "f16", "bf16", "f32", "f64")
# An input may be stored in these too; they are read as `i32`.
STORED_DTYPES = ("i8", "u8")

ROLES = ("query", "key", "compare", "carry", "head", "batch")
FLAGS = ("causal",)
GROUPINGS = ("contiguous", "interleaved")
# What the weights of a query sum to, where that is not 1.
ROW_SUMS = ("at most 1", "signed", "free")

# Words that a program cannot give a new meaning, beside the keywords. This list never grows: a word that the language
# takes up later belongs to the library, and programs that already use it as a name keep their meaning.
RESERVED = frozenset((*REDUCTIONS, "softmax", "log_softmax", "cumsum", "size", "masked"))
# Words that have a meaning unless a program gives them another: its own definitions come first.
LIBRARY = frozenset((*NORMALISERS, *FUNCTIONS, "pi")) - RESERVED
# All of these: names that are made up keep clear of them.
WORDS = RESERVED | LIBRARY

# The options of every call: an input of such a name is given by its place.
OPTIONS = ("outputs", "backend", "isolate", "recompute", "memory")

# Brackets may stand this deep in one another, and this many nodes in one another.
MAXIMUM_DEPTH = 100
# A tensor may have this many axes.
MAXIMUM_RANK = 32

# What people bring along from other languages, and what to write here.
FOREIGN: dict[str, str] = {
    "and": "both hold: write `&&`",
    "or": "one holds: write `||`",
    "not": "the opposite is `!`",
    "π": "write `pi`",
    "return": "a function or block ends in its value, without `return` and without `;`",
    "def": "a function is `fn f(x) { … }`",
    "import": "functions are fetched with `use std::norms::{layer_norm};`",
    "from": "functions are fetched with `use std::norms::{layer_norm};`",
    "len": "the number of points of a coordinate is `size(i)`",
    "shape": "the number of points of a coordinate is `size(i)`",
    "pow": "a power is `x ** y`",
    "inf": "there is no such constant; a guard removes points, and needs no infinity",
    "infinity": "there is no such constant; a guard removes points, and needs no infinity",
    "nan": "there is no such constant",
    "matmul": "a matrix product is a sum: `sum[d](A[i, d] * B[d, j])`",
    "dot": "a dot product is a sum: `sum[d](a[d] * b[d])`",
    "@": "a matrix product is a sum: `sum[d](A[i, d] * B[d, j])`",
    ":": "a size is stated as `i in 0..5`, a choice as `if c { a } else { b }`",
}

# Those for which one word stands here.
FOREIGN_WORDS: dict[str, str] = {"and": "&&", "or": "||", "not": "!", "π": "pi"}

# Dtypes by the names they have elsewhere.
FOREIGN_DTYPES: dict[str, str] = {
    **dict.fromkeys(("float", "double", "float64", "real"), "f64"),
    **dict.fromkeys(("float32", "single"), "f32"),
    **dict.fromkeys(("float16", "half"), "f16"),
    "bfloat16": "bf16",
    **dict.fromkeys(("int", "int64", "long", "whole"), "i64"),
    "int32": "i32",
    "int8": "i8",
    **dict.fromkeys(("uint8", "byte"), "u8"),
    "boolean": "bool",
}

# What libraries call the figures that they print.
PRINTED_AS = ("array", "tensor")
