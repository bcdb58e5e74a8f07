"""Masks: the conditions on who is heard that are looked up, and what their names say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..ir import nodes as ir
from ..ir.conditions import OPPOSITE
from ..ir.types import Coordinate
from .attention import Gather, Ungathered
from .view import View

# A condition, and whether it must hold or must not.
Literal = tuple[ir.Expr, bool]

PADDING = frozenset(("pad", "pads", "padded", "padding", "invalid"))
CONTENT = frozenset(("keep", "kept", "valid"))
# A mask keeps what is true in some libraries, and drops it in others: such a name says nothing.
_EITHER = frozenset(("mask", "masks", "masked", "no", "non", "not", "un", "without"))


def says(name: str, words: frozenset[str]) -> bool:
    """Whether one of some words stands in a name, and none that may turn it round."""
    found = set(words_in(name))
    return bool(found & words) and not found & _EITHER


def words_in(name: str) -> list[str]:
    """The words of a name: `key_padding` and `keyPadding` have two."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def masked(view: View) -> list[Gather | Ungathered]:
    """Whatever has a score or weights, where an input could be a mask: one that is true or false, or whole."""
    if all(given.kind == "real" for given in view.program.inputs):
        return []
    return [*view.scored, *view.free]


def literals(view: View, expr: ir.Expr, holds: bool = True) -> Iterator[Literal]:
    """The conditions that must all hold for one to hold, or to fail; a name, and what it stands for."""
    match expr:
        case ir.Map("!", (inner,)):
            yield from literals(view, inner, not holds)
        case ir.Map("&&" | "||" as op, sides):
            if (op == "&&") == holds:
                for side in sides:
                    yield from literals(view, side, holds)
        case ir.Map(op, sides) if op in OPPOSITE:
            yield expr, holds
            yield from _counted(view, op, sides, holds)
        case ir.Read() if expr.type.kind == "bool":
            yield expr, holds
            opened = view.forms.algebra.canonical.opened_condition(expr)
            if opened is not None:
                yield from literals(view, opened, holds)


def _counted(view: View, op: str, sides: tuple[ir.Expr, ...], holds: bool) -> Iterator[Literal]:
    """`m[j] == 0`, `m[j] != 1`, `m[j] > 0`: of a mask that is 0 or 1, and read as one."""
    match sides:
        case (ir.Read() as read, ir.Const(value)) if (op, value) in (("==", 1), ("!=", 0), (">", 0)):
            yield read, holds
        case (ir.Read() as read, ir.Const(value)) if (op, value) in (("==", 0), ("!=", 1)):
            yield read, not holds


def of_weights(view: View, gather: Gather | Ungathered) -> Iterator[tuple[ir.Expr, bool, ir.Expr]]:
    """The conditions under which a query hears a key, each with the guard that it stands in."""
    guards = [*gather.weights.kept, *(condition.expr for condition in gather.site.product.conditions)]
    for guard in dict.fromkeys(guards):
        for literal, holds in literals(view, guard):
            yield literal, holds, guard


def looked_up(view: View, expr: ir.Expr, at: Coordinate) -> Iterator[tuple[ir.Read, int]]:
    """The read of an input that a condition is, and its axis at which a coordinate stands; none where it is no such
    read."""
    read = view.forms.seen_through(expr) if isinstance(expr, ir.Read) else None
    if read is not None and read.tensor not in view.lets:
        for number, index in enumerate(read.indices):
            if isinstance(index, ir.Coord) and index.coordinate == at:
                yield read, number
