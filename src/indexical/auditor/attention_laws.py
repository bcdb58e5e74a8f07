"""The laws of an attention that takes queries, keys and values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .access import Direct
from .diagnosis import explain, mask_mistake, of_masked_queries
from .hearing import dead_entries, locality, position_shapes, reach
from .inquiry import Inquiry, normalised_over
from .layouts import heads_in_another_order, query_reading_that_fits
from .models import Model
from .observing import Draw, observe, own
from .positions import rotary_law, scale_at_own_positions
from .rows import irrelevant_keys, row_sums
from .scores import bias_law, kernel_law, scale_law, softcap_law
from .signs import capped_late, masked_late, normalised_elsewhere, softmax_twice
from .strength import additive_law, empty_law, sink_law, sink_share, strength_law
from .structure import SPLIT, SUMMED, measure_precision, shrink, structure

_MOST = 40_000_000  # Weights of one recovery: lanes and queries by lanes and keys.
_LAYOUT = (r"\.(view|reshape|transpose|permute|swapaxes)\(.*", r"rearrange.*")


def judge(inquiry: Inquiry) -> None:
    """All laws; those that rest on others are left out where those are broken."""
    if not inquiry.access.aligned:
        inquiry.found["weights"] = "not recovered: the axes of the output do not tell its heads and features"
        inquiry.cannot("weights", inquiry.found["weights"])
        return
    access = inquiry.access
    if access.count["out"] * access.I * access.count["v"] * access.J > _MOST:
        inquiry.found["weights"] = "not recovered: the example is large, and the callable takes no smaller one"
        inquiry.cannot("weights", inquiry.found["weights"])
        return
    shrink(inquiry)
    measure_precision(inquiry)
    if not structure(inquiry):
        return
    draws = _draws(inquiry)
    if inquiry.contract.kernel is not None:
        row_sums(inquiry, draws, [])
        kernel_law(inquiry, draws)
        return
    if not sink_share(inquiry) or softmax_twice(inquiry):
        return
    violations: list[dict[str, Any]] = []
    locality(inquiry, violations)
    reach(inquiry, draws, violations)
    row_sums(inquiry, draws, violations)
    if not violations:
        irrelevant_keys(inquiry, draws, violations)
    base = _base(inquiry, draws)
    if {item["law"] for item in violations} == {"finite"}:
        additive_law(inquiry)
    if violations and not inquiry.findings:
        _report(inquiry, base, draws, violations)
    if any(
        finding.law in ("normalisation", "locality", "heads", "batch", "dead input", "groups")
        for finding in inquiry.findings
    ):
        return
    rotary = rotary_law(inquiry)
    if not violations or not inquiry.findings:
        bias_law(inquiry)
        if not rotary:
            softcap_law(inquiry)
            capped = not any(finding.law == "softcap" for finding in inquiry.findings)
            if capped and not scale_law(inquiry, draws) and not scale_at_own_positions(inquiry):
                _score_law(inquiry, draws, base)
    additive_law(inquiry)
    if not violations:
        dead_entries(inquiry)
        strength_law(inquiry)
        sink_law(inquiry)
        empty_law(inquiry)


def _draws(inquiry: Inquiry) -> list[Draw]:
    """Weights for several queries and keys, with and without masks: beside those by which lanes are known to be
    apart, all lanes at once."""
    plain = inquiry.settings.plain()
    varied = bool(plain.keeps) or inquiry.contract.documents is not None
    draws = [inquiry.first] if inquiry.first is not None else [inquiry.observe(*inquiry.inputs()[:2], plain)]
    draws += [observe(inquiry.access, *inquiry.inputs()[:2], plain, each=False) for _ in range(2)]
    inquiry.settings.heard = np.nan_to_num(np.abs(own(inquiry.access, draws[0].full))) > 0
    for _ in range(3 if varied else 0):
        setting = inquiry.settings.draw(inquiry.rng)
        draws.append(observe(inquiry.access, *inquiry.inputs()[:2], setting, each=False))
    return draws


def _base(inquiry: Inquiry, draws: list[Draw]) -> Model:
    """The declared model, with a scale and a bias that were measured where they are not declared."""
    return Model(inquiry.settings.declared, scale=None, bias=0.0, softcap=inquiry.contract.softcap)


def _score_law(inquiry: Inquiry, draws: list[Draw], base: Model) -> None:
    """Scores that are no multiple of `q·k` may still be a known mistake."""
    model = explain(inquiry.settings, base, draws, inquiry.slack, law="score")
    if model is not None:
        witness = "log-weights are exactly those of that mistake, for every query and key"
        inquiry.report(model.law, model.message, witness, model.cause, model.mend, model.hints)


# --------------------------------------------------------------------- causes


GENERAL = {
    "causal": (
        "the causal mask is missing, late, or at the wrong place",
        "mask the scores with -inf where `j > i`, before the softmax",
    ),
    "window": ("the window has another length or another corner", "keep `0 <= i - j < W`"),
    "mask": (
        "the mask does not reach the scores as declared",
        "fill the scores of dropped keys with -inf, before the softmax",
    ),
    "documents": ("the documents are not compared", "keep `ids[i] == ids[j]`"),
    "regions": ("the regions are not compared", "keep `region[i] == region[j]`"),
    "scale": ("the scale is another one", "multiply the scores by what is declared, once"),
    "softcap": ("scores are not capped as declared", "cap * tanh(score / cap), before the mask"),
    "alibi": ("the bias of distances is another one", "subtract slope * (i - j) from the scores"),
    "rotary": ("queries and keys are not rotated as declared", "rotate both by their own positions, in one pairing"),
    "gap": ("the mask drops too much", "compare the mask with the relation that is declared"),
    "groups": (
        "key heads are repeated in the wrong order: `repeat` (0, 1, 0, 1) where `repeat_interleave` (0, 0, 1, 1) is "
        "meant",
        "query head h belongs to key head h // (H / G): use `repeat_interleave(H // G, dim=heads)`",
    ),
    "rows": (
        "the weights are normalised over something else than the keys that are heard",
        "normalise over the keys, after the mask",
    ),
    "locality": (
        "something is summed, sorted or normalised over the queries",
        "each query is answered alone: normalise over the keys",
    ),
    "batch": ("something is normalised or summed over the batch", "normalise over the keys alone"),
    "heads": ("something is normalised or summed over the heads", "normalise over the keys alone"),
    "dead input": ("it does not take part in the computation", "compare queries with keys, and gather values by that"),
    "irrelevant keys": (
        "scores are normalised, reshaped or rescaled over the keys, beside the softmax",
        "the score of a pair is made of its query and its key alone",
    ),
    "finite": (
        "a mask leaves a query no key, or numbers overflow",
        "every query has to hear some key; mask with `j <= i`, itself included",
    ),
}


# Causes that name no mistake: heads may be mixed, and something be added to what is gathered, on purpose.
VAGUE = frozenset((GENERAL["heads"][0], GENERAL["rows"][0], SPLIT, SUMMED))
_HEARING = frozenset(("causal", "window", "mask", "documents", "regions", "gap", "reach"))


def _report(inquiry: Inquiry, base: Model, draws: list[Draw], violations: list[dict[str, Any]]) -> None:
    """The cause, where one mistake explains all that was seen; else the laws that are broken."""
    laws = {item["law"] for item in violations}
    if laws <= _HEARING and capped_late(inquiry, violations):
        return
    model = explain(inquiry.settings, replace(base, over=normalised_over(inquiry)), draws, inquiry.slack)
    if model is None and _masks_queries(inquiry, base, draws, laws):
        return
    if model is None and laws <= _HEARING:
        patterns = [(draw.setting, np.nan_to_num(np.abs(own(inquiry.access, draw.full))) > 0) for draw in draws]
        model = mask_mistake(inquiry.settings, patterns)
    if model is not None:
        witness = next((item["witness"] for item in violations if item["law"] == model.law), violations[0]["witness"])
        inquiry.report(model.law, model.message, witness, model.cause, model.mend, model.hints)
        return
    elsewhere = "dead input" not in laws and normalised_over(inquiry) == "key"
    if elsewhere and normalised_elsewhere(inquiry, draws, violations):
        return
    if "rows" in laws and masked_late(inquiry, draws, violations):
        return
    mixed = [law for law in ("dead input", "batch", "heads", "locality") if law in laws]
    if mixed and mixed[0] != "dead input" and isinstance(inquiry.access, Direct):
        witness = next(item["witness"] for item in violations if item["law"] == mixed[0])
        if mixed[0] != "batch" and heads_in_another_order(inquiry, witness):
            return
        reading = query_reading_that_fits(inquiry)
        if reading is not None:
            inquiry.report(mixed[0], *reading.words(witness), hints=_LAYOUT)
            return
    if mixed:
        violations = [item for item in violations if item["law"] == mixed[0]]
    for item in {item["law"]: item for item in reversed(violations)}.values():
        cause, mend = GENERAL.get(item["law"], ("", ""))
        if item["law"] == "gap":
            heard = np.nan_to_num(np.abs(own(inquiry.access, draws[0].full))) > 0
            shape = next((name for name, shape in position_shapes(inquiry) if np.array_equal(heard, shape)), None)
            cause += f": what is heard is {shape}" if shape else ""
        inquiry.report(**item, cause=cause, mend=mend)
    inquiry.findings.reverse()


def _masks_queries(inquiry: Inquiry, base: Model, draws: list[Draw], laws: set[str]) -> bool:
    """Whether a mask of keys is applied to queries as well: only the rows of masked queries are others then."""
    name = of_masked_queries(inquiry.settings, base, draws, inquiry.slack)
    if name is None:
        return False
    if "finite" in laws:
        inquiry.report(
            "finite",
            "the outputs of masked queries are NaN, though they may hear keys",
            f"{name} is applied to queries and keys",
            f"{name} is applied to the queries as well: their scores are -inf throughout, and NaN spreads from there",
            "mask the keys alone, or put 0 where a query is masked",
            (r"masked_fill.*|where\s*\(.*", r"mask.*"),
        )
    else:
        inquiry.found[name] = "applied to queries as well: what masked queries give is not judged"
    return True
