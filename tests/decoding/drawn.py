"""Programs that hear no position after their own, drawn: blocks of several kinds, one upon the other, respelled."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch

HEAD = "space batch(b), position(i, j, k), model(m, n), feature(d);"
INPUTS = ["input x[b, i, m];", "input w[n, m];", "input a[m];", "input label[b, i] : i64;"]


def _pointwise(draw: Random, x: str, y: str) -> list[str]:
    function = draw.choice(["tanh({})", "sin({} + i)", "({}) * cos(0.1 * i)", "silu({})"])
    body = function.format(f"sum[n](w[n, m] * {x}[b, i, n])")
    return [f"let {y}[b, i, m] = {body};"]


def _taps(draw: Random, x: str, y: str) -> list[str]:
    far = draw.choice([1, 2, 3])
    first, other = f"{x}[b, i - {far}, m]", f"{x}[b, i, m]"
    if draw.random() < 0.5:
        return [f"let {y}[b, i, m] = {other} + (if i >= {far} {{ 0.5 * {first} }} else {{ 0 }});"]
    return [f"let {y}[b, i, m] = sum[k in 0..{far + 1}](a[m] * {x}[b, i - k, m] where i - k >= 0);"]


def _guard(draw: Random) -> str:
    return draw.choice(
        [
            "j <= i",
            "i >= j",
            "0 <= i - j",
            "j < i + 1",
            "j <= i, i - j < 3",
            "j <= i, (i - j) % 2 == 0",
            "j <= i, label[b, i] == label[b, j]",
            "j <= i && (j < 2 || i - j <= 2)",
        ]
    )


def _attention(draw: Random, x: str, y: str) -> list[str]:
    key = draw.choice([x, f"{y}_k"])
    lines = [f"let {key}[b, j, m] = sum[n](w[m, n] * {x}[b, j, n]) * cos(0.2 * j);"] if key != x else []
    bias = draw.choice(["", " - 0.1 * (i - j)", " + sin(j)"])
    score = f"sum[m]({x}[b, i, m] * {key}[b, j, m]) / sqrt(size(m)){bias}"
    lines.append(f"let {y}_w[b, i, j] = softmax[j]({score}) where {_guard(draw)};")
    lines.append(f"let {y}[b, i, m] = {x}[b, i, m] + sum[j]({y}_w[b, i, j] * {x}[b, j, m]);")
    return lines


def _recurrence(draw: Random, x: str, y: str) -> list[str]:
    if draw.random() < 0.5:
        return [f"let {y}[b, i, m] = (if i > 0 {{ 0.5 * {y}[b, i - 1, m] }} else {{ 0 }}) + {x}[b, i, m];"]
    return [
        f"let {y}_s[b, 0, m] = a[m];",
        f"let {y}_s[b, k in 1..=size(i), m] = tanh({y}_s[b, k - 1, m] + {x}[b, k - 1, m]);",
        f"let {y}[b, i in 0..size(i), m] = {y}_s[b, i, m] * {x}[b, i, m] + {y}_s[b, i + 1, m];",
    ]


def _prefix(draw: Random, x: str, y: str) -> list[str]:
    body = draw.choice(
        [
            f"cumsum[i]({x}[b, i, m])",
            f"cumprod[i](tanh({x}[b, i, m]))",
            f"cummax[i]({x}[b, i, m])",
            f"sum[j]({x}[b, j, m] where j <= i)",
            f"max[j]({x}[b, j, m] where j <= i)",
            f"mean[j in 0..=i]({x}[b, j, m])",
            f"sum[j in 0..size(i)](sum[k]({x}[b, k, m] * a[m] where k <= j) where j <= i)",
        ]
    )
    return [f"let {y}[b, i, m] = 0.1 * {body};"]


_BLOCKS: list[Callable[[Random, str, str], list[str]]] = [_pointwise, _taps, _attention, _recurrence, _prefix]


def drawn(seed: int) -> str:
    """A program of a few blocks: its statements in any order, its names others, some definitions written out."""
    draw = Random(seed)
    lets, x = [], "x"
    for number in range(draw.randint(1, 3)):
        y = f"y{number}"
        lets += draw.choice(_BLOCKS)(draw, x, y)
        x = y
    output = f"output {x};"
    statements = [*INPUTS, *lets]
    draw.shuffle(statements)
    text = "\n".join([HEAD, *statements, output])
    if draw.random() < 0.5:
        return _renamed(text, {name: f"{name}_{draw.randint(0, 9)}" for name in ("i", "j", "k", "m")})
    return text


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b(i|j|k|m)\b", lambda match: names[match[0]], text)


def arrays_of(seed: int) -> dict[str, Any]:
    """Arrays for the inputs of a program that is drawn, of PyTorch where the seed is odd."""
    draw = np.random.default_rng(seed)
    arrays = {
        "x": draw.normal(size=(2, 6, 3)),
        "w": draw.normal(size=(3, 3)),
        "a": draw.normal(size=3),
        "label": draw.integers(0, 2, (2, 6)),
    }
    return {name: torch.tensor(array) for name, array in arrays.items()} if seed % 2 else arrays
