"""Nodes with their types worked out."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ..source import Span
from .nodes import Const, Coord, Expr, Map, Normalize, Range, Read, Reduce, Select, Size
from .types import NOWHERE, Coordinate, Kind, Type, join

_KINDS: tuple[Kind, ...] = ("bool", "whole", "real")
_TYPES: dict[Kind, Type] = {kind: Type(kind, NOWHERE) for kind in _KINDS}


def whole(value: int, span: Span) -> Const:
    return Const(value, _TYPES["whole"], span)


def truth(value: bool, span: Span) -> Const:
    return Const(value, _TYPES["bool"], span)


def real(value: Fraction, span: Span, rounding: Fraction | None = None) -> Const:
    return Const(value, _TYPES["real"], span, rounding)


def coord(coordinate: Coordinate, span: Span) -> Coord:
    return Coord(coordinate, Type("whole", frozenset((coordinate,))), span)


def size(coordinate: Coordinate, span: Span) -> Size:
    return Size(coordinate, _TYPES["whole"], span)


def pi(span: Span) -> Map:
    return Map("pi", (), _TYPES["real"], span)


def varying(expressions: Iterable[Expr | None]) -> frozenset[Coordinate]:
    """The coordinates that any of these varies over."""
    found = NOWHERE
    for expr in expressions:
        if expr is not None:
            own = expr.type.coordinates
            if not own <= found:
                found = found | own if found else own
    return found


def typed(kind: Kind, expressions: Iterable[Expr | None]) -> Type:
    coordinates = varying(expressions)
    return Type(kind, coordinates) if coordinates else _TYPES[kind]


def read(tensor: str, indices: tuple[Expr, ...], kind: Kind, span: Span) -> Read:
    return Read(tensor, indices, typed(kind, indices), span)


def apply(op: str, arguments: tuple[Expr, ...], kind: Kind, span: Span) -> Map:
    return Map(op, arguments, typed(kind, arguments), span)


def select(condition: Expr, then: Expr, otherwise: Expr, span: Span) -> Select:
    kind = join((then.type.kind, otherwise.type.kind))
    return Select(condition, then, otherwise, typed(kind, (condition, then, otherwise)), span)


def reduce(op: str, ranges: tuple[Range, ...], body: Expr, guard: Expr | None, kind: Kind, span: Span) -> Reduce:
    bounds = [bound for range in ranges for bound in (range.lower, range.upper)]
    coordinates = varying((body, guard, *bounds)) - {range.coordinate for range in ranges}
    return Reduce(op, ranges, body, guard, Type(kind, coordinates), span)


def normalize(op: str, coordinate: Coordinate, body: Expr, guard: Expr | None, kind: Kind, span: Span) -> Normalize:
    return Normalize(op, coordinate, body, guard, Type(kind, varying((body, guard)) | {coordinate}), span)


def conjunction(conditions: Iterable[Expr | None]) -> Expr | None:
    """All of these; None where there are none."""
    result: Expr | None = None
    for condition in conditions:
        if condition is not None:
            result = condition if result is None else apply("&&", (result, condition), "bool", condition.span)
    return result


def is_number(expr: Expr | None, value: int) -> bool:
    """Whether this is a number as written."""
    return isinstance(expr, Const) and not isinstance(expr.value, bool) and expr.value == value
