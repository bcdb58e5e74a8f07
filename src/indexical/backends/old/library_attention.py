"""Attention by the library's own fused kernel."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.types import SHORT, Coordinate
from ...plan.steps import Attend
from ...records import replace
from . import contraction, operands, sizes
from .base import Value
from .code import ALL, ELLIPSIS, NONE, Call, Index, Infix, Name, Node, chain, fill, infix
from .lowering import Lowering
from .operands import Frame
from .scope import Place, Scope


def fused(low: Lowering, let: ir.Let, attend: Attend, frame: Frame) -> Value:
    """The library's own kernel."""
    dot = attend.scores.dot
    assert dot is not None
    scale, query = operands.scale(low, attend)
    compared = tuple(range.coordinate for range in dot.compared)
    groups = grouped(low, attend, frame)
    keywords = scaling(attend, scale)
    kernel = Name(low.text.helper("attend"))
    library = low.text.dialect.attention
    apart = _heads_apart(low, let, attend, frame) if groups is None and library is not None else None
    if apart is not None:
        frame, shared = apart
        q = operands.operand(low, query, frame.row, compared, frame, let)
        k = operands.operand(low, dot.key, attend.attention.coordinate, compared, shared, let)
        v = operands.operand(low, attend.attention.value, attend.attention.coordinate, attend.layout.carry, shared, let)
        code = Call(kernel, (q, k, v), (*keywords, ("enable_gqa", Name("True"))))
        return operands.restored(low, code, let, attend, frame)
    q = operands.operand(low, query, frame.row, compared, frame, let)
    if groups is not None:
        shared, test, key, answer = groups
        k = operands.operand(low, key, attend.attention.coordinate, compared, shared, let)
        v = operands.operand(low, answer, attend.attention.coordinate, attend.layout.carry, shared, let)
        variable = low.text.fresh(f"{let.name}_rows")
        low.text.add("if", test)
        with low.block():
            low.text.assign(variable, Call(kernel, (q, k, v), (*keywords, ("enable_gqa", Name("True")))))
        low.text.add("else")
        with low.block():
            k = operands.operand(low, dot.key, attend.attention.coordinate, compared, frame, let)
            v = operands.operand(
                low, attend.attention.value, attend.attention.coordinate, attend.layout.carry, frame, let
            )
            low.text.assign(variable, Call(kernel, (q, k, v), keywords))
        return operands.restored(low, Name(variable), let, attend, frame)
    k = operands.operand(low, dot.key, attend.attention.coordinate, compared, frame, let)
    v = operands.operand(low, attend.attention.value, attend.attention.coordinate, attend.layout.carry, frame, let)
    bases = [widened_array(side) for side in (q, k, v)]
    if library is None or not all(isinstance(base, Name) for base in bases):
        return operands.restored(low, Call(kernel, (q, k, v), keywords), let, attend, frame)
    # Arrays that the library takes as they are go straight to it: of a small call most is what stands around it.
    variable = low.text.fresh(f"{let.name}_rows")
    low.text.add("if", _taken_as_they_are(low, let, attend, frame, compared, tuple(bases)))
    with low.block():
        low.text.assign(variable, Call(library, (q, k, v), keywords))
    low.text.add("else")
    with low.block():
        low.text.assign(variable, Call(kernel, (q, k, v), keywords))
    return operands.restored(low, Name(variable), let, attend, frame)


def _taken_as_they_are(
    low: Lowering,
    let: ir.Let,
    attend: Attend,
    frame: Frame,
    compared: tuple[Coordinate, ...],
    sides: tuple[Node, ...],
) -> Node:
    """A test that widths are equal, no row has gaps, no key is past the last query of a causal call, and arrays of 16
    bits are not on a CPU, where the library rounds weights to as many."""
    widths = [contraction.product_of_lengths(low, axes, frame.scope) for axes in (compared, attend.layout.carry)]
    tests: list[Node] = [Infix("==", *widths)] if widths[0] != widths[1] else []
    if attend.shape == "causal" and frame.row is not None:
        rows, keys = (sizes.length(low, c, frame.scope) for c in (frame.row, attend.attention.coordinate))
        tests += [Infix("<=", keys, rows)] if rows != keys else []
    if low.dtypes[let.name] in ("f16", "bf16"):
        tests.append(fill("not {array}.is_cpu", array=sides[0]))
    return chain("and", [*tests, *(fill("{array}.stride(-1) == 1", array=side) for side in sides)])


def scaling(attend: Attend, scale: Node) -> tuple[tuple[str, Node], ...]:
    """The arguments that the library's kernel takes by name."""
    causal = (("is_causal", Name("True")),) if attend.shape == "causal" else ()
    return (*causal, ("scale", scale))


def _heads_apart(low: Lowering, let: ir.Let, attend: Attend, frame: Frame) -> tuple[Frame, Frame] | None:
    """Heads that share keys and values and have axes of their own, `Q[b, g, r, i, d]` and `K[b, g, j, d]`: the frame of
    queries, with these axes last among the heads, and that of keys and values, without them. For arrays of 16 bits: on
    a GPU, kernels of the library for others take no groups, and would build all scores."""
    assert attend.scores.dot is not None
    sides = attend.scores.dot.key.type.coordinates | attend.attention.value.type.coordinates
    own = tuple(axis for axis in frame.batch if axis not in sides)
    if not own or low.dtypes[let.name] not in SHORT:
        return None
    shared = tuple(axis for axis in frame.batch if axis in sides)
    heads = len(shared) > 1
    return (
        replace(frame, batch=(*shared, *own), heads=heads + len(own)),
        replace(frame, batch=shared, heads=int(heads)),
    )


def grouped(low: Lowering, attend: Attend, frame: Frame) -> tuple[Frame, Node, ir.Expr, ir.Expr] | None:
    """Heads that share keys and values, `K[b, h / G, j, d]`: the frame of the shared ones, when that is all
    of them, and both sides read at the shared head."""
    dot = attend.scores.dot
    if dot is None or not frame.batch:
        return None
    head = frame.batch[-1]
    found = []
    for expr in (dot.key, attend.attention.value):
        if not isinstance(expr, ir.Read):
            return None
        places = [n for n, index in enumerate(expr.indices) if head in index.type.coordinates]
        match [expr.indices[n] for n in places]:
            case [ir.Map("//", (ir.Coord(), group))] if not group.type.coordinates:
                found.append((expr, places[0], group, low.tensors[expr.tensor].axes[places[0]].extent))
            case _:
                return None
    (key, _, group, extent), (_, _, other, other_extent) = found
    if group != other or polynomial(extent) != polynomial(other_extent):
        return None
    place = frame.scope.places[head]
    if not isinstance(place.start, ir.Const) or place.start.value != 0:
        return None
    shared = Coordinate(f"{head.name}_shared")
    scope = frame.scope.binding(
        ir.Range(shared, place.start, extent, False, key.span), Place(place.start, extent, True)
    )
    order = {
        (shared if c == head else c): scope.places[shared if c == head else c] for c in scope.places if c != shared
    }
    inner = Scope(order, scope.trail)
    new = Frame((*frame.batch[:-1], shared), frame.row, inner, Scope(order, (*inner.trail, *frame.kept.trail)))
    test = infix("==", sizes.number(low, place.stop), _times(low, group, extent))
    read = [_reading(expr, n, shared) for expr, n, _, _ in found]
    return new, test, read[0], read[1]


def _times(low: Lowering, group: ir.Expr, extent: ir.Expr) -> Node:
    return sizes.number(low, build.apply("*", (group, extent), "whole", extent.span))


def widened_array(code: Node) -> Node:
    """The array that code only gives further axes of length 1: it has gaps where the array has some."""
    while isinstance(code, Index) and all(slot in (ALL, ELLIPSIS, NONE) for slot in code.slots):
        code = code.of
    return code


def _reading(expr: ir.Read, axis: int, shared: Coordinate) -> ir.Expr:
    indices = tuple(build.coord(shared, index.span) if n == axis else index for n, index in enumerate(expr.indices))
    return build.read(expr.tensor, indices, expr.type.kind, expr.span)
