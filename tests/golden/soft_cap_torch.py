import math

import torch
from indexical.backends.kernels.torch_masked import attend_scores
from indexical.backends.kernels.torch_stream import streaming


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


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


def learns(*arrays):
    """Whether a gradient may be asked for. What `torch.func` maps over does not say so, but what is inside of it."""
    if not torch.is_grad_enabled():
        return False
    if torch.compiler.is_compiling():
        return any([array.requires_grad for array in arrays])
    inside = torch._C._functorch
    for array in arrays:
        while not array.requires_grad and inside.is_functorch_wrapped_tensor(array):
            array = inside.get_unwrapped(array)
        if array.requires_grad:
            return True
    return False


def out_score(arrays, rows, keys):
    """The scores of some rows against some keys."""
    cap, Q, K = arrays
    n_d = Q.shape[3]
    r0, r1 = rows
    k0, k1 = keys
    out_2 = Q[:, :, r0:r1] @ K[:, :, k0:k1].swapaxes(-1, -2) / (math.sqrt(n_d) * cap)
    return cap * torch.tanh(out_2)


def out_score_backward(arrays, rows, keys, d_score, gradients):
    """Add the gradient of the scores to the gradients of the arrays; None for one that wants none."""
    cap, Q, K = arrays
    n_d = Q.shape[3]
    r0, r1 = rows
    k0, k1 = keys
    out_2 = Q[:, :, r0:r1] @ K[:, :, k0:k1].swapaxes(-1, -2)
    out_3 = math.sqrt(n_d) * cap
    out_4 = torch.tanh(out_2 / out_3)
    if gradients[0] is not None:
        gradients[0].add_((d_score * out_4).sum((0, 1, 2, 3)))
    out_5 = d_score * cap * (1.0 - out_4 * out_4)
    out_6 = out_5 * (1.0 / out_3)
    if gradients[2] is not None:
        gradients[2][:, :, k0:k1].add_(out_6.swapaxes(-1, -2) @ Q[:, :, r0:r1])
    if gradients[1] is not None:
        gradients[1][:, :, r0:r1].add_(out_6 @ K[:, :, k0:k1])
    if gradients[0] is not None:
        out_7 = (out_5 * -(out_2 / out_3 / out_3) * math.sqrt(n_d)).sum((0, 1, 2, 3))
        gradients[0].add_(out_7)


attend_out = streaming("attend_out", out_score, out_score_backward)


def program(Q, K, V, cap):
    device = Q.device
    cap = as_scalar(cap, torch.float32, device)
    n_b, n_h, n_i, n_d = Q.shape
    n_j = K.shape[2]
    if K.shape != (n_b, n_h, n_j, n_d):
        raise Refused("IX304", "`K` is not [b, h, j, d] with the sizes of the other inputs")
    if V.shape != (n_b, n_h, n_j, V.shape[3]):
        raise Refused("IX304", "`V` is not [b, h, j, e] with the sizes of the other inputs")

    # let scores[b, h, i, j]  = cap * tanh(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d)) / cap);
    # let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
    # let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
    if n_i == n_j and n_b * n_h * n_i * n_j <= (8388608 if learns(cap, Q, K, V) else 524288):
        j = torch.arange(n_j, device=device)
        i = torch.arange(n_i, device=device)
        out_2 = cap * torch.tanh(Q @ K.swapaxes(-1, -2) / (math.sqrt(n_d) * cap))
        out = attend_scores(out_2, V, j <= i[:, None])
    else:
        i_2 = torch.arange(n_i, device=device)
        out_3 = i_2 + 1
        out = attend_out([cap, Q, K], V, torch.full((n_i,), 0, device=device), out_3)
    return out
