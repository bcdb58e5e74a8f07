"""The operations that can be read: each as nodes of the graph. A rule is a function of the same name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..ir.affine import Polynomial, number
from .values import (
    Count,
    Full,
    Kind,
    Map,
    Node,
    Reduce,
    Scale,
    Shape,
    expanded,
    unsqueezed,
)

# What arguments are where a call leaves them out.
ZERO, ONCE, TWICE = number(0), number(1), number(2)
NOTHING, ALL, SOME = Scale(0.0), Scale(1.0), Scale(0.01)


class Unreadable(Exception):
    """An operation has no rule, or not for these arguments."""


class Unfit(Unreadable):
    """A number is no function of the sizes that is known; on other sizes it may be."""

    site: Any = None


class Asked:
    """The request to a rule: the shapes of the results, their kinds, and the place in the file."""

    def __init__(self, shapes: Sequence[Shape], kinds: Sequence[Kind], site: Any) -> None:
        self.shapes = shapes
        self.kinds = kinds
        self.site = site

    @property
    def shape(self) -> Shape:
        return self.shapes[0]

    @property
    def kind(self) -> Kind:
        return self.kinds[0]

    def apply(self, op: str, *arguments: Any, kind: Kind | None = None, shape: Shape | None = None) -> Node:
        """A function of tensors and numbers, point by point."""
        shape = self.shape if shape is None else shape
        nodes = tuple(self.spread(argument, shape) for argument in arguments)
        return Map(shape, kind or self.kind, op, nodes, site=self.site)

    def spread(self, value: Any, shape: Shape) -> Node:
        return expanded(self.node(value), shape, self.site)

    def node(self, value: Any) -> Node:
        match value:
            case Node():
                return value
            case Polynomial():
                if value.constant is not None:
                    return Full((), "whole", Scale(value.constant), site=self.site)
                return Count((), "whole", lambda at: value, site=self.site)
            case Scale(factor):
                kind: Kind = "bool" if isinstance(factor, bool) else "whole" if isinstance(factor, int) else "real"
                return Full((), kind, value, site=self.site)
            case bool():
                return Full((), "bool", Scale(value), site=self.site)
        raise Unreadable(f"{value!r} is neither a tensor nor a number")

    def reduced(self, op: str, source: Node, axes: Sequence[int], keepdim: bool, kind: Kind | None = None) -> Node:
        axes = tuple(sorted(axes))
        shape = tuple(extent for axis, extent in enumerate(source.shape) if axis not in axes)
        result: Node = Reduce(shape, kind or source.kind, op, source=source, axes=axes, site=self.site)
        for axis in axes if keepdim else ():
            result = unsqueezed(result, axis, self.site)
        return result


Rule = Callable[..., Any]
Written = TypeVar("Written", bound=Rule)
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Written], Written]:
    def put(function: Written) -> Written:
        for name in names:
            RULES[name] = function
        return function

    return put


def place(value: Any, rank: int) -> int:
    """An axis by its number, negative ones from the end."""
    fixed = value if isinstance(value, int) else value.constant if isinstance(value, Polynomial) else None
    if fixed is None:
        raise Unreadable("an axis is chosen by a size")
    return int(fixed) % rank if rank else 0


def places(value: Any, rank: int) -> tuple[int, ...]:
    if value is None or value == ():
        return tuple(range(rank))
    return tuple(place(part, rank) for part in value) if isinstance(value, tuple) else (place(value, rank),)
