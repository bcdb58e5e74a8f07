import math

import numpy as np


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


@np.errstate(all="ignore")
def program(Q, K, V):
    n_b, n_h, n_i, n_d = Q.shape
    n_j = K.shape[2]
    if K.shape != (n_b, n_h, n_j, n_d):
        raise Refused("IX304", "`K` is not [b, h, j, d] with the sizes of the other inputs")
    n_e = V.shape[3]
    if V.shape != (n_b, n_h, n_j, n_e):
        raise Refused("IX304", "`V` is not [b, h, j, e] with the sizes of the other inputs")

    # let w = 3;
    # let scores[b, h, i, j]  = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
    # let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where causal_window(i, j, w);
    # let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    out = np.zeros((n_b, n_h, n_i, n_e), np.float32)
    i_step = max(1, 524288 // max(1, n_b * n_h * min(n_j, 512)))
    for i0 in range(0, n_i, i_step):
        i1 = min(i0 + i_step, n_i)
        i_count = i1 - i0
        i = np.arange(i_count)
        number = i + i0
        part = Q[:, :, i0:i1] / math.sqrt(n_d)
        j_first = max(0, i0 - 2)
        j_end = min(n_j, i0 + i_count)
        peak = np.full((n_b, n_h, i_count), -np.inf, np.float32)
        gathered = np.zeros((n_b, n_h, i_count, n_e), np.float32)
        total = np.zeros((n_b, n_h, i_count), np.float32)
        for j0 in range(j_first, j_end, 512):
            j1 = min(j0 + 512, j_end)
            j_count = j1 - j0
            j = np.arange(j_count)
            number_2 = j + j0
            mask = (number <= (number_2 + 2)[:, None]) & (number_2[:, None] <= number)
            score = np.where(mask.T, part @ K[:, :, j0:j1].transpose(0, 1, 3, 2), -math.inf)
            peak_2 = np.maximum(peak, score.max(-1))
            level = np.where(peak_2 == -math.inf, 0.0, peak_2)
            fade = np.exp(peak - level)
            weights = np.exp(score - level[:, :, :, None])
            gathered_2 = gathered * fade[:, :, :, None] + weights @ np.where(
                mask.any(-1)[:, None], V[:, :, j0:j1], 0.0
            )
            total_2 = total * fade + weights.sum(-1)
            peak, gathered, total = peak_2, gathered_2, total_2
        out[:, :, i0:i1] = np.where((total == 0.0)[:, :, :, None], 0.0, gathered / total[:, :, :, None])
    return out
