"""Names that the text of Triton kernels has uses for: no array or number of a program is called so there."""

from __future__ import annotations

import builtins
import keyword
import re

# Small functions that kernels call: of all kernels, and of those for few queries.
HELPERS = frozenset(
    "tanh fast_tanh fast_sigmoid far load_tile store_tile tiles_of places_of sums_of no_sums within in_order behind "
    "partial_tile absorb beside zero_of zeros_of unusual one_dot absorb_one load_bank load_bank_column bank_number "
    "level_of load_level store_level store_diagonals near_place several_heads partial_sums with_product larger smaller "
    "LOG2_E LN_2".split()
)
FEW_HELPERS = frozenset("few_rows some_keys split_of store_split paged_keys peak_of_silence".split())
_OTHERS = (
    "tl triton torch math which marked programs first lead marks odd tiles at t0 t1 k0 r0 b h head shared "
    "member near near_rows near_keys near_columns rows keys places positions fresh there count turn tile met "
    "table begin end full_begin full_end start stop beyond group level q k v given out dot score allowed p dp "
    "d_score delta gain gained sunk total mean peak weight acc heard nobody silent found page slot page_size n_heads "
    "n_rows n_keys low place slots skipped span strip diagonal diagonals ahead top moved skewed WIDTH PADDED "
    "CARRIED CARRIED_PADDED GROUP ROWS KEYS STEP STRIP PRODUCTS FEW AGAIN"
)
WORDS = HELPERS | FEW_HELPERS | frozenset((*_OTHERS.split(), *keyword.kwlist, *dir(builtins)))
_BEHIND = re.compile(r"(_(ptr|b|h|d|e|at|row|key|step|[0-9]+))+$")


def helpers_in(text: str, helpers: frozenset[str] = HELPERS) -> frozenset[str]:
    """The small functions that a kernel uses."""
    return helpers.intersection(re.findall(r"\w+", text))


def is_word(name: str) -> bool:
    """Whether kernels have a use for a name: it is a word, or one with an axis or a number behind it, or it is as
    gradients and tiles of arrays are called."""
    stem = _BEHIND.sub("", name)
    return stem in WORDS or name in WORDS or name.startswith(("d_", "share_", "bank_", "WANT_"))


def array_name(name: str) -> str:
    """The name of an array in a kernel. Sizes are called `n_i`, as the steps of an array `n` would be."""
    name = "".join(c if c.isalnum() and c.isascii() else "_" for c in name) or "array"
    name = f"x{name}" if name[0].isdigit() or name[0] == "_" else name
    return f"array_{name}" if is_word(name) or name == "n" else name


def number_name(variable: str) -> str:
    """The parameter of a kernel for a variable of the host; it is not called as the steps of some array may be."""
    is_step = _BEHIND.search(variable) is not None and not variable.startswith("n_")
    return f"number_{variable}" if is_step or is_word(variable) else variable
