"""Elements by their order: `topk`, `sort` and what is looked up by them, as ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir.affine import Polynomial, number
from .layouts import as_kind
from .rules import Asked, Unreadable, place, rule
from .values import Count, Full, Indices, Map, Node, Normalize, Reduce, Scale, Shape, View, unsqueezed

_LAST = number(-1)


@dataclass(slots=True, eq=False)
class Places(Reduce):
    """The places of the largest elements along an axis; `ranks` says of every element how many come before it."""

    ranks: Node | None = None


def _ranks(asked: Asked, x: Node, axis: int, descending: bool) -> Node:
    """How many elements come before each, ties to the first."""
    source = x if descending else asked.apply("neg", x, kind=x.kind, shape=x.shape)
    return Normalize(x.shape, "whole", "rank", source=source, axis=axis, site=asked.site)


def _at_rank(asked: Asked, ranks: Node, value: Node, axis: int, shape: Shape) -> Reduce:
    """The elements of a tensor at the first places of an order: the sum over the one whose rank it is."""
    rank = len(shape)
    whole = (*shape, ranks.shape[axis])

    def along(at: Indices) -> Indices:
        return (*at[:axis], at[rank], *at[axis + 1 : rank])

    def over(source: Node) -> Node:
        return View(whole, source.kind, source=source, move=along, expands=True, site=asked.site)

    wanted = Count(whole, "whole", lambda at: at[axis], site=asked.site)
    same = Map(whole, "bool", "==", (over(ranks), wanted), site=asked.site)
    nothing = Full(whole, value.kind, as_kind(Scale(0), value.kind), site=asked.site)
    body = Map(whole, value.kind, "if", (same, over(value), nothing), site=asked.site)
    return Places(shape, value.kind, "sum", source=body, axes=(rank,), ranks=ranks, site=asked.site)


def _ordered(asked: Asked, x: Node, axis: int, descending: bool, shape: Shape) -> tuple[Node, Node]:
    """The first elements in an order, and their places."""
    if x.kind == "bool":
        raise Unreadable("truths are put in order")
    ranks = _ranks(asked, x, axis, descending)
    counted = Count(x.shape, "whole", lambda at: at[axis], site=asked.site)
    return _at_rank(asked, ranks, x, axis, shape), _at_rank(asked, ranks, counted, axis, shape)


@rule("topk")
def topk(asked: Asked, x: Node, count: Any, axis: Any = _LAST, largest: Any = True, *rest: Any, **more: Any) -> Any:
    return _ordered(asked, x, place(axis, len(x.shape)), bool(largest), asked.shape)


@rule("sort")
def sort(asked: Asked, x: Node, axis: Any = _LAST, descending: Any = False, **more: Any) -> Any:
    return _ordered(asked, x, place(axis, len(x.shape)), bool(descending), x.shape)


@rule("argsort")
def argsort(asked: Asked, x: Node, axis: Any = _LAST, descending: Any = False, **more: Any) -> Node:
    return _ordered(asked, x, place(axis, len(x.shape)), bool(descending), x.shape)[1]


@rule("kthvalue")
def kthvalue(asked: Asked, x: Node, count: Polynomial, axis: Any = _LAST, keepdim: Any = False) -> Any:
    """The element before which so many come, less one, from the smallest."""
    at = place(axis, len(x.shape))
    shape = (*x.shape[:at], number(1), *x.shape[at + 1 :])
    found = []
    for node in _ordered(asked, x, at, False, shape):
        assert isinstance(node, Reduce)
        source = node.source

        def move(i: Indices) -> Indices:
            return (*i[:at], count - 1, *i[at + (1 if keepdim else 0) : -1], i[-1])

        whole = (*asked.shape, source.shape[-1])
        moved = View(whole, source.kind, source=source, move=move, restricts=True, site=asked.site)
        found.append(Reduce(asked.shape, node.kind, "sum", source=moved, axes=(len(whole) - 1,), site=asked.site))
    return tuple(found)


@rule("sort_along")
def sort_along(asked: Asked, x: Node, *rest: Any) -> Any:
    """A sort of JAX: the smallest first, and another array by the same order."""
    axis = place(rest[-1], len(x.shape))
    ranks = _ranks(asked, x, axis, False)
    found = tuple(_at_rank(asked, ranks, asked.node(value), axis, x.shape) for value in (x, *rest[:-1]))
    return found if len(found) > 1 else found[0]


@rule("scatter")
def scatter(asked: Asked, x: Node, axis: Any, ids: Node, value: Any, **rest: Any) -> Node:
    """One number at places that data say: where any of them is this place; at those of the largest, by the rank."""
    filled = asked.node(value)
    at = place(axis, len(x.shape))
    across = [(a, b) for n, (a, b) in enumerate(zip(ids.shape, x.shape, strict=True)) if n != at]
    if rest or filled.shape != () or any(a != b for a, b in across):
        raise Unreadable("elements are written at places that data say")
    if isinstance(ids, Places) and ids.ranks is not None and ids.ranks.shape == x.shape:
        first = asked.apply("<", ids.ranks, ids.shape[at], kind="bool", shape=x.shape)
        return asked.apply("if", first, filled, x)
    wide = (*x.shape[: at + 1], ids.shape[at], *x.shape[at + 1 :])
    turned = unsqueezed(ids, at, asked.site)
    here = Count(wide, "whole", lambda i: i[at], site=asked.site)
    same = asked.apply("==", here, asked.spread(turned, wide), kind="bool", shape=wide)
    return asked.apply("if", asked.reduced("any", same, (at + 1,), False), filled, x)
