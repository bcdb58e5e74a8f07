"""When two results are the same, and how a program is called for all that it defines."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import currently_in_test_context, event
from tests.laws.grids import Outside, evaluate
from tests.laws.numerics import Array, nudged
from tests.laws.programs import Case

import indexical as ix

# Two computations of one number may differ by this much, relative to it.
CLOSE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-7, np.dtype(np.float16): 2e-3}


def agree(found: Array, expected: Array) -> Array:
    """Where two arrays are the same: reals nearly so, NaN and infinities in the same places, all else exactly."""
    if expected.dtype not in CLOSE:
        return np.asarray(found == expected)
    with np.errstate(all="ignore"):
        near = np.abs(found - expected) <= CLOSE[expected.dtype] * np.abs(expected)
    return near | (found == expected) | (np.isnan(found) & np.isnan(expected))


def difference(case: Case, name: str, found: Array, expected: Array) -> str | None:
    """How two values of a definition differ; None where they are the same.

    Of cells that hang on the last digits of some number on the way to them no law can say what they are.
    """
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"`{name}` is {found.shape} of {found.dtype}, and should be {expected.shape} of {expected.dtype}"
    wrong = ~agree(found, expected)
    if wrong.any():
        base = evaluate(case.program, case.arrays)[name]
        moved = [evaluate(case.program, case.arrays, nudged(seed))[name] for seed in (0.3, 1.7, 4.1)]
        wrong &= np.logical_and.reduce([agree(other, base) for other in moved])
        note("some cells hang on last digits")
    return f"`{name}` is {found!r}, and should be {expected!r}" if wrong.any() else None


def call(text: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Every definition of a program, by name, as the reference evaluator computes it."""
    program = ix.compile(text)
    found = program(**arrays, outputs=list(program.definitions), backend="reference")
    return {name: np.asarray(value) for name, value in zip(program.definitions, found, strict=True)}


def is_within(case: Case) -> bool:
    """Whether the laws speak of this case: nothing in it is too large, or NaN where a whole number is needed."""
    try:
        evaluate(case.program, case.arrays)
    except Outside as reason:
        note(f"outside: {reason}")
        return False
    return True


def note(words: str) -> None:
    """For Hypothesis's statistics, where it runs."""
    if currently_in_test_context():
        event(words)
