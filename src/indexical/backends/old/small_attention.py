"""Attention over few pairs: a mask and a bias of all of them, in memory, and one call."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.context import assume
from ...ir.types import Coordinate
from ...ir.walk import renamed_apart, substitute
from ...plan.steps import Attend
from . import arrays, binding, contraction, sizes
from .base import Value
from .code import ALL, ELLIPSIS, NONE, Index, Name, Node, infix, method
from .lowering import Lowering
from .operands import Frame
from .scope import Scope
from .tiles import Tile
from .values import spaced

TRUE = Name("True")


def few(low: Lowering, attend: Attend, frame: Frame) -> Node | None:
    """A test that a call has few scores; None for never."""
    if attend.few is None:
        return None
    points = contraction.product_of_lengths(low, (*frame.batch, *_pair(attend, frame)), frame.scope)
    return infix("<=", points, attend.few)


def _pair(attend: Attend, frame: Frame) -> tuple[Coordinate, ...]:
    return (*(() if frame.row is None else (frame.row,)), attend.attention.coordinate)


def all_attend(low: Lowering, attend: Attend, frame: Frame) -> Node | None:
    """A test on sizes that each query attends to some key and each key is attended to: there is no guard, or each
    query attends to the key at its own place. None where that depends on the mask."""
    if attend.shape == "full" or not attend.attention.guard:
        return TRUE
    row, key = frame.row, attend.attention.key
    if row is None or any(_first(frame.scope.places[c].start) != 0 for c in (row, key.coordinate)):
        return None
    itself = build.coord(row, key.span)
    known = assume(frame.scope.box, low.lets)
    for condition in attend.attention.guard:
        if not known.proves(substitute(condition, {key.coordinate: itself})):
            return None
    counts = [sizes.length(low, c, frame.scope) for c in (row, key.coordinate)]
    return TRUE if counts[0] == counts[1] else infix("==", *counts)


# ------------------------------------------------------------------------------ what is handed over


def masked_operands(low: Lowering, let: ir.Let, attend: Attend, frame: Frame) -> tuple[Node, Node]:
    """The mask and the bias of all pairs, as the masked call takes them; None for one that there is not."""
    tile = Tile(low, let, attend, frame.batch, frame.row, attend.scores.bias, attend.attention.guard)
    inner, scope = inside(low, tile)
    allowed = _allowed(attend, inner, scope)
    mask = NONE if allowed is None else _four(allowed, attend, frame, inner, scope)
    if attend.scores.bias is None:
        return mask, NONE
    renamed = renamed_apart(attend.scores.bias, {c.name for c in scope.places})
    bias = arrays.as_real(inner, inner.value(renamed, tile.kept(scope)))
    return mask, _four(arrays.as_array(inner, bias), attend, frame, inner, scope)


def inside(low: Lowering, tile: Tile) -> tuple[Lowering, Scope]:
    """A lowering that writes here, and computes in 32 bits what is stored in 16."""
    inner, scope = tile.lowering({}, low.text)
    inner.widens = True
    inner.compute = "f32" if inner.compute in ("f16", "bf16") else inner.compute
    return inner, scope


def _allowed(attend: Attend, inner: Lowering, scope: Scope) -> Value | None:
    if attend.shape == "full":
        return None
    masks = binding.masks(inner, (), build.conjunction(attend.attention.guard), scope)
    mask = arrays.conjunction(inner, masks, scope)
    return None if mask is None else arrays.as_array(inner, mask)


def _four(value: Value, attend: Attend, frame: Frame, inner: Lowering, scope: Scope) -> Node:
    """A value of pairs as the library takes a mask: query and key, before them nothing or two batch axes."""
    pair = _pair(attend, frame)
    lead = tuple(c for c in frame.batch if c in value.axes)
    if len(frame.batch) > 2 and lead:
        lead = frame.batch
    present = tuple(c for c in (*frame.batch, *pair) if c in value.axes)
    code = arrays.broadcast(inner, arrays.in_order(inner, value, present), (*lead, *pair), scope).code
    if not lead:
        return code if frame.row is not None else Index(code, (NONE,))
    if len(frame.batch) > 2:
        code = code if frame.row is not None else Index(code, (ELLIPSIS, NONE, ALL))
        return method(code, "flatten", 0, len(frame.batch) - 2)
    new = [NONE] * (2 - len(frame.batch))
    batch = [ALL if c in lead else NONE for c in frame.batch]
    return spaced(code, [*new, *batch, NONE if frame.row is None else ALL, ALL])


def _first(expr: ir.Expr) -> object:
    return expr.value if isinstance(expr, ir.Const) else None
