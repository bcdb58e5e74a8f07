import math

import torch
from indexical.backends.kernels.torch_intervals import attend_within


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


def recorded(x):
    """Whether somebody reads what is computed: a graph, a transform, a mode. Then no number may be looked at."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return True
    return torch.autograd.forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack() > 0 or x.is_meta


def attended(query, key, value, scale=1.0, mask=None):
    """Softmax attention with a mask that is added to the scores, over (batch, head, place, width): by the library's
    kernel, which has one width and no gradient to the mask. A query whose mask is all -inf gets 0."""
    def by_products():
        scores = query @ key.mT * scale
        if mask is None:
            return torch.softmax(scores, -1) @ value
        gone = mask == -math.inf
        return torch.softmax((scores + mask).masked_fill(gone, -math.inf), -1).masked_fill(gone, 0.0) @ value

    learned = mask is not None and mask.requires_grad and torch.is_grad_enabled()
    if learned or recorded(query) or 0 in (query.numel(), key.numel()):
        return by_products()
    width, most = value.shape[-1], max(query.shape[-1], value.shape[-1])
    taken = query, key, value
    if query.shape[-1] != width:
        taken = [torch.nn.functional.pad(x, (0, most - x.shape[-1])) for x in taken]
    taken = [x if x.stride(-1) == 1 else x.contiguous() for x in taken]
    out = torch.nn.functional.scaled_dot_product_attention(*taken, mask, scale=scale)
    if mask is not None and not math.isfinite(out.detach().sum()):
        return by_products()  # A score that does not count may not be finite: -inf and it are no number.
    return out if most == width else out[..., :width]


def only_heard(x, allowed, gone):
    """x, 0 where nothing is allowed along so many last axes: there it may be anything. What is finite may stay."""
    if not recorded(x) and math.isfinite(x.detach().sum()):
        return x
    return torch.where(allowed.any(tuple(range(-gone, 0))), x, 0.0)


def divided(a, b):
    """The quotient of two numbers, infinite or NaN where it is by 0."""
    if b:
        return a / b
    return math.copysign(math.inf, a) * math.copysign(1.0, b) if a == a and a else math.nan


def program(Q, K, V):
    device = Q.device
    n_b, n_h, n_i, n_d = Q.shape
    n_j = K.shape[2]
    if K.shape != (n_b, n_h, n_j, n_d):
        raise Refused("IX304", "`K` is not [b, h, j, d] with the sizes of the other inputs")
    if V.shape != (n_b, n_h, n_j, V.shape[3]):
        raise Refused("IX304", "`V` is not [b, h, j, e] with the sizes of the other inputs")

    # let w = 3;
    # let scores[b, h, i, j]  = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
    # let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where causal_window(i, j, w);
    # let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    if n_b * n_h * n_i * n_j <= 1048576:
        i = torch.arange(n_i, device=device)
        j = torch.arange(n_j, device=device)
        mask = (i[:, None] <= j + 2) & (j <= i[:, None])
        chosen = Q if n_i == n_j else only_heard(Q, mask.reshape(1, 1, n_i, 1, n_j), gone=1)
        chosen_2 = K if n_i == n_j else only_heard(K, mask.T.reshape(1, 1, n_j, 1, n_i), gone=1)
        chosen_3 = V if n_i == n_j else only_heard(V, mask.T.reshape(1, 1, n_j, 1, n_i), gone=1)
        chosen_4 = torch.where(mask, torch.full((), 0.0, dtype=torch.float32, device=device), -math.inf)
        out = attended(
            chosen,
            chosen_2,
            chosen_3,
            mask=chosen_4.reshape(1, 1, n_i, n_j),
            scale=divided(1.0, math.sqrt(n_d)),
        )
    else:
        scale = 1 / math.sqrt(n_d) if n_d else math.nan
        i = torch.arange(n_i, device=device)
        out_2 = i - 2
        out_3 = i + 1
        lower = torch.stack((out_2[None, None],))
        upper = torch.stack((out_3[None, None],))
        out = attend_within(Q, K, V, lower, upper, scale)
    return out
