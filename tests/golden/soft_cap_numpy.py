import math

import numpy as np
from indexical.backends.kernels.numpy_stream import attend_blocks


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


@np.errstate(all="ignore")
def program(Q, K, V, cap):
    cap = float(cap)
    n_b, n_h, n_i, n_d = Q.shape
    n_j = K.shape[2]
    if K.shape != (n_b, n_h, n_j, n_d):
        raise Refused("IX304", "`K` is not [b, h, j, d] with the sizes of the other inputs")
    n_e = V.shape[3]
    if V.shape != (n_b, n_h, n_j, n_e):
        raise Refused("IX304", "`V` is not [b, h, j, e] with the sizes of the other inputs")

    # let scores[b, h, i, j]  = cap * tanh(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) / cap);
    # let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
    # let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    def out_scores(r0, r1, k0, k1):
        out_2 = Q[:, :, r0:r1] @ K[:, :, k0:k1].swapaxes(-1, -2) / (math.sqrt(n_d) * cap)
        j = np.arange(k0, k1)
        i = np.arange(r0, r1)
        return np.where(j <= i[:, None], cap * np.tanh(out_2), -math.inf)
    def out_values(k0, k1):
        return V[:, :, k0:k1]
    i_2 = np.arange(n_i)
    out_3 = i_2 + 1
    out = attend_blocks(out_scores, out_values, 0, out_3, n_i, (0, n_j), (n_b, n_h, n_i, n_e), np.float32)
    return out
