"""Sizes: the range of each coordinate, from what is stated, from the axes it indexes, or from the inputs."""

from __future__ import annotations

from collections.abc import Callable

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, expression, number, polynomial
from ..ir.types import Coordinate
from ..ir.walk import fresh, rebuild, walk
from ..records import replace
from ..source import Span
from ..syntax import tree
from ..syntax.vocabulary import SCANS
from .kinds import whole
from .names import suggest
from .scope import Binding, Evidence, Frame, RestBinding, Scope, Tensor, Unit, is_closed

# A running sum is a node of its own: a point that its guard removes counts as absent, and is not read.
WRITTEN_OUT = {scan: op for scan, op in SCANS.items() if scan != "cumsum"}

Elaborate = Callable[[Unit, Scope, tree.Expr], ir.Expr | None]


def state_range(
    unit: Unit, scope: Scope, binding: Binding, bounds: tree.Range, elaborate: Elaborate, outer: bool
) -> bool:
    """Read the stated range of a coordinate; False where it cannot be used. `outer` coordinates may
    stand in the bounds of a reduction."""
    binding.broken = True
    lower, upper = elaborate(unit, scope, bounds.lower), elaborate(unit, scope, bounds.upper)
    if lower is None or upper is None:
        return False
    good = [whole(unit, bound, "the bound of a range") for bound in (lower, upper)]
    if not all(good):
        return False
    for bound in (lower, upper):
        if not outer and bound.type.coordinates:
            shown = ", ".join(f"`{c}`" for c in sorted(bound.type.coordinates, key=str))
            unit.report("IX302", f"the range of `{binding.name}` depends on {shown}", bound.span, help=_OUTER)
            return False
        if not is_closed(bound, unit):
            unit.report("IX302", f"the range of `{binding.name}` cannot depend on data", bound.span, help=_CLOSED)
            return False
    if bounds.inclusive:
        upper = simplify(build.apply("+", (upper, build.whole(1, upper.span)), "whole", upper.span))
    binding.stated = ir.Range(binding.coordinate, lower, upper, True, bounds.span)
    binding.broken = False
    return True


_CLOSED = "bounds are made of whole literals, `size(…)`, whole constants and whole scalar inputs"
_OUTER = "only the range of a reduction may depend on another coordinate; here, give a full range and a guard"


def simplify(expr: ir.Expr) -> ir.Expr:
    """A whole expression in its shortest form; constants keep their names."""
    return expression(polynomial(expr), expr.span)


def counted_from(place: ir.Expr, origin: ir.Expr) -> ir.Expr:
    """A place on an axis that begins elsewhere than at 0, as one that is counted from its first point."""
    if place.type.kind != "whole":
        return place
    return simplify(build.apply("-", (place, origin), "whole", place.span))


def extent(unit: Unit, range: ir.Range) -> ir.Expr:
    """The number of points of a range, where it has any."""
    if range.lower == build.whole(0, range.span):
        return range.upper
    difference = polynomial(range.upper, unit.constant) - polynomial(range.lower, unit.constant)
    return expression(difference, range.span)


def settle(unit: Unit, scope: Scope, binding: Binding) -> ir.Range | None:
    """The range of a coordinate whose statement has been read; None, and reported, where none is known."""
    if binding.stated is not None:
        binding.range = binding.stated
        return binding.range
    known = [evidence for evidence in binding.evidence if _is_news(evidence.extent, binding, scope.frame)]
    zero = build.whole(0, binding.span)
    if known:
        _agree(unit, binding, known)
        extent, origin = known[0].extent, known[0].origin
        assert extent is not None
        binding.range = whole_range(binding.coordinate, ir.Axis(binding.coordinate, extent, origin), binding.span)
    elif binding.name in scope.sizes and not binding.coordinate.rest:
        binding.range = ir.Range(binding.coordinate, zero, scope.sizes[binding.name], False, binding.span)
    elif unit.rehearsing and binding.evidence:
        unknown = build.size(Coordinate("?"), binding.span)
        binding.range = ir.Range(binding.coordinate, zero, unknown, False, binding.span)
    elif not unit.rehearsing and not binding.broken and binding.name not in unit.broken:
        owner = "parameter" if scope.in_function else "input"
        why = "the axes it indexes take their size from it" if binding.evidence else "it indexes no axis on its own"
        # A letter is near to every other one.
        help, _ = suggest(binding.name, scope.sizes, binding.span, unit.sink) if len(binding.name) > 2 else (None, None)
        unit.report(
            "IX301",
            f"nothing says how many points `{binding.coordinate}` has",
            Label(binding.span, f"{why}, and no {owner} has a coordinate of that name"),
            help=help or f"give it a range, as in `{binding.name} in 0..8`",
        )
    return binding.range


def whole_range(coordinate: Coordinate, axis: ir.Axis, span: Span) -> ir.Range:
    """The range of a coordinate that runs along all of an axis."""
    if axis.origin is None:
        return ir.Range(coordinate, build.whole(0, span), axis.extent, False, span)
    upper = simplify(build.apply("+", (axis.origin, axis.extent), "whole", span))
    return ir.Range(coordinate, axis.origin, upper, True, span)


def _is_news(extent: ir.Expr | None, binding: Binding, frame: Frame) -> bool:
    """Whether an axis says how many points a coordinate has: not where it takes its size from the coordinate."""
    if extent is None or not frame.placeholders:
        return extent is not None
    own = {coordinate for coordinate, asked in frame.placeholders.items() if asked is binding}
    return not own or not any(isinstance(part, ir.Size) and part.coordinate in own for part in walk(extent))


def _agree(unit: Unit, binding: Binding, known: list[Evidence]) -> None:
    first = known[0]
    assert first.extent is not None
    for other in known[1:]:
        assert other.extent is not None
        if not _begins_alike(unit, first.origin, other.origin):
            here, there = (show(side.origin) if side.origin is not None else "0" for side in (other, first))
            unit.report(
                "IX304",
                f"`{binding.coordinate}` begins at {here} here and at {there} there",
                Label(other.span, f"{here}, from {other.text}"),
                Label(first.span, f"{there}, from {first.text}"),
                help=f"say which points are meant, as in `{binding.name} in 1..size({binding.name})`",
            )
            return
        if other.extent == first.extent:
            continue
        size, other_size = polynomial(first.extent, unit.constant), polynomial(other.extent, unit.constant)
        difference = (other_size - size).constant
        if difference is None or difference == 0:
            continue
        here, there = _shown(other_size.constant, other.extent), _shown(size.constant, first.extent)
        unit.report(
            "IX304",
            f"`{binding.coordinate}` has {here} points here and {there} there",
            Label(other.span, f"{here}, from {other.text}"),
            Label(first.span, f"{there}, from {first.text}"),
            help="if these are two coordinates, give one another name",
        )
        return


def _begins_alike(unit: Unit, one: ir.Expr | None, other: ir.Expr | None) -> bool:
    first, second = (number(0) if side is None else polynomial(side, unit.constant) for side in (one, other))
    return one is other or (first - second).constant == 0


def _shown(value: int | None, extent: ir.Expr) -> str:
    return str(value) if value is not None else f"`{show(extent)}`"


def show(expr: ir.Expr) -> str:
    """A whole expression as a reader would write it."""
    match expr:
        case ir.Const(value):
            return str(value)
        case ir.Size(coordinate):
            return f"size({coordinate})"
        case ir.Coord(coordinate):
            return str(coordinate)
        case ir.Read(tensor, ()):
            return tensor
        case ir.Map("neg", (operand,)):
            return f"-{show(operand)}"
        case ir.Map(op, (left, right)) if op in ("+", "-", "*", "//", "%"):
            inner = [
                f"({show(side)})" if isinstance(side, ir.Map) and op not in ("+",) else show(side)
                for side in (left, right)
            ]
            return f"{inner[0]} {'/' if op == '//' else op} {inner[1]}"
        case _:
            return expr.span.text


def size_of(unit: Unit, scope: Scope, name: str, binding: Binding | None, span: Span) -> ir.Expr | None:
    """`size(c)`: of the `c` in scope, else of the inputs', else of the definitions'. One in scope may not be settled
    yet: then a placeholder stands for it until the statement has been read."""
    if binding is None:
        return scope.sizes.get(name) or _size_in_definitions(unit, scope, name, span)
    settled = binding.stated or binding.range
    if settled is not None:
        return extent(unit, settled)
    placeholder = Coordinate(f"?{name}{len(scope.frame.placeholders)}")
    scope.frame.placeholders[placeholder] = binding
    return build.size(placeholder, span)


def _size_in_definitions(unit: Unit, scope: Scope, name: str, span: Span) -> ir.Expr | None:
    """The number of points of a coordinate that only definitions have; an error where they differ about it."""
    tensors = [meaning for meaning in scope.names.values() if isinstance(meaning, Tensor) and not meaning.recursive]
    found = [(tensor, axis.extent) for tensor in tensors for axis in tensor.axes if axis.coordinate == name]
    if not found or scope.in_function:
        return None
    first, size = found[0]
    unit.sized.setdefault(name, (first, size, span))
    for other, extent in found[1:]:
        agree_about_size(unit, name, other, extent)
    return _placed(size, span)


def _placed(expr: ir.Expr, span: Span) -> ir.Expr:
    """A size as if it were written out here."""
    return replace(rebuild(expr, lambda inner: _placed(inner, span)), span=span)


def agree_about_size(unit: Unit, name: str, other: Tensor, extent: ir.Expr) -> None:
    """Report a definition that has not as many points of a coordinate as the one that its size was taken from."""
    first, size, span = unit.sized[name]
    difference = polynomial(extent, unit.constant) - polynomial(size, unit.constant)
    if difference.constant == 0 or name in unit.disputed:
        return
    unit.disputed.add(name)
    unit.report(
        "IX304",
        f"`size({name})` is {show(size)} in `{first.name}` and {show(extent)} in `{other.name}`",
        Label(span),
        Label(first.span, show(size)),
        Label(other.span, show(extent)),
        help=f"if these are two coordinates, give one another name than `{name}`",
    )


def fill(unit: Unit, frame: Frame, expr: ir.Expr, filling: frozenset[Coordinate] = frozenset()) -> ir.Expr:
    """The expression with the sizes that were not known while it was read."""
    if not frame.placeholders:
        return expr
    match expr:
        case ir.Size(coordinate) if coordinate in frame.placeholders:
            binding = frame.placeholders[coordinate]
            if binding.range is None:
                return expr
            if coordinate in filling:
                unit.report("IX302", f"the size of `{binding.name}` depends on itself", binding.range.span)
                return build.whole(0, expr.span)
            return fill(unit, frame, extent(unit, binding.range), filling | {coordinate})
        case _:
            return rebuild(expr, lambda inner: fill(unit, frame, inner, filling))


def finished(unit: Unit, frame: Frame, expr: ir.Expr, ranges: tuple[ir.Range, ...] = ()) -> ir.Expr:
    """The expression of a statement whose ranges are settled: with the sizes that were not known while it was read, and
    scans written out."""
    expr = fill(unit, frame, expr)
    if not unit.scans:
        return expr
    from ..ir.scans import as_reductions  # Few programs have one.

    return as_reductions(expr, {range.coordinate: range for range in ranges}, WRITTEN_OUT)


def fill_axis(unit: Unit, frame: Frame, axis: ir.Axis) -> ir.Axis:
    origin = None if axis.origin is None else fill(unit, frame, axis.origin)
    return ir.Axis(axis.coordinate, fill(unit, frame, axis.extent), origin)


def fill_range(unit: Unit, frame: Frame, range: ir.Range) -> ir.Range:
    lower, upper = fill(unit, frame, range.lower), fill(unit, frame, range.upper)
    return ir.Range(range.coordinate, lower, upper, range.stated, range.span)


def settle_rest(unit: Unit, scope: Scope, rest: RestBinding) -> list[Binding]:
    """The coordinates that `..r` stands for; by default those of the inputs' `..r`."""
    if rest.parts is None:
        axes = scope.rests.get(rest.name)
        if axes is None:
            if not unit.rehearsing:
                unit.report(
                    "IX301",
                    f"nothing says which coordinates `..{rest.name}` stands for",
                    rest.span,
                    help="read a tensor with it, or declare an input with it",
                )
            rest.parts = []
            return rest.parts
        rest.parts = [_part(scope, axis, rest) for axis in axes]
        for part, axis in zip(rest.parts, axes, strict=True):
            part.evidence.append(Evidence(axis.extent, f"`..{rest.name}`", rest.span, axis.origin))
    return rest.parts


def resolve_rest(
    unit: Unit, scope: Scope, rest: RestBinding, axes: tuple[ir.Axis, ...], tensor: str, span: Span
) -> bool:
    """`..r` is read against these leading axes of a tensor; False, and reported, where it stood for others."""
    if rest.parts is None:
        rest.parts = [_part(scope, axis, rest) for axis in axes]
        rest.resolved_by = span
    shape = [part.coordinate.rest for part in rest.parts]
    if shape != [axis.coordinate.rest for axis in axes]:
        labels = [Label(span, f"here for {_count(axes)} of `{tensor}`")]
        if rest.resolved_by is not None:
            parts = ", ".join(str(part.coordinate) for part in rest.parts) or "no coordinate"
            labels.append(Label(rest.resolved_by, f"here for {parts}"))
        unit.report("IX213", f"`..{rest.name}` stands for different coordinates in one statement", *labels)
        return False
    for place, (part, axis) in enumerate(zip(rest.parts, axes, strict=True)):
        extent = None if is_unknown(axis) else axis.extent
        part.evidence.append(Evidence(extent, f"`{tensor}`'s axis {place}", span, axis.origin))
    return True


def is_unknown(axis: ir.Axis) -> bool:
    """Whether an axis is one of a definition that reads itself, and is not known yet."""
    return isinstance(axis.extent, ir.Size) and axis.extent.coordinate.name == "?"


def _count(axes: tuple[ir.Axis, ...]) -> str:
    names = ", ".join(str(axis.coordinate) for axis in axes)
    return f"the leading {names}" if axes else "no leading coordinate"


def _part(scope: Scope, axis: ir.Axis, rest: RestBinding) -> Binding:
    """A coordinate for one axis that `..r` stands for, named as the axis is where that name is free."""
    coordinate = fresh(Coordinate(axis.coordinate.name, axis.coordinate.rest), {*scope.frame.live, *scope.names})
    binding = Binding(coordinate, coordinate.name, rest.span)
    scope.frame.live[coordinate.name] = binding
    return binding


def reach(unit: Unit, intervals: list[tuple[ir.Expr, ir.Expr]]) -> ir.Expr:
    """The end of a row of intervals from 0. One that starts where another ends reaches further."""
    if len(intervals) == 1:
        return intervals[0][1]
    ends = [(polynomial(lower, unit.constant), polynomial(upper, unit.constant)) for lower, upper in intervals]
    for (_, upper), (_, end) in zip(intervals, ends, strict=True):
        reached = {end}
        for _ in ends:
            reached |= {lower for lower, after in ends if after in reached}
        if all(other in reached or _at_most(other, end) for _, other in ends):
            return upper
    largest = tuple(dict.fromkeys(upper for _, upper in intervals))
    return build.apply("max", largest, "whole", largest[0].span)


def _at_most(left: Polynomial, right: Polynomial) -> bool:
    difference = (right - left).constant
    return difference is not None and difference >= 0
