"""Which other reading of the same memory would make sense of a callable: `view` where `transpose` was meant."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .access import Direct
from .diagnosis import groups_in_turn, regrouped
from .inquiry import Inquiry
from .observing import moved

_PATIENCE = 2.0
_LANES = 64


@dataclass(frozen=True)
class Reading:
    """The arrays whose memory is taken for another layout."""

    access: Direct
    changes: dict[str, tuple[str, ...]]

    def split(self, role: str) -> tuple[str, str] | None:
        """The order in which the packed axis of an array is split, and the one that it has, where only that differs."""
        port, order = self.access.ports[role], self.changes[role]
        layout = port.layout if len(order) == len(port.layout.factors) else port.own
        apart = {place for place, pair in enumerate(zip(order, layout.factors, strict=True)) if pair[0] != pair[1]}
        start = 0
        for dim in layout.dims:
            if apart <= set(range(start, start + len(dim))):
                return " ".join(order[start : start + len(dim)]), " ".join(dim)
            start += len(dim)
        return None

    @property
    def splits(self) -> dict[str, tuple[str, str]]:
        """The same for every array that is read otherwise; nothing where some differ in more than that."""
        found = {role: self.split(role) for role in self.changes}
        return {role: pair for role, pair in found.items() if pair} if all(found.values()) else {}

    @property
    def consistent(self) -> bool:
        """Whether queries, keys, values and the output are all split in the same order, which may be meant so."""
        features = dict.fromkeys((self.access.ports["q"].feature, self.access.ports["v"].feature), "d")
        orders = {
            tuple(features.get(factor, factor) for factor in pair[0].split() if not factor.isdigit())
            for pair in self.splits.values()
        }
        return set(self.splits) == {"q", "k", "v", "out"} and len(orders) == 1

    @property
    def packing(self) -> bool:
        """Whether only the order differs in which the packed axis of queries, keys and values is split."""
        port = self.access.ports["q"]
        whole = len(self.changes.get("q", ())) == len(port.layout.factors)
        return port.part is not None and whole and "q" in self.splits and "out" not in self.changes

    def words(self, witness: str) -> tuple[str, str, str, str]:
        """The message, the witness, the cause and the mend."""
        ports, splits = self.access.ports, self.splits
        words = {"q": "the queries", "k": "the keys", "v": "the values"}
        names = {role: "the output" if role == "out" else f"`{ports[role].name}`" for role in self.changes}
        layouts = {role: ports[role].layout for role in self.changes}
        for role in [role for role, order in self.changes.items() if len(order) < len(ports[role].layout.factors)]:
            names[role], layouts[role] = f"{words[role]} in {names[role]}", ports[role].own
        if splits:
            message = " and ".join(
                dict.fromkeys(
                    f"{names[role]} {_verb(role, names[role])} as ({seen}), and not as ({declared})"
                    for role, (seen, declared) in splits.items()
                )
            )
            order, right = next(iter(splits.values()))
            others = [words[role] for role in "qkv" if role not in splits]
            told = [words[role] for role in splits if role != "out"]
            cause = f"heads and features of {' and '.join(told)} are split as ({order})"
            cause += f", those of {' and '.join(others)} as ({right})" if others else f", where ({right}) is declared"
            if self.packing:
                cause = "the packed axis is reshaped or chunked in another order than it has"
            elif not told:
                cause = f"heads are merged in the wrong order: as ({order}), and not as ({right})"
            return message, witness, cause, f"split and merge all of them as ({right})"
        parts = [
            f"{names[role]} as `{' '.join(order)}` (it is `{layouts[role]}`)"
            for role, order in self.changes.items()
        ]
        inputs = [part for part, role in zip(parts, self.changes, strict=True) if role != "out"]
        if not inputs:
            merged = " ".join(self.changes["out"])
            message = f"the output is laid out as `{merged}`, and not as `{ports['out'].layout}`"
            cause = "heads are merged in the wrong order: `view` or `reshape` without the right `transpose` before it"
            return (
                message,
                witness,
                cause,
                "transpose to the declared order first, then merge: `.transpose(1, 2).reshape(b, n, h * d)`",
            )
        message = f"the callable reads the memory of {' and '.join(dict.fromkeys(parts))}"
        cause = "`view` or `reshape` is used where `transpose` is meant: positions, heads and batch are mixed"
        return message, witness, cause, "split the axis first (`view(b, n, h, d)`), then transpose (`.transpose(1, 2)`)"


def _verb(role: str, name: str) -> str:
    return "is merged" if role == "out" else "are split" if name.startswith("the ") else "is split"


def reading_that_fits(inquiry: Inquiry) -> Reading | None:
    """The reading, nearest to the declared one, under which every value, query and key goes where it belongs."""
    access = inquiry.access
    assert isinstance(access, Direct)
    stop = time.monotonic() + _PATIENCE
    for changes in _value_readings(access):
        if time.monotonic() > stop:
            return None
        if not _values_arrive(inquiry, access.reread(changes)):
            continue
        for whole in _query_readings(access, changes):
            if _queries_stay(inquiry, access.reread(whole)):
                return Reading(
                    access, {role: order for role, order in whole.items() if order != access.ports[role].layout.factors}
                )
        return Reading(access, changes)
    return None


def query_reading_that_fits(inquiry: Inquiry) -> Reading | None:
    """The same where values arrive well, and queries or keys do not."""
    access = inquiry.access
    assert isinstance(access, Direct)
    stop = time.monotonic() + _PATIENCE
    for roles in (("q",), ("k",), ("q", "k")):
        for order in _orders(access, roles[0], apart=True):
            if time.monotonic() > stop:
                return None
            changes = {role: _same(access, roles[0], order, role) for role in roles}
            fitting = {role: factors for role, factors in changes.items() if factors is not None}
            if len(fitting) == len(roles) and _queries_stay(inquiry, access.reread(fitting)):
                return Reading(access, fitting)
    return None


def heads_in_another_order(inquiry: Inquiry, witness: str) -> bool:
    """Whether every head of the output is made of one head of the queries, keys and values, but not of its own; then
    this is reported."""
    access = inquiry.access
    orders = {role: _order_of_lanes(inquiry, role) for role in "qkv"}
    if any(order is None for order in orders.values()):
        return False
    odd = [role for role in "qkv" if not np.array_equal(orders[role], access.maps[role])]
    apart = {
        letter
        for role in odd
        for letter, index in access.lanes[role].items()
        if not np.array_equal(index[orders[role]], index[access.maps[role]])
    }
    if not apart or not apart <= {"h", "g"}:
        return False
    for roles, maps in groups_in_turn(access):
        if set(roles) == set(odd) and all(np.array_equal(orders[role], order) for role, order in maps.items()):
            inquiry.report(**{"witness": witness, **regrouped(roles)})
            return True
    names = {"q": "queries", "k": "keys", "v": "values"}
    if len(odd) == 3:
        mine, others = "the output", "queries, keys and values"
    elif len(odd) == 2 and "g" not in apart:  # The one that is in order stands out: it is called by its name.
        (rest,) = set("qkv") - set(odd)
        mine, others = f"the {names[rest]}", " and ".join(f"the {names[role]}" for role in odd)
    else:
        mine, others = (
            " and ".join(f"the {names[role]}" for role in roles) for roles in (odd, [r for r in "qkv" if r not in odd])
        )
    lane = int(np.argwhere(orders[odd[0]] != access.maps[odd[0]])[0][0])
    letter = "g" if "g" in access.lanes[odd[0]] else "h"
    taken, right = (int(access.lanes[odd[0]][letter][lanes[lane]]) for lanes in (orders[odd[0]], access.maps[odd[0]]))
    head = int(access.lanes["out"]["h"][lane]) if "h" in access.lanes["out"] else lane
    inquiry.report(
        "groups" if letter == "g" and "q" not in odd else "heads",
        f"head {head} of the output is made with head {taken} of the {names[odd[0]]}, and not {right}",
        witness,
        f"the heads of {mine} are in another order than those of {others}",
        "split queries, keys and values in the same way, and keep their heads in one order",
        (r"flip.*|roll.*|\[.*\]", r"\.(view|reshape|transpose|permute)\(.*", r"rearrange.*"),
    )
    return True


def _order_of_lanes(inquiry: Inquiry, role: str) -> Any:
    """The lane of an input that each lane of the output is made of; None where it is not one."""
    access = inquiry.access
    lanes = access.count[role]
    if lanes > _LANES:
        return None
    setting = inquiry.settings.plain()
    arrays = dict(zip("qkv", inquiry.inputs(), strict=True))
    before = access.forward(arrays["q"], arrays["k"], arrays["v"], setting.arrays)
    touched = np.zeros((access.count["out"], lanes), bool)
    for lane in range(lanes):
        changed = arrays[role].copy()
        changed[lane] += inquiry.rng.normal(size=changed[lane].shape)
        now = {**arrays, role: changed}
        after = access.forward(now["q"], now["k"], now["v"], setting.arrays)
        touched[:, lane] = moved(before, after, inquiry.tolerance).any(1)
    return touched.argmax(1) if (touched.sum(1) == 1).all() else None


def roles_that_fit(inquiry: Inquiry) -> tuple[str, ...] | None:
    """The order of queries, keys and values under which all goes where it belongs, where it is not the declared one."""
    access = inquiry.access
    assert isinstance(access, Direct)
    for roles in itertools.permutations("qkv"):
        ports = {
            "out": access.ports["out"],
            **{role: access.ports[other] for role, other in zip("qkv", roles, strict=True)},
        }
        fits = all(access.shape(role) == access.shape(other) for role, other in zip("qkv", roles, strict=True))
        if roles == ("q", "k", "v") or not fits:
            continue
        other = copy.copy(access)
        Direct.__init__(other, access.foreign, ports, access.sizes)
        if _values_arrive(inquiry, other) and _queries_stay(inquiry, other):
            return roles
    return None


def _orders(access: Direct, role: str, apart: bool = False) -> Iterator[tuple[str, ...]]:
    """Other orders of the factors of an array; with `apart`, of the part of a packed one that is a role's own."""
    port = access.ports[role]
    factors = port.own.factors if apart else port.layout.factors
    if len(factors) > 5:
        return
    for order in itertools.permutations(factors):
        if order != factors:
            yield order


def _same(access: Direct, role: str, order: tuple[str, ...], other: str) -> tuple[str, ...] | None:
    """The same exchange of axes in the layout of another array."""
    mine, theirs = (
        port.own.factors if len(order) < len(port.layout.factors) else port.layout.factors
        for port in (access.ports[role], access.ports[other])
    )
    if len(mine) != len(theirs) or len(mine) != len(order):
        return None
    return tuple(theirs[mine.index(factor)] for factor in order)


def _value_readings(access: Direct) -> Iterator[dict[str, tuple[str, ...]]]:
    v = access.ports["v"]
    together = [role for role, port in access.ports.items() if (port.name, port.layout) == (v.name, v.layout)]

    def inputs(order: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(together, order)

    for order in _orders(access, "out"):
        yield {"out": order}
    for order in _orders(access, "v"):
        yield inputs(order)
    for order in _orders(access, "v"):
        for out in _orders(access, "out"):
            yield {**inputs(order), "out": out}


def _query_readings(access: Direct, changes: dict[str, tuple[str, ...]]) -> Iterator[dict[str, tuple[str, ...]]]:
    if "v" in changes and access.ports["v"].part is None:
        q, k = _same(access, "v", changes["v"], "q"), _same(access, "v", changes["v"], "k")
        if q is not None and k is not None:
            yield {"q": q, "k": k, **changes}
    yield changes
    for order in _orders(access, "q"):
        k = _same(access, "q", order, "k")
        if access.ports["q"].part is None and k is not None:
            yield {"q": order, "k": k, **changes}


def _values_arrive(inquiry: Inquiry, access: Direct) -> bool:
    rng = np.random.default_rng(3)
    setting = inquiry.settings.plain()
    q, k = rng.normal(size=access.shape("q")) * 0.3, rng.normal(size=access.shape("k")) * 0.3
    base = access.forward(q, k, np.zeros(access.shape("v")), setting.arrays)
    code = np.linspace(1.0, 2.0, access.E) if access.E > 1 else np.ones(1)
    lanes, keys, _ = access.shape("v")
    heard = 0
    for lane in sorted({0, lanes - 1, lanes // 2}):
        for key in sorted({0, keys - 1, keys // 2}):
            v = np.zeros(access.shape("v"))
            v[lane, key] = code
            out = np.nan_to_num(access.forward(q, k, v, setting.arrays) - base)
            weights = out @ code / (code @ code)
            if (np.abs(weights)[~access.related["v"][:, lane]] > 1e-12).any():
                return False
            if np.abs(out - weights[..., None] * code).max() > 1e-6:
                return False
            heard += int((np.abs(weights) > 0).sum())
    return heard > 0


def _queries_stay(inquiry: Inquiry, access: Direct) -> bool:
    rng = np.random.default_rng(4)
    setting = inquiry.settings.plain()
    q, k, v = (rng.normal(size=access.shape(role)) * 0.5 for role in "qkv")
    before = access.forward(q, k, v, setting.arrays)
    for role in "qk":
        lanes, length, _ = access.shape(role)
        for lane in sorted({0, lanes - 1}):
            for position in sorted({0, length - 1}):
                arrays: dict[str, Any] = {"q": q, "k": k}
                arrays[role] = arrays[role].copy()
                # The same features in another order: a norm over several heads does not show.
                here = arrays[role][lane, position]
                arrays[role][lane, position] = np.roll(here, 1) if access.D > 1 else here + rng.normal()
                after = access.forward(arrays["q"], arrays["k"], v, setting.arrays)
                touched = moved(before, after, inquiry.tolerance)
                allowed = np.broadcast_to(access.related[role][:, lane][:, None], touched.shape).copy()
                if role == "q":
                    allowed[:, :position] = allowed[:, position + 1 :] = False
                if (touched & ~allowed).any():
                    return False
    return True
