"""The variants as PyTorch states them: which pairs are left, what becomes of a score, and random inputs.

A guard and a change of score are written once, over whole numbers or tensors of them, so that masks, biases,
FlexAttention and the exact evaluation all say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .programs import PROGRAMS

BATCH, HEADS, WIDTH = 1, 8, 64
WINDOW = 256
# How long the packed documents are, in parts of the whole.
DOCUMENTS = (3, 1, 6, 2, 9, 4, 5, 2)

Extras = dict[str, Tensor]
# Given the further inputs, the number of positions, and b, h, i, j.
Guard = Callable[[Extras, int, Any, Any, Any, Any], Any]
# The same with the score in front.
Change = Callable[[Any, Extras, int, Any, Any, Any, Any], Any]


def nothing(_: int, __: torch.Generator) -> Extras:
    return {}


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of attention. `direct` says which plain call is the same: `full` or `causal`.

    `added` is a change of score that adds a bias, `changed` any other; a `learned` input gets a gradient.
    """

    name: str
    direct: str | None = None
    guard: Guard | None = None
    added: Change | None = None
    changed: Change | None = None
    key_heads: int = HEADS
    value_width: int = WIDTH
    extras: Callable[[int, torch.Generator], Extras] = nothing
    learned: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        return PROGRAMS[self.name]

    @property
    def change(self) -> Change | None:
        return self.added or self.changed


@dataclass(frozen=True, slots=True)
class Setting:
    """One cell: a variant at a size, in a dtype, on a device."""

    variant: Variant
    size: int
    dtype: torch.dtype
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.variant.name}, N = {self.size}, {short(self.dtype)}"


@dataclass(frozen=True, slots=True)
class Inputs:
    q: Tensor
    k: Tensor
    v: Tensor
    extras: Extras
    cotangent: Tensor

    def leaves(self, variant: Variant) -> tuple[Tensor, ...]:
        return self.q, self.k, self.v, *(self.extras[name] for name in variant.learned)


def short(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}[dtype]


def draw(setting: Setting, backward: bool = False) -> Inputs:
    """The same numbers in every process, rounded to the dtype; drawn on the CPU."""
    variant, size = setting.variant, setting.size
    source = torch.Generator().manual_seed(size)

    def place(tensor: Tensor, tracked: bool = False) -> Tensor:
        if tensor.is_floating_point():
            tensor = tensor.to(setting.dtype)
        return tensor.to(setting.device).requires_grad_(tracked and backward)

    def normal(heads: int, width: int) -> Tensor:
        return torch.randn(BATCH, heads, size, width, generator=source)

    q, k = place(normal(HEADS, WIDTH), True), place(normal(variant.key_heads, WIDTH), True)
    v = place(normal(variant.key_heads, variant.value_width), True)
    extras = {name: place(tensor, name in variant.learned) for name, tensor in variant.extras(size, source).items()}
    return Inputs(q, k, v, extras, place(normal(HEADS, variant.value_width)))


def points(heads: int, size: int, device: str, rows: slice = slice(None)) -> tuple[Tensor, ...]:
    """`b, h, i, j` as whole numbers along four axes; of the queries only some rows."""
    b, h, i, j = (torch.arange(end, device=device) for end in (BATCH, heads, size, size))
    return b[:, None, None, None], h[:, None, None], i[rows][:, None], j


# --------------------------------------------------------------- guards, changes of score, further inputs


def causal(_: Extras, n: int, b: Any, h: Any, i: Any, j: Any) -> Any:
    return j <= i


def window(_: Extras, n: int, b: Any, h: Any, i: Any, j: Any) -> Any:
    return (j <= i) & (i - j < WINDOW)


def one_document(extras: Extras, n: int, b: Any, h: Any, i: Any, j: Any) -> Any:
    document = extras["document"]
    return (j <= i) & (document[b, i] == document[b, j])


def prefix(_: Extras, n: int, b: Any, h: Any, i: Any, j: Any) -> Any:
    return (j < n // 4) | (j <= i)


def allowed(extras: Extras, n: int, b: Any, h: Any, i: Any, j: Any) -> Any:
    return extras["allowed"][i, j]


def distance(score: Any, extras: Extras, n: int, b: Any, h: Any, i: Any, j: Any) -> Any:
    return score + extras["slope"][h] * (j - i)


def cap(score: Any, _: Extras, n: int, b: Any, h: Any, i: Any, j: Any) -> Any:
    return 50 * torch.tanh(score / 50)


def relative(score: Any, extras: Extras, n: int, b: Any, h: Any, i: Any, j: Any) -> Any:
    return score + extras["bias"][h, i - j + n - 1]


def documents(n: int, _: torch.Generator) -> Extras:
    ends = torch.tensor(DOCUMENTS).cumsum(0) * n // sum(DOCUMENTS)
    return {"document": torch.searchsorted(ends, torch.arange(n), right=True)[None]}


def slopes(_: int, __: torch.Generator) -> Extras:
    return {"slope": 2.0 ** -(torch.arange(HEADS) + 1.0)}


def random_mask(n: int, source: torch.Generator) -> Extras:
    """Half of all pairs, and everybody hears itself."""
    return {"allowed": (torch.rand(n, n, generator=source) < 0.5) | torch.eye(n, dtype=torch.bool)}


def random_bias(n: int, source: torch.Generator) -> Extras:
    return {"bias": torch.randn(HEADS, 2 * n - 1, generator=source)}


_ALL = (
    Variant("full", "full"),
    Variant("causal", "causal", causal),
    Variant("full by hand", "full"),
    Variant("causal by hand", "causal", causal),
    Variant("window", guard=window),
    Variant("documents", guard=one_document, extras=documents),
    Variant("alibi", guard=causal, added=distance, extras=slopes),
    Variant("prefix", guard=prefix),
    Variant("softcap", guard=causal, changed=cap),
    Variant("mask", guard=allowed, extras=random_mask),
    Variant("grouped", "causal", causal, key_heads=2),
    Variant("narrow values", "causal", causal, value_width=WIDTH // 2),
    Variant("relative", added=relative, extras=random_bias, learned=("bias",)),
)
VARIANTS = {variant.name: variant for variant in _ALL}
