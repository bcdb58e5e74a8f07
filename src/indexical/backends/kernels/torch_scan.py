"""Linear recurrences, `y[t] = times[t] * y[t - k] + plus[t]`, in about three times √n steps and not in n.

The steps are cut into blocks. All blocks go side by side from 0; then each hands on to the next what it leads to; then
all go once more, each from what it was handed. There is no division. A gradient is a scan that goes the other way.
This text needs PyTorch and nothing else.
"""

from typing import Any

import torch
from torch import Tensor

# So few steps are taken one by one.
FEW = 32


def scan(
    start: Tensor,
    times: Tensor | float,
    plus: Tensor,
    axis: int = 0,
    kept: Tensor | None = None,
    backward: bool = False,
) -> Tensor:
    """The steps of `start`, then those of `plus`; backward, from the last to the first.

    All have the same axes, along which `times` and `kept` may be 1 long; `times` may be a number. Where `kept` is
    False the earlier step is not looked at: `times` is 0 there. Where a step is not finite, all are taken one by one,
    for 0 times infinity is not 0.
    """
    first, times, plus, kept = _rows(start, times, plus, axis, kept, backward)
    whole = torch.cat((first, _steps(first, times, plus, kept)))
    return (whole.flip(0) if backward else whole).movedim(0, axis)


def last_of_scan(
    start: Tensor,
    times: Tensor | float,
    plus: Tensor,
    axis: int = 0,
    kept: Tensor | None = None,
    backward: bool = False,
) -> Tensor:
    """The last step of a scan, or its first where it goes backward, 0 where it has none; the others are not kept."""
    first, times, plus, kept = _rows(start, times, plus, axis, kept, backward)
    lag = len(first)
    if lag > 1 or len(plus) < FEW:
        return torch.cat((first, _steps(first, times, plus, kept)))[-1:].sum(0)
    count, length = _blocks(len(plus))
    a, x = _cut(times, count, length), _cut(plus, count, length)
    y = _handed_on(first[0], a, x)[-1]
    for t in range(count * length, len(plus)):
        y = torch.addcmul(plus[t], times[t], y)
    return y if _is_finite(y) else _one_by_one(first[0], times, plus, kept)[-1]


def _rows(
    start: Tensor, times: Tensor | float, plus: Tensor, axis: int, kept: Tensor | None, backward: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The steps first, in the order in which they are taken, and a factor for every one."""
    start, plus = start.movedim(axis, 0), plus.movedim(axis, 0)
    times = times.movedim(axis, 0) if isinstance(times, Tensor) else plus.new_full((1,) * plus.ndim, times)
    times = times.expand(len(plus), *times.shape[1:])
    if kept is not None:
        kept = kept.movedim(axis, 0)
        kept = kept.expand(len(plus), *kept.shape[1:])
    if not backward:
        return start, times, plus, kept
    return start.flip(0), times.flip(0), plus.flip(0), None if kept is None else kept.flip(0)


def _steps(start: Tensor, times: Tensor, plus: Tensor, kept: Tensor | None) -> Tensor:
    """All steps after those of `start`. Where they read back k steps, there are k recurrences side by side."""
    lag, n = len(start), len(plus)
    if n == 0:
        return plus
    if lag == 1:
        return _apply(start[0], times, plus, kept)
    times, plus = _side(times, lag), _side(plus, lag)
    return _apply(start, times, plus, None if kept is None else _side(kept, lag)).flatten(0, 1)[:n]


class Steps(torch.autograd.Function):
    """`y[t] = times[t] * y[t - 1] + plus[t]`, from `y[-1] = start`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(start: Tensor, times: Tensor, plus: Tensor, kept: Tensor | None) -> Tensor:
        return _side_by_side(start, times, plus, kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        start, times, _, kept = inputs
        ctx.save_for_backward(start, times, kept, output)
        ctx.save_for_forward(start, times, kept, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The cotangent of a step is its own, plus what comes back from the next step."""
        start, times, kept, y = ctx.saved_tensors
        later = torch.cat((times[1:], torch.zeros_like(times[:1]))).flip(0)
        asks = None if kept is None else torch.cat((kept[1:], kept[:1])).flip(0)
        back = _apply(torch.zeros_like(start), later, gradient.flip(0), asks).flip(0)
        d_times = (back * _before(start, y)).sum_to_size(times.shape) if ctx.needs_input_grad[1] else None
        return (times[0] * back[0]).sum_to_size(start.shape), d_times, back, None

    @staticmethod
    def jvp(ctx: Any, d_start: Any, d_times: Any, d_plus: Any, _: Any) -> Tensor:
        """A change goes on as the steps do."""
        start, times, kept, y = ctx.saved_tensors
        change = torch.zeros_like(y) if d_plus is None else d_plus
        if d_times is not None:
            change = change + d_times * _before(start, y)
        return _apply(torch.zeros_like(start) if d_start is None else d_start, times, change, kept)


def _apply(start: Tensor, times: Tensor, plus: Tensor, kept: Tensor | None) -> Tensor:
    if torch.compiler.is_compiling():  # a traced graph has a way back of its own
        return _side_by_side(start, times, plus, kept)
    return Steps.apply(start, times, plus, kept)  # type: ignore[no-untyped-call, no-any-return]


def _before(start: Tensor, y: Tensor) -> Tensor:
    """The step before each."""
    return torch.cat((start[None], y[:-1]))


def _side(x: Tensor, lag: int) -> Tensor:
    """So many steps side by side; the last are filled up with zeros."""
    rest = -len(x) % lag
    x = torch.cat((x, x.new_zeros((rest, *x.shape[1:])))) if rest else x
    return x.reshape(-1, lag, *x.shape[1:])


def _side_by_side(start: Tensor, times: Tensor, plus: Tensor, kept: Tensor | None) -> Tensor:
    n = len(plus)
    if n < FEW:
        return _one_by_one(start, times, plus, kept)
    count, length = _blocks(n)
    a, x = _cut(times, count, length), _cut(plus, count, length)
    carries = _handed_on(start, a, x)
    y = torch.stack(carries[:-1])
    rows = []
    for p in range(length):
        y = torch.addcmul(x[p], a[p], y)
        rows.append(y)
    whole = torch.stack(rows, 1).flatten(0, 1)
    end = y[-1]
    rest = []
    for t in range(count * length, n):
        end = torch.addcmul(plus[t], times[t], end)
        rest.append(end)
    # What is not finite stays so to the end of its block.
    if not _is_finite(y) or not _is_finite(end):
        return _one_by_one(start, times, plus, kept)
    return torch.cat((whole, torch.stack(rest))) if rest else whole


def _blocks(n: int) -> tuple[int, int]:
    """The number of blocks, and of steps in each: about √n / √2, for these are taken twice."""
    length = 1
    while 4 * length * length <= n:
        length *= 2
    return n // length, length


def _cut(x: Tensor, count: int, length: int) -> tuple[Tensor, ...]:
    """The first step of every block, the second of every block, …"""
    return x[: count * length].view(count, length, *x.shape[1:]).unbind(1)


def _handed_on(start: Tensor, a: tuple[Tensor, ...], x: tuple[Tensor, ...]) -> list[Tensor]:
    """From where each block starts, and where the last one ends."""
    product, total = a[0], x[0]
    for p in range(1, len(a)):
        product = product * a[p]
        total = torch.addcmul(x[p], a[p], total)
    carries = [start]
    for factor, rest in zip(product.unbind(), total.unbind(), strict=True):
        carries.append(torch.addcmul(rest, factor, carries[-1]))
    return carries


def _one_by_one(start: Tensor, times: Tensor, plus: Tensor, kept: Tensor | None) -> Tensor:
    y, rows = start, []
    for t in range(len(plus)):
        found = torch.addcmul(plus[t], times[t], y)
        y = found if kept is None else torch.where(kept[t], found, plus[t])
        rows.append(y)
    return torch.stack(rows)


def _is_finite(y: Tensor) -> bool:
    """Whether no number is infinite or NaN; taken for granted where a graph is traced, which cannot ask."""
    if torch.compiler.is_compiling():
        return True
    try:
        return bool(torch.isfinite(y).all())
    except RuntimeError:  # vmap has no answer for all that it maps over
        return True
