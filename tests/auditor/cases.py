"""Broken attention with its repaired twin, and right attention that looks wrong.

Each broken one has the law it breaks and words of the cause that the report has to give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from tests.auditor.layouts import LAYOUTS, B, D, H, N

INF = float("inf")


@dataclass(frozen=True)
class Case:
    """A callable, what is declared of it, and, where it is broken, the law and a part of the cause."""

    name: str
    target: Callable[..., Any]
    example: dict[str, Any]
    axes: dict[str, str]
    contract: dict[str, Any] = field(default_factory=dict)
    law: str | None = None
    cause: str = ""


def scores_of(q: Any, k: Any) -> Any:
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


def triangle(s: Any, offset: int = 0) -> Any:
    return torch.ones(s.shape[-2:], dtype=torch.bool).tril(offset)


def causal(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s), -INF).softmax(-1) @ v


def full(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, k).softmax(-1) @ v


# --------------------------------------------------------------- broken kernels

CAUSAL = {"causal": True, "scale": "1/sqrt(d)"}
FULL = {"causal": False, "scale": "1/sqrt(d)"}


def over_queries(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, k).softmax(-2) @ v


def over_queries_causal(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s), -INF).softmax(-2) @ v


def over_heads(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, k).softmax(1) @ v


def over_batch(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, k).softmax(0) @ v


def over_pairs(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.flatten(-2).softmax(-1).view(s.shape) @ v


def transposed_weights(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, k).softmax(-1).transpose(-1, -2) @ v


def masked_late(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return (s.softmax(-1) * triangle(s)) @ v


def masked_late_by_fill(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.softmax(-1).masked_fill(~triangle(s), 0.0) @ v


def reversed_mask(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s).transpose(-1, -2), -INF).softmax(-1) @ v


def inverted_mask(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(triangle(s), -1e9).softmax(-1) @ v


def one_ahead(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s, 1), -INF).softmax(-1) @ v


def not_itself(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s, -1), -INF).softmax(-1) @ v


def zero_fill(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s), 0.0).softmax(-1) @ v


def tiny_fill(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s), 1e-9).softmax(-1) @ v


def weak_fill(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s), -10.0).softmax(-1) @ v


def weaker_than_promised(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return s.masked_fill(~triangle(s), -1e3).softmax(-1) @ v


def multiplied_mask(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return (s * triangle(s)).softmax(-1) @ v


def added_mask(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return (s + triangle(s)).softmax(-1) @ v


def forgotten_mask(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    s.masked_fill(~triangle(s), -INF)
    return s.softmax(-1) @ v


def unscaled(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def scaled_twice(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q / math.sqrt(q.shape[-1]), k).softmax(-1) @ v


def scaled_up(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-1, -2) * math.sqrt(q.shape[-1])).softmax(-1) @ v


def scaled_by_length(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-1, -2) / math.sqrt(k.shape[-2])).softmax(-1) @ v


def scaled_by_width(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[1] * q.shape[-1])).softmax(-1) @ v


def scaled_half(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.25).softmax(-1) @ v


def negative(q: Any, k: Any, v: Any) -> Any:
    return (-scores_of(q, k)).softmax(-1) @ v


def twice_fused(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q * q.shape[-1] ** -0.5, k, v)


def at_the_query(q: Any, k: Any, v: Any) -> Any:
    return torch.einsum("bhij,bhie->bhie", scores_of(q, k).softmax(-1), v)


def exchanged(q: Any, k: Any, v: Any) -> Any:
    return scores_of(k, q).softmax(-1) @ v


def exchanged_causal(q: Any, k: Any, v: Any) -> Any:
    return causal(k, q, v)


def with_itself(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, q).softmax(-1) @ v


def keys_with_keys(q: Any, k: Any, v: Any) -> Any:
    return scores_of(k, k).softmax(-1) @ v


def keys_as_values(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, k).softmax(-1) @ k


def heads_summed(q: Any, k: Any, v: Any) -> Any:
    return torch.einsum("bhij,bgje->bhie", scores_of(q, k).softmax(-1), v) / v.shape[1]


def batch_norm(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return (s - s.mean((0, 1, 2, 3))).softmax(-1) @ (v - v.mean(0))


def batch_scaled(q: Any, k: Any, v: Any) -> Any:
    s = scores_of(q, k)
    return (s / (1 + s.abs().amax((0, 2, 3), keepdim=True))).softmax(-1) @ v


def no_normaliser(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, k).exp() @ v


def sigmoid(q: Any, k: Any, v: Any) -> Any:
    return scores_of(q, k).sigmoid() @ v


def dropped(q: Any, k: Any, v: Any) -> Any:
    return F.dropout(scores_of(q, k).softmax(-1), 0.5) @ v


def in_place(q: Any, k: Any, v: Any) -> Any:
    q *= q.shape[-1] ** -0.5
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def half_compared(q: Any, k: Any, v: Any) -> Any:
    half = q.shape[-1] // 2
    return (q[..., :half] @ k[..., :half].transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def normalised_values(q: Any, k: Any, v: Any) -> Any:
    return (scores_of(q, k).softmax(-1) * 0.5) @ v


BROKEN: list[tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], str, str, tuple[str, ...]]] = [
    (over_queries, full, FULL, "normalisation", "over the queries", ("b h i d", "b i (h d)", "module", "single")),
    (
        over_queries_causal,
        causal,
        CAUSAL,
        "normalisation",
        "over the queries",
        ("packed", "(b h) i d", "i b c", "module"),
    ),
    (over_heads, full, FULL, "normalisation", "over the heads", ("b i h d", "module", "cross")),
    (over_batch, full, FULL, "normalisation", "over the batch", ("b h i d", "single")),
    (over_pairs, full, FULL, "normalisation", "queries and keys together", ("b i h d", "cross")),
    (transposed_weights, full, FULL, "normalisation", "transposed", ("b h i d", "packed")),
    (masked_late, causal, CAUSAL, "rows", "after the softmax", ("b h i d", "module", "i b c")),
    (masked_late_by_fill, causal, CAUSAL, "rows", "after the softmax", ("single", "packed")),
    (reversed_mask, causal, CAUSAL, "causal", "reversed", ("b i h d", "module")),
    (inverted_mask, causal, CAUSAL, "causal", "reversed", ("b h i d",)),
    (one_ahead, causal, CAUSAL, "causal", "off by one", ("(b h) i d", "module", "packed")),
    (not_itself, causal, CAUSAL, "causal", "no query hears itself", ("b h i d", "single")),
    (zero_fill, causal, CAUSAL, "causal", "ordinary", ("b i h d", "module")),
    (tiny_fill, causal, CAUSAL, "causal", "ordinary", ("b h i d", "i b c")),
    (weak_fill, causal, CAUSAL, "causal", "set to -10", ("b h i d", "packed")),
    (weaker_than_promised, causal, CAUSAL, "mask strength", "finite number", ("b h i d", "module")),
    (multiplied_mask, causal, CAUSAL, "causal", "ordinary", ("b i (h d)",)),
    (added_mask, causal, CAUSAL, "causal", "0 and 1", ("b h i d",)),
    (forgotten_mask, causal, CAUSAL, "causal", "missing", ("b h i d", "module", "packed", "single", "i b c")),
    (unscaled, full, FULL, "scale", "missing", ("b h i d", "packed", "module", "cross")),
    (scaled_twice, full, FULL, "scale", "twice", ("i b c", "single")),
    (scaled_up, full, FULL, "scale", "multiplied where", ("b h i d",)),
    (scaled_by_length, full, FULL, "scale", "number of keys", ("b h i d", "cross")),
    (scaled_by_width, full, FULL, "scale", "width of all heads", ("b h i d", "module")),
    (scaled_half, full, FULL, "scale", "half of the scale", ("b i h d",)),
    (negative, full, FULL, "scale", "sign", ("b h i d",)),
    (twice_fused, full, FULL, "scale", "twice", ("b h i d", "module")),
    (at_the_query, full, FULL, "dead input", "at the query", ("b h i d", "b i h d")),
    (exchanged, full, FULL, "locality", "exchanged", ("b h i d", "packed")),
    (exchanged_causal, causal, CAUSAL, "locality", "exchanged", ("b i (h d)",)),
    (with_itself, full, FULL, "dead input", "with themselves", ("b h i d", "(b h) i d")),
    (keys_with_keys, full, FULL, "dead input", "with themselves", ("b h i d", "packed")),
    (keys_as_values, full, FULL, "dead input", "values are not used", ("b h i d",)),
    (heads_summed, full, FULL, "heads", "heads take part", ("b h i d", "b i h d")),
    (batch_scaled, full, FULL, "batch", "over the batch", ("b h i d",)),
    (no_normaliser, full, FULL, "rows", "", ("b h i d", "module")),
    (sigmoid, full, FULL, "rows", "", ("single",)),
    (dropped, full, FULL, "deterministic", "dropout", ("b h i d", "module")),
    (in_place, full, FULL, "pure", "in place", ("b h i d",)),
    (half_compared, full, FULL, "dead entries", "", ("b h i d", "module")),
    (normalised_values, full, FULL, "rows", "", ("b i h d",)),
]


def kernels() -> Iterator[Case]:
    for broken, right, contract, law, cause, layouts in BROKEN:
        for layout in layouts:
            heads = {"heads": H} if layout not in ("single",) else {}
            for core, expected, words in ((broken, law, cause), (right, None, "")):
                target, example, axes = LAYOUTS[layout](core)
                yield Case(
                    f"{core.__name__} in {layout}", target, example, axes, {**contract, **heads}, expected, words
                )


__all__ = ["B", "Case", "D", "F", "N", "kernels"]
