"""Nine layouts of attention, as wrappers around one that takes `b h i d`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Core = Callable[..., Any]
B, H, N, D = 2, 3, 5, 4


def _heads_first(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    shape = (B, H, N, D)
    axes = {"q": "b h i d", "k": "b h j d", "v": "b h j e", "out": "b h i e"}
    return core, _draw({"q": shape, "k": shape, "v": shape}), axes


def _positions_first(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    def attention(q: Any, k: Any, v: Any, **rest: Any) -> Any:
        return core(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **rest).transpose(1, 2)

    shape = (B, N, H, D)
    axes = {"q": "b i h d", "k": "b j h d", "v": "b j h e", "out": "b i h e"}
    return attention, _draw({"q": shape, "k": shape, "v": shape}), axes


def _merged(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    def attention(q: Any, k: Any, v: Any, **rest: Any) -> Any:
        split = [x.view(B, -1, H, D).transpose(1, 2) for x in (q, k, v)]
        return core(*split, **rest).transpose(1, 2).reshape(B, -1, H * D)

    shape = (B, N, H * D)
    axes = {"q": "b i (h d)", "k": "b j (h d)", "v": "b j (h e)", "out": "b i (h e)"}
    return attention, _draw({"q": shape, "k": shape, "v": shape}), axes


def _sequence_first(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    def attention(q: Any, k: Any, v: Any, **rest: Any) -> Any:
        split = [x.view(-1, B, H, D).permute(1, 2, 0, 3) for x in (q, k, v)]
        return core(*split, **rest).permute(2, 0, 1, 3).reshape(-1, B, H * D)

    shape = (N, B, H * D)
    axes = {"q": "i b (h d)", "k": "j b (h d)", "v": "j b (h e)", "out": "i b (h e)"}
    return attention, _draw({"q": shape, "k": shape, "v": shape}), axes


def _batched_heads(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    def attention(q: Any, k: Any, v: Any, **rest: Any) -> Any:
        split = [x.view(B, H, -1, D) for x in (q, k, v)]
        return core(*split, **rest).reshape(B * H, -1, D)

    shape = (B * H, N, D)
    axes = {"q": "(b h) i d", "k": "(b h) j d", "v": "(b h) j e", "out": "(b h) i e"}
    return attention, _draw({"q": shape, "k": shape, "v": shape}), axes


def _packed(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    def attention(qkv: Any, **rest: Any) -> Any:
        q, k, v = qkv.view(B, -1, 3, H, D).permute(2, 0, 3, 1, 4)
        return core(q, k, v, **rest).transpose(1, 2).reshape(B, -1, H * D)

    return attention, _draw({"qkv": (B, N, 3 * H * D)}), {"qkv": "b i (3 h d)", "out": "b i (h d)"}


def _module(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    return Projected(core), _draw({"x": (B, N, H * D)}), {"x": "b i c", "out": "b i c"}


def _single(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    def attention(q: Any, k: Any, v: Any, **rest: Any) -> Any:
        return core(q[:, None], k[:, None], v[:, None], **rest)[:, 0]

    shape = (B, N, D)
    axes = {"q": "b i d", "k": "b j d", "v": "b j e", "out": "b i e"}
    return attention, _draw({"q": shape, "k": shape, "v": shape}), axes


def _cross(core: Core) -> tuple[Core, dict[str, Any], dict[str, str]]:
    axes = {"q": "b h i d", "k": "b h j d", "v": "b h j e", "out": "b h i e"}
    return core, _draw({"q": (B, H, 3, D), "k": (B, H, 7, D), "v": (B, H, 7, 6)}), axes


LAYOUTS: Mapping[str, Callable[[Core], tuple[Core, dict[str, Any], dict[str, str]]]] = {
    "b h i d": _heads_first,
    "b i h d": _positions_first,
    "b i (h d)": _merged,
    "i b c": _sequence_first,
    "(b h) i d": _batched_heads,
    "packed": _packed,
    "module": _module,
    "single": _single,
    "cross": _cross,
}


def _draw(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


class Projected(torch.nn.Module):
    """Attention of `x` with itself."""

    def __init__(self, core: Core, width: int = H * D) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.core = core
        self.heads = H
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (torch.nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Any, **rest: Any) -> Any:
        b, n, c = x.shape
        q, k, v = (p(x).view(b, n, self.heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(self.core(q, k, v, **rest).transpose(1, 2).reshape(b, n, c))
