"""Laws of rows: what the weights of a query sum to, and that they leave each other alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from .inquiry import Inquiry, normalised_over, number
from .observing import Draw, own


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
        elif rows in ("1", "1.0") and (np.abs(total - 1)[allowed] > slack).any():
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
        odd = (spread > max(1e-6, 100 * inquiry.slack)) & (seen.sum(2) > 1)
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
