import math

import torch


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


def convolved(x, w, counts, steps, dilations):
    """sum[c, k](x[g, n, c, step * i + dilation * k] * w[g, o, c, k]) as [g, n, o, i], in up to three axes i and k.

    It is a convolution, or the gradient of one by its kernel where there are fewer i than k. On a GPU these round to
    10 bits: there it is a product of matrices.
    """
    (g, n, c), (_, o), sizes = x.shape[:3], w.shape[:2], w.shape[3:]
    if 0 in (*x.shape, *w.shape, *counts):
        return x.new_zeros((g, n, o, *counts)) + x.flatten()[:0].sum() + w.flatten()[:0].sum()
    if not x.is_cpu:
        for axis, (count, size, step, dilation) in enumerate(zip(counts, sizes, steps, dilations), 3):
            x = x.unfold(axis, dilation * (size - 1) + 1, step).narrow(axis, 0, count)[..., ::dilation]
        rows = x.movedim(2, 2 + len(counts)).reshape(g, n * math.prod(counts), c * math.prod(sizes))
        out = rows @ w.reshape(g, o, c * math.prod(sizes)).mT
        return out.reshape(g, n, *counts, o).movedim(-1, 2)
    name = f"conv{len(sizes)}d"
    if math.prod(sizes) <= math.prod(counts):
        x, w = x.transpose(0, 1).flatten(1, 2), w.flatten(0, 1)
        out = getattr(torch.nn.functional, name)(x, w, stride=steps, dilation=dilations, groups=g)
        return out.unflatten(1, (g, o)).transpose(0, 1)
    x, w = x.movedim(2, 0).flatten(1, 2), w.movedim(2, 0).flatten(1, 2)
    weight = getattr(torch.nn.grad, f"{name}_weight")
    out = weight(x, (g * o, n, *counts), w, stride=dilations, dilation=steps, groups=g)
    return out.unflatten(0, (g, o)).transpose(1, 2)


def padded(x, places):
    """x from one place up to another along some axes, with zeros where it has no such place."""
    for axis, (first, beyond) in places.items():
        n, beyond = x.shape[axis], max(first, beyond)
        start, stop = min(max(first, 0), n), min(max(beyond, 0), n)
        before, after = min(max(-first, 0), beyond - first), min(max(beyond - n, 0), beyond - first)
        x = x.narrow(axis, start, max(0, stop - start))
        if before or after:
            x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [before, after])
    return x


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
    part = convolved(
        padded(image, {2: (-1, n_y + 1), 3: (-1, n_x + 1)}).reshape(1, n_b, n_c, n_y + 2, n_x + 2),
        kernel.reshape(1, n_o, n_c, 3, 3),
        counts=(n_y, n_x),
        steps=(1, 1),
        dilations=(1, 1),
    ).reshape(n_b, n_o, n_y, n_x)
    seen = bias[:, None, None] + part

    # let bent[b, o, y, x] = relu(seen[b, o, y, x]);
    bent = torch.relu(seen)

    # max[v in 0..width, u in 0..width](image[..r, y * stride + v, x * stride + u])
    picked = bent[:, :, :2 * (n_y // 2), :2 * (n_x // 2)].reshape(n_b, n_o, n_y // 2, 2, n_x // 2, 2)
    out = picked.amax((3, 5))
    return out
