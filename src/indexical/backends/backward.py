"""The gradients of an attention → a call of its kernel's backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..plan.steps import Attend, Gradient, Step, Target
from ..plan.target import FUSED, TILES
from .base import Value
from .code import Attribute, Name, Node, call, infix
from .frames import Frame
from .fused import Fused
from .intervals import Intervals, KernelCall, Operands
from .state import Stored
from .values import permuted


@dataclass
class Backward(Fused, Intervals):
    """All gradients of one attention at once, on a forward pass that is computed again. While it is `quiet`, no
    definition is announced by its line."""

    quiet: bool = False

    def begin(self, let: ir.Let, covered: Sequence[ir.Let] = ()) -> None:
        if self.quiet:
            self.speak_of(let)
        else:
            super().begin(let, covered)

    def flow_back(self, step: Step, gradient: Gradient) -> None:
        """The gradients that are wanted. Where these are to be differentiated again they are computed as they are
        written: a kernel has no second derivative."""
        let, attend = self.lets[gradient.forward], gradient.attend
        targets = {side: t for side, t in self._sides(gradient).items() if t is not None}
        members = [self.lets[target.definition] for target in targets.values()]
        order = [item.name for item in self.program.order if isinstance(item, ir.Once)]
        covered = [self.lets[name] for name in order if name in step.covers]
        spoken = [m for m in self.program.lets if m in members or m in covered]
        self.begin(members[0], [m for m in spoken if not m.hidden and m is not members[0]])
        self.speak_of(let)
        frame = self.frame(let, attend)
        variables = {side: self.text.fresh(target.definition) for side, target in targets.items()}
        again = self._again(attend, gradient)
        if again:
            self.text.add("if", call(self.text.helper("learns"), *again))
            with self.block():
                self._plainly(covered, {variables[side]: self.lets[t.definition] for side, t in targets.items()})
            self.text.add("else")
            with self.block():
                self._kernel_back(let, gradient, frame, variables)
        else:
            self._kernel_back(let, gradient, frame, variables)
        for side, target in targets.items():
            self.stored[target.definition] = Stored(variables[side], self.dtypes[target.definition])

    def _sides(self, gradient: Gradient) -> dict[str, Target | None]:
        return {"query": gradient.query, "key": gradient.key, "value": gradient.value}

    def _again(self, attend: Attend, gradient: Gradient) -> list[str]:
        """The arrays that it reads, some of which may require a gradient."""
        parts = (attend.attention.score, attend.attention.value, gradient.arriving)
        names = dict.fromkeys(
            read.tensor
            for part in parts
            for read in walk(part)
            if isinstance(read, ir.Read) and read.type.kind == "real"
        )
        stored = [self.stored[name] for name in names if name not in self.weak]
        return [found.variable for found in stored if not found.python]

    def _plainly(self, covered: list[ir.Let], members: dict[str, ir.Let]) -> None:
        """The relations as they are written, one after the other."""
        stored, self.quiet = dict(self.stored), True
        for let in covered:
            self.define(let)
        for variable, let in members.items():
            self.speak_of(let)
            clause = let.clauses[0]
            value = self.clause_value(let, clause, {})
            self.text.assign(variable, self.finished(let, value, clause, {}).code)
        self.stored, self.quiet = stored, False

    def _kernel_back(self, let: ir.Let, gradient: Gradient, frame: Frame, variables: dict[str, str]) -> None:
        """The kernel's own backward pass."""
        attend = gradient.attend
        taken = self.kernel_operands(let, attend, frame)
        carry = attend.layout.carry
        arriving = self.operand(gradient.arriving, frame.row, carry, frame, let)
        sides = self._sides(gradient)
        dot = attend.scores.dot
        assert dot is not None
        assert frame.row is not None
        compared = tuple(r.coordinate for r in dot.compared)
        key = attend.attention.coordinate
        axes = {"query": (frame.row, compared), "key": (key, compared), "value": (key, carry)}
        names = {side: self.text.fresh(f"d_{side}") if target else "_" for side, target in sides.items()}
        finished: dict[str, Node] = {}
        for side, target in sides.items():
            if target is not None:
                value = self._restored(Name(names[side]), frame, *axes[side], let)
                if side == "query" and dot.scale is not None and self.is_scaled_before(attend):
                    value = self._scaled(value, dot.scale, frame)
                code = self._finished(value, target)
                if code == Name(names[side]):
                    names[side] = variables[side]
                else:
                    finished[variables[side]] = code
        few = self.few(attend, frame)
        if few is not None:
            self.text.add("if", few)
            with self.block():
                met = self.masked_call(let, attend, frame, taken, "attend_masked_backward")
                self.text.unpack(list(names.values()), met.code(arriving))
            self.text.add("else")
            with self.block():
                self.text.unpack(list(names.values()), self._met(let, gradient, frame, taken).code(arriving))
        else:
            self.text.unpack(list(names.values()), self._met(let, gradient, frame, taken).code(arriving))
        for variable, code in finished.items():
            self.text.assign(variable, code)

    def _met(self, let: ir.Let, gradient: Gradient, frame: Frame, taken: Operands) -> KernelCall:
        attend = gradient.attend
        if gradient.kernel != FUSED:
            met = self.meeting(let, attend, frame, gradient.kernel == TILES, taken)
            return replace(met, function=Attribute(met.function, "backward"))
        self.kernels.setdefault("torch_backward", set()).add("attend_backward")
        scale, operands = taken
        return KernelCall(Name("attend_backward"), operands, keywords=self.scaling(attend, scale))

    def _restored(
        self, code: Node, frame: Frame, row: Coordinate, columns: tuple[Coordinate, ...], let: ir.Let
    ) -> Value:
        """A gradient of an operand with the axes of what the operand was made of."""
        code = self.unfolded_columns(self.unfolded_batch(code, frame), columns, frame)
        return Value(code, (*frame.batch, row, *columns), "real", self.dtypes[let.name])

    def _scaled(self, value: Value, scale: ir.Expr, frame: Frame) -> Value:
        factor = self.text.short(self.value(scale, frame.scope), "scale")
        return value.but(infix("*", value.code, factor.code))

    def _finished(self, value: Value, target: Target) -> Node:
        """A gradient with the axes and the dtype of the definition that it is."""
        value = permuted(value, tuple(value.axes[n] for n in target.order), self.text)
        dtype = self.dtypes[target.definition]
        return (value if value.dtype == dtype else self.cast_to(value, dtype)).code
