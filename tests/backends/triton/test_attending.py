"""Triton kernels without a GPU: forward and backward in Triton's interpreter, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

MIXED = ("f16, scores in f32", "f16, queries in f32", "f16, values in f32")
MOST = {"f32": 2e-5, "f16": 1.5e-2, "compiled": 1e-6, **dict.fromkeys(MIXED, 1.5e-2)}
CASES = {
    "f32": [
        "nobody",
        "total beside a sink",
        "some queries, odd",
        "given numbers",
    ],
    "f16": ["soft cap in documents"],
    "f16, scores in f32": ["ALiBi, derived"],
}
OTHERS = {
    "f32": [
        *("mask in tiles", "branches, odd", "curved slopes", "sink, queries bent"),
        *("relative bias, clamped, by heads", "numbers compared", "poles at keys ahead"),
        *("total beside a sink, keys alone", "bias under a mask, silent", "relative bias, sloping, by diagonals"),
        *("grouped, with all", "sigmoid", "ALiBi, derived", "window, odd"),
        *("prefix for each batch", "sink, each odd", "sinks and window", "gate", "bias"),
        *("sigmoid, each odd", "relative bias, each odd", "gate, each odd", "bias, each odd", "soft cap, each odd"),
        *("bias for all, silent", "bias, silent", "some queries", "some queries, each odd", "some queries, derived"),
        *("branches", "branches, each odd", "divided by a distance"),
        *("lengths of queries", "lengths of queries, each odd", "lengths of queries, by diagonals"),
        *("dilated window", "mask for each head", "two dot products"),
        *("window for each query", "documents for each batch", "lengths, causal", "ALiBi", "cap from a tensor"),
        *("cross, aligned at the end", "softmax off by one", "retention"),
        *("strictly causal", "documents and parts", "key padding mask", "bias of a key", "chosen", "relative bias"),
        *("relative bias, in bounds where heard", "relative bias, in pairs", "three batch axes", "two tables"),
        "grouped, windowed",
        *("relative bias, far", "relative bias, parts", "relative bias in documents", "two tables, by diagonals"),
        *("relative bias, clamped", "two tables, by heads", "relative bias, clamped, each odd"),
        "relative bias, clamped, by diagonals",
        *("relative bias, far, by square tiles", "relative bias, by tall tiles", "relative bias, far, by diagonals"),
        *("nothing carried", "cross, aligned, fewer keys", "total", "total alone"),
        *("grouped, windowed, derived", "documents for each batch, derived", "strictly causal, derived"),
    ],
    "f16": [
        *("total alone", "sigmoid", "curved slopes", "uneven slopes"),
        *("window", "total", "window, derived", "relative bias", "ALiBi", "sink"),
        *("rising with keys", "uneven slopes, each odd", "uneven slopes, derived", "grouped, with all"),
        *("total beside a sink", "three batch axes", "relative bias, sloping, by diagonals"),
    ],
    **{dtype: ["ALiBi", "sink", "relative bias", "gate, odd", "ALiBi, derived"] for dtype in MIXED},
    "f16, scores in f32": ["ALiBi", "sink", "relative bias", "gate, odd", "bias, odd"],
    "compiled": ["documents for each batch", "relative bias"],
}


def test_kernels_compute_the_relation() -> None:
    check(CASES)


@pytest.mark.sampled(0)
@pytest.mark.parametrize("dtype", OTHERS)
def test_kernels_compute_the_other_relations(dtype: str) -> None:
    check({dtype: OTHERS[dtype]})


def check(cases: dict[str, list[str]]) -> None:
    """The interpreter is chosen when Triton is loaded, so it has a process of its own, one for all dtypes and names."""
    words = [word for dtype, names in cases.items() for word in (dtype, *names, "--")]
    command = [sys.executable, "-m", "tests.backends.triton.attending", *words]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split(": ") for line in done.stdout.splitlines()]
    asked = [(dtype, name) for dtype, names in cases.items() for name in names]
    for (dtype, name), (printed, found) in zip(asked, lines, strict=True):
        assert printed == name
        assert all(float(error) < MOST[dtype] for error in found.split()), (dtype, name, found)
