"""What flows back through an attention → a call of its kernel's way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..plan.choose import FUSED, TILES
from ..plan.steps import Attend, Gradient, Step, Target
from .base import PRODUCT, Value
from .frames import Frame
from .fused import Fused
from .intervals import Intervals, Meeting
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
            self.text.line(f"if {self.text.helper('learns')}({', '.join(again)}):")
            with self.block():
                self._plainly(covered, {variables[side]: self.lets[t.definition] for side, t in targets.items()})
            self.text.line("else:")
            with self.block():
                self._kernel_back(let, gradient, frame, variables)
        else:
            self._kernel_back(let, gradient, frame, variables)
        for side, target in targets.items():
            self.stored[target.definition] = Stored(variables[side], self.dtypes[target.definition])

    def _sides(self, gradient: Gradient) -> dict[str, Target | None]:
        return {"query": gradient.query, "key": gradient.key, "value": gradient.value}

    def _again(self, attend: Attend, gradient: Gradient) -> list[str]:
        """The arrays that flow in, of which some may want a gradient."""
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
            self.text.line(f"{variable} = {self.finished(let, value, clause, {}).text}")
        self.stored, self.quiet = stored, False

    def _kernel_back(self, let: ir.Let, gradient: Gradient, frame: Frame, variables: dict[str, str]) -> None:
        """The kernel's own way back."""
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
        finished: dict[str, str] = {}
        for side, target in sides.items():
            if target is not None:
                value = self._restored(names[side], frame, *axes[side], let)
                if side == "query" and dot.scale is not None and self.is_scaled_before(attend):
                    value = self._scaled(value, dot.scale, frame)
                shown = self._finished(value, target)
                if shown == names[side]:
                    names[side] = variables[side]
                else:
                    finished[variables[side]] = shown
        few = self.few(attend, frame)
        if few is not None:
            self.text.line(f"if {few}:")
            with self.block():
                met = self.masked_call(let, attend, frame, taken, "attend_masked_backward")
                self._back(names, arriving, met)
            self.text.line("else:")
            with self.block():
                self._back(names, arriving, self._met(let, gradient, frame, taken))
        else:
            self._back(names, arriving, self._met(let, gradient, frame, taken))
        for variable, shown in finished.items():
            self.text.line(f"{variable} = {shown}")

    def _back(self, names: dict[str, str], arriving: str, met: Meeting) -> None:
        call = f"{met.function}({', '.join((arriving, *met.operands, met.words))})"
        self.text.line(f"{', '.join(names.values())} = {call}")

    def _met(self, let: ir.Let, gradient: Gradient, frame: Frame, taken: tuple[str, tuple[str, str, str]]) -> Meeting:
        attend = gradient.attend
        if gradient.kernel != FUSED:
            met = self.meeting(let, attend, frame, gradient.kernel == TILES, taken)
            return Meeting(f"{met.function}.backward", met.operands, met.words)
        self.kernels.setdefault("torch_backward", set()).add("attend_backward")
        causal = "is_causal=True, " if attend.shape == "causal" else ""
        return Meeting("attend_backward", taken[1], f"{causal}scale={taken[0]}")

    def _restored(
        self, text: str, frame: Frame, row: Coordinate, columns: tuple[Coordinate, ...], let: ir.Let
    ) -> Value:
        """A gradient of an operand with the axes of what the operand was made of."""
        batch = frame.batch
        value = Value(text, (*batch, row, *columns), "real", self.dtypes[let.name])
        if len(batch) < 2:
            value = value.but(text=f"{value.atom}[0, 0]" if not batch else f"{value.atom}[0]")
        elif len(batch) > 2:
            value = value.but(text=f"{value.atom}.unflatten(0, {self.shape(batch[:-1], frame.scope)})")
        if not columns:
            value = value.but(text=f"{value.atom}[..., 0]")
        elif len(columns) > 1:
            value = value.but(text=f"{value.atom}.unflatten(-1, {self.shape(columns, frame.scope)})")
        return value

    def _scaled(self, value: Value, scale: ir.Expr, frame: Frame) -> Value:
        factor = self.text.short(self.value(scale, frame.scope), "scale")
        return value.but(text=f"{value.atom} * {factor.within(PRODUCT + 1)}", binds=PRODUCT)

    def _finished(self, value: Value, target: Target) -> str:
        """A gradient with the axes and the dtype of the definition that it is."""
        value = permuted(value, tuple(value.axes[n] for n in target.order), self.text)
        dtype = self.dtypes[target.definition]
        return (value if value.dtype == dtype else self.cast_to(value, dtype)).text
