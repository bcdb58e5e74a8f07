"""Attentions drawn at random: for each the program, and the same in PyTorch.

A score, a guard and a normaliser are drawn apart from each other, each with its words, its text in the language and
what it computes. Letters are `b h g i j`: example, head, head of keys, query, key; `d e c` are features, `r` a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp, log, sqrt
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

Given = dict[str, Tensor]
Prepared = tuple[Tensor, Tensor, float]
LONGEST, WIDTHS = 8192, (16, 32, 48, 64, 96, 128)
# Points of all scores times their width, above which a row on a CPU is made shorter.
WORK = 1 << 29


def normal(row: Row, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape)


def scaled(row: Row, given: Given) -> Prepared:
    return given["Q"], given["K"], row.sizes["d"] ** -0.5


@dataclass(frozen=True, slots=True)
class Array:
    """An input: its axes, the numbers it holds, and its dtype in the text, where it is whole or true and false."""

    name: str
    axes: str
    fill: Callable[[Row, tuple[int, ...]], Tensor] = normal
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """`prepare` makes of the arrays what is multiplied, and by how much; `change` does the rest to scores that exist.

    A `fresh` one is made of what a call computes, so that nothing of it can be made beforehand.
    """

    words: str
    text: str
    arrays: tuple[Array, ...] = ()
    change: Callable[[Any, Any], Any] | None = None
    prepare: Callable[[Row, Given], Prepared] = scaled
    added: bool = True
    fresh: bool = False
    positional: bool = False
    negative: bool = False
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Guard:
    """Which pairs are left. A positional one has no more queries than keys, and one of `itself` as many."""

    words: str
    text: str
    allows: Callable[[Any], Any] | None
    arrays: tuple[Array, ...] = ()
    positional: bool = True
    itself: bool = False
    causal: bool = False
    empties: bool = False
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Normaliser:
    """What becomes of scores: lines of the program, and `finish`. `core` names what fused kernels can make of it.

    Where nobody is left to listen to it `divides` by 0, or it does not.
    """

    words: str
    text: str
    finish: Callable[[Tensor, Grid, Tensor], tuple[Tensor, ...]]
    core: str = ""
    arrays: tuple[Array, ...] = ()
    divides: bool = False
    rectified: bool = False
    weight: int = 1

    @property
    def shifted(self) -> bool:
        """What is constant along the keys changes nothing."""
        return self.core in ("softmax", "laser", "differential")


@dataclass(frozen=True, slots=True)
class Row:
    """One attention. `heads` says how they are written: `h`, `shared`, `axes`, `one` or `none`."""

    number: int
    score: Score
    guard: Guard
    normaliser: Normaliser
    sizes: dict[str, int]
    orders: dict[str, str]
    heads: str
    batched: bool
    one_letter: bool
    window: int
    learned: bool
    forward: bool
    dtype: str
    mixed: bool

    def slots(self, axes: str, declared: bool = False) -> str:
        """The bracket that has these axes, or nothing if this row has none of them."""
        heads = {"none": "", "axes": "m, g"}.get(self.heads, "h")
        shared = "g" if declared else f"h / {self.sizes['h'] // self.sizes['g']}"
        keys = {"none": "", "one": "", "axes": "m", "shared": shared}.get(self.heads, "h")
        letters = {"b": "b" if self.batched else "", "h": heads, "g": keys}
        if not declared:
            letters["r"] = f"clamp({self.here} - j, -{self.window}, {self.window}) + {self.window}"
        elif self.one_letter and "i" not in axes:
            letters["j"] = "i"
        found = [letters.get(letter, letter) for letter in axes]
        return f"[{', '.join(filter(None, found))}]" if any(found) else ""

    @property
    def arrays(self) -> tuple[Array, ...]:
        main = tuple(Array(name, self.orders[name]) for name in "QKV")
        return main + self.score.arrays + self.guard.arrays + self.normaliser.arrays

    @property
    def here(self) -> str:
        """The position of a query among the keys: the last query stands at the last key."""
        return "i" if self.sizes["i"] == self.sizes["j"] else "(i + size(j) - size(i))"

    @property
    def program(self) -> str:
        """A text of the tables may name every input, at its own axes or with `_j` at the key, and what is here."""
        words = {array.name: array.name + self.slots(array.axes) for array in self.arrays}
        words |= {f"{array.name}_j": array.name + self.slots(array.axes.replace("i", "j")) for array in self.arrays}
        words |= {"here": self.here, "window": str(self.window), "t": self.slots("bhi"), "p": self.slots("bhij")}
        words["toward"] = f"(j - {self.here})" if self.guard.causal else f"-abs({self.here} - j)"
        words["dot"] = "sum[d]({Q} * {K}) / sqrt(size(d))".format(**words)
        guard = self.guard.text.format(**words)
        words["where"] = f" where {guard}" if guard else ""
        words |= {
            "s": f"scores{words['p']}",
            "w": f"weights{words['p']}",
            "out": f"out{self.slots(self.orders['out'])}",
        }
        inputs = [f"{a.name}{self.slots(a.axes, True)}{f' : {a.dtype}' if a.dtype else ''}" for a in self.arrays]
        lines = ["let {s} = " + self.score.text, *self.normaliser.text.split("; ")]
        return f"input {', '.join(inputs)};\n" + "".join(f"{line.format(**words)};\n" for line in lines)

    @property
    def words(self) -> str:
        said = [self.normaliser.words, self.score.words, self.guard.words, f"Q{self.slots(self.orders['Q'], True)}"]
        if self.heads in ("shared", "axes", "one") or self.orders["K"] == "bgdj":
            said.append(f"K{self.slots(self.orders['K'])}")
        said += ["learned"] * (self.learned and any(not array.dtype for array in self.arrays[3:]))
        return "; ".join(filter(None, said))

    @property
    def shape(self) -> str:
        s = self.sizes
        heads = f"{s['h']}" if s["g"] == s["h"] else f"{s['h']}/{s['g']}"
        dtype = self.dtype + ("+f32" if self.mixed and self.dtype != "f32" else "")
        return f"{s['b']}×{heads}×{s['i']}×{s['j']}, {s['d']}→{s['e']}, {dtype}"

    def lengths(self, axes: str) -> tuple[int, ...]:
        """The shape of an array with these axes: what this row does not write is not there."""
        gone = ("" if self.batched else "b") + {"none": "hg", "one": "g"}.get(self.heads, "")
        parts: dict[str, tuple[int, ...]] = {letter: (size,) for letter, size in self.sizes.items()}
        if self.heads == "axes":
            parts["h"] = (self.sizes["g"], self.sizes["h"] // self.sizes["g"])
        return tuple(size for letter in axes if letter not in gone for size in parts[letter])

    def home(self, array: Tensor, axes: str) -> Tensor:
        """With all axes of which the row might have written some, heads before positions before features."""
        shape = [self.sizes[letter] for letter in axes]
        array = array if list(array.shape) == shape else array.reshape(shape)
        order = sorted(range(len(axes)), key=lambda n: "bhgijdecr".index(axes[n]))
        return array if order == sorted(order) else array.permute(order)


class Grid:
    """All pairs of some queries and all keys: arrays are read so that they fit to scores."""

    def __init__(self, row: Row, given: Given, banned: Tensor | None = None, rows: slice = slice(None)) -> None:
        self.row, self.given, self.banned, self.rows = row, given, banned, rows

    @property
    def i(self) -> Tensor:
        return torch.arange(self.row.sizes["i"], device=self.given["Q"].device)[self.rows, None]

    @property
    def j(self) -> Tensor:
        return torch.arange(self.row.sizes["j"], device=self.given["Q"].device)

    @property
    def here(self) -> Tensor:
        return self.i + (self.row.sizes["j"] - self.row.sizes["i"])

    def read(self, name: str, axes: str) -> Tensor:
        cuts = {"i": self.rows}
        return self.given[name][tuple(cuts.get(a, slice(None)) if a in axes else None for a in "bhij")]

    def table(self, name: str, place: Tensor) -> Tensor:
        return self.given[name].index_select(1, place.flatten()).reshape(-1, *place.shape)

    def kept(self, scores: Tensor, otherwise: float) -> Tensor:
        return scores if self.banned is None else scores.masked_fill(self.banned, otherwise)

    def softmax(self, scores: Tensor) -> Tensor:
        weights = self.kept(scores, -torch.inf).softmax(-1)
        return self.kept(weights, 0) if self.row.guard.empties else weights


class Point:
    """The same for FlexAttention, which asks for one pair."""

    def __init__(self, row: Row, given: Given, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> None:
        self.row, self.given, self.at = row, given, {"b": b, "h": h, "i": i, "j": j}
        self.i, self.j, self.here = i, j, i + (row.sizes["j"] - row.sizes["i"])

    def read(self, name: str, axes: str) -> Tensor:
        return self.given[name][tuple(self.at[letter] for letter in axes)]

    def table(self, name: str, place: Tensor) -> Tensor:
        return self.given[name][self.at["h"], place]


def gathered(w: Tensor, v: Tensor) -> Tensor:
    """Values under weights, where some heads may share them."""
    b, h, i, j = w.shape
    w = w.to(v.dtype)
    return w @ v if v.shape[1] == h else (w.reshape(b, v.shape[1], -1, j) @ v).reshape(b, h, i, -1)


def compared(q: Tensor, k: Tensor) -> Tensor:
    b, h, i, d = q.shape
    return q @ k.mT if k.shape[1] == h else (q.reshape(b, k.shape[1], -1, d) @ k.mT).reshape(b, h, i, -1)


# ------------------------------------------------------------------------------------------- scores


def _slopes(row: Row, shape: tuple[int, ...]) -> Tensor:
    return 2.0 ** -(torch.rand(shape) * 8)


def _near_one(row: Row, shape: tuple[int, ...]) -> Tensor:
    return torch.rand(shape) + 0.5


def _gates(row: Row, shape: tuple[int, ...]) -> Tensor:
    """Sums of logarithms of gates, so that none is above the one before."""
    return logsigmoid(torch.randn(shape) + 4).cumsum(-1)


def _cosine(row: Row, given: Given) -> Prepared:
    q, k = given["Q"], given["K"]
    return (normalize(q, dim=-1) * given["scale"][:, None, None]).to(q.dtype), normalize(k, dim=-1), 1.0


def _hot(row: Row, given: Given) -> Prepared:
    q = given["Q"]
    return (q * given["heat"][..., None]).to(q.dtype), given["K"], row.sizes["d"] ** -0.5


def _both(row: Row, given: Given) -> Prepared:
    d, c = row.sizes["d"], row.sizes["c"]
    other = given["R"] if d == c else given["R"] * sqrt(d / c)
    return torch.cat((given["Q"], other), -1), torch.cat((given["K"], given["L"]), -1), d**-0.5


def _near(row: Row, given: Given) -> Prepared:
    """The square of a difference is that of its parts less twice their product."""
    q, k, root = given["Q"], given["K"], sqrt(row.sizes["d"])
    given["q²"] = q.square().sum(-1) / root
    given["k²"] = (k.square().sum(-1) / root).repeat_interleave(q.shape[1] // k.shape[1], 1)
    return q, k, 2 / root


def _far(score: Any, at: Any) -> Any:
    score = score - at.read("k²", "bhj")
    return score if at.row.normaliser.shifted else score - at.read("q²", "bhi")


def _forgot(score: Any, at: Any) -> Any:
    score = score - at.read("kept", "bhj")
    return score if at.row.normaliser.shifted else score + at.read("kept", "bhi")


def _tabled(score: Any, at: Any) -> Any:
    window = at.row.window
    return score + at.table("table", (at.here - at.j).clamp(-window, window) + window)


def _sloped(score: Any, at: Any) -> Any:
    return score - at.read("slope", "h") * (at.here - at.j).abs()


def _read(name: str, axes: str) -> Callable[[Any, Any], Any]:
    return lambda score, at: score + at.read(name, axes)


GATES = "forget gates"
_SCALE = Array("scale", "h", lambda row, shape: 4 * _near_one(row, shape))
_UNITS = "{Q} * rsqrt(sum[d]({Q} * {Q})) * ({K} * rsqrt(sum[d]({K} * {K})))"
_TWO = "{dot} + sum[c]({R} * {L}) / sqrt(size(c))"
SCORES = (
    Score("", "{dot}", weight=4),
    Score("soft cap", "20 * tanh({dot} / 20)", (), lambda score, at: 20 * torch.tanh(score / 20), added=False),
    Score("ALiBi", "{dot} + {slope} * {toward}", (Array("slope", "h", _slopes),), _sloped, positional=True),
    Score("clipped relative table", "{dot} + {table}", (Array("table", "hr"),), _tabled, positional=True),
    Score("temperature of each query", "{dot} * {heat}", (Array("heat", "bhi", _near_one),), None, _hot, fresh=True),
    Score("bias of each key", "{dot} + {bias}", (Array("bias", "bhj"),), _read("bias", "bhj")),
    Score("bias of each pair", "{dot} + {bias}", (Array("bias", "hij"),), _read("bias", "hij")),
    Score("two dot products", _TWO, (Array("R", "bhic"), Array("L", "bgjc")), None, _both, fresh=True),
    Score("cosine", f"{{scale}} * sum[d]({_UNITS})", (_SCALE,), None, _cosine, fresh=True),
    Score(GATES, "{dot} + {kept} - {kept_j}", (Array("kept", "bhi", _gates),), _forgot, fresh=True),
    Score("squared distance", "-sum[d](({Q} - {K}) ** 2) / sqrt(size(d))", (), _far, _near, fresh=True, negative=True),
)

# ------------------------------------------------------------------------------------------- guards


def _unsorted(row: Row, shape: tuple[int, ...]) -> Tensor:
    return torch.randint(0, 1 + row.sizes["i"] // row.window, shape)


def _labels(row: Row, shape: tuple[int, ...]) -> Tensor:
    return _unsorted(row, shape).sort(-1).values


def _length(row: Row, shape: tuple[int, ...]) -> Tensor:
    return torch.randint(1, row.sizes["j"] + 1, shape)


def _present(row: Row, shape: tuple[int, ...]) -> Tensor:
    """Most keys, and always the first."""
    found = torch.rand(shape) < 0.7
    found[..., 0] = True
    return found


def _causal(at: Any) -> Any:
    return at.j <= at.here


def _window(at: Any) -> Any:
    return _causal(at) & (at.here - at.row.window < at.j)


def _band(at: Any) -> Any:
    return (at.here - at.j).abs() <= at.row.window


def _one_document(at: Any) -> Any:
    return at.read("document", "bi") == at.read("document", "bj")


def _within(at: Any) -> Any:
    return at.j < at.read("length", "b")


def _within_both(at: Any) -> Any:
    return (at.i < at.read("length", "b")) & _within(at)


def _is_present(at: Any) -> Any:
    return at.read("present", "bj")


_SAME = "{document} == {document_j}"
_DOCUMENT, _LABEL = (Array("document", "bi", fill, "i64") for fill in (_labels, _unsorted))
_LENGTH = Array("length", "b", _length, "i64")
_PRESENT, _ALLOWED = Array("present", "bj", _present, "bool"), Array("allowed", "ij", _present, "bool")
# fmt: off
GUARDS = (
    Guard("", "", None, positional=False, weight=4),
    Guard("causal", "j <= {here}", _causal, causal=True, weight=4),
    Guard("window", "{here} - {window} < j <= {here}", _window, causal=True, weight=2),
    Guard("window on both sides", "abs({here} - j) <= {window}", _band),
    Guard("causal behind a prefix", "j <= {here} || j < {length}", lambda at: _causal(at) | _within(at), (_LENGTH,)),
    Guard("documents", _SAME, _one_document, (_DOCUMENT,), itself=True),
    Guard("labels in any order", _SAME, _one_document, (_LABEL,), itself=True),
    Guard("causal documents", f"j <= {{here}}, {_SAME}", lambda at: _causal(at) & _one_document(at), (_DOCUMENT,),
          itself=True, causal=True),
    Guard("lengths of keys", "j < {length}", _within, (_LENGTH,), positional=False),
    Guard("lengths of queries and keys", "i < {length}, j < {length}", _within_both, (_LENGTH,), itself=True,
          empties=True),
    Guard("every third key", "({here} - j) % 3 == 0", lambda at: (at.here - at.j) % 3 == 0),
    Guard("padding", "{present}", _is_present, (_PRESENT,), positional=False),
    Guard("causal padding", "j <= {here}, {present}", lambda at: _causal(at) & _is_present(at), (_PRESENT,),
          causal=True),
    Guard("mask of pairs", "{allowed}", lambda at: at.read("allowed", "ij"), (_ALLOWED,), positional=False),
    Guard("global and local", "j < 4 || abs({here} - j) <= {window}", lambda at: (at.j < 4) | _band(at)),
)
# fmt: on

# -------------------------------------------------------------------------------------- normalisers


def _softmax(s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    return (gathered(at.softmax(s), v),)


def _beside(sink: Callable[[Grid], Tensor], s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    """A softmax in which something else takes its share."""
    s = at.kept(s, -torch.inf)
    level = torch.logaddexp(s.logsumexp(-1, keepdim=True), sink(at).to(s.dtype))
    return (gathered((s - level).exp(), v),)


def _weighed(weigh: Callable[[Tensor, int], Tensor], s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    """Each weight by itself."""
    return (gathered(at.kept(weigh(s, at.row.sizes["j"]), 0), v),)


def _softpick(s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    share = at.kept(s.expm1(), 0)
    return (gathered(share.relu() / (share.abs().sum(-1, keepdim=True) + 1e-8), v),)


def _signed(s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    return (gathered(at.softmax(s.abs()) * torch.where(s < 0, -1.0, 1.0).to(s.dtype), v),)


def _squares(s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    share = at.kept(s.square(), 0)
    return (gathered(share / share.sum(-1, keepdim=True), v),)


def _laser(s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    return (gathered(at.softmax(s), v.exp()).log(),)


def _with_level(s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    return gathered(at.softmax(s), v), at.kept(s, -torch.inf).logsumexp(-1)


def _differential(s: Tensor, at: Grid, v: Tensor) -> tuple[Tensor, ...]:
    a = at.given["A"][:, :, at.rows] * at.row.sizes["c"] ** -0.5
    return (gathered(at.softmax(s) - at.read("part", "h") * at.softmax(compared(a, at.given["B"])), v),)


def _top_beside(other: str) -> str:
    return f"let top{{t}} = max({other}, max[j]({{s}}{{where}}))"


_GATHER = "let {out} = sum[j]({w} * {V})"
_WEIGHTS = "let {w} = softmax[j]({s}){where}"
_NAMED = f"{_WEIGHTS}; {_GATHER}"
_RAISED = "let share{p} = exp({s}){where}"
_SHARED = "let share{p} = exp({s} - top{t}){where}"
_OVER = "let {out} = sum[j](share{p} * {V}) / "
_TOP = "let top{t} = max[j]({s}{where})"
_TOTAL = "let total{t} = sum[j](share{p}); let {w} = share{p} / total{t}"
_LEVEL = "let level{t} = log(sum[j](exp({s}){where}))"
_SIGN = "let {out} = sum[j]({w} * (if {s} < 0 {{ -1.0 }} else {{ 1.0 }}) * {V})"
_PICK = (
    "let share{p} = exp({s} - top{t}) - exp(-top{t}){where}; "
    "let {out} = sum[j](relu(share{p}) * {V}) / (sum[j](abs(share{p})) + 1e-8)"
)
_LESS = (
    "let less{p} = softmax[j](sum[c]({A} * {B}) / sqrt(size(c))){where}; "
    "let {out} = sum[j](({w} - {part} * less{p}) * {V})"
)
_OTHERS = (Array("A", "bhic"), Array("B", "bgjc"), Array("part", "h", _near_one))
_SINK, _sunk = (Array("sink", "h"),), partial(_beside, lambda at: at.read("sink", "h"))
_one_more = partial(_beside, lambda at: at.given["Q"].new_zeros(()))
# fmt: off
NORMALISERS = (
    Normaliser("softmax", _NAMED, _softmax, "softmax", weight=4),
    Normaliser("softmax within the sum", "let {out} = sum[j](softmax[j]({s}{where}) * {V})", _softmax, "softmax"),
    Normaliser("softmax as exp over its sum", f"{_RAISED}; {_OVER}sum[j](share{{p}})", _softmax, "softmax",
               divides=True, weight=2),
    Normaliser("softmax less the largest", f"{_TOP}; {_SHARED}; {_TOTAL}; {_GATHER}", _softmax, "softmax",
               divides=True, weight=2),
    Normaliser("softmax by log-sum-exp", f"{_LEVEL}; let {{w}} = exp({{s}} - level{{t}}){{where}}; {_GATHER}",
               _softmax, "softmax", divides=True, weight=2),
    Normaliser("sink", f"{_RAISED}; {_OVER}(exp({{sink}}) + sum[j](share{{p}}))", _sunk, "sink", _SINK),
    Normaliser("sink, less the largest",
               f"{_top_beside('{sink}')}; {_SHARED}; {_OVER}(exp({{sink}} - top{{t}}) + sum[j](share{{p}}))",
               _sunk, "sink", _SINK),
    Normaliser("off by one", f"{_RAISED}; let {{w}} = share{{p}} / (1 + sum[j](share{{p}})); {_GATHER}",
               _one_more, "one"),
    Normaliser("off by one, less the largest",
               f"{_top_beside('0.0')}; {_SHARED}; {_OVER}(exp(-top{{t}}) + sum[j](share{{p}}))", _one_more, "one"),
    Normaliser("sigmoid", f"let {{w}} = sigmoid({{s}} - log(size(j))){{where}}; {_GATHER}",
               partial(_weighed, lambda s, n: (s - log(n)).sigmoid())),
    Normaliser("relu", f"let {{w}} = relu({{s}}) / size(j){{where}}; {_GATHER}",
               partial(_weighed, lambda s, n: s.relu() / n), rectified=True),
    Normaliser("relu squared", f"let {{w}} = relu({{s}}) ** 2 / size(j){{where}}; {_GATHER}",
               partial(_weighed, lambda s, n: s.relu().square() / n), rectified=True),
    Normaliser("softpick", f"{_top_beside('0.0')}; {_PICK}", _softpick, rectified=True),
    Normaliser("signed softmax", f"let {{w}} = softmax[j](abs({{s}})){{where}}; {_SIGN}", _signed),
    Normaliser("squares over their sum", f"let share{{p}} = {{s}} * {{s}}{{where}}; {_OVER}sum[j](share{{p}})",
               _squares, divides=True),
    Normaliser("no normaliser", "let {out} = sum[j]({s} * {V}{where})", partial(_weighed, lambda s, n: s), weight=2),
    Normaliser("softmax and its log-sum-exp", f"{_NAMED}; {_LEVEL}; output out, level", _with_level, "level",
               divides=True),
    Normaliser("LASER", f"{_WEIGHTS}; let {{out}} = log(sum[j]({{w}} * exp({{V}})))", _laser, "laser", divides=True),
    Normaliser("difference of two softmaxes", f"{_WEIGHTS}; {_LESS}", _differential, "differential", _OTHERS),
)
# fmt: on

# -------------------------------------------------------------------------------------------- draws


def _chosen(random: Random, table: tuple[Any, ...]) -> Any:
    return random.choices(table, [entry.weight for entry in table])[0]


def _drawn_kinds(random: Random) -> tuple[Score, Guard, Normaliser]:
    """Three that go together: gates forget what is behind, and a weight of 0 for every pair tells nothing."""
    while True:
        score, guard, normaliser = (_chosen(random, table) for table in (SCORES, GUARDS, NORMALISERS))
        forgets_ahead = score.words == GATES and not guard.causal
        if not (forgets_ahead or (guard.empties and normaliser.divides) or (score.negative and normaliser.rectified)):
            return score, guard, normaliser


def _drawn_sizes(random: Random, written: str, batched: bool, positional: bool, itself: bool) -> dict[str, int]:
    queries, keys = (round(exp(random.uniform(0, log(LONGEST)))) for _ in range(2))
    if itself or random.random() < 0.5:
        queries = keys
    if positional and queries > keys:
        queries, keys = keys, queries
    heads, batch = round(2 ** random.uniform(0, 4)), round(2 ** random.uniform(0, 2))
    heads = 1 if written == "none" else heads
    shared = random.choice([n for n in range(1, heads + 1) if heads % n == 0])
    groups = {"h": heads, "shared": shared, "axes": shared}.get(written, 1)
    d = random.choice(WIDTHS)
    e, c = random.choice(WIDTHS) if random.random() < 0.2 else d, random.choice((d, 32))
    return {"b": batch if batched else 1, "h": heads, "g": groups, "i": queries, "j": keys, "d": d, "e": e, "c": c}


def _shortened(sizes: dict[str, int]) -> dict[str, int]:
    """Fewer queries or keys, whichever are more, until there is not too much work; no more queries than keys where
    there were not."""
    queries, keys = sizes["i"], sizes["j"]
    while sizes["b"] * sizes["h"] * queries * keys * max(sizes["d"], sizes["e"]) > WORK:
        more = max(queries, keys)
        queries, keys = (n * 3 // 4 if n == more else n for n in (queries, keys))
        queries = min(queries, keys) if sizes["i"] <= sizes["j"] else queries
    return sizes | {"i": queries, "j": keys}


def draw(seed: int, number: int, device: str, dtype: str | None = None) -> Row:
    """The row of a seed and a number, whichever others are drawn; on a CPU it is shorter, and in float32."""
    random = Random(f"{seed} {number}")
    score, guard, normaliser = _drawn_kinds(random)
    written, batched = random.choice(("h", "h", "shared", "axes", "one", "none")), random.random() < 0.75
    itself = guard.itself or score.words == GATES
    sizes = _drawn_sizes(random, written, batched, score.positional or guard.positional, itself)
    sizes = _shortened(sizes) if device == "cpu" else sizes
    window = max(1, round(exp(random.uniform(0, log(1 + sizes["j"])))))
    order = random.choice(("bhid", "bhid", "bihd", "ibhd"))
    keys = order.replace("h", "g").replace("i", "j")
    orders = {"Q": order, "K": keys, "V": keys.replace("d", "e"), "out": order.replace("d", "e")}
    if random.random() < 0.1:
        orders["K"] = "bgdj"
    pairs = any({"i", "j"} <= set(array.axes) for array in score.arrays + guard.arrays)
    drawn = "f32" if device == "cpu" else random.choice(("bf16", "bf16", "f16", "f32"))
    return Row(
        number,
        score,
        guard,
        normaliser,
        sizes | {"r": 2 * window + 1},
        orders,
        written,
        batched,
        one_letter=sizes["i"] == sizes["j"] and not pairs and random.random() < 0.3,
        window=window,
        learned=random.random() < 0.5,
        forward=random.random() < 0.15,
        dtype=dtype or drawn,
        mixed=random.random() < 0.5,
    )
