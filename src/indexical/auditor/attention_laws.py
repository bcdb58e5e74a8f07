"""The laws of an attention that takes queries, keys and values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .access import Direct
from .diagnosis import explain
from .inquiry import Inquiry, letter_law, number
from .layouts import query_reading_that_fits, reading_that_fits, roles_that_fit
from .models import Model
from .observing import Draw, moved, own
from .positions import rotary_law
from .scores import bias_law, kernel_law, scale_law, softcap_law
from .strength import additive_law, empty_law, sink_law, strength_law

_PRODUCT = (r"einsum.*|matmul.*|bmm.*| @ .*", r"scaled_dot_product_attention.*")
_MASK = (r"masked_fill.*|where\s*\(.*|mask.*",)
_LAYOUT = (r"\.(view|reshape|transpose|permute|swapaxes)\(.*", r"rearrange.*")


def judge(inquiry: Inquiry) -> None:
    """All laws; those that rest on others are left out where those are broken."""
    if not inquiry.access.aligned:
        inquiry.found["weights"] = "not recovered: the axes of the output do not tell its heads and features"
        return
    _shrink(inquiry)
    _measure_precision(inquiry)
    if not _structure(inquiry):
        return
    draws = _draws(inquiry)
    if inquiry.contract.kernel is not None:
        _rows(inquiry, draws, [])
        kernel_law(inquiry, draws)
        return
    violations: list[dict[str, Any]] = []
    _locality(inquiry, violations)
    _reach(inquiry, draws, violations)
    _rows(inquiry, draws, violations)
    if not violations:
        _irrelevant_keys(inquiry, draws, violations)
    base = _base(inquiry, draws)
    if violations:
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
            if not scale_law(inquiry, draws):
                _score_law(inquiry, draws, base)
            softcap_law(inquiry)
    additive_law(inquiry)
    if not violations:
        _dead_entries(inquiry)
        strength_law(inquiry)
        sink_law(inquiry)
        empty_law(inquiry)


def _shrink(inquiry: Inquiry) -> None:
    """Smaller inputs, until no weight that is allowed drowns in another."""
    setting = inquiry.settings.plain()
    allowed = inquiry.settings.declared(setting)
    for _ in range(10):
        q, k, _ = inquiry.inputs()
        weights = np.where(allowed, np.abs(inquiry.weights(q, k, setting)), np.nan)
        seen = weights[(weights > 0) & np.isfinite(weights)]
        if not seen.size or seen.min() > 1e-4 * np.median(seen):
            return
        inquiry.size /= 4


def _measure_precision(inquiry: Inquiry) -> None:
    """How coarse the weights are, where they have few digits: by second differences, which should vanish."""
    q, k, _ = inquiry.inputs()
    setting = inquiry.settings.plain()
    near = [inquiry.weights(q * (1 + step), k, setting) for step in (0.0, 1e-3, 2e-3)]
    with np.errstate(invalid="ignore"):
        bend = float(np.nanmax(np.abs(near[0] - 2 * near[1] + near[2]), initial=0.0))
    if bend > 2e-5:
        inquiry.slack = min(0.05, 4 * bend * inquiry.access.J)
        inquiry.found["precision"] = f"weights are computed in few digits: they are off by about {number(bend)}"


# ------------------------------------------------------------------- structure


def _structure(inquiry: Inquiry) -> bool:
    """Whether a value arrives in the lanes and features it belongs to, and nowhere else; and the output is linear."""
    setting = inquiry.settings.plain()
    q, k, v = inquiry.inputs()
    out = inquiry.forward(q, k, v, setting)
    draw = inquiry.observe(q, k, setting)
    probe = draw if inquiry.each else inquiry.sample(q, k, setting)
    if np.isnan(draw.full).all():
        if setting.keeps and _hears_when_dropped(inquiry, q, k, v):
            name = next(iter(setting.keeps))
            cause = f"the mask `{name}` is read the wrong way round: what it drops is heard, what it keeps is not"
            inquiry.report(
                "mask",
                "where nothing is masked, no key is heard",
                "every output is NaN",
                cause,
                "turn the mask round",
                _MASK,
            )
            return False
        inquiry.report(
            "finite", "every output is NaN", "no masks, ordinary inputs", "a mask leaves no key, or a division by 0", ""
        )
        return False
    base = inquiry.forward(q, k, np.zeros_like(v), setting)
    inquiry.tested("values")
    expected = base + np.einsum("aibj,bje->aie", np.nan_to_num(draw.full), v)
    finite = np.isfinite(out)
    scale = max(1.0, float(np.abs(expected).max()))
    astray = probe.astray > max(1e-6, 0.1 * inquiry.slack) * max(float(np.nanmax(np.abs(probe.full))), 1e-300)
    lanes = _lanes_astray(inquiry, probe)
    if astray or lanes:
        _misplaced(inquiry, probe, astray, lanes)
        return False
    if not np.allclose(out[finite], expected[finite], atol=inquiry.slack * scale, rtol=max(1e-5, inquiry.slack)):
        inquiry.found["values"] = "the output is not linear in the values: weights are not recovered"
        return False
    if np.nanmax(np.abs(base), initial=0.0) > 1e-9 and not inquiry.contract.residual:
        inquiry.found["added"] = "something that does not depend on the values is added to the output"
    if not np.nanmax(np.abs(draw.full), initial=0.0) > 0:
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


def _hears_when_dropped(inquiry: Inquiry, q: Any, k: Any, v: Any) -> bool:
    """Whether a mask that drops everything lets everything through."""
    plain = inquiry.settings.plain()
    dropped = {name: inquiry.settings.written(name, np.zeros_like(keep)) for name, keep in plain.keeps.items()}
    out = inquiry.access.forward(q, k, v, {**plain.arrays, **dropped})
    return bool(np.isfinite(out).all())


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
    roles = roles_that_fit(inquiry) if isinstance(access, Direct) else None
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
        return
    law = "layout" if letter is None else letter_law(letter)
    reading = reading_that_fits(inquiry) if isinstance(access, Direct) else None
    if reading is not None:
        inquiry.report(law if letter else "layout", *reading.words(witness), hints=_LAYOUT)
        return
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
    else:
        inquiry.report(
            "layout",
            "values arrive in other features than they come from",
            witness,
            "axes are merged or split in another order than declared",
            "merge `(h e)` with the heads first: transpose, then reshape",
            _LAYOUT,
        )


def _mixed(letter: str) -> str:
    if letter == "b":
        return "the batch takes part in a product or a sum, or `view` was used where `transpose` was meant"
    return "heads take part in a sum, or `view` was used where `transpose` was meant"


# ---------------------------------------------------------------------- draws


def _draws(inquiry: Inquiry) -> list[Draw]:
    """Weights for several queries and keys, with and without masks."""
    plain = inquiry.settings.plain()
    draws = []
    varied = bool(plain.keeps) or inquiry.contract.documents is not None
    count = 2 if inquiry.each else 3
    for turn in range(count + (3 if varied else 0)):
        q, k, _ = inquiry.inputs()
        setting = plain if turn < count else inquiry.settings.draw(inquiry.rng)
        draws.append(inquiry.observe(q, k, setting))
    return draws


def _base(inquiry: Inquiry, draws: list[Draw]) -> Model:
    """The declared model, with a scale and a bias that were measured where they are not declared."""
    return Model(inquiry.settings.declared, scale=None, bias=0.0, softcap=inquiry.contract.softcap)


# ------------------------------------------------------------------- locality


def _locality(inquiry: Inquiry, violations: list[dict[str, Any]]) -> None:
    """Moving one query moves its own row; moving one key moves rows of its own lanes that may hear it."""
    access = inquiry.access
    inquiry.tested("locality")
    inquiry.tested("independence of batch and heads")
    setting = inquiry.settings.plain()
    allowed = inquiry.settings.declared(setting)
    q, k, v = inquiry.inputs()
    before = inquiry.forward(q, k, v, setting)
    for role in ("q", "k"):
        if role == "q" and normalised_over(inquiry) == "query":
            continue
        source = q if role == "q" else k
        any_moved = False
        for lane, position in _places(inquiry, role):
            changed = source.copy()
            changed[lane, position] = inquiry.rng.normal(size=access.D) * np.abs(source).mean() * 2
            after = inquiry.forward(*((changed, k) if role == "q" else (q, changed)), v, setting)
            touched = moved(before, after, inquiry.tolerance)
            any_moved |= bool(touched.any())
            related = access.related[role][:, lane]
            _judge_movement(inquiry, violations, role, lane, position, touched, related, allowed)
        if not any_moved and (access.J > 1):
            name = {"q": "queries", "k": "keys"}[role]
            violations.append(
                {
                    "law": "dead input",
                    "message": f"the {name} have no effect on the output",
                    "witness": f"`{access.ports[role].name}` was replaced, and nothing moved",
                }
            )


def normalised_over(inquiry: Inquiry) -> str:
    """The axis that the contract normalises over."""
    ports = inquiry.access.ports
    apart = ports["q"].position != ports["k"].position
    return "query" if apart and inquiry.contract.attends == ports["q"].position else "key"


def _judge_movement(
    inquiry: Inquiry,
    violations: list[dict[str, Any]],
    role: str,
    lane: int,
    position: int,
    touched: Any,
    related: Any,
    allowed: Any,
) -> None:
    access = inquiry.access
    strange = touched & ~related[:, None]
    if strange.any():
        at, query = (int(x) for x in np.argwhere(strange)[0])
        letters = [
            x
            for x in access.lanes["out"]
            if x in access.lanes[role] and access.lanes["out"][x][at] != access.lanes[role][x][lane]
        ]
        letter = letters[0] if letters else "h"
        if letter == inquiry.contract.attends:
            return
        what = {"b": "one example of the batch moves another", "h": "one head moves another"}.get(
            letter, f"one point of `{letter}` moves another"
        )
        violations.append(
            {
                "law": letter_law(letter),
                "message": what,
                "witness": f"{inquiry.out_at(at, query)} moves when {inquiry.input_at(role, lane, position)} moves",
            }
        )
    if role == "q":
        others = touched & related[:, None]
        others[:, position] = False
        if others.any():
            at, query = (int(x) for x in np.argwhere(others)[0])
            violations.append(
                {
                    "law": "locality",
                    "message": "moving one query moves other rows of the output",
                    "witness": f"{inquiry.out_at(at, query)} moves when {inquiry.input_at(role, lane, position)} moves",
                }
            )
        return
    heard = touched & related[:, None] & ~allowed[:, :, position]
    if heard.any():
        at, query = (int(x) for x in np.argwhere(heard)[0])
        violations.append(_leak(inquiry, at, query, position, inquiry.settings.plain(), "key"))


def _places(inquiry: Inquiry, role: str) -> list[tuple[int, int]]:
    lanes, length, _ = inquiry.access.shape(role)
    places = [(lane, position) for lane in range(lanes) for position in range(length)]
    if len(places) > 160:
        step = len(places) / 160
        places = sorted({places[int(at * step)] for at in range(160)} | {places[0], places[-1]})
    return places


def _score_law(inquiry: Inquiry, draws: list[Draw], base: Model) -> None:
    """Scores that are no multiple of `q·k` may still be a known mistake."""
    model = explain(inquiry.settings, base, draws, inquiry.slack, law="score")
    if model is not None:
        witness = "log-weights are exactly those of that mistake, for every query and key"
        inquiry.report(model.law, model.message, witness, model.cause, model.mend, model.hints)


def _dead_entries(inquiry: Inquiry) -> None:
    """Every feature of queries, keys and values moves something."""
    access = inquiry.access
    if inquiry.findings or access.J < 2:
        return
    inquiry.tested("dead entries")
    setting = inquiry.settings.plain()
    arrays = dict(zip("qkv", inquiry.inputs(), strict=True))
    before = inquiry.forward(arrays["q"], arrays["k"], arrays["v"], setting)
    for role in "qkv":
        features = range(arrays[role].shape[2])
        for feature in sorted({0, 1, len(features) // 2, len(features) - 1} & set(features)):
            changed = arrays[role].copy()
            changed[..., feature] = inquiry.rng.normal(size=changed.shape[:2]) * (np.abs(changed).mean() + 0.1) * 2
            now = {**arrays, role: changed}
            after = inquiry.forward(now["q"], now["k"], now["v"], setting)
            if not moved(before, after, inquiry.tolerance * 1e-3).any():
                name = {"q": "queries", "k": "keys", "v": "values"}[role]
                inquiry.report(
                    "dead entries",
                    f"feature {feature} of the {name} has no effect",
                    f"`{access.ports[role].name}` was changed there, and nothing moved",
                    "features are cut off: a slice, a split or a width is too small",
                    "compare all features of one head",
                    _PRODUCT,
                )
                return


# ---------------------------------------------------------------------- reach


def _leak(inquiry: Inquiry, lane: int, query: int, key: int, setting: Any, what: str) -> dict[str, Any]:
    for component in inquiry.settings.components():
        if not component.relation(setting)[lane, query, key]:
            if component.name == "causal" and key > query + inquiry.settings.offset * (
                inquiry.contract.causal == "bottom-right"
            ):
                law, message = "causal", "a query hears the future"
                offset = inquiry.access.J - inquiry.access.I if inquiry.contract.causal == "bottom-right" else 0
                why = f"{key} > {query + offset}"
            elif component.name in ("causal", "window"):
                law, message, why = (
                    "window",
                    "a query hears a key outside its window",
                    f"the window is {inquiry.contract.window}",
                )
            else:
                law = "mask" if component.name.startswith("mask") else component.name
                message, why = f"a query hears a key that {component.name} drops", f"{component.name} drops it"
            position = inquiry.access.ports["k"].position
            return {
                "law": law,
                "message": message,
                "witness": f"{inquiry.out_at(lane, query)} moves when the {what} at {position} = {key} moves; {why}",
            }
    return {
        "law": "reach",
        "message": "a query hears a key that it may not",
        "witness": f"{inquiry.out_at(lane, query)}, key {key}",
    }


def _reach(inquiry: Inquiry, draws: list[Draw], violations: list[dict[str, Any]]) -> None:
    """Leaks and gaps, through the weights themselves."""
    inquiry.tested("reach")
    access, settings, contract = inquiry.access, inquiry.settings, inquiry.contract
    positions = contract.causal or contract.window is not None or contract.causal is False
    shapes = dict(_shapes(inquiry)) if not positions else {}
    for draw in draws:
        weights = own(access, draw.full)
        allowed = settings.declared(draw.setting)
        heard = np.nan_to_num(np.abs(weights)) > 0
        leak = heard & ~allowed
        if leak.any():
            lane, query, key = (int(x) for x in np.argwhere(leak)[0])
            violations.append(_leak(inquiry, lane, query, key, draw.setting, "value"))
        shapes = {name: relation for name, relation in shapes.items() if np.array_equal(heard, allowed & relation)}
        gap = allowed & ~heard & np.isfinite(weights)
        if positions and gap.any():
            lane, query, key = (int(x) for x in np.argwhere(gap)[0])
            violations.append(_gap(inquiry, lane, query, key))
        elif not positions and gap.any() and contract.masks and not shapes:
            only = gap & settings.declared(settings.plain())
            if only.any() and np.array_equal(
                np.nan_to_num(np.abs(own(access, draws[0].full))) > 0, np.ones_like(heard)
            ):
                lane, query, key = (int(x) for x in np.argwhere(only)[0])
                violations.append(_gap(inquiry, lane, query, key))
        if np.isnan(weights).any():
            lane, query, _ = (int(x) for x in np.argwhere(np.isnan(weights))[0])
            violations.append(
                {
                    "law": "finite",
                    "message": "an output is NaN though its query may hear keys",
                    "witness": f"{inquiry.out_at(lane, query)} is NaN",
                }
            )
    if not positions:
        inquiry.found["reach"] = next(iter(shapes), "irregular") if shapes or not violations else "irregular"


def _gap(inquiry: Inquiry, lane: int, query: int, key: int) -> dict[str, Any]:
    position = inquiry.access.ports["k"].position
    return {
        "law": "gap",
        "message": "a query does not hear a key that it may",
        "witness": f"{inquiry.out_at(lane, query)} does not move when the value at {position} = {key} moves",
    }


def _shapes(inquiry: Inquiry) -> list[tuple[str, Any]]:
    """The usual relations of positions, by name."""
    access = inquiry.access
    distance = np.arange(access.J)[None, :] - np.arange(access.I)[:, None]
    shift = access.J - access.I
    shapes = [("every key", distance < access.J + access.I), ("causal: j <= i", distance <= 0)]
    if shift:
        shapes.append((f"causal: j <= i + {shift}", distance <= shift))
    shapes += [("j >= i: the past is not heard", distance >= 0)]
    for width in range(1, access.J):
        shapes.append((f"a window of {width} keys, causal", (distance <= shift) & (distance > shift - width)))
        shapes.append((f"a window of {width - 1} keys on either side", np.abs(distance) < width))
    return [(name, np.broadcast_to(shape, (access.count["out"], *shape.shape))) for name, shape in shapes]


# ----------------------------------------------------------------------- rows


def _rows(inquiry: Inquiry, draws: list[Draw], violations: list[dict[str, Any]]) -> None:
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


def _irrelevant_keys(inquiry: Inquiry, draws: list[Draw], violations: list[dict[str, Any]]) -> None:
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


# --------------------------------------------------------------------- causes


_GENERAL = {
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
    "gap": ("the mask drops too much", "compare the mask with the relation that is declared"),
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


def _report(inquiry: Inquiry, base: Model, draws: list[Draw], violations: list[dict[str, Any]]) -> None:
    """The cause, where one mistake explains all that was seen; else the laws that are broken."""
    model = explain(inquiry.settings, replace(base, over=normalised_over(inquiry)), draws, inquiry.slack)
    if model is not None:
        witness = next((item["witness"] for item in violations if item["law"] == model.law), violations[0]["witness"])
        inquiry.report(model.law, model.message, witness, model.cause, model.mend, model.hints)
        return
    seen: set[str] = set()
    mixed = [law for law in ("batch", "heads", "locality") if any(item["law"] == law for item in violations)]
    if mixed and isinstance(inquiry.access, Direct):
        reading = query_reading_that_fits(inquiry)
        if reading is not None:
            witness = next(item["witness"] for item in violations if item["law"] == mixed[0])
            inquiry.report(mixed[0], *reading.words(witness), hints=_LAYOUT)
            return
    if mixed:
        violations = [item for item in violations if item["law"] == mixed[0]]
    for item in violations:
        if item["law"] not in seen:
            seen.add(item["law"])
            cause, mend = _GENERAL.get(item["law"], ("", ""))
            inquiry.report(**item, cause=cause, mend=mend)
