"""Ways back through values: from the cotangent of one to those of the values that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import Coordinate, Dtype
from ...transform.slopes import partials
from ..ops import Axis, Contract, Iota, Map, Normalize, Read, Reduce, Value, Write, apply, host, value
from ..order import reachable
from ..products import is_pair
from .terms import NOWHERE, applied, fresh, is_number, kept, length, promoted, real, total, where, zero

# What a product with a slope has to be: itself, or 0 where the slope may be anything.
Kept = Callable[[Value, Value], Value]


class Undifferentiable(Exception):
    """A value has no way back here: why."""


def flows(
    root: Value,
    cotangent: Value,
    leaves: Collection[Value],
    keep: Kept = lambda slope, product: product,
    heard: Callable[[Value], Value] = lambda one: one,
) -> dict[Value, Value]:
    """The cotangents of the `leaves` that a value is made of, where this one is its own. What does not vary along an
    axis has the sum over it. `keep` makes a product with a slope 0 where nobody asks for it, and `heard` what a
    cotangent is contracted with."""
    values = reachable([root])
    reached: dict[Value, bool] = {}
    for one in values:
        reached[one] = one in leaves or (one.kind == "real" and any(reached[part] for part in one.parts))
    found = {root: _summed(cotangent, root)} if reached[root] else {}
    for one in reversed(values):
        if one not in found or one in leaves:
            continue
        arriving = found.pop(one)
        for part, share in _shares(one, arriving, reached, keep, heard):
            more = _summed(share, part, _bound(one))
            found[part] = applied("+", *promoted((found[part], more))) if part in found else more
    return found


def _shares(
    one: Value, flow: Value, reached: Mapping[Value, bool], keep: Kept, heard: Callable[[Value], Value]
) -> Iterator[tuple[Value, Value]]:
    """What flows to each operand; it may have more axes than that."""
    match one.op:
        case Map("where", (test, then, otherwise)):
            if reached[then]:
                yield then, where(test, flow, zero("real"))
            if reached[otherwise]:
                yield otherwise, where(test, zero("real"), flow)
        case Map("/", (above, below)) if not reached[below]:
            yield above, applied("/", *promoted((flow, below)))
        case Map(_, args):
            for part, slope in zip(args, slopes(one), strict=True):
                if reached[part] and slope is not None:
                    yield part, _times(flow, slope, keep)
        case Contract(factors, _):
            for n, factor in enumerate(factors):
                if reached[factor]:
                    others = tuple(heard(other) for m, other in enumerate(factors) if m != n)
                    yield factor, _product(flow, others, factor)
        case Reduce("sum", source, _, test):
            yield source, kept(test, flow)
        case Reduce("mean", source, over, None):
            for axis in over:
                flow = applied("/", flow, host(length(axis)))
            yield source, flow
        case Read(source, index) if not any(reached[at] for _, at in index):
            yield source, _written(flow, source, index)
        case Reduce(fn=fn) | Normalize(fn=fn):
            raise Undifferentiable(f"`{fn}` inside a score has no way back here")
        case _:
            raise Undifferentiable(f"{one} has no way back here")


def slopes(one: Value) -> list[Value | None]:
    """The derivatives of a function by its arguments, by the table of functions; None where they are 0 everywhere."""
    op = one.op
    assert isinstance(op, Map)
    reads = tuple(build.read(f"{n}'", (), arg.kind, NOWHERE) for n, arg in enumerate(op.args))
    # What is here for how a value is stored is no step in the text.
    fn = "as real" if op.fn.startswith("as ") else op.fn
    if fn == "as real":
        return [real(1)]
    expr = ir.Map(fn, reads, build.apply(fn, reads, one.kind, NOWHERE).type, NOWHERE)
    known: dict[ir.Expr, Value] = {**dict(zip(reads, op.args, strict=True)), expr: one}
    return [None if partial is None else _valued(partial, known, one.dtype) for partial in partials(expr)]


def _valued(expr: ir.Expr, known: Mapping[ir.Expr, Value], dtype: Dtype | None) -> Value:
    """An elementwise expression of arguments that are values, in their dtype."""
    if expr in known:
        return known[expr]
    match expr:
        case ir.Select(test, then, otherwise):
            return where(*(_valued(part, known, dtype) for part in (test, then, otherwise)))
        case ir.Map(fn, arguments):
            given = [_typed(_valued(part, known, dtype), dtype) for part in arguments]
            if all(arg.kind == "real" for arg in given):
                given = promoted(given)
            return applied(fn, *given)
    return host(expr)


def _typed(one: Value, dtype: Dtype | None) -> Value:
    """A choice of two numbers in a dtype: as arrays of their own they would have the widest."""
    match one.op:
        case Map("where", (test, then, otherwise)) if dtype and then.is_host and otherwise.is_host:
            return where(test, apply(f"as {dtype}", then), otherwise)
    return one


def _times(flow: Value, slope: Value, keep: Kept) -> Value:
    """A cotangent times a slope; 0 where a condition says that the slope is 0, whatever the cotangent is."""
    if is_number(slope, 1):
        return flow
    if is_number(slope, -1):
        return applied("neg", flow)
    match slope.op:
        case Map("where", (test, then, otherwise)):
            parts = (part if is_number(part, 0) else _times(flow, part, keep) for part in (then, otherwise))
            return where(test, *parts)
    return keep(slope, applied("*", *promoted((flow, slope))))


def _product(flow: Value, others: tuple[Value, ...], factor: Value) -> Value:
    """A cotangent times factors, summed over what the other one does not vary with."""
    first, *rest = promoted((flow, *others))
    for other in rest[:-1]:
        first = applied("*", first, other)
    return product_sum(first, rest[-1], factor.names)


def product_sum(one: Value, other: Value, keeps: Collection[Coordinate]) -> Value:
    """The sum of a product over all axes but some: a product of matrices where it is one."""
    names = one.names | other.names
    over = tuple(
        next(axis for axis in (*one.axes, *other.axes) if axis.name == name) for name in sorted(names - set(keeps))
    )
    pair = tuple(promoted((one, other)))
    if not over:
        return applied("*", *pair)
    op = Contract(pair, over)
    return value(op) if is_pair(op) else total(applied("*", *pair), over)


def _summed(flow: Value, part: Value, over: Iterable[Axis] = ()) -> Value:
    """What flows to a value, summed over the axes that it does not have; an operand that is the same at all points of
    those that a sum is `over` gets so many times as much."""
    gone = [axis for axis in flow.axes if axis.name not in part.names]
    if gone:
        match flow.op:
            case Map("*", (a, b)) if a.kind == b.kind == "real" and not a.is_host and not b.is_host:
                flow = product_sum(a, b, part.names)
            case _:
                flow = total(flow, gone)
    for axis in over:
        if axis.name not in part.names and axis.name not in [each.name for each in gone]:
            flow = applied("*", flow, host(length(axis)))
    return flow


def _bound(one: Value) -> tuple[Axis, ...]:
    """The axes that a sum is over, along which its operands may not vary."""
    match one.op:
        case Reduce("sum" | "mean", _, over):
            return over
    return ()


def _written(flow: Value, source: Value, index: tuple[tuple[Coordinate, Value], ...]) -> Value:
    """The transpose of a read: what arrives at a place is added up there."""
    at = frozenset[Coordinate]().union(*(place.names for _, place in index))
    beside = [axis for axis in flow.axes if axis.name not in at | source.names]
    if beside:
        flow = total(flow, beside)
    stays = source.names - dict(index).keys()
    gone = tuple(axis for axis in flow.axes if axis.name in at and axis.name not in stays)
    taken = flow.names | at | source.names
    names = {name: fresh(name, taken) if name in flow.names | at else name for name, _ in index}
    axes = {name: Axis(other, source.extent(name)) for name, other in names.items()}
    places = sorted(((axes[name], place) for name, place in index), key=lambda pair: pair[0].name)
    written = value(Write(flow, tuple(places), gone, "add", "masked"))
    moved = sorted((axis.name, value(Iota(source.axis(name)))) for name, axis in axes.items() if axis.name != name)
    return value(Read(written, tuple(moved))) if moved else written
