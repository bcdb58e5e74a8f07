"""The state of one lowering: what the program says, what is lowered so far, and proofs that are remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.asked import asked_where
from ...ir.context import Agreement, Trail, agreed, assume
from ...ir.dtypes import definition_dtypes
from ...ir.poles import Poles, is_positive
from ...ir.prove import Assumptions
from ...ir.removal import removal, removal_through
from ...ir.types import SHORT, Coordinate, Dtype, widest
from ...ir.walk import reads_of, walk
from ...records import replace
from ...source import Span
from ..known import bounds_of
from ..ops import Applied, Axis, Check, Number, Reduce, Value, apply, host, value
from .scope import NOWHERE, Scope

if TYPE_CHECKING:
    from .folds import Found


class Unsupported(Exception):
    """A program that has no array program."""


class Kernel(Protocol):
    """A kernel that the plan chose: what it is called, the tensors that it reads, and what it is as an operation; None
    where the former emitter prints it. `few` is what it is as an operation in calls of few pairs."""

    @property
    def label(self) -> str: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def fold(self) -> Found | None: ...
    @property
    def few(self) -> Found | None: ...


class Lowering:
    """One lowering. `values` are the tensors that are lowered, `carried` those of the recurrence that is lowered now;
    `compute` is the dtype that weak reals take in this definition. `checks`, `spans` and what is `told` become those of
    the plan."""

    def __init__(
        self,
        program: ir.Program,
        dtypes: Mapping[str, Dtype],
        lower: Callable[[Lowering, ir.Expr, Scope], Value],
        isolate: bool,
        differentiable: bool,
    ) -> None:
        self.program, self.given, self._lower = program, dtypes, lower
        self.isolate, self.differentiable = isolate, differentiable
        self.lets, self.tensors = program.definitions, dict(program.tensors)
        self.dtypes, self.weak = definition_dtypes(program, dtypes)
        self.removed: Callable[[ir.Read], ir.Expr | None] = removal_through(self.lets)
        self.poles = Poles(self.lets)
        self.agreement = Agreement(program)
        self.numbers: frozenset[str] = frozenset()
        self.arrays: frozenset[str] = frozenset()
        self.values: dict[str, Value] = {}
        self.carried: dict[str, Value] = {}
        self.kernels: Mapping[str, Kernel] = {}
        self.facts: tuple[ir.Expr, ...] = ()
        self.compute: Dtype | None = None
        self.wanted: tuple[str, ...] = program.outputs
        self.checks: dict[Check, None] = {}
        self.told: dict[Applied, None] = {}
        self.spans: dict[Value, Span] = {}
        self.symbols = 0
        self._canonical = self._canonical_sizes()
        self._homes: dict[str, tuple[Axis, ...]] = {}
        self._assumed: dict[Trail, Assumptions] = {}
        self._inside: dict[tuple[ir.Expr, ir.Expr, Trail], bool] = {}
        self._tested: dict[object, tuple[Value, ...]] = {}  # Of the definition at hand.

    def value(self, expr: ir.Expr, scope: Scope) -> Value:
        """The value of an expression where it is asked."""
        found = self._lower(self, expr, scope)
        self.spans.setdefault(found, expr.span)
        return found

    def number(self, expr: ir.Expr, scope: Scope = NOWHERE) -> ir.Expr:
        """An expression that is a number of the host, as such a number."""
        found = self.value(expr, scope)
        if not isinstance(found.op, Number):
            raise Unsupported(f"`{expr.span.text}` is no number before the arrays are read")
        return found.op.expr

    # ------------------------------------------------------------------ lengths

    def _canonical_sizes(self) -> dict[ir.Expr, ir.Expr]:
        """One size for all that must be equal, so that axes of equal length are alike."""
        result: dict[ir.Expr, ir.Expr] = {}
        for one, other in agreed(self.program):
            one, other = result.get(one, one), result.get(other, other)
            if isinstance(one, ir.Size) and isinstance(other, ir.Size) and one != other:
                result = {size: one if root == other else root for size, root in result.items()} | {other: one}
        return result

    def size(self, expr: ir.Size) -> ir.Expr:
        return self._canonical.get(expr, expr)

    def extent(self, expr: ir.Expr) -> ir.Expr:
        """The number of points of an axis."""
        return self.number(expr)

    def home(self, name: str) -> tuple[Axis, ...]:
        """The axes of a tensor. One that a derivative or a call has renamed is called as its size again, where no other
        is: rules see arrays that are read at their own axes, whatever a program calls these."""
        if name not in self._homes:
            axes = self.tensors[name].axes
            names = [axis.coordinate for axis in axes]
            for n, axis in enumerate(axes):
                if (first := _first_name(axis)) not in names:
                    names[n] = first
            extents = [self.extent(axis.extent) for axis in axes]
            self._homes[name] = tuple(map(Axis, names, extents))
        return self._homes[name]

    def known_so_far(self, *exprs: ir.Expr) -> bool:
        """Whether all that expressions read is lowered."""
        return all(
            part.tensor in self.values for expr in exprs for part in walk(expr) if isinstance(part, ir.Read)
        )

    # ------------------------------------------------------------------- dtypes

    def turn_to(self, let: ir.Let) -> None:
        """Weak reals take the dtype of this definition from here on, or a wider one that it reads."""
        self._tested = {}
        strong = [one.tensor for one in reads_of(let) if one.type.kind == "real" and one.tensor not in self.weak]
        read = [self.dtypes.get(name, self.given.get(name)) for name in strong]
        own = None if let.kind != "real" or let.name in self.weak else self.dtypes[let.name]
        dtype = None if own is None else widest((own, *read))
        self.compute = "f32" if dtype in SHORT else dtype

    def is_carried(self, *exprs: ir.Expr) -> bool:
        """Whether expressions read what the recurrence at hand computes."""
        return bool(self.carried) and any(
            part.tensor in self.carried for expr in exprs for part in walk(expr) if isinstance(part, ir.Read)
        )

    # ------------------------------------------------------------------- proofs

    def assumed(self, trail: Trail) -> Assumptions:
        """A trail as facts to reason from."""
        if trail not in self._assumed:
            self._assumed[trail] = assume((*((fact, True) for fact in self.facts), *trail), self.lets)
        return self._assumed[trail]

    def is_inside(self, index: ir.Expr, extent: ir.Expr, trail: Trail) -> bool:
        """Whether an index is in bounds wherever a trail leads."""
        key = (index, extent, trail)
        if key not in self._inside:
            known = self.assumed(trail)
            place, length = polynomial(index, known.constants), polynomial(extent, known.constants)
            self._inside[key] = known.entails(place) and known.entails(length - place - 1)
        return self._inside[key]

    def may_survive_removal(self, expr: ir.Map, scope: Scope) -> bool:
        """Whether a product with a factor that a guard removed may be other than 0: by what the other factors compute,
        or by an input that is not finite. What is gathered with weights is left to `isolate`, and the plan says so."""
        above = expr.arguments if expr.op == "*" else expr.arguments[:1]
        wild = [n for n, one in enumerate(expr.arguments) if self._is_wild(expr, n)]
        beside = [one for n, one in enumerate(above) if wild and wild != [n]]
        found = any(self.removal(one, scope) is not None for one in beside)
        if not found and scope.gathers and any(removal(one, self.removed) is not None for one in beside):
            words = "NaN and infinity may spread (`isolate=True` keeps them apart)"
            self.told[Applied(scope.within or "", expr.span.text, "gather with weights", words)] = None
        return found

    def removal(self, expr: ir.Expr, scope: Scope) -> ir.Expr | None:
        """The condition under which a guard removes an expression, but for weights that values are gathered with."""
        return removal(expr, lambda read: None if read.tensor in scope.gathers else self.removed(read))

    def _is_wild(self, expr: ir.Map, n: int) -> bool:
        """Whether 0 times, or over, an argument may not be 0."""
        if expr.op == "/" and n == 1 and not self.isolate:
            return not is_positive(expr.arguments[1])
        return self.isolate or self.poles.may_be_nonfinite(expr.arguments[n])

    # ------------------------------------------------------------------- guards

    def mask(self, scope: Scope, names: frozenset[Coordinate] | None = None) -> Value | None:
        """The points that are asked for, as a condition; None where all are. With `names`, the points of these axes
        for which some point of all others is asked."""
        near: list[Value] = []
        far: list[Value] = []
        for test in self._tests(scope):
            (near if names is None or test.names <= names else far).append(test)
        beyond = conjunction(far)
        if beyond is not None and names is not None:
            beyond = value(Reduce("any", beyond, tuple(axis for axis in beyond.axes if axis.name not in names)))
        return conjunction([*near, *(() if beyond is None else (beyond,))])

    def _tests(self, scope: Scope) -> tuple[Value, ...]:
        """The facts of a scope as values, each lowered once where those before it hold: what is checked in a fact asks
        for the mask of these again."""
        if not scope.facts:
            return ()
        places = tuple(scope.places.items())
        key = (scope.facts, places, scope.box, scope.bounds, scope.stepped, scope.gathers, scope.within)
        if key not in self._tested:
            before = replace(scope, facts=scope.facts[:-1])
            self._tested[key] = (*self._tests(before), self.value(scope.facts[-1], before))
        return self._tested[key]

    @cached_property
    def _asked(self) -> dict[str, list[ir.Expr]]:
        return asked_where(self.program, self.wanted)

    def asked(self, scope: Scope) -> Scope:
        """The scope where readers of the definition at hand ask for it, too. What they ask of a coordinate says nothing
        where it is bound anew."""
        for fact in self._asked.get(scope.within or "", ()):
            if all(_is_own(scope, coordinate) for coordinate in fact.type.coordinates):
                scope = scope.where(fact)
        return scope

    def is_asked_by(self, coordinate: Coordinate, scope: Scope) -> bool:
        """Whether readers of the definition at hand ask for some points of a coordinate alone."""
        return any(coordinate in fact.type.coordinates for fact in self._asked.get(scope.within or "", ()))

    def check(
        self, condition: Value, code: str, message: str, span: Span, scope: Scope, over: Iterable[Axis] = ()
    ) -> None:
        """Refuse a call in which a condition of host numbers fails, where the scope is asked for at all, and some axes
        have points."""
        for empty in dict.fromkeys(no_points(axis) for axis in over if bounds_of(axis.extent)[0] <= 0):
            condition = either(condition, empty)
        mask = self.mask(scope, frozenset())
        if mask is not None:
            condition = either(condition, negation(mask))
        if not condition.symbols:
            self.checks.setdefault(Check(condition, code, message, span))


def _first_name(axis: ir.Axis) -> Coordinate:
    """What a coordinate was called before it became an `i_1`."""
    own, size = axis.coordinate, axis.extent
    if isinstance(size, ir.Size) and own.rest == size.coordinate.rest and own.startswith(f"{size.coordinate}_"):
        return size.coordinate
    return own


def _is_own(scope: Scope, coordinate: Coordinate) -> bool:
    """Whether a coordinate is the only one of its name, and not inside a normaliser."""
    primed = any(other.name.startswith(f"{coordinate.name}'") for other in scope.places)
    return coordinate in scope.places and not primed and [r.coordinate for r in scope.box].count(coordinate) == 1


# ---------------------------------------------------------------------- conditions


def conjunction(tests: list[Value]) -> Value | None:
    """All of these conditions; None where there are none. Numbers of the host stay such numbers."""
    result: Value | None = None
    for test in dict.fromkeys(tests):
        result = test if result is None else both(result, test)
    return result


def both(one: Value, other: Value) -> Value:
    return apply("&&", one, other)


def either(one: Value, other: Value) -> Value:
    return apply("||", one, other)


def negation(one: Value) -> Value:
    return apply("!", one)


def no_points(axis: Axis) -> Value:
    """Whether an axis has no points."""
    span = axis.extent.span
    return host(build.apply("<=", (axis.extent, build.whole(0, span)), "bool", span))
