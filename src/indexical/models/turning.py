"""How fast positions turn the features of queries and keys: by how much for each step, in the numbers that a model has
been trained with, which are of float32."""

from __future__ import annotations

import math
from typing import Any

from .files import unreadable
from .settings import Settings, Sizes


def frequencies(settings: Settings, sizes: Sizes) -> dict[str, Any]:
    """The input `frequency` by the settings of `config.json`, where the rule is the plain one or stretches it."""

    def number(name: str, otherwise: float) -> float:
        said = settings.said(f"rope_parameters.{name}", f"rope_scaling.{name}", name)
        return otherwise if said is None else settings.real(said)

    rules = ("rope_parameters.rope_type", "rope_scaling.rope_type", "rope_scaling.type")
    said = settings.said(*rules)
    rule = "default" if said is None else settings.get(said)
    found = _plain(number("rope_theta", 10000.0), sizes["d"])
    if rule == "linear":
        found = found / number("factor", 1.0)
    elif rule == "llama3":
        found = _stretched(
            found,
            number("factor", 8.0),
            number("low_freq_factor", 1.0),
            number("high_freq_factor", 4.0),
            number("original_max_position_embeddings", 8192.0),
        )
    elif rule != "default":
        raise _unknown(str(said), rule, "default, linear or llama3")
    return {"frequency": found}


def frequencies_of_gguf(settings: Settings, sizes: Sizes) -> dict[str, Any]:
    """The same by the settings of GGUF, which has the factors of a stretched rule as a tensor."""
    rule = settings.get("rope.scaling.type", "none")
    said = settings.said("rope.freq_base")
    found = _plain(10000.0 if said is None else settings.real(said), sizes["d"])
    if rule == "linear":
        found = found / settings.real("rope.scaling.factor")
    elif rule != "none":
        raise _unknown(f"{settings.prefix}rope.scaling.type", rule, "none or linear")
    factors = "rope_freqs.weight"
    if factors in settings.checkpoint.shapes:
        if settings.checkpoint.shapes[factors] != tuple(found.shape):
            raise unreadable(f"`{factors}` has not one factor for each pair of {sizes['d']} features")
        found = found / settings.checkpoint.read(factors)
    return {"frequency": found}


def _unknown(name: str, rule: Any, known: str) -> Exception:
    return unreadable(f"`{name}` is {rule!r:.40}, and positions of the program of this family turn by {known}")


def _plain(base: float, features: int) -> Any:
    """`base ** (-2 k / features)` for each pair `k`, with the roundings of float32 that transformers has."""
    import torch

    return 1.0 / base ** (torch.arange(0, features, 2).float() / features)


def _stretched(plain: Any, factor: float, low: float, high: float, length: float) -> Any:
    """Slow waves divided by a factor, fast ones as they are, and those between in a mixture: a wave is slow where it
    turns less than `low` times over `length` positions, and fast where it turns more than `high` times."""
    import torch

    turns = length / (2 * math.pi / plain)
    share = (turns - low) / (high - low)
    mixed = (1 - share) * plain / factor + share * plain
    return torch.where(turns < low, plain / factor, torch.where(turns > high, plain, mixed))
