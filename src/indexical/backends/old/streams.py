"""The functions that a stream calls for each of its tiles."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.algebra.factors import Factor, factors_of, product_of
from ...ir.types import Coordinate
from ...ir.walk import rebuild, renamed_apart
from ...plan.steps import Free, Softpick
from . import arrays, binding, operands
from .adjoint import Adjoint, Undifferentiable, pretend
from .base import Text, Value
from .code import ALL, NONE, ZERO, Name, Node, String, call, fill
from .lowering import Lowering, Stored
from .scope import Scope
from .tiles import Function, Tile, attention_of
from .values import spaced


class Stream(Tile):
    """Scores, guard and backward pass of one attention, tile by tile, over the arrays that they read. `one_way` says
    why there is no backward pass, where there is none."""

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
        self.outer.kernels.setdefault("torch_stream", set()).add("streaming")
        functions = [self.scores(), self.way_back()]
        if self.rest:
            functions.append(self.allowed())
        attend = self.outer.text.fresh(f"attend_{self.let.name}")
        self.emit(functions)
        names = [function.name for function in functions]
        normaliser = self.attend.attention.normaliser
        more: dict[str, Node] = {"free": Name("True")} if self.free else {}
        if isinstance(normaliser, Softpick):
            more = {"picked": String(normaliser.origin)}
        self.outer.functions.append(attention_of(attend, "streaming", *names, **more))
        return attend

    @property
    def free(self) -> bool:
        """Whether scores are the weights themselves."""
        return isinstance(self.attend.attention.normaliser, Free)

    def opening(self, used: set[str]) -> Text:
        opening = Text(self.outer.text.dialect)
        if self.row is not None and used & {"r0", "r1"}:
            opening.unpack(["r0", "r1"], "rows")
        if used & {"k0", "k1"}:
            ends = (self.key_at(fill("keys[0]")), self.key_at(fill("keys[1]")))
            opening.unpack(["k0", "k1"], "keys" if self.first == ZERO else ends)
        return opening

    def function(self, name: str, about: str, body: Text, *more: str) -> Function:
        return Function(name, ("arrays", "rows", "keys", *more), about, self.opening(body.used), body)

    def begin(self) -> tuple[Lowering, Scope]:
        low, scope = self.lowering(self.windows())
        return low, scope

    def tiled(self, value: Value, low: Lowering, scope: Scope) -> Node:
        """A value of the tile with all its axes."""
        value = arrays.broadcast(
            low, arrays.in_order(low, arrays.as_array(low, value), self.axes), self.axes, scope
        )
        return value.code if self.row is not None else fill("{x}[..., None, :]", x=value.code)

    def scaled(
        self, expr: ir.Expr, low: Lowering, scope: Scope, made: dict[str, tuple[ir.Expr, ir.Expr]]
    ) -> ir.Expr:
        """The score with plain factors of a dot product moved to the query's side: it has fewer points than the tile.
        `made` says what the names that stand for it are made of."""
        factors = factors_of(expr)
        sums = [f for f in factors if isinstance(f.expr, ir.Reduce) and f.expr.op == "sum" and not f.inverse]
        plain = [f for f in factors if f not in sums]
        if len(sums) == 1 and plain and all(not f.expr.type.coordinates for f in plain):
            found = self.scaled_sum(sums[0].expr, plain, low, scope, made)
            if found is not None:
                return found
        if isinstance(expr, ir.Map):
            return rebuild(expr, lambda child: self.scaled(child, low, scope, made))
        return expr

    def scaled_sum(
        self,
        dot: ir.Expr,
        plain: list[Factor],
        low: Lowering,
        scope: Scope,
        made: dict[str, tuple[ir.Expr, ir.Expr]],
    ) -> ir.Expr | None:
        assert isinstance(dot, ir.Reduce)
        key = self.attend.attention.coordinate
        sides = factors_of(dot.body)
        asks = [side for side in sides if isinstance(side.expr, ir.Read) and key not in side.expr.type.coordinates]
        if not asks or len(sides) < 2 or asks[0].inverse:
            return None
        scale = operands.plain_scale(self.outer, product_of(plain, dot))
        if scale is None:
            return None
        name = low.text.fresh("scale")
        low.text.assign(name, scale)
        low.stored[name] = Stored(name, None, True)
        factor = build.read(name, (), "real", dot.span)
        larger = build.apply("*", (asks[0].expr, factor), "real", dot.span)
        inner = binding.bind(low, dot.ranges, scope)
        value = low.value(larger, inner)
        if not asks[0].expr.type.coordinates.isdisjoint(inner.places) and self.row in value.axes:
            value = value.but(call(low.text.helper("turned"), value.code))
        value = low.text.keep(value, "asked")
        read = pretend(low, value, dot.span)
        assert isinstance(read, ir.Read)
        made[read.tensor] = (larger, read)
        rest = [Factor(read, False), *(side for side in sides if side is not asks[0])]
        return build.reduce("sum", dot.ranges, product_of(rest, dot), dot.guard, "real", dot.span)

    def scores(self) -> Function:
        low, scope = self.begin()
        score = renamed_apart(self.attend.attention.score, {c.name for c in scope.places})
        inside = self.kept(scope)
        score = self.scaled(score, low, inside, {})
        value = arrays.as_real(low, low.value(score, inside))
        if isinstance(score, ir.Read):
            value = value.but(low.text.dialect.copy(value.code))
        low.text.give(self.tiled(value, low, scope))
        name = self.outer.text.fresh(f"{self.let.name}_score")
        return self.function(name, "The scores of some rows against some keys.", low.text)

    def allowed(self) -> Function:
        low, scope = self.begin()
        mask = arrays.conjunction(low, binding.masks(low, (), build.conjunction(self.rest), scope), scope)
        assert mask is not None
        mask = arrays.in_order(low, arrays.as_array(low, mask), tuple(a for a in self.axes if a in mask.axes))
        slots: list[Node] = [ALL if axis in mask.axes else NONE for axis in self.axes]
        if self.row is None:
            slots.insert(-1, NONE)
        low.text.give(spaced(mask.code, slots))
        name = self.outer.text.fresh(f"{self.let.name}_allowed")
        return self.function(name, "A mask of the keys that the rows attend to.", low.text)

    def guards(self, scope: Scope) -> list[ir.Expr]:
        """The guards of weights: at pairs that they remove a slope may be infinite, and 0 times it is not 0."""
        taken = {c.name for c in scope.places}
        return [renamed_apart(fact, taken) for fact in self.attend.attention.guard]

    def way_back(self) -> Function:
        low, scope = self.begin()
        low.text.checks = False
        name = self.outer.text.fresh(f"{self.let.name}_score_backward")
        about = "Add the gradient of the scores to the gradients of the arrays; None for one that wants none."
        about += " Then the scores." if self.free else ""
        score = renamed_apart(self.attend.attention.score, {c.name for c in scope.places})
        arriving = Value(Name("d_score"), self.axes, "real", low.compute)
        if self.row is None:
            low.text.assign("d_score", fill("d_score[..., 0, :]"))
        try:
            inside = self.kept(scope)
            adjoint = Adjoint(low, self.names, self.guards(scope))
            score = self.scaled(score, low, inside, adjoint.made)
            score = adjoint.forward(score, inside, self.free)
            adjoint.flow(score, pretend(low, arriving, self.let.span), inside)
            if self.free:
                low.text.give(self.tiled(arrays.as_real(low, low.value(score, inside)), low, scope))
        except Undifferentiable as problem:
            self.one_way = str(problem)
            body = Text(self.outer.text.dialect)
            body.add("raise", call("NotImplementedError", String(self.one_way)))
        else:
            body = low.text
            if not body.needed:
                body.do(Name("pass"))
        return self.function(name, about, body, "d_score", "gradients")
