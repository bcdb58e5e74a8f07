"""Models of an attention: the one that is declared, and those that differ from it by one mistake.

A model predicts weights. The mistake whose model predicts what was seen, on every draw, is the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .access import Access
from .observing import Draw, own
from .settings import Relation, Setting

Scores = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Model:
    """How weights come about. `law`, `cause` and `mend` are empty for what is declared."""

    relation: Callable[[Setting], Relation]
    scale: Any = 1.0
    bias: Any = 0.0
    softcap: float | None = None
    over: str = "key"
    stage: str = "before"  # The mask is applied before the softmax, after it, to the scores as a factor, …
    late: Callable[[Setting], Relation] | None = None  # What is applied at `stage`, where it is not all.
    fill: float = -np.inf
    scores: Scores | None = None
    gather: str = "key"
    weigh: Callable[[Any], Any] | None = None  # Weights from masked scores, where they are no softmax.
    added: Any = 0.0  # Numbers that are added to the weights themselves.
    maps: dict[str, Any] = field(default_factory=dict)
    law: str = ""
    message: str = ""
    cause: str = ""
    mend: str = ""
    hints: tuple[str, ...] = ()


def dot(access: Access, maps: dict[str, Any], q: Any, k: Any) -> Any:
    return np.einsum("lid,ljd->lij", q[maps["q"]], k[maps["k"]])


def predict(access: Access, model: Model, draw: Draw) -> Any:
    """The weights over (lane, query, lane of the values, key)."""
    maps = {**access.maps, **model.maps}
    raw = model.scores(draw.q, draw.k) if model.scores else dot(access, maps, draw.q, draw.k)
    scores = np.asarray(model.scale)[..., None, None] * raw + model.bias
    allowed = model.relation(draw.setting)
    late = model.late(draw.setting) if model.late else allowed
    if model.softcap and model.stage != "capped":
        scores = model.softcap * np.tanh(scores / model.softcap)
    with np.errstate(all="ignore"):
        if model.stage == "factor":
            weights = _softmax(access, np.where(allowed, scores * late, model.fill), model.over)
        elif model.stage == "added":
            weights = _softmax(access, np.where(allowed, scores + late, model.fill), model.over)
        elif model.stage == "lowered":
            weights = _softmax(access, np.where(allowed, scores, scores + model.fill), model.over)
        elif model.stage == "dropped":
            weights = _softmax(access, np.where(allowed, scores + ~late, model.fill), model.over)
        elif model.stage == "capped":
            capped = float(model.softcap or 1.0)
            weights = _softmax(access, np.where(allowed, capped * np.tanh(scores / capped), -capped), model.over)
        elif model.weigh is not None:
            weights = model.weigh(np.where(allowed, scores, -np.inf))
        elif model.stage == "after":
            weights = _softmax(access, np.where(allowed, scores, -np.inf), model.over) * late
        else:
            weights = _softmax(access, np.where(allowed, scores, model.fill), model.over)
    weights = weights + model.added
    full = np.zeros((*weights.shape[:2], access.count["v"], access.J))
    lanes = np.arange(access.count["out"])
    if model.gather == "query":
        for at in range(min(access.I, access.J)):
            full[lanes, at, maps["v"], at] = weights[:, at].sum(1)
    elif model.gather == "all":
        full[lanes, :, maps["v"], :] = weights.sum(2, keepdims=True)
    else:
        full[lanes, :, maps["v"], :] = weights
    return full


def _softmax(access: Access, scores: Any, over: str) -> Any:
    if over == "key":
        return _exponentials(scores, 2)
    if over == "query":
        return _exponentials(scores, 1)
    if over == "pairs":
        flat = scores.reshape(len(scores), -1)
        return _exponentials(flat, 1).reshape(scores.shape)
    table = access.lanes["out"]
    sizes = [int(index.max()) + 1 for index in table.values()]
    shaped = scores.reshape(*sizes, *scores.shape[1:])
    return _exponentials(shaped, list(table).index(over)).reshape(scores.shape)


def _exponentials(scores: Any, axis: int) -> Any:
    top = scores.max(axis, keepdims=True)
    powers = np.exp(scores - top)
    return powers / powers.sum(axis, keepdims=True)


def agrees(access: Access, model: Model, draws: list[Draw], tolerance: float) -> bool:
    """Whether a model predicts what was seen, in all rows that hear some key by it."""
    some = False
    for draw in draws:
        expected, seen = predict(access, model, draw), draw.full
        if model.over == "key":
            rows = model.relation(draw.setting).any(2)
            expected, seen = expected[rows], seen[rows]
        some |= bool(expected.size)
        if not np.allclose(expected, seen, rtol=tolerance, atol=tolerance, equal_nan=True):
            return False
    return some


# ------------------------------------------------------------------- the scale


def centred(access: Access, values: Any, support: Any, over: str) -> Any:
    """Values less their mean over the axis that is normalised, where they are supported."""
    shape = values.shape
    if over not in ("key", "query"):
        sizes = [int(index.max()) + 1 for index in access.lanes["out"].values()]
        values, support = values.reshape(*sizes, *shape[1:]), support.reshape(*sizes, *shape[1:])
    axis = {"key": 2, "query": 1}.get(over)
    if axis is None:
        axis = list(access.lanes["out"]).index(over)
    count = np.maximum(support.sum(axis, keepdims=True), 1)
    mean = np.where(support, values, 0.0).sum(axis, keepdims=True) / count
    return np.where(support, values - mean, 0.0).reshape(shape)


def logarithms(access: Access, draw: Draw, lanes: Any = None) -> tuple[Any, Any]:
    """The logarithms of weights and where they exist."""
    weights = own(access, draw.full, lanes)
    with np.errstate(all="ignore"):
        support = np.isfinite(weights) & (weights > 1e-200)
        return np.where(support, np.log(np.where(support, weights, 1.0)), 0.0), support


def fit_scale(
    access: Access,
    draws: list[Draw],
    bias: Any,
    over: str = "key",
    scores: Scores | None = None,
    within: Callable[[Setting], Relation] | None = None,
    cap: float | None = None,
    lanes: Any = None,
) -> tuple[Any, float]:
    """The scale of each lane by regression of logarithms on scores, and what part of them it leaves unexplained."""
    seen = []
    for draw in draws:
        values, support = logarithms(access, draw, lanes)
        support = support & within(draw.setting) if within else support
        raw = scores(draw.q, draw.k) if scores else dot(access, access.maps, draw.q, draw.k)
        seen.append((raw, centred(access, values - bias, support, over), support))
    total = sum(float((y * y).sum()) for _, y, _ in seen)
    scale = np.zeros(access.count["out"])
    for _ in range(1 if cap is None else 12):
        top, low, left = np.zeros_like(scale), np.zeros_like(scale), 0.0
        for raw, y, support in seen:
            score = scale[:, None, None] * raw
            slope = raw
            if cap is not None:
                bend = np.tanh(score / cap)
                score, slope = cap * bend, raw * (1 - bend**2)
            x, rest = centred(access, slope, support, over), y - centred(access, score, support, over)
            top, low = top + (x * rest).sum((1, 2)), low + (x * x).sum((1, 2))
        scale = scale + np.where(low > 0, top / np.where(low > 0, low, 1.0), np.nan)
        if np.isnan(scale).all():
            return scale, float("inf")
    known = np.nan_to_num(scale)[:, None, None]
    left = 0.0
    for raw, y, support in seen:
        score = known * raw if cap is None else cap * np.tanh(known * raw / cap)
        left += float(((y - centred(access, score, support, over)) ** 2).sum())
    return scale, (left / total) ** 0.5 if total > 1e-18 else float("inf")
