"""Laws of rows: what the weights of a query sum to, and that they leave each other alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from .inquiry import Inquiry, normalised_over, number
from .observing import Draw, own

# The largest number that may be added to the sum that weights are divided by, so that it is never 0.
EPSILON = 1e-2
_SHORT = 0.02  # By how much rows may fall short of 1 for that, in the middle of them.


def row_sums(inquiry: Inquiry, draws: list[Draw], violations: list[dict[str, Any]]) -> None:
    """Weights are not negative, and sum to what the contract says over what it says."""
    access, contract = inquiry.access, inquiry.contract
    rows = str(contract.rows)
    over = 1 if normalised_over(inquiry) == "query" else 2
    if contract.attends in access.lanes["out"]:
        rows = "free"
    direct = not violations and contract.kernel is not None
    for draw in draws:
        weights = own(access, draw.full)
        if np.isnan(weights).any():
            continue
        allowed = inquiry.settings.declared(draw.setting).any(over)
        total = weights.sum(over)
        slack = max(inquiry.slack, 1e-6)
        made: dict[str, Any] | None = None
        if rows != "free" and weights.min() < -slack:
            lane, query, key = (int(x) for x in np.unravel_index(weights.argmin(), weights.shape))
            made = {
                "law": "rows",
                "message": "a weight is negative",
                "witness": f"the weight of {inquiry.out_at(lane, query)} for key {key} is {number(weights.min())}",
            }
        elif (
            rows in ("1", "1.0")
            and (np.abs(total - 1)[allowed] > slack).any()
            and not ("added" in inquiry.found and total.max() <= 1 + slack)  # Other keys take the rest.
            and not (over == 2 and _beside_the_sum(inquiry, draw, allowed, slack))
        ):
            lane, query = (int(x) for x in np.argwhere((np.abs(total - 1) > slack) & allowed)[0])
            what = "query" if over == 2 else "key"
            made = {
                "law": "rows",
                "message": f"the weights of a {what} do not sum to 1",
                "witness": f"those of {inquiry.out_at(lane, query)} sum to {number(total[lane, query])}",
            }
        elif rows == "<=1" and (total > 1 + slack).any():
            lane, query = (int(x) for x in np.argwhere(total > 1 + slack)[0])
            made = {
                "law": "rows",
                "message": "the weights of a query sum to more than 1",
                "witness": f"those of {inquiry.out_at(lane, query)} sum to {number(total[lane, query])}",
            }
        if made is not None:
            violations.append(made)
            if direct:
                inquiry.report(
                    **made,
                    cause="the sum of the weights is not divided by, or not over the keys that are heard",
                    mend="divide by the sum of the same weights, over the same keys",
                    hints=(r"sum\(.*|/.*",),
                )
            break
    inquiry.tested("rows")
    if rows == "free" or contract.attends:
        inquiry.found["rows"] = _total(draws[0], access)


def _beside_the_sum(inquiry: Inquiry, draw: Draw, allowed: Any, slack: float) -> bool:
    """Whether rows fall short of 1 by an epsilon beside the sum that they are divided by: `w / (sum + eps)`.

    With one key replaced, the weights of all others change by the ratio of two divisors; what is missing from 1, which
    is the epsilon over the divisor, changes by the same ratio.
    """
    before = own(inquiry.access, draw.full)
    missing = 1 - before.sum(2)
    if (missing[allowed] < -slack).any() or np.median(missing[allowed]) > _SHORT:
        return False
    changed = draw.k.copy()
    changed[:, 0] = draw.k[:, -1] * 0.5 if inquiry.access.J > 1 else changed[:, 0]
    after = inquiry.weights(draw.q, changed, draw.setting)
    some = (before[..., 1:] > 1e-9).any(2) & (missing > slack)
    heard = before[some][:, 1:]
    ratio = np.nanmedian(np.where(heard > 1e-9, after[some][:, 1:] / np.maximum(heard, 1e-9), np.nan), 1)
    if not np.allclose((1 - after.sum(2))[some], missing[some] * ratio, rtol=1e-3, atol=slack):
        return False
    least = number(float(1 - missing[allowed].max()))
    inquiry.found["rows"] = f"an epsilon stands beside the sum: the weights of a query sum to {least} or more"
    return True


def irrelevant_keys(inquiry: Inquiry, draws: list[Draw], violations: list[dict[str, Any]]) -> None:
    """Moving one key leaves the proportions of the weights of others, where one scale is declared for all."""
    access = inquiry.access
    if access.J < 3 or inquiry.contract.scale is None or normalised_over(inquiry) == "query":
        return
    inquiry.tested("irrelevant keys")
    q, k, _ = inquiry.inputs()
    setting = inquiry.settings.plain()
    before = inquiry.weights(q, k, setting)
    for key in sorted({0, access.J // 2, access.J - 1}):
        changed = k.copy()
        changed[:, key] = inquiry.rng.normal(size=k[:, key].shape) * np.abs(k).mean() * 3
        after = inquiry.weights(q, changed, setting)
        others = np.delete(before, key, 2), np.delete(after, key, 2)
        seen = (np.abs(others[0]) > 1e-12) & (np.abs(others[1]) > 1e-12)
        with np.errstate(all="ignore"):
            ratio = np.where(seen, others[1] / others[0], np.nan)
            spread = np.nanmax(ratio, 2, initial=-np.inf) - np.nanmin(ratio, 2, initial=np.inf)
            shift = np.where(seen, others[1] - others[0], np.nan)
            moved_alike = np.nanmax(shift, 2, initial=-np.inf) - np.nanmin(shift, 2, initial=np.inf)
            largest = np.nanmax(np.abs(ratio), 2, initial=1.0)
        odd = (spread > max(1e-6, 100 * inquiry.slack) * largest) & (seen.sum(2) > 1)
        if odd.any() and not (moved_alike[odd] < 1e-9).all():
            lane, query = (int(x) for x in np.argwhere(odd)[0])
            witness = (
                f"in {inquiry.out_at(lane, query)}, weights of other keys change in proportion when key {key} moves"
            )
            violations.append(
                {"law": "irrelevant keys", "message": "the score of a key depends on other keys", "witness": witness}
            )
            return


def _total(draw: Draw, access: Any) -> str:
    total = own(access, draw.full).sum(2)
    low, high = float(np.nanmin(total)), float(np.nanmax(total))
    return f"the weights of a query sum to {number(low)}" + ("" if abs(high - low) < 1e-6 else f" … {number(high)}")
