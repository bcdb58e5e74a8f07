"""Linear recurrences, `y[t] = times[t] * y[t - k] + plus[t]`, in about three times √n steps and not in n.

The steps are cut into blocks. All blocks go side by side from 0; then each hands on to the next what it leads to; then
all go once more, each from what it was handed. There is no division. This text needs NumPy and nothing else.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# So few steps are taken one by one.
FEW = 32


def scan(
    start: Array, times: Array | float, plus: Array, axis: int = 0, kept: Array | None = None, backward: bool = False
) -> Array:
    """The steps of `start`, then those of `plus`; backward, from the last to the first.

    All have the same axes, along which `times` and `kept` may be 1 long; `times` may be a number. Where `kept` is
    False the earlier step is not looked at: `times` is 0 there. Where a step is not finite, all are taken one by one,
    for 0 times infinity is not 0.
    """
    first, times, plus, kept = _rows(start, times, plus, axis, kept, backward)
    lag, n = len(first), len(plus)
    whole = np.empty((lag + n, *plus.shape[1:]), plus.dtype)
    whole[:lag] = first
    y = whole[lag:]
    # Where it reads back k steps, there are k recurrences side by side.
    for k in range(min(lag, n)):
        asks = None if kept is None else kept[k::lag]
        _fill(y[k::lag], first[k], times[k::lag], plus[k::lag], asks)
    return np.moveaxis(whole[::-1] if backward else whole, 0, axis)


def last_of_scan(
    start: Array, times: Array | float, plus: Array, axis: int = 0, kept: Array | None = None, backward: bool = False
) -> Array:
    """The last step of a scan, or its first where it goes backward, 0 where it has none; the others are not kept."""
    first, a, x, asks = _rows(start, times, plus, axis, kept, backward)
    n = len(x)
    if len(first) > 1 or n < FEW:
        whole = scan(start, times, plus, axis, kept, backward)
        rows = np.moveaxis(whole, axis, 0)
        return np.asarray((rows[:1] if backward else rows[-1:]).sum(0))
    count, length = _blocks(n)
    y = _handed_on(first[0], a, x, count, length)[-1]
    for t in range(count * length, n):
        y = a[t] * y + x[t]
    if np.isfinite(y).all():
        return np.asarray(y)
    y = first[0]
    for t in range(n):
        y = a[t] * y + x[t] if asks is None else np.where(asks[t], a[t] * y + x[t], x[t])
    return np.asarray(y)


def _rows(
    start: Array, times: Array | float, plus: Array, axis: int, kept: Array | None, backward: bool
) -> tuple[Array, Array, Array, Array | None]:
    """The steps first, in the order in which they are taken, and a factor for every one."""
    start, plus = np.moveaxis(start, axis, 0), np.moveaxis(plus, axis, 0)
    n = len(plus)
    factor = times if isinstance(times, np.ndarray) else np.full((1,) * plus.ndim, times, plus.dtype)
    factor = np.moveaxis(factor, axis, 0)
    factor = np.broadcast_to(factor, (n, *factor.shape[1:]))
    if kept is not None:
        kept = np.moveaxis(kept, axis, 0)
        kept = np.broadcast_to(kept, (n, *kept.shape[1:]))
    if not backward:
        return start, factor, plus, kept
    return start[::-1], factor[::-1], plus[::-1], None if kept is None else kept[::-1]


def _fill(y: Array, start: Array, times: Array, plus: Array, kept: Array | None) -> None:
    """All steps, into `y`."""
    n = len(plus)
    done = 0
    if n >= FEW:
        count, length = _blocks(n)
        done = count * length
        blocks = y[:done].reshape(count, length, *y.shape[1:])
        now = _handed_on(start, times, plus, count, length)[:-1]
        a, x = (part[:done].reshape(count, length, *part.shape[1:]) for part in (times, plus))
        for p in range(length):
            row = blocks[:, p]
            np.multiply(a[:, p], now, out=row)
            row += x[:, p]
            now = row
    _go_on(y, start, times, plus, kept, done)
    # What is not finite stays so to the end of its block.
    if done and not (np.isfinite(blocks[:, -1]).all() and np.isfinite(y[-1]).all()):
        _go_on(y, start, times, plus, kept, 0)


def _go_on(y: Array, start: Array, times: Array, plus: Array, kept: Array | None, done: int) -> None:
    """One step after the other, where so many are done."""
    for t in range(done, len(plus)):
        found = times[t] * (y[t - 1] if t else start) + plus[t]
        y[t] = found if kept is None else np.where(kept[t], found, plus[t])


def _blocks(n: int) -> tuple[int, int]:
    """The number of blocks, and of steps in each: about √n / √2, for these are taken twice."""
    length = 1
    while 4 * length * length <= n:
        length *= 2
    return n // length, length


def _handed_on(start: Array, times: Array, plus: Array, count: int, length: int) -> Array:
    """From where each block starts, and where the last one ends."""
    a, x = (part[: count * length].reshape(count, length, *part.shape[1:]) for part in (times, plus))
    product, total = a[:, 0], x[:, 0]
    for p in range(1, length):
        product = product * a[:, p]
        total = total * a[:, p] + x[:, p]
    carries = np.empty((count + 1, *plus.shape[1:]), plus.dtype)
    carries[0] = start
    for c in range(count):
        carries[c + 1] = product[c] * carries[c] + total[c]
    return carries
