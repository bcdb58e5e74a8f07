"""How rotary queries and keys are turned, measured: by which angle each pair of features turns from one position to the
next, and why scores do not depend on the distance alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from .inquiry import Inquiry, number
from .models import logarithms
from .observing import observe

_FEATURES = 16  # Features of a head, beyond which too many questions would be asked.
_CLOSE = 1e-3


def turned_apart(inquiry: Inquiry) -> str:
    """In which way queries and keys are turned differently; empty where that cannot be told."""
    access = inquiry.access
    if access.D > _FEATURES or access.D % 2 or min(access.I, access.J) < 3:
        return ""
    turns, heard = _turns(inquiry)
    if turns is None:
        mixed = "cosines and sines are laid out for other pairs of features than those that are exchanged"
        return "" if inquiry.contract.softcap else f"features are stretched, and not only turned: {mixed}"
    planes = _planes(turns, heard)
    if planes is None:
        return "queries and keys are rotated in different pairs of features"
    with np.errstate(invalid="ignore"):
        angles = np.array([np.arctan2(turns[..., a, b], turns[..., a, a]) for a, b in planes])
    angles = np.where(heard, angles, np.nan)
    of_queries = _steps(angles, 1)
    of_keys = -_steps(angles, 2)
    if np.isnan(of_queries).all(1).any() or np.isnan(of_keys).all(1).any():
        return ""
    for name, steps in (("queries", of_queries), ("keys", of_keys)):
        if (np.nanmax(steps, 1) - np.nanmin(steps, 1)).max() > _CLOSE:
            return _irregular(name, steps, of_keys if name == "queries" else of_queries)
    q, k = np.nanmedian(of_queries, 1), np.nanmedian(of_keys, 1)
    at = int(np.abs(q - k).argmax())
    rates = f"features {planes[at][0]} and {planes[at][1]} turn by {number(q[at])} a position, and by {number(k[at])}"
    if np.allclose(q, -k, atol=_CLOSE):
        return f"keys are rotated in the opposite direction to queries: the sign of a sine is wrong ({rates} for keys)"
    if np.allclose(np.sort(np.abs(q)), np.sort(np.abs(k)), atol=_CLOSE):
        return f"the frequencies of the features are in another order for keys than for queries ({rates} for keys)"
    both = np.abs(q) > _CLOSE
    if both.any() and np.ptp(k[both] / q[both]) < _CLOSE:
        return f"positions of the keys are multiplied by {number(float((k[both] / q[both])[0]))} ({rates} for keys)"
    return f"queries and keys are rotated by another base: {rates} for keys"


def _turns(inquiry: Inquiry) -> tuple[Any, Any]:
    """Scores of unit queries with unit keys, over (query, key, feature of the query, feature of the key), as rotations;
    and which pairs are heard."""
    access = inquiry.access
    D = access.D
    found = np.zeros((access.I, access.J, D, D))
    heard = np.zeros((access.I, access.J), bool)
    setting = inquiry.settings.plain()
    unit = (access.sizes.get("d", D)) ** 0.25
    for feature in range(D):
        q = np.zeros(access.shape("q"))
        q[:, :, feature] = unit
        for other in range(D):
            for parity in (0, 1):  # Keys of 0 stand between the others: their score is 0.
                k = np.zeros(access.shape("k"))
                k[:, parity::2, other] = unit
                values, support = logarithms(access, observe(access, q, k, setting, each=False))
                zero = np.where(support[0][:, 1 - parity :: 2], values[0][:, 1 - parity :: 2], np.nan)
                known: Any = ~np.isnan(zero).all(1)
                level = np.array([np.nanmean(row) if some else np.nan for row, some in zip(zero, known, strict=True)])
                heard[:, parity::2] = support[0][:, parity::2] & known[:, None]
                found[:, parity::2, feature, other] = values[0][:, parity::2] - np.nan_to_num(level)[:, None]
    size = np.sqrt((found[heard] ** 2).sum((1, 2)) / D) if heard.any() else np.zeros(1)
    if np.ptp(size) > _CLOSE * size.max():
        return None, heard
    return found / max(size.mean(), 1e-12), heard


def _planes(turns: Any, heard: Any) -> list[tuple[int, int]] | None:
    """The pairs of features that turn into each other, as halves or as neighbours; None where there are no pairs."""
    D = turns.shape[-1]
    half = D // 2
    for pairs in ([(at, at + half) for at in range(half)], [(2 * at, 2 * at + 1) for at in range(half)]):
        inside = np.eye(D, dtype=bool)
        for a, b in pairs:
            inside[a, b] = inside[b, a] = True
        if np.abs(turns[heard][:, ~inside]).max(initial=0.0) < _CLOSE:
            return pairs
    return None


def _steps(angles: Any, axis: int) -> Any:
    """By how much each pair of features turns from one position to the next, over (pair, place)."""
    change = np.diff(angles, axis=axis)
    change = (change + np.pi) % (2 * np.pi) - np.pi
    each = np.moveaxis(change, axis, 1)
    with np.errstate(all="ignore"):
        counts = ~np.isnan(each).all(2)
        middle = np.nanmedian(np.where(counts[..., None], each, 0.0), 2)
    return np.where(counts, middle, np.nan)


def _irregular(name: str, steps: Any, others: Any) -> str:
    """The positions by which queries or keys are turned, where they are not one apart."""
    rate = np.nanmedian(others, 1)
    at = int(np.nanargmax(np.abs(rate)))
    places = np.concatenate([[0.0], np.nancumsum(steps[at] / rate[at])])
    if np.abs(places - np.round(places)).max() < 0.05:
        shown = ", ".join(str(round(place)) for place in places)
        return f"the {name} are rotated by other positions than their own: from the first on, by {shown}"
    return f"the {name} are not turned by as much from each position to the next"
