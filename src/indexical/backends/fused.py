"""Attention by the library's own fused kernel."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.types import Coordinate
from ..plan.steps import Attend
from .base import Value
from .code import Call, Infix, Name, Node, chain, infix, method
from .frames import Frame, Framed
from .scope import Place, Scope


class Fused(Framed):
    """`scaled_dot_product_attention`, heads that share keys included."""

    def fused(self, let: ir.Let, attend: Attend, frame: Frame) -> Value:
        """The library's own kernel."""
        dot = attend.scores.dot
        assert dot is not None
        scale, query = self.scale(attend, frame)
        compared = tuple(range.coordinate for range in dot.compared)
        groups = self.grouped(attend, frame)
        q = self.operand(query, frame.row, compared, frame, let)
        keywords = self.scaling(attend, scale)
        kernel = Name(self.text.helper("attend"))
        library = self.text.dialect.attention
        if groups is not None:
            shared, test, key, answer = groups
            k = self.operand(key, attend.attention.coordinate, compared, shared, let)
            v = self.operand(answer, attend.attention.coordinate, attend.layout.carry, shared, let)
            variable = self.text.fresh(f"{let.name}_rows")
            self.text.add("if", test)
            with self.block():
                self.text.assign(variable, Call(kernel, (q, k, v), (*keywords, ("enable_gqa", Name("True")))))
            self.text.add("else")
            with self.block():
                k = self.operand(dot.key, attend.attention.coordinate, compared, frame, let)
                v = self.operand(attend.attention.value, attend.attention.coordinate, attend.layout.carry, frame, let)
                self.text.assign(variable, Call(kernel, (q, k, v), keywords))
            return self.restored(Name(variable), let, attend, frame)
        k = self.operand(dot.key, attend.attention.coordinate, compared, frame, let)
        v = self.operand(attend.attention.value, attend.attention.coordinate, attend.layout.carry, frame, let)
        if library is None or not all(isinstance(side, Name) for side in (q, k, v)):
            return self.restored(Call(kernel, (q, k, v), keywords), let, attend, frame)
        # Arrays that the library takes as they are go straight to it: of a small call most is what stands around it.
        variable = self.text.fresh(f"{let.name}_rows")
        self.text.add("if", self._taken_as_they_are(attend, frame, compared, (q, k, v)))
        with self.block():
            self.text.assign(variable, Call(library, (q, k, v), keywords))
        self.text.add("else")
        with self.block():
            self.text.assign(variable, Call(kernel, (q, k, v), keywords))
        return self.restored(Name(variable), let, attend, frame)

    def _taken_as_they_are(
        self, attend: Attend, frame: Frame, compared: tuple[Coordinate, ...], sides: tuple[Node, ...]
    ) -> Node:
        """A test that widths are equal, no array has gaps, and no key is past the last query of a causal call."""
        widths = [self.product_of_lengths(axes, frame.scope) for axes in (compared, attend.layout.carry)]
        tests: list[Node] = [Infix("==", *widths)] if widths[0] != widths[1] else []
        if attend.shape == "causal" and frame.row is not None:
            rows, keys = (self.length(c, frame.scope) for c in (frame.row, attend.attention.coordinate))
            tests += [Infix("<=", keys, rows)] if rows != keys else []
        return chain("and", [*tests, *(method(side, "is_contiguous") for side in sides)])

    def scaling(self, attend: Attend, scale: Node) -> tuple[tuple[str, Node], ...]:
        """The arguments that the library's kernel takes by name."""
        causal = (("is_causal", Name("True")),) if attend.shape == "causal" else ()
        return (*causal, ("scale", scale))

    def grouped(self, attend: Attend, frame: Frame) -> tuple[Frame, Node, ir.Expr, ir.Expr] | None:
        """Heads that share keys and values, `K[b, h / G, j, d]`: the frame of the shared ones, when that is all
        of them, and both sides read at the shared head."""
        dot = attend.scores.dot
        if dot is None or not frame.batch:
            return None
        head = frame.batch[-1]
        found = []
        for expr in (dot.key, attend.attention.value):
            if not isinstance(expr, ir.Read):
                return None
            places = [n for n, index in enumerate(expr.indices) if head in index.type.coordinates]
            match [expr.indices[n] for n in places]:
                case [ir.Map("//", (ir.Coord(), group))] if not group.type.coordinates:
                    found.append((expr, places[0], group, self.tensors[expr.tensor].axes[places[0]].extent))
                case _:
                    return None
        (key, _, group, extent), (_, _, other, other_extent) = found
        if group != other or polynomial(extent) != polynomial(other_extent):
            return None
        place = frame.scope.places[head]
        if not isinstance(place.start, ir.Const) or place.start.value != 0:
            return None
        shared = Coordinate(f"{head.name}_shared")
        scope = frame.scope.binding(
            ir.Range(shared, place.start, extent, False, key.span), Place(place.start, extent, True)
        )
        order = {
            (shared if c == head else c): scope.places[shared if c == head else c] for c in scope.places if c != shared
        }
        inner = Scope(order, scope.trail)
        new = Frame((*frame.batch[:-1], shared), frame.row, inner, Scope(order, (*inner.trail, *frame.heard.trail)))
        test = infix("==", self.number(place.stop), self._times(group, extent))
        read = [_reading(expr, n, shared) for expr, n, _, _ in found]
        return new, test, read[0], read[1]

    def _times(self, group: ir.Expr, extent: ir.Expr) -> Node:
        return self.number(build.apply("*", (group, extent), "whole", extent.span))


def _reading(expr: ir.Read, axis: int, shared: Coordinate) -> ir.Expr:
    indices = tuple(build.coord(shared, index.span) if n == axis else index for n, index in enumerate(expr.indices))
    return build.read(expr.tensor, indices, expr.type.kind, expr.span)
