"""A program and what recognition made of it, evaluated by the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from indexical.backends.old.plan.recognize import recognize
from indexical.checker.program import check
from indexical.diagnostics import Sink
from indexical.ir import nodes as ir
from indexical.ir.verify import verify
from indexical.plan.steps import Recognized
from indexical.run import pointwise
from indexical.source import Source
from indexical.syntax.parse import parse

Arrays = Mapping[str, np.ndarray[Any, Any]]


def program_of(text: str) -> ir.Program:
    """A program, checked and not linted: that takes half the time."""
    sink = Sink()
    program = check(parse(Source("test", text), sink), sink)
    assert program is not None, [diagnostic.message for diagnostic in sink]
    assert not sink.failed, [diagnostic.message for diagnostic in sink]
    return program


def arrays_for(program: ir.Program, sizes: Mapping[str, int], seed: int = 0) -> Arrays:
    """Arrays to call a program with, all of whose axes are in `sizes`."""
    noise = np.random.default_rng(seed)
    found: dict[str, np.ndarray[Any, Any]] = {}
    for tensor in program.inputs:
        shape = tuple(sizes[str(axis.coordinate)] for axis in tensor.axes)
        if tensor.kind == "bool":
            found[tensor.name] = np.asarray(noise.random(shape) < 0.6)
        elif tensor.kind == "whole":
            found[tensor.name] = np.asarray(noise.integers(1, 3, shape))
        else:
            found[tensor.name] = np.asarray(noise.normal(size=shape))
    return found


def checked(program: ir.Program, arrays: Arrays | None, wanted: tuple[str, ...]) -> Recognized:
    """What recognition finds. The program that it makes is well formed, and has the same values."""
    found = recognize(program, wanted)
    assert verify(found.program) == []
    if arrays is not None and found.attentions:
        before, after = (pointwise.run(p, arrays, wanted) for p in (program, found.program))
        for name in wanted:
            assert difference(before[name], after[name]) is None, f"{name}: {difference(before[name], after[name])}"
    return found


def difference(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> str | None:
    """Where two arrays differ. What is not finite may become a number, never the other way round."""
    if before.dtype != after.dtype or before.shape != after.shape:
        return f"{before.dtype} {before.shape} became {after.dtype} {after.shape}"
    kept = np.isfinite(before.astype(float))
    if np.allclose(before[kept], after[kept], rtol=1e-6, atol=1e-7):
        return None
    return f"{before.tolist()} became {after.tolist()}"
