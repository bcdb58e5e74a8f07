"""The gradients of attention over few pairs of a query and a key: by the library with a mask, or plain products.

A mask, and for products all scores, are in memory at once. This text needs PyTorch and nothing else.
"""

import math
from typing import Any

import torch
from torch import Tensor


def _is_read_by_others() -> bool:
    """Whether `torch.compile`, `torch.func` or forward mode reads what is computed: then no number may be looked at,
    and under the last two the library's kernel may not be called."""
    return torch.compiler.is_compiling() or _is_mapped()


def _is_mapped() -> bool:
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def all_take_part(allowed: Tensor) -> bool:
    """Whether each query attends to some key and each key is attended to; False where numbers may not be looked at."""
    if _is_read_by_others() or allowed.numel() == 0:
        return False
    if allowed.shape[-2] == allowed.shape[-1] and bool(allowed.diagonal(0, -2, -1).all()):  # All hear themselves.
        return True
    flags = allowed.view(torch.uint8)  # A maximum of bytes is far faster than `any`.
    return bool(flags.amax(-2).all()) and bool(flags.amax(-1).all())


def _is_tame(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether all numbers are finite, and all scores will be: what has no weight then counts for nothing."""
    if _is_read_by_others():
        return False
    reach = query.detach().norm() * key.detach().norm()
    return math.isfinite(reach) and math.isfinite(value.detach().sum())


def _apart(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Query, key and value with 0 where no pair takes part, and the rows that hear nothing; None where all is finite,
    so that they are 0 without a word."""
    if allowed.numel() == 0 or _is_tame(query, key, value):
        return query, key, value, None
    empty, unread = ~allowed.any(-1, keepdim=True), ~allowed.any(-2).unsqueeze(-1)
    return query.masked_fill(empty, 0.0), key.masked_fill(unread, 0.0), value.masked_fill(unread, 0.0), empty


def _joined(query: Tensor, allowed: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """One mask as the library takes it: Boolean, or added to the scores."""
    if bias is None:
        return allowed
    bias = bias.detach().to(torch.promote_types(query.dtype, torch.float32))
    return bias if allowed is None else bias.masked_fill(~allowed, -math.inf)


def _weights(query: Tensor, key: Tensor, allowed: Tensor | None, bias: Tensor | None, scale: float) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ key.to(wide).mT * scale
    if bias is not None:
        scores = scores + bias.detach()
    if allowed is None:
        return torch.softmax(scores, -1)
    weights = torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)
    return weights.masked_fill(~allowed, 0.0)


_FORWARD: Any
_BACKWARD: Any
_FORWARD, _BACKWARD = (
    getattr(torch.ops.aten, f"_scaled_dot_product_flash_attention_for_cpu{end}", None) for end in ("", "_backward")
)


def attend_masked_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    all_attend: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of softmax attention by query, key and value, where `gradient` arrives at its result: at pairs that
    are allowed, with a bias added to the scores, to which there is none.

    Query, key and value are (batch, head, place, width); what is allowed and the bias broadcast to (batch, head, query,
    key). Who hears nothing has no gradient, and a key that nobody hears is not read, unless it is known that
    `all_attend`.
    """
    empty = None
    if allowed is not None and not all_attend and not all_take_part(allowed):
        query, key, value, empty = _apart(query, key, value, allowed)
    if empty is not None:
        gradient = gradient.masked_fill(empty, 0.0)
    plain = _FORWARD is None or _BACKWARD is None or query.device.type != "cpu" or _is_mapped()
    if plain or 0 in (query.numel(), key.numel(), value.numel()):
        return _products_backward(gradient, query, key, value, allowed, bias, scale)
    widths = query.shape[-1], key.shape[-1], value.shape[-1]
    wide = torch.promote_types(query.dtype, torch.float32)
    gradient, *inputs = (_padded_rows(x.to(wide), max(widths)) for x in (gradient, query, key, value))
    mask = _joined(query, allowed, bias)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=wide).masked_fill_(~mask, -math.inf)
    out, total = _FORWARD(*inputs, 0.0, False, attn_mask=mask, scale=scale)
    found = _BACKWARD(gradient, *inputs, out, total, 0.0, False, attn_mask=mask, scale=scale)
    to_query, to_key, to_value = (x[..., :width].to(query.dtype) for x, width in zip(found, widths, strict=True))
    return to_query, to_key, to_value


def _padded_rows(tensor: Tensor, width: int) -> Tensor:
    """Zeros behind the last axis, up to a width, and no gaps in it."""
    if tensor.shape[-1] < width:
        tensor = torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1]))
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _products_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
) -> tuple[Any, Any, Any]:
    weights = _weights(query, key, allowed, bias, scale)
    given = gradient.to(weights.dtype)
    to_weights = given @ value.to(weights.dtype).mT
    to_scores = weights * (to_weights - (weights * to_weights).sum(-1, keepdim=True)) * scale
    to_query, to_key = to_scores @ key.to(weights.dtype), to_scores.mT @ query.to(weights.dtype)
    return to_query.to(query.dtype), to_key.to(key.dtype), (weights.mT @ given).to(value.dtype)
