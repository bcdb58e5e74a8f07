"""The rows of the benchmark on a GPU: a program, and the same in PyTorch as masks, changes of scores and inputs.

A guard and a change of score are written once, over tensors of whole numbers, so that the exact evaluation,
FlexAttention and compiled eager code all say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

WINDOW, CAP, CLIP, DOCUMENTS = 512, 30.0, 128, 8
DECODED_WINDOW = 4096

Extras = dict[str, Tensor]
# What becomes of the scores: a softmax, one with a sink, sigmoids, the scores as they are, two softmaxes subtracted.
Normaliser = Literal["softmax", "sink", "sigmoid", "none", "differential"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a call. `groups` heads of keys and values answer `heads` heads of queries."""

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    width: int

    def __str__(self) -> str:
        heads = f"{self.heads}" if self.heads == self.groups else f"{self.heads}/{self.groups}"
        rows = f"{self.keys}" if self.queries == self.keys else f"{self.queries}:{self.keys}"
        return f"{self.batch},{heads},{rows},{self.width}"


def square(batch: int, heads: int, positions: int, width: int) -> Shape:
    return Shape(batch, heads, heads, positions, positions, width)


SIZES = (square(4, 16, 4096, 128), square(1, 16, 16384, 128), square(1, 16, 32768, 64))


def decoding(queries: int) -> tuple[Shape, ...]:
    return (Shape(8, 32, 8, queries, 32768, 128),)


@dataclass(frozen=True, slots=True)
class Points:
    """Places of queries and keys, of the batch and of heads, as whole numbers along four axes; and what else is given.
    `last` is the place of a query counted among the keys."""

    given: Extras
    shape: Shape
    b: Any
    h: Any
    i: Any
    j: Any

    @property
    def last(self) -> Any:
        return self.i + (self.shape.keys - self.shape.queries)


Guard = Callable[[Points], Any]
Change = Callable[[Any, Points], Any]
Making = Callable[[Shape], Extras]


def nothing(_: Shape) -> Extras:
    return {}


@dataclass(frozen=True, slots=True)
class Target:
    """The least that a peer's time must be of ours. With the `mask`, the time to make the peer's block mask counts."""

    peer: str
    forward: float
    backward: float | None = None
    sizes: tuple[int, ...] = ()
    mask: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `direct` says which plain call of SDPA is the same; a `learned` input gets a gradient, too. Of rows that
    FlexAttention cannot state `flex` is False. `beside` is a row whose time bounds this one's, and by which factor.
    Where some queries are `silent`, they hear nobody, and their result is 0."""

    name: str
    program: str
    guard: Guard | None = None
    change: Change | None = None
    normaliser: Normaliser = "softmax"
    direct: Literal["full", "causal"] | None = None
    extras: Making = nothing
    learned: tuple[str, ...] = ()
    silent: bool = False
    flex: bool = True
    sizes: tuple[Shape, ...] = SIZES
    decodes: bool = False
    targets: tuple[Target, ...] = ()
    beside: tuple[str, float] | None = None


# ------------------------------------------------------------------------------------------- programs

HEAD = "space batch(b), head(h), group(g), position(i, j), feature(d, e);\n"
SCORES = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
GATHER = "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);\n"


def attention(scores: str = SCORES, guard: str = "", further: str = "") -> str:
    """Attention with a softmax over `scores`, at the keys that `guard` leaves."""
    where = f" where {guard}" if guard else ""
    return (
        f"{HEAD}input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{further};\n"
        f"let scores[b, h, i, j] = {scores};\n"
        f"let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]){where};\n{GATHER}"
    )


def weighted(weights: str, further: str = "") -> str:
    """The same with weights of another kind, under a causal guard."""
    return (
        f"{HEAD}input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{further};\n"
        f"let scores[b, h, i, j] = {SCORES};\n"
        f"let weights[b, h, i, j] = {weights} where j <= i;\n{GATHER}"
    )


def grouped(score: str = "", guard: str = "", further: str = "") -> str:
    """Some queries against long keys; neighbouring heads share their keys and values."""
    where = f" where {guard}" if guard else ""
    return (
        f"{HEAD}input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e]{further};\n"
        "let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h / (size(h) / size(g)), j, d]) / sqrt(size(d))"
        f"{score};\n"
        f"let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]){where};\n"
        "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h / (size(h) / size(g)), j, e]);\n"
    )


PACKED = f"""{HEAD}input Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e], document[b, i] : i64;
let scores[b, h, i, j] = {SCORES};
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i, document[b, i] == document[b, j];
{GATHER}"""
SINK = f"""{HEAD}input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], sink[h];
let scores[b, h, i, j] = {SCORES};
let top[b, h, i] = max(sink[h], max[j](scores[b, h, i, j] where j <= i));
let share[b, h, i, j] = exp(scores[b, h, i, j] - top[b, h, i]) where j <= i;
let total[b, h, i] = exp(sink[h] - top[b, h, i]) + sum[j](share[b, h, i, j]);
let weights[b, h, i, j] = share[b, h, i, j] / total[b, h, i];
{GATHER}"""
DIFFERENTIAL = f"""{HEAD}input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], R[b, h, i, d], L[b, h, j, d], part[h];
let first[b, h, i, j] = softmax[j]({SCORES}) where j <= i;
let second[b, h, i, j] = softmax[j](sum[d](R[b, h, i, d] * L[b, h, j, d]) / sqrt(size(d))) where j <= i;
let out[b, h, i, e] = sum[j]((first[b, h, i, j] - part[h] * second[b, h, i, j]) * V[b, h, j, e]);
"""
BACK = "(j - (i + size(j) - size(i)))"

# ------------------------------------------------------------------------------ guards, changes, inputs


def causal(at: Points) -> Any:
    return at.j <= at.i


def window(at: Points) -> Any:
    return (at.j <= at.i) & (at.i - at.j < WINDOW)


def prefix(at: Points) -> Any:
    return (at.j < at.shape.keys // 4) | (at.j <= at.i)


def one_document(at: Points) -> Any:
    document = at.given["document"]
    return (at.j <= at.i) & (document[at.b, at.i] == document[at.b, at.j])


def late(at: Points) -> Any:
    return (at.j <= at.last) & (at.last - at.j < DECODED_WINDOW)


def past(at: Points) -> Any:
    return at.j <= at.last


def unpadded(at: Points) -> Any:
    length = at.given["length"][at.b]
    return (at.i < length) & (at.j < length)


def within(at: Points) -> Any:
    return at.j < at.given["length"][at.b]


def distance(score: Any, at: Points) -> Any:
    return score + at.given["slope"][at.h] * (at.j - at.last)


def root(score: Any, at: Points) -> Any:
    return score * at.given["gain"][at.h] - at.given["slope"][at.h] * torch.sqrt((at.i - at.j).clamp(min=0).float())


def cap(score: Any, _: Points) -> Any:
    return CAP * torch.tanh(score / CAP)


def relative(score: Any, at: Points) -> Any:
    return score + at.given["bias"][at.h, (at.i - at.j).clamp(min=0)]


def clipped(score: Any, at: Points) -> Any:
    return score + at.given["bias"][at.h, (at.i - at.j).clamp(0, CLIP - 1)]


def decayed(score: Any, at: Points) -> Any:
    return score * torch.exp(at.given["decay"][at.h] * (at.i - at.j).clamp(min=0))


def logistic(score: Any, at: Points) -> Any:
    return score - at.given["offset"][at.h]


def documents(shape: Shape) -> Extras:
    places = torch.arange(shape.keys) * DOCUMENTS // shape.keys
    return {"document": places.expand(shape.batch, -1).contiguous()}


def slopes(shape: Shape) -> Extras:
    return {"slope": 2.0 ** -(8.0 * (torch.arange(shape.heads) + 1.0) / shape.heads)}


def roots(shape: Shape) -> Extras:
    return {"gain": 1 + 0.1 * torch.randn(shape.heads), **slopes(shape)}


def lengths(shape: Shape) -> Extras:
    return {"length": torch.linspace(shape.keys / 8, shape.keys, shape.batch).long()}


def far_biases(shape: Shape) -> Extras:
    return {"bias": torch.randn(shape.heads, shape.keys)}


def near_biases(shape: Shape) -> Extras:
    return {"bias": torch.randn(shape.heads, CLIP)}


def sinks(shape: Shape) -> Extras:
    return {"sink": torch.randn(shape.heads)}


def offsets(shape: Shape) -> Extras:
    return {"offset": torch.rand(shape.heads) + 4}


def decays(shape: Shape) -> Extras:
    return {"decay": torch.log1p(-(2.0 ** -(5.0 + torch.arange(shape.heads) * 5.0 / shape.heads)))}


def second(shape: Shape) -> Extras:
    def normal(rows: int) -> Tensor:
        return torch.randn(shape.batch, shape.heads, rows, shape.width)

    return {"R": normal(shape.queries), "L": normal(shape.keys), "part": torch.rand(shape.heads)}


_ALL = (
    Row("full", attention(), direct="full", targets=(Target("sdpa", 0.98, 0.98),)),
    Row("causal", attention(guard="j <= i"), causal, direct="causal", targets=(Target("sdpa", 0.98, 0.98),)),
    Row(
        "window",
        attention(guard=f"i - {WINDOW} < j <= i"),
        window,
        targets=(Target("flex", 1.05, 1.05), Target("flex", 10, 10, sizes=(32768,), mask=True)),
    ),
    Row(
        "documents",
        PACKED,
        one_document,
        extras=documents,
        targets=(Target("flex", 1.05, 1.05), Target("flex", 10, 10, sizes=(32768,), mask=True)),
    ),
    Row(
        "padded",
        attention(guard="i < length[b], j < length[b]", further=", length[b] : i64"),
        unpadded,
        extras=lengths,
        silent=True,
        sizes=(square(4, 16, 4096, 128), square(8, 16, 8192, 64)),
        targets=(Target("flex", 1.05, 1.05),),
    ),
    Row("prefix", attention(guard="j < size(j) / 4 || j <= i"), prefix, targets=(Target("flex", 1.05, 1.05),)),
    Row(
        "alibi",
        attention(f"{SCORES} + slope[h] * (j - i)", "j <= i", ", slope[h]"),
        causal,
        distance,
        extras=slopes,
        targets=(Target("flex", 1.15, 1.15),),
    ),
    Row(
        "softcap",
        attention(f"{CAP} * tanh({SCORES} / {CAP})", "j <= i"),
        causal,
        cap,
        targets=(Target("flex", 2, 1.5),),
    ),
    Row(
        "relative",
        attention(f"{SCORES} + bias[h, i - j]", "j <= i", ", bias[h, r]"),
        causal,
        relative,
        extras=far_biases,
        learned=("bias",),
        targets=(Target("flex", 1.3, 1.3),),
    ),
    Row(
        "clipped",
        attention(f"{SCORES} + bias[h, min(i - j, {CLIP - 1})]", "j <= i", ", bias[h, r]"),
        causal,
        clipped,
        extras=near_biases,
        learned=("bias",),
        targets=(Target("flex", 1.3, 50),),
    ),
    Row(
        "score",
        attention(f"{SCORES} * gain[h] - slope[h] * sqrt(i - j)", "j <= i", ", gain[h], slope[h]"),
        causal,
        root,
        extras=roots,
        targets=(Target("flex", 1.05, 1.05),),
    ),
    Row(
        "sink",
        SINK,
        causal,
        normaliser="sink",
        extras=sinks,
        learned=("sink",),
        targets=(Target("flex", 1.0, 1.0),),
    ),
    Row(
        "sigmoid",
        weighted("sigmoid(scores[b, h, i, j] - offset[h])", ", offset[h]"),
        causal,
        logistic,
        normaliser="sigmoid",
        extras=offsets,
        flex=False,
        targets=(Target("eager", 3, 3),),
    ),
    Row(
        "differential",
        DIFFERENTIAL,
        causal,
        normaliser="differential",
        extras=second,
        learned=("R", "L", "part"),
        targets=(Target("flex", 1.0, 1.0),),
    ),
    Row(
        "retention",
        weighted("scores[b, h, i, j] * exp(decay[h] * (i - j))", ", decay[h]"),
        causal,
        decayed,
        normaliser="none",
        extras=decays,
        flex=False,
        targets=(Target("eager", 3, 3),),
    ),
    Row("decode", grouped(), direct="full", sizes=decoding(1), decodes=True, targets=(Target("sdpa", 0.95),)),
    Row("decode 4", grouped(), direct="full", sizes=decoding(4), decodes=True, targets=(Target("sdpa", 2.5),)),
    Row(
        "decode window",
        grouped(guard=f"j > i + size(j) - size(i) - {DECODED_WINDOW}, j <= i + size(j) - size(i)"),
        late,
        sizes=decoding(1),
        decodes=True,
        beside=("decode", 0.3),
    ),
    Row(
        "decode alibi",
        grouped(f" + slope[h] * {BACK}", "j <= i + size(j) - size(i)", ", slope[h]"),
        past,
        distance,
        extras=slopes,
        sizes=decoding(1),
        decodes=True,
        targets=(Target("flex", 1.0),),
        beside=("decode", 1.1),
    ),
    Row(
        "decode lengths",
        grouped(guard="j < length[b]", further=", length[b] : i64"),
        within,
        extras=lengths,
        sizes=decoding(1),
        decodes=True,
        targets=(Target("flex", 1.0),),
    ),
    Row(
        "decode cap 4",
        grouped(guard="j <= i + size(j) - size(i)")
        .replace("let weights", f"let capped[b, h, i, j] = {CAP} * tanh(scores[b, h, i, j] / {CAP});\nlet weights")
        .replace("softmax[j](scores", "softmax[j](capped"),
        past,
        cap,
        sizes=decoding(4),
        decodes=True,
        targets=(Target("flex", 1.0),),
    ),
)
ROWS = {row.name: row for row in _ALL}
