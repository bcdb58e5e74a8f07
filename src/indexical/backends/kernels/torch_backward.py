"""The way back through attention, on a forward pass that is computed again: linear memory.

This text needs PyTorch and nothing else.
"""

import math
from typing import Any

import torch
from torch import Tensor


def _widened(tensor: Tensor, width: int) -> Tensor:
    """Zeros behind the last axis, up to a width."""
    missing = width - tensor.shape[-1]
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _fused(query: Tensor, width: int, square: bool) -> str | None:
    """The library's fused kernel for tensors like these; None where plain products have to do. Only some have the
    first query beside the first key where there are more of the ones than of the others."""
    if query.device.type == "cpu":
        return "_scaled_dot_product_flash_attention_for_cpu"
    if query.device.type != "cuda" or query.dtype == torch.float64 or width > 256:
        return None
    if query.dtype == torch.float32 or not square:
        return "_scaled_dot_product_efficient_attention"
    return "_scaled_dot_product_flash_attention"


def attend_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `scaled_dot_product_attention` by query, key and value, where `gradient` arrives at its result.

    All are (batch, head, place, width). Keys past the last query are masked under `is_causal`. On a CPU, 16 bits are
    widened: the library's kernel there rounds the weights to as many.
    """
    if query.is_cpu and query.dtype.itemsize == 2:
        wide = attend_backward(gradient.float(), query.float(), key.float(), value.float(), is_causal, scale)
        return wide[0].to(query.dtype), wide[1].to(query.dtype), wide[2].to(query.dtype)
    compared, carried = query.shape[-1], value.shape[-1]
    rows, keys = query.shape[-2], key.shape[-2]
    width = max(compared, carried)
    width += 0 if query.device.type == "cpu" else -width % 8
    reached = min(rows, keys) if is_causal else keys
    name = _fused(query, width, not is_causal or reached == rows)
    found = [getattr(torch.ops.aten, f"{name}{end}", None) for end in ("", "_backward")]
    if name is None or None in found or 0 in (query.numel(), key.numel(), value.numel()):
        return _plainly(gradient, query, key, value, is_causal, scale)
    taken = [_widened(x, width) for x in (gradient, query, key[..., :reached, :], value[..., :reached, :])]
    taken = [x if x.stride(-1) == 1 else x.contiguous() for x in taken]
    to_query, to_key, to_value = _through(name, found, taken, is_causal, scale)
    if reached < keys:
        to_key, to_value = (torch.nn.functional.pad(x, (0, 0, 0, keys - reached)) for x in (to_key, to_value))
    if compared == carried == width:
        return to_query, to_key, to_value
    return to_query[..., :compared], to_key[..., :compared], to_value[..., :carried]


def _through(
    name: str, found: list[Any], tensors: list[Tensor], causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """There and back by the library's own kernel."""
    forward, backward = found
    gradient, query, key, value = tensors
    if name.endswith("cpu"):
        out, total = forward(query, key, value, 0.0, causal, scale=scale)
        result = backward(gradient, query, key, value, out, total, 0.0, causal, scale=scale)
    elif name.endswith("efficient_attention"):
        out, total, *seeds = forward(query, key, value, None, True, 0.0, causal, scale=scale)
        given = (gradient, query, key, value, None, out, total, *seeds)
        result = backward(*given, 0.0, [True, True, True, False], causal, scale=scale)
    else:
        out, total, *state = forward(query, key, value, 0.0, causal, False, scale=scale)
        cumulated, lengths, seeds = state[:2], (query.shape[2], key.shape[2]), state[4:6]
        given = (gradient.contiguous(), query, key, value, out, total, *cumulated, *lengths)
        result = backward(*given, 0.0, causal, *seeds, scale=scale)
    return result[0], result[1], result[2]


def _plainly(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as relations, with all scores in memory."""
    wide = torch.promote_types(query.dtype, torch.float32)
    given, asked, answered, carried = (x.to(wide) for x in (gradient, query, key, value))
    scores = asked @ answered.mT * scale
    if causal:
        places = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(~places.tril(), -math.inf)
    weights = torch.softmax(scores, -1)
    to_weights = given @ carried.mT
    to_scores = weights * (to_weights - (weights * to_weights).sum(-1, keepdim=True)) * scale
    found = to_scores @ answered, to_scores.mT @ asked, weights.mT @ given
    return found[0].to(query.dtype), found[1].to(query.dtype), found[2].to(query.dtype)
