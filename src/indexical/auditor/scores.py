"""Laws of the scores: their scale, what is added to them, their cap, the kernel of a linear attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .contract import KERNELS, evaluate
from .inquiry import Inquiry, number
from .models import Model, centred, dot, fit_scale, logarithms, predict
from .observing import Draw, observe, own
from .signs import slopes_cause

_SCALE = (r"sqrt.*|\*\*\s*-?\s*0\.5.*|\*\* -\.5.*|scale.*", r"matmul.*|einsum.*| @ .*")


def scale_law(inquiry: Inquiry, draws: list[Draw]) -> bool:
    """Whether the logarithms of the weights are a multiple of `q·k`, which is the scale."""
    access, contract = inquiry.access, inquiry.contract
    if contract.rotary is not None:
        return True
    bias = measured_bias(inquiry)
    scale, left = fit_scale(access, draws, bias)
    if not np.isfinite(scale).any() or left > max(1e-3, 20 * inquiry.slack):
        if np.isfinite(left) and "score" not in inquiry.found:
            inquiry.found["score"] = "not a multiple of q·k (a cap, a norm, positions, or a learned product)"
        return False
    inquiry.tested("scale")
    known = scale[np.isfinite(scale)]
    if np.ptp(known) > max(1e-4, 50 * inquiry.slack) * np.abs(known).max():
        inquiry.found["scale"] = f"{number(known.min())} … {number(known.max())}, one a head"
        return True
    judge_scale(inquiry, float(np.median(known)))
    return True


def judge_scale(inquiry: Inquiry, value: float) -> None:
    access, contract = inquiry.access, inquiry.contract
    name = name_scale(value, scale_sizes(inquiry), access_heads(inquiry))
    inquiry.found["scale"] = f"{number(value)} = {name}" if name not in ("", number(value)) else number(value)
    if contract.scale is None:
        return
    inquiry.tested("scale")
    wanted = evaluate(contract.scale, scale_sizes(inquiry))
    if abs(value - wanted) <= max(1e-3, min(0.1, 50 * inquiry.slack)) * abs(wanted):
        return
    message = f"the scale is {inquiry.found['scale']}, and not {number(wanted)} = {contract.scale}"
    witness = f"log-weights are {number(value)} × q·k, by regression at d = {access.D}"
    cause, mend = scale_cause(value, wanted, access.D, name)
    inquiry.report("scale", message, witness, cause, mend, _SCALE)


def scale_sizes(inquiry: Inquiry) -> dict[str, int]:
    access = inquiry.access
    sizes = {name: size for name, size in access.sizes.items() if name.isidentifier()}
    return {**sizes, "d": access.D, "e": access.E, "i": access.I, "j": access.J, "n": access.J}


_OTHER_SIZES = {"c": "the width of the model", "b": "the size of the batch", "g": "the number of key heads"}
_POSITIONS = {"n": "the number of keys", "i": "the number of queries", "e": "the width of the values"}
_SIZES = ("the width of all heads", *_POSITIONS.values(), "the number of heads", *_OTHER_SIZES.values())


def name_scale(value: float, sizes: Mapping[str, int], heads: int) -> str:
    """A scale in terms of sizes, where one fits."""
    d = sizes["d"]
    names: list[tuple[str, float]] = [
        (f"1/sqrt({d})", d**-0.5),
        ("1", 1.0),
        (f"1/{d}", 1 / d),
        (f"sqrt({d})", d**0.5),
        (f"{d} ** -0.25", d**-0.25),
        (f"1/sqrt({d * heads}), the width of all heads", (d * heads) ** -0.5),
        *((f"1/sqrt({sizes[at]}), {words}", sizes[at] ** -0.5) for at, words in _POSITIONS.items() if at in sizes),
        (f"1/sqrt({heads}), the number of heads", heads**-0.5),
        *((f"1/sqrt({sizes[at]}), {words}", sizes[at] ** -0.5) for at, words in _OTHER_SIZES.items() if at in sizes),
        (f"1/{d * heads}", 1 / (d * heads)),
        (f"{d} ** -1.5", d**-1.5),
        (f"{d}", float(d)),
        ("1/sqrt(64)", 0.125),
        (f"1/(2 sqrt({d}))", 0.5 * d**-0.5),
        (f"2/sqrt({d})", 2 * d**-0.5),
        ("-1/sqrt(d)", -(d**-0.5)),
        (f"1/(sqrt({d}) ln 2)", d**-0.5 / math.log(2)),
        (f"ln 2/sqrt({d})", d**-0.5 * math.log(2)),
    ]
    return next((name for name, size in names if abs(value - size) < 1e-4 * abs(size)), "")


def access_heads(inquiry: Inquiry) -> int:
    outs = inquiry.access.lanes["out"]
    heads = int(outs["h"].max()) + 1 if "h" in outs else 1
    if "g" in outs and "h" not in outs:
        heads = int(np.prod([int(index.max()) + 1 for letter, index in outs.items() if letter != "b"]))
    return heads


def scale_cause(value: float, wanted: float, d: int, name: str) -> tuple[str, str]:
    ratio = value / wanted if wanted else math.inf
    mend = "multiply the scores once by the scale: `scores = q @ k.T * d ** -0.5`, d being the width of one head"
    if value < 0 < wanted:
        return "the scores have the wrong sign", "remove the minus before the scores"
    if abs(ratio - 1 / wanted) < 1e-3 * abs(1 / wanted):
        return "the scale is missing", mend
    if abs(ratio - wanted) < 1e-3 * wanted:
        return "the scale is applied twice", mend
    if abs(ratio - 1 / wanted**2) < 1e-3 / wanted**2:
        return "the scores are multiplied where they should be divided", mend
    if abs(ratio - wanted**-0.5) < 1e-3 * wanted**-0.5:
        return "half of the scale is missing: it is applied to one side, where both sides have it", mend
    for words in _SIZES:
        if words in name:
            return f"the scale is taken from {words}, and not from the width of one head", mend
    if abs(ratio - math.log(2)) < 1e-3:
        return "powers of 2 stand where exponentials are meant: scores are multiplied by ln 2", mend
    if abs(value - 1 / d) < 1e-3 / d:
        return "the scores are divided by d, and not by its square root", mend
    return f"the scores are multiplied by {number(ratio)} beside the scale", mend


# ------------------------------------------------------------------------ bias


def measured_bias(inquiry: Inquiry) -> Any:
    """The bias of the scores, up to a constant of each row: the log-weights for queries that are 0."""
    access = inquiry.access
    q, k, _ = inquiry.inputs()
    draw = observe(access, np.zeros_like(q), k, inquiry.settings.plain(), each=False)
    values, support = logarithms(access, draw)
    if not np.isfinite(own(access, draw.full)).any():
        return 0.0
    found = centred(access, values, support, "key")
    return np.where(np.abs(found) < 1e-9, 0.0, found)


def bias_law(inquiry: Inquiry) -> None:
    """ALiBi, where it is declared; else whether anything is added at all."""
    access, contract = inquiry.access, inquiry.contract
    bias = measured_bias(inquiry)
    if contract.alibi is None:
        if np.abs(bias).max() > 1e-6 and contract.rotary is None:
            inquiry.found["bias"] = "something that does not depend on the queries is added to the scores"
        return
    inquiry.tested("alibi")
    outs = access.lanes["out"]
    slopes = np.asarray(contract.alibi, float)
    heads = outs["h"] if "h" in outs else np.zeros(access.count["out"], int)
    if heads.max() >= len(slopes):
        return
    support = inquiry.settings.declared(inquiry.settings.plain())
    distance = np.arange(access.J)[None, :] - np.arange(access.I)[:, None] - (access.J - access.I)
    wanted = -slopes[heads][:, None, None] * np.abs(distance)

    def fits(expected: Any) -> bool:
        return bool(
            np.allclose(bias, centred(access, np.broadcast_to(expected, bias.shape), support, "key"), atol=1e-6)
        )

    if np.ndim(bias) == 0:
        bias = np.zeros((access.count["out"], access.I, access.J))
    if fits(wanted) or fits(slopes[heads][:, None, None] * distance):
        return
    cause, mend = slopes_cause(access, bias, support, slopes, heads)
    expected = centred(access, wanted, support, "key")
    lane, query, key = (int(x) for x in np.unravel_index(np.abs(bias - expected).argmax(), bias.shape))
    seen, right = number(bias[lane, query, key]), number(expected[lane, query, key])
    place = f"the score of {inquiry.out_at(lane, query)} for key {key}"
    witness = f"with queries of 0, {place} is {seen} from its row's mean, and not {right}"
    inquiry.report(
        "alibi", "the bias of distances is not what is declared", witness, cause, mend, (r"slope.*|alibi.*|bias.*",)
    )


# -------------------------------------------------------------------- soft cap


def softcap_law(inquiry: Inquiry) -> None:
    """Scores are capped as declared: `cap * tanh(score / cap)`."""
    access, contract = inquiry.access, inquiry.contract
    if contract.softcap is None:
        return
    inquiry.tested("softcap")
    cap = float(contract.softcap)
    small = []
    for _ in range(2):
        q, k, _ = inquiry.inputs()
        small.append(observe(access, q * 0.05, k * 0.05, inquiry.settings.plain(), each=False))
    scale, left = fit_scale(access, small, 0.0)
    if left > 1e-2 or not np.isfinite(scale).all() or not (np.abs(scale) > 0).all():
        return
    q, k, _ = inquiry.inputs()
    size = np.abs(dot(access, access.maps, q, k) * scale[:, None, None]).max()
    factor = (1.5 * min(cap, 15.0) / size) ** 0.5
    draw = observe(access, q * factor, k * factor, inquiry.settings.plain(), each=False)
    seen = own(access, draw.full)
    declared = predict(access, Model(inquiry.settings.declared, scale=scale, softcap=cap), draw)
    if np.allclose(seen, own(access, declared), atol=1e-6):
        return

    def misses(size: float | None) -> float:
        return float(
            np.abs(
                seen - own(access, predict(access, Model(inquiry.settings.declared, scale=scale, softcap=size), draw))
            ).max()
        )

    mend = f"`scores = {cap:g} * torch.tanh(scores / {cap:g})`, after the scale and before the mask"
    other = min(np.geomspace(cap / 50, cap * 50, 300), key=misses)
    if misses(None) < 1e-6:
        if cap > 200:
            return
        cause = "the scores are not capped"
    elif misses(other) < 0.02:
        cause = f"the scores are capped at about {number(float(f'{other:.2g}'))}, and not at {cap:g}"
    else:
        cause = "the scores are capped by another function, or before they are scaled"
    lane, query, key = (int(x) for x in np.unravel_index(np.abs(seen - own(access, declared)).argmax(), seen.shape))
    right = number(own(access, declared)[lane, query, key])
    place = f"the weight of {inquiry.out_at(lane, query)} for key {key}"
    witness = f"{place} is {number(seen[lane, query, key])}, and {right} with the cap"
    inquiry.report("softcap", f"large scores are not capped at {cap:g}", witness, cause, mend, (r"tanh.*",))


# ---------------------------------------------------------------------- kernel


def kernel_law(inquiry: Inquiry, draws: list[Draw]) -> None:
    """The weights of a linear attention: `φ(q)·φ(k)`, over their sum where rows sum to 1."""
    access, contract = inquiry.access, inquiry.contract
    feature = KERNELS[str(contract.kernel).replace(" ", "")]
    inquiry.tested("kernel")
    free = str(contract.rows) == "free"

    def expected(draw: Draw, left: Any, right: Any, scale: float) -> Any:
        raw = dot(access, access.maps, left(draw.q * scale), right(draw.k * scale)) * inquiry.settings.declared(
            draw.setting
        )
        return raw if free else raw / raw.sum(2, keepdims=True)

    def fits(left: Any, right: Any, scale: float = 1.0) -> bool:
        with np.errstate(all="ignore"):
            return all(
                np.allclose(own(access, draw.full), expected(draw, left, right, scale), atol=1e-6) for draw in draws
            )

    if inquiry.findings:
        return
    if (
        fits(feature, feature)
        or fits(feature, feature, access.D**-0.25)
        or fits(lambda x: feature(x * access.D**-0.5), feature)
    ):
        return
    same = KERNELS["identity"]
    scores: list[tuple[Any, Any, str]] = [
        (feature, same, "the feature map is missing on the keys"),
        (same, feature, "the feature map is missing on the queries"),
        (same, same, "the feature map is missing"),
        *((other, other, f"the feature map is {name}") for name, other in KERNELS.items()),
    ]
    leaks = [
        draw for draw in draws if (np.abs(own(access, draw.full)) > 0)[~inquiry.settings.declared(draw.setting)].any()
    ]
    cause = next((words for left, right, words in scores if fits(left, right)), "")
    law = "kernel"
    if leaks and not cause:
        law, cause = (
            "causal" if contract.causal else "reach",
            "sums run over keys that may not be heard: the prefix sum is missing, or has another length",
        )
    draw = draws[0]
    seen, wanted = own(access, draw.full), expected(draw, feature, feature, 1.0)
    lane, query, key = (int(x) for x in np.unravel_index(np.abs(seen - wanted).argmax(), seen.shape))
    place = f"the weight of {inquiry.out_at(lane, query)} for key {key}"
    witness = f"{place} is {number(seen[lane, query, key])}, and not {number(wanted[lane, query, key])}"
    inquiry.report(
        law,
        f"the weights are not those of the kernel {contract.kernel}",
        witness,
        cause or "another kernel, or another normaliser",
        f"weights are φ(q)·φ(k) over their sum, φ = {contract.kernel}",
        (r"elu.*|relu.*|exp.*",),
    )
