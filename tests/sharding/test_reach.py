"""What blocks reach, found for all of them at once, is what is found block by block."""

from __future__ import annotations

from unittest.mock import patch

import pytest

import indexical as ix
from indexical.ir import nodes as ir
from indexical.ir import prove
from indexical.ir.context import visit_clause
from indexical.sharding.parts import Parted
from indexical.transform.local import rows_needed, with_sizes

ATTENTION = """
space position(i, j), feature(d, e);
input Q[i, d], K[j, d], V[j, e];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])) where {guard};
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
"""

# A read of `X` from a block of `i`, and whether it is affine in the ends of the block.
READS = {
    "X[i]": True,
    "if i >= 5 { X[i - 5] } else { 0.0 }": True,
    "X[size(i) - 1 - i]": True,
    "X[7]": True,
    "X[i / 4]": False,
    "sum[j in 0..=i](X[j])": True,
    "sum[j in 0..=i](X[i - j])": True,
    "sum[k in 0..4](X[i - 3 * k] where i >= 3 * k)": False,
    "sum[j in 0..size(i)](X[j] where j > i + 9)": True,  # Nothing is left for late blocks.
    "sum[j in 0..size(i)](X[j] where j < 3 || (j <= i && i - j < 6))": True,
    "sum[j in 0..size(i)](X[j] where 2 * j <= i)": True,
    "sum[j in 0..size(i)](X[j] where 2 * j == i)": False,  # A block of one point may have no such key.
    "sum[j in 0..size(i)](X[j] where j <= i && j != 5)": False,
    "sum[j in 0..size(i)](X[j] where j <= i && (i - j) % 3 == 0)": False,
    "sum[j in 0..size(i)](X[j] * L[j] where L[i] == L[j] && j <= i)": True,
}


@pytest.mark.parametrize("body", READS)
@pytest.mark.parametrize("blocks", [3, 20])
def test_all_blocks_at_once_are_each_alone(body: str, blocks: int) -> None:
    program = ix.compile(f"input X[i], L[i] : i32; let Y[i] = {body};")._program
    (i,) = (axis.coordinate for axis in program.inputs[0].axes)
    sized = with_sizes(program, {i: 19}, {})
    (clause,) = sized.definitions["Y"].clauses
    length = -(-19 // blocks)
    points = tuple((min(b * length, 19), min(b * length + length, 19)) for b in range(blocks))
    parted = Parted.of(clause, clause.ranges[0], clause.ranges, points, sized.definitions)
    read = False
    for number, (part, trail) in enumerate(visit_clause(parted.clause)):
        if isinstance(part, ir.Read) and part.tensor == "X":
            read = True
            found = parted.needed(number, trail, part.indices[0], 19, 0)
            for block in range(blocks):
                alone: tuple[int, int] = (0, 0)
                if block in parted.alive:
                    here, there = list(visit_clause(parted.at(block)))[number]
                    assert isinstance(here, ir.Read)
                    alone = rows_needed(here.indices[0], there, 19, sized.definitions)
                assert found[block] == alone, (block, found[block], alone)
            assert (parted._affine(trail, part.indices[0], 19) is not None) == READS[body]
    assert read


@pytest.mark.parametrize("guard", ["j <= i", "j < 3 || (j <= i && i - j < 200)"])
def test_more_ranks_take_no_more_proofs(guard: str) -> None:
    def proofs(ranks: int) -> int:
        spread = ix.shard(program, {"context": ranks}, i="context")
        with patch.object(prove, "_without", wraps=prove._without) as steps:
            plan = spread.plan(i=64 * 256, d=4, e=4)
        (unit,) = plan.layout.units
        assert unit.ring is not None
        assert unit.ring.keys.shape == (ranks, ranks, 2)
        return int(steps.call_count)

    program = ix.compile(ATTENTION.format(guard=guard))
    assert proofs(256) == proofs(8)
