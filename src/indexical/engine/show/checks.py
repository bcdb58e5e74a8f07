"""Checks of places as Python source: refused where an index that is asked for is out of bounds."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ...ir.affine import is_counted, polynomial
from ...ir.types import Coordinate
from ..ops import Axis, Iota, Read, Table, Value, all_of, conjuncts
from ..reach import Side, ends_of, side_of
from .code import COMPARE, Code, chain, closed, infix
from .numbers import counted, extent, is_never_negative, number

if TYPE_CHECKING:
    from .printer import Printer


def out_of_bounds(p: Printer, source: Value, name: Coordinate) -> str:
    """The refusal of a place that an axis does not have: it names the array that this is an axis of."""
    while True:
        definition = p.definition_of.get(source)
        title = definition.name if definition is not None else getattr(source.op, "name", None)
        within = [part for part in source.parts if name in part.names]
        if isinstance(source.op, Read):
            index = source.op.index
            name = next((old for old, at in index if isinstance(at.op, Iota) and at.op.axis.name == name), name)
            within = [source.op.source]
        if title is not None or not within:
            literal = "an array literal" if isinstance(source.op, Table) else f"axis `{name}`"
            return f"an index of {literal if title is None else f'`{title}`'} is out of bounds"
        source = within[0]


def check_places(p: Printer, place: Value, axis: Axis, under: Value | None, message: str) -> None:
    """Refuse a place that is not one of an axis, where it is asked for. Sizes alone are asked first, where they say
    that none can be. What is asked for on one side alone may only be on the other."""
    sides = [(test, side_of(test, place, axis.extent)) for test in conjuncts(under)]
    held = {side for _, side in sides}
    under = all_of(*(test for test, side in sides if side is None))
    if held >= {"first", "last"}:
        return
    ends = ends_of(place)
    tests: list[Code] = []
    if ends is not None:
        length, span = polynomial(axis.extent), axis.extent.span
        some = [infix(">", extent(p, own), "0") for own in place.axes if not is_counted(polynomial(own.extent) - 1)]
        outside = []
        if "first" not in held and not is_counted(ends[0]):
            least = ends[0].terms.get(frozenset(), 0)
            outside.append(infix("<", counted(p, ends[0] - least, span), str(-least)))
        if "last" not in held and not is_counted(length - ends[1]):
            outside.append(infix(">", counted(p, ends[1], span), number(p, axis.extent)))
        if not outside:
            return
        tests = [*some, chain("or", outside)]
    host = [] if under is None or not under.is_host else [p.code(under)]
    if ends is not None and (under is None or under.is_host):
        p.refuse(chain("and", [*host, *tests]), "IX305", message)
    elif ends is not None and place.is_host:
        assert under is not None
        p.check(p.code(under), "IX305", message, chain("and", tests))
    elif ends is not None:
        p.check(_outside(p, place, axis, under, held), "IX305", message, chain("and", tests))
    elif under is None and not held:
        p.d.check_places(p, p.named(place), extent(p, axis), message)
    elif under is not None and under.is_host:
        p.check(_outside(p, place, axis, None, held), "IX305", message, p.code(under))
    else:
        p.check(_outside(p, place, axis, under, held), "IX305", message)


def _outside(p: Printer, place: Value, axis: Axis, under: Value | None, held: Collection[Side | None]) -> Code:
    """The mask of places that are asked for and are not there, on a side that they are not held on."""
    own = p.order_of(place)
    want = own if under is None or under.is_host else tuple(dict.fromkeys((*p.order_of(under), *own)))
    if not place.is_host:
        p.named(place)
    code = p.aligned(place, want)
    before, beyond = infix("<", code, "0"), infix(">=", code, extent(p, axis))
    mask = Code(f"({before}) | ({beyond})", COMPARE)
    if "last" in held:
        mask = before
    elif "first" in held or is_never_negative(place):
        mask = beyond
    return mask if under is None else Code(f"{closed(p.aligned(under, want))} & ({mask})", COMPARE)

