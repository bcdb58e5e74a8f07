"""Small functions that stand above what kernels are called by in PyTorch, beside those that operations have."""

from __future__ import annotations

from ...engine.dialects import dialect
from ...engine.show.number_helpers import HELPERS as NUMBERS

HELPERS = {
    **NUMBERS,
    **dialect("torch").helpers,
    "turned": '''
def turned(matrices):
    """The same, with the last axis but one side by side in memory. A product of rows with rows, `x @ y.mT`, is several
    times faster so on some processors, where it is small."""
    return matrices.swapaxes(-1, -2).contiguous().swapaxes(-1, -2)
''',
    "pick_some": '''
def pick_some(x, *places):
    """x at these places, None for all. One that is out of bounds gives some number: a guard removes it."""
    for axis, place in enumerate(places):
        if place is not None and x.shape[axis] == 0:
            x = torch.nn.functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [0, 1])
    places = [p if p is None or torch.is_tensor(p) else torch.full((), p, device=x.device) for p in places]
    axes = [axis for axis, place in enumerate(places) if place is not None]
    if axes != list(range(axes[0], axes[-1] + 1)):
        return x[tuple(slice(None) if p is None else p.clamp(0, n - 1) for p, n in zip(places, x.shape))]
    at = 0
    for axis in axes:
        at = at * x.shape[axis] + places[axis].clamp(0, x.shape[axis] - 1)
    # Axes that lie side by side are one: both ways, this is several times as fast as an index for each.
    found = x.flatten(axes[0], axes[-1]).index_select(axes[0], at.flatten())
    return found.reshape((*x.shape[: axes[0]], *at.shape, *x.shape[axes[-1] + 1 :]))
''',
    "add_at": '''
def add_at(total, places, part):
    """Add a part to what there is, at places of its last axes. One that is out of bounds has nothing to add but 0."""
    if total.numel() == 0:
        return
    lead, at = total.ndim - len(places), 0
    for place, count in zip(places, total.shape[lead:]):
        at = at * count + place.clamp(0, count - 1)
    part = part.to(total.dtype).reshape(*total.shape[:lead], at.numel())
    total.flatten(lead).index_add_(lead, at.flatten(), part)
''',
    "attend": '''
def attend(query, key, value, is_causal=False, scale=1.0, enable_gqa=False):
    """PyTorch's fused kernel. On a CPU it is slow for unequal widths and for gaps in the last axis: zeros fill up
    the narrower side, which changes nothing. There it also rounds the weights to 16 bits where the arrays have these:
    they are widened. Keys past the last query are masked under `is_causal`, and not read."""
    if query.is_cpu and query.dtype.itemsize == 2:
        return attend(query.float(), key.float(), value.float(), is_causal, scale, enable_gqa).to(query.dtype)
    width = value.shape[-1]
    if query.shape[-1] != width:
        query, key, value = (
            torch.nn.functional.pad(x, (0, max(query.shape[-1], width) - x.shape[-1])) for x in (query, key, value)
        )
    if is_causal and key.shape[-2] > query.shape[-2]:
        key, value = key[..., : query.shape[-2], :], value[..., : query.shape[-2], :]
    if not query.stride(-1) == key.stride(-1) == value.stride(-1) == 1:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return out if out.shape[-1] == width else out[..., :width]
''',
}
