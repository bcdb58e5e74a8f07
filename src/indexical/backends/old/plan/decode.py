"""Attention of few queries over many keys: whether a kernel that splits the keys takes it, and why not."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir import nodes as ir
from ....ir.algebra.factors import factors_of
from ....ir.types import Coordinate, Dtype
from ....ir.walk import walk
from ....plan.steps import Attend, Dot, Softmax
from ....records import dataclass
from .gpu import dots_of, product_dtypes, refusal, unprinted
from .scores import dot_of

DECODE = "up to 16 queries without gradients: their keys are split over the card, and merged"


def compared(attend: Attend) -> dict[ir.Expr, Dot]:
    """The dot products in the score. Where no coordinate asks there is one query for each point of the batch."""
    key, row = attend.attention.coordinate, attend.row
    if row is not None:
        found = dots_of(attend.attention.score, frozenset((row,)), key)
        return {expr: dot for expr, dot in found if isinstance(dot, Dot)}
    sums = [p for p in walk(attend.attention.score) if isinstance(p, ir.Reduce) and p.op == "sum"]
    dots = {expr: dot_of(expr, frozenset[Coordinate](), key) for expr in sums if key in expr.type.coordinates}
    return {expr: dot for expr, dot in dots.items() if isinstance(dot, Dot)}


def products_in(attend: Attend, dtypes: Mapping[str, Dtype], weak: frozenset[str], result: Dtype) -> set[Dtype]:
    """The dtypes in which the products of an attention are taken by a kernel of its own."""
    return set(product_dtypes(compared(attend).values(), attend.attention.value, dtypes, weak, result))


@dataclass(frozen=True, slots=True)
class Pages:
    """Keys and values that lie in pages: the page of a key is read from a table at `key / slots`, its place in the page
    is `key % slots`. `reads` are those of keys and of values, each with its axes of pages and of places."""

    table: ir.Read
    axis: int
    slots: ir.Expr
    reads: tuple[tuple[ir.Read, int, int], tuple[ir.Read, int, int]]


def pages_of(attend: Attend) -> Pages | None:
    """The pages in which keys and values lie; None where they do not."""
    dots, key = list(compared(attend).values()), attend.attention.coordinate
    if len(dots) != 1:
        return None
    keys, values = _page(dots[0].key, key), _page(attend.attention.value, key)
    if keys is None or values is None or keys[1:4] != values[1:4]:
        return None
    return Pages(*keys[1:4], ((keys[0], *keys[4:]), (values[0], *values[4:])))


def _page(side: ir.Expr, key: Coordinate) -> tuple[ir.Read, ir.Read, int, ir.Expr, int, int] | None:
    """A read of a page: the table, the axis along which it is read, the number of places, and both axes of the read."""
    if not isinstance(side, ir.Read):
        return None
    tied = [(n, index) for n, index in enumerate(side.indices) if key in index.type.coordinates]
    if len(tied) != 2:
        return None
    for (page_axis, page), (slot_axis, slot) in (tied, tied[::-1]):
        match page, slot:
            case ir.Read(), ir.Map("%", (ir.Coord(), slots)) if not slots.type.coordinates:
                own = [n for n, index in enumerate(page.indices) if key in index.type.coordinates]
                if len(own) != 1:
                    return None
                match page.indices[own[0]]:
                    case ir.Map("//", (ir.Coord(), count)) if count == slots:
                        return side, page, own[0], slots, page_axis, slot_axis
    return None


def decode_refusal(attend: Attend, dtypes: Mapping[str, Dtype]) -> str | None:
    """Why the kernel does not compute an attention; None where it does."""
    attention = attend.attention
    if not isinstance(attention.normaliser, Softmax):
        return "it divides e to the scores by their sum"
    if attend.row is not None:
        return refusal(attend, dtypes)
    if not set(dtypes.values()) & {"f16", "bf16", "f32", "f64"} <= {"f16", "bf16", "f32"}:
        return "matrix units have no f64"
    if not (isinstance(attention.key.lower, ir.Const) and attention.key.lower.value == 0):
        return "keys begin above 0"
    if not compared(attend):
        return "no dot product in the score"
    carried = [factor.expr.type.coordinates for factor in factors_of(attention.value)]
    weighing = [names for names in carried if names <= attention.asked]
    if weighing and len(weighing) < len(carried):
        return "a factor of its weights varies with query and key"
    for expr in attention.parts:
        reason = unprinted(expr, frozenset(), attention.coordinate)
        if reason is not None:
            return reason
    return None
