"""Attentions whose arrays have several dtypes, drawn at random: each product has the dtype of its two sides, and the
result the one that promotion gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch

import indexical as ix

# Gives one of several options, which are about what a word says.
Choose = Callable[[str, Sequence[Any]], Any]

# The axes of heads, those of keys, and where a query's head reads them.
HEADS = {
    "heads of their own": ("h", "h", "h"),
    "grouped heads": ("h", "g", "h / (size(h) / size(g))"),
    "grouped heads, two axes": ("g, r", "g", "g"),
    "one head of keys": ("h", "", ""),
}
GUARDS = {
    "everybody": "",
    "causal": "j <= PLACE",
    "window": "j <= PLACE, PLACE - j < 11",
    "lengths": "j < length[b]",
}
# What a score is made of beside a dot product: how, and the axes of the array that is in it.
TERMS = {
    "slope": ("SCORE - slope[HEADS] * (PLACE - j)", "HEADS"),
    "near": ("SCORE + near[b, j]", "b, j"),
    "gate": ("SCORE + gate[b, HEADS, i]", "b, HEADS, i"),
    "forget": ("SCORE - forget[b, HEADS, j]", "b, HEADS, j"),
    "heat": ("SCORE * heat[b, HEADS, i]", "b, HEADS, i"),
    "warmth": ("SCORE / warmth", ""),
    "cap": ("cap * tanh((SCORE) / cap)", ""),
    "far": ("SCORE + far[HEADS, PLACE - j + size(j) - 1]", "HEADS, m"),
    "bias": ("SCORE + bias[HEADS, i, j]", "HEADS, i, j"),
}
POSITIVE = ("slope", "heat", "warmth", "cap")
WEIGHTS = {
    "softmax": "softmax[j](scores[AT])",
    "sink": "exp(scores[AT]) / (exp(sink[HEADS]) + sum[j](exp(scores[AT])GUARD))",
    "sigmoid": "sigmoid(scores[AT])",
}
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
# The largest error of a result, of its largest entry where that is more than 1, by the dtype that rounds most.
MOST = {torch.float32: 5e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}


@dataclass(frozen=True)
class Case:
    """A program and its arrays, and how large what flows back to its result is."""

    text: str
    given: Mapping[str, torch.Tensor]
    flowing: float = 1.0

    @property
    def learned(self) -> list[str]:
        return [name for name, array in self.given.items() if array.is_floating_point()]

    @property
    def promoted(self) -> torch.dtype:
        """The dtype of the result."""
        return reduce(torch.promote_types, (self.given[name].dtype for name in self.learned))

    def most(self, dtype: torch.dtype) -> float:
        """The largest error that rounding explains, of queries, keys, values and weights, and to a dtype."""
        return max(MOST[dtype], *(MOST[self.given[name].dtype] for name in "QKV"))

    def __str__(self) -> str:
        dtypes = ", ".join(f"{name} {str(x.dtype)[6:]}{list(x.shape)}" for name, x in self.given.items())
        return f"{self.text}{dtypes}"


def draw(
    choose: Choose, dtypes: Sequence[str] = tuple(DTYPES), sizes: Mapping[str, int] | None = None, learns: bool = True
) -> Case:
    """A program, and arrays of these sizes, where queries, keys and values have one of some dtypes, or one each."""
    heads, shared, read = HEADS[choose("heads", list(HEADS))]
    terms = choose("terms", [(), *((term,) for term in TERMS), *_pairs(list(TERMS))])
    guard = GUARDS[choose("guard", list(GUARDS))]
    weights = WEIGHTS[choose("weights", list(WEIGHTS) if learns else ["softmax", "sink"])]
    own = {"b": 2, "h": 4, "g": 2, "r": 2, "i": 19, "j": 19, "d": 16, "e": 24, **(sizes or {})}
    own["m"] = 2 * own["j"]
    score = f"sum[d](Q[b, HEADS, i, d] * K[b, {read}, j, d]) / sqrt(size(d))"
    for term in terms:
        score = TERMS[term][0].replace("SCORE", score)
    where = f" where {guard}" if guard else ""
    arrays = {"Q": "b, HEADS, i, d", "K": f"b, {shared}, j, d", "V": f"b, {shared}, j, e"}
    arrays |= {term: TERMS[term][1] for term in terms} | ({"sink": "HEADS"} if "sink" in weights else {})
    whole = {"length": "b"} if "length" in guard else {}
    inputs = [f"{name}[{axes}]" if axes else name for name, axes in arrays.items()]
    inputs += [f"{name}[{axes}] : i64" for name, axes in whole.items()]
    text = (
        f"input {', '.join(inputs)};\n"
        f"let scores[AT] = {score};\n"
        f"let weights[AT] = {weights.replace('GUARD', where)}{where};\n"
        f"let out[b, HEADS, i, e] = sum[j](weights[AT] * V[b, {read}, j, e]);\n"
    )
    marks = {"AT": "b, HEADS, i, j", "PLACE": "(i + size(j) - size(i))", "HEADS": heads, " , ": " "}
    text = _marked(text, marks)
    alike = choose("dtype of queries, keys and values", [*dtypes, None])
    given: dict[str, torch.Tensor] = {}
    torch.manual_seed(len(text))
    for name, axes in arrays.items():
        shape = [own[axis] for axis in _marked(axes, marks).split(", ") if axis]
        drawn = 0.3 + torch.rand(shape) if name in POSITIVE else torch.randn(shape)
        dtype = alike if name in "QKV" else None
        given[name] = drawn.to(DTYPES[dtype or choose(f"dtype of {name}", dtypes if name in "QKV" else list(DTYPES))])
    for name in whole:
        given[name] = torch.tensor([own["j"] - 3, 7, own["j"]])[: own["b"]]
    case = Case(text, given)
    return replace(case, flowing=choose("flowing", [1.0, 1e-9])) if case.promoted == torch.float32 else case


def _pairs(terms: Sequence[str]) -> list[tuple[str, str]]:
    return [(one, other) for n, one in enumerate(terms) for other in terms[n + 1 :]]


def _marked(text: str, marks: Mapping[str, str]) -> str:
    for mark, meant in marks.items():
        text = text.replace(mark, meant)
    return text.replace("[, ", "[")


def check(case: Case, run: Callable[..., torch.Tensor], learns: bool = True) -> dict[str, float]:
    """The errors of the result, and of every gradient where it learns, of what rounding explains: none is above 1. Each
    has the dtype that it should have."""
    program = ix.compile(case.text)
    given = {name: x.clone().requires_grad_(learns and name in case.learned) for name, x in case.given.items()}
    exact = {
        name: x.detach().double().requires_grad_(x.requires_grad) if name in case.learned else x
        for name, x in given.items()
    }
    found: dict[str, torch.Tensor] = {"out": run(**given)}
    right: dict[str, torch.Tensor] = {"out": program(**exact, isolate=True)}
    wanted = {"out": case.promoted}
    if learns:
        torch.manual_seed(1)
        weight = torch.randn(right["out"].shape, dtype=torch.float64).to(right["out"].device) * case.flowing
        flowing = [(found["out"] * weight.to(found["out"].dtype)).sum(), (right["out"] * weight).sum()]
        for side, arrays, total in zip((found, right), (given, exact), flowing, strict=True):
            leaves = [arrays[name] for name in case.learned]
            side |= dict(zip(case.learned, torch.autograd.grad(total, leaves), strict=True))
        wanted |= {name: given[name].dtype for name in case.learned}
    for name, dtype in wanted.items():
        assert found[name].dtype == dtype, f"{name} has {found[name].dtype} and not {dtype}\n{case}"
        assert bool(found[name].isfinite().all()), f"{name} is not finite\n{case}"
    errors = {}
    for name, one in found.items():
        other = right[name].detach()
        unit = 1.0 if name == "out" else case.flowing
        if one.dtype == torch.float16 and unit < 1.0:  # It has no numbers so small.
            continue
        scale = max(unit, float(other.abs().max()))
        # What is summed over all pairs has terms of both signs.
        most = case.most(one.dtype) * (2 if name != "out" and one.numel() <= 8 else 1)
        errors[name] = float((one.detach().double() - other).abs().max()) / scale / most
    assert max(errors.values()) <= 1.0, f"{errors}\n{case}"
    return errors
