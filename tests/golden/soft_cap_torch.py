import math

import torch
from indexical.backends.kernels.torch_fold import folded, tile_of


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


def recorded(x):
    """Whether somebody reads what is computed: a graph, a transform, a mode. Then no number may be looked at."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return True
    return torch.autograd.forward_ad._current_level >= 0 or torch._C._len_torch_dispatch_stack() > 0 or x.is_meta


def only_heard(x, allowed, gone):
    """x, 0 where nothing is allowed along so many last axes: there it may be anything. What is finite may stay."""
    if not recorded(x) and math.isfinite(x.detach().sum()):
        return x
    return torch.where(allowed.any(tuple(range(-gone, 0))), x, 0.0)


def as_scalar(scalar, dtype, device):
    """A number, an array of one or a tensor as a tensor, through which a gradient flows. A number is made where it is
    needed: a copy to a GPU cannot be part of a CUDA graph."""
    if isinstance(scalar, torch.Tensor):
        wide, scalar = scalar.is_floating_point(), scalar.to(device, dtype)
    else:
        scalar = scalar if isinstance(scalar, (bool, int, float)) else scalar.item()
        wide, scalar = isinstance(scalar, float), torch.full((), scalar, dtype=dtype, device=device)
    if wide and not dtype.is_floating_point:
        raise Refused("IX503", "a scalar is not a whole number")
    return scalar


def like_out(tensors, sizes, scalars):
    n_i, n_j, n_b, n_d, n_h, n_e = sizes
    return (
        tensors[0].new_empty((n_b, n_h, n_i, n_e), dtype=torch.float32),
        tensors[0].new_empty((n_b, n_h, n_i), dtype=torch.float32),
    )


def rows_of_out(tensors, sizes, scalars):
    device = tensors[0].device
    # let scores[b, h, i, j]  = cap * tanh(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) / cap);
    # let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
    # let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    part, K, Q, chosen, V = tensors
    n_i, n_j, n_b, n_d, n_h, n_e = sizes
    pairs, keys_2 = tile_of(tensors[0])
    out, totals = like_out(tensors, sizes, scalars)
    i_step = max(1, pairs // max(1, n_b * n_h * min(n_j, keys_2)))
    for i0 in range(0, n_i, i_step):
        i1 = min(i0 + i_step, n_i)
        i_count = i1 - i0
        i = torch.arange(i_count, device=device)
        number = i + i0
        j_end = min(n_j, i0 + i_count)
        j_to = i0 + 1
        peak = torch.full((n_b, n_h, i_count), -torch.inf, dtype=torch.float32, device=device)
        gathered = torch.zeros((n_b, n_h, i_count, n_e), dtype=torch.float32, device=device)
        total = torch.zeros((n_b, n_h, i_count), dtype=torch.float32, device=device)
        for j0 in range(0, j_end, keys_2):
            j1 = min(j0 + keys_2, j_end)
            j_count = j1 - j0
            if j1 > j_to:
                j = torch.arange(j_count, device=device)
                allowed = j + j0 <= number[:, None]
            part_2 = (Q[:, :, i0:i1] @ K[:, :, j0:j1].permute(0, 1, 3, 2)).div_(chosen).tanh_().mul_(part)
            score = part_2
            if j1 > j_to:
                score = torch.where(allowed, score, -math.inf)
            peak_2 = torch.maximum(peak, score.amax(-1))
            level = torch.where(peak_2 == -math.inf, 0.0, peak_2)
            fade = (peak - level).mul_(1.4426950408889634).exp2_()
            weights = score.sub_(level[:, :, :, None]).mul_(1.4426950408889634).exp2_()
            part_3 = V[:, :, j0:j1]
            if j1 > j_to:
                part_3 = torch.where(allowed.any(0)[:, None], part_3, 0.0)
            gathered_2 = (gathered * fade[:, :, :, None]).add_(weights @ part_3)
            total_2 = fade.mul_(total).add_(weights.sum(-1))
            peak, gathered, total = peak_2, gathered_2, total_2
        out[:, :, i0:i1] = torch.where((total == 0.0)[:, :, :, None], 0.0, gathered / total[:, :, :, None])
        totals[:, :, i0:i1] = torch.log(total).add_(torch.where(peak == -math.inf, 0.0, peak))
    return (out, totals)


def back_from_out(arriving, found, tensors, sizes, scalars, sums):
    device = tensors[0].device
    d_out, d_totals = arriving
    out, totals = found
    d_part, d_K, d_Q, d_chosen, d_V = sums
    part, K, Q, chosen, V = tensors
    n_i, n_j, n_b, n_d, n_h, n_e = sizes
    pairs, keys_2 = tile_of(tensors[0])
    i_step = max(1, pairs // max(1, n_b * n_h * min(n_j, keys_2)))
    for i0 in range(0, n_i, i_step):
        i1 = min(i0 + i_step, n_i)
        i_count = i1 - i0
        i = torch.arange(i_count, device=device)
        number = i + i0
        part_2 = (d_out[:, :, i0:i1] * out[:, :, i0:i1]).sum(-1).neg_().add_(d_totals[:, :, i0:i1])
        chosen_2 = torch.where(totals[:, :, i0:i1] == -math.inf, math.inf, totals[:, :, i0:i1])
        j_end = min(n_j, i0 + i_count)
        j_to = i0 + 1
        for j0 in range(0, j_end, keys_2):
            j1 = min(j0 + keys_2, j_end)
            j_count = j1 - j0
            if j1 > j_to:
                j = torch.arange(j_count, device=device)
                allowed = j + j0 <= number[:, None]
            part_2_2 = (Q[:, :, i0:i1] @ K[:, :, j0:j1].permute(0, 1, 3, 2)).div_(chosen)
            tanh = torch.tanh(part_2_2)
            score = part * tanh
            if j1 > j_to:
                score = torch.where(allowed, score, -math.inf)
            weights = score.sub_(chosen_2[:, :, :, None]).mul_(1.4426950408889634).exp2_()
            part_4 = V[:, :, j0:j1]
            if j1 > j_to:
                part_4 = torch.where(allowed.any(0)[:, None], part_4, 0.0)
            part_5 = (
                d_out[:, :, i0:i1] @ part_4.permute(0, 1, 3, 2)
            ).add_(part_2[:, :, :, None]).mul_(weights)
            d_score_2 = part_5
            if j1 > j_to:
                d_score_2 = torch.where(allowed, d_score_2, 0.0)
            chosen_3 = (d_score_2 * part).mul_(1.0 - tanh * tanh)
            if j1 > j_to:
                chosen_3 = torch.where(allowed, chosen_3, 0.0)
            part_3_2 = chosen_3 * (1.0 / chosen)
            part_6 = K[:, :, j0:j1]
            if d_part is not None:
                part_7 = d_score_2 * tanh
                if j1 > j_to:
                    part_7 = torch.where(allowed, part_7, 0.0)
                d_part += part_7.sum((0, 1, 2, 3))
            if d_K is not None:
                d_K[:, :, j0:j1] += part_3_2.permute(0, 1, 3, 2) @ Q[:, :, i0:i1]
            if d_Q is not None:
                part_8 = part_6
                if j1 > j_to:
                    part_8 = torch.where(allowed.any(0)[:, None], part_8, 0.0)
                d_Q[:, :, i0:i1] += part_3_2 @ part_8
            if d_chosen is not None:
                part_9 = (part_2_2 / chosen).neg_().mul_(chosen_3)
                if j1 > j_to:
                    part_9 = torch.where(allowed, part_9, 0.0)
                d_chosen += part_9.sum((0, 1, 2, 3))
            if d_V is not None:
                d_V[:, :, j0:j1] += weights.permute(0, 1, 3, 2) @ d_out[:, :, i0:i1]


attend_out = folded("attend_out", rows_of_out, back_from_out, like_out, 2)


def program(Q, K, V, cap):
    device = Q.device
    cap = as_scalar(cap, torch.float32, device)
    n_b, n_h, n_i, n_d = Q.shape
    n_j = K.shape[2]
    if K.shape != (n_b, n_h, n_j, n_d):
        raise Refused("IX304", "`K` is not [b, h, j, d] with the sizes of the other inputs")
    n_e = V.shape[3]
    if V.shape != (n_b, n_h, n_j, n_e):
        raise Refused("IX304", "`V` is not [b, h, j, e] with the sizes of the other inputs")

    part = cap.to(torch.float32)
    j = torch.arange(n_j, device=device)
    chosen = torch.where(((n_i - 1 - j >= 0) & (n_i > 0)).any(-1), math.sqrt(n_d) * part, 1.0)
    # let scores[b, h, i, j]  = cap * tanh(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) / cap);
    # let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
    # let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    if n_b * n_h * n_i * n_j <= 2097152:
        j_2 = torch.arange(n_j, device=device)
        i = torch.arange(n_i, device=device)
        mask = j_2[:, None] <= i
        chosen_2 = Q if n_i == n_j else only_heard(Q, mask.T.reshape(1, 1, n_i, 1, n_j), gone=1)
        chosen_3 = K if n_i == n_j else only_heard(K, mask.reshape(1, 1, n_j, 1, n_i), gone=1)
        part_2 = part * torch.tanh(chosen_2 @ chosen_3.permute(0, 1, 3, 2) / chosen)
        weights = torch.softmax(torch.where(mask.T, part_2, -math.inf), -1)
        chosen_4 = weights if n_i == n_j else torch.where(mask.any(0)[:, None], weights, 0.0)
        chosen_5 = V if n_i == n_j else only_heard(V, mask.reshape(1, 1, n_j, 1, n_i), gone=1)
        out = chosen_4 @ chosen_5
    else:
        out = attend_out([part, K, Q, chosen, V], [n_i, n_j, n_b, n_d, n_h, n_e], [])[0]
    return out
