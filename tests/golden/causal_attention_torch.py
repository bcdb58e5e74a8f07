import math

import torch


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


def attend(query, key, value, is_causal=False, scale=1.0, enable_gqa=False):
    """PyTorch's fused kernel. On a CPU it is slow for unequal widths and for gaps in the last axis: zeros fill up
    the narrower side, which changes nothing. There it also rounds the weights to 16 bits where the arrays have these:
    they are widened. Keys past the last query are masked under `is_causal`, and not read."""
    if query.is_cpu and query.dtype.itemsize == 2:
        return attend(query.float(), key.float(), value.float(), is_causal, scale, enable_gqa).to(query.dtype)
    width = value.shape[-1]
    if query.shape[-1] != width:
        query, key, value = (
            torch.nn.functional.pad(x, (0, max(query.shape[-1], width) - x.shape[-1])) for x in (query, key, value)
        )
    if is_causal and key.shape[-2] > query.shape[-2]:
        key, value = key[..., : query.shape[-2], :], value[..., : query.shape[-2], :]
    if not query.stride(-1) == key.stride(-1) == value.stride(-1) == 1:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return out if out.shape[-1] == width else out[..., :width]


def program(Q, K, V):
    n_b, n_h, n_i, n_d = Q.shape
    n_j = K.shape[2]
    if K.shape != (n_b, n_h, n_j, n_d):
        raise Refused("IX304", "`K` is not [b, h, j, d] with the sizes of the other inputs")
    n_e = V.shape[3]
    if V.shape != (n_b, n_h, n_j, n_e):
        raise Refused("IX304", "`V` is not [b, h, j, e] with the sizes of the other inputs")

    # let scores[b, h, i, j]  = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
    # let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
    # let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    scale = 1 / math.sqrt(n_d) if n_d else math.nan
    if n_d == n_e and n_j <= n_i and Q.stride(-1) == 1 and K.stride(-1) == 1 and V.stride(-1) == 1:
        out = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True, scale=scale)
    else:
        out = attend(Q, K, V, is_causal=True, scale=scale)
    return out
