"""The table of rules: what computes each kind of node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import nodes as ir
from . import attention, branches, indexing, normalizers, reads, reductions, reuse, selection
from .lowering import Rules

# Constants, sizes and coordinates are no arrays: `reuse.value` writes them down where they stand.
_NODES: Mapping[type[ir.Expr], Any] = {
    ir.Read: reads.read,
    ir.Array: indexing.figures,
    ir.Map: selection.apply,
    ir.Select: branches.select,
    ir.Reduce: reductions.reduce,
    ir.Normalize: normalizers.normalize,
}

RULES = Rules(reuse.value, _NODES, attention.define)
