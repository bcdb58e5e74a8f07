"""What may be mentioned at a place of a program that is being drawn, and a few words about terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.laws.terms import (
    Apply,
    Block,
    Cast,
    Coordinate,
    Dim,
    Fn,
    Function,
    If,
    Number,
    Op,
    Paren,
    Place,
    Read,
    Rest,
    Scan,
    Short,
    Size,
    Tensor,
    Term,
    change,
    mentioned,
    walk,
)

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


def is_sayable(dim: Dim) -> bool:
    """Whether a literal may stand for the size of a dimension beside others that say it."""
    return dim.size is not None and (dim.stated or dim.size > 2) and all(map(is_sayable, dim.parts))


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


def unread_in(node: Any, tensors: Sequence[Tensor]) -> Any:
    """The node without reads of these: what is being defined says nothing about its own size."""
    if isinstance(node, Read) and node.tensor in tensors:
        return replace(node, indices=())
    return change(node, lambda part: unread_in(part, tensors)) if tensors else node


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
        case Cast(inner) | Paren(inner) | Short(_, inner):
            return leaks(inner)
        case If(_, then, otherwise):
            return leaks(then) or leaks(otherwise)
        case Block(_, body):
            return leaks(body)
        case Apply(fn, _):
            return fn.guard is not None
        case _:
            return False
