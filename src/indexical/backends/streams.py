"""The functions that a stream calls for each of its tiles."""

from __future__ import annotations

from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import rebuild, renamed_apart
from .adjoint import Adjoint, Undifferentiable, pretend
from .base import Value
from .contraction import Factor, factors_of
from .scope import Scope
from .state import Stored
from .tiles import Tile, Windowed


class Stream(Tile):
    """Scores, guard and the way back of one attention, tile by tile, over the arrays that they read. `one_way` says
    why there is no way back, where there is none."""

    one_way: str | None = None

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
        openings = [[o for o in self.opening() if o.split(",")[0].strip() in "\n".join(f[3])] for f in functions]
        # All functions take the same arrays, so all are looked at before the first is written.
        for _ in range(2):
            written = [
                [*self.preamble(self._emitter, [*opening, *function[3]], "arrays"), *opening]
                for opening, function in zip(openings, functions, strict=True)
            ]
        for (name, parameters, words, lines), head in zip(functions, written, strict=True):
            owner.functions.append("\n".join([f"def {name}({parameters}):", f'    """{words}"""', *head, *lines]))
        owner.functions.append(f'{attend} = streaming("{attend}", {", ".join(names)})')
        self.arguments = self.handed()
        return attend

    def opening(self) -> list[str]:
        first = self.owner.written(self.attend.attention.key.lower)
        shift = "" if first == "0" else f"{first} + "
        rows = [] if self.row is None else ["    r0, r1 = rows"]
        return [*rows, f"    k0, k1 = {shift}keys[0], {shift}keys[1]" if shift else "    k0, k1 = keys"]

    def begin(self) -> tuple[Windowed, Scope]:
        emitter, scope = self.emitter(self.windows())
        self._emitter = emitter
        emitter.text.taken |= {"arrays", "rows", "keys", "gradients", "d_score", "r0", "r1", "k0", "k1"}
        return emitter, scope

    def tiled(self, value: Value, emitter: Windowed, scope: Scope) -> str:
        """A value of the tile with all its axes."""
        value = emitter.spread(emitter.turned(emitter.strong(value), self.axes), self.axes, scope)
        return value.text if self.row is not None else f"{value.atom}[..., None, :]"

    def scaled(
        self, expr: ir.Expr, emitter: Windowed, scope: Scope, made: dict[str, tuple[ir.Expr, ir.Expr]]
    ) -> ir.Expr:
        """The score with plain factors of a dot product moved to the side that asks: it has fewer points than the
        tile. `made` says what the names that stand for it are made of."""
        factors = factors_of(expr)
        sums = [f for f in factors if isinstance(f.expr, ir.Reduce) and f.expr.op == "sum" and not f.inverse]
        plain = [f for f in factors if f not in sums]
        if len(sums) == 1 and plain and all(not f.expr.type.coordinates for f in plain):
            found = self.scaled_sum(sums[0].expr, plain, emitter, scope, made)
            if found is not None:
                return found
        if isinstance(expr, ir.Map):
            return rebuild(expr, lambda child: self.scaled(child, emitter, scope, made))
        return expr

    def scaled_sum(
        self,
        dot: ir.Expr,
        plain: list[Factor],
        emitter: Windowed,
        scope: Scope,
        made: dict[str, tuple[ir.Expr, ir.Expr]],
    ) -> ir.Expr | None:
        assert isinstance(dot, ir.Reduce)
        key = self.attend.attention.coordinate
        sides = factors_of(dot.body)
        asks = [side for side in sides if isinstance(side.expr, ir.Read) and key not in side.expr.type.coordinates]
        if not asks or len(sides) < 2 or asks[0].inverse:
            return None
        divisors: list[str] = []
        scale = self.owner.plain_scale(product_of(plain, dot), divisors)
        if scale is None:
            return None
        name = emitter.text.fresh("scale")
        zero = f" if {' and '.join(divisors)} else math.nan" if divisors else ""
        emitter.text.line(f"{name} = {scale.text}{zero}")
        emitter.stored[name] = Stored(name, None, True)
        factor = build.read(name, (), "real", dot.span)
        larger = build.apply("*", (asks[0].expr, factor), "real", dot.span)
        inner = emitter.bind(dot.ranges, scope)
        value = emitter.text.keep(emitter.value(larger, inner), "asked")
        read = pretend(emitter, value, dot.span)
        assert isinstance(read, ir.Read)
        made[read.tensor] = (larger, read)
        rest = [Factor(read, False), *(side for side in sides if side is not asks[0])]
        return build.reduce("sum", dot.ranges, product_of(rest, dot), dot.guard, "real", dot.span)

    def scores(self) -> tuple[str, str, str, list[str]]:
        emitter, scope = self.begin()
        score = renamed_apart(self.attend.attention.score, {c.name for c in scope.places})
        heard = self.heard(scope)
        score = self.scaled(score, emitter, heard, {})
        value = emitter.real(emitter.value(score, heard))
        if isinstance(score, ir.Read):
            value = value.but(text=emitter.text.dialect.copy(value.atom))
        emitter.text.line(f"return {self.tiled(value, emitter, scope)}")
        lines = emitter.text.lines
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
        emitter.text.line(f"return {shown}")
        lines = emitter.text.lines
        name = self.owner.text.fresh(f"{self.let.name}_allowed")
        return name, "arrays, rows, keys", "Which of some keys are heard by some rows.", lines

    def way_back(self) -> tuple[str, str, str, list[str]]:
        emitter, scope = self.begin()
        emitter.text.checks = False
        name = self.owner.text.fresh(f"{self.let.name}_score_backward")
        parameters = "arrays, rows, keys, d_score, gradients"
        words = "What the gradient of the scores adds to the gradients of the arrays; None for one that wants none."
        score = renamed_apart(self.attend.attention.score, {c.name for c in scope.places})
        arriving = Value("d_score", self.axes, "real", emitter.compute)
        if self.row is None:
            emitter.text.line("d_score = d_score[..., 0, :]")
        try:
            adjoint = Adjoint(emitter, self.names)
            heard = self.heard(scope)
            score = self.scaled(score, emitter, heard, adjoint.made)
            adjoint.flow(adjoint.forward(score, heard), pretend(emitter, arriving, self.let.span), heard)
        except Undifferentiable as problem:
            self.one_way = str(problem)
            return name, parameters, words, [f"    raise NotImplementedError({str(problem)!r})"]
        return name, parameters, words, emitter.text.lines or ["    pass"]


def product_of(factors: list[Factor], like: ir.Expr) -> ir.Expr:
    """Factors as one expression again."""
    result: ir.Expr = build.real(Fraction(1), like.span)
    for n, factor in enumerate(sorted(factors, key=lambda factor: factor.inverse)):
        if n == 0 and not factor.inverse:
            result = factor.expr
        else:
            result = build.apply("/" if factor.inverse else "*", (result, factor.expr), "real", like.span)
    return result
