"""Whether queries and keys are rotated alike: seen where their projections are made the same.

A query and a key of one token are then the same vector, and are so after a rotation by the same position. Where they
are not, and are as long as each other, one of them was rotated otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .running import Run, Side

_NAMES = (("q_proj", "k_proj"), ("query", "key"), ("wq", "wk"), ("to_q", "to_k"), ("q_lin", "k_lin"), ("q", "k"))
_WORDS = re.compile(r"rot(ary|ation|ate)|rope|freqs|inv_freq|(^|_)(cos|sin)($|_)", re.IGNORECASE)
_SHIFTS = (1, -1, 2, -2, 3, -3)


@dataclass
class Fault:
    """A module whose queries and keys are rotated otherwise, and how."""

    name: str
    module: Any
    witness: str
    cause: str


def rotation_fault(side: Side) -> Fault | bool:
    """The first module whose queries and keys are not rotated alike; else whether any could be asked."""
    pairs = dict(_pairs(side.model)) if _is_rotary(side.model) else {}
    if not pairs:
        return False
    ids = side.ids[:, :1].expand_as(side.ids).contiguous()
    sizes = {name: query.shape[-1] for name, (query, _) in _products(side, ids, pairs).items()}
    asked = False
    with _alike(pairs, sizes):
        for name, (query, key) in _products(side, ids, pairs).items():
            if key.ndim == query.ndim == 4 and query.shape[1] != key.shape[1] and query.shape[1] % key.shape[1] == 0:
                key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
            if query.shape != key.shape:
                continue
            long, other = query.norm(dim=-1), key.norm(dim=-1)
            scale = float(long.max())
            if float((long - other).abs().max()) > 1e-4 * scale:
                continue  # They are not the same vectors: a gain, or another width, comes between.
            asked = True
            change = (query - key).norm(dim=-1).amax(tuple(range(query.ndim - 2)))
            if float(change.max()) > 1e-2 * scale:
                at = int(change.argmax())
                apart = f"{float(change[at]) / scale:.2g} of their length apart"
                words = f"a query and a key at position {at}, from the same numbers, are {apart}"
                return Fault(name, pairs[name][0], words, _cause(query, key, scale))
    return asked


def _is_rotary(model: Any) -> bool:
    """Whether something in a model is named as rotations are."""
    names = {text for name, part in model.named_modules() for text in (name, type(part).__name__, *vars(part))}
    names |= {name for name, _ in model.named_buffers()}
    return any(_WORDS.search(name) for name in names)


def _cause(query: Any, key: Any, scale: float) -> str:
    """By how many positions keys are rotated late, where that explains them: all tokens are the same."""
    for late in _SHIFTS:
        size = query.shape[-2] - abs(late)
        one = query.narrow(-2, max(late, 0), size)
        two = key.narrow(-2, max(-late, 0), size)
        if float((one - two).norm(dim=-1).max()) < 1e-3 * scale:
            number = f"{abs(late)} position{'s' if abs(late) > 1 else ''}"
            return f"keys are rotated as if they stood {number} {'later' if late > 0 else 'earlier'}"
    return "queries and keys are not rotated alike: by another position, base, direction or pairing"


def _pairs(model: Any) -> Iterator[tuple[str, tuple[Any, Any, Any]]]:
    """Modules with a projection of queries and one of keys, both of the same features."""
    import torch

    for name, module in model.named_modules():
        for first, second in _NAMES:
            query, key = getattr(module, first, None), getattr(module, second, None)
            if type(query) is type(key) is torch.nn.Linear and query.in_features == key.in_features:
                yield name, (module, query, key)
                break


@contextmanager
def _alike(pairs: dict[str, tuple[Any, Any, Any]], sizes: dict[str, int]) -> Iterator[None]:
    """Queries are projected and normed with the numbers for keys, those of their group, while this lasts."""
    was: list[tuple[Any, Any]] = []

    def put(one: Any, other: Any, size: int) -> None:
        if one is None or other is None:
            return
        rows, wanted = len(other), len(one)
        if rows % size or wanted % rows:
            return
        value = other.data.unflatten(0, (rows // size, size)).repeat_interleave(wanted // rows, 0).flatten(0, 1)
        was.append((one, one.data))
        one.data = value.to(one.dtype)

    for name, (module, query, key) in pairs.items():
        size = sizes.get(name)
        if not size:
            continue
        for field in ("weight", "bias"):
            put(getattr(query, field), getattr(key, field), size)
        norms = [(part, getattr(module, f"k{part[1:]}", None)) for part, _ in module.named_children() if part[0] == "q"]
        for part, other in norms:
            one = getattr(module, part)
            for field, value in getattr(one, "_parameters", {}).items():
                twin = getattr(other, field, None)
                if one is not query and value is not None and twin is not None and value.shape == twin.shape:
                    was.append((value, value.data))
                    value.data = twin.data.clone()
    try:
        yield
    finally:
        for each, value in reversed(was):
            each.data = value


def _products(side: Side, ids: Any, pairs: dict[str, tuple[Any, Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """The queries and keys whose products are the scores, by the module that projects them; the first of each."""
    from torch.overrides import TorchFunctionMode

    length = ids.shape[1]
    stack: list[str] = []
    found: dict[str, tuple[Any, Any]] = {}

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            if stack and stack[-1] not in found and len(given) > 1:
                pair = _scored(name, given[0], given[1], length)
                if pair is not None:
                    found[stack[-1]] = pair
            return function(*given, **(named or {}))

    def enter(name: str) -> Callable[..., None]:
        return lambda module, given: stack.append(name)

    def leave(module: Any, given: Any, returned: Any) -> None:
        stack.pop()

    handles = []
    for name, (module, _, _) in pairs.items():
        handles += [module.register_forward_pre_hook(enter(name)), module.register_forward_hook(leave)]
    try:
        with Mode():
            side.go(Run(ids))
    finally:
        for handle in handles:
            handle.remove()
    return found


def _scored(name: str, query: Any, key: Any, length: int) -> tuple[Any, Any] | None:
    """Queries and keys, each (…, position, feature), of a call that takes their products."""
    if getattr(query, "ndim", 0) < 3 or getattr(key, "ndim", 0) < 3:
        return None
    if name in ("matmul", "__matmul__", "bmm"):
        key = key.transpose(-1, -2)
    elif name != "scaled_dot_product_attention":
        return None
    fits = query.shape[-2] == key.shape[-2] == length and query.shape[-1] == key.shape[-1] != length
    return (query.detach().clone(), key.detach().clone()) if fits else None
