"""Expressions with numbers in them, as a person would write them out: `(1·1 + 1·0)/√2`, `weights[2, j]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir import build
from ..ir import nodes as ir
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import rebuild, substitute, walk
from .wholes import Point

if TYPE_CHECKING:
    from .trace import Tracer

# A sum that is written out has at most so many parts.
LONGEST_SUM = 12

# How tightly a part is bound: as it stands; in a product; right of `·` or `/`; under a power.
LOOSE, FACTOR, TIGHT, BASE = range(4)

Show = Callable[[Any], str]


def written(tracer: Tracer, expr: ir.Expr, point: Point, show: Show, level: int = LOOSE) -> str:
    """An expression at a point. What has no sign of its own is its value; an element of which `show` has only the
    digits goes by its name."""
    match expr:
        case ir.Reduce("sum" | "mean" | "prod" | "max" | "min"):
            return _reduction(tracer, expr, point, show, level)
        case ir.Select():
            taken = expr.then if tracer.evaluation.value(expr.condition, point) else expr.otherwise
            return written(tracer, taken, point, show, level)
        case ir.Map() if expr.type.kind != "bool" and not tracer.evaluation.is_removed(expr, point):
            return _map(tracer, expr, point, show, level)
        case _:
            text = show(tracer.evaluation.value(expr, point))
            if text.startswith("≈"):
                return str(tracer.element(expr, point)) if isinstance(expr, ir.Read) else f"({text})"
            return bracketed(text, level)


def _reduction(tracer: Tracer, expr: ir.Reduce, point: Point, show: Show, level: int) -> str:
    evaluation = tracer.evaluation
    points = list(evaluation.scanned(expr, point))
    if expr.op == "sum":
        points = [inner for inner in points if not evaluation.is_removed(expr.body, inner)]
    inside = {"prod": TIGHT, "max": LOOSE, "min": LOOSE}.get(expr.op, FACTOR if len(points) > 1 else level)
    if not points:
        return bracketed(show(evaluation.value(expr, point)), level)
    parts = [written(tracer, expr.body, inner, show, inside) for inner in points[:LONGEST_SUM]]
    if len(points) > LONGEST_SUM:
        parts[-1:] = ["…", written(tracer, expr.body, points[-1], show, inside)]
    if len(points) == 1:
        return bracketed(parts[0], level)
    match expr.op:
        case "sum":
            return bracketed(" + ".join(parts), level)
        case "mean":
            return bracketed(f"({' + '.join(parts)})/{len(points)}", level)
        case "prod":
            return bracketed("·".join(parts), level)
        case _:
            return f"{expr.op}({', '.join(parts)})"


def _map(tracer: Tracer, expr: ir.Map, point: Point, show: Show, level: int) -> str:
    def part(at: int, level: int) -> str:
        return written(tracer, expr.arguments[at], point, show, level)

    match expr.op, len(expr.arguments):
        case (("+" | "-" as op), 2):
            return bracketed(f"{part(0, LOOSE)} {op} {part(1, FACTOR)}", level)
        case "*", 2:
            return bracketed(f"{part(0, FACTOR)}·{part(1, TIGHT)}", level)
        case "/", 2:
            return bracketed(f"{part(0, FACTOR)}/{part(1, TIGHT)}", level)
        case "neg", 1:
            return bracketed(f"-{part(0, TIGHT)}", level)
        case "**", 2:
            return bracketed(f"{part(0, BASE)}^{part(1, BASE)}", level)
        case "exp", 1:
            return bracketed(f"e^{part(0, BASE)}", level)
        case "sqrt", 1:
            inside = part(0, LOOSE)
            return bracketed(f"√{inside}" if inside.isdigit() else f"√({inside})", level)
        case "pi", 0:
            return "pi"
        case op, _ if op.isidentifier():
            inside = ", ".join(part(at, LOOSE) for at in range(len(expr.arguments)))
            return f"{op}({inside})"
        case op, 1 if op.startswith("as ") and expr.type.kind == "real" and expr.arguments[0].type.kind != "bool":
            return part(0, level)
        case _:
            return bracketed(show(tracer.evaluation.value(expr, point)), level)


def bracketed(text: str, level: int) -> str:
    """The text, in brackets where it would be read otherwise at its place."""
    loose = {LOOSE: "", FACTOR: "+-", TIGHT: "+-·/%", BASE: "+-·/%^√. "}[level]
    depth = 0
    for sign in text:
        depth += (sign in "([") - (sign in ")]")
        if depth == 0 and sign in loose:
            return f"({text})"
    return text


def pattern(tracer: Tracer, expr: ir.Expr, point: Point, scanned: frozenset[Coordinate]) -> str:
    """An expression with numbers for the coordinates of a read that are not scanned: `weights[2, j]`."""
    return shown(_placed(tracer, expr, {c: at for c, at in point.items() if c not in scanned}))


def _placed(tracer: Tracer, expr: ir.Expr, values: Point) -> ir.Expr:
    match expr:
        case ir.Reduce(coordinates=bound):
            inner = {c: at for c, at in values.items() if c not in bound}
        case ir.Normalize(coordinate=coordinate):
            inner = {c: at for c, at in values.items() if c != coordinate}
        case ir.Read(tensor, indices, type, span):
            return build.read(tensor, tuple(_index(tracer, index, values) for index in indices), type.kind, span)
        case _:
            inner = values
    return rebuild(expr, lambda child: _placed(tracer, child, inner))


def _index(tracer: Tracer, index: ir.Expr, values: Point) -> ir.Expr:
    """A number where nothing is open in it; a read in it stays, with its own index."""
    if any(isinstance(part, ir.Read) for part in walk(index)):
        return _placed(tracer, index, values)
    if index.type.coordinates and index.type.coordinates <= values.keys():
        return build.whole(tracer.evaluation.value(index, values), index.span)
    return substitute(index, {c: build.whole(at, index.span) for c, at in values.items()})
