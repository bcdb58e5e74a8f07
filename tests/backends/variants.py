"""Every attention that the engine is asked for: its text, its arrays, and the kernel that takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from indexical.plan.target import FUSED, INTERVALS, STREAM, TILES

SIZES = {"a": 2, "b": 2, "c": 3, "h": 2, "g": 2, "i": 9, "j": 9, "d": 3, "e": 4, "f": 2, "m": 6, "r": 17}
DOT = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"


@dataclass(frozen=True)
class Variant:
    """A program, the kernel that PyTorch's plan names for `out`, and what is never built.

    `sizes` differ from the usual ones; `given` are the arrays that are not simply drawn, by the sizes.
    """

    text: str
    kernel: str
    unbuilt: tuple[str, ...] = ("weights",)
    sizes: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, Callable[[Mapping[str, int]], Any]] = field(default_factory=dict)


def attention(guard: str = "", score: str = DOT, more: str = "") -> str:
    """Attention in the usual layout, under a guard, with further inputs."""
    where = f" where {guard}" if guard else ""
    return (
        f"input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{more};\n"
        f"let weights[b, h, i, j] = softmax[j]({score}){where};\n"
        "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);\n"
    )


def sorted_documents(sizes: Mapping[str, int]) -> torch.Tensor:
    return torch.arange(sizes["i"]) // 5


def shuffled_documents(sizes: Mapping[str, int]) -> torch.Tensor:
    return torch.tensor([3, -7, 3, 3, 10**12, -7, 3, 0, 10**12, 3, 0, 0, -7])[torch.arange(sizes["i"]) % 13]


def documents_by_batch(sizes: Mapping[str, int]) -> torch.Tensor:
    return torch.stack([sorted_documents(sizes), shuffled_documents(sizes)])


def lengths(sizes: Mapping[str, int]) -> torch.Tensor:
    return torch.tensor([5, 0])


def allowed(*names: str) -> Callable[[Mapping[str, int]], torch.Tensor]:
    """A Boolean mask in which some rows hear nobody and some keys are heard by nobody."""

    def draw(sizes: Mapping[str, int]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        mask = torch.rand([sizes[name] for name in names], generator=generator) > 0.5
        mask[..., 2:3] = False
        if "i" in names:
            mask[..., 3:4, :] = False
        return mask

    return draw


HAND_MADE = """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
let top[b, h, i] = max[j](scores[b, h, i, j] where {guard});
let shares[b, h, i, j] = exp(scores[b, h, i, j] - top[b, h, i]) where {guard};
let out[b, h, i, e] = sum[j](shares[b, h, i, j] * V[b, h, j, e]) / sum[j](shares[b, h, i, j]);
"""
HAND_BUILT = ("scores", "top", "shares")

VARIANTS: dict[str, Variant] = {
    # ------------------------------------------------------------------ who hears whom
    "full": Variant(attention(), FUSED),
    "causal": Variant(attention("j <= i"), FUSED),
    "causal, one ahead": Variant(attention("j <= i + 1"), INTERVALS),
    "causal, three behind": Variant(attention("j <= i - 3"), INTERVALS),
    "strictly causal": Variant(attention("j < i"), INTERVALS),
    "the future": Variant(attention("j >= i"), INTERVALS),
    "window": Variant(attention("j <= i, i - j < 4"), INTERVALS),
    "two-sided window": Variant(attention("i - j < 4, j - i < 3"), INTERVALS),
    "two-sided by distance": Variant(attention("abs(i - j) <= 2"), INTERVALS),
    "window of an input": Variant(
        attention("j <= i, i - j < n", more=", n : i64"), INTERVALS, given={"n": lambda _: 4}
    ),
    "window for each query": Variant(
        attention("j <= i, i - j < n[i]", more=", n[i] : i64"),
        INTERVALS,
        given={"n": lambda sizes: torch.arange(sizes["i"]) * 7 % 5},
    ),
    "prefix": Variant(attention("j <= i || j < 4"), INTERVALS),
    "prefix for each batch": Variant(
        attention("j <= i || j < n[b]", more=", n[b] : i64"), INTERVALS, given={"n": lengths}
    ),
    "sinks and window": Variant(attention("j <= i, i - j < 5 || j < 2"), INTERVALS),
    "dilated": Variant(attention("j <= i, (i - j) % 3 == 0"), INTERVALS),
    "dilated window": Variant(attention("j <= i, (i - j) % 3 == 0, i - j < 9"), INTERVALS),
    "blocks": Variant(attention("i / 4 == j / 4"), INTERVALS),
    "causal blocks": Variant(attention("i / 4 == j / 4, j <= i"), INTERVALS),
    "earlier blocks": Variant(attention("j / 4 < i / 4"), INTERVALS),
    "others": Variant(attention("j != i"), INTERVALS),
    "documents, sorted": Variant(
        attention("j <= i, doc[i] == doc[j]", more=", doc[i] : i64"), INTERVALS, given={"doc": sorted_documents}
    ),
    "documents, unsorted": Variant(
        attention("doc[i] == doc[j]", more=", doc[i] : i64"), INTERVALS, given={"doc": shuffled_documents}
    ),
    "documents, unsorted, causal": Variant(
        attention("j <= i, doc[i] == doc[j]", more=", doc[i] : i64"), INTERVALS, given={"doc": shuffled_documents}
    ),
    "documents for each batch": Variant(
        attention("j <= i, doc[b, i] == doc[b, j]", more=", doc[b, i] : i64"),
        INTERVALS,
        given={"doc": documents_by_batch},
    ),
    "documents in a window": Variant(
        attention("j <= i, i - j < 3, doc[b, i] == doc[b, j]", more=", doc[b, i] : i32"),
        INTERVALS,
        given={"doc": lambda sizes: (documents_by_batch(sizes) % 1000).int()},
    ),
    "documents of two sides": Variant(
        attention("mine[i] == yours[j]", more=", mine[i] : i64, yours[j] : i64"),
        INTERVALS,
        sizes={"j": 9},
        given={
            "mine": lambda sizes: torch.arange(sizes["i"]) % 4 + 1,
            "yours": lambda sizes: torch.arange(sizes["j"]) % 4,
        },
    ),
    "documents and parts": Variant(
        attention("doc[i] == doc[j], part[b, i] == part[b, j]", more=", doc[i] : i64, part[b, i] : i64"),
        INTERVALS,
        given={"doc": sorted_documents, "part": documents_by_batch},
    ),
    "lengths": Variant(attention("j < n[b]", more=", n[b] : i64"), INTERVALS, given={"n": lengths}),
    "lengths, causal": Variant(attention("j < n[b], j <= i", more=", n[b] : i64"), INTERVALS, given={"n": lengths}),
    "padding on the left": Variant(
        attention("j >= n[b], j <= i", more=", n[b] : i64"), INTERVALS, given={"n": lengths}
    ),
    "key padding mask": Variant(
        attention("keep[b, j]", more=", keep[b, j] : bool"), INTERVALS, given={"keep": allowed("b", "j")}
    ),
    "key padding mask, causal": Variant(
        attention("keep[b, j], j <= i", more=", keep[b, j] : bool"), INTERVALS, given={"keep": allowed("b", "j")}
    ),
    "mask": Variant(attention("mask[i, j]", more=", mask[i, j] : bool"), TILES, given={"mask": allowed("i", "j")}),
    "mask for each batch": Variant(
        attention("mask[b, i, j]", more=", mask[b, i, j] : bool"), TILES, given={"mask": allowed("b", "i", "j")}
    ),
    "mask for each head": Variant(
        attention("mask[b, h, i, j]", more=", mask[b, h, i, j] : bool"),
        TILES,
        given={"mask": allowed("b", "h", "i", "j")},
    ),
    "nobody": Variant(attention("j < 0"), INTERVALS),
    # -------------------------------------------------------------- what is added, and how it is scored
    "ALiBi": Variant(attention("j <= i", f"{DOT} + slope[h] * (j - i)", ", slope[h]"), TILES),
    "ALiBi in figures": Variant(attention("j <= i", f"{DOT} + exp(-(h + 1) / size(h)) * (j - i)"), TILES),
    "bias": Variant(attention("j <= i", f"{DOT} + bias[h, i, j]", ", bias[h, i, j]"), TILES),
    "bias for all": Variant(attention("", f"{DOT} + bias[b, h, i, j]", ", bias[b, h, i, j]"), TILES),
    "bias of a key": Variant(attention("j <= i", f"{DOT} - bias[b, j]", ", bias[b, j]"), TILES),
    "relative bias": Variant(attention("j <= i", f"{DOT} + bias[h, i - j + size(j) - 1]", ", bias[h, r]"), TILES),
    "relative bias, clamped": Variant(
        attention("", f"{DOT} + bias[h, clamp(i - j, -3, 3) + 3]", ", bias[h, r]"), TILES, sizes={"r": 7}
    ),
    "relative bias, in pairs": Variant(
        attention("j <= i", f"{DOT} + bias[h, min((i - j) / 2, 5)]", ", bias[h, r]"), TILES, sizes={"r": 6}
    ),
    "relative bias, in bounds where heard": Variant(
        attention("j <= i, i - j < 4", f"{DOT} + bias[h, i - j]", ", bias[h, r]"), TILES, sizes={"r": 4}
    ),
    "bias in documents": Variant(
        attention("doc[b, i] == doc[b, j]", f"{DOT} + bias[i, j]", ", bias[i, j], doc[b, i] : i64"),
        TILES,
        given={"doc": documents_by_batch},
    ),
    "bias in a window": Variant(attention("abs(i - j) < 3", f"{DOT} + bias[i, j]", ", bias[i, j]"), TILES),
    "bias under a mask": Variant(
        attention("mask[i, j]", f"{DOT} + bias[i, j]", ", bias[i, j], mask[i, j] : bool"),
        TILES,
        given={"mask": allowed("i", "j")},
    ),
    "soft cap": Variant(attention("j <= i", f"5 * tanh({DOT} / 5)"), STREAM),
    "soft cap of some features": Variant(
        attention("j <= i", f"5 * tanh({DOT.replace('d])', 'd] where d >= 1)')} / 5)"), STREAM
    ),
    "soft cap in a window": Variant(attention("abs(i - j) <= 2", f"5 * tanh({DOT} / 5)"), STREAM),
    "soft cap in documents": Variant(
        attention("j <= i, doc[b, i] == doc[b, j]", f"5 * tanh({DOT} / 5)", ", doc[b, i] : i64"),
        STREAM,
        given={"doc": documents_by_batch},
    ),
    "soft cap under a mask": Variant(
        attention("mask[b, i, j]", f"5 * tanh({DOT} / 5)", ", mask[b, i, j] : bool"),
        STREAM,
        given={"mask": allowed("b", "i", "j")},
    ),
    "additive": Variant(attention("j <= i", "sum[d](w[d] * tanh(Q[b, h, i, d] + K[b, h, j, d]))", ", w[d]"), STREAM),
    "cosine": Variant(
        """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], s[h];
let q[b, h, i, d] = Q[b, h, i, d] * rsqrt(sum[c in 0..size(d)](Q[b, h, i, c] ** 2));
let k[b, h, j, d] = K[b, h, j, d] * rsqrt(sum[c in 0..size(d)](K[b, h, j, c] ** 2));
let weights[b, h, i, j] = softmax[j](s[h] * sum[d](q[b, h, i, d] * k[b, h, j, d])) where j <= i;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
""",
        FUSED,
    ),
    "mean": Variant(attention("j <= i", "mean[d](Q[b, h, i, d] * K[b, h, j, d])"), STREAM),
    "some features": Variant(attention("j <= i", "sum[d](Q[b, h, i, d] * K[b, h, j, d] where d < 2)"), STREAM),
    "chosen": Variant(attention("j <= i", f"if i == j {{ 0.5 }} else {{ {DOT} }}"), STREAM),
    "relative keys": Variant(
        attention("j <= i", f"{DOT} + sum[d](Q[b, h, i, d] * R[i - j + size(j) - 1, d])", ", R[r, d]"), TILES
    ),
    "talking heads": Variant(
        attention("j <= i", "sum[g](T[h, g] * sum[d](Q[b, g, i, d] * K[b, g, j, d]))", ", T[h, g]"), STREAM
    ),
    "distance": Variant(attention("j <= i", "-sum[d]((Q[b, h, i, d] - K[b, h, j, d]) ** 2)"), STREAM),
    "negative": Variant(attention("j <= i", f"-{DOT}"), FUSED),
    "temperature of a query": Variant(attention("j <= i", f"{DOT} * t[b, h, i]", ", t[b, h, i]"), FUSED),
    "scale from a number": Variant(
        attention("j <= i", "s * sum[d](Q[b, h, i, d] * K[b, h, j, d])", ", s"), FUSED, given={"s": lambda _: 0.4}
    ),
    "scale from a tensor": Variant(attention("j <= i", "s * sum[d](Q[b, h, i, d] * K[b, h, j, d])", ", s"), FUSED),
    "scale from a tensor, windowed": Variant(
        attention("j <= i, i - j < 4", "s * sum[d](Q[b, h, i, d] * K[b, h, j, d])", ", s"), INTERVALS
    ),
    "cap from a number": Variant(
        attention("j <= i", f"s * tanh({DOT} / s)", ", s"), STREAM, given={"s": lambda _: 4.0}
    ),
    "cap from a tensor": Variant(attention("j <= i", f"s * tanh({DOT} / s)", ", s"), STREAM),
    "slope from a number": Variant(
        attention("j <= i", f"{DOT} + s * (j - i)", ", s"), TILES, given={"s": lambda _: 0.3}
    ),
    "slope from a tensor": Variant(attention("j <= i", f"{DOT} + s * (j - i)", ", s"), TILES),
    # ------------------------------------------------------------------------ how it is spelled and laid out
    "hand-made": Variant(HAND_MADE.format(guard="j <= i"), FUSED, HAND_BUILT),
    "hand-made, strictly causal": Variant(HAND_MADE.format(guard="j < i"), INTERVALS, HAND_BUILT),
    "hand-made, windowed": Variant(HAND_MADE.format(guard="j <= i, i - j < 4"), INTERVALS, HAND_BUILT),
    "grouped": Variant(
        """input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e];
let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h / 2, j, d]) / sqrt(size(d))) where j <= i;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h / 2, j, e]);
""",
        FUSED,
    ),
    "grouped, windowed": Variant(
        """input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e];
let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h / 2, j, d]) / sqrt(size(d))) where abs(i - j) < 4;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h / 2, j, e]);
""",
        INTERVALS,
    ),
    "interleaved": Variant(
        """input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e];
let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h % 2, j, d]) / sqrt(size(d))) where j <= i;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h % 2, j, e]);
""",
        FUSED,
    ),
    "multi-query": Variant(
        """input Q[b, i, h, d], K[b, j, d], V[b, j, e];
let weights[b, h, i, j] = softmax[j](sum[d](Q[b, i, h, d] * K[b, j, d])) where j <= i;
let out[b, i, h, e] = sum[j](weights[b, h, i, j] * V[b, j, e]);
""",
        FUSED,
    ),
    "shared weights": Variant(
        """input Q[b, i, d], K[b, j, d], V[b, h, j, e];
let weights[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d])) where j <= i;
let out[b, h, i, e] = sum[j](weights[b, i, j] * V[b, h, j, e]);
""",
        FUSED,
    ),
    "gathered keys": Variant(
        """input Q[i, d], K[j, d], V[j, e], p[j] : i64;
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[p[j], d])) where j <= i;
let out[i, e] = sum[j](weights[i, j] * V[p[j], e]);
""",
        FUSED,
        given={"p": lambda sizes: torch.arange(sizes["j"]).flip(0)},
    ),
    "packed heads": Variant(
        """input Q[b, i, m], K[b, j, m], V[b, j, m];
let weights[b, h in 0..2, i, j] = softmax[j](sum[d in 0..3](Q[b, i, h * 3 + d] * K[b, j, h * 3 + d])) where j <= i;
let out[b, i, m] = sum[j](weights[b, m / 3, i, j] * V[b, j, m]);
""",
        FUSED,
    ),
    "no batch": Variant(
        """input Q[i, d], K[j, d], V[j, e];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d))) where j <= i;
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
""",
        FUSED,
    ),
    "one query": Variant(
        """input q[d], K[j, d], V[j, e];
let weights[j] = softmax[j](sum[d](q[d] * K[j, d]));
let out[e] = sum[j](weights[j] * V[j, e]);
""",
        FUSED,
    ),
    "one query, some keys": Variant(
        """input q[b, d], K[b, j, d], V[b, j, e], n[b] : i64;
let weights[b, j] = softmax[j](sum[d](q[b, d] * K[b, j, d])) where j < n[b];
let out[b, e] = sum[j](weights[b, j] * V[b, j, e]);
""",
        INTERVALS,
        given={"n": lengths},
    ),
    "nothing carried": Variant(
        """input Q[i, d], K[j, d], v[j];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])) where j < i;
let out[i] = sum[j](weights[i, j] * v[j]);
""",
        INTERVALS,
    ),
    "no values at all": Variant(
        """input Q[i, d], K[j, d];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])) where j <= i;
let out[i] = sum[j](weights[i, j] * j);
""",
        FUSED,
    ),
    "cross": Variant(attention(), FUSED, sizes={"j": 7}),
    "cross, causal": Variant(attention("j <= i"), FUSED, sizes={"j": 7}),
    "cross, causal, more keys": Variant(attention("j <= i"), FUSED, sizes={"i": 7}),
    "cross, aligned at the end": Variant(attention("j <= i + size(j) - size(i)"), INTERVALS, sizes={"i": 5}),
    "cross, aligned, fewer keys": Variant(attention("j <= i + size(j) - size(i)"), INTERVALS, sizes={"j": 5}),
    "one new query": Variant(attention("j <= i + size(j) - size(i)"), INTERVALS, sizes={"i": 1}),
    "keys from the third": Variant(
        """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let out[b, h, i, e] =
    sum[k in 2..size(j)](exp(sum[d](Q[b, h, i, d] * K[b, h, k, d])) * V[b, h, k, e] where k <= i + 3)
    / sum[k in 2..size(j)](exp(sum[d](Q[b, h, i, d] * K[b, h, k, d])) where k <= i + 3);
""",
        INTERVALS,
        (),
    ),
    "projected, with a residual": Variant(
        """input X[b, i, m], A[m, h, d], B[m, h, d], C[m, h, e], D[h, e, m];
let Q[b, h, i, d] = sum[m](X[b, i, m] * A[m, h, d]);
let K[b, h, i, d] = sum[m](X[b, i, m] * B[m, h, d]);
let V[b, h, i, e] = sum[m](X[b, i, m] * C[m, h, e]);
let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))) where j <= i;
let out[b, i, m] = X[b, i, m] + sum[h, e, j](weights[b, h, i, j] * V[b, h, j, e] * D[h, e, m]);
""",
        FUSED,
    ),
    "projected in place": Variant(
        """input X[b, i, m], A[m, h, d], B[m, h, d], V[b, h, j, e];
let weights[b, h, i, j] = softmax[j](
    sum[d](sum[m](X[b, i, m] * A[m, h, d]) * sum[m](X[b, j, m] * B[m, h, d]))) where j <= i;
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
""",
        FUSED,
    ),
    "weighted by name": Variant(
        """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];
let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
let weighted[b, h, i, j, e] = weights[b, h, i, j] * V[b, h, j, e];
let out[b, h, i, e] = sum[j](weighted[b, h, i, j, e]);
""",
        FUSED,
        ("scores", "weights", "weighted"),
    ),
    "guarded outside": Variant(
        """input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], n[b] : i64;
let weights[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) where j <= i);
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]) where i < n[b];
""",
        FUSED,
        given={"n": lengths},
    ),
}
