"""The variants of attention in the language: what a user would write, and nothing for the compiler's sake."""

from __future__ import annotations

HEAD = "space batch(b), head(h), position(i, j), feature(d, e);\n\n"
INPUTS = "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]"
SCORES = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
GATHER = "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);\n"


def attention(scores: str = SCORES, guard: str = "", further: str = "") -> str:
    """Attention with a softmax over `scores`, at the keys that `guard` leaves."""
    where = f" where {guard}" if guard else ""
    return (
        f"{HEAD}{INPUTS}{further};\n\n"
        f"let scores[b, h, i, j] = {scores};\n"
        f"let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]){where};\n"
        f"{GATHER}"
    )


def by_hand(guard: str = "") -> str:
    """Attention whose softmax is spelled out: the largest score is taken off, then exponentials, then their sum."""
    where = f" where {guard}" if guard else ""
    return (
        f"{HEAD}{INPUTS};\n\n"
        f"let scores[b, h, i, j] = {SCORES};\n"
        f"let top[b, h, i] = max[j](scores[b, h, i, j]{where});\n"
        f"let raised[b, h, i, j] = exp(scores[b, h, i, j] - top[b, h, i]){where};\n"
        f"let total[b, h, i] = sum[j](raised[b, h, i, j]);\n"
        f"let weights[b, h, i, j] = raised[b, h, i, j] / total[b, h, i];\n"
        f"{GATHER}"
    )


GROUPED = """\
space batch(b), head(h), group(g), position(i, j), feature(d, e);

input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e];

let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, shared, j, d]) / sqrt(size(d))
    where shared = h / (size(h) / size(g));
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h / (size(h) / size(g)), j, e]);
"""

# One row holds several documents, so that queries and keys are the same positions.
DOCUMENTS = f"""\
{HEAD}input Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e], document[b, i] : i64;

let scores[b, h, i, j] = {SCORES};
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i, document[b, i] == document[b, j];
{GATHER}"""

PROGRAMS = {
    "full": attention(),
    "causal": attention(guard="j <= i"),
    "full by hand": by_hand(),
    "causal by hand": by_hand("j <= i"),
    "window": attention(guard="i - 256 < j <= i"),
    "documents": DOCUMENTS,
    "alibi": attention(f"{SCORES} + slope[h] * (j - i)", "j <= i", ", slope[h]"),
    "prefix": attention(guard="j < size(j) / 4 || j <= i"),
    "softcap": attention(f"50 * tanh({SCORES} / 50)", "j <= i"),
    "mask": attention(guard="allowed[i, j]", further=", allowed[i, j] : bool"),
    "grouped": GROUPED,
    "narrow values": attention(guard="j <= i"),
    "relative": attention(f"{SCORES} + bias[h, i - j + size(j) - 1]", further=", bias[h, r]"),
}
CONTRACTION = """\
input Q[b, h, i, d], K[b, h, j, d];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]);
"""
