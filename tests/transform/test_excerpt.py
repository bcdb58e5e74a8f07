"""A program cut in two at one of its definitions gives what the whole program gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.variants import roster

import indexical as ix
from indexical.api import Program
from indexical.checker.program import finish
from indexical.diagnostics import Sink
from indexical.ir import nodes as ir
from indexical.transform.excerpt import excerpt
from indexical.views.source import unwritten


def _compiled(program: ir.Program) -> Program:
    sink = Sink()
    found = finish(unwritten(program, "part"), sink)
    assert found is not None, [str(finding) for finding in sink]
    return Program(found.source, found, ())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", roster.NAMES)
def test_a_program_cut_in_two(name: str) -> None:
    program = roster.compiled(name)
    whole = program._program
    arrays = {each: array.detach().numpy() for each, array in roster.arrays(name).items()}
    inner = [let.name for let in whole.lets if not let.captured and let.name not in program.outputs]
    if not inner:
        pytest.skip("one definition is all there is")
    cut = inner[len(inner) // 2]
    wanted = (*program.outputs, cut)
    expected = program(outputs=wanted, backend="reference", **arrays)
    first, second = _compiled(excerpt(whole, (), (cut,))), _compiled(excerpt(whole, (cut,), program.outputs))
    middle = {cut: first(backend="reference", **{name: arrays[name] for name in first.inputs})}
    np.testing.assert_array_equal(middle[cut], expected[-1])
    known = {**arrays, **middle}
    found = second(outputs=program.outputs, backend="reference", **{name: known[name] for name in second.inputs})
    for one, other in zip(found, expected, strict=False):
        np.testing.assert_array_equal(one, other)


def test_an_input_stays_for_its_size_alone() -> None:
    program = ix.compile("input x[i, d], y[k]; let a[i] = sum[d](x[i, d]); let z[i] = a[i] / sqrt(size(d));")
    assert [tensor.name for tensor in excerpt(program._program, ("a",), ("z",)).inputs] == ["x", "a"]
