"""Well-typed terms, drawn at random: what may stand in a right-hand side, given what is in scope there.

All choices go through one function, `choose(n)`, which gives a number below `n`; 0 is the simplest choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from tests.laws.terms import (
    Apply,
    Binder,
    Block,
    Cast,
    Cells,
    Clause,
    Coordinate,
    Dim,
    Fn,
    Function,
    If,
    Kind,
    Let,
    Number,
    Op,
    Place,
    Read,
    Reduce,
    Rest,
    Scan,
    Size,
    Tensor,
    Term,
    Truth,
    bare_axes,
    change,
    mentioned,
    walk,
)

Choose = Callable[[int], int]
T = TypeVar("T")

NAMES = ("i", "j", "k", "m", "d", "e", "t", "h")
# Functions whose value at 0 is 0, with what keeps their argument where they are finite; then all others.
MEEK = ("tanh", "relu", "gelu", "silu", "abs", "sin", "erf", "floor", "ceil", "round", "sqrt")
BOLD = ("exp", "log", "rsqrt", "sigmoid", "cos", "max", "min", "clamp")
# A term is evaluated at no more points than this.
MOST_POINTS = 300
# The size that a dimension is taken to have where only the caller knows it.
USUAL = 4


@dataclass(frozen=True)
class Scope:
    """What may be mentioned at a place.

    `places` are terms that index a dimension wherever we are, `facts` those that do because a guard says so, `present`
    reads of absent points that a guard excludes. `zero` is True where an absent point may be read as 0. `fixed`
    coordinates may not be normalised over. `previous` are the reads of what is being defined. `conditional` is True
    where a guard or a branch decides whether we are evaluated.
    """

    tensors: tuple[Tensor, ...] = ()
    functions: tuple[Fn, ...] = ()
    sizes: Mapping[str, Dim] = None  # type: ignore[assignment]
    coordinates: tuple[Coordinate, ...] = ()
    places: tuple[tuple[Term, Dim], ...] = ()
    facts: tuple[tuple[Term, Dim], ...] = ()
    present: tuple[Term, ...] = ()
    previous: tuple[tuple[Tensor, tuple[Term, ...]], ...] = ()
    fixed: tuple[Coordinate, ...] = ()
    rest: Rest | None = None
    points: int = 1
    zero: bool = True
    in_function: bool = False
    conditional: bool = False

    def strict(self) -> Scope:
        return replace(self, zero=False)

    def given(self, facts: Sequence[tuple[Term, Dim]]) -> Scope:
        """Under a condition, with the indices that it makes safe."""
        return replace(self, facts=(*self.facts, *facts), conditional=True)

    def binding(self, coordinate: Coordinate, *places: tuple[Term, Dim], size: int = USUAL) -> Scope:
        hidden: list[Any] = [old for old in self.coordinates if old.name == coordinate.name]
        scope = self.without([*hidden, coordinate.name])
        return replace(
            scope,
            tensors=tuple(tensor for tensor in scope.tensors if tensor.name != coordinate.name),
            coordinates=(*scope.coordinates, coordinate),
            places=(*scope.places, *places),
            points=scope.points * max(1, size),
        )

    def without(self, hidden: Sequence[Coordinate | str]) -> Scope:
        """Some coordinates can no longer be named, of the inputs' some sizes."""

        def speaks(term: Term) -> bool:
            sizes = {part.of for part in walk(term) if isinstance(part, Size)}
            return any(name in sizes or name in mentioned(term) for name in hidden)

        return replace(
            self,
            coordinates=tuple(c for c in self.coordinates if c not in hidden),
            places=tuple(place for place in self.places if not speaks(place[0])),
            facts=tuple(fact for fact in self.facts if not speaks(fact[0])),
            present=tuple(read for read in self.present if not speaks(read)),
            previous=tuple((t, first) for t, first in self.previous if not any(map(speaks, first))),
        )

    def scanning(self, coordinate: Coordinate) -> Scope:
        """Inside a normaliser nothing that was known of its coordinate holds."""
        return replace(
            self,
            facts=tuple(fact for fact in self.facts if coordinate not in mentioned(fact[0])),
            present=tuple(read for read in self.present if coordinate not in mentioned(read)),
        )


def number(value: int) -> Term:
    return Number(str(value)) if value >= 0 else Op(("-",), (Number(str(-value)),), "whole")


def plus(term: Term, value: int) -> Term:
    if not value:
        return term
    return Op(("+" if value > 0 else "-",), (term, Number(str(abs(value)))), "whole")


def size_of(dim: Dim) -> int:
    return USUAL if dim.size is None else dim.size


class Phrases:
    """Draws terms. `products` are dimensions that two others make: `h * size(d) + d` indexes such a one."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.products: list[tuple[Dim, Dim, Dim]] = []
        self.spaces: dict[Dim, tuple[str, ...]] = {}
        self.shadowing = False
        self.reuse = 40
        self.count = 0

    # ----------------------------------------------------------------------- choosing

    def chance(self, percent: int) -> bool:
        return self.choose(100) >= 100 - percent

    def pick(self, options: Sequence[T]) -> T:
        return options[self.choose(len(options))]

    def weighted(self, *options: tuple[int, T]) -> T:
        at = self.choose(sum(weight for weight, _ in options))
        for weight, option in options:
            if at < weight:
                return option
            at -= weight
        raise AssertionError

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # ---------------------------------------------------------------- coordinates, sizes

    def coordinate(
        self, scope: Scope, dim: Dim, full: bool = True, dependent: bool = False, beside: Sequence[Coordinate] = ()
    ) -> Coordinate:
        """A new coordinate for an axis of this dimension; `full` if it will run over all of it."""
        taken = {old.name for old in scope.coordinates} | {tensor.name for tensor in scope.tensors}
        if self.shadowing and self.chance(20):
            taken = {other.name for other in beside}
        if self.spaces:
            names = [name for name in self.spaces[dim.space or dim] if name not in taken]
        else:
            known = [name for name, other in scope.sizes.items() if other is dim and name not in taken and full]
            # Where only a name says a size, it is not hidden.
            kept = {name for name, other in scope.sizes.items() if not is_sayable(other)}
            others = [name for name in NAMES if name not in taken and name not in kept]
            names = known * 3 + others
        name = self.pick(names) if names else self.fresh("c")
        return Coordinate(name, dim if full else None, dependent)

    def extent(self, scope: Scope, dim: Dim) -> Term:
        """A term that says how many points a dimension has."""
        named = {old.name for old in scope.coordinates}
        found: list[Term] = [Size(c, dim) for c in scope.coordinates if c.dim is dim]
        found += [Size(name, dim) for name, other in scope.sizes.items() if other is dim and name not in named]
        found += [Read(tensor) for tensor in scope.tensors if tensor.counts is dim]
        if dim.size is not None:
            # A literal below 3 beside a size would be refused: no larger size could be meant.
            if is_sayable(dim) or not found:
                found.append(number(dim.size))
            found += [word for word in dim.words if not named & {p.of for p in walk(word) if isinstance(p, Size)}]
        return self.pick(found)

    def entered(self, scope: Scope, coordinate: Coordinate, *nodes: Any) -> Binder:
        """A coordinate that runs over all of its dimension: with a range where none can be found without one."""
        needs = self.needs_range(scope, coordinate, *nodes)
        return self.ranged_fully(scope, coordinate) if needs else Binder(coordinate)

    def needs_range(self, scope: Scope, coordinate: Coordinate, *nodes: Any) -> bool:
        """Whether neither an axis that it indexes nor the inputs say its size; at times, a range is stated anyhow."""
        said = [node for node in nodes if node is not None]
        own = [tensor for tensor, _ in scope.previous]
        local = [part.tensor for node in said for part in walk(node) if isinstance(part, Let)]
        axes = [axis for node in said for axis in bare_axes(_without(node, [*own, *local]), coordinate)]
        # What is defined inside may take its size from this very coordinate.
        inside = [axis for node in said for axis in bare_axes(_without(node, own), coordinate)]
        known = scope.sizes.get(coordinate.name) is coordinate.dim and not inside
        return not all(axis is coordinate.dim for axis in axes) or not (axes or known) or self.chance(15)

    def ranged_fully(self, scope: Scope, coordinate: Coordinate) -> Binder:
        outside = replace(scope, coordinates=tuple(c for c in scope.coordinates if c is not coordinate))
        assert coordinate.dim is not None
        upper = self.extent(outside, coordinate.dim)
        if self.chance(20):
            return Binder(coordinate, number(0), plus(upper, -1), inclusive=True)
        return Binder(coordinate, number(0), upper)

    def with_products(self, scope: Scope) -> Scope:
        """The scope with the indices that products of dimensions allow."""
        places: list[tuple[Term, Dim]] = []
        for product, high, low in self.products if not scope.in_function else ():
            outer = [Place(c) for c in scope.coordinates if c.dim is high]
            inner = [Place(c) for c in scope.coordinates if c.dim is low]
            if outer and inner:
                scaled = Op(("*",), (self.pick(outer), self.extent(scope, low)), "whole")
                places.append((Op(("+",), (scaled, self.pick(inner)), "whole"), product))
            for place in [Place(c) for c in scope.coordinates if c.dim is product]:
                places.append((Op(("/",), (place, self.extent(scope, low)), "whole"), high))
                places.append((Op(("%",), (place, self.extent(scope, low)), "whole"), low))
        return replace(scope, places=(*scope.places, *places)) if places else scope

    # --------------------------------------------------------------------------- reads

    def index(self, scope: Scope, dim: Dim, plain: bool = False) -> Term:
        """A term that is within a dimension wherever it is evaluated; `plain` if it is to read nothing."""
        strong = [term for term, other in (*scope.places, *scope.facts) if other is dim]
        if strong and (size_of(dim) == 0 or not self.chance(12)):
            return self.pick(strong[::-1])
        options = self.plain_indices(scope, dim) + ([] if plain else self.read_indices(scope, dim))
        return self.pick(options)()

    def plain_indices(self, scope: Scope, dim: Dim) -> list[Callable[[], Term]]:
        found: list[Callable[[], Term]] = [lambda: number(0), lambda: plus(self.extent(scope, dim), -1)]
        if dim.size is not None:
            found.append(lambda: number(self.choose(size_of(dim))))
        for place in map(Place, scope.coordinates[-2:]):
            found.append(partial(self.at_most, place, scope, dim))
            found.append(partial(self.remainder, place, scope, dim))
        return found

    def at_most(self, place: Term, scope: Scope, dim: Dim) -> Term:
        return Function("min", (place, plus(self.extent(scope, dim), -1)), "whole")

    def remainder(self, place: Term, scope: Scope, dim: Dim) -> Term:
        return Op(("%",), (plus(place, self.choose(3)), self.extent(scope, dim)), "whole")

    def read_indices(self, scope: Scope, dim: Dim) -> list[Callable[[], Term]]:
        """Gathers, and where something is largest."""
        found: list[Callable[[], Term]] = []
        for tensor in scope.tensors:
            if tensor.below is dim and self.is_readable(scope, tensor) and tensor.open is None:
                found += [partial(self.gathered, scope, tensor)] * 3
        if scope.points * size_of(dim) <= MOST_POINTS:
            found.append(lambda: self.extreme_place(scope, dim))
        return found

    def gathered(self, scope: Scope, tensor: Tensor) -> Term:
        return Read(tensor, tuple(self.index(scope, axis, plain=True) for axis in tensor.axes))

    def extreme_place(self, scope: Scope, dim: Dim) -> Term:
        """`argmax[k](…)`: where something is largest along a dimension."""
        coordinate = self.coordinate(scope, dim)
        inner = scope.strict().binding(coordinate, (Place(coordinate), dim), size=size_of(dim))
        fitting = [t for t in inner.tensors if t.kind == "real" and dim in t.axes and t.open is None]
        fitting = [tensor for tensor in fitting if self.is_readable(inner, tensor)]
        body: Term = Op(("*",), (Place(coordinate), Number("0.5")), "real")
        if fitting:
            tensor = self.pick(fitting)
            body = Read(tensor, tuple(self.index(inner, axis, plain=True) for axis in tensor.axes))
        binder = self.entered(scope, coordinate, body)
        return Reduce(self.pick(("argmax", "argmin")), (binder,), body, None, "whole")

    def is_readable(self, scope: Scope, tensor: Tensor) -> bool:
        if tensor.leaky and not scope.zero:
            return False
        known = {dim for _, dim in (*scope.places, *scope.facts)}
        lead = tensor.open or 0
        if tensor.open is not None:
            rest = scope.rest
            if rest is None or not rest.flat or [c.dim for c in rest.coordinates] != list(tensor.axes[:lead]):
                return False
        return all(size_of(dim) > 0 or dim in known for dim in tensor.axes[lead:])

    def read(self, scope: Scope, kind: Kind) -> Term | None:
        """A tensor of this kind at indices that are in bounds."""
        tensors = [tensor for tensor in scope.tensors if tensor.kind == kind and self.is_readable(scope, tensor)]
        if not tensors:
            return None
        defined = [tensor for tensor in tensors if not tensor.given]
        return self.read_at(scope, self.pick(defined if defined and self.chance(self.reuse) else tensors))

    def read_at(self, scope: Scope, tensor: Tensor) -> Term:
        rest, axes = None, tensor.axes
        if tensor.open is not None:
            rest, axes = scope.rest, axes[tensor.open :]
        elif scope.rest is not None and not scope.rest.flat:
            lead = tuple(c.dim for c in scope.rest.coordinates)
            if axes[: len(lead)] == lead:
                rest, axes = scope.rest, axes[len(lead) :]
        inner = scope.strict()
        leading = tuple(Place(c) for c in rest.coordinates) if rest else ()
        return Read(tensor, (*leading, *(self.index(inner, dim) for dim in axes)), rest)

    # -------------------------------------------------------------------------- leaves

    def leaf(self, scope: Scope, kind: Kind) -> Term:
        if scope.present and kind == "real" and self.chance(70):
            fitting = [term for term in scope.present if term.kind == kind]
            if fitting:
                return self.pick(fitting)
        own = [(tensor, first) for tensor, first in scope.previous if tensor.kind == kind]
        if own and self.chance(60):
            tensor, first = self.pick(own)
            return Read(tensor, (*first, *(self.index(scope.strict(), dim) for dim in tensor.axes[len(first) :])))
        if not self.chance(25):
            found = self.read(scope, kind)
            if found is not None:
                return found
        return self.simple(scope, kind)

    def simple(self, scope: Scope, kind: Kind) -> Term:
        """A number, a coordinate or a size."""
        if kind == "bool":
            return self.comparison(scope, 0)
        if kind == "real":
            text = self.pick(("0.5", "1.0", "2.0", "0.25", "1.5", "3e-1", "0.125"))
            return Number(text, printed=self.chance(10))
        options: list[Term] = [number(self.choose(5))]
        options += [Place(coordinate) for coordinate in scope.coordinates]
        options += [Size(c, c.dim) for c in scope.coordinates if c.dim is not None]
        return self.pick(options)

    def term(self, scope: Scope, kind: Kind, level: int) -> Term:
        """A term of a kind, with at most so many levels of others inside it."""
        scope = self.with_products(scope) if self.products else scope
        if level <= 0:
            return self.leaf(scope, kind)
        return {"real": self.real, "whole": self.whole, "bool": self.boolean}[kind](scope, level)

    # --------------------------------------------------------------------------- reals

    def real(self, scope: Scope, level: int) -> Term:
        wide = scope.points <= MOST_POINTS // 2
        choice = self.weighted(
            (2, self.leaf_of_real),
            (6, self.arithmetic),
            (4, self.function),
            (5 if wide else 0, self.reduction),
            (3 if self.scannable(scope) else 0, self.scan),
            (2, self.conditional),
            (2 if scope.coordinates else 0, self.shifted),
            (1, self.cast),
            (1, self.power),
            (1, self.figures),
            (1 if self.may_block(scope) else 0, self.block),
            (3 if scope.functions else 0, self.apply),
        )
        return choice(scope, level)

    def leaf_of_real(self, scope: Scope, level: int) -> Term:
        return self.leaf(scope, "real")

    def arithmetic(self, scope: Scope, level: int) -> Term:
        op = self.weighted((4, "*"), (4, "+"), (3, "-"), (2, "/"), (1, "%"), (1, "neg"))
        if op == "neg":
            return Op(("-",), (self.term(scope, "real", level - 1),), "real")
        if op in ("/", "%"):
            return Op((op,), (self.term(scope, "real", level - 1), self.divisor(scope, level)), "real")
        kinds: tuple[Kind, Kind] = self.weighted((6, ("real", "real")), (1, ("real", "whole")), (1, ("whole", "real")))
        left, right = (self.term(scope, kind, level - 1) for kind in kinds)
        return Op((op,), (left, right), "real")

    def divisor(self, scope: Scope, level: int) -> Term:
        """Something that is not 0, or almost never."""
        scope = scope.strict()
        options: list[Callable[[], Term]] = [lambda: Number("2.0"), lambda: Number("1.5")]
        options.append(lambda: self.positive(scope))
        if any(dim_is_counted(c) for c in scope.coordinates):
            full = [c for c in scope.coordinates if dim_is_counted(c)]
            options.append(lambda: Function("sqrt", (Size(full[0], full[0].dim),), "real"))  # type: ignore[arg-type]
        options.append(lambda: self.leaf(scope, "real"))
        return self.pick(options)()

    def function(self, scope: Scope, level: int) -> Term:
        name = self.pick(MEEK) if scope.zero and self.chance(60) else self.pick((*MEEK, *BOLD))
        inner = scope if name in MEEK else scope.strict()
        if name in ("max", "min"):
            count = 2 + self.chance(30)
            return Function(name, tuple(self.term(inner, "real", level - 1) for _ in range(count)), "real")
        argument = self.term(inner, self.weighted((6, "real"), (1, "whole")), level - 1)
        if name == "clamp":
            ends = self.pick((("0.25", "2.0"), ("0.5", "0.5"), ("0.0", "1.5")))
            low = Op(("-",), (Number(ends[0]),), "real") if self.chance(50) else Number(ends[0])
            return Function(name, (argument, low, Number(ends[1])), "real")
        if name == "exp":
            argument = Function(self.pick(("tanh", "sin")), (argument,), "real") if self.chance(60) else argument
        elif name in ("log", "sqrt", "rsqrt"):
            argument = Function("abs", (argument,), argument.kind)
            if name != "sqrt":
                argument = Op(("+",), (argument, Number(self.pick(("0.5", "1.0")))), "real")
        kind: Kind = argument.kind if name in ("abs", "relu") else "real"
        found: Term = Function(name, (argument,), kind)
        return found if kind == "real" else Op(("*",), (found, Number("0.5")), "real")

    def power(self, scope: Scope, level: int) -> Term:
        if self.chance(50):
            return Op(("**",), (self.term(scope, "real", level - 1), number(1 + self.choose(3))), "real")
        scope = scope.strict()
        inverse = Op(("-",), (Number("1.0"),), "real")
        exponent = self.pick((Number("0.5"), Number("1.5"), inverse, self.leaf(scope, "real")))
        return Op(("**",), (self.positive(scope), exponent), "real")

    def positive(self, scope: Scope) -> Term:
        return Op(("+",), (Function("abs", (self.leaf(scope, "real"),), "real"), Number("0.5")), "real")

    def cast(self, scope: Scope, level: int) -> Term:
        kind = self.weighted((4, "real"), (2, "whole"), (1, "bool"))
        dtype = self.weighted((3, "f64"), (3, "f32"), (1, "f16"), (1, "bf16"))
        return Cast(self.term(scope, kind, level - 1), dtype, "real")

    def figures(self, scope: Scope, level: int) -> Term:
        """An array literal, read where it stands."""
        dims = [dim for _, dim in scope.places if is_sayable(dim) and 0 < size_of(dim) <= 4]
        if not dims:
            return self.simple(scope, "real")
        dim = self.pick(dims)
        cells = tuple(f"{self.choose(30) / 8:.3f}" for _ in range(size_of(dim)))
        return Cells(cells, "real", (dim,), (self.index(scope.strict(), dim),), self.chance(20))

    # -------------------------------------------------------------- branches and guards

    def conditional(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        condition, facts = self.guard(scope.strict(), scope.coordinates, level - 1)
        kinds = [kind, "whole" if kind == "real" and self.chance(15) else kind]
        if self.chance(50):
            kinds.reverse()
        then = self.term(scope.given(facts), kinds[0], level - 1)
        return If(condition, then, self.term(scope.given(()), kinds[1], level - 1), kind)

    def shifted(self, scope: Scope, level: int) -> Term:
        """`if i > 0 { x[i - 1] } else { … }`."""
        condition, facts = self.neighbour(scope, self.pick(scope.coordinates))
        reads = [
            self.read_at(replace(scope.strict(), places=facts or scope.places, facts=()), tensor)
            for tensor in scope.tensors
            if tensor.kind == "real" and not tensor.leaky and tensor.open is None
            if facts and any(axis is dim for axis in tensor.axes for _, dim in facts)
            if all(size_of(axis) for axis in tensor.axes)
        ]
        then = self.pick(reads) if reads else self.leaf(scope.given(facts), "real")
        return If(condition, then, self.leaf(scope, "real"), "real")

    def neighbour(self, scope: Scope, coordinate: Coordinate) -> tuple[Term, tuple[tuple[Term, Dim], ...]]:
        """A comparison under which a neighbour of a coordinate is in bounds, and that neighbour."""
        here = Place(coordinate)
        dims = [dim for term, dim in scope.places if isinstance(term, Place) and term.coordinate is coordinate]
        if not dims:
            return Op(("<",), (here, number(self.choose(4))), "bool"), ()
        dim = dims[0]
        others = [Place(other) for other in scope.coordinates if other is not coordinate]
        far = self.choose(3) == 2
        match self.choose(5 if others else 3):
            case 0:
                return Op((">",), (here, number(int(far))), "bool"), ((plus(here, -1 - far), dim),)
            case 1:
                ahead = plus(here, 1 + far)
                return Op(("<",), (ahead, self.extent(scope, dim)), "bool"), ((ahead, dim),)
            case 2:
                low = plus(here, -1)
                chain = Op(("<=", "<"), (number(0), low, self.extent(scope, dim)), "bool")
                return (chain, ((low, dim),)) if far else (Op((">=",), (low, number(0)), "bool"), ((low, dim),))
            case 3:
                other = self.pick(others)
                back = Op(("-",), (here, other), "whole")
                return Op(("<=",), (other, here), "bool"), ((back, dim),)
            case _:
                other = self.pick(others)
                ahead = Op(("+",), (here, other), "whole")
                return Op(("<",), (ahead, self.extent(scope, dim)), "bool"), ((ahead, dim),)

    def guard(
        self, scope: Scope, about: Sequence[Coordinate], level: int, safe: Coordinate | None = None, data: bool = True
    ) -> tuple[Term, tuple[tuple[Term, Dim], ...]]:
        """A condition, if possible about one of these coordinates, and the indices that it makes safe.

        It holds at the first point of `safe`, or else depends on data.
        """
        others = [c for c in scope.coordinates if c is not safe]
        if safe is not None:
            if others and (not data or self.chance(50)):
                return Op(("<=",), (Place(safe), Place(self.pick(others))), "bool"), ()
            if not data:
                return Op(("<",), (Place(safe), number(1 + self.choose(3))), "bool"), ()
            return self.data_condition(scope, level, sure=True), ()
        if not about:
            return self.data_condition(scope, level), ()
        first = self.pick(about)
        if any(fn.body.kind == "bool" for fn in scope.functions) and self.chance(25):
            return self.apply(scope, level, "bool"), ()
        match self.choose(7):
            case 0 | 1:
                if len(scope.coordinates) < 2:
                    return self.neighbour(scope, first)
                other = self.pick([c for c in scope.coordinates if c is not first])
                sign = self.pick(("<=", "<", ">=", ">", "!=", "=="))
                return Op((sign,), (Place(first), Place(other)), "bool"), ()
            case 2 | 3:
                return self.neighbour(scope, first)
            case 4:
                return self.data_condition(scope, level), ()
            case 5:
                left, facts = self.guard(scope, about, 0)
                right, more = self.guard(scope.given(facts), about, 0)
                return Op(("&&",), (left, right), "bool"), (*facts, *more)
            case _:
                ends = (number(self.choose(3)), Place(first), self.simple(scope, "whole"))
                return Op(("<", "<="), ends, "bool"), ()

    def data_condition(self, scope: Scope, level: int, sure: bool = False) -> Term:
        """A condition that the arrays decide, `sure` if nothing else may; or a named guard."""
        if sure:
            scope = replace(scope, tensors=tuple(tensor for tensor in scope.tensors if tensor.given), previous=())
        scope = scope.strict()
        found = self.read(scope, "bool") if self.chance(60) else None
        left = found or self.read(scope, "real") or Truth(True)
        if left.kind == "bool":
            return left
        return Op((self.pick(("<", "<=", ">", ">=", "==", "!=")),), (left, self.term(scope, "real", level - 1)), "bool")

    def comparison(self, scope: Scope, level: int) -> Term:
        scope = scope.strict()
        kind: Kind = self.weighted((2, "whole"), (2, "real"))
        sign = self.pick(("<", "<=", ">", ">=", "==", "!="))
        left = self.term(scope, kind, level - 1)
        if self.chance(15):
            middle = self.term(scope, kind, level - 1)
            signs = (self.pick(("<", "<=")), self.pick(("<", "<=")))
            return Op(signs, (left, middle, self.simple(scope, kind)), "bool")
        return Op((sign,), (left, self.term(scope, kind, level - 1)), "bool")

    # ------------------------------------------------------------------ wholes, Booleans

    def whole(self, scope: Scope, level: int) -> Term:
        wide = scope.points <= MOST_POINTS // 2
        choice = self.weighted(
            (3, "leaf"),
            (5, "arithmetic"),
            (2, "divide"),
            (2, "function"),
            (2, "if"),
            (4 if wide else 0, "reduce"),
            (2 if self.scannable(scope) else 0, "scan"),
            (2, "cast"),
            (2 if any(fn.body.kind == "whole" for fn in scope.functions) else 0, "call"),
        )
        match choice:
            case "leaf":
                return self.leaf(scope, "whole")
            case "arithmetic":
                sides = [self.term(scope, "whole", level - 1) for _ in range(2)]
                if self.chance(15):
                    return Op(("**",), (sides[0], number(self.choose(4))), "whole") if scope.zero is False else sides[0]
                return Op((self.pick(("+", "-", "*")),), tuple(sides), "whole")
            case "divide":
                sides = [self.term(scope, "whole", level - 1), number(1 + self.choose(4))]
                return Op((self.pick(("/", "%")),), tuple(sides), "whole")
            case "function":
                return self.whole_function(scope, level)
            case "if":
                return self.conditional(scope, level, "whole")
            case "reduce":
                return self.reduction(scope, level, "whole")
            case "scan":
                return self.scan(scope, level, "whole")
            case "call":
                return self.apply(scope, level, "whole")
            case _:
                return self.whole_cast(scope, level)

    def whole_function(self, scope: Scope, level: int) -> Term:
        name = self.pick(("abs", "relu", "max", "min", "clamp"))
        inner = scope if name in ("abs", "relu") else scope.strict()
        arguments = [self.term(inner, "whole", level - 1)]
        if name == "clamp":
            arguments += [number(self.choose(2)), number(2 + self.choose(3))]
        elif name in ("max", "min"):
            arguments.append(self.term(inner, "whole", level - 1))
        return Function(name, tuple(arguments), "whole")

    def whole_cast(self, scope: Scope, level: int) -> Term:
        """A condition or a small real as a whole number."""
        dtype = self.weighted((3, "i64"), (1, "i32"))
        if self.chance(50):
            return Cast(self.term(scope.strict(), "bool", level - 1), dtype, "whole")
        small = Function("tanh", (self.term(scope, "real", level - 1),), "real")
        return Cast(Op(("*",), (small, Number("4.0")), "real"), dtype, "whole")

    def boolean(self, scope: Scope, level: int) -> Term:
        wide = scope.points <= MOST_POINTS // 2
        choice = self.weighted(
            (2, "leaf"),
            (4, "compare"),
            (3, "logic"),
            (1, "not"),
            (3 if wide else 0, "reduce"),
            (1, "if"),
            (1, "equal"),
            (2 if any(fn.body.kind == "bool" for fn in scope.functions) else 0, "call"),
        )
        match choice:
            case "leaf":
                return Truth(self.chance(50)) if self.chance(10) else self.leaf(scope, "bool")
            case "compare":
                return self.comparison(scope, level)
            case "logic":
                op = self.pick(("&&", "||"))
                left, facts = self.guard(scope, scope.coordinates, level - 1)
                inner = scope.given(facts if op == "&&" else ())
                return Op((op,), (left, self.term(inner, "bool", level - 1)), "bool")
            case "not":
                return Op(("!",), (self.term(scope, "bool", level - 1),), "bool")
            case "reduce":
                return self.reduction(scope, level, "bool")
            case "if":
                return self.conditional(scope, level, "bool")
            case "call":
                return self.apply(scope, level, "bool")
            case _:
                sides = tuple(self.term(scope.strict(), "bool", level - 1) for _ in range(2))
                return Op((self.pick(("==", "!=")),), sides, "bool")

    # ------------------------------------------------------------ reductions, normalisers

    def reduction(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        ops = {
            "real": ((5, "sum"), (2, "max"), (2, "min"), (2, "mean"), (2, "prod")),
            "whole": ((4, "sum"), (1, "prod"), (2, "max"), (2, "min"), (2, "argmax"), (2, "argmin")),
            "bool": ((1, "any"), (1, "all")),
        }[kind]
        op = self.weighted(*ops)  # type: ignore[arg-type]
        full = op in ("mean", "argmax", "argmin") or (kind == "whole" and op in ("max", "min"))
        single = op in ("argmax", "argmin")
        made = self.bound(scope, 1 if single else 1 + self.choose(10) // 7, full, single)
        if made is None:
            return self.leaf(scope, kind)
        inner, drafts = made
        inner = replace(inner, zero=op in ("sum", "any", "all"))
        body_kind: Kind = kind
        if op in ("argmax", "argmin", "mean"):
            body_kind = self.weighted((4, "real"), (1, "whole"))
        guard: Term | None = None
        within = inner
        if self.chance(35):
            guard, within = self.reduction_guard(inner, drafts, op, full, level)
        body = self.term(within, body_kind, level - 1)
        if isinstance(drafts[0], Rest) and not any(isinstance(p, Read) and p.rest is drafts[0] for p in walk(body)):
            return self.leaf(scope, kind)
        binders = self.finished(scope, drafts, body, guard)
        return Reduce(op, binders, body, guard, kind)

    def reduction_guard(
        self, inner: Scope, drafts: list[Any], op: str, full: bool, level: int
    ) -> tuple[Term | None, Scope]:
        """A guard, and the scope under it. A reduction that needs a point gets one whatever the sizes are."""
        own = [draft.coordinate for draft in drafts if isinstance(draft, Binder)]
        if not own:
            return None, inner
        repeated = self.repeated_guard(inner)
        if repeated is not None and not full:
            return repeated[0], replace(inner, present=(*inner.present, *repeated[1]))
        if not full:
            guard, facts = self.guard(inner.strict(), own, level - 1)
            return guard, inner.given(facts)
        if len(own) != 1 or own[0].dim is None or own[0].dependent:
            return None, inner
        guard, facts = self.guard(inner.strict(), own, level - 1, own[0], data=op in ("mean", "argmax", "argmin"))
        return guard, inner.given(facts)

    def repeated_guard(self, scope: Scope) -> tuple[Term, list[Term]] | None:
        """The guard of a definition with absent points, and the read of it that is then allowed anywhere."""
        if not self.chance(60):
            return None
        for tensor in scope.tensors[::-1]:
            if tensor.guard is None or tensor.kind != "real":
                continue
            coordinates, guard = tensor.guard
            named = {c.name for c in scope.coordinates}
            if any(isinstance(part, Size) and part.of in named for part in walk(guard)):
                continue
            chosen: dict[Coordinate, Coordinate] = {}
            for old in coordinates:
                fitting = [c for c in scope.coordinates if c.dim is old.dim and c not in chosen.values()]
                if fitting:
                    chosen[old] = fitting[-1]
            if len(chosen) == len(coordinates):
                read = Read(tensor, tuple(Place(chosen[old]) for old in coordinates))
                return moved(guard, chosen), [read]
        return None

    def bound(self, scope: Scope, count: int, full: bool, single: bool = False) -> tuple[Scope, list[Any]] | None:
        """The scope with new coordinates, each of them with its range or, as a coordinate alone, still without."""
        drafts: list[Any] = []
        if not single and self.chance(25) and scope.rest is None and (rest := self.rest(scope)) is not None:
            drafts.append(rest)
            size = 1
            for coordinate in rest.coordinates:
                size *= size_of(coordinate.dim)  # type: ignore[arg-type]
            if not (full and size == 0) and scope.points * size <= MOST_POINTS:
                return replace(scope, rest=rest, points=scope.points * max(1, size)), drafts
            return None
        for _ in range(count):
            beside = [draft.coordinate for draft in drafts]
            made = self.ranged(scope, full, beside) if self.chance(30) else None
            if made is None:
                dims = self.dims(scope, full)
                if not dims:
                    break
                dim = self.pick(dims)
                coordinate = self.coordinate(scope, dim, beside=beside)
                made = coordinate, ((Place(coordinate), dim),), coordinate
            coordinate, places, draft = made
            size = max((size_of(dim) for _, dim in places), default=1)
            if scope.points * size > MOST_POINTS:
                break
            scope = scope.binding(coordinate, *places, size=size)
            drafts.append(draft if isinstance(draft, Binder) else Binder(coordinate))
        return (scope, drafts) if drafts else None

    def dims(self, scope: Scope, full: bool) -> list[Dim]:
        """The dimensions of what can be read here, those of tensors with more axes more often."""
        found = [dim for tensor in scope.tensors for dim in tensor.axes[tensor.open or 0 :]]
        found += [dim for tensor, first in scope.previous for dim in tensor.axes[len(first) :]]
        if scope.in_function:
            found = [dim for dim in found if dim.size is None]
        return [dim for dim in found if not full or size_of(dim) > 0]

    def rest(self, scope: Scope, name: str | None = None) -> Rest | None:
        """`..r` for the leading axes of something."""
        if scope.in_function or self.spaces:
            return None
        opens = [tensor for tensor in scope.tensors if tensor.open is not None]
        if opens and not self.chance(25):
            lead = self.pick(opens)
            dims, flat = lead.axes[: lead.open], True
        else:
            plain = [t for t in scope.tensors if t.open is None and t.axes and (scope.zero or not t.leaky)]
            if not plain:
                return None
            lead = self.pick(plain)
            dims, flat = lead.axes[: 1 + self.choose(len(lead.axes))], False
        return Rest(name or self.pick(("r", "s")), tuple(Coordinate("", dim) for dim in dims), flat)

    def ranged(self, scope: Scope, full: bool, beside: Sequence[Coordinate]) -> tuple[Coordinate, Any, Binder] | None:
        """A coordinate with a range of its own: up to or from another coordinate, or past the first point."""
        dims = [dim for dim in self.dims(scope, full) if size_of(dim) > 0]
        around = [(t.coordinate, dim) for t, dim in scope.places if isinstance(t, Place)]
        if around and self.chance(70):
            other, dim = self.pick(around)
            coordinate = self.coordinate(scope, dim, full=False, dependent=True, beside=beside)
            place = Place(other)
            binder = self.pick(
                (
                    Binder(coordinate, number(0), place, inclusive=True),
                    Binder(coordinate, place, self.extent(scope, dim)),
                    Binder(coordinate, number(0), plus(place, 1)),
                    *(() if full else (Binder(coordinate, number(0), place),)),
                    *(() if full else (Binder(coordinate, plus(place, 1), self.extent(scope, dim)),)),
                )
            )
            return coordinate, ((Place(coordinate), dim),), binder
        if not dims or full:
            return None
        dim = self.pick(dims)
        coordinate = self.coordinate(scope, dim, full=False, beside=beside)
        places = ((Place(coordinate), dim), (plus(Place(coordinate), -1), dim))
        return coordinate, places, Binder(coordinate, number(1), self.extent(scope, dim))

    def finished(self, scope: Scope, drafts: list[Any], *nodes: Any) -> tuple[Any, ...]:
        """Binders, with ranges where none can be found without one."""
        binders: list[Any] = []
        for number_, draft in enumerate(drafts):
            if isinstance(draft, Binder) and draft.lower is None:
                later = [d for d in drafts[number_ + 1 :] if isinstance(d, Binder)]
                binders.append(self.entered(scope, draft.coordinate, *nodes, *later))
            else:
                binders.append(draft)
            if isinstance(draft, Binder):
                scope = scope.binding(draft.coordinate)
        return tuple(binders)

    def scannable(self, scope: Scope) -> list[Coordinate]:
        return [c for c in scope.coordinates if c not in scope.fixed]

    def scan(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        op = "cumsum" if kind == "whole" else self.pick(("softmax", "log_softmax", "cumsum"))
        dependent = [c for c in self.scannable(scope) if c.dependent]
        coordinate = self.pick(dependent if dependent and self.chance(50) else self.scannable(scope))
        inner = replace(scope.scanning(coordinate), zero=op == "cumsum")
        guard: Term | None = None
        if self.chance(40):
            repeated = self.repeated_guard(inner)
            if repeated is not None:
                guard, inner = repeated[0], replace(inner, present=(*inner.present, *repeated[1]))
            else:
                guard, facts = self.guard(inner.strict(), [coordinate], level - 1)
                inner = inner.given(facts)
        body_kind: Kind = "whole" if kind == "whole" or (op != "cumsum" and self.chance(10)) else "real"
        return Scan(op, coordinate, self.term(inner, body_kind, level - 1), guard, kind)

    # ------------------------------------------------------------------- blocks, functions

    def may_block(self, scope: Scope) -> bool:
        return not any(coordinate.dependent for coordinate in scope.coordinates) and scope.rest is None

    def block(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        """`{ let …; … }`, with definitions that may mention the coordinates around."""
        lets: list[Let] = []
        # Whether what is defined under a condition is there for all points of a row is not for these laws to say.
        inner = replace(scope, fixed=scope.coordinates) if scope.conditional else scope
        for _ in range(1 + self.chance(40)):
            let = self.local(inner, level - 1)
            lets.append(let)
            inner = replace(inner, tensors=(*inner.tensors, let.tensor))
        use = self.read_at(inner, lets[-1].tensor) if self.is_readable(inner, lets[-1].tensor) else None
        body = self.term(inner, kind, level - 1)
        if use is not None and kind == use.kind == "real":
            body = Op((self.pick(("+", "*")),), (use, body), "real")
        return Block(tuple(lets), body)

    def local(self, scope: Scope, level: int) -> Let:
        name = self.fresh("l")
        inner, drafts = scope, []
        if self.chance(50):
            made = self.bound(scope, 1, True, single=True)
            if made is not None and all(isinstance(d, Binder) and d.lower is None for d in made[1]):
                inner, drafts = made
        body = self.term(replace(inner, zero=True), "real", max(0, level))
        slots = self.finished(scope, drafts, body)
        axes = tuple(draft.coordinate.dim for draft in drafts)
        tensor = Tensor(name, axes, "real", leaky=leaks(body))
        return Let(tensor, (Clause(slots, body),))

    def apply(self, scope: Scope, level: int, kind: Kind = "real") -> Term:
        """A call, its result read at once where it is a tensor."""
        dependent = [c for c in scope.coordinates if c.dependent]
        for fn in self.shuffled([fn for fn in scope.functions if fn.body.kind == kind]):
            # What is handed to a function that gives a tensor becomes an axis of it: its range has to be a plain one.
            call = self.call(scope.without(dependent) if fn.result else scope, fn, level)
            if call is not None and not (fn.guard is not None and not scope.zero):
                return replace(call, indices=tuple(self.index(scope.strict(), dim) for dim in call.axes))
        return self.leaf(scope, kind)

    def shuffled(self, items: list[T]) -> list[T]:
        items = list(items)
        return [items.pop(self.choose(len(items))) for _ in range(len(items))]

    def call(self, scope: Scope, fn: Fn, level: int) -> Apply | None:
        """A call with arguments that fit, None where there are none. Nothing absent is handed over."""
        scope = scope.strict()
        known: dict[Dim, Dim] = {}
        arguments: list[Any] = []
        for parameter, home in zip(fn.parameters, fn.homes, strict=True):
            if home is None:
                arguments.append(self.term(scope, parameter.kind, min(1, level - 1)))
                continue
            fitting = [t for t in scope.tensors if self.fits(t, parameter, known)]
            if not fitting:
                return None
            given = self.pick(fitting)
            known.update(zip(parameter.axes, given.axes, strict=True))
            arguments.append(given)
        axes = tuple(known[slot.coordinate.dim] for slot in fn.result or ())  # type: ignore[index]
        return Apply(fn, tuple(arguments), (), axes)

    def fits(self, tensor: Tensor, parameter: Tensor, known: Mapping[Dim, Dim]) -> bool:
        if tensor.kind != parameter.kind or tensor.leaky or tensor.open is not None:
            return False
        if len(tensor.axes) != len(parameter.axes) or not all(size_of(dim) for dim in tensor.axes):
            return False
        wanted: dict[Dim, Dim] = dict(known)
        return all(wanted.setdefault(dim, own) is own for dim, own in zip(parameter.axes, tensor.axes, strict=True))


def is_sayable(dim: Dim) -> bool:
    """Whether a literal may stand for the size of a dimension beside others that say it."""
    return dim.size is not None and (dim.stated or dim.size > 2) and all(map(is_sayable, dim.parts))


def dim_is_counted(coordinate: Coordinate) -> bool:
    return coordinate.dim is not None


def moved(term: Any, coordinates: Mapping[Coordinate, Coordinate]) -> Any:
    """The term with other coordinates in place of these."""
    match term:
        case Place(coordinate) if coordinate in coordinates:
            return Place(coordinates[coordinate])
        case Size(Coordinate() as coordinate, dim) if coordinate in coordinates:
            return Size(coordinates[coordinate], dim)
        case Scan(coordinate=coordinate) if coordinate in coordinates:
            return replace(change(term, lambda part: moved(part, coordinates)), coordinate=coordinates[coordinate])
        case _:
            return change(term, lambda part: moved(part, coordinates))


def _without(node: Any, tensors: Sequence[Tensor]) -> Any:
    """The node without reads of these: what is being defined says nothing about its own size."""
    if isinstance(node, Read) and node.tensor in tensors:
        return replace(node, indices=())
    return change(node, lambda part: _without(part, tensors)) if tensors else node


# Operators and functions that would not give 0 for an absent point; `is_safe` looks closer at some.
_SENSITIVE = frozenset((*BOLD, "==", "!=", "<", "<=", ">", ">="))


def leaks(term: Any) -> bool:
    """Whether the value of a term is made of absent points. Only places that bear it are looked at."""
    if term.kind == "bool" and not isinstance(term, Read | Apply | If):
        return False
    match term:
        case Read(tensor):
            return tensor.leaky
        case Op(ops, terms):
            return leaks(terms[0]) or (ops[0] in ("+", "-", "*") and len(terms) == 2 and leaks(terms[1]))
        case Function(name, terms):
            return name in MEEK and any(map(leaks, terms))
        case Cast(inner):
            return leaks(inner)
        case If(_, then, otherwise):
            return leaks(then) or leaks(otherwise)
        case Block(_, body):
            return leaks(body)
        case Apply(fn, _):
            return fn.guard is not None
        case _:
            return False
