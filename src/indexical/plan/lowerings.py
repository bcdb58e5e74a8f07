"""What is said of sums that are computed without a mask: where points are added, what is padded, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..ir import nodes as ir
from ..ir.affine import Polynomial, expression, extreme, polynomial
from ..ir.build import conjuncts_of
from ..ir.context import Trail, assume, visit_clause
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import walk
from . import scatters, strides
from .groups import grouped
from .scatters import Bounds, Scatter
from .steps import Refusal, Step

SCATTER = "scatter-add"
WINDOWS = "windows"

# Ways of computing a sum in which nothing is built that a condition removes.
LOWERINGS = (SCATTER, WINDOWS)


def described(step: Step, program: ir.Program) -> Step:
    """The step with what is said of its sums, where it is computed with arrays."""
    lets = {let.name: let for let in program.lets}
    if step.kernel != "arrays" or step.definition not in lets:
        return step
    words: list[str] = []
    refusals: list[Refusal] = []
    for clause in lets[step.definition].clauses:
        for expr, trail in visit_clause(clause):
            if isinstance(expr, ir.Reduce) and expr.op == "sum" and expr.guard is not None:
                for found in _told(expr, trail, program, lets):
                    if isinstance(found, str):
                        words.append(found)
                    else:
                        refusals.append(replace(found, definition=step.definition))
    return replace(
        step,
        words=(*step.words, *dict.fromkeys(words)),
        refusals=(*step.refusals, *dict.fromkeys(refusals)),
    )


def _told(expr: ir.Reduce, trail: Trail, program: ir.Program, lets: Mapping[str, ir.Let]) -> Iterator[str | Refusal]:
    """What is done about each condition, in the order in which it is done."""
    for condition in conjuncts_of(expr.guard):
        by_group = grouped(expr, condition)
        if by_group is not None:
            yield f"`{shown(condition)}`: what belongs together is put side by side"
            return
    bounds = _bounds(expr, trail)
    strided = strides.find(expr, bounds)
    if strided is not None:
        yield f"one sum for each remainder of `{strided.target}`: nothing is multiplied that leaves another"
        return
    found = scatters.find(expr, bounds)
    if isinstance(found, Scatter):
        over = ", ".join(f"`{range.coordinate}`" for range in found.moved)
        yield f"scatter-add over {over} by {', '.join(f'`{shown(value)}`' for value in found.values.values())}"
        return
    if found is not None:
        yield Refusal("", SCATTER, found)
    yield from _windows(expr, trail, program, lets)


def _bounds(expr: ir.Reduce, trail: Trail) -> Bounds:
    """The coordinates around a sum that run from one plain number to another."""
    return {
        step.coordinate: (step.lower, step.upper)
        for step in trail
        if isinstance(step, ir.Range)
        and step.coordinate in expr.type.coordinates
        and not step.lower.type.coordinates | step.upper.type.coordinates
    }


def _windows(expr: ir.Reduce, trail: Trail, program: ir.Program, lets: Mapping[str, ir.Let]) -> Iterator[str | Refusal]:
    """Reads that a guard keeps in bounds: padded with zeros, or gathered."""
    ranges = {step.coordinate: step for step in (*trail, *expr.ranges) if isinstance(step, ir.Range)}
    box: Trail = tuple(ranges.values())
    assert expr.guard is not None
    free, held = assume(box, lets), assume((*box, (expr.guard, True)), lets)
    for read in _factors(expr.body):
        for index, axis in zip(read.indices, program.tensors[read.tensor].axes, strict=True):
            if len(index.type.coordinates & ranges.keys()) < 2 or not _is_arithmetic(index):
                continue
            ends = _reach(index, ranges)
            if ends is None:
                reason = f"`{shown(index)}` is no sum of multiples of two coordinates: it is gathered"
                yield Refusal("", WINDOWS, reason)
                continue
            where, length = polynomial(index), polynomial(axis.extent)
            inside = (where, length - where - 1)
            if all(held.entails(side) for side in inside) and not all(free.entails(side) for side in inside):
                before, after = (shown(expression(end, index.span)) for end in (-ends[0], ends[1] - length))
                yield f"`{read.tensor}` padded by `{before}` and `{after}` along `{shown(index)}`"


def _is_arithmetic(index: ir.Expr) -> bool:
    """Whether an index varies with coordinates alone, and not with what stands in an array."""
    return not any(isinstance(part, ir.Read | ir.Reduce | ir.Array) and part.type.coordinates for part in walk(index))


def _factors(expr: ir.Expr) -> list[ir.Read]:
    """The reads that are factors of a product."""
    match expr:
        case ir.Map("*", (left, right)):
            return _factors(left) + _factors(right)
        case ir.Map("/", (left, _)):
            return _factors(left)
        case ir.Read(_, indices) if indices:
            return [expr]
        case _:
            return []


def _reach(index: ir.Expr, ranges: Mapping[Coordinate, ir.Range]) -> tuple[Polynomial, Polynomial] | None:
    """The first place of an index of two coordinates, and the one beyond its last; None for any other index."""
    moving = [monomial for monomial in polynomial(index).terms if not all(isinstance(a, ir.Size) for a, _ in monomial)]
    if len(moving) != 2 or any(len(m) > 1 or not all(a in ranges and n == 1 for a, n in m) for m in moving):
        return None
    ends = {c: (r.lower, expression(polynomial(r.upper) - 1, r.span)) for c, r in ranges.items()}
    first, last = extreme(index, ends, least=True), extreme(index, ends, least=False)
    return None if first is None or last is None else (polynomial(first), polynomial(last) + 1)
