"""What a call computes is what the program says: every output against an evaluation that shares no code with ours."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import numpy as np
from hypothesis import assume, event, given, settings

import indexical as ix
from tests.laws.grids import REAL, Array, Outside, evaluate, nudged
from tests.laws.programs import Case, cases, random_case
from tests.laws.terms import Binder, Clause, Fn, Function, Op, Program, Read, Reduce, Rest, Scan, Term, walk

# Two computations of one number may differ by this much, relative to it.
CLOSE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 2e-7, np.dtype(np.float16): 2e-3}


def agree(found: Array, expected: Array) -> Array:
    """Where two arrays are the same: reals nearly so, NaN and infinities in the same places, all else exactly."""
    if expected.dtype not in CLOSE:
        return np.asarray(found == expected)
    with np.errstate(all="ignore"):
        near = np.abs(found - expected) <= CLOSE[expected.dtype] * np.abs(expected)
    return near | (found == expected) | (np.isnan(found) & np.isnan(expected))


def hanging(program: Program, arrays: Any, name: str, expected: Array) -> Array:
    """The cells that hang on the last digits of some number on the way: no law can say what they are."""
    others = [evaluate(program, arrays, nudged(seed))[name] for seed in (0.3, 1.7, 4.1)]
    return np.logical_or.reduce([~agree(other, expected) for other in others])


def check(case: Case, found: dict[str, Array]) -> int:
    """Compare what a call found with what the program means; how many cells nobody can tell."""
    unknown = 0
    for name, expected in evaluate(case.program, case.arrays).items():
        assert found[name].shape == expected.shape, name
        assert found[name].dtype == expected.dtype, name
        wrong = ~agree(found[name], expected)
        if wrong.any():
            loose = hanging(case.program, case.arrays, name, expected)
            unknown += int((wrong & loose).sum())
            assert not (wrong & ~loose).any(), f"{name} is {found[name]!r}, and should be {expected!r}"
    return unknown


def call(text: str, arrays: Any) -> dict[str, Array]:
    """Every definition of a program, by name."""
    program = ix.compile(text)
    found = program(**arrays, outputs=list(program.definitions))
    return {name: np.asarray(value) for name, value in zip(program.definitions, found, strict=True)}


def is_within(case: Case) -> bool:
    """Whether the laws speak of this case: nothing in it is too large, or NaN where a whole number is needed."""
    try:
        evaluate(case.program, case.arrays)
    except Outside as reason:
        event(f"outside: {reason}")
        return False
    return True


@settings(max_examples=250)
@given(cases())
def test_a_call_computes_what_the_program_says(case: Case) -> None:
    assume(is_within(case))
    if check(case, call(case.text, case.arrays)):
        event("some cells hang on last digits")


@settings(max_examples=60)
@given(cases())
def test_outputs_are_those_that_are_named_or_that_nothing_reads(case: Case) -> None:
    program = ix.compile(case.text)
    if case.program.outputs:
        assert program.outputs == case.program.outputs
        return
    read = {part.tensor for let in case.program.lets for part in walk(let) if isinstance(part, Read)}
    whole = {let.whole for let in case.program.lets}
    unread = {let.tensor.name for let in case.program.lets if let.tensor not in read | whole}
    assert unread <= set(program.outputs)
