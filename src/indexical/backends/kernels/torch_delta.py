"""States that each step asks before it writes to them, `S[t] = decay[t] * S[t - 1] + key[t] * (value[t] + asked[t])`,
where `asked[t] = ask[t] · S[t - 1]`, and what a query is answered by each, `query[t] · S[t]`: in linear time.

Positions are cut into chunks. Within a chunk, what all steps write is the solution of one triangular system, linear in
the state before it; so the state goes from chunk to chunk by one product. Decays are e to differences of levels that
are both in one chunk, or end it: nothing is divided. The way back is PyTorch's, and keeps some matrices for each chunk.
This text needs PyTorch and nothing else.
"""

import torch
from torch import Tensor

from .torch_chunks import _chunk_decay, _chunk_levels, _chunk_signed, _chunk_stretched, _chunk_vanishes, _cut_chunks

# Positions of a chunk.
DELTA_CHUNK = 64


def delta_products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ask: Tensor,
    rate: Tensor | float | None = None,
    times: Tensor | float | None = None,
) -> Tensor:
    """The answers `query[t] · S[t]` of the state, which is 0 before the first step.

    Query (…, rows, d), key and ask (…, keys, d) and value (…, keys, e) have the same axes before. The decay of a step
    is e to `rate`, times `times`; each a number, or (…, positions or 1, 1).
    """
    rows, count, width = query.shape[-2], max(query.shape[-2], key.shape[-2]), value.shape[-1]
    if 0 in (rows, key.shape[-2], *value.shape):
        nothing = sum(part[..., :0, :0].sum() for part in (key, value, ask)) + query[..., :0].sum(-1, keepdim=True)
        return nothing.expand(*query.shape[:-1], width).contiguous()
    query, key, value, ask = (_chunk_stretched(part, count, False) for part in (query, key, value, ask))
    decays = [] if rate is None else [(_chunk_stretched(_chunk_decay(rate, value), count, False, True), True)]
    if times is not None:
        factors = _chunk_stretched(_chunk_decay(times, value), count, False, True)
        if _chunk_vanishes(factors):
            return _delta_steps((query, key, value, ask), factors, [part for part, _ in decays])[..., :rows, :]
        signs, steps = _chunk_signed(factors)
        decays.append((steps, True))
        if signs is not None:
            turned = signs.cumprod(-2)
            query, key, ask = query * turned, key * turned, ask * turned * signs
    lead, dtype = query.shape[:-2], query.dtype
    length = min(count, DELTA_CHUNK)
    level = _chunk_levels(decays, count, length)
    if level is not None:
        level = level.expand(*lead, *level.shape[-3:]).reshape(-1, *level.shape[-3:])
    query, key, value, ask = (_cut_chunks(part, length) for part in (query, key, value, ask))
    if dtype in (torch.float16, torch.bfloat16):
        query, key, value, ask = (part.float() for part in (query, key, value, ask))
        level = None if level is None else level.float()
    out = _delta_chunks(query, key, value, ask, level).reshape(*lead, -1, width)
    return out[..., :rows, :].to(dtype)


def _delta_chunks(query: Tensor, key: Tensor, value: Tensor, ask: Tensor, level: Tensor | None) -> Tensor:
    """All chunks (lead, chunks, length, width), each from the state before it."""
    turned = key.mT.contiguous()
    scores, asked = (query @ turned).tril_(), (ask @ turned).tril_(-1)
    ending = None
    if level is not None:
        before = torch.cat((torch.zeros_like(level[..., :1, :]), level[..., :-1, :]), -2)
        last = level[..., -1:, :]
        weights = _delta_weights(level)
        # What a step asks has decayed as far as to the step before.
        scores, asked = scores * weights, asked * torch.nn.functional.pad(weights[..., :-1, :], (0, 0, 1, 0))
        query, ask = query * level.exp(), ask * before.exp()
        turned, ending = turned * (last - level).exp().mT, last.exp()
    # Nobody reads the ones of the diagonal.
    single = query.shape[1] == 1
    given = value if single else torch.cat((value, ask), -1)
    solved: Tensor = torch.linalg.solve_triangular(-asked, given, upper=False, unitriangular=True)
    if single:
        return scores @ solved
    width = value.shape[-1]
    return _delta_carried(query, scores, turned, solved[..., :width], solved[..., width:], ending)


def _delta_carried(
    query: Tensor, scores: Tensor, turned: Tensor, written: Tensor, answering: Tensor, ending: Tensor | None
) -> Tensor:
    """The answers, from what each chunk writes, and writes in answer to the state before it."""
    keys, values, answers = (part.unbind(1) for part in (turned, written, answering))
    endings = None if ending is None else ending.unbind(1)
    state = torch.zeros_like(keys[0] @ values[0])
    states, writes = [], []
    for n in range(len(keys)):
        states.append(state)
        writes.append(torch.baddbmm(values[n], answers[n], state))
        state = torch.baddbmm(state if endings is None else state * endings[n], keys[n], writes[n])
    return query @ torch.stack(states, 1) + scores @ torch.stack(writes, 1)


def _delta_weights(level: Tensor) -> Tensor:
    """The decay from each step of a chunk to each later one, 0 to earlier ones."""
    size = level.shape[-2]
    later = torch.ones(size, size, dtype=torch.bool, device=level.device).triu_(1)
    return (level - level.mT).masked_fill_(later, -torch.inf).exp_()


def _delta_steps(sides: tuple[Tensor, ...], factors: Tensor, rates: list[Tensor]) -> Tensor:
    """The same, one step after the other."""
    query, key, value, ask = sides
    for rate in rates:
        factors = factors * rate.exp()
    state = torch.zeros_like(key[..., 0, :, None] * value[..., 0, None, :])
    rows = []
    for n in range(query.shape[-2]):
        written = value[..., n, None, :] + ask[..., n, None, :] @ state
        state = state * factors[..., n, :, None] + key[..., n, :, None] * written
        rows.append((query[..., n, None, :] @ state).squeeze(-2))
    return torch.stack(rows, -2)
