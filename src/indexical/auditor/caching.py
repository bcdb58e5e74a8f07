"""Cached decoding: the rows of new queries are those of one full pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from .access import Direct
from .calling import Unusable
from .inquiry import Inquiry, number


def prefill_law(inquiry: Inquiry) -> None:
    """Fewer queries than keys are the last positions: their rows are those of the call with a query for every key."""
    access = inquiry.access
    if not inquiry.contract.prefill or inquiry.findings or not isinstance(access, Direct) or access.ports["q"].part:
        return
    q_letter, k_letter = access.ports["q"].position, access.ports["k"].position
    if q_letter == k_letter or access.J < 2:
        return
    few = access.I if access.I < access.J else max(1, access.J // 2)
    whole, part = (Direct(access.foreign, access.ports, {**access.sizes, q_letter: size}) for size in (access.J, few))
    rng = np.random.default_rng(8)
    q, k, v = (rng.normal(size=whole.shape(role)) for role in "qkv")
    extras = inquiry.settings.plain().arrays
    try:
        access.foreign.out_shape = access.ports["out"].layout.shape(whole.sizes)
        expected = whole.forward(q, k, v, extras)[:, -few:]
        access.foreign.out_shape = access.ports["out"].layout.shape(part.sizes)
        seen = part.forward(q[:, -few:], k, v, extras)
    except Unusable as problem:
        inquiry.cannot("prefill", problem.message)
        return
    inquiry.tested("prefill")
    if np.allclose(seen, expected, atol=max(1e-7, inquiry.tolerance), equal_nan=True):
        return
    lane, row = (int(x) for x in np.argwhere(~np.isclose(seen, expected, atol=1e-6).all(2))[0])
    worst = number(float(np.nanmax(np.abs(seen - expected))))
    inquiry.report(
        "prefill",
        f"the last {few} queries alone give other rows than in one full pass",
        f"{inquiry.out_at(lane, row)} of the short call is not row {access.J - few + row} of the full one (by {worst})",
        _cause(whole, part, q, k, v, extras, few),
        "query i of a short call is at position i + (J - I): in the mask, and in rotary positions",
        (r"tril.*|triu.*|is_causal.*|arange.*",),
    )


def _cause(whole: Direct, part: Direct, q: Any, k: Any, v: Any, extras: Any, few: int) -> str:
    """Whether the short call is right for the first positions."""
    first = part.forward(q[:, :few], k, v, extras)
    if np.allclose(first, whole.forward(q, k, v, extras)[:, :few], atol=1e-6, equal_nan=True):
        return "the queries are taken for the first positions: the cached keys are not counted"
    return "the cached keys are counted wrongly, in the mask or in the positions"
