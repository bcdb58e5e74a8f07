"""Steps of decoding: callables that take new queries, keys and values, and a cache of keys and values apart from them.

The keys of a step are the cached ones, then the new ones. A cache may hold keys as they were projected, so that the
step rotates all of them, or as they were rotated; which of the two it is, is measured.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .access import Direct, Extras, Port, find_ports
from .attention_laws import judge
from .calling import Foreign, Unusable
from .contract import Contract
from .inner import Outcome
from .inquiry import Inquiry, number
from .layout import Layout, refusal
from .letters import cached_names
from .models import logarithms
from .observing import moved, observe
from .sanity import plain
from .settings import Settings

_CACHED, _KEYS = "t", "j"
_FEATURES = 128  # Features of a head, beyond which a rotation is not measured.
_ROTARY = (r"rot\w*.*|cos.*|sin.*", r"cat\w*\(.*")
_APPEND = (r"cat\w*\(.*|concat.*|append.*",)


class Stepped(Direct):
    """A step as an attention over cached and new keys."""

    def __init__(
        self,
        foreign: Foreign,
        ports: Mapping[str, Port],
        sizes: Mapping[str, int],
        parts: Mapping[str, tuple[Port, Port]],
    ) -> None:
        self.parts = dict(parts)  # The port of the cache and that of what is new, by role.
        self.turn: Any = None  # By which matrix a key is turned for each position, where the cache holds it turned.
        new = parts["k"][1].position
        super().__init__(foreign, ports, {**sizes, _KEYS: sizes[_CACHED] + sizes[new]})
        example = {name: plain(value) for name, value in foreign.example.items()}
        given = (example[parts["k"][0].name].shape, example[parts["k"][1].name].shape)
        cached, length = (
            shape[port.layout.dims.index((port.position,))] for shape, port in zip(given, parts["k"], strict=True)
        )
        self.places = {name: kind for name, value in example.items() if (kind := _place(value, cached, length))}

    def resized(self, cached: int, new: int) -> Stepped:
        """The same, with other numbers of cached and of new positions."""
        other = copy.copy(self)
        sizes = {**self.sizes, _CACHED: cached, self.ports["q"].position: new, self.parts["k"][1].position: new}
        kept, places = self.turn, self.places
        Direct.__init__(other, self.foreign, self.ports, {**sizes, _KEYS: cached + new})
        other.turn, other.places = kept, places
        return other

    @property
    def cached(self) -> int:
        return self.sizes[_CACHED]

    @property
    def shifts(self) -> tuple[int, ...]:
        """What is new may be put before what is cached."""
        return tuple(dict.fromkeys((1, -1, self.I, -self.I)))

    def forward(self, q: Any, k: Any, v: Any, extras: Extras) -> Any:
        self.foreign.out_shape = self.ports["out"].layout.shape(self.sizes)
        return super().forward(q, k, v, extras)

    def arrays(self, q: Any, k: Any, v: Any, extras: Extras) -> dict[str, Any]:
        made = {**extras, **{name: place(self.cached, self.J) for name, place in self.places.items()}}
        made[self.ports["q"].name] = self._joined(self.ports["q"], self.ports["q"], q)
        for role, value in (("k", k), ("v", v)):
            cached, new = value[:, : self.cached], value[:, self.cached :]
            if role == "k" and self.turn is not None:
                powers = [np.linalg.matrix_power(self.turn, at) for at in range(self.cached)]
                cached = np.einsum("ltd,tde->lte", cached, np.array(powers).reshape(-1, self.D, self.D))
            for port, part in zip(self.parts[role], (cached, new), strict=True):
                made[port.name] = self._joined(port, self.ports[role], part)
        return {name: made[name] for name in self.order if name in made}

    def _joined(self, port: Port, seen: Port, value: Any) -> Any:
        order = (*seen.lanes, port.position, port.feature)
        shaped = value.reshape([self.size(letter) for letter in (*seen.lanes, port.position, port.feature)])
        return port.layout.join(shaped, self.sizes, order)


def _place(value: Any, cached: int, length: int) -> Callable[[int, int], Any] | None:
    """An argument that tells the positions of a step: what it is for `t` cached and `j` positions in all."""
    total = cached + length
    if isinstance(value, int) and not isinstance(value, bool):
        return {cached: lambda t, j: t, total: lambda t, j: j}.get(value)
    if getattr(getattr(value, "dtype", None), "kind", "") not in ("i", "u"):
        return None
    if value.shape == ():
        return {cached: lambda t, j: np.array(t), total: lambda t, j: np.array(j)}.get(int(value))
    if value.shape[-1] == length and (value == np.arange(cached, total)).all():
        return lambda t, j: np.broadcast_to(np.arange(t, j), (*value.shape[:-1], j - t)).copy()
    if value.shape[-1] == total and (value == np.arange(total)).all():
        return lambda t, j: np.broadcast_to(np.arange(j), (*value.shape[:-1], j)).copy()
    return None


def _fixed(access: Stepped, settings: Settings) -> tuple[list[str], list[str]]:
    """The arguments that may tell positions and stay as they are: numbers that are not the step's, and tables."""
    numbers, tables = [], []
    for name, value in settings.others.items():
        if name in access.places or name in settings.layouts or isinstance(value, bool | str):
            continue
        if isinstance(value, int) and re.search(r"pos|off|start|past|cache|index|step|len", name.lower()):
            numbers.append(name)
        elif isinstance(value, tuple | list) or getattr(getattr(value, "dtype", None), "kind", "b") != "b":
            tables.append(name)
    return numbers, tables


def judge_step(
    foreign: Foreign,
    layouts: Mapping[str, Layout],
    sizes: dict[str, int],
    contract: Contract,
    tell: Callable[[str], None],
) -> Outcome:
    """The laws of a step: those of attention over cached and new keys, and that its rows are those of a full pass."""
    outcome = Outcome()
    access = _access(foreign, layouts, sizes, contract)
    one = access.I == 1
    if contract.causal in (True, "square") or (contract.causal is None and one and contract.window is None):
        contract = replace(contract, causal="bottom-right")
    example = {name: plain(value) for name, value in foreign.example.items()}
    past = {access.parts[role][0].name for role in "kv"}
    others = {name: value for name, value in example.items() if name not in past}
    settings = Settings(access, contract, {n: x for n, x in layouts.items() if n not in past}, others)
    each = access.count["v"] * access.J <= 120
    inquiry = Inquiry(access, settings, contract, foreign.original, foreign.tolerance, each)
    names = [" and ".join(f"`{access.parts[role][at].name}`" for role in "kv") for at in (0, 1)]
    inquiry.found["cache"] = f"{names[0]} hold the positions before those of {names[1]}"
    tell("a step of decoding")
    unread = outcome.unread
    unused = _unused(inquiry, access)
    if unused or _rotated(inquiry, access, unread):
        judge(inquiry)
        _told_for_steps(inquiry)
        if unused and not any("corner" in finding.cause for finding in inquiry.findings):
            inquiry.findings = []
            inquiry.report(**unused)
        if not inquiry.findings and not unread:
            _every_split(inquiry, access, unread)
    outcome.findings, outcome.found, outcome.laws = inquiry.findings, inquiry.found, inquiry.laws
    return outcome


def _access(foreign: Foreign, layouts: Mapping[str, Layout], sizes: dict[str, int], contract: Contract) -> Stepped:
    past = cached_names(layouts)
    inputs = tuple(name for name in foreign.example if name not in past.values())
    found = find_ports(layouts, inputs, contract)
    if found is None or any(found[role].part for role in "qkv"):
        raise refusal(
            f"`{past['k']}` and `{past['v']}` are a cache, and what is new is not in arrays of its own",
            "name them `q`, `k` and `v`, or give their axes: `q=b h i d, k=b h i d, v=b h i e`",
        )
    ports, parts = dict(found), {}
    for role in "kv":
        new, layout = found[role], layouts[past[role]]
        if _CACHED not in layout.factors or set(new.lanes) - set(layout.factors):
            raise refusal(
                f"`{past[role]}` has the axes `{layout}`, and `{new.name}` `{new.layout}`",
                "a cache has the axes of what is new, with a letter of its own for its positions: `b h t d`",
            )
        if (_CACHED,) not in layout.dims or (new.position,) not in new.layout.dims:
            raise refusal(f"the positions of `{past[role]}` are packed with others", "they are an axis of their own")
        ports[role] = replace(new, layout=_with_keys(new.layout, new.position), position=_KEYS)
        parts[role] = (Port(past[role], layout, _CACHED, new.feature), new)
    return Stepped(foreign, ports, sizes, parts)


def _with_keys(layout: Layout, position: str) -> Layout:
    return Layout(tuple(tuple(_KEYS if factor == position else factor for factor in dim) for dim in layout.dims))


def _unused(inquiry: Inquiry, access: Stepped) -> dict[str, Any]:
    """What to report where cached or new keys or values have no effect on the output."""
    setting = inquiry.settings.plain()
    inputs = dict(zip("qkv", inquiry.inputs(), strict=True))
    before = inquiry.forward(inputs["q"], inputs["k"], inputs["v"], setting)
    inquiry.tested("cache")
    for role, what in (("k", "keys"), ("v", "values")):
        for port, where, other in (
            (access.parts[role][0], slice(0, access.cached), "the cached"),
            (access.parts[role][1], slice(access.cached, None), "the new"),
        ):
            changed = inputs[role].copy()
            changed[:, where] = inquiry.rng.normal(size=changed[:, where].shape)
            now = {**inputs, role: changed}
            if access.J < 2 or moved(before, inquiry.forward(now["q"], now["k"], now["v"], setting), 1e-9).any():
                continue
            cause = "they are not appended to the cache" if where.start else "the cache is not put before what is new"
            return {
                "law": "dead input",
                "message": f"{other} {what} have no effect on the output",
                "witness": f"`{port.name}` was replaced, and nothing moved",
                "cause": f"{other} {what} are not used: {cause}",
                "mend": "attend over both: `k = cat([past_k, k])`, `v = cat([past_v, v])`, along the positions",
                "hints": _APPEND,
            }
    return {}


def _rotated(inquiry: Inquiry, access: Stepped, unread: list[str]) -> bool:
    """Find whether the cache holds rotated keys, and at which positions the step rotates its queries; whether these are
    the right ones."""
    declared = inquiry.contract.rotary is not None
    tolerance = max(1e-5, 100 * inquiry.slack)
    numbers, tables = _fixed(access, inquiry.settings)
    if numbers:
        return _unjudged(inquiry, unread, f"`{numbers[0]}` is not the number of cached positions in the example")
    if access.D > _FEATURES:
        return _unjudged(inquiry, unread, f"heads have {access.D} features, and {_FEATURES} at most are measured")
    if _turns_cache(inquiry, access, tolerance):
        return True
    here = _turns(inquiry, access)
    if here is None or (not declared and all(np.allclose(each, np.eye(access.D), atol=tolerance) for each in here)):
        return here is not None or not declared or _unjudged(inquiry, unread, "scores for cached keys are no rotation")
    if len(here) < 2 and tables:
        why = f"`{tables[0]}` is that of one new position, which tells no rotation; an example with two does"
        return _unjudged(inquiry, unread, why)
    try:
        later = _turns(inquiry, access.resized(access.cached + 1, access.I)) if len(here) < 2 else here[1:]
    except Unusable as problem:
        return _unjudged(inquiry, unread, f"one new position tells no rotation, and {problem.message}")
    if later is None:
        return _unjudged(inquiry, unread, "scores for cached keys are no rotation")
    step = later[0] @ np.linalg.inv(here[0])
    if np.allclose(step, np.eye(access.D), atol=tolerance):
        if not declared:
            return True
        _misrotated(
            inquiry,
            "the query of a step is not rotated by its position",
            "its scores for cached keys are the same after one more position",
            "queries are not rotated, or as if they stood at position zero: cached positions are not counted",
        )
        return False
    offsets = (0, -access.cached, -1, 1, -2, 2)
    powers = {off: np.linalg.matrix_power(step, access.cached + off) for off in offsets}
    off = next((off for off, power in powers.items() if np.allclose(here[0], power, atol=10 * tolerance)), None)
    if off is None:
        return _unjudged(inquiry, unread, "the rotation of a step is no power of that of one position")
    if off == 0:
        access.turn = step
        inquiry.found["cache of keys"] = "holds them rotated, each by its position"
        return True
    seen = access.cached + off
    cause = (
        "queries and new keys are rotated from position zero: the cached positions are not counted"
        if seen == 0
        else f"the positions of a step are off by {'one' if abs(off) == 1 else abs(off)}: the first is rotated as "
        f"position {seen}, and {access.cached} positions are cached before it"
    )
    witness = f"with {access.cached} cached positions, the first query is turned as at position {seen}"
    _misrotated(inquiry, "a step rotates its queries by other positions than their own", witness, cause)
    return False


def _unjudged(inquiry: Inquiry, unread: list[str], reason: str) -> bool:
    """Leave out the laws that rest on positions, and say why; all others are judged."""
    unread.append(f"{'rotary' if inquiry.contract.rotary else 'prefill'}: {reason}")
    inquiry.contract = replace(inquiry.contract, rotary=None, prefill=None)
    return True


def _misrotated(inquiry: Inquiry, message: str, witness: str, cause: str) -> None:
    mend = "new position i is at the cached length + i: `arange(t, t + n)`, for queries and for new keys"
    law = "rotary" if inquiry.contract.rotary else "prefill"
    inquiry.tested(law)
    inquiry.report(law, message, witness, cause, mend, _ROTARY)


def _turns_cache(inquiry: Inquiry, access: Stepped, tolerance: float) -> bool:
    """Whether equal keys of the cache have other scores at other positions: the step rotates them."""
    rng = np.random.default_rng(15)
    q, k = (np.broadcast_to(rng.normal(size=access.D), access.shape(role)) for role in "qk")
    values, support = _above(inquiry, access, q, k)
    cached = support[..., : access.cached]
    spread = np.where(cached, values[..., : access.cached], np.nan)
    with np.errstate(invalid="ignore"):
        apart = np.nanmax(spread, -1, initial=-np.inf) - np.nanmin(spread, -1, initial=np.inf)
    return bool((apart > tolerance).any())


def _above(inquiry: Inquiry, access: Stepped, q: Any, k: Any) -> tuple[Any, Any]:
    """Logarithms of weights above those for queries of 0, and where they exist."""
    setting = Settings(access, inquiry.contract, inquiry.settings.layouts, inquiry.settings.example).plain()
    values, support = logarithms(access, observe(access, q, k, setting, each=False))
    level, _ = logarithms(access, observe(access, np.zeros_like(q), k, setting, each=False))
    return values - level, support


def _turns(inquiry: Inquiry, access: Stepped) -> list[Any] | None:
    """How each new query is turned against cached keys: a matrix a row, over (feature of the query, of the key)."""
    D, T = access.D, access.cached
    found = np.zeros((access.I, D, D))
    for feature in range(D):
        q = np.zeros(access.shape("q"))
        q[:, :, feature] = 1.0
        for first in range(0, D, T):
            k = np.zeros(access.shape("k"))
            count = min(T, D - first)
            k[:, np.arange(count), first + np.arange(count)] = 1.0
            values, support = _above(inquiry, access, q, k)
            if not support[0, :, :count].all() or not support[0, np.arange(access.I), T + np.arange(access.I)].all():
                return None
            own = values[0, np.arange(access.I), T + np.arange(access.I)]
            found[:, feature, first : first + count] = values[0, :, :count] - own[:, None]
    size = np.sqrt((found**2).sum((1, 2)) / D)
    if not (size > 1e-6).all():
        return None
    turns = found / size[:, None, None]
    return list(turns) if np.allclose(turns @ turns.swapaxes(1, 2), np.eye(D), atol=1e-4) else None


def _told_for_steps(inquiry: Inquiry) -> None:
    """Causes in terms of a cache, where no closer one was found."""
    for at, finding in enumerate(inquiry.findings):
        if finding.law in ("heads", "batch", "layout") and "another order" not in finding.cause:
            cause = f"{finding.cause}; a cache that is appended along another axis than its positions does that"
            inquiry.findings[at] = replace(finding, cause=cause)
        if finding.law == "score" and "position" in finding.message:
            cause = "keys and values are put together in different orders: the cache comes first in one of them alone"
            inquiry.findings[at] = replace(finding, cause=cause)


def _every_split(inquiry: Inquiry, access: Stepped, unread: list[str]) -> None:
    """Rows of a step are those of one full pass, wherever a sequence is split into what is cached and what is new."""
    if not inquiry.contract.causal or (access.I == 1 and not inquiry.contract.prefill):
        return
    rng = np.random.default_rng(8)
    total = access.J
    whole = access.resized(0, total)
    q, k, v = (rng.normal(size=whole.shape(role)) for role in "qkv")

    def rows(cached: int) -> Any:
        step = access.resized(cached, total - cached)
        setting = Settings(step, inquiry.contract, inquiry.settings.layouts, inquiry.settings.example).plain()
        return step.forward(q[:, cached:], k, v, setting.arrays)

    first = 0
    try:
        expected = rows(0)
    except Unusable:
        first = 1  # Some callables take no empty cache.
    try:
        expected = rows(first) if first else expected
        splits = {cached: rows(cached) for cached in range(first + 1, total)}
    except Unusable as problem:
        tables = _fixed(access, inquiry.settings)[1]
        why = f"`{tables[0]}` is that of the example's positions alone" if tables else problem.message
        unread.append(f"prefill: {why}")
        return
    inquiry.tested("prefill")
    for cached, seen in splits.items():
        wanted = expected[:, cached - first :]
        close = np.isclose(seen, wanted, atol=max(1e-6, inquiry.tolerance), rtol=1e-4, equal_nan=True)
        if close.all():
            continue
        lane, row = (int(x) for x in np.argwhere(~close.all(2))[0])
        worst = number(float(np.nanmax(np.abs(seen - wanted))))
        inquiry.report(
            "prefill",
            f"a step with {cached} cached positions gives other rows than one full pass",
            f"{inquiry.out_at(lane, row)} is not row {cached + row} of the full pass (by {worst})",
            "the cached keys are counted wrongly, in the mask or in the positions",
            "new position i is at the cached length + i: in the mask, and in rotary positions",
            (r"tril.*|triu.*|is_causal.*|arange.*",),
        )
        return
