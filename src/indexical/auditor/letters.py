"""The letters of axes: those that people use, as the ones that the audit reads, and back again in what it says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .access import CACHED, role_of_name
from .contract import Contract
from .layout import Layout, refusal
from .reports import Finding, Report

# What the audit reads: batch, head, group, query, key, feature compared, feature carried, width, cached positions.
_OURS = frozenset("bhgijdect")
_WORDS = {
    "b": "b batch bsz bs batch_size",
    "h": "h heads head nh n_heads num_heads nheads n_head hq q_heads",
    "g": "g groups group kv_heads n_kv num_kv_heads n_kv_heads hkv kvh kv_head",
    "i": "i q n s t l m p seq seqlen seq_len length len time tokens tgt tgt_len q_len n_q sq lq tq position positions",
    "j": "j k kv kv_len src src_len k_len n_k sk lk tk keys memory ctx context",
    "d": "d dh hd dk d_k head_dim dim_head headdim d_head dhead head_size",
    "e": "e dv d_v v_dim value_dim",
    "c": "c dim hidden embed d_model channels model width embed_dim hidden_size emb hidden_dim n_embd features f",
    "t": "t past past_len cached cache prefix",
}
_KNOWN = {role: frozenset(words.split()) for role, words in _WORDS.items()}
_SAID = {
    "b": "the batch",
    "h": "heads",
    "g": "key heads",
    "i": "queries",
    "j": "keys",
    "d": "features of a head",
    "e": "features of values",
    "c": "the width of the model",
    "t": "cached positions",
}


@dataclass(frozen=True)
class Letters:
    """Layouts in the letters that the audit reads, and the letters of the user for them."""

    layouts: Mapping[str, Layout]
    theirs: Mapping[str, str] = field(default_factory=dict)  # By our letter.

    @property
    def assumed(self) -> str:
        """What the letters of the user were taken for, where they are others."""
        return ", ".join(f"`{user}`: {_SAID.get(ours, ours)}" for ours, user in self.theirs.items())

    def said(self, text: str) -> str:
        """A text of the audit in the letters of the user: coordinates as `i = 3`, and layouts."""
        if not self.theirs:
            return text
        text = re.sub(r"\b([a-z]) = (?=\d)", lambda match: f"{self.theirs.get(match[1], match[1])} = ", text)
        return re.sub(r"`[a-z0-9() ]+`|\([a-z0-9 ]+\)", self._layout_said, text)

    def _layout_said(self, match: re.Match[str]) -> str:
        words = re.findall(r"\w+", match[0])
        if len(words) < 2 or not all(word in _OURS or word.isdigit() for word in words):
            return match[0]
        return re.sub(r"[a-z]", lambda letter: self.theirs.get(letter[0], letter[0]), match[0])


def in_our_letters(layouts: Mapping[str, Layout], contract: Contract, module: bool = False) -> Letters:
    """The layouts in the letters that the audit reads. Letters of the user stay where they can be read as they are."""
    masks = {"out", *contract.masks, contract.documents}
    roles = {name: role_of_name(name) for name in layouts if name not in masks and not is_mask(name)}
    asked = [name for name, role in roles.items() if role == "q"]
    others = [name for name, role in roles.items() if not role and not re.search(CACHED, name.lower())]
    sequences = asked or [name for name in others if len(layouts[name].factors) > 1]
    meant: dict[str, str] = {}
    if sequences and not _is_read(layouts, roles, sequences[0], contract):
        meant = _meant(layouts, roles, sequences[0], bool(asked))
    _place_cached(meant, layouts)
    for name, letter in _twice(layouts):  # The keys are the second of two axes with one letter.
        first = letter.rstrip("'")
        if meant.get(first, first) != "i" or roles.get(name) or name in (*sequences[:1], "out"):
            raise refusal(f"the axes of `{name}` have `{first}` twice", "every axis has a letter of its own")
        meant[letter] = "j"
    if not meant:
        return Letters(_split_heads(layouts, roles, contract, module))
    _keep_apart(meant, layouts)
    renamed = {name: _renamed(layout, meant) for name, layout in layouts.items()}
    theirs = {ours: user.rstrip("'") for user, ours in meant.items() if ours != user and ours in _OURS}
    return Letters(_split_heads(renamed, roles, contract, module), theirs)


def contract_in_our_letters(contract: Contract, letters: Letters) -> Contract:
    """The contract, its axes in the letters that the audit reads."""
    ours = {user: letter for letter, user in letters.theirs.items()}
    changes: dict[str, Any] = {}
    if contract.attends in ours:
        changes["attends"] = ours[contract.attends]
    if isinstance(contract.scale, str):
        words = {user: letter for user, letter in ours.items() if len(user) > 1}
        changes["scale"] = re.sub(r"\b[A-Za-z_]\w*", lambda match: words.get(match[0], match[0]), contract.scale)
    return replace(contract, **changes) if changes else contract


def retold(report: Report, letters: Letters, assumed: str) -> Report:
    """The report in the letters of the user, with what was assumed of the axes."""

    def said(finding: Finding) -> Finding:
        names = ("message", "witness", "cause", "mend")
        texts: dict[str, Any] = {name: letters.said(getattr(finding, name)) for name in names}
        return replace(finding, **texts)

    found = {name: letters.said(text) for name, text in report.found.items()}
    return replace(
        report,
        findings=tuple(map(said, report.findings)),
        failure=None if report.failure is None else said(report.failure),
        found={**({"axes": assumed} if assumed else {}), **found},
        unread=tuple(map(letters.said, report.unread)),
    )


def _is_read(
    layouts: Mapping[str, Layout], roles: Mapping[str, str | None], first: str, contract: Contract
) -> bool:
    """Whether queries, keys and values have their positions and features in letters of ours."""
    for name, role in roles.items():
        factors = set(layouts[name].factors)
        positions = {"i", "j", contract.attends}
        if (name == first or role in ("k", "v")) and not (factors & positions and factors - positions - set("bhg")):
            return False
    return True


def _meant(
    layouts: Mapping[str, Layout], roles: Mapping[str, str | None], first: str, apart: bool
) -> dict[str, str]:
    """What each letter of the user is, by the layouts of queries (or of `x`), keys and values."""
    meant: dict[str, str] = {}
    factors = [factor for factor in layouts[first].factors if not factor[0].isdigit()]
    _place(meant, factors, first, layouts[first], apart, "i")
    for name, role in roles.items():
        more = [factor for factor in layouts[name].factors if not factor[0].isdigit()]
        second = role is None and not apart and len(more) == len(factors) > 2
        if name != first and (role in ("k", "v") or second):
            _place(meant, more, name, layouts[name], apart, "j")
    return meant


def _place(meant: dict[str, str], factors: list[str], name: str, layout: Layout, apart: bool, position: str) -> None:
    """Find the position, the feature, the batch and the heads among the letters of one array."""
    free = [factor for factor in factors if factor not in meant]
    taken = {meant[factor] for factor in factors if factor in meant}
    if not taken & {"d", "e", "c"}:
        feature = next((f for f in reversed(free) if _is(f, "d", "e", "c")), free[-1] if free else None)
        if feature is not None and (len(factors) > 1 or not taken & {"i", "j"}):
            if factors.index(feature) != len(factors) - 1 and not _is(factors[-1], "d", "e", "c", "h", "g"):
                feature = factors[-1] if factors[-1] in free and not _is(factors[-1], "i", "j") else feature
            wide = not apart and not any(_is(f, "h", "g") for f in factors)
            meant[feature] = "c" if wide else "e" if _is(feature, "e") else "d"
            free.remove(feature)
    if not taken & {"i", "j"}:
        places = [f for f in free if f in ("i", "j")] or [f for f in free if _is(f, "i", "j", "t")]
        if len(places) > 1 and not any(_is(f, "b") for f in factors) and places[0].lower() == "n":
            meant[places[0]] = "b"  # As in `n l c`.
            free.remove(places.pop(0))
        if len(places) > 1 and len(factors) == 4 and not any(_is(f, "h", "g") for f in free):
            heads = next((f for f in places if f.lower() in ("n", "k")), None)  # As in `b t n d`.
            if heads is not None:
                meant[heads] = "h"
                free.remove(heads)
                places.remove(heads)
        if not places and len(free) == 1:
            places = free[:]
        if len(places) != 1:
            raise refusal(
                f"it is not clear which axis of `{name}`, `{layout}`, has the positions",
                "name queries `i`, keys `j`, heads `h`, the batch `b`, features `d`, the model's width `c`",
            )
        meant[places[0]] = position
        free.remove(places[0])
    for role in ("b", "h", "g"):
        for factor in [f for f in free if _is(f, role)]:
            if role not in meant.values():
                meant[factor] = role
                free.remove(factor)
    if position == "j":
        for factor in [f for f in free if _is(f, "h") and "g" not in meant.values()]:
            meant[factor] = "g"  # Another letter for heads than that of the queries.


def _place_cached(meant: dict[str, str], layouts: Mapping[str, Layout]) -> None:
    """The letter that a cache has for positions: the one that is neither a batch, nor heads, nor features."""
    for role, name in cached_names(layouts).items():
        new = next((layout for other, layout in layouts.items() if role_of_name(other) == role), None)
        known = set(new.factors) if new is not None else set()
        ours = {factor for factor in layouts[name].factors if meant.get(factor, factor) in "bhgdec"}
        free = [f for f in layouts[name].factors if f not in known and f not in ours and not f[0].isdigit()]
        if len(free) == 1 and free[0] != "t":
            meant[free[0]] = "t"


def is_mask(name: str) -> bool:
    """Whether a name is that of a mask, or of what is added to scores."""
    return any(word in name.lower() for word in ("mask", "pad", "keep", "bias", "alibi"))


def cached_names(names: Iterable[str]) -> dict[str, str]:
    """The arrays that are a cache of keys and of values, by role, where there are both."""
    found = {}
    for name in names:
        word = name.lower()
        if re.search(CACHED, word):
            role = role_of_name(re.sub(CACHED, "_", word).strip("_"))
            if role in ("k", "v"):
                found[role] = name
    return found if set(found) == {"k", "v"} else {}


def _is(factor: str, *roles: str) -> bool:
    return any(factor.lower() in _KNOWN[role] for role in roles)


def _twice(layouts: Mapping[str, Layout]) -> list[tuple[str, str]]:
    return [(name, factor) for name, layout in layouts.items() for factor in layout.factors if factor.endswith("'")]


def _keep_apart(meant: dict[str, str], layouts: Mapping[str, Layout]) -> None:
    """Give the letters that are left, and are taken for others now, a name of their own."""
    letters = dict.fromkeys(f for layout in layouts.values() for f in layout.factors if not f[0].isdigit())
    for letter in letters:
        if letter in meant:
            continue
        if letter in set("bhgijdec") - set(meant.values()):
            meant[letter] = letter
            continue
        role = next((role for role in ("b", "h", "g", "e") if _is(letter, role)), letter)
        if _is(letter, "i", "j") and "j" not in meant.values():
            role = "j"  # A letter of masks alone, as in `mask=b l`.
        taken = set(meant.values())
        meant[letter] = role if role not in taken else f"{letter}_" if letter in taken else letter


def _renamed(layout: Layout, meant: Mapping[str, str]) -> Layout:
    return Layout(tuple(tuple(meant.get(factor, factor) for factor in dim) for dim in layout.dims))


def _split_heads(
    layouts: Mapping[str, Layout], roles: Mapping[str, str | None], contract: Contract, module: bool
) -> Mapping[str, Layout]:
    """Features of queries, keys and values as `(h d)`, where the contract says how many heads they are for and no array
    has an axis of heads."""
    heads = any({"h", "g"} & set(layout.factors) for layout in layouts.values())
    named = {role: name for name, role in roles.items() if role}
    if module or heads or not contract.heads or contract.heads < 2 or set(named) != set("qkv"):
        return layouts
    given = {name: layouts[name] for name in (*named.values(), "out") if name in layouts}
    if any(("d",) not in layout.dims and ("e",) not in layout.dims for layout in given.values()):
        return layouts
    split = {
        name: Layout(tuple(("h", *dim) if dim in (("d",), ("e",)) else dim for dim in layout.dims))
        for name, layout in given.items()
    }
    return {**layouts, **split}
