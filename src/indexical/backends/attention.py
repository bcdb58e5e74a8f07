"""Attention → a call of the kernel that the plan chose."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import nodes as ir
from ..plan.homes import has_keys
from ..plan.norms import Norm
from ..plan.steps import Attend
from ..plan.target import FUSED, INTERVALS, TILES
from .backward import Backward
from .base import Value, plain
from .blocks import Blocks
from .code import NAN, NONE, Infix, List, Name, Node, Ternary, call, fill, infix, method
from .cuts import Cutting
from .experts import Experts
from .expressions import constant
from .frames import Frame, hears_somebody
from .losses import write_cross_entropy
from .masked import TRUE
from .state import Stored
from .streams import Stream


@dataclass
class Attending(Backward, Cutting, Blocks, Experts):
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
        if step is not None and step.chosen is not None:
            self.grouped_rows(let, step.chosen)
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
        if self.text.dialect.streams_blocks:
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
            value = self.where(heard, self.text.short(value, let.name), plain(NAN, "real"), frame.scope, value.dtype)
        if attend.attention.empty == "keyless":
            value = self.unless_keyless(let, attend, frame, value)
        clause = let.clauses[0]
        guard = clause.guard
        if guard is not None:
            kept = self.value(guard, frame.scope)
            value = self.where(kept, self.text.short(value, let.name), plain(0, "real"), frame.scope, value.dtype)
        self.text.assign(variable, self.finished(let, value, clause, {}))
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])

    def unless_keyless(self, let: ir.Let, attend: Attend, frame: Frame, value: Value) -> Value:
        """The rows of an attention that is a quotient: NaN where there are no keys at all."""
        some = self.value(has_keys(attend.attention), frame.scope)
        value = self.text.named(value, f"{let.name}_rows")
        return value.but(Ternary(value.code, some.code, infix("+", value.code, NAN)))

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
            self.refuse_once(infix("==", length, 0), "IX310", "`mean` over no points has no value")
        given = (norm.gain, norm.bias) if norm.centred else (norm.gain,)
        beside = [None if part is None else self.value(part, scope) for part in given]
        codes = [NONE if part is None else self.strong(self.real(part)).code for part in beside]
        code = call(f"torch.nn.functional.{norm.kernel}", x.code, (length,), *codes, constant(norm.eps).code)
        variable = self.text.fresh(let.name)
        value = self.turned(x.but(code, axes=axes), scope.order)
        self.text.assign(variable, self.finished(let, value, clause, {}))
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])

    def intervals(self, let: ir.Let, attend: Attend, frame: Frame, tiles: bool) -> Value:
        """Each query with its intervals of keys, computed from the guard by arithmetic; over few pairs, by a mask."""
        learned = self.learned(let, attend, frame) if tiles else []
        if not learned:
            return self.unlearned(let, attend, frame, tiles)
        variable = self.text.fresh(f"{let.name}_rows")
        self.text.add("if", call(self.text.helper("learns"), *learned))
        with self.block():
            streamed = self.stream(let, attend, frame)
            self.text.assign(variable, streamed.code)
        self.text.add("else")
        with self.block():
            result = self.unlearned(let, attend, frame, tiles)
            self.text.assign(variable, self.turned(result, streamed.axes).code)
        return streamed.but(Name(variable))

    def unlearned(self, let: ir.Let, attend: Attend, frame: Frame, tiles: bool) -> Value:
        """The same where the bias of the scores needs no gradient."""
        taken = self.kernel_operands(let, attend, frame)
        few = self.few(attend, frame)
        if few is None:
            return self.restored(self.meeting(let, attend, frame, tiles, taken).code(), let, attend, frame)
        variable = self.text.fresh(f"{let.name}_heard")
        self.text.add("if", few)
        with self.block():
            self.text.assign(variable, self.masked_call(let, attend, frame, taken, "attend_masked").code())
        self.text.add("else")
        with self.block():
            self.text.assign(variable, self.meeting(let, attend, frame, tiles, taken).code())
        return self.restored(Name(variable), let, attend, frame)

    def stream(self, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """An online softmax over blocks of keys, for scores of any kind."""
        self.kernels.setdefault("torch_stream", set()).add("streaming")
        key, carry = attend.attention.coordinate, attend.layout.carry
        guard = () if self.is_hull(attend) else attend.attention.guard
        stream = Stream(self, let, attend, frame.batch, frame.row, attend.attention.score, guard)
        name = stream.write()
        if stream.one_way is not None and stream.learned():
            # Refused before it is computed, so that the plain lowering runs, which has a gradient.
            wanted = call(self.text.helper("learns"), *stream.learned())
            self.text.refuse(wanted, "IX218", stream.one_way)
        value = self.text.short(self.real(self.heard_value(attend.attention.value, frame.heard)), let.name)
        if value.dtype != self.dtypes[let.name]:
            value = self.text.dialect.cast(self.strong(value), self.dtypes[let.name])
        axes = (*frame.batch, key, *carry)
        answers = self.spread(self.turned(value, axes), axes, frame.scope).code
        if not carry:
            answers = fill("{x}[..., None]", x=answers)
        elif len(carry) > 1:
            answers = method(answers, "flatten", -len(carry))
        few = self.few_scores(attend, frame)
        if few is None:
            code = self.streamed(name, stream, answers, attend, frame)
        else:
            variable = self.text.fresh(f"{let.name}_heard")
            self.few_or_streamed(few, variable, name, stream, answers, attend, frame)
            code = Name(variable)
        axes = (*frame.batch, *(() if frame.row is None else (frame.row,)), *carry)
        if frame.row is None or len(carry) != 1:
            code = method(code, "reshape", self.shape(axes, frame.scope))
        return Value(code, axes, "real", self.dtypes[let.name])

    def few_or_streamed(
        self, few: Node, variable: str, name: str, stream: Stream, answers: Node, attend: Attend, frame: Frame
    ) -> None:
        """Few scores at once, where each of them is finite because both sides take part; else the stream."""
        heard = self.all_heard(attend, frame)
        allowed: Node | None = None
        test = few if heard in (None, TRUE) else Infix("and", heard, few)
        if heard is None:
            self.kernels.setdefault("torch_masked", set()).add("all_take_part")
            mask, small = self.text.fresh("allowed"), self.text.fresh("few")
            self.text.update(small, few)
            self.text.add("if", Name(small))
            with self.block():
                self.text.assign(mask, self.allowed_pairs(stream, attend, *self.inside(stream)))
                self.text.update(small, call("all_take_part", mask))
            allowed, test = Name(mask), Name(small)
        self.kernels.setdefault("torch_masked", set()).add("attend_scores")
        self.text.add("if", test)
        with self.block():
            inner, scope = self.inside(stream)
            allowed = allowed or self.allowed_pairs(stream, attend, inner, scope)
            scores = self.scored(stream, attend, inner, scope)
            self.text.assign(variable, call("attend_scores", scores, answers, *(() if allowed is None else (allowed,))))
        self.text.add("else")
        with self.block():
            self.text.assign(variable, self.streamed(name, stream, answers, attend, frame))

    def streamed(self, name: str, stream: Stream, answers: Node, attend: Attend, frame: Frame) -> Node:
        """The call of a stream."""
        bounds = [self.hull_of(op, attend, frame) for op in ("min", "max")]
        return call(name, List(tuple(stream.arguments)), answers, *bounds)
