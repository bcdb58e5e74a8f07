"""The law of decoding on programs that are drawn."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from tests.decoding.drawn import arrays_of, drawn
from tests.decoding.law import check, pieces
from tests.laws.programs import random_case

import indexical as ix
from indexical.run import calling


@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(120))
def test_drawn_programs_give_the_same_in_pieces(seed: int) -> None:
    """None of them is refused: each hears its own position and earlier ones alone."""
    program = ix.compile(drawn(seed))
    arrays = arrays_of(seed)
    held = {}
    if seed % 2:
        held = {name: arrays[name] for name in ("w", "a") if seed % 4 == 1 and name in program.inputs}
    # Where steps are alike, the second has a function of its own already.
    with patch.object(calling, "_FIRST_SIZED", 1):
        decoder = ix.incremental(program, along="position", **held)
    check(decoder, arrays, pieces(6, seed % 7), "reference" if seed % 10 == 4 else None)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(300))
def test_any_program_is_decoded_rightly_or_refused(seed: int) -> None:
    case = random_case(seed)
    program = ix.compile(case.text)
    letters = {axis.coordinate.name for t in program.ir.inputs for axis in t.axes if not axis.coordinate.rest}
    for along in sorted(letters):
        for name in program.definitions:
            try:
                decoder = ix.incremental(program, along, name)
            except ix.CallError:
                continue
            if name not in decoder._split.axis:
                continue
            try:
                decoder.program(outputs=name, **case.arrays)
                count = decoder._length(case.arrays)
                check(decoder, case.arrays, (count - count // 2, count // 2), close=1e-6)
            except ix.Error:
                continue
