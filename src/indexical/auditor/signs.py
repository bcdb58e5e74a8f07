"""Signs of mistakes that show whatever the scores are made of: rotary positions, biases, norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from .access import Access
from .inquiry import Inquiry, number
from .models import centred, logarithms
from .observing import Draw, observe, own

_LARGE = 1e4  # Scores beside which all others are nothing.


def softmax_twice(inquiry: Inquiry) -> bool:
    """Whether the weights are a softmax of a softmax: where scores are large, one key has the score 1 and all others 0,
    and their weights are as `exp(1)` to 1."""
    access = inquiry.access
    q, k = inquiry.inputs()[:2]
    size = (_LARGE / max(inquiry.size, 1e-9)) ** 0.5
    weights = own(access, observe(access, q * size, k * size, inquiry.settings.plain(), each=False).full)
    fits, witness = [], ""
    for lane, query in np.ndindex(weights.shape[:2]):
        row = weights[lane, query]
        heard = np.sort(row[row > 0])[::-1]
        if len(heard) < 2 or not np.isfinite(row).all():
            continue
        expected = np.r_[np.e, np.ones(len(heard) - 1)] / (np.e + len(heard) - 1)
        fits.append(bool(np.allclose(heard, expected, rtol=max(1e-4, inquiry.slack))))
        if fits[-1] and not witness:
            most, rest = number(heard[0]), number(heard[-1])
            witness = f"with large scores, {inquiry.out_at(lane, query)} gives one key the weight {most}, others {rest}"
    if len(fits) < 2 or np.mean(fits) < 0.6:
        return False
    inquiry.report(
        "rows",
        "the weights of a query are no softmax of its scores",
        f"{witness}: as exp(1) to exp(0)",
        "the softmax is applied twice: to the scores, and to the weights that it gave",
        "the weights are `softmax(scores)` over the keys, once",
        (r"softmax\s*\(.*", r"exp\s*\(.*"),
    )
    return True


def capped_late(inquiry: Inquiry, violations: list[dict[str, Any]]) -> bool:
    """Whether masked scores are minus the soft cap: for queries of 0, masked keys are that far below all others."""
    access, cap = inquiry.access, inquiry.contract.softcap
    if cap is None:
        return False
    found = []
    q, k = inquiry.inputs()[:2]
    varied = bool(inquiry.settings.plain().keeps) or inquiry.contract.documents is not None
    for setting in [inquiry.settings.plain(), *([inquiry.settings.draw(inquiry.rng)] if varied else [])]:
        values, support = logarithms(access, observe(access, np.zeros_like(q), k, setting, each=False))
        allowed = inquiry.settings.declared(setting)
        for row, marks, keeps in zip(
            values.reshape(-1, access.J), support.reshape(-1, access.J), allowed.reshape(-1, access.J), strict=True
        ):
            if (marks & keeps).any() and (marks & ~keeps).any():
                found += list(row[marks & ~keeps] - row[marks & keeps].mean())
    if not found or not np.allclose(found, -cap, rtol=1e-3, atol=10 * inquiry.slack):
        return False
    item = violations[0]
    inquiry.report(
        item["law"],
        item["message"],
        item["witness"],
        f"the soft cap is applied after the mask: masked scores become -{number(cap)}, and not -inf",
        "cap the scores first, then mask them",
        (r"tanh.*", r"masked_fill.*"),
    )
    return True


def slopes_cause(access: Access, bias: Any, support: Any, slopes: Any, heads: Any) -> tuple[str, str]:
    """Why biases are not `-slope * (i - j)`, the slope being that of the head: the cause and the mend."""
    distance = np.arange(access.J)[None, :] - np.arange(access.I)[:, None] - (access.J - access.I)
    backwards = centred(access, np.broadcast_to(np.abs(distance) * -1.0, bias.shape), support, "key")
    mend = "add `-slope * (i - j)` to the scores, after they are scaled"
    if np.abs(bias).max() < 1e-9:
        return "the bias is not added", mend
    measured = (bias * backwards).sum((1, 2)) / np.maximum((backwards**2).sum((1, 2)), 1e-30)
    if not np.allclose(bias, measured[:, None, None] * backwards, atol=1e-6):
        return "the bias is not -slope × distance", mend
    ratio = measured / slopes[heads]
    if np.allclose(ratio, ratio[0], rtol=1e-5):
        if np.isclose(ratio[0], -1):
            return "the slopes have the wrong sign: far keys are preferred", mend
        if np.isclose(ratio[0], access.D**-0.5):
            return "the bias is added before the scores are scaled, and scaled with them", "scale the scores first"
        return f"the slopes are multiplied by {number(float(ratio[0]))}", mend
    mend = "slopes[h] belongs to head h, in every example: `slopes.view(1, -1, 1, 1)`, or `slopes.repeat(batch)`"
    of_heads = [set(np.round(measured[heads == head], 9)) for head in range(int(heads.max()) + 1)]
    if any(len(each) > 1 for each in of_heads):
        return "a head has another slope in another example: batch and heads are exchanged in the slopes", mend
    alone = [min(each) for each in of_heads]
    if np.allclose(alone, alone[0]):
        return f"all heads have the slope {'of the first' if np.isclose(alone[0], slopes[0]) else 'of one'}", mend
    if np.allclose(alone, slopes[::-1][: len(alone)]):
        return "the slopes are in the reverse order of the heads", mend
    if np.allclose(np.sort(alone), np.sort(slopes[: len(alone)])):
        return "the slopes are in another order than the heads", mend
    return f"the slopes are {', '.join(number(float(each)) for each in alone)}", mend


def normalised_elsewhere(inquiry: Inquiry, draws: list[Draw], violations: list[dict[str, Any]]) -> bool:
    """Whether weights sum to 1 over the queries, the heads or the batch, and not over the keys; then it is reported."""
    access = inquiry.access
    table = access.lanes["out"]
    sizes = [int(index.max()) + 1 for index in table.values()]
    names = {"h": "heads", "g": "heads", "b": "batch"}
    axes = [("queries", len(sizes)), *((names.get(letter, f"axis `{letter}`"), at) for at, letter in enumerate(table))]
    shaped = [own(access, draw.full).reshape(*sizes, access.I, access.J) for draw in draws]
    allowed = [inquiry.settings.declared(draw.setting).reshape(shaped[0].shape) for draw in draws]

    def sums(axis: int) -> bool:
        """Whether the weights of what is heard sum to 1 along an axis of (…, query, key)."""
        seen = 0
        for weights, keeps in zip(shaped, allowed, strict=True):
            total = weights.sum(axis)
            judged = keeps.any(axis) & np.isfinite(total)
            if (np.abs(total - 1)[judged] > max(inquiry.slack, 1e-6)).any():
                return False
            seen += int(judged.sum())
        return seen > 1

    if sums(-1):
        return False
    for name, axis in axes:
        if shaped[0].shape[axis] < 2 or not sums(axis):
            continue
        inquiry.report(
            "normalisation",
            f"the weights sum to 1 over the {name}, and not over the keys",
            violations[0]["witness"],
            f"the softmax is over the {name}, and not over the keys",
            "normalise over the keys: `softmax(dim=-1)` of scores whose last axis is the key",
            (r"softmax\s*\(.*", r"exp\s*\(.*"),
        )
        return True
    return False


def masked_late(inquiry: Inquiry, draws: list[Draw], violations: list[dict[str, Any]]) -> bool:
    """Whether a mask leaves the weights of the keys that it keeps as they are without it; then it is reported."""
    settings, access = inquiry.settings, inquiry.access
    for draw in draws:
        if all(keep.all() for keep in draw.setting.keeps.values()):
            continue
        before, after = inquiry.weights(draw.q, draw.k, settings.plain()), own(access, draw.full)
        allowed = settings.declared(draw.setting)
        if not (~allowed & (before > 0)).any() or not np.allclose(
            np.where(allowed, before, 0.0), after, atol=max(inquiry.slack, 1e-7)
        ):
            return False
        names = " and ".join(f"`{name}`" for name in draw.setting.keeps)
        inquiry.report(
            "rows",
            "the weights that the mask leaves do not sum to 1",
            violations[0]["witness"],
            f"the mask ({names}) is applied after the softmax, and the rest is not normalised again",
            "mask the scores with -inf before the softmax, or divide by the sum of what is left",
            (r"masked_fill.*|where\s*\(.*", r"mask.*"),
        )
        return True
    return False
