"""A word for each row of a weights array, with the figures behind the word.

A word is about the numbers of a row, and about nothing else: not about what a model does with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass
from .tensors import is_tensor, to_numpy

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that decides a word, and a sentence that says how."""

    value: float
    meaning: str


# Every number that decides a word, but for the tolerances of the sum.
THRESHOLDS: dict[str, Threshold] = {
    "near": Threshold(
        0.1, "A weight is even with others where it differs from the even share by at most this part of that share."
    ),
    "most": Threshold(
        0.6, "A key, or a window of keys, has most of a row from this mass on; of two even keys, neither is near it."
    ),
    "peak": Threshold(0.9, "A row is peaked where its largest weight is at least this."),
    "nearly all": Threshold(0.95, "The fewest keys that together have this part of a row are the keys that carry it."),
    "few heard": Threshold(0.5, "A row is sparse where it hears at most this part of the keys that it could hear."),
    "few carrying": Threshold(0.25, "A row is sparse where at most this part of the keys that it could hear carry it."),
    "radius": Threshold(2, "The window of a row goes at least this many keys to each side of its position."),
    "wide": Threshold(
        0.0625, "The window goes this part of the keys that the row could hear to each side, where that is more."
    ),
    "narrow": Threshold(
        0.25, "A row is local only where its window holds at most this part of the keys that it could hear."
    ),
}

# By how much the sum of a row may differ from 1. A weight of bfloat16 is off by up to 0.004 of itself, one of float16
# by up to 0.0005; in float32 a long sum that was made naively is off by more than its terms; and float64 often holds
# what was computed in float32. Whole numbers and Booleans sum to exactly 1.
TOLERANCES: dict[str, float] = {"bfloat16": 2e-2, "float16": 5e-3, "float32": 1e-4, "float64": 1e-5}

# The words and when each is given, in the order in which they are tried: the first that holds is the word.
WORDS: dict[str, str] = {
    "not a distribution": "a weight is negative or not finite, or the row is not all zero and does not sum to 1",
    "silent": "every weight is exactly 0, or there are no keys",
    "uniform": "there are at least two keys, and all are near 1/keys",
    "causal-average": "exactly the keys 0 to the position are heard, several and not all, each near its share",
    "previous-token": "the key before the position has most of the row",
    "first-token sink": "key 0 has most of the row, and the position is not 0",
    "induction": "tokens are given, this one stood there before, and the keys just after it have most of the row",
    "peaked": "one key has nearly the whole row",
    "local": "a narrow window around the position has most of the row",
    "sparse": "few of the keys that could be heard are heard, or few carry nearly all of the row",
    "mixed": "none of these holds",
}

# Which thresholds decide which word.
DECIDED_BY: dict[str, tuple[str, ...]] = {
    "uniform": ("near",),
    "causal-average": ("near",),
    "previous-token": ("most",),
    "first-token sink": ("most",),
    "induction": ("most",),
    "peaked": ("peak",),
    "local": ("most", "radius", "wide", "narrow"),
    "sparse": ("few heard", "few carrying", "nearly all"),
}

# The words that speak of a position. They are given where the position is known: where a head has at least two
# queries, so that rows stand beside each other, or where `causal=True` says that the queries are the last positions.
# The other words stay the same when the keys of a row change places.
POSITIONAL = ("causal-average", "previous-token", "first-token sink", "induction", "local")

# Heads are read together up to this many weights, so that the memory for it stays small.
MOST_AT_ONCE = 1 << 21


@dataclass(frozen=True, slots=True)
class Row:
    """One row. A query stands at position `query`, or, where there are fewer queries than keys, at the end:
    `keys - queries + query`.

    `entropy` is in bits, `effective_keys` is 2 to its power, and `distance` is the mean of |position - key| under the
    weights; all three, of the row divided by its sum, and NaN where the row is silent or not a distribution.
    `carrying` counts the fewest keys that have nearly all; it is 0 there. `largest_key` is -1 where nothing is heard.
    `on_previous` and the like are 0 where there is no such key. `heard` counts weights above 0, however small.
    """

    head: tuple[int, ...]
    query: int
    position: int
    word: str
    entropy: float
    effective_keys: float
    largest: float
    largest_key: int
    on_self: float
    on_previous: float
    on_first: float
    distance: float
    heard: int
    carrying: int
    total: float


@dataclass(frozen=True, slots=True)
class Head:
    """The rows of one head together. Means are over the rows that are distributions; NaN where there are none.

    `words` are the most common ones: several where they are equally common, none where there are no rows. `causal` is
    found: no weight, and no NaN, is above the diagonal; None where no key stands after any query, as for a lone row.
    """

    index: tuple[int, ...]
    words: tuple[str, ...]
    counts: Mapping[str, int]
    causal: bool | None
    entropy: float
    effective_keys: float
    on_self: float
    on_previous: float
    on_first: float
    distance: float

    @property
    def word(self) -> str | None:
        """The most common word; None where several are, or there are no rows."""
        return self.words[0] if len(self.words) == 1 else None

    @property
    def evidence(self) -> str:
        """The most common words and the next one, counted: `previous-token 3 of 6 rows, peaked 2 of 6 rows`."""
        rows = sum(self.counts.values())
        least = sorted(self.counts.values())[-2]
        shown = [word for word in sorted(self.counts, key=lambda word: -self.counts[word]) if self.counts[word]]
        return ", ".join(f"{word} {self.counts[word]} of {rows} rows" for word in shown if self.counts[word] >= least)


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """The figures of all rows as arrays of shape (..., queries): the fields of `Row`, with `code` for the place of the
    word in `WORDS`."""

    code: Array
    entropy: Array
    effective_keys: Array
    largest: Array
    largest_key: Array
    on_self: Array
    on_previous: Array
    on_first: Array
    distance: Array
    heard: Array
    carrying: Array
    total: Array


@dataclass(frozen=True, slots=True, eq=False)
class Patterns:
    """The patterns found in a weights array of shape (..., queries, keys). `weights` is the array itself, not a copy;
    `causal` is what the caller said, and `heads` has what was found, in the order of the array."""

    weights: Array
    dtype: str
    tolerance: float
    causal: bool | None
    position: Array
    figures: Figures
    heads: tuple[Head, ...]

    @property
    def queries(self) -> int:
        return int(self.weights.shape[-2])

    @property
    def keys(self) -> int:
        return int(self.weights.shape[-1])

    @property
    def words(self) -> Array:
        """The word of every row, as an array of shape (..., queries)."""
        found: Array = np.array(list(WORDS))[self.figures.code]
        return found

    def rows(self, head: tuple[int, ...]) -> Iterator[Row]:
        """The rows of a head, in their order."""
        names = list(WORDS)
        parts = {field.name: getattr(self.figures, field.name)[head].tolist() for field in fields(Figures)}
        codes = parts.pop("code")
        for query, (code, position) in enumerate(zip(codes, self.position.tolist(), strict=True)):
            figures = {name: column[query] for name, column in parts.items()}
            yield Row(head=head, query=query, position=position, word=names[code], **figures)


def find_patterns(weights: Any, *, causal: bool | None = None, tokens: Sequence[str] | None = None) -> Patterns:
    """The pattern of every row and head of an array of shape (..., queries, keys); of shape (keys,), of a lone row.

    Of a causal head, a row could hear the keys up to its position, else all keys. Whether a head is causal is found in
    it, unless the caller says it. A lone row has the last position, but no word that depends on that, unless the caller
    says `causal=True`: then the row is known to come from decoding. `tokens` are what stands at the keys: with them,
    rows that hear what came after the same token before are found.
    """
    array, dtype = _as_array(weights)
    tolerance = 0.0 if array.dtype.kind in "biu" else TOLERANCES.get(dtype, TOLERANCES["float64"])
    *leading, queries, keys = array.shape
    position = np.arange(queries) + max(0, keys - queries)
    after = _after_the_same(position, keys, tokens)
    count = int(np.prod(leading, dtype=np.int64))
    flat = array.reshape(count, queries, keys)
    step = max(1, MOST_AT_ONCE // max(1, queries * keys))
    parts = [_read(flat[n : n + step], position, causal, tolerance, after) for n in range(0, count, step)]
    parts = parts or [_read(flat, position, causal, tolerance, after)]
    above = bool(np.any(position < keys - 1))
    found = np.concatenate([future for _, future in parts])
    figures = {f.name: np.concatenate([getattr(part, f.name) for part, _ in parts]) for f in fields(Figures)}
    marks = [None if not above else not hears for hears in found.tolist()]
    heads = _heads(Figures(**figures), list(np.ndindex(*leading)), marks)
    shaped = Figures(**{name: column.reshape(*leading, queries) for name, column in figures.items()})
    return Patterns(array, dtype, tolerance, causal, position, shaped, heads)


def _as_array(weights: Any) -> tuple[Array, str]:
    """The weights as NumPy has them, for reading only, with the name of the dtype that they were given in."""
    try:
        array = np.asarray(to_numpy(weights))
    except (TypeError, ValueError, RuntimeError, BufferError) as problem:
        first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise CallError([Diagnostic("IX504", f"the weights cannot be made an array: {first}")]) from None
    if np.ma.is_masked(weights):
        help = "pass `weights.filled(0)`: a key with weight 0 is not heard"
        raise CallError([Diagnostic("IX504", "the weights are a masked array, and its mask would be lost", help=help)])
    if array.dtype.kind not in "biuf":
        kinds = {"O": type(weights).__name__, "U": "text", "S": "text", "c": "complex numbers"}
        shown = kinds.get(array.dtype.kind, f"an array of {array.dtype}")
        raise CallError([Diagnostic("IX504", f"the weights need an array of real numbers, and got {shown}")])
    if array.ndim < 1:
        message = f"the weights have at least 1 axis, the keys, and the array has {array.ndim}"
        note = "weights have the shape (..., queries, keys), or (keys,) for a lone row"
        raise CallError([Diagnostic("IX502", message, notes=(note,))])
    view = array.reshape(1, -1) if array.ndim == 1 else array.view()
    view.flags.writeable = False
    name = str(weights.dtype).removeprefix("torch.") if is_tensor(weights) else array.dtype.name
    return view, name


def _after_the_same(position: Array, keys: int, tokens: Sequence[str] | None) -> Array | None:
    """Whether a key stands just after an earlier place of the query's token; None without tokens."""
    if tokens is None:
        return None
    if len(tokens) != keys:
        message = f"there is a token for each key: {keys}, and there are {len(tokens)}"
        raise CallError([Diagnostic("IX515", message)])
    if len(position) > keys or keys == 0:
        return None
    known = np.unique(np.array([str(token) for token in tokens]), return_inverse=True)[1].reshape(-1)
    found = np.zeros((len(position), keys), bool)
    found[:, 1:] = known[position][:, None] == known[:-1]
    return found & (np.arange(keys) < position[:, None])


def _read(
    weights: Array, position: Array, stated: bool | None, tolerance: float, after: Array | None
) -> tuple[Figures, Array]:
    """The figures of some heads, and whether each gives weight to a key after the query's position."""
    keys = weights.shape[-1]
    with np.errstate(invalid="ignore", over="ignore"):
        exact = weights.astype(np.float64)
        total = exact.sum(-1)
    sound = (np.isfinite(exact) & (exact >= 0)).all(-1) & np.isfinite(total)
    silent = ~(exact != 0).any(-1)
    sums = sound & ~silent & (np.abs(total - 1) <= tolerance)
    future = ((exact != 0) & (np.arange(keys) > position[:, None])).any((-1, -2))
    causal = ~future if stated is None else np.full(future.shape, stated)
    reach = np.where(causal[:, None], np.minimum(position + 1, keys), keys)
    row = np.where(sums[..., None], exact, 0)
    largest, largest_key = _largest(exact, silent)
    figures = {
        **_spread(row / np.where(sums, total, 1)[..., None], sums, position),
        "largest": largest,
        "largest_key": largest_key,
        "on_self": _at(exact, position),
        "on_previous": _at(exact, position - 1),
        "on_first": _at(exact, np.zeros_like(position)),
        "heard": (exact > 0).sum(-1),
        "total": total,
    }
    conditions = _conditions(row, figures, position, reach, stated)
    if after is not None:
        known = weights.shape[-2] > 1 or stated is True
        conditions["induction"] = (np.einsum("hqk,qk->hq", row, after) >= THRESHOLDS["most"].value) & known
    conditions |= {"not a distribution": ~sums & ~silent, "silent": silent}
    code = np.select([conditions[word] for word in WORDS], list(range(len(WORDS))))
    return Figures(code=code, **figures), future


def _spread(share: Array, sums: Array, position: Array) -> dict[str, Array]:
    """The number of keys, and the distance, over which rows that sum to 1 are spread; other rows are 0 or NaN."""
    keys = share.shape[-1]
    logarithm = np.log2(share, where=share > 0, out=np.zeros_like(share))
    # Adding 0 makes -0 a plain 0.
    entropy = np.maximum(0, -np.einsum("hqk,hqk->hq", share, logarithm)) + 0.0
    away = np.abs(position[:, None] - np.arange(keys)).astype(np.float64)
    before = np.cumsum(-np.sort(-share, -1), -1) < THRESHOLDS["nearly all"].value
    return {
        "entropy": np.where(sums, entropy, np.nan),
        "effective_keys": np.where(sums, np.exp2(entropy), np.nan),
        "distance": np.where(sums, np.einsum("hqk,qk->hq", share, away), np.nan),
        "carrying": np.where(sums, np.minimum(before.sum(-1) + 1, keys), 0),
    }


def _conditions(
    row: Array, figures: Mapping[str, Array], position: Array, reach: Array, stated: bool | None
) -> dict[str, Array]:
    """Return the rows that each word for a distribution fits; of several words, the order of `WORDS` decides."""
    limit = {name: threshold.value for name, threshold in THRESHOLDS.items()}
    queries, keys = row.shape[-2:]
    known = queries > 1 or stated is True
    heard = np.arange(keys) <= position[:, None]
    past = heard / (position[:, None] + 1)
    average = (np.abs(row - past) <= limit["near"] * past).all(-1)
    radius = np.maximum(limit["radius"], np.floor(limit["wide"] * reach))
    low, high = np.maximum(position - radius, 0), np.minimum(position + radius + 1, reach)
    narrow = np.maximum(high - low, 0) <= limit["narrow"] * reach
    place = np.arange(keys)
    window = (place >= low[..., None]) & (place < high[..., None])
    inside = np.einsum("hqk,hqk->hq", row, window)
    return {
        "uniform": (np.abs(row * keys - 1) <= limit["near"]).all(-1) & (keys > 1),
        "causal-average": average & known & (position > 0) & (position + 1 < keys),
        "previous-token": (figures["on_previous"] >= limit["most"]) & known,
        "first-token sink": (figures["on_first"] >= limit["most"]) & known & (position > 0),
        "induction": np.zeros(row.shape[:2], bool),
        "peaked": figures["largest"] >= limit["peak"],
        "local": (inside >= limit["most"]) & narrow & known,
        "sparse": (figures["heard"] <= limit["few heard"] * reach)
        | (figures["carrying"] <= limit["few carrying"] * reach),
        "mixed": np.ones(row.shape[:2], bool),
    }


def _largest(exact: Array, silent: Array) -> tuple[Array, Array]:
    """The largest weight of each row and its key, the first of several; a NaN is larger than any number."""
    if exact.shape[-1] == 0:
        return np.zeros(silent.shape), np.full(silent.shape, -1)
    key = exact.argmax(-1)
    return np.take_along_axis(exact, key[..., None], -1)[..., 0], np.where(silent, -1, key)


def _at(exact: Array, key: Array) -> Array:
    """The weight of each row at one key; 0 where there is no such key."""
    keys = exact.shape[-1]
    if keys == 0:
        return np.zeros(exact.shape[:2])
    found: Array = exact[:, np.arange(len(key)), np.clip(key, 0, keys - 1)]
    return np.where((key >= 0) & (key < keys), found, 0)


def _heads(figures: Figures, indices: list[tuple[int, ...]], causal: list[bool | None]) -> tuple[Head, ...]:
    """The heads, from figures of shape (heads, queries)."""
    names = list(WORDS)
    counts = np.stack([(figures.code == code).sum(-1) for code in range(len(names))], -1)
    good = ~np.isnan(figures.entropy)
    number = good.sum(-1)
    means = {}
    for name in ("entropy", "effective_keys", "on_self", "on_previous", "on_first", "distance"):
        total = np.where(good, getattr(figures, name), 0).sum(-1)
        means[name] = np.where(number > 0, total / np.maximum(number, 1), np.nan).tolist()
    common = (counts == counts.max(-1, keepdims=True)) & (counts > 0)
    return tuple(
        Head(
            index=index,
            words=tuple(name for name, most in zip(names, common[n].tolist(), strict=True) if most),
            counts=dict(zip(names, counts[n].tolist(), strict=True)),
            causal=causal[n],
            **{name: column[n] for name, column in means.items()},
        )
        for n, index in enumerate(indices)
    )
