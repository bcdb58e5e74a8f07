import numpy as np


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


def padded(x, places):
    """x from one place up to another along some axes, with zeros where it has no such place."""
    for axis, (first, beyond) in places.items():
        n, beyond = x.shape[axis], max(first, beyond)
        part = [slice(None)] * axis + [slice(min(max(first, 0), n), min(max(beyond, 0), n))]
        before, after = min(max(-first, 0), beyond - first), min(max(beyond - n, 0), beyond - first)
        x = x[tuple(part)]
        if before or after:
            ends = [np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype) for count in (before, after)]
            x = np.concatenate((ends[0], x, ends[1]), axis)
    return x


def windows(x, axis, count, length, step, dilation=1):
    """So many windows of some length along one axis, each a step on; the places within go last, some way apart."""
    if count == 0 or length == 0:
        return np.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :], length), x.dtype)
    x = np.lib.stride_tricks.sliding_window_view(x, (length - 1) * dilation + 1, axis)
    return x[(slice(None),) * axis + (slice(None, None, step), ..., slice(None, None, dilation))]


@np.errstate(all="ignore")
def program(image, kernel, bias):
    n_b, n_c, n_y, n_x = image.shape
    n_o = kernel.shape[0]
    if kernel.shape != (n_o, n_c, kernel.shape[2], kernel.shape[3]):
        raise Refused("IX304", "`kernel` is not [o, c, v, u] with the sizes of the other inputs")
    if bias.shape != (n_o,):
        raise Refused("IX304", "`bias` is not [o] with the sizes of the other inputs")
    if kernel.shape[2] != 3:
        raise Refused("IX304", "`kernel` has another size than is stated")
    if kernel.shape[3] != 3:
        raise Refused("IX304", "`kernel` has another size than is stated")

    # let seen[b, o, y, x] =
    #     bias[o]
    #     + sum[c, v, u](
    #         kernel[o, c, v, u] * image[b, c, y + v - 1, x + u - 1]
    #         where 0 <= y + v - 1 < size(y), 0 <= x + u - 1 < size(x)
    #     );
    picked = windows(windows(padded(image, {2: (-1, n_y + 1), 3: (-1, n_x + 1)}), 2, 3, n_y, 1), 3, 3, n_x, 1)
    product = (
        kernel.reshape(n_o, n_c * 3 * 3)
        @ picked.transpose(1, 2, 3, 0, 4, 5).reshape(n_c * 3 * 3, n_b * n_y * n_x)
    ).reshape(n_o, n_b, n_y, n_x)
    seen = bias[:, None, None, None] + product

    # let bent[b, o, y, x] = relu(seen[b, o, y, x]);
    bent = np.maximum(seen, 0)

    # max[v in 0..width, u in 0..width](image[..r, y * stride + v, x * stride + u])
    picked_2 = bent[:, :, :2 * (n_y // 2), :2 * (n_x // 2)].reshape(n_o, n_b, n_y // 2, 2, n_x // 2, 2)
    out = picked_2.max((3, 5)).transpose(1, 0, 2, 3)
    return out
