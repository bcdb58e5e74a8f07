"""Attention within intervals of keys: what its kernel is handed."""

from __future__ import annotations

from typing import TypeAlias

from ...ir import nodes as ir
from ...plan.steps import Attend
from ...records import dataclass
from . import operands, small_attention
from .code import Call, List, Name, Node, Tuple, call
from .lowering import Lowering
from .operands import Frame
from .plan.key_blocks import key_block
from .tiles import Tile

# The scale of the scores; query, key and value.
Operands: TypeAlias = tuple[Node, tuple[Node, ...]]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel, its query, key and value, and all else that it takes."""

    function: Node
    operands: tuple[Node, ...]
    keywords: tuple[tuple[str, Node], ...] = ()

    def code(self, *before: Node) -> Node:
        """The call, with some operands ahead."""
        return Call(self.function, (*before, *self.operands), self.keywords)


def kernel_operands(low: Lowering, let: ir.Let, attend: Attend, frame: Frame) -> Operands:
    """The scale of the scores, and query, key and value."""
    dot = attend.scores.dot
    assert dot is not None
    key = attend.attention.coordinate
    scale, query = operands.scale(low, attend)
    compared = tuple(range.coordinate for range in dot.compared)
    q = operands.operand(low, query, frame.row, compared, frame, let)
    k = operands.operand(low, dot.key, key, compared, frame, let)
    v = operands.operand(low, attend.attention.value, key, attend.layout.carry, frame, let)
    return scale, (q, k, v)


def learned(low: Lowering, let: ir.Let, attend: Attend, frame: Frame) -> list[str]:
    """The arrays that are read by biases and masks, which may need a gradient."""
    return Tile(low, let, attend, frame.batch, frame.row, attend.scores.bias, tested(attend)).learned()


def tested(attend: Attend) -> tuple[ir.Expr, ...]:
    """The conditions that are tested tile by tile: those that are no intervals, or all where that is not plain."""
    pieces = attend.keys
    plain = all(not piece.labels and (len(pieces) == 1 or not piece.rest) for piece in pieces)
    return pieces[0].rest if plain else attend.attention.guard


def masked_backward(low: Lowering, let: ir.Let, attend: Attend, frame: Frame, taken: Operands) -> KernelCall:
    """The call for the gradients of few pairs."""
    name = "attend_masked_backward"
    low.kernels.setdefault("torch_masked", set()).add(name)
    scale, operands = taken
    all_attend = small_attention.all_attend(low, attend, frame)
    operands = (*operands, *small_attention.masked_operands(low, let, attend, frame), scale)
    keywords = (("all_attend", all_attend),) if attend.attention.guard and all_attend is not None else ()
    return KernelCall(Name(name), operands, keywords)


def interval_call(low: Lowering, let: ir.Let, attend: Attend, frame: Frame, tiles: bool, taken: Operands) -> KernelCall:
    """The call of a kernel of intervals; `tiles` where something is added to the scores, or the guard is more than
    intervals."""
    key = attend.attention.coordinate
    pieces = attend.keys
    alone = len(pieces) == 1
    lower = [operands.bound(low, "max", piece.lower, attend.attention.key, frame) for piece in pieces]
    upper = [operands.bound(low, "min", piece.upper, attend.attention.key, frame) for piece in pieces]
    rest = pieces[0].rest if alone else ()
    groups = pieces[0].labels if alone else ()
    if not alone and any(piece.rest or piece.labels for piece in pieces):
        lower, upper = lower[:0], upper[:0]
        lower.append(operands.bound(low, "max", (), attend.attention.key, frame))
        upper.append(operands.bound(low, "min", (), attend.attention.key, frame))
        rest = attend.attention.guard
    bounds = low.text.fresh("lower"), low.text.fresh("upper")
    for name, codes in zip(bounds, (lower, upper), strict=True):
        several = call("torch.broadcast_tensors", *codes) if len(codes) > 1 else Tuple(tuple(codes))
        low.text.assign(name, call("torch.stack", several))
    given: tuple[Node, ...] = (*taken[1], Name(bounds[0]), Name(bounds[1]), taken[0])
    if groups and tiles:
        rest, groups = attend.attention.guard, ()
    if groups:
        given += operands.group_operands(low, groups, frame, key)
    sink = operands.sink_operand(low, attend, frame, True)
    keywords: tuple[tuple[str, Node], ...] = () if sink is None else (("sink", sink),)
    keywords += () if frame.total is None else (("totals", Name("True")),)
    if not tiles or (attend.scores.bias is None and not rest):
        low.kernels.setdefault("torch_intervals", set()).add("attend_within")
        return KernelCall(Name("attend_within"), given, keywords)
    low.kernels.setdefault("torch_intervals", set()).add("with_tiles")
    block = key_block(attend) if rest == tested(attend) else None
    tile = Tile(low, let, attend, frame.batch, frame.row, attend.scores.bias, rest, block=block)
    name = tile.write()
    return KernelCall(Name(name), given, (("arrays", List(tuple(tile.arguments))), *keywords))
