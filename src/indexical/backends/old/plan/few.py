"""The sizes of small calls: where pairs of a query and a key are few, all of them at once cost less than tiles do.

Kernels are kept by rank, and sizes are known at the call: emitted code compares these numbers with its sizes. They were
measured on a CPU with `benchmarks/small.py`. On other devices a call costs as much whatever its size, and a mask that
has to be looked at makes the device wait.
"""

from __future__ import annotations

from ....ir.affine import polynomial, replaced
from ....plan.steps import Attend, Few, Free, Softmax, Softpick
from ....plan.target import LEARNED

# Points of a mask that arithmetic makes: 256 queries by 256 keys. Beyond, intervals leave out more than they cost.
MASK = 1 << 16
# Points of a mask that is data, and of a bias, which tiles make piece by piece.
DATA = 1 << 18
# Scores of all batches and heads; where a gradient is wanted, some copies of them are kept for it.
SCORES = 1 << 19
KEPT = 1 << 20
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


def few_pairs(attend: Attend, device: str) -> Few | None:
    """The largest number of points of a mask, and of scores, to be computed in memory; None where none is."""
    if device != "cpu":
        return None
    normaliser = attend.attention.normaliser
    match normaliser:
        case Softmax(None):
            pass
        case Free():
            pass
        case Softpick(origin="zero") if attend.shape == "full":
            pass
        case _:
            return None
    is_data = attend.scores.bias is not None or any(piece.rest for piece in attend.keys)
    # Two whole products are faster than those of tiles, but these leave out what a guard does. A stream gains where
    # exponentials are counted from a maximum.
    whole = attend.shape == "full" and not isinstance(normaliser, Softmax)
    return Few(DATA if is_data else MASK, *((LEARNED, LEARNED) if whole else (SCORES, KEPT)))
