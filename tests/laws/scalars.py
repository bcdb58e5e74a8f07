"""Programs with scalar inputs: soft caps, windows, slopes, temperatures, sinks, decays, gains; in scores, in guards and
in both, in attention and outside of it. And the forms in which a caller may give a scalar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

# Scalars by name: real ones and whole ones, with a number that no program is singular at.
REALS = {"cap": 1.75, "temperature": 1.25, "slope": 0.3, "gain": 0.6, "decay": 0.8, "level": -0.4}
WHOLES = {"window": 3, "length": 4}
ARRAYS = {"Q": "h, i, d", "K": "h, j, d", "V": "h, j, e", "B": "h, j", "A": "h", "M": "j"}
SIZES = {"h": 2, "i": 5, "j": 5, "d": 3, "e": 3, "t": 6, "c": 2, "m": 3}

# Scores, one around another.
SCORES = (
    "cap * tanh(({}) / cap)",
    "({}) / temperature",
    "({}) * temperature / sqrt(size(d))",
    "({}) - slope * (i - j)",
    "({}) - abs(i - j) * exp(-slope)",
    "({}) - (i - j) * 1.0 / window",
    "({}) + gain * B[h, j]",
    "({}) + B[h, j] - gain",
    "({}) - A[h] * slope * (i - j)",
    "clamp({}, -cap, cap)",
    "max({}, level)",
    "({}) * rate",
    "(if window > 2 {{ {} }} else {{ gain }})",
    "(if j < length {{ {} }} else {{ slope }})",
    "({}) * gain ** 2 + log(temperature)",
)
GUARDS = (
    "j <= i",
    "i - window < j <= i",
    "abs(i - j) < window",
    "j <= i, j < length",
    "j < length",
    "j <= i, B[h, j] > level - 9",
    "M[j], j <= i",
    "gain > 0, j <= i",
    "j <= i || i - j < -window",
    "",
)
# Weights of a score `s[h, i, j]` under a guard.
WEIGHTS = (
    "softmax[j](s[h, i, j])",
    "softmax[j](s[h, i, j] / temperature)",
    "exp(s[h, i, j] - log(exp(level) + sum[k](exp(s[h, i, k]){k})))",
    "exp(s[h, i, j]) / (exp(gain) + sum[k](exp(s[h, i, k]){k}))",
    "sigmoid(s[h, i, j] - gain)",
    "relu(s[h, i, j]) ** 2",
    "s[h, i, j] * decay ** abs(i - j)",
    "s[h, i, j] * exp(-abs(i - j) * slope)",
)
GATHERS = (
    "sum[j](w[h, i, j] * V[h, j, e])",
    "gain * sum[j](w[h, i, j] * V[h, j, e])",
    "sum[j](w[h, i, j] * (V[h, j, e] * temperature))",
    "sum[j](w[h, i, j] * V[h, j, e]) / (1 + cap ** 2)",
)
# Outside of attention: the inputs and the definitions.
OTHERS = (
    ("x[t, c]", "let out[t, c] = sum[s in 0..size(t)](decay ** (t - s) * x[s, c] where s <= t);"),
    ("x[t, c]", "let out[t, c] = sum[s in 0..size(t)](exp(-(t - s) * slope) * x[s, c] where s <= t) * gain;"),
    ("x[t, c]", "let h[0, c] = x[0, c]; let h[t in 1..size(t), c] = decay * h[t - 1, c] + gain * x[t, c]; output h;"),
    ("x[t, c]", "let h[0, c] = level; let h[t in 1..size(t), c] = tanh(decay * h[t - 1, c] + x[t, c]); output h;"),
    ("x[t, c]", "let out[t, c] = x[t, c] / sqrt(mean[k](x[t, k] ** 2) + gain ** 2) * temperature;"),
    ("x[t, c]", "let r = exp(cap) * gain; let out[t, c] = x[t, c] * r + level; output out, r;"),
    ("x[t, c]", "let out = cap * tanh(sum[t, c](x[t, c]) / cap);"),
    ("x[t, c]", "let out[t, c] = if t < window { x[t, c] * gain } else { clamp(x[t, c], level, cap) };"),
    ("x[t, c]", "let out[t, c] = log_softmax[c](x[t, c] / temperature) * gain;"),
    ("x[t, c]", "let out[t, c] = sum[s in 0..window](x[t - s, c] * decay ** s where t >= s);"),
    ("x[t, c]", "let out[t, c] = cumsum[t](x[t, c] * gain) / (t + temperature);"),
    ("x[t, c], p[t] : i64", "let out[t, c] = x[p[t], c] * gain where p[t] < length;"),
    ("x[t, c], p[t] : i64", "let out[k in 0..3, c] = gain * sum[t](x[t, c] * temperature where p[t] == k);"),
    ("x[t, c]", "let loss = mean[t, c](-log(softmax[c](x[t, c] * gain) + level ** 2)) * cap;"),
    ("x[t, c], p[t] : i64", "let loss = mean[t](-l[t, p[t] % 2]); let l[t, c] = log_softmax[c](x[t, c] / cap);"),
    (
        "q[t, c], k[t, c], x[t, c]",
        "let S[0, c, e in 0..size(c)] = 0.0;\n"
        "let S[n in 1..=size(t), c, e in 0..size(c)] = decay * S[n - 1, c, e] + gain * k[n - 1, c] * x[n - 1, e];\n"
        "let out[t, e] = sum[c](q[t, c] * S[t + 1, c, e]);\noutput out;",
    ),
    (
        "q[t, c], k[t, c], x[t, c]",
        "let S[0, c, e in 0..size(c)] = 0.0;\n"
        "let v[n in 0..size(t), e in 0..size(c)] = x[n, e] - sum[c](k[n, c] * S[n, c, e]);\n"
        "let S[n in 1..=size(t), c, e in 0..size(c)] = decay * S[n - 1, c, e] + gain * k[n - 1, c] * v[n - 1, e];\n"
        "let out[t, e] = sum[c](q[t, c] * S[t + 1, c, e]);\noutput out;",
    ),
    (
        "q[c], k[t, c], x[t, c]",
        "let w[t] = softmax[t](sum[c](q[c] * k[t, c]) / temperature) where t < length;\n"
        "let out[c] = gain * sum[t](w[t] * x[t, c]);",
    ),
    (
        "k[t, c], x[t, c]",
        "let s[i, t] = sum[c](k[i, c] * k[t, c]) * temperature;\n"
        "let w[i, t] = softmax[t](s[i, t]) where rank[t](s[i, t]) < window;\n"
        "let out[i, c] = sum[t](w[i, t] * x[t, c]) * gain;",
    ),
    ("x[t, c], f[m]", "let out[t, c] = gain * sum[m in 0..size(m)](f[m] * x[t - m, c] where t >= m) + level;"),
    ("x[t, c]", "let y = sum[t, c](tanh(cap * x[t, c]) * gain); let out[t, c] = (@y / @x)[t, c] * level;"),
    ("", "let out = cap * tanh(gain / cap) + level;"),
    ("", "let out[k in 0..window] = gain * k + level;"),
)


@dataclass(frozen=True)
class Case:
    """A program, its arrays, and the numbers of its scalars, by name and in the order of its inputs."""

    text: str
    arrays: Mapping[str, np.ndarray[Any, Any]]
    scalars: Mapping[str, float]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A program with at least one scalar."""
    if draw(st.booleans()):
        inputs, body = draw(st.sampled_from(OTHERS))
    else:
        inputs, body = draw(attentions())
    words = _words(body)
    if "rate" in words:
        body, words = f"let rate = exp(-slope) + 0.5;\n{body}", words | {"slope"}
    scalars = {name: number for name, number in (REALS | WHOLES).items() if name in words}
    order = draw(st.permutations(sorted(scalars)))
    typed = {name: draw(st.sampled_from(("", " : i64", " : i32"))) for name in scalars if name in WHOLES}
    shown = [f"{name}{typed.get(name, '')}" for name in order]
    text = f"input {', '.join([*filter(None, [inputs]), *shown])};\n{body}\n"
    noise = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = {}
    for name, home in re.findall(r"(\w+)\[(.*?)\]", inputs):
        shape = [SIZES[c] for c in home.split(", ")]
        arrays[name] = noise.normal(size=shape)
        if name in "pM":
            arrays[name] = noise.random(shape) < 0.7 if name == "M" else noise.integers(0, 3, shape)
    return Case(text, arrays, {name: scalars[name] for name in order})


@st.composite
def attentions(draw: st.DrawFn) -> tuple[str, str]:
    """The inputs and the definitions of an attention that has scalars."""
    score = "sum[d](Q[h, i, d] * K[h, j, d])"
    for around in draw(st.lists(st.sampled_from(SCORES), max_size=3)):
        score = around.format(score)
    guard = draw(st.sampled_from(GUARDS))
    where = f" where {guard}" if guard else ""
    beside = where.replace("j", "k")
    weights = draw(st.sampled_from(WEIGHTS)).replace("{k}", beside)
    gather = draw(st.sampled_from(GATHERS))
    body = f"let s[h, i, j] = {score};\nlet w[h, i, j] = {weights}{where};\nlet out[h, i, e] = {gather};"
    if not _words(body) & (REALS | WHOLES).keys():
        body = body.replace("let out[h, i, e] = ", "let out[h, i, e] = gain * ")
    read = {"Q", "K", "V", *(_words(body) & {"A", "B", "M"})}
    inputs = ", ".join(f"{name}[{home}]{' : bool' * (name == 'M')}" for name, home in ARRAYS.items() if name in read)
    return inputs, body


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
