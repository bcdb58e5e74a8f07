"""The sizes of small calls: where pairs of a query and a key are few, all of them at once cost less than tiles do.

Kernels are kept by rank, and sizes are known at the call: emitted code compares these numbers with its sizes. They were
measured on a CPU with `benchmarks/small.py`. On other devices a call costs as much whatever its size, and a mask that
has to be looked at makes the device wait.
"""

from __future__ import annotations

from ....ir.affine import polynomial, replaced
from ....plan.steps import Attend, Softmax
from ....plan.target import INTERVALS, STREAM

# Numbers that are computed at once: scores of all batches and heads, or what they are made of. Of all keys; of those
# that positions leave, where tiles are computed one after the other; and where the library's kernel takes intervals.
SCORES = 1 << 22
TILED = 1 << 21
PARTS = 1 << 20
# Positions of a causal product on a GPU for which one kernel of all pairs costs less than chunks do, whose states are
# written and read again: chunks by the array library, and by kernels (True). Measured on an H200 with
# `benchmarks/gpu.py --rows retention`.
SHORT_ROWS = {False: 8192, True: 2048}


def last_hears_all(attend: Attend) -> bool:
    """Whether the last query hears all keys, and weights are no more than exponentials over their sum: a query that is
    alone is the last."""
    row, key = attend.row, attend.attention.key
    if row is None or attend.scores.bias is not None or attend.totals or len(attend.keys) != 1:
        return False
    piece, rows = attend.keys[0], attend.domain.range(row)
    if attend.attention.normaliser != Softmax(None) or not piece.is_interval or piece.lower or not rows.from_zero:
        return False
    constants = attend.domain.known.constants
    last = polynomial(rows.upper, constants) - 1
    beyond = [replaced(polynomial(upper, constants), row, last) for upper in piece.upper]
    reach = [(end - polynomial(key.upper, constants)).constant for end in beyond]
    return key.from_zero and all(more is not None and more >= 0 for more in reach)


def few_pairs(attend: Attend, device: str, way: str) -> int | None:
    """The largest number of scores to be computed in memory at once; None where none is."""
    if device != "cpu":
        return None
    leaves_out = any(piece.lower or piece.upper or (piece.labels and way != STREAM) for piece in attend.keys)
    return SCORES if not leaves_out else PARTS if way == INTERVALS else TILED
