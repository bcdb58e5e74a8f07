"""Values of another head, or example, than the one whose weights gather them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.affine import Atom, Polynomial, expression, of_atom, polynomial
from ...ir.algebra.canonical import text
from ...ir.algebra.factors import Factor, varying
from ...ir.context import Agreement
from ...ir.types import Coordinate
from ...ir.walk import walk
from ..attention import Gather
from ..roles import is_given_back, query_of
from ..view import View

CODE = "IX404"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for gather in view.gathers:
        key = gather.coordinate
        pairs = query_of(view, gather)
        # What also varies with who asks belongs to a pair, such as how its weight would change: it is nobody's value.
        values = [factor for factor in gather.values if key in factor.coordinates and not pairs & factor.coordinates]
        if not values or is_given_back(view, gather):
            continue
        for comparison in view.comparisons(gather):
            query_side = varying(comparison.query_side)
            key_side = varying(comparison.key_side)
            for shared in sorted(gather.weight_coordinates & query_side & key_side, key=str):
                reads = _indices(_reading(comparison.key_side, key), shared, key, view)
                reads = reads or _indices(comparison.key_side, shared, key, view)
                found = _indices(_reading(tuple(values), key), shared, key, view)
                if not reads or found.keys() == reads.keys() or any(_is_unpacked(index) for index in found.values()):
                    continue
                if found and _have_axes_of_their_own(view, comparison.key_side, values, shared):
                    continue
                if all(_is_rounded(index, shared) for index in reads.values()) and _are_bare(found, shared):
                    continue
                if not found and any(_is_split(view, value, shared) for value in values):
                    continue
                if not found and not _has_axis_like(view, comparison.key_side, values, shared):
                    found = _indices(tuple(gather.values), shared, key, view)
                    if not found or found.keys() == reads.keys():
                        continue
                yield gather.site.let, _report(view, gather, values, shared, next(iter(reads.values())))


def _have_axes_of_their_own(view: View, keys: tuple[Factor, ...], values: list[Factor], shared: Coordinate) -> bool:
    """Whether keys and values are read by head along axes of different lengths, such as keys that several heads share:
    then each side is read at its own group of a head, if it is read at the head itself or at one of its parts."""
    sides = [_axes(view, factors, shared) for factors in (keys, values)]
    if not all(sides) or not all(_is_part(index, shared) for axes in sides for _, index in axes):
        return False
    agreement = Agreement(view.program)
    mine, theirs = ([extent for extent, _ in axes] for axes in sides)
    return not any(one == other or agreement.holds(one, other) for one in mine for other in theirs)


def _axes(view: View, factors: Iterable[Factor], shared: Coordinate) -> list[tuple[ir.Expr, ir.Expr]]:
    """The lengths of the axes that are read at a head, with the indices there."""
    reads = [view.forms.seen_through(f.expr) for f in factors if isinstance(f.expr, ir.Read)]
    return [
        (axis.extent, index)
        for read in reads
        for axis, index in zip(view.program.tensors[read.tensor].axes, read.indices, strict=True)
        if shared in index.type.coordinates
    ]


def _is_part(index: ir.Expr, shared: Coordinate) -> bool:
    """Whether an index is a coordinate, or the quotient or remainder of it."""
    match index:
        case ir.Coord(coordinate):
            return coordinate == shared
        case ir.Map("//" | "%", (ir.Coord(coordinate), divisor)):
            return coordinate == shared and not divisor.type.coordinates
        case _:
            return False


def _has_axis_like(view: View, keys: tuple[Factor, ...], values: list[Factor], shared: Coordinate) -> bool:
    """Whether the values have an axis of the kind that the keys are read along: one value for all heads has not."""
    reads = [view.forms.seen_through(f.expr) for f in keys if isinstance(f.expr, ir.Read)]
    homes = {
        axis.coordinate.name
        for read in reads
        if not _is_hidden(view, read.tensor)
        for axis, index in zip(view.program.tensors[read.tensor].axes, read.indices, strict=True)
        if shared in index.type.coordinates
    }
    found = [view.forms.seen_through(f.expr) for f in values if isinstance(f.expr, ir.Read)]
    return any(axis.coordinate.name in homes for read in found for axis in view.program.tensors[read.tensor].axes)


def _is_hidden(view: View, tensor: str) -> bool:
    """Whether a name is a function's own: it says nothing of the program's coordinates."""
    return tensor in view.lets and view.lets[tensor].hidden


def _indices(factors: tuple[Factor, ...], shared: Coordinate, key: Coordinate, view: View) -> dict[str, ir.Expr]:
    """The indices in which a coordinate stands, of the factors that vary with the key: alone, or as the slower
    one of two. As the faster one it is another split, which is another mistake."""
    found: dict[str, ir.Expr] = {}
    for factor in factors:
        if not isinstance(factor.expr, ir.Read):
            continue
        for index in view.forms.seen_through(factor.expr).indices:
            others = index.type.coordinates - {shared}
            if shared not in index.type.coordinates or key in others or len(others) > 1:
                continue
            part = _part(polynomial(index), shared)
            if not others or part != of_atom(shared):
                found[text(view.forms.algebra.whole(expression(part, index.span)))] = index
    return found


def _reading(factors: tuple[Factor, ...], key: Coordinate) -> tuple[Factor, ...]:
    """The factors that are read at the key."""
    return tuple(factor for factor in factors if key in factor.coordinates)


def _is_split(view: View, value: Factor, shared: Coordinate) -> bool:
    """Whether a head is read off a feature: in which order is for another lint to say."""
    if not isinstance(value.expr, ir.Read):
        return False
    indices = view.forms.seen_through(value.expr).indices
    return any(shared in index.type.coordinates and len(index.type.coordinates) > 1 for index in indices)


def _is_rounded(index: ir.Expr, shared: Coordinate) -> bool:
    """Whether an index is `(m / D) * D + d`: at `m` itself, head and feature at once, is the same head."""
    part = _part(polynomial(index), shared)
    return bool(part.terms) and all(
        (abs(factor) != 1 or len(monomial) > 1)
        and all(atom != shared for atom, _ in monomial)
        and any(isinstance(atom, ir.Map) and atom.op == "//" for atom, _ in monomial)
        for monomial, factor in part.terms.items()
    )


def _are_bare(found: dict[str, ir.Expr], shared: Coordinate) -> bool:
    return bool(found) and all(isinstance(i, ir.Coord) and i.coordinate == shared for i in found.values())


def _is_unpacked(index: ir.Expr) -> bool:
    """Whether an index takes a packed coordinate apart: then it is a head and a feature at once."""
    divided = [part for part in walk(index) if isinstance(part, ir.Map) and part.op in ("//", "%")]
    return any(a.op != b.op and a.arguments == b.arguments for a in divided for b in divided)


def _part(index: Polynomial, shared: Coordinate) -> Polynomial:
    """The terms of an index in which a coordinate stands."""
    return Polynomial({m: f for m, f in index.terms.items() if any(_mentions(atom, shared) for atom, _ in m)})


def _mentions(atom: Atom, shared: Coordinate) -> bool:
    return atom == shared if isinstance(atom, Coordinate) else shared in atom.type.coordinates


def _report(view: View, gather: Gather, values: list[Factor], shared: Coordinate, at: ir.Expr) -> Diagnostic:
    value = values[0].expr
    keys = Label(value.span, f"the keys are read at `{at.span.text}`")
    return Diagnostic(
        CODE,
        f"`{value.span.text}` is not read at the `{view.shown(shared)}` whose weights gather it",
        (keys, Label(gather.weights.span, f"one for each `{view.shown(shared)}`")),
        (f"what arrives at one `{view.shown(shared)}` are the values of another",),
        f"read the values at `{at.span.text}`, as the keys are",
    )
