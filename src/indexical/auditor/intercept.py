"""Projections of a PyTorch callable by its weights, seen and replaced while it runs.

A projection is a product of an activation with a weight: `nn.Linear`, `x @ w`, an einsum. It is known by the name of
the weight. What it gives can be replaced, so that a module that takes only `x` can be asked about queries, keys and
values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

_PRODUCTS = frozenset("linear matmul __matmul__ mm bmm einsum tensordot addmm __rmatmul__ conv1d conv2d".split())
_VIEWS = frozenset(
    (
        "t",
        "transpose",
        "permute",
        "view",
        "reshape",
        "chunk",
        "split",
        "unbind",
        "__getitem__",
        "contiguous",
        "to",
        "type",
        "unsqueeze",
        "squeeze",
        "expand",
        "swapaxes",
        "mT",
        "T",
        "flatten",
        "unflatten",
        "float",
        "double",
        "type_as",
    )
)


@dataclass
class Projection:
    """One product with a weight: its name, what went in and what came out."""

    name: str
    given: Any
    shape: tuple[int, ...]
    width: int = 0  # How many features it gives.
    parts: tuple[str, ...] = ()  # The projections that it consists of, one a head.
    after: Any = None  # What went in where one row of every sequence, at 0, 1, was another.


@dataclass
class Watch:
    """The projections of one run, and what to put in the place of it."""

    weights: Mapping[int, str]
    inject: dict[str, Any] = field(default_factory=dict)
    seen: list[Projection] = field(default_factory=list)


def watching(watch: Watch) -> Any:
    """A context in which PyTorch's functions are watched."""
    from torch.overrides import TorchFunctionMode

    origins: dict[int, tuple[str, Any]] = {}

    def origin(value: Any) -> str | None:
        known = watch.weights.get(id(value))
        if known is not None:
            return known
        kept = origins.get(id(value))
        return kept[0] if kept is not None and kept[1] is value else None

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            if name == "multi_head_attention_forward":
                with _taken_apart(), self:
                    return func(*args, **kwargs)
            result = func(*args, **kwargs)
            flat = [x for x in (*args, *kwargs.values()) if hasattr(x, "dtype")]
            if name == "__get__":
                name = "T"
            if name in _VIEWS and args and (known := origin(args[0])) is not None:
                parts = result if isinstance(result, tuple | list) else [result]
                for number, part in enumerate(parts):
                    if hasattr(part, "dtype"):
                        label = f"{known}#{number}" if len(parts) > 1 else known
                        origins[id(part)] = (label, part)
            if name in _PRODUCTS and hasattr(result, "dtype"):
                tagged = [(x, known) for x in flat if (known := origin(x)) is not None]
                others = [x for x in flat if origin(x) is None and getattr(x, "ndim", 0) > 1]
                if name in ("linear", "conv1d", "conv2d"):
                    others, tagged = [args[0]], [(x, k) for x, k in tagged if x.ndim > 1]
                if len(tagged) == 1 and others and _is_projection(name, tagged[0][0]):
                    weight, label = tagged[0]
                    repeated = sum(1 for event in watch.seen if event.name.partition("@")[0] == label)
                    label = f"{label}@{repeated}" if repeated else label
                    given = others[0].detach().clone()
                    wide = weight.shape[0] if "conv" in name else weight.numel() // given.shape[-1]
                    watch.seen.append(Projection(label, given, tuple(result.shape), wide))
                    if label in watch.inject:
                        return watch.inject[label].to(result.dtype).reshape(result.shape)
            return result

    return Watching()


@contextmanager
def _taken_apart() -> Iterator[None]:
    """A context in which the library's attention runs step by step, and does not ask again who watches it."""
    import torch

    library: Any = torch.nn.functional
    kept = library.has_torch_function
    library.has_torch_function = lambda arguments: False
    try:
        yield
    finally:
        library.has_torch_function = kept


def _is_projection(name: str, weight: Any) -> bool:
    """Whether a product leaves positions alone: a convolution does where it sees one point at a time."""
    return "conv" not in name or math.prod(weight.shape[2:]) == 1


def by_heads(seen: list[Projection]) -> list[Projection]:
    """The projections, those of queries, keys or values that heads make one by one (`q.0`, `q.1`) as one each."""
    groups: dict[str, list[Projection]] = {}
    for event in seen:
        shared = re.sub(r"(^|\.)\d+(?=\.)", r"\1*", event.name)
        whole = shared != event.name and role_of(event.name) in ("q", "k", "v")
        groups.setdefault(shared if whole else event.name, []).append(event)
    return [
        replace(events[0], name=name, width=sum(e.width for e in events), parts=tuple(e.name for e in events))
        if len(events) > 1
        else events[0]
        for name, events in groups.items()
    ]


# ------------------------------------------------------------------------ roles

_WORDS = {
    "qkv": ("qkv", "query_key_value", "c_attn", "in_proj", "attn_in"),
    "kv": ("kv", "key_value"),
    "q": ("q", "query", "queries", "wq", "lq", "qs"),
    "k": ("k", "key", "keys", "wk", "lk", "ks"),
    "v": ("v", "value", "values", "wv", "lv", "vs"),
    "out": ("out", "o", "output", "dense", "c_proj", "wo", "proj", "lo", "fc", "outp", "final", "unifyheads"),
}


_BEFORE = re.compile(r"^(to|get|proj|linear|lin|fc)(?=quer|key|val|[qkv]$)")  # As in `tokeys`.


def role_of(name: str) -> str | None:
    """The role that a name suggests: `layers.0.q_proj.weight` is `q`."""
    plain = name.partition("#")[0].partition("@")[0].lower()
    parts = [part for part in plain.split(".") if part not in ("weight", "w", "*") and not part.isdigit()]
    last = parts[-1] if parts else name.lower()
    if last in ("weight", "w") and len(parts) > 1:
        last = parts[-2]
    for role in ("qkv", "kv"):
        if any(word in last for word in _WORDS[role]):
            return role
    pieces = [_BEFORE.sub("", piece) for piece in last.replace("-", "_").split("_") if piece]
    for role in ("q", "k", "v"):
        if any(
            piece in _WORDS[role] or piece.startswith({"q": "quer", "k": "key", "v": "val"}[role]) for piece in pieces
        ):
            return role
    if any(piece in _WORDS["out"] for piece in pieces) or last in _WORDS["out"]:
        return "out"
    return None


def find_roles(seen: list[Projection]) -> dict[str, str]:
    """Which projection is which: by name, else by the order in which they are made."""
    if len(seen) in (1, 2) and "#" not in seen[0].name and role_of(seen[0].name) in (None, "qkv", "out"):
        first = {"qkv": seen[0].name}
        if len(seen) == 1 and role_of(seen[0].name) == "out":
            return {}
        return {**first, "out": seen[1].name} if len(seen) == 2 else first
    roles: dict[str, str] = {}
    pieces = [event for event in seen if "#" in event.name]
    if len(pieces) == 3 and len({event.name.partition("#")[0] for event in pieces}) == 1:
        roles = dict(zip("qkv", [event.name for event in sorted(pieces, key=lambda event: event.name)], strict=True))
    for event in seen:
        role = role_of(event.name)
        if event.name not in roles.values() and role is not None and role not in roles:
            roles[role] = event.name
    if len(pieces) == 2 and role_of(pieces[0].name) == "qkv":
        roles = {"q": pieces[0].name, "kv": pieces[1].name, **{r: n for r, n in roles.items() if r == "out"}}
    if {"q", "k", "v"} <= set(roles) or "qkv" in roles or {"q", "kv"} <= set(roles):
        roles.pop("out", None)
        out = _out_of(seen, roles)
        return roles if out is None else {**roles, "out": out}
    in_order = dict(zip(("q", "k", "v", "out"), [event.name for event in seen], strict=False))
    if len(seen) in (3, 4) and len({event.name for event in seen}) == len(seen):
        return in_order if all(role_of(name) in (None, role) for role, name in in_order.items()) else {}
    return {}


def _out_of(seen: list[Projection], roles: Mapping[str, str]) -> str | None:
    """The output projection: the first of such a name that comes after those of queries, keys and values, in the same
    module where there is one; else the last of all."""
    used = {name for role, name in roles.items() if role in ("q", "kv", "k", "v") or "q" not in roles}
    last = max(number for number, event in enumerate(seen) if event.name in used)
    after = [event.name for event in seen[last + 1 :]]
    homes = {name.partition("#")[0].rpartition(".")[0].rpartition(".")[0] for name in used}
    named = [name for name in after if role_of(name) == "out"]
    near = [name for name in named if name.rpartition(".")[0].rpartition(".")[0] in homes]
    plain = [name for name in near or named if _last_word(name) in _WORDS["out"]]
    return next(iter(plain or near or named or after[-1:]), None)


def _last_word(name: str) -> str:
    return next((part for part in reversed(name.lower().split(".")) if part not in ("weight", "w")), "")
