import numpy as np


class Refused(ValueError):
    """The arrays do not fit the relation: a code and a message."""


def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


@np.errstate(all="ignore")
def program(x, W, U, bias):
    n_b, n_t, n_m = x.shape
    n_n = W.shape[1]
    if W.shape != (W.shape[0], n_n, n_m):
        raise Refused("IX304", "`W` is not [g, n, m] with the sizes of the other inputs")
    if U.shape != (U.shape[0], n_n, n_n):
        raise Refused("IX304", "`U` is not [g, n, p] with the sizes of the other inputs")
    if bias.shape != (bias.shape[0], n_n):
        raise Refused("IX304", "`bias` is not [g, n] with the sizes of the other inputs")
    if W.shape[0] != 4:
        raise Refused("IX304", "`W` has another size than is stated")
    if U.shape[0] != 4:
        raise Refused("IX304", "`U` has another size than is stated")
    if bias.shape[0] != 4:
        raise Refused("IX304", "`bias` has another size than is stated")

    cell_rows = {}
    shown = np.zeros((n_b, n_t + 1, n_n), np.float32)
    gate_rows = {}
    product = (x.reshape(n_b * n_t, n_m) @ W.reshape(4 * n_n, n_m).T).reshape(n_b, n_t, 4, n_n)
    part = product + bias
    U_matrix = U.transpose(2, 0, 1).reshape(n_n, 4 * n_n)
    for t in range(n_t + 1):
        if t == 0:
            # let cell[b, 0, n] = 0.0;
            cell_rows[t] = np.zeros((n_b, n_n), np.float32)
            # let shown[b, 0, n]                = 0.0;
            shown[:, t] = 0.0
        else:
            # let cell[b, s in 1..=size(t), n] = keep * cell[b, s - 1, n] + write * tanh(gate[b, s - 1, 2, n])
            #     where write = sigmoid(gate[b, s - 1, 0, n]), keep = sigmoid(gate[b, s - 1, 1, n]);
            part_2 = sigmoid(gate_rows[t - 1][:, 0]) * np.tanh(gate_rows[t - 1][:, 2])
            cell_rows[t] = sigmoid(gate_rows[t - 1][:, 1]) * cell_rows[t - 1] + part_2
            # let shown[b, s in 1..=size(t), n] = sigmoid(gate[b, s - 1, 3, n]) * tanh(cell[b, s, n]);
            shown[:, t] = sigmoid(gate_rows[t - 1][:, 3]) * np.tanh(cell_rows[t])
        if t < n_t:
            # let gate[b, t in 0..size(t), g, n] =
            #     sum[m](W[g, n, m] * x[b, t, m]) + sum[p](U[g, n, p] * shown[b, t, p]) + bias[g, n];
            gate_rows[t] = part[:, t] + (shown[:, t] @ U_matrix).reshape(n_b, 4, n_n)
        cell_rows.pop(t - 1, None)
        gate_rows.pop(t - 1, None)
    return shown
