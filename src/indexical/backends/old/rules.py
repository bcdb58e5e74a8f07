"""The table of rules: what computes each kind of node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir import nodes as ir
from . import branches, elementwise, indexing, reads, reductions, reuse
from .lowering import Rules

# A normaliser is no part of a kernel: it is an operation, of which a kernel reads the array. Constants, sizes and
# coordinates are no arrays: `reuse.value` writes them down where they stand.
_NODES: Mapping[type[ir.Expr], Any] = {
    ir.Read: reads.read,
    ir.Array: indexing.figures,
    ir.Map: elementwise.apply,
    ir.Select: branches.select,
    ir.Reduce: reductions.reduce,
}

RULES = Rules(reuse.value, _NODES)
