"""FlexAttention by its definition: whole scores, to which the functions of score and mask are applied at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MODULE = "torch.nn.attention.flex_attention"


@contextmanager
def flex_by_definition() -> Iterator[None]:
    """A context in which FlexAttention is neither compiled nor a kernel, where it was loaded at all: not by itself, nor
    by whoever calls it."""
    library: Any = sys.modules.get(_MODULE)
    if library is None or not hasattr(library, "flex_attention_hop"):
        yield
        return
    kept = library._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, library.flex_attention_hop
    library._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, library.flex_attention_hop = True, _attention
    try:
        with sys.modules["torch"].compiler.set_stance("force_eager"):
            yield
    finally:
        library._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, library.flex_attention_hop = kept


def _attention(
    q: Any, k: Any, v: Any, score_mod: Any, block_mask: tuple[Any, ...], scale: float, *rest: Any
) -> tuple[Any, Any, Any]:
    """The output, and the statistics of its rows in powers of 2, as the library returns them."""
    import torch

    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = (q @ k.transpose(-2, -1)) * scale
    places = [
        torch.arange(size, device=q.device).view([-1 if axis == at else 1 for axis in range(4)])
        for at, size in enumerate(scores.shape)
    ]
    scores = _everywhere(score_mod, scores, *places)
    keep = _everywhere(block_mask[-1], None, *places)
    scores = torch.where(keep, scores, -torch.inf)
    log2 = torch.logsumexp(scores, -1) * 1.4426950408889634
    return torch._safe_softmax(scores, -1).to(v.dtype) @ v, log2, scores.amax(-1) * 1.4426950408889634


def _everywhere(function: Any, score: Any, *places: Any) -> Any:
    """A function of one score, or of none, and its four coordinates, at all of them at once."""
    import torch

    given = places if score is None else (score, *places)
    try:
        return function(*given)
    except (RuntimeError, TypeError, ValueError, IndexError):  # It takes single numbers only.
        flat = [place.reshape(-1) for place in places]
        for axis in (3, 2, 1, 0):
            dims = tuple(0 if at == axis else None for at in range(4))
            function = torch.vmap(function, in_dims=dims if score is None else (0, *dims))
        return function(*flat) if score is None else function(score, *flat)
