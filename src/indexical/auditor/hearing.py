"""Laws of hearing: who moves when a query or a key moves, and who hears whom."""

from __future__ import annotations

from typing import Any

import numpy as np

from .inquiry import Inquiry, letter_law, normalised_over
from .observing import Draw, moved, own

_PRODUCT = (r"einsum.*|matmul.*|bmm.*| @ .*", r"scaled_dot_product_attention.*")


def locality(inquiry: Inquiry, violations: list[dict[str, Any]]) -> None:
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
            strange = touched & ~related[:, None]
            if strange.any() and _only_by_size(inquiry, (q, k, v), role, lane, position, strange, before):
                touched &= related[:, None]
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


def _only_by_size(
    inquiry: Inquiry, arrays: tuple[Any, Any, Any], role: str, lane: int, position: int, strange: Any, before: Any
) -> bool:
    """Whether a query or key moves other heads of its example by its size alone, as where all heads are normed
    together: with its features in another order, it moves none."""
    outs, mine = inquiry.access.lanes["out"], inquiry.access.lanes[role]
    others = [letter for letter in outs if letter not in ("h", "g") and letter in mine]
    if any((strange.any(1) & (outs[letter] != mine[letter][lane])).any() for letter in others):
        return False
    if role == "q" and np.delete(strange, position, 1).any():
        return False
    q, k, v = arrays
    changed = (q if role == "q" else k).copy()
    changed[lane, position] = np.roll(changed[lane, position], 1)
    after = inquiry.forward(*((changed, k) if role == "q" else (q, changed)), v, inquiry.settings.plain())
    change = np.nan_to_num(np.abs(after - before)).max((1, 2))
    related = inquiry.access.related[role][:, lane]
    # Rounding moves a little: a softmax may be in single precision.
    normed = bool(change[~related].max(initial=0.0) < 1e-4 * change[related].max(initial=0.0))
    if normed:
        inquiry.found["norm"] = "queries or keys are normed over all heads together"
    return normed


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
        violations.append(leak(inquiry, at, query, position, inquiry.settings.plain(), "key"))


_PLACES = 32  # Queries, and keys, that are moved one at a time.


def _places(inquiry: Inquiry, role: str) -> list[tuple[int, int]]:
    """Lanes and positions to move: all of them, or some, every lane and every position among them."""
    lanes, length, _ = inquiry.access.shape(role)
    if lanes * length <= _PLACES:
        return [(lane, position) for lane in range(lanes) for position in range(length)]
    turns = range(max(_PLACES, lanes, length) if max(lanes, length) <= 160 else 160)
    return sorted({(turn % lanes, (turn + turn // lanes) % length) for turn in turns} | {(lanes - 1, length - 1)})


def dead_entries(inquiry: Inquiry) -> None:
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


def leak(inquiry: Inquiry, lane: int, query: int, key: int, setting: Any, what: str) -> dict[str, Any]:
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


def reach(inquiry: Inquiry, draws: list[Draw], violations: list[dict[str, Any]]) -> None:
    """Leaks and gaps, through the weights themselves."""
    inquiry.tested("reach")
    access, settings, contract = inquiry.access, inquiry.settings, inquiry.contract
    positions = contract.causal or contract.window is not None or contract.causal is False
    shapes = dict(position_shapes(inquiry)) if not positions else {}
    for draw in draws:
        weights = own(access, draw.full)
        allowed = settings.declared(draw.setting)
        heard = np.nan_to_num(np.abs(weights)) > 0
        leaking = heard & ~allowed
        if leaking.any():
            lane, query, key = (int(x) for x in np.argwhere(leaking)[0])
            violations.append(leak(inquiry, lane, query, key, draw.setting, "value"))
        shapes = {name: relation for name, relation in shapes.items() if np.array_equal(heard, allowed & relation)}
        gap = allowed & ~heard & np.isfinite(weights)
        if gap.any():  # A weight may be too small to be seen: where queries and keys are 0, all are alike.
            even = inquiry.weights(np.zeros_like(draw.q), np.zeros_like(draw.k), draw.setting)
            gap &= np.isfinite(even) & ~(np.abs(even) > 0)
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


def position_shapes(inquiry: Inquiry) -> list[tuple[str, Any]]:
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
