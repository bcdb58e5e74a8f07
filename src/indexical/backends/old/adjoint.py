"""The backward pass of a tile's scores: from their cotangent to the gradient of every array they read."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ...ir import build
from ...ir import nodes as ir
from ...ir.algebra.safety import is_open
from ...ir.conditions import negated
from ...ir.walk import rebuild, walk
from ...records import replace
from ...transform.slopes import partials
from . import arrays, binding, indexing
from .base import Value
from .code import Name, call, fill, infix, method
from .lowering import Lowering, Stored
from .scope import Scope
from .values import aligned


class Undifferentiable(Exception):
    """A score cannot be differentiated here: why."""


class Adjoint:
    """Emits what is added to `gradients[n]`, for the arrays of these names. Where one of the `guards` fails that is 0,
    whatever slopes are there."""

    def __init__(self, low: Lowering, names: list[str], guards: Sequence[ir.Expr] = ()) -> None:
        self.low, self.names, self.guards = low, names, tuple(guards)
        self.made: dict[str, tuple[ir.Expr, ir.Expr]] = {}

    def forward(self, expr: ir.Expr, scope: Scope, needed: bool = False) -> ir.Expr:
        """The expression with every sum and every function in it whose value the backward pass needs computed once,
        under a name."""
        if not self.is_reached(expr):
            return expr
        match expr:
            case ir.Map("+" | "-" | "neg" as op, arguments):
                parts = tuple(self.forward(argument, scope, needed) for argument in arguments)
                return build.apply(op, parts, "real", expr.span)
            case ir.Map("*" | "/" as op, (left, right)):
                both = needed or (self.is_reached(left) and self.is_reached(right))
                return build.apply(
                    op, (self.forward(left, scope, both), self.forward(right, scope, both)), "real", expr.span
                )
            case ir.Map(op, arguments):
                parts = tuple(self.forward(argument, scope, True) for argument in arguments)
                inner: ir.Expr = build.apply(op, parts, "real", expr.span)
            case ir.Select(condition, then, otherwise):
                branches = self.forward(then, scope, needed), self.forward(otherwise, scope, needed)
                return build.select(condition, *branches, expr.span)
            case ir.Reduce("sum") if needed:
                inner = expr
            case _:
                return expr
        value = self.low.value(inner, scope)
        read = pretend(self.low, self.low.text.keep(value, self.low.label), expr.span)
        assert isinstance(read, ir.Read)
        self.made[read.tensor] = (inner, read)
        return read

    def flow(self, expr: ir.Expr, gradient: ir.Expr, scope: Scope) -> None:
        """Add to the gradient of every array the share of an expression whose cotangent is `gradient`."""
        if not self.is_reached(expr):
            return
        match expr:
            case ir.Read(tensor) if tensor in self.made:
                self.flow_through(*self.made[tensor], gradient, scope)
            case ir.Read():
                self.arrive(expr, gradient, scope)
            case ir.Map():
                if sum(map(self.is_reached, expr.arguments)) > 1:
                    gradient = self.named(gradient, scope)
                for argument, partial in zip(expr.arguments, partials(expr), strict=True):
                    if partial is not None:
                        self.flow(argument, self.times(gradient, partial), scope)
            case ir.Select(condition, then, otherwise):
                zero = build.real(Fraction(0), expr.span)
                around = self.guards
                self.guards = (*around, condition)
                self.flow(then, build.select(condition, gradient, zero, expr.span), scope)
                self.guards = (*around, negated(condition))
                self.flow(otherwise, build.select(condition, zero, gradient, expr.span), scope)
                self.guards = around
            case ir.Reduce("sum", ranges, body, guard):
                gradient = self.named(gradient, scope)
                inner = binding.bind(self.low, ranges, scope)
                if guard is not None:
                    gradient = build.select(guard, gradient, build.real(Fraction(0), expr.span), expr.span)
                self.flow(body, gradient, inner)
            case ir.Reduce("mean", ranges, body, None):
                for range in ranges:
                    count = build.apply("-", (range.upper, range.lower), "whole", range.span)
                    gradient = build.apply("/", (gradient, count), "real", range.span)
                self.flow(build.reduce("sum", ranges, body, None, "real", expr.span), gradient, scope)
            case ir.Reduce(op=op) | ir.Normalize(op=op):
                raise Undifferentiable(f"`{op}` inside a score has no way back here")
            case _:
                pass

    def flow_through(self, inner: ir.Expr, read: ir.Expr, gradient: ir.Expr, scope: Scope) -> None:
        """Propagate through a value that was computed before: where its derivative has the value in it, it is read."""
        if not isinstance(inner, ir.Map):
            self.flow(inner, gradient, scope)
            return
        for argument, partial in zip(inner.arguments, partials(inner), strict=True):
            if partial is not None:
                self.flow(argument, self.times(gradient, _replaced(partial, inner, read)), scope)

    def times(self, gradient: ir.Expr, partial: ir.Expr) -> ir.Expr:
        """A cotangent times a slope; 0 where a guard fails, if the slope may be infinite there."""
        product = _times(gradient, partial)
        by_place = any(is_open(part) and not any(isinstance(p, ir.Read) for p in walk(part)) for part in walk(partial))
        asked = [fact for fact in self.guards if by_place or fact.type.coordinates <= partial.type.coordinates]
        guard = build.conjunction(asked)
        if guard is None or not self.may_be_infinite(partial):
            return product
        return build.select(guard, product, build.real(Fraction(0), product.span), product.span)

    def may_be_infinite(self, expr: ir.Expr) -> bool:
        """Whether something in an expression may be infinite for finite arguments: an exponential, a quotient."""
        for part in walk(expr):
            match part:
                case ir.Read(tensor) if tensor in self.made:
                    if self.may_be_infinite(self.made[tensor][0]):
                        return True
                case _ if is_open(part):
                    return True
        return False

    def is_reached(self, expr: ir.Expr) -> bool:
        """Whether an expression reads an array of reals."""
        reals = (part for part in walk(expr) if isinstance(part, ir.Read) and part.type.kind == "real")
        return any(read.tensor in self.made or read.tensor in self.names for read in reals)

    def named(self, gradient: ir.Expr, scope: Scope) -> ir.Expr:
        """A cotangent that is used several times, under a name of its own."""
        if isinstance(gradient, ir.Read):
            return gradient
        value = self.low.text.keep(self.low.value(gradient, scope), "flow")
        return pretend(self.low, value, gradient.span)

    def arrive(self, read: ir.Read, gradient: ir.Expr, scope: Scope) -> None:
        """A gradient reaches an array: it is summed over all that the array does not vary with."""
        low, text = self.low, self.low.text
        mine = frozenset(read.type.coordinates)
        over = [c for c in scope.places if c in gradient.type.coordinates and c not in mine]
        outer = Scope({c: place for c, place in scope.places.items() if c in mine}, scope.trail)
        if over:
            ranges = tuple(ir.Range(c, scope.places[c].start, scope.places[c].stop, True, read.span) for c in over)
            gradient = build.reduce("sum", ranges, gradient, None, "real", read.span)
        target = fill("gradients[{n}]", n=self.names.index(read.tensor))
        text.add("if", infix("is not", target, None))
        with low.block():
            value = low.value(gradient, outer)
            axes = outer.sort(mine)
            extents = [axis.extent for axis in low.tensors[read.tensor].axes]
            bare = all(isinstance(index, ir.Coord) for index in read.indices)
            inside = (low.prover.is_inside(i, e, outer, False) for i, e in zip(read.indices, extents, strict=True))
            if bare and len(set(read.indices)) == len(read.indices) and all(inside):
                base = Value(target, (), "real", None)
                view = indexing.at(low, base, list(read.indices), extents, "", outer) if read.indices else base
                text.do(method(view.code, "add_", aligned(value, axes).code))
                return
            around = replace(outer, trail=low.prover.projected(scope, mine).trail)
            lead = self.led(read, extents, outer)
            base = Value(target, (), "real", None)
            view = indexing.at(low, base, list(read.indices[:lead]), extents[:lead], "", outer) if lead else base
            places = [arrays.as_array(low, low.value(index, around)) for index in read.indices[lead:]]
            # A pair that the guards remove adds 0, whatever its index is.
            at = tuple(aligned(place, axes[lead:]).code for place in places)
            whole = arrays.broadcast(low, value, axes, outer)
            text.do(call(text.helper("add_at"), view.code, at, whole.code))

    def led(self, read: ir.Read, extents: list[ir.Expr], scope: Scope) -> int:
        """The number of leading axes indexed by the first coordinates in order, each used for no other axis."""
        axes = scope.sort(read.type.coordinates)
        count = 0
        for index, extent, axis in zip(read.indices, extents, axes, strict=False):
            rest = build.varying((*read.indices[:count], *read.indices[count + 1 :]))
            alone = isinstance(index, ir.Coord) and index.coordinate == axis and axis not in rest
            if not alone or not self.low.prover.is_inside(index, extent, scope, False):
                break
            count += 1
        return min(count, len(read.indices) - 1)


def pretend(low: Lowering, value: Value, span: object) -> ir.Expr:
    """A value that is there, as a read of a tensor of its own."""
    if not value.is_named:
        value = low.text.named(value, "part")
    assert isinstance(value.code, Name)
    variable = value.code.text
    name = f"{variable}'"  # No tensor of a program is called so, whatever variable has it.
    zero = build.whole(0, span)  # type: ignore[arg-type]
    axes = tuple(ir.Axis(axis, zero) for axis in value.axes)
    low.tensors = {**low.tensors, name: ir.Input(name, axes, "real", None, span)}  # type: ignore[arg-type]
    low.stored[name] = Stored(variable, value.dtype)
    low.pretended[name] = value.axes
    return build.read(name, tuple(build.coord(axis, span) for axis in value.axes), "real", span)  # type: ignore[arg-type]


def _replaced(expr: ir.Expr, old: ir.Expr, new: ir.Expr) -> ir.Expr:
    return new if expr == old else rebuild(expr, lambda child: _replaced(child, old, new))


def _times(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    if isinstance(right, ir.Const) and right.value == 1:
        return left
    if isinstance(right, ir.Const) and right.value == -1:
        return build.apply("neg", (left,), "real", left.span)
    return build.apply("*", (left, right), "real", left.span)
