"""Attention → a call of the kernel that the plan chose."""

from __future__ import annotations

from ..ir import nodes as ir
from ..plan.choose import FUSED, INTERVALS, TILES
from ..plan.steps import Attend
from .base import ATOM, Value
from .blocks import Blocks
from .frames import Frame, hears_somebody
from .fused import Fused
from .state import Stored
from .streams import Stream
from .tiles import Tile


class Attending(Fused, Blocks):
    """Definitions, of which some are attentions that a kernel computes whole."""

    def define(self, let: ir.Let) -> None:
        step = self.steps.get(let.name)
        if step is None or step.attend is None:
            super().define(let)
            return
        self.begin(let, [self.lets[name] for name in step.covers])
        variable = self.text.fresh(let.name)
        attend = step.attend
        frame = self.frame(let, attend)
        if self.text.dialect.name == "numpy":
            value = self.blocks(let, attend, frame)
        elif step.kernel == FUSED:
            value = self.fused(let, attend, frame)
        elif step.kernel in (INTERVALS, TILES):
            value = self.intervals(let, attend, frame, step.kernel == TILES)
        else:
            value = self.stream(let, attend, frame)
        if attend.attention.empty == "nan" and attend.shape is None:
            heard = self.value(hears_somebody(attend), frame.scope)
            nothing = Value("math.nan", (), "real", None, ATOM, True)
            value = self.where(heard, self.text.short(value, let.name), nothing, frame.scope, value.dtype)
        clause = let.clauses[0]
        guard = clause.guard
        if guard is not None:
            zero = Value("0", (), "real", None, ATOM, True)
            value = self.where(
                self.value(guard, frame.scope), self.text.short(value, let.name), zero, frame.scope, value.dtype
            )
        self.text.line(f"{variable} = {self.finished(let, value, clause, {}).text}")
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])

    def intervals(self, let: ir.Let, attend: Attend, frame: Frame, tiles: bool) -> Value:
        """Each query with its intervals of keys, computed from the guard by arithmetic."""
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
        for name, texts in zip(bounds, (lower, upper), strict=True):
            several = f"torch.broadcast_tensors({', '.join(texts)})" if len(texts) > 1 else f"({texts[0]},)"
            self.text.line(f"{name} = torch.stack({several})")
        words = f"{q}, {k}, {v}, {bounds[0]}, {bounds[1]}, {scale}"
        if groups and tiles:
            rest, groups = attend.attention.guard, ()
        if groups:
            words += self.group_words(groups, frame, key)
        if not tiles or (attend.scores.bias is None and not rest):
            self.kernels.setdefault("torch_intervals", set()).add("attend_within")
            return self.restored(f"attend_within({words})", let, attend, frame)
        self.kernels.setdefault("torch_intervals", set()).add("with_tiles")
        tile = Tile(self, let, attend, frame.batch, frame.row, attend.scores.bias, rest)
        name = tile.write()
        call = self.restored(f"{name}({words}, arrays=[{', '.join(tile.arguments)}])", let, attend, frame)
        learned = tile.learned()
        if not learned:
            return call
        variable = self.text.fresh(f"{let.name}_rows")
        wanted = " or ".join(f"{array}.requires_grad" for array in learned)
        self.text.line(f"if torch.is_grad_enabled() and {wanted if len(learned) == 1 else f'({wanted})'}:")
        with self.block():
            streamed = self.stream(let, attend, frame)
            self.text.line(f"{variable} = {streamed.text}")
        self.text.line("else:")
        with self.block():
            self.text.line(f"{variable} = {self.turned(call, streamed.axes).text}")
        return streamed.but(text=variable, binds=ATOM)

    def stream(self, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """An online softmax over blocks of keys, for scores of any kind."""
        self.kernels.setdefault("torch_stream", set()).add("streaming")
        key, carry = attend.attention.coordinate, attend.layout.carry
        guard = () if self.is_hull(attend) else attend.attention.guard
        stream = Stream(self, let, attend, frame.batch, frame.row, attend.attention.score, guard)
        name = stream.write()
        value = self.text.short(self.real(self.value(attend.attention.value, frame.scope)), let.name)
        if value.dtype != self.dtypes[let.name]:
            value = self.text.dialect.cast(self.strong(value), self.dtypes[let.name])
        axes = (*frame.batch, key, *carry)
        value = self.spread(self.turned(value, axes), axes, frame.scope)
        shown = (
            value.text
            if len(carry) == 1
            else f"{value.atom}[..., None]"
            if not carry
            else f"{value.atom}.flatten({-len(carry)})"
        )
        bounds = [self.hull_of(op, attend, frame) for op in ("min", "max")]
        call = f"{name}([{', '.join(stream.arguments)}], {shown}, {bounds[0]}, {bounds[1]})"
        result = Value(
            call, (*frame.batch, *(() if frame.row is None else (frame.row,)), *carry), "real", self.dtypes[let.name]
        )
        if frame.row is None or len(carry) != 1:
            result = result.but(text=f"{call}.reshape({self.shape(result.axes, frame.scope) if result.axes else '()'})")
        return result
