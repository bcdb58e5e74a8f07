"""Small functions that stand above what NumPy code calls them. Other dialects share some: what fails in one is refused
by `check`, which each dialect spells its own way."""

from __future__ import annotations

from ..ir.functions import FUNCTIONS

HELPERS = {
    **{name: row.numpy.helper for name, row in FUNCTIONS.items() if row.numpy.helper},
    "truncated": '''
def truncated(a, b):
    """A whole quotient, truncated toward zero."""
    if b == 0:
        raise Refused("IX505", "a whole number divided by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
''',
    "as_whole": '''
def as_whole(scalar):
    """A whole number as Python has it, of a number or of an array of one."""
    if int(scalar) != scalar:
        raise Refused("IX503", "a scalar is not a whole number")
    return int(scalar)
''',
    "forward": '''
def forward(x):
    """The array with no axis backward in memory."""
    return x if all(step >= 0 for step in x.strides) else x.copy()
''',
    "fitting": '''
def fitting(number):
    """A whole number that fits in 64 bits."""
    if not -(2**63) <= number < 2**63:
        raise Refused("IX505", "this whole number does not fit in 64 bits")
    return number
''',
    "check": '''
def check(failed, code, message):
    """Refuse where a test fails somewhere."""
    if failed.any():
        raise Refused(code, message)
''',
    "fitting_32": '''
def fitting_32(numbers):
    """Whole numbers that fit in 32 bits."""
    check((numbers < -(2**31)) | (numbers >= 2**31), "IX505", "a whole number does not fit in 32 bits")
    return numbers.astype(np.int32)
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
    "power": '''
def power(a, b):
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
    """The sum of whole numbers, where it fits in 64 bits."""
    x = x.astype(np.int64, copy=False)
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
    """The running sum of whole numbers, where it fits in 64 bits."""
    x = x.astype(np.int64, copy=False)
    high = (x >> 32).cumsum(axis) + ((x & 0xFFFFFFFF).cumsum(axis) >> 32)
    check((high < -(2**31)) | (high >= 2**31), "IX505", "a whole number does not fit in 64 bits")
    return x.cumsum(axis)
''',
    "checked_cumprod": '''
def checked_cumprod(x, axis):
    """The running product of whole numbers, where it fits in 64 bits."""
    large = np.abs(x.astype(np.float64).cumprod(axis)) >= 2.0**63 * (1 - 2.0**-48)
    check(large, "IX505", "a whole number does not fit in 64 bits")
    return x.astype(np.int64, copy=False).cumprod(axis)
''',
    "running_argmax": '''
def running_argmax(x, kept, axis):
    """The first place of the largest number that is kept so far, or of the first NaN; -1 where none is."""
    kept = np.broadcast_to(kept, x.shape)
    x = np.where(kept, x, -math.inf)
    before = np.roll(np.maximum.accumulate(x, axis), 1, axis)
    new = kept & ((kept.cumsum(axis) == 1) | (x > before) | (x != x) & (before == before))
    places = np.arange(x.shape[axis]).reshape(-1, *[1] * (x.ndim - 1 - axis))
    return np.maximum.accumulate(np.where(new, places, -1), axis)
''',
    "running_argmin": '''
def running_argmin(x, kept, axis):
    """The first place of the smallest number that is kept so far, or of the first NaN; -1 where none is."""
    return running_argmax(-x, kept, axis)
''',
    "quotient": '''
def quotient(a, b):
    """Whole division, truncated toward zero; some number where it is by zero, which a guard removes."""
    return (a - np.fmod(a, b)) // b
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
    "guarded_softmax": '''
def guarded_softmax(x, kept, axis):
    """Softmax over the points that are kept; all 0 where none is."""
    x = np.where(kept, x, np.where(kept.any(axis, keepdims=True), -np.inf, 0).astype(x.dtype))
    part = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return np.where(kept, part / part.sum(axis, keepdims=True), 0)
''',
    "guarded_log_softmax": '''
def guarded_log_softmax(x, kept, axis):
    """The logarithm of softmax over the points that are kept; -inf for all others."""
    x = np.where(kept, x, np.where(kept.any(axis, keepdims=True), -np.inf, 0).astype(x.dtype))
    x = x - x.max(axis, keepdims=True, initial=-np.inf)
    return np.where(kept, x - np.log(np.exp(x).sum(axis, keepdims=True)), -np.inf)
''',
    "padded": '''
def padded(x, places):
    """x from one place up to another along some axes, with zeros where it has no such place."""
    for axis, (first, beyond) in places.items():
        n, beyond = x.shape[axis], max(first, beyond)
        part = [slice(None)] * axis + [slice(min(max(first, 0), n), min(max(beyond, 0), n))]
        before, after = min(max(-first, 0), beyond - first), min(max(beyond - n, 0), beyond - first)
        x = np.pad(x[tuple(part)], [(before, after) if k == axis else (0, 0) for k in range(x.ndim)])
    return x
''',
    "windows": '''
def windows(x, axis, count, length, step, dilation=1):
    """So many windows of some length along one axis, each a step on; the places within go last, some way apart."""
    if count == 0 or length == 0:
        return np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], length), x.dtype)
    x = np.lib.stride_tricks.sliding_window_view(x, (length - 1) * dilation + 1, axis)
    return x[(slice(None),) * axis + (slice(None, None, step), ..., slice(None, None, dilation))]
''',
    "scattered": '''
def scattered(x, places, counts, kept=True):
    """x added up at places along its first axes, in zeros. What is not kept, or has a place that is not there, is
    left out."""
    at = 0
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    kept, at = np.broadcast_arrays(kept, at)
    rest = x.shape[at.ndim :]
    width = math.prod(rest)
    flat = (at[kept][:, None] * width + np.arange(width)).ravel()
    total = np.zeros(math.prod(counts) * width, x.dtype)
    np.add.at(total, flat, x[kept].ravel())
    return total.reshape(*counts, *rest)
''',
    "put_rows": '''
def put_rows(x, axis, places, rows):
    """x, with these rows written to it at places along an axis."""
    np.put_along_axis(x, places.reshape((1,) * (x.ndim - places.ndim) + places.shape), rows, axis)
    return x
''',
    "put": '''
def put(x, axis, places, counts):
    """x at places along new axes, which begin at this one, and 0 elsewhere. What has a place that is not there is
    stored in a row that is then cut off."""
    at, kept, rows = 0, True, math.prod(counts)
    for place, count in zip(places, counts):
        kept = kept & (place >= 0) & (place < count)
        at = at * count + place
    at = np.expand_dims(np.broadcast_to(np.where(kept, at, rows), x.shape), axis)
    total = np.zeros((*x.shape[:axis], rows + 1, *x.shape[axis:]), x.dtype)
    np.put_along_axis(total, at, np.expand_dims(x, axis), axis)
    return total[(slice(None),) * axis + (slice(rows),)].reshape(*x.shape[:axis], *counts, *x.shape[axis:])
''',
    "pick": '''
def pick(x, *places):
    """x at these places, None for all. One that is out of bounds gives some number: a guard removes it."""
    x = np.pad(x, [(0, int(n == 0 and k < len(places) and places[k] is not None)) for k, n in enumerate(x.shape)])
    return x[tuple(slice(None) if p is None else np.clip(p, 0, n - 1) for p, n in zip(places, x.shape))]
''',
    "argmax": '''
def argmax(x, kept, axis):
    """The first place of the largest number that is kept, or of the first NaN; -1 where none is."""
    least = -math.inf if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
    best = np.where(kept, x, least).max(axis, keepdims=True, initial=least)
    hit = kept & ((x == best) | (x != x))
    found = hit.any(axis)
    return np.where(found, hit.argmax(axis), -1).astype(np.int64, copy=False) if hit.size else np.full(found.shape, -1)
''',
    "argmin": '''
def argmin(x, kept, axis):
    """The first place of the smallest number that is kept, or of the first NaN; -1 where none is."""
    most = math.inf if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).max
    best = np.where(kept, x, most).min(axis, keepdims=True, initial=most)
    hit = kept & ((x == best) | (x != x))
    found = hit.any(axis)
    return np.where(found, hit.argmax(axis), -1).astype(np.int64, copy=False) if hit.size else np.full(found.shape, -1)
''',
    "rank": '''
def rank(x, axis):
    """The place of each number in decreasing order, the first of equal ones first and NaN last, by a stable sort."""
    order = np.argsort(-x if x.dtype.kind == "f" else ~x, axis, kind="stable")
    place = np.empty_like(order)
    steps = np.arange(x.shape[axis]).reshape([-1 if n == axis % x.ndim else 1 for n in range(x.ndim)])
    np.put_along_axis(place, order, steps, axis)
    return place
''',
    "guarded_rank": '''
def guarded_rank(x, kept, axis):
    """The place of each number that is kept among those that are, in decreasing order, the first of equal ones first
    and NaN last, by a stable sort; how many are kept for all others."""
    order = np.argsort(-x if x.dtype.kind == "f" else ~x, axis, kind="stable")
    kept = np.take_along_axis(kept, order, axis)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.where(kept, kept.cumsum(axis) - 1, kept.sum(axis, keepdims=True)), axis)
    return place
''',
    "top": '''
def top(x, count, axis):
    """The places of so many numbers, the largest first, the first of equal ones first and NaN last; -1 where there are
    no more."""
    order = np.argsort(-x if x.dtype.kind == "f" else ~x, axis, kind="stable").swapaxes(axis, -1)[..., :count]
    more = np.full((*order.shape[:-1], count - order.shape[-1]), -1)
    return np.concatenate((order, more), -1).swapaxes(axis, -1)
''',
    "guarded_top": '''
def guarded_top(x, kept, count, axis):
    """The places of so many numbers that are kept, the largest first, the first of equal ones first and NaN last; -1
    where there are no more."""
    x, kept = x.swapaxes(axis, -1), kept.swapaxes(axis, -1)
    order = np.argsort(-x if x.dtype.kind == "f" else ~x, -1, kind="stable")
    left = np.argsort(~np.take_along_axis(kept, order, -1), -1, kind="stable")
    order = np.where(np.arange(x.shape[-1]) < kept.sum(-1, keepdims=True), np.take_along_axis(order, left, -1), -1)
    more = np.full((*order.shape[:-1], max(0, count - order.shape[-1])), -1)
    return np.concatenate((order[..., :count], more), -1).swapaxes(axis, -1)
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
