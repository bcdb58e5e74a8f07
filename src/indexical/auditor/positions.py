"""Rotary laws: scores depend on the distance alone, features turn in the declared pairs, each row at its position."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from .access import Direct
from .inquiry import Inquiry, number
from .models import logarithms
from .observing import observe
from .scores import Norm, judge_normed, judge_scale, norms
from .turning import turned_apart

NOT_ROTATED = "neither queries nor keys are rotated"
_ROTARY = (r"rot\w*.*|cos.*|sin.*",)


def rotary_law(inquiry: Inquiry) -> bool:
    """Whether rotary positions are declared; their laws."""
    access, contract = inquiry.access, inquiry.contract
    if contract.rotary is None:
        return False
    rng = np.random.default_rng(11)
    a, b = rng.normal(size=access.D), rng.normal(size=access.D)
    size = (2.0 / access.D) ** 0.5
    values, support = _scores(
        inquiry, np.broadcast_to(a, access.shape("q")) * size, np.broadcast_to(b, access.shape("k")) * size
    )
    if not (support.sum(2) > 1).any():
        inquiry.cannot("rotary", "no query hears two keys, so that positions do not show")
        return True
    inquiry.tested("rotary")
    # Cosines and sines are often tables of few digits: what they are off by grows with the scores.
    coarse = inquiry.access.foreign.coarseness if isinstance(inquiry.access, Direct) else 0.0
    tolerance = max(1e-6, inquiry.slack * 10, 8 * coarse) * max(1.0, float(np.ptp(values[support])))
    if not _by_distance(values, support, tolerance):
        _not_relative(inquiry, values, support, tolerance)
        return True
    if np.ptp(np.where(support, values, values[support].mean())) < tolerance * 0.01 or _flat(
        values, support, tolerance
    ):
        turned = _queries_turn(inquiry, a * size, tolerance)
        inquiry.report(
            "rotary",
            f"scores do not depend on the positions of {'the keys' if turned else 'queries and keys'}",
            "equal queries and equal keys give equal scores for all keys of a query",
            "the queries are rotated, and the keys are not" if turned else NOT_ROTATED,
            "rotate q by its position and k by its own",
            _ROTARY,
        )
        return True
    if not _cancels(inquiry, a * size * 2, tolerance):
        return True
    if contract.rotary in ("half", "pair"):
        _pairing(inquiry, contract.rotary)
    _scale(inquiry)
    return True


def _scores(inquiry: Inquiry, q: Any, k: Any) -> tuple[Any, Any]:
    draw = observe(inquiry.access, q, k, inquiry.settings.plain(), each=False)
    return logarithms(inquiry.access, draw)


def _by_distance(values: Any, support: Any, tolerance: float) -> bool:
    """Whether differences within a row are the same one step further down."""
    both = support[:, :-1, :-1] & support[:, 1:, 1:]
    change = np.where(both, values[:, 1:, 1:] - values[:, :-1, :-1], np.nan)
    for lane in change:
        for row in lane:
            seen = row[~np.isnan(row)]
            if seen.size > 1 and np.ptp(seen) > tolerance:
                return False
    return True


def _flat(values: Any, support: Any, tolerance: float) -> bool:
    return all(
        np.ptp(row[s]) < tolerance
        for lane, marks in zip(values, support, strict=True)
        for row, s in zip(lane, marks, strict=True)
        if s.sum() > 1
    )


def _queries_turn(inquiry: Inquiry, a: Any, tolerance: float) -> bool:
    """Whether equal queries see the same keys differently: they are rotated by their own positions."""
    access = inquiry.access
    k = np.random.default_rng(12).normal(size=access.shape("k"))
    values, support = _scores(inquiry, np.broadcast_to(a, access.shape("q")), k)
    return _rows_differ(np.where(support, values, np.nan), tolerance)


def _rows_differ(spread: Any, tolerance: float) -> bool:
    """Whether the scores of two queries differ by more than one number for all keys that both hear."""
    for lane in spread:
        for first, second in itertools.pairwise(lane):
            change = (second - first)[~np.isnan(second - first)]
            if change.size > 1 and np.ptp(change) > tolerance:
                return True
    return False


def _not_relative(inquiry: Inquiry, values: Any, support: Any, tolerance: float) -> None:
    if not _rows_differ(np.where(support, values, np.nan), tolerance):
        cause = "the queries are not rotated: the score depends on the key's position alone"
    else:
        cause = turned_apart(inquiry) or (
            "queries and keys are rotated differently: by another base, direction or pairing, or by other positions"
        )
    witness = "with equal queries and equal keys, the score at (i + 1, j + 1) is not the one at (i, j)"
    mend = "rotate q and k with the same function, each by its own position"
    inquiry.report("rotary", "scores do not depend on the distance alone", witness, cause, mend, _ROTARY)


def _heard_most(inquiry: Inquiry, a: Any) -> str:
    """Where, for equal vectors, another key than that at the query's own position has the largest score."""
    access = inquiry.access
    values, support = _scores(inquiry, np.broadcast_to(a, access.shape("q")), np.broadcast_to(a, access.shape("k")))
    shift = access.J - access.I
    for lane in range(access.count["out"]):
        for query in range(max(0, -shift), access.I):
            seen = np.where(support[lane, query], values[lane, query], -np.inf)
            if not support[lane, query, query + shift] or support[lane, query].sum() < 2:
                continue
            best = int(seen.argmax())
            if seen[best] > seen[query + shift] + 1e-6:
                return (
                    f"with equal vectors, {inquiry.out_at(lane, query)} hears key {best} most, and not key "
                    f"{query + shift}, at its own position"
                )
    return ""


def _pairing(inquiry: Inquiry, declared: str) -> None:
    """Which two features turn into each other."""
    access = inquiry.access
    D = access.D
    partners = _partners(inquiry)
    if not partners:
        if D >= 4:
            inquiry.cannot("rotary", "which features turn into each other does not show")
        return
    kinds = {
        "half": _in_halves(partners, D),
        "pair": all(other == feature ^ 1 for feature, other in partners.items()),
    }
    if kinds[declared] or _stays_in_pairs(inquiry, declared, partners):
        return
    feature, partner = next(iter(partners.items()))
    found = next((name for name, fits in kinds.items() if fits), "another")
    witness = f"feature {feature} turns into feature {partner}"
    wanted = "i and i + d/2 (`half`)" if declared == "half" else "2i and 2i + 1 (`pair`)"
    inquiry.report(
        "rotary",
        f"features are rotated in the wrong pairs: {found}, and not {declared}",
        witness,
        f"the pairing is that of `{found}`, and weights made for `{declared}` are used with it",
        f"pair features {wanted}",
        _ROTARY,
    )


def _partners(inquiry: Inquiry) -> dict[int, int]:
    """The feature of the keys, other than its own, that each of some features of the queries meets most."""
    access = inquiry.access
    D = access.D
    partners: dict[int, int] = {}
    for feature in sorted({0, 1, D // 2, D - 1}) if D >= 4 else ():
        others = [other for other in range(D) if other != feature]
        met = np.abs(_meetings(inquiry, np.eye(D)[feature], np.eye(D)[others]))
        if met.max(initial=0.0) > 1e-5:
            partners[feature] = others[int(met.argmax())]
    return partners


def _stays_in_pairs(inquiry: Inquiry, declared: str, partners: Mapping[int, int]) -> bool:
    """Whether what has two features of a declared pair never meets what has those of another. Of both, one is the
    negative of the other, so that a norm before the rotation leaves them as they are."""
    D = inquiry.access.D
    steps = {1} if declared == "pair" else {D // 2, *(abs(one - other) for one, other in partners.items())}
    for step, last in itertools.product(sorted(steps, reverse=True), (False, True)):
        count = D // 2 if declared == "pair" else step
        first = np.arange(count) * (2 if declared == "pair" else 1) + (D - 2 * count if last else 0)
        if first.min() < 0 or first.max() + step >= D or count < 2:
            continue
        vectors = np.eye(D)[first] - np.eye(D)[first + step]
        apart = [np.delete(vectors, at, 0) for at in range(count)]
        if all(np.abs(_meetings(inquiry, vectors[at], apart[at])).max() < 1e-5 for at in sorted({0, 1, count - 1})):
            return True
    return False


def _meetings(inquiry: Inquiry, asked: Any, offered: Any) -> Any:
    """The scores of the last query, which is one vector, for keys that are others: as many as there is room for at a
    time; 0 where they are not heard."""
    access = inquiry.access
    row, own_key, size = access.I - 1, access.J - 1, 3.0
    q = np.broadcast_to(asked * size, access.shape("q"))
    heard = inquiry.settings.declared(inquiry.settings.plain())[0, row]
    places = [key for key in range(own_key) if heard[key]]
    met = np.zeros(len(offered))
    for start in range(0, len(offered) if places else 0, max(len(places), 1)):
        k = np.zeros(access.shape("k"))
        for key, vector in zip(places, offered[start:], strict=False):
            k[:, key] = vector * size
        values, support = _scores(inquiry, q, k)
        for at, key in enumerate(places[: len(offered) - start], start):
            if support[0, row, own_key] and support[0, row, key]:
                met[at] = values[0, row, key] - values[0, row, own_key]
    return met


def _in_halves(partners: Mapping[int, int], D: int) -> bool:
    """Whether features turn with those half of the rotated width further: all of them, or some at either end."""
    step = abs(next(iter(partners.items()))[0] - next(iter(partners.items()))[1])
    for first in {0, D - 2 * step} if 2 * step <= D else ():
        turned = {feature: first + (feature - first + step) % (2 * step) for feature in range(first, first + 2 * step)}
        if all(turned.get(feature) == other for feature, other in partners.items()):
            return step > 1 or D == 2
    return False


def _own_scores(inquiry: Inquiry, q: Any, k: Any, query: int) -> list[float]:
    """The scores of a query for the key at its own position, from keys that are 0 elsewhere; one a lane, or NaN."""
    access = inquiry.access
    own_key = query + access.J - access.I
    only = np.zeros_like(k)
    only[:, own_key] = k[:, own_key]
    values, support = _scores(inquiry, q, only)
    found = []
    for lane in range(access.count["out"]):
        others = [j for j in range(access.J) if j != own_key and support[lane, query, j]]
        heard = support[lane, query, own_key] and others
        found.append(values[lane, query, own_key] - values[lane, query, others].mean() if heard else np.nan)
    return found


def _cancels(inquiry: Inquiry, a: Any, tolerance: float) -> bool:
    """Whether rotations cancel at a query's own position: exchanging its vector and the key's changes nothing."""
    access = inquiry.access
    rng = np.random.default_rng(13)
    query = access.I - 1
    if query + access.J - access.I < 1:
        return True
    b = rng.normal(size=access.D) * (2.0 / access.D) ** 0.5

    def scores(x: Any, y: Any) -> Any:
        q, k = np.broadcast_to(x, access.shape("q")), np.broadcast_to(y, access.shape("k"))
        return np.array(_own_scores(inquiry, q, k, query))

    one, two = scores(a, b), scores(b, a)
    seen = np.isfinite(one) & np.isfinite(two)
    if np.abs(one - two)[seen].max(initial=0.0) <= 10 * tolerance:
        return True
    exchanged = "exchanging the vectors of a query and of the key at its position changes the score"
    cause = "queries and keys are rotated by different positions"
    if access.J != access.I:
        cause = (
            "the positions of the queries do not count the keys before them: with a cache, query i is at position "
            "i + (J - I)"
        )
    inquiry.report(
        "rotary",
        "a query is not at its own position",
        _heard_most(inquiry, a) or f"{exchanged}: they are turned apart",
        cause,
        "rotate the queries by `i + (J - I)`, the keys by `j`",
        _ROTARY,
    )
    return False


def _scale(inquiry: Inquiry) -> None:
    """The scale, from keys that are 0 but at the query's own position, where rotations cancel; then the soft cap."""
    contract = inquiry.contract
    pairs, scores = _at_own_positions(inquiry, 1.0 if contract.softcap is None else 0.05)
    fits = {}
    as_they_are: tuple[str, Norm] = ("", lambda q, k: (q, k))
    for name, norm in (as_they_are, *norms(inquiry)):
        x = np.array([one @ other for one, other in (norm(*pair) for pair in pairs)])
        value = float((x @ scores) / (x @ x)) if len(x) > 2 else np.nan
        if np.isfinite(value) and np.abs(scores - value * x).max() < 1e-4 * max(np.abs(scores).max(), 1e-12):
            fits[name] = value
    if "" in fits:
        _cap(inquiry, fits[""])
        if not any(finding.law == "softcap" for finding in inquiry.findings):
            judge_scale(inquiry, fits[""])
    elif fits:
        judge_normed(inquiry, fits)
    elif contract.rotary is not None:
        inquiry.found["score"] = "rotated; not a multiple of q·k at equal positions"
    if "" not in fits:
        reason = "at equal positions the scores are not a multiple of q·k: a norm, a bias, or a learned product"
        inquiry.cannot("scale", reason)
        inquiry.cannot("softcap", reason)


def scale_at_own_positions(inquiry: Inquiry) -> bool:
    """Whether scores are a multiple of `q·k` where the positions of both are the same; the scale is judged there."""
    if inquiry.access.I < 2 or inquiry.contract.rotary is not None:
        return False
    _scale(inquiry)
    return "scale" in inquiry.found


def _at_own_positions(inquiry: Inquiry, size: float) -> tuple[list[tuple[Any, Any]], Any]:
    """Queries and the keys at their own positions, and the scores of these."""
    access = inquiry.access
    shift = access.J - access.I
    pairs, scores = [], []
    for query in range(max(1, 1 - shift), access.I):
        q, k, _ = inquiry.inputs()
        q, k = q * size, k * size
        for lane, score in enumerate(_own_scores(inquiry, q, k, query)):
            if np.isfinite(score):
                pairs.append((q[access.maps["q"][lane], query], k[access.maps["k"][lane], query + shift]))
                scores.append(score)
    return pairs, np.array(scores)


def _cap(inquiry: Inquiry, scale: float) -> None:
    """The soft cap, where rotations cancel: scores that would be beyond it are as the cap makes them."""
    if inquiry.contract.softcap is None or not scale or "softcap" in inquiry.laws:
        return
    cap = float(inquiry.contract.softcap)
    pairs, _ = _at_own_positions(inquiry, 1.0)
    largest = max(abs(q @ k * scale) for q, k in pairs)
    pairs, seen = _at_own_positions(inquiry, (1.5 * min(cap, 15.0) / largest) ** 0.5)
    free = np.array([q @ k * scale for q, k in pairs])
    capped = cap * np.tanh(free / cap)
    if np.abs(capped - free).max() < 1e-4:
        inquiry.cannot("softcap", f"a cap of {cap:g} does not show in the weights")
        return
    inquiry.tested("softcap")
    if np.abs(seen - capped).max() <= 1e-4 * cap:
        return
    worst = int(np.abs(seen - capped).argmax())
    inquiry.report(
        "softcap",
        f"large scores are not capped at {cap:g}",
        f"a query has the score {number(seen[worst])} for the key at its own position, and {number(capped[worst])} "
        "with the cap",
        "the scores are not capped"
        if np.abs(seen - free).max() <= 1e-4 * cap
        else "the scores are capped by another number or function, or before they are scaled",
        f"`scores = {cap:g} * torch.tanh(scores / {cap:g})`, after the scale and before the mask",
        (r"tanh.*",),
    )
