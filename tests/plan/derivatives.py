"""The derivative of attention as texts: as `ix.grad` prints it, as others would, and as nobody should."""

from __future__ import annotations

SIZES = {"b": 2, "h": 4, "g": 2, "i": 5, "j": 6, "d": 3, "e": 4, "m": 3, "r": 10}

INPUTS = "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], d_out[b, h, i, e]{more};"
PARTS = {
    "scores": "let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));",
    "weights": "let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;",
    "d_V": "let d_V[b, h, j, e] = sum[i](weights[b, h, i, j] * d_out[b, h, i, e]);",
    "d_weights": "let d_weights[b, h, i, j] = sum[e](d_out[b, h, i, e] * V[b, h, j, e]);",
    "d_scores": (
        "let d_scores[b, h, i, j] = weights[b, h, i, j] * (d_weights[b, h, i, j]"
        " - sum[j_1](weights[b, h, i, j_1] * d_weights[b, h, i, j_1])) where j <= i;"
    ),
    "d_Q": "let d_Q[b, h, i, d] = sum[j](d_scores[b, h, i, j] * K[b, h, j, d]) / sqrt(size(d));",
    "d_K": "let d_K[b, h, j, d] = sum[i](d_scores[b, h, i, j] * Q[b, h, i, d]) / sqrt(size(d));",
}


def derivative(outputs: str = "d_Q, d_K, d_V", more: str = "", without: tuple[str, ...] = (), **changes: str) -> str:
    """The derivative of causal attention, some of its definitions in other words."""
    lines = [changes.get(name, line) for name, line in PARTS.items() if name not in without]
    return "\n".join([INPUTS.format(more=more), *lines, f"output {outputs};"]) + "\n"


SOFTMAX = "softmax[{j}](sum[d](Q[b, h, i, d] * K[b, h, {j}, d]) / sqrt(size(d)) where {j} <= i)"
ADJOINT = "weights[b, h, i, j] * (d_weights[b, h, i, j] - sum[k](weights[b, h, i, k] * d_weights[b, h, i, k]))"
INLINE = "(weights[b, h, i, j] * (sum[e](d_out[b, h, i, e] * V[b, h, j, e]) - sum[k](weights[b, h, i, k] * "
INLINE += "sum[e](V[b, h, k, e] * d_out[b, h, i, e]))))"

# Every one of these is computed by the backward of a kernel.
SPELLINGS: dict[str, str] = {
    "as it is printed": derivative(),
    "without a guard": derivative(
        weights="let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]);",
        d_scores=f"let d_scores[b, h, i, j] = {ADJOINT};",
    ),
    "its guard said once": derivative(d_scores=f"let d_scores[b, h, i, j] = {ADJOINT};"),
    "its guard said everywhere": derivative(
        d_V="let d_V[b, h, j, e] = sum[i](weights[b, h, i, j] * d_out[b, h, i, e] where i >= j);",
        d_Q="let d_Q[b, h, i, d] = sum[j](d_scores[b, h, i, j] * K[b, h, j, d] where j <= i) / sqrt(size(d));",
        d_scores=(
            "let d_scores[b, h, i, j] = weights[b, h, i, j] * (d_weights[b, h, i, j] - sum[j_1](weights[b, h, i, j_1]"
            " * d_weights[b, h, i, j_1] where j_1 <= i)) where j < i + 1;"
        ),
    ),
    "factors in another order": derivative(
        scores="let scores[b, h, i, j] = sum[d](K[b, h, j, d] * Q[b, h, i, d]) / sqrt(size(d));",
        d_V="let d_V[b, h, j, e] = sum[i](d_out[b, h, i, e] * weights[b, h, i, j]);",
        d_scores=(
            "let d_scores[b, h, i, j] = (d_weights[b, h, i, j] - sum[k](d_weights[b, h, i, k] * weights[b, h, i, k]))"
            " * weights[b, h, i, j] where j <= i;"
        ),
        d_Q="let d_Q[b, h, i, d] = sum[j](K[b, h, j, d] / sqrt(size(d)) * d_scores[b, h, i, j]);",
        d_K="let d_K[b, h, j, d] = rsqrt(size(d)) * sum[i](Q[b, h, i, d] * d_scores[b, h, i, j]);",
    ),
    "a product multiplied out": derivative(
        d_scores=(
            "let d_scores[b, h, i, j] = weights[b, h, i, j] * d_weights[b, h, i, j]"
            " - weights[b, h, i, j] * sum[k](weights[b, h, i, k] * d_weights[b, h, i, k]);"
        ),
    ),
    "a difference turned around": derivative(
        d_scores=(
            "let d_scores[b, h, i, j] = -weights[b, h, i, j] * (sum[k](weights[b, h, i, k] * d_weights[b, h, i, k])"
            " - d_weights[b, h, i, j]);"
        ),
    ),
    "the mean by name": derivative(
        d_weights=(
            f"{PARTS['d_weights']}\nlet average[b, h, i] = sum[j](weights[b, h, i, j] * d_weights[b, h, i, j]);\n"
            "let centred[b, h, i, j] = d_weights[b, h, i, j] - average[b, h, i];"
        ),
        d_scores="let d_scores[b, h, i, j] = weights[b, h, i, j] * centred[b, h, i, j] where j <= i;",
    ),
    "the mean by the result": derivative(
        d_weights=(
            f"{PARTS['d_weights']}\nlet out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);\n"
            "let delta[b, h, i] = sum[e](d_out[b, h, i, e] * out[b, h, i, e]);"
        ),
        d_scores="let d_scores[b, h, i, j] = weights[b, h, i, j] * (d_weights[b, h, i, j] - delta[b, h, i]);",
    ),
    "everything in place": derivative(
        without=("scores", "d_weights", "d_scores"),
        weights=f"let weights[b, h, i, j] = {SOFTMAX.format(j='j')};",
        d_Q=f"let d_Q[b, h, i, d] = sum[j]({INLINE} * K[b, h, j, d]) / sqrt(size(d));",
        d_K=f"let d_K[b, h, j, d] = sum[i]({INLINE} * Q[b, h, i, d]) / sqrt(size(d));",
    ),
    "weights in place": derivative(
        without=("scores", "weights"),
        d_V=f"let d_V[b, h, j, e] = sum[i]({SOFTMAX.format(j='j')} * d_out[b, h, i, e]);",
        d_scores=(
            f"let rows[b, h, i, j] = {SOFTMAX.format(j='j')} * d_weights[b, h, i, j];\n"
            f"let d_scores[b, h, i, j] = {SOFTMAX.format(j='j')} * (d_weights[b, h, i, j] - sum[k](rows[b, h, i, k]));"
        ),
    ),
    "the forward twice": derivative(
        weights=f"{PARTS['weights']}\nlet shares[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;",
        d_V="let d_V[b, h, j, e] = sum[i](shares[b, h, i, j] * d_out[b, h, i, e]);",
    ),
    "a scale split in two": derivative(
        d_scores=f"let d_scores[b, h, i, j] = {ADJOINT} / sqrt(sqrt(size(d)));",
        d_Q="let d_Q[b, h, i, d] = sum[j](d_scores[b, h, i, j] * K[b, h, j, d]) / sqrt(sqrt(size(d)));",
        d_K="let d_K[b, h, j, d] = sum[i](d_scores[b, h, i, j] * Q[b, h, i, d]) / sqrt(sqrt(size(d)));",
    ),
    "only the query's": derivative("d_Q"),
    "only the key's": derivative("d_K"),
    "the forward too": derivative(
        "out, d_Q, d_K, d_V",
        d_V=f"{PARTS['d_V']}\nlet out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);",
    ),
    "other axes first": derivative(
        d_Q="let d_Q[i, h, d, b] = sum[j](d_scores[b, h, i, j] * K[b, h, j, d]) / sqrt(size(d));",
        d_K="let d_K[d, j, b, h] = sum[i](d_scores[b, h, i, j] * Q[b, h, i, d]) / sqrt(size(d));",
    ),
    "gradients that go on": derivative(
        "d_W, d_K, d_V",
        more=", X[b, i, m]",
        d_Q=(f"{PARTS['d_Q']}\nlet d_W[h, d, m] = sum[b, i](d_Q[b, h, i, d] * X[b, i, m]);"),
    ),
    "a sum in place": derivative(
        "d_W, d_K, d_V",
        more=", X[b, i, m]",
        d_Q="let d_W[h, d, m] = sum[b, i, j](d_scores[b, h, i, j] * K[b, h, j, d] * X[b, i, m]) / sqrt(size(d));",
    ),
    "a sign changed for all": derivative(
        d_Q="let d_Q[b, h, i, d] = -sum[j](d_scores[b, h, i, j] * K[b, h, j, d]) / sqrt(size(d));"
    ),
    "a window": derivative(
        weights="let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i, i - j < 3;",
        d_scores=f"let d_scores[b, h, i, j] = {ADJOINT} where j <= i, i - j < 3;",
    ),
    "a bias": derivative(
        more=", slope[h]",
        scores=PARTS["scores"].replace(";", " - slope[h] * (i - j);"),
    ),
    "no batch, no head, other names": (
        "input A[x, f], B[y, f], C[y, w], G[x, w];\n"
        "let p[x, y] = softmax[y](sum[f](A[x, f] * B[y, f]) where y <= x);\n"
        "let q[x, y] = sum[w](G[x, w] * C[y, w]);\n"
        "let s[x, y] = p[x, y] * (q[x, y] - sum[z](p[x, z] * q[x, z]));\n"
        "let to_a[x, f] = sum[y](s[x, y] * B[y, f]);\n"
        "let to_b[y, f] = sum[x](s[x, y] * A[x, f]);\n"
        "let to_c[y, w] = sum[x](p[x, y] * G[x, w]);\n"
        "output to_a, to_b, to_c;\n"
    ),
}

# None of these is: what they say is computed as it stands.
NEAR_MISSES: dict[str, str] = {
    "another guard": derivative(d_scores=PARTS["d_scores"].replace("j <= i", "j < i")),
    "another guard in the mean": derivative(
        d_scores=(
            "let d_scores[b, h, i, j] = weights[b, h, i, j] * (d_weights[b, h, i, j]"
            " - sum[k](weights[b, h, i, k] * d_weights[b, h, i, k] where k < i));"
        )
    ),
    "weights of another softmax": derivative(
        weights=f"{PARTS['weights']}\nlet other[b, h, i, j] = softmax[j](2 * scores[b, h, i, j]) where j <= i;",
        d_scores=(
            "let d_scores[b, h, i, j] = weights[b, h, i, j] * (d_weights[b, h, i, j]"
            " - sum[k](other[b, h, i, k] * d_weights[b, h, i, k]));"
        ),
    ),
    "the mean by another result": derivative(
        d_weights=(
            f"{PARTS['d_weights']}\nlet out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, 0, j, e]);\n"
            "let delta[b, h, i] = sum[e](d_out[b, h, i, e] * out[b, h, i, e]);"
        ),
        d_scores="let d_scores[b, h, i, j] = weights[b, h, i, j] * (d_weights[b, h, i, j] - delta[b, h, i]);",
    ),
    "a mean over the queries": derivative(
        d_scores=(
            "let d_scores[b, h, i, j] = weights[b, h, i, j] * (d_weights[b, h, i, j]"
            " - sum[k](weights[b, h, k, j] * d_weights[b, h, k, j]));"
        )
    ),
    "no scale in the key's": derivative(d_K="let d_K[b, h, j, d] = sum[i](d_scores[b, h, i, j] * Q[b, h, i, d]);"),
    "a sum instead of a difference": derivative(
        d_scores=PARTS["d_scores"].replace(" - sum", " + sum"),
    ),
    "the values of another head": derivative(
        d_weights="let d_weights[b, h, i, j] = sum[e](d_out[b, h, i, e] * V[b, 0, j, e]);",
        d_V="let d_V[b, h, j, e] = sum[i](weights[b, h, i, j] * d_out[b, 0, i, e]);",
    ),
    "half of the rows": derivative(
        d_K="let d_K[b, h, j, d] = sum[i in 0..2](d_scores[b, h, i, j] * Q[b, h, i, d]) / sqrt(size(d));"
    ),
    "the query for the key": derivative(
        more=", P[b, h, i, d]",
        d_K="let d_K[b, h, j, d] = sum[i](d_scores[b, h, i, j] * P[b, h, i, d]) / sqrt(size(d));",
    ),
    "twice the mean": derivative(
        d_scores=PARTS["d_scores"].replace(" - sum", " - 2 * sum"),
    ),
    "squared weights": derivative(
        d_V="let d_V[b, h, j, e] = sum[i](weights[b, h, i, j] * weights[b, h, i, j] * d_out[b, h, i, e]);",
    ),
}
