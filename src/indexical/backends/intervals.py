"""Attention within intervals of keys: what its kernel is handed."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import nodes as ir
from ..plan.steps import Attend
from .code import Call, List, Name, Node, Tuple, call
from .frames import Frame, Framed
from .tiles import Tile


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel, its query, key and value, all else that it takes, and the arrays among that which may want a
    gradient."""

    function: Node
    operands: tuple[Node, ...]
    keywords: tuple[tuple[str, Node], ...] = ()
    learned: tuple[str, ...] = ()

    def code(self, *before: Node) -> Node:
        """The call, with some operands ahead."""
        return Call(self.function, (*before, *self.operands), self.keywords)


class Intervals(Framed):
    """Each query with its intervals of keys, computed from the guard by arithmetic."""

    def meeting(self, let: ir.Let, attend: Attend, frame: Frame, tiles: bool) -> KernelCall:
        """Who meets whom; `tiles` where something is added to the scores, or the guard is more than intervals."""
        dot = attend.scores.dot
        assert dot is not None
        key = attend.attention.coordinate
        scale, query = self.scale(attend, frame)
        compared = tuple(range.coordinate for range in dot.compared)
        q = self.operand(query, frame.row, compared, frame, let)
        k = self.operand(dot.key, key, compared, frame, let)
        v = self.operand(attend.attention.value, key, attend.layout.carry, frame, let)
        pieces = attend.mask.pieces
        alone = len(pieces) == 1
        lower = [self.bound("max", piece.lower, attend.attention.key, frame) for piece in pieces]
        upper = [self.bound("min", piece.upper, attend.attention.key, frame) for piece in pieces]
        rest = pieces[0].rest if alone else ()
        groups = pieces[0].groups if alone else ()
        if not alone and any(piece.rest or piece.groups for piece in pieces):
            lower, upper = lower[:0], upper[:0]
            lower.append(self.bound("max", (), attend.attention.key, frame))
            upper.append(self.bound("min", (), attend.attention.key, frame))
            rest = attend.attention.guard
        bounds = self.text.fresh("lower"), self.text.fresh("upper")
        for name, codes in zip(bounds, (lower, upper), strict=True):
            several = call("torch.broadcast_tensors", *codes) if len(codes) > 1 else Tuple(tuple(codes))
            self.text.assign(name, call("torch.stack", several))
        operands: tuple[Node, ...] = (q, k, v, Name(bounds[0]), Name(bounds[1]), scale)
        if groups and tiles:
            rest, groups = attend.attention.guard, ()
        if groups:
            operands += self.group_operands(groups, frame, key)
        if not tiles or (attend.scores.bias is None and not rest):
            self.kernels.setdefault("torch_intervals", set()).add("attend_within")
            return KernelCall(Name("attend_within"), operands)
        self.kernels.setdefault("torch_intervals", set()).add("with_tiles")
        tile = Tile(self, let, attend, frame.batch, frame.row, attend.scores.bias, rest)
        name = tile.write()
        arrays = List(tuple(tile.arguments))
        return KernelCall(Name(name), operands, (("arrays", arrays),), tuple(tile.learned()))
