"""Attention with every guard and bias of the library: as programs, and written out by hand in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

SIZES = {"b": 2, "h": 2, "g": 1, "i": 5, "j": 5, "d": 2, "e": 3, "r": 9, "m": 4}
DOT = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Written:
    """A program, the same by hand, and the arrays that are not drawn: those that are no reals do not move."""

    text: str
    function: Callable[[Arrays], Tensor]
    shapes: Mapping[str, str]
    given: Mapping[str, Any] = field(default_factory=dict)


def places() -> tuple[Tensor, Tensor]:
    """The query's position and the key's, as columns and rows."""
    return torch.arange(SIZES["i"])[:, None], torch.arange(SIZES["j"])[None, :]


def share(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis of what the mask keeps; where it keeps nothing, nothing."""
    if mask is None:
        return torch.softmax(scores, -1)
    mask = mask.expand(scores.shape)
    safe = torch.where(mask, scores, torch.zeros_like(scores))
    raised = torch.where(mask, torch.exp(safe - safe.detach().amax(-1, keepdim=True)), torch.zeros_like(scores))
    total = raised.sum(-1, keepdim=True)
    return raised / torch.where(total > 0, total, torch.ones_like(total))


def scores(a: Arrays) -> Tensor:
    return a["Q"] @ a["K"].transpose(-1, -2) / a["Q"].shape[-1] ** 0.5


def gather(scores: Tensor, a: Arrays, mask: Tensor | None = None) -> Tensor:
    return share(scores, mask) @ a["V"]


def program(guard: str = "", score: str = DOT, more: str = "") -> str:
    where = f" where {guard}" if guard else ""
    return (
        f"input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{more};\n"
        f"let scores[b, h, i, j] = {score};\n"
        f"let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]){where};\n"
        "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);\n"
    )


USUAL = {"Q": "bhid", "K": "bhjd", "V": "bhje"}
DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1], [5, 3, 5, 3, 9]])
MASK = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [1, 0, 1, 0, 1]]).bool()

# ------------------------------------------------------------------------------------------------- who hears whom

Mask = Callable[[Tensor, Tensor], Tensor]
GUARDS: dict[str, tuple[str, Mask]] = {
    "causal": ("j <= i", lambda i, j: j <= i),
    "strictly causal": ("j < i", lambda i, j: j < i),
    "future": ("j >= i", lambda i, j: j >= i),
    "causal window": ("i - 2 < j <= i", lambda i, j: (j <= i) & (i - j < 2)),
    "window": ("i - 2 < j < i + 2", lambda i, j: (i - j).abs() < 2),
    "prefix": ("j < 3 || j <= i", lambda i, j: (j < 3) | (j <= i)),
    "streaming": ("j <= i && (j < 1 || i - 2 < j)", lambda i, j: (j <= i) & ((j < 1) | (i - j < 2))),
    "blocks": ("i / 2 == j / 2", lambda i, j: i // 2 == j // 2),
    "dilated": ("j <= i, (i - j) % 2 == 0", lambda i, j: (j <= i) & ((i - j) % 2 == 0)),
    "others": ("j != i", lambda i, j: i != j),
    "some hear nobody": ("j + 2 < i", lambda i, j: j + 2 < i),
    "nobody": ("j < 0", lambda i, j: (j < 0) & (i < 0)),
}
DATA_GUARDS: dict[str, tuple[str, str, Mapping[str, Any], Callable[[Arrays], Tensor]]] = {
    "documents": (
        "j <= i, doc[b, i] == doc[b, j]",
        ", doc[b, i] : i64",
        {"doc": DOCUMENTS},
        lambda a: (a["doc"][:, :, None] == a["doc"][:, None, :])[:, None] & (places()[1] <= places()[0]),
    ),
    "lengths": (
        "j < n[b]",
        ", n[b] : i64",
        {"n": torch.tensor([3, 0])},
        lambda a: (torch.arange(5) < a["n"][:, None])[:, None, None, :],
    ),
    "mask": ("mask[i, j]", ", mask[i, j] : bool", {"mask": MASK}, lambda a: a["mask"]),
}

# ------------------------------------------------------------------------------------- how it is scored, what is added


def distances() -> Tensor:
    i, j = places()
    return (j - i).to(torch.float64)


def unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x**2).sum(-1, keepdim=True))


CAUSAL = places()[1] <= places()[0]
SCORES: dict[str, tuple[str, Mapping[str, str], Callable[[Arrays], Tensor]]] = {
    "ALiBi": (
        f"{DOT} + slope[h] * (j - i)",
        {"slope": "h"},
        lambda a: scores(a) + a["slope"][:, None, None] * distances(),
    ),
    "bias": (f"{DOT} + bias[h, i, j]", {"bias": "hij"}, lambda a: scores(a) + a["bias"]),
    "bias of a key": (
        f"{DOT} - bias[b, j]",
        {"bias": "bj"},
        lambda a: scores(a) - a["bias"][:, None, None, :],
    ),
    "relative bias": (
        f"{DOT} + bias[h, i - j + size(j) - 1]",
        {"bias": "hr"},
        lambda a: scores(a) + a["bias"][:, places()[0] - places()[1] + 4],
    ),
    "relative bias, clamped": (
        f"{DOT} + bias[h, clamp(i - j, -2, 2) + 2]",
        {"bias": "hr"},
        lambda a: scores(a) + a["bias"][:, (places()[0] - places()[1]).clamp(-2, 2) + 2],
    ),
    "relative keys": (
        f"{DOT} + sum[d](Q[b, h, i, d] * R[i - j + size(j) - 1, d])",
        {"R": "rd"},
        lambda a: scores(a) + torch.einsum("bhid,ijd->bhij", a["Q"], a["R"][places()[0] - places()[1] + 4]),
    ),
    "soft cap": (f"2 * tanh({DOT} / 2)", {}, lambda a: 2 * torch.tanh(scores(a) / 2)),
    "cap that is given": (f"s * tanh({DOT} / s)", {"s": ""}, lambda a: a["s"] * torch.tanh(scores(a) / a["s"])),
    "temperature": (
        f"{DOT} * t[b, h, i]",
        {"t": "bhi"},
        lambda a: scores(a) * a["t"][..., None],
    ),
    "additive": (
        "sum[d](w[d] * tanh(Q[b, h, i, d] + K[b, h, j, d]))",
        {"w": "d"},
        lambda a: (a["w"] * torch.tanh(a["Q"][..., :, None, :] + a["K"][..., None, :, :])).sum(-1),
    ),
    "cosine": (
        "sum[d](Q[b, h, i, d] * K[b, h, j, d]) * rsqrt(sum[d](Q[b, h, i, d] ** 2)) * rsqrt(sum[d](K[b, h, j, d] ** 2))",
        {},
        lambda a: unit(a["Q"]) @ unit(a["K"]).transpose(-1, -2),
    ),
    "distance": (
        "-sum[d]((Q[b, h, i, d] - K[b, h, j, d]) ** 2)",
        {},
        lambda a: -((a["Q"][..., :, None, :] - a["K"][..., None, :, :]) ** 2).sum(-1),
    ),
    "talking heads": (
        "sum[g in 0..size(h)](T[h, g] * sum[d](Q[b, g, i, d] * K[b, g, j, d]))",
        {"T": "hh"},
        lambda a: torch.einsum("hg,bgid,bgjd->bhij", a["T"], a["Q"], a["K"]),
    ),
    "chosen": (
        f"if i == j {{ 0.5 }} else {{ {DOT} }}",
        {},
        lambda a: torch.where(places()[0] == places()[1], torch.tensor(0.5, dtype=torch.float64), scores(a)),
    ),
}


def _inputs(shapes: Mapping[str, str]) -> str:
    """As they are declared; two axes of one size go by two letters."""
    letters = {"T": "h, g in 0..size(h)"}
    brackets = {name: letters.get(name, ", ".join(shape)) for name, shape in shapes.items()}
    return "".join(f", {name}[{axes}]" if axes else f", {name}" for name, axes in brackets.items())


def _guarded(name: str) -> Written:
    guard, mask = GUARDS[name]
    return Written(program(guard), lambda a: gather(scores(a), a, mask(*places())), USUAL)


def _guarded_by_data(name: str) -> Written:
    guard, more, given, mask = DATA_GUARDS[name]
    return Written(program(guard, more=more), lambda a: gather(scores(a), a, mask(a)), USUAL, given)


def _scored(name: str) -> Written:
    score, shapes, function = SCORES[name]
    text = program("j <= i", score, _inputs(shapes))
    return Written(text, lambda a: gather(function(a), a, CAUSAL), {**USUAL, **shapes})


WRITTEN: dict[str, Written] = {
    "full": Written(program(), lambda a: gather(scores(a), a), USUAL),
    **{name: _guarded(name) for name in GUARDS},
    **{name: _guarded_by_data(name) for name in DATA_GUARDS},
    **{name: _scored(name) for name in SCORES},
}
