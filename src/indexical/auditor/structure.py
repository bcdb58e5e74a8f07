"""Laws of structure: each value arrives in its own lane and feature, and the output is linear in the values."""

from __future__ import annotations

from typing import Any

import numpy as np

from .access import Direct
from .diagnosis import explain
from .inquiry import Inquiry, letter_law, number
from .layouts import heads_in_another_order, reading_that_fits, roles_that_fit
from .models import Model, centred, logarithms
from .observing import Draw, observe

_PRODUCT = (r"einsum.*|matmul.*|bmm.*| @ .*", r"scaled_dot_product_attention.*")
_MASK = (r"masked_fill.*|where\s*\(.*|mask.*",)
_LAYOUT = (r"\.(view|reshape|transpose|permute|swapaxes)\(.*", r"rearrange.*")
SPLIT = "axes are merged or split in another order than declared"
SUMMED = "heads take part in a sum, or `view` was used where `transpose` was meant"


def shrink(inquiry: Inquiry) -> None:
    """Smaller inputs, until no weight that is allowed drowns in another."""
    setting = inquiry.settings.plain()
    allowed = inquiry.settings.declared(setting)
    for _ in range(10):
        q, k, _ = inquiry.inputs()
        weights = np.where(allowed, np.abs(inquiry.weights(q, k, setting)), np.nan)
        seen = weights[(weights > 0) & np.isfinite(weights)]
        if not seen.size or seen.min() > 1e-4 * np.median(seen):
            return
        if inquiry.size == 1.0 and _is_normed(inquiry, q, k):
            inquiry.normed = True
            return
        inquiry.size /= 4


def _is_normed(inquiry: Inquiry, q: Any, k: Any) -> bool:
    """Whether queries and keys of half the size give the same scores: they are normed before they are compared."""
    access, setting = inquiry.access, inquiry.settings.plain()
    draws = [observe(access, q * size, k * size, setting, each=False) for size in (0.0, 1.0, 0.5)]
    logs = [logarithms(access, draw) for draw in draws]
    support = np.logical_and.reduce([marks for _, marks in logs])
    bias, whole, half = (centred(access, values, support, "key") for values, _ in logs)
    return float(np.abs(half - whole).max()) < 0.1 * float(np.abs(whole - bias).max())


def measure_precision(inquiry: Inquiry) -> None:
    """How coarse the weights are, where they have few digits: by second differences, which should vanish."""
    q, k, _ = inquiry.inputs()
    setting = inquiry.settings.plain()
    near = [inquiry.weights(q * (1 + step), k, setting) for step in (0.0, 1e-3, 2e-3)]
    with np.errstate(invalid="ignore"):
        bend = float(np.nanmax(np.abs(near[0] - 2 * near[1] + near[2]), initial=0.0))
    if bend > 2e-5:
        inquiry.slack = min(0.05, 4 * bend * inquiry.access.J)
        inquiry.found["precision"] = f"weights are computed in few digits: they are off by about {number(bend)}"


def structure(inquiry: Inquiry) -> bool:
    """Whether a value arrives in the lanes and features it belongs to, and nowhere else; and the output is linear."""
    setting = inquiry.settings.plain()
    q, k, v = inquiry.inputs()
    out = inquiry.forward(q, k, v, setting)
    draw = inquiry.observe(q, k, setting)
    probe = draw if inquiry.each else inquiry.sample(q, k, setting)
    nothing = np.isnan(draw.full).all()
    silent = nothing or not np.nanmax(np.abs(draw.full), initial=0.0) > 0
    if silent and setting.keeps and _hears_when_dropped(inquiry, q, k, v):
        name = next(iter(setting.keeps))
        cause = f"the mask `{name}` is read the wrong way round: what it drops is heard, what it keeps is not"
        inquiry.report(
            "mask",
            "where nothing is masked, no key is heard",
            "every output is NaN" if nothing else "no value moves any output",
            cause,
            "turn the mask round",
            _MASK,
        )
        return False
    if nothing:
        inquiry.report(
            "finite", "every output is NaN", "no masks, ordinary inputs", "a mask leaves no key, or a division by 0", ""
        )
        return False
    base = inquiry.forward(q, k, np.zeros_like(v), setting)
    expected = base + np.einsum("aibj,bje->aie", np.nan_to_num(draw.full), v)
    finite = np.isfinite(out)
    scale = max(1.0, float(np.abs(expected).max()))
    astray = probe.astray > max(1e-6, 0.1 * inquiry.slack) * max(float(np.nanmax(np.abs(probe.full))), 1e-300)
    lanes = _lanes_astray(inquiry, probe)
    if (astray or lanes) and _split_otherwise(inquiry):
        return structure(inquiry)
    if astray or lanes:
        bent = "" if lanes == "b" else _bent(inquiry, (q, k, v), out, base, setting)
        if bent and not _read_otherwise(inquiry, bent, lanes):
            inquiry.cannot("weights", bent)
            inquiry.found["values"] = bent
        elif not bent:
            inquiry.tested("values")
            _misplaced(inquiry, probe, astray, lanes)
        return False
    if not np.allclose(out[finite], expected[finite], atol=inquiry.slack * scale, rtol=max(1e-5, inquiry.slack)):
        if _read_otherwise(inquiry, "the output is not linear in the values", None):
            return False
        inquiry.found["values"] = "the output is not linear in the values: weights are not recovered"
        inquiry.cannot("weights", inquiry.found["values"])
        return False
    if np.nanmax(np.abs(base), initial=0.0) > 1e-9 and not inquiry.contract.residual:
        inquiry.found["added"] = "something that does not depend on the values is added to the output"
    inquiry.tested("values")
    inquiry.first = draw
    if silent:
        inquiry.report(
            "dead input",
            "the values have no effect on the output",
            "they were replaced, and nothing moved",
            "the values are not used",
            "gather the values: `weights @ v`",
            _PRODUCT,
        )
        return False
    return True


def _split_otherwise(inquiry: Inquiry) -> bool:
    """Whether heads are split from what is projected, and merged again, in another order than usual, but in one and the
    same; the inquiry goes on in that order then."""
    access = inquiry.access
    if not isinstance(access, Direct) or not access.projected or access.ports["q"].part is not None:
        return False
    if any(port.reread for port in access.ports.values()):
        return False
    reading = reading_that_fits(inquiry)
    if reading is None or not reading.consistent:
        return False
    inquiry.access = access.reread(reading.changes)
    inquiry.found["packing"] = f"({reading.splits['q'][0]})"
    return True


def _bent(inquiry: Inquiry, arrays: tuple[Any, Any, Any], out: Any, base: Any, setting: Any) -> str:
    """Why values need not arrive as they are: the output is no sum of them, but normed or bent otherwise."""
    q, k, v = arrays
    twice = inquiry.forward(q, k, 2 * v, setting) - base
    finite = np.isfinite(out) & np.isfinite(twice)
    size = max(1.0, float(np.abs(out[finite]).max(initial=0.0)))
    if np.allclose(twice[finite], 2 * (out - base)[finite], atol=1e-6 * size, rtol=1e-5):
        return ""
    return "the output is not linear in the values: weights are not recovered"


def _hears_when_dropped(inquiry: Inquiry, q: Any, k: Any, v: Any) -> bool:
    """Whether a mask that drops everything lets everything through."""
    plain = inquiry.settings.plain()
    dropped = {name: inquiry.settings.written(name, np.zeros_like(keep)) for name, keep in plain.keeps.items()}
    out, base = (inquiry.access.forward(q, k, each, {**plain.arrays, **dropped}) for each in (v, np.zeros_like(v)))
    return bool(np.isfinite(out).all()) and bool(np.abs(out - base).max() > 0)


def _lanes_astray(inquiry: Inquiry, draw: Draw) -> str | None:
    """The letter along which values reach lanes that are not theirs."""
    access = inquiry.access
    strange = (np.nan_to_num(np.abs(draw.full)).max((1, 3)) > 0) & ~access.related["v"]
    if not strange.any():
        return None
    for letter in ("b", *access.lanes["v"]):
        mine, theirs = access.lanes["out"].get(letter), access.lanes["v"].get(letter)
        if mine is not None and theirs is not None and (strange & (mine[:, None] != theirs[None, :])).any():
            return letter
    return "g" if "g" in access.lanes["v"] else next(iter(access.lanes["v"]))


def _misplaced(inquiry: Inquiry, draw: Draw, astray: bool, letter: str | None) -> None:
    access = inquiry.access
    base = Model(inquiry.settings.declared, scale=None)
    cause = explain(inquiry.settings, base, [draw], inquiry.slack) if not astray else None
    if letter is not None:
        strange = (np.nan_to_num(np.abs(draw.full)) > 0) & ~access.related["v"][:, None, :, None]
        lane, query, other, key = (int(x) for x in np.argwhere(strange)[0])
        witness = f"{inquiry.out_at(lane, query)} moves when {inquiry.input_at('v', other, key)} moves"
    else:
        other, key, lane, query = draw.place
        witness = f"{inquiry.out_at(lane, query)} moves in other features than {inquiry.input_at('v', other, key)} does"
    if cause is not None:
        inquiry.report(cause.law, cause.message, witness, cause.cause, cause.mend, cause.hints)
        return
    if letter is not None and heads_in_another_order(inquiry, witness):
        return
    if _read_otherwise(inquiry, witness, letter):
        return
    law = "layout" if letter is None else letter_law(letter)
    if letter is not None:
        name = {"batch": "examples of the batch are mixed", "heads": "heads are mixed"}.get(
            law, f"points of `{letter}` are mixed"
        )
        inquiry.report(
            law,
            name,
            witness,
            _mixed(letter),
            "transpose before `view` or `reshape`; merge axes only where they are neighbours",
            _LAYOUT,
        )
        return
    columns = _arriving(inquiry, draw)
    features = _over_features(draw)
    words = "values are gathered over features, and not over positions" if features else ""
    if np.abs(columns - np.diag(np.diag(columns))).max() <= 1e-9 * np.abs(columns).max():
        words = "each feature of the output is multiplied by a number of its own"
    if features and inquiry.contract.causal is not None:
        inquiry.report(
            "layout",
            words,
            witness,
            "the scores compare features, and not positions: an axis is transposed before the product",
            "`q @ k.transpose(-2, -1)`, whose last two axes are queries and keys",
            _PRODUCT,
        )
        return
    if words:
        inquiry.laws.remove("values")
        inquiry.cannot("weights", f"{words}: weights are not recovered")
        inquiry.found["values"] = words
        return
    turned = _values_turn(columns)
    inquiry.report(
        "layout",
        "values arrive in other features than they come from",
        witness,
        "the values are rotated as well: each arrives turned by its position"
        if turned
        else SPLIT,
        "rotate queries and keys alone"
        if turned
        else "merge `(h e)` with the heads first: transpose, then reshape",
        (r"rot\w*.*|cos.*|sin.*",) if turned else _LAYOUT,
    )


def _arriving(inquiry: Inquiry, draw: Draw) -> Any:
    """What arrives of each feature of a value, at the place where others than its own move: over both features."""
    access = inquiry.access
    lane, key, at, query = draw.place
    base = inquiry.forward(draw.q, draw.k, np.zeros(access.shape("v")), draw.setting)
    columns = []
    for code in np.eye(access.E):
        v = np.zeros(access.shape("v"))
        v[lane, key] = code
        columns.append((inquiry.forward(draw.q, draw.k, v, draw.setting) - base)[at, query])
    return np.array(columns)


def _over_features(draw: Draw) -> bool:
    """Whether a value arrives at its own position alone, though in other features than its own."""
    heard = np.nan_to_num(np.abs(draw.full)).max((0, 2)) > 0
    square = heard.shape[0] == heard.shape[1]
    return bool(heard.any()) and square and not heard[~np.eye(len(heard), dtype=bool)].any()


def _values_turn(columns: Any) -> bool:
    """Whether a value keeps its length on its way, and only its direction changes: it is rotated."""
    product = columns @ columns.T
    fixed = np.isin(np.round(np.abs(columns) / np.abs(columns).max(), 6), (0.0, 1.0)).all()
    return not fixed and bool(np.allclose(product, product[0, 0] * np.eye(len(columns)), atol=1e-9))


def _read_otherwise(inquiry: Inquiry, witness: str, letter: str | None) -> bool:
    """Whether all goes where it belongs with arguments in another order, or with memory read as another layout."""
    if not isinstance(inquiry.access, Direct):
        return False
    roles = roles_that_fit(inquiry)
    if roles is not None:
        names = {"q": "queries", "k": "keys", "v": "values"}
        used = [f"the {names[b]} as {names[a]}" for a, b in zip("qkv", roles, strict=True) if a != b]
        inquiry.report(
            "roles",
            f"the callable uses {' and '.join(used)}",
            witness,
            "arguments, or parts of a packed array, are in another order",
            "take q, k and v in the order in which they are given",
            _PRODUCT,
        )
        return True
    reading = reading_that_fits(inquiry)
    if reading is not None:
        law = "packing" if reading.packing else "layout" if letter is None else letter_law(letter)
        inquiry.report(law, *reading.words(witness), hints=_LAYOUT)
    return reading is not None


def _mixed(letter: str) -> str:
    if letter == "b":
        return "the batch takes part in a product or a sum, or `view` was used where `transpose` was meant"
    return SUMMED
