"""Attention within intervals of keys: what its kernel is handed."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import nodes as ir
from ..plan.steps import Attend
from .frames import Frame
from .masked import Masked
from .tiles import Tile


@dataclass(frozen=True, slots=True)
class Meeting:
    """A kernel by name, its query, key and value, and all else that it takes."""

    function: str
    operands: tuple[str, str, str]
    words: str

    def __str__(self) -> str:
        return f"{self.function}({', '.join((*self.operands, self.words))})"


class Intervals(Masked):
    """Each query with its intervals of keys, computed from the guard by arithmetic."""

    def kernel_operands(self, let: ir.Let, attend: Attend, frame: Frame) -> tuple[str, tuple[str, str, str]]:
        """The scale of the scores, and query, key and value."""
        dot = attend.scores.dot
        assert dot is not None
        key = attend.attention.coordinate
        scale, query = self.scale(attend, frame)
        compared = tuple(range.coordinate for range in dot.compared)
        q = self.operand(query, frame.row, compared, frame, let)
        k = self.operand(dot.key, key, compared, frame, let)
        v = self.operand(attend.attention.value, key, attend.layout.carry, frame, let)
        return scale, (q, k, v)

    def learned(self, let: ir.Let, attend: Attend, frame: Frame) -> list[str]:
        """The arrays that are read by biases and masks, to which a gradient may flow."""
        return Tile(self, let, attend, frame.batch, frame.row, attend.scores.bias, self.tested(attend)).learned()

    def tested(self, attend: Attend) -> tuple[ir.Expr, ...]:
        """The conditions that are tested tile by tile: those that are no intervals, or all where that is not plain."""
        pieces = attend.mask.pieces
        plain = all(not piece.groups and (len(pieces) == 1 or not piece.rest) for piece in pieces)
        return pieces[0].rest if plain else attend.attention.guard

    def masked_call(
        self, let: ir.Let, attend: Attend, frame: Frame, taken: tuple[str, tuple[str, str, str]], name: str
    ) -> Meeting:
        """A call over few pairs, by the kernel of this name."""
        self.kernels.setdefault("torch_masked", set()).add(name)
        scale, operands = taken
        heard = self.all_heard(attend, frame)
        words = f"{self.masked_words(let, attend, frame)}, {scale}"
        if attend.attention.guard and heard is not None:
            words += f", all_heard={heard}"
        return Meeting(name, operands, words)

    def meeting(
        self, let: ir.Let, attend: Attend, frame: Frame, tiles: bool, taken: tuple[str, tuple[str, str, str]]
    ) -> Meeting:
        """Who meets whom; `tiles` where something is added to the scores, or the guard is more than intervals."""
        key = attend.attention.coordinate
        scale, operands = taken
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
        for name, texts in zip(bounds, (lower, upper), strict=True):
            several = f"torch.broadcast_tensors({', '.join(texts)})" if len(texts) > 1 else f"({texts[0]},)"
            self.text.line(f"{name} = torch.stack({several})")
        words = f"{bounds[0]}, {bounds[1]}, {scale}"
        if groups and tiles:
            rest, groups = attend.attention.guard, ()
        if groups:
            words += self.group_words(groups, frame, key)
        if not tiles or (attend.scores.bias is None and not rest):
            self.kernels.setdefault("torch_intervals", set()).add("attend_within")
            return Meeting("attend_within", operands, words)
        self.kernels.setdefault("torch_intervals", set()).add("with_tiles")
        tile = Tile(self, let, attend, frame.batch, frame.row, attend.scores.bias, rest)
        name = tile.write()
        words = f"{words}, arrays=[{', '.join(tile.arguments)}]"
        return Meeting(name, operands, words)
