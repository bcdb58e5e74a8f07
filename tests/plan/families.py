"""Kinds of attention: what is compared, what is added to the scores, who may listen to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """An attention, its parts as texts in which `{j}` is the key.

    `certain` says whether every row is sure to keep a key; only then can a guard be a large negative number.
    """

    name: str
    inputs: str
    sizes: Mapping[str, int]
    lead: str = "b, h, i"
    query: str = "Q[b, h, i, {d}]"
    key: str = "K[b, h, {j}, {d}]"
    value: str = "V[b, h, {j}, e]"
    carry: str = "e"
    home: str = "b, h, i, e"
    bias: str | None = None
    cap: str | None = None
    guard: tuple[str, ...] = ()
    certain: bool = True
    residual: str = "1.5"
    before: str = ""
    key_size: str = "j"


def _plain(name: str, **changes: object) -> Family:
    inputs = str(changes.pop("inputs", "Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]"))
    sizes = {"b": 1, "h": 2, "i": 3, "j": 3, "d": 2, "e": 2, **dict(changes.pop("sizes", {}))}  # type: ignore[call-overload]
    return Family(name, inputs, sizes, **changes)  # type: ignore[arg-type]


QKV = "Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]"

FAMILIES = (
    _plain("plain"),
    _plain("causal", guard=("{j} <= i",)),
    _plain(
        "window",
        inputs="Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e]",
        guard=("{j} <= i", "i - {j} < 2"),
        key_size="i",
    ),
    _plain("window over fewer keys", guard=("{j} <= i", "i - {j} < 2"), certain=False, sizes={"i": 4, "j": 2}),
    _plain("window by a scalar", inputs=f"{QKV}, w : i64", guard=("{j} <= i", "i - w < {j}"), certain=False),
    _plain("prefix", guard=("{j} < 2 || {j} <= i",)),
    _plain(
        "documents",
        inputs="Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e], document[b, i] : i64",
        guard=("{j} <= i", "document[b, i] == document[b, {j}]"),
        key_size="i",
    ),
    _plain("alibi", inputs=f"{QKV}, slope[h]", bias="slope[h] * ({j} - i)", guard=("{j} <= i",)),
    _plain("distance", inputs=f"{QKV}, slope[h]", bias="-slope[h] * abs(i - {j})"),
    _plain("soft-cap", inputs=f"{QKV}, cap", cap="cap", guard=("{j} <= i",)),
    _plain(
        "grouped heads",
        inputs="Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e]",
        key="K[b, h / (size(h) / size(g)), {j}, {d}]",
        value="V[b, h / (size(h) / size(g)), {j}, e]",
        guard=("{j} <= i",),
        sizes={"g": 1},
    ),
    _plain("learned bias", inputs=f"{QKV}, bias[h, i, j]", bias="bias[h, i, {j}]"),
    _plain("cross", sizes={"j": 4}),
    _plain("padding", inputs=f"{QKV}, keep[b, j] : bool", guard=("keep[b, {j}]",), certain=False),
    _plain(
        "many batch coordinates",
        inputs="Q[a, b, h, i, d], K[a, b, h, j, d], V[a, b, h, j, e]",
        lead="a, b, h, i",
        query="Q[a, b, h, i, {d}]",
        key="K[a, b, h, {j}, {d}]",
        value="V[a, b, h, {j}, e]",
        home="a, b, h, i, e",
        guard=("{j} <= i",),
        sizes={"a": 2, "h": 1, "i": 2, "j": 2},
    ),
    _plain(
        "permuted axes",
        inputs="Q[i, d, b, h], K[d, j, h, b], V[e, b, j, h]",
        lead="h, i, b",
        query="Q[i, {d}, b, h]",
        key="K[{d}, {j}, h, b]",
        value="V[e, b, {j}, h]",
        home="i, e, h, b",
        guard=("{j} <= i",),
    ),
    _plain("another value width", sizes={"e": 3, "d": 1}),
    _plain(
        "no batch",
        inputs="Q[i, d], K[j, d], V[j, e]",
        lead="i",
        query="Q[i, {d}]",
        key="K[{j}, {d}]",
        value="V[{j}, e]",
        home="i, e",
        guard=("{j} <= i",),
    ),
    _plain(
        "projected",
        inputs="X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e]",
        query="asked[b, h, i, {d}]",
        key="answers[b, h, {j}, {d}]",
        value="told[b, h, {j}, e]",
        before=(
            "let asked[b, h, i, d] = sum[m](X[b, i, m] * W_Q[h, m, d]);\n"
            "let answers[b, h, i, d] = sum[m](X[b, i, m] * W_K[h, m, d]);\n"
            "let told[b, h, i, e] = sum[m](X[b, i, m] * W_V[h, m, e]);"
        ),
        guard=("{j} <= i",),
        sizes={"m": 2},
        key_size="i",
    ),
)


def base(family: Family) -> str:
    """A family in the plainest words."""
    j = "j" if family.key_size == "j" else "k"
    score = f"sum[d]({family.query.format(d='d')} * {family.key.format(j=j, d='d')}) / sqrt(size(d))"
    if family.bias is not None:
        score += " + " + family.bias.format(j=j)
    if family.cap is not None:
        score = f"{family.cap} * tanh(({score}) / {family.cap})"
    where = " where " + ", ".join(fact.format(j=j) for fact in family.guard) if family.guard else ""
    return (
        f"input {family.inputs};\n{family.before}\n"
        f"let scores[{family.lead}, {j}] = {score};\n"
        f"let weights[{family.lead}, {j}] = softmax[{j}](scores[{family.lead}, {j}]){where};\n"
        f"let out[{family.home}] = sum[{j}](weights[{family.lead}, {j}] * {family.value.format(j=j)});\noutput out;\n"
    )
