"""Mistakes that are told whatever the scores are made of, with rotary positions, caps, biases or groups in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tests.auditor.cases import CAUSAL, FULL, INF, Case, full, scores_of, triangle
from tests.auditor.layouts import LAYOUTS, B, D, H, N, _draw
from tests.auditor.mask_cases import QKV, SQUARE, pair
from torch import nn

SLOPES = [0.5, 0.25, 0.125]


def rotated(x: Any, start: int = 0) -> Any:
    """Features turned by their positions, in halves."""
    n, d = x.shape[-2:]
    rates = 10000 ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angle = (torch.arange(n, dtype=x.dtype) + start)[:, None] * torch.cat([rates, rates])
    return x * angle.cos() + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * angle.sin()


def masked(s: Any, keep: Any = None) -> Any:
    return s.masked_fill(~(triangle(s) if keep is None else keep), -INF)


def twice() -> Iterator[Case]:
    """A softmax of a softmax: with the mask before both or only the first, any scale, any positions."""

    def attention(times: int, turn: bool = False, scale: float = 0.5, again: bool = False) -> Any:
        def of(q: Any, k: Any, v: Any) -> Any:
            q, k = (rotated(q), rotated(k)) if turn else (q, k)
            weights = masked(q @ k.mT * scale).softmax(-1)
            for _ in range(times - 1):
                weights = (masked(weights) if again else weights).softmax(-1)
            return weights @ v

        return of

    for layout in ("b h i d", "module"):
        for words, options, contract in (
            ("plain", {}, CAUSAL),
            ("masked again", {"again": True}, {"causal": True}),
            ("of another scale", {"scale": 0.3}, {"causal": True, "scale": 0.3}),
            ("rotated", {"turn": True}, {**CAUSAL, "rotary": "half"}),
        ):
            for times, law, cause in ((2, "rows", "applied twice"), (1, None, "")):
                target, example, axes = LAYOUTS[layout](attention(times, **options))
                name = f"{times} softmax {words} in {layout}"
                yield Case(name, target, example, axes, {**contract, "heads": H}, law, cause)


def capped() -> Iterator[Case]:
    """A soft cap before the mask, and after it."""

    def attention(late: bool, turn: bool) -> Any:
        def of(q: Any, k: Any, v: Any) -> Any:
            s = scores_of(*((rotated(q), rotated(k)) if turn else (q, k)))
            s = 5 * (masked(s) / 5).tanh() if late else masked(5 * (s / 5).tanh())
            return s.softmax(-1) @ v

        return of

    for turn in (False, True):
        for late in (False, True):
            contract = {"causal": True, "softcap": 5.0, **({"rotary": "half"} if turn else {})}
            name = f"a cap {'after' if late else 'before'} the mask{', rotated' if turn else ''}"
            law, cause = ("causal", "cap is applied after") if late else (None, "")
            yield Case(name, attention(late, turn), _draw(SQUARE), QKV, contract, law, cause)


def ordered() -> Iterator[Case]:
    """Heads in another order, of queries, keys or values; features split before heads."""
    square = _draw(SQUARE)
    for role, words in (("q", "of the queries"), ("k", "of the keys"), ("v", "of the values")):

        def flipped(q: Any, k: Any, v: Any, role: str = role) -> Any:
            q, k, v = (x.flip(1) if name == role else x for name, x in zip("qkv", (q, k, v), strict=True))
            return full(q, k, v)

        yield Case(f"heads of {role} in reverse", flipped, square, QKV, FULL, "heads", f"heads {words} are in another")

    class Split(nn.Module):
        """Projections, of which some are split as (d h)."""

        def __init__(self, other: str) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(H * D, H * D) for _ in range(4))
            self.other, self.heads = other, H

        def forward(self, x: Any) -> Any:
            b, n, c = x.shape
            parts = []
            for name in "qkv":
                y = getattr(self, f"{name}_proj")(x)
                other = name in self.other
                parts.append(y.view(b, n, D, H).permute(0, 3, 1, 2) if other else y.view(b, n, H, D).transpose(1, 2))
            out = full(*parts)
            out = out.permute(0, 2, 3, 1) if "o" in self.other else out.transpose(1, 2)
            return self.out_proj(out.reshape(b, n, c))

    x, axes = _draw({"x": (B, N, H * D)}), {"x": "b i c", "out": "b i c"}
    declared = {**FULL, "heads": H}
    yield Case("queries split as (d h)", Split("q"), x, axes, declared, "heads", "queries are split as (d h)")
    yield Case("keys split as (d h)", Split("k"), x, axes, declared, "heads", "keys are split as (d h)")
    yield Case("all split and merged as (d h)", Split("qkvo"), x, axes, declared)

    def fused(other: bool) -> Any:
        def attention(qkv: Any) -> Any:
            q, k, v = qkv.view(B, -1, 3, H * D).unbind(2)
            q = q.view(B, -1, D, H).permute(0, 3, 1, 2) if other else q.view(B, -1, H, D).transpose(1, 2)
            k, v = (y.view(B, -1, H, D).transpose(1, 2) for y in (k, v))
            return full(q, k, v).transpose(1, 2).reshape(B, -1, H * D)

        return attention

    packed, letters = _draw({"qkv": (B, N, 3 * H * D)}), {"qkv": "b i (3 h d)", "out": "b i (h d)"}
    yield from pair(
        "queries of a packed array as (d h)",
        *(fused(True), fused(False), packed, letters, declared, "heads", "queries are split as (d h)"),
    )


def sloped() -> Iterator[Case]:
    """Slopes of ALiBi in the order of the heads, in every example."""

    def attention(order: str) -> Any:
        def of(q: Any, k: Any, v: Any) -> Any:
            b, h, n, _ = q.shape
            slopes = torch.tensor(SLOPES, dtype=q.dtype)
            laid = {
                "repeat": slopes.repeat(b),
                "repeat_interleave": slopes.repeat_interleave(b),
                "roll": slopes.roll(1).repeat(b),
                "double": 2 * slopes.repeat(b),
            }[order]
            s = scores_of(q, k) + laid.view(b, h, 1, 1) * torch.arange(n)
            return masked(s).softmax(-1) @ v

        return of

    for order, law, cause in (
        ("repeat", None, ""),
        ("repeat_interleave", "alibi", "batch and heads are exchanged"),
        ("roll", "alibi", "another order than the heads"),
        ("double", "alibi", "multiplied by 2"),
    ):
        contract = {**CAUSAL, "alibi": SLOPES}
        yield Case(f"slopes by {order}", attention(order), _draw(SQUARE), QKV, contract, law, cause)


def elsewhere() -> Iterator[Case]:
    """A softmax over the queries or the heads, a mask after the softmax, of rotated queries and keys."""

    def over(axis: int) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            return masked(scores_of(rotated(q), rotated(k))).softmax(axis) @ v

        return attention

    declared = {**CAUSAL, "rotary": "half"}
    for axis, words in ((-2, "over the queries"), (1, "over the heads")):
        yield Case(f"rotated, {words}", over(axis), _draw(SQUARE), QKV, declared, "normalisation", words)
    yield Case("rotated, over the keys", over(-1), _draw(SQUARE), QKV, declared)

    def late(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (scores_of(rotated(q), rotated(k)).softmax(-1) * mask[:, None, None]) @ v

    example, axes = {**_draw(SQUARE), "mask": torch.ones(B, N)}, {**QKV, "mask": "b j"}
    masks = {"scale": "1/sqrt(d)", "rotary": "half", "masks": {"mask": "keep"}}
    yield Case("rotated, masked late", late, example, axes, masks, "rows", "after the softmax")
