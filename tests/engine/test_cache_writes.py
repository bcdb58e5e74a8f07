"""Rows are written into an array that is given away; it is copied where something still reads it as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.engine import door

import indexical as ix
from indexical.ir import nodes as ir

HEAD = "input past[j, d], new[i, d];"
ROWS = "let rows[j, d] = if j >= size(j) - size(i) { new[j - size(j) + size(i), d] } else { past[j, d] };"
ALONE = f"{HEAD} {ROWS}"
BEFORE = f"{HEAD} let first[d] = past[0, d] * 2; {ROWS} let both[d] = first[d] + rows[0, d]; output rows, both;"
AFTER = f"{HEAD} {ROWS} let last[d] = rows[0, d] + past[size(j) - 1, d]; output rows, last;"


def built(text: str, owned: bool) -> tuple[ir.Program, door.Built]:
    program = ix.compile(text).ir
    given = tuple(replace(one, owned=owned and one.name == "past") for one in program.inputs)
    program = replace(program, inputs=given)
    return program, door.build(program, {"past": "f64", "new": "f64"}, "numpy", program.outputs)


@pytest.mark.parametrize("owned", [True, False])
@pytest.mark.parametrize("text", [ALONE, BEFORE, AFTER])
def test_values_are_those_of_the_relation(text: str, owned: bool) -> None:
    past, new = np.arange(10.0).reshape(5, 2), -np.ones((2, 2))
    right = ix.compile(text)(past, new, backend="reference")
    right = right if isinstance(right, tuple) else (right,)
    given = past.copy()
    _, program = built(text, owned)
    found = program(given, new)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found[0] is given) == (owned and text != AFTER)
    assert owned or np.array_equal(given, past)
