"""Who takes part: a peer is built for one cell, as a function of `q, k, v` with everything else made beforehand.

Where a peer cannot state a variant, it says why. What it cannot run shows when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

import indexical as ix

from .variants import HEADS, Inputs, Setting, points

Call = Callable[[], Tensor]
Built = Call | str


class Absent(Exception):
    """A peer that is not installed."""


@cache
def compiled(text: str) -> ix.Program:
    """A program is compiled once and called at many sizes."""
    return ix.compile(text)


def ours(setting: Setting, inputs: Inputs) -> Built:
    program = compiled(setting.variant.program)
    q, k, v = inputs.q, inputs.k, inputs.v
    match [inputs.extras[name] for name in program.inputs[3:]]:
        case []:
            return lambda: program(q, k, v)
        case [extra]:
            return lambda: program(q, k, v, extra)
        case extras:
            return lambda: program(q, k, v, *extras)


def direct(setting: Setting, inputs: Inputs) -> Built:
    """The plain call, without a mask."""
    q, k, v = inputs.q, inputs.k, inputs.v
    if setting.variant.direct is None:
        return "it needs a mask"
    if setting.variant.key_heads != HEADS:
        return lambda: sdpa(q, k, v, is_causal=True, enable_gqa=True)
    if setting.variant.direct == "full":
        return lambda: sdpa(q, k, v)
    return lambda: sdpa(q, k, v, is_causal=True)


def masked(setting: Setting, inputs: Inputs) -> Built:
    """A Boolean mask of four axes, made once."""
    q, k, v, grouped = inputs.q, inputs.k, inputs.v, setting.variant.key_heads != HEADS
    if setting.variant.change is not None:
        return "a Boolean mask changes no score"
    mask = dense_mask(setting, inputs)
    if mask is None:
        return "nothing is masked"
    return lambda: sdpa(q, k, v, attn_mask=mask, enable_gqa=grouped)


def biased(setting: Setting, inputs: Inputs) -> Built:
    """A bias of four axes in the dtype of the inputs, minus infinity where the guard fails."""
    return _biased(setting, inputs, setting.dtype)


def biased_wide(setting: Setting, inputs: Inputs) -> Built:
    """The same in float32 beside narrower inputs."""
    if setting.dtype == torch.float32 or setting.variant.added is None:
        return "the bias is as wide already"
    return _biased(setting, inputs, torch.float32)


def _biased(setting: Setting, inputs: Inputs, dtype: torch.dtype) -> Built:
    q, k, v, grouped = inputs.q, inputs.k, inputs.v, setting.variant.key_heads != HEADS
    if setting.variant.changed is not None:
        return "a bias is only added"
    if setting.variant.added is None and setting.variant.guard is None:
        return "there is no bias"
    bias = dense_bias(setting, inputs, dtype)
    if bias.requires_grad:  # What is learned has to be read anew in every step.
        return lambda: sdpa(q, k, v, attn_mask=dense_bias(setting, inputs, dtype), enable_gqa=grouped)
    return lambda: sdpa(q, k, v, attn_mask=bias, enable_gqa=grouped)


def eager(setting: Setting, inputs: Inputs) -> Built:
    """`matmul`, `softmax`, `matmul`, with the mask and the bias made once."""
    q, k, v, repeats = inputs.q, inputs.k, inputs.v, HEADS // setting.variant.key_heads
    finish = _finish(setting, inputs)
    scale = q.shape[-1] ** -0.5
    if repeats == 1:
        return lambda: finish(q @ k.mT * scale).softmax(-1) @ v

    def call() -> Tensor:
        keys, values = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        return finish(q @ keys.mT * scale).softmax(-1) @ values

    return call


def einops(setting: Setting, inputs: Inputs) -> Built:
    einops = _installed("einops")
    q, k, v, groups = inputs.q, inputs.k, inputs.v, setting.variant.key_heads
    finish = _finish(setting, inputs)
    scale = q.shape[-1] ** -0.5
    if groups == HEADS:

        def call() -> Tensor:
            weights = finish(einops.einsum(q, k, "b h i d, b h j d -> b h i j") * scale).softmax(-1)
            return einops.einsum(weights, v, "b h i j, b h j e -> b h i e")  # type: ignore[no-any-return]

        return call

    def call_grouped() -> Tensor:
        asked = einops.rearrange(q, "b (g r) i d -> b g r i d", g=groups)
        scores = einops.einsum(asked, k, "b g r i d, b g j d -> b g r i j") * scale
        weights = finish(scores).softmax(-1)
        found = einops.einsum(weights, v, "b g r i j, b g j e -> b g r i e")
        return einops.rearrange(found, "b g r i e -> b (g r) i e")  # type: ignore[no-any-return]

    return call_grouped


def einx(setting: Setting, inputs: Inputs) -> Built:
    einx = _installed("einx")
    q, k, v, groups = inputs.q, inputs.k, inputs.v, setting.variant.key_heads
    finish = _finish(setting, inputs)
    scale = q.shape[-1] ** -0.5

    def call() -> Tensor:
        scores = einx.dot("b (g r) i d, b g j d -> b (g r) i j", q, k, g=groups) * scale
        weights = einx.softmax("b h i [j]", finish(scores))
        return einx.dot("b (g r) i j, b g j e -> b (g r) i e", weights, v, g=groups)  # type: ignore[no-any-return]

    return call


def flex(setting: Setting, inputs: Inputs) -> Built:
    """Compiled FlexAttention with its blocks found beforehand; compiled anew for the cell, sizes fixed."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    variant, n, extras = setting.variant, setting.size, inputs.extras
    q, k, v, grouped = inputs.q, inputs.k, inputs.v, variant.key_heads != HEADS
    if inputs.q.requires_grad and setting.device == "cpu":
        return "it has no backward on the CPU"
    guard, change = variant.guard, variant.change
    options: dict[str, Any] = {"enable_gqa": grouped}
    if guard is not None:

        def keeps(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
            return guard(extras, n, b, h, i, j)

        options["block_mask"] = create_block_mask(keeps, None, None, n, n, device=setting.device)
    if change is not None:

        def changed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
            return change(score, extras, n, b, h, i, j)

        options["score_mod"] = changed
    torch._dynamo.reset()
    attend = torch.compile(flex_attention, dynamic=False)
    return lambda: attend(q, k, v, **options)


Builder = Callable[[Setting, Inputs], Built]
OURS = "ours"
PEERS: dict[str, Builder] = {
    "sdpa": direct,
    "sdpa mask": masked,
    "sdpa bias": biased,
    "sdpa bias f32": biased_wide,
    "flex": flex,
    "eager": eager,
    "einops": einops,
    "einx": einx,
}
CONTESTANTS: dict[str, Builder] = {OURS: ours, **PEERS}


def dense_mask(setting: Setting, inputs: Inputs) -> Tensor | None:
    """The guard at every pair, over heads or batch only where they matter."""
    guard = setting.variant.guard
    if guard is None:
        return None
    mask: Tensor = guard(inputs.extras, setting.size, *points(1, setting.size, setting.device))
    return mask.expand(1, 1, *mask.shape[-2:]).contiguous()


def dense_bias(setting: Setting, inputs: Inputs, dtype: torch.dtype) -> Tensor:
    """What is added to every score, in four axes; minus infinity where the guard fails."""
    variant, size = setting.variant, setting.size
    bias = torch.zeros(1, 1, size, size, dtype=dtype, device=setting.device)
    if variant.added is not None:
        extras = {name: t.to(dtype) if t.is_floating_point() else t for name, t in inputs.extras.items()}
        found: Tensor = variant.added(0, extras, size, *points(HEADS, size, setting.device))
        bias = found.expand(1, HEADS, size, size).to(dtype)
    mask = dense_mask(setting, inputs)
    return bias if mask is None else bias.masked_fill(~mask, float("-inf"))


def _finish(setting: Setting, inputs: Inputs) -> Callable[[Tensor], Tensor]:
    """Scores with their bias, their cap and their mask, for those who build them whole."""
    variant = setting.variant
    if variant.added is not None:
        bias = dense_bias(setting, inputs, setting.dtype)
        if bias.requires_grad:
            return lambda scores: scores + dense_bias(setting, inputs, setting.dtype)
        return lambda scores: scores + bias
    mask = dense_mask(setting, inputs)
    banned = None if mask is None else ~mask
    if banned is None:
        return lambda scores: scores
    if variant.changed is None:
        return lambda scores: scores.masked_fill(banned, float("-inf"))
    changed, extras, size = variant.changed, inputs.extras, setting.size
    where = points(HEADS, size, setting.device)
    return lambda scores: changed(scores, extras, size, *where).masked_fill(banned, float("-inf"))


def _installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise Absent(f"{name} is not installed") from problem
