import math

import torch
from indexical.backends.kernels.torch_intervals import attend_within
from indexical.backends.kernels.torch_masked import attend_masked


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


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
    scale = 1 / math.sqrt(n_d) if n_d else math.nan
    if n_i * n_j <= 65536:
        i = torch.arange(n_i, device=device)
        j = torch.arange(n_j, device=device)
        kept = i[:, None] <= j + 2
        kept_2 = j <= i[:, None]
        out = attend_masked(Q, K, V, kept & kept_2, None, scale, all_attend=n_i == n_j)
    else:
        i_2 = torch.arange(n_i, device=device)
        out_2 = i_2 - 2
        out_3 = i_2 + 1
        lower = torch.stack((out_2[None, None],))
        upper = torch.stack((out_3[None, None],))
        out = attend_within(Q, K, V, lower, upper, scale)
    return out
