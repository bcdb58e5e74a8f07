"""Small functions that stand above what kernels are called by in NumPy, beside those that operations have."""

from __future__ import annotations

from ...engine.dialects import dialect
from ...engine.show.number_helpers import HELPERS as NUMBERS

HELPERS = {
    **NUMBERS,
    **dialect("numpy").helpers,
    "in_blocks": '''
def in_blocks(turn, arrays, size, points, wholes, axes):
    """The results of `turn(first, last, *arrays)`, which has some rows, for all `size` rows of so many points: written
    into arrays of zeros, the `wholes`, along these axes; where there is none, summed."""
    rows = max(1, 2**20 // max(1, points))
    for start in range(0, max(1, size), rows):
        stop = min(start + rows, size)
        for whole, axis, part in zip(wholes, axes, turn(start, stop, *arrays)):
            if axis is None:
                whole += part
            else:
                whole[(slice(None),) * axis + (slice(start, stop),)] = part
    return wholes
''',
    "pick_some": '''
def pick_some(x, *places):
    """x at these places, None for all. One that is out of bounds gives some number: a guard removes it."""
    x = np.pad(x, [(0, int(n == 0 and k < len(places) and places[k] is not None)) for k, n in enumerate(x.shape)])
    return x[tuple(slice(None) if p is None else np.clip(p, 0, n - 1) for p, n in zip(places, x.shape))]
''',
}
