"""The functions that a stream calls for each of its tiles."""

from __future__ import annotations

from ..ir import build
from ..ir.types import Coordinate
from ..ir.walk import renamed_apart
from .adjoint import Adjoint, Undifferentiable, pretend
from .base import Value
from .scope import Scope
from .tiles import Tile, Windowed


class Stream(Tile):
    """Scores, guard and the way back of one attention, tile by tile, over the arrays that they read."""

    def windows(self) -> dict[Coordinate, tuple[str, str]]:
        rows = {} if self.row is None else {self.row: ("r0", "r1")}
        return rows | {self.attend.attention.coordinate: ("k0", "k1")}

    @property
    def axes(self) -> tuple[Coordinate, ...]:
        rows = () if self.row is None else (self.row,)
        return (*self.batch, *rows, self.attend.attention.coordinate)

    def write(self) -> str:
        """The functions, and the attention they make; its name."""
        functions = [self.scores(), self.way_back()]
        if self.rest:
            functions.append(self.allowed())
        owner = self.owner
        names = [function[0] for function in functions]
        attend = owner.text.fresh(f"attend_{self.let.name}")
        for name, parameters, words, lines in functions:
            head = self.preamble(self._emitter, lines, "arrays")
            text = [f"def {name}({parameters}):", f'    """{words}"""', *head, *self.opening(), *lines]
            owner.functions.append("\n".join(text))
        owner.functions.append(f'{attend} = streaming("{attend}", {", ".join(names)})')
        self.arguments = self.handed()
        return attend

    def opening(self) -> list[str]:
        first = self.owner.number(self.attend.attention.key.lower)
        shift = "" if first == "0" else f"{first} + "
        rows = [] if self.row is None else ["    r0, r1 = rows"]
        return [*rows, f"    k0, k1 = {shift}keys[0], {shift}keys[1]" if shift else "    k0, k1 = keys"]

    def begin(self) -> tuple[Windowed, Scope]:
        emitter, scope = self.emitter(self.windows())
        self._emitter = emitter
        emitter.text.taken |= {"arrays", "rows", "keys", "gradients", "d_score", "r0", "r1", "k0", "k1"}
        return emitter, scope

    def whole(self, value: Value, emitter: Windowed, scope: Scope) -> str:
        """A value of the tile with all its axes."""
        value = emitter.spread(emitter.turned(emitter.strong(value), self.axes), self.axes, scope)
        return value.text if self.row is not None else f"{value.atom}[..., None, :]"

    def scores(self) -> tuple[str, str, str, list[str]]:
        emitter, scope = self.begin()
        score = renamed_apart(self.attend.attention.score, {c.name for c in scope.places})
        value = emitter.real(emitter.value(score, scope))
        lines = [*emitter.text.lines, f"    return {self.whole(value, emitter, scope)}"]
        name = self.owner.text.fresh(f"{self.let.name}_score")
        return name, "arrays, rows, keys", "The scores of some rows against some keys.", lines

    def allowed(self) -> tuple[str, str, str, list[str]]:
        emitter, scope = self.begin()
        mask = emitter.conjunction(emitter.masks((), build.conjunction(self.rest), scope), scope)
        assert mask is not None
        mask = emitter.turned(emitter.strong(mask), tuple(a for a in self.axes if a in mask.axes))
        slots = [":" if axis in mask.axes else "None" for axis in self.axes]
        if self.row is None:
            slots.insert(-1, "None")
        shown = mask.text if set(slots) == {":"} else f"{mask.atom}[{', '.join(slots)}]"
        lines = [*emitter.text.lines, f"    return {shown}"]
        name = self.owner.text.fresh(f"{self.let.name}_allowed")
        return name, "arrays, rows, keys", "Which of some keys are heard by some rows.", lines

    def way_back(self) -> tuple[str, str, str, list[str]]:
        emitter, scope = self.begin()
        name = self.owner.text.fresh(f"{self.let.name}_score_backward")
        parameters = "arrays, rows, keys, d_score, gradients"
        words = "What the gradient of the scores adds to the gradients of the arrays; None for one that wants none."
        score = renamed_apart(self.attend.attention.score, {c.name for c in scope.places})
        arriving = Value("d_score", self.axes, "real", self.owner.dtypes[self.let.name])
        if self.row is None:
            emitter.text.line("d_score = d_score[..., 0, :]")
        try:
            adjoint = Adjoint(emitter, self.names)
            adjoint.flow(adjoint.forward(score, scope), pretend(emitter, arriving, self.let.span), scope)
        except Undifferentiable as problem:
            return name, parameters, words, [f"    raise NotImplementedError({str(problem)!r})"]
        return name, parameters, words, emitter.text.lines or ["    pass"]
