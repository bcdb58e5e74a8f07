"""One call of PyTorch's fused attention on any device, forward and backward, or plain products where it has none.

This text needs PyTorch and nothing else.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def _private(name: str) -> tuple[Any, Any]:
    """An operator that is not part of the library's public face and its backward; None where this version has none."""
    return getattr(torch.ops.aten, name, None), getattr(torch.ops.aten, f"{name}_backward", None)


_PROCESSOR = _private("_scaled_dot_product_flash_attention_for_cpu")
_FLASH = _private("_scaled_dot_product_flash_attention")
_EFFICIENT = _private("_scaled_dot_product_efficient_attention")


def fused_kernel(query: Tensor, width: int, masked: bool) -> tuple[Any, Any] | None:
    """The fused kernel that takes queries of that width, and its backward; None where plain products have to do."""
    if query.device.type == "cpu":
        found = _PROCESSOR
    elif query.device.type != "cuda" or query.dtype == torch.float64 or width > 256:
        return None
    else:
        found = _EFFICIENT if masked or query.dtype == torch.float32 else _FLASH
    return found if all(found) else None


def attend_fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The attention output of the rows and the logarithm of their total weight; `mask` is added to the scores."""
    kernel = fused_kernel(query, query.shape[-1], mask is not None)
    if kernel is None:
        scores = _plain_scores(query, key, mask, scale)
        total = scores.logsumexp(-1)
        weights = scores.sub_(total.nan_to_num(neginf=0.0).unsqueeze(-1)).exp_()
        return (weights @ value.to(weights.dtype)).to(value.dtype), total
    if kernel is _PROCESSOR:
        found = kernel[0](query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
    elif kernel is _FLASH:
        found = kernel[0](query, key, value, 0.0, causal, False, scale=scale)
    else:
        found = kernel[0](query, key, value, _bias(mask, query), True, 0.0, causal, scale=scale)
    return found[0], found[1][..., : query.shape[2]]


def attend_fused_backward(
    gradient: Tensor, inputs: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, ...]:
    """Gradients to query, key and value; `inputs` ends with result and total of the rows over all that they hear."""
    query, key, value, out, total = inputs
    kernel = fused_kernel(query, query.shape[-1], mask is not None)
    if kernel is None:
        given, wide = gradient.to(total.dtype), total.dtype
        weights = _plain_scores(query, key, mask, scale).sub_(total.unsqueeze(-1)).exp_()
        to_scores = (given @ value.to(wide).mT).sub_((given * out).sum(-1, keepdim=True)).mul_(weights).mul_(scale)
        return to_scores @ key.to(wide), to_scores.mT @ query.to(wide), weights.mT @ given
    seeds = (torch.zeros((), dtype=torch.int64, device=query.device),) * 2  # Of dropout, of which there is none.
    if kernel is _PROCESSOR:
        found = kernel[1](gradient, *inputs, 0.0, causal, attn_mask=mask, scale=scale)
    elif kernel is _FLASH:
        sizes = (None, None, query.shape[2], key.shape[2])
        whole = (query, key, value, out.contiguous(), total.contiguous())
        found = kernel[1](gradient.contiguous(), *whole, *sizes, 0.0, causal, *seeds, scale=scale)
    else:
        out = out.transpose(1, 2).contiguous().transpose(1, 2)  # It takes the heads of a row to lie side by side.
        total = torch.nn.functional.pad(total, (0, -query.shape[2] % 32), value=math.inf)
        passed = (gradient, query, key, value, _bias(mask, query), out, total, *seeds)
        found = kernel[1](*passed, 0.0, [True, True, True, False], causal, scale=scale)
    return tuple(found[:3])


def _plain_scores(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query.to(wide) @ key.to(wide).mT).mul_(scale)
    return scores if mask is None else scores.add_(mask)


def _bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """The mask as the memory-efficient kernel takes it: whole, in the dtype of the query, each row on a boundary."""
    if mask is None:
        return None
    aligned = torch.nn.functional.pad(mask.to(query.dtype), (0, -mask.shape[-1] % 16))[..., : mask.shape[-1]]
    return aligned.expand(*query.shape[:3], -1)
