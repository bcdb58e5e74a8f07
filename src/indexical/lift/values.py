"""The tensors of a run as a graph: what each is, as a function of its indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from ..ir.affine import Polynomial, number
from .indices import Extent, reshaped
from .recording import Site

Shape: TypeAlias = tuple[Polynomial, ...]
Indices: TypeAlias = tuple[Polynomial, ...]
Kind = Literal["bool", "whole", "real"]


@dataclass(frozen=True, slots=True)
class Scale:
    """A number: a factor, times powers of sizes."""

    factor: float | int | bool
    powers: tuple[tuple[Extent, float], ...] = ()


@dataclass(slots=True, eq=False)
class Node:
    shape: Shape
    kind: Kind
    site: Site | None = field(kw_only=True, default=None)


@dataclass(slots=True, eq=False)
class Leaf(Node):
    """A tensor that no operation made: an argument, a parameter, a constant."""

    name: str = ""
    tensor: Any = None
    given: bool = False


@dataclass(slots=True, eq=False)
class Opaque(Node):
    """A tensor that cannot be read, and why: raised where a result needs it."""

    problem: Exception = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Full(Node):
    """One number everywhere."""

    value: Scale = Scale(0)


@dataclass(slots=True, eq=False)
class Count(Node):
    """A whole number that is a polynomial of the indices."""

    at: Callable[[Indices], Polynomial] = lambda at: at[0]


@dataclass(slots=True, eq=False)
class View(Node):
    """Another tensor, read elsewhere. It `expands` where a point may be read twice, `restricts` where some are not."""

    source: Node = field(kw_only=True)
    move: Callable[[Indices], Indices] = field(kw_only=True)
    expands: bool = False
    restricts: bool = False
    # Where a point of the source lies in the view, and what is at least 0 if it does; None where that is not known.
    inverse: Callable[[Indices], tuple[Indices, tuple[Polynomial, ...]]] | None = None


@dataclass(slots=True, eq=False)
class Gathered(Node):
    """Another tensor, at places that tensors of whole numbers say: `tables` by the axis of the source."""

    source: Node = field(kw_only=True)
    tables: dict[int, tuple[Node, Callable[[Indices], Indices]]] = field(kw_only=True)
    move: Callable[[Indices], Indices] = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Map(Node):
    """A function of tensors of one shape, point by point."""

    op: str = ""
    arguments: tuple[Node, ...] = ()


@dataclass(slots=True, eq=False)
class Condition(Node):
    """A comparison of two indices, as `tril` makes it: `at` is at least 0."""

    at: Callable[[Indices], Polynomial] = lambda at: at[0]


@dataclass(slots=True, eq=False)
class Reduce(Node):
    op: str = "sum"
    source: Node = field(kw_only=True)
    axes: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Normalize(Node):
    op: str = "softmax"
    source: Node = field(kw_only=True)
    axis: int = -1


@dataclass(slots=True, eq=False)
class Join(Node):
    """Tensors one after the other along an axis; each begins at its start."""

    parts: tuple[Node, ...] = ()
    starts: tuple[Polynomial, ...] = ()
    axis: int = 0


@dataclass(slots=True, eq=False)
class Patched(Node):
    """A tensor of which a part was written anew: `inverse` says where in the part a point lies."""

    source: Node = field(kw_only=True)
    part: Node = field(kw_only=True)
    inverse: Callable[[Indices], tuple[Indices, tuple[Polynomial, ...]]] = field(kw_only=True)


def sources_of(node: Node) -> tuple[Node, ...]:
    """The tensors that a node is made of."""
    match node:
        case View(source=source) | Reduce(source=source) | Normalize(source=source):
            return (source,)
        case Gathered(source=source, tables=tables):
            return (source, *(table for table, _ in tables.values()))
        case Map(arguments=arguments):
            return arguments
        case Join(parts=parts):
            return parts
        case Patched(source=source, part=part):
            return (source, part)
    return ()


# ------------------------------------------------------------------------------------- common views


def replaced(view: View, source: Node) -> View:
    """The same view of another tensor of that shape."""
    return view if source is view.source else replace(view, source=source, kind=source.kind)


def permuted(source: Node, order: Sequence[int], site: Site | None) -> Node:
    back = {axis: place for place, axis in enumerate(order)}
    shape = tuple(source.shape[axis] for axis in order)
    return View(
        shape, source.kind, source=source, move=lambda at: tuple(at[back[axis]] for axis in range(len(at))), site=site
    )


def viewed(source: Node, shape: Shape, site: Site | None) -> Node:
    if shape == source.shape:
        return source
    return View(shape, source.kind, source=source, move=lambda at: reshaped(at, shape, source.shape), site=site)


def expanded(source: Node, shape: Shape, site: Site | None) -> Node:
    """The tensor repeated along axes in front, and along those of one point."""
    if shape == source.shape:
        return source
    if isinstance(source, Full):
        return Full(shape, source.kind, source.value, site=source.site)
    lead = len(shape) - len(source.shape)
    ones = [extent.constant == 1 for extent in source.shape]

    def move(at: Indices) -> Indices:
        return tuple(number(0) if one else i for i, one in zip(at[lead:], ones, strict=True))

    return View(shape, source.kind, source=source, move=move, expands=True, site=site)


def sliced(source: Node, axis: int, start: Polynomial, step: int, shape: Shape, site: Site | None) -> Node:
    """Some points of an axis. `shape` is that of the result, which has the axis still."""
    if shape == source.shape and not start.terms and step == 1:
        return source

    def move(at: Indices) -> Indices:
        return (*at[:axis], start + at[axis] * number(step), *at[axis + 1 :])

    def inverse(at: Indices) -> tuple[Indices, tuple[Polynomial, ...]]:
        inside = at[axis] - start
        return (*at[:axis], inside, *at[axis + 1 :]), (inside, shape[axis] - 1 - inside)

    found = View(shape, source.kind, source=source, move=move, restricts=True, site=site)
    found.inverse = inverse if step == 1 else None
    return found


def selected(source: Node, axis: int, place: Polynomial, site: Site | None) -> Node:
    """One point of an axis, which is then gone."""
    shape = (*source.shape[:axis], *source.shape[axis + 1 :])

    def inverse(at: Indices) -> tuple[Indices, tuple[Polynomial, ...]]:
        return (*at[:axis], *at[axis + 1 :]), (at[axis] - place, place - at[axis])

    found = View(
        shape, source.kind, source=source, move=lambda at: (*at[:axis], place, *at[axis:]), restricts=True, site=site
    )
    found.inverse = inverse
    return found


def unsqueezed(source: Node, axis: int, site: Site | None) -> Node:
    shape = (*source.shape[:axis], number(1), *source.shape[axis:])
    return View(shape, source.kind, source=source, move=lambda at: (*at[:axis], *at[axis + 1 :]), site=site)


def squeezed(source: Node, axes: Sequence[int], site: Site | None) -> Node:
    shape = tuple(extent for axis, extent in enumerate(source.shape) if axis not in axes)

    def move(at: Indices) -> Indices:
        rest = iter(at)
        return tuple(number(0) if axis in axes else next(rest) for axis in range(len(source.shape)))

    return View(shape, source.kind, source=source, move=move, site=site)
