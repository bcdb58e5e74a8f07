"""Small functions that stand above what NumPy code calls them; those in `SHARED` are JAX's as well, by its names."""

from __future__ import annotations

from ...ir.functions import FUNCTIONS

SHARED = {
    "decayed": '''
def decayed(x, step):
    """The sum of all numbers so far along the last axis, times the factor of each step since: one for
    all steps, or one for each. In every turn it has twice as many of them."""
    reach, same = 1, step.shape[-1] == 1
    while reach < x.shape[-1]:
        later = step if same else step[..., reach:]
        x = np.concatenate((x[..., :reach], x[..., reach:] + later * x[..., :-reach]), -1)
        step = step * step if same else np.concatenate((step[..., :reach], later * step[..., :-reach]), -1)
        reach = 2 * reach
    return x
''',
    "add": '''
def add(a, b):
    """The sum of whole numbers, where it fits in 64 bits."""
    total = a + b
    check((a ^ total) & (b ^ total) < 0, "IX505", "a whole number does not fit in 64 bits")
    return total
''',
    "subtract": '''
def subtract(a, b):
    """The difference of whole numbers, where it fits in 64 bits."""
    rest = a - b
    check((a ^ b) & (a ^ rest) < 0, "IX505", "a whole number does not fit in 64 bits")
    return rest
''',
    "magnitude": '''
def magnitude(x):
    """The absolute value of whole numbers, where it fits in 64 bits."""
    check(x == -(2**63), "IX505", "a whole number does not fit in 64 bits")
    return abs(x)
''',
    "multiply": '''
def multiply(a, b):
    """The product of whole numbers, where it fits in 64 bits."""
    a, b = np.asarray(a), np.asarray(b)
    total, by = a * b, np.where((b == 0) | (b == -1), 1, b)
    wrapped = np.where(b == -1, a == -(2**63), (b != 0) & (total // by != a))
    check(wrapped, "IX505", "a whole number does not fit in 64 bits")
    return total
''',
    "raised": '''
def raised(a, b):
    """Whole powers; 1 for a negative exponent, which a guard removes."""
    return np.power(a, np.maximum(b, 0))
''',
    "checked_power": '''
def checked_power(a, b):
    """Whole powers, where they fit in 64 bits; 1 for a negative exponent, which a guard removes."""
    b = np.maximum(b, 0)
    large = np.abs(np.float_power(a, b)) >= 2.0**63 * (1 - 2.0**-48)
    check(large, "IX505", "a whole number does not fit in 64 bits")
    return np.power(a, b)
''',
    "checked_sum": '''
def checked_sum(x, axes):
    """The sum of whole numbers, where it fits in 64 bits: its upper halves are added up apart."""
    x = x.astype(np.int64)
    high = (x >> 32).sum(axes) + ((x & 0xFFFFFFFF).sum(axes) >> 32)
    check((high < -(2**31)) | (high >= 2**31), "IX505", "a whole number does not fit in 64 bits")
    return x.sum(axes)
''',
    "checked_prod": '''
def checked_prod(x, axes):
    """The product of whole numbers, where it fits in 64 bits from first to last."""
    rest = [n for n in range(x.ndim) if n not in axes]
    row = x.transpose(*rest, *axes).reshape(*(x.shape[n] for n in rest), math.prod(x.shape[n] for n in axes))
    large = np.abs(row.astype(np.float64).cumprod(-1)) >= 2.0**63 * (1 - 2.0**-48)
    check(large, "IX505", "a whole number does not fit in 64 bits")
    return row.prod(-1)
''',
    "checked_cumsum": '''
def checked_cumsum(x, axis):
    """The running sum of whole numbers, where it fits in 64 bits: its upper halves are added up apart."""
    x = x.astype(np.int64)
    high = (x >> 32).cumsum(axis) + ((x & 0xFFFFFFFF).cumsum(axis) >> 32)
    check((high < -(2**31)) | (high >= 2**31), "IX505", "a whole number does not fit in 64 bits")
    return x.cumsum(axis)
''',
    "checked_cumprod": '''
def checked_cumprod(x, axis):
    """The running product of whole numbers, where it fits in 64 bits."""
    large = np.abs(x.astype(np.float64).cumprod(axis)) >= 2.0**63 * (1 - 2.0**-48)
    check(large, "IX505", "a whole number does not fit in 64 bits")
    return x.astype(np.int64).cumprod(axis)
''',
    "quotient": '''
def quotient(a, b):
    """A whole quotient, truncated toward zero; some number where it is by 0, which a guard removes."""
    return (a - np.fmod(a, b)) // b
''',
    "padded": '''
def padded(x, places):
    """x from one place up to another along some axes, with zeros where it has no such place."""
    for axis, (first, beyond) in places.items():
        n, beyond = x.shape[axis], max(first, beyond)
        part = [slice(None)] * axis + [slice(min(max(first, 0), n), min(max(beyond, 0), n))]
        before, after = min(max(-first, 0), beyond - first), min(max(beyond - n, 0), beyond - first)
        x = x[tuple(part)]
        if before or after:
            ends = [np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype) for count in (before, after)]
            x = np.concatenate((ends[0], x, ends[1]), axis)
    return x
''',
    "row": '''
def row(x, axis, place):
    """x at one place along an axis; zeros where it has no such place."""
    index = (slice(None),) * axis
    return x[(*index, place)] if 0 <= place < x.shape[axis] else np.zeros_like(x[(*index, slice(0, 0))].sum(axis))
''',
    "take_or_zero": '''
def take_or_zero(x, axis, places):
    """x at places along an axis; 0 where it has no such place."""
    kept = (places >= 0) & (places < x.shape[axis])
    if x.shape[axis] == 0:
        x = np.pad(x, [(0, int(n == axis)) for n in range(x.ndim)])
    found = np.take(x, np.where(kept, places, 0), axis)
    return np.where(kept.reshape((*kept.shape, *[1] * (x.ndim - 1 - axis))), found, np.zeros((), x.dtype))
''',
    "pick_or_zero": '''
def pick_or_zero(x, *places):
    """x at places along several axes, None for all; 0 where it has no such place."""
    if 0 in x.shape:
        x = np.pad(x, [(0, int(n == 0 and k < len(places) and places[k] is not None)) for k, n in enumerate(x.shape)])
    kept, index = True, [slice(None)] * len(places)
    for axis, place in enumerate(places):
        if place is not None:
            there = (place >= 0) & (place < x.shape[axis])
            kept, index[axis] = kept & there, np.where(there, place, 0)
    axes = [n for n, place in enumerate(places) if place is not None]
    behind = x.ndim - len(axes) - (axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0)
    return np.where(kept.reshape((*kept.shape, *[1] * behind)), x[tuple(index)], np.zeros((), x.dtype))
''',
    "argmax": '''
def argmax(x, axis):
    """The first place of the largest number along an axis; -1 where it has no points."""
    return x.argmax(axis) if x.shape[axis] else x.any(axis).astype(np.int64) - 1
''',
    "argmin": '''
def argmin(x, axis):
    """The first place of the smallest number along an axis; -1 where it has no points."""
    return x.argmin(axis) if x.shape[axis] else x.any(axis).astype(np.int64) - 1
''',
    "top": '''
def top(x, kept=None, count=1):
    """The places of so many numbers that are kept along the last axis, the largest first, the first of equal ones first
    and NaN last; -1 where there are no more."""
    less, n = -x if np.issubdtype(x.dtype, np.floating) else ~x, x.shape[-1]
    order = np.lexsort((less,) if kept is None else (less, ~kept), -1)
    there = n if kept is None else kept.sum(-1, keepdims=True)
    order = np.where(np.arange(n) < there, order, -1)[..., :count]
    return np.pad(order, (*((0, 0),) * (x.ndim - 1), (0, max(0, count - n))), constant_values=-1)
''',
}

# A kernel's name in the plan, and the function that is called for it.
KERNELS = {"decayed": "decayed", "rank": "rank", "top": "top"}

HELPERS = {
    **SHARED,
    "rank": '''
def rank(x, kept=None):
    """The place of each number that is kept among those that are along the last axis, in decreasing order, the first of
    equal ones first and NaN last, by a stable sort; how many are kept for all others."""
    order = np.argsort(-x if x.dtype.kind == "f" else ~x, -1, kind="stable")
    places = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    if kept is not None:
        kept = np.take_along_axis(kept, order, -1)
        places = np.where(kept, kept.cumsum(-1) - 1, kept.sum(-1, keepdims=True))
    found = np.empty_like(order)
    np.put_along_axis(found, order, places, -1)
    return found
''',
    **{name: row.numpy.helper for name, row in FUNCTIONS.items() if row.numpy.helper},
    "check": '''
def check(failed, code, message):
    """Refuse where a test fails somewhere."""
    if failed.any():
        raise Refused(code, message)
''',
    "mean": '''
def mean(x, axis):
    """The mean along some axes; NaN over no points, of which NumPy warns even where the result has none."""
    return x.mean(axis) if x.size else x.sum(axis) * np.nan
''',
    "forward": '''
def forward(x):
    """The array with no axis backward in memory."""
    return x if all(step >= 0 for step in x.strides) else x.copy()
''',
    "cummax": '''
def cummax(x, axis):
    """The largest number up to each along an axis."""
    return np.maximum.accumulate(x, axis)
''',
    "cummin": '''
def cummin(x, axis):
    """The smallest number up to each along an axis."""
    return np.minimum.accumulate(x, axis)
''',
    "softmax": '''
def softmax(x, axis):
    """Along one axis, shifted by the largest, which changes nothing and never overflows."""
    part = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return part / part.sum(axis, keepdims=True)
''',
    "log_softmax": '''
def log_softmax(x, axis):
    """Along one axis, shifted by the largest, which changes nothing and never overflows."""
    x = x - x.max(axis, keepdims=True, initial=-np.inf)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))
''',
    "windows": '''
def windows(x, axis, count, length, step, dilation=1):
    """So many windows of some length along one axis, each a step on; the places within go last, some way apart."""
    if count == 0 or length == 0:
        return np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], length), x.dtype)
    x = np.lib.stride_tricks.sliding_window_view(x, (length - 1) * dilation + 1, axis)
    return x[(slice(None),) * axis + (slice(None, None, step), ..., slice(None, None, dilation))]
''',
    "leaning": '''
def leaning(x, axis, length, first, lean, dilation=1):
    """For each point of an axis a window of the next one, some way on from that of the point before; its places go
    last, some way apart."""
    count, ahead = x.shape[axis], (slice(None),) * axis
    shape = (*x.shape[: axis + 1], *x.shape[axis + 2 :], length)
    if count == 0 or length == 0:
        return np.zeros(shape, x.dtype)
    x = x[(*ahead, slice(None), slice(first, None))]
    own, next_ = x.strides[axis : axis + 2]
    strides = (*x.strides[:axis], own + lean * next_, *x.strides[axis + 2 :], dilation * next_)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)
''',
    "scattered": '''
def scattered(x, places, counts):
    """x added up at places along its first axes, in zeros; what has a place that is not there is left out."""
    at, kept = 0, True
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    rest = x.shape[at.ndim :]
    width = math.prod(rest)
    flat = (at[kept][:, None] * width + np.arange(width)).ravel()
    total = np.zeros(math.prod(counts) * width, x.dtype)
    np.add.at(total, flat, x[kept].ravel())
    return total.reshape(*counts, *rest)
''',
    "stored": '''
def stored(x, places, counts):
    """x stored at places along its first axes, in zeros; what has a place that is not there is left out."""
    at, kept = 0, True
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    total = np.zeros((math.prod(counts), *x.shape[at.ndim :]), x.dtype)
    total[at[kept]] = x[kept]
    return total.reshape(*counts, *x.shape[at.ndim :])
''',
    "with_part": '''
def with_part(row, slots, part):
    """A row with a part of it stored."""
    row = row.copy()
    row[slots] = part
    return row
''',
    "stacked": '''
def stacked(rows, counts, axes, empty):
    """The rows of a recurrence as one array, their steps as these axes; `empty` stands for what is not there."""
    steps = [step if len(counts) > 1 else step[0] for step in np.ndindex(*counts)]
    found = [rows.get(step, empty) for step in steps]
    whole = np.stack(found) if found else np.zeros((0, *empty.shape), empty.dtype)
    return np.moveaxis(whole.reshape(*counts, *empty.shape), tuple(range(len(counts))), axes)
''',
    "round_bf16": '''
def round_bf16(x):
    """To the nearest number of eight significant bits, in a float32. NumPy has no bfloat16."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    near = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(x), near.view(np.float32), x)
''',
}
