"""Texts that nobody meant: bytes, words in no order, and programs with something wrong in them. And what every text may
expect: a program or an `ix.Error`, within a second, and a program that is called gives arrays or an `ix.Error`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from time import thread_time
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

import indexical as ix
from indexical.diagnostics import render
from indexical.run import pointwise
from indexical.run.samples import random_arrays

ROOT = Path(__file__).resolve().parent.parent.parent
# What one step may take, in seconds of this thread's own time: others may keep the machine busy.
PATIENCE = 1.0

TOKENS = (
    *"space input let output fn use assert expect where in as if else true false masked attention".split(),
    *"( ) [ ] { } , ; : = == != < <= > >= + - * ** / % ! && || .. ..= :: -> ~ @".split(),
    *"sum prod max min mean any all argmax argmin softmax log_softmax cumsum cumprod cummax rank size".split(),
    *"exp log sqrt clamp relu".split(),
    *"bool i8 u8 i32 i64 f16 bf16 f32 f64 query key compare carry head batch causal groups contiguous".split(),
    *"offset rows at most 1 signed free".split(),
    *"i j k m d h t x y z w Q K V out scores weights f g std r ..r 0 1 2 3 7 0.5 .5 pi 1e-3 ~0.25".split(),
    *("//", '"', "'", "\n", "#", "$", "λ", "≤"),
)

# Programs with something of everything, beside the examples and the standard library.
PROGRAMS = (
    "input x[i]; let y[i] = x[i] * 2;",
    "input x[i, j], y[j]; let z[i] = sum[j](x[i, j] * y[j] where j <= i);",
    "space position(i, j), feature(d); input Q[i, d], K[j, d];\n"
    "let s[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));\nlet w[i, j] = softmax[j](s[i, j]) where j <= i;\n"
    "let o[i, d] = sum[j](w[i, j] * K[j, d]); attention o(query i, key j, compare d, carry d, causal);",
    "input x[t, m], A[m, n], start[m]; let h[0, m] = start[m];\n"
    "let h[t in 1..size(t), m] = tanh(sum[n](A[m, n] * h[t - 1, n]) + x[t, m]);",
    "input a[i], b[j]; let d[0, 0] = 0; let d[i in 1..size(i), 0] = d[i - 1, 0] + 1;\n"
    "let d[0, j in 1..size(j)] = d[0, j - 1] + 1;\n"
    "let d[i in 1..size(i), j in 1..size(j)] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1]"
    " + (a[i] != b[j]) as i64);",
    "input x[..r, i]; let y[..r, i] = x[..r, i] - mean[i](x[..r, i]); let total = sum[..r](y[..r, 0]);",
    "fn norm(x[i], eps) -> [i] { let m = mean[i](x[i]); let v = mean[i]((x[i] - m) ** 2);\n"
    "(x[i] - m) * rsqrt(v + eps) }\ninput X[a]; let o = norm(X, 1e-5); let p[a] = norm(X, 0.1)[a];",
    "fn causal(i, j) { j <= i } input x[i, j]; let w[i, j] = softmax[j](x[i, j] where causal(i, j));",
    "input x[i], p[k] : i64; let y[k] = x[p[k]]; let z[k] = y[k] where p[k] > 0;",
    "input x[m in 0..6]; let y[h in 0..2, d in 0..3] = x[h * 3 + d]; let z[m] = y[m / 3, m % 3];",
    "let W[i, j] = ~[[0.1, 0.2], [0.3, 0.4]]; let x = [1, -2]; let y[i] = sum[j](W[i, j] * x[j]);\n"
    "expect y == [~-0.3, ~-0.5];",
    'input x[i]; assert size(i) > 0, "some points"; let y = { let top = max[i](x[i]); let e[i] = exp(x[i] - top);'
    " sum[i](e[i]) };",
    "input x[i]; let y[i] = if i > 0 && x[i - 1] > 0 { x[i - 1] } else { -x[i] } as f32;",
    "input x[i, j]; let m[i] = argmax[j](x[i, j]); let y[i] = x[i, m[i]];\n"
    "let c[i, j] = cumsum[j](x[i, j]) where j > 0; let r[i, j] = rank[j](x[i, j] where j <= i);",
    "input x[i, j]; let p[i, j] = cumprod[j](x[i, j]) where j > 0; let m[i, j] = cummax[i](x[i, j] where j <= i);",
    "input x[i]; let allowed[i, j in 0..size(i)] = j <= i && i - j < 2;\n"
    "let y[i] = sum[j in 0..size(i)](x[j] where allowed[i, j]);",
    "input x[i]; let y[i] = z * 2 + z where z = x[i] + 1, i > 0; output y;",
    "input n : i64, x[i]; let y[k in 0..n] = x[k % size(i)]; let z = sum[k in 0..=n - 1, l in k..n](y[k] * y[l]);",
    "input b[i] : bool, x[i] : f32; let y[i] = x[i] where b[i]; let some = any[i](b[i]);\n"
    "let every = all[i](!b[i] || true);",
    "use std::norms::{layer_norm}; input x[i, m], g[m], b[m]; let y = layer_norm(x, g, b, 1e-5);",
    "input x[i]; let a[0] = x[0]; let a[t in 1..size(i)] = a[t - 1] + b[t - 1]; let b[0] = 1.0;\n"
    "let b[t in 1..size(i)] = a[t] * 0.5; output a, b;",
)


@cache
def corpus() -> tuple[str, ...]:
    """Programs to damage: these, the examples, the standard library."""
    files = sorted([*ROOT.glob("examples/**/*.ix"), *ROOT.glob("src/indexical/std/*.ix")])
    return (*PROGRAMS, *(path.read_text(encoding="utf-8") for path in files))


# ------------------------------------------------------------------------------------ damage


class Edit(NamedTuple):
    """One change to a text. `place`, `other` and `word` are taken modulo what there is."""

    kind: str
    place: int
    other: int
    word: int


KINDS = tuple(f"{what} {unit}" for unit in ("token", "character") for what in ("delete", "double", "swap", "replace"))
KINDS += ("insert token", "cut", "splice")


def damaged(text: str, edits: Sequence[Edit]) -> str:
    """A text after some edits, one after the other."""
    for edit in edits:
        if edit.kind == "splice":
            other = corpus()[edit.other % len(corpus())]
            text = text[: edit.place % (len(text) + 1)] + other[edit.word % (len(other) + 1) :]
            continue
        pieces = re.findall(r"\w+|\s+|[^\w\s]", text) if "token" in edit.kind else list(text)
        text = "".join(_edited(pieces, edit))
    return text


def _edited(pieces: list[str], edit: Edit) -> list[str]:
    if not pieces:
        return [TOKENS[edit.word % len(TOKENS)]]
    place, other = edit.place % len(pieces), edit.other % len(pieces)
    match edit.kind.split()[0]:
        case "delete":
            del pieces[place]
        case "double":
            pieces.insert(place, pieces[other])
        case "swap":
            pieces[place], pieces[other] = pieces[other], pieces[place]
        case "replace":
            pieces[place] = TOKENS[edit.word % len(TOKENS)]
        case "insert":
            pieces.insert(place, f" {TOKENS[edit.word % len(TOKENS)]} ")
        case "cut":
            del pieces[place:]
    return pieces


def as_text(noise: bytes) -> str:
    """Bytes as a text of as many characters; every other time as UTF-8, with what is none of it kept."""
    return noise.decode("utf-8", "surrogateescape") if len(noise) % 2 else noise.decode("latin-1")


# -------------------------------------------------------------------------------- expectations


@contextmanager
def small_steps() -> Iterator[None]:
    """Programs that nobody meant may ask for any amount of work: what is much is refused sooner."""
    with patch.object(pointwise, "MAXIMUM_WORK", 100_000), patch.object(pointwise, "MAXIMUM_POINTS", 20_000):
        yield


class Report(NamedTuple):
    """How a text fared: whether it compiled, whether its call gave arrays, and the longest of the steps."""

    compiled: bool
    called: bool
    seconds: float


def examine(text: str, seed: int = 0) -> Report:
    """Compile, check and call a text. Anything but a result or an `ix.Error` comes out as it is."""
    if text.endswith(".ix"):
        text += "\n"
    start = thread_time()
    program, error = _compile(text)
    compiled = thread_time()
    findings = ix.check(text)
    checked = thread_time()
    if error is not None:
        assert str(error)
        assert list(map(str, error.diagnostics)) == [str(found) for found in findings if found.severity == "error"]
    assert (program is None) == any(found.severity == "error" for found in findings)
    for found in findings:
        assert render(found)
        assert all(0 <= label.span.start <= label.span.end <= len(label.span.source.text) for label in found.labels)
    called, seconds = False, 0.0
    if program is not None and program.outputs:
        called, seconds = _call(program, seed)
    return Report(program is not None, called, max(compiled - start, checked - compiled, seconds))


def _compile(text: str) -> tuple[ix.Program | None, ix.Error | None]:
    try:
        return ix.compile(text), None
    except ix.Error as error:
        return None, error


def _call(program: ix.Program, seed: int) -> tuple[bool, float]:
    start = thread_time()
    result = None
    with small_steps(), suppress(ix.Error):
        arrays = random_arrays(program.ir, {}, {}, seed)[0].arrays
        result = program(**arrays, outputs=list(program.outputs))
    seconds = thread_time() - start
    assert result is None or all(isinstance(value, np.ndarray) for value in result)
    return result is not None, seconds
