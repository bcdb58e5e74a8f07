"""Guards that are the same for all keys of a block: `chosen[i, j / 64]`, by which each query selects blocks of keys."""

from __future__ import annotations

from ....ir import build
from ....ir import nodes as ir
from ....ir.walk import children
from ....plan.steps import Attend


def key_block(attend: Attend) -> ir.Expr | None:
    """The number of keys of a block, where that which is no interval of a guard depends on the key by its block alone;
    None where it does not."""
    key = attend.attention.key
    if len(attend.keys) != 1 or attend.keys[0].labels or attend.scores.bias is not None:
        return None
    if key.lower != build.whole(0, key.span):
        return None
    sizes: list[ir.Expr | None] = []
    waiting = list(attend.keys[0].rest)
    while waiting:
        match waiting.pop():
            case ir.Map("//", (ir.Coord(key.coordinate), ir.Const() | ir.Size() as size)):
                sizes.append(size)
            case ir.Coord(key.coordinate):
                return None
            case part:
                waiting += children(part)
    return sizes[0] if sizes and all(size == sizes[0] for size in sizes) else None
