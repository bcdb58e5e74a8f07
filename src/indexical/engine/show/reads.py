"""Reads as Python source: a slice, stride, window, split or diagonal is a view; all else is gathered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...ir.affine import Polynomial, affine_parts, expression, is_counted, polynomial
from ...ir.types import Coordinate
from ...records import dataclass, replace
from ..merging import Merge, merge_of
from ..ops import Axis, Iota, Number, Read, Value, value
from .checks import check_places, out_of_bounds
from .code import Code, indexed, method
from .numbers import counted, extent, number
from .rows import expr_at, in_rows, row_of

if TYPE_CHECKING:
    from .printer import Printer

_ZERO = Polynomial({})
_ONE = Polynomial({frozenset(): 1})


@dataclass(frozen=True, slots=True)
class Reach:
    """The places along one axis that a read reaches, from `first` up to `beyond`.

    `runs` are the axes that take its place, the outermost first, with their steps; one that is `flipped` counts down.
    No runs are a single place; None is a gather.
    """

    axis: Axis
    first: Polynomial
    beyond: Polynomial
    runs: tuple[tuple[Axis, Polynomial], ...] | None
    flipped: frozenset[Coordinate] = frozenset()

    @property
    def is_split(self) -> bool:
        """Whether the places lie side by side, each reached once: then the axis is reshaped."""
        below = _ONE
        for axis, step in reversed(self.runs or ()):
            if step != below:
                return False
            below = below * polynomial(axis.extent)
        return True

    @property
    def is_whole(self) -> bool:
        return self.runs != () and self.first == _ZERO and self.beyond == polynomial(self.axis.extent)


def read(p: Printer, one: Value) -> Code:
    """A source at an index."""
    op = one.op
    assert isinstance(op, Read)
    merge = merge_of(op)
    if merge is not None:
        return _merged(p, one, merge)
    index = dict(op.index)
    if isinstance(op.source.op, Iota) and op.outside == "check" and op.under is None:
        (name, place), = op.index
        if place.dtype == "i64":  # A place of places is itself, where it is one.
            check_places(p, place, op.source.axis(name), None, out_of_bounds(p, op.source, name))
            return p.permuted(p.code(place), p.order_of(place), p.order_of(one))
    rows = in_rows(p, op.source)
    if rows is not None:
        # After its loop, a row that is asked for is there, or refused below.
        known = "masked" if p.ahead else op.outside
        code, inner = row_of(p, rows, index, known if rows is op.source else "never")
    else:
        code, inner = _apart(p, op, index)
    reached = [_reach(op.source.axis(name), index.get(name), p.order_of(one)) for name in inner]
    reached = _gathered_together(reached, index)
    gathered = [reach.axis.name for reach in reached if reach.runs is None]
    # One gather that is not checked under a guard looks at its places itself.
    checks_itself = op.outside == "check" and op.under is None and len(gathered) == 1
    for name, place in op.index if op.outside == "check" else ():
        if not (checks_itself and name in gathered):
            check_places(p, place, op.source.axis(name), op.under, out_of_bounds(p, op.source, name))
    outside = op.outside == "masked" or (op.outside == "check" and op.under is not None)
    outside = outside or (p.ahead and bool(one.symbols or not gathered))
    code, now = _viewed(p, code, reached, outside)
    if gathered:
        message = out_of_bounds(p, op.source, gathered[0]) if checks_itself else ""
        code, now = _gathered(p, code, now, index, outside, message)
    return p.permuted(code, now, p.order_of(one))


def _apart(p: Printer, op: Read, index: dict[Coordinate, Value]) -> tuple[Code, tuple[Coordinate, ...]]:
    """The source. Its row at a step may come from a list of all rows, or be the only one there is."""
    inner = p.order_of(op.source)
    if op.source in p.by_rows:
        p.code(op.source)
    for name, place in op.index if op.outside == "never" or op.source in p.by_rows else ():
        rows = p.apart.get((op.source, name))
        axis = op.source.axis(name)
        if rows is not None and place.is_host and not (p.ahead and not _is_inside(p, _reach(axis, place, ()))):
            index.pop(name)
            code = indexed(Code(rows), [number(p, expr_at(place))])
            return code, tuple(one for one in inner if one != name)
    return p.code(op.source), inner


# ------------------------------------------------------------------------- places


def _reach(axis: Axis, place: Value | None, own: tuple[Coordinate, ...]) -> Reach:
    """What an index reaches along one axis."""
    length = polynomial(axis.extent)
    if place is None:
        return Reach(axis, _ZERO, length, ((axis, _ONE),))
    if isinstance(place.op, Number):
        first = polynomial(place.op.expr)
        return Reach(axis, first, first + 1, ())
    gather = Reach(axis, _ZERO, length, None)
    found = None if place.known.whole is None else affine_parts(place.known.whole, place.names)
    if found is None or found[0].keys() != place.names:
        return gather
    steps, first = found
    runs: list[tuple[Axis, Polynomial]] = []
    flipped = set()
    for name, step in steps.items():
        extent_ = polynomial(place.extent(name))
        if is_counted(-step):
            first, step = first + step * (extent_ - 1), -step
            flipped.add(name)
        if not is_counted(step) or not step.terms or (len(steps) == 1 and not is_counted(step - 1)):
            return gather
        runs.append((place.axis(name), step))
    runs = _nested(runs, own)
    reach = Reach(axis, first, first, tuple(runs), frozenset(flipped))
    if reach.is_split or len(runs) == 1:
        total = runs[0][1] * polynomial(runs[0][0].extent)
        return replace(reach, beyond=first + total)
    if len(runs) > 2:
        return gather
    last = runs[0][1] * (polynomial(runs[0][0].extent) - 1) + runs[1][1] * (polynomial(runs[1][0].extent) - 1)
    return replace(reach, beyond=first + last + 1)


def _nested(runs: list[tuple[Axis, Polynomial]], own: tuple[Coordinate, ...]) -> list[tuple[Axis, Polynomial]]:
    """The runs, each after one whose step it fits into; else in the order of the result."""
    runs = sorted(runs, key=lambda run: own.index(run[0].name))
    ordered: list[tuple[Axis, Polynomial]] = []
    left, below = list(runs), _ONE
    while left:
        inner = next((run for run in left if run[1] == below), None)
        if inner is None:
            return runs
        left.remove(inner)
        ordered.insert(0, inner)
        below = below * polynomial(inner[0].extent)
    return ordered


def _gathered_together(reached: list[Reach], index: dict[Coordinate, Value]) -> list[Reach]:
    """An axis whose coordinate a gathered one has, too, is gathered with it. Two views that share one are a diagonal,
    where each runs over it alone."""
    changed = True
    while changed:
        changed = False
        names = {name for one in reached if one.runs is None for name in index[one.axis.name].names}
        for n, one in enumerate(reached):
            if one.runs is not None and any(run.name in names for run, _ in one.runs):
                reached[n], changed = replace(one, first=_ZERO, beyond=polynomial(one.axis.extent), runs=None), True
                index.setdefault(one.axis.name, value(Iota(one.axis)))
    return reached


# -------------------------------------------------------------------------- views


def _viewed(
    p: Printer, code: Code, reached: list[Reach], outside: bool
) -> tuple[Code, tuple[Coordinate, ...]]:
    """The source with all its views taken; axes that are gathered stay as they are."""
    code, slots = _sliced(p, code, reached, outside)
    code = indexed(code, slots)
    kept = [reach for reach in reached if reach.runs != ()]
    for n, reach in enumerate(kept):
        if len(reach.runs or ()) == 1 and reach.flipped:
            code = p.d.flip(p, code, n)
    splits = [reach for reach in kept if reach.runs is not None and len(reach.runs) > 1 and reach.is_split]
    if splits:
        code = method(code, "reshape", *(length for reach in kept for length in _lengths(p, reach, splits)))
    now: list[Coordinate] = []
    for reach in kept:
        if reach.runs is None or (len(reach.runs) > 1 and reach not in splits):
            now.append(_mark(reach.axis.name))
            continue
        for run, _ in reach.runs:
            if len(reach.runs) > 1 and run.name in reach.flipped:
                code = p.d.flip(p, code, len(now))
            now.append(run.name)
    windows = [reach for reach in kept if reach.runs is not None and len(reach.runs) > 1 and reach not in splits]
    shared = Counter(run.name for reach in kept for run, _ in reach.runs or ())
    turned: list[Coordinate] = []
    for reach in windows:
        code, now = _diagonals(code, now)  # A window leans on one axis of a name.
        code, now, backward = _leaning(p, code, now, reach) or _window(p, code, now, reach)
        for axis in backward:
            if shared[now[axis]] > 1:
                code = p.d.flip(p, code, axis)
            else:  # A library may copy what it turns around: a diagonal is smaller than its windows.
                turned.append(now[axis])
    code, now = _diagonals(code, now)
    for name in turned:
        code = p.d.flip(p, code, now.index(name))
    return code, tuple(now)


def _window(
    p: Printer, code: Code, now: list[Coordinate], reach: Reach
) -> tuple[Code, list[Coordinate], list[int]]:
    """The windows of an axis, the places within last; and those of the two axes that run backward."""
    assert reach.runs is not None
    (outer, step), (inner, dilation) = reach.runs
    axis = now.index(_mark(reach.axis.name))
    counts = [extent(p, outer), extent(p, inner), *(counted(p, s, outer.extent.span) for s in (step, dilation))]
    code = p.call("windows", code, axis, *(counts[:3] if dilation == _ONE else counts))
    ends = ((axis, outer.name), (len(now), inner.name))
    now = [*now[:axis], outer.name, *now[axis + 1 :], inner.name]
    return code, now, [n for n, name in ends if name in reach.flipped]


def _leaning(
    p: Printer, code: Code, now: list[Coordinate], reach: Reach
) -> tuple[Code, list[Coordinate], list[int]] | None:
    """The windows of an axis of which each belongs to one point of another axis of the source: of the diagonal of all
    windows no more than itself is made, and on the way back too."""
    assert reach.runs is not None
    own = next((run for run in reach.runs if run[0].name in now), None)
    if own is None:
        return None
    (outer, step), (inner, dilation) = own, next(run for run in reach.runs if run != own)
    mark, span = _mark(reach.axis.name), outer.extent.span
    order = [name for name in now if name != mark]
    axis = order.index(outer.name)
    order.insert(axis + 1, mark)
    code = p.permuted(code, tuple(now), tuple(order))
    falls = outer.name in reach.flipped
    first = step * (polynomial(outer.extent) - 1) if falls else _ZERO
    counts = [extent(p, inner), *(counted(p, s, span) for s in (first, -step if falls else step, dilation))]
    code = p.call("leaning", code, axis, *(counts[:3] if dilation == _ONE else counts))
    now = [*(name for name in order if name != mark), inner.name]
    return code, now, [len(now) - 1] if inner.name in reach.flipped else []


def _lengths(p: Printer, reach: Reach, splits: list[Reach]) -> list[Code]:
    """The lengths of the axes that take the place of one."""
    if reach in splits:
        return [extent(p, run) for run, _ in reach.runs or ()]
    if reach.runs is not None and len(reach.runs) == 1:
        return [extent(p, reach.runs[0][0])]
    return [counted(p, reach.beyond - reach.first, reach.axis.extent.span)]


def _sliced(p: Printer, code: Code, reached: list[Reach], outside: bool) -> tuple[Code, list[str]]:
    """The slices of all axes. One that leaves its axis is padded with zeros."""
    slots, pads = [], []
    for n, reach in enumerate(reached):
        step = reach.runs[0][1] if reach.runs is not None and len(reach.runs) == 1 else _ONE
        jump = "" if step == _ONE else f":{counted(p, step, reach.axis.extent.span)}"
        if reach.runs is None or (reach.runs and reach.is_whole and step == _ONE):
            slots.append(":")
        elif outside and not _is_inside(p, reach):
            first, beyond = (counted(p, end, reach.axis.extent.span) for end in (reach.first, reach.beyond))
            pads.append(f"{n}: ({first}, {beyond})")
            slots.append(f":{jump}" if reach.runs else "0")
        else:
            slots.append(_slot(p, reach, jump))
    return (p.call("padded", code, f"{{{', '.join(pads)}}}") if pads else code), slots


def _slot(p: Printer, reach: Reach, jump: str) -> str:
    span = reach.axis.extent.span
    if reach.runs == ():
        return str(counted(p, reach.first, span))
    first = "" if reach.first == _ZERO else str(counted(p, reach.first, span))
    left = polynomial(reach.axis.extent) - reach.beyond
    last = "" if left == _ZERO else str(counted(p, reach.beyond, span))
    # An end below 0 counts from that of the array: it has to be before the first place.
    ends = not last or is_counted(reach.beyond) or is_counted(reach.first - left + 2)
    return f"{first}:{last}{jump}" if ends else f"{first}:max(0, {last}){jump}"


def _is_inside(p: Printer, reach: Reach) -> bool:
    """Whether sizes alone say that all places are there, in all turns of the loops around."""
    step = reach.runs[0][1] if reach.runs is not None and len(reach.runs) == 1 else _ONE
    left = polynomial(reach.axis.extent) - reach.beyond + step - 1
    return _is_counted_in_all_turns(p, reach.first) and _is_counted_in_all_turns(p, left)


def _is_counted_in_all_turns(p: Printer, number_: Polynomial) -> bool:
    found = affine_parts(number_, frozenset(p.turns))
    if found is None:
        return is_counted(number_)
    steps, least = found
    falling = {symbol: step for symbol, step in steps.items() if not is_counted(step)}
    for symbol, step in falling.items():
        least = least + step * (p.turns[symbol] - 1)
    return is_counted(least) and all(is_counted(-step) for step in falling.values())


def _diagonals(code: Code, now: list[Coordinate]) -> tuple[Code, list[Coordinate]]:
    """An axis that stands twice is a diagonal, which goes last."""
    for name in dict.fromkeys(now):
        while now.count(name) > 1:
            first = now.index(name)
            second = now.index(name, first + 1)
            code = method(code, "diagonal", 0, first, second)
            now = [*(other for n, other in enumerate(now) if n not in (first, second)), name]
    return code, now


# ------------------------------------------------------------------------ gathers


def _gathered(
    p: Printer,
    code: Code,
    now: tuple[Coordinate, ...],
    index: dict[Coordinate, Value],
    outside: bool,
    message: str,
) -> tuple[Code, tuple[Coordinate, ...]]:
    """A view at places along some of its axes; 0 where there is no such place, or refused with a message."""
    if not message and (found := _along(p, code, now, index, outside)) is not None:
        return found
    marks = {_mark(name): place for name, place in index.items()}
    places = {name: marks[name] for name in now if name in marks}
    union = tuple(dict.fromkeys(name for place in places.values() for name in p.order_of(place)))
    axes = [now.index(name) for name in places]
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    rest = [name for name in now if name not in places]
    result = (*rest[:first], *union, *rest[first:])
    if len(places) == 1:
        (place,) = places.values()
        if message:
            return p.d.take_checked(p, code, axes[0], p.named(place), message), result
        return p.d.take(p, code, axes[0], p.code(place), outside), result
    codes: list[Code | None] = [p.aligned(places[name], union) if name in places else None for name in now]
    while codes[-1] is None:
        codes.pop()
    return p.d.pick(p, code, codes, outside), result


def _along(
    p: Printer, code: Code, now: tuple[Coordinate, ...], index: dict[Coordinate, Value], outside: bool
) -> tuple[Code, tuple[Coordinate, ...]] | None:
    """A view at a place of one axis for each point of all its others, where the library has a call for that."""
    names = {_mark(name): name for name in index}
    if any(mark not in names for mark in now):
        return None
    kept = tuple(
        name for name in map(names.__getitem__, now)
        if isinstance(own := index[name].op, Iota) and own.axis.name == name
    )  # fmt: skip
    moving = [name for name in map(names.__getitem__, now) if name not in kept]
    if len(moving) != 1 or index[moving[0]].names != frozenset(kept):
        return None
    found = p.d.along(p, code, now.index(_mark(moving[0])), p.aligned(index[moving[0]], kept), outside)
    return None if found is None else (found, kept)


def _mark(name: Coordinate) -> Coordinate:
    """The name of an axis of the source that is still to be gathered: no other axis is called so."""
    return Coordinate(f"?{name.name}")


def _merged(p: Printer, one: Value, merge: Merge) -> Code:
    """Two axes side by side, reshaped to one, of which a part may be read."""
    own, left, axis = p.order_of(one), merge.source, merge.axis
    at = own.index(axis.name)
    code = p.permuted(p.code(left), p.order_of(left), (*own[:at], merge.major, merge.minor, *own[at + 1 :]))
    both = Axis(axis.name, expression(merge.length, axis.extent.span))
    code = method(code, "reshape", *(extent(p, both if n == at else one.axis(name)) for n, name in enumerate(own)))
    reach = Reach(both, merge.begin, merge.begin + polynomial(axis.extent), ((axis, _ONE),))
    return indexed(code, [":" if n != at or merge.is_whole else _slot(p, reach, "") for n in range(len(own))])
