"""Attention → a call of the kernel that the plan chose."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import nodes as ir
from ..plan.choose import FUSED, INTERVALS, TILES
from ..plan.homes import has_keys
from ..plan.norms import Norm
from ..plan.steps import Attend
from .backward import Backward
from .base import ATOM, EITHER, TERNARY, Value
from .blocks import Blocks
from .cuts import Cutting
from .expressions import constant
from .frames import Frame, hears_somebody
from .losses import write_cross_entropy
from .state import Stored
from .streams import Stream


@dataclass
class Attending(Backward, Cutting, Blocks):
    """Definitions, of which some are attentions that a kernel computes whole."""

    def define(self, let: ir.Let) -> None:
        step = self.steps.get(let.name)
        if step is not None and step.gradient is not None:
            self.flow_back(step, step.gradient)
            return
        if step is not None and step.block is not None:
            self.cut(step.block, step.covers)
            return
        if step is not None and step.norm is not None:
            self.layer_norm(let, step.norm, step.covers)
            return
        if step is not None and step.loss is not None:
            write_cross_entropy(self, let, step.loss, step.covers)
            return
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
        # Masks lie in the order of the scope.
        value = self.turned(value, frame.scope.order)
        if attend.attention.empty == "nan" and attend.shape is None:
            heard = self.value(hears_somebody(attend), frame.scope)
            nothing = Value("math.nan", (), "real", None, ATOM, True)
            value = self.where(heard, self.text.short(value, let.name), nothing, frame.scope, value.dtype)
        if attend.attention.empty == "keyless":
            value = self.unless_keyless(let, attend, frame, value)
        clause = let.clauses[0]
        guard = clause.guard
        if guard is not None:
            zero = Value("0", (), "real", None, ATOM, True)
            value = self.where(
                self.value(guard, frame.scope), self.text.short(value, let.name), zero, frame.scope, value.dtype
            )
        self.text.line(f"{variable} = {self.finished(let, value, clause, {}).text}")
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])

    def unless_keyless(self, let: ir.Let, attend: Attend, frame: Frame, value: Value) -> Value:
        """The rows of an attention that is a quotient: NaN where there are no keys at all."""
        some = self.value(has_keys(attend.attention), frame.scope)
        value = self.text.named(value, f"{let.name}_rows")
        return value.but(text=f"{value.text} if {some.within(EITHER)} else {value.text} + math.nan", binds=TERNARY)

    def layer_norm(self, let: ir.Let, norm: Norm, covers: tuple[str, ...]) -> None:
        """The library's normalisation, over the last axis of what it is given."""
        self.begin(let, [self.lets[name] for name in covers])
        clause = let.clauses[0]
        scope = self.scope_of(clause, {})
        last = norm.coordinate
        axes = (*(axis for axis in scope.order if axis != last), last)
        x = self.spread(self.turned(self.strong(self.real(self.value(norm.x, scope))), axes), axes, scope)
        length = self.length(last, scope)
        if not self.is_filled(last, scope):
            self.refuse_once(f"{length} == 0", "IX310", "`mean` over no points has no value")
        given = (norm.gain, norm.bias) if norm.centred else (norm.gain,)
        beside = [None if part is None else self.value(part, scope) for part in given]
        words = ["None" if part is None else self.strong(self.real(part)).text for part in beside]
        eps = constant(norm.eps).text
        call = f"torch.nn.functional.{norm.kernel}({x.text}, ({length},), {', '.join(words)}, {eps})"
        variable = self.text.fresh(let.name)
        value = self.turned(x.but(text=call, axes=axes, binds=ATOM), scope.order)
        self.text.line(f"{variable} = {self.finished(let, value, clause, {}).text}")
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])

    def intervals(self, let: ir.Let, attend: Attend, frame: Frame, tiles: bool) -> Value:
        """Each query with its intervals of keys, computed from the guard by arithmetic."""
        met = self.meeting(let, attend, frame, tiles)
        call = self.restored(f"{met.function}({', '.join((*met.operands, met.words))})", let, attend, frame)
        learned = met.learned
        if not learned:
            return call
        variable = self.text.fresh(f"{let.name}_rows")
        self.text.line(f"if {self.text.helper('learns')}({', '.join(learned)}):")
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
        if stream.one_way is not None and stream.learned():
            # Refused before it is computed, so that the plain lowering runs, which has a gradient.
            wanted = f"{self.text.helper('learns')}({', '.join(stream.learned())})"
            self.text.refuse(wanted, "IX218", stream.one_way)
        value = self.text.short(self.real(self.heard_value(attend.attention.value, frame.heard)), let.name)
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
