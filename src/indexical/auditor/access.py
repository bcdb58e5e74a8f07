"""Access to an attention: queries, keys and values in, the output out, whatever the layout is.

A lane is one point of all axes that are neither positions nor features: one head of one example. Arrays are seen as
(lane, position, feature), and letters say which lanes belong together.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..lift.arguments import held_weights
from .calling import Foreign, Unusable
from .contract import Contract
from .layout import Layout, refusal

Extras = Mapping[str, Any]
CACHED = r"(^|_)(past|cache|cached|prev|previous|prefix)(_|$)"  # In the names of arrays that are a cache.


@dataclass(frozen=True)
class Port:
    """The place of queries, keys, values or outputs: an array, perhaps a part of it, and what its axes mean."""

    name: str
    layout: Layout
    position: str
    feature: str
    part: tuple[str, int] | None = None
    reread: tuple[str, ...] | None = None
    columns: tuple[int, ...] = ()  # Where its features stand among those of an array that has others too.

    @property
    def own(self) -> Layout:
        """The layout without the axis that tells queries, keys and values of one array apart."""
        taken = self.part[0] if self.part else ""
        dims = (tuple(factor for factor in dim if factor != taken) for dim in self.layout.dims)
        return Layout(tuple(dim for dim in dims if dim))

    @property
    def lanes(self) -> tuple[str, ...]:
        taken = {self.position, self.feature, *([self.part[0]] if self.part else [])}
        return tuple(factor for factor in self.layout.factors if factor not in taken)


class Access:
    """An attention that takes queries, keys and values."""

    rounding = 2.0**-53
    projected = False  # Whether queries, keys and values are made inside, by weights that may order them as they like.

    def __init__(self, ports: Mapping[str, Port], sizes: Mapping[str, int]) -> None:
        self.ports = dict(ports)
        self.sizes = dict(sizes)
        q, k, v, out = (self.ports[role] for role in ("q", "k", "v", "out"))
        self.I, self.J = self.size(q.position), self.size(k.position)
        self.D, self.E = self.size(q.feature), self.size(v.feature)
        self.lanes = {role: _lane_table(port, self.sizes) for role, port in self.ports.items()}
        self.count = {role: len(next(iter(table.values()), [0])) for role, table in self.lanes.items()}
        self.related = {role: self._relation(role) for role in ("q", "k", "v")}
        self.aligned = out.feature == v.feature and all((self.related[role].sum(1) == 1).all() for role in "qkv")
        self.maps = {role: self.related[role].argmax(1) for role in "qkv"}

    @property
    def shifts(self) -> tuple[int, ...]:
        """By how many positions keys and values are apart in common mistakes."""
        return (1, -1)

    def size(self, factor: str) -> int:
        return int(factor.partition("#")[0]) if factor[0].isdigit() else self.sizes[factor]

    def _relation(self, role: str) -> Any:
        """Which lanes of the inputs belong to which lane of the output: those that agree in every letter they share."""
        mine, outs = self.lanes[role], self.lanes["out"]
        result = np.ones((self.count["out"], self.count[role]), bool)
        for letter, index in mine.items():
            if letter in outs:
                result &= outs[letter][:, None] == index[None, :]
            elif letter == "g" and "h" in outs:
                result &= (outs["h"] * self.size("g") // self.size("h"))[:, None] == index[None, :]
        return result

    def shape(self, role: str) -> tuple[int, int, int]:
        length = {"q": (self.I, self.D), "k": (self.J, self.D), "v": (self.J, self.E), "out": (self.I, self.E)}[role]
        return self.count[role], *length

    def forward(self, q: Any, k: Any, v: Any, extras: Extras) -> Any:
        raise NotImplementedError

    def lane_name(self, role: str, lane: int) -> str:
        return ", ".join(
            f"{letter} = {index[lane]}" for letter, index in self.lanes[role].items() if len(set(index)) > 1
        )

    def spread(
        self, array: Any, factors: tuple[str, ...], roles: Mapping[str, str] | None = None, lanes: Any = None
    ) -> Any:
        """An array over letters as one over (lane, query, key). `roles` says what a letter is to be taken as."""
        q, k = self.ports["q"].position, self.ports["k"].position
        lane = np.arange(self.count["out"]) if lanes is None else lanes
        outs = self.lanes["out"]
        index: list[Any] = []
        for factor in factors:
            meant = (roles or {}).get(factor, factor)
            if meant == k and (q != k or "j" not in factors):
                index.append(np.arange(self.J)[None, None, :])
            elif meant == q:
                index.append(np.arange(self.I)[None, :, None])
            elif meant == "j":
                index.append(np.arange(self.J)[None, None, :])
            elif meant in outs:
                index.append(outs[meant][lane][:, None, None])
            elif meant == "g" and "h" in outs:
                index.append((outs["h"] * self.size("g") // self.size("h"))[lane][:, None, None])
            else:
                index.append(np.zeros((1, 1, 1), int))
        return np.broadcast_to(array[tuple(index)], (self.count["out"], self.I, self.J))


def _lane_table(port: Port, sizes: Mapping[str, int]) -> dict[str, Any]:
    """For each letter of the lanes, its index in every lane."""
    letters = port.lanes
    lengths = [int(x.partition("#")[0]) if x[0].isdigit() else sizes[x] for x in letters]
    points = np.array(list(itertools.product(*map(range, lengths))), int).reshape(math.prod(lengths), len(letters))
    table = {letter: points[:, column] for column, letter in enumerate(letters)}
    return table or {"1": np.zeros(1, int)}


class Direct(Access):
    """A callable whose arguments are the queries, keys and values."""

    def __init__(self, foreign: Foreign, ports: Mapping[str, Port], sizes: Mapping[str, int]) -> None:
        super().__init__(ports, sizes)
        self.foreign = foreign
        self.rounding = 2.0**-53 if foreign.precise else 2.0**-24
        self.order = tuple(foreign.example)

    def reread(self, changes: Mapping[str, tuple[str, ...]]) -> Direct:
        """The same, if the callable took the memory of some arrays for a layout with its factors in another order."""
        other = copy.copy(self)
        other.ports = {role: replace(port, reread=changes.get(role)) for role, port in self.ports.items()}
        return other

    def forward(self, q: Any, k: Any, v: Any, extras: Extras) -> Any:
        arrays = self.arrays(q, k, v, extras)
        out = self.foreign(arrays)
        return self.read_out(out)

    def arrays(self, q: Any, k: Any, v: Any, extras: Extras) -> dict[str, Any]:
        """The arguments of a call."""
        made: dict[str, Any] = dict(extras)
        values = {"q": q, "k": k, "v": v}
        for name in {port.name for role, port in self.ports.items() if role != "out"}:
            roles = [role for role in "qkv" if self.ports[role].name == name]
            roles.sort(key=lambda role: (self.ports[role].part or ("", 0))[1])
            port = self.ports[roles[0]]
            if port.columns:
                made[name] = self._side_by_side({role: values[role] for role in roles})
                continue
            order = (*port.lanes, port.position, port.feature)
            shaped = [
                self._taken(self.ports[role], values[role].reshape([self.size(letter) for letter in order]), order)
                for role in roles
            ]
            if port.part is None:
                made[name] = self._join(port, shaped[0], order)
            else:
                made[name] = self._join(port, np.stack(shaped), (port.part[0], *order))
        return {name: made[name] for name in self.order if name in made}

    def _side_by_side(self, values: Mapping[str, Any]) -> Any:
        """One array of queries, keys and values that are not as wide as each other."""
        ports = [self.ports[role] for role in values]
        parts = []
        for port, value in zip(ports, values.values(), strict=True):
            order = (*port.lanes, port.position, port.feature)
            parts.append(self._join(port, value.reshape([self.size(letter) for letter in order]), order))
        whole = np.zeros((*parts[0].shape[:-1], sum(len(port.columns) for port in ports)))
        for port, part in zip(ports, parts, strict=True):
            whole[..., list(port.columns)] = part
        return whole

    def _taken(self, port: Port, value: Any, order: tuple[str, ...]) -> Any:
        """A part of a packed array, where the callable takes the memory of that part alone for another layout."""
        if port.reread is None or port.part is None or port.part[0] in port.reread:
            return value
        moved = np.ascontiguousarray(value.transpose([order.index(factor) for factor in port.reread]))
        return port.own.split(moved.reshape(port.own.shape(self.sizes)), self.sizes, order)

    def _join(self, port: Port, value: Any, order: tuple[str, ...]) -> Any:
        if port.reread is None or (port.part is not None and port.part[0] not in port.reread):
            return port.layout.join(value, self.sizes, order)
        moved = np.ascontiguousarray(value.transpose([order.index(factor) for factor in port.reread]))
        return moved.reshape(port.layout.shape(self.sizes))

    def read_out(self, out: Any) -> Any:
        port = self.ports["out"]
        expected = port.layout.shape(self.sizes)
        if out.shape != expected:
            raise Unusable(
                "shape",
                f"the output has the shape {out.shape}, and `{port.layout}` makes it {expected}",
                "the axes of the output are not those that were declared",
                'correct `axes["out"]`, or the last transpose of the callable',
            )
        order = (*port.lanes, port.position, port.feature)
        if port.reread is None:
            parts = port.layout.split(out, self.sizes, order)
        else:
            parts = out.reshape([self.size(f) for f in port.reread]).transpose([port.reread.index(f) for f in order])
        return parts.reshape(self.count["out"], self.I, -1)


def has_weights(foreign: Foreign) -> bool:
    """Whether the callable has weights of its own, or holds a module that does."""
    return any(x.ndim >= 2 for x in getattr(foreign.target, "parameters", list)()) or bool(
        held_weights(foreign.original)
    )


# ----------------------------------------------------------------------- roles


def find_ports(layouts: Mapping[str, Layout], names: tuple[str, ...], contract: Contract) -> dict[str, Port] | None:
    """The ports of a callable that takes queries, keys and values; None for one that only takes `x`."""
    inputs = {name: layouts[name] for name in names if name in layouts}
    skip = {*contract.masks, contract.documents}
    found: dict[str, Port] = {}
    for name, layout in inputs.items():
        if name in skip:
            continue
        if "3" in layout.factors:
            for number, role in enumerate("qkv"):
                found[role] = _port(name, layout, role, contract, ("3", number))
        elif "2" in layout.factors and len(layout.factors) > 2:
            for number, role in enumerate("kv"):
                found[role] = _port(name, layout, role, contract, ("2", number))
    by_name = {role: name for name in inputs if name not in skip for role in [role_of_name(name)] if role}
    for role in "qkv":
        if role not in found and role in by_name:
            found[role] = _port(by_name[role], inputs[by_name[role]], role, contract)
    if len(found) < 3:
        _add_by_letters(found, {n: x for n, x in inputs.items() if n not in skip}, contract)
    if not {"q", "k", "v"} <= set(found):
        return None
    if "out" not in layouts:
        raise refusal("the axes of the output are not given", 'add them: `axes={…, "out": "b h i e"}`')
    out = layouts["out"]
    feature = next((f for f in (found["v"].feature, "e", "d", "c") if f in out.factors), out.factors[-1])
    position = found["q"].position
    if position not in out.factors:
        raise refusal(f"the output has no axis `{position}`", f"its axes are `{out}`: the queries are in it")
    found["out"] = Port("out", out, position, feature)
    return found


def role_of_name(name: str) -> str | None:
    """The role that the name of an argument suggests: none where it is a cache."""
    word = name.lower().strip("_")
    if re.search(CACHED, word):
        return None
    for role, full in (("q", "quer"), ("k", "key"), ("v", "val")):
        if word in (role, role * 2, f"x{role}", f"{role}s", f"{role}1", f"{role}0") or word.startswith(
            (full, f"{role}_")
        ):
            return None if "mask" in word or "pad" in word else role
        if word.endswith(f"_{role}"):
            return role
    return None


def _port(name: str, layout: Layout, role: str, contract: Contract, part: tuple[str, int] | None = None) -> Port:
    factors = [factor for factor in layout.factors if part is None or factor != part[0]]
    wanted = ["i", "j"] if role == "q" else ["j", "i"]
    if contract.attends in factors and "j" not in factors:
        wanted.insert(0, str(contract.attends))
    position = next((letter for letter in wanted if letter in factors), None)
    features = [letter for letter in ("e", "d", "c") if letter in factors]
    if role != "v":
        features = [letter for letter in ("d", "e", "c") if letter in factors]
    rest = [letter for letter in factors if letter not in (position, "b", "h", "g")]
    feature = next(iter(features), rest[-1] if rest else None)
    if position is None or feature is None or feature == position:
        what = "query, `i`," if role == "q" else "key, `j`,"
        raise refusal(
            f"`{name}` has axes `{layout}`, of which none is the {what} or the feature", "see the letters of axes"
        )
    return Port(name, layout, position, feature, part)


def _add_by_letters(found: dict[str, Port], inputs: Mapping[str, Layout], contract: Contract) -> None:
    free = [name for name in inputs if name not in {port.name for port in found.values()}]
    asking = [name for name in free if {"i", "d"} <= set(inputs[name].factors)]
    answering = [name for name in free if "j" in inputs[name].factors and {"d", "e"} & set(inputs[name].factors)]
    if "q" not in found and asking:
        found["q"] = _port(asking[0], inputs[asking[0]], "q", contract)
    compared = [name for name in answering if "d" in inputs[name].factors]
    if "k" not in found and compared:
        found["k"] = _port(compared[0], inputs[compared[0]], "k", contract)
    carried = [name for name in answering if "k" not in found or name != found["k"].name]
    if "v" not in found and carried:
        found["v"] = _port(carried[-1], inputs[carried[-1]], "v", contract)


Tell = Callable[[str], None]
