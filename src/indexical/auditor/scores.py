"""Laws of the scores: their scale, what is added to them, their cap, the kernel of a linear attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from .access import Access
from .contract import KERNELS, evaluate
from .inquiry import Inquiry, number
from .layout import refusal
from .models import Model, centred, dot, fit_scale, logarithms, predict
from .observing import Draw, observe, own
from .rows import EPSILON
from .signs import slopes_cause

Norm = Callable[[Any, Any], tuple[Any, Any]]  # Queries and keys as they are compared.
_SCALE = (r"sqrt.*|\*\*\s*-?\s*0\.5.*|\*\* -\.5.*|scale.*", r"matmul.*|einsum.*| @ .*")


def scale_law(inquiry: Inquiry, draws: list[Draw]) -> bool:
    """Whether the logarithms of the weights are a multiple of `q·k`, which is the scale."""
    access, contract = inquiry.access, inquiry.contract
    if contract.rotary is not None:
        return True
    if contract.softcap is not None:
        draws = _small(inquiry)
    bias = measured_bias(inquiry)
    enough = max(1e-3, 20 * inquiry.slack)
    scale, left = fit_scale(access, draws, bias)
    if inquiry.normed or not np.isfinite(scale).any() or left > enough:
        fits = {}
        for name, norm in norms(inquiry):
            value, rest = fit_scale(access, draws, bias, scores=partial(_normed_product, access, norm))
            if rest <= enough and np.isfinite(value).all() and np.ptp(value) <= 1e-4 * np.abs(value).max():
                fits[name] = float(np.median(value))
        if fits:
            judge_normed(inquiry, fits)
        elif np.isfinite(left) and "score" not in inquiry.found:
            inquiry.found["score"] = "not a multiple of q·k (a cap, a norm, positions, or a learned product)"
        inquiry.cannot("scale", "the scores are not a multiple of q·k: a norm, positions or a learned product")
        return bool(fits)
    known = scale[np.isfinite(scale)]
    if np.ptp(known) > max(1e-4, 50 * inquiry.slack) * np.abs(known).max():
        inquiry.found["scale"] = f"{number(known.min())} … {number(known.max())}, one a head"
        inquiry.cannot("scale", f"every head has a scale of its own: {inquiry.found['scale']}")
        return True
    judge_scale(inquiry, float(np.median(known)))
    return True


def _normed_product(access: Access, norm: Norm, q: Any, k: Any) -> Any:
    return dot(access, access.maps, *norm(q, k))


def _small(inquiry: Inquiry) -> list[Draw]:
    """Weights where scores are small beside a cap, and are as they would be without one."""
    plain = inquiry.settings.plain()
    pairs = [inquiry.inputs()[:2] for _ in range(2)]
    return [observe(inquiry.access, q * 0.05, k * 0.05, plain, each=False) for q, k in pairs]


def norms(inquiry: Inquiry) -> list[tuple[str, Norm]]:
    """The usual norms of queries and keys, with the gains of a module where these can be told."""
    gain = _gain(inquiry)
    gain = np.ones(inquiry.access.D) if gain is None else gain

    def unit(x: Any) -> Any:
        return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-30)

    def even(x: Any) -> Any:
        return unit(x) * x.shape[-1] ** 0.5

    def level(x: Any) -> Any:
        return x - x.mean(-1, keepdims=True)

    return [
        ("an RMS norm", lambda q, k: (even(q) * gain, even(k))),
        ("a norm to length 1", lambda q, k: (unit(q) * gain, unit(k))),
        ("a layer norm", lambda q, k: (even(level(q)) * gain, even(level(k)))),
    ]


def _gain(inquiry: Inquiry) -> Any:
    """What the gains of norms multiply each feature of `q·k` by; None where that cannot be told."""
    named = getattr(inquiry.target, "named_parameters", None)
    if named is None:
        return None
    found = [x.detach().double().cpu().numpy() for name, x in named() if x.ndim == 1 and "bias" not in name]
    fitting = [x for x in found if x.shape == (inquiry.access.D,)]
    if all((x == 1).all() for x in found):
        return np.ones(inquiry.access.D)
    return fitting[0] * fitting[1] if len(fitting) == len(found) == 2 else None


def judge_normed(inquiry: Inquiry, fits: Mapping[str, float]) -> None:
    """The scale of normed queries and keys, by the norm: a gain that is not known cannot be told from it."""
    contract = inquiry.contract
    if contract.scale is None:
        name, value = next(iter(fits.items()))
        inquiry.found["scale"] = f"{number(value)}, after {name} of queries and keys"
        return
    wanted = evaluate(contract.scale, scale_sizes(inquiry))
    near = {name: value for name, value in fits.items() if abs(value - wanted) <= 1e-3 * abs(wanted)}
    name, value = next(iter((near or fits).items()))
    inquiry.found["scale"] = f"{number(value)}, after {name} of queries and keys"
    if near:
        inquiry.tested("scale")
    elif _gain(inquiry) is None:
        inquiry.cannot("scale", "queries and keys are normed, and the gain of a norm cannot be told from the scale")
    else:
        inquiry.tested("scale")
        message = f"the scale is {inquiry.found['scale']}, and not {number(wanted)} = {contract.scale}"
        witness = f"log-weights are {number(value)} × q·k of normed queries and keys, by regression"
        cause, mend = scale_cause(value, wanted, inquiry.access.D, name_scale(value, scale_sizes(inquiry), 1))
        inquiry.report("scale", message, witness, cause, mend, _SCALE)


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
        (f"1/(2 sqrt({d}))", 0.5 * d**-0.5),
        (f"2/sqrt({d})", 2 * d**-0.5),
        *((f"1/sqrt({sizes[at]}), {words}", sizes[at] ** -0.5) for at, words in _OTHER_SIZES.items() if at in sizes),
        (f"1/{d * heads}", 1 / (d * heads)),
        (f"{d} ** -1.5", d**-1.5),
        (f"{d}", float(d)),
        ("1/sqrt(64)", 0.125),
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
    slopes = np.asarray(contract.alibi, float)
    heads = _head_numbers(inquiry)
    if heads.max() >= len(slopes):
        raise refusal(
            f"the contract has {len(slopes)} slopes, and there are {heads.max() + 1} heads", "one slope for each head"
        )
    support = inquiry.settings.declared(inquiry.settings.plain())
    distance = np.arange(access.J)[None, :] - np.arange(access.I)[:, None] - (access.J - access.I)
    wanted = -slopes[heads][:, None, None] * np.abs(distance)

    near = max(1e-6, inquiry.slack)

    def fits(expected: Any) -> bool:
        return bool(
            np.allclose(bias, centred(access, np.broadcast_to(expected, bias.shape), support, "key"), atol=near)
        )

    if np.ndim(bias) == 0:
        bias = np.zeros((access.count["out"], access.I, access.J))
    cap = contract.softcap
    for right in (wanted, slopes[heads][:, None, None] * distance):
        if fits(right) or (cap is not None and fits(cap * np.tanh(right / cap))):
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


def _head_numbers(inquiry: Inquiry) -> Any:
    """The number of its head in each lane: `h`, or `g` and what is in it."""
    outs = inquiry.access.lanes["out"]
    numbers = np.zeros(inquiry.access.count["out"], int)
    for letter in ("g", "h"):
        if letter in outs:
            numbers = numbers * (int(outs[letter].max()) + 1) + outs[letter]
    return numbers


# -------------------------------------------------------------------- soft cap


def softcap_law(inquiry: Inquiry) -> None:
    """Scores are capped as declared: `cap * tanh(score / cap)`."""
    access, contract = inquiry.access, inquiry.contract
    if contract.softcap is None:
        return
    cap = float(contract.softcap)
    scale, left = fit_scale(access, _small(inquiry), 0.0)
    if inquiry.normed or left > 1e-2 or not np.isfinite(scale).all() or not (np.abs(scale) > 0).all():
        inquiry.cannot("softcap", "small scores are not a multiple of q·k: a norm, a bias or a learned product")
        return
    q, k, _ = inquiry.inputs()
    size = np.abs(dot(access, access.maps, q, k) * scale[:, None, None]).max()
    factor = (1.5 * min(cap, 15.0) / size) ** 0.5
    draw = observe(access, q * factor, k * factor, inquiry.settings.plain(), each=False)
    seen = own(access, draw.full)
    declared, free = (
        own(access, predict(access, Model(inquiry.settings.declared, scale=scale, softcap=size), draw))
        for size in (cap, None)
    )
    if np.allclose(declared, free, atol=1e-3):
        inquiry.cannot("softcap", f"a cap of {cap:g} does not show in the weights")
        return
    inquiry.tested("softcap")
    if np.allclose(seen, declared, atol=1e-4):
        return

    def misses(size: float | None) -> float:
        return float(
            np.abs(
                seen - own(access, predict(access, Model(inquiry.settings.declared, scale=scale, softcap=size), draw))
            ).max()
        )

    mend = f"`scores = {cap:g} * torch.tanh(scores / {cap:g})`, after the scale and before the mask"
    other = min(np.geomspace(cap / 50, cap * 50, 300), key=misses)
    if misses(None) < 1e-4:
        cause = "the scores are not capped"
    elif misses(other) < 0.02:
        cause = f"the scores are capped at about {number(float(f'{other:.2g}'))}, and not at {cap:g}"
    else:
        cause = "the scores are capped by another function, or before they are scaled"
    lane, query, key = (int(x) for x in np.unravel_index(np.abs(seen - declared).argmax(), seen.shape))
    right = number(declared[lane, query, key])
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
        if free:
            return raw
        total, seen = (each.sum(2, keepdims=True) for each in (raw, own(access, draw.full)))
        with np.errstate(all="ignore"):
            beside = float(np.nanmedian(np.where(seen > 0, total / seen - total, np.nan)))
            return raw / (total + (beside if 1e-12 < beside <= EPSILON else 0.0))

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
