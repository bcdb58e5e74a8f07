"""Settings: what is given beside queries, keys and values, and who may hear whom under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .access import Access
from .contract import Contract
from .layout import Layout

Relation = Any  # A Boolean array over (lane, query, key).


@dataclass(frozen=True)
class Setting:
    """The masks, as what they keep, and the other arrays, by name."""

    keeps: Mapping[str, Any]
    arrays: Mapping[str, Any]


@dataclass(frozen=True)
class Component:
    """One reason why a key is heard or not: a name, the relation, and the mistakes that are made with it."""

    name: str
    relation: Callable[[Setting], Relation]
    mistakes: tuple[Mistake, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """Another relation that people write in the place of the right one."""

    cause: str
    mend: str
    relation: Callable[[Setting], Relation]
    law: str | None = None  # Where it is not that of the component.


class Settings:
    """Draws settings for one access, and says which relation a contract declares."""

    def __init__(
        self, access: Access, contract: Contract, layouts: Mapping[str, Layout], example: Mapping[str, Any]
    ) -> None:
        self.access, self.contract, self.layouts = access, contract, layouts
        self.example = dict(example)
        inputs = {port.name for role, port in access.ports.items() if role != "out"}
        self.others = {name: value for name, value in self.example.items() if name not in inputs}
        self.heard: Relation | None = None  # What is heard where nothing is masked, where that was seen.
        self.offset = access.J - access.I if contract.causal == "bottom-right" or contract.causal is None else 0

    # ----------------------------------------------------------------- drawing

    def plain(self) -> Setting:
        """Nothing is masked, all is one document."""
        return self._setting(lambda name, shape: np.ones(shape, bool), lambda count: np.zeros(count, int), None)

    def draw(self, rng: Any) -> Setting:
        """Masks and documents at random, under which every query hears some key of those that it hears without."""
        for chance in (0.5, 0.4, 0.3, 0.2, 0.1):
            for _ in range(8):
                setting = self._setting(
                    lambda name, shape: rng.random(shape) > chance,  # noqa: B023
                    lambda count: np.sort(rng.integers(0, max(2, count // 2), count)),
                    rng,
                )
                if self.hears(setting):
                    return setting
        return self.plain()

    def _setting(self, keep: Callable[[str, tuple[int, ...]], Any], ids: Callable[[int], Any], rng: Any) -> Setting:
        keeps: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        for name, value in self.others.items():
            layout = self.layouts.get(name)
            if name in self.contract.masks and layout is not None:
                keeps[name] = keep(name, tuple(self.access.size(f) for f in layout.factors))
                arrays[name] = self.written(name, keeps[name])
            elif name == self.contract.documents and layout is not None:
                shape = tuple(self.access.size(f) for f in layout.factors)
                rows = int(np.prod(shape[:-1]))
                arrays[name] = np.stack([ids(shape[-1]) for _ in range(rows)]).reshape(layout.shape(self.access.sizes))
            elif layout is not None and getattr(value, "dtype", None) is not None and _is_real(value):
                shape = layout.shape(self.access.sizes)
                fixed = np.asarray(value) if tuple(np.shape(value)) == shape else None
                arrays[name] = fixed if fixed is not None else np.random.default_rng(5).normal(size=shape)
            else:
                arrays[name] = value
        return Setting(keeps, arrays)

    def written(self, name: str, keeps: Any) -> Any:
        """A mask as the callable takes it: what it keeps, what it drops, or what is added."""
        layout = self.layouts[name]
        kind = self.contract.masks[name]
        if kind == "additive":
            values = np.asarray(self.example[name], float)
            finite = values[np.isfinite(values)]
            low = (
                float(finite.min())
                if finite.size and finite.min() <= -1e3 and not np.isneginf(values).any()
                else -np.inf
            )
            array = np.where(keeps, 0.0, low)
        else:
            array = keeps if kind == "keep" else ~keeps
        return array.reshape(layout.shape(self.access.sizes))

    # --------------------------------------------------------------- relations

    def declared(self, setting: Setting) -> Relation:
        """The pairs of queries and keys that the contract allows."""
        return self.together([component.relation for component in self.components()], setting)

    def hears(self, setting: Setting) -> bool:
        """Whether every query hears some key, of those that it hears where nothing is masked, in each head that a mask
        tells apart."""
        heard = True if self.heard is None else self.heard
        return all((self.declared(each) & heard).any(2).all() for each in self._by_heads(setting))

    def _by_heads(self, setting: Setting) -> Iterator[Setting]:
        """The setting, as each of the heads has it whose outputs were mixed before they could be seen apart."""
        mixed = {name: self._mixed(name) for name in setting.keeps}
        heads = (setting.keeps[name].shape[axis] for name, axes in mixed.items() for axis in axes)
        for head in range(max(heads, default=1)):
            keeps = dict(setting.keeps)
            for name, axes in mixed.items():
                for axis in axes:
                    keep = keeps[name]
                    keeps[name] = np.broadcast_to(keep.take([head % keep.shape[axis]], axis), keep.shape)
            yield Setting(keeps, setting.arrays)

    def _mixed(self, name: str) -> tuple[int, ...]:
        """The axes of a mask that are heads, where the output has none: it is projected, and all heads are in it."""
        outs = self.access.lanes["out"]
        factors = self.layouts[name].factors
        return tuple(axis for axis, factor in enumerate(factors) if factor in ("h", "g") and not {"h", "g"} & set(outs))

    def together(self, relations: list[Callable[[Setting], Relation]], setting: Setting) -> Relation:
        result = np.ones((self.access.count["out"], self.access.I, self.access.J), bool)
        for relation in relations:
            result = result & relation(setting)
        return result

    def components(self) -> list[Component]:
        contract = self.contract
        made = []
        if contract.causal or contract.window is not None:
            made.append(self._positions())
        if contract.documents is not None and contract.documents in self.others:
            made.append(self._documents())
        if contract.regions is not None:
            made.append(self._regions())
        made += [self._mask(name) for name in contract.masks if name in self.others and name in self.layouts]
        return made

    def band(self, low: float, high: float) -> Callable[[Setting], Relation]:
        """Keys whose distance `j - i` is from `low` to `high`."""
        distance = np.arange(self.access.J)[None, :] - np.arange(self.access.I)[:, None]
        relation = np.broadcast_to((distance >= low) & (distance <= high), (self.access.count["out"], *distance.shape))
        return lambda setting: relation

    def _positions(self) -> Component:
        contract, offset = self.contract, self.offset if self.contract.causal != "square" else 0
        reach = -np.inf if contract.window is None else offset - contract.window + 1
        mistakes: list[Mistake] = []

        def add(cause: str, mend: str, low: float, high: float, law: str | None = None) -> None:
            mistakes.append(Mistake(cause, mend, self.band(low, high), law))

        triangle = "compare `j <= i`: `torch.tril(torch.ones(n, n))` keeps, `torch.triu(…, diagonal=1)` drops"
        if contract.window is not None:
            inside = f"keep `0 <= i - j < {contract.window}`"
            ahead = 2 * offset - reach
            for cause, low, high in (
                ("the window is missing", -np.inf, offset),
                ("the window is one key too long", reach - 1, offset),
                ("the window is one key too short", reach + 1, offset),
                ("the window is shifted by one: no query hears itself, but one more key", reach - 1, offset - 1),
                ("the window has no upper side: the future is heard", reach, np.inf),
                ("the window is as long ahead as it is behind: the future is heard", reach, ahead),
                ("the window is turned round: it looks ahead", offset, ahead),
            ):
                add(cause, inside, low, high, "window")
        add(
            "the causal mask is missing",
            "mask the keys after the query: `j <= i`",
            reach if contract.window else -np.inf,
            np.inf,
        )
        add("the causal mask is off by one: each query hears the key after it", triangle, reach, offset + 1)
        add("the causal mask is off by one: no query hears itself", triangle, reach, offset - 1)
        add("the causal mask is reversed: only the query itself and the future are heard", triangle, offset, np.inf)
        add("the causal mask is reversed: only the future is heard", triangle, offset + 1, np.inf)
        shift = self.access.J - self.access.I
        if shift:
            corner = "bottom-right" if offset == 0 else "top-left"
            which = "last" if offset == 0 else "first"
            words = f"the causal mask is aligned at the {corner} corner: queries are taken for the {which} positions"
            mend = "with a cache, query `i` is at position `i + (J - I)`: `torch.tril(…, diagonal=J - I)`"
            other = shift - offset
            add(
                words,
                mend if offset else "compare `j <= i`",
                reach - offset + other if contract.window else -np.inf,
                other,
            )
            add("the causal mask is one key too long at its corner", mend, reach, offset + 1)
        for letter, index in self.access.lanes["out"].items():
            if index.max() + 1 == self.access.I and self.access.I > 1:
                along = np.arange(self.access.J)[None, None, :] <= index[:, None, None] + offset
                everyone = np.broadcast_to(along, (self.access.count["out"], self.access.I, self.access.J))
                cause = f"the causal mask lies along `{letter}`, and not along the queries"
                mend = "the mask is `(i, j)`: its axes are the last two of the scores"
                mistakes.append(Mistake(cause, mend, lambda setting, everyone=everyone: everyone))  # type: ignore[misc]
        return Component("causal" if contract.causal else "window", self.band(reach, offset), tuple(mistakes))

    def _ids(self, ids: Any, factors: tuple[str, ...]) -> Relation:
        """Pairs of positions with the same id."""
        access = self.access
        position = next((f for f in factors if f in (access.ports["q"].position, access.ports["k"].position)), None)
        if position is None:
            return np.ones((access.count["out"], access.I, access.J), bool)
        at = factors.index(position)
        moved = np.moveaxis(ids.reshape([access.size(f) for f in factors]), at, -1)
        letters = tuple(f for f in factors if f != position)
        flat = moved.reshape(-1, moved.shape[-1])
        numbers = np.arange(len(flat)).reshape(moved.shape[:-1] or (1,))
        rows = access.spread(numbers, letters or ("1",))[:, 0, 0]
        shift = moved.shape[-1] - access.I if position == access.ports["k"].position else 0
        asked = flat[rows][:, shift : shift + access.I] if shift >= 0 else flat[rows][:, : access.I]
        return asked[:, :, None] == flat[rows][:, None, : access.J]

    def _documents(self) -> Component:
        name = str(self.contract.documents)
        layout = self.layouts.get(name)
        if layout is None:
            position = self.access.ports["k"].position
            factors: tuple[str, ...] = ("b", position) if np.ndim(self.others[name]) == 2 else (position,)
        else:
            factors = layout.factors
        everyone = self.band(-np.inf, np.inf)

        def same(setting: Setting) -> Relation:
            return self._ids(np.asarray(setting.arrays[name]), factors)

        def first(setting: Setting) -> Relation:
            ids = np.asarray(setting.arrays[name]).reshape([self.access.size(f) for f in factors])
            outs = self.access.lanes["out"]
            of_first = ids[tuple(slice(0, 1) if factor in outs else slice(None) for factor in factors)]
            return self._ids(np.broadcast_to(of_first, ids.shape), factors)

        mend = "keep `ids[i] == ids[j]`"
        return Component(
            "documents",
            same,
            (
                Mistake("the documents are ignored", mend, everyone),
                Mistake(
                    "the documents are compared the wrong way round: only other documents are heard",
                    mend,
                    lambda setting: ~same(setting),
                ),
                Mistake("the documents of the first example are used for all", mend, first),
            ),
        )

    def _regions(self) -> Component:
        ids = np.asarray(self.contract.regions)
        relation = self._ids(ids, (self.access.ports["k"].position,))
        mend = "keep `region[i] == region[j]`"
        return Component(
            "regions",
            lambda setting: relation,
            (
                Mistake("the regions are ignored", mend, self.band(-np.inf, np.inf)),
                Mistake("the regions are compared the wrong way round", mend, lambda setting: ~relation),
            ),
        )

    def _mask(self, name: str) -> Component:
        access, factors = self.access, self.layouts[name].factors

        def kept(setting: Setting) -> Relation:
            # A key that some head hears is heard where heads are mixed.
            keep = setting.keeps[name]
            mixed = self._mixed(name)
            return access.spread(np.broadcast_to(keep.any(mixed, keepdims=True), keep.shape), factors)

        meaning = {"keep": "True keeps a key", "drop": "True drops a key", "additive": "it is added to the scores"}[
            self.contract.masks[name]
        ]
        mistakes = (
            Mistake(f"the mask `{name}` is ignored", f"apply it to the scores: {meaning}", self.band(-np.inf, np.inf)),
            Mistake(
                f"the mask `{name}` is read the wrong way round: what it drops is heard, what it keeps is not",
                f"turn it round: {meaning}",
                lambda setting: ~kept(setting),
            ),
            *self._masks_turned(name, kept),
            *self._masks_elsewhere(name),
        )
        return Component(f"mask `{name}`", kept, mistakes)

    def _masks_turned(self, name: str, kept: Callable[[Setting], Relation]) -> Iterator[Mistake]:
        """A mask of keys, or of pairs, whose queries and keys are exchanged."""
        access, factors = self.access, self.layouts[name].factors
        q, k = access.ports["q"].position, access.ports["k"].position
        asked = "j" if "j" in factors else k if k in factors and q == k else None
        causes = []
        if asked and q not in set(factors) - {asked}:
            causes.append(f"the mask `{name}` is applied to the queries, and not to the keys")
        if {"i", "j"} <= set(factors):
            causes.append(f"the mask `{name}` is transposed: its queries and keys are exchanged")
        for cause in causes if access.I == access.J else ():
            yield Mistake(cause, self._alignment(name), lambda setting: kept(setting).swapaxes(1, 2))

    def _alignment(self, name: str) -> str:
        return f"`{name}` is `{self.layouts[name]}`: align each of its axes, `mask[:, None, None, :]` for one of keys"

    def _masks_elsewhere(self, name: str) -> Iterator[Mistake]:
        """A mask along another axis of the same size, of another example, or repeated in another order."""
        access, factors, mend = self.access, self.layouts[name].factors, self._alignment(name)
        outs, q = access.lanes["out"], access.ports["q"].position

        def read(roles: dict[str, str], lanes: Any = None) -> Callable[[Setting], Relation]:
            return lambda setting: access.spread(setting.keeps[name], factors, roles, lanes)

        for letter in [factor for factor in factors if factor in outs]:
            for other in [*outs, q]:
                if other != letter and access.size(other) == access.size(letter) > 1:
                    where = "the queries" if other == q else f"`{other}`"
                    cause = f"the axis `{letter}` of the mask `{name}` is broadcast along {where}"
                    yield Mistake(cause, mend, _along(access, name, factors, letter, other))
        for letter in [factor for factor in factors if factor in outs and outs[factor].max() > 0]:
            cause = f"the mask `{name}` of the first point of `{letter}` is used for all"
            yield Mistake(cause, mend, read({letter: "1"}))
        sizes = [int(index.max()) + 1 for index in outs.values()]
        for shape in (sizes, sizes[::-1]) if len(outs) > 1 else ():
            yield Mistake(
                f"the mask `{name}` is repeated in another order than heads and examples are packed",
                "use `repeat_interleave` along the packed axis where the batch is outermost",
                read({}, np.arange(access.count["out"]).reshape(shape).transpose().reshape(-1)),
            )


def _along(
    access: Access, name: str, factors: tuple[str, ...], letter: str, other: str
) -> Callable[[Setting], Relation]:
    """A mask, one axis of which is taken for another of the same size."""

    def relation(setting: Setting) -> Relation:
        array = setting.keeps[name]
        q = access.ports["q"].position
        if other == q:
            index: list[Any] = []
            for factor in factors:
                if factor == letter:
                    index.append(np.arange(access.I)[None, :, None])
                elif factor in ("j", access.ports["k"].position):
                    index.append(np.arange(access.J)[None, None, :])
                elif factor in access.lanes["out"]:
                    index.append(access.lanes["out"][factor][:, None, None])
                else:
                    index.append(np.zeros((1, 1, 1), int))
            return np.broadcast_to(array[tuple(index)], (access.count["out"], access.I, access.J))
        return access.spread(array, factors, {letter: other})

    return relation


def _is_real(value: Any) -> bool:
    return "float" in str(value.dtype)
