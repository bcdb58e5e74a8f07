"""Choices, and the smallest things that are chosen: names, sizes, indices and reads.

All choices go through one function, `choose(n)`, which gives a number below `n`; 0 is the simplest choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from tests.laws.scopes import MOST_POINTS, NAMES, Scope, is_sayable, number, plus, size_of, unread_in
from tests.laws.terms import (
    Binder,
    Coordinate,
    Dim,
    Function,
    Kind,
    Let,
    Number,
    Op,
    Place,
    Read,
    Reduce,
    Size,
    Tensor,
    Term,
    bare_axes,
    walk,
)

Choose = Callable[[int], int]
T = TypeVar("T")


class Draws:
    """Draws names, sizes, indices and reads. `products` are dimensions that two others make: `h * size(d) + d` indexes
    such a one.
    """

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.products: list[tuple[Dim, Dim, Dim]] = []
        self.spaces: dict[Dim, tuple[str, ...]] = {}
        self.shadowing = False
        self.reuse = 40
        self.count = 0

    # ------------------------------------------------------------------------------ choosing

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

    def shuffled(self, items: list[T]) -> list[T]:
        items = list(items)
        return [items.pop(self.choose(len(items))) for _ in range(len(items))]

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # -------------------------------------------------------------------- coordinates, sizes

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
        axes = [axis for node in said for axis in bare_axes(unread_in(node, [*own, *local]), coordinate)]
        # What is defined inside may take its size from this very coordinate.
        inside = [axis for node in said for axis in bare_axes(unread_in(node, own), coordinate)]
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

    # --------------------------------------------------------------------------------- reads

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
