"""Axes where none are given: guessed from names and shapes, and by asking the callable what its values reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .access import CACHED, has_weights, role_of_name
from .calling import Foreign, Unusable
from .contract import Contract
from .layout import Layout, parse_layout, refusal
from .letters import is_mask
from .sanity import plain

_PADDING = ("pad", "attention_mask", "key_mask", "keep")
_HELP = 'name them: `axes={"q": "b h i d", "k": "b h j d", "v": "b h j e", "out": "b h i e"}`, or `x=b i c, out=b i c`'

Shapes = Mapping[str, tuple[int, ...]]


def guess_axes(
    target: Callable[..., Any], example: Mapping[str, Any], out_shape: tuple[int, ...] | None, contract: Contract
) -> dict[str, Layout]:
    """The layouts of the arguments that are sequences or masks, and of the output; refused where they are not clear."""
    foreign = Foreign(target, example)
    foreign.out_shape = out_shape
    try:
        out = foreign.prepare()
        shapes = {name: tuple(value.shape) for name, value in example.items() if hasattr(value, "shape")}
        real = [name for name in shapes if "float" in str(getattr(example[name], "dtype", ""))]
        masks = [name for name in shapes if name in contract.masks or is_mask(name)]
        inputs = [name for name in real if name not in masks and len(shapes[name]) > 1 and not _is_table(name)]
        texts = _sequences(_Asked(foreign, out), {name: shapes[name] for name in inputs}, out.shape, contract)
        sizes = _sizes(texts, {**shapes, "out": out.shape}, contract)
        for name in shapes:
            if name in masks or name == contract.documents:
                text = mask_axes(name, shapes[name], sizes)
                if text is None and (name in contract.masks or name == contract.documents):
                    raise refusal(f"the axes of `{name}`, of shape {shapes[name]}, are not clear", _HELP)
                if text is not None:
                    texts[name] = text
    except Unusable as problem:
        raise refusal(f"axes cannot be guessed: {problem.message}", _HELP) from None
    finally:
        foreign.restore()
    return {name: parse_layout(name, text) for name, text in texts.items()}


class _Asked:
    """What moves in the output when one entry of an argument moves."""

    def __init__(self, foreign: Foreign, out: Any) -> None:
        self.foreign, self.out = foreign, out
        self.arrays = {name: plain(value) for name, value in foreign.example.items()}

    def moved(self, name: str, index: tuple[int, ...]) -> Any:
        changed = self.arrays[name].copy()
        changed[index] += np.random.default_rng(1).normal(size=changed[index].shape)
        after = self.foreign({**self.arrays, name: changed})
        with np.errstate(invalid="ignore"):
            return ~np.isclose(after, self.out, rtol=1e-6, atol=1e-9, equal_nan=True)

    def along(self, name: str, places: list[tuple[int, ...]]) -> set[int]:
        """The axes of the output along which an entry of an argument reaches other places than its own."""
        reached: set[int] = set()
        for place in places:
            moved = self.moved(name, place)
            for axis, at in enumerate(place):
                here, there = self.arrays[name].shape[axis], moved.shape[axis]
                shared = there // here if here and there % here == 0 else 1  # Heads of queries that share one of keys.
                own = {*range(at * shared, (at + 1) * shared), *range(at, there, here if shared > 1 else there)}
                if np.delete(moved, [each for each in own if each < there], axis).any():
                    reached.add(axis)
        return reached


def _is_table(name: str) -> bool:
    """Whether a name is that of a table of positions: cosines, sines, frequencies."""
    words = name.lower().split("_")
    return not set("cos sin freqs rope freq cis angles table inv".split()).isdisjoint(words)


def _sequences(asked: _Asked, shapes: Shapes, out: tuple[int, ...], contract: Contract) -> dict[str, str]:
    """The axes of queries, keys and values, or of `x`, and of the output."""
    roles = {role: name for name in shapes for role in [role_of_name(name)] if role}
    if set(roles) == set("qkv"):
        return _separate(asked, roles, shapes, out, contract)
    if len(shapes) == 1 and (name := next(iter(shapes))) and "qkv" in name.lower():
        return _packed(name, shapes[name], out)
    plausible = [name for name in shapes if not re.search(CACHED, name.lower())]
    if 1 <= len(plausible) <= 2 and len({len(shapes[name]) for name in plausible}) == 1:
        x = plausible[0]
        if len(shapes[x]) == 2 == len(out):
            return {x: "i c", "out": "i c"}
        if len(shapes[x]) == 3 == len(out):
            first = "i b" if _positions_first(asked, x, shapes[x], out) else "b i"
            width = "c" if shapes[x][2] == out[2] else "e"
            other = {plausible[1]: f"{first.replace('i', 'j')} c"} if len(plausible) == 2 else {}
            if other and shapes[plausible[1]][2] != shapes[x][2]:
                other = {plausible[1]: f"{first.replace('i', 'j')} f"}
            return {x: f"{first} c", **other, "out": f"{first} {width}"}
    told = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items()) or "no arrays of real numbers"
    raise refusal(f"the axes are not clear from names and shapes: {told}", _HELP)


def _positions_first(asked: _Asked, name: str, shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether positions come before the batch: an entry reaches others along the first axis, and not the second."""
    return asked.along(name, [(0, 0), (shape[0] - 1, shape[1] - 1)]) == {0}


def _separate(
    asked: _Asked, roles: Mapping[str, str], shapes: Shapes, out: tuple[int, ...], contract: Contract
) -> dict[str, str]:
    """Queries, keys and values that are arguments of their own."""
    q, k, v = (shapes[roles[role]] for role in "qkv")
    if len({len(q), len(k), len(v)}) > 1 or len(q) not in (2, 3, 4):
        raise refusal(f"queries, keys and values have {len(q)}, {len(k)} and {len(v)} axes", _HELP)
    if len(q) == 2:
        return {roles["q"]: "i d", roles["k"]: "j d", roles["v"]: "j e", "out": "i e"}
    if len(q) == 3:
        return _of_three(asked, roles, shapes, contract)
    if len(out) not in (3, 4):
        raise refusal(f"the output has {len(out)} axes, and the queries have 4", _HELP)
    reached = asked.along(roles["v"], [(0, 0, 0), (0, v[1] - 1, v[2] - 1)]) if len(out) == 4 else set()
    first = {1: "i h", 2: "h i"}.get(next(iter(reached & {1, 2}), 0)) if len(reached & {1, 2}) == 1 else None
    if first is None:  # Heads are mixed, or merged in the output: shapes tell, or what the output has.
        fitting = [
            text
            for text, heads, place in (("h i", q[1], q[2]), ("i h", q[2], q[1]))
            if (out[1] == place if len(out) == 3 else True) and heads % (k[1] if text == "h i" else k[2]) == 0
        ]
        if len(fitting) == 2 and len(out) == 4:
            same = k[1:3] == q[1:3]
            fitting = [text for text in fitting if same or (k[1] == q[1]) == (text == "h i")]
        if len(fitting) != 1:
            raise refusal(f"heads and positions cannot be told apart in the shape {q} of `{roles['q']}`", _HELP)
        first = fitting[0]
    at = first.index("h") // 2 + 1
    letter = "h" if k[at] == q[at] else "g"
    keys = first.replace("h", letter).replace("i", "j")
    result = f"b {first} e" if len(out) == 4 else "b i (h e)"
    return {roles["q"]: f"b {first} d", roles["k"]: f"b {keys} d", roles["v"]: f"b {keys} e", "out": result}


def _of_three(asked: _Asked, roles: Mapping[str, str], shapes: Shapes, contract: Contract) -> dict[str, str]:
    """Queries, keys and values of three axes: heads are packed in the last one, in the first, or there is one."""
    v = shapes[roles["v"]]
    swapped = asked.along(roles["v"], [(0, 0), (v[0] - 1, v[1] - 1)]) == {0}
    first = "i b" if swapped else "b i"
    weighs = has_weights(asked.foreign)
    inner = ("c", "c", "c") if weighs else ("(h d)", "(h d)", "(h e)") if (contract.heads or 1) > 1 else ("d", "d", "e")
    keys = first.replace("i", "j")
    texts = {roles[role]: f"{first if role == 'q' else keys} {each}" for role, each in zip("qkv", inner, strict=True)}
    return {**texts, "out": f"{first} {inner[2]}"}


def _packed(name: str, shape: tuple[int, ...], out: tuple[int, ...]) -> dict[str, str]:
    if len(shape) == 5 and shape[2] == 3:
        return {name: "b i 3 h d", "out": "b i h d" if len(out) == 4 else "b i (h d)"}
    if len(shape) == 5 and shape[0] == 3:
        return {name: "3 b h i d", "out": "b h i d" if len(out) == 4 else "b i (h d)"}
    if len(shape) == 3 == len(out) and shape[2] == 3 * out[2]:
        return {name: "b i (3 h d)", "out": "b i (h d)"}
    raise refusal(f"`{name}` has the shape {shape}, which may be split in several ways", _HELP)


def _sizes(texts: Mapping[str, str], shapes: Shapes, contract: Contract) -> dict[str, int]:
    """The size of each letter that is an axis of its own; keys are queries where there is one sequence."""
    sizes = {"h": contract.heads} if contract.heads else {}
    for name, text in texts.items():
        for dim, length in zip(parse_layout(name, text).dims, shapes[name], strict=True):
            if len(dim) == 1:
                sizes.setdefault(dim[0], length)
    return {"j": sizes.get("i", 0), **sizes}


def mask_axes(name: str, shape: tuple[int, ...], sizes: Mapping[str, int]) -> str | None:
    """The axes of a mask: the last is the key, the one before it the query, then heads and the batch."""
    b, h, i, j = (sizes.get(letter, 0) for letter in "bhij")
    if len(shape) == 1:
        return "j" if shape[0] == j else None
    if shape[-1] != j:
        return None
    if len(shape) == 2:
        of_keys, of_pairs = shape[0] == b, shape[0] == i
        if of_keys and (not of_pairs or any(word in name.lower() for word in _PADDING)):
            return "b j"
        return "i j" if of_pairs else "1 j" if shape[0] == 1 else None
    rows = "i" if shape[-2] == i else "1" if shape[-2] == 1 else None
    if rows is None:
        return None
    before = {3: [{"b": b, "(b h)": b * h, "h": h, "1": 1}], 4: [{"b": b, "1": 1}, {"h": h, "1": 1}]}
    outer = [
        next((text for text, size in options.items() if size == length), None)
        for options, length in zip(before.get(len(shape), []), shape, strict=False)
    ]
    return None if None in outer or not outer else " ".join([*map(str, outer), rows, "j"])
