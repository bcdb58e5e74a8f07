"""Causal products of two sides, `out[i] = sum[j <= i](query[i] · key[j] * decay(i, j) * value[j])`, in linear time.

Positions are cut into chunks. Within a chunk this is a product under a mask; what comes from earlier chunks is carried
in one state, the sum of `key[j] * value[j]` that decays from chunk to chunk. Decays are e to differences of levels that
are both in one chunk, or end it: nothing is divided. The way back goes over the chunks once more, from the last to the
first, and keeps no more than it is given. This text needs PyTorch and nothing else.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .torch_operator import differentiable, is_transformed

# Positions of a chunk, and how many of them are taken at once, as one.
CHUNK, AT_ONCE = 64, 128
# The widest sides that kernels take which are handed in.
WIDEST = 256
# The shortest chunk of products that decay feature by feature, and how far levels may lie apart in one.
SHORTEST, FARTHEST = 16, {torch.float32: 60.0, torch.float64: 500.0}


def chunk_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rate: Tensor | float | None = None,
    levels: Tensor | None = None,
    times: Tensor | float | None = None,
    strict: bool = False,
    backward: bool = False,
    kernels: Callable[..., Tensor] | None = None,
) -> Tensor:
    """The sum over `j <= i` of `(query[i] · key[j]) * decay(i, j) * value[j]`; where `strict` over `j < i`, `backward`
    over `j >= i`.

    Query (…, rows, d), key (…, keys, d) and value (…, keys, e) have the same axes before. The decay is e to `rate` for
    every step from j to i, times e to `levels[i] - levels[j]`, times the product of `times` over the steps after j up
    to i; each of them (…, positions or 1, d or 1), and `rate` and `times` also a number. Sides of 16 bits are computed
    in 32, unless there are `kernels` for them: `kernels(parts, level, strict)`, where decays do not differ by feature.
    """
    rows, count = query.shape[-2], max(query.shape[-2], key.shape[-2])
    if 0 in (rows, key.shape[-2], *value.shape):
        nothing = query[..., :0].sum(-1, keepdim=True) + key[..., :0, :0].sum() + value[..., :0, :0].sum()
        return nothing.expand(*query.shape[:-1], value.shape[-1]).contiguous()
    lead = query.shape[:-2]
    query, key, value = (_chunk_stretched(part, count, backward) for part in (query, key, value))
    decays = [] if rate is None else [(_chunk_decay(rate, value), True)]
    if levels is not None:
        decays.append((levels, False))
    stretched = [(_chunk_stretched(part, count, backward, True), adds) for part, adds in decays]
    if times is not None:
        factors = _chunk_stretched(_chunk_decay(times, value), count, backward, True)
        if _chunk_vanishes(factors):
            out = _chunk_steps((query, key, value), factors, stretched, strict).to(value.dtype)
            return (out.flip(-2) if backward else out)[..., :rows, :]
        signs, steps = _chunk_signed(factors)
        stretched.append((steps, True))
        if signs is not None:
            turned = signs.cumprod(-2).to(query.dtype)
            query, key = query * turned, key * turned
    apart = any(part.shape[-1] > 1 for part, _ in stretched)
    if apart or max(query.shape[-1], value.shape[-1]) > WIDEST:
        kernels = None
    if kernels is None and value.itemsize < 4:
        query, key, value = query.float(), key.float(), value.float()
    length = count if count <= AT_ONCE and not apart and kernels is None else CHUNK
    if apart and (is_transformed() or torch.compiler.is_compiling()):
        length = SHORTEST  # Nobody may look at the levels.
    while True:
        parts = [_cut_chunks(part, length) for part in (query, key, value)]
        level = _chunk_levels(stretched, count, length)
        if not apart or length <= SHORTEST or level is None:
            break
        if float((level.amax(-2) - level.amin(-2)).amax().detach()) <= FARTHEST[value.dtype]:
            break
        length //= 2
    if level is not None:
        level = level.expand(*lead, *level.shape[-3:]).reshape(-1, *level.shape[-3:])
    if kernels is None:
        out = _run_all(parts if level is None else [*parts, level], (strict,))[0]
    else:
        out = kernels(parts, level, strict)
    out = out.reshape(*lead, -1, value.shape[-1])[..., :count, :]
    return (out.flip(-2) if backward else out)[..., :rows, :]


def _chunk_decay(part: Tensor | float, like: Tensor) -> Tensor:
    dtype = torch.float32 if like.itemsize < 4 else like.dtype
    return part if isinstance(part, Tensor) else like.new_full((1, 1), part, dtype=dtype)


def _chunk_signed(factors: Tensor) -> tuple[Tensor | None, Tensor]:
    """Factors as signs, None where all are known to be positive, and logarithms, which are finite for 0 too: e to them
    is 0. On a GPU nobody looks at the signs, for which it would wait, nor in a graph of `torch.compile`."""
    least = -105.0 if factors.dtype == torch.float32 else -750.0
    negative = factors < 0
    size = factors.abs()
    steps = torch.where(size > 0, size, 1).log().clamp(min=least)
    steps = torch.where(size > 0, steps, least)
    looks = factors.device.type == "cpu" and not torch.compiler.is_compiling()
    if looks and not bool(negative.any()):
        return None, steps
    return 1.0 - 2.0 * negative.to(factors.dtype), steps


def _chunk_vanishes(factors: Tensor) -> bool:
    """Whether a factor so near 0 wants a gradient that its logarithm has none. A graph of `torch.compile`, in which
    nobody may ask, asserts that there is none."""
    if not (torch.is_grad_enabled() and factors.requires_grad):
        return False
    vanishing = (factors.abs() < (1e-4 if factors.dtype == torch.float32 else 1e-8)).any()
    if not torch.compiler.is_compiling():
        return bool(vanishing)
    torch._assert_async(~vanishing, "a decay that wants a gradient is 0: call this program outside of `torch.compile`")
    return False


def _chunk_steps(
    sides: tuple[Tensor, Tensor, Tensor], factors: Tensor, others: Sequence[tuple[Tensor, bool]], strict: bool
) -> Tensor:
    """The same, one step after the other: by these factors, and by other decays, which are added up or compared."""
    query, key, value = sides
    for part, adds in others:
        step = part if adds else torch.diff(part, dim=-2, prepend=part[..., :1, :])
        factors = factors * step.exp()
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    rows = []
    for n in range(query.shape[-2]):
        before = state * factors[..., n, :, None]
        state = before + key[..., n, :, None] * value[..., n, None, :]
        rows.append((query[..., n, None, :] @ (before if strict else state)).squeeze(-2))
    return torch.stack(rows, -2)


def _chunk_stretched(part: Tensor, count: int, backward: bool, repeats: bool = False) -> Tensor:
    """An array with so many positions, 0 beyond its own, or the last of them again; in the order of the steps."""
    size = part.shape[-2]
    if repeats and size == 1:
        return part.expand(*part.shape[:-2], count, part.shape[-1])
    if size > count:
        part = part[..., :count, :]
    elif size < count:
        rest = part[..., -1:, :].expand(*part.shape[:-2], count - size, -1) if repeats else None
        more = part.new_zeros(*part.shape[:-2], count - size, part.shape[-1]) if rest is None else rest
        part = torch.cat((part, more), -2)
    return part.flip(-2) if backward else part


def _cut_chunks(part: Tensor, length: int) -> Tensor:
    """The positions as chunks (lead, chunks, length, width), the last filled up with 0."""
    count, width = part.shape[-2:]
    chunks = -(-count // length)
    if chunks * length != count:
        part = torch.nn.functional.pad(part, (0, 0, 0, chunks * length - count))
    return part.reshape(-1, chunks, length, width)


def _chunk_levels(decays: Sequence[tuple[Tensor, bool]], count: int, length: int) -> Tensor | None:
    """The logarithm of the decay from the end of the chunk before to each position (…, chunks, length, 1 or d): steps
    are added up, levels are compared."""
    total: Tensor | None = None
    chunks = -(-count // length)
    for part, adds in decays:
        more = chunks * length - count
        if more:
            last = part[..., -1:, :]
            filled = torch.zeros_like(last) if adds else last
            part = torch.cat((part, filled.expand(*part.shape[:-2], more, -1)), -2)
        part = part.reshape(*part.shape[:-2], chunks, length, part.shape[-1])
        if adds:
            found = part.cumsum(-2)
        else:
            before = torch.cat((part[..., :1, :1, :], part[..., :-1, -1:, :]), -3)
            found = part - before
        total = found if total is None else total + found
    return total


# --------------------------------------------------------------------- the chunks


def _run_chunks(tensors: list[Tensor], wholes: Sequence[int], *_: Any) -> Sequence[Tensor]:
    query, key, value, *levels = tensors
    level = levels[0] if levels else None
    scores, weights = _chunk_scores(query, key, level, bool(wholes[0]))
    if weights is not None:
        scores.mul_(weights)
    out = scores @ value
    if query.shape[1] > 1:
        rising, ending, falling = _chunk_parts(level)
        states = _chunk_carried(_chunk_times(key, falling).mT @ value, ending)
        out += _chunk_times(query, rising) @ states
    return (out,)


def _chunk_scores(query: Tensor, key: Tensor, level: Tensor | None, strict: bool) -> tuple[Tensor, Tensor | None]:
    """The products of queries and keys of a chunk, 0 for keys that come later, and the decays to multiply them with;
    None where they are in the products already, feature by feature."""
    if level is not None and level.shape[-1] > 1:
        if level.shape[-2] <= SHORTEST:
            return _chunk_apart(query, key, level, strict), None
        middle = level[..., level.shape[-2] // 2, None, :]
        query, key = query * (level - middle).exp(), key * (middle - level).exp()
        level = None
    scores = _chunk_rows_by_rows(query, key).tril_(-1 if strict else 0)
    return scores, None if level is None else _chunk_weights(level)


def _chunk_rows_by_rows(left: Tensor, right: Tensor) -> Tensor:
    """The products of rows with rows. On some CPUs these are several times faster where one side is turned before."""
    return left @ right.mT.contiguous()


def _chunk_weights(level: Tensor) -> Tensor:
    """The decay from each key to each query of a chunk, 0 for keys that come later."""
    size = level.shape[-2]
    later = torch.ones(size, size, dtype=torch.bool, device=level.device).triu_(1)
    return (level - level.mT).masked_fill_(later, -math.inf).exp_()


def _chunk_apart(query: Tensor, key: Tensor, level: Tensor, strict: bool) -> Tensor:
    """The products where every feature decays by itself, however fast: key by key."""
    size = level.shape[-2]
    scores = query.new_zeros(*query.shape[:-1], size)
    for n in range(size):
        first = n + 1 if strict else n
        faded = (level[..., first:, :] - level[..., n : n + 1, :]).exp_().mul_(key[..., n : n + 1, :])
        scores[..., first:, n] = faded.mul_(query[..., first:, :]).sum(-1)
    return scores


def _chunk_parts(level: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The decays from the state before to each query, through the whole chunk, and from each key to the state after."""
    if level is None:
        return None, None, None
    last = level[..., -1:, :]
    return level.exp(), last.mT.exp(), (last - level).exp_()


def _chunk_times(part: Tensor, decay: Tensor | None) -> Tensor:
    return part if decay is None else part * decay


def _chunk_carried(added: Tensor, ending: Tensor | None, backward: bool = False) -> Tensor:
    """The state before each chunk (after it, where it goes backward), from what each adds to it."""
    states = torch.zeros_like(added)
    count = added.shape[1]
    for n in range(count - 1, 0, -1) if backward else range(count - 1):
        to = n - 1 if backward else n + 1
        if ending is None:
            torch.add(states[:, n], added[:, n], out=states[:, to])
        else:
            torch.addcmul(added[:, n], states[:, n], ending[:, n], out=states[:, to])
    return states


def _run_chunks_backward(
    gradients: list[Tensor], tensors: list[Tensor], found: list[Tensor], wholes: Sequence[int], *rest: Any
) -> list[Tensor]:
    query, key, value, *levels = tensors
    given, level, strict = gradients[0], levels[0] if levels else None, bool(wholes[0])
    scores, weights = _chunk_scores(query, key, level, strict)
    to_scores = _chunk_rows_by_rows(given, value).tril_(-1 if strict else 0)
    if weights is not None:
        scores.mul_(weights)
        to_scores.mul_(weights)
    to_value = scores.mT @ given
    to_query, to_key = _chunk_to_sides(to_scores, query, key, level)
    ended = None
    if query.shape[1] > 1:
        rising, ending, falling = _chunk_parts(level)
        faded = _chunk_times(key, falling)
        states = _chunk_carried(faded.mT @ value, ending)
        back = _chunk_carried(_chunk_times(query, rising).mT @ given, ending, True)
        to_query += _chunk_times(_chunk_rows_by_rows(given, states), rising)
        to_key += _chunk_times(_chunk_rows_by_rows(value, back), falling)
        to_value += faded @ back
        if level is not None:
            ended = back[:, :-1] * states[:, 1:]
    result = [to_query, to_key, to_value]
    if level is not None:
        to_level = to_query * query - to_key * key
        if ended is not None:
            to_level[:, :-1, -1] += ended.sum(-1)
        result.append(to_level if level.shape[-1] > 1 else to_level.sum(-1, keepdim=True))
    return [part for part, need in zip(result, rest[-1], strict=True) if need]


def _chunk_to_sides(to_scores: Tensor, query: Tensor, key: Tensor, level: Tensor | None) -> tuple[Tensor, Tensor]:
    """The cotangents of queries and keys from those of the products within a chunk."""
    if level is None or level.shape[-1] == 1:
        return to_scores @ key, to_scores.mT @ query
    if level.shape[-2] > SHORTEST:
        middle = level[..., level.shape[-2] // 2, None, :]
        rising, falling = (level - middle).exp(), (middle - level).exp()
        return (to_scores @ (key * falling)).mul_(rising), (to_scores.mT @ (query * rising)).mul_(falling)
    to_query, to_key = torch.zeros_like(query), torch.zeros_like(key)
    for n in range(level.shape[-2]):
        faded = (level[..., n:, :] - level[..., n : n + 1, :]).exp_().mul_(to_scores[..., n:, n : n + 1])
        to_key[..., n, :] = (faded * query[..., n:, :]).sum(-2)
        to_query[..., n:, :] += faded.mul_(key[..., n : n + 1, :])
    return to_query, to_key


def _fake_chunks(tensors: list[Tensor], *_: Any) -> Sequence[Tensor]:
    query, value = tensors[0], tensors[2]
    return (value.new_empty(*query.shape[:-1], value.shape[-1]),)


def _fake_chunks_backward(_: Any, tensors: list[Tensor], *rest: Any) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor, need in zip(tensors, rest[-1], strict=True) if need]


def _chunk_with_way_back() -> Callable[..., Sequence[Tensor]]:
    return differentiable("chunk_products", _run_chunks, _run_chunks_backward, _fake_chunks, _fake_chunks_backward, 1)


_run_all = _chunk_with_way_back()
